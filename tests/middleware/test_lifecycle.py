"""Questions about the server itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from uvicorn.middleware.lifecycle import LifecycleMiddleware, Report

pytestmark = pytest.mark.anyio

SERVING = Report(pid=7, stage="serving", ready=True, uptime=1.5, connections=2, tasks=1, requests=9)
LEAVING = Report(pid=7, stage="leaving", ready=False, uptime=1.5, connections=2, tasks=1, requests=9)


async def inner(scope: Any, receive: Any, send: Any) -> None:
    await send("the application")


async def ask(path: str, report: Report | None, method: str = "GET", kind: str = "http") -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    reporters = {} if report is None else {asyncio.get_running_loop(): lambda: report}
    middleware = LifecycleMiddleware(inner, "/-/", reporters)
    await middleware({"type": kind, "path": path, "method": method}, None, send)  # type: ignore[arg-type, misc]
    return sent


@pytest.mark.parametrize(
    ("name", "report", "status", "body"),
    [
        ("live", SERVING, 200, b"live"),
        ("live", LEAVING, 200, b"live"),
        ("ready", SERVING, 200, b"serving"),
        ("ready", LEAVING, 503, b"leaving"),
        ("ready", None, 503, b"unknown"),
        ("status", SERVING, 200, json.dumps(SERVING).encode()),
        ("status", LEAVING, 200, json.dumps(LEAVING).encode()),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_server_answers(name: str, report: Report | None, status: int, body: bytes, method: str) -> None:
    """X7"""
    start, content = await ask(f"/-/{name}", report, method)
    assert start["status"] == status
    assert content["body"] == body
    headers = dict(start["headers"])
    assert headers[b"content-length"] == b"%d" % len(body)
    assert headers[b"cache-control"] == b"no-store"


async def test_other_methods_are_not_allowed() -> None:
    """X7"""
    start, _ = await ask("/-/live", SERVING, "POST")
    assert start["status"] == 405
    assert (b"allow", b"GET, HEAD") in start["headers"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/-/", "http"), ("/-/other", "http"), ("/live", "http"), ("/-/live/", "http"), ("/-/live", "websocket")],
)
async def test_anything_else_is_the_applications(path: str, kind: str) -> None:
    """X7"""
    assert await ask(path, SERVING, kind=kind) == ["the application"]
