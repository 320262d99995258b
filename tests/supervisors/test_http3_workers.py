"""HTTP/3 and several workers: which of them has a datagram while workers are replaced, killed and upgraded.

The listener is that of `tests.http3_server`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process import ServerProcess, is_gone
from tests.utils import PATIENCE, read_to_end, wait_for

if sys.platform != "linux":
    pytest.skip("HTTP/3 needs Linux", allow_module_level=True)

from tests.listening.test_udp_steering import long, own_id, short
from uvicorn.tls import rustls

if reason := rustls.why_not():
    pytest.skip(reason, allow_module_level=True)

pytestmark = pytest.mark.measures_children

COMMAND = [sys.executable, "-m", "tests.http3_server"]


@pytest.fixture
def certificate(tls_certificate_server_cert_path: str, tls_certificate_private_key_path: str) -> list[str]:
    return ["--ssl-certfile", tls_certificate_server_cert_path, "--ssl-keyfile", tls_certificate_private_key_path]


@contextlib.contextmanager
def running(
    certificate: list[str], *arguments: str, app: str = "tests.http3_server:app", **options: Any
) -> Iterator[ServerProcess]:
    """A server that serves HTTP/3 on all of its event loops."""
    settings = ["--port", "0", "--http3", "--lifespan", "off", "--log-level", "debug", "--no-access-log", *certificate]
    with ServerProcess(app, *settings, *arguments, command=COMMAND, **options) as server:
        server.wait_for("HTTP/3 on UDP port")
        answer(server.port, long(b"12345678"))
        yield server


def answer(port: int, datagram: bytes) -> dict[str, Any]:
    """Which worker has a datagram."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", port))
        client.send(datagram)
        told: dict[str, Any] = json.loads(client.recv(2048))
    assert told["size"] == len(datagram)
    return told


def initial() -> bytes:
    return long(random.randbytes(8))


def workers(port: int, count: int) -> dict[int, dict[str, Any]]:
    """The workers that have new connections, by slot, once there are so many."""
    found: dict[int, dict[str, Any]] = {}

    def look() -> bool:
        found.clear()
        for _ in range(16 * count):
            told = answer(port, initial())
            found[told["slot"]] = told
        return len(found) == count

    wait_for(look)
    return found


def wait_until_gone(pids: set[int]) -> None:
    wait_for(lambda: all(map(is_gone, pids)))


def wait_until_others_accept(port: int, pids: set[int]) -> None:
    wait_for(lambda: answer(port, initial())["pid"] not in pids)


class Newcomers:
    """Clients that open connections one after another.

    Attributes:
        lost: those without an answer.
        ignored: those that reached a worker which accepts no more, so that a real client would have to repeat.
    """

    def __init__(self, port: int) -> None:
        self.lost: list[str] = []
        self.answered = self.ignored = 0
        self._port = port
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._is_over.wait(0.001):
            try:
                self.ignored += answer(self._port, initial())["is_ignored"]
            except OSError as exc:
                self.lost.append(repr(exc))
            self.answered += 1

    def __enter__(self) -> Newcomers:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._is_over.set()
        self._thread.join()


def own(told: dict[str, Any]) -> bytes:
    """A packet of a connection of this worker."""
    return short(own_id(told["slot"], bytes([told["generation"]]) + random.randbytes(9)))


def test_connections_keep_their_worker_and_none_is_lost(
    certificate: list[str], tls_ca_ssl_context: ssl.SSLContext
) -> None:
    with running(certificate, "--workers", "3") as server:
        port = server.port
        first = workers(port, 3)
        assert len({told["pid"] for told in first.values()}) == 3
        assert len({told["secret"] for told in first.values()}) == 1
        for told in first.values():
            assert answer(port, own(told))["pid"] == told["pid"]
            assert answer(port, b"\xe0" + long(own(told)[1:13])[1:])["pid"] == told["pid"]
        assert alt_svc(port, tls_ca_ssl_context) == f'h3=":{port}"'
        with Newcomers(port) as newcomers:
            os.kill(server.pid, signal.SIGHUP)
            wait_until_gone({told["pid"] for told in first.values()})
        assert (newcomers.lost, newcomers.ignored) == ([], 0)
        assert newcomers.answered > 10
        second = workers(port, 3)
        assert {told["pid"] for told in second.values()}.isdisjoint(told["pid"] for told in first.values())
        killed = second[min(second)]
        os.kill(killed["pid"], signal.SIGKILL)
        wait_for(lambda: is_gone(killed["pid"]))
        server.wait_for("killed by SIGKILL")
        # Another worker, or a new one in the same slot, answers for it.
        assert answer(port, own(killed))["pid"] != killed["pid"]
        assert len(workers(port, 3)) == 3
        for count, sig in ((4, signal.SIGTTIN), (3, signal.SIGTTOU)):
            os.kill(server.pid, sig)
            workers(port, count)
        assert server.stop() == 0
        assert "Traceback" not in server.error_output


@pytest.mark.parametrize(
    ("arguments", "count", "upgrades"),
    [
        (("--workers", "2", "--preload"), 2, 1),
        ((), 1, 1),
        pytest.param((), 1, 3, marks=pytest.mark.deep),
        pytest.param(("--workers", "2"), 2, 3, marks=pytest.mark.deep),
        pytest.param(("--threads", "2"), 2, 2, marks=pytest.mark.deep),
    ],
    ids=["forked", "single", "single, more often", "spawned", "threads"],
)
def test_upgrade_loses_no_connection(
    arguments: tuple[str, ...], count: int, upgrades: int, certificate: list[str]
) -> None:
    with running(certificate, *arguments) as server:
        port, pid = server.port, server.pid
        before = workers(port, count)
        for number in range(1, upgrades + 1):
            old = {told["pid"] for told in before.values()}
            with Newcomers(port) as newcomers:
                os.kill(pid, signal.SIGUSR2)
                server.wait_for("Took over from process", count=number)
                wait_until_gone(old - {server.pid})  # the child of this process is not waited for here
                wait_until_others_accept(port, old)
            assert (newcomers.lost, newcomers.ignored) == ([], 0)
            after = workers(port, count)
            assert old.isdisjoint(told["pid"] for told in after.values())
            assert {told["secret"] for told in after.values()} == {told["secret"] for told in before.values()}
            for told in after.values():
                assert answer(port, own(told))["pid"] == told["pid"]
            pid = int(server.wait_for_pattern(r"starting process \[(\d+)\]", count=number)[-1][1])
            before = after
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: is_gone(pid))
        assert "Traceback" not in server.error_output


@pytest.mark.parametrize("arguments", [(), pytest.param(("--workers", "2"), marks=pytest.mark.deep)])
def test_failed_upgrade_changes_nothing(arguments: tuple[str, ...], certificate: list[str], tmp_path: Path) -> None:
    broken, count = tmp_path / "broken", 2 if arguments else 1
    with running(certificate, *arguments, env={"BROKEN_IF_EXISTS": str(broken)}) as server:
        before = workers(server.port, count)
        broken.touch()
        with Newcomers(server.port) as newcomers:
            os.kill(server.pid, signal.SIGUSR2)
            server.wait_for("The upgrade failed")
        broken.unlink()
        assert (newcomers.lost, newcomers.ignored) == ([], 0)
        assert workers(server.port, count) == before
        wait_for(lambda: is_upgraded(server))  # by one that has the slots which the other was to have
        wait_until_others_accept(server.port, {told["pid"] for told in before.values()})
        os.kill(int(server.wait_for_pattern(r"starting process \[(\d+)\]")[-1][1]), signal.SIGTERM)


def is_upgraded(server: ServerProcess) -> bool:
    """Ask for it; until the failed successor has ended that is refused."""
    os.kill(server.pid, signal.SIGUSR2)
    time.sleep(0.05)
    return server.error_output.count("Received SIGUSR2, starting") > 1


def test_packets_wait_while_the_server_reloads(certificate: list[str], tmp_path: Path) -> None:
    (tmp_path / "reloaded.py").write_text("from tests.http3_server import app\n")
    options = ["--reload", "--reload-dir", str(tmp_path), "--app-dir", str(tmp_path)]
    with running(certificate, *options, app="reloaded:app") as server:
        port = server.port
        before = answer(port, initial())
        with Newcomers(port) as newcomers:
            (tmp_path / "reloaded.py").write_text("from tests.http3_server import app  # changed\n")
            wait_for(lambda: answer(port, initial())["pid"] != before["pid"])
        assert newcomers.lost == []
        assert answer(port, own(before))["secret"] == before["secret"]
        server.stop()


def alt_svc(port: int, context: ssl.SSLContext) -> str | None:
    """The field of a response over TLS."""
    plain = socket.create_connection(("127.0.0.1", port), PATIENCE)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        head = read_to_end(client)
    values = [line.partition(b": ")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"alt-svc:")]
    return values[0].decode() if values else None
