"""Limits and deadlines: how much, how many and how long, and what a client is told that exceeds them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests import loops
from tests.protocols.harness import GET, PATIENCE, Calls, Client, Service, echo, request, respond, serve
from tests.utils import deep_after, turns, wait_until

pytestmark = pytest.mark.anyio


anyio_backend = loops.one


async def refused(client: Client, status: int, method: str = "GET") -> None:
    """The answer is this status, says close, and the end follows."""
    response = await client.response(method)
    assert response.status == status
    assert response.values(b"connection") == [b"close"]
    assert await client.rest() == b""


# Concurrency


UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 19\r\n"
    b"connection: close\r\n\r\nService Unavailable"
)


async def test_concurrency_limit_of_one_refuses_every_request(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """LIM-01, LIM-02, LIM-03, LIM-04: the asking connection counts."""
    app = Calls()
    async with serve(http_protocol_cls, app, limit_concurrency=1) as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.rest() == UNAVAILABLE
    assert app.scopes == []
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("uvicorn.error", logging.WARNING)
    assert record.getMessage() == "Exceeded concurrency limit."


async def test_server_answers_for_itself_above_the_limit(http_protocol_cls: Any) -> None:
    """X7, LIM-01: a busy server is not dead."""
    app = Calls()
    async with serve(http_protocol_cls, app, limit_concurrency=1, lifecycle_path="/-/", root_path="/api") as service:
        for target, status in (("/-/live", 200), ("/-/ready", 503), ("/other", 503)):
            client = await service.connect()
            assert (await client.ask(request("GET", target))).status == status
    assert app.scopes == []


async def test_lifecycle_is_asked_of_the_application_by_default(http_protocol_cls: Any) -> None:
    """X7"""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        assert (await client.ask(request("GET", "/-/live"))).body == (await client.ask(request("GET", "/"))).body


async def test_idle_connections_count(http_protocol_cls: Any) -> None:
    """LIM-01, LIM-05"""
    async with serve(http_protocol_cls, respond(), limit_concurrency=3) as service:
        first, second = await service.connect(), await service.connect()
        assert (await first.ask()).status == 200
        assert (await second.ask()).status == 200
        third = await service.connect()
        assert (await third.ask()).status == 503
        assert await third.rest() == b""
        await wait_until(lambda: len(service.state.connections) == 2)
        assert (await first.ask()).status == 200


async def test_running_tasks_count(http_protocol_cls: Any) -> None:
    """LIM-01: also those whose client has gone."""
    finish = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await finish.wait()
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app, limit_concurrency=2) as service:
        for count in (1, 2):
            client = await service.connect()
            await client.send(GET)
            await wait_until(lambda count=count: len(service.state.tasks) == count)  # type: ignore[misc]
            client.reset()
            await wait_until(lambda: not service.state.connections)
        assert (await (await service.connect()).ask()).status == 503
        finish.set()
        await wait_until(lambda: not service.state.tasks)
        await wait_until(lambda: not service.state.connections)
        assert (await (await service.connect()).ask()).status == 200


async def test_refusal_of_a_request_with_a_body_can_be_read(http_protocol_cls: Any) -> None:
    """LIM-03, R13"""
    async with serve(http_protocol_cls, respond(), limit_concurrency=1) as service:
        client = await service.connect()
        await client.send(request("POST", body=bytes(1_000_000)))
        assert await client.rest() == UNAVAILABLE


# Sizes


async def test_long_target_is_refused(http_protocol_cls: Any) -> None:
    """U1, LIM-15: 414; the limit itself is allowed."""
    app = Calls()
    async with serve(http_protocol_cls, app, limit_request_target=100) as service:
        assert (await (await service.connect()).ask(request("GET", "/" * 100))).status == 200
        client = await service.connect()
        await client.send(request("GET", "/" * 101))
        await refused(client, 414)
    assert len(app.scopes) == 1


@pytest.mark.parametrize("size", [70_000, 131_071, 1_000_000])
async def test_target_beyond_the_default_is_never_cut(http_protocol_cls: Any, size: int) -> None:
    """U1: 414, whether or not its end has come."""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        for end in (b" HTTP/1.1\r\nhost: a\r\n\r\n", b""):
            client = await service.connect()
            await client.send(b"GET /" + b"a" * size + end)
            await refused(client, 414)
    assert app.scopes == []


async def test_large_head_is_refused(http_protocol_cls: Any) -> None:
    """D2: 431; the limit itself is allowed."""
    app = Calls()
    head = request("GET", "/", "x: " + "a" * 200)
    async with serve(http_protocol_cls, app, limit_request_head=len(head)) as service:
        assert (await (await service.connect()).ask(head)).status == 200
        client = await service.connect()
        await client.send(head.replace(b"x: ", b"xx: "))
        await refused(client, 431)
    assert len(app.scopes) == 1


@pytest.mark.parametrize("data", [b"X: " + b"a" * 1_000_000, b"X: a\r\n" * 200_000], ids=["one-field", "many-fields"])
async def test_head_that_never_ends_is_refused_early(http_protocol_cls: Any, data: bytes) -> None:
    """D2, LIM-14: within a small buffer, while the client is still sending; and it can read the answer."""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n" + data)
        await refused(client, 431)
    assert app.scopes == []


@pytest.mark.parametrize("count", [256, 257, 2000])
async def test_number_of_fields_is_limited(http_protocol_cls: Any, count: int) -> None:
    """D2, LIM-14"""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(request("GET", "/", *(f"x{number}: y" for number in range(count - 1))))
        if count <= 256:
            assert (await client.response()).status == 200
        else:
            await refused(client, 431)


async def test_number_of_trailers_is_limited(http_protocol_cls: Any) -> None:
    """D2, F14"""
    async with serve(http_protocol_cls, echo, limit_request_fields=3) as service:
        client = await service.connect()
        head = request("POST", "/", "transfer-encoding: chunked")
        assert (await client.ask(head + b"0\r\n" + b"x: y\r\n" * 3 + b"\r\n")).status == 200
        await client.send(head + b"0\r\n" + b"x: y\r\n" * 4 + b"\r\n")
        await refused(client, 431)


async def test_h11_setting_bounds_the_head_of_h11(http_protocol_cls: Any) -> None:
    """LIM-12, LIM-13: whether or not it comes in one read; the other implementations do not look at it."""
    async with serve(http_protocol_cls, respond(), h11_max_incomplete_event_size=1000) as service:
        client = await service.connect()
        await client.send(request("GET", "/", "x: " + "a" * 2000))
        if http_protocol_cls.__name__ == "H11Protocol":
            await refused(client, 431)
        else:
            assert (await client.response()).status == 200


async def test_announced_body_beyond_the_limit_is_refused_before_it_is_read(http_protocol_cls: Any) -> None:
    """D3, LIM-16"""
    app = Calls(echo)
    async with serve(http_protocol_cls, app, limit_request_body=10) as service:
        client = await service.connect()
        assert (await client.ask(request("POST", body=b"0123456789"))).status == 200
        await client.send(request("POST", "/", "content-length: 11"))
        await refused(client, 413)
    assert len(app.scopes) == 1


async def test_chunked_body_is_refused_when_it_crosses_the_limit(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """D3: the application is told that its client is gone."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not seen or seen[-1]["type"] == "http.request":
            seen.append(await receive())

    async with serve(http_protocol_cls, app, limit_request_body=10) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "transfer-encoding: chunked") + b"a\r\n0123456789\r\n")
        await wait_until(lambda: seen)
        await client.send(b"1\r\n0\r\n")
        await refused(client, 413)
        await wait_until(lambda: seen[-1]["type"] == "http.disconnect")
        client.close()
        await service.idle()
    assert [record.getMessage() for record in caplog.records] == [
        "Request refused with 413 Content Too Large: request body larger than limit_request_body (10 bytes)."
    ]


async def test_chunked_body_that_crosses_the_limit_at_once_never_reaches_the_application(
    http_protocol_cls: Any,
) -> None:
    """D3"""
    app = Calls(echo)
    async with serve(http_protocol_cls, app, limit_request_body=10) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "transfer-encoding: chunked") + b"b\r\n0123456789x\r\n0\r\n\r\n")
        await refused(client, 413)
    assert app.scopes == []


async def test_body_limit_crossed_in_a_response_cuts_it_short(http_protocol_cls: Any) -> None:
    """D3, R7"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        while (await receive())["type"] == "http.request":
            pass

    async with serve(http_protocol_cls, app, limit_request_body=10) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "transfer-encoding: chunked"))
        await client.until(b"a\r\n")
        await client.send(b"b\r\n0123456789x\r\n")
        assert await client.rest() == b""


async def test_flood_of_chunk_extensions_is_refused(http_protocol_cls: Any) -> None:
    """F13: in one line and in many."""
    async with serve(http_protocol_cls, echo) as service:
        for flood in (b"1;" + b"a=b;" * 5000, b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n" * 1000):
            client = await service.connect()
            await client.send(request("POST", "/", "transfer-encoding: chunked") + flood)
            await refused(client, 400)


@pytest.mark.no_cover
@pytest.mark.parametrize("count", deep_after(1, [10_000, 200_000]))
async def test_one_byte_chunks_cost_linear_work(http_protocol_cls: Any, count: int) -> None:
    """F13, D5: a quadratic server would need minutes for the most of them."""
    async with serve(http_protocol_cls, echo) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "transfer-encoding: chunked"))
        sending = asyncio.create_task(client.send(b"1\r\nx\r\n" * count + b"0\r\n\r\n"))
        assert len((await client.response()).body) == count
        await sending


# Deadlines


# No test waits for them: time passes when it is told to, in steps beside which what the machine takes is nothing.


class Gate:
    """An application that answers with the request's body, once it is let in; `entered` is set before."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.entered.set()
        await self.open.wait()
        await echo(scope, receive, send)


async def test_head_has_a_deadline_from_the_connection_on(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """D1: an absolute one: bytes that drip in do not move it."""
    app = Calls()
    async with serve(http_protocol_cls, app, timeout_request_head=3000) as service:
        client = await service.connect()
        await service.accepted()
        for byte in b"GET / HTTP/1.1\r\nHost: a\r\nxxx":
            service.pass_time(100)
            await client.send(bytes([byte]))
            assert await client.silent(3)
        service.pass_time(200)
        response = await client.response()
        assert response.status == 408
        assert response.body == b"Request Timeout"
        assert await client.rest() == b""
    assert app.scopes == []
    assert "Request refused with 408 Request Timeout: head not complete" in caplog.text


async def test_deadline_of_a_later_head_counts_from_its_first_byte(http_protocol_cls: Any) -> None:
    """D1"""
    settings = {"timeout_request_head": 300, "timeout_keep_alive": 3000}
    async with serve(http_protocol_cls, respond(), **settings) as service:
        client = await service.connect()
        await client.ask()
        service.pass_time(1000)
        await client.send(GET[:10])
        assert await client.silent()
        service.pass_time(200)
        assert await client.silent()
        service.pass_time(200)
        await refused(client, 408)


async def test_head_behind_a_response_has_its_own_deadline(http_protocol_cls: Any) -> None:
    """D1: part of it came with the request before."""
    settings = {"timeout_request_head": 300, "timeout_keep_alive": 3000}
    async with serve(http_protocol_cls, respond(), **settings) as service:
        client = await service.connect()
        await client.send(GET + GET[:20])
        assert (await client.response()).status == 200
        service.pass_time(200)
        assert await client.silent()
        service.pass_time(200)
        await refused(client, 408)


@pytest.mark.parametrize("before", [b"", GET, request("HEAD")], ids=["first", "behind-get", "behind-head"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_answer_to_a_late_head_has_content_unless_it_is_of_a_head_request(
    http_protocol_cls: Any, method: str, before: bytes
) -> None:
    """D1, R5"""
    async with serve(http_protocol_cls, respond(), timeout_request_head=300) as service:
        client = await service.connect()
        if before:
            await client.send(before)
            await client.response(before.split()[0].decode())
        await client.send(request(method)[:-4])
        await service.accepted()
        service.pass_time(400)
        await refused(client, 408, method)


async def test_head_deadline_is_disarmed_once_the_head_is_in(http_protocol_cls: Any) -> None:
    """D1: an application may take longer than its client was allowed to."""
    settings = {"timeout_request_head": 300, "timeout_request_body": 300, "timeout_keep_alive": 300}
    async with serve(http_protocol_cls, app := Gate(), **settings) as service:
        client = await service.connect()
        for body in (b"", b"x"):
            app.entered.clear()
            app.open.clear()
            await client.send(request("POST", body=body))
            await asyncio.wait_for(app.entered.wait(), PATIENCE)
            service.pass_time(1000)
            assert await client.silent()
            app.open.set()
            assert (await client.response()).body == body


async def test_deadline_of_zero_is_none(http_protocol_cls: Any) -> None:
    settings = {"timeout_request_head": 0, "timeout_request_body": 0}
    async with serve(http_protocol_cls, echo, **settings) as service:
        client = await service.connect()
        await service.accepted()
        for piece in (b"POST / HTTP/1.1\r\n", b"host: a\r\ncontent-length: 3\r\n\r\n1", b"23"):
            service.pass_time(100_000)
            assert await client.silent()
            await client.send(piece)
        assert (await client.response()).body == b"123"


async def test_body_that_does_not_come_is_not_waited_for(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """D1: 408, and the application is told that its client is gone."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not seen or seen[-1]["type"] == "http.request":
            seen.append(await receive())

    async with serve(http_protocol_cls, app, timeout_request_body=300) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 100") + b"part")
        await wait_until(lambda: seen)
        service.pass_time(200)
        assert await client.silent()
        service.pass_time(200)
        await refused(client, 408)
        await wait_until(lambda: seen[-1]["type"] == "http.disconnect")
    assert "Request refused with 408 Request Timeout: body not complete" in caplog.text


async def test_body_that_drips_is_not_waited_for(http_protocol_cls: Any) -> None:
    """D1: a byte now and then is not enough."""
    app = Upload()
    async with serve(http_protocol_cls, app, timeout_request_body=3000) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 100000"))
        await service.accepted()
        for number in range(29):
            service.pass_time(100)
            await client.send(b"x")
            await app.taken(number + 1)
        assert await client.silent()
        service.pass_time(200)
        await refused(client, 408)


class Upload:
    """An application that takes a body, and answers with its length."""

    def __init__(self) -> None:
        self.size = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            self.size += len(message["body"])
            if not message["more_body"]:
                break
        await respond(b"%d" % self.size)(scope, receive, send)

    async def taken(self, size: int) -> None:
        """Wait until it has so many bytes."""
        await wait_until(lambda: self.size == size)


async def upload(service: Service, app: Upload, client: Client, pieces: int, size: int) -> None:
    """Send pieces of a body, ten seconds apart for the server."""
    for _ in range(pieces):
        wanted = app.size + size
        await client.send(bytes(size))
        await app.taken(wanted)
        service.pass_time(10)


async def test_slow_upload_is_served_while_it_makes_progress(http_protocol_cls: Any) -> None:
    """D1: 300 bytes a second, for ten minutes."""
    app = Upload()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 180010"))
        await upload(service, app, client, 60, 3000)
        assert (await client.ask(bytes(10))).body == b"180010"


async def test_upload_that_hardly_makes_progress_is_not_waited_for(http_protocol_cls: Any) -> None:
    """D1: 100 bytes a second have 97 seconds: 60, and a second for each 240 bytes that have come since the first."""
    app = Upload()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 180000"))
        await upload(service, app, client, 9, 1000)
        assert await client.silent()
        await upload(service, app, client, 1, 1000)
        await refused(client, 408)


async def test_upload_that_stops_is_not_waited_for_however_fast_it_began(http_protocol_cls: Any) -> None:
    """D1: nobody saves up time."""
    app = Upload()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 2000000"))
        await upload(service, app, client, 2, 500_000)
        service.pass_time(45)
        assert await client.silent()
        service.pass_time(6)
        await refused(client, 408)


async def test_body_deadline_stands_still_while_the_application_does_not_read(
    http_protocol_cls: Any,
) -> None:
    """D1, D4: a client that is not read from cannot be late."""
    size = 2_000_000
    async with serve(http_protocol_cls, app := Gate(), timeout_request_body=300) as service:
        client = await service.connect()
        sending = asyncio.create_task(client.send(request("POST", body=bytes(size))))
        await asyncio.wait_for(app.entered.wait(), PATIENCE)
        await turns()
        service.pass_time(1000)
        assert await client.silent()
        app.open.set()
        assert len((await client.response()).body) == size
        await sending


async def test_body_deadline_goes_on_once_the_application_reads_again(http_protocol_cls: Any) -> None:
    """D1, D4"""
    app = Upload()
    go_on = asyncio.Event()

    async def late(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await app(scope, receive, send)

    async with serve(http_protocol_cls, late, timeout_request_body=300) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 100000") + bytes(70_000))
        await service.accepted()
        service.pass_time(1000)
        assert await client.silent()
        go_on.set()
        await app.taken(70_000)
        assert await client.silent()
        service.pass_time(1000)
        await refused(client, 408)


async def test_body_deadline_waits_for_the_continue(http_protocol_cls: Any) -> None:
    """D1, R12: until it has been asked to go on, a client that expects that is not late; afterwards it may be."""
    async with serve(http_protocol_cls, app := Gate(), timeout_request_body=300) as service:
        client = await service.connect()
        head = request("POST", "/", "expect: 100-continue", "content-length: 5")
        await client.send(head)
        await asyncio.wait_for(app.entered.wait(), PATIENCE)
        service.pass_time(1000)
        assert await client.silent()
        app.open.set()
        assert (await client.response()).status == 100
        await client.send(b"hello")
        assert (await client.response()).body == b"hello"
        assert (await client.ask(head)).status == 100
        service.pass_time(400)
        await refused(client, 408)


async def test_body_deadline_passed_in_a_response_cuts_it_short(http_protocol_cls: Any) -> None:
    """D1, R7"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        while (await receive())["type"] == "http.request":
            pass

    async with serve(http_protocol_cls, app, timeout_request_body=300) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 5"))
        await client.until(b"\r\n\r\n1\r\na\r\n")
        service.pass_time(400)
        assert await client.rest() == b""


async def test_body_nobody_reads_has_a_deadline_too(http_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """D1, F15: the request was answered, so it is not refused; the connection ends."""
    async with serve(http_protocol_cls, respond(), timeout_request_body=300) as service:
        client = await service.connect()
        assert (await client.ask(request("POST", "/", "content-length: 5"))).status == 200
        assert await client.silent()
        service.pass_time(400)
        assert await client.rest() == b""
    assert caplog.records == []


async def test_half_closed_client_is_not_refused_for_a_late_body(http_protocol_cls: Any) -> None:
    """D1, K5: it will not come, and the response may take its time."""
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"b"})

    async with serve(http_protocol_cls, app, timeout_request_body=300) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 5"))
        await client.until(b"1\r\na\r\n")
        client.half_close()
        assert await client.silent()
        service.pass_time(1000)
        assert await client.silent()
        go_on.set()
        assert await client.rest() == b"1\r\nb\r\n0\r\n\r\n"


async def test_slow_clients_do_not_keep_others_from_being_served(http_protocol_cls: Any) -> None:
    """D1: some hundreds of heads and bodies that never end, all dropped at their deadlines."""
    settings = {"timeout_request_head": 3000, "timeout_request_body": 3000}
    async with serve(http_protocol_cls, echo, **settings) as service:
        slow = [await service.connect() for _ in range(200)]
        for number, client in enumerate(slow):
            await client.send(GET[:-2] if number % 2 else request("POST", "/", "content-length: 5"))
        await service.accepted(200)
        assert (await (await service.connect()).ask()).status == 200
        service.pass_time(4000)
        for client in slow:
            await refused(client, 408)


# Refusals that can be read


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param(request("POST", "/", "content-length: 50000000"), 413, id="length"),
        pytest.param(request("POST", "/", "transfer-encoding: chunked") + b"2faf080\r\n", 413, id="chunked"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nX: ", 431, id="head"),
        pytest.param(b"POST /", 414, id="target"),
        pytest.param(b"nonsense\r\n\r\n", 400, id="nonsense"),
    ],
)
async def test_refusal_can_be_read_by_a_client_that_is_still_sending(
    http_protocol_cls: Any, head: bytes, status: int
) -> None:
    """R13, D2, D3: no reset before it is read, however much the client sends first."""
    async with serve(http_protocol_cls, echo, limit_request_body=1_000_000) as service:
        client = await service.connect()
        await client.send(head)
        for _ in range(160):
            await client.send(b"a" * 65_536)
        await refused(client, status)


async def test_refused_client_that_does_not_go_is_dropped(
    http_protocol_cls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R13: reading on has an end as well."""
    monkeypatch.setattr("uvicorn.rules.limits.LINGER_SECONDS", 0.2)
    async with serve(http_protocol_cls, echo) as service:
        client = await service.connect()
        await client.send(b"nonsense\r\n\r\n")
        await refused(client, 400)
        await client.send(b"more")
        await service.idle()
