"""The metrics by route, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from uvicorn.metrics.page import CLASSES
from uvicorn.metrics.route_table import KINDS, WEBSOCKET, Exemplar, RouteFigures, Series
from uvicorn.observing.text_format import escaped, head, histogram, sample

_NANO = 1e9

_Rows = list[tuple[str, Series]]


def route_lines(figures: RouteFigures, is_open: bool) -> Iterator[str]:
    """Give the lines of all families; `is_open`: with exemplars, which only OpenMetrics has."""
    layout, found = figures.shape.layout, sorted(figures.series.items(), key=lambda item: item[0][::-1])
    requests: _Rows = []
    sessions: _Rows = []
    for (kind, route), series in found:
        label = f'route="{escaped(route)}"'
        if kind == KINDS[WEBSOCKET]:
            sessions.append((label, series))
        else:
            requests.append((f'method="{kind}",{label}', series))
    yield from head("route_requests_total", "counter", "Completed requests by method, route and class of status.")
    for labels, series in requests:
        for number, name in enumerate(CLASSES):
            if count := figures.number(series, layout.statuses + number):
                yield sample("route_requests_total", f'{labels},status="{name}"', count)
    text = "From request head to response end, by route."
    yield from _histogram(figures, "request_duration_seconds", text, requests, layout.duration, is_open)
    text = "From request head to the first byte of the response body, by route."
    yield from _histogram(figures, "time_to_first_byte_seconds", text, requests, layout.first_byte)
    text = "From readable connection to application call, by route."
    yield from _histogram(figures, "request_queue_wait_seconds", text, requests, layout.queue_wait)
    for name, kind, text, rows, place in (
        ("requests_in_flight", "gauge", "Requests being answered, sampled twice a second.", requests, layout.in_flight),
        ("request_body_bytes_total", "counter", "Bytes of request bodies.", requests, layout.received),
        ("response_body_bytes_total", "counter", "Bytes of response bodies.", requests, layout.sent),
        (
            "cancelled_requests_total",
            "counter",
            "Requests that `on_disconnect` has cancelled.",
            requests,
            layout.cancelled,
        ),
        ("websocket_sessions_total", "counter", "Accepted WebSockets.", sessions, layout.sessions),
        ("open_websockets", "gauge", "Open WebSockets.", sessions, layout.in_flight),
        ("cancelled_websockets_total", "counter", "WebSockets that were cancelled.", sessions, layout.cancelled),
    ):
        yield from head(f"route_{name}", kind, text)
        for labels, series in rows:
            yield sample(f"route_{name}", labels, figures.number(series, place))
    text = "From acceptance to end of a WebSocket, by route."
    yield from _histogram(figures, "websocket_duration_seconds", text, sessions, layout.duration)


def _histogram(
    figures: RouteFigures, name: str, text: str, rows: _Rows, place: int, has_exemplars: bool = False
) -> Iterator[str]:
    name, bounds = f"route_{name}", figures.shape.bounds
    yield from head(name, "histogram", text)
    for labels, series in rows:
        numbers = [figures.number(series, place + offset) for offset in range(len(bounds) + 2)]
        exemplars = series.exemplars if has_exemplars else [None] * len(numbers)
        yield from histogram(name, labels, bounds, numbers, partial(_exemplar, exemplars))


def _exemplar(exemplars: Sequence[Exemplar | None], bucket: int) -> str:
    if (exemplar := exemplars[bucket]) is None:
        return ""
    value, time = exemplar.value / _NANO, exemplar.time / _NANO
    return f' # {{trace_id="{exemplar.trace}"}} {value:.9f} {time:.3f}'
