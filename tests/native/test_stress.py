"""Eight event loops of one process, under all kinds of load at once, where nothing keeps their threads apart.

`UVICORN_STRESS_ROUNDS` makes it longer: it is the number of rounds that each client goes through.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.native.http2_client import HTTP2Client, reset
from tests.protocols.harness import Client, body_of, request
from tests.utils import GIL, running_thread, wait_for
from uvicorn.config import Config
from uvicorn.metrics.page import Page
from uvicorn.supervisors.threaded import ThreadedServer

websockets = pytest.importorskip("websockets.asyncio.client", reason="the client of the test")
pytestmark = pytest.mark.skipif(GIL, reason="the GIL keeps threads apart")

LOOPS = 8
CLIENTS = 4
"""Threads of clients; each has one of every kind."""
ROUNDS = int(os.environ.get("UVICORN_STRESS_ROUNDS", "30"))
LARGE = random.Random(1).randbytes(300_000)

Address = tuple[str, int]


class Application:
    """One object for all loops, with all that applications do to go from one thread to another."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sessions: dict[int, tuple[asyncio.AbstractEventLoop, Any]] = {}
        self.kept: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
        elif scope["type"] == "websocket":
            await self.talk(receive, send)
        else:
            await self.answer(scope, receive, send)

    async def live(self, receive: Any, send: Any) -> None:
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        body = await body_of(receive)
        if body is None:
            return
        if path == "/elsewhere":
            body = await asyncio.to_thread(lambda whole: whole[::-1][::-1], body)
        if path == "/keep":
            # Freed by whichever thread comes to drop them, and by the collector.
            with self.lock:
                self.kept = [*self.kept[-50:], [scope, receive, send, self.kept[-1:]]]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-path", path.encode())]})
        if path == "/large":
            for _ in range(4):
                await send({"type": "http.response.body", "body": LARGE, "more_body": True})
        await send({"type": "http.response.body", "body": body})

    async def talk(self, receive: Any, send: Any) -> None:
        """Echo, and pass each message on to somebody else, who mostly lives on another loop."""
        await receive()
        await send({"type": "websocket.accept"})
        me = id(send)
        with self.lock:
            self.sessions[me] = asyncio.get_running_loop(), send
        try:
            while (message := await receive())["type"] == "websocket.receive":
                with self.lock:
                    loop, other = random.choice(list(self.sessions.values()))
                asyncio.run_coroutine_threadsafe(_tell(other), loop)
                await send({"type": "websocket.send", "text": message["text"]})
        finally:
            with self.lock:
                del self.sessions[me]


async def _tell(send: Any) -> None:
    try:
        await send({"type": "websocket.send", "text": "told"})
    except (OSError, RuntimeError):
        pass  # it has ended meanwhile


async def connect(address: Address) -> Client:
    """A connection of our own."""
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, address)
    return Client(sock)


async def ask_in_turn(address: Address) -> None:
    """HTTP/1.1 on one connection, pipelined and not."""
    client = await connect(address)
    for number in range(ROUNDS):
        body = b"%d" % number * random.choice((1, 500, 20_000))
        path = random.choice(("/", "/elsewhere", "/keep"))
        answer = await client.ask(request("POST", path, f"x-number: {number}", body=body))
        assert (answer.status, answer.body) == (200, body)
        await client.send(request() * 8)
        assert [(await client.response()).status for _ in range(8)] == [200] * 8
    client.close()


async def give_up(address: Address) -> None:
    """HTTP/1.1 that is broken off in the middle of a request, or of a response."""
    for _ in range(ROUNDS):
        client = await connect(address)
        whole = request("POST", "/large", body=b"a" * 1000)
        cut = random.choice((1, 20, len(whole) - 10, len(whole)))
        await client.send(whole[:cut])
        if cut == len(whole):
            await client.exactly(random.randrange(1, 20_000))
        client.reset()


async def talk(address: Address) -> None:
    """WebSockets, with whatever others say in between; every second one is broken off."""
    for number in range(ROUNDS // 3):
        client = await websockets.connect(f"ws://{address[0]}:{address[1]}/", proxy=None, max_queue=None)
        for text in ("one", "two" * 1000, "three"):
            await client.send(text)
            while await client.recv() != text:
                pass
        if number % 2:
            client.transport.abort()
        else:
            await client.close()


async def ask_at_once(address: Address) -> None:
    """HTTP/2: several streams at once, some of which are given up, and connections that are broken off."""
    for number in range(ROUNDS // 3):
        client = await HTTP2Client(await connect(address)).begin({4: 2_000_000})
        await client.send(b"".join(client.head(f"/{n}", ("x-number", str(number))) for n in range(8)))
        await client.send(client.head("/large"), reset(client.next_stream - 2))
        for stream in range(1, 17, 2):
            answer = await client.answer(stream)
            assert (answer.status, dict(answer.headers)[b"x-path"]) == (200, b"/%d" % (stream // 2))
        if number % 2:
            await client.send(client.head("/large"), client.head("/large"))
            client.client.reset()
        else:
            client.client.close()


async def every_kind(address: Address) -> None:
    """One client of each."""
    kinds: list[Callable[[Address], Awaitable[None]]] = [ask_in_turn, give_up, talk, ask_at_once]
    await asyncio.gather(*(kind(address) for kind in kinds))


@contextmanager
def serving(server: ThreadedServer) -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as sock, sock.dup() as given:
        address: Address = sock.getsockname()
        with running_thread(server.run, [given]):
            try:
                wait_for(lambda: server.started)
                yield address
            finally:
                server.stop()


def test_loops_share_nothing_that_one_of_them_could_spoil(caplog: pytest.LogCaptureFixture) -> None:
    """Every answer is the right one, nothing is logged, and in the end nothing is left."""
    caplog.set_level(logging.WARNING)
    config = Config(
        Application(), threads=LOOPS, http="native", ws="native", http2=True, loop="asyncio", log_config=None
    )
    server = ThreadedServer(config)
    server.metrics_pages = [Page.make() for _ in range(LOOPS)]
    over = threading.Event()

    def collect() -> None:
        while not over.wait(0.01):
            gc.collect()
            for loop in server.servers:
                loop.report()

    with ThreadPoolExecutor(CLIENTS + 1) as pool, serving(server) as address:
        collecting = pool.submit(collect)
        asking = [pool.submit(asyncio.run, every_kind(address)) for _ in range(CLIENTS)]
        try:
            for future in asking:
                future.result(60 + ROUNDS * 4)
        finally:
            over.set()
        collecting.result(30)
        wait_for(lambda: not any(loop.server_state.connections for loop in server.servers))
        wait_for(lambda: not any(loop.server_state.tasks for loop in server.servers))
        assert all(loop.server_state.total_requests for loop in server.servers), "a loop has done nothing"
    assert [record.getMessage() for record in caplog.records] == []
