"""The outcome of an upgrade, for `uvicorn upgrade PID` of the same user.

On Linux it is in memory that the server keeps open and the command opens below /proc: nothing is left behind, whatever
happens, and it works from outside a container or a service with a private /tmp. Elsewhere it is a file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

NAME = "uvicorn-upgrade"

SIZE = 4096
"""Bytes of the whole text, of which the end is blank."""

REACTION = 10.0
"""Seconds that a server has to react to the signal."""

INTERVAL = 0.05
"""Seconds between two looks at the outcome."""

OUTCOMES = ("done", "failed")


@dataclass(frozen=True)
class Outcome:
    """The last upgrade of one process.

    Attributes:
        pid: the process.
        number: how many upgrades were requested.
        state: `none`, `starting`, `done` or `failed`.
        successor: its process id; 0 without one.
        text: why it has failed, as a clause.
    """

    pid: int
    number: int = 0
    state: str = "none"
    successor: int = 0
    text: str = ""


class Status:
    """The place where a server writes the outcome of its upgrades."""

    def __init__(self) -> None:
        self.outcome = Outcome(os.getpid())
        self._file: Path | None = None
        self._descriptor: int | None = None
        with suppress(OSError):
            self._descriptor = self._open()
        self._write()

    def _open(self) -> int:
        if sys.platform == "linux":
            return os.memfd_create(NAME, os.MFD_CLOEXEC)
        directory = _directory()
        directory.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours(directory):
            raise PermissionError(f"{directory} belongs to another user")
        self._file = directory / str(os.getpid())
        self._file.unlink(missing_ok=True)
        return os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)

    def begin(self, successor: int = 0) -> None:
        """An upgrade was requested, and `successor` starts."""
        self.outcome = Outcome(os.getpid(), self.outcome.number + 1, "starting", successor)
        self._write()

    def end(self, failure: str = "") -> None:
        """It is done, or has failed for a reason."""
        before = self.outcome
        self.outcome = Outcome(before.pid, before.number, "failed" if failure else "done", before.successor, failure)
        self._write()

    def _write(self) -> None:
        if self._descriptor is None or sys.platform == "win32":
            return
        members = asdict(self.outcome)
        members["text"] = self.outcome.text[: SIZE // 8]  # a character may take six bytes
        with suppress(OSError):
            os.pwrite(self._descriptor, json.dumps(members).encode().ljust(SIZE), 0)

    def forget(self) -> None:
        """Close it in a child that was forked."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def close(self) -> None:
        """Remove it."""
        self.forget()
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def _directory() -> Path:
    if sys.platform == "win32":
        raise NotImplementedError("Windows has no SIGUSR2")
    import tempfile  # needed without /proc only

    return Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid()}"


def _is_ours(path: Path) -> bool:
    return sys.platform != "win32" and path.lstat().st_uid == os.getuid()


def _find(pid: int) -> int | None:
    """Open the place of a process; None if it has none.

    Raises:
        PermissionError: it belongs to another user.
    """
    if sys.platform != "linux":
        file = _directory() / str(pid)
        with suppress(FileNotFoundError):
            return os.open(file, os.O_RDONLY) if _is_ours(file) else None
        return None
    directory = f"/proc/{pid}/fd"
    with suppress(FileNotFoundError):
        for number in os.listdir(directory):
            with suppress(FileNotFoundError):
                if os.readlink(f"{directory}/{number}") == f"/memfd:{NAME} (deleted)":
                    return os.open(f"{directory}/{number}", os.O_RDONLY)
    return None


def _read(descriptor: int) -> Outcome | None:
    """Return the outcome; None in the middle of a write."""
    if sys.platform == "win32":
        raise NotImplementedError("Windows has no SIGUSR2")
    with suppress(ValueError, TypeError):
        return Outcome(**json.loads(os.pread(descriptor, SIZE, 0)))
    return None


def _read_whole(descriptor: int) -> Outcome:
    while (outcome := _read(descriptor)) is None:
        time.sleep(INTERVAL)
    return outcome


def upgrade(pid: int) -> str | None:
    """Upgrade the server with this process id: return the process id of its successor, as text.

    Raises:
        RuntimeError: it was not upgraded; says why.
    """
    if sys.platform == "win32":
        raise RuntimeError("Windows has no SIGUSR2; start the server again.")
    try:
        os.kill(pid, 0)
        descriptor = _find(pid)
    except ProcessLookupError:
        raise RuntimeError(f"there is no process [{pid}].") from None
    except PermissionError:
        raise RuntimeError(f"process [{pid}] belongs to another user; run the command as that user.") from None
    if descriptor is None:
        raise RuntimeError(
            f"process [{pid}] is no server that can be upgraded. Name the parent process of a server that the command "
            "or uvicorn.run() has started, without --reload."
        )
    try:
        return _await_outcome(pid, descriptor)
    finally:
        os.close(descriptor)


def _await_outcome(pid: int, descriptor: int) -> str:
    if sys.platform == "win32":
        raise NotImplementedError("Windows has no SIGUSR2")
    before = _read_whole(descriptor)
    if before.pid != pid:
        raise RuntimeError(f"process [{pid}] is a worker; name its parent [{before.pid}].")
    if before.state == "starting":
        raise RuntimeError(f"an upgrade of process [{pid}] is under way (process [{before.successor}]).")
    if before.state == "done":
        raise RuntimeError(f"process [{pid}] is shutting down; name its successor [{before.successor}].")
    os.kill(pid, signal.SIGUSR2)
    react_by = time.monotonic() + REACTION
    while True:
        is_over = _has_ended(pid)
        outcome = _read_whole(descriptor)
        if outcome.number > before.number and outcome.state in OUTCOMES:
            break
        if is_over:
            raise RuntimeError(f"process [{pid}] has ended.")
        if outcome.number == before.number and time.monotonic() > react_by:
            raise RuntimeError(f"process [{pid}] has not reacted for {REACTION:g} seconds; see its log.")
        time.sleep(INTERVAL)
    if outcome.state == "failed":
        raise RuntimeError(f"{outcome.text}; process [{pid}] keeps serving.")
    return str(outcome.successor)


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    if sys.platform == "linux":
        with suppress(OSError):  # a zombie has ended, too
            return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    return False
