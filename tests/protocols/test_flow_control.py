"""Back-pressure both ways, and the answer when the server is full."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from tests.doubles import MockTransport
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl, service_unavailable

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
        flow = FlowControl(Noting(), context)  # type: ignore[arg-type]
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


async def test_all_writers_go_on_together() -> None:
    """CON-08"""
    flow, _ = make()
    flow.pause_writing()
    writers = [asyncio.create_task(flow.drain()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(writer.done() for writer in writers)
    flow.resume_writing()
    await asyncio.wait_for(asyncio.gather(*writers), 1)


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
