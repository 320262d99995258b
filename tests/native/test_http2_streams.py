"""One stream of HTTP/2: its response, its body, its end, and how fast both go."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tests.native.http2_client import (
    CANCEL,
    DATA,
    INITIAL_WINDOW_SIZE,
    INTERNAL_ERROR,
    NO_ERROR,
    RST_STREAM,
    WINDOW_UPDATE,
    connect,
    frame,
    reset,
    window_update,
)
from tests.protocols.harness import Calls, echo, respond, serve
from tests.utils import turns, wait_until

pytestmark = pytest.mark.anyio

LARGE = os.urandom(1024) * 1024


# Responses


@pytest.mark.parametrize(
    ("method", "status", "length"), [("HEAD", 200, b"5"), ("GET", 204, None), ("GET", 304, b"5"), ("HEAD", 404, b"5")]
)
async def test_a_response_without_content_ends_with_its_head(
    native: Any, method: str, status: int, length: bytes | None
) -> None:
    async with serve(native, respond(b"12345", status), http2=True) as service:
        client = await connect(service)
        answer = await client.ask(method=method)
        assert (answer.status, answer.body, dict(answer.headers).get(b"content-length")) == (status, b"", length)
        assert (await client.ask("/again", method=method)).status == status


async def test_fields_about_connections_stay_here(native: Any) -> None:
    fields = [(b"Connection", b"close"), (b"X-A", b"1"), (b"Transfer-Encoding", b"chunked"), (b"set-cookie", b"a=b")]
    async with serve(native, respond(b"ok", headers=fields), http2=True) as service:
        client = await connect(service)
        answer = await client.ask()
        assert (answer.headers, answer.body) == ([(b"x-a", b"1"), (b"set-cookie", b"a=b")], b"ok")
        assert (await client.ask()).status == 200


@pytest.mark.parametrize("asked", [True, False])
async def test_trailers_are_sent_to_those_who_take_them(native: Any, asked: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
        await send({"type": "http.response.body", "body": b"body"})
        await send({"type": "http.response.trailers", "headers": [(b"Grpc-Status", b"0")]})

    async with serve(native, app, http2=True, asgi_extensions=["http.response.trailers"]) as service:
        client = await connect(service)
        answer = await client.ask("/", *([("te", "trailers")] if asked else []))
        assert answer.body == b"body"
        assert answer.trailers == ([(b"grpc-status", b"0")] if asked else [])


async def test_trailers_come_behind_a_body_that_waits(native: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
        await send({"type": "http.response.body", "body": b"body"})
        await send({"type": "http.response.trailers", "headers": [(b"a", b"b")]})

    async with serve(native, app, http2=True, asgi_extensions=["http.response.trailers"]) as service:
        client = await connect(service, {INITIAL_WINDOW_SIZE: 3})
        await client.send(client.head("/", ("te", "trailers")))
        await client.pong()
        assert (client.answers[1].body, client.answers[1].ended) == (b"bod", False)
        await client.send(window_update(1, 1))
        answer = await client.answer()
        assert (answer.body, answer.trailers) == (b"body", [(b"a", b"b")])


async def test_hints_come_in_front_of_the_response(native: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload"]})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.early_hint", "links": [b"</too-late>"]})
        await send({"type": "http.response.body", "body": b"ok"})

    async with serve(native, app, http2=True, asgi_extensions=["http.response.early_hint"]) as service:
        client = await connect(service)
        answer = await client.ask()
        assert [answer.status_of(0), answer.status_of(1), len(answer.heads)] == [103, 200, 2]
        assert dict(answer.heads[0])[b"link"] == b"</a.css>; rel=preload"


async def test_a_client_that_waits_to_continue_is_told(native: Any) -> None:
    async with serve(native, echo, http2=True) as service:
        client = await connect(service)
        fields = (("expect", "100-continue"), ("content-length", "4"))
        await client.send(client.head("/", *fields, method="POST", end=False))
        while not client.answers:
            await client.read()
        assert client.answers[1].status_of(0) == 100
        await client.send_data(b"body", 1)
        answer = await client.answer()
        assert (answer.status, answer.body, len(answer.heads)) == (200, b"body", 2)


@pytest.mark.parametrize("size", [0, 10, 1_000_000])
@pytest.mark.parametrize("kind", ["http.response.pathsend", "http.response.zerocopysend"])
async def test_files_are_copied(native: Any, tmp_path: Path, size: int, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(LARGE[:size])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        if kind == "http.response.pathsend":
            await send({"type": kind, "path": str(path)})
            return
        with open(path, "rb") as file:
            await send({"type": kind, "file": file})

    async with serve(native, app, http2=True, asgi_extensions=["all"]) as service:
        client = await connect(service, {INITIAL_WINDOW_SIZE: 2**31 - 1})
        await client.send(window_update(2**31 - 1 - 65535))
        assert (await client.ask()).body == LARGE[:size]
        assert (await client.ask(method="HEAD")).body == b""


async def test_an_application_that_fails_costs_its_stream_only(native: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"part", "more_body": True})
        if scope["path"] in ("/begun", "/failed"):
            raise RuntimeError("on purpose")
        await respond()(scope, receive, send)

    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        await client.send(client.head("/begun") + client.head("/failed") + client.head("/"))
        assert (await client.answer(1)).code == INTERNAL_ERROR
        failed = await client.answer(3)
        assert (failed.status, failed.body, failed.code) == (500, b"Internal Server Error", None)
        assert (await client.answer(5)).body == b"ok"
    assert [record.getMessage() for record in caplog.records].count("Exception in ASGI application\n") == 2


async def test_a_response_shorter_than_declared_is_reset(native: Any) -> None:
    errors: list[Exception] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        try:
            await send({"type": "http.response.body", "body": b"part"})
        except RuntimeError as exc:
            errors.append(exc)

    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        answer = await client.ask()
        assert (answer.code, answer.body) == (INTERNAL_ERROR, b"")
    assert str(errors[0]) == "Response content shorter than Content-Length"


async def test_who_answers_early_wants_no_more_of_the_body(native: Any) -> None:
    async with serve(native, respond(), http2=True) as service:
        client = await connect(service)
        await client.send(client.head(method="POST", end=False))
        assert (await client.answer()).body == b"ok"
        assert (await client.until(RST_STREAM)).code == NO_ERROR
        await client.send_data(b"late", 1)
        assert (await client.ask()).body == b"ok"


# Ends


async def test_a_reset_is_heard_by_its_application_alone(native: Any) -> None:
    heard: list[str] = []
    going: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        going.append(scope["path"])
        heard.append(f"{scope['path']} {(await receive())['type']}")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"to nobody"})

    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        await client.send(client.head("/a") + client.head("/b"))
        await wait_until(lambda: going == ["/a", "/b"])
        await client.send(reset(1))
        await wait_until(lambda: heard == ["/a http.disconnect"])
        await turns()
        assert len(service.state.tasks) == 1
        await client.pong()
        assert 1 not in client.answers
        client.client.close()
        await wait_until(lambda: heard == ["/a http.disconnect", "/b http.disconnect"])


async def test_what_was_reset_counts_while_its_application_runs(native: Any) -> None:
    released = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            await released.wait()
        await respond()(scope, receive, send)

    async with serve(native, app, http2=True, http2_max_concurrent_streams=2) as service:
        client = await connect(service)
        await client.send(client.head("/slow") + client.head("/slow"))
        await wait_until(lambda: len(service.state.tasks) == 2)
        await client.send(reset(1) + reset(3))
        await client.pong()
        assert (await client.ask()).code == 7  # REFUSED_STREAM
        released.set()
        await wait_until(lambda: not service.state.tasks)
        assert (await client.ask()).status == 200


async def test_a_request_that_is_reset_at_once_starts_nothing(native: Any) -> None:
    app = Calls()
    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        await client.send(client.head("/a") + reset(1) + client.head("/b"))
        assert (await client.answer(3)).status == 200
        assert [scope["path"] for scope in app.scopes] == ["/b"]


# Flow control


async def test_send_waits_for_the_window_of_its_stream(native: Any) -> None:
    sent: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/large":
            await respond()(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for start in range(0, len(LARGE), 32768):
            await send({"type": "http.response.body", "body": LARGE[start : start + 32768], "more_body": True})
            sent.append(start)
        await send({"type": "http.response.body", "body": b""})

    async with serve(native, app, http2=True) as service:
        client = await connect(service, {INITIAL_WINDOW_SIZE: 1000})
        await client.send(client.head("/large"))
        await client.pong()
        await turns()
        # What was sent, and no more than the high-water mark and one piece behind it.
        assert len(client.answers[1].body) == 1000
        assert len(sent) == 3
        assert (await client.ask("/small")).body == b"ok"
        await client.send(window_update(2**30, 1) + window_update(2**30))
        assert (await client.answer(1)).body == LARGE


async def test_a_window_that_the_application_does_not_open_stays_closed(native: Any) -> None:
    release = asyncio.Event()
    got: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            await release.wait()
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
            got.append(size)
        await respond(b"%d" % size)(scope, receive, send)

    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        await client.send(client.head("/slow", method="POST", end=False))
        await client.send_data(LARGE[:60000], 1, end=False)
        await client.pong()
        assert not [found for found in client.frames if found.kind == WINDOW_UPDATE and found.stream == 1]
        # The connection's window is another matter: nobody is kept from it.
        await client.send(client.head("/quick", method="POST", end=False))
        await client.send_data(LARGE[:60000], 3)
        assert (await client.answer(3)).body == b"60000"
        release.set()
        while (await client.until(WINDOW_UPDATE)).stream != 1:
            pass
        await client.send_data(LARGE[:60000], 1)
        assert (await client.answer(1)).body == b"120000"


async def test_windows_survive_resets_and_padding(native: Any) -> None:
    """H7: bodies that nobody reads, many times the connection's window, leave it as it was."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/kept":
            await receive()
            await receive()
        await (echo if scope["path"] == "/read" else respond())(scope, receive, send)

    async with serve(native, app, http2=True) as service:
        client = await connect(service)
        padded = bytes([255]) + LARGE[:16000] + bytes(255)
        for _ in range(600):
            given_up, answered = client.next_stream, client.next_stream + 2
            await client.send(client.head("/kept", method="POST", end=False) + client.head(method="POST", end=False))
            await client.send(frame(DATA, 0x8, given_up, padded) + reset(given_up))
            assert (await client.answer(answered)).ended
            await client.send(frame(DATA, 0x8, answered, padded))
        stream = client.next_stream
        await client.send(client.head("/read", method="POST", end=False))
        await client.send_data(LARGE[:60000], stream)
        await client.send(window_update(2**20) + window_update(2**20, stream))
        assert (await client.answer(stream)).body == LARGE[:60000]


async def test_a_small_answer_does_not_wait_for_large_ones(native: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(LARGE if scope["path"] == "/large" else b"small")(scope, receive, send)

    async with serve(native, app, http2=True) as service:
        client = await connect(service, {INITIAL_WINDOW_SIZE: 2**31 - 1})
        await client.send(window_update(2**30) + client.head("/large") + client.head("/large"))
        await client.read()
        await client.send(client.head("/small"))
        assert (await client.answer(5)).body == b"small"
        assert not client.answers[1].ended
        assert (await client.answer(1)).body == (await client.answer(3)).body == LARGE


async def test_what_is_urgent_comes_first(native: Any) -> None:
    async with serve(native, respond(LARGE[:100_000]), http2=True) as service:
        client = await connect(service, {INITIAL_WINDOW_SIZE: 2**31 - 1})
        await client.send(client.head() + client.head("/", ("priority", "u=0")))
        await client.send(window_update(2**20))
        assert (await client.answer(3)).ended
        assert not client.answers[1].ended
        assert (await client.answer(1)).ended


# Deadlines


async def test_a_body_that_does_not_come_is_408(native: Any, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.append((await receive())["type"])

    async with serve(native, app, http2=True, timeout_request_body=5) as service:
        client = await connect(service)
        await client.send(client.head(method="POST", end=False))
        await wait_until(lambda: len(service.state.tasks) == 1)
        service.pass_time(6)
        answer = await client.answer()
        assert (answer.status, answer.body) == (408, b"Request Timeout")
        await wait_until(lambda: heard == ["http.disconnect"])
        assert (await client.ask(method="HEAD")).status == 500
    assert any("408" in record.getMessage() for record in caplog.records)


async def test_a_body_that_is_not_read_is_never_late(native: Any) -> None:
    release = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        await echo(scope, receive, send)

    async with serve(native, app, http2=True, timeout_request_body=5) as service:
        client = await connect(service)
        await client.send(client.head(method="POST", end=False))
        await client.send_data(LARGE[:60000], 1, end=False)
        await client.pong()
        service.pass_time(60)
        release.set()
        await client.send_data(b"!", 1)
        assert (await client.answer()).body == LARGE[:60000] + b"!"


async def test_a_window_that_stays_closed_costs_the_stream(native: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(LARGE if scope["path"] == "/large" else b"")(scope, receive, send)
        await receive()
        ended.append((await receive())["type"])

    async with serve(native, app, http2=True, timeout_write=5) as service:
        client = await connect(service, {INITIAL_WINDOW_SIZE: 100})
        await client.send(client.head("/large"))
        await client.pong()
        await client.send(window_update(5000, 1))
        await client.pong()
        service.pass_time(6)  # as much was taken as has to be
        await client.pong()
        assert client.answers[1].code is None
        service.pass_time(6)
        assert (await client.answer()).code == CANCEL
        await wait_until(lambda: ended == ["http.disconnect"])
        assert (await client.ask()).status == 200
    line = "Client keeps its window closed, resetting the stream (timeout_write)."
    assert [record.getMessage().endswith(line) for record in caplog.records].count(True) == 1


# Limits and logs


@pytest.mark.parametrize(
    ("settings", "fields", "status"),
    [
        ({"limit_request_fields": 3}, [("a", "b")] * 4, 431),
        ({"http2_max_header_list_size": 200}, [("a", "b" * 200)], 431),
        ({"limit_request_head": 200}, [("a", "b" * 200)], 431),
        ({"limit_request_body": 5}, [("content-length", "6")], 413),
        ({}, [("expect", "else")], 417),
    ],
)
async def test_what_is_over_a_limit_is_refused_and_the_rest_is_served(
    native: Any, settings: dict[str, Any], fields: list[tuple[str, str]], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(native, respond(), http2=True, **settings) as service:
        client = await connect(service)
        await client.send(client.head("/", *fields, method="POST", end=False))
        assert (await client.answer()).status == status
        assert (await client.ask()).status == 200
    assert [f"refused with {status}" in record.getMessage() for record in caplog.records].count(True) == 1


async def test_many_that_are_refused_at_once_are_one_line_in_the_log(
    native: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """H2"""
    async with serve(native, respond(), http2=True, limit_request_fields=3) as service:
        client = await connect(service)
        heads = [client.head("/", *[("a", "b")] * 4) for _ in range(20)]
        for head in (b"".join(heads[:10]), b"".join(heads[10:])):
            await client.send(head)
            await client.pong()
        assert {client.answers[stream].status for stream in range(1, 40, 2)} == {431}
    assert ["refused with 431" in record.getMessage() for record in caplog.records].count(True) == 2


async def test_a_body_without_a_length_meets_the_limit(native: Any) -> None:
    heard: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "http.request":
            pass
        heard.append(message["type"])

    async with serve(native, app, http2=True, limit_request_body=5) as service:
        client = await connect(service)
        await client.send(client.head(method="POST", end=False))
        await client.send_data(b"12345", 1, end=False)
        await client.pong()
        await client.send_data(b"6", 1, end=False)
        assert (await client.answer()).status == 413
        await wait_until(lambda: heard == ["http.disconnect"])


async def test_above_the_limit_of_concurrency_503(native: Any) -> None:
    released = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await released.wait()
        await respond()(scope, receive, send)

    async with serve(native, app, http2=True, limit_concurrency=3) as service:
        client = await connect(service)
        await client.send(client.head() + client.head() + client.head())
        await wait_until(lambda: len(service.state.tasks) == 3)
        assert (await client.ask()).status == 503
        released.set()
        assert (await client.answer(1)).status == 200


async def test_limit_of_concurrency_holds_within_one_read(native: Any) -> None:
    released = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await released.wait()
        await respond()(scope, receive, send)

    async with serve(native, app, http2=True, limit_concurrency=3) as service:
        client = await connect(service)
        await client.send(b"".join(client.head() for _ in range(5)))
        assert [(await client.answer(stream)).status for stream in (7, 9)] == [503, 503]
        released.set()
        assert [(await client.answer(stream)).status for stream in (1, 3, 5)] == [200, 200, 200]


async def test_a_format_of_the_log_sees_fields_and_bytes(native: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.access")
    settings = {"access_log": True, "access_log_format": "%(r)s %(s)s %(B)s %({x-a}o)s %({x-b}i)s"}
    fields = [(b"x-a", b"1"), (b"x-a", b"2")]
    async with serve(native, respond(b"body", headers=fields), http2=True, **settings) as service:
        client = await connect(service)
        await client.ask("/a?b", ("x-b", "3"))
        await client.ask("/c", method="HEAD")
        await turns()
    lines = [record.getMessage() for record in caplog.records if record.name == "uvicorn.access"]
    assert lines == ["GET /a?b HTTP/2 200 4 1, 2 3", "HEAD /c HTTP/2 200 0 1, 2 -"]


async def test_proxy_headers_hold(native: Any) -> None:
    app = Calls()
    async with serve(native, app, http2=True, proxy_headers=True, forwarded_allow_ips="*") as service:
        client = await connect(service)
        await client.ask("/", ("x-forwarded-for", "1.2.3.4"), ("x-forwarded-proto", "https"))
        assert (app.scope["client"], app.scope["scheme"]) == (("1.2.3.4", 0), "https")
