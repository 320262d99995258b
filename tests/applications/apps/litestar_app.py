"""Litestar: typed handlers, dependencies, streaming, WebSocket listener, state from the lifespan."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from litestar import Litestar, get, post, websocket_listener
from litestar.datastructures import State
from litestar.response import Stream


@dataclass
class Item:
    name: str
    price: float = 1.0


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncGenerator[None, None]:
    app.state.name = "from the lifespan"
    yield


@get("/items/{item_id:int}")
async def read_item(item_id: int, q: str | None = None) -> dict[str, Any]:
    return {"id": item_id, "q": q}


@post("/items")
async def create_item(data: Item) -> Item:
    return data


@get("/state")
async def read_state(state: State) -> str:
    return str(state.name)


@get("/stream")
async def stream() -> Stream:
    async def numbers() -> AsyncIterator[str]:
        for number in range(1000):
            yield f"{number}\n"

    return Stream(numbers(), media_type="text/plain")


@websocket_listener("/ws")
async def double(data: dict[str, int]) -> dict[str, int]:
    return {"doubled": data["number"] * 2}


app = Litestar([read_item, create_item, read_state, stream, double], lifespan=[lifespan], openapi_config=None)
