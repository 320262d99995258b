"""Time that a peer gets back because it could not be heard."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from tests import loops
from uvicorn.rules.grace import GRANULARITY, MOST_LOOKS, Grace, GraceTimer, has_pending_io, is_readable, wait_for

pytestmark = pytest.mark.anyio

anyio_backend = loops.each


def test_lag_is_given_back_once() -> None:
    grace = Grace()
    assert grace.grant(8.0, lambda: False) == 8.0
    assert grace.grant(8.0, lambda: False) == 0.0
    grace.renew()
    assert grace.grant(8.0, lambda: False) == 8.0


def test_punctual_loop_owes_nothing() -> None:
    assert Grace().grant(GRANULARITY, lambda: False) == 0.0


def test_peer_that_is_there_has_a_few_looks() -> None:
    grace = Grace()
    assert [grace.grant(0.0, lambda: True) for _ in range(MOST_LOOKS + 1)] == [GRANULARITY] * MOST_LOOKS + [0.0]


async def test_timer_that_is_late_waits_for_as_long_again() -> None:
    loop = asyncio.get_running_loop()
    called = loop.create_future()
    began = time.monotonic()
    GraceTimer(loop, 0.05, lambda: called.set_result(time.monotonic() - began))
    loop.call_soon(time.sleep, 0.25)
    assert await called >= 0.25 + 0.15


async def test_timer_can_be_cancelled() -> None:
    loop = asyncio.get_running_loop()
    timer = GraceTimer(loop, 0.0, pytest.fail)
    timer.cancel()
    timer.cancel()
    await asyncio.sleep(0.01)


async def test_what_a_peer_does_not_do_ends_in_time() -> None:
    with pytest.raises(asyncio.TimeoutError):
        await wait_for(asyncio.Event().wait(), 0.01, lambda: False)
    waits = asyncio.ensure_future(wait_for(asyncio.Event().wait(), 60, lambda: False))
    await asyncio.sleep(0)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert await wait_for(asyncio.sleep(0, "done"), 60, lambda: False) == "done"


async def test_only_what_is_asked_of_a_socket_is_pending() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        assert not has_pending_io(transport)
        theirs.send(b"x")
        assert has_pending_io(transport)
        transport.pause_reading()
        assert not has_pending_io(transport)
        transport.abort()
    assert not has_pending_io(asyncio.Transport())
    closed = socket.socket()
    closed.close()
    assert not is_readable(closed)
