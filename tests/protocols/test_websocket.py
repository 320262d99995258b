"""WebSocket end to end: a server on both HTTP implementations, real sockets, the `websockets` client."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests import machines
from tests.process import ServerProcess
from tests.protocols.websocket_tools import (
    BINARY,
    TEXT,
    Application,
    ServerFrame,
    accept,
    echo,
    frame,
    handshake,
    listen,
    parse_frames,
)
from tests.utils import open_connection, read_until, run_server, server_port, wait_until
from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.server import Server

pytestmark = pytest.mark.anyio

http_protocol_cls = machines.each
ws_protocol_cls = machines.each_websocket


@asynccontextmanager
async def serving(app: Any, http: Any, ws: Any, **settings: Any) -> AsyncIterator[tuple[Server, str]]:
    """A server for `app` and its ws:// address."""
    config = Config(app, http=http, ws=ws, port=0, lifespan="off", log_config=None, interface="asgi3", **settings)
    async with run_server(config) as server:
        yield server, f"ws://127.0.0.1:{server_port(server)}"


async def closed(client: ClientConnection) -> tuple[int, str]:
    """Code and reason of the server's close frame."""
    with pytest.raises(ConnectionClosed) as error:
        while True:
            await client.recv()
    assert error.value.rcvd is not None
    return error.value.rcvd.code, error.value.rcvd.reason


async def test_messages_go_both_ways(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    """WSM-01 WSC-04: with the client's compression"""
    app = Application()
    async with serving(app, http_protocol_cls, ws_protocol_cls) as (_, url), connect(url) as client:
        for message in ("text", b"bytes", "", b"", "größe" * 1000, b"x" * 1_000_000):
            await client.send(message)
            assert await client.recv() == message
    assert app.messages[-1] == b"x" * 1_000_000
    assert app.events[-1] == {"type": "websocket.disconnect", "code": 1000, "reason": ""}


async def test_messages_go_both_ways_without_compression(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    """WSM-01 WSM-02"""
    async with (
        serving(echo_app, http_protocol_cls, ws_protocol_cls) as (_, url),
        connect(url, compression=None) as client,
    ):
        await client.send(["frag", "ments"])
        assert await client.recv() == "fragments"
        await client.send(b"x" * 1_000_000)
        assert await client.recv() == b"x" * 1_000_000
        await (await client.ping())


async def echo_app(scope: Any, receive: Any, send: Any) -> None:
    await echo(receive, send)


async def test_frames_that_arrive_with_the_handshake_are_processed(
    http_protocol_cls: Any, ws_protocol_cls: Any
) -> None:
    """W12 UPG-07"""
    async with serving(echo_app, http_protocol_cls, ws_protocol_cls) as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server_port(server))
        writer.write(handshake() + frame(TEXT, b"early"))
        await reader.readuntil(b"\r\n\r\n")
        assert parse_frames(await reader.readexactly(7)) == [ServerFrame(TEXT, b"early")]
        writer.close()
        await writer.wait_closed()


async def test_refusals_reach_the_client(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    """W5 WSR-01 WSR-05"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/close":
            await send({"type": "websocket.close"})
        else:
            await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b"why"})

    async with serving(app, http_protocol_cls, ws_protocol_cls) as (_, url):
        with pytest.raises(InvalidStatus) as refused:
            await connect(url + "/close")
        assert refused.value.response.status_code == 403
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
        assert (refused.value.response.status_code, refused.value.response.body) == (401, b"why")


async def test_close_code_and_reason_reach_the_client(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    """W4 WSX-11"""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await send({"type": "websocket.close", "code": 4321, "reason": "because"})

    async with serving(Application(script), http_protocol_cls, ws_protocol_cls) as (_, url), connect(url) as client:
        assert await closed(client) == (4321, "because")


async def test_failed_application_and_finished_one_close_properly(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    """W6"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await accept(receive, send)
        if scope["path"] == "/raise":
            raise ValueError("boom")

    async with serving(app, http_protocol_cls, ws_protocol_cls) as (_, url):
        async with connect(url) as client:
            assert await closed(client) == (1000, "")
        async with connect(url + "/raise") as client:
            assert await closed(client) == (1011, "")


async def test_compressed_bomb_is_refused(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    """W8"""
    app = Application(listen)
    async with (
        serving(app, http_protocol_cls, ws_protocol_cls, ws_max_size=10_000) as (_, url),
        connect(url) as client,
    ):
        await client.send(bytes(1_000_000))
        assert (await closed(client))[0] == 1009


async def test_client_gets_the_reason_while_it_is_still_sending(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    """W8: no reset overtakes the close frame."""
    async with serving(echo_app, http_protocol_cls, ws_protocol_cls, ws_max_size=1000) as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server_port(server))
        writer.write(handshake())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frame(BINARY, bytes(5_000_000)))
        head = await reader.readexactly(2)
        (said,) = parse_frames(head + await reader.readexactly(head[1]))
        assert said.close[0] == 1009
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("key", ["bytes", "text"])
async def test_large_last_message_reaches_a_slow_client_whole(
    http_protocol_cls: Any, ws_protocol_cls: Any, key: str
) -> None:
    """W3: the close frame comes behind it, and the connection ends after the client's answer."""
    text = "".join(f"{number:x}é" for number in range(8_000)) * 120
    message = text if key == "text" else text.encode()

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await send({"type": "websocket.send", "text": "first"})
        await send({"type": "websocket.send", key: message})
        await send({"type": "websocket.close", "code": 3001})

    app = Application(script)
    async with (
        serving(app, http_protocol_cls, ws_protocol_cls) as (_, url),
        connect(url, compression=None, max_size=None, max_queue=1) as client,
    ):
        # The client's library stops reading when its queue is full.
        await wait_until(lambda: app.done)
        assert await client.recv() == "first"
        assert await client.recv() == message
        assert await closed(client) == (3001, "")


async def test_client_that_vanishes_releases_a_blocked_send(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    """W7"""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        while True:
            sent.append(None)
            await send({"type": "websocket.send", "bytes": b"x" * 1_000_000})

    sent: list[None] = []
    app = Application(script)
    async with serving(app, http_protocol_cls, ws_protocol_cls) as (server, _):
        with open_connection(("127.0.0.1", server_port(server)), handshake()) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await wait_until(lambda: server.server_state.connections)
            # The connection is another object after the upgrade.
            await wait_until(
                lambda: any(
                    getattr(getattr(connection, "flow", connection), "write_paused", False)
                    for connection in server.server_state.connections
                )
            )
            assert len(sent) < 20
        await wait_until(lambda: app.done)
        assert isinstance(app.error, ClientDisconnected)


async def test_server_that_stops_sends_1012_and_ends_in_time(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    """W16 K8 WSX-18: with an application that never stops by itself."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        while True:
            await send({"type": "websocket.send", "text": "tick"})
            await asyncio.sleep(0.001)

    app = Application(script)
    async with serving(app, http_protocol_cls, ws_protocol_cls) as (server, url), connect(url) as client:
        await client.recv()
        server.should_exit = True
        assert await closed(client) == (1012, "")
        await wait_until(lambda: app.done)
        assert isinstance(app.error, ClientDisconnected)


async def test_connection_works_over_tls(
    http_protocol_cls: Any,
    ws_protocol_cls: Any,
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_path: str,
    tls_ca_ssl_context: ssl.SSLContext,
) -> None:
    """WS-01"""
    app = Application()
    settings = {
        "ssl_certfile": tls_certificate_server_cert_path,
        "ssl_keyfile": tls_certificate_private_key_path,
    }
    async with (
        serving(app, http_protocol_cls, ws_protocol_cls, **settings) as (_, url),
        connect(url.replace("ws:", "wss:"), ssl=tls_ca_ssl_context) as client,
    ):
        for message in ("hello", "é" * 300_000, bytes(600_000)):
            await client.send(message)
            assert await client.recv() == message
        await client.close()
        if sys.version_info < (3, 11):  # asyncio takes it for left open otherwise, and warns
            client.transport.close()
    assert app.scope["scheme"] == "wss"
    assert app.events[-1]["code"] == 1000


async def test_connection_works_over_a_unix_socket(
    http_protocol_cls: Any, ws_protocol_cls: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """WS-01 WS-06: there is no client, and its place in the log line is empty."""
    from websockets.asyncio.client import unix_connect

    caplog.set_level(logging.INFO, "uvicorn.error")
    app = Application()
    path = str(tmp_path / "s")
    config = Config(app, http=http_protocol_cls, ws=ws_protocol_cls, uds=path, lifespan="off", log_config=None)
    async with run_server(config), unix_connect(path, "ws://localhost/x") as client:
        await client.send("hello")
        assert await client.recv() == "hello"
    assert app.scope["client"] is None
    assert ' - "WebSocket /x" [accepted]' in [record.getMessage() for record in caplog.records]


async def test_handshake_is_not_in_the_access_log(
    http_protocol_cls: Any, ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """UPG-02"""
    caplog.set_level(logging.INFO, "uvicorn.access")
    async with serving(echo_app, http_protocol_cls, ws_protocol_cls) as (server, url), connect(url):
        assert server.server_state.total_requests == 0
    assert [record for record in caplog.records if record.name == "uvicorn.access"] == []


async def test_context_of_the_application_is_not_kept_by_its_connection(
    http_protocol_cls: Any, ws_protocol_cls: Any
) -> None:
    """K6: reading goes on, after a pause, in the context of the server."""
    from contextvars import ContextVar

    variable: ContextVar[str] = ContextVar("variable", default="clean")
    seen: set[str] = set()

    class Noting(ws_protocol_cls):  # type: ignore[misc]
        __slots__ = ()

        def data_received(self, data: bytes) -> None:
            seen.add(variable.get())
            super().data_received(data)

    async def script(receive: Any, send: Any) -> None:
        variable.set("dirty")
        await echo(receive, send)

    async with (
        serving(Application(script), http_protocol_cls, Noting, ws_max_queue=1) as (_, url),
        connect(url) as client,
    ):
        for _ in range(5):
            await client.send("x")
            await client.recv()
    assert seen == {"clean"}


@pytest.mark.parametrize("reset", [False, True])
async def test_context_is_the_servers_and_never_another_connections(
    http_protocol_cls: Any, ws_protocol_cls: Any, reset: bool
) -> None:
    """K6 CON-11, for a WebSocket"""
    from contextvars import ContextVar

    at_start: ContextVar[str] = ContextVar("at_start", default="missing")
    leaked: ContextVar[str] = ContextVar("leaked", default="clean")
    seen: list[tuple[str, str]] = []

    async def script(receive: Any, send: Any) -> None:
        seen.append((at_start.get(), leaked.get()))
        leaked.set("dirty")
        await echo(receive, send)

    at_start.set("there")
    async with serving(Application(script), http_protocol_cls, ws_protocol_cls, reset_contextvars=reset) as (_, url):
        for _ in range(2):
            async with connect(url) as client:
                await client.send("x")
                await client.recv()
    assert seen == [("missing" if reset else "there", "clean")] * 2


APP = """
async def app(scope, receive, send):
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})
"""


@pytest.mark.skipif("UPSTREAM_PYTHON" not in os.environ, reason="needs UPSTREAM_PYTHON, a Python with upstream uvicorn")
@pytest.mark.parametrize("ws", ["websockets-sansio", "wsproto"])
def test_upstream_loses_the_frames_behind_the_handshake(ws: str, tmp_path: Path) -> None:
    """W12 UPG-07: the first message that upstream echoes is the second that was sent; ours echoes both."""
    (tmp_path / "echo_app.py").write_text(APP)
    args = ("echo_app:app", "--app-dir", str(tmp_path), "--port", "0", "--ws", ws, "--lifespan", "off")

    def first_echo(server: ServerProcess) -> bytes:
        with open_connection(("127.0.0.1", server.port), handshake() + frame(TEXT, b"first")) as client:
            data = read_until(client, b"\r\n\r\n")
            client.sendall(frame(TEXT, b"other"))
            return parse_frames(data.partition(b"\r\n\r\n")[2] + client.recv(7))[0].payload

    with ServerProcess(*args, cwd=tmp_path) as server:
        assert first_echo(server) == b"first"
    # Isolated, so that it cannot find this package instead.
    upstream = (os.environ["UPSTREAM_PYTHON"], "-I", "-m", "uvicorn")
    with ServerProcess(*args, cwd=tmp_path, command=upstream) as server:
        assert first_echo(server) == b"other"
