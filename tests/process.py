"""A server as a process of its own: started through the command line, watched through its output, always reaped."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

from tests import prefork
from tests.utils import PATIENCE

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).resolve().parent.parent
RUNNING = re.compile(r"Uvicorn running on \w+://.*:(\d+) \(Press CTRL\+C to quit\)")

INTERPRETER = (sys.executable, "-m", "uvicorn")
"""The command by default. It is forked from an interpreter that waits (`prefork`), where that makes no difference."""

APP_BEGINS = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
"""
"""What the application of a process begins with: the lifespan is over here, and what follows answers a request."""


class ServerProcess:
    """`python -m uvicorn ARGS` as a child in its own session (or `command` ARGS when a command is given).

    Its output is read by threads as it appears, so the child never blocks on a full pipe. Used as a context manager
    the child, and whatever it has left behind in its process group, is gone at the end of the block.

        with ServerProcess("app:app", "--port", "0", cwd=tmp_path) as server:
            server.wait_for("Application startup complete.")
            ... 127.0.0.1, server.port ...
            assert server.stop() == -signal.SIGTERM

    `UVICORN_*`, `WEB_CONCURRENCY` and `FORWARDED_ALLOW_IPS` of the caller do not reach the child; `env` is added.
    """

    def __init__(
        self,
        *args: str | os.PathLike[str],
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        command: Sequence[str | os.PathLike[str]] = INTERPRETER,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.arguments = tuple(map(str, args))
        self._output: dict[str, str] = {"stdout": "", "stderr": ""}
        self._changed = threading.Condition()
        environment = _environment(env or {}, is_rewritten=cwd is not None)
        forked = None
        if command is INTERPRETER and not pass_fds and prefork.AVAILABLE:
            forked = _fork_server().start(self.arguments, cwd, environment)
        self.process = forked or subprocess.Popen(
            [*command, *args],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(name, pipe), daemon=True)
            for name, pipe in (("stdout", self.process.stdout), ("stderr", self.process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        while data := os.read(pipe.fileno(), 65536):
            with self._changed:
                self._output[name] += data.decode(errors="replace").replace("\r\n", "\n")
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        """Process id of the child itself (the parent of the workers, the reloader)."""
        return self.process.pid

    @property
    def output(self) -> str:
        """What the child and its children have written to standard output so far."""
        with self._changed:
            return self._output["stdout"]

    @property
    def error_output(self) -> str:
        """What the child and its children have written to standard error so far."""
        with self._changed:
            return self._output["stderr"]

    @property
    def port(self) -> int:
        """The TCP port named by the running line; waits for that line."""
        self.wait_for(" (Press CTRL+C to quit)\n")
        match = RUNNING.search(self.error_output + self.output)
        assert match, f"no TCP port in the running line\n{self.describe()}"
        return int(match[1])

    @property
    def address(self) -> tuple[str, int]:
        """Loopback address of the server, for `socket.create_connection`."""
        return "127.0.0.1", self.port

    def wait_for(self, text: str, timeout: float = PATIENCE, count: int = 1) -> None:
        """Wait until `text` has appeared `count` times on either stream.

        Raises:
            AssertionError: it has not within `timeout` seconds, or the child has ended without writing it.
        """
        self.wait_for_pattern(re.escape(text), timeout, count)

    def wait_for_pattern(self, pattern: str, timeout: float = PATIENCE, count: int = 1) -> list[re.Match[str]]:
        """Wait until the regular expression has matched `count` times on one of the streams; returns the matches."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                for text in self._output.values():
                    matches = list(re.finditer(pattern, text))
                    if len(matches) >= count:
                        return matches
                ended = not any(reader.is_alive() for reader in self._readers)
                remaining = deadline - time.monotonic()
                assert not ended and remaining > 0, f"{pattern!r} not seen {count} times\n{self.describe()}"
                self._changed.wait(min(remaining, 0.2))

    def pids(self, line: str = "Started server process") -> list[int]:
        """Process ids in `<line> [<pid>]`, in order of appearance."""
        return [int(pid) for pid in re.findall(re.escape(line) + r" \[(\d+)\]", self.error_output + self.output)]

    def send_signal(self, sig: signal.Signals) -> None:
        """Send `sig` to the child alone."""
        self.process.send_signal(sig)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Exit status (minus the signal's number when a signal ended it), once the child and its output have ended."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s\n{self.describe()}") from None
        for reader in self._readers:
            reader.join(timeout=5)
        return code

    def stop(self, sig: signal.Signals = signal.SIGTERM, timeout: float = PATIENCE) -> int:
        """Send `sig`, SIGTERM by default, and return the exit status."""
        self.send_signal(sig)
        return self.wait(timeout)

    def describe(self) -> str:
        """Both streams and the state of the child, for a failing assertion."""
        return (
            f"exit status: {self.process.poll()}\n"
            f"--- stdout\n{self._output['stdout']}\n--- stderr\n{self._output['stderr']}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        status = None if error is None else self.process.poll()
        if error is not None and sys.version_info >= (3, 11):
            error.add_note(self.describe())
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5 if kind is None else 1)
        if sys.platform == "win32":
            self.process.kill()
        else:
            # What the child has left behind (workers without their parent) is still in the group it leads.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for reader in self._readers:
            reader.join(timeout=5)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        if isinstance(error, OSError) and status is not None:
            # A summary shows one line of each failure: let it name the cause rather than what a client saw of it.
            raise AssertionError(f"the server had ended with status {status}: {error}\n{self.describe()}") from error


@functools.cache
def _fork_server() -> prefork.ForkServer:
    return prefork.ForkServer(_environment({}, is_rewritten=True))


def _environment(extra: Mapping[str, str], is_rewritten: bool) -> dict[str, str]:
    """The caller's environment without anything that configures a server, with the tree under test importable.

    Where the test writes the code, no bytecode is: Python takes that of another text of the same length for current
    when both were written in one second.
    """
    dropped = ("WEB_CONCURRENCY", "FORWARDED_ALLOW_IPS")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("UVICORN_") and name not in dropped
    }
    paths = [str(ROOT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    environment["PYTHONUNBUFFERED"] = "1"
    if is_rewritten:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment.update(extra)
    return environment


def is_gone(pid: int) -> bool:
    """Whether the process has ended and its parent knows."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


IN_A_NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
"""The beginning of a command that is process 1 of its own namespace."""


def has_namespaces() -> bool:
    """Whether this system lets tests make namespaces of processes."""
    try:
        return subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True, timeout=10).returncode == 0
    except FileNotFoundError:
        return False
