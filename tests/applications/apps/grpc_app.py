"""A service of gRPC by hand: messages are bytes, its methods are the four kinds of call. GET is answered as well."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from typing import Any

OK, INVALID_ARGUMENT, UNIMPLEMENTED = 0, 3, 12


async def messages(receive: Any) -> AsyncIterator[bytes]:
    """The client's messages, each as soon as it is here: a flag, a length, so many bytes."""
    data, more = b"", True
    while more or data:
        while len(data) >= 5 and len(data) >= 5 + (length := struct.unpack_from("!BI", data)[1]):
            yield data[5 : 5 + length]
            data = data[5 + length :]
        if not more:
            return
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        data, more = data + message["body"], message["more_body"]


async def app(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    headers = dict(scope["headers"])
    if headers.get(b"content-type") != b"application/grpc":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": f"{scope['method']} HTTP/{scope['http_version']}".encode()})
        return
    assert (scope["http_version"], scope["method"], headers[b"te"]) == ("2", "POST", b"trailers")

    async def reply(message: bytes) -> None:
        await send(
            {"type": "http.response.body", "body": struct.pack("!BI", 0, len(message)) + message, "more_body": True}
        )

    fields = [(b"content-type", b"application/grpc")]
    await send({"type": "http.response.start", "status": 200, "headers": fields, "trailers": True})
    status, text = await call(scope["path"].rpartition("/")[2], receive, reply)
    await send({"type": "http.response.body", "body": b""})
    trailers = [(b"grpc-status", b"%d" % status), (b"grpc-message", text)]
    await send({"type": "http.response.trailers", "headers": trailers})


async def call(method: str, receive: Any, reply: Any) -> tuple[int, bytes]:
    """Answer a call; its status and what there is to say about it."""
    if method == "Gather":
        await reply(b",".join([message async for message in messages(receive)]))
    elif method == "Spread":
        async for message in messages(receive):
            for part in message.split(b","):
                await reply(part)
    elif method in ("Echo", "Converse"):
        async for message in messages(receive):
            if message == b"wrong":
                return INVALID_ARGUMENT, b"that is wrong"
            await reply(message)
    else:
        return UNIMPLEMENTED, b"there is no such method"
    return OK, b""
