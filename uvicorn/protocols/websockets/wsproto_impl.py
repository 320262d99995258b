"""WebSocket with `wsproto` parsing frames."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, Message, Ping, Pong, Request
from wsproto.extensions import Extension
from wsproto.frame_protocol import FrameDecoder, FrameProtocol, Opcode, RsvBits

from uvicorn.hooks import original
from uvicorn.protocols.utils import ClientDisconnected as ClientDisconnected
from uvicorn.protocols.utils import get_client_addr as get_client_addr
from uvicorn.protocols.utils import get_local_addr as get_local_addr
from uvicorn.protocols.utils import get_path_with_query_string as get_path_with_query_string
from uvicorn.protocols.utils import get_remote_addr as get_remote_addr
from uvicorn.protocols.utils import is_ssl as is_ssl
from uvicorn.protocols.websockets.deflate import Deflate
from uvicorn.protocols.websockets.frames import Close, FrameError, invalid_text
from uvicorn.protocols.websockets.handshake import Handshake
from uvicorn.protocols.websockets.incoming import OverriddenIncoming
from uvicorn.protocols.websockets.session import WebSocketSession


class DeflateExtension(Extension):
    """Makes the library inflate with our stream, which holds its output to the limit.

    The library is given whole frames, so all of a frame's payload comes at once. Exceptions from here pass through it.
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


class AnnouncingConnection(Connection):
    """The library's side of a connection of which a program has overridden methods: it hands out everything.

    Args:
        incoming: of the session; it notes what the library does not take.

    Attributes:
        announced: events that the library has not read.
    """

    __slots__ = ("announced", "_incoming")

    def __init__(self, incoming: OverriddenIncoming, extensions: list[Extension]) -> None:
        super().__init__(ConnectionType.SERVER, extensions)
        self.announced: list[Event] = []
        self._incoming = incoming

    def events(self) -> Generator[Event, None, None]:
        """Return the events that have come; a mistake is a `CloseConnection`, as the library's own are."""
        announced, self.announced = self.announced, []
        yield from announced
        try:
            for event in super().events():
                if isinstance(event, CloseConnection):
                    raise _mistake(event)
                yield event
        except FrameError as error:
            self._incoming.last = error
            yield CloseConnection(error.code, error.reason)


def _mistake(event: CloseConnection) -> FrameError:
    """Return what the library could not make sense of. Close frames are not parsed by it."""
    return invalid_text() if event.code == 1007 else FrameError(event.code, event.reason or "")


@original
class WSProtocol(WebSocketSession):
    """One WebSocket connection on `wsproto.connection.Connection`.

    Attributes:
        conn: the library's side of the connection, once it is accepted.
    """

    __slots__ = ("conn", "__dict__")

    conn: Connection

    never_used = (
        "wsproto.WSConnection",
        "uvicorn.protocols.websockets.wsproto_impl.PerMessageDeflate",
        "uvicorn.protocols.websockets.wsproto_impl.WebsocketBuffer",
        "uvicorn.protocols.websockets.wsproto_impl.FrameTooLargeError",
        "uvicorn.protocols.websockets.wsproto_impl.unquote",
    )

    frame_methods = ("handle_close", "handle_events", "handle_message", "handle_ping", "handle_pong")

    def open(self, deflate: Deflate | None) -> None:
        """Make the library's side of the connection."""
        extensions: list[Extension] = [] if deflate is None else [DeflateExtension(deflate)]
        if isinstance(self._incoming, OverriddenIncoming):
            self.conn = AnnouncingConnection(self._incoming, extensions)
        else:
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
        """Parse one frame other than a close frame."""
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
                raise _mistake(event)

    # The methods that programs override, as upstream calls them; for other classes there is `parse`.

    def call_for_handshake(self, event: Request) -> None:
        """Have the library hand out the handshake."""
        self.open(None)
        self._announce(event)

    def call_for_frame(self, data: bytes) -> None:
        """Have the library hand out one frame other than a close frame."""
        self.conn.receive_data(data)
        self.handle_events()

    def call_for_close(self, close: Close) -> None:
        """Have the library hand out a close frame, which it has not read."""
        self._announce(CloseConnection(*close))

    def call_for_mistake(self, error: FrameError) -> None:
        """Have the library hand out what the client did wrong, as the end that it leads to."""
        self._announce(CloseConnection(error.code, error.reason))

    def _announce(self, event: Event) -> None:
        assert isinstance(self.conn, AnnouncingConnection)
        self.conn.announced.append(event)
        self.handle_events()

    def handle_events(self) -> None:
        """Call the method of each event of the library."""
        for event in self.conn.events():
            match event:
                case Request():
                    self.handle_connect(event)
                case Message():
                    self.handle_message(event)
                case Ping():
                    self.handle_ping(event)
                case Pong():
                    self.handle_pong(event)
                case CloseConnection():
                    self.handle_close(event)

    def handle_message(self, event: Message[Any]) -> None:
        """A message, or a fragment of one."""
        payload = event.data
        self.on_piece(payload if isinstance(payload, str) else bytes(payload), event.message_finished)

    def handle_ping(self, event: Ping) -> None:
        """A ping."""
        self.on_ping(bytes(event.payload))

    def handle_pong(self, event: Pong) -> None:
        """A pong."""
        self.on_pong(bytes(event.payload))

    def handle_close(self, event: CloseConnection) -> None:
        """A close frame, which is answered behind the messages in front of it, or what the client did wrong."""
        error = getattr(self._incoming, "last", None)
        if isinstance(error, FrameError):
            self._closing.receive_mistake(error)
        else:
            self._closing.receive(Close(int(event.code), event.reason or ""))
