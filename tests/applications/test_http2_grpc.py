"""gRPC: grpcio calls an application directly, and by way of nginx and HAProxy, which speak HTTP/2 with the server."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest
import trustme

from tests.applications.conftest import serving
from tests.process import ServerProcess
from tests.utils import is_listening, wait_for

pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="servers are stopped by SIGTERM here")

# A process of its own: grpcio has threads, and other tests fork.
CLIENT = """
import json, queue, sys
import grpc

address, authority = sys.argv[1], sys.argv[2]
if authority:
    with open(authority, "rb") as file:
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(file.read()))
else:
    channel = grpc.insecure_channel(address)
large = bytes(1_000_000)

def conversation():
    # The next message is sent when the answer to the last one is here.
    asked, heard = queue.SimpleQueue(), []
    answers = channel.stream_stream("/test.Test/Converse")(iter(asked.get, None), timeout=60)
    for number in range(20):
        asked.put(b"%d" % number)
        heard.append(int(next(answers)))
    asked.put(None)
    return heard + list(answers)

def failure(method, message):
    try:
        channel.unary_unary(method)(message, timeout=60)
    except grpc.RpcError as error:
        return [error.code().name, error.details()]

print(json.dumps({
    "unary": channel.unary_unary("/test.Test/Echo")(b"hello", timeout=60).decode(),
    "large": channel.unary_unary("/test.Test/Echo")(large, timeout=60) == large,
    "gathered": channel.stream_unary("/test.Test/Gather")(iter([b"1", b"2", b"3"]), timeout=60).decode(),
    "spread": [part.decode() for part in channel.unary_stream("/test.Test/Spread")(b"1,2,3", timeout=60)],
    "conversation": conversation(),
    "wrong": failure("/test.Test/Echo", b"wrong"),
    "unknown": failure("/test.Test/Other", b""),
}))
"""

EXPECTED = {
    "unary": "hello",
    "large": True,
    "gathered": "1,2,3",
    "spread": ["1", "2", "3"],
    "conversation": list(range(20)),
    "wrong": ["INVALID_ARGUMENT", "that is wrong"],
    "unknown": ["UNIMPLEMENTED", "there is no such method"],
}


@dataclass
class Place:
    """Where the application is served: in the clear, or with a certificate of an authority."""

    server: ServerProcess
    pem: Path
    authority: Path
    secure: bool


@pytest.fixture(scope="module", params=["http", "https"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("certificate")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "authority.pem"))
    pem = directory / "server.pem"
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
    secure = request.param == "https"
    options = ["--ssl-certfile", str(pem), "--ssl-keyfile", str(pem)] if secure else ["--loop", "asyncio"]
    trailers = ("--asgi-extension", "http.response.trailers")
    with serving("grpc_app", "--http2", *trailers, *options, lifespan=False) as server:
        yield Place(server, pem, directory / "authority.pem", secure)


def called(address: str, authority: Path | None) -> object:
    """What grpcio has to say of the application."""
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("grpcio is not installed")
    command = [sys.executable, "-c", CLIENT, address, str(authority or "")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    found: object = json.loads(done.stdout)
    return found


def test_grpcio(place: Place) -> None:
    assert called(f"localhost:{place.server.port}", place.authority if place.secure else None) == EXPECTED


NGINX = """
worker_processes 1;
events {{}}
http {{
    access_log off;
    client_max_body_size 0;
    server {{
        listen 127.0.0.1:{port} http2;
        location / {{
            grpc_pass {scheme}://127.0.0.1:{upstream};
            grpc_ssl_verify on;
            grpc_ssl_name localhost;
            grpc_ssl_server_name on;
            grpc_ssl_trusted_certificate {authority};
        }}
    }}
}}
"""

HAPROXY = """
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
frontend clients
    bind 127.0.0.1:{port} {spoken}
    default_backend application
backend application
    server one 127.0.0.1:{upstream} {options}
"""


def program(name: str) -> str:
    """Where a program is; not where users look for programs."""
    found = shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    """Run a program that listens at a port."""
    with ServerProcess(command=command) as process:
        wait_for(lambda: is_listening(("127.0.0.1", port)) or process.process.poll() is not None)
        assert process.process.poll() is None, process.describe()
        yield


def test_grpcio_by_way_of_nginx(place: Place, tmp_path: Path, unused_tcp_port: int) -> None:
    file = tmp_path / "nginx.conf"
    scheme = "grpcs" if place.secure else "grpc"
    port, authority = unused_tcp_port, place.authority
    file.write_text(NGINX.format(port=port, scheme=scheme, upstream=place.server.port, authority=authority))
    where = f"pid {tmp_path}/pid; error_log stderr; daemon off;"
    with running([program("nginx"), "-p", str(tmp_path), "-c", str(file), "-g", where], port):
        assert called(f"localhost:{port}", None) == EXPECTED


@pytest.mark.parametrize("version", [1, 2])
def test_by_way_of_haproxy(place: Place, tmp_path: Path, unused_tcp_port: int, version: int) -> None:
    """Its own clients speak HTTP/2, or HTTP/1.1 of which it makes HTTP/2."""
    file = tmp_path / "haproxy.cfg"
    options = f"ssl verify required ca-file {place.authority} alpn h2" if place.secure else "proto h2"
    spoken = "proto h2" if version == 2 else ""
    file.write_text(HAPROXY.format(port=unused_tcp_port, spoken=spoken, upstream=place.server.port, options=options))
    with running([program("haproxy"), "-db", "-f", str(file)], unused_tcp_port):
        if version == 2:
            assert called(f"localhost:{unused_tcp_port}", None) == EXPECTED
            return
        connection = HTTPConnection("127.0.0.1", unused_tcp_port, timeout=30)
        for method in ("GET", "POST"):
            connection.request(method, "/")
            assert connection.getresponse().read() == f"{method} HTTP/2".encode()
        connection.close()
