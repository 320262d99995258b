"""Questions about the server itself, answered below one path without the application: is it alive, is it ready.

It wraps the application only where that path is set, so it costs nothing otherwise. The server (`uvicorn.server`)
reports its state for its event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import TypedDict

from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope


class Report(TypedDict):
    """How a server is. `stage` names one of `uvicorn.serving.drain.Stage` in small letters; `uptime` is in seconds."""

    pid: int
    stage: str
    ready: bool
    uptime: float
    connections: int
    tasks: int
    requests: int


Reporters = Mapping[asyncio.AbstractEventLoop, Callable[[], Report]]
"""Functions that report the state of an event loop's server."""


def questions(below: str) -> dict[str, str]:
    """Map paths below this one, which begins and ends with a slash, to their questions."""
    return {below + name: name for name in ("live", "ready", "status")}


class LifecycleMiddleware:
    """Answers `live`, `ready` and `status` below `path`; all other paths are the application's.

    Args:
        app: answers everything else.
        path: as `scope["path"]` has it, begins and ends with a slash.
        reporters: looked at for each question.
    """

    def __init__(self, app: ASGI3Application, path: str, reporters: Reporters) -> None:
        self.app = app
        self._paths = questions(path)
        self._reporters = reporters

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer, or call the application."""
        if scope["type"] == "http" and (name := self._paths.get(scope["path"])) is not None:
            await self._answer(name, scope, send)
        else:
            await self.app(scope, receive, send)

    async def _answer(self, name: str, scope: HTTPScope, send: ASGISendCallable) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await _respond(send, 405, "text/plain; charset=utf-8", b"Method Not Allowed", (b"allow", b"GET, HEAD"))
            return
        report = self._reporters.get(asyncio.get_running_loop(), _unknown)()
        status = 503 if name == "ready" and not report["ready"] else 200
        if name == "status":
            await _respond(send, status, "application/json", json.dumps(report).encode())
        else:
            body = b"live" if name == "live" else report["stage"].encode()
            await _respond(send, status, "text/plain; charset=utf-8", body)


def _unknown() -> Report:
    """The report of a protocol without a server."""
    return Report(pid=0, stage="unknown", ready=False, uptime=0.0, connections=0, tasks=0, requests=0)


async def _respond(send: ASGISendCallable, status: int, kind: str, body: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
