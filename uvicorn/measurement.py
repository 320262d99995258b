"""That a server counts: where, and who tells of it. Imported where it is wanted."""

from __future__ import annotations

import asyncio
import os

from uvicorn.exposition import Board, Exposition, WorkerFigures, bind, render
from uvicorn.memory import resident_memory
from uvicorn.metrics import LagProbe, Page


class Measurement:
    """What the event loop that runs counts, where: in the page of its supervisor, or in one that is told of here.

    Attributes:
        page: where.

    Raises:
        OSError: the address for it cannot be bound.
    """

    def __init__(self, page: Page | None, address: str) -> None:
        self._exposition: Exposition | None = None
        if page is None:
            board = Board()
            self._exposition = Exposition(bind(address), lambda: render(board.totals(), own_figures()))
            self._exposition.start()
            page = board.page(shared=False)
        self.page = page
        self._probe = LagProbe(page, asyncio.get_running_loop())
        self._probe.start()

    def close(self) -> None:
        """Count no more."""
        self._probe.stop()
        if self._exposition is not None:
            self._exposition.close()


def own_figures() -> WorkerFigures:
    """What this process knows of itself."""
    pid = os.getpid()
    memory = resident_memory(pid)
    return WorkerFigures({} if memory is None else {pid: memory}, {})
