"""The applications the scripts put under load, on one address: each workload at a path of its name.

Serve them with `python -m uvicorn tests.benchmarks.test_app:app`, and load them with `--no-server` or `--url`.
"""

from __future__ import annotations

from typing import Any

import pytest

from bench import apps
from bench.scenario import TABLE

ROUTES = {f"/{workload.name}": getattr(apps, workload.app) for workload in TABLE if ":" not in workload.app}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """The workload the path names; `/` is hello, anything else 404."""
    application = ROUTES.get(scope["path"]) if scope["type"] != "lifespan" else apps.hello
    if application is None and scope["path"] == "/":
        application = apps.hello
    if application is not None:
        await application(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


async def _ask(path: str, body: bytes = b"") -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST" if body else "GET", "path": path}, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.anyio
@pytest.mark.parametrize("workload", [pytest.param(one, id=one.name) for one in TABLE if ":" not in one.app])
async def test_each_workload_answers_what_its_row_promises(workload: Any) -> None:
    body = b"" if workload.app == "websocket" else workload.body
    status, answer = await _ask(f"/{workload.name}", body)
    assert status == 200
    assert len(answer) == workload.response_bytes


@pytest.mark.anyio
async def test_an_unknown_path_is_not_found_and_the_root_says_hello() -> None:
    assert await _ask("/nothing") == (404, b"")
    assert await _ask("/") == (200, apps.HELLO)
