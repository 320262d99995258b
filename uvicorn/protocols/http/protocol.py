"""One HTTP/1.1 connection on an asyncio transport: joins what reads, what writes, and what waits.

::

    data_received ──▶ RequestReader ──Request──▶ RequestResponseCycle ──▶ the application
                                                        │ start, body, …
    transport.write ◀── ResponseWriter ◀── H1Stream ◀───┘
                            Deadline ──▶ refuse, close

At most one request is being answered. What arrives behind it waits in the reader, and reading pauses when that grows.
Bytes written while input is being consumed leave in one write at the end.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Any, cast

from uvicorn._types import HTTPScope, ProtocolConfig
from uvicorn.logging import TRACE_LOG_LEVEL
from uvicorn.metrics import BYTES_RECEIVED, GONE, OPENED
from uvicorn.middleware.proxy_headers import is_trusted_gateway
from uvicorn.protocols.http import limits, refusals, texts
from uvicorn.protocols.http.attributes import Attributes
from uvicorn.protocols.http.carrier import Carrier
from uvicorn.protocols.http.closing import Closing
from uvicorn.protocols.http.cycle import COMPLETE, IDLE, RequestResponseCycle
from uvicorn.protocols.http.deadline import NOTHING, Deadline, Waits
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h1_stream import H1Stream
from uvicorn.protocols.http.head import Framing, RequestRefused, asks_for_head
from uvicorn.protocols.http.hooks import original
from uvicorn.protocols.http.input import Input
from uvicorn.protocols.http.patience import Patience
from uvicorn.protocols.http.protocol_settings import ProtocolSettings
from uvicorn.protocols.http.request_reader import BODY, CLOSED, HEAD, LINGER, WAIT, Piece, Request, RequestReader
from uvicorn.protocols.http.response import STATUS_PHRASES, encode_interim, error_response
from uvicorn.protocols.http.response_writer import AWAITING, ResponseWriter
from uvicorn.protocols.http.scope import ScopeBase
from uvicorn.protocols.http.states import ENDING_NONE, ENDING_NOW, HERE, OPEN
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl, start_task
from uvicorn.state import ServerState

_IDLE = Waits.IDLE


@original
class HTTPProtocol(Attributes):
    """An asyncio protocol that serves HTTP/1.1 requests to an ASGI application.

    Programs make subclasses of this and of the implementations. What they override and assign is that of upstream's
    classes, as far as there is a counterpart: see `hooks` for the rest.

    Args:
        config: loaded if it is not yet.
        server_state: shared by the connections of one event loop.
        app_state: what the lifespan left, copied into each scope.
        _loop: the running event loop unless given.
    """

    __slots__ = (
        "app_state",
        "logger",
        "transport",
        "flow",
        "_carrier",
        "_reader",
        "_stream",
        "_deadline",
        "_closing",
        "_patience",
        "__weakref__",
    )

    def __init__(
        self,
        config: ProtocolConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = _loop or asyncio.get_event_loop()
        settings = server_state.protocol_settings
        if settings is None or settings.config is not config or settings.protocol_class is not type(self):
            if not config.loaded:
                config.load()
            settings = ProtocolSettings(config, self.loop, server_state.context, type(self), server_state.metrics)
            server_state.protocol_settings = settings
        self.settings: ProtocolSettings = settings
        self.server_state = server_state
        self.app_state = app_state
        self.logger = logging.getLogger("uvicorn.error")
        # Until there is a transport.
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.flow: FlowControl = cast(FlowControl, None)
        self._base: ScopeBase = cast(ScopeBase, None)
        self._reader: RequestReader = cast(RequestReader, None)
        self._carrier: Carrier = cast(Carrier, None)
        self._input: Input = cast(Input, None)
        self._stream: H1Stream = cast(H1Stream, None)
        self._deadline: Deadline = cast(Deadline, None)
        self._closing: Closing = cast(Closing, None)
        self._patience: Patience = cast(Patience, None)
        self._last_scope: HTTPScope | None = None  # for a subclass that looks at it when the response is complete

    @staticmethod
    def head_limit(config: ProtocolConfig) -> int:
        """Bytes a request head may have."""
        return config.limit_request_head

    @staticmethod
    def cycle_class() -> type[RequestResponseCycle]:
        """What serves one request: what the module of the class has under that name, for whoever replaces it there."""
        return RequestResponseCycle

    @property
    def timeout_keep_alive_task(self) -> asyncio.TimerHandle | None:
        """The timer that ends an idle connection, `None` while it is not idle."""
        reader = self._reader
        idle = reader is not None and self.cycle is None and reader.state is HEAD and not reader.pending
        return self._deadline.timer if idle else None

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        transport = cast(asyncio.Transport, transport)
        settings = self.settings
        context = self.server_state.context
        self.transport = transport
        self.flow = flow = FlowControl(transport, context)
        self._base = base = ScopeBase(
            settings.asgi_version,
            "https" if is_ssl(transport) else "http",
            get_remote_addr(transport),
            get_local_addr(transport),
            settings.root_path,
            self.app_state,
            settings.extensions,
        )
        self._reader = reader = RequestReader(settings.limits, settings.limit_body, settings.memory, base.line)
        self._carrier = carrier = Carrier(transport, base, reader, settings, self.logger, self.connection_lost)
        self._deadline = deadline = Deadline(self.loop, context, settings, self._expired)
        self._input = source = Input(carrier, flow, reader, deadline, settings, context)
        writer = ResponseWriter()
        self._closing = closing = Closing(carrier, flow, reader, writer, deadline, source)
        self._patience = patience = Patience(deadline, reader, source, closing, settings)
        self._stream = H1Stream(self, carrier, flow, reader, writer, source, closing, patience)
        self.server_state.connections.add(self)
        if settings.metrics is not None:
            settings.metrics.add(OPENED)
        self._carrier.note(TRACE_LOG_LEVEL, "HTTP connection made")
        self._patience.await_first()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, for whatever reason."""
        self._reader.stop(CLOSED)
        self._deadline.close()
        self._forget()
        self._carrier.note(TRACE_LOG_LEVEL, "HTTP connection lost")
        self._input.close()
        self._last_scope = None
        self._stream = cast(H1Stream, None)  # which knows its connection
        self.flow.resume_writing()
        self._carrier.leave()

    def _forget(self) -> None:
        """This protocol is not on its connection any more."""
        metrics = self.settings.metrics
        if metrics is not None and self in self.server_state.connections:
            metrics.add(GONE)
        self.server_state.connections.discard(self)

    def eof_received(self) -> bool:
        """The client has nothing more to send; it may still read. Returns whether the connection stays open."""
        self._input.end = HERE
        if self._carrier.is_tls:
            return False
        cycle = self.cycle
        if cycle is None:
            return self._reader.state is WAIT  # requests that have not had their turn
        if cycle.state is COMPLETE:
            return False
        self._deadline.waits = NOTHING  # what is missing of the body will not come
        cycle.disconnect(reachable=True)
        return True

    def pause_writing(self) -> None:
        """The transport's buffer is above its high-water mark."""
        self.flow.pause_writing()
        self._carrier.await_reader()

    def resume_writing(self) -> None:
        """The transport's buffer is low again."""
        if self._reader.state is not CLOSED:
            self._carrier.stop_awaiting_reader()
        self.flow.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Bytes from the client, to be worked through; what cannot be looked at yet is kept."""
        reader, carrier, source = self._reader, self._carrier, self._input
        if self.settings.metrics is not None:
            self.settings.metrics.words[BYTES_RECEIVED] += len(data)
        budget = limits.MAX_EAGER_REQUESTS
        carrier.holding = True
        try:
            event = reader.receive(data) if data else reader.resume()
            while event is not None:
                if type(event) is Piece:
                    if not source.take(event):
                        self._drop(event)
                else:
                    self._begin(event)
                if not reader.more:
                    break
                if type(event) is not Piece:
                    budget -= 1
                if budget <= 0 and self.settings.real_loop and reader.state is HEAD:
                    reader.keep()
                    source.take_turns(self.loop, self._go_on)
                    break
                event = reader.read()
        except RequestRefused as refused:
            self._refuse(refused, asks_for_head(reader.rest()))
        finally:
            carrier.holding = False
            if carrier.held:
                carrier.flush()
        if reader.pending or self.flow.read_paused:
            source.regulate()
        if reader.state is HEAD:
            if reader.pending and source.end is not HERE:
                self._patience.await_head()
            elif source.end is HERE or self._closing.ending is not ENDING_NONE:
                self._patience.await_request()
            elif self._deadline.waits is NOTHING:
                self._deadline.set(_IDLE, self.settings.timeout_idle)

    def _go_on(self) -> None:
        """Work through what is pending. Nothing was received, so it is nothing to a class that overrides that."""
        HTTPProtocol.data_received(self, b"")

    # Requests.

    def _begin(self, request: Request) -> None:
        """Start the application on a request."""
        line, fields, framing, body, special = request
        if special is not None:
            head, https = special
            if https and not self._may_ask_for_https():
                self._refuse(RequestRefused(refusals.MISDIRECTED), line[0] == "HEAD")
                return
            if head and self._upgrades(framing):
                self._hand_over(head, framing.expect_continue)
                return
        settings = self.settings
        state, stream, source = self.server_state, self._stream, self._input
        _, stream.keep_alive, expect_continue, _, forwarded = framing
        app = settings.app if forwarded else settings.direct_app
        limit = settings.limit_concurrency
        if limit is not None and (len(state.connections) >= limit or len(state.tasks) >= limit):
            self.logger.warning(texts.CONCURRENCY_EXCEEDED)
            app = settings.unavailable_app
        scope = self._base.build(line, fields)
        writer = stream.writer
        writer.state = AWAITING
        writer.head_request = line[0] == "HEAD"
        writer.http_10 = line[1] == "1.0"
        self._deadline.waits = NOTHING
        source.cycle = cycle = settings.cycle_class(stream, scope, body is None, expect_continue)
        if settings.formatted is not None:
            cycle.entry = settings.formatted.begin(scope)
        if settings.metrics is not None:
            cycle.course = settings.metrics.begin(scope["method"])
        if body is not None:
            cycle.body = body
        else:
            if not expect_continue:
                self._patience.await_body()
            # What is there reaches the cycle before the application starts, which then need not wait for it.
            piece = self._reader.read()
            if piece is not None:
                source.take(cast(Piece, piece))
        if source.end is not OPEN:
            cycle.disconnect(reachable=True)
        context = contextvars.Context() if settings.reset_contextvars else state.context.copy()
        # After the client's end a response has to know whether it is the last: not before all input is pending.
        eager = settings.eager and source.end is not HERE
        task = start_task(self.loop, cycle.run_asgi(app), context, eager)
        if not (eager and task.done()):
            cycle.task = task
            state.tasks.add(task)
            task.add_done_callback(state.tasks.discard)

    def _may_ask_for_https(self) -> bool:
        base = self._base
        return base.scheme == "https" or is_trusted_gateway(self.settings.app, base.client)

    def _drop(self, piece: Piece) -> None:
        """Nobody reads what is left of the body: the response is complete."""
        if self._reader.discarded > limits.MAX_DISCARDED:
            self._closing.close(linger=True)
        elif piece.end:
            self._deadline.waits = NOTHING
            self._next_request()

    def on_response_complete(self) -> None:
        """The response is complete: go on with the next request, or close."""
        settings, source = self.settings, self._input
        if settings.metrics is not None and source.cycle is not None and source.cycle.course is not None:
            source.cycle.course.end()
        if settings.customised:
            self._last_scope = self.scope
        self.server_state.request_complete()
        reader = self._reader
        if reader.state is CLOSED:
            return  # the transport has failed
        if self._stream.writer.close or self._closing.ending is ENDING_NOW:
            self._closing.close(linger=reader.state is BODY or bool(reader.pending))
        elif reader.state is BODY:
            self._patience.discard_body()
        elif self._carrier.holding:
            source.cycle = None
            reader.state = HEAD
        else:
            self._next_request()

    def _next_request(self) -> None:
        self._input.cycle = None
        reader = self._reader
        reader.state = HEAD
        if self._carrier.holding:
            return
        if reader.pending:
            if self.settings.eager:
                # Not now: the application that has just completed its response is still running.
                self._input.take_turns(self.loop, self._go_on)
            else:
                self._go_on()
        else:
            self._input.resume()
            self._patience.await_request()

    # Refusing, upgrading.

    def _refuse(self, refused: RequestRefused, head_request: bool = False) -> None:
        """Answer in the application's place, and end the connection.

        `head_request` says that what is refused asks for a head only, if it has no cycle.
        """
        cycle = self.cycle
        if cycle is not None and cycle.state is COMPLETE:
            # What is left of a body that nobody will read.
            self._closing.close(linger=True)
            return
        status, phrase = refused.status, STATUS_PHRASES[refused.status]
        line = texts.REQUEST_REFUSED.format(status=status, phrase=phrase, reason=refused.reason)
        self.logger.warning(texts.INVALID_REQUEST if status == 400 else line)
        self._carrier.note(logging.DEBUG, line)
        if cycle is not None and cycle.state is not IDLE:
            self._closing.abort_response()
            return
        if cycle is not None and cycle.course is not None:
            cycle.course.respond(status)
        elif self.settings.metrics is not None:
            self.settings.metrics.refuse(status)
        if cycle is None:
            self._stream.writer.head_request = head_request
        if status != 400:
            self._answer(status, phrase)
            return
        if self.settings.customised:
            self._carrier.flush()  # a method that is not ours knows the transport only
        self.send_400_response(texts.INVALID_REQUEST)
        if self._reader.state < LINGER:
            self._closing.close(linger=True)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request with `msg`, and end the connection."""
        self._answer(400, msg)

    def _answer(self, status: int, text: str) -> None:
        head_request = self._stream.writer.head_request
        self._carrier.write(error_response(status, text.encode(), self.server_state.default_head, head_request))
        self._closing.close(linger=True)

    def _upgrades(self, framing: Framing) -> bool:
        """Tell whether the connection is to become a WebSocket; log why not."""
        wanted = [name.strip(b" \t") for name in framing.upgrade.split(b",")]
        websocket = b"websocket" in wanted and framing.length == 0
        if websocket and self.settings.ws_protocol_class is not None:
            return True
        self.logger.warning(texts.UPGRADE_UNSUPPORTED)
        if websocket:
            self.logger.warning(texts.WEBSOCKET_UNSUPPORTED)
        return False

    def _hand_over(self, head: bytes, expect_continue: bool) -> None:
        """Give the connection to the WebSocket protocol, with the handshake as it was sent and what is behind it."""
        if expect_continue:
            # RFC 9110 section 7.8: the one in front of the other.
            self._carrier.write(encode_interim(100))
        self._carrier.note(TRACE_LOG_LEVEL, "Upgrading to WebSocket")
        self._carrier.flush()
        self._input.resume()
        self._carrier.leave()
        data = head + self._reader.rest()
        self._reader.stop(CLOSED)
        self._deadline.close()
        self._stream = cast(H1Stream, None)
        protocol = self.settings.ws_protocol_class(
            config=self.settings.config, server_state=self.server_state, app_state=self.app_state
        )
        protocol.connection_made(self.transport)
        self._forget()
        self.transport.set_protocol(protocol)
        protocol.data_received(data)

    # Writing and closing.

    # The end of the server, and deadlines.

    def announce_close(self) -> None:
        """The next response whose head is encoded is the last, and says so; nothing else changes."""
        self._closing.announce()

    def shutdown(self) -> None:
        """The server stops: close now if idle, otherwise when the response is complete.

        Behind an `announce_close` a client that was told nothing yet is given a moment for one more request.
        """
        self._closing.stop()

    def disconnect(self) -> None:
        """Tell the application that its client is gone, while its response can still be sent."""
        self._input.disconnect()

    def _expired(self, waits: Waits) -> None:
        """The client was waited for long enough."""
        settings, reader = self.settings, self._reader
        if waits is Waits.LINGER:
            self._carrier.abort()
        elif waits is Waits.DISCARD:
            self._closing.close(linger=True)  # answered already: nothing is refused
        elif waits is Waits.BODY:
            self._refuse(RequestRefused(refusals.BODY_TIMEOUT, settings.timeout_body))
        elif waits is Waits.LAST_CALL or (waits is Waits.FIRST and not reader.pending):
            self._closing.close()
        elif reader.pending:
            self._refuse(RequestRefused(refusals.HEAD_TIMEOUT, settings.timeout_head), asks_for_head(reader.pending))
        else:
            self.timeout_keep_alive_handler()

    def _own_settings(self) -> ProtocolSettings:
        settings: ProtocolSettings = super()._own_settings()
        for room in (self._carrier, self._input, self._patience):
            if room is not None:
                room.settings = settings
        return settings

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more was asked for `timeout_keep_alive` seconds: close."""
        self._closing.close()
