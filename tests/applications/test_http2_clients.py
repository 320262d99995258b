"""Clients that other people have written speak HTTP/2 with the server, in the clear and over TLS."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.applications.conftest import serving
from tests.process import ServerProcess

pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)

UPLOAD = b"0123456789abcdef" * 20_000

NODE = """
const http2 = require("http2"), [url, body] = [process.argv[2], Buffer.alloc(320000, "0123456789abcdef")];
const client = http2.connect(url, { rejectUnauthorized: false });
let left = 4, sizes = [];
for (let number = 0; number < 4; number++) {
  const stream = client.request({ ":method": "POST", ":path": "/echo" });
  let size = 0;
  stream.on("data", (piece) => (size += piece.length));
  stream.on("end", () => { sizes.push(size); if (--left === 0) { console.log(sizes.join()); client.close(); } });
  stream.end(body);
}
"""

GO = """
package main

import ("bytes"; "crypto/tls"; "fmt"; "io"; "net/http"; "os")

func main() {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: transport}
	body := bytes.Repeat([]byte("0123456789abcdef"), 20000)
	for number := 0; number < 4; number++ {
		response, err := client.Post(os.Args[1]+"/echo", "text/plain", bytes.NewReader(body))
		if err != nil { fmt.Println(err); os.Exit(1) }
		text, _ := io.ReadAll(response.Body)
		fmt.Println(response.Proto, response.StatusCode, len(text))
	}
}
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServerProcess]]:
    """One server in the clear and one with TLS, on the two event loops."""
    directory = tmp_path_factory.mktemp("certificate")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    pem = directory / "server.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
    with (
        serving("echo_app", "--http2", "--loop", "asyncio", lifespan=False) as clear,
        serving("echo_app", "--http2", "--ssl-certfile", str(pem), "--ssl-keyfile", str(pem), lifespan=False) as secure,
    ):
        yield {"http": clear, "https": secure}


@pytest.fixture(params=["http", "https"])
def url(request: pytest.FixtureRequest, servers: dict[str, ServerProcess]) -> str:
    return f"{request.param}://127.0.0.1:{servers[request.param].port}"


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_curl(url: str, tmp_path: Path) -> None:
    if "HTTP2" not in _run("curl", "--version"):
        pytest.skip("this curl has no HTTP/2")
    upload, answer = tmp_path / "upload", tmp_path / "answer"
    upload.write_bytes(UPLOAD)
    version = "--http2-prior-knowledge" if url.startswith("http:") else "--http2"
    told = _run(
        *("curl", "--silent", "--insecure", version, "--data-binary", f"@{upload}", "--output", answer),
        *("--write-out", "%{http_version} %{response_code}", f"{url}/echo"),
    )
    assert told == "2 200"
    assert answer.read_bytes() == UPLOAD


def test_nghttp(url: str) -> None:
    text = _run("nghttp", "--no-dep", "--verbose", "--null-out", f"{url}/", f"{url}/echo")
    assert text.count(":status: 200") == 2


def test_node(url: str, tmp_path: Path) -> None:
    script = tmp_path / "client.js"
    script.write_text(NODE)
    assert _run("node", script, url).strip() == ",".join([str(len(UPLOAD))] * 4)


@pytest.fixture(scope="module")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("go")
    (directory / "client.go").write_text(GO)
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    command = ["go", "build", "-o", "client", "client.go"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, env=environment)
    if "Protocols" in done.stderr:
        pytest.skip("this Go speaks HTTP/2 over TLS only (1.24 is needed)")
    assert done.returncode == 0, done.stderr
    return directory / "client"


@pytest.mark.deep
def test_go(url: str, go_client: Path) -> None:
    assert _run(go_client, url).splitlines() == [f"HTTP/2.0 200 {len(UPLOAD)}"] * 4
