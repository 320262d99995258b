"""Mounted directories as whole servers have them: from the command line, in processes and threads, with flat memory."""

from __future__ import annotations

import socket
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process import APP_BEGINS, ServerProcess
from tests.utils import deep_after, is_listening, open_connection, read_to_end, wait_for

pytestmark = [
    pytest.mark.measures_children,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc, sparse files"),
]

GIB = 2**30

SERVED = ("app:app", "--port", "0")

REQUEST = b"GET /static/%b HTTP/1.1\r\nhost: a\r\nconnection: close\r\n%b\r\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A small file, and one of a GiB that takes no place; beside them an application."""
    (tmp_path / "app.py").write_text(APP_BEGINS)
    directory = tmp_path / "files"
    directory.mkdir()
    (directory / "small").write_bytes(b"small")
    with (directory / "huge").open("wb") as file:
        file.truncate(GIB)
        for at in range(0, GIB, GIB // 16):
            file.seek(at)
            file.write(b"%16d" % at)
    return directory


def memory(pid: int, name: str) -> int:
    """MiB, as the kernel says under this name."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) // 1024
    raise LookupError(name)


def drain(client: socket.socket) -> int:
    """Read to the end; how much that was."""
    buffer, total = bytearray(2**20), 0
    with client:
        while size := client.recv_into(buffer):
            total += size
    return total


@pytest.mark.parametrize("http", deep_after(1, ["native", "httptools"]))
@pytest.mark.parametrize("secure", deep_after(1, [False, True]))
def test_a_gib_is_sent_with_flat_memory(
    tmp_path: Path,
    directory: Path,
    http: str,
    secure: bool,
    tls_certificate_key_and_chain_path: str,
    tls_ca_ssl_context: Any,
) -> None:
    if http == "native":
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    arguments = [*SERVED, "--mount", f"/static={directory}", "--http", http]
    if secure:
        arguments += ["--ssl-certfile", tls_certificate_key_and_chain_path]
    # Encrypting a GiB takes a while.
    fields = b"range: bytes=%d-\r\n" % (3 * GIB // 4) if secure else b""
    with ServerProcess(*arguments, cwd=tmp_path) as server:
        address = server.address

        def ask(name: bytes, fields: bytes = b"") -> socket.socket:
            client = open_connection(address)
            if secure:
                context: ssl.SSLContext = tls_ca_ssl_context
                client = context.wrap_socket(client, server_hostname="localhost")
            client.sendall(REQUEST % (name, fields))
            return client

        assert drain(ask(b"small")) > 100
        before = memory(server.pid, "VmRSS")
        total = drain(ask(b"huge", fields))
        assert GIB // (4 if secure else 1) < total < GIB // (4 if secure else 1) + 1000
        assert memory(server.pid, "VmHWM") - before < 24


@pytest.mark.parametrize(
    "arguments", [["--workers", "2"], ["--threads", "2"], ["--preload", "--workers", "2"]], ids=str
)
def test_each_worker_has_them(tmp_path: Path, directory: Path, arguments: list[str]) -> None:
    with ServerProcess(*SERVED, *arguments, "--mount", "/static=files", cwd=tmp_path) as server:
        wait_for(lambda: is_listening(server.address))
        for _ in range(8):
            with open_connection(server.address, REQUEST % (b"small", b"")) as client:
                assert read_to_end(client).endswith(b"\r\n\r\nsmall")
        server.wait_for('"GET /static/small HTTP/1.1" 200', count=8)


def test_a_directory_that_is_not_there_ends_the_server_at_its_start(tmp_path: Path) -> None:
    server = ServerProcess(*SERVED, "--mount", "/static=nowhere", cwd=tmp_path)
    with server:
        assert server.wait() == 2
        server.wait_for("Invalid value for '--mount': '/static=nowhere': the directory 'nowhere' does not exist.")
