"""WebSocket with the sans-I/O core of `websockets` parsing frames."""

from __future__ import annotations

import codecs

from websockets.datastructures import Headers
from websockets.exceptions import ProtocolError
from websockets.extensions import Extension
from websockets.frames import Frame as LibraryFrame
from websockets.frames import Opcode as LibraryOpcode
from websockets.http11 import Request
from websockets.protocol import Protocol, Side
from websockets.typing import ExtensionName

from uvicorn.protocols.http.hooks import original
from uvicorn.protocols.utils import ClientDisconnected as ClientDisconnected
from uvicorn.protocols.websockets.deflate import Deflate
from uvicorn.protocols.websockets.frames import FrameError, invalid_text
from uvicorn.protocols.websockets.handshake import Handshake
from uvicorn.protocols.websockets.session import WebSocketSession


class DeflateExtension(Extension):
    """Makes the library inflate with our stream, which holds its output to the limit."""

    __slots__ = ("_deflate", "_compressed")

    name = ExtensionName("permessage-deflate")

    def __init__(self, deflate: Deflate) -> None:
        self._deflate = deflate
        self._compressed = False  # the message in progress

    def decode(self, frame: LibraryFrame, *, max_size: int | None = None) -> LibraryFrame:
        """Inflate the payload of a frame; the limit is the stream's own, not `max_size`."""
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
        """Return `frame` as it is: the library writes answers to pings, which are never compressed and not sent."""
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

    def parse(self, data: bytes) -> None:
        """Parse one frame, which is no close frame."""
        conn = self.conn
        conn.receive_data(data)
        if conn.parser_exc is not None:
            cause = conn.parser_exc.__cause__
            raise cause if isinstance(cause, FrameError) else FrameError(1002, str(conn.parser_exc))
        for event in conn.events_received():
            assert isinstance(event, LibraryFrame)
            if event.opcode is LibraryOpcode.PING:
                conn.data_to_send()  # its answer; the session has its own
                self.on_ping(bytes(event.data))
            elif event.opcode is LibraryOpcode.PONG:
                self.on_pong(bytes(event.data))
            else:
                self._receive_payload(event)

    def _receive_payload(self, frame: LibraryFrame) -> None:
        decoder = self._decoder
        try:
            if frame.opcode is LibraryOpcode.TEXT:
                if frame.fin:
                    self.on_piece(str(frame.data, "utf-8"), True)
                    return
                decoder = self._decoder = codecs.getincrementaldecoder("utf-8")()
            if decoder is None:
                self.on_piece(bytes(frame.data), frame.fin)
                return
            text = decoder.decode(bytes(frame.data), frame.fin)
        except UnicodeDecodeError as exc:
            raise invalid_text() from exc
        if frame.fin:
            self._decoder = None
        self.on_piece(text, frame.fin)
