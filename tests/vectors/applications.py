"""The applications of the vectors, by name, and the record of what reached them.

They are plain ASGI 3 applications: `scripts/check-vectors-against` can be pointed at any server that runs one of them,
for example ``uvicorn tests.vectors.applications:echo``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

__all__ = ["APPLICATIONS", "SeenRequest"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

#: Turns of the event loop `slow` lets pass: enough for a pipelined request to overtake, if the server let it.
SLOW_TURNS = 10


@dataclass
class SeenRequest:
    """One call of the application: its scope, and of the body what it has read."""

    scope: MutableMapping[str, Any]
    body: bytes = b""
    #: The whole body was read.
    complete: bool = False
    #: `http.disconnect` came first.
    disconnected: bool = False

    def as_json(self) -> bytes:
        """What `echo` answers; bytes are written as text of code points up to 255."""
        scope = self.scope
        seen = {
            "method": scope["method"],
            "raw_path": scope["raw_path"].decode("latin-1"),
            "path": scope["path"],
            "query_string": scope["query_string"].decode("latin-1"),
            "http_version": scope["http_version"],
            "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
            "body": self.body.decode("latin-1"),
        }
        return json.dumps(seen).encode()


def record(scope: MutableMapping[str, Any]) -> SeenRequest:
    """Note the call in the list the runner put into the lifespan state, if it did."""
    seen = SeenRequest(scope)
    requests = scope.get("state", {}).get("requests")
    if requests is not None:
        requests.append(seen)
    return seen


async def read(seen: SeenRequest, receive: Receive, *, once: bool = False) -> None:
    """Read the body into `seen`, to its end, to the disconnect, or only the first event."""
    while not (seen.complete or seen.disconnected):
        message = await receive()
        if message["type"] == "http.disconnect":
            seen.disconnected = True
        else:
            seen.body += message.get("body", b"")
            seen.complete = not message.get("more_body", False)
        if once:
            return


async def answer(send: Send, status: int, body: bytes | None, *fields: tuple[bytes, bytes]) -> None:
    """Send a whole response; `content-length` is stated unless the body is None."""
    headers = list(fields)
    if body is not None:
        headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body or b""})


async def echo(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Read the whole body, answer 200 with a JSON object of what was seen; answer nothing to who has gone."""
    seen = record(scope)
    await read(seen, receive)
    if seen.complete:
        await answer(send, 200, seen.as_json(), (b"content-type", b"application/json"))


async def slow(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Like `echo`, some turns of the event loop later."""
    seen = record(scope)
    await read(seen, receive)
    for _ in range(SLOW_TURNS):
        await asyncio.sleep(0)
    await answer(send, 200, seen.as_json(), (b"content-type", b"application/json"))


async def ignore(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer `ok` at once; never call receive."""
    record(scope)
    await answer(send, 200, b"ok")


async def read_once(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer `ok` after the first event of the body."""
    await read(record(scope), receive, once=True)
    await answer(send, 200, b"ok")


async def stream(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Read the whole body, answer in two parts without stating a length."""
    seen = record(scope)
    await read(seen, receive)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first", "more_body": True})
    await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"second"})


async def empty(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer 200 with no content and without stating a length."""
    await read(record(scope), receive)
    await answer(send, 200, None)


async def no_content(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer 204."""
    await read(record(scope), receive)
    await answer(send, 204, None)


async def not_modified(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer 304 with an entity tag."""
    await read(record(scope), receive)
    await answer(send, 304, None, (b"etag", b'"1"'))


async def reset_content(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer 205 with no content."""
    await read(record(scope), receive)
    await answer(send, 205, None)


async def close(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answer `ok` and ask for the connection to be closed."""
    await read(record(scope), receive)
    await answer(send, 200, b"ok", (b"connection", b"close"))


#: By the name the vectors use.
APPLICATIONS: dict[str, Application] = {
    "close": close,
    "echo": echo,
    "empty": empty,
    "ignore": ignore,
    "no-content": no_content,
    "not-modified": not_modified,
    "read-once": read_once,
    "reset-content": reset_content,
    "slow": slow,
    "stream": stream,
}
