"""Why a request was refused, as its operator learns it; and the limits that only show between reads."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tests import loops
from tests.protocols.harness import GET, echo, request, respond, serve
from uvicorn.rules import refusals
from uvicorn.rules.limits import MAX_DISCARDED
from uvicorn.rules.refusals import Refusal
from uvicorn.rules.status import STATUS_PHRASES

pytestmark = pytest.mark.anyio


anyio_backend = loops.one


SETTINGS: dict[str, Any] = {
    "limit_request_head": 100,
    "limit_request_fields": 3,
    "limit_request_target": 20,
    "limit_request_body": 10,
    "timeout_request_head": 300,
    "timeout_request_body": 300,
    "forwarded_allow_ips": "10.1.2.3",
    "proxy_headers": True,
}

CHUNKED = request("POST", "/", "transfer-encoding: chunked")

REFUSED = [
    pytest.param(b"\x16\x03\x01\x02", refusals.METHOD, None, id="400-tls"),
    pytest.param(b"GET / HTTP/1.1\r\n\r\n", refusals.HOST_MISSING, None, id="400-host"),
    pytest.param(CHUNKED + b"x", refusals.CHUNK_SIZE, None, id="400-chunk"),
    pytest.param(b"GET /", refusals.HEAD_TIMEOUT, 300, id="408-head"),
    pytest.param(request("POST", "/", "content-length: 9"), refusals.BODY_TIMEOUT, 300, id="408-body"),
    pytest.param(request("POST", "/", "content-length: 11"), refusals.BODY_TOO_LARGE, 10, id="413-length"),
    pytest.param(CHUNKED + b"b\r\n", refusals.BODY_TOO_LARGE, 10, id="413-chunk"),
    pytest.param(request("GET", "/" * 21), refusals.TARGET_TOO_LONG, 20, id="414"),
    pytest.param(request("GET", "/", "expect: tea"), refusals.EXPECTATION, None, id="417"),
    pytest.param(request("GET", "https://a/"), refusals.MISDIRECTED, None, id="421"),
    pytest.param(request("GET", "/", "x: " + "y" * 100), refusals.HEAD_TOO_LARGE, 100, id="431-head"),
    pytest.param(request("GET", "/", "a: b", "c: d", "e: f"), refusals.TOO_MANY_FIELDS, 3, id="431-fields"),
    pytest.param(request("GET", "/", "transfer-encoding: gzip"), refusals.CODING_UNSUPPORTED, None, id="501"),
    pytest.param(request("GET", "/", version="2.0"), refusals.VERSION_UNSUPPORTED, None, id="505"),
]


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if (record.name, record.levelno) == ("uvicorn.error", level)
    ]


@pytest.mark.parametrize(("data", "refusal", "limit"), REFUSED)
async def test_operator_is_told_who_was_refused_and_why(
    http_protocol_cls: Any, data: bytes, refusal: Refusal, limit: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    """At level debug; the warning says less for 400, as upstream's does."""
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    async with serve(http_protocol_cls, echo, **SETTINGS) as service:
        client = await service.connect()
        host, port = client.sock.getsockname()
        await client.send(data)
        if refusal in (refusals.HEAD_TIMEOUT, refusals.BODY_TIMEOUT):
            assert await client.silent()
            service.pass_time(400)
        assert (await client.response()).status == refusal.status
        assert await client.rest() == b""
    reason = refusal.reason.format(limit=limit)
    line = f"Request refused with {refusal.status} {STATUS_PHRASES[refusal.status]}: {reason}."
    assert lines(caplog, logging.DEBUG) == [f"{host}:{port} - {line}"]
    assert lines(caplog, logging.WARNING) == ["Invalid HTTP request received." if refusal.status == 400 else line]


async def test_reason_is_told_when_the_response_had_begun(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The client cannot be told any more."""
    caplog.set_level(logging.DEBUG, "uvicorn.error")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        while (await receive())["type"] == "http.request":
            pass

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(CHUNKED)
        await client.until(b"a\r\n")
        await client.send(b"5 5")
        assert await client.rest() == b""
    (line,) = lines(caplog, logging.DEBUG)
    assert line.endswith(" - Request refused with 400 Bad Request: malformed chunk extension.")


async def test_body_that_nobody_reads_any_more_is_not_refused(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its request was served: the connection ends, and that is all."""
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        assert (await client.ask(CHUNKED)).status == 200
        await client.send(b"x")
        assert await client.rest() == b""
    assert caplog.records == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs Unix sockets")
async def test_client_without_address_is_not_named(
    http_protocol_cls: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    async with serve(http_protocol_cls, echo, uds=str(tmp_path / "socket")) as service:
        client = await service.connect()
        assert (await client.ask(b"get")).status == 400
    assert lines(caplog, logging.DEBUG) == ["Request refused with 400 Bad Request: malformed method."]


# Limits that depend on what has come when


async def test_signed_chunks_of_an_upload_are_taken(http_protocol_cls: Any) -> None:
    """As object stores are sent them (`aws-chunked`): 64 KiB of data each, and 84 bytes of signature."""
    signature = b";chunk-signature=" + b"0123456789abcdef" * 4
    chunk = b"10000%b\r\n%b\r\n" % (signature, bytes(65536))
    count = 250

    async def app(scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size += len(message["body"])
            more = message["more_body"]
        await respond(b"%d" % size)(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(CHUNKED)
        for _ in range(count):
            await client.send(chunk)
        assert (await client.ask(b"0%b\r\n\r\n" % signature)).body == b"%d" % (count * 65536)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("over", [0, 1])
async def test_rest_of_a_body_is_dropped_up_to_the_limit(http_protocol_cls: Any, chunked: bool, over: int) -> None:
    """Of all that is read to get rid of it: chunk sizes count as well."""
    size = MAX_DISCARDED + over
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        if chunked:
            head, rest = CHUNKED, b"%x\r\n%b\r\n0\r\n\r\n" % (size - 14, bytes(size - 14))
            assert len(rest) == size
        else:
            head, rest = request("POST", "/", f"content-length: {size}"), bytes(size)
        response = await client.ask(head)
        # What is announced is known to be too much.
        assert response.values(b"connection") == ([b"close"] if over and not chunked else [])
        await client.send(rest + GET)
        if over:
            assert await client.rest() == b""
        else:
            assert (await client.response()).status == 200
