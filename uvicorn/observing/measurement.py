"""Where a server counts, and which process exports the counts. Imported on demand."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from uvicorn.metrics.memory import resident_memory
from uvicorn.metrics.page import LagProbe, Page
from uvicorn.metrics.route_table import RouteTable, Shape
from uvicorn.metrics.routes import announce_routes
from uvicorn.observing.exposition import Exposition, MetricsAggregator, WorkerFigures, bind, render

if TYPE_CHECKING:
    from uvicorn.observing.debugging import Observer


class Measurement:
    """The counters of the running event loop: in the page of its supervisor, or in a page that this process exports.

    Args:
        page: that of the supervisor, if there is one.
        address: where to export otherwise.
        names: those of the certificates.
        shape: of the table of routes.
        app: the application, whose routes those are.
        tasks: in which requests are in flight.

    Attributes:
        page: the counters in memory.

    Raises:
        OSError: the address for it cannot be bound.
    """

    def __init__(
        self,
        page: Page | None,
        address: str,
        names: Sequence[str] = (),
        shape: Shape = Shape(),  # noqa: B008 - a tuple
        app: Any = None,
        tasks: set[Any] | None = None,
    ) -> None:
        self._exposition: Exposition | None = None
        if page is None:
            aggregator = MetricsAggregator(shape)
            self._exposition = Exposition(bind(address), functools.partial(text_of, aggregator, names))
            self._exposition.hand_on({"": aggregator})
            self._exposition.start()
            page = aggregator.page(shared=False)
        self.page = page
        sample: Callable[[], None] | None = None
        if shape.capacity:
            page.routes = table = RouteTable(page, shape, app)
            announce_routes(app)
            sample = functools.partial(table.sample, set() if tasks is None else tasks)
        self._probe = LagProbe(page, asyncio.get_running_loop(), sample=sample)
        self._probe.start()

    def tell_requests(self, observers: Callable[[], Sequence[Observer]]) -> None:
        """Export the listings of these observers too, if this process exports."""
        # Imported by those that need it.
        from uvicorn.observing.debugging import listings_of, shown
        from uvicorn.observing.on_demand import measure_here

        if self._exposition is not None:
            self._exposition.tell_requests(lambda as_json: shown(listings_of(observers()), as_json))
            self._exposition.measure_on_demand(measure_here(observers))

    def tell_stalls(self, observers: Callable[[], Sequence[Observer]]) -> None:
        """Export the worst stalls of these observers too, if this process exports."""
        from uvicorn.observing.debugging import listings_of, shown_stalls

        if self._exposition is not None:
            self._exposition.tell_stalls(lambda as_json: shown_stalls(listings_of(observers()), as_json))

    def close(self) -> None:
        """Stop counting."""
        self._probe.stop()
        if self._exposition is not None:
            self._exposition.close()


def text_of(aggregator: MetricsAggregator, names: Sequence[str], is_open: bool) -> str:
    """The metrics of a process without a supervisor, and of certificates of these names."""
    pid = os.getpid()
    memory = resident_memory(pid)
    figures = WorkerFigures(
        {} if memory is None else {pid: memory},
        {},
        aggregator.certificates(names),
        aggregator.lost,
        routes=aggregator.routes(),
        stalls=aggregator.stalls(),
    )
    return render(aggregator.totals(), figures, is_open)
