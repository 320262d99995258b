"""The ASGI side of one request, on a connection that only takes notes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.utils import turns
from uvicorn.protocols.http.cycle import COMPLETE, IDLE, STARTED, CycleState, RequestResponseCycle
from uvicorn.serving.event_pool import EventPool

pytestmark = pytest.mark.anyio

START = {"type": "http.response.start", "status": 200}
BODY = {"type": "http.response.body", "body": b"ok"}


class Flow:
    def __init__(self) -> None:
        self.congested = False
        self.drained = asyncio.Event()


class Connection:
    """What a cycle calls on its stream, as a list of words."""

    logger = logging.getLogger("uvicorn.error")

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.flow = Flow()
        self.events = EventPool()
        self.refusal: Exception | None = None

    def start(self, status: int, fields: Any) -> bool:
        if self.refusal is not None:
            raise self.refusal
        self.calls.append(("start", status, list(fields)))
        return True

    def body(self, data: bytes, more: bool, trailers: bool = False) -> int:
        self.calls.append(("body", data, more))
        return len(data)

    async def writable(self) -> None:
        await self.flow.drained.wait()
        self.flow.congested = False

    def flush_log(self) -> None: ...

    def dropped(self, scope: Any, message: Any) -> None: ...

    def offers(self, extension: str) -> bool:
        return False

    def announce_close(self) -> None:
        self.calls.append("last")

    def interim(self, status: int) -> None:
        self.calls.append(status)

    def want_body(self) -> None:
        self.calls.append("want")

    def finish(self) -> None:
        self.calls.append("complete")

    def abort(self) -> None:
        self.calls.append("abort")


def make(more_body: bool = False, expect_continue: bool = False) -> tuple[Any, Connection]:
    connection = Connection()
    scope: Any = {"type": "http"}
    cycle = RequestResponseCycle(connection, scope, more_body, expect_continue)  # type: ignore[arg-type]
    return cycle, connection


# Sending


async def test_states_follow_the_messages() -> None:
    cycle, connection = make()
    assert cycle.state is IDLE is CycleState.IDLE
    await cycle.send({**START, "headers": [(b"a", b"b")]})
    assert cycle.state is STARTED
    await cycle.send({**BODY, "more_body": True})
    assert cycle.state is STARTED
    await cycle.send(BODY)
    assert cycle.state is COMPLETE
    assert connection.calls == [
        ("start", 200, [(b"a", b"b")]),
        ("body", b"ok", True),
        ("body", b"ok", False),
        "complete",
    ]


async def test_start_that_raises_starts_nothing() -> None:
    """ERR-15, ERR-16"""
    cycle, connection = make()

    connection.refusal = RuntimeError()
    with pytest.raises(RuntimeError):
        await cycle.send(START)
    with pytest.raises(KeyError):
        await cycle.send({"type": "http.response.start"})
    assert cycle.state is IDLE


@pytest.mark.parametrize(
    ("before", "wrong"),
    [
        pytest.param([], "http.response.body", id="ERR-08"),
        pytest.param([START], "http.response.start", id="ERR-09"),
        pytest.param([START, BODY], "http.response.body", id="ERR-10"),
    ],
)
async def test_message_out_of_order_is_an_error(before: list[Any], wrong: str) -> None:
    cycle, connection = make()
    for message in before:
        await cycle.send(message)
    calls = list(connection.calls)
    with pytest.raises(RuntimeError, match=wrong):
        await cycle.send({"type": wrong})
    assert connection.calls == calls


async def test_send_waits_until_there_is_room() -> None:
    """CON-08"""
    cycle, connection = make()
    connection.flow.congested = True
    sending = asyncio.create_task(cycle.send(START))
    await turns()
    assert connection.calls == []
    connection.flow.drained.set()
    await sending
    assert len(connection.calls) == 1


async def test_send_to_a_client_that_left_meanwhile_does_nothing() -> None:
    """CON-07, CON-08"""
    cycle, connection = make()
    connection.flow.congested = True
    sending = asyncio.create_task(cycle.send(START))
    await asyncio.sleep(0)
    cycle.disconnect()
    connection.flow.drained.set()
    await sending
    connection.flow.congested = True
    connection.flow.drained.clear()
    await cycle.send({"type": "nonsense"})
    assert connection.calls == []


async def test_send_to_a_client_that_can_still_be_reached_goes_on() -> None:
    """K5"""
    cycle, connection = make()
    cycle.disconnect(reachable=True)
    await cycle.send(START)
    await cycle.send(BODY)
    assert connection.calls[-1] == "complete"


# Receiving


async def test_body_that_is_there_needs_no_event() -> None:
    """An event is taken only to wait."""
    cycle, connection = make(more_body=True)
    cycle.feed(b"a")
    cycle.feed(b"b")
    cycle.feed_end()
    assert await cycle.receive() == {"type": "http.request", "body": b"ab", "more_body": False}
    assert connection.events.stats()["created"] == 0


async def test_body_that_comes_later_is_waited_for() -> None:
    cycle, connection = make(more_body=True)
    receiving = asyncio.create_task(cycle.receive())
    await asyncio.sleep(0)
    assert connection.calls == ["want"]
    cycle.feed(b"a")
    message = await receiving
    assert message == {"type": "http.request", "body": b"a", "more_body": True}
    assert type(message["body"]) is bytes
    cycle.feed(b"b")
    cycle.feed(b"c")
    message = await cycle.receive()
    assert message == {"type": "http.request", "body": b"bc", "more_body": True}
    assert type(message["body"]) is bytes
    cycle.feed_end()
    assert await cycle.receive() == {"type": "http.request", "body": b"", "more_body": False}
    stats = connection.events.stats()
    assert (stats["created"], stats["in_use"]) == (1, 0)


async def test_receive_asks_for_more_while_there_is_more() -> None:
    """BODY-05: reading goes on as soon as the buffer was taken."""
    cycle, connection = make(more_body=True)
    cycle.feed(b"a")
    await cycle.receive()
    assert connection.calls == ["want"]
    cycle.feed_end()
    await cycle.receive()
    assert connection.calls == ["want"]


@pytest.mark.parametrize("fed", [b"", b"part"])
async def test_client_that_leaves_in_its_body_ends_in_disconnect(fed: bytes) -> None:
    """F16, BODY-07"""
    cycle, _ = make(more_body=True)
    if fed:
        cycle.feed(fed)
    cycle.disconnect()
    for _ in range(2):
        assert await cycle.receive() == {"type": "http.disconnect"}


async def test_complete_body_is_delivered_before_the_disconnect() -> None:
    cycle, _ = make(more_body=True)
    cycle.feed(b"all")
    cycle.feed_end()
    cycle.disconnect()
    assert await cycle.receive() == {"type": "http.request", "body": b"all", "more_body": False}
    assert await cycle.receive() == {"type": "http.disconnect"}


async def test_empty_body_is_delivered_before_the_disconnect() -> None:
    cycle, _ = make()
    cycle.disconnect(reachable=True)
    assert (await cycle.receive())["type"] == "http.request"
    assert (await cycle.receive())["type"] == "http.disconnect"


@pytest.mark.parametrize("how", ["complete", "gone", "half-closed"])
async def test_all_who_wait_are_told_of_the_end(how: str) -> None:
    """BODY-04"""
    cycle, connection = make()
    await cycle.receive()
    waiting = [asyncio.create_task(cycle.receive()) for _ in range(3)]
    await asyncio.sleep(0)
    assert connection.events.stats()["in_use"] == 3
    if how == "complete":
        await cycle.send(START)
        await cycle.send(BODY)
    else:
        cycle.disconnect(reachable=how == "half-closed")
    assert await asyncio.gather(*waiting) == [{"type": "http.disconnect"}] * 3
    assert connection.events.stats()["in_use"] == 0


async def test_waiter_that_is_cancelled_leaves_no_trace() -> None:
    cycle, connection = make(more_body=True)
    first, second = [asyncio.create_task(cycle.receive()) for _ in range(2)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    assert connection.events.stats()["in_use"] == 1
    cycle.feed(b"x")
    assert (await second)["body"] == b"x"
    assert connection.events.stats()["in_use"] == 0


async def test_continue_is_sent_once_before_the_first_body() -> None:
    """BODY-08"""
    cycle, connection = make(more_body=True, expect_continue=True)
    cycle.feed(b"x")
    await cycle.receive()
    cycle.feed_end()
    await cycle.receive()
    assert connection.calls.count(100) == 1


@pytest.mark.parametrize("why", ["started", "gone"])
async def test_continue_is_not_sent(why: str) -> None:
    """BODY-09"""
    cycle, connection = make(more_body=True, expect_continue=True)
    if why == "started":
        await cycle.send(START)
        cycle.feed(b"x")
    else:
        cycle.disconnect()
    await cycle.receive()
    assert 100 not in connection.calls


# Running


def runs(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_run_of_a_well_behaved_application_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(BODY)

    cycle, connection = make()
    await cycle.run_asgi(app)
    assert connection.calls[-1] == "complete"
    assert runs(caplog) == []


@pytest.mark.parametrize(
    ("sent", "result", "calls", "logged"),
    [
        pytest.param([], RuntimeError, "500", "Exception in ASGI application\n", id="ERR-02"),
        pytest.param([START], RuntimeError, "abort", "Exception in ASGI application\n", id="ERR-03"),
        pytest.param([START, BODY], RuntimeError, "complete", "Exception in ASGI application\n", id="ERR-04"),
        pytest.param([], None, "500", "ASGI callable returned without starting response.", id="ERR-05"),
        pytest.param([START], None, "abort", "ASGI callable returned without completing response.", id="ERR-06"),
        pytest.param([], 1, "500", "ASGI callable should return None, but returned '1'.", id="ERR-07"),
        pytest.param([START], 1, "abort", "ASGI callable should return None, but returned '1'.", id="ERR-07-started"),
        pytest.param(
            [START, BODY], 1, "complete", "ASGI callable should return None, but returned '1'.", id="ERR-07-done"
        ),
    ],
)
async def test_run_of_an_application_that_fails(
    sent: list[Any], result: Any, calls: str, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> Any:
        for message in sent:
            await send(message)
        if result is RuntimeError:
            raise RuntimeError
        return result

    cycle, connection = make()
    await cycle.run_asgi(app)
    if calls == "500":
        assert connection.calls[0] == "last"
        assert connection.calls[1][:2] == ("start", 500)
        assert connection.calls[2:] == [("body", b"Internal Server Error", False), "complete"]
    else:
        assert connection.calls[-1] == calls
        assert "abort" not in connection.calls[:-1]
    assert runs(caplog) == [logged]


@pytest.mark.parametrize("reachable", [True, False])
@pytest.mark.parametrize("sent", [[], [START]])
async def test_run_whose_client_has_gone_may_end_anyhow(
    reachable: bool, sent: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-18: the connection ends, as it may still be open on our side."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in sent:
            await send(message)

    cycle, connection = make()
    cycle.disconnect(reachable)
    await cycle.run_asgi(app)
    assert connection.calls[-1] == "abort"
    assert runs(caplog) == []


async def test_run_that_cannot_even_answer_ends_the_connection() -> None:
    """Otherwise its client would wait for ever."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError

    cycle, connection = make()

    connection.refusal = ValueError()
    with pytest.raises(ValueError):
        await cycle.run_asgi(app)
    assert connection.calls == ["last", "abort"]
