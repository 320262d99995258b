"""D12: what a process holds for clients that do not read has a limit: `uvicorn.serving.buffers`."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import sys
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import hpack
import pytest

from tests.utils import NATIVE, run_server, server_port, wait_until
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.config import Config
from uvicorn.metrics.page import QUEUED_BYTES, TAKEN_BYTES, Page
from uvicorn.serving import buffers
from uvicorn.serving.buffers import GRACE, MEBIBYTE, BufferLimit

PIECE = 8 * MEBIBYTE


class _Loop:
    """A clock, and what is to be called later."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.later: list[Any] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Any) -> Any:
        self.later = [callback]
        return SimpleNamespace(cancel=self.later.clear)

    def pass_second(self, late: float = 0) -> None:
        self.now += 1 + late
        (look,) = self.later
        look()


class _Connection:
    """One whose transport holds so many MiB; it counts what was taken of them, or cannot."""

    def __init__(self, size: float, taken: float | None = 0) -> None:
        self.size, self.taken, self.aborted = size, taken, False
        self.transport: Any = SimpleNamespace(
            abort=self._abort,
            get_extra_info=lambda name: None,
            get_write_buffer_size=lambda: int(self.size * MEBIBYTE),
        )
        if taken is not None:
            self.transport.get_held_size = lambda: (int(self.size * MEBIBYTE), int((self.taken or 0) * MEBIBYTE))

    def _abort(self) -> None:
        self.aborted, self.size = True, 0


def _limit(loop: _Loop, connections: list[_Connection], limit: int = 10, resident: int | None = None) -> BufferLimit:
    made = BufferLimit(loop, connections, limit, lambda: resident)  # type: ignore[arg-type]
    made.start()
    made.watch()
    return made


@pytest.mark.parametrize("counts", [True, False])
def test_those_that_hold_most_are_ended_until_the_rest_is_below_the_limit(
    counts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    loop = _Loop()
    taken = 0 if counts else None
    small, large, middle, idle = (_Connection(size, taken) for size in (4, 9, 5, 0.05))
    limit = _limit(loop, [small, large, middle, idle])
    for _ in range(int(GRACE)):
        loop.pass_second()
        assert not large.aborted  # it has its time
    with caplog.at_level(logging.WARNING, "uvicorn.error"):
        loop.pass_second()
    assert (large.aborted, middle.aborted, small.aborted, idle.aborted) == (True, False, False, False)
    (line,) = caplog.messages
    assert line == (
        "Reset 1 connection(s) with 9.0 MiB that their clients did not read: this process held more than 10 MiB "
        "for clients (limit_buffers)."
    )
    limit.stop()
    assert not loop.later and not buffers._held


@pytest.mark.parametrize("counts", [True, False])
def test_a_client_that_reads_is_never_ended(counts: bool) -> None:
    loop = _Loop()
    reading = _Connection(30, 0 if counts else None)
    stuck = _Connection(8, 0 if counts else None)
    limit = _limit(loop, [reading, stuck])
    for second in range(20):
        loop.pass_second()
        if counts:
            assert reading.taken is not None
            reading.taken += 2  # and as much was added
        else:
            reading.size += 1 if second % 2 else -2
    assert (reading.aborted, stuck.aborted) == (False, True)
    for _ in range(int(GRACE) + 2):  # it stops
        loop.pass_second()
    assert reading.aborted
    limit.stop()


@pytest.mark.parametrize("counts", [True, False])
def test_time_in_which_the_loop_was_blocked_is_not_held_against_a_client(counts: bool) -> None:
    loop = _Loop()
    connection = _Connection(30, 0 if counts else None)
    limit = _limit(loop, [connection])
    for _ in range(20):
        loop.pass_second(late=1.5)
    assert not connection.aborted
    for _ in range(int(GRACE) + 1):
        loop.pass_second()
    assert connection.aborted
    limit.stop()


@pytest.mark.parametrize("most", [0, 10])
def test_what_is_held_is_counted(most: int) -> None:
    """Also where there is no limit, and nothing is ended."""
    loop, page = _Loop(), Page.make()
    one, other = _Connection(4), _Connection(3, None)
    one.held_bodies = (MEBIBYTE, 0)  # type: ignore[attr-defined]
    limit = BufferLimit(loop, [one, other], most, lambda: 0, page)  # type: ignore[arg-type]
    limit.start()
    limit.watch()
    for size, held in ((4, 8), (9, 13), (0, 4)):
        one.size = size
        loop.pass_second()
        assert page.words[QUEUED_BYTES] - page.words[TAKEN_BYTES] == held * MEBIBYTE
    limit.stop()
    assert page.words[QUEUED_BYTES] == page.words[TAKEN_BYTES]
    assert not (one.aborted or other.aborted)


def test_bodies_of_streams_count_with_their_connection() -> None:
    loop = _Loop()
    connection = _Connection(0)
    connection.held_bodies = (11 * MEBIBYTE, 0)  # type: ignore[attr-defined]
    limit = _limit(loop, [connection])
    for _ in range(int(GRACE) + 1):
        loop.pass_second()
    assert connection.aborted
    limit.stop()


def test_all_event_loops_of_the_process_count() -> None:
    loops = [_Loop(), _Loop()]
    connections = [_Connection(7), _Connection(8)]
    limits = [_limit(loops[0], connections[:1]), _limit(loops[1], connections[1:])]
    for _ in range(int(GRACE) + 2):
        for loop in loops:
            loop.pass_second()
    assert [connection.aborted for connection in connections].count(True) == 1
    for limit in limits:
        limit.stop()


def test_log_has_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    loop = _Loop()
    connections = [_Connection(11)]
    limit = _limit(loop, connections)
    with caplog.at_level(logging.WARNING, "uvicorn.error"):
        for _ in range(50):
            loop.pass_second()
            if connections[-1].aborted:
                connections.append(_Connection(11))
        assert len(caplog.messages) == 1
        for _ in range(20):
            loop.pass_second()
    assert len(caplog.messages) == 2
    assert caplog.messages[1].startswith(f"Reset {sum(each.aborted for each in connections) - 1} connection(s)")
    limit.stop()


def test_transport_that_raises_holds_up_no_others(caplog: pytest.LogCaptureFixture) -> None:
    loop = _Loop()
    broken, stuck = _Connection(12), _Connection(11)
    broken.transport.get_extra_info = None
    limit = _limit(loop, [broken, stuck])
    for _ in range(int(GRACE) + 2):
        loop.pass_second()
    assert stuck.aborted
    assert "Cannot close a connection" in caplog.text
    limit.stop()


def test_nobody_is_asked_while_the_process_is_smaller_than_the_limit() -> None:
    loop = _Loop()
    limit = _limit(loop, None, resident=9 * MEBIBYTE)  # type: ignore[arg-type]
    loop.pass_second()
    limit.stop()


def test_zero_is_no_limit() -> None:
    loop = _Loop()
    limit = _limit(loop, [], limit=0)
    assert not loop.later
    limit.stop()


# With clients.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "INTERVAL", 0.02)
    monkeypatch.setattr(buffers, "GRACE", 0.2)


async def _app(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        message: Any = {"type": "websocket.send", "bytes": bytes(PIECE)}
        await asyncio.gather(*(send(message) for _ in range(4)), return_exceptions=True)
        return
    assert scope["type"] == "http"
    count = 1 if scope["path"] == "/short" else 4
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % (count * PIECE))]}
    )
    for left in reversed(range(count)):
        await send({"type": "http.response.body", "body": bytes(PIECE), "more_body": left > 0})


def _client(port: int, request: bytes) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(request)
    return client


GET = b"GET / HTTP/1.1\r\nhost: example.org\r\n\r\n"
OPEN = (
    b"GET / HTTP/1.1\r\nhost: example.org\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("request_bytes", [GET * 3, OPEN], ids=["http", "websocket"])
@pytest.mark.parametrize(
    ("http", "ws", "loop"),
    [("native", "native", "uvloop"), ("httptools", "wsproto", "uvloop"), ("httptools", "websockets-sansio", "asyncio")],
)
def test_clients_that_do_not_read_are_reset_and_others_served(
    http: Any, ws: Any, loop: str, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    if http == "native" and not NATIVE:
        pytest.skip("the native core was not built")

    async def main() -> None:
        config = Config(
            _app,
            port=0,
            http=http,
            ws=ws,
            lifespan="off",
            limit_buffers=6,
            log_config=None,
            ws_per_message_deflate=False,
            metrics="127.0.0.1:0",
        )
        with ExitStack() as stack:
            async with run_server(config) as server:
                port = server_port(server)
                connections = server.server_state.connections
                stuck = [stack.enter_context(_client(port, request_bytes)) for _ in range(4)]
                await wait_until(lambda: sum(buffers.held_by(each)[0] for each in connections) > 6 * MEBIBYTE)
                page = server.server_state.metrics
                assert page is not None
                await wait_until(lambda: page.words[QUEUED_BYTES] - page.words[TAKEN_BYTES] > 6 * MEBIBYTE)
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(GET.replace(b"/ ", b"/short ", 1))
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
                assert head.startswith(b"HTTP/1.1 200")
                assert len(await asyncio.wait_for(reader.readexactly(PIECE), 30)) == PIECE
                writer.close()
                await wait_until(lambda: sum(buffers.held_by(each)[0] for each in connections) <= 6 * MEBIBYTE)
                await wait_until(lambda: "limit_buffers" in caplog.text)
                for client in stuck:
                    client.close()
                await wait_until(lambda: page.words[QUEUED_BYTES] == page.words[TAKEN_BYTES])

    with caplog.at_level(logging.WARNING, "uvicorn.error"):
        if loop == "uvloop":
            pytest.importorskip("uvloop").run(main())
        else:
            asyncio.run(main())


def _frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + payload


def _streams(count: int) -> bytes:
    """Open a connection with windows of 0, and ask so often."""
    encoder = hpack.Encoder()
    fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "example.org")]
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, payload=struct.pack("!HI", 4, 0))
    return data + b"".join(_frame(1, 5, 1 + 2 * number, encoder.encode(fields)) for number in range(count))


@pytest.mark.anyio
@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="no eager tasks: streams of one read all start before the first holds anything"
)
async def test_streams_do_not_start_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    native = pytest.importorskip("uvicorn._native")
    monkeypatch.setattr(buffers, "GRACE", 3600.0)  # nobody is ended
    started = 0

    async def app(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        nonlocal started
        started += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(100_000)})

    config = Config(app, port=0, http="native", http2=True, lifespan="off", limit_buffers=1, log_config=None)
    async with run_server(config) as server:
        port = server_port(server)
        with ExitStack() as stack:
            first = stack.enter_context(_client(port, _streams(50)))
            await wait_until(lambda: native.held_bytes() > MEBIBYTE)
            others = [stack.enter_context(_client(port, _streams(50))) for _ in range(3)]
            await wait_until(lambda: started >= 14)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET.replace(b"host", b"connection: close\r\nhost"))
            assert (await asyncio.wait_for(reader.read(), 30)).startswith(b"HTTP/1.1 200")
            writer.close()
            assert started == 15  # 11 of the first, one of each other, and the neighbour's
            assert native.held_bytes() < 2 * MEBIBYTE
            others.pop().close()
            first.close()
            await wait_until(lambda: started >= 15 + 9)  # there is room again: for 11, and two were there
            for client in others:
                client.close()
        await wait_until(lambda: native.held_bytes() == 0)
