"""Answer `/live` and `/ready` at an address of their own while event loops are blocked: the setting `probe`.

A single process answers in a thread of the native core, which needs no interpreter. A parent runs no application and
answers in a thread of Python's, for the event loops of its workers.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import weakref
from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING

from uvicorn.listening import handover
from uvicorn.metrics.loop_state import DUE, LOOP, PROCESS, STAGE, LoopState
from uvicorn.observing.exposition import Exposition, _Client, _in_url, _is_whole, bind
from uvicorn.serving.drain import Stage

if TYPE_CHECKING:
    from uvicorn._native import ProbeResponder

MOST_REASONS = 8
"""Reasons in one answer."""

Loops = Sequence[LoopState]

logger = logging.getLogger("uvicorn.error")

running: weakref.WeakSet[Probe] = weakref.WeakSet()
"""Those of this process that are open."""


def readiness(loops: Loops, lateness: float) -> tuple[bool, str]:
    """Tell whether one of the loops is ready, and name the reasons why others are not.

    A loop is not ready while it starts or drains, and when it is late for more than `lateness` seconds.
    """
    reasons = list(_reasons(loops, lateness))
    is_ready = len(reasons) < len(loops)
    text = ", ".join(reasons[:MOST_REASONS] or ([] if loops else ["there is no worker"]))
    if len(reasons) > MOST_REASONS:
        text += f", and {len(reasons) - MOST_REASONS} more"
    return is_ready, ("ready" if is_ready else "not ready") + (text and f": {text}")


def _reasons(loops: Loops, lateness: float) -> Iterator[str]:
    now = monotonic_ns()
    for state in loops:
        reason = _reason(state.words, lateness, now)
        if reason is not None:
            process, number = state.words[PROCESS], state.words[LOOP]
            yield reason + (f" in loop {number}" if number else "") + (f" in worker {process}" if process else "")


def _reason(words: memoryview, lateness: float, now: int) -> str | None:
    stage, due = words[STAGE] - 1, words[DUE]
    if stage <= Stage.STARTING:
        return "starting"
    if stage > Stage.RETIRING:
        return "draining"
    late = (now - due) / 1e9
    return f"late by {late:.1f} s" if due and late > lateness else None


def readiness_of_pools(pools: Sequence[tuple[str, Loops]], lateness: float) -> tuple[bool, str]:
    """Tell the same of pools by name, all of which must be ready."""
    found = [(name, *readiness(loops, lateness)) for name, loops in pools]
    return all(is_ready for _, is_ready, _ in found), "\n".join(f"{name}: {text}" for name, _, text in found)


class Probe:
    """Answers at one address, from `start` to `close`.

    Args:
        address: `HOST:PORT`.
        lateness: seconds for which a ready loop may be late.
        loops: those of this process; None for a parent.
        ready: returns the readiness of a parent.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(
        self,
        address: str,
        lateness: float,
        loops: Loops | None = None,
        ready: Callable[[], tuple[bool, str]] | None = None,
    ) -> None:
        self.listener = bind(address, handover.Use.PROBE)
        self._lateness = lateness
        self._loops = loops
        self._ready = ready or (lambda: readiness(loops or (), lateness))
        self._responder: ProbeResponder | _Responder | None = None
        self._is_closed = False
        running.add(self)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.listener.getsockname()[:2]
        return host, port

    def start(self, stage: Stage = Stage.STARTING) -> None:
        """Answer from now on; once serving if this process takes over from another, which answers until then."""
        is_too_soon = stage < Stage.SERVING and handover.current.is_taking_over
        if self._is_closed or self._responder is not None or is_too_soon:
            return
        host, port = self.address
        logger.info("Probes on http://%s:%d/ready and /live", _in_url(host), port)
        self._responder = self._native_responder()
        if self._responder is None:
            self._responder = responder = _Responder(self.listener, self._ready)
            responder.start()

    def _native_responder(self) -> ProbeResponder | None:
        if self._loops is None:
            return None
        with contextlib.suppress(ImportError, NotImplementedError):
            from uvicorn._native import ProbeResponder

            return ProbeResponder(self.listener.fileno(), [state.words for state in self._loops], self._lateness)
        return None

    def close(self) -> None:
        """Stop answering."""
        self._is_closed = True
        running.discard(self)
        if self._responder is not None:
            self._responder.close()
        self.listener.close()

    def forget(self) -> None:
        """Called in a child that was forked by a parent."""
        running.discard(self)
        if isinstance(self._responder, _Responder):
            self._responder.forget()
        self.listener.close()


class _Responder(Exposition):
    """Answers in a thread of Python's."""

    fields = "cache-control: no-store\r\n"

    def __init__(self, listener: socket.socket, ready: Callable[[], tuple[bool, str]]) -> None:
        super().__init__(listener, str)
        self._ready = ready
        self._thread.name = "uvicorn-probe"

    def start(self) -> None:
        self._thread.start()

    def _answer(self, client: _Client) -> None:
        method, _, rest = client.head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if not _is_whole(client) or method not in (b"GET", b"HEAD"):
            super()._answer(client)
        elif path == b"/live":
            self._say(client, "200 OK", b"live\n")
        elif path == b"/ready":
            is_ready, text = self._ready()
            self._say(client, "200 OK" if is_ready else "503 Service Unavailable", f"{text}\n".encode())
        else:
            self._say(client, "404 Not Found", b"See /live and /ready.\n")
