"""The applications under load, called without a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bench import apps
from bench.scenario import TABLE
from tests.benchmarks.test_app import app


async def _ask(path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    fields = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {"type": "http", "method": "POST" if body else "GET", "path": path, "query_string": b"", "headers": fields}
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.anyio
@pytest.mark.parametrize("workload", [pytest.param(one, id=one.name) for one in TABLE if ":" not in one.app])
async def test_each_workload_answers_what_its_row_promises(workload: Any) -> None:
    body = b"" if workload.app == "websocket" else workload.body
    status, answer = await _ask(f"/{workload.name}", body, workload.headers)
    assert status == 200
    assert len(answer) == workload.response_bytes


@pytest.mark.anyio
async def test_an_unknown_path_is_not_found_and_the_root_says_hello() -> None:
    assert await _ask("/nothing") == (404, b"")
    assert await _ask("/") == (200, apps.HELLO)
