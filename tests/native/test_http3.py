"""HTTP/3 as a client sees it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trustme

if sys.platform != "linux":
    pytest.skip("HTTP/3 needs Linux", allow_module_level=True)

from tests import loops
from tests.native.http3_client import (
    INTERNAL_ERROR,
    MESSAGE_ERROR,
    NO_ERROR,
    REQUEST_CANCELLED,
    REQUEST_REJECTED,
    HTTP3Client,
    serve,
)
from tests.native.leak_server import resident
from tests.protocols.harness import body_of, respond
from tests.utils import turns, wait_until
from uvicorn.listening.udp_steering import MARK
from uvicorn.metrics.page import Page
from uvicorn.observing.exposition import WorkerFigures, render

anyio_backend = loops.one

pytestmark = pytest.mark.anyio

START = {"type": "http.response.start", "status": 200, "headers": []}


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Send the body back as it comes."""
    await send(START)
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        await send({"type": "http.response.body", "body": message.get("body", b""), "more_body": more})


class Calls:
    """Keeps the scopes of its calls."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        await respond(b"ok")(scope, receive, send)


async def test_a_request_has_the_usual_scope_and_is_logged(
    tls_certificate: trustme.LeafCert, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "uvicorn.access")
    app = Calls()
    async with serve(app, tls_certificate, server_header=True, access_log=True) as service:
        async with service.connect() as client:
            answer = await client.ask("/a%20b?c=d", ("x-one", "1"))
            (connection,) = service.state.connections
            assert (answer.status, answer.body) == (200, b"ok")
            assert answer.headers["server"] == "uvicorn"
            scope = app.scopes[0]
            assert (scope["type"], scope["http_version"], scope["method"], scope["scheme"]) == (
                "http",
                "3",
                "GET",
                "https",
            )
            assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", b"/a%20b", b"c=d")
            assert scope["headers"] == [(b"host", b"localhost"), (b"x-one", b"1")]
            assert scope["server"] == ("127.0.0.1", service.port)
            assert scope["client"] == connection.client  # type: ignore[attr-defined]
            line = f'{scope["client"][0]}:{scope["client"][1]} - "GET /a%20b?c=d HTTP/3" 200'
        await service.idle()
    assert line in [record.getMessage() for record in caplog.records]


async def test_bodies_go_there_and_back(tls_certificate: trustme.LeafCert) -> None:
    body = bytes(range(256)) * 4096
    async with serve(echo, tls_certificate) as service, service.connect() as client:
        answer = await client.ask(method="POST", body=body)
        assert answer.body == body
        stream = client.send(method="POST", end=False)
        for piece in (b"one", b"two"):
            client.send_data(stream, piece, end=False)
            await client.next(stream)
        client.send_data(stream, b"")
        assert (await client.answer(stream)).reset is None


async def test_input_that_waits_for_the_table_stays_within_the_window(tls_certificate: trustme.LeafCert) -> None:
    """Or a client that never sends the entry would fill the memory."""
    head = b"\x02\0\xd4\xd7\xc1\x50\x09localhost\x80"  # POST https / localhost, and the first entry of the table
    size = 4_000_000
    body = b"\0" + (0x8000_0000 | size).to_bytes(4, "big") + bytes(size)
    async with serve(echo, tls_certificate) as service, service.connect() as client, service.connect() as other:
        quic: Any = client._quic
        stream: int = quic.get_next_available_stream_id()
        quic.send_stream_data(stream, b"\x01" + bytes((len(head),)) + head + body, end_stream=True)
        client.transmit()
        sent = quic._streams[stream]
        for _ in range(10):
            await other.ask()
        assert sent.max_stream_data_remote < size / 2
        # Its encoder does not know of the entry that is acknowledged.
        client.http._encoder = cast(Any, SimpleNamespace(feed_decoder=lambda data: None))
        entry = b"\x3f\xe1\x1f\x41a\x01b"
        quic.send_stream_data(client.http._local_encoder_stream_id, entry)
        client.transmit()
        assert (await client.answer(stream)).body == bytes(size)

        left = quic.get_next_available_stream_id()
        quic.send_stream_data(left, b"\x01" + bytes((len(head),)) + head.replace(b"\x02", b"\x03", 1) + body)
        client.transmit()
        await other.ask()
        client.give_up(left)
        assert (await client.answer(left)).reset == REQUEST_CANCELLED


async def test_many_streams_are_answered_together(tls_certificate: trustme.LeafCert) -> None:
    waiting: list[Any] = []
    everyone = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        waiting.append(scope)
        if len(waiting) == 100:
            everyone.set()
        await everyone.wait()
        await respond(scope["path"].encode())(scope, receive, send)

    async with serve(app, tls_certificate) as service, service.connect() as client:
        answers = await asyncio.gather(*(client.ask(f"/{number}") for number in range(100)))
        assert [answer.body for answer in answers] == [b"/%d" % number for number in range(100)]


async def messages(send: Any, *parts: dict[str, Any]) -> None:
    for part in parts:
        await send({**part, "type": f"http.response.{part['type']}"})


async def test_applications_end_responses_in_every_way(
    tls_certificate: trustme.LeafCert, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789" * 100_000)
    head = {"type": "start", "status": 200, "headers": []}
    long = {**head, "headers": [(b"content-length", b"100")]}
    responses: dict[str, tuple[list[dict[str, Any]], tuple[int, bytes, int | None]]] = {
        "empty": ([head, {"type": "body"}], (200, b"", None)),
        "without content": ([{**head, "status": 204}, {"type": "body"}], (204, b"", None)),
        "pieces": (
            [head, *[{"type": "body", "body": b"x" * 9, "more_body": True}] * 9, {"type": "body"}],
            (200, b"x" * 81, None),
        ),
        "file": ([head, {"type": "pathsend", "path": str(file)}], (200, file.read_bytes(), None)),
        "cut": ([head, {"type": "body", "body": b"x", "more_body": True}], (200, b"x", INTERNAL_ERROR)),
        "too short": ([long, {"type": "body", "body": b"x"}], (200, b"", INTERNAL_ERROR)),
        "nothing": ([], (500, b"Internal Server Error", None)),
        "trailers": (
            [
                {**head, "trailers": True},
                {"type": "body", "body": b"x"},
                {"type": "trailers", "headers": [(b"x-sum", b"1")]},
            ],
            (200, b"x", None),
        ),
    }

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await messages(send, *responses[scope["path"][1:].replace("-", " ")][0])

    extensions = ["http.response.pathsend", "http.response.trailers"]
    async with serve(app, tls_certificate, asgi_extensions=extensions) as service, service.connect() as client:
        for name, (_, expected) in responses.items():
            with subtests.test(name):
                answer = await client.ask("/" + name.replace(" ", "-"), ("te", "trailers"))
                assert answer.reset == expected[2]
                if answer.reset is None:  # else what came before may be lost
                    assert (answer.status, answer.body) == expected[:2]
                assert (name == "trailers") == ({"x-sum": "1"} in answer.sections)
        with subtests.test("HEAD"):
            answer = await client.ask("/file", method="HEAD")
            assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("end", ["reset", "stop", "close"])
async def test_an_application_hears_of_the_end(
    tls_certificate: trustme.LeafCert, end: str, subtests: pytest.Subtests
) -> None:
    heard: list[str] = []
    there = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/send":
            await send(START)
            there.set()
            for _ in range(100):
                await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
        elif scope["path"] == "/receive":
            await receive()
            there.set()
        else:
            await respond()(scope, receive, send)
            return
        heard.append((await receive())["type"])

    async with serve(app, tls_certificate) as service:
        for path in ("/send", "/receive"):
            with subtests.test(path):
                there.clear()
                heard.clear()
                async with service.connect() as client:
                    stream = client.send(path, method="POST", end=False)
                    client.send_data(stream, b"x", end=False)
                    await there.wait()
                    if end == "close":
                        client.close()
                    else:
                        client.give_up(stream, reset=end == "reset", stop=end == "stop")
                        assert (await client.ask()).status == 200
                    await wait_until(lambda: heard == ["http.disconnect"])
        await service.idle()


@pytest.mark.parametrize(("method", "status"), [("GET", 304), ("HEAD", 200)])
async def test_an_application_hears_of_the_end_after_a_response_without_content(
    tls_certificate: trustme.LeafCert, method: str, status: int
) -> None:
    """Or it would send for ever: the response is complete for the client, and not for the application."""
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({**START, "status": status})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        heard.append((await receive())["type"])

    async with serve(app, tls_certificate) as service:
        async with service.connect() as client:
            answer = await client.ask(method=method)
            assert (answer.status, answer.reset, heard) == (status, None, [])
        await wait_until(lambda: heard == ["http.disconnect"])
        await service.idle()


async def test_a_client_that_does_not_read_pauses_its_application(
    tls_certificate: trustme.LeafCert, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sent = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send(START)
        for _ in range(1000):
            await send({"type": "http.response.body", "body": bytes(20_000), "more_body": True})
            sent += 20_000

    settings = {"timeout_write": 30, "max_data": 200_000, "max_stream_data": 100_000}
    write, flow = settings["timeout_write"], {name: settings[name] for name in ("max_data", "max_stream_data")}
    async with serve(app, tls_certificate, timeout_write=write) as service, service.connect(**flow) as client:
        for name in ("_write_connection_limits", "_write_stream_limits"):  # it never says that it has read
            setattr(client._quic, name, lambda **arguments: None)
        stream = client.send()
        before = -1
        while before != sent:
            before = sent
            await turns(50)
        assert 0 < sent < 1_000_000
        assert service.state.tasks
        client.acknowledge()
        await turns(50)
        service.pass_time(31)
        await turns(50)
        assert service.state.tasks
        answer = asyncio.ensure_future(client.answer(stream))
        for _ in range(4):  # its packets may have to be read first
            service.pass_time(31)
            await turns(50)
        assert (await answer).reset == REQUEST_CANCELLED
        await wait_until(lambda: not service.state.tasks)


async def test_a_response_waits_for_windows_while_its_client_acknowledges(tls_certificate: trustme.LeafCert) -> None:
    """A slow client may take minutes to open its windows."""
    window = 900_000
    async with (
        serve(respond(bytes(2_000_000)), tls_certificate, timeout_write=30) as service,
        service.connect(max_data=window, max_stream_data=window) as client,
    ):
        quic: Any = client._quic
        for name in ("_write_connection_limits", "_write_stream_limits"):
            setattr(quic, name, lambda **arguments: None)
        client.hold_acknowledgements()
        stream, rounds = client.send(), 0
        await turns(50)
        answers = [
            asyncio.ensure_future(client.answer(each)) for each in (stream, client.send("/", ("priority", "u=7")))
        ]
        while client.received(stream) < window - 1000:
            client.acknowledge()
            await turns(50)
            service.pass_time(20)
            await turns(50)
            rounds += 1
            assert not any(answer.done() for answer in answers)
        assert rounds > 3
        for _ in range(8):  # all is acknowledged, and the window stays closed
            client.acknowledge()
            await turns(50)
            service.pass_time(31)
            await turns(50)
        assert [(await answer).reset for answer in answers] == [REQUEST_CANCELLED] * 2


@pytest.mark.parametrize("length", [10_000, 16_000, 40_000])
async def test_a_response_of_a_piece_or_more_waits_for_its_window(
    tls_certificate: trustme.LeafCert, length: int
) -> None:
    """QUIC takes a part of a whole response."""
    async with (
        serve(respond(bytes(length)), tls_certificate, timeout_write=10) as service,
        service.connect(max_stream_data=length // 2) as client,
    ):
        quic: Any = client._quic
        write_stream_limits = quic._write_stream_limits
        quic._write_stream_limits = lambda **arguments: None
        stream = client.send()
        await wait_until(lambda: client.received(stream) == length // 2)
        client.acknowledge()
        await turns(50)
        service.pass_time(11)
        await turns(50)
        quic._write_stream_limits = write_stream_limits
        quic.send_ping(0)
        client.transmit()
        assert len((await client.answer(stream)).body) == length


async def test_a_response_does_not_live_on_what_is_acknowledged_of_others(tls_certificate: trustme.LeafCert) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(bytes(int(scope["path"][1:])))(scope, receive, send)

    async with (
        serve(app, tls_certificate, timeout_write=30, timeout_keep_alive=3600) as service,
        service.connect(max_stream_data=100_000) as client,
    ):
        quic: Any = client._quic
        quic._write_stream_limits = lambda **arguments: None
        stream = client.send("/400000")
        answer = asyncio.ensure_future(client.answer(stream))
        for _ in range(8):
            assert len((await client.ask("/90000")).body) == 90_000
            service.pass_time(16)
            await turns(50)
        assert (await answer).reset == REQUEST_CANCELLED
        assert client.ended is None


async def test_a_connection_that_exceeds_the_concurrency_ends(tls_certificate: trustme.LeafCert) -> None:
    """LIM-01: it counts, so a client that asked again and again would keep others out."""
    goes_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await goes_on.wait()
        await respond(b"ok")(scope, receive, send)

    async with (
        serve(app, tls_certificate, limit_concurrency=2) as service,
        service.connect() as client,
    ):
        streams = [client.send(), client.send()]
        await wait_until(lambda: len(service.state.tasks) == 2)
        assert (await client.ask()).status == 503
        assert (await client.answer(client.send())).reset == REQUEST_REJECTED
        goes_on.set()
        assert [(await client.answer(stream)).body for stream in streams] == [b"ok", b"ok"]
        assert await client.end() == NO_ERROR
        assert client.control.endswith(go_away(12))


async def test_an_application_that_does_not_read_pauses_its_client(tls_certificate: trustme.LeafCert) -> None:
    goes_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await goes_on.wait()
        body = await body_of(receive)
        await respond(b"%d" % len(body or b""))(scope, receive, send)

    async with serve(app, tls_certificate) as service, service.connect() as client:
        stream = client.send(method="POST", end=False)
        client.send_data(stream, bytes(3_000_000))
        await turns(100)
        (sender,) = [one.sender for number, one in client._quic._streams.items() if number == stream]
        assert sender._buffer_stop - sender._buffer_start > 2_000_000
        goes_on.set()
        assert (await client.answer(stream)).body == b"3000000"


async def test_what_cannot_be_served_is_refused(
    tls_certificate: trustme.LeafCert, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    caplog.set_level(logging.WARNING, "uvicorn.error")
    settings = {"limit_request_head": 20_000, "limit_request_fields": 50, "limit_request_body": 1000}
    requests: dict[str, tuple[dict[str, Any], tuple[int, int | None]]] = {
        "many fields": ({"fields": [(f"x-{number}", "1") for number in range(60)]}, (431, None)),
        "large head": ({"fields": [(f"x-{number}", "y" * 3000) for number in range(8)]}, (431, None)),
        "large body": ({"method": "POST", "body": bytes(1001)}, (413, None)),
        "declared body": ({"method": "POST", "fields": [("content-length", "1001")], "body": bytes(1001)}, (413, None)),
        "upper case": ({"fields": [("X-Upper", "1")]}, (0, MESSAGE_ERROR)),
        "connection": ({"fields": [("connection", "close")]}, (0, MESSAGE_ERROR)),
        "short body": ({"method": "POST", "fields": [("content-length", "9")], "body": b"x"}, (0, MESSAGE_ERROR)),
    }
    async with serve(echo_whole, tls_certificate, **settings) as service, service.connect() as client:
        for name, (request, expected) in requests.items():
            with subtests.test(name):
                fields = request.pop("fields", [])
                answer = await client.ask("/", *fields, **request)
                assert (answer.status, answer.reset) == expected
        with subtests.test("the connection goes on"):
            assert (await client.ask()).status == 200
        # A body that is not wanted is stopped.
        stream = client.send("/early", method="POST", end=False)
        answer = await client.answer(stream)
        with subtests.test("early answer"):
            assert answer.status == 200
            await wait_until(lambda: client._quic._streams[stream].sender._reset_error_code == NO_ERROR)


async def echo_whole(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the body, or at once."""
    body = b"early" if scope["path"] == "/early" else await body_of(receive)
    if body is not None:
        await respond(body)(scope, receive, send)


def go_away(number: int) -> bytes:
    """GOAWAY (RFC 9114 section 7.2.6): the server serves no stream from this one on."""
    return bytes((0x07, 0x01, number))


async def test_deadlines_end_what_does_not_come(tls_certificate: trustme.LeafCert, subtests: pytest.Subtests) -> None:
    settings = {"timeout_request_head": 5, "timeout_request_body": 7, "timeout_keep_alive": 3}
    async with serve(echo_whole, tls_certificate, **settings) as service:
        async with service.connect() as client:
            with subtests.test("body"):
                stream = client.send(method="POST", end=False)
                await wait_until(lambda: bool(service.state.tasks))
                service.pass_time(8)
                service.pass_time(1)
                assert (await client.answer(stream)).status == 408
            with subtests.test("head"):
                stream = client._quic.get_next_available_stream_id()
                client._quic.send_stream_data(stream, b"\x01\x20")
                client.transmit()
                await turns(20)
                service.pass_time(6)
                service.pass_time(1)
                assert (await client.answer(stream)).status == 408
            with subtests.test("idle"):
                await turns(20)
                service.pass_time(4)
                service.pass_time(1)
                assert await client.end() == NO_ERROR
                assert client.control.endswith(go_away(8))
        async with service.connect() as client:
            with subtests.test("first request"):
                await turns(20)
                service.pass_time(6)
                service.pass_time(1)
                assert await client.end() == NO_ERROR
                assert client.control.endswith(go_away(0))
        await service.idle()


async def test_only_acknowledgements_keep_a_connection_whose_last_response_is_on_its_way(
    tls_certificate: trustme.LeafCert,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(bytes(int(scope["path"][1:])))(scope, receive, send)

    timeouts = {"timeout_keep_alive": 3, "timeout_write": 20}
    async with serve(app, tls_certificate, **timeouts) as service, service.connect() as client:
        service.hold_clock()

        async def ping(with_acknowledgement: bool) -> None:
            client._quic.send_ping(0)
            if with_acknowledgement:
                client.acknowledge()
            else:
                client.transmit()
            await turns(50)

        assert (await client.ask("/1")).status == 200
        client.hold_acknowledgements()
        large = client.send("/900000")
        await turns(50)
        for _ in range(4):
            await ping(with_acknowledgement=True)
            service.pass_time(4)
            await turns(50)
            assert client.ended is None
        for _ in range(5):  # packets are lost meanwhile
            service.pass_time(4)
            await turns(50)
        assert client.ended is None
        await ping(with_acknowledgement=True)
        client.acknowledges = True
        assert len((await client.answer(large)).body) == 900_000
        service.pass_time(2)
        await turns(50)
        client.acknowledges = False
        small = client.send("/1")
        assert (await client.answer(small)).status == 200
        passes = 0
        while service.state.connections and passes < 12:
            await ping(with_acknowledgement=False)
            service.pass_time(4)
            await turns(50)
            passes += 1
        assert 6 <= passes < 12
        assert await client.end() == NO_ERROR
        await service.idle()


async def test_a_server_that_stops_finishes_what_has_begun(tls_certificate: trustme.LeafCert) -> None:
    goes_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await goes_on.wait()
        await respond(scope["path"].encode())(scope, receive, send)

    async with serve(app, tls_certificate) as service, service.connect() as client, service.connect() as idle:
        await wait_until(lambda: len(service.state.connections) == 2)
        first = client.send("/first")
        await wait_until(lambda: len(service.state.tasks) == 1)
        connections: list[Any] = list(service.state.connections)
        for connection in connections:
            connection.announce_close()
        await turns(10)
        second = client.send("/second")  # on its way when the client hears of it
        await wait_until(lambda: len(service.state.tasks) == 2)
        for connection in connections:
            connection.shutdown()
        service.pass_time(2)
        service.pass_time(1)
        assert await idle.end() == NO_ERROR
        assert idle.control.endswith(go_away(0))
        late = await client.answer(client.send("/late"))
        assert late.reset == REQUEST_REJECTED
        goes_on.set()
        assert (await client.answer(first)).body == b"/first"
        assert (await client.answer(second)).body == b"/second"
        assert await client.end() == NO_ERROR
        assert client.control.endswith(go_away(8))
        await service.idle()


async def test_safe_requests_may_come_in_early_data(
    tls_certificate: trustme.LeafCert, subtests: pytest.Subtests
) -> None:
    """Those of a client whose address no token validates wait for the handshake, so that none is a replay."""
    tickets: list[Any] = []
    tokens: list[bytes] = []
    handlers = {"session_ticket_handler": tickets.append, "token_handler": tokens.append}
    for allowed, has_token in ((True, True), (True, False), (False, True)):
        app = Calls()
        is_early = allowed and has_token
        async with serve(app, tls_certificate, tickets="own", http3_early_data=allowed) as service:
            for method, status in (("GET", 200), ("POST", 425 if is_early else 200)):
                with subtests.test(f"{method}, {allowed}, {has_token}"):
                    async with service.connect(**handlers) as client:
                        assert (await client.ask()).status == 200
                        await wait_until(lambda: bool(tickets and tokens))
                    token = tokens.pop() if has_token else b""
                    async with service.connect(wait=False, session_ticket=tickets.pop(), token=token) as client:
                        tickets.clear()
                        assert (await client.ask(method=method)).status == status
                        assert client._quic.tls.early_data_accepted is allowed
                    is_told = (b"early-data", b"1") in app.scopes[-1]["headers"]
                    assert is_told == (is_early and method == "GET")
            await service.idle()


def masked(opcode: int, payload: bytes) -> bytes:
    """A frame of a WebSocket's client."""
    length = len(payload)
    size = bytes([0x80 | length]) if length < 126 else b"\xfe" + struct.pack("!H", length)
    return bytes([0x80 | opcode]) + size + bytes(4) + payload


async def test_a_stream_becomes_a_websocket(tls_certificate: trustme.LeafCert) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["http_version"])
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "bytes": message["bytes"]})
        seen.append(message["code"])

    async def open_one(client: HTTP3Client) -> int:
        stream = client.send(
            "/", (":protocol", "websocket"), ("sec-websocket-version", "13"), method="CONNECT", end=False
        )
        headers = dict((await client.next(stream)).headers)
        assert headers[b":status"] == b"200" and headers[b"x-own"] == b"1" and b"alt-svc" not in headers
        return stream

    own = [(b"alt-svc", b'h3=":1"'), (b"x-own", b"1")]
    async with serve(app, tls_certificate, ws="auto", own_headers=own) as service, service.connect() as client:
        stream = await open_one(client)
        client.send_data(stream, masked(2, b"hello"), end=False)
        assert await client.data(stream, 7) == b"\x82\x05hello"
        client.send_data(stream, masked(2, b"x" * 60_000), end=False)
        assert (await client.data(stream, 60_004)).endswith(b"x" * 60_000)
        client.send_data(stream, masked(8, struct.pack("!H", 1001)), end=False)
        assert (await client.answer(stream)).body == b"\x88\x02\x03\xe9"
        other = await open_one(client)
        client.give_up(other)
        await wait_until(lambda: seen == ["3", 1001, "3", 1005])


async def test_connections_beyond_the_limit_are_closed(tls_certificate: trustme.LeafCert) -> None:
    class Slot:
        def admit(self, host: str) -> bool:
            return host == "127.0.0.1"

        def leave(self) -> None:
            slots.append(Slot())

    slots = [Slot()]
    async with serve(respond(), tls_certificate, enter=lambda: slots.pop() if slots else None) as service:
        async with service.connect() as client:
            assert (await client.ask()).status == 200
            async with service.connect() as other:
                await other.end()
            assert (await client.ask()).status == 200
        await wait_until(lambda: bool(slots))
        async with service.connect() as client:
            assert (await client.ask()).status == 200


async def test_a_panic_costs_its_connection(
    tls_certificate: trustme.LeafCert, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(respond(), tls_certificate) as service, service.connect() as other:
        assert (await other.ask()).status == 200
        for entry in ("data_received", "write"):
            async with service.connect() as client:
                assert (await client.ask()).status == 200
                cores: Any = service.state.protocol_settings
                cores.rehearse_panic(entry)
                client.send()
                assert await client.end() == INTERNAL_ERROR
        assert (await other.ask()).status == 200
    assert sum("Native core panicked" in record.getMessage() for record in caplog.records) == 2


async def test_what_is_urgent_comes_first(tls_certificate: trustme.LeafCert) -> None:
    async with serve(respond(bytes(1_000_000)), tls_certificate) as service, service.connect() as client:
        large = [client.send("/", ("priority", "u=6")) for _ in range(3)]
        await client.next(large[0])
        urgent = client.send("/", ("priority", "u=0"))
        answers = [asyncio.create_task(client.answer(stream)) for stream in (*large, urgent)]
        done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        assert answers[-1] in done
        await asyncio.gather(*answers)


async def test_an_application_whose_client_leaves_is_cancelled(tls_certificate: trustme.LeafCert) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.append("begun")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    settings: Any = {"on_disconnect": "cancel", "on_disconnect_grace": 0}
    async with serve(app, tls_certificate, **settings) as service, service.connect() as client:
        stream = client.send()
        await wait_until(lambda: heard == ["begun"])
        client.give_up(stream)
        await wait_until(lambda: heard == ["begun", "cancelled"])


async def test_a_connection_may_be_cut_off_inside_of_any_call(
    tls_certificate: trustme.LeafCert, caplog: pytest.LogCaptureFixture
) -> None:
    where = [""]

    def cut(at: str) -> None:
        if at == where[0]:
            for connection in list(services[0].state.connections):
                connection.transport.abort()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        cut("begin")
        await receive()
        cut("receive")
        await send(START)
        cut("start")
        for _ in range(9):
            await send({"type": "http.response.body", "body": bytes(50_000), "more_body": True})
            cut("body")
        await send({"type": "http.response.body", "body": b""})
        cut("end")

    services: list[Any] = []
    async with serve(app, tls_certificate) as service:
        services.append(service)
        for where[0] in ("begin", "receive", "start", "body", "end"):
            async with service.connect() as client:
                client.send()
                await client.end()
            await service.idle()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_requests_are_counted(tls_certificate: trustme.LeafCert) -> None:
    async with serve(respond(), tls_certificate) as service, service.connect() as client:
        assert (await client.ask()).status == 200
        cores: Any = service.state.protocol_settings
        assert cores.total_requests == 1


async def test_metrics_have_datagrams_handshakes_and_early_data(tls_certificate: trustme.LeafCert) -> None:
    page = Page.make()
    tickets: list[Any] = []
    tokens: list[bytes] = []
    settings: dict[str, Any] = {"page": page, "tickets": "own", "http3_early_data": True}
    async with serve(respond(), tls_certificate, **settings) as service:
        async with service.connect(session_ticket_handler=tickets.append, token_handler=tokens.append) as client:
            assert (await client.ask()).status == 200
            await wait_until(lambda: bool(tickets and tokens))
            found = told(page)
            assert found['http_connections{version="3"}'] == 1
            assert found['udp_bytes_total{direction="sent"}'] > found['udp_datagrams_total{direction="sent"}'] > 0
            assert found['udp_bytes_total{direction="received"}'] > 1200
            # Another address, without a word of it.
            other = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            other.bind(("::", 0))
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_datagram_endpoint(lambda: Relay(client), sock=other)
            client._transport = transport
            for _ in range(2):  # the second when the address is known to be its own
                assert (await client.ask()).status == 200
        transport.close()
        async with service.connect(wait=False, session_ticket=tickets[-1], token=tokens[-1]) as client:
            streams = [client.send(method=method) for method in ("BREW", "POST")]
            assert [(await client.answer(stream)).status for stream in streams] == [425, 425]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as strange:
            strange.connect(("127.0.0.1", service.port))
            strange.send(b"\xc0\x1a\x2a\x3a\x4a\x08" + bytes(8) + b"\x08" + bytes(1200))  # of another version
            strange.send(b"\x40" + bytes([0, MARK, 0]) + bytes(80))  # of a connection of an earlier process
        await wait_until(lambda: told(page)['quic_replies_total{kind="stateless_reset"}'] == 1)
        await service.idle()
    expected = {
        'http_connections{version="3"}': 0,
        'http_connections_opened_total{version="3"}': 2,
        'quic_handshakes_total{outcome="complete"}': 2,
        'quic_handshakes_total{outcome="failed"}': 0,
        'quic_early_data_total{outcome="accepted"}': 1,
        'quic_early_data_total{outcome="refused"}': 2,
        'quic_replies_total{kind="version_negotiation"}': 1,
        'quic_replies_total{kind="retry"}': 0,
        "quic_packets_lost_total": 0,
        "quic_migrations_total": 1,
        'requests_total{method="GET",status="2xx"}': 3,
        'requests_total{method="POST",status="4xx"}': 1,
        'requests_total{method="other",status="4xx"}': 1,
    }
    assert {name: told(page)[name] for name in expected} == expected


class Relay(asyncio.DatagramProtocol):
    """Hands on what comes to another socket of a client."""

    def __init__(self, client: HTTP3Client) -> None:
        self._client = client

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._client.datagram_received(data, addr)


def told(page: Page) -> dict[str, float]:
    """What the metrics of these numbers say."""
    lines = [line for line in render(list(page.words), WorkerFigures({}, {})).splitlines() if line[0] != "#"]
    return {name.removeprefix("uvicorn_"): float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_alt_svc_is_sent_over_http3_only_if_the_user_sets_it(tls_certificate: trustme.LeafCert) -> None:
    own = [(b"alt-svc", b'h3=":1"'), (b"x-own", b"1")]
    async with serve(respond(), tls_certificate, own_headers=own) as service, service.connect() as client:
        answer = await client.ask()
        assert answer.headers["x-own"] == "1" and "alt-svc" not in answer.headers
    headers = [("alt-svc", 'h3=":2"')]
    async with serve(respond(), tls_certificate, headers=headers) as service, service.connect() as client:
        assert (await client.ask()).headers["alt-svc"] == 'h3=":2"'


async def test_bodies_by_the_byte_take_little_memory(tls_certificate: trustme.LeafCert) -> None:
    grown = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await asyncio.sleep(0.1)
        before = resident()
        for _ in range(40_000):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        grown.append(resident() - before)
        await send({"type": "http.response.body"})

    async with serve(app, tls_certificate) as service, service.connect() as client:
        assert (await client.ask()).body == b"x" * 40_000
    assert grown[0] < 16 * 1024 * 1024


async def test_the_protocol_says_that_it_is_encrypted(tls_certificate: trustme.LeafCert) -> None:
    async with serve(respond(), tls_certificate) as service, service.connect() as client:
        assert (await client.ask()).status == 200
        (protocol,) = cast(Any, service.state.connections)
        assert protocol.scheme == "https"
        assert isinstance(protocol.transport.get_extra_info("sslcontext"), ssl.SSLContext)
