"""Counts by method and route: which, where, and how they are added up and exposed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import websockets

from tests.metrics.test_page import ask, over_http2, streaming
from tests.utils import open_connection, read_to_end, read_until, request, run_server, server_port, wait_until
from uvicorn.config import Config
from uvicorn.config.errors import SettingError
from uvicorn.metrics.page import BEGUN, BOUNDS, ENDED, METHODS, Page
from uvicorn.metrics.route_table import KINDS, MOST_NAME, RouteTable, RouteTotals, Shape, bounded_name, trace_of
from uvicorn.metrics.routes import NO_ROUTE, RouteMap, Routes, announce_routes
from uvicorn.observing.exposition import MetricsAggregator, WorkerFigures, accepts_open, render
from uvicorn.observing.route_exposition import route_lines
from uvicorn.server import Server
from uvicorn.supervisors.multiprocess import Multiprocess

pytestmark = pytest.mark.anyio

__all__ = ["over_http2"]

SHAPE = Shape(4, (0.5, 1.0))
ITEM, LONG = SimpleNamespace(path="/items/{item}"), SimpleNamespace(path_format="/" + "ä" * MOST_NAME)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLED = f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01"


async def app(scope: Any, receive: Any, send: Any) -> None:
    kind, _, rest = scope["path"][1:].partition("/")
    if kind != "none":
        scope["route"] = {"items": ITEM, "long": LONG}.get(kind, f"/{kind}")
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    more = True
    while more and rest != "wait":
        more = (await receive()).get("more_body", False)
    if rest == "fail":
        raise RuntimeError("on purpose")
    if rest == "wait":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    status = int(rest) if len(rest) == 3 else 200
    await send({"type": "http.response.start", "status": status, "headers": []})
    if rest == "parts":
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def counting(shape: Shape = SHAPE, **settings: Any) -> AsyncIterator[tuple[Server, Page]]:
    """A server that counts by route in a page of a supervisor."""
    bounds = ",".join(map(str, shape.bounds))
    more = {"metrics_routes": shape.capacity, "metrics_buckets": bounds, "lifespan": "off"}
    server = Server(Config(app, port=0, log_config=None, **more, **settings))
    server.metrics_page = page = Page.make(more=shape.words)
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started)
    try:
        yield server, page
    finally:
        server.should_exit = True
        await task


def told(pages: Sequence[Page], shape: Shape = SHAPE, is_open: bool = False) -> dict[str, str]:
    """The samples by route of some pages, without those that are 0."""
    lines = route_lines(RouteTotals(shape).figures(page.words for page in pages), is_open)
    pairs = (line.removeprefix("uvicorn_route_").partition("} ") for line in lines if not line.startswith("#"))
    return {name: value for name, _, value in pairs if value not in ("0", "0.0")}


def named(found: dict[str, str], name: str) -> dict[str, str]:
    """Those of one family, by their labels."""
    return {
        labels: value for key, value in found.items() for family, _, labels in [key.partition("{")] if family == name
    }


# What is counted.


async def test_requests_are_counted_by_method_route_and_status(http_protocol_cls: Any) -> None:
    async with counting(http=http_protocol_cls) as (server, page):
        for target, method, fields in (
            ("/items/1", "GET", [SAMPLED]),
            ("/items/404", "GET", []),
            ("/items/fail", "GET", []),
            ("/items/1", "HEAD", []),
            ("/items/405", "DELETE", []),
            ("/none/1", "GET", []),
        ):
            await ask(server, target, method, fields)
        post = b"POST /items/parts HTTP/1.1\r\nhost: a\r\ncontent-length: 7\r\nconnection: close\r\n\r\n1234567"
        with open_connection(("127.0.0.1", server_port(server)), post) as client:
            assert b" 200 " in await asyncio.to_thread(read_to_end, client)
        for target, method in (("/long/1", "GET"), ("/beyond/1", "GET"), ("/beyond/2", "BREW")):
            await ask(server, target, method)
        with open_connection(("127.0.0.1", server_port(server)), b"no request\r\n\r\n") as client:
            assert b" 400 " in await asyncio.to_thread(read_until, client, b"\r\n")
        await wait_until(lambda: not server.server_state.connections)
        found = told([page], is_open=True)
        long = bounded_name(LONG.path_format).decode()
        assert named(found, "requests_total") == {
            'method="GET",route="/items/{item}",status="2xx"': "1",
            'method="GET",route="/items/{item}",status="4xx"': "1",
            'method="GET",route="/items/{item}",status="5xx"': "1",
            'method="POST",route="/items/{item}",status="2xx"': "1",
            'method="HEAD",route="/items/{item}",status="2xx"': "1",
            'method="DELETE",route="none",status="4xx"': "1",
            'method="GET",route="none",status="2xx"': "1",
            f'method="GET",route="{long}",status="2xx"': "1",
            'method="GET",route="other",status="2xx"': "1",
            'method="other",route="other",status="2xx"': "1",
            'method="other",route="none",status="4xx"': "1",
        }
        assert named(found, "request_body_bytes_total") == {'method="POST",route="/items/{item}"': "7"}
        sent = named(found, "response_body_bytes_total")
        assert sent['method="GET",route="/items/{item}"'] == str(len("hello" * 2 + "Internal Server Error"))
        assert sent['method="POST",route="/items/{item}"'] == "10"
        assert 'method="HEAD",route="/items/{item}"' not in sent
        for histogram in ("request_duration_seconds", "time_to_first_byte_seconds", "request_queue_wait_seconds"):
            assert named(found, f"{histogram}_count")['method="GET",route="/items/{item}"'] == "3"
        buckets = named(found, "request_duration_seconds_bucket")
        exemplar = buckets['method="GET",route="/items/{item}",le="0.5"']
        assert re.fullmatch(rf'3 # {{trace_id="{TRACE}"}} 0\.\d{{9}} \d+\.\d{{3}}', exemplar)
        assert "#" not in buckets['method="GET",route="none",le="0.5"']
        assert sum(page.words[: len(METHODS) * 6]) == sum(map(int, named(found, "requests_total").values()))


async def test_requests_over_http2_are_counted_by_route(over_http2: dict[str, Any]) -> None:
    async with counting(**over_http2) as (server, page):
        async with streaming(server) as client:
            await client.until_ended(*[await client.ask(path) for path in ("/items/1", "/items/2", "/none/")])
        assert named(told([page]), "requests_total") == {
            'method="GET",route="/items/{item}",status="2xx"': "2",
            'method="GET",route="none",status="2xx"': "1",
        }


async def test_requests_in_flight_and_cancelled_ones(http_protocol_cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uvicorn.metrics.page.INTERVAL", 0.01)
    settings = {"http": http_protocol_cls, "on_disconnect": "cancel", "on_disconnect_grace": 0}
    label = 'method="GET",route="/items/{item}"'
    async with counting(**settings) as (server, page):
        with open_connection(("127.0.0.1", server_port(server)), b"GET /items/wait HTTP/1.1\r\nhost: a\r\n\r\n"):
            await wait_until(lambda: named(told([page]), "requests_in_flight") == {label: "1"})
        await wait_until(lambda: not named(told([page]), "requests_in_flight"))
        assert named(told([page]), "requests_total") == {f'{label},status="none"': "1"}
        assert not named(told([page]), "time_to_first_byte_seconds_count"), "nothing was sent"


async def test_websockets_are_counted_by_route(ws_protocol_cls: Any) -> None:
    async with counting(ws=ws_protocol_cls) as (server, page):
        async with websockets.connect(f"ws://127.0.0.1:{server_port(server)}/room/1"):
            await wait_until(lambda: named(told([page]), "open_websockets") == {'route="/room"': "1"})
            assert not named(told([page]), "websocket_duration_seconds_count")
        await wait_until(lambda: not server.server_state.connections)
        found = told([page])
        assert named(found, "websocket_sessions_total") == {'route="/room"': "1"}
        assert named(found, "websocket_duration_seconds_count") == {'route="/room"': "1"}
        assert not named(found, "open_websockets")


def test_a_full_table_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    shape = Shape(2)
    table = RouteTable(Page.make(more=shape.words), shape)
    slots = [table.slot_of({"route": f"/{number}"}, 0)[0] for number in (1, 2, 3, 4, 1)]
    assert slots[0] == slots[4] != slots[1] and slots[2] == slots[3]
    assert [record.getMessage() for record in caplog.records] == [
        "All 2 series of metrics_routes are taken; further routes and methods count as `other`."
    ]


@pytest.mark.parametrize("count, most, expected", [(3, 4096, 3), (40, 4, 40)])
def test_many_requests_in_flight_are_estimated(
    count: int, most: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uvicorn.metrics.route_table.MOST_SAMPLED", most)
    page = Page.make(more=SHAPE.words)
    table = RouteTable(page, SHAPE)
    cycle = SimpleNamespace(response_complete=False, scope={"type": "http", "method": "GET", "route": "/a"})
    table.sample([SimpleNamespace(get_coro=lambda: cycle)] * count)
    assert named(told([page]), "requests_in_flight") == {'method="GET",route="/a"': str(expected)}
    table.sample([SimpleNamespace(get_coro=lambda: None)])
    assert not named(told([page]), "requests_in_flight")


@pytest.mark.parametrize(
    "scope, route",
    [
        ({"method": "GET", "route": SimpleNamespace(path="/a", methods={"GET", "HEAD"})}, "/a"),
        ({"method": "GET", "route": SimpleNamespace(path="/a", methods=None)}, "/a"),
        ({"method": "PUT", "route": SimpleNamespace(path="/a", methods={"GET", "HEAD"})}, ""),
        ({}, ""),
    ],
)
def test_a_request_in_flight_that_ends_with_405_claims_no_series(scope: dict[str, Any], route: str) -> None:
    """Nor does one whose application has cleared the scope end the sampling."""
    page = Page.make(more=SHAPE.words)
    table = RouteTable(page, SHAPE)
    cycle = SimpleNamespace(response_complete=False, scope={"type": "http", **scope})
    bare = SimpleNamespace(response_complete=False, scope={})
    table.sample([SimpleNamespace(get_coro=partial(lambda one: one, one)) for one in (cycle, bare)])
    (labels,) = named(told([page]), "requests_in_flight")
    assert (f'route="{route}"' in labels) if route else (table._taken == 0)


@pytest.mark.parametrize(
    "value, is_sampled",
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", True),
        (f"00-{TRACE}-00f067aa0ba902b7-03", True),
        (f"01-{TRACE}-00f067aa0ba902b7-01-more", True),
        (f"00-{TRACE}-00f067aa0ba902b7-00", False),
        (f"00-{TRACE}-00f067aa0ba902b7-01-more", False),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", False),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", False),
        (f"00-{'g' * 32}-00f067aa0ba902b7-01", False),
        (f"00-{'a ' * 16}-00f067aa0ba902b7-01", False),
        (f"00-{TRACE}-00f067aa0ba902b7- 1", False),
        (f"00-{TRACE}", False),
        ("", False),
    ],
)
async def test_only_the_trace_of_a_sampled_request_is_an_exemplar(value: str, is_sampled: bool) -> None:
    assert trace_of([(b"traceparent", value.encode())]).hex() == (TRACE if is_sampled else "")


async def test_the_native_core_reads_the_same_traces() -> None:
    pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    mark = next(mark for mark in test_only_the_trace_of_a_sampled_request_is_an_exemplar.pytestmark)  # type: ignore[attr-defined]
    shape = Shape(64, (1000.0,))
    async with counting(shape, http="native") as (server, page):
        for number, (value, _) in enumerate(mark.args[1]):
            await ask(server, f"/r{number}/1", "GET", [f"traceparent: {value}"])
        buckets = named(told([page], shape, is_open=True), "request_duration_seconds_bucket")
        sampled = [
            "#" in buckets[f'method="GET",route="/r{number}",le="1000.0"'] for number in range(len(mark.args[1]))
        ]
        assert sampled == [is_sampled for _, is_sampled in mark.args[1]]


# Adding up.


def counted(*routes: str, shape: Shape = SHAPE) -> Page:
    page = Page.make(more=shape.words)
    page.routes = RouteTable(page, shape)
    for route in routes:
        page.begin("GET", {"route": route, "headers": [(b"traceparent", SAMPLED[13:].encode())]}).end()
    return page


def test_no_count_is_lost_or_moved_when_loops_end() -> None:
    aggregator = MetricsAggregator(SHAPE)
    sums: list[int] = []
    for generation in range(3):
        pages = [aggregator.page(shared=False) for _ in range(2)]
        for page in pages:
            page.routes = table = RouteTable(page, SHAPE)
            for number in range(4):
                page.begin("GET", {"route": f"/{generation}/{number}", "headers": []}).end()
            table.open_session({"route": "/0/0"})
        routes = aggregator.routes()
        assert routes is not None
        assert len([route for _, route in routes.series if route != "other"]) <= SHAPE.capacity
        by_route = named(
            dict(line.rpartition(" ")[::2] for line in route_lines(routes, False)), "uvicorn_route_requests_total"
        )
        sums.append(sum(map(int, by_route.values())))
        for page in pages:
            aggregator.retire(page)
    assert sums == [8, 16, 24]
    routes = aggregator.routes()
    assert routes is not None
    gauge = SHAPE.layout.in_flight
    assert not any(routes.number(series, gauge) for series in routes.series.values())


def test_a_successor_counts_on(subtests: pytest.Subtests) -> None:
    """Later counts replace earlier ones and have no gauges. Those of other places or buckets are not taken."""
    first, second = MetricsAggregator(SHAPE), MetricsAggregator(SHAPE)
    page = first.page(shared=False)
    page.routes = table = RouteTable(page, SHAPE)
    sent: list[Any] = []
    for _ in range(2):
        page.begin("GET", {"route": "/a", "headers": []}).end()
        page.begin("GET", {"route": "/a", "headers": []})
        table.open_session({"route": "/a"})
        page.stalls.add("/a", "gc", 5)
        sent.append(json.loads(json.dumps(first.counts())))

    def of(aggregator: MetricsAggregator) -> tuple[int, int, int, Any]:
        figures, totals = aggregator.routes(), aggregator.totals()
        assert figures is not None
        in_flight = sum(figures.number(series, SHAPE.layout.in_flight) for series in figures.series.values())
        ended = sum(figures.number(series, SHAPE.layout.statuses) for series in figures.series.values())
        return totals[BEGUN] - totals[ENDED], in_flight, ended, aggregator.stalls()

    for counts in sent:
        second.inherit(counts)
    third = MetricsAggregator(SHAPE)
    third.inherit(json.loads(json.dumps(second.counts())))
    assert of(second) == of(third) == (0, 0, 2, {("/a", "gc"): (2, 10)})
    for name, other, routes in (
        ("layout", {"layout": 1}, None),
        ("places", {"totals": [1]}, None),
        ("garbage", {"lost": "?"}, None),
        ("buckets", {"bounds": [1.0]}, 0),
        ("no routes", {"bounds": None, "routes": None}, 0),
    ):
        with subtests.test(name):
            successor = MetricsAggregator(SHAPE)
            successor.inherit({**sent[-1], **other})
            assert (sum(successor.totals()) > 0) is (routes is not None)
            assert of(successor)[2] == 0


def test_a_supervisor_sums_up_routes_and_pages_travel() -> None:
    config = Config(app, workers=2, log_config=None, metrics="127.0.0.1:0", metrics_routes=5, metrics_buckets="1,2")
    supervisor = Multiprocess(config, [])
    for _ in range(2):
        (page,) = supervisor._make_worker().metrics_pages
        page.routes = RouteTable(page, Shape.of(config))
        page.begin("GET", {"route": 'with "\\\n', "headers": []}).end()
    line = r'uvicorn_route_requests_total{method="GET",route="with \"\\\n",status="none"} 2'
    assert line in supervisor.metrics_text().splitlines()
    assert supervisor.metrics_text(is_open=True).endswith("# EOF\n")


def test_a_page_with_routes_is_the_same_memory_in_another_process() -> None:
    page = Page.make(f"uvicorn-test-routes-{os.getpid()}", SHAPE.words)
    try:
        other = Page.__new__(Page)
        other.__setstate__(page.__getstate__())
        assert len(other.words) == len(page.words)
        other.words[-1] = 7
        other.stalls.add("/a", "gc", 5)
        assert page.words[-1] == 7
        assert dict(page.stalls.totals()) == {("/a", "gc"): (1, 5)}
        other.discard()
    finally:
        page.discard()


def test_what_is_being_written_is_left_out() -> None:
    page, layout = counted("/a", "/b"), SHAPE.layout
    first = layout.first + layout.reserved * layout.size
    page.words[first + layout.name] ^= 1
    assert named(told([page]), "requests_total") == {'method="GET",route="/b",status="none"': "1"}
    page.words[first + layout.name] ^= 1
    place = first + layout.exemplars
    assert len([value for value in told([page], is_open=True).values() if "#" in value]) == 2
    for word in range(4):
        page.words[place + word] ^= 2
        assert len([value for value in told([page], is_open=True).values() if "#" in value]) == 1
        page.words[place + word] ^= 2


def test_of_two_exemplars_the_later_one_is_told() -> None:
    early, late = counted("/a"), counted("/a")
    for pages in ((early, late), (late, early)):
        figures = RouteTotals(SHAPE).figures(page.words for page in pages)
        exemplar = figures.series["GET", "/a"].exemplars[0]
        place = SHAPE.layout.first + SHAPE.layout.reserved * SHAPE.layout.size + SHAPE.layout.exemplars
        assert exemplar is not None and exemplar.time == late.words[place + 3]


@pytest.mark.parametrize("route", ["/" + "x" * 400, "/" + "ä" * 100, "/\ud800", "/" + "x" * (MOST_NAME - 1)])
def test_a_long_name_is_cut_but_kept_apart(route: str) -> None:
    name = bounded_name(route)
    assert len(name) <= MOST_NAME and name.decode()
    assert bounded_name(route + "y") != name


# Exposing.


@pytest.mark.parametrize(
    "accept, is_open",
    [
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text; q=0.5, text/plain; q=0.9", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x", False),
        ("text/plain", False),
        ("*/*", False),
    ],
)
def test_openmetrics_is_negotiated(accept: str, is_open: bool) -> None:
    assert accepts_open(f"GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode()) is is_open
    assert not accepts_open(b"GET /metrics HTTP/1.1\r\n\r\n")


def test_a_parser_of_openmetrics_understands_it() -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    page = counted("/a", 'quo"te')
    figures = WorkerFigures({1: 1}, {("start", None): 1}, routes=RouteTotals(SHAPE).figures([page.words]))
    text = render([1] * 1000, figures, is_open=True)
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    samples = families["uvicorn_route_request_duration_seconds"].samples
    assert [sample.exemplar.labels for sample in samples if sample.exemplar] == [{"trace_id": TRACE}] * 2
    assert {sample.labels["route"] for sample in samples} == {"/a", 'quo"te'}


async def test_a_server_by_itself_tells_routes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")
    config = Config(app, port=0, log_config=None, lifespan="off", metrics="127.0.0.1:0", metrics_routes=10)
    async with run_server(config) as server:
        await ask(server, "/items/1", "GET", [SAMPLED])
        found = re.search(r"Metrics on http://127\.0\.0\.1:(\d+)/metrics", caplog.text)
        assert found
        address = ("127.0.0.1", int(found[1]))
        for fields, kind in (
            ([], b"text/plain"),
            (["accept: application/openmetrics-text"], b"application/openmetrics-text"),
        ):
            answer = await asyncio.to_thread(request, address, "/metrics", "GET", fields)
            assert b"content-type: " + kind in answer
            assert b'uvicorn_route_requests_total{method="GET",route="/items/{item}",status="2xx"} 1\n' in answer
            assert (TRACE.encode() in answer) is (b"\n# EOF\n" in answer) is bool(fields)


@pytest.mark.parametrize(
    "text", ["", "a", "0,1", "1,1", "2,1", "nan", "1,inf", "1,,2", ",".join(map(str, range(1, 99)))]
)
def test_buckets_have_to_increase(text: str) -> None:
    with pytest.raises(SettingError, match="metrics_buckets must be at most 64 increasing numbers of seconds"):
        Config(app, metrics_buckets=text, log_config=None)
    assert Shape.of(Config(app, metrics_routes=3, log_config=None)) == (3, BOUNDS)


# Finding the route.


def found_by(routes: Routes, **scope: Any) -> str:
    return routes.of({"type": "http", "path": "/", **scope})


def test_prefixes_of_mounts_are_known() -> None:
    """Also of one application in two places, and behind middleware."""

    async def endpoint() -> None: ...

    def route(path: str, **more: Any) -> Any:
        return SimpleNamespace(path=path, path_format=path, endpoint=endpoint, **more)

    def mount(path: str, app: Any) -> Any:
        return SimpleNamespace(path=path, path_format=path + "/{path}", app=app, routes=getattr(app, "routes", []))

    once, twice, files = route("/once/{x}"), route("/twice/{x}"), object()
    inner = SimpleNamespace(routes=[twice])
    static = mount("/static", files)
    outer = SimpleNamespace(
        routes=[
            mount("/v1", SimpleNamespace(app=SimpleNamespace(routes=[once]))),
            mount("/a", inner),
            mount("/b", inner),
            static,
        ]
    )
    routes = Routes(SimpleNamespace(app=outer))
    assert found_by(routes, route=once) == "/v1/once/{x}"
    assert found_by(routes, route=twice, path="/a/twice/1") == "/a/twice/{x}"
    assert found_by(routes, route=twice, path="/b/twice/1") == "/b/twice/{x}"
    assert routes.find({"route": once, "path": ""})[1] and not routes.find({"route": twice, "path": "/a/"})[1]
    assert found_by(routes, route=static) == found_by(routes, endpoint=files) == "/static"
    assert found_by(routes, route=mount("/v1", inner)) == NO_ROUTE, "a 404 within it"
    assert found_by(routes, route="as it says") == "as it says"
    assert found_by(routes, path_template="/litestar/{x:int}") == "/litestar/{x:int}"


def test_routes_that_are_added_later_are_found() -> None:
    now = [0.0]
    outer = SimpleNamespace(routes=[])
    routes = Routes(outer)
    assert routes._map is not None
    routes._map._clock = lambda: now[0]
    late = SimpleNamespace(path="/late", endpoint=len)
    assert routes.find({"route": late}) == ("/late", True)
    outer.routes = [SimpleNamespace(path="/v1", app=SimpleNamespace(routes=[late]), routes=[late])]
    assert routes.find({"route": late}) == ("/late", False), "it has not looked again"
    now[0] = 2.0
    assert routes.find({"route": late}) == ("/v1/late", True)


def test_a_route_object_that_fails_fails_no_request() -> None:
    class Failing:
        @property
        def path_format(self) -> str:
            raise RuntimeError("on purpose")

    table = RouteTable(Page.make(more=SHAPE.words), SHAPE)
    assert table.slot_of({"route": Failing()}, 0) == (table.none(0), False)


def test_other_threads_find_routes_while_a_map_looks_again() -> None:
    route, now, found = SimpleNamespace(path="/items", endpoint=print), [0.0], list[Any]()

    class App:
        @property
        def routes(self) -> list[Any]:
            if now[0]:  # it looks again
                found.extend(known.of(route))
            return [route]

    known = RouteMap(App(), lambda: now[0])
    assert known.of(route) == ["/items"]
    now[0] = 10.0
    assert known.of(object()) == [] and found == ["/items"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("framework", ["fastapi", "starlette", "litestar", "django", "quart", "flask"])
async def test_frameworks(framework: str) -> None:
    """The frameworks themselves; each leaves the template of an item below a prefix."""
    pytest.importorskip(framework)
    app = globals()[f"_{framework}"]()
    announce_routes(app)
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/api/items/7",
        "raw_path": b"/api/items/7",
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"test")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    sent: list[Any] = []
    is_complete = asyncio.Event()
    waiting = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        if waiting:
            return waiting.pop()
        await is_complete.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            is_complete.set()

    await app(scope, receive, send)
    assert sent[0]["status"] == 200
    assert re.fullmatch(r"/api/items/[{<](int:)?item(:int)?[}>]", Routes(app).of(scope))


def _fastapi() -> Any:
    from fastapi import APIRouter, FastAPI

    router, app = APIRouter(), FastAPI()

    @router.get("/items/{item}")
    async def read(item: int) -> int:
        return item

    app.include_router(router, prefix="/api")
    return app


def _starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def read(request: Any) -> PlainTextResponse:
        return PlainTextResponse("item")

    return Starlette(routes=[Mount("/api", Starlette(routes=[Route("/items/{item}", read)]))])


def _litestar() -> Any:
    from litestar import Litestar, Router, get

    @get("/items/{item:int}")
    async def read(item: int) -> int:
        return item

    return Litestar([Router("/api", route_handlers=[read])])


def _django() -> Any:
    import django
    from django.conf import settings
    from django.core.handlers.asgi import ASGIHandler
    from django.http import HttpResponse
    from django.urls import path

    async def read(request: Any, item: int) -> HttpResponse:
        return HttpResponse("item")

    urls = type("Urls", (), {"urlpatterns": [path("api/items/<int:item>", read)]})
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=urls, MIDDLEWARE=[])
        django.setup()
    return ASGIHandler()


def _quart() -> Any:
    from quart import Quart

    app = Quart("test")

    @app.get("/api/items/<int:item>")
    async def read(item: int) -> str:
        return "item"

    return app


def _flask() -> Any:
    from flask import Flask

    from uvicorn.middleware.wsgi import WSGIMiddleware

    app = Flask("test")

    @app.get("/api/items/<int:item>")
    def read(item: int) -> str:
        return "item"

    return WSGIMiddleware(app)


def test_the_dashboard_and_the_alerts_name_metrics_that_are_exposed() -> None:
    yaml = pytest.importorskip("yaml")
    deployment = Path(__file__).parents[2] / "docs" / "deployment"
    dashboard = json.loads((deployment / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    rules = [
        rule
        for group in yaml.safe_load((deployment / "prometheus-rules.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]
    queries += [rule["expr"] for rule in rules]
    routes = RouteTotals(SHAPE).figures([counted("/a").words])
    text = render([1] * 1000, WorkerFigures({1: 1}, {("start", None): 1}, {"default": 1}, routes=routes))
    exposed = {*re.findall(r"# TYPE (\w+)", text), *re.findall(r"^(\w+)[{ ]", text, re.MULTILINE)}
    named_there = {name for query in queries for name in re.findall(r"(?<![:\w])uvicorn_\w+", query)}
    assert len(named_there) > 15 and named_there <= exposed
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_kinds_of_series() -> None:
    assert KINDS[: len(METHODS)] == METHODS
