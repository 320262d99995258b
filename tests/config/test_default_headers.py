"""The headers every response starts with, from the configuration to the wire."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from tests import machines
from tests.utils import run_server, server_port
from uvicorn.config import Config

pytestmark = pytest.mark.anyio

http_protocol_cls = machines.each


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"1"), (b"server", b"mine")]})
    await send({"type": "http.response.body", "body": b""})


async def plain_app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def headers_of(application: Any, **settings: Any) -> list[tuple[str, str]]:
    config = Config(application, port=0, lifespan="off", log_config=None, **settings)
    async with run_server(config) as server, httpx.AsyncClient(trust_env=False) as client:
        response = await client.get(f"http://127.0.0.1:{server_port(server)}")
        return response.headers.multi_items()


async def test_date_and_server_come_first(http_protocol_cls: Any) -> None:
    """RES-01, RES-02"""
    headers = await headers_of(plain_app, http=http_protocol_cls)
    assert [name for name, _ in headers] == ["date", "server", "content-length"]
    assert headers[1] == ("server", "uvicorn")
    assert re.fullmatch(r"[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT", headers[0][1])


async def test_headers_of_the_application_are_added_not_merged(http_protocol_cls: Any) -> None:
    """RES-05"""
    headers = await headers_of(app, http=http_protocol_cls)
    assert [value for name, value in headers if name == "server"] == ["uvicorn", "mine"]


async def test_server_header_can_be_left_out(http_protocol_cls: Any) -> None:
    """RES-03"""
    headers = await headers_of(plain_app, http=http_protocol_cls, server_header=False)
    assert [name for name, _ in headers] == ["date", "content-length"]


async def test_date_header_can_be_left_out(http_protocol_cls: Any) -> None:
    """RES-01"""
    headers = await headers_of(plain_app, http=http_protocol_cls, date_header=False)
    assert [name for name, _ in headers] == ["server", "content-length"]


@pytest.mark.parametrize("name", ["Server", "server"])
async def test_custom_server_header_replaces_the_default(http_protocol_cls: Any, name: str) -> None:
    """RES-03"""
    headers = await headers_of(plain_app, http=http_protocol_cls, headers=[(name, "over-ridden")])
    assert [value for key, value in headers if key == "server"] == ["over-ridden"]


async def test_custom_server_header_survives_without_the_default(http_protocol_cls: Any) -> None:
    """RES-03"""
    headers = await headers_of(
        plain_app, http=http_protocol_cls, headers=[("Server", "over-ridden")], server_header=False
    )
    assert [value for key, value in headers if key == "server"] == ["over-ridden"]


async def test_custom_headers_follow_the_defaults_and_may_repeat(http_protocol_cls: Any) -> None:
    """RES-01, RES-04"""
    headers = await headers_of(
        plain_app, http=http_protocol_cls, headers=[("X-Additional", "1"), ("X-Additional", "2")]
    )
    assert [name for name, _ in headers] == ["date", "server", "x-additional", "x-additional", "content-length"]
    assert [value for name, value in headers if name == "x-additional"] == ["1", "2"]


async def test_headers_are_prepared_when_the_server_starts() -> None:
    """LIFE-12"""
    config = Config(plain_app, port=0, lifespan="off", log_config=None, headers=[("X-A", "b")])
    async with run_server(config) as server:
        names = [name for name, _ in server.server_state.default_headers]
    assert names == [b"date", b"server", b"x-a"]
