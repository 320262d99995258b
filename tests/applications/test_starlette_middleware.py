"""Middleware that reads what it passes on finds what it finds with upstream: files as bytes, and nothing on offer."""

from __future__ import annotations

import gzip
import importlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.applications.conftest import APPS, client_of, require_clean_log
from tests.process import ServerProcess

pytest.importorskip("brotli_asgi")
pytest.importorskip("starlette_compress")
brotli: Any = importlib.import_module("brotli")

TEXT = b"".join(b"line %d of a file\n" % number for number in range(20_000))


def read(client: httpx.Client, path: str, accept_encoding: str) -> tuple[str | None, bytes]:
    """The coding of what comes, and what it stands for; httpx knows gzip, and other codings stay as they are."""
    with client.stream("GET", path, headers={"accept-encoding": accept_encoding}) as response:
        assert response.status_code == 200
        data = b"".join(response.iter_raw())
        coding = response.headers.get("content-encoding")
    return coding, gzip.decompress(data) if coding == "gzip" else data


def test_files_pass_through_middleware_as_bytes(http: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_bytes(TEXT)
    options = ["--app-dir", str(APPS), "--port", "0", *http]
    with ServerProcess("starlette_middleware:app", *options, cwd=tmp_path) as server:
        server.wait_for("Uvicorn running on")
        with client_of(server) as client:
            assert client.get("/offered").json() == ["nothing"]
            for path in ("response", "static/file.txt"):
                assert read(client, f"/nothing/{path}", "gzip") == (None, TEXT)
                assert read(client, f"/gzip/{path}", "gzip") == ("gzip", TEXT)
                assert read(client, f"/compress/{path}", "gzip") == ("gzip", TEXT)
                assert read(client, f"/reversing/{path}", "identity") == (None, TEXT[::-1])
                coding, data = read(client, f"/brotli/{path}", "br")
                assert (coding, brotli.decompress(data)) == ("br", TEXT)
        server.stop()
        require_clean_log(server)


def test_what_is_asked_for_is_offered(http: tuple[str, ...], tmp_path: Path) -> None:
    extensions = ["http.response.early_hint", "http.response.pathsend"]
    options = ["--app-dir", str(APPS), "--port", "0", *http]
    for extension in extensions:
        options += ["--asgi-extension", extension]
    with ServerProcess("starlette_middleware:app", *options, cwd=tmp_path) as server:
        server.wait_for("Uvicorn running on")
        with client_of(server) as client:
            assert client.get("/offered").json() == extensions
        server.stop()
        require_clean_log(server)
