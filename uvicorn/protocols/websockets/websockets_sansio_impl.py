"""WebSocket with the sans-I/O core of `websockets` parsing frames."""

from __future__ import annotations

import codecs

from websockets.datastructures import Headers
from websockets.exceptions import ProtocolError
from websockets.extensions import Extension
from websockets.frames import Close as LibraryClose
from websockets.frames import Frame as LibraryFrame
from websockets.frames import Opcode as LibraryOpcode
from websockets.http11 import Request
from websockets.protocol import Protocol, Side, State
from websockets.typing import ExtensionName

from uvicorn.hooks import original
from uvicorn.protocols.utils import ClientDisconnected as ClientDisconnected
from uvicorn.protocols.utils import get_client_addr as get_client_addr
from uvicorn.protocols.utils import get_local_addr as get_local_addr
from uvicorn.protocols.utils import get_path_with_query_string as get_path_with_query_string
from uvicorn.protocols.utils import get_remote_addr as get_remote_addr
from uvicorn.protocols.utils import is_ssl as is_ssl
from uvicorn.protocols.websockets.deflate import Deflate
from uvicorn.protocols.websockets.frames import Close, FrameError, encode_close, invalid_text
from uvicorn.protocols.websockets.handshake import Handshake
from uvicorn.protocols.websockets.incoming import OverriddenIncoming
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
        frames: payloads of the message in progress, for methods that programs override.
        curr_msg_data_type: what it is, `text` or `bytes`.
    """

    __slots__ = ("conn", "frames", "_decoder", "__dict__")

    conn: Protocol
    frames: list[bytes]
    curr_msg_data_type: str = "bytes"

    never_used: tuple[str, ...] = (
        "uvicorn.protocols.websockets.websockets_sansio_impl.ServerProtocol",
        "uvicorn.protocols.websockets.websockets_sansio_impl.ServerPerMessageDeflateFactory",
        "uvicorn.protocols.websockets.websockets_sansio_impl.unquote",
        "websockets.server.ServerProtocol",
    )

    frame_methods: tuple[str, ...] = (
        "handle_bytes",
        "handle_close",
        "handle_cont",
        "handle_events",
        "handle_parser_exception",
        "handle_ping",
        "handle_pong",
        "handle_text",
        "send_receive_event_to_app",
    )

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
        """Parse one frame other than a close frame."""
        conn = self.conn
        conn.receive_data(data)
        if conn.parser_exc is not None:
            raise _mistake(conn.parser_exc)
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

    # The methods that programs override, as upstream calls them; for other classes there is `parse`.

    def call_for_handshake(self, event: Request) -> None:
        """Have the library hand out the handshake."""
        self.frames = []
        self.conn = Protocol(Side.SERVER, state=State.CONNECTING)
        self.conn.events.append(event)
        self.handle_events()

    def call_for_frame(self, data: bytes) -> None:
        """Have the library hand out one frame other than a close frame."""
        conn = self.conn
        conn.receive_data(data)
        if conn.parser_exc is not None:
            raise _mistake(conn.parser_exc)
        self.handle_events()

    def call_for_close(self, close: Close) -> None:
        """Have the library hand out a close frame, which it has not read."""
        conn = self.conn
        conn.close_rcvd = LibraryClose(*close)
        conn.state = State.CLOSING
        conn.events.append(LibraryFrame(LibraryOpcode.CLOSE, encode_close(*close)[2:]))
        self.handle_events()

    def call_for_mistake(self, error: FrameError) -> None:
        """Have the library fail for a mistake of the client's, unless it has."""
        conn = self.conn
        if conn.parser_exc is None:
            conn.parser_exc = ProtocolError(error.reason)
            conn.fail(error.code, error.reason)
        self.handle_parser_exception()

    def handle_events(self) -> None:
        """Call the method of each event of the library."""
        for event in self.conn.events_received():
            if isinstance(event, Request):
                self.handle_connect(event)
                continue
            assert isinstance(event, LibraryFrame)
            match event.opcode:
                case LibraryOpcode.TEXT:
                    self.handle_text(event)
                case LibraryOpcode.BINARY:
                    self.handle_bytes(event)
                case LibraryOpcode.CONT:
                    self.handle_cont(event)
                case LibraryOpcode.PING:
                    self.handle_ping()
                case LibraryOpcode.PONG:
                    self.handle_pong(event)
                case LibraryOpcode.CLOSE:
                    self.handle_close(event)

    def handle_text(self, event: LibraryFrame) -> None:
        """A text message, or the first fragment of one."""
        self.curr_msg_data_type = "text"
        self._collect(event)

    def handle_bytes(self, event: LibraryFrame) -> None:
        """A binary message, or the first fragment of one."""
        self.curr_msg_data_type = "bytes"
        self._collect(event)

    def handle_cont(self, event: LibraryFrame) -> None:
        """Another fragment of a message."""
        self._collect(event)

    def _collect(self, event: LibraryFrame) -> None:
        self.frames.append(bytes(event.data))
        if event.fin:
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        """The message in `frames` is complete: give it to the application."""
        data, self.frames = b"".join(self.frames), []
        if self.curr_msg_data_type != "text":
            self.on_piece(data, True)
            return
        try:
            text = data.decode()
        except UnicodeDecodeError:
            error = invalid_text()
            assert isinstance(self._incoming, OverriddenIncoming)
            self._incoming.last = error
            self.conn.fail(error.code, error.reason)
            self.handle_parser_exception()
        else:
            self.on_piece(text, True)

    def handle_ping(self) -> None:
        """A ping, which the library has answered."""
        for data in self.conn.data_to_send():
            if data[:1] == b"\x8a":
                self.on_ping(data[2:])
            else:
                self._output.write(data)

    def handle_pong(self, event: LibraryFrame) -> None:
        """A pong."""
        self.on_pong(bytes(event.data))

    def handle_close(self, event: LibraryFrame) -> None:
        """A close frame, which is answered behind the messages in front of it."""
        received = self.conn.close_rcvd or LibraryClose.parse(event.data)
        self._closing.receive(Close(int(received.code), received.reason))

    def handle_parser_exception(self) -> None:
        """The connection has failed: close it with the status and reason of the library."""
        self.conn.data_to_send()  # the session writes its own close frame
        said = self.conn.close_sent
        error = getattr(self._incoming, "last", None)
        if not isinstance(error, FrameError):
            error = FrameError(1002, "") if said is None else FrameError(int(said.code), said.reason)
        self._closing.receive_mistake(error)


def _mistake(failure: Exception) -> FrameError:
    """Return the cause of a failure of the library."""
    cause = failure.__cause__
    return cause if isinstance(cause, FrameError) else FrameError(1002, str(failure))
