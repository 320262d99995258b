from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import loops
from tests.process import ServerProcess
from tests.utils import open_connection, read_to_end, read_until, request, wait_for, wait_until
from uvicorn._compat import asyncio_run
from uvicorn.listening import acceptor
from uvicorn.listening.acceptor import Acceptor, WatchedServer

pytestmark = pytest.mark.anyio

anyloop = loops.factory


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="uvicorn.error")
    return caplog


@pytest.fixture
def anyio_backend() -> object:
    return "asyncio", {"loop_factory": asyncio.SelectorEventLoop}


class Faulty(socket.socket):
    """A listening socket whose next `accept` calls fail."""

    failures: list[int]

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            raise OSError(self.failures.pop(0), "as told")
        return super().accept()


@pytest.fixture
def sock() -> Iterator[Faulty]:
    with Faulty() as bound:
        bound.failures = []
        bound.bind(("127.0.0.1", 0))
        yield bound


class Recorder(asyncio.Protocol):
    made: list[asyncio.BaseTransport]
    lost: list[Exception | None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.append(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    @classmethod
    async def all_closed(cls) -> None:
        """Close the connections, and return once they are, for tests whose loop ends."""
        for transport in cls.made:
            transport.close()
        await wait_until(lambda: len(cls.lost) == len(cls.made))


@pytest.fixture
def protocol(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Recorder]]:
    monkeypatch.setattr(Recorder, "made", [], raising=False)
    monkeypatch.setattr(Recorder, "lost", [], raising=False)
    yield Recorder
    for transport in Recorder.made:
        transport.close()


async def test_connections_are_accepted_until_it_is_closed(sock: Faulty, protocol: type[Recorder]) -> None:
    server = Acceptor(sock, protocol, backlog=5)
    address = sock.getsockname()
    assert server.is_serving()
    assert server.sockets[0] is sock
    assert server.get_loop() is asyncio.get_running_loop()
    await server.start_serving()
    with open_connection(address):
        await wait_until(lambda: protocol.made)
    server.close()
    server.close()
    await server.wait_closed()
    assert not server.is_serving()
    assert not server.sockets
    with pytest.raises(ConnectionRefusedError):
        open_connection(address)


async def test_small_writes_leave_at_once(sock: Faulty, protocol: type[Recorder]) -> None:
    """The second of two would wait for the client's ACK of the first, which comes after 40 ms."""
    listener = Acceptor(sock, protocol, backlog=10)
    await listener.start_serving()
    with open_connection(sock.getsockname()):
        await wait_until(lambda: protocol.made)
        accepted = protocol.made[0].get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    listener.close()


async def test_serve_forever_closes_when_cancelled(sock: Faulty, protocol: type[Recorder]) -> None:
    server = Acceptor(sock, protocol, backlog=5)
    task = asyncio.create_task(server.serve_forever())
    address = sock.getsockname()
    await asyncio.sleep(0)
    with open_connection(address):
        await wait_until(lambda: protocol.made)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not server.is_serving()


async def test_one_turn_of_the_loop_accepts_a_batch(
    sock: Faulty, protocol: type[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "BATCH", 2)
    server = Acceptor(sock, protocol, backlog=10)
    await server.start_serving()
    clients = [open_connection(sock.getsockname()) for _ in range(5)]
    await wait_until(lambda: len(protocol.made) == 5)
    for client in clients:
        client.close()
    server.close()


async def test_shortage_of_descriptors_makes_the_socket_rest(
    sock: Faulty, protocol: type[Recorder], log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D9"""
    monkeypatch.setattr(acceptor, "RETRY_DELAY", 0.01)
    sock.failures = [errno.EMFILE] * 3 + [errno.ENFILE]
    server = Acceptor(sock, protocol, backlog=5)
    await server.start_serving()
    with open_connection(sock.getsockname()):
        await wait_until(lambda: protocol.made)
    assert sock.failures == []
    assert [record.getMessage() for record in log.records] == [
        f"Cannot accept new connections: [Errno {errno.EMFILE}] as told. Waiting for connections to close."
    ]
    server.close()


async def test_closing_while_it_rests_stays_closed(
    sock: Faulty, protocol: type[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D9"""
    sock.failures = [errno.EMFILE]
    server = Acceptor(sock, protocol, backlog=5)
    await server.start_serving()
    with open_connection(sock.getsockname()):
        await wait_until(lambda: not sock.failures)
        server.close()
    server._resume()  # the timer had been due in the same turn
    assert protocol.made == []


async def test_connection_lost_in_the_queue_is_skipped(
    sock: Faulty, protocol: type[Recorder], log: pytest.LogCaptureFixture
) -> None:
    sock.failures = [errno.ECONNABORTED, errno.EPROTO]
    server = Acceptor(sock, protocol, backlog=5)
    await server.start_serving()
    with open_connection(sock.getsockname()):
        await wait_until(lambda: protocol.made)
    assert log.records == []
    server.close()


async def test_any_other_error_is_tried_again(
    sock: Faulty, protocol: type[Recorder], log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "RETRY_DELAY", 0.01)
    sock.failures = [errno.EIO]
    server = Acceptor(sock, protocol, backlog=5)
    await server.start_serving()
    with open_connection(sock.getsockname()):
        await wait_until(lambda: protocol.made)
    assert log.messages == [f"Cannot accept new connections: [Errno {errno.EIO}] as told. Trying again."]
    server.close()


@pytest.mark.parametrize("rests", [False, True])
async def test_socket_that_its_owner_has_closed_can_be_closed(
    sock: Faulty, protocol: type[Recorder], log: pytest.LogCaptureFixture, rests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program closes the socket that it gave to the server: shutdown continues and logs nothing."""
    monkeypatch.setattr(acceptor, "RETRY_DELAY", 0.05)
    server = Acceptor(sock, protocol, backlog=10)
    await server.start_serving()
    if rests:
        sock.failures.append(errno.EMFILE)
        open_connection(sock.getsockname()).close()
        await wait_until(lambda: server._retry)
        log.clear()
    sock.close()
    await wait_until(lambda: server._retry is None)
    server.close()
    await server.wait_closed()
    assert not server.is_serving()
    assert not log.messages


async def test_protocol_that_cannot_be_made_closes_the_connection(sock: Faulty) -> None:
    def broken() -> asyncio.Protocol:
        raise RuntimeError("no protocol")

    loop = asyncio.get_running_loop()
    reported: list[dict[str, object]] = []
    loop.set_exception_handler(lambda loop, context: reported.append(context))
    server = Acceptor(sock, broken, backlog=5)
    await server.start_serving()
    with open_connection(sock.getsockname()) as client:
        assert await asyncio.to_thread(read_to_end, client) == b""
    server.close()
    await server.wait_closed()
    import gc

    gc.collect()
    assert [str(context["exception"]) for context in reported] == ["no protocol"]


@pytest.fixture
def context(tls_certificate_key_and_chain_path: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls_certificate_key_and_chain_path)
    return context


async def test_handshake_has_a_deadline(
    sock: Faulty, protocol: type[Recorder], context: ssl.SSLContext, log: pytest.LogCaptureFixture
) -> None:
    """D1"""
    server = Acceptor(sock, protocol, backlog=5, context=context, handshake_timeout=0.05)
    await server.start_serving()
    with open_connection(sock.getsockname()) as client:
        assert await asyncio.to_thread(read_to_end, client) == b""
    assert protocol.made == []
    assert [record.levelname for record in log.records] == ["DEBUG"]
    server.close()


async def test_plain_http_on_a_tls_socket_is_closed_quietly(
    sock: Faulty, protocol: type[Recorder], context: ssl.SSLContext, log: pytest.LogCaptureFixture
) -> None:
    """TLS-05"""
    server = Acceptor(sock, protocol, backlog=5, context=context, handshake_timeout=10)
    await server.start_serving()
    with open_connection(sock.getsockname(), b"GET / HTTP/1.1\r\nhost: a\r\n\r\n") as client:
        await asyncio.to_thread(read_to_end, client)
    await wait_until(lambda: log.records)
    assert protocol.made == []
    assert [record.levelname for record in log.records] == ["DEBUG"]
    server.close()


async def test_closing_ends_handshakes_in_progress_soon(
    sock: Faulty, protocol: type[Recorder], context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIFE-13"""
    monkeypatch.setattr(acceptor, "OPENING_GRACE", 0.02)
    server = Acceptor(sock, protocol, backlog=5, context=context, handshake_timeout=60)
    await server.start_serving()
    with open_connection(sock.getsockname()) as client:
        await wait_until(lambda: server._opening)
        server.close()
        await asyncio.wait_for(server.wait_closed(), 10)
        assert await asyncio.to_thread(read_to_end, client) == b""


async def test_connection_that_was_accepted_before_closing_is_served(
    sock: Faulty, protocol: type[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIFE-13"""
    monkeypatch.setattr(acceptor, "OPENING_GRACE", 30)
    server = Acceptor(sock, protocol, backlog=5)
    await server.start_serving()
    with open_connection(sock.getsockname()):
        server._accept()
        server.close()
        assert protocol.made == []
        await asyncio.wait_for(server.wait_closed(), 10)
        (transport,) = protocol.made
        assert not transport.is_closing()
        transport.close()


async def test_handshake_in_progress_may_be_completed_after_closing(
    sock: Faulty,
    protocol: type[Recorder],
    context: ssl.SSLContext,
    tls_ca_ssl_context: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIFE-13"""
    monkeypatch.setattr(acceptor, "OPENING_GRACE", 30)
    server = Acceptor(sock, protocol, backlog=5, context=context, handshake_timeout=60)
    await server.start_serving()
    with open_connection(sock.getsockname()) as client:
        await wait_until(lambda: server._opening)
        server.close()
        secure = await asyncio.to_thread(tls_ca_ssl_context.wrap_socket, client, server_hostname="localhost")
        await asyncio.wait_for(server.wait_closed(), 10)
        (transport,) = protocol.made
        transport.close()
        secure.close()


async def test_closed_acceptor_cannot_start(sock: Faulty, protocol: type[Recorder]) -> None:
    server = Acceptor(sock, protocol, backlog=5)
    server._loop.add_reader(sock.fileno(), lambda: None)
    server.close()
    with pytest.raises(AssertionError):
        await server.start_serving()


# A loop that accepts below Python


async def watched(sock: Faulty, protocol: type[Recorder]) -> WatchedServer:
    # The test's socket object stays open: what a loop's server does with it is not the question.
    bound = socket.socket(fileno=os.dup(sock.fileno()))
    server = await asyncio.get_running_loop().create_server(protocol, sock=bound)
    return WatchedServer(server, bound)


class Descriptors:
    """Stands for `os` in the module, without descriptors for the next `shortages` times."""

    close = staticmethod(os.close)

    def __init__(self) -> None:
        self.shortages = 0
        self.was_asked = False

    def dup(self, descriptor: int) -> int:
        self.was_asked = True
        if self.shortages:
            self.shortages -= 1
            raise OSError(errno.EMFILE, "as told")
        return os.dup(descriptor)


@pytest.fixture
def descriptors(monkeypatch: pytest.MonkeyPatch) -> Descriptors:
    descriptors = Descriptors()
    monkeypatch.setattr(acceptor, "os", descriptors)
    monkeypatch.setattr(acceptor, "WATCH_INTERVAL", 0.01)
    return descriptors


def test_shortage_is_said_once(
    sock: Faulty,
    protocol: type[Recorder],
    log: pytest.LogCaptureFixture,
    descriptors: Descriptors,
    anyloop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """D9"""

    async def main() -> None:
        server = await watched(sock, protocol)
        descriptors.shortages = 3
        while descriptors.shortages:
            descriptors.was_asked = False
            with open_connection(sock.getsockname()):
                await wait_until(lambda: descriptors.was_asked)
        assert log.messages == [
            f"Cannot accept new connections: [Errno {errno.EMFILE}] as told. They are closed at once until others end."
        ]
        server.close()
        await protocol.all_closed()
        await server.wait_closed()

    asyncio_run(main(), loop_factory=anyloop)


@pytest.mark.parametrize("when", ["watching", "resting"])
def test_watched_server_is_the_server(
    sock: Faulty,
    protocol: type[Recorder],
    descriptors: Descriptors,
    anyloop: Callable[[], asyncio.AbstractEventLoop],
    when: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        server = await watched(sock, protocol)
        task = asyncio.create_task(server.serve_forever())
        await wait_until(server.is_serving)
        assert server.sockets[0].getsockname() == sock.getsockname()
        assert server.get_loop() is asyncio.get_running_loop()
        if when == "resting":
            monkeypatch.setattr(acceptor, "WATCH_INTERVAL", 3600)
            with open_connection(sock.getsockname()):
                await wait_until(lambda: descriptors.was_asked and protocol.made)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.close()
        assert not server.is_serving()
        await protocol.all_closed()

    asyncio_run(main(), loop_factory=anyloop)


# For real

APP = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""

WITH_FEW_DESCRIPTORS = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
sys.argv = ["uvicorn", *sys.argv[1:]]
runpy.run_module("uvicorn", run_name="__main__")
"""


@pytest.mark.measures_children
@pytest.mark.skipif(sys.platform == "win32", reason="descriptors are not limited like this on Windows")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_server_out_of_descriptors_serves_on_and_recovers(tmp_path: Path, loop: str) -> None:
    """D9"""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "start.py").write_text(WITH_FEW_DESCRIPTORS)
    command = [sys.executable, str(tmp_path / "start.py")]
    with ServerProcess("app:app", "--port", "0", "--loop", loop, cwd=tmp_path, command=command) as server:
        address = server.address
        assert _answers(address)
        clients = [open_connection(address) for _ in range(60)]
        server.wait_for(f"Cannot accept new connections: [Errno {errno.EMFILE}] ")
        get = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"
        clients[0].sendall(get)
        assert b"200 OK" in read_until(clients[0], b"\r\n\r\nok")
        for client in clients:
            client.close()
        wait_for(lambda: _answers(address))
        assert server.error_output.count("Cannot accept") == 1
        assert server.error_output.count("\n") < 20, server.error_output
        assert "Traceback" not in server.error_output


def _answers(address: tuple[str, int]) -> bool:
    try:
        return request(address).endswith(b"ok")
    except OSError:
        return False
