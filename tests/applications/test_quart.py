"""Quart, driven by httpx and websockets."""

from __future__ import annotations

from websockets.sync.client import connect

from tests.applications.conftest import client_of, serving


def test_quart(http_and_ws: tuple[str, ...]) -> None:
    with serving("quart_app", *http_and_ws) as server, client_of(server) as client:
        assert client.get("/greet/%C3%A9?q=a%20b").json() == {"name": "é", "q": "a b", "events": ["serving"]}
        assert client.post("/json", json={"number": 21}).json() == {"doubled": 42}
        assert client.post("/upload", content=b"x" * 3_000_000).text == "3000000"
        assert client.get("/stream").text.split() == [str(number) for number in range(1000)]
        assert client.get("/nowhere").status_code == 404

        with connect(f"ws://127.0.0.1:{server.port}/ws", proxy=None) as websocket:
            websocket.send("é")
            assert websocket.recv(30) == "echo é"
