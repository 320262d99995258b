"""The application that clients ask: bodies of any size, digests of uploads, its process, and a page with objects."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

PIECE = 65536
OBJECTS = 20


async def app(scope: Any, receive: Any, send: Any) -> None:
    """For `--lifespan off`."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message.get("text")})
        return
    _, kind, *rest = scope["path"].split("/")
    size, body, content_type = int(rest[0]) if rest else 0, b"", b"application/octet-stream"
    if scope["method"] == "POST":
        digest, more = hashlib.sha256(), True
        while more:
            message = await receive()
            digest.update(message.get("body", b""))
            more = message.get("more_body", False)
        body = digest.hexdigest().encode()
    elif kind == "pid":
        body = str(os.getpid()).encode()
        Path(os.environ["PID_FILE"]).write_bytes(body)
    elif kind == "slow":
        await asyncio.sleep(size / 1000)
        body = str(os.getpid()).encode()
    elif kind == "page":
        content_type = b"text/html"
        objects = "".join(f'<img src="/bytes/{size}?{number}">' for number in range(OBJECTS))
        body = f"<!doctype html><title>page</title>{objects}".encode().ljust(size)
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % (size if kind == "bytes" else len(body)))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if kind == "bytes":
        while size > 0:
            await send({"type": "http.response.body", "body": bytes(min(size, PIECE)), "more_body": size > PIECE})
            size -= PIECE
    else:
        await send({"type": "http.response.body", "body": body})
