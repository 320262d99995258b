"""Hearing of the other end's closing without reading: `uvicorn.protocols.http.h1.hang_up`."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import sys
from collections.abc import Iterator

import pytest

from tests import loops
from tests.protocols.harness import descriptors
from tests.utils import wait_until
from uvicorn.protocols.http.h1.hang_up import HangUps

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of an end that was not read"),
]


anyio_backend = loops.each


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


Pair = tuple[socket.socket, socket.socket]


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


async def test_end_behind_unread_data_is_told_once(pair: Pair) -> None:
    ours, theirs = pair
    told: list[bool] = []
    hang_ups = HangUps(asyncio.get_running_loop(), contextvars.copy_context())
    hang_ups.watch(ours.fileno(), told.append)
    theirs.sendall(b"data")
    await turns()
    assert not told
    theirs.shutdown(socket.SHUT_WR)
    await wait_until(lambda: told)
    await turns()
    assert told == [False]
    assert ours.recv(100) == b"data"
    hang_ups.close()


async def test_end_of_both_ways_is_a_reset(pair: Pair) -> None:
    ours, theirs = pair
    told: list[bool] = []
    hang_ups = HangUps(asyncio.get_running_loop(), contextvars.copy_context())
    hang_ups.watch(ours.fileno(), told.append)
    theirs.close()
    await wait_until(lambda: told)
    assert told == [True]
    hang_ups.close()


async def test_socket_that_is_not_watched_any_more_is_not_told_of(pair: Pair) -> None:
    ours, theirs = pair
    told: list[bool] = []
    hang_ups = HangUps(asyncio.get_running_loop(), contextvars.copy_context())
    for _ in range(3):
        hang_ups.watch(ours.fileno(), told.append)
        hang_ups.unwatch(ours.fileno())
        hang_ups.unwatch(ours.fileno())
    theirs.close()
    await turns()
    assert not told
    hang_ups.close()


async def test_socket_that_was_closed_can_be_forgotten(pair: Pair) -> None:
    ours, _ = pair
    hang_ups = HangUps(asyncio.get_running_loop(), contextvars.copy_context())
    descriptor = ours.fileno()
    hang_ups.watch(descriptor, lambda reset: None)
    ours.close()
    hang_ups.unwatch(descriptor)
    hang_ups.watch(descriptor, lambda reset: None)  # nobody's by now
    hang_ups.close()


async def test_nothing_is_left_open(pair: Pair) -> None:
    ours, _ = pair
    before = descriptors()
    hang_ups = HangUps(asyncio.get_running_loop(), contextvars.copy_context())
    hang_ups.close()
    hang_ups.watch(ours.fileno(), lambda reset: None)
    hang_ups.close()
    assert descriptors() == before
