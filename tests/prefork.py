"""Fork servers from an interpreter that has imported their modules: importing takes half of each start.

A child behaves like `python -m uvicorn ARGS`. Its parent has no threads and no event loops. It gets its own session,
directory, standard streams, `sys.path` and arguments, runs `uvicorn.__main__` as `__main__`, and ends like any
interpreter. An interpreter reads some variables only at its start (`PYTHON*`, coverage, the allocator's limits), so
`ForkServer.start` rejects every environment but its own, and `ServerProcess` then starts an interpreter. Linux only.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

AVAILABLE = sys.platform == "linux"

IMPORTED = ("uvicorn.main", "uvicorn.protocols.http.auto", "uvicorn.protocols.websockets.auto", "uvicorn.loops.auto")
"""Modules of nearly every server; a child imports the others itself."""

LARGEST = 1 << 16
"""Bytes of the largest request."""


class ForkedProcess:
    """The part of `subprocess.Popen` that a test uses, for a child of the waiting interpreter."""

    def __init__(self, pid: int, status: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = os.fdopen(stdout, "rb", buffering=0)
        self.stderr = os.fdopen(stderr, "rb", buffering=0)
        self._status = status

    def poll(self) -> int | None:
        """Exit status, minus the signal's number when a signal ended it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the child and return its exit status.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired("uvicorn", timeout or 0)
            self.returncode = int(os.read(self._status, LARGEST) or -signal.SIGKILL)
            os.close(self._status)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send `sig` unless the child has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The waiting interpreter, seen by those who start servers; it ends with the process that made it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def start(
        self, arguments: Sequence[str], directory: str | os.PathLike[str] | None, environment: Mapping[str, str]
    ) -> ForkedProcess | None:
        """Start `python -m uvicorn` with `arguments` in `directory`; None if its environment needs an interpreter."""
        if environment != self._environment:
            return None
        request = json.dumps([list(arguments), os.fspath(directory or os.getcwd())]).encode()
        pipes = [os.pipe() for _ in range(3)]
        socket.send_fds(self._control, [request], [writer for _, writer in pipes])
        for _, writer in pipes:
            os.close(writer)
        (stdout, _), (stderr, _), (status, _) = pipes
        return ForkedProcess(int(self._control.recv(LARGEST)), status, stdout, stderr)


class _Waiting:
    """The interpreter that waits: forks a child for each request, and reports the end of each."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def run(self) -> list[str]:
        """Serve until the control socket is closed; in a child, return its arguments."""
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._report(key.fd, *key.data)
                elif (arguments := self._fork()) is not None:
                    return arguments

    def _report(self, pidfd: int, pid: int, status: int) -> None:
        self._selector.unregister(pidfd)
        _, code = os.waitpid(pid, 0)
        with contextlib.suppress(BrokenPipeError):
            os.write(status, str(os.waitstatus_to_exitcode(code)).encode())
        os.close(pidfd)
        os.close(status)

    def _fork(self) -> list[str] | None:
        request, numbers, _, _ = socket.recv_fds(self._control, LARGEST, 3)
        if not request:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            return self._become(*json.loads(request), *numbers)
        self._control.send(str(pid).encode())
        stdout, stderr, status = numbers
        os.close(stdout)
        os.close(stderr)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))
        return None

    def _become(self, arguments: list[str], directory: str, stdout: int, stderr: int, _: int) -> list[str]:
        os.setsid()
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        self._selector.close()
        self._control.close()
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(directory)
        sys.path[0] = directory
        return arguments


def main(control: int) -> None:
    """Wait for requests; a child leaves this function as the command it was asked to be."""
    sys.path[0] = ""  # a directory of the child's
    for name in IMPORTED:
        importlib.import_module(name)
    arguments = _Waiting(socket.socket(fileno=control)).run()
    sys.argv[1:] = arguments
    runpy.run_module("uvicorn", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
