"""HTTP/3 with several workers, and clients of QUIC: restarts lose no request."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys

import pytest

from tests.process import ServerProcess
from tests.utils import PATIENCE

if sys.platform != "linux":
    pytest.skip("HTTP/3 needs Linux", allow_module_level=True)

pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)

pytest.importorskip("aioquic")

from aioquic.asyncio.client import connect
from aioquic.h3.connection import ErrorCode
from aioquic.quic.configuration import QuicConfiguration

from tests.native.http3_client import HTTP3Client

pytestmark = pytest.mark.measures_children


async def ask(port: int, path: str = "/") -> str:
    """The answer to a request on a connection of its own."""
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE)
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=HTTP3Client) as client:
        assert isinstance(client, HTTP3Client)
        answer = await client.ask(path)
        if not answer.sections and client.ended is not None and client.ended.error_code == ErrorCode.H3_NO_ERROR:
            # It was asked behind the GOAWAY, which this client does not heed: others would ask elsewhere, too (RFC 9114
            # section 5.2).
            return await ask(port, path)
        assert answer.status == 200
        return answer.body.decode()


async def workers(port: int) -> set[str]:
    """The workers that answer a few clients."""
    return set(await asyncio.gather(*(ask(port) for _ in range(10))))


async def restart(server: ServerProcess) -> None:
    """Have all workers replaced while clients come."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    first: set[str] = set()
    while len(first) < 2:
        assert loop.time() < deadline
        first |= await workers(server.port)
    os.kill(server.pid, signal.SIGHUP)
    last = first
    while not last.isdisjoint(first):
        assert loop.time() < deadline
        last = await workers(server.port)


def test_restarts_lose_no_request(tls_certificate_server_cert_path: str, tls_certificate_private_key_path: str) -> None:
    certificate = [
        "--ssl-certfile",
        tls_certificate_server_cert_path,
        "--ssl-keyfile",
        tls_certificate_private_key_path,
    ]
    arguments = ["--port", "0", "--http3", "--workers", "2", "--lifespan", "off", "--no-access-log", *certificate]
    with ServerProcess("tests.http3_pid:app", *arguments) as server:
        server.wait_for("HTTP/3 on UDP port")
        asyncio.run(restart(server))
