"""How many connections there may be, and that their number is right whatever becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import loops, machines
from tests.process import ServerProcess
from tests.utils import open_connection, read_to_end, read_until, server_port, turns, wait_for, wait_until
from uvicorn.config import Config
from uvicorn.listening import connection_limit
from uvicorn.listening.connection_limit import (
    ConnectionLimit,
    ConnectionSlot,
    CountedListener,
    CountedSocket,
    Rejections,
)
from uvicorn.logging.rate_limit import MOST_ADDRESSES
from uvicorn.metrics import page as metrics
from uvicorn.metrics.page import Page
from uvicorn.rules.network import network_of
from uvicorn.server import Server

pytestmark = pytest.mark.anyio

anyio_backend = loops.each
reader = machines.readers

REQUEST = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def entrance_of(counter: ConnectionLimit) -> tuple[CountedListener, list[str]]:
    told: list[str] = []
    return CountedListener(counter, lambda: told.append("room"), lambda: told.append("refused")), told


def enter(listener: CountedListener) -> ConnectionSlot:
    slot = listener.enter()
    assert slot is not None
    return slot


# Counting.


def test_no_more_enter_than_may(caplog: pytest.LogCaptureFixture) -> None:
    listener, told = entrance_of(ConnectionLimit(2))
    first, second = enter(listener), enter(listener)
    assert listener.enter() is None
    assert listener.enter() is None
    assert told == []
    second.leave()
    second.leave()
    assert told == ["room"]
    enter(listener)
    assert listener.enter() is None
    first.leave()
    assert told == ["room", "room"]


def test_all_that_wait_are_told_once() -> None:
    counter = ConnectionLimit(1)
    (one, told_one), (other, told_other) = entrance_of(counter), entrance_of(counter)
    slot = enter(one)
    assert one.enter() is other.enter() is None
    other.close()
    slot.leave()
    enter(one).leave()
    assert (told_one, told_other) == (["room"], [])


def test_lines_about_the_limit_do_not_come_for_each_connection(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    clock = Clock()
    listener, _ = entrance_of(ConnectionLimit(20, clock=clock))
    slots = [enter(listener) for _ in range(20)]
    for _ in range(5):
        assert listener.enter() is None
        slots.pop().leave()
        slots.append(enter(listener))
    reached = "limit_connections=20 reached: further connections wait in the listen backlog."
    assert caplog.messages == [reached]
    for slot in slots[17:]:
        slot.leave()
    room = "Accepting connections again: 18 of limit_connections=20 are open."
    assert caplog.messages == [reached, room]
    slots[17:] = [enter(listener) for _ in range(3)]
    assert listener.enter() is None
    assert caplog.messages == [reached, room]
    clock.now += 10
    assert listener.enter() is None
    assert caplog.messages == [reached, room, reached]


def test_each_address_has_its_own_number() -> None:
    counter = ConnectionLimit(None, 2)
    listener, told = entrance_of(counter)
    slots = [enter(listener) for _ in range(6)]
    hosts = ["192.0.2.1", "192.0.2.1", "192.0.2.2", None, None, None]
    assert [slot.admit(host) for slot, host in zip(slots, hosts, strict=True)] == [True] * 6
    another = enter(listener)
    assert not another.admit("192.0.2.1")
    another.leave()
    slots[0].leave()
    another = enter(listener)
    assert another.admit("192.0.2.1")
    another.leave()
    for slot in slots:
        slot.leave()
    assert (counter.count, counter.addresses) == (0, 0)
    assert told == ["refused"]


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("testclient", "testclient"),
    ],
)
def test_what_counts_as_one_address(host: str, network: str) -> None:
    assert network_of(host) == network


def test_one_line_for_an_address_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """D10"""
    clock = Clock()
    counter = ConnectionLimit(None, 1, clock)
    listener, _ = entrance_of(counter)

    def refuse(host: str) -> None:
        slot = enter(listener)
        assert not slot.admit(host)
        slot.leave()

    assert enter(listener).admit("192.0.2.1") and enter(listener).admit("2001:db8::1")
    for _ in range(3):
        refuse("192.0.2.1")
        refuse("2001:db8::2")
    text = "limit_connections_per_address=1 reached by %s: closing its further connections."
    assert caplog.messages == [text % "192.0.2.1", text % "2001:db8::/64"]
    clock.now += 10
    refuse("192.0.2.1")
    assert caplog.messages[2:] == [text % "192.0.2.1"]
    clock.now += 5
    refuse("192.0.2.1")
    assert len(caplog.messages) == 3


def test_what_is_remembered_for_lines_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """D10"""
    clock = Clock()
    counter = ConnectionLimit(None, 1, clock)
    listener, _ = entrance_of(counter)
    for number in range(MOST_ADDRESSES + 100):
        host = f"10.0.{number >> 8}.{number & 255}"
        assert enter(listener).admit(host)
        assert not enter(listener).admit(host)
    assert len(caplog.messages) == len(counter._log_limit) == MOST_ADDRESSES
    clock.now += 10
    assert not enter(listener).admit("10.0.4.80")
    assert len(caplog.messages) == MOST_ADDRESSES + 1
    assert len(counter._log_limit) == 1


class Handler(logging.Handler):
    """Looks, with each line, whether others can go on."""

    def __init__(self, counter: ConnectionLimit) -> None:
        super().__init__()
        self.connection_limit = counter
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert not self.connection_limit._lock.locked()
        self.lines.append(record.getMessage())


def test_nobody_waits_for_a_line_to_be_written() -> None:
    """D10"""
    counter = ConnectionLimit(2, 1)
    listener, _ = entrance_of(counter)
    handler = Handler(counter)
    logger, level = connection_limit.logger, connection_limit.logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        first, second = enter(listener), enter(listener)
        assert listener.enter() is None
        assert first.admit("192.0.2.1")
        assert not second.admit("192.0.2.1")
        second.leave()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert [line.split()[0] for line in handler.lines] == [
        "limit_connections=2",
        "limit_connections_per_address=1",
        "Accepting",
    ]


def test_who_leaves_in_the_middle_of_what_others_do_is_counted_no_more() -> None:
    """As what the collector runs does."""
    slots: list[ConnectionSlot] = []

    def clock() -> float:
        if slots:
            slots.pop().leave()
        return 100.0

    counter = ConnectionLimit(2, 1, clock)
    listener, told = entrance_of(counter)
    gone, stays = enter(listener), enter(listener)
    assert gone.admit("192.0.2.1") and stays.admit("192.0.2.2")
    slots.append(gone)
    assert listener.enter() is None
    assert (told, counter.count, counter.addresses) == (["room"], 1, 1)
    assert enter(listener).admit("192.0.2.1")


def test_threads_that_come_and_go_are_counted() -> None:
    counter = ConnectionLimit(3, 2)

    def come_and_go() -> None:
        listener, _ = entrance_of(counter)
        for number in range(2000):
            slot = listener.enter()
            if slot is not None:
                slot.admit(f"192.0.2.{number % 2}")
                slot.leave()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counter.count, counter.addresses) == (0, 0)


def test_a_socket_counts_until_its_descriptor_is_not_ours() -> None:
    counter = ConnectionLimit(2)
    listener, _ = entrance_of(counter)
    for end in (CountedSocket.close, CountedSocket.detach):
        ours, theirs = socket.socketpair()
        with theirs:
            counted = CountedSocket.take(ours, enter(listener))
            assert (counted.family, counted.type) == (theirs.family, theirs.type)
            assert counter.count == 1
            descriptor = end(counted)
            end(counted)
            assert counter.count == 0
            if descriptor is not None:
                socket.close(descriptor)


def test_a_socket_that_nobody_has_closed_counts_until_it_is_collected() -> None:
    counter = ConnectionLimit(2)
    listener, _ = entrance_of(counter)
    ours, theirs = socket.socketpair()
    with theirs:
        counted = CountedSocket.take(ours, enter(listener))
        assert counter.count == 1
        with pytest.warns(ResourceWarning):
            del counted
            gc.collect()
        assert counter.count == 0
        assert theirs.recv(1) == b""


def test_connections_that_linger_make_room_but_not_for_ever() -> None:
    """D10"""
    counter = ConnectionLimit(2)
    listener, told = entrance_of(counter)
    first, second = enter(listener), enter(listener)
    assert listener.enter() is None
    first.linger()
    first.linger()
    assert (counter.count, told) == (1, ["room"])
    third = enter(listener)
    third.linger()
    fourth = enter(listener)
    fourth.linger()
    assert counter.count == 2, "as many linger as may be there"
    assert listener.enter() is None
    first.leave()
    assert counter.count == 2
    fourth.linger()
    assert counter.count == 1
    for slot in (second, third, fourth):
        slot.leave()
    assert (counter.count, counter._lingering.total) == (0, 0)


def test_of_one_address_no_more_linger_than_may_be_there() -> None:
    """D10"""
    counter = ConnectionLimit(None, 1)
    listener, _ = entrance_of(counter)
    first, second, other = (enter(listener) for _ in range(3))
    assert first.admit("192.0.2.1")
    first.linger()
    assert second.admit("192.0.2.1")
    second.linger()
    assert not enter(listener).admit("192.0.2.1")
    assert other.admit("192.0.2.2")
    other.linger()
    assert counter.addresses == 1
    for slot in (first, second, other):
        slot.leave()
    assert (counter.addresses, counter._lingering.by_address) == (0, {})


# Servers.


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    if scope["path"] == "/wait":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[tuple[Server, ConnectionLimit]]:
    """A server that counts; nothing is left of its connections in the end."""
    config = Config(**{"app": app, "port": 0, "log_config": None, "lifespan": "off", **settings})
    server = Server(config)
    server.metrics_page = Page.make()
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started)
    assert server.connection_limit is not None
    try:
        yield server, server.connection_limit
        await wait_until(
            lambda: (
                server.connection_limit is not None
                and (server.connection_limit.count, server.connection_limit.addresses) == (0, 0)
            )
        )
    finally:
        server.should_exit = True
        await task


class Client:
    """One connection."""

    def __init__(self, server: Server, *said: bytes) -> None:
        self.socket = open_connection(("127.0.0.1", server_port(server)), b"".join(said))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    async def reads(self, marker: bytes) -> bytes:
        return await asyncio.to_thread(read_until, self.socket, marker)

    async def reads_to_end(self) -> bytes:
        return await asyncio.to_thread(read_to_end, self.socket)

    def has_answer(self) -> bool:
        self.socket.setblocking(False)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            self.socket.settimeout(10)


async def test_connections_above_the_limit_wait(http_protocol_cls: Any, reader: str) -> None:
    async with serving(limit_connections=2, http=http_protocol_cls) as (server, counter):
        with Client(server, REQUEST) as first, Client(server, REQUEST) as second:
            await first.reads(b"hello")
            await second.reads(b"hello")
            with Client(server, REQUEST) as third, Client(server, REQUEST) as fourth:
                # Whoever is there is served on.
                for _ in range(3):
                    first.socket.sendall(REQUEST)
                    await first.reads(b"hello")
                assert counter.count == 2
                assert not third.has_answer() and not fourth.has_answer()
                first.socket.close()
                await third.reads(b"hello")
                assert counter.count == 2
                assert not fourth.has_answer()
                second.socket.close()
                await fourth.reads(b"hello")


@pytest.mark.parametrize("limit", ["limit_connections", "limit_connections_per_address", "limit_concurrency"])
async def test_connections_that_linger_leave_their_place_to_others(
    http_protocol_cls: Any, reader: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10: clients that are far away, or do not end at once, though the server has."""
    monkeypatch.setattr("uvicorn.rules.limits.LAST_REQUEST_SECONDS", 3600.0)
    is_python = reader == "python" and type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    if is_python and limit != "limit_concurrency":
        pytest.skip("uvloop ends the output below Python")
    others = {} if limit != "limit_concurrency" else {"limit_connections": 1000}
    async with serving(**{limit: 2}, **others, http=http_protocol_cls) as (server, _):
        with contextlib.ExitStack() as stack:
            for _ in range(2):
                client = stack.enter_context(Client(server, b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"))
                assert (await client.reads_to_end()).endswith(b"hello")
            await wait_until(lambda: len(server.server_state.lingering) == 2)
            assert len(server.server_state.connections) == 2
            client = stack.enter_context(Client(server, REQUEST))
            await client.reads(b"hello")
            if limit == "limit_concurrency":
                with Client(server, REQUEST) as refused:
                    assert b" 503 " in await refused.reads(b"\r\n")
        await wait_until(lambda: not server.server_state.connections)
        assert not server.server_state.lingering


async def send_much(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(32 * 1024 * 1024)})


async def test_connection_leaves_its_place_as_soon_as_the_kernel_has_its_response(
    http_protocol_cls: Any, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIM-01: large responses kept it until the connection was looked at again."""
    monkeypatch.setattr("uvicorn.rules.limits.LAST_REQUEST_SECONDS", 3600.0)
    settings: Any = {"limit_concurrency": 2, "limit_connections": 1000}
    async with serving(app=send_much, **settings, http=http_protocol_cls) as (server, _):
        state = server.server_state
        with Client(server, b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n") as client:
            await wait_until(lambda: state.total_requests == 1)
            assert not state.lingering
            await client.reads_to_end()
            await wait_until(lambda: len(state.lingering) == 1)
            assert len(state.connections) == 1
        await wait_until(lambda: not state.connections)
        assert not state.lingering


async def test_connection_keeps_its_place_until_the_kernel_has_its_response(
    http_protocol_cls: Any, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10: clients that do not read made a process hold three times as many responses as the limit allows."""
    monkeypatch.setattr("uvicorn.rules.limits.LAST_REQUEST_SECONDS", 0.05)
    async with serving(app=send_much, limit_connections=2, http=http_protocol_cls) as (server, counter):
        state = server.server_state
        with Client(server, b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n") as client:
            await wait_until(lambda: state.total_requests == 1)
            await asyncio.sleep(0.2)  # the next look at it
            assert (counter.count, counter._lingering.total, len(state.lingering)) == (1, 0, 0)
            assert state.is_full(1)
            await client.reads_to_end()
        await wait_until(lambda: not state.connections)
        assert not state.lingering


async def test_connections_that_wait_do_not_hold_up_the_end(reader: str) -> None:
    async with serving(limit_connections=1) as (server, _):
        first = Client(server, REQUEST)
        await first.reads(b"hello")
        second = Client(server, REQUEST)
        server.should_exit = True
        await first.reads_to_end()
        await second.reads_to_end()
        first.socket.close()
        second.socket.close()


async def test_connections_of_an_address_above_the_limit_are_refused(http_protocol_cls: Any, reader: str) -> None:
    """D10"""
    async with serving(limit_connections_per_address=2, http=http_protocol_cls) as (server, counter):
        with Client(server, REQUEST) as first, Client(server, REQUEST) as second:
            await first.reads(b"hello")
            await second.reads(b"hello")
            for said in (REQUEST, b""):
                with Client(server, said) as third:
                    answer = await third.reads_to_end()
                    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
                    head, _, body = answer.partition(b"\r\n\r\n")
                    assert f"content-length: {len(body)}\r\n".encode() in head
            with Client(server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") as third:
                await wait_until(lambda: counter.count == 2)
                assert await third.reads_to_end() in (b"", answer)
            first.socket.sendall(REQUEST)
            await first.reads(b"hello")
            assert server.metrics_page is not None
            assert server.metrics_page.words[metrics.REFUSED] == 3
            first.socket.close()
            await wait_until(lambda: counter.count == 1)
            with Client(server, REQUEST) as third:
                await third.reads(b"hello")


@pytest.mark.parametrize("header", [b"", b"PROXY TCP4 192.0.2.1 192.0.2.9 1 2\r\n"])
async def test_who_is_refused_can_read_why(reader: str, header: bytes) -> None:
    """What it sends meanwhile is not answered with a reset, which would take the answer with it."""
    async with serving(limit_connections_per_address=1, proxy_protocol=bool(header)) as (server, counter):
        with Client(server, header + REQUEST) as first:
            await first.reads(b"hello")
            with Client(server, header) as second:
                await asyncio.to_thread(second.socket.recv, 1, socket.MSG_PEEK)
                await wait_until(lambda: counter.count == 1)
                for _ in range(3):
                    second.socket.sendall(REQUEST)
                    await turns()
                assert (await second.reads_to_end()).endswith(b"Too many connections from your address.\r\n")


async def test_few_of_who_is_refused_stay(reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """D10"""
    monkeypatch.setattr(connection_limit, "MOST_REJECTIONS", 2)
    all_rejections: list[Rejections] = []
    begin = Rejections.__init__

    def note(rejections: Rejections, loop: asyncio.AbstractEventLoop) -> None:
        begin(rejections, loop)
        all_rejections.append(rejections)

    monkeypatch.setattr(Rejections, "__init__", note)
    async with serving(limit_connections_per_address=1) as (server, counter):
        [rejections] = all_rejections
        with Client(server, REQUEST) as first:
            await first.reads(b"hello")
            with contextlib.ExitStack() as stack:
                for _ in range(4):
                    refused = stack.enter_context(Client(server))
                    assert (await refused.reads_to_end()).startswith(b"HTTP/1.1 503 ")
                await wait_until(lambda: counter.count == 1)
                assert len(rejections) == 2
            # Who closes goes at once.
            await wait_until(lambda: len(rejections) == 0)
            with Client(server) as refused:
                await refused.reads_to_end()
                refused.socket.sendall(bytes(connection_limit.ASKED))
                await wait_until(lambda: len(rejections) == 0)
            monkeypatch.setattr(connection_limit, "LAST_MOMENT", 0.05)
            with Client(server) as refused:
                await refused.reads_to_end()
                await wait_until(lambda: len(rejections) == 0)
            monkeypatch.setattr(connection_limit, "LAST_MOMENT", 300)
            with Client(server) as last:
                await last.reads_to_end()
                await wait_until(lambda: len(rejections) == 1)
                first.socket.close()
                server.should_exit = True
                await wait_until(lambda: len(rejections) == 0)


async def test_nobody_stays_when_the_server_has_ended() -> None:
    rejections = Rejections(asyncio.get_running_loop())
    rejections.close()
    ours, theirs = socket.socketpair()
    with theirs:
        rejections.tell(ours)
        assert (ours.fileno(), len(rejections)) == (-1, 0)
        assert theirs.recv(1024) == connection_limit.TURNED_AWAY


async def test_addresses_are_those_that_a_proxy_tells_of(reader: str) -> None:
    """D10"""
    settings = {"limit_connections_per_address": 1, "proxy_protocol": True}
    async with serving(**settings) as (server, _):
        said = b"PROXY TCP4 192.0.2.%d 192.0.2.9 1 2\r\n" + REQUEST
        with Client(server, said % 1) as first, Client(server, said % 2) as second:
            await first.reads(b"hello")
            await second.reads(b"hello")
            with Client(server, said % 1) as third:
                assert (await third.reads_to_end()).startswith(b"HTTP/1.1 503 ")


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
async def test_peers_of_a_unix_socket_have_no_address(reader: str, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with serving(limit_connections_per_address=1, uds=path) as (_, counter):
        clients = [open_connection(path, REQUEST) for _ in range(3)]
        for client in clients:
            await asyncio.to_thread(read_until, client, b"hello")
        assert (counter.count, counter.addresses) == (3, 0)
        for client in clients:
            client.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
async def test_peers_of_a_unix_socket_have_the_address_that_a_proxy_tells_of(reader: str, tmp_path: Path) -> None:
    """D10"""
    path = str(tmp_path / "s")
    async with serving(limit_connections_per_address=1, proxy_protocol=True, uds=path):
        said = b"PROXY TCP6 2001:db8::%d ::1 1 2\r\n" + REQUEST
        with open_connection(path, said % 1) as first, open_connection(path, said % 2) as second:
            await asyncio.to_thread(read_until, first, b"hello")
            assert (await asyncio.to_thread(read_to_end, second)).startswith(b"HTTP/1.1 503 ")


async def test_nothing_is_said_where_a_handshake_is_expected(
    reader: str, tls_certificate_server_cert_path: str, tls_certificate_private_key_path: str
) -> None:
    files = {"ssl_certfile": tls_certificate_server_cert_path, "ssl_keyfile": tls_certificate_private_key_path}
    async with serving(limit_connections_per_address=1, **files) as (server, counter):
        with Client(server) as first:
            await wait_until(lambda: counter.count == 1)
            with Client(server) as second:
                assert await second.reads_to_end() == b""
            first.socket.sendall(b"no handshake at all, whichever way one looks at it\r\n")
            await first.reads_to_end()


def cut(client: Client) -> None:
    """Reset it."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.socket.close()


def close(client: Client) -> None:
    client.socket.close()


STATES = {
    "nothing": b"",
    "half a head": REQUEST[:9],
    "no request": b"no request\r\n\r\n",
    "idle": REQUEST,
    "being answered": b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n",
    "many waiting": b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n" + REQUEST * 20,
    "half a body": b"POST /wait HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf",
    "websocket": b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "half a preface": b"PRI * HTTP",
    "a preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("end", [cut, close])
async def test_connections_that_end_in_any_state_are_over(
    end: Callable[[Client], None], http_protocol_cls: Any, reader: str, subtests: pytest.Subtests
) -> None:
    settings = {"limit_connections": 9, "limit_connections_per_address": 5, "http": http_protocol_cls}
    if "native" in http_protocol_cls.__module__:
        settings["http2"] = True
    for state, data in STATES.items():
        with subtests.test(state):
            async with serving(**settings) as (server, counter):
                clients = [Client(server, data) for _ in range(3)]
                # Of those that are refused the output has ended.
                await wait_until(
                    lambda: counter.count + counter._lingering.total == 3 or state == "no request"  # noqa: B023
                )
                for client in clients:
                    end(client)


@pytest.mark.parametrize("end", [cut, close])
@pytest.mark.parametrize(
    "said", [b"", b"PROXY ", b"PROXY TCP4 192.0.2.1 192.0.2.9 1 2\r\n", b"PROXY UNKNOWN\r\n\x16\x03\x01", b"nonsense"]
)
async def test_connections_that_end_before_they_are_open_are_over(
    said: bytes,
    end: Callable[[Client], None],
    reader: str,
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_path: str,
) -> None:
    files = {"ssl_certfile": tls_certificate_server_cert_path, "ssl_keyfile": tls_certificate_private_key_path}
    limits = {"limit_connections": 9, "limit_connections_per_address": 5}
    async with serving(proxy_protocol=True, **limits, **files) as (server, counter):
        clients = [Client(server, said) for _ in range(3)]
        await wait_until(lambda: counter.count == 3 or said == b"nonsense")
        for client in clients:
            end(client)


@pytest.mark.parametrize("kind", [RuntimeError, OSError])
async def test_a_protocol_that_cannot_be_made_is_no_connection(kind: type[Exception], reader: str) -> None:
    """And that it cannot is told, whatever the reason."""

    class Failing(asyncio.Protocol):
        def __init__(self, **arguments: Any) -> None:
            raise kind("on purpose")

    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    async with serving(limit_connections=2, http=Failing) as (server, _):
        for _ in range(4):
            with Client(server, REQUEST) as client, contextlib.suppress(ConnectionResetError):
                assert await client.reads_to_end() == b""
        await wait_until(lambda: len(told) == 4)
    assert {type(exception) for exception in told} == {kind}


async def test_without_a_limit_nothing_is_counted() -> None:
    server = Server(Config(app, port=0, log_config=None, lifespan="off"))
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started)
    assert server.connection_limit is None
    server.should_exit = True
    await task


@pytest.mark.parametrize("name", ["limit_connections", "limit_connections_per_address"])
def test_a_limit_of_none_at_all_is_a_mistake(name: str) -> None:
    settings: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match="leave it out for no limit"):
        Config(app, **settings)


def test_answer_is_well_formed() -> None:
    head, _, body = connection_limit.TURNED_AWAY.partition(b"\r\n\r\n")
    assert b"\r\ncontent-length: %d\r\n" % len(body) in head


def accepts(address: tuple[str, int]) -> bool:
    try:
        open_connection(address).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.measures_children
def test_event_loops_of_a_process_count_together(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(
        "async def app(scope, receive, send):\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-length', b'5')]})\n"
        "    await send({'type': 'http.response.body', 'body': b'hello'})\n"
    )
    limits = ("--limit-connections", "3")
    arguments = ("hello:app", "--port", "0", "--lifespan", "off", "--threads", "2", *limits)
    with ServerProcess(*arguments, cwd=tmp_path) as server:
        address = ("127.0.0.1", server.port)
        wait_for(lambda: accepts(address))
        clients = [open_connection(address, REQUEST) for _ in range(3)]
        for client in clients:
            read_until(client, b"hello")
        more = [open_connection(address, REQUEST) for _ in range(3)]
        server.wait_for("limit_connections=3 reached: further connections wait in the listen backlog.")
        for old in clients:
            old.sendall(REQUEST)
            read_until(old, b"hello")
            old.close()
        for new in more:
            read_until(new, b"hello")
        for new in more:
            new.close()
        server.wait_for("Accepting connections again")
