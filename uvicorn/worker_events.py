"""Events of worker processes: each is a log record, a count and a call of the user's hook.

The keys of a record (`extra`) are those of `WorkerEvent`, with `worker_` in front, so that a formatter can take them
apart without reading the message.
"""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

EventKind = Literal["start", "ready", "recycle", "blocked", "exit", "crash", "kill"]

logger = logging.getLogger("uvicorn.error")


@dataclass(frozen=True)
class WorkerEvent:
    """One event in the life of a worker, as its parent has noticed it.

    Attributes:
        kind: `start` (its process was made), `ready` (it serves), `recycle` (another is started in its place),
            `blocked` (its event loop has not turned for longer than an answer may take), `kill` (it was ended as it
            stood), `exit` (it has ended gracefully, or was killed), `crash` (any other end).
        pid: its process id.
        reason: of `recycle`: `requests`, `lifetime`, `memory` or `restart`; of `crash`: `startup` if it had not
            served, else the signal (`SIGKILL`) or the exit status (`status 1`); of `kill`: `unresponsive`, `deadline`
            (it did not stop in time) or `startup` (it did not serve in time). Otherwise None.
        exitcode: of `exit` and `crash`: its exit status, minus the number of the signal that has ended it; else None.
    """

    kind: EventKind
    pid: int | None
    reason: str | None = None
    exitcode: int | None = None

    @property
    def signal(self) -> str | None:
        """Name of the signal that has ended it, such as `SIGKILL`; None if none did."""
        return None if self.exitcode is None or self.exitcode >= 0 else signal_name(-self.exitcode)


class WorkerEvents:
    """Receives the events of a supervisor.

    Attributes:
        counts: number of events by kind and reason.
    """

    def __init__(self, hook: Callable[[WorkerEvent], object] | None = None) -> None:
        self.counts: Counter[tuple[EventKind, str | None]] = Counter()
        self._hook = hook

    def tell(self, event: WorkerEvent, level: int, message: str, *arguments: object) -> None:
        """Count `event`, log it, and call the hook. The first argument of the message is the process id."""
        self.counts[event.kind, event.reason] += 1
        logger.log(level, message, event.pid, *arguments, extra=_fields(event))
        if self._hook is None:
            return
        try:
            self._hook(event)
        except Exception:
            # A hook must not end the supervisor.
            logger.exception("on_worker_event raised an exception for %r", event)


def _fields(event: WorkerEvent) -> dict[str, object]:
    return {
        "worker_event": event.kind,
        "worker_pid": event.pid,
        "worker_reason": event.reason,
        "worker_exitcode": event.exitcode,
        "worker_signal": event.signal,
    }


def how_ended(exitcode: int) -> str:
    """Say how a process has ended, for the log."""
    return f"exit status {exitcode}" if exitcode >= 0 else f"killed by {signal_name(-exitcode)}"


def signal_name(number: int) -> str:
    """The name of a signal; real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
