"""sse-starlette: an event stream that ends, and one that only ends with the client or the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

streams: list[str] = []


async def three(request: Request) -> Response:
    async def events() -> AsyncIterator[dict[str, Any]]:
        for number in range(3):
            yield {"id": str(number), "event": "count", "data": f"number {number}"}

    return EventSourceResponse(events())


async def farewell(request: Request) -> Response:
    shutdown = anyio.Event()

    async def events() -> AsyncIterator[dict[str, Any]]:
        yield {"data": "hello"}
        await shutdown.wait()
        yield {"data": "farewell"}

    return EventSourceResponse(events(), shutdown_event=shutdown, shutdown_grace_period=10)


async def endless(request: Request) -> Response:
    async def events() -> AsyncIterator[dict[str, Any]]:
        streams.append("opened")
        try:
            number = 0
            while True:
                yield {"data": str(number)}
                number += 1
                await asyncio.sleep(0.01)
        finally:
            streams.append("closed")

    return EventSourceResponse(events())


async def read_streams(request: Request) -> Response:
    return JSONResponse(streams)


app = Starlette(
    routes=[
        Route("/three", three),
        Route("/farewell", farewell),
        Route("/endless", endless),
        Route("/streams", read_streams),
    ]
)
