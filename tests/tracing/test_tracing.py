"""What a collector gets of requests and WebSockets, and what applications see of their trace."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import re
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import hpack
import pytest
import websockets
from opentelemetry import context as otel_context
from opentelemetry import trace as api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests import machines
from tests.native import http2_client as http2
from tests.protocols.harness import respond
from tests.tracing.collector import Collector, attributes, collecting
from tests.utils import open_connection, read_to_end, read_until, request, run_server, server_port, wait_until
from uvicorn.config import Config
from uvicorn.metrics.page import BEGUN, ENDED, SPANS, SPANS_DROPPED
from uvicorn.server import Server
from uvicorn.tracing import exporter

pytestmark = pytest.mark.anyio

http_protocol_cls = machines.each
ws_protocol_cls = machines.each_websocket

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"traceparent: 00-{TRACE}-{PARENT}-01"
UNSAMPLED = f"traceparent: 00-{TRACE}-{PARENT}-00"
TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[0-3]").fullmatch

EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))


class Route:
    path_format = "/items/{item_id}"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Does what the path says, and answers with what it knows of its trace."""
    if scope["type"] == "websocket":
        await receive()
        if scope["path"] == "/no":
            await send({"type": "websocket.close"})
            return
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": scope["traceparent"]})
        if scope["path"] == "/raise":
            raise LookupError
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    path = scope["path"]
    if path.startswith("/items"):
        scope["route"] = Route()
        scope["client"] = ("192.0.2.1", 0)
    elif path == "/raise":
        raise LookupError
    elif path == "/nothing":
        return
    elif path == "/wait":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    elif path == "/clear":
        scope.clear()
        scope["headers"] = 7
    with PROVIDER.get_tracer("app").start_as_current_span("work"):
        context = api.get_current_span().get_span_context()
    own = f"{context.trace_id:032x}"
    body = f"{scope.get('traceparent')} {scope.get('tracestate')} {own}".encode()
    status = 503 if path == "/503" else 200
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(body))]})
    if path == "/half":
        raise LookupError
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def traced(collector: Collector, **settings: Any) -> AsyncIterator[Server]:
    """A server that has sent all spans at its end."""
    EXPORTER.clear()
    defaults = {"port": 0, "log_config": None, "access_log": False, "lifespan": "off", "otel_endpoint": collector.url}
    async with run_server(Config(app, **{**defaults, **settings})) as server:
        yield server


async def ask(server: Server, *arguments: Any) -> bytes:
    return await asyncio.to_thread(request, ("127.0.0.1", server_port(server)), *arguments)


async def test_the_route_of_a_span_has_the_prefix_of_its_mount(http_protocol_cls: Any) -> None:
    route = SimpleNamespace(path="/items/{item_id}", endpoint=app)
    mount = SimpleNamespace(path="/api", app=SimpleNamespace(routes=[route]), routes=[route])

    async def mounting(scope: Any, receive: Any, send: Any) -> None:
        scope["route"] = route
        await respond()(scope, receive, send)

    mounting.routes = [mount]  # type: ignore[attr-defined]
    with collecting() as collector:
        settings: Any = {"port": 0, "log_config": None, "lifespan": "off", "otel_endpoint": collector.url}
        async with run_server(Config(mounting, http=http_protocol_cls, **settings)) as server:
            await ask(server, "/api/items/7")
    assert [span.name for span in collector.spans] == ["GET /api/items/{item_id}"]


async def test_a_request_is_a_span(http_protocol_cls: Any) -> None:
    with collecting() as collector:
        async with traced(collector, http=http_protocol_cls) as server:
            await ask(server, "/items/a%20b?c=d", "GET", ["user-agent: me\xff", "x: y"])
            await ask(server, "/503", "BREW")
            port = server_port(server)
        named, other = collector.spans
    assert named.name == "GET /items/{item_id}" and named.kind == 2 and not named.parent_span_id
    assert attributes(named) == {
        "http.request.method": "GET",
        "url.scheme": "http",
        "http.route": "/items/{item_id}",
        "http.response.status_code": 200,
        "network.protocol.version": "1.1",
        "server.address": "test",
        "url.path": "/items/a%20b",
        "client.address": "192.0.2.1",
        "user_agent.original": "me\ufffd",
    }
    assert [event.name for event in named.events] == ["uvicorn.application.start", "uvicorn.response.start"]
    moments = [event.time_unix_nano for event in named.events]
    assert named.start_time_unix_nano <= moments[0] <= moments[1] <= named.end_time_unix_nano
    assert named.status.code == 0 and other.status.code == 2
    found = attributes(other)
    assert other.name == "HTTP" and found["http.request.method_original"] == "BREW"
    assert (found["error.type"], found["client.address"]) == ("503", "127.0.0.1") and found["client.port"] != port
    assert collector.paths == ["/v1/traces"] and collector.resource["service.name"] == "unknown_service:uvicorn"


async def test_metrics_count_what_is_traced_too(http_protocol_cls: Any) -> None:
    """By route as well: bytes both ways, and the end."""
    with collecting() as collector:
        settings: Any = {"metrics": "127.0.0.1:0", "metrics_routes": 5}
        async with traced(collector, http=http_protocol_cls, **settings) as server:
            head = b"POST /items/7 HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 4\r\n\r\n"
            with open_connection(("127.0.0.1", server_port(server)), head + b"body") as client:
                await asyncio.to_thread(read_to_end, client)
            await ask(server, "/raise")
            page = server.server_state.metrics
            assert page is not None
            assert page.words[ENDED] == page.words[BEGUN] == 2
            assert page.routes is not None
        assert [span.name for span in collector.spans] == ["POST /items/{item_id}", "GET"]


async def test_failures_are_errors(http_protocol_cls: Any, subtests: Any) -> None:
    cases: list[tuple[str, int | None, str | None]] = [
        ("/raise", 500, "LookupError"),
        ("/nothing", 500, "_OTHER"),
        ("/half", 200, "LookupError"),
        ("/clear", 200, None),
    ]
    with collecting() as collector:
        async with traced(collector, http=http_protocol_cls) as server:
            for path, _, _ in cases:
                with contextlib.suppress(ConnectionError):
                    await ask(server, path)
            address = ("127.0.0.1", server_port(server))
            with open_connection(address, b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n"):
                await wait_until(lambda: server.server_state.tasks)
            head = b"POST /wait HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nno size\r\n"
            with open_connection(address, head) as client:
                assert b" 400 " in await asyncio.to_thread(read_until, client, b"\r\n")
            await wait_until(lambda: not server.server_state.connections)
        spans = [(attributes(span), span.status.code) for span in collector.spans]
    for path, status, error in cases:
        with subtests.test(path=path):
            paths = (path, "") if path == "/clear" else (path,)
            [(found, code)] = [pair for pair in spans if pair[0]["url.path"] in paths]
            assert found.get("http.response.status_code") == status and found.get("error.type") == error
            assert code == (2 if error else 0)
    waiting = [found for found, _ in spans if found["url.path"] == "/wait"]
    left, refused = sorted(waiting, key=lambda found: "http.response.status_code" in found)
    assert "http.response.status_code" not in left and "error.type" not in left
    assert refused["http.response.status_code"] == 400


async def test_the_parent_decides_and_is_passed_on(http_protocol_cls: Any, subtests: Any) -> None:
    """L2"""
    state = "tracestate: rojo=00f067aa0ba902b7"
    cases: list[tuple[float, list[str], bool, bool, str]] = [
        # ratio, fields, in that trace, sampled, state
        (0, [SAMPLED], True, True, "None"),
        (1, [UNSAMPLED], True, False, "None"),
        (1, [], False, True, "None"),
        (0, [], False, False, "None"),
        (0, [SAMPLED, state, "tracestate: congo=1"], True, True, "rojo=00f067aa0ba902b7,congo=1"),
        (0, [SAMPLED, "tracestate: " + "a" * 513], True, True, "None"),
        (0, [SAMPLED, "tracestate: a=\xe9"], True, True, "None"),
        (0, [SAMPLED, SAMPLED], False, False, "None"),
        (0, [SAMPLED + "-"], False, False, "None"),
        (1, [SAMPLED.upper().replace("TRACEPARENT", "traceparent"), state], False, True, "None"),
        (0, [SAMPLED.replace(": 00", ": ff")], False, False, "None"),
        (0, [SAMPLED.replace(": 00", ": 7f") + "-more"], True, True, "None"),
        (0, [SAMPLED[:-2] + "fe"], True, False, "None"),
    ]
    for ratio in (0, 1):
        with collecting() as collector:
            async with traced(collector, http=http_protocol_cls, otel_sample_ratio=ratio) as server:
                for _, fields, is_inside, is_sampled, state in (case for case in cases if case[0] == ratio):
                    with subtests.test(ratio=ratio, fields=fields):
                        EXPORTER.clear()
                        body = (await ask(server, "/", "GET", fields)).partition(b"\r\n\r\n")[2].decode()
                        text, shown, own = body.split(" ", 2)
                        assert TRACEPARENT(text) and (text[3:35] == TRACE) == is_inside and PARENT not in text
                        assert int(text[-2:], 16) & 1 == is_sampled and shown == state
                        # The application's own tracer agrees, and its span is a child.
                        assert own == text[3:35]
                        finished = EXPORTER.get_finished_spans()
                        assert len(finished) == is_sampled
                        for span in finished:
                            assert span.parent is not None and f"{span.parent.span_id:016x}" == text[36:52]
                            expected = "" if state == "None" else state
                            assert span.parent.trace_state.to_header().replace(", ", ",") == expected
        for span in collector.spans:
            is_child = span.trace_id.hex() == TRACE
            assert span.parent_span_id.hex() == (PARENT if is_child else "")
            assert span.flags == (0x301 if is_child else 0x101)


def copy_to_task() -> Any:
    """A task that outlives its request."""
    over = asyncio.Event()

    async def work() -> str:
        await over.wait()
        return current_trace()

    task = asyncio.create_task(work())

    async def end() -> str:
        over.set()
        return await task

    return end


def later(look: Any) -> Any:
    async def end() -> str:
        found: str = look()
        return found

    return end


def current_trace() -> str:
    return f"{api.get_current_span().get_span_context().trace_id:032x}"


def keep_span(span: Any) -> Any:
    return later(lambda: f"{span.get_span_context().trace_id:032x}")


def keep_weakly(one: Any) -> Any:
    reference = weakref.ref(one)

    def look() -> str:
        kept = reference()
        if kept is None:
            return ""
        return current_trace_in(kept if isinstance(kept, dict) else api.set_span_in_context(kept))

    return later(look)


def keep_context() -> Any:
    context = contextvars.copy_context()
    return later(lambda: context.run(current_trace))


def keep_changed_context() -> Any:
    context = contextvars.copy_context()
    context.run(contextvars.ContextVar[int]("other").set, 1)
    return later(lambda: context.run(current_trace))


def set_attribute(one: Any) -> None:
    one.left_behind = True


def replace_span() -> None:
    otel_context.attach(api.set_span_in_context(api.INVALID_SPAN))


def replace_key() -> None:
    current = otel_context.get_current()
    (value,) = current.values()
    dict.clear(current)
    dict.__setitem__(current, "other", value)


@pytest.mark.parametrize("reuse", ["none", "on", "poison"])
async def test_a_span_stays_that_of_its_request(
    http_protocol_cls: Any, reuse: str, subtests: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the server uses the objects again that an application has not kept."""
    holds: dict[str, Any] = {
        "nothing": lambda: None,
        "look": current_trace,
        "task": copy_to_task,
        "span": lambda: keep_span(api.get_current_span()),
        "weak span": lambda: keep_weakly(api.get_current_span()),
        "weak value": lambda: keep_weakly(otel_context.get_current()),
        "value": lambda: later(partial(current_trace_in, otel_context.get_current())),
        "context": keep_context,
        "changed context": keep_changed_context,
        "attribute of the span": lambda: set_attribute(api.get_current_span()),
        "attribute of the value": lambda: set_attribute(otel_context.get_current()),
        "replaced": replace_span,
        "renamed": replace_key,
        "other variable": lambda: contextvars.ContextVar[int]("another").set(1),
    }
    seen: dict[str, tuple[str, Any]] = {}

    async def holding(scope: Any, receive: Any, send: Any) -> None:
        name, _, way = scope["path"][1:].partition("/")
        if way == "wait":
            await asyncio.sleep(0)
        span, current = api.get_current_span(), otel_context.get_current()
        assert not hasattr(span, "left_behind") and not hasattr(current, "left_behind")
        assert [*current.values()] == [span] and len(contextvars.copy_context()) == 1
        text = f"{current_trace()} {scope['traceparent'][3:35]}".encode()
        del span, current
        seen[name] = scope["traceparent"][3:35], holds[name]()
        await respond(text)(scope, receive, send)

    monkeypatch.setenv("UVICORN_POISON", "1" if reuse == "poison" else "0")
    if reuse == "none":
        monkeypatch.setenv("UVICORN_SHORTCUTS", "none")
    with collecting() as collector:
        settings: Any = {"port": 0, "log_config": None, "lifespan": "off", "otel_endpoint": collector.url}
        settings.update(access_log=False, reset_contextvars=True, otel_sample_ratio=0)
        async with run_server(Config(holding, http=http_protocol_cls, **settings)) as server:
            for name, way in itertools.product(holds, ("now", "wait")):
                for path in (f"{name}/{way}", f"nothing/{way}", "nothing/now"):
                    head = f"GET /{path.replace(' ', '%20')} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
                    with open_connection(("127.0.0.1", server_port(server)), head.encode()) as client:
                        answer = await asyncio.to_thread(read_to_end, client)
                    with subtests.test(path=path, after=name):
                        current, own = answer.partition(b"\r\n\r\n")[2].decode().split()
                        assert current == own == seen[path.partition("/")[0]][0]
                trace, end = seen[name]
                with subtests.test(name=name, way=way):
                    assert not callable(end) or await end() in (trace, "")


def current_trace_in(current: Any) -> str:
    return f"{api.get_current_span(current).get_span_context().trace_id:032x}"


async def test_a_share_of_the_requests_is_sampled(http_protocol_cls: Any) -> None:
    with collecting() as collector:
        async with traced(collector, http=http_protocol_cls, otel_sample_ratio=0.5, otel_query=True) as server:
            requests = b"".join(b"GET /?%d HTTP/1.1\r\nhost: a\r\n\r\n" % number for number in range(100))
            with open_connection(("127.0.0.1", server_port(server)), requests) as client:
                answers = await asyncio.to_thread(read_to_end, client)
            texts = re.findall(r"00-\w{32}-\w{16}-\w\w", answers.decode())
        assert 20 < len(collector.spans) < 80 and len(set(texts)) == 100
        assert {span.trace_id.hex() for span in collector.spans} == {text[3:35] for text in texts if text[-1] == "1"}
        queries = [int(attributes(span)["url.query"]) for span in collector.spans]
        assert queries == [number for number, text in enumerate(texts) if text[-1] == "1"]
        # As the SDKs decide.
        assert all((int(text[19:35], 16) < 2**63) == (text[-1] == "1") for text in texts)


async def test_a_session_is_a_span(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    with collecting() as collector:
        async with traced(collector, http=http_protocol_cls, ws=ws_protocol_cls) as server:
            url = f"ws://127.0.0.1:{server_port(server)}"
            async with websockets.connect(f"{url}/", additional_headers=dict([SAMPLED.split(": ")])) as client:
                text = await client.recv()
                assert isinstance(text, str) and text[3:35] == TRACE
            async with websockets.connect(f"{url}/raise") as client:
                with pytest.raises(websockets.ConnectionClosedError):
                    await client.recv()
                    await client.recv()
            with pytest.raises(websockets.InvalidStatus):
                await websockets.connect(f"{url}/no")
            await wait_until(lambda: not server.server_state.connections)
    spans = {attributes(span)["url.path"]: span for span in collector.spans}
    opened, failed, refused = (spans[path] for path in ("/", "/raise", "/no"))
    assert (opened.span_id.hex(), opened.parent_span_id.hex()) == (text[36:52], PARENT)
    assert [attributes(span)["http.response.status_code"] for span in (opened, failed, refused)] == [101, 101, 403]
    assert attributes(opened)["url.scheme"] == "ws" and opened.name == "GET" and len(opened.events) == 2
    assert attributes(failed)["error.type"] == "LookupError" and failed.status.code == 2 and refused.status.code == 0


async def test_streams_of_http_2_are_spans() -> None:
    pytest.importorskip("uvicorn._native", exc_type=ModuleNotFoundError)
    with collecting() as collector:
        async with traced(collector, http="native", http2=True) as server:
            encoder = hpack.Encoder()
            fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/items/1")]
            block = [*fields, ("traceparent", SAMPLED.partition(": ")[2])]
            flags = http2.END_HEADERS | http2.END_STREAM
            frames = [http2.frame(http2.HEADERS, flags, stream, encoder.encode(block)) for stream in (1, 3)]
            hello = http2.PREFACE + http2.settings() + b"".join(frames)
            with open_connection(("127.0.0.1", server_port(server)), hello):
                await wait_until(lambda: server.server_state.total_requests == 2)
    assert [span.parent_span_id.hex() for span in collector.spans] == [PARENT, PARENT]
    assert {attributes(span)["network.protocol.version"] for span in collector.spans} == {"2"}
    assert {span.name for span in collector.spans} == {"GET /items/{item_id}"}


async def test_without_the_api_scopes_still_have_the_trace(
    http_protocol_cls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uvicorn.tracing import tracer

    monkeypatch.setattr(tracer, "current_span", lambda: None)
    with collecting() as collector:
        async with traced(collector, http=http_protocol_cls) as server:
            body = (await ask(server, "/", "GET", [SAMPLED])).partition(b"\r\n\r\n")[2].decode()
    text, _, own = body.split(" ")
    assert text[3:35] == TRACE != own and len(collector.spans) == 1


async def test_what_finds_no_room_is_dropped(
    http_protocol_cls: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """L2"""
    monkeypatch.setattr("uvicorn.tracing.tracer.MAX_PENDING", 3)
    monkeypatch.setattr(exporter, "INTERVAL", 100.0)
    with collecting() as collector:
        async with traced(collector, http=http_protocol_cls) as server:
            for _ in range(5):
                await ask(server)
            assert server.server_state.tracer is not None
            page = server.server_state.tracer.page
    assert len(collector.spans) == 3
    assert page.words[SPANS] == 5 and page.words[SPANS_DROPPED] == 2
    assert [line for line in caplog.messages if "Dropped 2 OpenTelemetry spans (otel_endpoint)" in line]
