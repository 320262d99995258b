"""TLS served for real: certificates, client certificates, both event loops, and what happens at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.process import ServerProcess
from tests.utils import PATIENCE, open_connection, read_to_end, run_server, server_port, wait_for
from uvicorn import server as module
from uvicorn.config import Config

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("engine")]

LOOPS = ["asyncio"] if sys.platform == "win32" else ["asyncio", "uvloop"]


def backend(name: str) -> Any:
    if name == "asyncio":
        return pytest.param(("asyncio", {"loop_factory": asyncio.new_event_loop}), id=name)
    import uvloop

    return pytest.param(("asyncio", {"loop_factory": uvloop.new_event_loop}), id=name)


@pytest.fixture(params=[backend(name) for name in LOOPS])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


async def app(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    body = scope["scheme"].encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def make_config(**settings: Any) -> Config:
    return Config(app, **{"port": 0, "lifespan": "off", "log_config": None, **settings})


async def get(server: Any, context: ssl.SSLContext) -> httpx.Response:
    async with httpx.AsyncClient(verify=context, trust_env=False) as client:
        return await client.get(f"https://127.0.0.1:{server_port(server)}/")


async def test_key_and_certificate_in_two_files(
    http_protocol_cls: Any,
    tls_ca_ssl_context: ssl.SSLContext,
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_path: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """TLS-01, TLS-09, LIFE-08"""
    caplog.set_level("INFO", logger="uvicorn.error")
    config = make_config(
        http=http_protocol_cls,
        ssl_keyfile=tls_certificate_private_key_path,
        ssl_certfile=tls_certificate_server_cert_path,
    )
    async with run_server(config) as server:
        response = await get(server, tls_ca_ssl_context)
    assert (response.status_code, response.text) == (200, "https")
    assert any("Uvicorn running on https://127.0.0.1:" in message for message in caplog.messages)


async def test_key_and_chain_in_one_file(
    tls_ca_ssl_context: ssl.SSLContext, tls_certificate_key_and_chain_path: str
) -> None:
    """TLS-02"""
    async with run_server(make_config(ssl_certfile=tls_certificate_key_and_chain_path)) as server:
        assert (await get(server, tls_ca_ssl_context)).status_code == 200


async def test_encrypted_key(
    tls_ca_ssl_context: ssl.SSLContext,
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_encrypted_path: str,
) -> None:
    """TLS-01"""
    config = make_config(
        ssl_keyfile=tls_certificate_private_key_encrypted_path,
        ssl_certfile=tls_certificate_server_cert_path,
        ssl_keyfile_password="uvicorn password for the win",
    )
    async with run_server(config) as server:
        assert (await get(server, tls_ca_ssl_context)).status_code == 200


async def test_context_of_a_factory(
    tls_ca_ssl_context: ssl.SSLContext, tls_certificate_key_and_chain_path: str
) -> None:
    """TLS-01, TLS-06"""

    def factory(config: Config, default: Any) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls_certificate_key_and_chain_path)
        return context

    async with run_server(make_config(ssl_context_factory=factory)) as server:
        assert (await get(server, tls_ca_ssl_context)).status_code == 200


@pytest.fixture
def mutual(tls_certificate_key_and_chain_path: str, tls_ca_certificate_pem_path: str) -> Config:
    return make_config(
        ssl_certfile=tls_certificate_key_and_chain_path,
        ssl_ca_certs=tls_ca_certificate_pem_path,
        ssl_cert_reqs=ssl.CERT_REQUIRED,
    )


async def test_mutual_tls_accepts_a_client_with_a_certificate(
    mutual: Config, tls_client_ssl_context: ssl.SSLContext
) -> None:
    """TLS-03"""
    async with run_server(mutual) as server:
        assert (await get(server, tls_client_ssl_context)).status_code == 200


async def test_mutual_tls_refuses_a_client_without_one(mutual: Config, tls_ca_ssl_context: ssl.SSLContext) -> None:
    """TLS-03"""
    async with run_server(mutual) as server:
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError, httpx.ConnectError, ssl.SSLError)):
            await get(server, tls_ca_ssl_context)
        assert server.server_state.total_requests == 0


async def test_plain_http_is_closed_without_a_line(
    tls_certificate_key_and_chain_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """TLS-05"""
    async with run_server(make_config(ssl_certfile=tls_certificate_key_and_chain_path)) as server:
        caplog.set_level("INFO")
        caplog.clear()
        with open_connection(("127.0.0.1", server_port(server)), b"GET / HTTP/1.1\r\nhost: a\r\n\r\n") as client:
            assert b"HTTP/" not in await asyncio.to_thread(read_to_end, client)
        assert caplog.messages == []


async def test_handshake_that_is_never_finished_is_closed(tls_certificate_key_and_chain_path: str) -> None:
    """D1"""
    config = make_config(ssl_certfile=tls_certificate_key_and_chain_path, timeout_handshake=0.1)
    async with run_server(config) as server:
        with open_connection(("127.0.0.1", server_port(server))) as client:
            assert await asyncio.to_thread(read_to_end, client) == b""
        assert not server.server_state.connections


async def test_handshake_without_a_deadline_of_its_own_has_the_default(
    tls_certificate_key_and_chain_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: asyncio cannot wait for ever, so 0 means a minute."""
    assert module.DEFAULT_HANDSHAKE_TIMEOUT == 60
    monkeypatch.setattr(module, "DEFAULT_HANDSHAKE_TIMEOUT", 0.1)
    config = make_config(ssl_certfile=tls_certificate_key_and_chain_path, timeout_handshake=0)
    async with run_server(config) as server:
        with open_connection(("127.0.0.1", server_port(server))) as client:
            assert await asyncio.to_thread(read_to_end, client) == b""


# The end, as processes: the client is a thread away and does not look at its socket


@contextlib.contextmanager
def tls_client(address: tuple[str, int], context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    with open_connection(address) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        yield client


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(
        "async def app(scope, receive, send):\n"
        "    headers = [(b'content-length', b'2')]\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': headers})\n"
        "    await send({'type': 'http.response.body', 'body': b'ok'})\n"
    )
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("loop", LOOPS)
def test_idle_client_that_does_not_answer_the_closing_does_not_hold_the_server(
    cwd: Path, loop: str, tls_ca_ssl_context: ssl.SSLContext, tls_certificate_key_and_chain_path: str
) -> None:
    """K7: asyncio would wait half a minute for the answer."""
    arguments = ["app:app", "--port", "0", "--loop", loop, "--lifespan", "off"]
    with (
        ServerProcess(*arguments, "--ssl-certfile", tls_certificate_key_and_chain_path, cwd=cwd) as server,
        tls_client(server.address, tls_ca_ssl_context),
    ):
        assert server.stop(timeout=20) == -signal.SIGTERM


def open_sockets(pid: int) -> int:
    """How many sockets a process has open; 0 where the system does not tell."""
    count = 0
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(FileNotFoundError):  # a file that is open for a moment
            count += os.readlink(link).startswith("socket:")
    return count


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_unfinished_handshake_does_not_hold_the_server(cwd: Path, tls_certificate_key_and_chain_path: str) -> None:
    """K7, LIFE-13"""
    arguments = ["app:app", "--port", "0", "--loop", "asyncio", "--timeout-handshake", "60"]
    with ServerProcess(*arguments, "--ssl-certfile", tls_certificate_key_and_chain_path, cwd=cwd) as server:
        server.wait_for("Application startup complete.")
        address, before = server.address, open_sockets(server.pid)
        with socket.create_connection(address):
            wait_for(lambda: sys.platform != "linux" or open_sockets(server.pid) > before)
            assert server.stop() == -signal.SIGTERM
        assert "Waiting for connections" not in server.error_output


@pytest.mark.measures_children
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
async def test_end_in_the_middle_of_a_record_is_noticed(
    tls_ca_ssl_context: ssl.SSLContext, tls_certificate_key_and_chain_path: str
) -> None:
    """The end comes with the record, so that one event announces both."""
    config = make_config(ssl_certfile=tls_certificate_key_and_chain_path, timeout_keep_alive=600)
    async with run_server(config) as server:
        for beginning in (b"", b"GET / HTTP/1.1\r\nhost: a\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server_port(server), ssl=tls_ca_ssl_context)
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" + beginning)
            await reader.readuntil(b"https")
            with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as client:
                client.sendall(b"\x17\x03\x03\x00\x40" + bytes(10))
                client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
            writer.close()


def test_bad_certificate_fails_before_there_are_workers(cwd: Path) -> None:
    """TLS-04, MP-18: upstream starts workers for it, for ever."""
    (cwd / "bad.pem").write_text("no certificate")
    arguments = ["app:app", "--port", "0", "--workers", "2", "--ssl-certfile", "bad.pem"]
    with ServerProcess(*arguments, cwd=cwd) as server:
        assert server.wait() == 1
        (line,) = server.error_output.splitlines()
        assert line.startswith("ERROR:    Cannot use ssl_certfile=")
