"""When the messages of an application take effect, and in which order; on both event loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.protocols.harness import GET, request, respond, serve

pytestmark = pytest.mark.anyio

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
BODY = {"type": "http.response.body", "body": b"ok"}


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    if request.param[1]["use_uvloop"]:
        pytest.importorskip("uvloop")
    return request.param


@pytest.fixture(autouse=True)
def applications_are_content(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What an application in here finds wrong must not be lost in the log."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call")] == []


def run_now(coroutine: Any) -> None:
    """Take the only step of a coroutine that does not have to wait."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


# A send() inside of a send(): whatever the application's objects do while they are looked at.


class Reentrant:
    """An iterable that sends messages of its own before it gives its items."""

    def __init__(self, send: Any, messages: Any, items: Any) -> None:
        self.send = send
        self.messages = messages
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        for message in self.messages:
            run_now(self.send(message))
        yield from self.items


def refused(type_: str) -> str:
    return f"Unexpected ASGI message '{type_}' sent, after response already completed."


@pytest.mark.parametrize("where", ["list", "pair"])
async def test_response_sent_while_the_headers_of_another_are_read_comes_first_and_alone(
    http_protocol_cls: Any, where: str
) -> None:
    """Three requests in one piece: what their responses are made of must not change their order."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/2":
            await respond(scope["path"].encode())(scope, receive, send)
            return
        inner = [{**START, "status": 201}, {**BODY, "body": b"in"}]
        if where == "list":
            headers: Any = Reentrant(send, inner, START["headers"])
        else:
            headers = [Reentrant(send, inner, (b"content-length", b"2"))]
        with pytest.raises(RuntimeError, match=refused("http.response.start")):
            await send({**START, "headers": headers})
        with pytest.raises(RuntimeError, match=refused("http.response.body")):
            await send(BODY)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(b"".join(request("GET", f"/{number}") for number in (1, 2, 3)))
        responses = [await client.response() for _ in range(3)]
        assert [(response.status, response.body) for response in responses] == [
            (200, b"/1"),
            (201, b"in"),
            (200, b"/3"),
        ]
        assert (await client.ask(request("GET", "/4"))).body == b"/4"


async def test_start_inside_of_a_start_is_the_one_that_counts(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = Reentrant(send, [{**START, "status": 201}], [(b"content-length", b"9")])
        with pytest.raises(RuntimeError, match=r"Expected ASGI message 'http.response.body'"):
            await send({**START, "headers": headers})
        await send(BODY)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for _ in range(2):
            response = await client.ask()
            assert (response.status, response.headers, response.body) == (201, [(b"content-length", b"2")], b"ok")


@pytest.mark.parametrize("kind", ["early_hint", "trailers"])
async def test_response_completed_while_a_message_is_read_is_not_added_to(http_protocol_cls: Any, kind: str) -> None:
    """Not to it, nor to the next."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/next":
            await respond(b"next")(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": kind == "trailers"})
        if kind == "trailers":
            await send(BODY)
            last = {"type": "http.response.trailers"}
            wrong = {"type": "http.response.trailers", "headers": Reentrant(send, [last], [(b"a", b"b")])}
        else:
            wrong = {"type": "http.response.early_hint", "links": Reentrant(send, [BODY], [b"</a>"])}
        with pytest.raises(RuntimeError, match=refused(wrong["type"])):
            await send(wrong)

    async with serve(http_protocol_cls, app, asgi_extensions="all") as service:
        client = await service.connect()
        await client.send(request("GET", "/", "te: trailers") + request("GET", "/next"))
        assert await client.until(b"next") == (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
            b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnext"
        )
        assert (await client.ask(GET)).status == 200
