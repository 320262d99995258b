"""What the programs in front of a server are asked for in `test_deployment`; served as `tests.deployment_app:app`."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

going_on = asyncio.Event()
received = 0


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer by path."""
    if scope["type"] == "websocket":
        await echo(scope, receive, send)
    elif scope["type"] == "http":
        answers = {"/": show, "/stream": stream, "/go": go, "/upload": upload, "/received": tell}
        await answers[scope["path"]](scope, receive, send)


async def respond(send: Any, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def show(scope: Any, receive: Any, send: Any) -> None:
    """What the server made of the request."""
    headers = [[name.decode(), value.decode()] for name, value in scope["headers"]]
    seen = {"client": scope["client"], "scheme": scope["scheme"], "headers": headers}
    await respond(send, json.dumps(seen).encode())


async def stream(scope: Any, receive: Any, send: Any) -> None:
    """One line, and the next when `/go` was asked for."""
    going_on.clear()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send({"type": "http.response.body", "body": b"data: one\n\n", "more_body": True})
    await going_on.wait()
    await send({"type": "http.response.body", "body": b"data: two\n\n"})


async def go(scope: Any, receive: Any, send: Any) -> None:
    going_on.set()
    await respond(send, b"gone")


async def upload(scope: Any, receive: Any, send: Any) -> None:
    """The length of the body and its digest."""
    global received
    received, digest = 0, hashlib.sha256()
    more_body = True
    while more_body:
        message = await receive()
        received += len(message["body"])
        digest.update(message["body"])
        more_body = message["more_body"]
    await respond(send, f"{received} {digest.hexdigest()}".encode())


async def tell(scope: Any, receive: Any, send: Any) -> None:
    """How much of an upload has come."""
    await respond(send, b"%d" % received)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Say what is heard, and first who and by which scheme."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": f"{scope['scheme']} {scope['client'][0]}"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})
