"""The application that slow clients are let loose on: small answers, 4 MiB at once, and 4 MiB in pieces."""

from __future__ import annotations

from typing import Any

LARGE = b"x" * (4 * 1024 * 1024)
PIECE = 65536


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200})
    if scope["path"] == "/large":
        await send({"type": "http.response.body", "body": LARGE})
    elif scope["path"] == "/stream":
        for start in range(0, len(LARGE), PIECE):
            await send({"type": "http.response.body", "body": bytes(LARGE[start : start + PIECE]), "more_body": True})
        await send({"type": "http.response.body"})
    else:
        await send({"type": "http.response.body", "body": b"ok"})
