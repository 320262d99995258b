"""One HTTP/1.1 connection on an asyncio transport: connects reader, writer and deadlines.

::

    data_received ──▶ RequestReader ──head──▶ library ──▶ Runner ──▶ RequestResponseCycle ──▶ the application
                            ▲        └Piece──▶ library ──▶ Input ──────────▲ │ start, body, …
    transport ◀── Carrier ◀─┼─ ResponseWriter ◀── H1Stream ◀─────────┘
                            └ ClientDeadline ──▶ Deadline ──▶ Refusal, Closing

Each state belongs to one object, which alone changes it. The protocol is the interface: the methods that asyncio, the
server and subclasses of programs call, each a few lines, and the order in which the objects act.
At most one request is being answered. Later input waits in the reader, and reading pauses when that grows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Any, cast

from uvicorn._types import ASGI3Application, HTTPScope, ProtocolConfig
from uvicorn.hooks import original
from uvicorn.logging import TRACE_LOG_LEVEL
from uvicorn.metrics.page import BYTES_RECEIVED, CONNECTIONS_CLOSED, CONNECTIONS_OPENED
from uvicorn.protocols.http.attributes import Attributes
from uvicorn.protocols.http.cycle import COMPLETE, RequestResponseCycle, made_as_upstream
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h1.carrier import Carrier
from uvicorn.protocols.http.h1.client_deadline import ClientDeadline
from uvicorn.protocols.http.h1.closing import Closing
from uvicorn.protocols.http.h1.deadline import NOTHING, Deadline, Waits
from uvicorn.protocols.http.h1.input import Input
from uvicorn.protocols.http.h1.parts import ConnectionParts
from uvicorn.protocols.http.h1.refusal import Refusal
from uvicorn.protocols.http.h1.states import AFTER_RESPONSE, AMID_BODY, ENDING_NONE, ENDING_NOW, HERE, OPEN
from uvicorn.protocols.http.h1.stream import H1Stream
from uvicorn.protocols.http.protocol_settings import ProtocolSettings
from uvicorn.protocols.http.runner import Runner
from uvicorn.protocols.http.scope import ScopeBase
from uvicorn.protocols.http.wire.head import CHUNKED, Field, Look, RequestLine, RequestRefused, asks_for_head
from uvicorn.protocols.http.wire.request_reader import BODY, CLOSED, HEAD, LINGER, WAIT, Piece, Request, RequestReader
from uvicorn.protocols.http.wire.response import encode_interim
from uvicorn.protocols.http.wire.response_writer import ResponseWriter
from uvicorn.protocols.utils import is_secure, tls_of
from uvicorn.rules import limits, refusals
from uvicorn.serving.state import ServerState

_IDLE = Waits.IDLE


@original
class HTTPProtocol(Attributes):
    """An asyncio protocol that serves HTTP/1.1 requests to an ASGI application.

    Programs make subclasses of this and of the implementations. What they override and assign is that of upstream's
    classes, as far as there is a counterpart: see `uvicorn.hooks` for the rest.

    Args:
        config: loaded if it is not yet.
        server_state: shared by the connections of one event loop.
        app_state: the state that the lifespan left, copied into each scope.
        _loop: the running event loop unless given.
    """

    held_bodies = (0, 0)
    """As of the native class: HTTP/1.1 has no windows, so bodies wait in the transport alone."""

    __slots__ = (
        "transport",
        "flow",
        "_carrier",
        "_reader",
        "_writer",
        "_deadline",
        "_closing",
        "_client_deadline",
        "_refusal",
        "_runner",
        "_look",
        "_line",
        "_is_fed",
        "_is_leaving",
        "_adopted",
        "_announced",
        "_keep_alive",
        "_logger",
        "__weakref__",
    )

    # From `connection_made` on.
    flow: FlowControl
    _carrier: Carrier
    _writer: ResponseWriter
    _deadline: Deadline
    _closing: Closing
    _client_deadline: ClientDeadline
    _refusal: Refusal
    _runner: Runner  # while requests are served

    # Of the request in hand, if its head was not known.
    _look: Look
    _line: RequestLine

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
            gate, ids = server_state.gate_for(config, self.loop), server_state.request_ids(config)
            metrics, cancellation = server_state.metrics, server_state.cancellation(config, self.loop)
            settings = ProtocolSettings(
                config,
                self.loop,
                server_state.context,
                type(self),
                metrics,
                gate,
                ids,
                cancellation,
                server_state.tracer,
            )
            server_state.protocol_settings = settings
        self.settings: ProtocolSettings = settings
        self.server_state = server_state
        self._app_state = app_state
        self._logger = logging.getLogger("uvicorn.error")
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)  # until connection_made
        self._lost: RequestResponseCycle | None = None
        self._announced = False  # before there was one
        self._keep_alive: asyncio.TimerHandle | None = None  # a program's own
        self._scope: Any = None
        self._is_fed = False  # the library reads it, body included
        self._is_leaving = False  # it opens a WebSocket
        self._adopted: RequestResponseCycle | None = None  # a program has made it, and starts the application

    @staticmethod
    def head_limit(config: ProtocolConfig) -> int:
        """Bytes a request head may have."""
        return config.limit_request_head

    @staticmethod
    def cycle_class() -> type[RequestResponseCycle]:
        """The class that serves one request: looked up in the module of the protocol, where programs may replace it."""
        return RequestResponseCycle

    @staticmethod
    def library_is_patched() -> bool:
        """Tell whether a program has replaced the reader of requests, which then has to read every request."""
        return False

    @property
    def logger(self) -> logging.Logger:
        """The logger for errors of the application and of the client."""
        return self._logger

    @logger.setter
    def logger(self, logger: logging.Logger) -> None:
        self._logger = logger
        if self._is_made:
            self._carrier.logger = logger

    @property
    def timeout_keep_alive_task(self) -> asyncio.TimerHandle | None:
        """The timer that ends an idle connection, `None` while it is not idle.

        The next data cancels a timer that a program assigns. Assigning `None` leaves the connection without a limit.
        """
        if self._keep_alive is not None or not self._is_made:
            return self._keep_alive
        reader = self._reader
        idle = self.cycle is None and reader.state is HEAD and not reader.pending
        return self._deadline.timer if idle else None

    @timeout_keep_alive_task.setter
    def timeout_keep_alive_task(self, timer: asyncio.TimerHandle | None) -> None:
        self._keep_alive = timer
        if self._is_made and self._deadline.waits is _IDLE:
            self._deadline.drop()

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        transport = cast(asyncio.Transport, transport)
        settings = self.settings
        context = self.server_state.context
        functions = settings.functions
        self.transport = transport
        self.flow = flow = settings.flow_class(transport)
        flow.context = context
        self._base = base = ScopeBase(
            settings.asgi_version,
            "https" if is_secure(transport, functions.is_ssl) else "http",
            functions.get_remote_addr(transport),
            functions.get_local_addr(transport),
            settings.root_path,
            self._app_state,
            settings.extensions,
            tls_of(transport),
        )
        self._reader = reader = RequestReader(settings.limits, settings.limit_body, settings.memory, settings.read_head)
        self._carrier = carrier = Carrier(transport, base, reader, settings, self.logger, self.connection_lost)
        self._deadline = deadline = Deadline(self.loop, transport, context, settings, self._expired)
        self._input = source = Input(carrier, flow, reader, deadline, context)
        self._writer = writer = ResponseWriter()
        parts = ConnectionParts(carrier, flow, reader, writer, deadline, source)
        self._closing = closing = Closing(parts, self.server_state.lingering)
        if self._announced:
            closing.announce()
        self._client_deadline = client_deadline = ClientDeadline(parts, closing)
        self._refusal = Refusal(parts, closing, self.server_state)
        stream = H1Stream(self, parts, closing, client_deadline)
        self._runner = Runner(self.loop, self.server_state, base, parts, stream)
        self.server_state.connections.add(self)
        if settings.metrics is not None:
            settings.metrics.add(CONNECTIONS_OPENED)
        self._carrier.note(TRACE_LOG_LEVEL, "HTTP connection made")
        self._client_deadline.await_first()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, for whatever reason."""
        self._reader.stop(CLOSED)
        self._deadline.close()
        self._unset_keepalive_if_required()
        self._forget()
        self._carrier.note(TRACE_LOG_LEVEL, "HTTP connection lost")
        lost, self._scope = self.cycle if self.settings.customised else None, None
        self._input.close()
        self._lost = lost
        self._drop_runner()
        self.flow.resume_writing()
        self._carrier.leave()

    def _drop_runner(self) -> None:
        """No more requests: the runner's stream knows this connection, which would be left to the garbage collector."""
        with contextlib.suppress(AttributeError):
            del self._runner

    def _forget(self) -> None:
        """This protocol has left its connection."""
        metrics = self.settings.metrics
        if metrics is not None and self in self.server_state.connections:
            metrics.add(CONNECTIONS_CLOSED)
        self.server_state.connections.discard(self)
        self.server_state.lingering.discard(self._carrier)

    def eof_received(self) -> bool:
        """The client has nothing more to send; it may still read. Returns whether the connection stays open."""
        self._input.end = HERE
        if self._carrier.ends_as_a_whole:
            return False
        cycle = self.cycle
        if cycle is None:
            return self._reader.state is WAIT  # requests that have not had their turn
        if cycle.state is COMPLETE:
            return False
        self._deadline.waits = NOTHING  # the rest of the body will not come
        self._input.leave(cycle, reachable=True)
        return True

    def pause_writing(self) -> None:
        """The transport's buffer is above its high-water mark."""
        self.flow.pause_writing()
        self._carrier.await_reader()

    def resume_writing(self) -> None:
        """The transport's buffer is low again."""
        if self._reader.state < LINGER:
            self._carrier.stop_awaiting_reader()
        else:
            self._carrier.attempt(self._closing.note_linger)
        self.flow.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Process bytes from the client; those that cannot be read yet are kept."""
        reader, carrier, source = self._reader, self._carrier, self._input
        settings = self.settings
        if settings.customised or self._keep_alive is not None:
            self._unset_keepalive_if_required()
        if settings.metrics is not None:
            settings.metrics.words[BYTES_RECEIVED] += len(data)
        begun = 0
        carrier.holding = True
        try:
            event = reader.receive(data) if data else reader.resume()
            while event is not None:
                if type(event) is Piece:
                    if not self._take(event):
                        self._drop(event)
                else:
                    self._begin(event)
                if not reader.unread:
                    break
                if type(event) is not Piece:
                    begun += 1
                if begun >= limits.MAX_EAGER_REQUESTS and settings.real_loop and reader.state is HEAD:
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
                self._client_deadline.await_head()
            elif source.end is HERE or self._closing.ending is not ENDING_NONE:
                self._client_deadline.await_request()
            elif self._deadline.waits is NOTHING:
                self._deadline.set(_IDLE, self.settings.timeout_idle)
        elif reader.state is LINGER:
            self._closing.linger_on()

    def _go_on(self) -> None:
        """Process pending input, without an overridden `data_received`, because no data was received."""
        HTTPProtocol.data_received(self, b"")

    # Requests.

    def _begin(self, request: Request) -> None:
        """Have the library read a head, unless it is known, and start the application with the body so far."""
        head, look, known, body = request
        settings, runner, source = self.settings, self._runner, self._input
        framing = look[5]
        self._is_fed = known is None
        if known is not None:
            cycle = runner.meet(self._base.build(known[1], [*known[2]]), look, framing[2])
        else:
            self._look = look
            self._is_leaving = False
            if (look[4] or framing[3]) and self._leaves(head, look):
                return
            self.feed_head(head)
            if source.cycle is None or self._reader.state >= LINGER:
                return  # a method of the program's has dealt with it
            cycle = source.cycle
            # A chunked one, and one that asks for an upgrade, are read each time.
            if not settings.customised and framing[0] >= 0 and not framing[3] and settings.memory.recurs(head):
                settings.memory.keep(head, (look, self._line, tuple(cycle.scope["headers"])))
        app = runner.enter(cycle, look)
        if body is None:
            if not cycle.expect_continue:
                self._client_deadline.await_body()
            # Pass the body so far to the cycle before the application starts, which then need not wait for it.
            piece = self._reader.read()
            if piece is not None:
                self._take(cast(Piece, piece))
        elif known is not None:
            cycle.body = body
            cycle.more_body = False
        elif body:
            self.feed(body)
        if self._reader.state < LINGER and cycle is not self._adopted:
            if settings.customised:
                self._start_asgi_task(cycle, app)
            elif settings.has_rules or source.end is not OPEN:
                runner.begin(cycle, app)
            else:
                runner.start(cycle, cycle.run_asgi(app), True)

    def _leaves(self, head: bytes, look: Look) -> bool:
        """Deal with a request that is for another server, or for the WebSocket protocol. Returns false for others."""
        if look[4] and not self._refusal.may_ask_for_https(self._base):
            self._refuse(RequestRefused(refusals.MISDIRECTED), look[0] == b"HEAD")
            return True
        if self.settings.customised:
            return False  # methods of the program's may decide, once the library has read the head
        self._is_leaving = self._should_upgrade()
        if self._is_leaving:
            self._hand_over(head)
        return self._is_leaving

    def _begin_scope_with(self, headers: list[Field]) -> HTTPScope:
        """Begin the scope of the request being read."""
        self._scope = scope = self._base.begin(headers)
        if self.settings.customised:
            self.scope = scope  # which may be a property of the program's
            scope = cast(HTTPScope, self.scope)
        return scope

    def _ask_whether_to_upgrade(self) -> None:
        """Its fields are read: let methods of the program's decide whether it opens a WebSocket."""
        if self.settings.customised:
            self._is_leaving = self._should_upgrade() and not self._look[5][0]

    def _meet(self, scope: HTTPScope, target: bytes, expect_continue: bool) -> None:
        """The library has read the head of a request for `target`, whose scope was begun: make its cycle."""
        look = self._look
        line = None
        if target == look[6]:
            target, line = look[1], self._reader.line
            if look[3] is not None:
                # RFC 9112 section 3.2.2: the authority in the target replaces the Host field.
                others = [field for field in scope["headers"] if field[0] != b"host"]
                scope["headers"][:] = [(b"host", look[3]), *others]  # type: ignore[index]
        self._line = line = line or self._base.line(look[0], target, look[2])
        self._base.complete(scope, line)
        expect_continue = expect_continue and look[2] != b"0"
        if self.settings.calls_constructor:
            arguments = self.cycle_arguments(expect_continue)
            stream = self._runner.expect(look)
            self._input.cycle = made_as_upstream(self.settings.cycle_class, stream, scope, expect_continue, arguments)
        else:
            self._runner.meet(scope, look, expect_continue)

    def cycle_arguments(self, expect_continue: bool) -> dict[str, Any]:
        """Return upstream's arguments for a cycle, but for its scope."""
        return {
            "transport": self.transport,
            "flow": self.flow,
            "logger": self.logger,
            "access_logger": self.access_logger,
            "access_log": self.access_log,
            "default_headers": self.server_state.default_headers,
            "message_event": asyncio.Event(),
            "on_response": self.on_response_complete,
        }

    def _meet_plain(self, fields: list[Field]) -> None:
        """Make the cycle of a request without a body and without an authority in its target: `_meet` in short."""
        look = self._look
        self._line = line = self._reader.line or self._base.line(look[0], look[1], look[2])
        self._runner.meet(self._base.build(line, fields), look, False).more_body = False

    def adopt(self, cycle: RequestResponseCycle) -> tuple[H1Stream, bool]:
        """A program has made a cycle itself, and starts its application: return its stream, and whether 100 is due."""
        self._adopted = cycle
        return self._runner.expect(self._look), self._look[5][2]

    def _unset_keepalive_if_required(self) -> None:
        """Cancel the timer that a program has assigned; the deadline looks after itself."""
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            self._keep_alive = None

    @property
    def leaves(self) -> bool:
        """The request in hand opens a WebSocket."""
        return self._is_leaving

    def _should_upgrade(self) -> bool:
        """Tell whether the request in hand opens a WebSocket; log that it does not, if its client asks for that."""
        if self._get_upgrade() is None:
            return False
        if self._look[5].asks_for_websocket and self._should_upgrade_to_ws():
            return True
        self._unsupported_upgrade_warning()
        return False

    def _get_upgrade(self) -> bytes | None:
        """Return the protocols its client asks for, in lower case; `None` if it asks for none."""
        return self._look[5][3] or None

    def _should_upgrade_to_ws(self) -> bool:
        """Tell whether there is a WebSocket protocol to hand over to."""
        return self.settings.ws_protocol_class is not None

    def _unsupported_upgrade_warning(self) -> None:
        """Log that nothing takes over."""
        self._refusal.warn_of_upgrade(self._look[5])

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Start the application for the request in hand."""
        self._runner.begin(cycle, app)

    # The tasks of a subclass's library, which responds by calling `_meet`, and by feeding the cycle.

    def feed_head(self, head: bytes) -> None:
        """Have the library read a head that is complete and held to the rules, which makes the cycle of its request."""
        raise NotImplementedError

    def feed(self, data: bytes) -> None:
        """Have the library read more of the message."""
        raise NotImplementedError

    def _feed_cycle(self, body: bytes) -> None:
        """The library has read some of the body."""
        cycle = self._input.cycle
        if cycle is not None and cycle.state is not COMPLETE:
            cycle.feed(body)

    def _end_body(self) -> None:
        """The library has read the end of the message."""
        cycle = self._input.cycle
        if cycle is not None and cycle.state is not COMPLETE:
            cycle.feed_end()

    def _take(self, piece: Piece) -> bool:
        """Give the application a piece of its request's body. Returns whether it may still have it."""
        source = self._input
        if not self._is_fed:
            return source.take(piece)
        data = piece.data
        if self._look[5][0] == CHUNKED:
            # Encode the chunks again: their extensions and the trailers have been dropped.
            data = (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + (b"0\r\n\r\n" if piece.end else b"")
        if data:
            self.feed(data)
        cycle = source.cycle
        if cycle is None or cycle.state is COMPLETE:
            return cycle is None
        source.account(cycle, piece)
        return True

    def _drop(self, piece: Piece) -> None:
        """Drop the rest of the body, because the response is complete."""
        if self._reader.discarded > limits.MAX_DISCARDED:
            self._closing.close(AMID_BODY)
        elif piece.end:
            self._deadline.waits = NOTHING
            self._next_request()

    def on_response_complete(self) -> None:
        """The response is complete: go on with the next request, or close."""
        settings, source = self.settings, self._input
        if source.cycle is not None and source.cycle.course is not None:
            source.cycle.course.end(is_complete=True)
        if self._is_fed:
            self._adopted = None
            self._scope = self.scope if settings.customised else None
        self.server_state.request_complete()
        reader = self._reader
        if reader.state is CLOSED:
            return  # the transport has failed
        if self._writer.close or self._closing.ending is ENDING_NOW:
            self._closing.close_behind_response()
        elif reader.state is BODY:
            self._client_deadline.discard_body()
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
            self._client_deadline.await_request()

    # Refusing, upgrading.

    def _refuse(self, refused: RequestRefused, head_request: bool = False) -> None:
        """Answer in the application's place, and end the connection.

        `head_request`: the refused request is a HEAD, if it has no cycle.
        """
        self._refusal.refuse(refused, head_request, self.send_400_response)

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid request with `msg`, and close the connection."""
        self._refusal.answer(400, msg)

    def _hand_over_as(self, target: bytes, fields: Iterable[Field]) -> None:
        """Give the connection to the WebSocket protocol, with a handshake that a program may have changed."""
        lines = b"".join(b"%b: %b\r\n" % field for field in fields)
        self._hand_over(b"%b %b HTTP/1.%b\r\n%b\r\n" % (self._look[0], target, self._look[2], lines))

    def _hand_over(self, head: bytes) -> None:
        """Give the connection to the WebSocket protocol, with its handshake and later input."""
        if self._look[5][2]:
            # RFC 9110 section 7.8: the one in front of the other.
            self._carrier.write(encode_interim(100))
        self._carrier.note(TRACE_LOG_LEVEL, "Upgrading to WebSocket")
        self._carrier.flush()
        self._input.resume()
        self._carrier.leave()
        data = head + self._reader.rest()
        self._reader.stop(CLOSED)
        self._deadline.close()
        self._drop_runner()
        protocol = self.settings.ws_protocol_class(
            config=self.settings.config, server_state=self.server_state, app_state=self.app_state
        )
        protocol.connection_made(self.transport)
        self._forget()
        self.transport.set_protocol(protocol)
        protocol.data_received(data)

    # The end of the server, and deadlines.

    def announce_close(self) -> None:
        """The next response whose head is encoded is the last, and says so; nothing else changes."""
        if not self._is_made:
            self._announced = True
        else:
            self._closing.announce()

    def shutdown(self) -> None:
        """The server stops: close now if idle, otherwise when the response is complete.

        After an `announce_close` a client without notice yet gets a moment for one more request.
        """
        self._closing.stop()

    def disconnect(self) -> None:
        """Tell the application that its client is gone, while its response can still be sent."""
        self._input.disconnect()

    def _expired(self, waits: Waits) -> None:
        """The client was waited for long enough."""
        settings, reader = self.settings, self._reader
        if waits is Waits.LINGER:
            self._closing.has_lingered()
        elif waits is Waits.DISCARD:
            self._closing.close(AMID_BODY)  # answered already: nothing is refused
        elif waits is Waits.BODY:
            self._refuse(RequestRefused(refusals.BODY_TIMEOUT, settings.timeout_body))
        elif waits is Waits.LAST_CALL:
            self._closing.close_between_requests()
        elif waits is Waits.FIRST and not reader.pending:
            self._closing.close()
        elif reader.pending:
            self._refuse(RequestRefused(refusals.HEAD_TIMEOUT, settings.timeout_head), asks_for_head(reader.pending))
        else:
            self.timeout_keep_alive_handler()

    def _own_settings(self) -> ProtocolSettings:
        settings: ProtocolSettings = super()._own_settings()
        if self._is_made:
            self._carrier.settings = settings
        return settings

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more was asked for `timeout_keep_alive` seconds: close."""
        self._closing.close(AFTER_RESPONSE)
