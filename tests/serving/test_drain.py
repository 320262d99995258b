"""The shutdown state machine, with connections and tasks that behave as each test needs."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.utils import turns, wait_until
from uvicorn.config.settings import DEFAULT_GRACEFUL_SHUTDOWN
from uvicorn.listening.acceptor import OPENING_GRACE
from uvicorn.rules import limits
from uvicorn.serving import drain as module
from uvicorn.serving.drain import Drain, Latch, Stage, first_of
from uvicorn.serving.state import ServerState

pytestmark = pytest.mark.anyio

WAITING_FOR_CONNECTIONS = "Waiting for connections to close. (CTRL+C to force quit)"
WAITING_FOR_TASKS = "Waiting for background tasks to complete. (CTRL+C to force quit)"
CUT = "Cutting {} request(s) and {} connection(s): {:g} seconds have passed (timeout_graceful_shutdown)."
CUT_BY_FORCE = (
    "Cutting {} request(s) and {} connection(s): the shutdown was forced "
    "(second SIGINT, force_exit or a blocked event loop)."
)
CANCEL = "Cancel {} running task(s), timeout graceful shutdown exceeded"


class Transport:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.closing = False
        self.unsent = 0

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.connection.log.append("abort")
        self.connection.close()


class Connection:
    """A connection of the server; it ends when told to, or only when it loses its transport."""

    def __init__(self, state: ServerState, *, is_stubborn: bool = False) -> None:
        self.state = state
        self.is_stubborn = is_stubborn
        self.log: list[str] = []
        self.transport: Transport | None = Transport(self)
        state.connections.add(self)

    def shutdown(self) -> None:
        self.log.append("shutdown")
        if not self.is_stubborn:
            self.close()

    def disconnect(self) -> None:
        self.log.append("disconnect")

    def close(self) -> None:
        self.state.connections.discard(self)


@pytest.fixture
def state() -> ServerState:
    return ServerState()


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    return caplog


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grace that shows, but does not make the tests slow."""
    monkeypatch.setattr(module, "ARRIVAL_SECONDS", 0.02)
    monkeypatch.setattr(module, "NEWCOMER_INTERVAL", 0.02)
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.02)
    monkeypatch.setattr(module, "CLOSE_GRACE", 0.02)
    monkeypatch.setattr(limits, "LAST_REQUEST_SECONDS", 0.02)
    monkeypatch.setattr(module, "DISCONNECT_GRACE", 0.05)
    monkeypatch.setattr(module, "CANCEL_GRACE", 0.1)
    monkeypatch.setattr(module, "FORCED_GRACE", 0.1)
    monkeypatch.setattr(module, "ABORT_GRACE", 0.1)


def start_task(state: ServerState, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(coroutine)
    state.tasks.add(task)
    task.add_done_callback(state.tasks.discard)
    return task


async def run(state: ServerState, timeout: float | None, force: Latch | None = None) -> list[Stage]:
    stages: list[Stage] = []
    refused: list[Stage] = []
    drain = Drain(state, timeout, Latch() if force is None else force, stages.append)

    async def refuse() -> None:
        refused.append(stages[-1])

    await asyncio.wait_for(drain.run(refuse), 20)
    assert refused == [Stage.REFUSING]
    return stages


GRACEFUL = [Stage.REFUSING, Stage.CLOSING, Stage.DONE]
ALL = [Stage.REFUSING, Stage.CLOSING, Stage.DISCONNECTING, Stage.CANCELLING, Stage.DONE]


async def test_nothing_to_do_is_done_at_once(state: ServerState, log: pytest.LogCaptureFixture) -> None:
    """LIFE-13"""
    assert await run(state, 3600) == GRACEFUL
    assert log.messages == []


async def test_idle_connections_are_closed_without_a_line(state: ServerState, log: pytest.LogCaptureFixture) -> None:
    """LIFE-14, LIFE-16, K7"""
    connections = [Connection(state) for _ in range(3)]
    assert await run(state, 30) == GRACEFUL
    assert [connection.log for connection in connections] == [["shutdown"]] * 3
    assert log.messages == []


class Announcing(Connection):
    """A connection that can say that its next response is the last."""

    def announce_close(self) -> None:
        self.log.append("announce")


async def test_next_response_is_announced_as_the_last_before_connections_end(state: ServerState) -> None:
    """K7"""
    connections: list[Connection] = [Announcing(state), Connection(state)]
    assert await run(state, 30) == GRACEFUL
    assert [connection.log for connection in connections] == [["announce", "shutdown"], ["shutdown"]]


async def test_request_that_is_on_its_way_is_heard(state: ServerState, monkeypatch: pytest.MonkeyPatch) -> None:
    """K7: its client has connected before the sockets were closed."""
    monkeypatch.setattr(module, "ARRIVAL_SECONDS", 30)
    connection = Announcing(state)
    draining = asyncio.create_task(run(state, 30))
    await wait_until(lambda: connection.log)
    connection.close()  # as after its response
    assert await draining == GRACEFUL
    assert connection.log == ["announce"]


async def test_connection_that_was_accepted_is_known_before_it_is_looked_for(state: ServerState) -> None:
    """LIFE-13: the event loop has it, and its protocol is made in the next turn."""
    connections = []
    asyncio.get_running_loop().call_soon(lambda: connections.append(Announcing(state)))
    assert await run(state, 30) == GRACEFUL
    assert connections[0].log == ["announce", "shutdown"]


async def test_nobody_is_heard_where_there_is_no_time(state: ServerState) -> None:
    """LIFE-22"""
    connection = Announcing(state)
    assert await run(state, 0) == GRACEFUL
    assert connection.log == ["shutdown"]


async def test_connection_whose_handshake_took_its_time_is_asked_to_end(state: ServerState) -> None:
    """LIFE-13, LIFE-15: it was accepted before the sockets were closed."""
    busy = Connection(state, is_stubborn=True)
    draining = asyncio.create_task(run(state, 30))
    await wait_until(lambda: busy.log)
    late = Connection(state)
    await wait_until(lambda: late.log)
    assert not draining.done()
    busy.close()
    assert await draining == GRACEFUL
    assert (late.log, busy.log) == (["shutdown"], ["shutdown"])


@pytest.mark.parametrize("timeout", [30, None], ids=["deadline", "for ever"])
async def test_busy_connections_are_waited_for(
    state: ServerState, timeout: float | None, log: pytest.LogCaptureFixture
) -> None:
    """LIFE-15, LIFE-17, LIFE-19"""
    connection = Connection(state, is_stubborn=True)
    draining = asyncio.create_task(run(state, timeout))
    await wait_until(lambda: log.messages)
    connection.close()
    assert await draining == GRACEFUL
    assert log.messages == [WAITING_FOR_CONNECTIONS]


async def test_clients_that_may_ask_once_more_are_waited_for_without_a_line(
    state: ServerState, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """K7, LIFE-14: unless there is more to wait for than that."""
    monkeypatch.setattr(limits, "LAST_REQUEST_SECONDS", 30)
    connection = Connection(state, is_stubborn=True)
    draining = asyncio.create_task(run(state, 30))
    await wait_until(lambda: connection.log)
    await asyncio.sleep(0.1)
    connection.close()
    assert await draining == GRACEFUL
    assert log.messages == []


async def test_background_tasks_are_waited_for(state: ServerState, log: pytest.LogCaptureFixture) -> None:
    """LIFE-17, LIFE-18"""
    go_on = asyncio.Event()

    async def work() -> None:
        await go_on.wait()

    start_task(state, work())
    draining = asyncio.create_task(run(state, 30))
    await wait_until(lambda: log.messages)
    go_on.set()
    assert await draining == GRACEFUL
    assert log.messages == [WAITING_FOR_TASKS]


async def test_tasks_are_waited_for_after_connections(state: ServerState, log: pytest.LogCaptureFixture) -> None:
    """LIFE-17"""
    connection = Connection(state, is_stubborn=True)
    go_on = asyncio.Event()

    async def work() -> None:
        await go_on.wait()

    start_task(state, work())
    draining = asyncio.create_task(run(state, 30))
    await wait_until(lambda: log.messages)
    connection.close()
    await wait_until(lambda: len(log.messages) == 2)
    go_on.set()
    assert await draining == GRACEFUL
    assert log.messages == [WAITING_FOR_CONNECTIONS, WAITING_FOR_TASKS]


async def test_task_started_by_a_task_is_waited_for(state: ServerState) -> None:
    """LIFE-18"""
    finished = []

    async def second() -> None:
        await turns(50)
        finished.append("second")

    async def first() -> None:
        await turns(50)
        start_task(state, second())

    start_task(state, first())
    assert await run(state, 30) == GRACEFUL
    assert finished == ["second"]


async def test_connection_that_was_being_accepted_is_asked_too(state: ServerState) -> None:
    """K7: a listening socket is closed while a connection is on its way to its protocol."""
    busy = Connection(state, is_stubborn=True)
    draining = asyncio.create_task(run(state, 30))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late = Connection(state)
    await wait_until(lambda: late.log)
    busy.close()
    assert await draining == GRACEFUL
    assert late.log == ["shutdown"]


async def test_connection_that_only_misses_the_answer_of_its_peer_is_dropped(state: ServerState) -> None:
    """K7: over TLS, with a client that does not look at its idle connection."""
    connection = Connection(state, is_stubborn=True)
    assert connection.transport
    connection.transport.closing = True
    connection.transport.unsent = 10
    draining = asyncio.create_task(run(state, None))
    await turns(50)
    assert not draining.done()
    connection.transport.unsent = 0
    assert await draining == GRACEFUL
    assert connection.log[-1] == "abort"


async def test_deadline_tells_applications_first_that_the_peer_is_gone(
    state: ServerState, log: pytest.LogCaptureFixture
) -> None:
    """K8: a stream that listens for the disconnect ends by itself."""
    connection = Connection(state, is_stubborn=True)

    async def stream() -> None:
        while "disconnect" not in connection.log:
            await asyncio.sleep(0.001)

    start_task(state, stream())
    assert await run(state, 0.05) == ALL
    assert connection.log[-2:] == ["disconnect", "abort"]
    assert log.messages == [WAITING_FOR_CONNECTIONS, CUT.format(1, 1, 0.05)]
    assert log.records[-1].levelname == "WARNING"


async def test_tasks_that_still_run_are_cancelled(state: ServerState, log: pytest.LogCaptureFixture) -> None:
    """LIFE-20, K8"""
    messages: list[Any] = []

    async def stuck() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError as exc:
            messages.append(exc.args)
            raise

    tasks = [start_task(state, stuck()) for _ in range(2)]
    assert await run(state, 0.05) == ALL
    assert [task.cancelled() for task in tasks] == [True, True]
    assert messages == [("Task cancelled, timeout graceful shutdown exceeded",)] * 2
    assert log.messages == [WAITING_FOR_TASKS, CUT.format(2, 0, 0.05), CANCEL.format(2)]
    assert log.records[-1].levelname == "ERROR"
    assert log.records[-1].args == (2,)


async def test_timeout_of_0_cancels_at_once_and_does_not_say_that_it_waits(
    state: ServerState, log: pytest.LogCaptureFixture
) -> None:
    """LIFE-22"""
    connection = Connection(state, is_stubborn=True)

    async def stuck() -> None:
        await asyncio.sleep(3600)

    start_task(state, stuck())
    assert await run(state, 0) == ALL
    assert connection.log[-1] == "abort"
    assert log.messages == [CUT.format(1, 1, 0), CANCEL.format(1)]


async def test_task_that_ignores_its_cancellation_is_not_waited_for(state: ServerState) -> None:
    """K8"""
    stop = asyncio.Event()

    async def stubborn() -> None:
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                pass

    task = start_task(state, stubborn())
    assert await run(state, 0.01) == ALL
    assert not task.done()
    stop.set()
    await task


async def test_connections_without_tasks_lose_their_transports_at_the_deadline(
    state: ServerState, log: pytest.LogCaptureFixture
) -> None:
    """A peer that does not take its response."""
    connection = Connection(state, is_stubborn=True)
    assert await run(state, 0.05) == ALL
    assert connection.log == ["shutdown", "disconnect", "abort"]
    assert log.messages == [WAITING_FOR_CONNECTIONS, CUT.format(0, 1, 0.05)]


async def test_connections_of_third_parties_need_no_more_than_shutdown(state: ServerState) -> None:
    class Plain:
        def shutdown(self) -> None:
            pass

    state.connections.add(Plain())
    assert await run(state, 0.01) == ALL


async def test_connection_whose_transport_is_gone_is_left_out(state: ServerState) -> None:
    connection = Connection(state, is_stubborn=True)
    connection.transport = None
    assert await run(state, 0.01) == ALL


async def test_force_jumps_to_the_end(state: ServerState, log: pytest.LogCaptureFixture) -> None:
    """SIG-06, SIG-09, K8"""
    force = Latch()
    connection = Connection(state, is_stubborn=True)

    async def stuck() -> None:
        with pytest.raises(asyncio.CancelledError, match="the shutdown was forced"):
            await asyncio.sleep(3600)
        assert connection.log[-1] == "abort"

    task = start_task(state, stuck())
    draining = asyncio.create_task(run(state, None, force))
    await wait_until(lambda: log.messages)
    force.set()
    assert await draining == ALL
    await task
    assert "disconnect" not in connection.log
    assert log.messages == [WAITING_FOR_CONNECTIONS, CUT_BY_FORCE.format(1, 1)]
    assert log.records[-1].levelname == "WARNING"


async def test_force_before_the_start_waits_for_nobody(state: ServerState, log: pytest.LogCaptureFixture) -> None:
    """SIG-06"""
    force = Latch()
    force.set()
    connection = Connection(state, is_stubborn=True)
    assert await run(state, None, force) == ALL
    assert connection.log == ["shutdown", "abort"]
    assert log.messages == [CUT_BY_FORCE.format(0, 1)]


async def test_force_while_applications_are_told(
    state: ServerState, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8"""
    monkeypatch.setattr(module, "DISCONNECT_GRACE", 1)
    force = Latch()
    connection = Connection(state, is_stubborn=True)

    async def stuck() -> None:
        await asyncio.sleep(3600)

    start_task(state, stuck())
    draining = asyncio.create_task(run(state, 0.5, force))
    await wait_until(lambda: "disconnect" in connection.log)
    force.set()
    assert await draining == ALL
    assert connection.log[-1] == "abort"
    assert log.messages == [WAITING_FOR_CONNECTIONS, CUT.format(1, 1, 0.5)]


# Latch


async def test_latch_wakes_every_waiter_from_another_thread() -> None:
    latch = Latch()
    waiters = [asyncio.create_task(latch.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not latch
    thread = threading.Thread(target=latch.set)
    thread.start()
    await asyncio.wait_for(asyncio.gather(*waiters), 20)
    thread.join()
    assert latch
    await latch.wait()


async def test_latch_can_be_lowered() -> None:
    latch = Latch()
    latch.set()
    latch.clear()
    assert not latch
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(latch.wait(), 0.01)
    assert latch._waiters == []


async def test_latch_set_twice_in_one_turn() -> None:
    latch = Latch()
    waiter = asyncio.create_task(latch.wait())
    await asyncio.sleep(0)
    latch.set()
    latch.set()
    await waiter


def test_latch_forgets_a_loop_that_is_closed() -> None:
    latch = Latch()
    loop = asyncio.new_event_loop()
    latch._waiters.append((loop, loop.create_future()))
    loop.close()
    latch.set()
    assert latch


# first_of


async def test_first_of_ends_with_the_first_and_cancels_the_rest() -> None:
    cancelled = []

    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def quick() -> None:
        await asyncio.sleep(0)

    assert await first_of(slow(), quick()) is True
    assert cancelled == [True]
    assert await first_of(slow(), timeout=0.01) is False


async def test_first_of_raises_what_was_raised() -> None:
    async def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await first_of(broken(), asyncio.sleep(3600))


async def test_stages_are_in_order() -> None:
    assert sorted(Stage) == list(Stage)
    assert [stage for stage in Stage if Stage.LEAVING < stage < Stage.ENDED] == ALL


def test_default_drain_is_over_before_orchestrators_kill() -> None:
    """K8: they wait for 30 seconds, and the lifespan is to be shut down behind it."""
    before = OPENING_GRACE + module.ARRIVAL_SECONDS + module.SETTLE_SECONDS
    behind = module.DISCONNECT_GRACE + module.CANCEL_GRACE + module.ABORT_GRACE
    assert before + DEFAULT_GRACEFUL_SHUTDOWN + behind <= 29
