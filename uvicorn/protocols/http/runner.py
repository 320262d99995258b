"""Starting the application on the requests of one connection."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from uvicorn._types import ASGI3Application, HTTPScope
from uvicorn.overload.admission import PARKED, REFUSED, RETURNING, WAITING
from uvicorn.overload.gate import Gate, RequestTicket
from uvicorn.protocols.http.cycle import (
    COMPLETE,
    IDLE,
    PRESENT,
    SERVER_ERROR,
    SERVER_ERROR_FIELDS,
    UNREACHABLE,
    RequestResponseCycle,
)
from uvicorn.protocols.http.h1.deadline import NOTHING
from uvicorn.protocols.http.h1.parts import ConnectionParts
from uvicorn.protocols.http.h1.states import HERE, OPEN
from uvicorn.protocols.http.h1.stream import H1Stream
from uvicorn.protocols.http.pace import Pace
from uvicorn.protocols.http.scope import ScopeBase
from uvicorn.protocols.http.wire.head import Look
from uvicorn.protocols.http.wire.response_writer import AWAITING
from uvicorn.protocols.utils import start_task
from uvicorn.rules import texts
from uvicorn.serving.state import ServerState

if TYPE_CHECKING:
    # Few servers need its imports.
    from uvicorn.files.mounted import Answer


class Runner:
    """Makes the cycle of each request, and has its application started.

    Args:
        loop: the event loop.
        state: of the server.
        base: of each scope.
        parts: of the connection.
        stream: the stream for responses.
    """

    __slots__ = ("_loop", "_state", "_base", "_carrier", "_input", "_deadline", "_stream")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        state: ServerState,
        base: ScopeBase,
        parts: ConnectionParts,
        stream: H1Stream,
    ) -> None:
        self._loop = loop
        self._state = state
        self._base = base
        self._carrier = parts.carrier
        self._input = parts.source
        self._deadline = parts.deadline
        self._stream = stream

    def meet(self, scope: HTTPScope, look: Look, expect_continue: bool) -> RequestResponseCycle:
        """Make the cycle of a request whose head was read; `enter` and `begin` follow."""
        # As `expect`, without the call.
        stream, writer = self._stream, self._stream.writer
        writer.state = AWAITING
        writer.head_request = look[0] == b"HEAD"
        writer.http_10 = look[2] == b"0"
        stream.keep_alive = look[5][1]
        self._deadline.waits = NOTHING
        cycle = self._input.cycle = self._carrier.settings.cycle_class(stream, scope, True, expect_continue)
        return cycle

    def expect(self, look: Look) -> H1Stream:
        """Prepare for the response to a request, and return its stream."""
        stream, writer = self._stream, self._stream.writer
        writer.state = AWAITING
        writer.head_request = look[0] == b"HEAD"
        writer.http_10 = look[2] == b"0"
        stream.keep_alive = look[5][1]
        self._deadline.waits = NOTHING
        return stream

    def enter(self, cycle: RequestResponseCycle, look: Look) -> ASGI3Application:
        """Count a request whose head was read, and return what answers it."""
        settings = self._carrier.settings
        forwarded = look[5][4] or settings.customised  # a program may have put such a field there
        app = settings.app if forwarded else settings.direct_app
        if settings.has_rules or settings.limit_concurrency is not None:
            app = self._choose(app, cycle.scope, forwarded)
        if settings.formatted is not None:
            cycle.entry = settings.formatted.begin(cycle.scope)
        if settings.metrics is not None:
            cycle.course = settings.metrics.begin(cycle.scope["method"], cycle.scope)
        if settings.tracer is not None:
            cycle.course = settings.tracer.begin(cycle.scope, cycle.course)
        return app

    def begin(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Start the answer to a request, with the part of its body that has arrived."""
        if self._input.end is not OPEN:
            cycle.disconnect(reachable=True)
        if self._carrier.settings.has_rules and self._is_dealt_with(cycle, app):
            return
        self.start(cycle, cycle.run_asgi(app), True)

    # Where not every request goes to the application at once.

    def _choose(self, app: ASGI3Application, scope: HTTPScope, forwarded: bool) -> ASGI3Application:
        """Choose the application for a request: `app`, unless it is rejected or asks for a mounted file."""
        settings, state = self._carrier.settings, self._state
        limit = settings.limit_concurrency
        if limit is not None and state.is_full(limit):
            self._carrier.logger.warning(texts.CONCURRENCY_EXCEEDED)
            app = settings.unavailable_app
        elif settings.mounts is not None:
            app = cast(ASGI3Application, settings.mounts.answer(scope, forwarded) or app)
        if settings.request_ids is not None:
            scope["request_id"] = request_id = settings.request_ids.of(scope["headers"], self._base.client)
            self._stream.id_line = settings.request_ids.line(request_id)
        return app

    def _is_dealt_with(self, cycle: RequestResponseCycle, app: ASGI3Application) -> bool:
        """Answer a request without its application, or leave the start of that to the gate. Returns false otherwise."""
        settings = self._carrier.settings
        if settings.mounts is not None and settings.mounts.has_made(app):
            answer = cast("Answer", app)
            if answer.body is None or settings.customised or not self.answers_at_once():
                return False
            cycle.answer(answer.status, answer.headers, answer.body)
            return True
        gate = settings.gate
        if gate is None or app is settings.unavailable_app:
            return False
        ticket = gate.enter(cycle.scope, may_wait=cycle.peer is PRESENT)
        if ticket is None:
            return False
        request = _GatedRequest(self, cycle, app, gate, ticket)
        if ticket.state is WAITING:
            cycle.waiting = ticket.holder = request
        elif ticket.state is REFUSED:
            request.refuse()
        else:
            request.start(app)
        return True

    def start(
        self, cycle: RequestResponseCycle, coroutine: Coroutine[Any, Any, None], eagerly: bool
    ) -> asyncio.Task[None]:
        """Start the application in the loop's next turn, when all other input is read; or now, if that is permitted."""
        settings = self._carrier.settings
        context = contextvars.Context() if settings.reset_contextvars else self._state.context.copy()
        if settings.tracer is not None:
            settings.tracer.enter(context, cycle.scope)
        eager = eagerly and settings.eager and self._input.end is not HERE
        pace = settings.pace
        if eager and pace is not None:
            pace.left -= 1
            if pace.left <= 0 or not pace.is_short:
                return self._start_by_pace(pace, cycle, coroutine, context)
        task = start_task(self._loop, coroutine, context, eager)
        if not (eager and task.done()):
            self._keep(cycle, task)
        return task

    def _keep(self, cycle: RequestResponseCycle, task: asyncio.Task[None]) -> None:
        """Keep a task that is not over until it is."""
        tasks = self._state.tasks
        cycle.task = task
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def _start_by_pace(
        self,
        pace: Pace,
        cycle: RequestResponseCycle,
        coroutine: Coroutine[Any, Any, None],
        context: contextvars.Context,
    ) -> asyncio.Task[None]:
        """Start eagerly to measure the first step, or not eagerly because steps are long."""
        if pace.left <= 0:
            begun = pace.begin()
            task = start_task(self._loop, coroutine, context, True)
            pace.end(begun)
            if not task.done():
                self._keep(cycle, task)
        else:
            task = start_task(self._loop, coroutine, context, False)
            self._keep(cycle, task)
            task.add_done_callback(partial(self._end_unstarted, cycle))
        return task

    def _end_unstarted(self, cycle: RequestResponseCycle, task: asyncio.Task[None]) -> None:
        """End the response of an application whose task was cancelled before its first step."""
        if cycle.task is not task or not task.cancelled():
            return
        cycle.task = None
        if self._input.cycle is not cycle:
            # The connection has ended.
            return
        cancelled = asyncio.CancelledError()
        if cycle.course is not None:
            cycle.course.run()
            cycle.course.fail(cancelled)
        self._carrier.logger.error(texts.APPLICATION_FAILED, exc_info=cancelled)
        if cycle.state is IDLE and self.answers_at_once():
            cycle.stream.announce_close()
            cycle.answer(500, [*SERVER_ERROR_FIELDS], SERVER_ERROR)
        elif cycle.state is not COMPLETE:
            cycle.body_given = True
            cycle.stream.abort()

    def answers_at_once(self) -> bool:
        """Tell whether a response may be written now: the client reads, and has more to send.

        After its end a response has to know whether it is the last: not before all input is pending.
        """
        return self._input.end is not HERE and not self._stream.flow.congested


class _GatedRequest:
    """A request that is admitted, or waits to be.

    Attributes:
        cycle: of the request.
        app: the application that answers it.
        senders: calls of `send()` that wait for the client, or for a place after that.
    """

    __slots__ = ("cycle", "app", "senders", "_runner", "_gate", "_ticket")

    def __init__(
        self, runner: Runner, cycle: RequestResponseCycle, app: ASGI3Application, gate: Gate, ticket: RequestTicket
    ) -> None:
        self.cycle = cycle
        self.app = app
        self.senders = 0
        self._runner = runner
        self._gate = gate
        self._ticket = ticket

    def admit(self, eagerly: bool) -> None:
        """Start its application; `eagerly`: its first step may happen now."""
        self.cycle.waiting = None
        self.start(self.app, eagerly)

    def start(self, app: ASGI3Application, eagerly: bool = False) -> None:
        """Start the application; when it has ended, the place is free."""
        self.cycle.gated = self
        self._runner.start(self.cycle, self._run(app), eagerly).add_done_callback(self.release)

    async def _run(self, app: ASGI3Application) -> None:
        await self.cycle.run_asgi(app)
        self._gate.hand_on(self._ticket)

    def refuse(self) -> None:
        """Answer it 503, if it still can be answered."""
        cycle, gate = self.cycle, self._gate
        cycle.waiting = None
        if cycle.peer is UNREACHABLE or cycle.state is not IDLE:
            return
        if self._runner.answers_at_once():
            cycle.answer(503, gate.fields, gate.body)
        else:
            self._runner.start(cycle, cycle.run_asgi(gate.refuse), eagerly=False).add_done_callback(self.release)

    def evict(self) -> None:
        """End it though its application runs: answer it 503, or break off its response."""
        cycle = self.cycle
        if cycle.peer is UNREACHABLE or cycle.state is COMPLETE:
            return
        if cycle.state is IDLE:
            cycle.stream.refuse(503, self._gate.body)
        else:
            cycle.stream.abort()

    def leave(self) -> None:
        """The client is gone, or looks like it."""
        self._gate.leave(self._ticket)

    # While its application waits for the client: `cycle.Gated`.

    @property
    def is_parked(self) -> bool:
        """It has no place."""
        state = self._ticket.state
        return state is PARKED or state is RETURNING

    def park(self, for_body: bool) -> None:
        """The application waits for the client: `for_body`, or to send."""
        self._gate.park(self._ticket, self, for_body)

    def resume(self) -> asyncio.Future[None] | None:
        """The client has sent or read data. Returns a future if no place is free; call again when that is done."""
        return self._gate.resume(self._ticket)

    def force(self, is_seen: bool = False) -> None:
        """The application runs, whether or not there is a place for it; `is_seen`: though it waits, as it seemed."""
        self._gate.force(self._ticket, is_seen)

    def release(self, task: asyncio.Task[None]) -> None:
        """The application's call is over, or was cancelled before it began."""
        self._gate.release(self._ticket)
        if task.cancelled() and self.cycle.state is IDLE and self.cycle.peer is not UNREACHABLE:
            self.cycle.stream.abort()
