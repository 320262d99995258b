"""Starlette's files behind middleware that reads what it passes on, and what requests are offered."""

from __future__ import annotations

from brotli_asgi import BrotliMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette_compress import CompressMiddleware


class Reversing(BaseHTTPMiddleware):
    """Reads the whole body, as middleware that signs or caches responses does, and sends another."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        assert isinstance(response, StreamingResponse) or hasattr(response, "body_iterator")
        body = b"".join([piece async for piece in response.body_iterator])
        return Response(body[::-1], response.status_code)


async def file(request: Request) -> Response:
    return FileResponse("file.txt")


async def offered(request: Request) -> Response:
    return JSONResponse([*request.scope.get("extensions", ["nothing"])])


def behind(name: str, *middleware: Middleware) -> Mount:
    routes = [Route("/response", file), Mount("/static", StaticFiles(directory="."))]
    return Mount(f"/{name}", routes=routes, middleware=middleware)


app = Starlette(
    routes=[
        Route("/offered", offered),
        behind("nothing"),
        behind("gzip", Middleware(GZipMiddleware)),
        behind("brotli", Middleware(BrotliMiddleware)),
        behind("compress", Middleware(CompressMiddleware)),
        behind("reversing", Middleware(Reversing)),
    ]
)
