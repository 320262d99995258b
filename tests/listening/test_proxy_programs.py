"""PROXY headers as nginx and HAProxy write them, where these are installed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process import ServerProcess
from tests.utils import is_listening, read_to_end, wait_for

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="neither program runs there"),
    pytest.mark.measures_children,
]

APP = """
import json

async def app(scope, receive, send):
    told = {key: scope[key] for key in ("client", "server", "scheme", "http_version")}
    body = json.dumps(told).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
"""

REQUEST = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"

CLIENT = "127.0.0.7"
"""An address that nobody else on this machine connects from."""

NGINX = """
{load}
pid {directory}/nginx.pid;
error_log stderr;
events {{ worker_connections 64; }}
stream {{
    server {{
        listen 127.0.0.1:{port};
        proxy_pass {server};
        proxy_protocol on;
    }}
}}
"""

STREAM_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")

HAPROXY = """
defaults
    mode tcp
    timeout connect 30s
    timeout client 30s
    timeout server 30s
frontend web
    bind 127.0.0.1:{port}{bind}
    unique-id-format test-%[rand]
    default_backend app
backend app
    server one {server} {options}
"""


def program(name: str) -> str | None:
    """Its path: it may not be where users look for programs."""
    return shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(program(name) is None, reason=f"{name} is not installed")


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[None]:
    with ServerProcess(command=command) as process:
        wait_for(lambda: is_listening(("127.0.0.1", port)) or process.process.poll() is not None)
        assert process.process.poll() is None, process.describe()
        yield


def nginx(directory: Path, port: int, server: str) -> contextlib.AbstractContextManager[None]:
    path = str(program("nginx"))
    file = directory / "nginx.conf"
    built = subprocess.run([path, "-V"], stderr=subprocess.PIPE, text=True, check=True).stderr
    if "--with-stream=dynamic" in built and not STREAM_MODULE.exists():
        pytest.skip("nginx has no stream module here")
    load = f"load_module {STREAM_MODULE};" if STREAM_MODULE.exists() else ""
    file.write_text(NGINX.format(load=load, directory=directory, port=port, server=server))
    user = " user root;" if os.geteuid() == 0 else ""
    return running([path, "-p", str(directory), "-c", str(file), "-g", f"daemon off;{user}"], port)


def haproxy(
    directory: Path, port: int, server: str, options: str, bind: str = ""
) -> contextlib.AbstractContextManager[None]:
    path = str(program("haproxy"))
    file = directory / "haproxy.cfg"
    file.write_text(HAPROXY.format(port=port, server=server, options=options, bind=bind))
    return running([path, "-db", "-f", str(file)], port)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "told.py").write_text(APP)
    return tmp_path


@contextmanager
def served(directory: Path, *options: str) -> Iterator[ServerProcess]:
    arguments = ("told:app", "--lifespan", "off", "--proxy-protocol", *options)
    if "--uds" not in options:
        arguments += ("--port", "0")
    with ServerProcess(*arguments, cwd=directory) as server:
        if "--uds" in options:
            wait_for(lambda: is_listening(options[options.index("--uds") + 1]))
        else:
            wait_for(lambda: is_listening(("127.0.0.1", server.port)))
        yield server


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(CLIENT, 0))


def ask(client: socket.socket) -> Any:
    client.sendall(REQUEST)
    head, _, body = read_to_end(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return json.loads(body)


IMPLEMENTATIONS = ["auto", "httptools", "h11"]


@needs("nginx")
@pytest.mark.parametrize("http", IMPLEMENTATIONS)
@pytest.mark.parametrize("on", ["tcp", "unix"])
def test_nginx(directory: Path, unused_tcp_port: int, http: str, on: str) -> None:
    path = str(directory / "s")
    options = ("--uds", path) if on == "unix" else ()
    with served(directory, "--http", http, *options) as server:
        place = f"unix:{path}" if on == "unix" else f"127.0.0.1:{server.port}"
        with nginx(directory, unused_tcp_port, place), connect(unused_tcp_port) as client:
            own = [*client.getsockname()]
            told = ask(client)
            assert (told["client"], told["server"]) == (own, ["127.0.0.1", unused_tcp_port])
            server.wait_for(f'{CLIENT}:{own[1]} - "GET / HTTP/1.1" 200')


@needs("haproxy")
@pytest.mark.parametrize("options", ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id"])
@pytest.mark.parametrize("http", IMPLEMENTATIONS)
@pytest.mark.parametrize("on", ["tcp", "unix"])
def test_haproxy(directory: Path, unused_tcp_port: int, options: str, http: str, on: str) -> None:
    path = str(directory / "s")
    with served(directory, "--http", http, *(("--uds", path) if on == "unix" else ())) as server:
        place = path if on == "unix" else f"127.0.0.1:{server.port}"
        with haproxy(directory, unused_tcp_port, place, options), connect(unused_tcp_port) as client:
            own = [*client.getsockname()]
            told = ask(client)
            assert (told["client"], told["server"]) == (own, ["127.0.0.1", unused_tcp_port])
            assert told["scheme"] == "http"


@needs("haproxy")
@pytest.mark.parametrize("option", ["send-proxy-v2-ssl", "send-proxy-v2-ssl-cn"])
@pytest.mark.parametrize("http", [*IMPLEMENTATIONS, "native"])
def test_haproxy_that_ends_tls(
    directory: Path,
    unused_tcp_port: int,
    tls_certificate_key_and_chain_path: str,
    tls_ca_ssl_context: ssl.SSLContext,
    option: str,
    http: str,
) -> None:
    if http == "native":
        pytest.importorskip("uvicorn._native", exc_type=ModuleNotFoundError)
    bind = f" ssl crt {tls_certificate_key_and_chain_path}"
    options = f"{option} proxy-v2-options authority,unique-id,crc32c"
    with (
        served(directory, "--http", http) as server,
        haproxy(directory, unused_tcp_port, f"127.0.0.1:{server.port}", options, bind),
        tls_ca_ssl_context.wrap_socket(connect(unused_tcp_port), server_hostname="localhost") as client,
    ):
        own = [*client.getsockname()]
        told = ask(client)
        assert (told["client"], told["scheme"]) == (own, "https")


@needs("haproxy")
def test_haproxy_that_leaves_tls_to_the_server(
    directory: Path,
    unused_tcp_port: int,
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_path: str,
    tls_ca_ssl_context: ssl.SSLContext,
) -> None:
    files = ("--ssl-certfile", tls_certificate_server_cert_path, "--ssl-keyfile", tls_certificate_private_key_path)
    with (
        served(directory, *files) as server,
        haproxy(directory, unused_tcp_port, f"127.0.0.1:{server.port}", "send-proxy-v2"),
        tls_ca_ssl_context.wrap_socket(connect(unused_tcp_port), server_hostname="localhost") as client,
    ):
        own = [*client.getsockname()]
        told = ask(client)
        assert (told["client"], told["scheme"]) == (own, "https")


@needs("haproxy")
def test_health_checks_of_haproxy_are_of_its_own_address(directory: Path, unused_tcp_port: int) -> None:
    """They say LOCAL, and may come without a request."""
    options = "send-proxy-v2 check inter 100ms"
    with served(directory) as server:
        with (
            haproxy(directory, unused_tcp_port, f"127.0.0.1:{server.port}", options),
            connect(unused_tcp_port) as client,
        ):
            assert ask(client)["client"][0] == CLIENT
        assert "WARNING" not in server.describe()


@needs("haproxy")
def test_limit_of_an_address_is_that_of_the_client(directory: Path, unused_tcp_port: int) -> None:
    with served(directory, "--limit-connections-per-address", "1") as server:
        place = f"127.0.0.1:{server.port}"
        with (
            haproxy(directory, unused_tcp_port, place, "send-proxy-v2"),
            connect(unused_tcp_port) as first,
        ):
            first.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert first.recv(65536).startswith(b"HTTP/1.1 200 ")
            with connect(unused_tcp_port) as second:
                second.sendall(REQUEST)
                assert read_to_end(second).startswith(b"HTTP/1.1 503 ")
            server.wait_for(f"limit_connections_per_address=1 reached by {CLIENT}: closing its further connections.")
