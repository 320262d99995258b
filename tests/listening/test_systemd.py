"""What systemd tells a service, and is told by it: sockets, readiness, the watchdog."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import APP_BEGINS, ServerProcess
from tests.utils import PATIENCE, wait_for
from uvicorn.listening.systemd import Notifier, Reloads, State, passed_descriptors

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="there is no such service manager on Windows"),
    pytest.mark.measures_children,
]

APP = (
    """
import os, time
"""
    + APP_BEGINS
    + """    if scope["path"] == "/block":
        open("blocked", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.01)
    known = " ".join(name for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC") if name in os.environ)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"known: " + known.encode()})
"""
)

INTERVAL = 0.1
"""Seconds between two signs of life in these tests."""


class Manager:
    """The end of a service manager that listens; a datagram is a message."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self.address)
        self.sock.settimeout(PATIENCE)

    def next(self) -> str:
        """The next message that is no sign of life."""
        while (text := self.sock.recv(4096).decode()) == "WATCHDOG=1":
            pass
        return text

    def has_beaten(self) -> None:
        """Return when there has been another sign of life."""
        while self.sock.recv(4096) != b"WATCHDOG=1":
            pass

    def drain(self) -> int:
        """Forget what was said so far; returns how many messages."""
        count = 0
        self.sock.setblocking(False)
        while True:
            try:
                self.sock.recv(4096)
                count += 1
            except BlockingIOError:
                self.sock.settimeout(PATIENCE)
                return count

    def environment(self, watchdog: bool = False) -> dict[str, str]:
        """What a service is started with."""
        interval = {"WATCHDOG_USEC": str(int(INTERVAL * 3 * 1_000_000))} if watchdog else {}
        return {"NOTIFY_SOCKET": self.address, **interval}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    with manager.sock:
        yield manager


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def get(address: tuple[str, int] | str, path: str = "/") -> bytes:
    """The whole answer to a request."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as client:
        client.settimeout(PATIENCE)
        client.connect(address)
        client.sendall(f"GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n".encode())
        answer = b""
        while data := client.recv(65536):
            answer += data
        return answer


# Readiness


@pytest.mark.parametrize("mode", [[], ["--workers", "2"], ["--threads", "2"]], ids=["single", "workers", "threads"])
def test_service_says_when_it_serves_and_when_it_ends(cwd: Path, manager: Manager, mode: list[str]) -> None:
    environment = manager.environment(watchdog=True)
    with ServerProcess("app:app", "--port", "0", "--systemd", *mode, cwd=cwd, env=environment) as server:
        assert manager.next() == "READY=1"
        server.wait_for("Application startup complete.", count=2 if mode else 1)
        assert b"known: \r\n" in get(server.address)  # nobody below is to speak for the service
        manager.has_beaten()
        manager.has_beaten()
        server.send_signal(signal.SIGTERM)
        assert manager.next() == "STOPPING=1"
        server.wait()
        assert manager.drain() == 0 or mode == []


def test_rolling_restart_is_told_of(cwd: Path, manager: Manager) -> None:
    with ServerProcess(
        "app:app", "--port", "0", "--systemd", "--workers", "2", cwd=cwd, env=manager.environment()
    ) as server:
        assert manager.next() == "READY=1"
        server.send_signal(signal.SIGHUP)
        reloading, when = manager.next().split("\n")
        assert reloading == "RELOADING=1"
        assert 0 < int(when.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
        assert manager.next() == "READY=1"
        server.wait_for("Started server process", count=4)
        server.stop()
        assert manager.next() == "STOPPING=1"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no TOML")
def test_several_pools_are_one_service(cwd: Path, manager: Manager) -> None:
    (cwd / "pools.toml").write_text(
        'systemd = true\n[pools.one]\napp = "app:app"\nport = 0\n[pools.two]\napp = "app:app"\nport = 0\n'
    )
    environment = manager.environment(watchdog=True)
    with ServerProcess("--config", "pools.toml", cwd=cwd, env=environment) as server:
        assert manager.next() == "READY=1"
        server.wait_for("Application startup complete.", count=2)
        manager.has_beaten()
        server.stop()
        assert manager.next() == "STOPPING=1"


def test_nobody_is_told_unasked(cwd: Path, manager: Manager) -> None:
    with ServerProcess("app:app", "--port", "0", cwd=cwd, env=manager.environment(watchdog=True)) as server:
        # An application may do so itself.
        assert b"known: NOTIFY_SOCKET WATCHDOG_USEC\r\n" in get(server.address)
        server.stop()
    assert manager.drain() == 0


def test_service_without_a_manager_says_so_and_serves(cwd: Path) -> None:
    with ServerProcess("app:app", "--port", "0", "--systemd", cwd=cwd) as server:
        server.wait_for("NOTIFY_SOCKET is not set. Set Type=notify in the unit.")
        assert b" 200 OK" in get(server.address)


# The watchdog


def test_blocked_event_loop_gives_no_sign_of_life(cwd: Path, manager: Manager) -> None:
    environment = manager.environment(watchdog=True)
    with ServerProcess("app:app", "--port", "0", "--systemd", cwd=cwd, env=environment) as server:
        manager.has_beaten()
        with socket.create_connection(server.address) as client:
            client.sendall(b"GET /block HTTP/1.1\r\nhost: test\r\n\r\n")
            wait_for(lambda: (cwd / "blocked").exists())
            manager.drain()
            time.sleep(5 * INTERVAL)
            assert manager.drain() == 0
            (cwd / "go").touch()
            manager.has_beaten()
        server.stop()


# Sockets


def handed_over(cwd: Path, sockets: list[socket.socket], names: str | None = None) -> list[str]:
    """A command that has these sockets where systemd puts them."""
    program = (
        "import os, sys\n"
        f"numbers = {[sock.fileno() for sock in sockets]!r}\n"
        "copies = [os.dup2(number, 100 + index) for index, number in enumerate(numbers)]\n"
        "for index, copy in enumerate(copies): os.dup2(copy, 3 + index, inheritable=True)\n"
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(numbers)))\n"
        + (f"os.environ['LISTEN_FDNAMES'] = {names!r}\n" if names is not None else "")
        + "os.execv(sys.executable, [sys.executable, '-m', 'uvicorn', *sys.argv[1:]])\n"
    )
    (cwd / "manager.py").write_text(program)
    return [sys.executable, str(cwd / "manager.py")]


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[list[socket.socket]]:
    """One of each kind, bound and listening, as systemd opens them; at numbers above those it gives them."""
    opened = [socket.socket(), socket.socket(socket.AF_UNIX)]
    opened[0].bind(("127.0.0.1", 0))
    opened[1].bind(str(tmp_path / "s"))
    for sock in opened:
        sock.listen()
    yield opened
    for sock in opened:
        sock.close()


@pytest.mark.parametrize("mode", [[], ["--workers", "2"]], ids=["single", "workers"])
def test_sockets_of_systemd_are_served(cwd: Path, sockets: list[socket.socket], mode: list[str]) -> None:
    command = handed_over(cwd, sockets)
    numbers = [sock.fileno() for sock in sockets]
    with ServerProcess("app:app", "--bind", "systemd", *mode, cwd=cwd, command=command, pass_fds=numbers) as server:
        assert b" 200 OK" in get(sockets[0].getsockname())  # listened to before there was a server
        assert b" 200 OK" in get(sockets[1].getsockname())
        server.stop()
    assert (cwd / "s").exists()
    with socket.create_connection(sockets[0].getsockname()):  # it waits for the next server
        pass


def test_datagram_socket_of_systemd_ends_the_start(cwd: Path) -> None:
    """ListenDatagram= where ListenStream= was meant."""
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        command = handed_over(cwd, [sock])
        with ServerProcess(
            "app:app", "--bind", "systemd", cwd=cwd, command=command, pass_fds=[sock.fileno()]
        ) as server:
            assert server.wait() == 3
            line = "descriptor 3 is a SOCK_DGRAM socket; a TCP or Unix stream socket that can listen is needed"
            assert f"Cannot use bind='systemd': {line}" in server.error_output
            assert "Traceback" not in server.error_output


def test_sockets_of_systemd_are_chosen_by_name(cwd: Path, sockets: list[socket.socket]) -> None:
    command = handed_over(cwd, sockets, "web:admin")
    numbers = [sock.fileno() for sock in sockets]
    places = ["--bind", "systemd:admin", "--bind", "127.0.0.1:0"]
    with ServerProcess("app:app", *places, cwd=cwd, command=command, pass_fds=numbers) as server:
        server.wait_for(f"Uvicorn running on unix socket {cwd / 's'} (Press CTRL+C to quit)")
        server.wait_for("Uvicorn running on http://127.0.0.1:")
        assert b" 200 OK" in get(str(cwd / "s"))
        assert b" 200 OK" in get(server.address)
        server.stop()
    with ServerProcess("app:app", "--bind", "systemd:other", cwd=cwd, command=command, pass_fds=numbers) as server:
        assert server.wait() == 3
        assert "Cannot use bind='systemd:other': the sockets handed over are: web, admin" in server.error_output


@pytest.mark.parametrize(
    ("pid", "text"),
    [
        (None, "no sockets were handed over; start"),
        ("1", r"no sockets were handed over to this process \(LISTEN_PID\); "),
    ],
)
def test_sockets_of_somebody_else_are_not_touched(monkeypatch: pytest.MonkeyPatch, pid: str | None, text: str) -> None:
    monkeypatch.setenv("LISTEN_FDS", "1")
    if pid is None:
        monkeypatch.delenv("LISTEN_PID", raising=False)
    else:
        monkeypatch.setenv("LISTEN_PID", pid)
    with pytest.raises(OSError, match=text):
        passed_descriptors()


def test_number_of_sockets_may_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "0")
    with pytest.raises(OSError, match="the sockets handed over are: none"):
        passed_descriptors()


@pytest.mark.parametrize("number", ["abc", "-1", "1.5", "99999999999999"])
def test_number_of_sockets_that_is_none_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", number)
    with pytest.raises(OSError, match=f"LISTEN_FDS is a number of sockets, not '{number}'"):
        passed_descriptors()


# The parts of one service


def test_service_is_as_far_as_the_last_of_its_parts(manager: Manager) -> None:
    notifier = Notifier(manager.address, None, parts=2)
    one, two = notifier.shares
    one.ready()
    assert manager.drain() == 0
    two.ready()
    assert manager.next() == "READY=1"
    one.reloading()
    assert manager.next().startswith("RELOADING=1\n")
    two.reloading()
    one.ready()
    assert manager.drain() == 0
    two.ready()
    assert manager.next() == "READY=1"
    one.stopping()
    assert manager.next() == "STOPPING=1"
    two.stopping()
    two.ready()
    assert manager.drain() == 0
    assert State.STOPPING > State.RELOADING > State.READY


def test_part_that_is_silent_silences_all(manager: Manager) -> None:
    one, two = Notifier(manager.address, 0.0, parts=2).shares
    for _ in range(3):
        one.beat_if_due()
    assert manager.drain() == 0
    two.beat_if_due()
    assert manager.drain() == 1
    one.stopping()
    manager.drain()
    one.beat_if_due()
    two.beat_if_due()
    assert manager.drain() == 0


def test_parts_that_reload_side_by_side_are_one_reload(manager: Manager) -> None:
    """However far apart they are, and however often they were asked meanwhile."""
    notifier = Notifier(manager.address, None, parts=2)
    reloads = Reloads(notifier.shares[0], 2)
    for share in notifier.shares:
        share.ready()
    assert manager.next() == "READY=1"
    for part in (0, 0, 1):
        reloads.note(part, True)
        reloads.note(part, False)
    assert manager.next().startswith("RELOADING=1")
    assert manager.drain() == 0
    reloads.note(1, True)
    reloads.note(1, False)
    assert manager.next() == "READY=1"


def test_manager_in_the_abstract_namespace() -> None:
    if sys.platform != "linux":
        pytest.skip("Linux only")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("")  # the kernel picks a name
        name = sock.getsockname()
        sock.settimeout(PATIENCE)
        Notifier("@" + name[1:].decode(), None).shares[0].ready()
        assert sock.recv(100) == b"READY=1"


def test_manager_that_cannot_be_told_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    share = Notifier(str(tmp_path / "nobody"), 0.0).shares[0]
    share.ready()
    share.beat_if_due()
    assert [record.getMessage() for record in caplog.records] == [
        "Cannot notify systemd (NOTIFY_SOCKET): [Errno 2] No such file or directory"
    ]


@pytest.mark.parametrize(("pid", "watched"), [("", True), ("own", True), ("1", False)])
def test_watchdog_may_be_for_another_process(monkeypatch: pytest.MonkeyPatch, pid: str, watched: bool) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)
    notifier = Notifier.from_environment()
    assert notifier is not None
    assert notifier.interval == (1.0 if watched else None)
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & set(os.environ)


def test_reloader_is_no_service(cwd: Path) -> None:
    with ServerProcess("app:app", "--reload", "--systemd", cwd=cwd) as server:
        assert server.wait() == 1
        assert "Cannot use systemd=True: reload is for development" in server.error_output
