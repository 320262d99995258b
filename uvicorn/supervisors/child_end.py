"""The child's end of the pipe between a worker and its parent: answers and reports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from uvicorn.server import Server
from uvicorn.serving.drain import Stage
from uvicorn.supervisors.health import LoopProbe

if TYPE_CHECKING:
    from uvicorn.observing.on_demand import Job
    from uvicorn.supervisors.threaded import ThreadedServer

PIECE = 8192
"""Bytes of one piece of the list of requests: the system writes so few at once or not at all. If a child were stopped
while it writes a longer message, the reader would wait for the rest of it."""

LAST_PART_PATIENCE = 2.0
"""Seconds that a measurement has to end when its process does."""

logger = logging.getLogger("uvicorn.error")


class Sender(Protocol):
    """The end of a pipe, on each system."""

    def send(self, message: bool | int | bytes | str | tuple[float, ...], /) -> None:
        """Send one message."""


class ChildEnd:
    """Sends answers and reports, from several threads.

    Messages differ by type: bool is an answer, int a stage, tuple the seconds for which each event loop has been
    blocked, bytes a piece of the list of requests in flight, which an empty one ends, and str a piece of a
    measurement's part.
    """

    def __init__(self, connection: Sender) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._probes: list[LoopProbe] = []
        self._are_blocked = False  # some loops, as the parent knows it
        self._job: Job | None = None

    def send(self, message: bool | int | bytes | str | tuple[float, ...]) -> None:
        """Send one message.

        Raises:
            OSError: the parent is gone.
        """
        with self._sending:
            self._connection.send(message)

    def answer(self, serves: bool) -> None:
        """Report for how long event loops have been blocked, once more when none is; then answer a question.

        Before the next question the parent may ask for stacks.
        """
        times = tuple(probe.look() for probe in self._probes)
        if any(times) or self._are_blocked:
            self.send(times)
        self._are_blocked = any(times)
        self.send(serves)

    def report(self, stage: Stage, loops: Iterable[asyncio.AbstractEventLoop] = ()) -> None:
        """Report that the server has entered `stage`; `loops` are watched from the moment it serves."""
        if stage is Stage.SERVING:
            self._probes = [LoopProbe(loop) for loop in loops]
        elif stage >= Stage.DONE and self._job is not None:
            self._job.stop(LAST_PART_PATIENCE)  # a signal may end the process after that
        # The parent may be gone.
        with contextlib.suppress(OSError):
            self.send(int(stage))

    def answer_requests(self, server: Server | ThreadedServer) -> None:
        """Send the list of requests in flight from another thread, since other questions come meanwhile."""
        try:
            threading.Thread(target=self.tell_requests, args=(server,), name="uvicorn-requests", daemon=True).start()
        except RuntimeError:  # no room for a thread; answer nevertheless
            self._send_pieces(b"[]")

    def tell_requests(self, server: Server | ThreadedServer) -> None:
        """Send the list of requests in flight; an empty one if that fails."""
        # Imported where it is wanted.
        from uvicorn.observing.debugging import listings_of

        text = b"[]"
        try:
            text = json.dumps(listings_of(server.observers)).encode()
        except Exception:
            logger.exception("Cannot report the requests in flight")
        # Even if empty: the parent asks again only after an answer.
        with contextlib.suppress(OSError):
            self._send_pieces(text)

    def _send_pieces(self, text: bytes) -> None:
        for begin in range(0, len(text), PIECE):
            self.send(text[begin : begin + PIECE])
        self.send(b"")

    def measure(self, server: Server | ThreadedServer, order: bytes) -> None:
        """Start a measurement (`orders`) and send its parts as they come; an empty order stops the one that runs."""
        if self._job is not None:
            # One that has sent its last part is about to end.
            self._job.stop(1.0 if order else 0.0)
        if not order:
            return
        # Imported where they are wanted.
        from uvicorn.observing.on_demand import Job, failure
        from uvicorn.observing.orders import Order

        if self._job is not None and self._job.is_running:
            self._send_part(failure("it is still busy with the last measurement"))
            return
        self._job = Job(Order(*json.loads(order)), server.observers, self._send_part)
        try:
            self._job.start()
        except RuntimeError:
            self._send_part(failure("there is no room for a thread"))

    def _send_part(self, part: Mapping[str, Any]) -> None:
        text = json.dumps(part)
        for begin in range(0, len(text), PIECE):
            self.send(text[begin : begin + PIECE])
        self.send("")
