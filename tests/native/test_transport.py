"""The transports of connections that are accepted, read and written natively, held against those of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests import loops
from tests.protocols.harness import GET, request, respond, serve
from tests.utils import wait_until
from uvicorn.listening import sockets as listening
from uvicorn.listening.acceptor import NativeAcceptor

pytest.importorskip("uvicorn._native")

anyio_backend = loops.each

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the loop's transports serve here"),
]

LARGE = os.urandom(1024) * 4096


class Recorder(asyncio.Protocol):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.told: list[Any] = []
        self.received = b""
        self.stays_open = False
        self.on_data: Callable[[bytes], None] = lambda data: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.on_data(data)

    def eof_received(self) -> bool:
        self.told.append("eof")
        return self.stays_open

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(("lost", exc if exc is None else type(exc)))


class Both:
    """A server's protocols and a client's sockets."""

    def __init__(self, acceptor: NativeAcceptor) -> None:
        self.acceptor = acceptor
        self.made: list[Recorder] = []
        self.clients: list[socket.socket] = []

    async def connect(self) -> tuple[Recorder, socket.socket]:
        client = socket.socket()
        client.setblocking(False)
        self.clients.append(client)
        count = len(self.made) + 1
        await asyncio.get_running_loop().sock_connect(client, self.acceptor.sockets[0].getsockname())
        await wait_until(lambda: len(self.made) == count)
        return self.made[-1], client


@contextlib.asynccontextmanager
async def recorders(prepare: Callable[[Recorder], None] = lambda recorder: None) -> AsyncIterator[Both]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))

    def factory() -> Recorder:
        recorder = Recorder()
        prepare(recorder)
        both.made.append(recorder)
        return recorder

    (acceptor,) = await listening.listen([bound], factory, backlog=100)
    assert isinstance(acceptor, NativeAcceptor)
    both = Both(acceptor)
    try:
        yield both
    finally:
        acceptor.close()
        for client in both.clients:
            client.close()
        for recorder in both.made:
            recorder.transport.abort()
        await wait_until(lambda: acceptor.poller.connections == 0)


async def receive(client: socket.socket, length: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < length:
        piece = await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 30)
        if not piece:
            break
        data += piece
    return data


async def test_bytes_go_both_ways_and_the_end_is_told_once() -> None:
    async with recorders() as both:
        recorder, client = await both.connect()
        client.send(b"hello")
        await wait_until(lambda: recorder.received == b"hello")
        recorder.transport.write(b"a")
        recorder.transport.write(bytearray(b"b"))
        recorder.transport.write(memoryview(b"-c-")[1:2])
        recorder.transport.writelines([b"d", bytearray(b"e")])
        assert await receive(client, 5) == b"abcde"
        recorder.transport.close()
        assert recorder.transport.is_closing()
        assert await receive(client, 1) == b""
        await wait_until(lambda: recorder.told == ["made", ("lost", None)])
        recorder.transport.write(b"nobody")
        recorder.transport.close()
        recorder.transport.abort()
        assert recorder.told == ["made", ("lost", None)]


async def test_connections_that_are_always_ready_leave_the_loop_to_others() -> None:
    """More work than one turn does: another turn is scheduled, once, however often the loop finds sockets ready."""
    served = 0

    def respond_slowly(client: socket.socket, data: bytes) -> None:
        nonlocal served
        served += 1
        end = time.perf_counter() + 0.0005
        while time.perf_counter() < end:
            pass
        client.send(b"more")

    async with recorders() as both:
        for _ in range(8):
            recorder, client = await both.connect()
            recorder.on_data = functools.partial(respond_slowly, client)
        for client in both.clients:
            client.send(b"first")
        between = []
        for _ in range(60):
            before = served
            await asyncio.sleep(0)
            between.append(served - before)
        for recorder in both.made:
            recorder.on_data = lambda data: None
    assert served > 60
    assert max(between) <= 4  # two turns of two: one that is scheduled, and one because sockets are ready


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"])
async def test_a_turn_that_cannot_be_scheduled_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the event loop whose methods can be replaced."""
    loop = asyncio.get_running_loop()
    failures: list[Any] = []
    call_soon = loop.call_soon

    def fail_once(callback: Callable[..., object], *args: Any, **keywords: Any) -> Any:
        if getattr(callback, "__name__", "") == "scheduled_turn" and not failures:
            failures.append(callback)
            raise MemoryError
        return call_soon(callback, *args, **keywords)

    monkeypatch.setattr(loop, "call_soon", fail_once)
    async with recorders() as both:
        first, client = await both.connect()
        second, other = await both.connect()
        with pytest.raises(MemoryError):
            first.transport.abort()  # asks for a turn
        client.send(b"nothing")
        other.send(b"hello")
        await wait_until(lambda: second.received == b"hello")
        await wait_until(lambda: first.told[-1] == ("lost", None))


class Buffered(asyncio.BufferedProtocol):
    """Takes what comes in a buffer of its own, in small portions."""

    def __init__(self) -> None:
        self.buffer = bytearray(1000)
        self.received = bytearray()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]


async def test_protocol_with_buffers_of_its_own_is_given_all_and_nothing_is_left_behind() -> None:
    async with recorders() as both:
        recorder, client = await both.connect()
        buffered = Buffered()
        recorder.transport.set_protocol(buffered)

        async def upload(times: int) -> int:
            for _ in range(times):
                buffered.received = bytearray()
                sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(client, LARGE))
                await wait_until(lambda: len(buffered.received) == len(LARGE))
                await sending
                assert buffered.received == LARGE
            gc.collect()
            return sys.getallocatedblocks()

        before = await upload(1)
        assert await upload(1) - before < 1000  # of 4,195 portions


async def test_close_waits_for_what_is_written_and_abort_does_not() -> None:
    async with recorders() as both:
        closed, client = await both.connect()
        closed.transport.write(LARGE)
        waiting = closed.transport.get_write_buffer_size()
        assert 0 < waiting < len(LARGE)
        closed.transport.close()
        assert await receive(client, len(LARGE) + 1) == LARGE
        assert closed.told == ["made", "pause", "resume", ("lost", None)] or closed.told[-1] == ("lost", None)
        aborted, client = await both.connect()
        aborted.transport.write(LARGE)
        aborted.transport.abort()
        assert aborted.transport.get_write_buffer_size() == 0
        with contextlib.suppress(ConnectionResetError):
            assert len(await receive(client, len(LARGE))) < len(LARGE)
        await wait_until(lambda: aborted.told[-1] == ("lost", None))


async def test_what_changes_after_it_was_written_arrives_as_it_was() -> None:
    async with recorders() as both:
        recorder, client = await both.connect()
        data = bytearray(LARGE)
        recorder.transport.write(data)
        data[:] = bytes(len(data))
        assert await receive(client, len(LARGE)) == LARGE


async def test_writers_wait_for_others_though_the_kernel_takes_all() -> None:
    """I10: a peer that takes a large download as fast as it comes does not have the loop to itself."""
    piece = bytes(64 * 1024)
    async with recorders() as both:
        recorder, client = await both.connect()
        written, turns = 0, 0
        for _ in range(3):
            while "pause" not in recorder.told:
                assert written < 3 * 2**20, "the kernel has taken it all in one turn"
                recorder.transport.write(piece)
                written += len(piece)
                if recorder.transport.get_write_buffer_size():
                    pytest.skip("the kernel's buffers are smaller than a share")
            turns += 1
            await wait_until(lambda: recorder.told[-1] == "resume")
            del recorder.told[1:]
            assert len(await receive(client, written)) == written
            written = 0
        assert turns == 3


async def test_large_write_by_itself_does_not_wait_for_others() -> None:
    async with recorders() as both:
        recorder, client = await both.connect()
        for _ in range(3):
            recorder.transport.write(LARGE[: 2**20])
            if recorder.transport.get_write_buffer_size():
                pytest.skip("the kernel's buffers are smaller")
            assert recorder.told == ["made"]
            assert len(await receive(client, 2**20)) == 2**20
            client.send(b"next")
            await wait_until(lambda: recorder.received == b"next")
            recorder.received = b""


async def test_shares_of_what_waits_arrive_whole_beside_each_other() -> None:
    data = LARGE * 4
    async with recorders() as both:
        pairs = [await both.connect() for _ in range(4)]
        for recorder, _ in pairs:
            recorder.transport.write(data)
            recorder.transport.close()
        received = await asyncio.gather(*(receive(client, len(data) + 1) for _, client in pairs))
        assert all(one == data for one in received)
        await wait_until(lambda: all(recorder.told[-1] == ("lost", None) for recorder, _ in pairs))


async def test_writers_are_paused_above_one_mark_and_resumed_below_the_other() -> None:
    async with recorders() as both:
        recorder, client = await both.connect()
        assert recorder.transport.get_write_buffer_limits() == (16384, 65536)
        recorder.transport.set_write_buffer_limits(high=1000)
        assert recorder.transport.get_write_buffer_limits() == (250, 1000)
        with pytest.raises(ValueError, match=r"high \(1\) must be >= low \(2\)"):
            recorder.transport.set_write_buffer_limits(high=1, low=2)
        recorder.transport.write(LARGE)
        assert recorder.told == ["made", "pause"]
        assert await receive(client, len(LARGE)) == LARGE
        await wait_until(lambda: recorder.told == ["made", "pause", "resume"])


async def test_paused_reading_leaves_bytes_in_the_kernel() -> None:
    async with recorders() as both:
        recorder, client = await both.connect()
        recorder.transport.pause_reading()
        recorder.transport.pause_reading()
        assert not recorder.transport.is_reading()
        client.send(b"one")
        other, second = await both.connect()
        second.send(b"two")
        await wait_until(lambda: other.received == b"two")
        assert recorder.received == b""
        recorder.transport.resume_reading()
        recorder.transport.resume_reading()
        await wait_until(lambda: recorder.received == b"one")


async def test_half_closed_connection_can_still_be_written_to() -> None:
    def stay(recorder: Recorder) -> None:
        recorder.stays_open = True

    async with recorders(stay) as both:
        recorder, client = await both.connect()
        client.send(b"last words")
        client.shutdown(socket.SHUT_WR)
        await wait_until(lambda: recorder.told == ["made", "eof"])
        assert recorder.received == b"last words"
        recorder.transport.write(b"answer")
        recorder.transport.write_eof()
        recorder.transport.write(b"too late")
        assert await receive(client, 100) == b"answer"
        recorder.transport.close()


async def test_reset_is_told_as_what_it_is() -> None:
    async with recorders() as both:
        recorder, client = await both.connect()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        await wait_until(lambda: recorder.told[-1] == ("lost", ConnectionResetError))


async def test_protocol_is_replaced_from_inside_its_own_call() -> None:
    """As an upgrade does."""
    async with recorders() as both:
        recorder, client = await both.connect()
        successor = Recorder()

        def hand_over(data: bytes) -> None:
            recorder.transport.set_protocol(successor)
            assert recorder.transport.get_protocol() is successor

        recorder.on_data = hand_over
        client.send(b"upgrade")
        await wait_until(lambda: recorder.received == b"upgrade")
        client.send(b"frame")
        await wait_until(lambda: successor.received == b"frame")
        recorder.transport.close()
        await wait_until(lambda: successor.told == [("lost", None)])
        assert recorder.told == ["made"]


async def test_exception_of_a_protocol_reaches_the_loop_and_ends_its_connection_alone() -> None:
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))
    async with recorders() as both:
        recorder, client = await both.connect()
        other, second = await both.connect()

        def fail(data: bytes) -> None:
            raise ZeroDivisionError

        recorder.on_data = fail
        client.send(b"x")
        second.send(b"y")
        await wait_until(lambda: recorder.told[-1] == ("lost", ZeroDivisionError) and other.received == b"y")
    (context,) = contexts
    assert context["message"] == "Fatal error: protocol.data_received() call failed."
    assert isinstance(context["exception"], ZeroDivisionError)
    assert context["transport"] is recorder.transport and context["protocol"] is recorder


async def test_extra_information() -> None:
    async with recorders() as both:
        recorder, client = await both.connect()
        transport = recorder.transport
        assert transport.get_extra_info("peername") == client.getsockname()
        assert transport.get_extra_info("sockname") == client.getpeername()
        assert transport.get_extra_info("sslcontext") is None
        assert transport.get_extra_info("nothing", "default") == "default"
        shown = transport.get_extra_info("socket")
        assert shown.getpeername() == client.getsockname() and shown.family == socket.AF_INET
        assert shown.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert not os.get_inheritable(shown.fileno())
        with pytest.raises(TypeError):
            await asyncio.get_running_loop().start_tls(transport, recorder, None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="bytes-like"):
            transport.write("text")


async def test_sockets_closed_behind_our_back_cost_nobody_else_anything() -> None:
    """Neither is a descriptor used that is another's by now, nor is another's closed."""
    async with recorders() as both:
        victim, client = await both.connect()
        number = victim.transport.get_extra_info("socket").fileno()
        stranger, peer = socket.socketpair()
        with stranger, peer:
            os.dup2(stranger.fileno(), number)  # closes what was there
            try:
                victim.transport.write(b"mine")
                assert await receive(client, 4) == b"mine"
                victim.transport.close()
                await wait_until(lambda: victim.told[-1] == ("lost", None))
                peer.send(b"theirs")
                assert os.read(number, 100) == b"theirs"
            finally:
                os.close(number)
        assert await receive(client, 1) == b""


async def test_descriptors_closed_and_taken_in_other_threads() -> None:
    """Each connection says what was said on it and no other, and who took a number keeps it."""

    def take(number: int) -> tuple[socket.socket, socket.socket]:
        os.close(number)
        return socket.socketpair()

    async def attacked(victim: Recorder, client: socket.socket, index: int) -> None:
        number = victim.transport.get_extra_info("socket").fileno()
        stranger, peer = await asyncio.to_thread(take, number)
        with stranger, peer:
            for round_ in range(5):
                said = f"{index}/{round_};".encode()
                victim.transport.write(said)
                assert await receive(client, len(said)) == said
                await asyncio.to_thread(peer.send, said)
                assert await asyncio.to_thread(stranger.recv, 100) == said
            victim.transport.close()
            assert await receive(client, 1) == b""
            await wait_until(lambda: victim.told[-1] == ("lost", None))
            peer.send(b"still there")
            assert stranger.recv(100) == b"still there"

    async with recorders() as both:
        for start in range(0, 64, 16):
            pairs = [await both.connect() for _ in range(16)]
            await asyncio.gather(*(attacked(*pair, start + index) for index, pair in enumerate(pairs)))


async def test_newcomers_are_answered_in_the_order_of_their_arrival(http_protocol_cls: Any) -> None:
    """I9: not one in each turn of the loop, while others keep it busy."""
    served: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        served.append(scope["path"])
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        busy = [await service.connect() for _ in range(20)]
        for client in busy:
            await client.ask()
        served.clear()
        # All of this is there before the loop looks at any of it.
        newcomers = [socket.create_connection(service.address) for _ in range(100)]
        for index, newcomer in enumerate(newcomers):
            newcomer.send(request("GET", f"/{index}"))
        for client in busy:
            client.sock.send(GET)
        await wait_until(lambda: len(served) == 120)
        for newcomer in newcomers:
            newcomer.close()
    assert [path for path in served if path != "/"] == [f"/{index}" for index in range(100)]
