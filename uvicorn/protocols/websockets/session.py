"""The ASGI side of one WebSocket connection, whichever library parses its frames.

::

                 accept                    close frame sent or received, or the
    CONNECTING ─────────▶ ACCEPTED ──────▶ response complete ───────────────────▶ CLOSING ──▶ CLOSED
        │                                            ▲                                ▲
        ├── websocket.http.response.start ──▶ DENYING                                 │
        └── websocket.close: 403 ─────────────────────────────────────────────────────┘

A client ends an open connection by a close frame, a mistake or the end of its stream. Each takes effect after the
messages before it, when the application has taken those and asks for more: until then it can answer. So it does not
matter which of them came in one segment.

The session joins the answer to the handshake (`answer.py`), the client's messages (`incoming.py`), the frames written
(`output.py`), pings (`keepalive.py`) and the closing handshake (`close_handshake.py`). A library reads frames, in the
hooks of a subclass: `open`, `describe` and `parse`. If a program has overridden methods that upstream calls for frames,
these are called instead (`OverriddenIncoming`); the hooks for that are `call_for_handshake` and the like.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import operator
from collections.abc import Sequence
from typing import Any, cast

from uvicorn._types import (
    ASGIReceiveEvent,
    ASGISendEvent,
    ProtocolConfig,
    WebSocketScope,
)
from uvicorn.hooks import original, overrides
from uvicorn.metrics.page import (
    ACCEPTED,
    BYTES_RECEIVED,
    CONNECTIONS_CLOSED,
    CONNECTIONS_OPENED,
    MESSAGES_SENT,
    SESSIONS_CLOSED,
    UPGRADED,
)
from uvicorn.overload.admission import REFUSED, WAITING
from uvicorn.overload.gate import RequestTicket
from uvicorn.protocols.http.scope import ScopeBase
from uvicorn.protocols.http.wire.head import HeadLimits, RequestRefused
from uvicorn.protocols.http.wire.response import as_body, as_bytes, copy_message
from uvicorn.protocols.utils import (
    ClientDisconnected,
    clock_of,
    is_thrown_away,
    start_task,
    tls_of,
)
from uvicorn.protocols.websockets.answer import Answer
from uvicorn.protocols.websockets.attributes import Attributes
from uvicorn.protocols.websockets.close_handshake import CloseHandshake
from uvicorn.protocols.websockets.deflate import DEFLATE_MIN_SIZE, Deflate, negotiate
from uvicorn.protocols.websockets.frames import (
    FIN,
    RSV1,
    Close,
    FrameError,
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
)
from uvicorn.protocols.websockets.inbox import Inbox
from uvicorn.protocols.websockets.incoming import Incoming, OverriddenIncoming
from uvicorn.protocols.websockets.keepalive import KeepAlive
from uvicorn.protocols.websockets.output import Output
from uvicorn.protocols.websockets.peer_end import PeerEnd
from uvicorn.protocols.websockets.session_log import SessionLog
from uvicorn.protocols.websockets.session_states import SessionState
from uvicorn.rules import texts
from uvicorn.rules.grace import has_pending_io
from uvicorn.rules.websocket_limits import CLOSE_TIMEOUT
from uvicorn.serving.state import ServerState
from uvicorn.serving.write_deadlines import unsent

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
        app_state: the state that the lifespan left, copied into the scope.
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
        "_deflate",
        "_half_closed",
        "_ended",
        "_head",
        "_log",
        "_task",
        "_ticket",
        "_output",
        "_incoming",
        "_answer",
        "_closing",
        "_cancellation",
        "_counted_session",
        "__weakref__",
    )

    # From `connection_made` on.
    _incoming: Incoming
    _answer: Answer

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
        self.scope: WebSocketScope | None = None  # until the handshake is read
        self.state = SessionState.CONNECTING
        self.keepalive = KeepAlive(self.loop, self, config.ws_ping_interval, config.ws_ping_timeout)
        self.inbox = Inbox(config.ws_max_queue, clock_of(self.loop))
        self._deflate: Deflate | None = None
        self._half_closed = False  # the client has nothing more to send
        self._ended = ""  # how the application ended the connection
        limits = HeadLimits(config.limit_request_head, config.limit_request_fields, config.limit_request_target)
        self._head = HandshakeReader(limits)
        self._log = SessionLog(logging.getLogger("uvicorn.error"), self._head, type(self))
        self._task: asyncio.Task[None] | None = None
        self._ticket: RequestTicket | None = None  # among the requests that are active, until it is accepted
        self._cancellation = server_state.cancellation(config, self.loop)
        self._counted_session: tuple[int, int] | None = None  # by route, from the acceptance on

    # The hooks of a subclass, for its library.

    def open(self, deflate: Deflate | None) -> None:
        """Make ready to parse frames; `deflate` if compression was negotiated."""
        raise NotImplementedError

    def describe(self, handshake: Handshake) -> Any:
        """Return the library's request object for a handshake."""
        raise NotImplementedError

    def parse(self, data: bytes) -> None:
        """Parse one frame other than a close frame; call `on_piece`, `on_ping` or `on_pong`.

        Raises:
            FrameError: the library rejects it.
        """
        raise NotImplementedError

    def call_for_handshake(self, event: Any) -> None:
        """Call the methods that programs override for the handshake; `event` is how the library describes it."""
        raise NotImplementedError

    def call_for_frame(self, data: bytes) -> None:
        """Call those methods for one frame other than a close frame.

        Raises:
            FrameError: the library does not take it.
        """
        raise NotImplementedError

    def call_for_close(self, close: Close) -> None:
        """Call those methods for a close frame."""
        raise NotImplementedError

    def call_for_mistake(self, error: FrameError) -> None:
        """Call those methods for a mistake of the client's."""
        raise NotImplementedError

    # Names that tools and upstream's users read.

    @property
    def logger(self) -> logging.Logger:
        """The logger for errors of the application and the end of the connection."""
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
        state, config = self.server_state, self.config
        write_deadlines = state.write_deadlines(self.loop, config.timeout_write)
        self._output = output = Output(self.loop, self.transport, state, write_deadlines, self._log)
        self.flow = output.flow
        kind = OverriddenIncoming if self._is_overridden() else Incoming
        self._incoming = incoming = kind(config.ws_max_size, PeerEnd(self.loop, self.inbox), output)
        self._answer = Answer(self._head, state, output)
        self._closing = CloseHandshake(self, incoming, output)
        state.connections.add(self)
        self._count(CONNECTIONS_OPENED, UPGRADED)
        self._log.connected(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, for whatever reason."""
        self.server_state.connections.discard(self)
        self._count(CONNECTIONS_CLOSED, SESSIONS_CLOSED)
        metrics = self.server_state.metrics
        if self._counted_session is not None and metrics is not None and metrics.routes is not None:
            metrics.routes.close_session(self._counted_session)
        self._log.trace("%sWebSocket connection lost")
        self._incoming.peer_end.take_effect()
        self._closing.lose()
        self.state = SessionState.CLOSED
        if self._log.span is not None:
            self._log.span.end()
        if self._cancellation is not None and self.scope is not None:
            self._cancellation.client_left(self.scope)
        self._output.closer.cancel()
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
        self._incoming.peer_end.take_effect()
        self._closing.lose()
        # Closing waits until all output is written, but a peer that is gone never reads it.
        self._output.closer.close_within(CLOSE_TIMEOUT)
        return False

    def pause_writing(self) -> None:
        """The transport's buffer is above its high-water mark."""
        if self.state < SessionState.CLOSING:  # afterwards no sender waits
            self._output.pause()

    def resume_writing(self) -> None:
        """The transport's buffer is low again."""
        self.keepalive.taken()
        self._output.resume()

    def _is_overridden(self) -> bool:
        """Tell whether a program has overridden methods that take frames; decided once for each class and server."""
        known, cls = self.server_state.overridden, type(self)
        if cls not in known:
            known[cls] = overrides(cls, *self.frame_methods)
        return known[cls]

    def _count(self, *places: int) -> None:
        metrics = self.server_state.metrics
        if metrics is not None:
            for place in places:
                metrics.add(place)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client: its handshake, then frames."""
        metrics = self.server_state.metrics
        if metrics is not None and self.scope is not None:
            # The handshake's bytes were counted before it was handed over.
            metrics.add(BYTES_RECEIVED, len(data))
        if self.scope is None:
            self._receive_head(data)
        elif self.state is _ACCEPTED:
            self._incoming.frames.feed(data)
            self._read_frames()
        elif self.state is SessionState.CONNECTING:
            self._incoming.hold(data)  # the application has not answered the handshake in front of them
        elif self._closing.awaiting:
            self._incoming.frames.feed(data)
            self._closing.look_for_answer()

    # The handshake.

    def _receive_head(self, data: bytes) -> None:
        """Collect the head of the handshake; its deadline was the HTTP protocol's."""
        if self.state is not SessionState.CONNECTING:
            return
        try:
            handshake = self._head.receive(data)
            if handshake is not None:
                self._answer.handshake = handshake
                if self._incoming.calls_methods:
                    self.call_for_handshake(self.describe(handshake))
                elif type(self).handle_connect is WebSocketSession.handle_connect:
                    self._begin(handshake)
                else:
                    self.handle_connect(self.describe(handshake))
                self._incoming.frames.feed(self._head.take_rest())
        except RequestRefused as refused:
            self._log.refused(refused)
            self._refuse(refused.status, f"Failed to open a WebSocket connection: {refused.reason}.\n")

    def handle_connect(self, event: Any) -> None:
        """The handshake is valid; `event` is how the library would describe it. For methods of programs."""
        assert self._answer.handshake is not None
        self._begin(self._answer.handshake)

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
                self._deflate, self._answer.extension = agreed
                self._incoming.frames.allow_compression()
        line = base.line(b"GET", handshake.target, b"1")
        self.scope = base.build_websocket(line, handshake.headers, handshake.subprotocols)
        request_ids = self.server_state.request_ids(config)
        if request_ids is not None:
            self.scope["request_id"] = request_id = request_ids.of(handshake.headers, base.client)
            self._answer.id_line = request_ids.line(request_id)
        if self.server_state.tracer is not None:
            self._log.span = self.server_state.tracer.begin_session(self.scope)
        formatted = getattr(self.server_state.protocol_settings, "formatted", None)
        self._log.asked(self.scope, None if formatted is None else formatted.begin(self.scope))
        if self._log.frames is not None:
            lines = [b"GET %b HTTP/1.1" % handshake.target, *(b"%b: %b" % field for field in handshake.headers)]
            self._log.frames.head("<", b"\r\n".join(lines))
        gate = self.server_state.gate_for(config, self.loop)
        if gate is not None:
            self._ticket = ticket = gate.enter(self.scope)
            if ticket is not None and ticket.state is REFUSED:
                self.refuse_overload()
                return
            if ticket is not None and ticket.state is WAITING:
                ticket.holder = _WaitingHandshake(self)
                return
        self.call_application()

    def call_application(self) -> None:
        """Start the application in a task."""
        config, state = self.config, self.server_state
        self.inbox.queue.append({"type": "websocket.connect"})
        context = contextvars.Context() if config.reset_contextvars else state.context.copy()
        if state.tracer is not None:
            state.tracer.enter(context, self.scope)
        self._task = task = start_task(self.loop, self.run_asgi(), context)
        state.tasks.add(task)
        task.add_done_callback(self.on_task_complete)
        if self._ticket is not None:
            task.add_done_callback(self._give_place_back)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The application's call is over."""
        self.server_state.tasks.discard(task)

    def _give_place_back(self, task: asyncio.Task[None] | None = None) -> None:
        """The handshake is over. How long it took says nothing about requests."""
        gate = self.server_state.gate
        if self._ticket is not None and gate is not None:
            gate.release(self._ticket, is_measured=False)

    def leave_queue(self) -> bool:
        """The connection ends: a handshake that waits for its turn stops waiting. Returns whether it did wait."""
        gate = self.server_state.gate
        return self._ticket is not None and gate is not None and gate.leave(self._ticket)

    def refuse_overload(self) -> None:
        """Answer 503: there is no place for the handshake."""
        gate = self.server_state.gate
        self._refuse(503, "Service Unavailable", () if gate is None else gate.hints)

    def _accept(self, message: Any) -> None:
        """Open the connection as the application asks, and read the data that has arrived meanwhile."""
        answer = self._answer
        response = answer.encode_accept(message)
        if self.state is not SessionState.CONNECTING:
            self._send_other(message)  # reading it ran code of the application, which has sent something meanwhile
        self._log.answered(101, response)
        self.state = _ACCEPTED
        self._count(ACCEPTED)
        metrics = self.server_state.metrics
        if metrics is not None and metrics.routes is not None:
            self._counted_session = metrics.routes.open_session(self.scope)
        self._give_place_back()
        self.open(self._deflate)
        answer.accept(response)
        self.start_keepalive()
        self.inbox.begin()
        self._resume_reading()

    def _refuse(self, status: int, text: str, fields: Sequence[Header] = ()) -> None:
        """Answer with a response of the server's own."""
        self._answer.refuse(status, text, fields)
        self._rejected(status)

    def send_500_response(self) -> None:
        """Answer 500 for an application that returned or failed without accepting the connection."""
        self._refuse(500, "Internal Server Error")

    def _rejected(self, status: int) -> None:
        """End a connection that was refused and whose refusal has been sent."""
        self._log.rejected(status)
        self._closing.tell(1006)
        self._closing.begin()
        self.flow.resume_reading()
        if self._half_closed:
            self._output.closer.close()
        else:
            self._output.closer.linger()

    # The application's side.

    async def run_asgi(self) -> None:
        """Call the application and see to it that the connection ends, well or badly."""
        failed = False
        span = self._log.span
        if span is not None:
            span.run()
        try:
            app = self.app if self._cancellation is None else self._cancellation.wrap(self.app)
            result = await cast(Any, app)(self.scope, self.receive, self.send)
        except ClientDisconnected:
            # The application need not handle that its client has gone.
            pass
        except BaseException as exc:
            # Whatever it is, SystemExit and CancelledError included, it ends this connection and nothing else.
            if isinstance(exc, GeneratorExit) and is_thrown_away(self._task):
                raise
            if span is not None:
                span.fail(exc)
            self.logger.error(texts.APPLICATION_FAILED, exc_info=exc)
            failed = True
        else:
            if result is not None:
                if span is not None:
                    span.fail()
                self.logger.error(texts.APPLICATION_RETURNED, result)
                failed = True
            elif self.state is SessionState.CONNECTING or self.state is SessionState.DENYING:
                self.logger.error("ASGI callable returned without completing handshake.")
        self._app_ended(failed)

    def _app_ended(self, failed: bool) -> None:
        """End the connection if it is still open: the application has returned and sends no more."""
        if self.state is _ACCEPTED:
            self._closing.close(1011 if failed else 1000)
        elif self.state is SessionState.CONNECTING:
            self.send_500_response()
        elif self.state is SessionState.DENYING:
            # As with any response that was started: the client sees that it is not complete.
            self._closing.tell(1006)
            self._closing.begin()
            self._output.closer.close()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next event; `websocket.disconnect` is the last, and every further call returns it again."""
        inbox = self.inbox
        if not inbox.queue or inbox.receivers.waiters:
            if not inbox.queue:
                self._incoming.peer_end.take_effect()
            if not await inbox.wait():
                return inbox.repeat_end()
        event = inbox.take()
        if not inbox.queue and self.flow.read_paused and self.state is _ACCEPTED:
            self._resume_reading()
        return event

    receive_next = receive

    async def send(self, message: ASGISendEvent) -> None:
        """Take one event from the application. Waits while the transport's buffer is above its high-water mark.

        Raises:
            ClientDisconnected: the connection has ended, other than by the application's own doing.
            RuntimeError: the event is out of order, or has something that may not be sent.
            ValueError: a close code that may not be sent.
            TypeError: a value of the wrong type.
        """
        if self.flow.congested:
            message = copy_message(message, "bytes", "body")
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
            self._send_other(message)  # as for an accept: reading it can run code of the application
            return
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
                self._ended = "after sending 'websocket.close'"
                self._refuse(403, "")
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
        code = operator.index(code)
        if not is_close_code(code):
            raise ValueError(f"Invalid close code {code}: 1000 to 1003, 1007 to 1014 or 3000 to 4999 can be sent.")
        reason = truncate_reason(message.get("reason") or "")
        if self.state is not _ACCEPTED:
            self._send_other(message)
            return
        self._ended = "after sending 'websocket.close'"
        self._closing.close(code, reason)

    def _start_response(self, message: Any) -> None:
        response = self._answer.encode_denial(message)
        if self.state is not SessionState.CONNECTING:
            self._send_other(message)  # as for an accept
        self._answer.deny(response)
        self.state = SessionState.DENYING

    def _send_response_body(self, body: bytes, more_body: bool) -> None:
        response = self._answer.send(body, more_body)
        if not more_body:
            self._ended = "after response already completed"
            self._rejected(response.status)

    # Frames from the client.

    def _read_frames(self) -> None:
        """Read frames for as long as the application keeps up."""
        try:
            close = self._incoming.read(self)
        except FrameError as error:
            self._closing.receive_mistake(error)
        except Exception as exc:
            if not self._incoming.calls_methods:
                raise
            self._break_off(exc)
        else:
            if close is not None:
                self._closing.receive(close)

    def on_close(self, close: Close) -> None:
        """The answer to our close frame."""
        if not isinstance(self._incoming, OverriddenIncoming):
            self._closing.receive(close)
            return
        self._incoming.last = close
        try:
            self.call_for_close(close)
        except Exception as exc:
            self._break_off(exc)

    def _break_off(self, exc: Exception) -> None:
        """A method of a program has failed, maybe while the application asks for more: do what event loops do."""
        context = {"message": "Fatal error: a method that takes frames has failed.", "exception": exc}
        self.loop.call_exception_handler({**context, "protocol": self, "transport": self.transport})
        self.transport.abort()

    def _resume_reading(self) -> None:
        if self._incoming.peer_end:
            return
        self.flow.resume_reading()
        self.keepalive.restart_deadline()
        self._read_frames()

    def on_piece(self, piece: str | bytes, final: bool) -> None:
        """All or some of a message; all pieces of one message are text, or all bytes."""
        self._incoming.add(piece, final)

    def on_pong(self, payload: bytes) -> None:
        """A pong."""
        self.keepalive.pong(payload)

    def on_ping(self, payload: bytes) -> None:
        """A ping."""
        if self._log.frames is not None:
            self._log.frames.frame("<", Opcode.PING, payload)
        self._output.write_pong(encode_control(Opcode.PONG, payload))

    # The end.

    def keepalive_timeout(self) -> None:
        """The client did not answer a ping in time."""
        self._log.trace("%sWebSocket keepalive ping timeout")
        self._closing.time_out("keepalive ping timeout")

    def unsent(self) -> int:
        """Bytes that the client has yet to take, those in the kernel included."""
        return unsent(self.transport)

    def has_pending_io(self) -> bool:
        """Whether data from the peer has arrived that was not processed yet."""
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
            if self.leave_queue():
                self.refuse_overload()
            else:
                self.send_500_response()
        elif self.state is not SessionState.DENYING and not self._closing.awaiting:
            self.transport.close()

    def disconnect(self) -> None:
        """Tell the application that its client is gone, without waiting for it."""
        self.shutdown()
        self._closing.tell(1006)


class _WaitingHandshake:
    """A handshake whose application is called once there is a place for it."""

    __slots__ = ("_session",)

    def __init__(self, session: WebSocketSession) -> None:
        self._session = session

    def admit(self, eagerly: bool) -> None:
        """Start the application, not `eagerly`: frames behind the handshake have to be there first."""
        self._session.call_application()

    def refuse(self) -> None:
        """Answer 503, unless the connection has ended."""
        if self._session.state is SessionState.CONNECTING:
            self._session.refuse_overload()

    def evict(self) -> None:
        """Do nothing: handshakes are not parked."""
