"""How a server makes its native connections: without Python's calls, but as a class says that somebody has changed."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from typing import Any

import pytest

import uvicorn._native as _native
from tests.utils import run_server, server_port, wait_until
from uvicorn.config import Config
from uvicorn.protocols.http.native_impl import NativeProtocol

pytestmark = pytest.mark.anyio

_factory = _native.Factory
GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    client, server = scope["client"], scope["server"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": repr((client, server)).encode()})


def config(**settings: Any) -> Config:
    return Config(application, **{"http": NativeProtocol, "port": 0, "lifespan": "off", "log_config": None, **settings})


async def ask(port: int, host: str = "127.0.0.1") -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(GET)
    head = await reader.readuntil(b"\r\n\r\n")
    return head, reader, writer


async def test_class_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def factory(*arguments: Any) -> Any:
        made.append(arguments)
        return _factory(*arguments)

    monkeypatch.setattr(_native, "Factory", factory)
    async with run_server(config()) as server:
        for _ in range(3):
            head, _, writer = await ask(server_port(server))
            assert head.startswith(b"HTTP/1.1 200 ") and b"connection" not in head
            (connection,) = server.server_state.connections
            assert type(connection) is NativeProtocol
            writer.close()
            await wait_until(lambda: not server.server_state.connections)
    assert [arguments[0] for arguments in made] == [NativeProtocol]


async def test_last_request_of_each_connection() -> None:
    async with run_server(config(headers=[("connection", "close")])) as server:
        for _ in range(2):
            head, reader, writer = await ask(server_port(server))
            assert head.lower().count(b"connection: close") == 1
            assert (await reader.read()).endswith(b"\r\n0\r\n\r\n")
            writer.close()


class Counted(NativeProtocol):
    """Makes its objects in its own way."""

    made = 0

    def __new__(cls, *arguments: Any, **keywords: Any) -> Counted:
        cls.made += 1
        protocol = super().__new__(cls, *arguments, **keywords)
        assert isinstance(protocol, Counted)
        return protocol


async def test_class_of_a_program() -> None:
    Counted.made = 0
    async with run_server(config(http=Counted)) as server:
        for _ in range(2):
            _, _, writer = await ask(server_port(server))
            assert all(type(connection) is Counted for connection in server.server_state.connections)
            writer.close()
    assert Counted.made == 2


async def test_method_put_into_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    before = NativeProtocol.connection_made

    def connection_made(self: NativeProtocol, transport: Any) -> None:
        seen.append(transport)
        before(self, transport)

    monkeypatch.setattr(NativeProtocol, "connection_made", connection_made, raising=False)
    async with run_server(config()) as server:
        _, _, writer = await ask(server_port(server))
        writer.close()
    assert len(seen) == 1


async def test_waits_for_the_last_connection() -> None:
    """Those who wait for the set to be empty are told, however many were in it."""
    async with run_server(config()) as server:
        writers = [(await ask(server_port(server)))[2] for _ in range(3)]
        waiting = asyncio.ensure_future(server.server_state.wait_no_connections())
        for index, writer in enumerate(writers):
            await asyncio.sleep(0)
            assert not waiting.done()
            writer.close()
            await wait_until(lambda left=2 - index: len(server.server_state.connections) == left)  # type: ignore[misc]
        await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.10.200.255", "127.0.100.9"])
async def test_addresses(host: str) -> None:
    async with run_server(config(host=host)) as server:
        port = server_port(server)
        reader, writer = await asyncio.open_connection(host, port, local_addr=(host, 0))
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        text = (await reader.readuntil(b"\r\n0\r\n")).split(b"\r\n")[1].decode()
        client = writer.get_extra_info("sockname")
        assert text == repr((client, (host, port)))
        assert ipaddress.ip_address(client[0]) == ipaddress.ip_address(host)
        writer.close()


async def test_lines_about_connections(caplog: pytest.LogCaptureFixture) -> None:
    """The level may change while the server runs."""
    logger = logging.getLogger("uvicorn.error")
    caplog.set_level(logging.INFO, "uvicorn.error")
    caplog.handler.setLevel(logging.NOTSET)
    async with run_server(config()) as server:

        async def connect() -> None:
            _, _, writer = await ask(server_port(server))
            writer.close()
            await wait_until(lambda: not server.server_state.connections)

        await connect()
        assert "HTTP connection" not in caplog.text
        logger.setLevel(5)
        await connect()
        assert caplog.text.count("HTTP connection made") == caplog.text.count("HTTP connection lost") == 1
        logger.setLevel(logging.INFO)
        await connect()
        assert caplog.text.count("HTTP connection made") == 1
        logger.setLevel(5)
        logger.disabled = True
        try:
            await connect()
        finally:
            logger.disabled = False
        assert caplog.text.count("HTTP connection made") == 1
