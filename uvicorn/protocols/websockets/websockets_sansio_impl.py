"""WebSocket with the sans-I/O core of `websockets` parsing and encoding frames."""

from __future__ import annotations

import codecs

from websockets.datastructures import Headers
from websockets.exceptions import ProtocolError
from websockets.extensions import Extension
from websockets.frames import Close
from websockets.frames import Frame as LibraryFrame
from websockets.frames import Opcode as LibraryOpcode
from websockets.http11 import Request
from websockets.protocol import Protocol, Side
from websockets.typing import ExtensionName

from uvicorn.protocols.http.hooks import original
from uvicorn.protocols.utils import ClientDisconnected as ClientDisconnected
from uvicorn.protocols.websockets.deflate import Deflate
from uvicorn.protocols.websockets.frames import Frame, FrameError, invalid_text
from uvicorn.protocols.websockets.handshake import Handshake
from uvicorn.protocols.websockets.session import WebSocketSession


class DeflateExtension(Extension):
    """Makes the library inflate fragments with the stream that whole messages are inflated with."""

    __slots__ = ("_deflate", "_compressed")

    name = ExtensionName("permessage-deflate")

    def __init__(self, deflate: Deflate) -> None:
        self._deflate = deflate
        self._compressed = False  # the message in progress

    def decode(self, frame: LibraryFrame, *, max_size: int | None = None) -> LibraryFrame:
        """Inflate a fragment; the limit is the stream's own, not `max_size`."""
        if frame.opcode >= LibraryOpcode.CLOSE:
            return frame
        if frame.opcode is not LibraryOpcode.CONT:
            self._compressed = frame.rsv1
        if not self._compressed:
            return frame
        try:
            data = self._deflate.inflate(bytes(frame.data), frame.fin)
        except FrameError as error:
            # The one exception that the library takes for the peer's fault; the cause tells what it was.
            raise ProtocolError(error.reason) from error
        return LibraryFrame(frame.opcode, data, frame.fin)

    def encode(self, frame: LibraryFrame) -> LibraryFrame:
        """Return `frame` as it is: only control frames are encoded by the library, and those are never compressed."""
        return frame


@original
class WebSocketsSansIOProtocol(WebSocketSession):
    """One WebSocket connection on `websockets.protocol.Protocol`.

    Attributes:
        conn: the library's side of the connection, once it is accepted.
    """

    __slots__ = ("conn", "_decoder", "__dict__")

    conn: Protocol

    def open(self, deflate: Deflate | None) -> None:
        """Make the library's side of the connection."""
        # Sizes are limited before the library sees a frame.
        self.conn = Protocol(Side.SERVER, max_size=None)
        if deflate is not None:
            self.conn.extensions = [DeflateExtension(deflate)]
        self._decoder: codecs.IncrementalDecoder | None = None  # of a text message in fragments

    def describe(self, handshake: Handshake) -> Request:
        """Return the request that the library would have read."""
        headers = Headers((name.decode("ascii"), value.decode("latin-1")) for name, value in handshake.headers)
        return Request(handshake.target.decode("ascii"), headers)

    def receive_frame(self, frame: Frame) -> None:
        """Parse a ping, a pong or a fragment."""
        conn = self.conn
        conn.receive_data(frame.data)
        reply = b"".join(conn.data_to_send())
        if conn.parser_exc is not None:
            cause = conn.parser_exc.__cause__
            raise cause if isinstance(cause, FrameError) else FrameError(1002, str(conn.parser_exc))
        for event in conn.events_received():
            assert isinstance(event, LibraryFrame)
            if event.opcode is LibraryOpcode.PING:
                self.on_ping(bytes(event.data), reply)
            elif event.opcode is LibraryOpcode.PONG:
                self.on_pong(bytes(event.data))
            else:
                self._receive_fragment(event)

    def _receive_fragment(self, frame: LibraryFrame) -> None:
        if frame.opcode is LibraryOpcode.TEXT:
            self._decoder = codecs.getincrementaldecoder("utf-8")()
        decoder = self._decoder
        if decoder is None:
            self.on_fragment(bytes(frame.data), frame.fin)
            return
        try:
            text = decoder.decode(bytes(frame.data), frame.fin)
        except UnicodeDecodeError as exc:
            raise invalid_text() from exc
        if frame.fin:
            self._decoder = None
        self.on_fragment(text, frame.fin)

    def encode_close(self, code: int, reason: str) -> bytes:
        """Return a close frame; 1005 stands for none with a code."""
        payload = b"" if code == 1005 else Close(code, reason).serialize()
        return LibraryFrame(LibraryOpcode.CLOSE, payload).serialize(mask=False)

    def encode_ping(self, payload: bytes) -> bytes:
        """Return a ping frame."""
        return LibraryFrame(LibraryOpcode.PING, payload).serialize(mask=False)
