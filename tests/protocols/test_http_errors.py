"""Applications that fail: what is logged, what the client gets, and what becomes of the connection."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests import machines
from tests.protocols.harness import GET, Client, request, respond, serve
from tests.utils import wait_until

pytestmark = pytest.mark.anyio

http_protocol_cls = machines.each

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
BODY = {"type": "http.response.body", "body": b"ok"}

SERVER_ERROR = (
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 21\r\n"
    b"connection: close\r\n\r\nInternal Server Error"
)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def is_kept(client: Client) -> bool:
    """Whether the connection is still there after its answer."""
    return await client.silent() and not client.ended


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    "error",
    [RuntimeError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, BaseException],
    ids=lambda e: e.__name__,
)
async def test_exception_before_the_start_ends_in_a_500(
    http_protocol_cls: Any, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-01, ERR-02: framed by its length whatever the implementation, and the server keeps running."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error("reason")

    async with serve(http_protocol_cls, app) as service:
        for _ in range(2):
            client = await service.connect()
            await client.send(GET)
            assert await client.rest() == SERVER_ERROR
    assert messages(caplog) == ["Exception in ASGI application\n"] * 2
    record = caplog.records[0]
    assert (record.name, record.levelno) == ("uvicorn.error", logging.ERROR)
    assert record.exc_info is not None
    assert record.exc_info[0] is error


async def test_500_carries_the_default_headers(http_protocol_cls: Any) -> None:
    """ERR-02"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError

    async with serve(http_protocol_cls, app, headers=[("x-a", "b")]) as service:
        response = await (await service.connect()).ask()
    assert response.headers[0] == (b"x-a", b"b")


@pytest.mark.parametrize("first_piece", [False, True])
async def test_exception_after_the_start_closes_the_connection_as_it_stands(
    http_protocol_cls: Any, first_piece: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-03, R7: the client sees that it was cut short; no second status line."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        if first_piece:
            await send({"type": "http.response.body", "body": b"part", "more_body": True})
        raise RuntimeError

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        data = await client.rest()
    part = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n"
    assert data == (part if first_piece else b"")
    assert messages(caplog) == ["Exception in ASGI application\n"]


async def test_exception_after_the_response_is_logged_and_does_not_end_the_connection(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-04: closing it, as upstream does, could lose the answer to the next request."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond()(scope, receive, send)
        raise RuntimeError

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET + GET)
        assert await client.exactly(2 * len(OK)) == 2 * OK
        assert await is_kept(client)
        assert (await client.ask()).body == b"ok"
        await wait_until(lambda: len(caplog.records) == 3)
    assert messages(caplog) == ["Exception in ASGI application\n"] * 3


async def test_late_exception_does_not_harm_the_next_request(http_protocol_cls: Any) -> None:
    """ERR-04: a background task of the first request fails while the second is answered."""
    fail, proceed = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/first":
            await respond()(scope, receive, send)
            await fail.wait()
            raise RuntimeError
        fail.set()
        await proceed.wait()
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("GET", "/first") + GET)
        await client.exactly(len(OK))
        await wait_until(lambda: len(service.state.tasks) == 1)
        proceed.set()
        assert await client.exactly(len(OK)) == OK


async def test_return_without_a_response_ends_in_a_500(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-05"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        pass

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.rest() == SERVER_ERROR
    assert messages(caplog) == ["ASGI callable returned without starting response."]


@pytest.mark.parametrize("first_piece", [False, True])
async def test_return_in_the_middle_of_a_response_closes_the_connection(
    http_protocol_cls: Any, first_piece: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-06"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(dict(START))
        if first_piece:
            await send(BODY | {"body": b"o", "more_body": True})

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.rest() == (OK[:-1] if first_piece else b"")
    assert messages(caplog) == ["ASGI callable returned without completing response."]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param([], SERVER_ERROR, id="nothing"),
        pytest.param([START], b"", id="start"),
        pytest.param([START, BODY | {"body": b"o", "more_body": True}], OK[:-1], id="part"),
    ],
)
async def test_return_of_a_value_is_an_error(
    http_protocol_cls: Any, sent: list[Any], expected: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-07: without a response there is a 500; upstream sends nothing at all."""

    async def app(scope: Any, receive: Any, send: Any) -> int:
        for message in sent:
            await send(dict(message))
        return 123

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.rest() == expected
    assert messages(caplog) == ["ASGI callable should return None, but returned '123'."]


@pytest.mark.parametrize("asked", [GET, request("POST", "/", "content-length: 5")])
async def test_return_of_a_value_after_the_response_is_logged(
    http_protocol_cls: Any, asked: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-07: as an exception would be; the response was complete, so the connection stays."""

    async def app(scope: Any, receive: Any, send: Any) -> int:
        await respond()(scope, receive, send)
        return 123

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(asked)
        assert await client.exactly(len(OK)) == OK
        assert await is_kept(client)
    assert messages(caplog) == ["ASGI callable should return None, but returned '123'."]


@pytest.mark.parametrize(
    ("sent", "wrong", "text"),
    [
        pytest.param(
            [], "http.response.body", "Expected ASGI message 'http.response.start', but got '{}'.", id="ERR-08"
        ),
        pytest.param([START], "http.response.start", "Expected ASGI message 'http.response.body', but got '{}'."),
        pytest.param(
            [START], "http.nonsense", "Expected ASGI message 'http.response.body', but got '{}'.", id="ERR-09"
        ),
        pytest.param(
            [START, BODY],
            "http.response.body",
            "Unexpected ASGI message '{}' sent, after response already completed.",
            id="ERR-10",
        ),
        pytest.param(
            [START, BODY],
            "http.response.start",
            "Unexpected ASGI message '{}' sent, after response already completed.",
            id="ERR-10-start",
        ),
    ],
)
async def test_message_out_of_order_is_raised_in_the_application(
    http_protocol_cls: Any, sent: list[Any], wrong: str, text: str
) -> None:
    """ERR-08, ERR-09, ERR-10: if the application catches it, it can go on."""
    raised: list[BaseException] = []
    rest: list[Any] = [START, BODY][len(sent) :]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in sent:
            await send(dict(message))
        with pytest.raises(RuntimeError) as caught:
            await send({"type": wrong, "status": 200})
        raised.append(caught.value)
        for message in rest:
            await send(dict(message))

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert await client.exactly(len(OK)) == OK
        await client.send(GET)
        assert await client.exactly(len(OK)) == OK
    assert [str(exc) for exc in raised] == [text.format(wrong)] * 2


async def test_application_whose_client_has_gone_may_return_without_a_response(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-18"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        assert await receive() == {"type": "http.disconnect"}
        if scope["path"] == "/started":
            await send(dict(START))

    async with serve(http_protocol_cls, app) as service:
        for target in ("/", "/started"):
            client = await service.connect()
            await client.send(request("GET", target))
            await wait_until(lambda: service.state.tasks)
            client.reset()
            await service.idle()
            client = await service.connect()
            await client.send(request("GET", target))
            await wait_until(lambda: service.state.tasks)
            client.half_close()
            assert await client.rest() == b""
            await service.idle()
    assert messages(caplog) == []


async def test_exception_of_an_application_whose_client_has_gone_is_logged(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-19"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await receive()
        raise RuntimeError

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: service.state.tasks)
        client.reset()
        await service.idle()
    assert messages(caplog) == ["Exception in ASGI application\n"]


@pytest.mark.parametrize("logger", ["uvicorn.access", "uvicorn.error"])
async def test_logging_that_fails_does_not_leave_a_client_waiting(http_protocol_cls: Any, logger: str) -> None:
    """Somebody's filter raises: the response is lost, the connection ends, and nothing hangs."""

    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("the filter is broken")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/":
            raise RuntimeError
        await respond()(scope, receive, send)

    lost: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: lost.append(context))
    logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    logging.getLogger(logger).addFilter(Broken())
    async with serve(http_protocol_cls, app, access_log=True) as service:
        for target in ("/", "/fine"):
            client = await service.connect()
            await client.send(request("GET", target, "connection: close"))
            await client.rest()
            await service.idle()
