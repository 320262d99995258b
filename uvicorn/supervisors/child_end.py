"""The child's end of the pipe between a worker and its parent: what is sent through it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from uvicorn.server import Server
from uvicorn.serving.drain import Stage
from uvicorn.supervisors.health import LoopProbe

if TYPE_CHECKING:
    from uvicorn.supervisors.threaded import ThreadedServer

PIECE = 8192
"""Bytes of one message with a part of what the event loops are doing, which a system writes at once or not at all. Of a
longer one the end may never come, if the child is stopped while it writes, and whoever reads it waits for that."""

logger = logging.getLogger("uvicorn.error")


class ChildEnd:
    """Sends answers and reports, from several threads.

    Their types tell them apart: an answer is a bool, seconds that an event loop has been blocked for are a float, a
    stage is an int; what the event loops are doing is sent in pieces of bytes, which an empty one ends.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._probes: list[LoopProbe] = []
        self._blocked_for = 0.0  # as the parent knows it

    def send(self, message: bool | int | float | bytes) -> None:
        """Send one message.

        Raises:
            OSError: the parent is gone.
        """
        with self._sending:
            self._connection.send(message)

    def answer(self, serves: bool) -> None:
        """Answer a question; and say for how long an event loop has been blocked, or once that it no longer is."""
        self.send(serves)
        blocked_for = max((probe.look() for probe in self._probes), default=0.0)
        if blocked_for or self._blocked_for:
            self.send(blocked_for)
        self._blocked_for = blocked_for

    def report(self, stage: Stage, loops: Iterable[asyncio.AbstractEventLoop] = ()) -> None:
        """Report that the server has entered `stage`; `loops` are watched from the moment it serves."""
        if stage is Stage.SERVING:
            self._probes = [LoopProbe(loop) for loop in loops]
        # Without a parent there is nobody to tell.
        with contextlib.suppress(OSError):
            self.send(int(stage))

    def answer_requests(self, server: Server | ThreadedServer) -> None:
        """Say what the event loops are doing, from another thread: other questions want an answer meanwhile."""
        try:
            threading.Thread(target=self.tell_requests, args=(server,), name="uvicorn-requests", daemon=True).start()
        except RuntimeError:  # there is no room for one, which is no reason to be silent
            self._send_pieces(b"[]")

    def tell_requests(self, server: Server | ThreadedServer) -> None:
        """Say what the event loops are doing; nothing if that cannot be found out."""
        # Imported where it is wanted.
        from uvicorn.observing.debugging import listings_of

        text = b"[]"
        try:
            text = json.dumps(listings_of(server.observers)).encode()
        except Exception:
            logger.exception("Cannot report the requests in flight")
        # In any case: nobody asks again before there is an answer.
        with contextlib.suppress(OSError):
            self._send_pieces(text)

    def _send_pieces(self, text: bytes) -> None:
        for begin in range(0, len(text), PIECE):
            self.send(text[begin : begin + PIECE])
        self.send(b"")
