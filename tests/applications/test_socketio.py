"""python-socketio, driven by its own client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import socketio

from tests.applications.conftest import serving

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("transports", [["polling"], ["websocket"], ["polling", "websocket"]], ids="-then-".join)
async def test_socketio(http_and_ws: tuple[str, ...], transports: list[str]) -> None:
    with serving("socketio_app", *http_and_ws, lifespan=True) as server:
        welcomed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        said: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        client = socketio.AsyncClient(reconnection=False)
        client.on("welcome", welcomed.set_result)
        client.on("said", said.set_result)

        await client.connect(f"http://127.0.0.1:{server.port}", auth={"name": "é"}, transports=transports)
        try:
            assert await asyncio.wait_for(welcomed, 30) == {"name": "é"}
            assert await client.call("add", [1, 2, 3]) == 6
            assert await client.call("mirror", b"\x00\x01\x02") == b"\x02\x01\x00"
            assert await client.call("join", "blue") == "joined"
            await client.emit("say", {"room": "blue", "text": "hello"})
            assert await asyncio.wait_for(said, 30) == "hello"
            assert client.transport() == transports[-1]
        finally:
            await client.disconnect()
