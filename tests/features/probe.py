"""The application that is served. It runs in the interpreter of each server, so it imports nothing but the library."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
numbers = itertools.count(1)
turn = asyncio.Lock()


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer by path; anything unknown with 404."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["type"] != "http":
        return
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if path == "/scope":
        await respond(send, 200, json.dumps(readable(scope)).encode())
    elif path == "/pid":
        await respond(send, 200, b"%d" % os.getpid())
    elif path == "/work":
        # One at a time, so that more requests at once take longer and get no more done.
        async with turn:
            await asyncio.sleep(0.01)
        await respond(send, 200, b"done")
    elif path == "/block":
        time.sleep(1)
        await respond(send, 200, b"done")
    elif path == "/file":
        await hand_over(scope, send)
    elif path.startswith("/hold/"):
        await hold()
        await respond(send, 200, b"held")
    else:
        await respond(send, 404, b"the application does not know this path")


async def respond(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    fields = [(b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


def readable(value: Any) -> Any:
    """What JSON can say of a scope."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {str(key): readable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [readable(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else repr(value)


async def hold() -> None:
    """Wait until the file `go` is there, and show meanwhile that a request is being worked on: a file in `held`."""
    mark = HERE / "held" / f"{os.getpid()}-{next(numbers)}"
    mark.touch()
    try:
        while not (HERE / "go").exists():
            await asyncio.sleep(0.01)
    finally:
        mark.unlink()


async def hand_over(scope: Any, send: Any) -> None:
    """Have the server send a file, by the means that there are."""
    path = HERE / "files" / "a.txt"
    length = (b"content-length", b"%d" % path.stat().st_size)
    if "http.response.pathsend" in scope.get("extensions", {}):
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.pathsend", "path": str(path)})
    elif (b"x-takes-files", b"yes") in scope["headers"]:
        await respond(send, 200, b"", (b"x-accel-redirect", b"/internal/a.txt"))
    else:
        await respond(send, 501, b"")
