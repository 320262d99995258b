"""The log of ASGI messages at level TRACE: TRC-* of tests/catalogue/behaviour.md."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from uvicorn.logging import TRACE_LOG_LEVEL
from uvicorn.middleware.message_logger import PLACEHOLDER_FORMAT, MessageLoggerMiddleware, message_with_placeholders

pytestmark = pytest.mark.anyio

HTTP_SCOPE = {"type": "http", "path": "/", "headers": [(b"cookie", b"secret")], "client": ("192.0.2.1", 5)}


async def application(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"set-cookie", b"secret")]})
    await send({"type": "http.response.body", "body": b"hello", "more_body": False})


async def receive() -> Any:
    return {"type": "http.request", "body": b"abc", "more_body": False}


async def send(message: Any) -> None:
    pass


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """Return a function that gives the lines logged so far to uvicorn.asgi at TRACE level."""
    caplog.set_level(TRACE_LOG_LEVEL, logger="uvicorn.asgi")
    logging.getLogger("uvicorn.asgi").propagate = True
    logging.getLogger("uvicorn").propagate = True

    def logged() -> list[str]:
        assert {(record.name, record.levelno) for record in caplog.records} <= {("uvicorn.asgi", TRACE_LOG_LEVEL)}
        return [record.getMessage() for record in caplog.records]

    return logged


async def test_messages_of_a_request_are_logged_in_order(lines: Any) -> None:
    """TRC-03, TRC-04, TRC-05: L1 too, what is secret or long is not written."""
    await MessageLoggerMiddleware(application)(HTTP_SCOPE, receive, send)  # type: ignore[arg-type]
    assert lines() == [
        "192.0.2.1:5 - ASGI [1] Started scope="
        "{'type': 'http', 'path': '/', 'headers': '<...>', 'client': ('192.0.2.1', 5)}",
        "192.0.2.1:5 - ASGI [1] Receive {'type': 'http.request', 'body': '<3 bytes>', 'more_body': False}",
        "192.0.2.1:5 - ASGI [1] Send {'type': 'http.response.start', 'status': 200, 'headers': '<...>'}",
        "192.0.2.1:5 - ASGI [1] Send {'type': 'http.response.body', 'body': '<5 bytes>', 'more_body': False}",
        "192.0.2.1:5 - ASGI [1] Completed",
    ]


async def test_messages_pass_unchanged() -> None:
    sent: list[Any] = []
    received: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> Any:
        received.append(await receive())
        await send({"type": "http.response.body", "body": b"hello"})
        return "something"

    async def remember(message: Any) -> None:
        sent.append(message)

    result = await MessageLoggerMiddleware(app)(HTTP_SCOPE, receive, remember)  # type: ignore[arg-type, func-returns-value]
    assert received == [{"type": "http.request", "body": b"abc", "more_body": False}]
    assert sent == [{"type": "http.response.body", "body": b"hello"}]
    assert result == "something"


async def test_calls_are_numbered_the_lifespan_being_the_first(lines: Any) -> None:
    """TRC-04."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        pass

    middleware = MessageLoggerMiddleware(app)
    await middleware({"type": "lifespan", "state": {}}, receive, send)  # type: ignore[arg-type]
    await middleware(HTTP_SCOPE, receive, send)  # type: ignore[arg-type]
    await middleware({**HTTP_SCOPE, "client": None}, receive, send)  # type: ignore[arg-type]
    assert [line.partition("]")[0] for line in lines()] == [
        "ASGI [1",
        "ASGI [1",
        "192.0.2.1:5 - ASGI [2",
        "192.0.2.1:5 - ASGI [2",
        "ASGI [3",
        "ASGI [3",
    ]
    assert middleware.task_counter == 3


async def test_scope_without_client_has_the_short_prefix(lines: Any) -> None:
    """TRC-04."""
    scope = {"type": "http", "headers": []}
    await MessageLoggerMiddleware(application)(scope, receive, send)  # type: ignore[arg-type]
    assert lines()[0] == "ASGI [1] Started scope={'type': 'http', 'headers': '<...>'}"


async def test_exception_is_logged_and_passed_on(lines: Any) -> None:
    """TRC-03."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        await MessageLoggerMiddleware(app)(HTTP_SCOPE, receive, send)  # type: ignore[arg-type]
    assert lines()[-1] == "192.0.2.1:5 - ASGI [1] Raised exception"
    assert raised.value.__cause__ is None


async def test_client_name_with_control_characters_stays_on_one_line(lines: Any) -> None:
    """L1: a proxy may pass on such a name, which must not start a line or an escape sequence of its own."""
    scope = {**HTTP_SCOPE, "client": ("x\r\n\x1b[31m\x85", 0)}
    await MessageLoggerMiddleware(application)(scope, receive, send)  # type: ignore[arg-type]
    assert lines()[-1] == r"x\r\n\x1b[31m\x85:0 - ASGI [1] Completed"


@pytest.mark.parametrize(
    "message, expected",
    [
        pytest.param({"text": "hé"}, {"text": "<2 chars>"}, id="text"),
        pytest.param({"bytes": b"abc", "text": None}, {"bytes": "<3 bytes>", "text": None}, id="bytes"),
        pytest.param({"body": b""}, {"body": "<0 bytes>"}, id="empty-body"),
        pytest.param({"headers": []}, {"headers": "<...>"}, id="headers"),
        pytest.param({"headers": iter([])}, {"headers": "<...>"}, id="headers-without-length"),
        pytest.param({"code": 1000}, {"code": 1000}, id="others-stay"),
    ],
)
def test_placeholders(message: Any, expected: Any) -> None:
    """TRC-05."""
    before = dict(message)
    assert message_with_placeholders(message) == expected
    assert message == before
    assert PLACEHOLDER_FORMAT.keys() == {"body", "bytes", "text", "headers"}
