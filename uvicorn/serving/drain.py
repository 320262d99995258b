"""How a server ends: one state machine for a stop, a reload and the replacement of a worker.

    SERVING ─▶ (LEAVING ─▶) REFUSING ─▶ CLOSING ─▶ DISCONNECTING ─▶ CANCELLING ─▶ DONE
                                           │ all done    │ tasks done   ▲          ▲
                                           └─────────────┴──────────────┼──────────┘
                                               force(), at any stage ───┘

Each stage waits for connections or tasks to end, for its deadline and for `force`, whichever is first.
`docs/architecture.md` lists what each stage does; `Server` enters LEAVING, if a delay is set.
This module knows connections and tasks, not sockets, signals or the lifespan.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from uvicorn._types import Connection
from uvicorn.rules import limits
from uvicorn.serving.state import ServerState

ARRIVAL_SECONDS = 0.05
"""Seconds requests get to come in on connections that were accepted before the sockets were closed.

Without it a client that has just connected, or sends its next request at this moment, would be cut off unheard."""

NEWCOMER_INTERVAL = 1.0
"""Seconds between two looks for connections that were accepted, but in their TLS handshake, when the sockets closed."""

SETTLE_SECONDS = 0.1
"""Seconds connections and tasks get to end before the log names them."""

CLOSE_GRACE = 2.0
"""Seconds a peer gets to answer that a connection was closed (TLS `close_notify`), once no task is left to wait for."""

DISCONNECT_GRACE = 1.0
"""Seconds (the deadline itself, if that was shorter) applications get to notice that their peers are gone."""

CANCEL_GRACE = 2.0
"""Seconds cancelled tasks get to clean up."""

FORCED_GRACE = 0.5
"""The same when the end is forced."""

ABORT_GRACE = 0.5
"""Seconds the event loop gets to report aborted transports as lost."""

ENDING = DISCONNECT_GRACE + CANCEL_GRACE + ABORT_GRACE
"""Seconds from the deadline until the last connection is closed, at most."""

LEAST_LIFESPAN_SHUTDOWN = 5.0
"""Seconds an application always has for its lifespan shutdown; more if that much of the graceful timeout is left."""

WATCH_INTERVAL = 0.1
"""Seconds between two checks of a flag without notification."""

CANCEL_MESSAGE = "Task cancelled, timeout graceful shutdown exceeded"

FORCED = "the shutdown was forced (second SIGINT, force_exit or a blocked event loop)"
"""The reason, for the log, when requests and startups are cut short without waiting for their deadlines."""

logger = logging.getLogger("uvicorn.error")


class Stage(enum.IntEnum):
    """How far a server has come, from its start to its end; it only ever goes forward.

    Not all are stages of the drain: while STARTING the server does not accept connections yet, RETIRING it still does
    but wants to be replaced, LEAVING it does for load balancers that do not know of the shutdown yet, and with ENDED
    `Server.run()` has returned.
    """

    STARTING = 0
    SERVING = 1
    RETIRING = 2
    LEAVING = 3
    REFUSING = 4
    CLOSING = 5
    DISCONNECTING = 6
    CANCELLING = 7
    DONE = 8
    ENDED = 9


class Latch:
    """A flag that any thread or signal handler may set, and coroutines of any event loop can wait for.

    `asyncio.Event` may be set only in its loop's thread, and `threading.Event` cannot be awaited.
    """

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Raise the flag and wake all waiters."""
        self._is_set = True
        for loop, waiter in tuple(self._waiters):
            # A closed loop has no waiters left.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, waiter)

    def clear(self) -> None:
        """Lower the flag."""
        self._is_set = False

    async def wait(self) -> None:
        """Return once the flag is up."""
        loop = asyncio.get_running_loop()
        entry = loop, loop.create_future()
        self._waiters.append(entry)
        try:
            # Looked at after the waiter is known to `set`, so that no thread can slip in between.
            if not self._is_set:
                await entry[1]
        finally:
            self._waiters.remove(entry)


class Watched:
    """A `Latch` that is computed elsewhere without notification, so waiters poll it."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], object]) -> None:
        self._read = read

    def __bool__(self) -> bool:
        return bool(self._read())

    async def wait(self) -> None:
        """Return once the flag is up."""
        while not self:
            await asyncio.sleep(WATCH_INTERVAL)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def first_of(*waits: Coroutine[Any, Any, object], timeout: float | None = None) -> bool:
    """Wait until one of the coroutines has returned or `timeout` seconds are over, and cancel the rest.

    Returns:
        Whether one has returned. Its exception, if it raised one, is raised.
    """
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        return bool(done)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def announce_close(connections: Iterable[Connection]) -> None:
    """Have these connections say that their next response is the last; nothing else changes."""
    for connection in list(connections):
        # Protocol classes of third parties need not have it, and a WebSocket has no response to say it in.
        announce = getattr(connection, "announce_close", None)
        if announce is not None:
            announce()


def running_tasks(state: ServerState) -> set[asyncio.Task[None]]:
    """Return the tasks of requests that are not done."""
    return {task for task in state.tasks if not task.done()}


async def wait_for_tasks(state: ServerState) -> None:
    """Return once no task of a request runs."""
    while running := running_tasks(state):
        await asyncio.wait(running)


async def wait_until_idle(state: ServerState, logs: bool = True) -> None:
    """Return once there are no connections and no tasks of requests; with `logs`, log the reason for waiting."""
    if logs and state.connections:
        logger.info("Waiting for connections to close. (CTRL+C to force quit)")
    await state.wait_no_connections()
    if logs and running_tasks(state):
        logger.info("Waiting for background tasks to complete. (CTRL+C to force quit)")
    await wait_for_tasks(state)


class Drain:
    """Ends the connections and tasks of `state`, once.

    Args:
        state: the connections and tasks of one server.
        timeout: seconds connections and tasks may take to end by themselves; None for any time.
        force: once it is set, waiting ends.
        on_stage: called with each stage as it is entered.
        wait: waits for connections and tasks to end, within the deadline; `wait_until_idle` unless given.
    """

    def __init__(
        self,
        state: ServerState,
        timeout: float | None,
        force: Latch | Watched,
        on_stage: Callable[[Stage], None] = lambda stage: None,
        wait: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._state = state
        self._timeout = timeout
        self._force = force
        self._on_stage = on_stage
        self._wait = wait or functools.partial(wait_until_idle, state, logs=timeout != 0)
        self._wait_idle = functools.partial(wait_until_idle, state, logs=False)
        self._told: set[Connection] = set()
        self._asked: set[Connection] = set()  # once: a TLS transport of asyncio that is closed twice can't be aborted

    async def run(self, refuse: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Go through the stages. Never raises because of a connection.

        `refuse` closes the listening sockets and returns when connections that were accepted are known to `state`.
        """
        self._on_stage(Stage.REFUSING)
        self._announce_close()
        await refuse()
        await self._hear_last_requests()
        self._on_stage(Stage.CLOSING)
        if not await self._close():
            self._report_cut()
            self._on_stage(Stage.DISCONNECTING)
            await self._disconnect()
            self._on_stage(Stage.CANCELLING)
            await self._cancel()
        self._on_stage(Stage.DONE)

    # The stages. They return as soon as there is nothing left to wait for.

    async def _hear_last_requests(self) -> None:
        """Let connections know that their next response is the last, and requests come in that were sent before."""
        # A connection that the event loop itself has accepted gets its protocol in the next turn but one.
        for _ in range(2):
            await asyncio.sleep(0)
        self._announce_close()
        if self._timeout != 0:
            await self._until(self._wait_idle, ARRIVAL_SECONDS)

    def _announce_close(self) -> None:
        """Let connections that do not know yet say that their next response is the last, if there is time for one."""
        if self._timeout == 0:
            return
        told, self._told = self._told, set(self._state.connections)
        announce_close(self._told - told)

    async def _close(self) -> bool:
        """Ask connections to end and wait for them and for their tasks; false when the time is up."""
        self._shutdown_connections()
        settled = await self._until(self._wait_idle, SETTLE_SECONDS)
        if self._force:
            return settled
        helpers = [asyncio.create_task(self._ask_newcomers()), asyncio.create_task(self._drop_closed())]
        left = self._timeout
        try:
            if not settled and not running_tasks(self._state):
                # Clients that may send one more request are not worth a line.
                quiet = limits.LAST_REQUEST_SECONDS if left is None else min(limits.LAST_REQUEST_SECONDS, left)
                settled = await self._until(self._wait_idle, quiet)
                left = None if left is None else left - quiet
            return await self._until(self._wait, left) or settled
        finally:
            for helper in helpers:
                helper.cancel()

    async def _ask_newcomers(self) -> None:
        """Ask connections whose TLS handshake took its time, which the first request to end has not reached."""
        while True:
            self._shutdown_connections()
            await asyncio.sleep(NEWCOMER_INTERVAL)

    def _shutdown_connections(self) -> None:
        for connection in list(self._state.connections):
            if connection not in self._asked:
                self._asked.add(connection)
                connection.shutdown()

    async def _drop_closed(self) -> None:
        """Take the transports away from connections that are closed but for the peer's answer.

        A TLS client that keeps an idle connection in a pool does not look at it, and asyncio would wait for its
        `close_notify` for half a minute. Nothing is lost: pending output is sent first.
        """
        await wait_for_tasks(self._state)
        while self._state.connections:
            await asyncio.sleep(CLOSE_GRACE)
            for connection in list(self._state.connections):
                transport = getattr(connection, "transport", None)
                if transport is not None and transport.is_closing() and not transport.get_write_buffer_size():
                    transport.abort()

    def _report_cut(self) -> None:
        """Log how many requests and connections are about to be cut, and the reason."""
        requests, connections = len(running_tasks(self._state)), len(self._state.connections)
        if requests or connections:
            why = FORCED if self._force else f"{self._timeout:g} seconds have passed (timeout_graceful_shutdown)"
            logger.warning("Cutting %d request(s) and %d connection(s): %s.", requests, connections, why)

    async def _disconnect(self) -> None:
        """Tell the applications that the peers are gone; they may return by themselves then."""
        if self._force:
            return
        for connection in list(self._state.connections):
            # Protocol classes of third parties need not have it.
            disconnect = getattr(connection, "disconnect", None)
            if disconnect is not None:
                disconnect()
        grace = DISCONNECT_GRACE if self._timeout is None else min(DISCONNECT_GRACE, self._timeout)
        await self._until(functools.partial(wait_for_tasks, self._state), grace)

    async def _cancel(self) -> None:
        """Cancel remaining tasks, then abort remaining transports."""
        if self._force:
            # Nothing may be written on the way out: a cut connection tells the client more than half a response. The
            # tasks are cancelled in the same turn: one that only sends would not wait any more, and block the loop.
            self._abort_transports()
        running = running_tasks(self._state)
        if running and not self._force:
            logger.error("Cancel %s running task(s), timeout graceful shutdown exceeded", len(running))
        for task in running:
            task.cancel(msg=f"Task cancelled, {FORCED}" if self._force else CANCEL_MESSAGE)
        if running:
            await asyncio.wait(running, timeout=FORCED_GRACE if self._force else CANCEL_GRACE)
        await self._abort()

    async def _abort(self) -> None:
        if not self._state.connections:
            return
        # The last output (the response of a cancelled task) is already with the system, or will never be.
        self._abort_transports()
        await first_of(self._state.wait_no_connections(), timeout=ABORT_GRACE)

    def _abort_transports(self) -> None:
        for connection in list(self._state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()

    # Waiting

    async def _until(self, condition: Callable[[], Coroutine[Any, Any, None]], timeout: float | None) -> bool:
        """Wait for `condition`, the deadline or `force`; whether it was the condition."""
        reached = False

        async def reach() -> None:
            nonlocal reached
            await condition()
            reached = True

        await first_of(reach(), self._force.wait(), timeout=timeout)
        return reached
