"""Workers that share sockets, and how they share the connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator
from multiprocessing import reduction
from typing import Any

import pytest

from tests import loops
from tests.native.test_transport import Recorder
from tests.utils import wait_until
from uvicorn.listening.acceptor import NativeAcceptor
from uvicorn.listening.loads import PLACES, LoadFile, LoadTable, WorkerLoad

native = pytest.importorskip("uvicorn._native")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there are no files in memory"),
]


anyio_backend = loops.each


@pytest.fixture
def table() -> LoadTable:
    table = LoadTable.make()
    assert table is not None
    return table


def take(table: LoadTable) -> WorkerLoad:
    place = table.take()
    assert place is not None
    return place


def write(place: WorkerLoad, number: int) -> None:
    """What its worker would."""
    os.pwrite(place.file.descriptor, number.to_bytes(4, sys.byteorder), 4 * (1 + place.index))


class Loop:
    """The running event loop, and what it was asked to call later."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.later: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, delay: float, callback: Any, *args: Any, **context: Any) -> asyncio.TimerHandle:
        self.later.append(callback.__name__)
        return self._loop.call_later(delay, callback, *args, **context)


class Sharer:
    """One of several that accept from the same socket, as a worker does: with a poller of its own."""

    def __init__(self, sock: socket.socket, place: WorkerLoad) -> None:
        self.place = place
        self.made: list[Recorder] = []
        self.loop = Loop()
        self.poller = native.Poller(self.loop)
        self.poller.share(os.dup(place.file.descriptor), place.index)
        self.acceptor = NativeAcceptor(sock, self.make, backlog=1000, poller=self.poller)

    def make(self) -> Recorder:
        self.made.append(Recorder())
        return self.made[-1]


@contextlib.asynccontextmanager
async def sharers(table: LoadTable, count: int) -> AsyncIterator[tuple[list[Sharer], Any]]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    clients: list[socket.socket] = []

    async def connect(number: int) -> None:
        for _ in range(number):
            client = socket.socket()
            client.setblocking(False)
            clients.append(client)
            await asyncio.get_running_loop().sock_connect(client, bound.getsockname())

    found = [Sharer(bound.dup(), take(table)) for _ in range(count)]
    for sharer in found:
        await sharer.acceptor.start_serving()
    try:
        yield found, connect
    finally:
        for sharer in found:
            sharer.acceptor.close()
            for recorder in sharer.made:
                recorder.transport.abort()
        for sock in [bound, *clients]:
            sock.close()
        await wait_until(lambda: all(sharer.poller.connections == 0 for sharer in found))


def total(found: list[Sharer]) -> int:
    return sum(len(sharer.made) for sharer in found)


@pytest.mark.parametrize("count", [1, 2, 4])
async def test_connections_are_shared_evenly(table: LoadTable, count: int) -> None:
    async with sharers(table, count) as (found, connect):
        await connect(50 * count)
        await wait_until(lambda: total(found) == 50 * count)
        # A crowd is let in a few at a time, so not to the last one: 8 more than the others have, or 16 if a busy
        # machine had their number stand still between two looks. Without the table one takes nearly all.
        assert max(len(sharer.made) for sharer in found) <= 50 + 16
        assert sum(number or 0 for number in table.numbers()) == 50 * count


async def test_one_by_one_they_go_to_whoever_has_the_fewest(table: LoadTable) -> None:
    async with sharers(table, 2) as (found, connect):
        for made in range(1, 21):
            await connect(1)
            await wait_until(lambda: total(found) == made)  # noqa: B023
            numbers = [len(sharer.made) for sharer in found]
            # One is left to the other for some milliseconds, in which a busy machine may have run nobody: who took it
            # then has one too many, until the next ones go to the other. Blindly dealt, all would be of one.
            assert max(numbers) - min(numbers) <= 4
            assert table.numbers() == numbers


async def test_those_that_end_are_counted(table: LoadTable) -> None:
    async with sharers(table, 2) as (found, connect):
        await connect(10)
        await wait_until(lambda: total(found) == 10)
        for recorder in found[0].made:
            recorder.transport.close()
        await wait_until(lambda: table.numbers()[0] == 0)
        before = len(found[1].made)
        await connect(3)
        await wait_until(lambda: total(found) == 13)
        assert len(found[1].made) == before


async def test_nobody_waits_for_a_worker_that_is_busy(table: LoadTable) -> None:
    busy = take(table)
    write(busy, 1)
    async with sharers(table, 1) as (found, connect):
        await connect(500)
        await wait_until(lambda: total(found) == 500)
        assert table.numbers() == [0, 500]
        assert "look_again" in found[0].loop.later


async def test_a_note_is_nobody_s_load(table: LoadTable) -> None:
    """Whoever took it for that of a worker with fewer connections would leave each of them to it for a moment."""
    place = take(table)
    assert place.is_first_to(1) and not place.is_first_to(1) and place.is_first_to(2) and place.is_first_to(1)
    assert table.numbers() == [None]
    async with sharers(table, 1) as (found, connect):
        for made in range(1, 11):
            await connect(1)
            await wait_until(lambda: total(found) == made)  # noqa: B023
        assert table.numbers() == [None, 10]
        assert "look_again" not in found[0].loop.later


async def test_nobody_waits_for_a_worker_that_has_stopped_accepting(table: LoadTable) -> None:
    async with sharers(table, 2) as (found, connect):
        await connect(4)
        await wait_until(lambda: total(found) == 4)
        found[0].acceptor.close()
        assert table.numbers()[0] is None
        # What it has yet would be lost with it.
        assert found[0].place.connections() == len(found[0].made)
        found[0].made.pop().transport.abort()
        await wait_until(lambda: found[0].place.connections() == len(found[0].made))
        await connect(10)
        await wait_until(lambda: total(found) == 13)
        assert table.numbers() == [None, len(found[1].made)]


async def test_it_closes_while_connections_are_left_to_others(table: LoadTable) -> None:
    write(take(table), 1)
    async with sharers(table, 1) as (found, connect):
        await connect(100)
        await wait_until(lambda: total(found) == 100)
        for _ in range(3):  # each leaves them to the other once more
            found[0].acceptor._take_rest()
        found[0].acceptor.close()


def test_places_are_given_and_given_back(table: LoadTable) -> None:
    places = [take(table) for _ in range(PLACES)]
    assert sorted(place.index for place in places) == list(range(PLACES))
    assert table.take() is None
    write(places[5], 7)
    assert table.numbers()[4:7] == [None, 6, None]
    table.give_back(places[5])
    assert table.numbers()[5] is None
    assert take(table).index == 5


def test_a_place_can_be_sent_to_a_process_that_is_spawned(table: LoadTable, monkeypatch: pytest.MonkeyPatch) -> None:
    class Duplicate:
        def __init__(self, descriptor: int) -> None:
            self.descriptor = os.dup(descriptor)

        def detach(self) -> int:
            return self.descriptor

    monkeypatch.setattr(reduction, "DupFd", Duplicate)
    file = take(table).file
    copy = LoadFile.__new__(LoadFile)
    copy.__setstate__(file.__getstate__())
    try:
        assert os.fstat(copy.descriptor).st_ino == os.fstat(file.descriptor).st_ino
    finally:
        os.close(copy.descriptor)


def test_a_table_is_closed_with_its_owner() -> None:
    table = LoadTable.make()
    assert table is not None
    descriptor = take(table).file.descriptor
    del table
    with pytest.raises(OSError):
        os.fstat(descriptor)
