"""A running server is replaced by a new one, without a closed port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.process import APP_BEGINS, IN_A_NAMESPACE, ROOT, ServerProcess, has_namespaces, is_gone
from tests.supervisors.load import Load
from tests.utils import is_listening, open_connection, read_until, request, wait_for
from uvicorn.supervisors import upgrade_status
from uvicorn.tls import rustls

if sys.platform == "win32":
    pytest.skip("there is no SIGUSR2 on Windows", allow_module_level=True)

from tests.listening.test_systemd import Manager

APP = (
    """
import asyncio, os, time

VERSION = "one"
"""
    + APP_BEGINS
    + """    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"{VERSION} {os.getpid()} ".encode(), "more_body": True})
    while scope["path"] == "/until-told" and not os.path.exists("go"):
        await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": b"end"})
"""
)

HANGING = 'import os, time\nwhile not os.path.exists("go"): time.sleep(0.02)\n' + APP

INTERPRETER = [sys.executable, "-m", "uvicorn"]
"""Not a fork of a waiting interpreter, whose command line is another."""

PROFILES = {"workers": ("--workers", "2"), "single": (), "threads": ("--threads", "2")}

EACH = ["workers", "single", pytest.param("threads", marks=pytest.mark.deep)]
"""The profiles; several event loops hand over by the same code as a single one."""

PRELOADED = ("--workers", "2", "--preload")

COUNTS = ("--workers", "--threads")
"""Options that say how often the application starts."""

TOML = pytest.mark.skipif(sys.version_info < (3, 11), reason="this version cannot read TOML")

TOOK_OVER = "Took over from process"


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@contextlib.contextmanager
def running(cwd: Path, *arguments: str, **options: Any) -> Iterator[ServerProcess]:
    """A server that serves."""
    if "command" not in options:
        arguments = ("app:app", "--port", "0", *arguments)
    with ServerProcess(*arguments, cwd=cwd, **{"command": INTERPRETER, **options}) as server:
        count = next((int(arguments[arguments.index(name) + 1]) for name in COUNTS if name in arguments), 1)
        server.wait_for("Application startup complete.", count=count)
        if "--uds" not in arguments:
            wait_for(lambda: is_listening(server.address))
        yield server


def upgrade(server: ServerProcess, pid: int, sig: signal.Signals = signal.SIGUSR2) -> int:
    """Have the server with this process id upgraded, and return that of its successor once it is in charge."""
    count = server.error_output.count(TOOK_OVER)
    os.kill(pid, sig)
    server.wait_for(TOOK_OVER, count=count + 1)
    return successor_of(server)


def successor_of(server: ServerProcess) -> int:
    return int(server.wait_for_pattern(r"starting process \[(\d+)\]")[-1][1])


def command(pid: int) -> tuple[int, str]:
    """Exit status and output of `uvicorn upgrade PID`."""
    done = subprocess.run([*INTERPRETER, "upgrade", str(pid)], cwd=ROOT, capture_output=True, text=True, timeout=60)
    return done.returncode, (done.stdout + done.stderr).strip()


def version_of(address: tuple[str, int] | str) -> str:
    return answer(address)[0]


def pid_of(address: tuple[str, int] | str) -> int:
    return int(answer(address)[1])


def answer(address: tuple[str, int] | str) -> list[str]:
    return request(address).partition(b"\r\n\r\n")[2].split(b"\r\n")[1].decode().split()


def wait_until_gone(server: ServerProcess, pid: int) -> None:
    wait_for(lambda: is_gone(pid) or (pid == server.pid and server.process.poll() is not None))


def end(server: ServerProcess, pid: int) -> None:
    """End the last successor gracefully."""
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: is_gone(pid))
    assert "Traceback" not in server.error_output, server.describe()
    assert "ERROR" not in server.error_output, server.describe()


# The new one


@pytest.mark.measures_children
@pytest.mark.parametrize("profile", [*PROFILES, "preloaded"])
def test_successor_serves_the_new_code(profile: str, cwd: Path) -> None:
    with running(cwd, *PROFILES.get(profile, PRELOADED)) as server:
        assert version_of(server.address) == "one"
        (cwd / "app.py").write_text(APP.replace("one", "two"))
        status, output = command(server.pid)
        new = successor_of(server)
        assert (status, output) == (0, f"Upgraded: process [{new}] serves in place of [{server.pid}].")
        assert server.process.wait(30) == 0
        assert version_of(server.address) == "two"
        end(server, new)
        assert not is_listening(server.address)


@pytest.mark.parametrize(
    ("profile", "count"),
    [
        ("workers", 2),
        ("single", 2),
        pytest.param("workers", 10, marks=pytest.mark.deep),
        pytest.param("single", 10, marks=pytest.mark.deep),
        pytest.param("threads", 10, marks=pytest.mark.deep),
    ],
)
def test_upgrades_lose_no_request(profile: str, count: int, tmp_path: Path) -> None:
    """X1: with streams and WebSockets open; and neither descriptors nor zombies are left."""
    (tmp_path / "app.py").write_text("from tests.supervisors.load import app\n")
    with running(tmp_path, *PROFILES[profile], "--log-level", "info", "--no-access-log") as server:
        loads = [
            Load(server.address, "/plain", 4, pauses=(0.0, 0.01)),
            Load(server.address, "/plain", 2, keep_alive=False, pauses=(0.0, 0.01)),
            Load(server.address, "/stream", 2, pauses=(0.0, 0.01)),
        ]
        # All event loops of a successor serve, but the first server may still start some.
        pid = server.pid if profile != "threads" else upgrade(server, server.pid)
        if pid != server.pid:
            server.process.wait(30)
        before = descriptors(pid)
        with contextlib.ExitStack() as stack:
            for load in loads:
                stack.enter_context(load)
            sockets = stack.enter_context(EchoingClients(server.address, 2))
            for _ in range(count):
                old, pid = pid, upgrade(server, pid)
                wait_for_answers(loads)
                wait_until_gone(server, old)
        for load in loads:
            assert not load.lost, load.lost
            assert load.answered > count
        assert not sockets.lost, sockets.lost
        assert sockets.echoed > 2 * count
        wait_for(lambda: descriptors(pid) <= before)
        # The resource tracker of a process ends after it, and is the system's process 1 to collect, in its time.
        wait_for(lambda: not zombies(server.pid))
        end(server, pid)


def wait_for_answers(loads: Sequence[Load]) -> None:
    """Wait until each has had one more."""
    before = [load.answered for load in loads]
    wait_for(lambda: all(load.answered > number for load, number in zip(loads, before, strict=True)))


class EchoingClients:
    """WebSocket clients that send and expect texts, and connect again when the server says 1012."""

    def __init__(self, address: tuple[str, int], clients: int) -> None:
        self.echoed = 0
        self.lost: list[str] = []
        self._address, self._clients = address, clients
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> EchoingClients:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(self._clients)))

    async def _client(self) -> None:
        import websockets

        host, port = self._address
        while not self._stopping.is_set():
            try:
                async with websockets.connect(f"ws://{host}:{port}/", proxy=None) as client:
                    with contextlib.suppress(websockets.ConnectionClosed):
                        while not self._stopping.is_set():
                            await client.send("text")
                            assert await client.recv() == "text"
                            self.echoed += 1
                            await asyncio.sleep(0.005)
                if client.close_code not in (1000, 1012):
                    self.lost.append(f"closed: {client.close_code}")
            except Exception as exc:
                self.lost.append(repr(exc))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd")) if sys.platform == "linux" else 0


def zombies(group: int) -> list[str]:
    """The processes of a group that have ended and were not awaited."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    return [" ".join(row) for row in rows if row[0] == str(group) and row[1].startswith("Z")]


@pytest.mark.parametrize("profile", ["workers", "single"])
def test_old_process_waits_for_its_requests(profile: str, cwd: Path) -> None:
    with running(cwd, *PROFILES[profile], "--drain-delay", "60") as server:
        with open_connection(server.address, b"GET /until-told HTTP/1.1\r\nhost: test\r\n\r\n") as client:
            read_until(client, b"one ")
            new = upgrade(server, server.pid)
            assert version_of(server.address) == "one"
            assert server.process.poll() is None
            (cwd / "go").touch()
            read_until(client, b"0\r\n\r\n")
        assert server.process.wait(30) == 0
        os.kill(new, signal.SIGKILL)


@TOML
@pytest.mark.parametrize(
    ("before", "after"), [("workers = 2", ""), ("", "workers = 2"), ("threads = 2", "workers = 2")]
)
def test_settings_of_the_successor_are_read_afresh(before: str, after: str, cwd: Path) -> None:
    """An address that stays is handed over, another one is bound, and a dropped one is closed and its file removed."""
    settings = cwd / "uvicorn.toml"
    settings.write_text(f'app = "app:app"\n{before}\nbind = ["127.0.0.1:0", "unix:old.sock"]\n')
    with running(cwd, "--config", "uvicorn.toml", command=INTERPRETER) as server:
        first = server.address
        wait_for(lambda: is_listening(str(cwd / "old.sock")))
        settings.write_text(f'app = "app:app"\n{after}\nbind = ["127.0.0.1:0", "unix:new.sock"]\n')
        new = upgrade(server, server.pid)
        assert server.process.wait(30) == 0
        assert version_of(first) == version_of(str(cwd / "new.sock")) == "one"
        assert (pid_of(first) == new) == (after == "")
        assert not (cwd / "old.sock").exists()
        end(server, new)
        assert not (cwd / "new.sock").exists()


@pytest.mark.parametrize("profile", EACH)
def test_file_of_a_unix_socket_stays(profile: str, cwd: Path) -> None:
    path = cwd / "app.sock"
    with running(cwd, *PROFILES[profile], "--uds", str(path)) as server:
        wait_for(lambda: is_listening(str(path)))
        before = path.stat().st_ino
        new = upgrade(server, server.pid)
        assert server.process.wait(30) == 0
        assert path.stat().st_ino == before
        assert version_of(str(path)) == "one"
        end(server, new)
        assert not path.exists()


@pytest.mark.skipif(rustls.why_not() is not None, reason=str(rustls.why_not()))
def test_session_tickets_survive(
    cwd: Path, tls_certificate_key_and_chain_path: str, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    def session(before: Any = None) -> tuple[Any, bool]:
        context = tls_ca_ssl_context
        with (
            open_connection(address) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=before) as client,
        ):
            client.sendall(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
            while client.recv(65536):
                pass
            return client.session, bool(client.session_reused)

    tls_ca_ssl_context.check_hostname = False
    arguments = ("--ssl-certfile", tls_certificate_key_and_chain_path, "--ssl-tickets", "shared")
    with running(cwd, *PROFILES["workers"], *arguments) as server:
        address = server.address
        before, _ = session()
        new = upgrade(server, server.pid)
        assert server.process.wait(30) == 0
        assert session(before)[1]
        assert VARIABLE_SECRET.search(environment_of(new)) is None
        end(server, new)


VARIABLE_SECRET = re.compile(rb"[0-9a-f]{64}")


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes() if sys.platform == "linux" else b""


@pytest.mark.parametrize("profile", EACH)
def test_metrics_and_probes_stay_at_their_address(profile: str, cwd: Path) -> None:
    addresses = ("--metrics", "127.0.0.1:0", "--probe", "127.0.0.1:0")
    with running(cwd, *PROFILES[profile], *addresses) as server:
        port = int(server.wait_for_pattern(r"Metrics on http://127.0.0.1:(\d+)/")[0][1])
        probe = ("127.0.0.1", int(server.wait_for_pattern(r"Probes on http://127.0.0.1:(\d+)/")[0][1]))
        wait_for(lambda: b" 200 OK" in request(probe, "/ready"))
        new = upgrade(server, server.pid)
        assert server.process.wait(30) == 0
        assert b"uvicorn_" in request(("127.0.0.1", port), "/metrics")
        assert b" 200 OK" in request(probe, "/ready")
        end(server, new)


@pytest.mark.measures_children
@pytest.mark.parametrize("profile", ["workers", "single", pytest.param("pools", marks=TOML)])
def test_counts_go_on(profile: str, cwd: Path) -> None:
    """The successor adds the predecessor's counts to its own, also those of its last requests; never do two processes
    answer in turn. The number of workers is that which signals have asked for."""
    pools = "".join(f'[pools.{name}]\napp = "app:app"\nport = 0\nworkers = 1\n' for name in ("one", "two"))
    (cwd / "uvicorn.toml").write_text(pools)
    arguments = ("--config", "uvicorn.toml") if profile == "pools" else ("app:app", "--port", "0", *PROFILES[profile])
    arguments += ("--metrics", "127.0.0.1:0", "--metrics-routes", "9")
    workers = {"workers": 3, "single": 1, "pools": 4}[profile]

    def counts() -> tuple[int, int]:
        text = request(metrics, "/metrics").decode()
        found = [re.findall(rf"^uvicorn_{name}requests_total.* (\d+)$", text, re.M) for name in ("", "route_")]
        return sum(map(int, found[0])), sum(map(int, found[1]))

    with ServerProcess(*arguments, cwd=cwd, command=INTERPRETER) as server:
        metrics = ("127.0.0.1", int(server.wait_for_pattern(r"Metrics on http://127.0.0.1:(\d+)/")[0][1]))
        if profile != "single":
            server.wait_for("Application startup complete.", count=2)
            server.send_signal(signal.SIGTTIN)
        server.wait_for("Application startup complete.", count=workers)
        wait_for(lambda: is_listening(server.address))
        with open_connection(server.address) as client:
            client.sendall(b"GET /until-told HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
            assert read_until(client, b"one ")
            answer(server.address)
            wait_for(lambda: counts() == (1, 1))
            if profile != "single":  # whose parent answers before its workers
                (cwd / "app.py").write_text(HANGING.replace('"go"', '"start"'))
            server.send_signal(signal.SIGUSR2)
            if profile != "single":
                server.wait_for("Metrics on http://", count=2)
                assert {counts() for _ in range(20)} == {(1, 1)}
            (cwd / "start").touch()
            server.wait_for(TOOK_OVER)
            assert counts() == (1, 1)
            if profile == "single":  # a second one while the first process still drains
                upgrade(server, successor_of(server))
            answer(server.address)
            (cwd / "go").touch()
            assert read_until(client, b"end")
        assert server.process.wait(30) == 0
        wait_for(lambda: counts() == (3, 3))
        server.wait_for("Application startup complete.", count=2 * workers)
        end(server, successor_of(server))


PROGRAM = """
import os, sys, uvicorn
print("program", sys.argv[1:], os.environ.get("MARK"), flush=True)
os.environ["MARK"] = "changed"
if __name__ == "__main__":
    os.chdir("/")
    uvicorn.run("app:app", port=0, workers=int(sys.argv[1]), app_dir=sys.argv[2])
    print("returned", flush=True)
"""


def test_program_is_run_again_as_it_was(cwd: Path) -> None:
    """With its arguments, directory and environment, whatever it has changed."""
    (cwd / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py"]
    with running(cwd, "1", str(cwd), command=command, env={"MARK": "initial"}) as server:
        new = upgrade(server, server.pid)
        assert server.process.wait(30) == 0
        server.wait_for("returned")
        assert server.output.count(f"program ['1', '{cwd}'] initial") == 2
        end(server, new)


# The way back


@pytest.mark.measures_children
@pytest.mark.parametrize("profile", EACH)
def test_failing_successor_leaves_the_old_one_serving(profile: str, cwd: Path) -> None:
    """And the next one, which is in order, takes over."""
    with running(cwd, *PROFILES[profile], "--uds", str(cwd / "app.sock")) as server:
        (cwd / "app.py").write_text("raise RuntimeError('broken')\n")
        status, output = command(server.pid)
        failed = successor_of(server)
        reason = f"process [{failed}] ended (exit status {3 if profile == 'workers' else 1})"
        assert (status, output) == (1, f"Not upgraded: {reason}; process [{server.pid}] keeps serving.")
        server.wait_for(f"The upgrade failed: {reason}. Process [{server.pid}] keeps serving.")
        assert version_of(str(cwd / "app.sock")) == "one"
        (cwd / "app.py").write_text(APP.replace("one", "two"))
        new = upgrade(server, server.pid)
        assert server.process.wait(30) == 0
        assert version_of(str(cwd / "app.sock")) == "two"
        os.kill(new, signal.SIGTERM)
        wait_for(lambda: is_gone(new))


def test_successor_that_is_not_ready_in_time_is_ended(cwd: Path) -> None:
    with running(cwd, "--timeout-worker-ready", "0.5", "--timeout-worker-healthcheck", "1") as server:
        (cwd / "app.py").write_text(HANGING)
        server.send_signal(signal.SIGUSR2)
        failed = successor_of(server)
        server.wait_for(f"process [{failed}] was not ready within 1 seconds (timeout_worker_ready)")
        wait_for(lambda: is_gone(failed))
        assert version_of(server.address) == "one"


@pytest.mark.measures_children
@pytest.mark.parametrize("profile", EACH)
def test_signals_during_an_upgrade(profile: str, cwd: Path) -> None:
    """A second SIGUSR2 is ignored, and SIGTERM ends both."""
    with running(cwd, *PROFILES[profile]) as server:
        (cwd / "app.py").write_text(HANGING)
        server.send_signal(signal.SIGUSR2)
        new = successor_of(server)
        server.send_signal(signal.SIGUSR2)
        server.wait_for("Ignoring SIGUSR2: an upgrade is under way")
        status, output = command(server.pid)
        assert (status, output) == (
            1,
            f"Not upgraded: an upgrade of process [{server.pid}] is under way (process [{new}]).",
        )
        server.send_signal(signal.SIGTERM)
        assert server.wait() == (0 if profile == "workers" else -signal.SIGTERM)
        wait_for(lambda: is_gone(new))


@pytest.mark.parametrize("profile", ["workers", "single"])
def test_death_of_the_old_process_puts_the_successor_in_charge(profile: str, cwd: Path) -> None:
    """Rather than closing the port."""
    path = cwd / "app.sock"
    with running(cwd, *PROFILES[profile], "--uds", str(path)) as server:
        wait_for(lambda: is_listening(str(path)))
        (cwd / "app.py").write_text(HANGING.replace("one", "two"))
        server.send_signal(signal.SIGUSR2)
        new = successor_of(server)
        with open_connection(str(path)):
            server.process.kill()
            server.process.wait(30)
            (cwd / "go").touch()
            server.wait_for(f"Process [{server.pid}] ended before it handed over; serving in its place.")
        wait_for(lambda: version_of(str(path)) == "two")
        os.kill(new, signal.SIGTERM)
        wait_for(lambda: is_gone(new))
        assert not path.exists()


# SIGHUP of a single process


def test_single_process_starts_anew_at_sighup(cwd: Path) -> None:
    with running(cwd) as server:
        (cwd / "app.py").write_text(APP.replace("one", "two"))
        new = upgrade(server, server.pid, signal.SIGHUP)
        assert server.process.wait(30) == 0
        assert version_of(server.address) == "two"
        end(server, new)


def test_single_process_with_a_terminal_ends_at_sighup(cwd: Path) -> None:
    """The signal reports the end of the terminal: a server must not outlive that."""
    code = (
        "import fcntl, os, pty, sys, termios\n"
        "_, terminal = pty.openpty()\n"
        "fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)\n"
        "os.set_inheritable(_, True)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'uvicorn', 'app:app', '--port', '0'])\n"
    )
    with running(cwd, command=[sys.executable, "-c", code]) as server:
        assert server.stop(signal.SIGHUP) == -signal.SIGHUP


def test_embedded_server_keeps_the_default_actions(cwd: Path) -> None:
    (cwd / "main.py").write_text("import uvicorn\nuvicorn.Server(uvicorn.Config('app:app', port=0)).run()\n")
    with running(cwd, command=[sys.executable, "main.py"]) as server:
        assert server.stop(signal.SIGUSR2) == -signal.SIGUSR2


# systemd


@pytest.mark.measures_children
@pytest.mark.parametrize("profile", EACH)
def test_service_manager_gets_the_new_main_process(profile: str, cwd: Path) -> None:
    manager = Manager(cwd / "notify")
    with running(cwd, *PROFILES[profile], "--systemd", env=manager.environment()) as server:
        assert manager.next() == "READY=1"
        (cwd / "app.py").write_text("raise RuntimeError('broken')\n")
        server.send_signal(signal.SIGUSR2)
        assert manager.next().startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert manager.next() == "READY=1"
        (cwd / "app.py").write_text(APP)
        wait_for(lambda: "under way" not in command(server.pid)[1])
        new = successor_of(server)
        assert manager.next().startswith("RELOADING=1\n")
        assert manager.next() == f"MAINPID={new}\nREADY=1"
        assert server.process.wait(30) == 0
        os.kill(new, signal.SIGTERM)
        assert manager.next() == "STOPPING=1"
        wait_for(lambda: is_gone(new))
    manager.sock.close()


def test_successor_has_the_sockets_and_the_watchdog_of_systemd(cwd: Path) -> None:
    code = (
        "import os, sys\n"
        "os.dup2(int(sys.argv[1]), 3)\n"
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1', WATCHDOG_PID=str(os.getpid()))\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'uvicorn', *sys.argv[2:]])\n"
    )
    manager = Manager(cwd / "notify")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        start: Sequence[str] = [sys.executable, "-c", code, str(listener.fileno())]
        arguments = ("app:app", "--workers", "1", "--limit-worker-lifetime", "99", "--bind", "systemd", "--systemd")
        environment = manager.environment(watchdog=True)
        with running(cwd, *arguments, command=start, env=environment, pass_fds=[listener.fileno()]) as server:
            address = listener.getsockname()
            assert manager.next() == "READY=1"
            new = upgrade(server, server.pid)
            assert server.process.wait(30) == 0
            newest = upgrade(server, new)
            wait_for(lambda: is_gone(new))
            manager.drain()
            manager.has_beaten()
            assert version_of(address) == "one"
            end(server, newest)
    manager.sock.close()


# Servers that cannot


@pytest.mark.measures_children
def test_reloader_refuses(cwd: Path) -> None:
    with running(cwd, "--reload") as server:
        server.send_signal(signal.SIGUSR2)
        server.wait_for("Ignoring SIGUSR2: with --reload the server cannot be upgraded")
        assert command(server.pid)[1].startswith(
            f"Not upgraded: process [{server.pid}] is no server that can be upgraded"
        )


def test_command_names_its_reasons(cwd: Path) -> None:
    assert command(os.getpid())[1].startswith(f"Not upgraded: process [{os.getpid()}] is no server")
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert command(ended.pid) == (1, f"Not upgraded: there is no process [{ended.pid}].")
    with running(cwd, *PROFILES["workers"]) as server:
        worker = server.pids()[0]
        status, output = command(worker)
        assert status == 1
        assert "Not upgraded: process" in output
        assert not is_gone(worker)


@pytest.mark.skipif(not has_namespaces(), reason="this system lets nobody make namespaces of processes")
def test_process_1_refuses(cwd: Path) -> None:
    start = [*IN_A_NAMESPACE, *INTERPRETER]
    with running(cwd, "app:app", "--port", "0", command=start) as server:
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(server.pid)], capture_output=True, text=True
        ).stdout
        os.kill(int(children), signal.SIGUSR2)
        server.wait_for("Ignoring SIGUSR2: a container ends with its process 1")
        assert version_of(server.address) == "one"


# The outcome


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_outcome_is_found_by_the_process_id(platform: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In memory, or in a file."""
    if platform == "linux" and sys.platform != "linux":
        pytest.skip("only Linux has /proc")
    monkeypatch.setattr("uvicorn.supervisors.upgrade_status.sys.platform", platform)
    monkeypatch.setattr(upgrade_status, "INTERVAL", 0.01)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="is no server that can be upgraded"):
        upgrade_status.upgrade(os.getpid())
    status = upgrade_status.Status()

    def fail(number: int, frame: object) -> None:
        status.begin(7)
        status.end("has failed")

    def succeed(number: int, frame: object) -> None:
        status.begin(7)
        status.end()

    previous = signal.signal(signal.SIGUSR2, fail)
    try:
        with pytest.raises(RuntimeError, match=f"has failed; process .{os.getpid()}. keeps serving"):
            upgrade_status.upgrade(os.getpid())
        signal.signal(signal.SIGUSR2, lambda number, frame: None)
        monkeypatch.setattr(upgrade_status, "REACTION", 0.01)
        with pytest.raises(RuntimeError, match="has not reacted"):
            upgrade_status.upgrade(os.getpid())
        signal.signal(signal.SIGUSR2, succeed)
        assert upgrade_status.upgrade(os.getpid()) == "7"
        with pytest.raises(RuntimeError, match="is shutting down; name its successor"):
            upgrade_status.upgrade(os.getpid())
    finally:
        signal.signal(signal.SIGUSR2, previous)
        status.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_outcome_of_another_user_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("uvicorn.supervisors.upgrade_status.sys.platform", "darwin")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(upgrade_status, "_is_ours", lambda path: False)
    status = upgrade_status.Status()
    status.begin()
    status.close()
    assert upgrade_status._find(os.getpid()) is None
