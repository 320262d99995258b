"""How spans are encoded, by both twins, with OpenTelemetry's own package as the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.tracing.collector import attributes
from uvicorn.tracing import otlp
from uvicorn.tracing.exporter import rejected_of
from uvicorn.tracing.otlp import MAX_TEXT, Envelope, authority, encode

times = st.integers(0, 2**64 - 1)
texts = st.binary(max_size=40) | st.just(b"a" * (MAX_TEXT + 1)) | st.text().map(str.encode)
methods = st.sampled_from(["GET", "POST", "CONNECT", "BREW", "GETT"])
ports = st.none() | st.integers(0, 65535)
spans = st.tuples(
    st.binary(min_size=16, max_size=16).map(bytes.hex),
    st.binary(min_size=8, max_size=8).map(bytes.hex),
    st.just("") | st.binary(min_size=8, max_size=8).map(bytes.hex),
    st.text(st.characters(max_codepoint=126, min_codepoint=32), max_size=512),
    st.integers(0, 3),
    st.tuples(times, times, times, times),
    st.tuples(methods, texts, texts, st.just(0) | st.integers(100, 599), texts, texts, ports),
    texts,
    texts,
    st.tuples(texts, st.integers(0, 65535)),
    texts,
    texts,
)


def shown(value: bytes) -> str:
    return value[:MAX_TEXT].decode("utf-8", "replace")


@settings(max_examples=30)
@given(spans)
def test_the_official_package_reads_what_was_encoded(arguments: Any) -> None:
    trace, span_id, parent, state, flags, (begin, called, first, end), server, *rest = arguments
    method, scheme, route, status, version, host, port = server
    path, query, (client, client_port), agent, error = rest
    request = ExportTraceServiceRequest.FromString(Envelope([("service.name", "a")], "1").enclose([encode(*arguments)]))
    [span] = request.resource_spans[0].scope_spans[0].spans
    assert (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()) == (trace, span_id, parent)
    assert span.trace_state == state and span.flags == flags | (0x300 if parent else 0x100)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (begin, end)
    assert [(event.name, event.time_unix_nano) for event in span.events] == [
        (name, time)
        for name, time in (("uvicorn.application.start", called), ("uvicorn.response.start", first))
        if time
    ]
    known = method in ("GET", "POST", "CONNECT")
    assert span.kind == Span.SPAN_KIND_SERVER
    assert span.name == shown((method if known else "HTTP").encode() + (b" " + route if route else b""))
    assert (span.status.code == Status.STATUS_CODE_ERROR) == bool(error)
    expected = {
        "http.request.method": method if known else "_OTHER",
        "http.request.method_original": None if known else method,
        "url.scheme": shown(scheme),
        "url.path": shown(path),
        "url.query": shown(query) or None,
        "http.route": shown(route) or None,
        "http.response.status_code": status or None,
        "network.protocol.version": shown(version),
        "server.address": shown(host) or None,
        "server.port": port if host else None,
        "client.address": shown(client) or None,
        "client.port": client_port or None if client else None,
        "user_agent.original": shown(agent) or None,
        "error.type": shown(error) or None,
    }
    assert attributes(span) == {name: value for name, value in expected.items() if value is not None}


@given(spans)
def test_the_native_twin_encodes_the_same_bytes(arguments: Any) -> None:
    native = pytest.importorskip("uvicorn._native", exc_type=ModuleNotFoundError)
    assert native.encode_span(*arguments) == encode(*arguments)


def test_the_native_twin_refuses_ids_that_are_none() -> None:
    native = pytest.importorskip("uvicorn._native", exc_type=ModuleNotFoundError)
    rest = ("", "", 1, (1, 1, 1, 1), ("GET", b"", b"", 0, b"", b"", None), b"", b"", (b"", 0), b"", b"")
    for trace in ("", "0" * 31, "0" * 33, "g" * 32):
        with pytest.raises(ValueError):
            native.encode_span(trace, "0" * 16, *rest)


def test_a_host_has_a_name_and_maybe_a_port(subtests: Any) -> None:
    cases = {
        b"example.org": (b"example.org", None),
        b"example.org:8000": (b"example.org", 8000),
        b"[::1]:443": (b"::1", 443),
        b"[::1]": (b"::1", None),
        b"[::1": (b"::1", None),
        b"a:": (b"a", None),
        b"a:65536": (b"a", None),
        b"": (b"", None),
    }
    for host, expected in cases.items():
        with subtests.test(host=host):
            assert authority(host) == expected


@given(st.integers(0, 400), st.text(max_size=20))
def test_spans_that_a_collector_rejects_are_counted(count: int, message: str) -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = count
    answer.partial_success.error_message = message
    assert rejected_of(answer.SerializeToString()) == count


@given(st.binary(max_size=30))
def test_any_other_answer_rejects_none(answer: bytes) -> None:
    assert 0 <= rejected_of(answer) <= 512


def test_common_parts_are_remembered_but_not_without_end() -> None:
    for number in range(3000):
        otlp._cached_common(("GET", b"http", b"", 200, b"1.1", b"%d" % number, None))
        otlp._cached_user_agent(b"%d" % number)
    assert otlp._cached_common.cache_info().currsize <= 1024 and otlp._cached_user_agent.cache_info().currsize <= 256
