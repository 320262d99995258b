"""One feature tried on one server: the directory of it, its certificates, the server that is started for it."""

from __future__ import annotations

import datetime
import getpass
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from bench import targets
from bench.scenario import Mode
from tests.features import probe
from tests.features.table import Finding, NotTried, Seen
from tests.features.wire import Answer, Way, ask
from tests.process import ServerProcess
from tests.utils import PATIENCE

OURS, UPSTREAM, GRANIAN, GUNICORN, HYPERCORN, NGINX = "ours", "upstream", "granian", "gunicorn", "hypercorn", "nginx"
SERVERS = (OURS, UPSTREAM, GRANIAN, GUNICORN, HYPERCORN, NGINX)


@dataclass(frozen=True)
class Means:
    """What a server is given for a feature; `shown` is how the table names that.

    `arguments` are added to its command, or are lines of the `server` block of nginx, `http` and `location` those of
    two other blocks, `listen` what stands behind the address, `flags` arguments of the program. `files` are written
    beside the application, which may be another than the usual. `script` is a program that is started with the port in
    the place of the command.
    """

    shown: str = ""
    arguments: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    application: str = "probe:app"
    script: str = ""
    own_code: bool = False
    http: str = ""
    location: str = ""
    listen: str = ""
    flags: Sequence[str] = ()


NGINX_CONFIGURATION = """\
daemon off;
pid {directory}/nginx.pid;
error_log stderr notice;
worker_processes {workers};
{user}
events {{ worker_connections 512; }}
http {{
    access_log {directory}/access.log;
    client_body_temp_path {directory}/temp;
    proxy_temp_path {directory}/temp;
    fastcgi_temp_path {directory}/temp;
    uwsgi_temp_path {directory}/temp;
    scgi_temp_path {directory}/temp;
    {http}
    server {{
        listen 127.0.0.1:{port}{listen};
        {tls}
        {server}
        location = /pid {{ return 200 "$pid"; }}
        location / {{
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            {location}
            proxy_pass http://127.0.0.1:{backend};
        }}
    }}
}}
"""


def free_port() -> int:
    """A port nobody listens at now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def nginx_program() -> str:
    """Where nginx is: it may not be where users look for programs."""
    found = shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))
    if found is None:
        raise NotTried("nginx is not installed")
    return found


def eventually(condition: Callable[[], object], seconds: float = 8.0) -> bool:
    """Whether it becomes true within that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Running:
    """A server that serves."""

    def __init__(self, process: ServerProcess, port: int, directory: Path, tls: ssl.SSLContext | None) -> None:
        self.process = process
        self.port = port
        self.directory = directory
        self.way = Way(("127.0.0.1", port), tls=tls)

    @property
    def log(self) -> str:
        """All that it has written so far."""
        written = self.directory / "access.log"
        return self.process.output + self.process.error_output + (written.read_text() if written.exists() else "")

    @property
    def ended(self) -> bool:
        """Whether it does not run any more."""
        return self.process.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it, or to the parent of its workers."""
        self.process.send_signal(number)

    def ask(self, target: str = "/", method: str = "GET", *fields: str) -> Answer:
        """One request on a connection of its own."""
        return ask(self.way, target, method, fields)

    def held(self) -> int:
        """How many requests the application works on."""
        return len(list((self.directory / "held").iterdir()))

    def let_go(self) -> None:
        """Let the application answer them."""
        (self.directory / "go").touch()


class Trial:
    """One server, in a directory of its own. `bare` leaves out what a feature takes, so that it should be missed."""

    def __init__(self, server: str, directory: Path, bare: bool = False) -> None:
        self.server = server
        self.directory = directory
        self.bare = bare
        self.means = Means()
        (directory / "probe.py").write_text(Path(probe.__file__).read_text("utf-8"), "utf-8")
        (directory / "held").mkdir()
        (directory / "files").mkdir()

    def seen(self, finding: Finding) -> Seen:
        """What was found, with the means that it took."""
        return Seen(finding, self.means.shown, self.means.own_code)

    # Certificates

    @cached_property
    def authority(self) -> trustme.CA:
        """Who has issued all certificates here."""
        return trustme.CA()

    def certificate(self, name: str, expires_in: datetime.timedelta | None = None) -> Path:
        """A file with a new certificate for that name and its key: PKCS #8, since granian reads no other."""
        expires = datetime.datetime.now(datetime.timezone.utc) + expires_in if expires_in else None
        leaf = self.authority.issue_cert(name, not_after=expires)
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self.directory / f"{name}.pem"
        path.write_bytes(key + b"".join(part.bytes() for part in leaf.cert_chain_pems))
        return path

    @cached_property
    def authority_file(self) -> Path:
        """The certificate of the authority."""
        path = self.directory / "authority.pem"
        self.authority.cert_pem.write_to_path(path)
        return path

    @property
    def client(self) -> ssl.SSLContext:
        """A client that trusts the authority, and does not mind the name."""
        context = ssl.create_default_context(cafile=str(self.authority_file))
        context.check_hostname = False
        return context

    # The server

    def chosen(self, means: Mapping[str, Means]) -> Means:
        """What is for this server; nothing, if it has nothing for the feature."""
        self.means = Means() if self.bare else means.get(self.server, Means())
        for name, text in self.means.files.items():
            (self.directory / name).write_text(text, "utf-8")
        return self.means

    def command(
        self, means: Means, port: int, certificate: Path | None = None, workers: int = 1, backend: int = 0
    ) -> list[str]:
        """How it is started."""
        if self.server == NGINX:
            path = self.directory / "nginx.conf"
            path.write_text(self._nginx(means, port, certificate, workers, backend), "utf-8")
            return [nginx_program(), "-c", str(path), "-p", str(self.directory), "-e", "stderr", *means.flags]
        target = targets.find(self.server)
        python = sys.executable if self.server == OURS else targets.interpreter(target)
        if means.script:
            (self.directory / "serve.py").write_text(means.script, "utf-8")
            return [python, "serve.py", str(port)]
        mode = Mode("processes", processes=workers) if workers > 1 else Mode()
        launch = targets.Launch(means.application, port, mode, True, python, certificate=certificate)
        return [*target.command(launch), *means.arguments]

    def _nginx(self, means: Means, port: int, certificate: Path | None, workers: int, backend: int) -> str:
        # As in the configuration that Debian installs.
        protocols = "ssl_protocols TLSv1.2 TLSv1.3;" if certificate else ""
        pair = f"ssl_certificate {certificate}; ssl_certificate_key {certificate};"
        is_given = any("ssl_certificate " in line for line in means.arguments)
        return NGINX_CONFIGURATION.format(
            directory=self.directory,
            workers=workers,
            user=f"user {getpass.getuser()};" if os.geteuid() == 0 else "",
            http=means.http,
            port=port,
            listen=(" ssl" if certificate else "") + (f" {means.listen}" if means.listen else ""),
            tls=protocols + ("" if is_given or not certificate else f" {pair}"),
            server="\n        ".join(means.arguments),
            location=means.location,
            backend=backend,
        )

    def environment(self) -> dict[str, str]:
        """What every server is started with: its own packages, and a home where it may write."""
        return {"PYTHONPATH": "", "HOME": str(self.directory)}

    @contextmanager
    def serving(
        self,
        means: Mapping[str, Means],
        *,
        certificate: Path | None = None,
        workers: int = 1,
        environment: Mapping[str, str] | None = None,
        handed_over: Sequence[socket.socket] = (),
    ) -> Iterator[Running]:
        """The server with what there is for the feature, over TLS if there is a certificate.

        `handed_over` are sockets that systemd has opened; their names are in the environment.
        """
        chosen, port = self.chosen(means), free_port()
        with ExitStack() as stack:
            backend = stack.enter_context(self._backend()) if self.server == NGINX else 0
            command = self.command(chosen, port, certificate, workers, backend)
            if handed_over:
                command = [sys.executable, str(self._manager(handed_over)), *command]
            process = stack.enter_context(self._process(command, environment, handed_over))
            running = Running(process, port, self.directory, self.client if certificate else None)
            place = handed_over[0].getsockname() if handed_over else ("127.0.0.1", port)
            sockets = [place, ("127.0.0.1", port), str(self.directory / "socket")]
            if not eventually(lambda: running.ended or any(map(accepts, sockets)), PATIENCE) or running.ended:
                raise AssertionError(f"{self.server} does not start\n{process.describe()}")
            yield running

    @contextmanager
    def _backend(self) -> Iterator[int]:
        """The application that is behind nginx, served by this server; its port."""
        command = [sys.executable, "-m", "uvicorn", "probe:app", "--port", "0", "--no-proxy-headers"]
        with self._process(command) as process:
            yield process.port

    def _process(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        handed_over: Sequence[socket.socket] = (),
    ) -> ServerProcess:
        return ServerProcess(
            command=command,
            cwd=self.directory,
            env={**self.environment(), **(environment or {})},
            pass_fds=[sock.fileno() for sock in handed_over],
        )

    def _manager(self, sockets: Sequence[socket.socket]) -> Path:
        """A program that starts another with these sockets where systemd puts them."""
        path = self.directory / "manager.py"
        path.write_text(
            "import os, sys\n"
            f"copies = [os.dup2(number, 100 + number) for number in {[sock.fileno() for sock in sockets]!r}]\n"
            "for index, copy in enumerate(copies): os.dup2(copy, 3 + index, inheritable=True)\n"
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(copies)))\n"
            "os.execv(sys.argv[1], sys.argv[1:])\n",
            "utf-8",
        )
        return path

    def status(self, means: Mapping[str, Means], certificate: Path, application: str = "probe:app") -> int | None:
        """The exit status of a program that should end by itself; None if it goes on, as one that serves does."""
        chosen = self.chosen(means)
        if application != "probe:app":
            chosen = replace(chosen, application=application)
        with self._process(self.command(chosen, port := free_port(), certificate, backend=free_port())) as process:
            ended = eventually(lambda: process.process.poll() is not None or accepts(("127.0.0.1", port)), PATIENCE)
            return process.process.poll() if ended else None

    def run(self, program: str, *arguments: str) -> str:
        """What a program that belongs to the server, and lies beside its interpreter, says."""
        python = Path(targets.interpreter(targets.find(self.server)))
        done = subprocess.run(
            [str(python.parent / program), *arguments],
            cwd=self.directory,
            env={**os.environ, **self.environment()},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return done.stdout + done.stderr


def accepts(address: tuple[str, int] | str) -> bool:
    """Whether somebody listens there."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as sock:
        sock.settimeout(1)
        return sock.connect_ex(address) == 0
