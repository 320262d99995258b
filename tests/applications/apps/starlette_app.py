"""Starlette: streaming both ways, background tasks, WebSocket, state from the lifespan, middleware, mounted files."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
    yield {"seen": [], "name": "from the lifespan"}


async def state(request: Request) -> Response:
    name = request.state.name
    request.state.name = "of this request"
    return JSONResponse({"name": name, "seen": request.state.seen})


async def background(request: Request) -> Response:
    task = BackgroundTask(request.state.seen.append, request.path_params["what"])
    return PlainTextResponse("later", background=task)


async def download(request: Request) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(64):
            yield bytes([number]) * 65536

    return StreamingResponse(chunks(), media_type="application/octet-stream")


async def upload(request: Request) -> Response:
    digest = hashlib.sha256()
    async for chunk in request.stream():
        digest.update(chunk)
    return PlainTextResponse(digest.hexdigest())


async def this_file(request: Request) -> Response:
    return FileResponse(Path(__file__))


async def text(request: Request) -> Response:
    return PlainTextResponse("text " * 1000)


async def echo(websocket: WebSocket) -> None:
    await websocket.accept(subprotocol=(websocket.scope["subprotocols"] or [None])[0])
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                break
            if message.get("text") is not None:
                await websocket.send_text(message["text"])
            else:
                await websocket.send_bytes(message["bytes"])
    except WebSocketDisconnect:
        pass


async def refuse(websocket: WebSocket) -> None:
    await websocket.send_denial_response(PlainTextResponse("not you", status_code=401))


app = Starlette(
    routes=[
        Route("/state", state),
        Route("/background/{what}", background),
        Route("/upload", upload, methods=["POST"]),
        Route("/file", this_file),
        Mount("/compressed", routes=[Route("/text", text)], middleware=[Middleware(GZipMiddleware)]),
        Route("/download", download),
        WebSocketRoute("/echo", echo),
        WebSocketRoute("/refuse", refuse),
    ],
    lifespan=lifespan,
)
