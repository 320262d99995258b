"""The server as a service: places, systemd, probes, checks."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.features.feature import Group
from tests.features.table import Finding
from tests.features.trial import (
    GRANIAN,
    GUNICORN,
    HYPERCORN,
    NGINX,
    OURS,
    UPSTREAM,
    Means,
    Trial,
    accepts,
    eventually,
    free_port,
)
from tests.features.wire import Way, ask, connect, head

SERVICE = Group("As a service")


SEVERAL = """\
import socket, sys, uvicorn
sockets = [socket.create_server(("127.0.0.1", port)) for port in (int(sys.argv[1]), {port})]
sockets.append(socket.socket(socket.AF_UNIX))
sockets[-1].bind({path!r})
uvicorn.Server(uvicorn.Config("probe:app")).run(sockets=sockets)
"""


@SERVICE.feature("Several addresses")
def places(trial: Trial) -> Finding:
    """The server answers on two addresses and a Unix socket at once; a server limited to one is asked for the Unix
    socket."""
    port, another, path = free_port(), free_port(), str(trial.directory / "socket")
    binds = ["--bind", f"127.0.0.1:{port}", "--bind", f"unix:{path}"]
    means = {
        OURS: Means("`--bind`", [*binds, "--bind", f"127.0.0.1:{another}"]),
        UPSTREAM: Means("`Server.run(sockets=...)`", script=SEVERAL.format(port=port, path=path), own_code=True),
        GRANIAN: Means("`--uds`", ["--uds", path]),
        GUNICORN: Means("`--bind`", binds),
        HYPERCORN: Means("`--bind`", binds),
        NGINX: Means("`listen`", [f"listen 127.0.0.1:{port};", f"listen unix:{path};"]),
    }
    with trial.serving(means) as server:
        unix = eventually(lambda: accepts(path), 5) and ask(Way(path), "/pid").status == 200
        # Here `--bind` takes the place of `--port`, elsewhere it is added to it.
        ports = port, another if trial.server == OURS else server.port
        several = all(ask(Way(("127.0.0.1", number)), "/pid").status == 200 for number in ports)
    return {"several addresses": several, "a Unix socket": unix}


class Manager:
    """The end of a service manager that listens."""

    def __init__(self, directory: Path) -> None:
        self.address = str(directory / "notify")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self.address)
        self.sock.settimeout(0.1)
        self.said: list[str] = []

    def hears(self, text: str, seconds: float) -> bool:
        """Whether a message with this line comes within that time."""
        return eventually(lambda: self.next() == text or text in self.said, seconds)

    def next(self) -> str:
        """The first line of what comes next; empty if nothing does."""
        try:
            self.said += self.sock.recv(4096).decode().splitlines()
        except TimeoutError:
            return ""
        return self.said[-1]


@contextmanager
def managed(trial: Trial) -> Iterator[Manager]:
    """A service manager."""
    manager = Manager(trial.directory)
    with manager.sock:
        yield manager


@SERVICE.feature("systemd notification")
def notify(trial: Trial) -> Finding:
    """With two workers, `NOTIFY_SOCKET` and a `WATCHDOG_USEC` of 0.6 seconds, the server sends `READY=1`, `WATCHDOG=1`,
    `RELOADING=1` after SIGHUP and `STOPPING=1` after SIGTERM."""
    means = {OURS: Means("`--systemd`", ["--systemd"]), GUNICORN: Means("by default")}
    with managed(trial) as manager:
        environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "600000"}
        with trial.serving(means, workers=2, environment=environment) as server:
            found = {"READY": manager.hears("READY=1", 5), "WATCHDOG": manager.hears("WATCHDOG=1", 2)}
            server.signal(signal.SIGHUP)
            found["RELOADING"] = manager.hears("RELOADING=1", 3)
            if not server.ended:
                server.signal(signal.SIGTERM)
            found["STOPPING"] = manager.hears("STOPPING=1", 5)
    return found


@SERVICE.feature("systemd socket activation")
def sockets(trial: Trial) -> Finding:
    """systemd passes two sockets, `web` and `other` (`LISTEN_FDS`, `LISTEN_FDNAMES`). The server answers on `web`;
    selected by name, on that one only, in either order."""
    means = {
        OURS: Means("`--bind systemd:web`", ["--bind", "systemd:web"]),
        UPSTREAM: Means("`--fd 3`", ["--fd", "3"]),
        GUNICORN: Means("by default"),
        HYPERCORN: Means("`--bind fd://3`", ["--bind", "fd://3"]),
    }
    found = [at_sockets(trial, means, order) for order in (("web", "other"), ("other", "web"))]
    return {"taken": found[0]["web"], "by name": found == [{"web": True, "other": False}] * 2}


def at_sockets(trial: Trial, means: dict[str, Means], order: tuple[str, str]) -> dict[str, bool]:
    """At which of two sockets, in this order, there is an answer."""
    opened = {name: socket.create_server(("127.0.0.1", 0)) for name in order}
    try:
        environment = {"LISTEN_FDNAMES": ":".join(order)}
        with trial.serving(means, environment=environment, handed_over=[opened[name] for name in order]):
            return {name: answered(opened[name].getsockname()) for name in order}
    finally:
        for sock in opened.values():
            sock.close()


def answered(address: tuple[str, int]) -> bool:
    """Whether somebody answers there within five seconds; connections wait until then, as the socket is open."""
    try:
        with connect(Way(address), timeout=5) as sock:
            sock.sendall(head("/pid"))
            return sock.recv(12) == b"HTTP/1.1 200"
    except OSError:
        return False


@SERVICE.feature("Readiness")
def readiness(trial: Trial) -> Finding:
    """`/-/ready`, unknown to the application, is 200, and 503 after SIGTERM while the server still answers."""
    means = {
        OURS: Means("`--lifecycle-path`", ["--lifecycle-path", "/-/", "--drain-delay", "3"]),
        NGINX: Means("`return 200`", ["location = /-/ready { return 200; }"]),
    }
    with trial.serving(means) as server:
        ready = server.ask("/-/ready").status == 200
        server.signal(signal.SIGTERM)
        deadline, ending = time.monotonic() + 3, False
        while ready and not ending and not server.ended and time.monotonic() < deadline:
            ending = server.ask("/-/ready").status == 503
        return {"ready": ready, "not while it ends": ending}


@SERVICE.feature("Readiness of a blocked server")
def blocked(trial: Trial) -> Finding:
    """While code blocks every process for a second, `/ready` is answered at once, with another status."""
    port = free_port()
    means = {OURS: Means("`--probe`", ["--probe", f"127.0.0.1:{port}", "--probe-lateness", "0.2"])}
    with trial.serving(means) as server, ExitStack() as stack:
        way = server.way if trial.bare or trial.server != OURS else Way(("127.0.0.1", port))
        ready = ask(way, "/ready").status == 200
        stack.enter_context(connect(server.way)).sendall(head("/block"))
        began = time.monotonic()
        unready = eventually(lambda: ask(way, "/ready").status == 503, 0.9)
        return {"ready": ready, "not while it is blocked": unready and time.monotonic() - began < 1}


@SERVICE.feature("Configuration check")
def check(trial: Trial) -> Finding:
    """A good configuration exits with 0 without serving; a broken application or certificate exits with another
    status."""
    means = {
        OURS: Means("`--check`", ["--check"]),
        GUNICORN: Means("`--check-config`", ["--check-config"]),
        NGINX: Means("`nginx -t`", flags=["-t"]),
    }
    good = trial.certificate("server.test")
    broken = trial.directory / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n")
    if trial.status(means, good) != 0:
        return {"": False}
    found = {"certificate": trial.status(means, broken) not in (0, None)}
    if trial.server != NGINX:
        found["application"] = trial.status(means, good, "missing:app") not in (0, None)
    return found
