"""FastAPI, driven by httpx and websockets."""

from __future__ import annotations

import json

import pytest
from websockets.sync.client import connect

from tests.applications.conftest import client_of, serving, version_of
from tests.utils import wait_for


def test_fastapi(http_and_ws: tuple[str, ...]) -> None:
    with serving("fastapi_app", *http_and_ws) as server, client_of(server) as client:
        assert client.get("/items/3?q=a%20b").json() == {"id": 3, "q": "a b"}
        assert client.get("/items/404").status_code == 404
        assert client.get("/items/three").status_code == 422
        created = client.post("/items", json={"name": "lamp"})
        assert (created.status_code, created.json()) == (201, {"name": "lamp", "price": 1.0})
        assert client.post("/sync", json={"name": "in a thread"}).json() == "in a thread"
        # A task in the background runs behind the response, so the next request may come before its end.
        wait_for(lambda: client.get("/log").json() == ["created lamp"])
        assert client.post("/upload", content=b"x" * 3_000_000).json() == 3_000_000
        assert client.get("/stream").text.split() == [str(number) for number in range(1000)]
        assert client.get("/openapi.json").json()["paths"].keys() >= {"/items", "/log"}
        assert client.get("/docs").status_code == 200
        assert client.get("/nowhere").status_code == 404

        with connect(f"ws://127.0.0.1:{server.port}/ws/blue", proxy=None) as websocket:
            websocket.send('{"a": 1}')
            assert json.loads(websocket.recv(30)) == {"room": "blue", "got": {"a": 1}}
        wait_for(lambda: client.get("/log").json() == ["created lamp", "left with 1000"])


def test_access_log_of_requests(http_and_ws: tuple[str, ...]) -> None:
    with serving("fastapi_app", *http_and_ws) as server:
        with client_of(server) as client:
            client.get("/items/3?q=a%20b")
            client.post("/items", json={})
        server.wait_for(f'"GET /items/3?q=a%20b {version_of(server)}" 200 OK')
        server.wait_for(f'"POST /items {version_of(server)}" 422 ')


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_either_event_loop(loop: str) -> None:
    with serving("fastapi_app", "--loop", loop) as server, client_of(server) as client:
        assert client.get("/items/3").json() == {"id": 3, "q": ""}
        assert client.post("/sync", json={"name": "in a thread"}).json() == "in a thread"
