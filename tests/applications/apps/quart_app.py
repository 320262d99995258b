"""Quart: requests, streaming both ways, WebSocket, start and end of serving."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from quart import Quart, request, websocket

app = Quart(__name__)
events: list[str] = []


@app.before_serving
async def start() -> None:
    events.append("serving")


@app.get("/greet/<name>")
async def greet(name: str) -> dict[str, Any]:
    return {"name": name, "q": request.args.get("q"), "events": events}


@app.post("/json")
async def double() -> dict[str, Any]:
    return {"doubled": (await request.get_json())["number"] * 2}


@app.post("/upload")
async def upload() -> str:
    size = 0
    async for chunk in request.body:
        size += len(chunk)
    return str(size)


@app.get("/stream")
async def stream() -> Any:
    async def numbers() -> AsyncIterator[bytes]:
        for number in range(1000):
            yield b"%d\n" % number

    return numbers(), 200, {"content-type": "text/plain"}


@app.websocket("/ws")
async def echo() -> None:
    while True:
        message = await websocket.receive()
        await websocket.send(f"echo {message!s}")
