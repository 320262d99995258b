"""Run one case against whichever `uvicorn` the running Python has, and print what was seen as JSON.

python upstream_probe.py (reset | upgrade) (httptools | h11)
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import struct
import sys
from typing import Any

import uvicorn

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def reset(address: Any) -> int:
    """Protocol objects that are alive after a hundred connections were reset, with a long keep-alive timeout."""
    for _ in range(100):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    await asyncio.sleep(0.3)
    gc.collect()
    return sum(type(thing).__name__ in ("HttpToolsProtocol", "H11Protocol") for thing in gc.get_objects())


async def upgrade(address: Any) -> dict[str, list[str]]:
    """Bodies the application saw: of a request with an upgrade nobody wants, and of the one pipelined behind it."""
    head = (
        b"POST / HTTP/1.1\r\nhost: a\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n"
    )
    following = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nnext"
    seen: dict[str, list[str]] = {}
    for framing, rest in (
        ("length", b"content-length: 5\r\n\r\nhello"),
        ("chunked", b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(head + rest + following)
        seen[framing] = []
        for _ in range(2):
            try:
                answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 3)
            except (asyncio.IncompleteReadError, asyncio.TimeoutError, ConnectionError):
                break
            length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            seen[framing].append((await reader.readexactly(length)).decode())
        writer.close()
    return seen


async def main(case: str, implementation: str) -> None:
    config = uvicorn.Config(
        echo, http=implementation, ws="none", lifespan="off", port=0, log_level="critical", timeout_keep_alive=600
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    address = server.servers[0].sockets[0].getsockname()
    print(json.dumps(await {"reset": reset, "upgrade": upgrade}[case](address)))
    server.should_exit = True
    await serving


asyncio.run(main(*sys.argv[1:3]))
