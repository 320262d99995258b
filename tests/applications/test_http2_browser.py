"""A browser speaks HTTP/2 with the server: a page, an upload, and a WebSocket on the same connection (RFC 8441)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests import browser
from tests.utils import run_server, server_port, wait_until
from uvicorn.config import Config

pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)

pytestmark = pytest.mark.anyio

UPLOAD = 3_000_000

PAGE = """<!doctype html><link rel="icon" href="data:,"><script type="module">
const found = {};
found.upload = (await (await fetch("/upload", {method: "POST", body: new Uint8Array(%d).fill(7)})).text());
found.versions = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .map(entry => entry.nextHopProtocol);
const messages = ["größe", new Uint8Array(256).map((_, index) => index), "x".repeat(2 ** 20)];
const socket = new WebSocket("wss://" + location.host + "/socket");
socket.binaryType = "arraybuffer";
found.echoed = [];
socket.onopen = () => {
    found.extensions = socket.extensions;
    socket.send(messages[0]);
};
socket.onmessage = event => {
    const sent = messages[found.echoed.length];
    const bytes = data => new Uint8Array(data).join();
    found.echoed.push(typeof sent === "string" ? sent === event.data : bytes(sent) === bytes(event.data));
    const next = messages[found.echoed.length];
    if (next === undefined) socket.close(3001, "done"); else socket.send(next);
};
socket.onclose = event => {
    found.closed = [event.code, event.reason, event.wasClean];
    fetch("/report", {method: "POST", body: JSON.stringify(found)});
};
</script>"""


class Site:
    """The application, and what it has seen."""

    def __init__(self) -> None:
        self.versions: set[tuple[str, str]] = set()
        self.clients: set[tuple[str, int]] = set()
        self.ends: list[Any] = []
        self.reports: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.versions.add((scope["type"], scope["http_version"]))
        if scope["type"] == "websocket":
            self.clients.add(tuple(scope["client"]))
            await self.echo(receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        answer = PAGE % UPLOAD
        if scope["path"] == "/upload":
            self.clients.add(tuple(scope["client"]))
            answer = str(body == b"\x07" * UPLOAD)
        if scope["path"] == "/report":
            self.reports.append(json.loads(body))
        headers = [(b"content-type", b"text/html; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer.encode()})

    async def echo(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (event := await receive())["type"] == "websocket.receive":
            await send({**event, "type": "websocket.send"})
        self.ends.append(event)


@browser.is_needed
async def test_chromium(tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(pem))
    site = Site()
    tls = {"ssl_certfile": str(pem), "ssl_keyfile": str(pem)}
    config = Config(site, ws="native", http2=True, port=0, lifespan="off", log_config=None, interface="asgi3", **tls)
    async with run_server(config) as server:
        url = f"https://localhost:{server_port(server)}/"
        async with browser.browsing(url, tmp_path, "--ignore-certificate-errors"):
            await wait_until(lambda: site.reports, timeout=60)
    (report,) = site.reports
    assert report.pop("extensions").startswith("permessage-deflate")
    assert report == {
        "upload": "True",
        "versions": ["h2", "h2"],
        "echoed": [True] * 3,
        "closed": [3001, "done", True],
    }
    assert site.versions == {("http", "2"), ("websocket", "2")}
    # One connection has all of them.
    assert len(site.clients) == 1
    assert site.ends == [{"type": "websocket.disconnect", "code": 3001, "reason": "done"}]
