"""Back-pressure both ways, and the answer when the server is full."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from tests.doubles import MockTransport
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, WOKEN_TOGETHER, FlowControl, service_unavailable

pytestmark = pytest.mark.anyio


class Transport(MockTransport):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        self.asked.append("resume")


def make() -> tuple[FlowControl, Transport]:
    transport = Transport()
    return FlowControl(transport), transport  # type: ignore[arg-type]


def test_high_water_limit_is_upstreams() -> None:
    """BODY-05"""
    assert HIGH_WATER_LIMIT == 65536


def test_transport_is_asked_once_whoever_asks_twice() -> None:
    flow, transport = make()
    flow.resume_reading()
    flow.pause_reading()
    flow.pause_reading()
    assert flow.read_paused
    flow.resume_reading()
    flow.resume_reading()
    assert not flow.read_paused
    assert transport.asked == ["pause", "resume"]


def test_reading_is_resumed_in_the_context_it_is_given() -> None:
    """K6: not in that of the request which happens to ask."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []

    class Noting(Transport):
        def resume_reading(self) -> None:
            seen.append(variable.get())

    for context in (contextvars.Context(), None):
        flow = FlowControl(Noting())  # type: ignore[arg-type]
        flow.context = context
        variable.set("request")
        flow.pause_reading()
        flow.resume_reading()
    assert seen == ["unset", "request"]


async def test_writers_do_not_wait_unless_writing_is_paused() -> None:
    flow, _ = make()
    await asyncio.wait_for(flow.drain(), 1)
    flow.pause_writing()
    flow.resume_writing()
    await asyncio.wait_for(flow.drain(), 1)


async def test_all_writers_go_on() -> None:
    """CON-08"""
    flow, _ = make()
    flow.pause_writing()
    writers = [asyncio.create_task(flow.drain()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(writer.done() for writer in writers)
    flow.resume_writing()
    await asyncio.wait_for(asyncio.gather(*writers), 1)
    assert not flow.congested


async def test_writer_waits_again_if_writing_was_paused_again() -> None:
    flow, _ = make()
    flow.pause_writing()
    writer = asyncio.create_task(flow.drain())
    await asyncio.sleep(0)
    flow.resume_writing()
    flow.pause_writing()
    await asyncio.sleep(0)
    assert not writer.done()
    flow.resume_writing()
    await asyncio.wait_for(writer, 1)


async def test_writer_that_was_cancelled_does_not_disturb_the_others() -> None:
    flow, _ = make()
    flow.pause_writing()
    gone, kept = [asyncio.create_task(flow.drain()) for _ in range(2)]
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    flow.resume_writing()
    await asyncio.wait_for(kept, 1)


class Writers:
    """Some that write when it is their turn; the transport takes `room` of each before it pauses them again."""

    def __init__(self, count: int, room: int) -> None:
        self.flow, _ = make()
        self.room = self.left = room
        self.written: list[int] = []
        self.flow.pause_writing()
        self.tasks = [asyncio.create_task(self.write(number)) for number in range(count)]

    async def write(self, number: int) -> None:
        await self.flow.drain()
        self.written.append(number)
        self.left -= 1
        if not self.left:
            self.flow.pause_writing()

    def resume(self) -> None:
        self.left = self.room
        self.flow.resume_writing()


@pytest.mark.parametrize("room", [1, 3, 16, 40, 1000])
async def test_writers_go_on_in_the_order_in_which_they_came(room: int) -> None:
    """I8: as many as fit, the others keep their places; also those who come while others wait."""
    writers = Writers(100, room)
    await asyncio.sleep(0)
    for resumed in range(1, 200):
        writers.resume()
        if resumed == 2:
            writers.tasks += [asyncio.create_task(writers.write(number)) for number in range(100, 120)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(writers.written) == min(resumed * room, len(writers.tasks))
    assert writers.written == list(range(120))


async def test_each_writer_costs_the_same_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """I8: with all woken at each resume, 3,000 of them would look 4,500,000 times whether it is their turn."""
    looked = 0
    writable = FlowControl._writable

    def count(flow: FlowControl) -> bool:
        nonlocal looked
        looked += 1
        return writable(flow)

    monkeypatch.setattr(FlowControl, "_writable", count)
    writers = Writers(3000, 1)
    await asyncio.sleep(0)
    while len(writers.written) < 3000:
        writers.resume()
        await asyncio.sleep(0)
    assert writers.written == list(range(3000))
    assert looked <= 3000 * 2 * (WOKEN_TOGETHER + 1)


async def test_a_crowd_of_writers_does_not_hold_up_the_loop() -> None:
    """I8: few of them go on in one turn."""
    writers = Writers(1000, 10_000)
    await asyncio.sleep(0)
    writers.resume()
    while len(writers.written) < 1000:
        before = len(writers.written)
        await asyncio.sleep(0)
        assert len(writers.written) - before <= WOKEN_TOGETHER


@pytest.mark.parametrize("woken", [False, True], ids=["waiting", "woken"])
async def test_writers_that_were_cancelled_leave_nothing_behind(woken: bool) -> None:
    """I5 I8"""
    writers = Writers(100, 1000)
    await asyncio.sleep(0)
    if woken:
        writers.resume()
    for number in (*range(50), 60, 99):
        writers.tasks[number].cancel()
    await asyncio.wait(writers.tasks[:50])
    if not woken:
        writers.resume()
    await asyncio.wait(writers.tasks)
    assert writers.written == [number for number in range(50, 99) if number != 60]
    assert not writers.flow.congested
    assert not writers.flow._writers and writers.flow._writers.waiters == {}


async def test_watchers_are_told_and_forgotten() -> None:
    """I5: whoever has to know of it without waiting in the line"""
    flow, _ = make()
    flow.pause_writing()
    kept, gone = flow.waiter(), flow.waiter()
    gone.cancel()
    flow.resume_writing()
    assert kept.done()
    await asyncio.sleep(0)
    assert not flow._watchers


async def test_service_unavailable_says_close() -> None:
    """LIM-03"""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await service_unavailable({}, None, send)  # type: ignore[typeddict-item, arg-type]
    start, body = sent
    assert start["status"] == 503
    assert dict(start["headers"])[b"connection"] == b"close"
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(body["body"])
    assert body == {"type": "http.response.body", "body": b"Service Unavailable", "more_body": False}
