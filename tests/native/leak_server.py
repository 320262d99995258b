"""The server of `test_leaks.py`: `python -m tests.native.leak_server LOOP HTTP` serves `app`, which says what it holds.

    /figures   what this process holds, as JSON, after a garbage collection
    /stream    pieces without an end, until the client is gone
    /          the length of the request body

A WebSocket is accepted and read until it ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import sys
from collections import Counter
from typing import Any

import uvicorn

#: Types whose instances exist for a connection, a request or a call, by the end of their name.
COUNTED = (
    *("HTTPProtocol", "NativeProtocol", "HttpToolsProtocol", "H11Protocol", "RequestResponseCycle"),
    *("Call", "Task", "Future", "Context", "Handle", "TimerHandle", "socket", "coroutine", "Event"),
    *("TCPTransport", "_SelectorSocketTransport", "WebSocketsSansIOProtocol", "ServerProtocol", "Queue"),
)


class Mallinfo2(ctypes.Structure):
    """What glibc says about its heap; see mallinfo2(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    ]


def heap_in_use() -> int:
    """Bytes that malloc has given out, which is where Rust's objects are; 0 where that is not known."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (AttributeError, TypeError, OSError):
        return 0
    mallinfo2.restype = Mallinfo2
    found = mallinfo2()
    return int(found.uordblks + found.hblkhd)


def resident(process: int | str = "self") -> int:
    """Bytes of memory a process occupies; 0 where that is not known."""
    try:
        with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))
    except OSError:
        return 0


def figures() -> dict[str, Any]:
    """What this process holds now."""
    for _ in range(3):
        gc.collect()
    counts = Counter(type(thing).__name__ for thing in gc.get_objects())
    state = server.server_state
    return {
        "objects": {name: counts[name] for name in COUNTED},
        "connections": len(state.connections),
        "tasks": len(state.tasks),
        "pool": state.protocol_settings.stats()["buffers"] if hasattr(state.protocol_settings, "stats") else {},
        "blocks": sys.getallocatedblocks(),
        "heap": heap_in_use(),
        "resident": resident(),
    }


async def respond(send: Any, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def stream(receive: Any, send: Any) -> None:
    """Send until the client is gone."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    watcher = asyncio.ensure_future(gone())
    await send({"type": "http.response.start", "status": 200})
    while not watcher.done():
        await send({"type": "http.response.body", "body": b"x" * 16384, "more_body": True})
        await asyncio.sleep(0)


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (event := await receive())["type"] != "websocket.disconnect":
            await send({**event, "type": "websocket.send"})
    elif scope["path"] == "/stream":
        await stream(receive, send)
    elif scope["path"] == "/figures":
        await respond(send, json.dumps(figures()).encode())
    else:
        length = 0
        while True:
            message = await receive()
            length += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message["more_body"]:
                break
        await respond(send, b"%d" % length)


if __name__ == "__main__":
    loop, http = sys.argv[1:]
    settings: dict[str, Any] = {"port": 0, "lifespan": "off", "access_log": False, "backlog": 4096, "http2": True}
    config = uvicorn.Config(app, loop=loop, http=http, **settings)
    server = uvicorn.Server(config)
    server.run()
