"""Calls of `receive()` and `send()` that have to wait: their order, and what is left of those that are given up."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests import loops, machines
from tests.protocols.harness import PATIENCE, Client, Service, request, respond, serve
from tests.utils import wait_until

pytestmark = pytest.mark.anyio

UPLOAD = request("POST", "/", "content-length: 100000")
DISCONNECT = {"type": "http.disconnect"}


anyio_backend = loops.each
http_protocol_cls = machines.each


# Ways to give a call up.


async def cancel(call: Any) -> None:
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def time_out(call: Any) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(call, 0.001)


async def close(call: Any) -> None:
    call.send(None)
    call.close()


async def throw(call: Any) -> None:
    call.send(None)
    with pytest.raises(ValueError, match="mine"):
        call.throw(ValueError("mine"))


async def forget(call: Any) -> None:
    call.send(None)
    del call


WAYS = {"cancelled": cancel, "timed out": time_out, "closed": close, "thrown into": throw, "forgotten": forget}
GiveUp = Callable[[Any], Any]


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def give_up(request: pytest.FixtureRequest) -> GiveUp:
    way: GiveUp = request.param
    return way


def waiting_objects() -> int:
    """How many objects there are on which somebody could wait."""
    gc.collect()
    return sum(type(each).__name__ in ("Future", "Event", "Task") for each in gc.get_objects())


async def turns(count: int = 30) -> None:
    """Let the loop run everything that is ready, and what becomes ready of that."""
    for _ in range(count):
        await asyncio.sleep(0)


class Steps:
    """How often awaitables were asked for more."""

    def __init__(self) -> None:
        self.count = 0

    async def of(self, call: Any) -> Any:
        """Await `call`, step by step."""
        return await _Counted(call, self)


class _Counted:
    def __init__(self, call: Any, steps: Steps) -> None:
        self.call = call
        self.steps = steps

    def __await__(self) -> Any:
        iterator = self.call.__await__()
        while True:
            self.steps.count += 1
            try:
                future = next(iterator)
            except StopIteration as end:
                return end.value
            yield future


# receive()


@asynccontextmanager
async def uploading(http_protocol_cls: Any, app: Any) -> AsyncIterator[tuple[Service, Client]]:
    """A client that has announced a body and sent nothing of it."""
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(UPLOAD)
        yield service, client


@pytest.mark.parametrize("after", ["all read", "nothing read"])
async def test_polls_for_a_message_leave_nothing_behind(http_protocol_cls: Any, give_up: GiveUp, after: str) -> None:
    """I5: an application that asks again and again whether its client is still there."""
    counts = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if after == "all read":
            await receive()
        counts.append(waiting_objects())
        for _ in range(60):
            await give_up(receive())
        await asyncio.sleep(0)
        counts.append(waiting_objects())
        await respond()(scope, receive, send)
        assert await receive() == DISCONNECT

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request() if after == "all read" else UPLOAD)
        assert (await client.response()).body == b"ok"
        await wait_until(lambda: not service.state.tasks)
    before, behind = counts
    assert behind - before < 20


async def test_pieces_of_a_body_go_to_those_who_wait_in_their_order(http_protocol_cls: Any) -> None:
    got: list[tuple[int, bytes]] = []
    ready = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def take(number: int) -> None:
            message = await receive()
            got.append((number, message["body"]))
            # Somebody who comes now is behind all the others.
            tasks.append(asyncio.create_task(late(receive)))

        async def late(receive: Any) -> None:
            message = await receive()
            got.append((-1, message.get("body", b"")))

        tasks = [asyncio.create_task(take(number)) for number in range(5)]
        await turns()
        ready.set()
        await asyncio.gather(*tasks[:5])
        await respond()(scope, receive, send)
        await asyncio.gather(*tasks)

    async with uploading(http_protocol_cls, app) as (service, client):
        await asyncio.wait_for(ready.wait(), PATIENCE)
        for number in range(5):
            await client.send(b"%d" % number)
            await wait_until(lambda number=number: len(got) > number)  # type: ignore[misc]
        assert (await client.response()).body == b"ok"
        await wait_until(lambda: not service.state.tasks)
    assert got == [(number, b"%d" % number) for number in range(5)] + [(-1, b"")] * 5


async def test_one_piece_wakes_one_of_those_who_wait(http_protocol_cls: Any) -> None:
    """Not all of them, to find out that there is nothing for them."""
    steps = Steps()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def take() -> Any:
            return await steps.of(receive())

        tasks = [asyncio.create_task(take()) for _ in range(30)]
        await turns()
        assert steps.count == 30
        ready.set()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await turns()
        assert [task.done() for task in tasks] == [True] + [False] * 29
        assert steps.count == 31
        await respond()(scope, receive, send)
        assert await asyncio.gather(*tasks[1:]) == [DISCONNECT] * 29
        assert steps.count == 60

    ready = asyncio.Event()
    async with uploading(http_protocol_cls, app) as (service, client):
        await asyncio.wait_for(ready.wait(), PATIENCE)
        await client.send(b"piece")
        assert (await client.response()).body == b"ok"
        await wait_until(lambda: not service.state.tasks)


async def test_call_that_is_given_up_in_its_turn_passes_that_on(http_protocol_cls: Any, give_up: GiveUp) -> None:
    """A piece that has come is lost to nobody."""
    ready = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls = [receive() for _ in range(3)]
        futures = [call.send(None) for call in calls[:2]]
        last = asyncio.ensure_future(calls.pop())
        await turns()
        ready.set()
        while not futures[0].done():
            await asyncio.sleep(0.001)
        # Both of those in front are gone before they could take it.
        for call in calls:
            if give_up is forget:
                continue
            if give_up is throw:
                with pytest.raises(ValueError, match="mine"):
                    call.throw(ValueError("mine"))
            else:
                call.close()
        del call, futures
        calls.clear()
        assert (await asyncio.wait_for(last, PATIENCE))["body"] == b"piece"
        await respond()(scope, receive, send)

    async with uploading(http_protocol_cls, app) as (_, client):
        await asyncio.wait_for(ready.wait(), PATIENCE)
        await client.send(b"piece")
        assert (await client.response()).body == b"ok"


@pytest.mark.parametrize("end", ["response", "client"])
async def test_all_who_wait_for_a_message_hear_of_the_end(http_protocol_cls: Any, end: str) -> None:
    """BODY-04, BODY-07"""
    ready = asyncio.Event()
    heard: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        tasks = [asyncio.create_task(receive()) for _ in range(100)]
        await turns()
        ready.set()
        if end == "response":
            await respond()(scope, receive, send)
        heard.extend(await asyncio.gather(*tasks))

    async with uploading(http_protocol_cls, app) as (service, client):
        await asyncio.wait_for(ready.wait(), PATIENCE)
        if end == "client":
            client.close()
        await wait_until(lambda: not service.state.tasks)
    assert heard == [DISCONNECT] * 100


# send()


class Congestion:
    """A response whose transport takes nothing until it is told to."""

    def __init__(self, protocol: Any, send: Any) -> None:
        self.protocol = protocol
        self.send = send
        protocol.pause_writing()

    def piece(self, body: bytes) -> Any:
        """A call that sends more of the body."""
        return self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self) -> None:
        """Let the response go on to its end."""
        self.protocol.resume_writing()
        await self.send({"type": "http.response.body"})


async def answer(http_protocol_cls: Any, app: Callable[[Congestion], Any]) -> bytes:
    """What the client gets of a response whose body `app` sends."""

    async def started(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        (protocol,) = service.state.connections
        await app(Congestion(protocol, send))

    async with serve(http_protocol_cls, started) as service:
        client = await service.connect()
        response = await client.ask(request())
        await wait_until(lambda: not service.state.tasks)
        return response.body


async def test_messages_that_are_given_up_are_not_sent_and_leave_nothing_behind(
    http_protocol_cls: Any, give_up: GiveUp
) -> None:
    """I5"""

    async def app(congestion: Congestion) -> None:
        before = waiting_objects()
        for _ in range(60):
            await give_up(congestion.piece(b"never"))
        await turns()
        left.append(waiting_objects() - before)
        last = asyncio.create_task(congestion.piece(b"sent"))
        await turns()
        await give_up(congestion.piece(b"never"))
        await congestion.end()
        await last

    left: list[int] = []
    assert await answer(http_protocol_cls, app) == b"sent"
    assert left[0] < 20


async def test_messages_that_wait_are_sent_in_the_order_of_their_calls(http_protocol_cls: Any) -> None:
    """Also those that come while the others go on, and find room."""
    count = 50
    order: list[int] = []

    async def app(congestion: Congestion) -> None:
        async def send_two(number: int) -> None:
            await congestion.piece(b"<%d>" % number)
            order.append(number)
            # In front of which nobody may be sent who has waited for longer.
            await congestion.piece(b"<%d+>" % number)

        tasks = [asyncio.create_task(send_two(number)) for number in range(count)]
        await turns()
        assert not order
        congestion.protocol.resume_writing()
        await asyncio.gather(*tasks)
        await congestion.end()

    body = await answer(http_protocol_cls, app)
    assert order == list(range(count))
    assert body == b"".join(b"<%d>" % number for number in order) + b"".join(b"<%d+>" % number for number in order)


async def test_room_for_one_message_does_not_wake_all(http_protocol_cls: Any) -> None:
    """What one message costs does not grow with the number of those that wait."""
    count = 120
    steps = Steps()

    async def app(congestion: Congestion) -> None:
        async def send_one(number: int) -> None:
            await steps.of(congestion.piece(b"<%d>" % number))
            sent.append(number)
            congestion.protocol.pause_writing()

        sent: list[int] = []
        tasks = [asyncio.create_task(send_one(number)) for number in range(count)]
        await turns()
        assert steps.count == count
        for number in range(count):
            congestion.protocol.resume_writing()
            await turns(5)
            assert sent == list(range(number + 1))
        await asyncio.gather(*tasks)
        await congestion.end()

    assert await answer(http_protocol_cls, app) == b"".join(b"<%d>" % number for number in range(count))
    assert steps.count <= count * 18


@pytest.mark.parametrize("how", ["reset", "abort"])
async def test_messages_that_wait_end_with_their_client(http_protocol_cls: Any, how: str) -> None:
    """CON-07, CON-08"""
    ready = asyncio.Event()
    results: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        (protocol,) = service.state.connections
        congestion = Congestion(protocol, send)
        tasks = [asyncio.create_task(congestion.piece(b"never")) for _ in range(100)]
        await turns()
        ready.set()
        results.extend(await asyncio.gather(*tasks))

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request())
        await asyncio.wait_for(ready.wait(), PATIENCE)
        if how == "reset":
            client.reset()
        else:
            service.transport.abort()
        await wait_until(lambda: not service.state.tasks)
    assert results == [None] * 100
