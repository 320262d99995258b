"""Clients that hardly send and hardly read: dropped at their deadlines, and in nobody's way.

`scripts/slow-clients` does the same with slowhttptest and hundreds of connections, and times the answers.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.loops import LOOPS
from tests.native.leak_server import resident
from tests.native.slow_app import LARGE
from tests.process import ServerProcess
from tests.protocols.harness import respond, serve
from tests.utils import open_connection, read_to_end, request, wait_for, wait_until

CLIENTS = 100
SLOW_HEAD = b"GET / HTTP/1.1\r\nhost: test\r\nx-a: "
SLOW_BODY = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\nabc"
END = LARGE + b"\r\n0\r\n\r\n"
LARGE_GET = b"GET /large HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="servers are stopped by SIGTERM here")


@pytest.fixture(params=LOOPS)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    options = ["--port", "0", "--http", "native", "--loop", request.param, "--no-access-log"]
    options += ["--timeout-request-head", "1", "--timeout-request-body", "1"]
    with ServerProcess("tests.native.slow_app:app", *options) as server:
        server.wait_for("Uvicorn running on")
        yield server


def connect(server: ServerProcess, stack: ExitStack, payload: bytes, count: int) -> list[socket.socket]:
    return [stack.enter_context(open_connection(server.address, payload)) for _ in range(count)]


def trickle(clients: list[socket.socket]) -> None:
    """Send one more byte on each connection that still takes one."""
    for client in clients:
        try:
            client.send(b"a")
        except OSError:
            continue


def test_slow_senders_are_dropped_while_others_are_served(server: ServerProcess) -> None:
    with ExitStack() as stack:
        heads = connect(server, stack, SLOW_HEAD, CLIENTS)
        bodies = connect(server, stack, SLOW_BODY, CLIENTS)

        def all_refused() -> bool:
            assert request(server.address).startswith(b"HTTP/1.1 200 ")
            trickle(heads)
            return server.error_output.count("refused with 408") == 2 * CLIENTS

        wait_for(all_refused)
        for client in heads + bodies:
            assert read_to_end(client)[:13] in (b"HTTP/1.1 408 ", b"")  # a byte sent too late resets it


def test_slow_readers_cost_no_memory_and_nobody_elses_time(server: ServerProcess) -> None:
    """A large body that a client does not read is not copied for it."""
    with ExitStack() as stack:
        assert request(server.address, "/large").endswith(END)
        before = resident(server.pid)
        readers = connect(server, stack, LARGE_GET, 20)
        for _ in range(50):
            assert request(server.address).startswith(b"HTTP/1.1 200 ")
        if sys.version_info >= (3, 12) or "uvloop" in server.arguments:  # asyncio made a copy before
            assert resident(server.pid) - before < len(LARGE)
        assert read_to_end(readers[0]).endswith(END)


class SlowHandler(logging.Handler):
    """A log that takes its time, so that a deadline passes while a client before it is refused."""

    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(0.1)


@pytest.mark.anyio
async def test_late_sender_cannot_put_its_end_off_by_sending_more(native: Any) -> None:
    """Its bytes come before the timer's turn each time, as they do where many clients send."""
    logging.getLogger("uvicorn.error").addHandler(SlowHandler())
    async with serve(native, respond(), timeout_request_head=0.2) as service:
        first = await service.connect()
        await first.send(SLOW_HEAD)
        await wait_until(lambda: service.state.connections)
        await asyncio.sleep(0.02)
        second = await service.connect()
        await second.send(SLOW_HEAD)
        for _ in range(50):
            second.sock.send(b"a")
            time.sleep(0.06)  # the loop is late: both bytes and timer are due
            await asyncio.sleep(0)
            if not await second.silent(0):
                break
        else:
            pytest.fail("not refused while it sends")
        assert (await first.response()).status == (await second.response()).status == 408
