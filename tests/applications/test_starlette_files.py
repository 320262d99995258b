"""Starlette's files, which it leaves to the server where that says it can send them."""

from __future__ import annotations

import hashlib
import random
import ssl
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request

from tests.applications.conftest import APPS, require_clean_log
from tests.process import ServerProcess

SIZE = 3_000_001


@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize(("http", "loop"), [("httptools", "uvloop"), ("h11", "asyncio"), ("native", "uvloop")])
def test_starlette_files(
    http: str,
    loop: str,
    secure: bool,
    tmp_path: Path,
    tls_ca_ssl_context: ssl.SSLContext,
    tls_certificate_key_and_chain_path: str,
) -> None:
    """`FileResponse` with a relative path, `StaticFiles`, both behind middleware; ranges stay Starlette's business."""
    if http == "native":
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    data = random.Random(1).randbytes(SIZE)
    (tmp_path / "file").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    options = ["--app-dir", str(APPS), "--port", "0", "--http", http, "--loop", loop, "--asgi-extension", "all"]
    if secure:
        options += ["--ssl-certfile", tls_certificate_key_and_chain_path]
    with ServerProcess("starlette_files:app", *options, cwd=tmp_path) as server:
        server.wait_for("Uvicorn running on")
        base_url = f"{'https' if secure else 'http'}://localhost:{server.port}"
        verify = tls_ca_ssl_context if secure else True
        with httpx.Client(base_url=base_url, timeout=30, trust_env=False, verify=verify) as client:
            for path in ("/relative", "/static/file", "/behind/file"):
                response = client.get(path)
                assert hashlib.sha256(response.content).hexdigest() == digest
                assert response.headers["content-length"] == str(SIZE)
                assert client.get("/kinds").json() == ["http.response.start", "http.response.pathsend"]
                assert client.head(path).headers["content-length"] == str(SIZE)
                assert client.get(path, headers={"range": "bytes=5-9"}).content == data[5:10]
                client.get("/kinds")
            assert client.get("/static/missing").status_code == 404
            assert client.get("/static/file", headers={"if-none-match": response.headers["etag"]}).status_code == 304
            client.get("/kinds")

            if hasattr(Request, "send_early_hints"):  # the last Starlette for Python 3.10 has none
                assert client.get("/hinted").text == "hinted"
                seen = ["http.response.early_hint", "http.response.start", "http.response.body"]
                assert client.get("/kinds").json() == seen
        server.stop()
        require_clean_log(server)
