"""WebSocket as clients speak it that share no code with any of our implementations: picows, wsproto, a browser.

`websockets` is the client of `test_websocket.py`, python-socketio that of `tests/applications`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate

from tests import browser
from tests.protocols.websocket_tools import Application, accept
from tests.utils import run_server, server_port, wait_until
from uvicorn.config import Config

pytestmark = pytest.mark.anyio

LARGE = 2**20
MESSAGES: tuple[str | bytes, ...] = ("größe", bytes(range(256)), "x" * LARGE, b"\x07" * LARGE)


async def echo_until_told(receive: Any, send: Any) -> None:
    """Echoes; "close" is answered with a close frame."""
    await accept(receive, send)
    while (event := await receive())["type"] == "websocket.receive":
        if event.get("text") == "close":
            await send({"type": "websocket.close", "code": 4321, "reason": "because"})
            return
        await send({**event, "type": "websocket.send"})


@asynccontextmanager
async def serving(app: Any, ws: Any) -> AsyncIterator[int]:
    config = Config(app, ws=ws, port=0, lifespan="off", log_config=None, interface="asgi3")
    async with run_server(config) as server:
        yield server_port(server)


class WsprotoClient:
    """wsproto on asyncio's streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, deflate: bool) -> None:
        self.reader, self.writer = reader, writer
        self.wire = WSConnection(ConnectionType.CLIENT)
        self.events = self.wire.events()
        self.extensions = [PerMessageDeflate()] if deflate else []

    def send(self, event: Event) -> None:
        self.writer.write(self.wire.send(event))

    async def next(self) -> Event:
        while (event := next(self.events, None)) is None:
            data = await self.reader.read(65536)
            self.wire.receive_data(data or None)
            self.events = self.wire.events()
        return event

    async def message(self) -> str | bytes:
        parts: list[Any] = []
        while True:
            event = await self.next()
            assert isinstance(event, Message)
            parts.append(event.data)
            if event.message_finished:
                return parts[0][:0].join(parts)  # type: ignore[no-any-return]


@pytest.mark.parametrize("deflate", [False, True], ids=["plain", "deflate"])
@pytest.mark.parametrize("end", ["client", "server"])
async def test_wsproto(ws_reader_cls: Any, deflate: bool, end: str) -> None:
    app = Application(echo_until_told)
    async with serving(app, ws_reader_cls) as port:
        client = WsprotoClient(*await asyncio.open_connection("127.0.0.1", port), deflate)
        client.send(Request(host="127.0.0.1", target="/", extensions=list(client.extensions)))
        accepted = await client.next()
        assert isinstance(accepted, AcceptConnection)
        assert bool(accepted.extensions) is deflate
        for message in MESSAGES:
            kind = TextMessage if isinstance(message, str) else BytesMessage
            client.send(kind(data=message))  # type: ignore[arg-type]
            assert await client.message() == message
        if end == "client":
            client.send(CloseConnection(code=3001, reason="done"))
            assert await client.next() == CloseConnection(code=3001, reason="done")
            await wait_until(lambda: app.done)
            assert app.events[-1] == {"type": "websocket.disconnect", "code": 3001, "reason": "done"}
        else:
            client.send(TextMessage(data="close"))
            closed = await client.next()
            assert closed == CloseConnection(code=4321, reason="because")
            client.send(closed.response())
        assert await client.reader.read() == b""
        client.writer.close()
        await client.writer.wait_closed()


async def test_picows(ws_reader_cls: Any) -> None:
    picows = pytest.importorskip("picows")

    class Listener(picows.WSListener):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.found: asyncio.Queue[Any] = asyncio.Queue()

        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            if frame.msg_type == picows.WSMsgType.CLOSE:
                self.found.put_nowait((frame.get_close_code(), frame.get_close_message()))
                transport.disconnect()
            else:
                self.found.put_nowait(frame.get_payload_as_bytes())

    app = Application(echo_until_told)
    async with serving(app, ws_reader_cls) as port:
        url = f"ws://127.0.0.1:{port}/"
        transport, listener = await picows.ws_connect(Listener, url)
        for message in MESSAGES:
            kind, data = picows.WSMsgType.BINARY, message
            if isinstance(message, str):
                kind, data = picows.WSMsgType.TEXT, message.encode()
            transport.send(kind, data)
            assert await listener.found.get() == data
        transport.send(picows.WSMsgType.TEXT, b"close")
        code, reason = await listener.found.get()
        assert (int(code), bytes(reason)) == (4321, b"because")
        await transport.wait_disconnected()
        transport, listener = await picows.ws_connect(Listener, url)
        transport.send_close(picows.WSCloseCode(1001), b"done")
        await wait_until(lambda: app.events[-1]["type"] == "websocket.disconnect")
        assert app.events[-1] == {"type": "websocket.disconnect", "code": 1001, "reason": "done"}
        await transport.wait_disconnected()


PAGE = """<!doctype html><script>
const messages = ["größe", Uint8Array.from(Array(256).keys()), "x".repeat(2**20), new Uint8Array(2**20).fill(7)];
const same = (sent, got) => typeof sent === "string" ? sent === got
    : got instanceof ArrayBuffer && new Uint8Array(got).every((byte, at) => byte === sent[at])
      && got.byteLength === sent.length;
const found = {echoed: []};
const open = () => { const ws = new WebSocket(`ws://${location.host}/`); ws.binaryType = "arraybuffer"; return ws; };
const first = open();
first.onopen = () => { found.extensions = first.extensions; first.send(messages[0]); };
first.onmessage = event => {
    found.echoed.push(same(messages[found.echoed.length], event.data));
    first.send(messages[found.echoed.length] ?? "close");
};
first.onclose = event => {
    found.closed = [event.code, event.reason, event.wasClean];
    const second = open();
    second.onopen = () => second.close(3001, "done");
    second.onclose = event => {
        found.left = [event.code, event.reason, event.wasClean];
        fetch("/report", {method: "POST", body: JSON.stringify(found)});
    };
};
</script>"""


@browser.is_needed
async def test_chromium(tmp_path: Path) -> None:
    """One implementation: what differs between them in bytes, the other clients see."""
    sessions: list[Application] = []
    reports: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            sessions.append(Application(echo_until_told))
            await sessions[-1](scope, receive, send)
            return
        body = b""
        if scope["path"] == "/report":
            body = (await receive())["body"]
            reports.append(json.loads(body))
        headers = [(b"content-type", b"text/html; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": PAGE.encode()})

    async with serving(app, "auto") as port, browser.browsing(f"http://127.0.0.1:{port}/", tmp_path):
        await wait_until(lambda: reports, timeout=60)
    assert reports == [
        {
            "echoed": [True] * 4,
            "extensions": reports[0]["extensions"],
            "closed": [4321, "because", True],
            "left": [3001, "done", True],
        }
    ]
    assert reports[0]["extensions"].startswith("permessage-deflate")
    assert sessions[1].events[-1] == {"type": "websocket.disconnect", "code": 3001, "reason": "done"}
