"""Starlette applications: an API, an echo of WebSocket messages, files. What a framework adds.

Copied next to each server, like `apps.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench_apps import API_WAIT, api_document  # type: ignore[import-not-found]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket


async def hello(request: Request) -> PlainTextResponse:
    """Tells that the server is ready."""
    return PlainTextResponse("Hello, World!")


async def items(request: Request) -> JSONResponse:
    """What an API does: read the query, wait for a database, answer with 2 KB."""
    await asyncio.sleep(API_WAIT)
    return JSONResponse(api_document(request.path_params["number"], int(request.query_params["page"])))


async def echo(websocket: WebSocket) -> None:
    """Sends every text back."""
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text)


static = Starlette(routes=[Mount("/static", StaticFiles(directory=Path(__file__).parent / "static", check_dir=False))])
api = Starlette(routes=[Route("/items/{number:int}/{name}", items)])
application = Starlette(routes=[Route("/", hello), WebSocketRoute("/", echo)])
