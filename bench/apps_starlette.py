"""Starlette applications, one that echoes WebSocket messages and one that sends files: what a framework adds.

Copied next to each server, like `apps.py`.
"""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket


async def hello(request: Request) -> PlainTextResponse:
    """Tells that the server is ready."""
    return PlainTextResponse("Hello, World!")


async def echo(websocket: WebSocket) -> None:
    """Sends every text back."""
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text)


static = Starlette(routes=[Mount("/static", StaticFiles(directory=Path(__file__).parent / "static", check_dir=False))])
application = Starlette(routes=[Route("/", hello), WebSocketRoute("/", echo)])
