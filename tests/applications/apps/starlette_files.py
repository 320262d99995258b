"""Starlette: files of the working directory, through the middleware that is in their way, and early hints."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

kinds: list[str] = []


class Recorder:
    """Notes the types of all messages of files."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def recorded(message: Message) -> None:
            if scope["path"] != "/kinds":
                kinds.append(message["type"])
            await send(message)

        await self.app(scope, receive, recorded if scope["type"] == "http" else send)


class Passing(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)


async def relative(request: Request) -> Response:
    return FileResponse("file")


async def hinted(request: Request) -> Response:
    await request.send_early_hints("</style.css>; rel=preload")
    return PlainTextResponse("hinted")


async def kinds_so_far(request: Request) -> Response:
    seen = list(kinds)
    kinds.clear()
    return JSONResponse(seen)


app = Starlette(
    routes=[
        Route("/kinds", kinds_so_far),
        Route("/relative", relative),
        Route("/hinted", hinted),
        Mount("/static", StaticFiles(directory=".")),
        Mount("/behind", StaticFiles(directory="."), middleware=[Middleware(Passing), Middleware(GZipMiddleware)]),
    ],
    middleware=[Middleware(Recorder)],
)
