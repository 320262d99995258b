"""Where requests of one event loop are admitted, wait, or are refused: `uvicorn.overload.admission` on a clock.

Protocols call `enter` when the head of a request is complete, with the part of its body that came along. They call
`release` when the application's call is over, in whatever way, and `leave` when the client disconnects before it
begins. A waiting request is notified through its `TicketHolder`: later, by the event loop, and never inside a call
made here.

While the application waits for the client its request is parked: between `park` and `resume`, which gives a future if
there is no place. Applications may have tasks of their own, so this looks at what the request does: one that sends, or
receives, while it is parked runs after all, and has a place from then on (`force`).

There is one for each event loop: the scarce resource is the time of one thread, and nothing needs a lock. Several
loops of a process get their part of the limit each, as of the others (`supervisors.threaded`); `auto` finds out what
each can do.

While it is asked, applications do not take their first step in the read that brings the request, but in the next turn
of the loop: so all that has come is known before any of it is served.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import os
from collections.abc import Callable
from functools import lru_cache, partial
from time import monotonic
from typing import Protocol

from uvicorn._types import (
    ASGIReceiveCallable,
    ASGISendCallable,
    HTTPScope,
    ProtocolConfig,
    Scope,
    WebSocketScope,
)
from uvicorn.metrics import page as metrics
from uvicorn.metrics.page import (
    LIMIT_LOWERED,
    LIMIT_RAISED,
    QUEUED,
    RELEASED,
    SHED,
    UNPARKED,
    UNQUEUED,
    Page,
    ShedReason,
)
from uvicorn.middleware.lifecycle import questions
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.overload.admission import (
    ADMITTED,
    GONE,
    PARKED,
    REFUSED,
    RETURNING,
    WAITING,
    AdaptiveLimit,
    Admission,
    FixedLimit,
    Limit,
    Ticket,
)
from uvicorn.rules.grace import GRANULARITY
from uvicorn.rules.network import network_of
from uvicorn.rules.paths import PathPatterns

QUIET = 5.0
"""Seconds without a refusal after which an overload counts as ended, for the log."""

LONGEST_ADDRESS = 64
"""Characters, a zone included."""


logger = logging.getLogger("uvicorn.error")


class TicketHolder(Protocol):
    """A request that waits, for its turn or for its client."""

    def admit(self, eagerly: bool) -> None:
        """Start its application; `eagerly`: its first step may happen now."""

    def refuse(self) -> None:
        """Answer it 503, if it still can be answered."""

    def evict(self) -> None:
        """End it though its application runs: answer it 503, or break off its response."""


class RequestTicket(Ticket):
    """The ticket of one request, which is called back.

    Attributes:
        holder: its callbacks, while it waits.
        returning: those that wait until it has a place again.
        for_body: it was last parked for its body.
        is_divided: its application waits for the body, and works meanwhile: in tasks of its own.
    """

    __slots__ = ("holder", "returning", "for_body", "is_divided")

    def __init__(self, client: object, since: float) -> None:
        super().__init__(client, since)
        self.holder: TicketHolder | None = None
        self.returning: list[asyncio.Future[None]] = []
        self.for_body = False
        self.is_divided = False


class Gate:
    """Admits the requests of one event loop.

    Args:
        config: loaded.
        loop: that calls back.
        context: in which it does.
        metrics: where is counted.
        clock: in seconds.

    Attributes:
        fields: the header fields of a refusal.
        hints: those of them that are not about its content.
        body: and its body.
    """

    def __init__(
        self,
        config: ProtocolConfig,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        metrics: Page | None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        number = config.limit_active_requests
        limit: Limit = FixedLimit(number) if isinstance(number, int) else AdaptiveLimit(clock())
        self.admission: Admission[RequestTicket] = Admission(limit, config.limit_queue, config.timeout_queue, clock())
        self.body = b"Service Unavailable"
        self.hints = [(b"retry-after", b"%d" % config.retry_after)]
        self.fields = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(self.body)),
            *self.hints,
        ]
        self._loop = loop
        self._context = context
        self._metrics = metrics
        self._clock = clock
        self._exempt = _exempt(config)
        app = config.loaded_app
        self._proxies = app if isinstance(app, ProxyHeadersMiddleware) else None
        self._ending: list[RequestTicket] = []  # refused, but not answered yet
        self._evicting: list[TicketHolder] = []  # ended, but not notified yet
        self._is_called = False  # soon, by the loop
        self._is_handing_on = False
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # when that is
        self._shedding = Shedding(self, loop, context, clock)
        self._told_limit = 0
        self._tell_limit()

    # Called by the protocols.

    def enter(self, scope: HTTPScope | WebSocketScope, may_wait: bool = True) -> RequestTicket | None:
        """Decide about a request, as the `state` of its ticket shows; None for a request that is not counted."""
        path = scope["path"]
        if path in self._exempt:
            return None
        admission, now = self.admission, self._clock()
        ticket = RequestTicket(self._client(scope), now)
        displaced = admission.enter(ticket, now, may_wait)
        if ticket.state is REFUSED:
            self._count_refusal(ShedReason.FULL)
        elif ticket.state is WAITING:
            self._count(QUEUED)
            if displaced is not None:
                self._end(displaced, ShedReason.DISPLACED)
            if admission.active < admission.limit.now:
                self._look_soon()  # the limit was raised, or others wait that have not had their turn
            elif self._timer is None:
                self._look_later(now)
        else:
            self._count(metrics.ADMITTED)
        return ticket

    def release(self, ticket: RequestTicket, is_measured: bool = True) -> None:
        """The application's call is over. May be said again."""
        if ticket.state in (GONE, REFUSED, WAITING):
            return
        was_parked = ticket.state is not ADMITTED
        self.admission.release(ticket, self._clock(), is_measured)
        self._count(RELEASED)
        if was_parked:
            self._go_on(ticket)
        if self.admission.limit.now != self._told_limit:
            self._tell_limit()
        if self.admission.is_asked:
            self._look_soon()

    def hand_on(self, ticket: RequestTicket) -> None:
        """As `release`, in the last step of the application's call: one that waits begins inside it.

        Calls that can go on at the same time do so one after the other, in one turn of the loop. If those that follow
        them began with its next turn, they would begin together, wait together for whatever applications wait for, and
        leave the processor idle meanwhile. What begins here and ends at once is followed with the next turn: the loop
        is not kept from reading.
        """
        self.release(ticket)
        if self._is_handing_on or not self.admission.is_asked:
            return
        self._is_handing_on = True
        try:
            if (admitted := self.admission.next(self._clock())) is not None:
                self._admit(admitted, eagerly=True)
        finally:
            self._is_handing_on = False

    def leave(self, ticket: RequestTicket) -> bool:
        """The client is gone, or will not be served: a waiting request stops waiting. Returns whether it did wait."""
        has_waited = self.admission.leave(ticket)
        if has_waited:
            self._end(ticket, ShedReason.LEFT)
        return has_waited

    # Requests whose applications wait for the client.

    def park(self, ticket: RequestTicket, holder: TicketHolder, for_body: bool) -> bool:
        """The application waits for the client: `for_body`, or to send. Whether it has no place now."""
        admission, now = self.admission, self._clock()
        if (for_body and ticket.is_divided) or not admission.park(ticket, now):
            return False
        self._count(metrics.PARKED)
        ticket.holder = holder
        ticket.for_body = for_body
        while (excess := admission.evict(now)) is not None:
            if excess.holder is not None:
                self._evicting.append(excess.holder)
            self._go_on(excess)
            self._count_refusal(ShedReason.STALLED)
        if admission.is_asked or self._evicting:
            self._look_soon()
        return True

    def resume(self, ticket: RequestTicket) -> asyncio.Future[None] | None:
        """The client has sent or read data. Returns a future if no place is free; call again when that is done."""
        if ticket.state is PARKED:
            now = self._clock()
            self.admission.resume(ticket, now)
            if ticket.state is RETURNING:
                self._look_soon()
            else:
                self._go_on(ticket)
        if ticket.state is not RETURNING or self._loop.is_closed():
            return None
        future = self._loop.create_future()
        ticket.returning.append(future)
        return future

    def force(self, ticket: RequestTicket, is_seen: bool = False) -> None:
        """The application runs, whether or not there is a place for it; `is_seen`: though it waits, as it seemed."""
        if ticket.state is PARKED or ticket.state is RETURNING:
            ticket.is_divided = ticket.is_divided or (is_seen and ticket.for_body)
            self.admission.force(ticket, self._clock())
            self._go_on(ticket)

    def _go_on(self, ticket: RequestTicket) -> None:
        """A parked request has stopped being parked."""
        self._count(UNPARKED)
        ticket.holder = None
        returning, ticket.returning = ticket.returning, []
        for future in returning:
            if not future.done():
                future.set_result(None)

    async def refuse(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """The ASGI application that refuses a request whose client has to be waited for, because it does not read."""
        await send({"type": "http.response.start", "status": 503, "headers": self.fields})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})

    def close(self) -> None:
        """Forget all waiting requests without notifying them, because the event loop ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while (waiting := self.admission.oldest()) is not None:
            self.admission.leave(waiting)
            waiting.holder = None
            self._count(UNQUEUED)
        for parked in self.admission.all_parked():
            parked.holder = None
        self._evicting = []
        for ticket in self._ending:
            ticket.holder = None
        self._ending = []
        self._shedding.close()

    # Waiting requests.

    def _end(self, ticket: RequestTicket, reason: ShedReason) -> None:
        """Refuse a request that has waited; it is notified in the next turn."""
        self._count(UNQUEUED)
        self._count_refusal(reason)
        self._ending.append(ticket)
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._is_called and not self._loop.is_closed():
            self._is_called = True
            self._context.run(self._loop.call_soon, self._look)

    def _look_later(self, now: float) -> None:
        due = self.admission.due(now)
        if self._timer is not None:
            if due is not None and self._due <= due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None and not self._loop.is_closed():
            self._due = due
            self._timer = self._context.run(self._loop.call_later, max(0.0, due - now), self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._look()

    def _look(self) -> None:
        """Admit requests while there is room, however long they waited; then refuse those that waited too long."""
        self._is_called = False
        admission, now = self.admission, self._clock()
        delay, self._due = now - self._due, math.inf
        if delay > GRANULARITY:
            # The loop was busy, and they could not have been served. A moment is left to them to be served now.
            admission.excuse(delay + GRANULARITY)
        while (admitted := admission.next(now)) is not None:
            self._admit(admitted, eagerly=False)
        while (overdue := admission.overdue(now)) is not None:
            self._go_on(overdue)
        while (late := admission.expired(now)) is not None:
            self._end(late, ShedReason.LATE)
        evicting, self._evicting = self._evicting, []
        for one in evicting:
            self._tell(one.evict)
        ending, self._ending = self._ending, []
        for ticket in ending:
            holder, ticket.holder = ticket.holder, None
            if holder is not None:
                self._tell(holder.refuse)
        if admission.limit.now != self._told_limit:
            self._tell_limit()
        self._look_later(now)

    def _admit(self, ticket: RequestTicket, eagerly: bool) -> None:
        if ticket.returning:
            self._go_on(ticket)
            return
        self._count(UNQUEUED)
        self._count(metrics.ADMITTED)
        holder, ticket.holder = ticket.holder, None
        if holder is None or not self._tell(partial(holder.admit, eagerly)):
            self.release(ticket, is_measured=False)

    def _tell(self, what: Callable[[], None]) -> bool:
        """Call a callback; an exception in it must not keep the others waiting."""
        try:
            what()
        except Exception:
            logger.exception("Cannot resume a queued request")
            return False
        return True

    # Whose it is.

    def _client(self, scope: HTTPScope | WebSocketScope) -> object:
        client = scope.get("client") if self._proxies is None else self._proxies.client_of(scope)
        return None if client is None else client_of(client[0])

    # Figures.

    def _count(self, place: int, number: int = 1) -> None:
        if self._metrics is not None:
            self._metrics.add(place, number)

    def _count_refusal(self, reason: ShedReason) -> None:
        self._count(SHED + reason)
        self._shedding.note(reason)

    def _tell_limit(self) -> None:
        change = self.admission.limit.now - self._told_limit
        self._told_limit += change
        self._count(LIMIT_RAISED if change > 0 else LIMIT_LOWERED, abs(change))


class Shedding:
    """Logs when requests begin to be refused and when that has ended, once for the whole episode.

    Its numbers are those of the metrics. Clients that leave meanwhile are counted, but are no sign of overload.
    """

    def __init__(
        self, gate: Gate, loop: asyncio.AbstractEventLoop, context: contextvars.Context, clock: Callable[[], float]
    ) -> None:
        self._gate = gate
        self._loop = loop
        self._context = context
        self._clock = clock
        self._refused = [0] * len(ShedReason)
        self._begun = 0.0
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def note(self, reason: ShedReason) -> None:
        """A request was refused."""
        is_overload = reason is not ShedReason.LEFT
        if self._timer is not None or is_overload:
            self._refused[reason] += 1
        if not is_overload:
            return
        self._last = self._clock()
        if self._timer is None and not self._loop.is_closed():
            self._begun = self._last
            admission = self._gate.admission
            logger.warning(
                "Overload: %d requests are active and %d wait in process [%d]; rejecting further requests with 503 "
                "(limit_active_requests, limit_queue).",
                admission.active,
                admission.waiting,
                os.getpid(),
            )
            self._look_later(QUIET)

    def close(self) -> None:
        """Log the end, if there was a beginning: no further requests can be refused."""
        if self._timer is not None:
            self._timer.cancel()
            self._end()

    def _look_later(self, seconds: float) -> None:
        self._timer = self._context.run(self._loop.call_later, seconds, self._look)

    def _look(self) -> None:
        left = self._last + QUIET - self._clock()
        if left > 0:
            self._look_later(left)
        else:
            self._end()

    def _end(self) -> None:
        self._timer = None
        refused, self._refused = self._refused, [0] * len(ShedReason)
        logger.warning(
            "Overload of process [%d] ended after %.1f s: rejected %d requests (%d found the queue full, %d were "
            "displaced, %d waited too long, %d stalled on their clients, %d disconnected). To admit more, raise "
            "limit_active_requests or limit_queue.",
            os.getpid(),
            self._last - self._begun,
            sum(refused),
            refused[ShedReason.FULL],
            refused[ShedReason.DISPLACED],
            refused[ShedReason.LATE],
            refused[ShedReason.STALLED],
            refused[ShedReason.LEFT],
        )


@lru_cache(maxsize=1024)
def _network_of(host: str) -> str:
    return network_of(host)


def client_of(host: str) -> str:
    """The gate's view of one client, which all of its connections share."""
    # Text longer than any address was made up by a client, and is not worth remembering.
    return _network_of(host) if ":" in host and len(host) <= LONGEST_ADDRESS else host


def _exempt(config: ProtocolConfig) -> PathPatterns:
    """Paths that are not counted."""
    own = [] if config.lifecycle_path is None else questions(config.lifecycle_path)
    return PathPatterns([*config.limit_exempt, *own], config.root_path)
