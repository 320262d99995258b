"""FastAPI: validation, dependencies, background tasks, streaming, forms, WebSocket, state from the lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from pydantic import BaseModel


class Item(BaseModel):
    name: str
    price: float = 1.0


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    yield {"log": []}


app = FastAPI(lifespan=lifespan)


async def log_of(request: Request) -> list[str]:
    log = request.state.log
    assert isinstance(log, list)
    return log


Log = Annotated[list[str], Depends(log_of)]


@app.get("/items/{item_id}")
async def read_item(item_id: int, q: str = "") -> dict[str, Any]:
    if item_id == 404:
        raise HTTPException(404, "no such item")
    return {"id": item_id, "q": q}


@app.post("/items", status_code=201)
async def create_item(item: Item, tasks: BackgroundTasks, log: Log) -> Item:
    tasks.add_task(log.append, f"created {item.name}")
    return item


@app.post("/sync")
def in_a_thread(item: Item) -> str:
    return item.name


@app.get("/log")
async def read_log(log: Log) -> list[str]:
    return log


@app.post("/upload")
async def upload(request: Request) -> int:
    return len(await request.body())


@app.get("/stream")
async def stream() -> StreamingResponse:
    async def numbers() -> AsyncIterator[str]:
        for number in range(1000):
            yield f"{number}\n"

    return StreamingResponse(numbers(), media_type="text/plain")


@app.websocket("/ws/{room}")
async def chat(websocket: WebSocket, room: str) -> None:
    await websocket.accept()
    try:
        while True:
            await websocket.send_json({"room": room, "got": await websocket.receive_json()})
    except WebSocketDisconnect as disconnect:
        websocket.state.log.append(f"left with {disconnect.code}")
