"""Answer each request with a greeting. Serve it with ``make serve`` or ``uvicorn examples.hello:app``."""

from __future__ import annotations

from typing import Any


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": f"Hello from {scope['path']}\n".encode()})
