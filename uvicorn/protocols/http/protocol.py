"""One HTTP/1.1 connection: everything that is the same whichever library tokenises the request head.

::

             ┌──────────── response complete, keep-alive ─────────────┐
             ▼                                                        │
    HEAD ──head──▶ BODY ──end of the request──▶ WAIT ──response complete──▶ (close) CLOSED
      │              │                                                        ▲
      └── refused ───┴──▶ LINGER: answered, reading only so that the peer ────┘
                          can read the answer before the connection is reset

At most one request is being answered. What arrives behind it waits in `_pending`, reading pauses when that grows, and
it is looked at only when its turn comes: a bad request never overtakes a good one. Bytes written while input is being
consumed leave in one write at the end. Subclasses implement `parse_fields` and nothing else.

One timer per connection, re-armed when it fires rather than for each request, serves all deadlines.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import socket
import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from time import monotonic
from typing import Any, cast

from uvicorn._types import ASGI3Application, HTTPScope, ProtocolConfig
from uvicorn.access import AccessLog, FormattedLog, LineBuffer, LoggerLog
from uvicorn.logging import TRACE_LOG_LEVEL
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware, is_trusted_gateway
from uvicorn.protocols.http import limits, refusals, texts
from uvicorn.protocols.http.attributes import Attributes
from uvicorn.protocols.http.body import ChunkedDecoder, LengthDecoder
from uvicorn.protocols.http.cycle import COMPLETE, IDLE, SENDING, STARTED, RequestResponseCycle
from uvicorn.protocols.http.event_pool import is_poisoned
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl, service_unavailable
from uvicorn.protocols.http.hang_up import HangUps
from uvicorn.protocols.http.head import (
    CHUNKED,
    Framing,
    HeadLimits,
    HeadScan,
    RequestRefused,
    asks_for_head,
    examine,
    is_usual,
    match_head,
    match_plain_line,
    refuse,
    split_fields,
    split_target,
)
from uvicorn.protocols.http.hooks import original, replaced
from uvicorn.protocols.http.readers import Readers, waiting
from uvicorn.protocols.http.recurring import Recurring
from uvicorn.protocols.http.response import (
    STATUS_PHRASES,
    BodyFraming,
    as_bytes,
    encode_chunk,
    encode_parts,
    error_response,
)
from uvicorn.protocols.http.scope import RequestLine, ScopeBase
from uvicorn.protocols.utils import (
    EAGER_START,
    get_local_addr,
    get_remote_addr,
    is_ssl,
    start_task,
)
from uvicorn.state import ServerState

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_NO_LINGER = struct.pack("ii", 1, 0)


class Reading(IntEnum):
    """What the next byte from the client belongs to; the module's diagram shows the moves."""

    HEAD = 0
    BODY = 1
    WAIT = 2
    LINGER = 3
    CLOSED = 4


class Ending(IntEnum):
    """What the end of the server means for a connection; it only ever goes forward."""

    NONE = 0
    ANNOUNCED = 1  # the next head says `close`
    LAST_CALL = 2  # and its request has to come soon
    NOW = 3  # no further request is taken


# A member looked up on its class costs several times a global, and these are read for each request.
FRAMED_BY_LENGTH = BodyFraming.LENGTH
ENDING_NONE, ENDING_LAST_CALL, ENDING_NOW = Ending.NONE, Ending.LAST_CALL, Ending.NOW
HEAD, BODY, WAIT, LINGER, CLOSED = Reading.HEAD, Reading.BODY, Reading.WAIT, Reading.LINGER, Reading.CLOSED


def reset_on_close(transport: asyncio.Transport) -> None:
    """See to it that closing `transport` resets the connection, so that the peer does not take it for a regular end."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):  # of a socket that is gone already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


class ProtocolSettings:
    """What the connections of one server read from its configuration, resolved once and shared by all of them."""

    __slots__ = (
        "config",
        "app",
        "direct_app",
        "asgi_version",
        "root_path",
        "extensions",
        "reset_contextvars",
        "limit_concurrency",
        "limits",
        "limit_body",
        "timeout_idle",
        "timeout_head",
        "timeout_body",
        "lines",
        "sections",
        "access",
        "formatted",
        "log_lines",
        "ws_protocol_class",
        "clock",
        "real_loop",
        "protocol_class",
        "cycle_class",
        "customised",
        "eager",
        "poisoned",
        "hang_ups",
        "readers",
    )

    def __init__(
        self,
        config: ProtocolConfig,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        protocol_class: type[HTTPProtocol],
    ) -> None:
        self.config = config
        self.set_app(config.loaded_app)
        self.asgi_version = config.asgi_version
        self.root_path = config.root_path
        self.extensions = config.asgi_extensions
        self.reset_contextvars = config.reset_contextvars
        self.limit_concurrency = config.limit_concurrency
        self.limits = HeadLimits(
            protocol_class.head_limit(config), config.limit_request_fields, config.limit_request_target
        )
        self.limit_body = config.limit_request_body
        # Zero seconds means the next turn of the loop.
        self.timeout_idle = max(config.timeout_keep_alive, 1e-6)
        self.timeout_head = config.timeout_request_head
        self.timeout_body = config.timeout_request_body
        # What was concluded from request lines, and from field sections with the empty line behind them: within the
        # limits above, and for versions later than 1.0.
        self.lines: Recurring[RequestLine] = Recurring(256, longest=256)
        self.sections: Recurring[tuple[tuple[tuple[bytes, bytes], ...], Framing]] = Recurring(64, longest=2048)
        self.set_log(AccessLog.from_config(config, loop), FormattedLog.from_config(config, loop))
        self.ws_protocol_class: Any = config.ws_protocol_class
        # Tests hand in a loop that can only create_task and call_later.
        self.real_loop = isinstance(loop, asyncio.AbstractEventLoop)
        self.protocol_class = protocol_class
        self.cycle_class = protocol_class.cycle_class()
        # Whoever has methods of his own may rely on the order of things that upstream has: the application starts when
        # `data_received` has returned.
        self.customised = bool(replaced(protocol_class) or replaced(self.cycle_class))
        self.eager = EAGER_START and self.real_loop and not self.customised
        self.poisoned = is_poisoned()
        self.hang_ups = HangUps(loop, context)
        self.clock: Callable[[], float] = loop.time if self.real_loop else monotonic
        # The double of a transport may not know what waits in it.
        self.readers = Readers(loop, context, config.timeout_write if self.real_loop else 0.0, self.clock)

    def set_app(self, app: ASGI3Application) -> None:
        """Have this application serve requests."""
        self.app = app
        # The middleware does nothing for a request without forwarded fields, so such a request need not pass it.
        self.direct_app = app.app if type(app) is ProxyHeadersMiddleware else app

    def set_log(self, access: AccessLog | LoggerLog | None, formatted: FormattedLog | None) -> None:
        """Log requests in one of these ways."""
        self.access = access
        self.formatted = formatted
        self.log_lines: LineBuffer | None = formatted if access is None or isinstance(access, LoggerLog) else access

    def flush(self) -> None:
        """Write what waits to be written to the access log."""
        if self.log_lines is not None:
            self.log_lines.flush()

    def close(self) -> None:
        """The server has ended: write what waits to be written, and watch no socket any more."""
        self.flush()
        self.hang_ups.close()
        self.readers.close()


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
        "_is_tls",
        "_reading",
        "_pending",
        "_scan",
        "_empty_lines",
        "_first",
        "_decoder",
        "_body_begun",
        "_discarded",
        "_request",
        "_keep_alive",
        "_ending",
        "_eof",
        "_ended",
        "_heeded",
        "_head",
        "_framing",
        "_expected",
        "_close_after",
        "_consuming",
        "_out",
        "_out_bytes",
        "_timer",
        "_timer_at",
        "_timer_armed_by",
        "_deadline",
        "_deadlines",
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
            settings = ProtocolSettings(config, self.loop, server_state.context, type(self))
            server_state.protocol_settings = settings
        self.settings: ProtocolSettings = settings
        self.server_state = server_state
        self.app_state = app_state
        self.logger = logging.getLogger("uvicorn.error")
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)  # until connection_made
        self.flow: FlowControl = cast(FlowControl, None)
        self.cycle: RequestResponseCycle | None = None
        self._base: ScopeBase = cast(ScopeBase, None)
        self._is_tls = False
        self._last_scope: HTTPScope | None = None  # for a subclass that looks at it when the response is complete
        self._reading = HEAD
        self._pending = bytearray()
        self._scan: HeadScan | None = None  # of the head that begins _pending
        self._empty_lines = 0
        self._first = True  # no request yet
        self._decoder: LengthDecoder | ChunkedDecoder | None = None
        self._body_begun = False  # something of it has come
        self._discarded = 0  # bytes of the current body that nobody will read
        self._request: tuple[bool, bool] = (False, False)  # HEAD, HTTP/1.0
        self._keep_alive = True
        self._ending = ENDING_NONE
        self._eof = False
        self._ended = False  # the client has nothing more to send than what the system still holds
        self._heeded = -1  # the socket's descriptor, while reading is paused and its end is to be heard of
        self._head = b""  # of the current response, until it is written
        self._framing = BodyFraming.NONE
        self._expected = 0
        self._close_after = False
        self._consuming = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._timer_armed_by = 0
        self._deadline = 0.0
        self._deadlines = 0  # counts settings of _deadline, so that a timer knows whether it is still meant

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
        idle = self.cycle is None and self._reading is HEAD and not self._pending
        return self._timer if idle else None

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        transport = cast(asyncio.Transport, transport)
        settings = self.settings
        self.transport = transport
        self.flow = FlowControl(transport, self.server_state.context)
        self._is_tls = is_ssl(transport)
        self._base = ScopeBase(
            settings.asgi_version,
            "https" if self._is_tls else "http",
            get_remote_addr(transport),
            get_local_addr(transport),
            settings.root_path,
            self.app_state,
            settings.extensions,
        )
        self.server_state.connections.add(self)
        self._note(TRACE_LOG_LEVEL, "HTTP connection made")
        self._expire_in(settings.timeout_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, for whatever reason."""
        self._reading = CLOSED
        self.server_state.connections.discard(self)
        self._cancel_timer()
        self._note(TRACE_LOG_LEVEL, "HTTP connection lost")
        if self.cycle is not None:
            self.cycle.disconnect()
            self.cycle = None
        self._last_scope = None
        self.flow.resume_writing()
        self.settings.readers.forget(self)
        self._pending.clear()
        if self._heeded >= 0:
            self._ignore_end()

    def eof_received(self) -> bool:
        """The client has nothing more to send; it may still read. Returns whether the connection stays open."""
        self._eof = True
        if self._is_tls:
            return False
        cycle = self.cycle
        if cycle is None:
            return self._reading is WAIT  # requests that have not had their turn
        if cycle.state is COMPLETE:
            return False
        self._deadline = 0.0  # what is missing of the body will not come
        cycle.disconnect(reachable=True)
        return True

    def pause_writing(self) -> None:
        """The transport's buffer is above its high-water mark."""
        self.flow.pause_writing()
        self.await_reader()

    def resume_writing(self) -> None:
        """The transport's buffer is low again."""
        if self._reading is not CLOSED:
            self.stop_awaiting_reader()
        self.flow.resume_writing()

    def await_reader(self) -> None:
        """Give the client time to take some of what waits for it."""
        self.settings.readers.wait(self)

    def stop_awaiting_reader(self) -> None:
        """The client has taken enough of it."""
        self.settings.readers.forget(self)

    def reader_is_late(self) -> None:
        """The client has taken next to nothing in all its time."""
        self._note(logging.DEBUG, texts.READER_LATE)
        reset_on_close(self.transport)  # else the kernel would go on waiting for it, with what it holds
        self._attempt(self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._pending or self._reading >= WAIT:
            self._receive_more(data)
        else:
            self._consume(data)

    def _receive_more(self, data: bytes) -> None:
        """Bytes that join others: a head in pieces, or requests behind the one being answered."""
        if self._reading >= LINGER:
            return
        searched = len(self._pending)
        self._pending += data
        if self._reading is WAIT:
            self._regulate()
            return
        # The end of the head can begin in the last three bytes searched before.
        end = self._pending.find(b"\r\n\r\n", max(0, searched - 3))
        if end >= 0 or self._pending.startswith(b"\r\n"):
            self._consume(self._take_pending())
            return
        try:
            self._await_head()
        except RequestRefused as refused:
            self._refuse(refused, self._pending)

    def _take_pending(self) -> bytes:
        data = bytes(self._pending)
        self._pending.clear()
        self._scan = None
        return data

    def _consume(self, data: bytes) -> None:
        """Work through `data`; what cannot be looked at yet is kept."""
        position = 0
        size = len(data)
        budget = limits.MAX_EAGER_REQUESTS
        self._consuming = True
        try:
            while position < size:
                if self._reading is HEAD:
                    if not budget and self.settings.real_loop:
                        self._pending += data[position:]
                        self._take_turns()
                        break
                    budget -= 1
                    position = self._read_head(data, position)
                elif self._reading is BODY:
                    position = self._read_body(data, position)
                else:
                    if self._reading is WAIT:
                        self._pending += data[position:]
                    break
        except RequestRefused as refused:
            self._refuse(refused, data[position:])
        finally:
            self._consuming = False
            if self._out:
                self._flush()
        if self._pending or self.flow.read_paused:
            self._regulate()
        if self._reading is HEAD and (self._eof or not self._pending):
            self._idle()

    def _regulate(self) -> None:
        """Read from the socket while what waits for its turn, or for the application, is below the high-water mark."""
        if self._reading >= LINGER:
            return
        if self._reading is WAIT:
            waits = len(self._pending)
        elif self._reading is BODY and self.cycle is not None and self.cycle.state is not COMPLETE:
            waits = len(self.cycle.body)
        else:
            waits = 0  # part of a head, which has limits of its own, or nothing that is kept
        if waits <= HIGH_WATER_LIMIT:
            if self.flow.read_paused:
                self._resume_reading()
        else:
            if not self.flow.read_paused:
                self._attempt(self.flow.pause_reading)
            if self._reading is BODY:
                self._deadline = 0.0  # nobody is late with what is not read
            else:
                self._attempt(self._heed_end)

    def _heed_end(self) -> None:
        """Have the client's end heard of though nobody reads: the application may be waiting for it."""
        sock = self.transport.get_extra_info("socket")
        if self._heeded < 0 and self.settings.real_loop and sock is not None and not self.transport.is_closing():
            self._heeded = sock.fileno()
            self.settings.hang_ups.watch(self._heeded, self._end_heard)

    def _end_heard(self, reset: bool) -> None:
        """The client has ended, or reset the connection. What it has sent before is still there, and has its turn."""
        if reset:
            self._attempt(self.transport.abort)
            return
        self._ended = True
        if self.cycle is not None:
            self.cycle.disconnect(reachable=True)

    def _idle(self) -> None:
        """Nothing is being asked: wait for the next request, not for ever, nor for what can no longer come."""
        if self._eof:
            self._close()
        elif not self._deadline:
            self._expire_in(self._patience(self.settings.timeout_idle))

    # Reading requests.

    def parse_fields(self, head: bytes, line_end: int) -> list[tuple[bytes, bytes]]:
        """Return the header fields of `head`: names in lower case, values without outer white space, in order.

        `head` is well-formed as far as `match_head` can tell; its request line ends before `line_end`.

        Raises:
            RequestRefused: the library does not take it; the caller's own rules decide then.
        """
        raise NotImplementedError

    def _await_head(self) -> None:
        """A head has begun and is not complete: hold it to the limits, and to its deadline."""
        pending, settings = self._pending, self.settings
        if pending == b"\r":
            return  # of an empty line, probably
        scan = self._scan
        if scan is None:
            self._scan = scan = HeadScan(settings.limits)
            if not self._first:
                self._expire_in(self._patience(settings.timeout_head))
        scan.advance(pending)

    def _read_head(self, data: bytes, position: int) -> int:
        """Read the request head that begins at `position`; return where what follows it begins."""
        while data.startswith(b"\r\n", position):
            # RFC 9112 section 2.2: an empty line in front of a request is ignored.
            position += 2
            self._empty_lines += 1
            if self._empty_lines > limits.MAX_EMPTY_LINES:
                raise RequestRefused(refusals.EMPTY_LINES, limits.MAX_EMPTY_LINES)
        end = data.find(b"\r\n\r\n", position) + 4
        if end == 3:
            if position < len(data):
                self._pending += data[position:]
                self._await_head()
            return len(data)
        settings = self.settings
        line_end = data.find(b"\r\n", position) + 2
        known = settings.sections.get(data[line_end:end])
        if known is not None and end - position <= settings.limits.head:
            line = self._read_line(data[position:line_end])
            if line is not None:
                fields, framing = known
                return self._begin(line, [*fields], framing, data, end)
        return self._read_new_head(data, position, end)

    def _read_line(self, text: bytes) -> RequestLine | None:
        """Return what a request line means; `None` if that is not plain, and the whole head has to be looked at."""
        settings = self.settings
        line = settings.lines.get(text)
        if line is None:
            match = match_plain_line(text)
            if match is None:
                return None
            method, target, minor = match.groups()
            if not (settings.limits.allow(len(text), method, target) and is_usual(method, target)):
                return None
            line = self._base.line(method, target, minor)
            settings.lines.note(text, line)
        return line

    def _read_new_head(self, data: bytes, position: int, end: int) -> int:
        """Read a head whose fields were not met before, or whose request line is not plain."""
        head = data[position:end] if position or end < len(data) else data
        settings = self.settings
        match = match_head(head)
        if match is None:
            refuse(head, settings.limits)
        method, asked, minor = match.groups()
        if not settings.limits.allow(len(head), method, asked):
            refuse(head, settings.limits)
        target, host = (asked, None) if is_usual(method, asked) else split_target(method, asked)
        line_end = match.end(3) + 2
        try:
            headers = self.parse_fields(head, line_end)
        except RequestRefused:
            # Our own rules decide, and say why.
            headers = split_fields(head, line_end)
        if len(headers) > settings.limits.fields:
            refuse(head, settings.limits)
        framing = examine(minor, headers, settings.limit_body)
        if minor != b"0" and not framing.upgrade:
            settings.sections.note(head[line_end:], (tuple(headers), framing))
        if method == b"CONNECT":
            raise RequestRefused(refusals.CONNECT)
        if host is not None:
            if asked[:6].lower() == b"https:" and not self._may_ask_for_https():
                raise RequestRefused(refusals.MISDIRECTED)
            # RFC 9112 section 3.2.2: the authority in the target replaces the Host field.
            headers = [(b"host", host), *(field for field in headers if field[0] != b"host")]
        if framing.upgrade and self._upgrades(framing):
            if framing.expect_continue:
                # RFC 9110 section 7.8: the one in front of the other.
                self._write(CONTINUE)
            self._hand_over(head + data[end:])
            return len(data)
        return self._begin(self._base.line(method, target, minor), headers, framing, data, end)

    def _may_ask_for_https(self) -> bool:
        base = self._base
        return base.scheme == "https" or is_trusted_gateway(self.settings.app, base.client)

    def _begin(
        self, line: RequestLine, headers: list[tuple[bytes, bytes]], framing: Framing, data: bytes, position: int
    ) -> int:
        """Start the application on a request whose head ends at `position`; return where its part of `data` ends."""
        settings = self.settings
        length, self._keep_alive, expect_continue, _, forwarded = framing
        app = settings.app if forwarded else settings.direct_app
        state = self.server_state
        limit = settings.limit_concurrency
        if limit is not None and (len(state.connections) >= limit or len(state.tasks) >= limit):
            self.logger.warning(texts.CONCURRENCY_EXCEEDED)
            app = service_unavailable
        scope = self._base.build(line, headers)
        self._request = (scope["method"] == "HEAD", scope["http_version"] == "1.0")
        self._empty_lines = 0
        self._first = False
        self._deadline = 0.0
        # Chunks need their decoder, and have a negative length.
        whole = 0 <= length <= len(data) - position
        self.cycle = cycle = settings.cycle_class(self, scope, not whole, expect_continue)
        if settings.formatted is not None:
            cycle.entry = settings.formatted.begin(scope)
        if whole:
            self._reading = WAIT
            if length:
                end = position + length
                cycle.body = data[position:end]
                position = end
        else:
            self._reading = BODY
            self._body_begun = False
            if length == CHUNKED:
                self._decoder = ChunkedDecoder(settings.limits.fields, settings.limit_body)
            else:
                self._decoder = LengthDecoder(length)
            if not expect_continue:
                self._expire_in(settings.timeout_body)
            if position < len(data):
                # Before the application starts, which then need not wait for it.
                position = self._read_body(data, position)
        if self._eof or self._ended:
            cycle.disconnect(reachable=True)
        context = contextvars.Context() if settings.reset_contextvars else state.context.copy()
        # After the client's end a response has to know whether it is the last: not before all input is pending.
        eager = settings.eager and not self._eof
        task = start_task(self.loop, cycle.run_asgi(app), context, eager)
        if not (eager and task.done()):
            cycle.task = task
            state.tasks.add(task)
            task.add_done_callback(state.tasks.discard)
        return position

    def _read_body(self, data: bytes, position: int) -> int:
        """Take the body bytes of the current request from `data`; return where they end."""
        decoder, cycle = self._decoder, self.cycle
        assert decoder is not None and cycle is not None
        begin = position
        self._body_begun = True
        body, position = decoder.decode(data, position)
        if cycle.state is COMPLETE:
            self._discarded += position - begin
            if self._discarded > limits.MAX_DISCARDED:
                self._close(linger=True)
                return len(data)
        elif body:
            cycle.feed(body)
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self._regulate()
        if decoder.done:
            self._decoder = None
            self._deadline = 0.0
            if cycle.state is COMPLETE:
                self._next_request()
            else:
                self._reading = WAIT
                cycle.feed_end()
        elif self._deadline and cycle.state is not COMPLETE:
            settings = self.settings
            later = self._deadline + (position - begin) / limits.BODY_BYTES_PER_SECOND
            self._deadline = min(later, settings.clock() + settings.timeout_body)
            self._deadlines += 1
        return position

    def want_body(self) -> None:
        """The application waits for more of the request body, or for the client's end."""
        if self.flow.read_paused:
            self._regulate()
            if self._reading is BODY:
                self._expire_in(self.settings.timeout_body)

    # Refusing, upgrading.

    def _refuse(self, refused: RequestRefused, request: bytes | bytearray = b"") -> None:
        """Answer in the application's place, and end the connection.

        `request` is what there is of the request that is refused, if it has no cycle.
        """
        cycle = self.cycle
        if cycle is not None and cycle.state is COMPLETE:
            # What is left of a body that nobody will read.
            self._close(linger=True)
            return
        status, phrase = refused.status, STATUS_PHRASES[refused.status]
        line = texts.REQUEST_REFUSED.format(status=status, phrase=phrase, reason=refused.reason)
        self.logger.warning(texts.INVALID_REQUEST if status == 400 else line)
        self._note(logging.DEBUG, line)
        if cycle is not None and cycle.state is not IDLE:
            self.abort_response(cycle)
            return
        if cycle is None:
            self._request = (asks_for_head(request), False)
        if status != 400:
            self._answer(status, phrase)
            return
        if self.settings.customised:
            self._flush()  # a method that is not ours knows the transport only
        self.send_400_response(texts.INVALID_REQUEST)
        if self._reading < LINGER:
            self._close(linger=True)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request with `msg`, and end the connection."""
        self._answer(400, msg)

    def _answer(self, status: int, text: str) -> None:
        head_request, _ = self._request
        self._write(error_response(status, text.encode(), self.server_state.default_head, head_request))
        self._close(linger=True)

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

    def _hand_over(self, data: bytes) -> None:
        """Give the connection to the WebSocket protocol, with the handshake as it was sent and what is behind it."""
        self._note(TRACE_LOG_LEVEL, "Upgrading to WebSocket")
        self._flush()
        self._resume_reading()
        self._cancel_timer()
        self.stop_awaiting_reader()
        self._reading = CLOSED
        protocol = self.settings.ws_protocol_class(
            config=self.settings.config, server_state=self.server_state, app_state=self.app_state
        )
        protocol.connection_made(self.transport)
        self.server_state.connections.discard(self)
        self.transport.set_protocol(protocol)
        protocol.data_received(data)

    # What a cycle asks for.

    def start_response(self, cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Encode the head, which waits for the first piece of the body; and log the response."""
        unsent_body = cycle.expect_continue and self._reading is BODY and not self._body_begun
        head_request, http_10 = self._request
        close = bool(self._ending) or not self._keep_alive or unsent_body or (self._eof and not self._pending)
        parts = encode_parts(status, headers, self.server_state.default_head, head_request, http_10, close)
        if cycle.state is not IDLE:
            # Reading the headers ran code of the application, which has sent something meanwhile.
            raise cycle.out_of_order("http.response.start")
        self._head, self._framing, self._expected, self._close_after = parts
        access = self.settings.access
        if access is not None:
            access.record(cycle.scope, status)
        elif cycle.entry is not None:
            cycle.entry.start(status, self._head)

    def send_body(self, cycle: RequestResponseCycle, body: bytes, more_body: bool) -> None:
        """Write a piece of the body, behind the head if that still waits.

        Raises:
            RuntimeError: more or, at the end, fewer bytes than the application's Content-Length.
            TypeError: the body is not bytes.
        """
        if type(body) is not bytes:
            body = as_bytes(body)  # what is not bytes-like is refused here, what can change is copied
        if cycle.state is not STARTED:
            # Reading the message ran code of the application, which has sent something meanwhile.
            raise cycle.out_of_order("http.response.body")
        framing = self._framing
        size = len(body)
        if framing is FRAMED_BY_LENGTH:
            left = self._expected - size
            if left < 0:
                raise RuntimeError(texts.TOO_LONG)
            if left and not more_body:
                raise RuntimeError(texts.TOO_SHORT)
            self._expected = left
        elif framing is BodyFraming.CHUNKED:
            body = encode_chunk(body, not more_body and cycle.trailers is None)
        elif framing is BodyFraming.NONE:
            body = b""
            size = 0
        if cycle.entry is not None:
            cycle.entry.sent += size
        data, self._head = self._head, b""
        if self._reading is BODY and data and not more_body:
            data = self._announce_certain_close(data)
        if len(body) > HIGH_WATER_LIMIT:
            # Not worth a copy.
            if data:
                self._write(data)
            self._write(body)
        elif data or body:
            self._write(data + body if data else body)

    def _announce_certain_close(self, head: bytes) -> bytes:
        """Return the head of a whole response, which says `close` if too much of the request is left to be read."""
        if self._close_after or not self._too_much_is_left():
            return head
        self._close_after = True
        return head[:-2] + b"connection: close\r\n\r\n"

    def flush_log(self) -> None:
        """Write the access lines that wait: what an error log gets next is to stand behind them."""
        self.settings.flush()

    def offers(self, extension: str) -> bool:
        """Tell whether scopes offer this extension; messages of others are out of order."""
        return extension in self.settings.extensions

    def send_early_hint(self, data: bytes) -> None:
        """Write an interim response, in front of the final one: dropped if that has left, or the client is of 1.0."""
        _, http_10 = self._request
        cycle = self.cycle
        if data and not http_10 and (self._head or (cycle is not None and cycle.state is IDLE)):
            self._write(data)

    def announce(self, length: int, more_body: bool) -> bool:
        """Make ready for `length` bytes of the body, which come through `write_announced`; whether they are wanted.

        Raises:
            RuntimeError: more or, at the end, fewer bytes than the application's Content-Length.
        """
        framing = self._framing
        if framing is FRAMED_BY_LENGTH:
            left = self._expected - length
            if left < 0:
                raise RuntimeError(texts.TOO_LONG)
            if left and not more_body:
                raise RuntimeError(texts.TOO_SHORT)
            self._expected = left
        elif framing is BodyFraming.CHUNKED and length:
            self._head += b"%x\r\n" % length
        return length > 0 and framing is not BodyFraming.NONE

    def write_announced(self, data: bytes) -> None:
        """Write some of the bytes that were announced, and at once, behind what stands in front of them."""
        front, self._head = self._head, b""
        if front or data:
            self._write(front + data if front else data)
        self._flush()

    def end_announced(self) -> None:
        """All bytes that were announced are written."""
        if self._framing is BodyFraming.CHUNKED:
            self._head = b"\r\n"  # leaves with what comes next

    def send_trailers(self, lines: bytes) -> None:
        """Write the end of a body that trailers follow, with their lines, where the framing can carry them."""
        if self._framing is BodyFraming.CHUNKED:
            self._write(b"0\r\n%b\r\n" % lines)

    def send_continue(self) -> None:
        """Write `100 Continue` (RFC 9110 section 10.1.1); the client has been waiting for us until now."""
        self._write(CONTINUE)
        if self._reading is BODY:
            self._expire_in(self.settings.timeout_body)

    def on_response_complete(self) -> None:
        """The response is complete: go on with the next request, or close."""
        if self.settings.customised:
            self._last_scope = self.scope
        self.server_state.request_complete()
        if self._reading is CLOSED:
            return  # the transport has failed
        if self._close_after or self._ending is ENDING_NOW:
            self._close(linger=self._reading is BODY or bool(self._pending))
        elif self._reading is BODY:
            self._discard_body()
        else:
            self._next_request()

    def _discard_body(self) -> None:
        """The application has answered without reading the whole body: keep the connection if the rest is short."""
        if self._eof or self._too_much_is_left():
            self._close(linger=True)
            return
        self._discarded = 0
        self._resume_reading()
        if not self._deadline or self._ending is ENDING_LAST_CALL:
            self._expire_in(self._patience(self.settings.timeout_body))

    def _too_much_is_left(self) -> bool:
        """Tell whether more of the body is announced than would be dropped to keep the connection."""
        decoder = self._decoder
        return isinstance(decoder, LengthDecoder) and decoder.remaining > limits.MAX_DISCARDED

    def _next_request(self) -> None:
        self.cycle = None
        self._reading = HEAD
        if self._consuming:
            return
        if self._pending:
            if self.settings.eager:
                # Not now: the application that has just completed its response is still running.
                self._take_turns()
            else:
                self._consume(self._take_pending())
        else:
            self._resume_reading()
            self._idle()

    def _take_turns(self) -> None:
        """Go on with what is pending in the loop's next turn, when other connections have had theirs."""
        self._reading = WAIT
        self.server_state.context.run(self.loop.call_soon, self._next_turn)

    def _next_turn(self) -> None:
        if self._reading is WAIT:
            self._reading = HEAD
            self._consume(self._take_pending())

    def abort_response(self, cycle: RequestResponseCycle) -> None:
        """End a response that cannot be completed, so that the client notices."""
        if cycle is not self.cycle:
            return
        if STARTED <= cycle.state <= SENDING and self._framing is BodyFraming.CLOSE and not self._head:
            # Closing would look like the regular end of the body (RFC 9112 section 8).
            reset_on_close(self.transport)
        self._close()

    # Writing and closing.

    def _write(self, data: bytes) -> None:
        if self._consuming:
            self._out.append(data)
            self._out_bytes += len(data)
            if self._out_bytes > HIGH_WATER_LIMIT:
                self._flush()
        else:
            log = self.settings.log_lines
            if log is not None and log.lines:
                log.precede()
            try:
                self.transport.write(data)
            except Exception as exc:
                self._give_up(exc)

    def _flush(self) -> None:
        log = self.settings.log_lines
        if log is not None and log.lines:
            log.precede()
        out = self._out
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            self._out = []
            self._out_bytes = 0
            try:
                self.transport.write(data)
            except Exception as exc:
                self._give_up(exc)

    def _close(self, linger: bool = False) -> None:
        """Close once everything is written; with `linger` only after the peer had a chance to read it."""
        self._flush()
        cycle, self.cycle = self.cycle, None
        self._pending.clear()
        if cycle is not None:
            cycle.disconnect()
            self.flow.resume_writing()  # whoever waits to send has nothing to wait for
        if linger and self._can_linger():
            # Closing with unread input makes the kernel reset the connection, and the peer may lose the answer.
            self._reading = LINGER
            # Before the transport is asked for anything: the peer may be gone, and nobody has noticed.
            self._expire_in(limits.LINGER_SECONDS)
            self._attempt(self.transport.write_eof)
            self._resume_reading()
        else:
            self._reading = CLOSED
            self._cancel_timer()
            self._attempt(self._close_transport)

    def _close_transport(self) -> None:
        """Close once everything is written, which is up to the client; it has its time for that."""
        self.transport.close()
        if waiting(self.transport):
            self.await_reader()

    def _can_linger(self) -> bool:
        transport = self.transport
        if self._eof or self._is_tls or not self.settings.real_loop or self._reading is CLOSED:
            return False
        try:
            return not transport.is_closing() and transport.can_write_eof()
        except Exception as exc:
            self._give_up(exc)
            return False

    # A transport that raises.

    def _resume_reading(self) -> None:
        if self._heeded >= 0:
            self._ignore_end()
        if self.flow.read_paused:
            self._attempt(self.flow.resume_reading)

    def _ignore_end(self) -> None:
        self.settings.hang_ups.unwatch(self._heeded)
        self._heeded = -1

    def _attempt(self, act: Callable[[], object]) -> None:
        """Have the transport do something, which ends the connection if it cannot."""
        try:
            act()
        except Exception as exc:
            self._give_up(exc)

    def _give_up(self, exc: Exception) -> None:
        """The transport has raised: whatever the connection was doing is over, and `connection_lost` clears up."""
        if not isinstance(exc, OSError):
            self.logger.error("Transport failed, aborting the connection.\n", exc_info=exc)
        self._reading = CLOSED
        try:
            self.transport.abort()
        except Exception:
            self.connection_lost(exc)  # nobody else will say so

    def announce_close(self) -> None:
        """The next response whose head is encoded is the last, and says so; nothing else changes."""
        self._ending = max(self._ending, Ending.ANNOUNCED)

    def shutdown(self) -> None:
        """The server stops: close now if idle, otherwise when the response is complete.

        Behind an `announce_close` a client that was told nothing yet is given a moment for one more request.
        """
        if self._ending is ENDING_NONE:
            self._ending = ENDING_NOW
        elif self._ending is Ending.ANNOUNCED:
            self._ending = ENDING_LAST_CALL
        cycle = self.cycle
        if cycle is None or cycle.state is COMPLETE:
            if self._ending is ENDING_LAST_CALL:
                self._wait_for_last_call()
            else:
                self._close()

    def _wait_for_last_call(self) -> None:
        """Nothing is being answered: close when the time for one more request is over."""
        if self._reading is WAIT:
            return  # it is there
        left = limits.LAST_CALL_SECONDS
        if self._reading >= LINGER or self._eof:
            left = 0.0
        elif self._reading is HEAD and not self._pending:
            # Without a deadline nobody knows since when the client has nothing to ask.
            usual = self.settings.timeout_head if self._first else self.settings.timeout_idle
            left = self._deadline - usual + left - self.settings.clock() if self._deadline else 0.0
        if left > 0:
            self._expire_in(left)
        else:
            self._close()

    def _patience(self, usual: float) -> float:
        """Return the seconds a client has for what belongs to its next request, `usual` unless that is its last."""
        return limits.LAST_CALL_SECONDS if self._ending is ENDING_LAST_CALL else usual

    def disconnect(self) -> None:
        """Tell the application that its client is gone, while its response can still be sent."""
        if self.cycle is not None:
            self.cycle.disconnect(reachable=True)

    # Deadlines.

    def _expire_in(self, seconds: float) -> None:
        """Set the deadline of what the connection waits for now; zero seconds: there is none."""
        self._deadlines += 1
        if seconds <= 0:
            self._deadline = 0.0
            return
        settings = self.settings
        now = settings.clock()
        self._deadline = now + seconds
        timer = self._timer
        if timer is not None:
            # The double of a loop has timers and no time, so there each is set for what it is about.
            if self._timer_at <= self._deadline and settings.real_loop:
                return
            timer.cancel()
        self._arm(now, seconds)

    def _arm(self, now: float, seconds: float) -> None:
        self._timer_at = now + seconds
        self._timer_armed_by = self._deadlines
        # Not in the context of the request that happens to be served, which would live as long as the timer.
        self._timer = self.server_state.context.run(self.loop.call_later, seconds, self._on_timer)

    def _cancel_timer(self) -> None:
        self._deadline = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if not self._deadline:
            return
        if self._deadlines != self._timer_armed_by:
            now = self.settings.clock()
            if self._deadline > now:
                self._arm(now, self._deadline - now)
                return
        self._deadline = 0.0
        self._expired()

    def _expired(self) -> None:
        settings = self.settings
        if self._reading is LINGER:
            self._attempt(self.transport.abort)
        elif self._reading is HEAD and (not self._pending or self._ending is ENDING_LAST_CALL):
            if self._first or self._ending is ENDING_LAST_CALL:
                self._close()
            else:
                self.timeout_keep_alive_handler()
        elif self._reading is HEAD:
            self._refuse(RequestRefused(refusals.HEAD_TIMEOUT, settings.timeout_head), self._pending)
        elif self.cycle is not None and self.cycle.state is COMPLETE:
            self._close(linger=True)  # answered already: nothing is refused
        else:
            self._refuse(RequestRefused(refusals.BODY_TIMEOUT, settings.timeout_body))

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more was asked for `timeout_keep_alive` seconds: close."""
        self._close()

    def _note(self, level: int, text: str) -> None:
        """Log a line about this connection, with the client in front."""
        if self.logger.isEnabledFor(level):
            client = self._base.client
            self.logger.log(level, "%s%s", "%s:%d - " % client if client else "", text)
