"""WebSocket with `wsproto` parsing frames."""

from __future__ import annotations

from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Message, Ping, Pong, Request
from wsproto.extensions import Extension
from wsproto.frame_protocol import FrameDecoder, FrameProtocol, Opcode, RsvBits

from uvicorn.protocols.http.hooks import original
from uvicorn.protocols.utils import ClientDisconnected as ClientDisconnected
from uvicorn.protocols.websockets.deflate import Deflate
from uvicorn.protocols.websockets.frames import FrameError, invalid_text
from uvicorn.protocols.websockets.handshake import Handshake
from uvicorn.protocols.websockets.session import WebSocketSession


class DeflateExtension(Extension):
    """Makes the library inflate with our stream, which holds its output to the limit.

    The library is given whole frames, so all of a frame's payload comes at once. What is raised here passes through it.
    """

    __slots__ = ("_deflate", "_compressed", "_payload")

    name = "permessage-deflate"

    def __init__(self, deflate: Deflate) -> None:
        self._deflate = deflate
        self._compressed = False  # the message in progress
        self._payload: bytes | None = None  # of the frame in progress, if it is to be inflated

    def enabled(self) -> bool:
        """Return true: the handshake has settled it."""
        return True

    def offer(self) -> bool:
        """Return true: nothing is offered by a server."""
        return True

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> RsvBits:
        """Note whether the frame is compressed; return the reserved bits that may be set."""
        if opcode in (Opcode.TEXT, Opcode.BINARY):
            self._compressed = rsv.rsv1
        self._payload = b"" if self._compressed and not opcode.iscontrol() else None
        return RsvBits(True, False, False)

    def frame_inbound_payload_data(self, proto: FrameDecoder | FrameProtocol, data: bytes) -> bytes:
        """Keep the payload until the frame is complete, for then it is known whether it ends its message."""
        if self._payload is None:
            return data
        self._payload = data
        return b""

    def frame_inbound_complete(self, proto: FrameDecoder | FrameProtocol, fin: bool) -> bytes | None:
        """Return the inflated payload."""
        if self._payload is None:
            return None
        return self._deflate.inflate(self._payload, fin)


@original
class WSProtocol(WebSocketSession):
    """One WebSocket connection on `wsproto.connection.Connection`.

    Attributes:
        conn: the library's side of the connection, once it is accepted.
    """

    __slots__ = ("conn", "__dict__")

    conn: Connection

    def open(self, deflate: Deflate | None) -> None:
        """Make the library's side of the connection."""
        extensions: list[Extension] = [] if deflate is None else [DeflateExtension(deflate)]
        self.conn = Connection(ConnectionType.SERVER, extensions)

    def describe(self, handshake: Handshake) -> Request:
        """Return the event that the library would have made."""
        host = next((value for name, value in handshake.headers if name == b"host"), b"")
        return Request(
            host.decode("ascii"),
            handshake.target.decode("ascii"),
            extra_headers=list(handshake.headers),
            subprotocols=list(handshake.subprotocols),
        )

    def parse(self, data: bytes) -> None:
        """Parse one frame, which is no close frame."""
        self.conn.receive_data(data)
        for event in self.conn.events():
            if isinstance(event, Message):
                payload = event.data
                self.on_piece(payload if isinstance(payload, str) else bytes(payload), event.message_finished)
            elif isinstance(event, Ping):
                self.on_ping(bytes(event.payload))
            elif isinstance(event, Pong):
                self.on_pong(bytes(event.payload))
            elif isinstance(event, CloseConnection):
                # Close frames are not parsed here: the library could not make sense of what it was given.
                raise invalid_text() if event.code == 1007 else FrameError(event.code, event.reason or "")
