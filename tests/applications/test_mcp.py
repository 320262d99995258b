"""The MCP SDK's server over streamable HTTP, driven by its own client."""

from __future__ import annotations

from typing import Any

import pytest

from tests.applications.conftest import serving

pytestmark = pytest.mark.anyio


async def test_mcp(http: tuple[str, ...]) -> None:
    """``legacy`` keeps a session with a stream of its own open, ``auto`` makes each request by itself."""
    with serving("mcp_app", *http) as server:
        for mode in ("legacy", "auto"):
            await use(f"http://127.0.0.1:{server.port}/mcp", mode)


async def use(url: str, mode: Any) -> None:
    """Everything a client can do with the server."""
    # Takes a second of every process that collects tests, unless it is done here.
    from mcp import Client
    from mcp_types import TextContent, TextResourceContents

    async with Client(url, mode=mode, read_timeout_seconds=30) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"add", "count"}

        added = await client.call_tool("add", {"a": 1, "b": 2})
        assert isinstance(added.content[0], TextContent) and added.content[0].text == "3"

        reported: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            reported.append(progress)

        counted = await client.call_tool("count", {"upto": 5}, progress_callback=on_progress)
        assert isinstance(counted.content[0], TextContent) and counted.content[0].text == "counted to 5"
        assert reported == [1, 2, 3, 4, 5]

        greeting = (await client.read_resource("greeting://world")).contents[0]
        assert isinstance(greeting, TextResourceContents) and greeting.text == "Hello, world"
