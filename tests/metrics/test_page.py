"""What is counted, where, and how it is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import pickle
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h2.connection
import h2.events
import pytest
import websockets

from tests.utils import (
    open_connection,
    read_to_end,
    read_until,
    request,
    run_server,
    server_port,
    wait_for,
    wait_until,
)
from uvicorn.config import Config
from uvicorn.listening.sockets import parse_address
from uvicorn.metrics import page as metrics
from uvicorn.metrics.page import BOUNDS, BUCKETS, DURATION, PLACES, LagProbe, Page
from uvicorn.observing import exposition
from uvicorn.observing.exposition import Exposition, MetricsAggregator, WorkerFigures, render
from uvicorn.server import Server
from uvicorn.supervisors.multiprocess import Multiprocess

pytestmark = pytest.mark.anyio

NOBODY = WorkerFigures({}, {})


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            await send({"type": "websocket.send", "text": message["text"]})
        return
    if scope["path"] == "/wait":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    if scope["path"] == "/fail":
        raise RuntimeError("on purpose")
    status = int(scope["path"][1:] or 200)
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def counting(**settings: Any) -> AsyncIterator[tuple[Server, Page]]:
    """A server that counts for somebody else, and what."""
    config = Config(app, **{"port": 0, "log_config": None, "lifespan": "off", **settings})
    server = Server(config)
    server.metrics_page = page = Page.make()
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started)
    try:
        yield server, page
    finally:
        server.should_exit = True
        await task


async def ask(server: Server, *arguments: Any) -> bytes:
    """The answer, with the connection over on the server's side, too."""
    answer = await asyncio.to_thread(request, ("127.0.0.1", server_port(server)), *arguments)
    await wait_until(lambda: not server.server_state.connections)
    return answer


def samples(text: str) -> dict[str, float]:
    pairs = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix("uvicorn_"): float(value) for name, value in pairs}


def told(page: Page) -> dict[str, float]:
    return samples(render(list(page.words), NOBODY))


# What is counted.


async def test_requests_are_counted_by_method_and_class_of_status(http_protocol_cls: Any) -> None:
    async with counting(http=http_protocol_cls) as (server, page):
        for target, method in (("/", "GET"), ("/404", "POST"), ("/503", "BREW"), ("/", "GET")):
            await ask(server, target, method)
        await ask(server, "/fail")
        found = {name: value for name, value in told(page).items() if name.startswith("requests_total")}
        assert found == {
            'requests_total{method="GET",status="2xx"}': 2,
            'requests_total{method="GET",status="5xx"}': 1,
            'requests_total{method="POST",status="4xx"}': 1,
            'requests_total{method="other",status="5xx"}': 1,
        }
        assert told(page)["request_duration_seconds_count"] == told(page)["request_queue_wait_seconds_count"] == 5
        assert told(page)["request_duration_seconds_sum"] > 0


async def test_what_is_no_request_is_counted_as_one_of_another_method(http_protocol_cls: Any) -> None:
    async with counting(http=http_protocol_cls) as (server, page):
        with open_connection(("127.0.0.1", server_port(server)), b"no request\r\n\r\n") as client:
            assert b" 400 " in await asyncio.to_thread(read_until, client, b"\r\n")
        found = told(page)
        assert found['requests_total{method="other",status="4xx"}'] == 1
        assert found["requests_in_flight"] == 0


async def test_one_that_is_refused_behind_its_head_has_the_status_of_the_refusal(http_protocol_cls: Any) -> None:
    head = b"POST /wait HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    async with counting(http=http_protocol_cls) as (server, page):
        with open_connection(("127.0.0.1", server_port(server)), head) as client:
            await wait_until(lambda: told(page)["requests_in_flight"] == 1)
            client.sendall(b"no size\r\n")
            assert b" 400 " in await asyncio.to_thread(read_until, client, b"\r\n")
        assert told(page)['requests_total{method="POST",status="4xx"}'] == 1
        assert told(page)["requests_in_flight"] == 0


async def test_one_whose_client_goes_has_no_status(http_protocol_cls: Any) -> None:
    async with counting(http=http_protocol_cls) as (server, page):
        address = ("127.0.0.1", server_port(server))
        with open_connection(address, b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n"), open_connection(address):
            await wait_until(lambda: told(page)['connections{state="idle"}'] == 1)
            await wait_until(lambda: told(page)["requests_in_flight"] == 1)
            assert told(page)['connections{state="active"}'] == 1
        await wait_until(lambda: not server.server_state.connections)
        found = told(page)
        assert found['requests_total{method="GET",status="none"}'] == 1
        assert found["requests_in_flight"] == found['connections{state="active"}'] == 0
        assert found["connections_total"] == 2


async def test_bytes_are_those_on_the_wire(http_protocol_cls: Any) -> None:
    async with counting(http=http_protocol_cls) as (server, page):
        answer = await ask(server, "/", "POST", ["x-test: 1"])
        assert told(page)["received_bytes_total"] == len(
            b"POST / HTTP/1.1\r\nhost: test\r\nconnection: close\r\nx-test: 1\r\n\r\n"
        )
        assert told(page)["sent_bytes_total"] == len(answer)


async def test_bytes_of_files_are_counted_once(http_protocol_cls: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1_000_000)

    async def send_file(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"1000000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.pathsend", "path": str(tmp_path / "file")})

    async with counting(http=http_protocol_cls, asgi_extensions="all") as (server, page):
        protocol = server.config
        protocol.loaded_app = send_file
        answer = await ask(server)
        assert told(page)["sent_bytes_total"] == len(answer)


async def test_websockets_are_counted(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    async with counting(http=http_protocol_cls, ws=ws_protocol_cls) as (server, page):
        async with websockets.connect(f"ws://127.0.0.1:{server_port(server)}/") as client:
            await client.send("one")
            await client.send("two")
            assert [await client.recv(), await client.recv()] == ["one", "two"]
            found = told(page)
            states = [found[f'connections{{state="{state}"}}'] for state in ("active", "idle", "websocket")]
            assert states == [0, 0, 1]
            assert found["requests_in_flight"] == 0  # so none is lost with its worker
        await wait_until(lambda: not server.server_state.connections)
        found = told(page)
        assert found["websocket_sessions_total"] == found["connections_total"] == 1
        assert found['websocket_messages_total{direction="received"}'] == 2
        assert found['websocket_messages_total{direction="sent"}'] == 2
        assert found['connections{state="websocket"}'] == 0
        assert found["sent_bytes_total"] > len("HTTP/1.1 101 Switching Protocols\r\n")


async def test_what_waits_behind_another_connection_has_waited() -> None:
    """The native core notices both in one look, and serves the second one after the first."""
    pytest.importorskip("uvicorn._native")
    async with counting(http="native") as (server, page):
        first, second = (open_connection(("127.0.0.1", server_port(server))) for _ in range(2))
        await wait_until(lambda: len(server.server_state.connections) == 2)
        with first, second:
            for client in (first, second):
                client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            for client in (first, second):
                await asyncio.to_thread(read_until, client, b"hello")
        assert told(page)["request_queue_wait_seconds_sum"] > 0


@pytest.mark.parametrize("nanoseconds, bucket", [(-1, 0), (0, 0), (500_000, 0), (500_001, 1), (10**11, len(BOUNDS))])
def test_a_value_is_counted_in_one_bucket(nanoseconds: int, bucket: int) -> None:
    page = Page.make()
    page.observe(DURATION, nanoseconds)
    assert [page.words[DURATION + place] for place in range(BUCKETS)] == [int(n == bucket) for n in range(BUCKETS)]
    assert page.words[DURATION + BUCKETS] == max(0, nanoseconds)


async def test_lag_is_how_late_the_loop_is() -> None:
    page, now = Page.make(), [0]
    probe = LagProbe(page, asyncio.get_running_loop(), lambda: now[0])
    probe.start()
    now[0] = int((metrics.INTERVAL + 0.3) * 1e9)
    probe.look()
    probe.stop()
    assert told(page)["loop_lag_seconds_count"] == 1
    assert told(page)["loop_lag_seconds_sum"] == pytest.approx(0.3)


async def test_nothing_is_counted_unless_it_is_wanted(http_protocol_cls: Any) -> None:
    config = Config(app, port=0, log_config=None, lifespan="off", http=http_protocol_cls)
    async with run_server(config) as server:
        await ask(server)
        assert server.server_state.metrics is None


# HTTP/2, which has several requests on a connection.


class Streams:
    """A client of HTTP/2, in a test that is about what is counted."""

    def __init__(self, server: Server) -> None:
        self.http2 = h2.connection.H2Connection()
        self.sock = open_connection(("127.0.0.1", server_port(server)))
        self.ended: set[int] = set()
        self.sent = self.received = 0
        self.http2.initiate_connection()

    async def flush(self) -> None:
        data = self.http2.data_to_send()
        self.sent += len(data)
        await asyncio.to_thread(self.sock.sendall, data)

    async def ask(self, path: str = "/", method: str = "GET") -> int:
        stream = self.http2.get_next_available_stream_id()
        fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "test")]
        self.http2.send_headers(stream, fields, end_stream=True)
        await self.flush()
        return stream

    async def until_ended(self, *streams: int) -> None:
        while not self.ended.issuperset(streams):
            await self._read()
            await self.flush()

    async def until_received(self, count: Callable[[], float]) -> None:
        """Read what comes behind the ends of streams, until it is as much as was counted."""
        while self.received < count():
            await self._read()
        assert self.received == count()

    async def _read(self) -> None:
        data = await asyncio.to_thread(self.sock.recv, 65536)
        assert data
        self.received += len(data)
        for event in self.http2.receive_data(data):
            if isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                assert event.stream_id is not None
                self.ended.add(event.stream_id)


@asynccontextmanager
async def streaming(server: Server) -> AsyncIterator[Streams]:
    client = Streams(server)
    with client.sock:
        yield client
    await wait_until(lambda: not server.server_state.connections)


@pytest.fixture
def over_http2() -> dict[str, Any]:
    """Settings of a server that speaks it."""
    pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    return {"http": "native", "http2": True}


async def test_requests_over_http2_are_counted_as_any(over_http2: dict[str, Any]) -> None:
    async with counting(**over_http2) as (server, page):
        async with streaming(server) as client:
            asked = [await client.ask(*request) for request in (("/",), ("/404", "POST"), ("/503", "BREW"), ("/fail",))]
            await client.until_ended(*asked)
        found = told(page)
        assert {name: value for name, value in found.items() if name.startswith("requests_total")} == {
            'requests_total{method="GET",status="2xx"}': 1,
            'requests_total{method="GET",status="5xx"}': 1,
            'requests_total{method="POST",status="4xx"}': 1,
            'requests_total{method="other",status="5xx"}': 1,
        }
        assert found["request_duration_seconds_count"] == found["request_queue_wait_seconds_count"] == 4
        assert (found["requests_in_flight"], found["connections_total"]) == (0, 1)


async def test_a_connection_is_active_while_one_of_its_requests_is(over_http2: dict[str, Any]) -> None:
    async with counting(**over_http2) as (server, page):

        def states() -> list[float]:
            found = told(page)
            return [
                found["requests_in_flight"],
                *(found[f'connections{{state="{one}"}}'] for one in ("active", "idle")),
            ]

        async with streaming(server) as busy, streaming(server) as idle:
            await idle.until_ended(await idle.ask())
            waiting = [await busy.ask("/wait") for _ in range(3)]
            await wait_until(lambda: states() == [3, 1, 1])
            # What ends beside others changes nothing, nor does one that is reset.
            await busy.until_ended(await busy.ask())
            busy.http2.reset_stream(waiting[0])
            await busy.flush()
            await wait_until(lambda: states() == [2, 1, 1])
            for stream in waiting[1:]:
                busy.http2.reset_stream(stream)
            await busy.flush()
            await wait_until(lambda: states() == [0, 0, 2])
        assert states() == [0, 0, 0]
        assert told(page)['requests_total{method="GET",status="none"}'] == 3


async def test_bytes_over_http2_are_those_on_the_wire(over_http2: dict[str, Any]) -> None:
    async with counting(**over_http2) as (server, page), streaming(server) as client:
        await client.until_ended(await client.ask(), await client.ask("/404"))
        await wait_until(lambda: told(page)["received_bytes_total"] == client.sent)
        await client.until_received(lambda: told(page)["sent_bytes_total"])


async def test_a_websocket_over_http2_is_counted_beside_its_connection(over_http2: dict[str, Any]) -> None:
    """Its bytes once: those of the frames of HTTP/2."""
    async with counting(**over_http2, ws="native") as (server, page), streaming(server) as client:
        pseudo = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", "/")]
        stream = client.http2.get_next_available_stream_id()
        client.http2.config.validate_outbound_headers = False
        client.http2.send_headers(stream, [*pseudo, (":authority", "test"), ("sec-websocket-version", "13")])
        hello, bye = b"\x81\x85\0\0\0\0hello", b"\x88\x82\0\0\0\0\x03\xe8"
        client.http2.send_data(stream, hello)
        await client.flush()
        await wait_until(lambda: told(page)['websocket_messages_total{direction="sent"}'] == 1)
        found = told(page)
        assert [found[f'connections{{state="{one}"}}'] for one in ("active", "idle", "websocket")] == [0, 1, 1]
        assert found["connections_total"] == found["websocket_sessions_total"] == 1
        assert found["requests_in_flight"] == 0
        client.http2.send_data(stream, bye)
        await client.flush()
        await client.until_ended(stream)
        await wait_until(lambda: told(page)["received_bytes_total"] == client.sent)
        await client.until_received(lambda: told(page)["sent_bytes_total"])


# Put together.


def test_what_an_ended_loop_has_counted_stays() -> None:
    aggregator = MetricsAggregator()
    first, second = aggregator.page(shared=False), aggregator.page(shared=False)
    for page in (first, second):
        page.begin("GET").end()
        page.begin("GET")
        page.begin("GET")
        page.add(metrics.CONCURRENT)
        page.add(metrics.CONNECTIONS_OPENED)
    aggregator.retire(first)
    aggregator.retire(first)
    found = samples(render(aggregator.totals(), NOBODY))
    assert found['requests_total{method="GET",status="none"}'] == 2
    assert found["requests_in_flight"] == 2
    assert found['connections{state="active"}'] == 1
    assert found["connections_total"] == 2


def test_a_page_of_ones_own_is_not_given_away() -> None:
    with pytest.raises((OSError, ValueError, TypeError, RuntimeError)):
        pickle.dumps(Page.make())


def test_the_text_is_what_prometheus_reads() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    page = Page.make()
    page.begin("GET").end()
    text = render(list(page.words), WorkerFigures({4711: 1024}, {("start", None): 2, ("kill", "deadline"): 1}))
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families["uvicorn_request_duration_seconds"].type == "histogram"
    assert families["uvicorn_requests"].samples[0].labels == {"method": "GET", "status": "none"}
    assert families["uvicorn_worker_resident_bytes"].samples[0].value == 1024
    events = families["uvicorn_worker_events"].samples
    assert [tuple(sample.labels.values()) for sample in events] == [("start", ""), ("kill", "deadline")]


def test_admission_is_told_where_there_is_a_limit() -> None:
    totals = [0] * PLACES
    assert "active_requests" not in render(totals, NOBODY)
    totals[metrics.LIMIT_RAISED], totals[metrics.LIMIT_LOWERED] = 30, 10
    totals[metrics.ADMITTED], totals[metrics.RELEASED] = 7, 4
    totals[metrics.QUEUED], totals[metrics.UNQUEUED] = 6, 4
    totals[metrics.PARKED], totals[metrics.UNPARKED] = 5, 4
    for reason in range(5):
        totals[metrics.SHED + reason] = reason + 1
    lines = render(totals, NOBODY).splitlines()
    for line in (
        "uvicorn_active_requests_limit 20",
        "uvicorn_active_requests 2",
        "uvicorn_queued_requests 2",
        "uvicorn_parked_requests 1",
        "uvicorn_admitted_requests_total 7",
        "uvicorn_waited_requests_total 6",
        'uvicorn_refused_requests_total{reason="full"} 1',
        'uvicorn_refused_requests_total{reason="displaced"} 2',
        'uvicorn_refused_requests_total{reason="late"} 3',
        'uvicorn_refused_requests_total{reason="left"} 4',
        'uvicorn_refused_requests_total{reason="stalled"} 5',
    ):
        assert line in lines


def test_buckets_count_all_below() -> None:
    page = Page.make()
    for nanoseconds in (1, 600_000, 10**12):
        page.observe(DURATION, nanoseconds)
    found = told(page)
    assert found['request_duration_seconds_bucket{le="0.0005"}'] == 1
    assert found['request_duration_seconds_bucket{le="10.0"}'] == 2
    assert found['request_duration_seconds_bucket{le="+Inf"}'] == found["request_duration_seconds_count"] == 3


# Told.


@pytest.mark.parametrize(
    "text, address", [("127.0.0.1:9", ("127.0.0.1", 9)), ("[::1]:90", ("::1", 90)), (":9100", ("", 9100))]
)
def test_address(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "9100", "localhost", "::1:90", "a:b", "a:65536", "[::1]"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        Config(app, metrics=text, log_config=None)
    assert str(caught.value) == f"metrics must be HOST:PORT, not {text!r}."


@pytest.mark.parametrize(
    "target, method, status, body",
    [
        ("/metrics", "GET", 200, b"some 1\n"),
        ("/metrics?a=b", "GET", 200, b"some 1\n"),
        ("/metrics", "HEAD", 200, b""),
        ("/other", "GET", 404, b"See /metrics.\n"),
        ("/metrics", "POST", 405, b"Only GET is served here.\n"),
    ],
)
def test_answers(exposed: Exposition, target: str, method: str, status: int, body: bytes) -> None:
    head, _, received = request(exposed.address, target, method).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert received == body
    if status == 200:
        assert b"\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n" in head


def test_a_body_does_not_cost_its_client_the_answer(exposed: Exposition) -> None:
    head = b"POST /metrics HTTP/1.1\r\ncontent-length: 2000000\r\n\r\n"
    with open_connection(exposed.address, head + bytes(20_000)) as client:
        assert read_to_end(client).endswith(b"Only GET is served here.\n")
        client.sendall(bytes(1_980_000))


def test_clients_that_do_not_take_their_results_delay_the_end_together(
    exposed: Exposition, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    class Answered:
        def wait(self, timeout: float) -> None:
            nonlocal now
            now += timeout

    monkeypatch.setattr(exposition, "time", SimpleNamespace(monotonic=lambda: now, sleep=time.sleep))
    waiting: list[Any] = [exposition._Client(socket.socket()) for _ in range(3)]
    for client in waiting:
        client.until, client.is_over, client.is_answered = math.inf, threading.Event(), Answered()
    exposed._clients.update(dict.fromkeys(waiting))
    exposed.close()
    assert now <= exposition.PATIENCE and all(client.is_over.is_set() for client in waiting)


def test_one_who_does_not_ask_keeps_nobody_for_ever(exposed: Exposition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "PATIENCE", 0.01)
    with open_connection(exposed.address):
        assert b"some 1" in request(exposed.address, "/metrics")


@pytest.mark.parametrize("count", [12, 200])
@pytest.mark.parametrize("sends", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\na: b\r\n"])
def test_those_who_do_not_ask_keep_nobody_waiting(
    exposed: Exposition, monkeypatch: pytest.MonkeyPatch, count: int, sends: bytes
) -> None:
    """Whatever their deadline is. No more of them are held than may be."""
    monkeypatch.setattr(exposition, "PATIENCE", 3600.0)
    threads = threading.active_count()
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(open_connection(exposed.address, sends)) for _ in range(count)]
        for _ in range(3):
            assert b"some 1" in request(exposed.address, "/metrics")
            for client in silent[-12:]:
                client.send(b"x")
        assert len(exposed._clients) <= exposition.MOST_CLIENTS
        assert threading.active_count() <= threads  # one of another test may have ended
        if count > exposition.MOST_CLIENTS:
            assert read_to_end(silent[0]) == b"", "the oldest goes"
        silent[-1].sendall(b"\r\n\r\n")
        assert read_to_end(silent[-1]).startswith(b"HTTP/1.1 ")


def test_one_who_does_not_take_the_answer_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "PATIENCE", 3600.0)
    long = Exposition(exposition.bind("127.0.0.1:0"), lambda is_open: "x" * 20_000_000)
    long.start()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(open_connection(long.address, b"GET /metrics HTTP/1.1\r\n\r\n"))
        assert len(request(long.address, "/metrics")) > 20_000_000
    long.close()


def test_address_closes_what_it_has(exposed: Exposition) -> None:
    address = exposed.address
    with open_connection(address) as silent:
        wait_for(lambda: exposed._clients)
        exposed.close()
        assert read_to_end(silent) == b""
    exposed._thread.join()
    with pytest.raises(ConnectionRefusedError):
        open_connection(address)


def test_what_cannot_be_told_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    def fail(is_open: bool) -> str:
        raise RuntimeError("on purpose")

    failing = Exposition(exposition.bind("127.0.0.1:0"), fail)
    failing.start()
    assert request(failing.address, "/metrics").startswith(b"HTTP/1.1 500 ")
    failing.close()
    assert "Cannot collect the metrics" in caplog.text


async def test_a_server_by_itself_tells(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")
    async with run_server(Config(app, port=0, log_config=None, lifespan="off", metrics="127.0.0.1:0")) as server:
        await ask(server)
        found = re.search(r"Metrics on http://127\.0\.0\.1:(\d+)/metrics", caplog.text)
        assert found
        answer = await asyncio.to_thread(request, ("127.0.0.1", int(found[1])), "/metrics")
        assert b'uvicorn_requests_total{method="GET",status="2xx"} 1\n' in answer
        assert b"uvicorn_worker_resident_bytes{pid=" in answer
    with pytest.raises(ConnectionRefusedError):
        open_connection(("127.0.0.1", int(found[1])))


async def test_an_address_that_is_taken_ends_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = Config(app, port=0, log_config=None, metrics=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(OSError) as caught:
            async with run_server(config):
                pass
    assert caught.value.__dict__["_settings_at_fault"] == (f"metrics={config.metrics!r}",)


def test_a_supervisor_sums_up_what_its_workers_count() -> None:
    supervisor = Multiprocess(Config(app, workers=2, log_config=None, metrics="127.0.0.1:0"), [])
    first, second = supervisor._make_worker(), supervisor._make_worker()
    for worker in (first, second):
        (page,) = worker.metrics_pages
        page.begin("GET").end()
    assert samples(supervisor.metrics_text())['requests_total{method="GET",status="none"}'] == 2
    assert Multiprocess(Config(app, workers=2, log_config=None), []).metrics_text() == ""


def test_what_ends_with_its_worker_is_counted() -> None:
    """X1: a worker that crashes leaves nothing else of them."""
    supervisor = Multiprocess(Config(app, workers=2, log_config=None, metrics="127.0.0.1:0"), [])
    (page,) = supervisor._make_worker().metrics_pages
    page.begin("GET").end()
    page.begin("GET")
    page.begin("POST")
    page.add(metrics.CONNECTIONS_OPENED, 5)
    page.add(metrics.CONNECTIONS_CLOSED, 2)
    page.add(metrics.QUEUED_BYTES, 100)
    found = samples(supervisor.metrics_text())
    assert found["requests_lost_total"] == found["connections_lost_total"] == 0
    assert found["held_bytes"] == 100
    (worker,) = supervisor._placed
    worker.load_places = []
    assert worker.connections() == 3, "without the native core"
    supervisor._take_places_back()
    found = samples(supervisor.metrics_text())
    assert found["requests_lost_total"] == 2
    assert found["connections_lost_total"] == 3
    assert found["requests_in_flight"] == found["held_bytes"] == 0
