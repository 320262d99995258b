"""The ASGI side of one WebSocket connection, whichever library parses its frames.

::

                 accept                    close frame sent or received, or the
    CONNECTING ─────────▶ ACCEPTED ──────▶ response complete ───────────────────▶ CLOSING ──▶ CLOSED
        │                                            ▲                                ▲
        ├── websocket.http.response.start ──▶ DENYING                                 │
        └── websocket.close: 403 ─────────────────────────────────────────────────────┘

What ends an open connection from the client's side, a close frame, a mistake or the end of its stream, takes effect
behind the messages in front of it, when the application has taken those and asks for more: until then it can answer. So
it makes no difference which of them came in one segment.

The session joins what waits for the application (`inbox.py`), what is written (`output.py`), pings (`keepalive.py`),
the end of it all (`close_handshake.py`) and the lines about that (`session_log.py`). It writes frames itself
(`frames.py`); a library reads them, in the hooks of a subclass: `open` and `parse`.
"""

from __future__ import annotations

import asyncio
import contextvars
import io
import logging
from collections.abc import Sequence
from typing import Any, cast

from uvicorn._types import (
    ASGIReceiveEvent,
    ASGISendEvent,
    ProtocolConfig,
    WebSocketScope,
)
from uvicorn.gate import Place
from uvicorn.grace import has_pending_io
from uvicorn.metrics import (
    ACCEPTED,
    BYTES_RECEIVED,
    GONE,
    MESSAGES_RECEIVED,
    MESSAGES_SENT,
    OPENED,
    SESSIONS_GONE,
    UPGRADED,
)
from uvicorn.overload import REFUSED
from uvicorn.protocols.http import texts
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.head import HeadLimits, RequestRefused, asks_for_head
from uvicorn.protocols.http.hooks import original
from uvicorn.protocols.http.readers import unsent
from uvicorn.protocols.http.response import as_body, as_bytes
from uvicorn.protocols.http.scope import ScopeBase
from uvicorn.protocols.utils import (
    ClientDisconnected,
    clock_of,
    is_thrown_away,
    start_task,
    tls_of,
)
from uvicorn.protocols.websockets.attributes import Attributes
from uvicorn.protocols.websockets.close_handshake import CloseHandshake
from uvicorn.protocols.websockets.closing import Closer
from uvicorn.protocols.websockets.deflate import DEFLATE_MIN_SIZE, Deflate, negotiate
from uvicorn.protocols.websockets.denial import DenialResponse
from uvicorn.protocols.websockets.frames import (
    FIN,
    RSV1,
    Close,
    FrameError,
    FrameSplitter,
    Opcode,
    encode_control,
    encode_message,
    is_close_code,
    truncate_reason,
)
from uvicorn.protocols.websockets.handshake import (
    Handshake,
    HandshakeReader,
    Header,
    accept_response,
    refuse_response,
)
from uvicorn.protocols.websockets.inbox import Inbox
from uvicorn.protocols.websockets.keepalive import KeepAlive
from uvicorn.protocols.websockets.limits import CLOSE_TIMEOUT
from uvicorn.protocols.websockets.outline import SessionState
from uvicorn.protocols.websockets.output import Output
from uvicorn.protocols.websockets.peer_end import PeerEnd
from uvicorn.protocols.websockets.session_log import SessionLog
from uvicorn.request_id import with_line
from uvicorn.state import ServerState

# Read for every message.
_ACCEPTED = SessionState.ACCEPTED
_TEXT_FRAME, _BINARY_FRAME = FIN | Opcode.TEXT, FIN | Opcode.BINARY


@original
class WebSocketSession(Attributes):
    """An asyncio protocol that opens a WebSocket, or refuses to, as an ASGI application says.

    It is handed the transport of an HTTP connection, then the handshake as the client sent it, with whatever was read
    behind it.

    Args:
        config: loaded if it is not yet.
        server_state: shared by the connections of one event loop.
        app_state: what the lifespan left, copied into the scope.
        _loop: the running event loop unless given.
    """

    __slots__ = (
        "config",
        "app",
        "app_state",
        "server_state",
        "loop",
        "transport",
        "scope",
        "state",
        "closer",
        "_output",
        "_handshake",
        "_head",
        "_reader",
        "_deflate",
        "_extension",
        "_pieces",
        "_peer_end",
        "_ended",
        "_response",
        "_half_closed",
        "_closing",
        "_log",
        "_id_line",
        "_task",
        "_place",
        "__weakref__",
    )

    def __init__(
        self,
        config: ProtocolConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        self.config = config
        self.app = config.loaded_app
        self.app_state = app_state
        self.server_state = server_state
        self.loop = _loop or asyncio.get_event_loop()
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)  # until connection_made
        self.flow: FlowControl = cast(FlowControl, None)
        self.scope: WebSocketScope | None = None  # until the handshake is read
        self.state = SessionState.CONNECTING
        self.keepalive = KeepAlive(self.loop, self, config.ws_ping_interval, config.ws_ping_timeout)
        self.inbox = Inbox(config.ws_max_queue, clock_of(self.loop))
        self.closer: Closer = cast(Closer, None)
        self._output: Output = cast(Output, None)
        self._closing: CloseHandshake = cast(CloseHandshake, None)
        self._handshake: Handshake | None = None
        self._head = HandshakeReader(
            HeadLimits(config.limit_request_head, config.limit_request_fields, config.limit_request_target)
        )
        self._reader = FrameSplitter(config.ws_max_size)
        self._deflate: Deflate | None = None
        self._extension = b""  # what the client is told about it
        self._pieces: io.BytesIO | None = None  # of a message that comes in pieces, put together; a text in UTF-8
        self._peer_end = PeerEnd(self.loop, self.inbox)
        self._ended = ""  # what the application did to end the connection
        self._response: DenialResponse | None = None
        self._half_closed = False  # the client has nothing more to send
        self._log = SessionLog(logging.getLogger("uvicorn.error"), self._head)
        self._id_line = b""  # what the answer says of the request's id
        self._task: asyncio.Task[None] | None = None
        self._place: Place | None = None  # among the requests that are active, until it is accepted

    # What a subclass does with its library.

    def open(self, deflate: Deflate | None) -> None:
        """Make ready to parse frames; `deflate` if compression was negotiated."""
        raise NotImplementedError

    def describe(self, handshake: Handshake) -> Any:
        """Return what the library makes of a handshake."""
        raise NotImplementedError

    def parse(self, data: bytes) -> None:
        """Parse one frame, which is no close frame; call `on_piece`, `on_ping` or `on_pong`.

        Raises:
            FrameError: the library does not take it.
        """
        raise NotImplementedError

    # Names that tools and upstream's users read.

    @property
    def logger(self) -> logging.Logger:
        """Where errors of the application and the end of the connection are told."""
        return self._log.logger

    @logger.setter
    def logger(self, logger: logging.Logger) -> None:
        self._log.logger = logger

    @property
    def handshake_complete(self) -> bool:
        """The connection was accepted, or refused."""
        return self.state is not SessionState.CONNECTING

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The HTTP protocol hands over its connection."""
        self.transport = cast(asyncio.Transport, transport)
        self.flow = FlowControl(self.transport, self.server_state.context)
        self.closer = Closer(self.loop, self.transport)
        readers = self.server_state.readers(self.loop, self.config.timeout_write)
        self._output = output = Output(self.transport, self.flow, self.server_state, readers, self._log)
        self._closing = CloseHandshake(
            self, self._reader, self.flow, self.inbox, self._peer_end, self.closer, output, self._log
        )
        self.server_state.connections.add(self)
        self._count(OPENED, UPGRADED)
        self._log.connected(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, for whatever reason."""
        self.server_state.connections.discard(self)
        self._count(GONE, SESSIONS_GONE)
        self._log.trace("%sWebSocket connection lost")
        self._peer_end.take_effect()
        self._closing.lose()
        self.state = SessionState.CLOSED
        self.closer.cancel()
        self.keepalive.close()
        self._closing.release()

    def eof_received(self) -> bool:
        """The client sends nothing more. Returns whether the connection stays open: for answers that it still reads."""
        if self.transport.can_write_eof():
            if self.state is SessionState.DENYING:
                self._half_closed = True
                return True
            if self.state is _ACCEPTED:
                self._closing.receive_end()
                return True
        self._peer_end.take_effect()
        self._closing.lose()
        # Closing waits for what is still to be written, which a peer that has gone never reads.
        self.closer.close_within(CLOSE_TIMEOUT)
        return False

    def pause_writing(self) -> None:
        """The transport's buffer is above its high-water mark."""
        if self.state < SessionState.CLOSING:  # then there is nobody who could wait
            self._output.pause()

    def resume_writing(self) -> None:
        """The transport's buffer is low again."""
        self.keepalive.taken()
        self._output.resume()

    def _count(self, *places: int) -> None:
        metrics = self.server_state.metrics
        if metrics is not None:
            for place in places:
                metrics.add(place)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client: its handshake, then frames."""
        metrics = self.server_state.metrics
        if metrics is not None and self.scope is not None:
            # What the handshake came with was counted before it was handed over.
            metrics.add(BYTES_RECEIVED, len(data))
        if self.scope is None:
            self._receive_head(data)
        elif self.state is _ACCEPTED:
            self._reader.feed(data)
            self._read_frames()
        elif self.state is SessionState.CONNECTING:
            # Frames behind a handshake that the application has not answered yet.
            self._reader.feed(data)
            if len(self._reader) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
        elif self._closing.awaiting:
            self._reader.feed(data)
            self._closing.look_for_answer()

    # The handshake.

    def _receive_head(self, data: bytes) -> None:
        """Collect the head of the handshake; its deadline was the HTTP protocol's."""
        if self.state is not SessionState.CONNECTING:
            return
        try:
            handshake = self._head.receive(data)
            if handshake is not None:
                self._handshake = handshake
                if type(self).handle_connect is WebSocketSession.handle_connect:
                    self._begin(handshake)
                else:
                    self.handle_connect(self.describe(handshake))
                self._reader.feed(self._head.take_rest())
        except RequestRefused as refused:
            self._log.refused(refused)
            self._refuse(refused.status, f"Failed to open a WebSocket connection: {refused.reason}.\n")

    def handle_connect(self, event: Any) -> None:
        """The handshake is valid; `event` is how the library would describe it. For methods of programs."""
        assert self._handshake is not None
        self._begin(self._handshake)

    def _begin(self, handshake: Handshake) -> None:
        """The handshake is valid: start the application."""
        config, transport = self.config, self.transport
        base = ScopeBase(
            config.asgi_version,
            self.scheme,
            self.client,
            self.server,
            self.root_path,
            self.app_state,
            config.asgi_extensions,
            tls_of(transport),
        )
        if config.ws_per_message_deflate:
            agreed = negotiate(handshake.extensions, config.ws_max_size)
            if agreed is not None:
                self._deflate, self._extension = agreed
                self._reader.allow_compression()
        line = base.line(b"GET", handshake.target, b"1")
        self.scope = base.build_websocket(line, handshake.headers, handshake.subprotocols)
        request_ids = self.server_state.request_ids(config)
        if request_ids is not None:
            self.scope["request_id"] = request_id = request_ids.of(handshake.headers, base.client)
            self._id_line = request_ids.line(request_id)
        formatted = getattr(self.server_state.protocol_settings, "formatted", None)
        self._log.asked(self.scope, None if formatted is None else formatted.begin(self.scope))
        if self._log.frames is not None:
            lines = [b"GET %b HTTP/1.1" % handshake.target, *(b"%b: %b" % field for field in handshake.headers)]
            self._log.frames.head("<", b"\r\n".join(lines))
        state = self.server_state
        gate = state.gate_for(config, self.loop)
        if gate is not None:
            self._place = gate.enter(self.scope, may_wait=False)
            if self._place is not None and self._place.state is REFUSED:
                self._refuse(503, "Service Unavailable", gate.hints)
                return
        self.inbox.queue.append({"type": "websocket.connect"})
        context = contextvars.Context() if config.reset_contextvars else state.context.copy()
        self._task = task = start_task(self.loop, self.run_asgi(), context)
        state.tasks.add(task)
        task.add_done_callback(self.on_task_complete)
        if self._place is not None:
            task.add_done_callback(self._give_place_back)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The application's call is over."""
        self.server_state.tasks.discard(task)

    def _give_place_back(self, task: asyncio.Task[None] | None = None) -> None:
        """The handshake is over. How long it took says nothing about requests."""
        gate = self.server_state.gate
        if self._place is not None and gate is not None:
            gate.release(self._place, is_measured=False)

    def _accept(self, message: Any) -> None:
        """Open the connection as the application says, and read what has come meanwhile."""
        assert self._handshake is not None
        response = accept_response(
            self._handshake,
            self.server_state.default_head,
            message.get("headers") or (),
            message.get("subprotocol"),
            self._extension,
        )
        response = with_line(response, self._id_line)
        if self.state is not SessionState.CONNECTING:
            # Reading the headers ran code of the application, which has sent something meanwhile.
            self._send_other(message)
        self._log.answered(101, response)
        self.state = _ACCEPTED
        self._handshake = None
        self._count(ACCEPTED)
        self._give_place_back()
        self.open(self._deflate)
        self._output.write_head(response)
        self._log.opened()
        self.start_keepalive()
        self.inbox.begin()
        self._resume_reading()

    def _refuse(self, status: int, text: str, fields: Sequence[Header] = ()) -> None:
        """Answer with a response of the server's own."""
        head_request = asks_for_head(self._head.head)
        default_head = self.server_state.default_head + self._id_line
        response = refuse_response(status, text.encode(), default_head, head_request, fields)
        self._log.answered(status, response)
        if self._log.entry is not None:
            self._log.entry.sent = len(text)
        self._output.write_head(response)
        self._rejected(status)

    def send_500_response(self) -> None:
        """Answer for an application that has not opened the connection, and will not."""
        self._refuse(500, "Internal Server Error")

    def _rejected(self, status: int) -> None:
        """The connection was not opened, and the client was told so."""
        self._log.rejected(status)
        self._closing.tell(1006)
        self._closing.begin()
        self.flow.resume_reading()
        if self._half_closed:
            self.closer.close()
        else:
            self.closer.linger()

    # The application's side.

    async def run_asgi(self) -> None:
        """Call the application and see to it that the connection ends, well or badly."""
        failed = False
        try:
            result = await cast(Any, self.app)(self.scope, self.receive, self.send)
        except ClientDisconnected:
            # The application need not handle that its client has gone.
            pass
        except BaseException as exc:
            # Whatever it is, SystemExit and CancelledError included, it ends this connection and nothing else.
            if isinstance(exc, GeneratorExit) and is_thrown_away(self._task):
                raise
            self.logger.error(texts.APPLICATION_FAILED, exc_info=exc)
            failed = True
        else:
            if result is not None:
                self.logger.error(texts.APPLICATION_RETURNED, result)
                failed = True
            elif self.state is SessionState.CONNECTING or self.state is SessionState.DENYING:
                self.logger.error("ASGI callable returned without completing handshake.")
        self._app_ended(failed)

    def _app_ended(self, failed: bool) -> None:
        """Nobody will send any more: end what is still open."""
        if self.state is _ACCEPTED:
            self._closing.close(1011 if failed else 1000)
        elif self.state is SessionState.CONNECTING:
            self.send_500_response()
        elif self.state is SessionState.DENYING:
            # As with any response that was started: the client sees that it is not complete.
            self._closing.tell(1006)
            self._closing.begin()
            self.closer.close()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next event; `websocket.disconnect` is the last, and comes again however often it is asked for."""
        inbox = self.inbox
        if not inbox.queue or inbox.receivers.waiters:
            if not inbox.queue:
                self._peer_end.take_effect()
            if not await inbox.wait():
                return inbox.repeat_end()
        event = inbox.take()
        if not inbox.queue and self.flow.read_paused and self.state is _ACCEPTED:
            self._resume_reading()
        return event

    async def send(self, message: ASGISendEvent) -> None:
        """Take one event from the application. Waits while the transport's buffer is above its high-water mark.

        Raises:
            ClientDisconnected: the connection has ended, other than by the application's own doing.
            RuntimeError: the event is out of order, or has something that may not be sent.
            ValueError: a close code that may not be sent.
            TypeError: a value of the wrong type.
        """
        if self.flow.congested:
            # What is sent is what there was when it was sent.
            message = _copied(message)
            await self.flow.drain()
        if self.state is _ACCEPTED and message["type"] == "websocket.send":
            self._send_message(message)
        else:
            self._send_other(message)

    def _send_message(self, message: Any) -> None:
        payload: Any = message.get("bytes")
        first = _BINARY_FRAME
        if payload is None:
            text: str | None = message.get("text")
            if text is None:
                raise TypeError("ASGI message 'websocket.send' needs 'bytes' or 'text'.")
            payload = text.encode()
            first = _TEXT_FRAME
        elif type(payload) is not bytes:
            payload = as_bytes(payload)
            if self.state is not _ACCEPTED:
                self._send_other(message)  # as for an accept: a buffer can be made by code
        if self._log.frames is not None:
            self._log.frames.frame(">", first & 0x0F, payload)
        if self._deflate is not None and len(payload) >= DEFLATE_MIN_SIZE:
            first |= RSV1
            payload = self._deflate.deflate(payload)
        metrics = self.server_state.metrics
        if metrics is not None:
            metrics.add(MESSAGES_SENT)
        self._output.send(encode_message(first, payload))

    def _send_other(self, message: Any) -> None:
        """Take an event that is not a message on an open connection."""
        kind = message["type"]
        state = self.state
        if state is SessionState.CONNECTING:
            if kind == "websocket.accept":
                self._accept(message)
            elif kind == "websocket.close":
                response = refuse_response(403, b"", self.server_state.default_head + self._id_line)
                self._log.answered(403, response)
                self._ended = "after sending 'websocket.close'"
                self._output.write_head(response)
                self._rejected(403)
            elif kind == "websocket.http.response.start":
                self._start_response(message)
            else:
                raise RuntimeError(
                    "Expected ASGI message 'websocket.accept', 'websocket.close' or 'websocket.http.response.start' "
                    f"but got '{kind}'."
                )
        elif state is _ACCEPTED:
            if kind != "websocket.close":
                raise RuntimeError(f"Expected ASGI message 'websocket.send' or 'websocket.close', but got '{kind}'.")
            self._app_close(message)
        elif state is SessionState.DENYING:
            if kind != "websocket.http.response.body":
                raise RuntimeError(f"Expected ASGI message 'websocket.http.response.body' but got '{kind}'.")
            body, more_body = as_body(message.get("body", b"")), bool(message.get("more_body", False))
            if self.state is not SessionState.DENYING:
                self._send_other(message)  # reading it ran code of the application, which has sent the last piece
                return
            self._send_response_body(body, more_body)
        elif self._ended and state is SessionState.CLOSING:
            raise RuntimeError(f"Unexpected ASGI message '{kind}', {self._ended}.")
        else:
            raise ClientDisconnected

    def _app_close(self, message: Any) -> None:
        code = message.get("code")
        if code is None:
            code = 1000
        if not is_close_code(code):
            raise ValueError(f"Invalid close code {int(code)}: 1000 to 1003, 1007 to 1014 or 3000 to 4999 can be sent.")
        self._ended = "after sending 'websocket.close'"
        self._closing.close(code, truncate_reason(message.get("reason") or ""))

    def _start_response(self, message: Any) -> None:
        headers = message.get("headers") or ()
        default_head = self.server_state.default_head
        response = DenialResponse(message["status"], headers, default_head, own_line=self._id_line)
        if self.state is not SessionState.CONNECTING:
            self._send_other(message)  # as for an accept
        self._response = response
        self._log.answered(response.status, response.head)
        self.state = SessionState.DENYING

    def _send_response_body(self, body: bytes, more_body: bool) -> None:
        assert self._response is not None
        self._output.write(self._response.encode(body, more_body))
        if self._log.entry is not None:
            self._log.entry.head, self._log.entry.sent = self._response.head, self._response.sent
        if not more_body:
            self._ended = "after response already completed"
            self._rejected(self._response.status)

    # Frames from the client.

    def _read_frames(self) -> None:
        """Read what is there, as long as the application keeps up."""
        reader = self._reader
        try:
            while not self.flow.read_paused:
                piece = reader.read()
                if piece is None:
                    return
                if isinstance(piece, Close):
                    self._closing.receive(piece)
                    return
                self.parse(piece)
        except FrameError as error:
            self._closing.receive_mistake(error)

    def _deliver(self, content: str | bytes) -> None:
        """Queue a message for the application, and stop reading when it falls behind."""
        metrics = self.server_state.metrics
        if metrics is not None:
            metrics.add(MESSAGES_RECEIVED)
        if self.inbox.put(content):
            self.flow.pause_reading()
        if self._log.frames is not None:
            self._log.frames.message(content)

    def _resume_reading(self) -> None:
        if self._peer_end:
            return
        self.flow.resume_reading()
        self.keepalive.restart_deadline()
        self._read_frames()

    def on_piece(self, piece: str | bytes, final: bool) -> None:
        """All or some of a message; all pieces of one message are text, or all bytes."""
        pieces = self._pieces
        if pieces is None:
            if final:
                self._deliver(piece)
                return
            # Not a list: an object for each piece would take many times the place of what it carries.
            pieces = self._pieces = io.BytesIO()
        pieces.write(piece.encode() if isinstance(piece, str) else piece)
        if final:
            self._pieces = None
            content = pieces.getvalue()
            self._deliver(content.decode() if isinstance(piece, str) else content)

    def on_pong(self, payload: bytes) -> None:
        """A pong."""
        self.keepalive.pong(payload)

    def on_ping(self, payload: bytes) -> None:
        """A ping."""
        if self._log.frames is not None:
            self._log.frames.frame("<", Opcode.PING, payload)
        self._output.write_pong(encode_control(Opcode.PONG, payload))

    # The end.

    def drop_pieces(self) -> None:
        """No message will be complete any more."""
        self._pieces = None

    def keepalive_timeout(self) -> None:
        """The client did not answer a ping in time."""
        self._log.trace("%sWebSocket keepalive ping timeout")
        self._closing.time_out("keepalive ping timeout")

    def unsent(self) -> int:
        """Bytes that the client has yet to take, those in the kernel included."""
        return unsent(self.transport)

    def has_pending_io(self) -> bool:
        """Something of the peer is there that nobody has dealt with."""
        return has_pending_io(self.transport)

    def send_ping(self, payload: bytes) -> None:
        """Write a ping frame."""
        if self._log.frames is not None:
            self._log.frames.frame(">", Opcode.PING, payload)
        self._output.write(encode_control(Opcode.PING, payload))

    def shutdown(self) -> None:
        """The server stops: close an open connection, refuse one that is not; a response in progress is completed."""
        if self.state is _ACCEPTED:
            code = self.config.ws_shutdown_code
            self._closing.tell(code)
            self._closing.close(code)
        elif self.state is SessionState.CONNECTING and self.scope is not None:
            self.send_500_response()
        elif self.state is not SessionState.DENYING and not self._closing.awaiting:
            self.transport.close()

    def disconnect(self) -> None:
        """Tell the application that its client is gone, without waiting for it."""
        self.shutdown()
        self._closing.tell(1006)


def _copied(message: Any) -> Any:
    """Return an event that its application can no longer change."""
    copied = dict(message)
    for key in ("bytes", "body"):
        if copied.get(key) is not None:
            copied[key] = as_bytes(copied[key])
    return copied
