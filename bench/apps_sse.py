"""Streams of tokens as frameworks send them: FastAPI's StreamingResponse, and sse-starlette's EventSourceResponse.

Copied next to each server, like `apps.py`, whose clock they share.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import bench_apps as apps  # type: ignore[import-not-found]  # beside each server
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, StreamingResponse
from sse_starlette import EventSourceResponse


async def _texts() -> AsyncIterator[bytes]:
    async for _ in apps.ticks():
        yield apps.TOKEN


async def _events() -> AsyncIterator[dict[str, str]]:
    async for _ in apps.ticks():
        yield {"data": "t" * 12}


fastapi = FastAPI(openapi_url=None)
sse = FastAPI(openapi_url=None)


@fastapi.get("/", response_class=PlainTextResponse)
@sse.get("/", response_class=PlainTextResponse)
async def hello() -> str:
    """Tells that the server is ready."""
    return "Hello, World!"


@fastapi.get(apps.STREAM_PATH)
async def stream() -> StreamingResponse:
    """As most services write it."""
    return StreamingResponse(_texts(), media_type="text/event-stream")


@sse.get(apps.STREAM_PATH)
async def events() -> EventSourceResponse:
    """With the package that most of them use."""
    return EventSourceResponse(_events())
