"""Starlette, driven by httpx and websockets."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import websockets
from websockets.sync.client import connect

from tests.applications.conftest import APPS, client_of, require_clean_log, serving
from tests.process import ServerProcess
from tests.utils import wait_for


def test_starlette_http(http: tuple[str, ...]) -> None:
    with serving("starlette_app", *http) as server, client_of(server) as client:
        assert client.get("/background/first").text == "later"
        wait_for(lambda: client.get("/state").json()["seen"])
        for _ in range(2):  # The state of one request is not that of the next.
            assert client.get("/state").json() == {"name": "from the lifespan", "seen": ["first"]}

        content = client.get("/download").content
        assert content == b"".join(bytes([number]) * 65536 for number in range(64))

        def pieces() -> Iterator[bytes]:
            for number in range(200):
                yield bytes([number]) * 10_000

        digest = hashlib.sha256(b"".join(pieces())).hexdigest()
        assert client.post("/upload", content=pieces()).text == digest
        assert client.post("/upload", content=b"".join(pieces())).text == digest

        assert client.get("/file").text == Path(APPS, "starlette_app.py").read_text()
        assert client.head("/file").content == b""
        assert client.get("/file", headers={"range": "bytes=3-8"}).text == "Starle"
        compressed = client.get("/compressed/text")
        assert (compressed.headers["content-encoding"], compressed.text) == ("gzip", "text " * 1000)
        assert client.put("/state").status_code == 405


def test_starlette_websocket(http_and_ws: tuple[str, ...]) -> None:
    with serving("starlette_app", *http_and_ws) as server:
        url = f"ws://127.0.0.1:{server.port}"
        with connect(f"{url}/echo", subprotocols=[websockets.Subprotocol("chat")], proxy=None) as websocket:
            assert websocket.subprotocol == "chat"
            for message in ("text", "é" * 40_000, b"bytes", bytes(range(256)) * 1000, "", b""):
                websocket.send(message)
                assert websocket.recv(30) == message
            websocket.send(["in ", "three ", "fragments"])
            assert websocket.recv(30) == "in three fragments"
            assert websocket.ping().wait(30)
        assert websocket.close_code == 1000

        with pytest.raises(websockets.InvalidStatus) as refused:
            connect(f"{url}/refuse", proxy=None)
        assert (refused.value.response.status_code, refused.value.response.body) == (401, b"not you")


@pytest.mark.anyio
async def test_many_clients_at_once(http_and_ws: tuple[str, ...]) -> None:
    """Asynchronous httpx and websockets: a hundred of each share one server."""
    with serving("starlette_app", *http_and_ws) as server:

        async def talk(number: int) -> None:
            url = f"ws://127.0.0.1:{server.port}/echo"
            async with websockets.connect(url, proxy=None, open_timeout=60) as websocket:
                for message in ("hello", str(number)):
                    await websocket.send(message)
                    assert await websocket.recv() == message

        async def upload(client: httpx.AsyncClient, number: int) -> None:
            content = bytes([number]) * 50_000
            response = await client.post("/upload", content=content)
            assert response.text == hashlib.sha256(content).hexdigest()

        base_url = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=base_url, timeout=60, trust_env=False) as client:
            await asyncio.gather(*(talk(n) for n in range(100)), *(upload(client, n) for n in range(100)))


def test_requests_are_answered_by_workers() -> None:
    """The same application by two worker processes: each has its own lifespan."""
    with ServerProcess("starlette_app:app", "--app-dir", APPS, "--port", "0", "--workers", "2") as server:
        server.wait_for("Application startup complete.", count=2)
        for _ in range(20):
            with client_of(server) as client:
                assert client.get("/state").json() == {"name": "from the lifespan", "seen": []}
        assert server.stop() == 0
        require_clean_log(server)
        assert server.error_output.count("Application shutdown complete.") == 2
