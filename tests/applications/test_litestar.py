"""Litestar, driven by httpx and websockets."""

from __future__ import annotations

import json

from websockets.sync.client import connect

from tests.applications.conftest import client_of, serving


def test_litestar(http_and_ws: tuple[str, ...]) -> None:
    with serving("litestar_app", *http_and_ws) as server, client_of(server) as client:
        assert client.get("/items/3?q=a%20b").json() == {"id": 3, "q": "a b"}
        assert client.post("/items", json={"name": "lamp", "price": 2}).json() == {"name": "lamp", "price": 2.0}
        assert client.post("/items", json={"price": 1}).status_code == 400
        assert client.get("/state").text == "from the lifespan"
        assert client.get("/stream").text.split() == [str(number) for number in range(1000)]
        assert client.get("/nowhere").status_code == 404

        with connect(f"ws://127.0.0.1:{server.port}/ws", proxy=None) as websocket:
            websocket.send('{"number": 21}')
            assert json.loads(websocket.recv(30)) == {"doubled": 42}
