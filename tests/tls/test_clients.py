"""Clients of other makers connect to both engines: by default, with TLS 1.2, with HTTP/2, and resumed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import ServerProcess
from tests.tls import engines

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(sys.platform == "win32", reason="clients as commands"),
]

APP = """
async def app(scope, receive, send):
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    body = b"%s %d" % (scope["http_version"].encode(), len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
"""

GO = """
package main

import ("crypto/tls"; "fmt"; "io"; "net/http"; "os"; "strings")

func main() {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version,
			ClientSessionCache: tls.NewLRUClientSessionCache(4)}
		for turn := 0; turn < 2; turn++ {
			// Of each turn, because one that is still busy keeps its connection when it is to close idle ones.
			transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: config}
			answer, err := (&http.Client{Transport: transport}).Post(
				"https://localhost:"+os.Args[1]+"/", "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
			if err != nil { panic(err) }
			text, err := io.ReadAll(answer.Body)
			if err != nil { panic(err) }
			fmt.Println(string(text), answer.TLS.Version == version, turn == 0 || answer.TLS.DidResume)
			transport.CloseIdleConnections()
		}
	}
}
"""

NODE = """
const https = require("https"), tls = require("tls");
const ask = (version) => new Promise((done, fail) => {
  const options = {rejectUnauthorized: false, minVersion: version, maxVersion: version, method: "POST"};
  const request = https.request(`https://localhost:${process.argv[2]}/`, options, (answer) => {
    const spoken = answer.socket.getProtocol();
    let text = "";
    answer.on("data", (piece) => { text += piece; });
    answer.on("end", () => done(console.log(text, spoken === version)));
  });
  request.on("error", fail);
  request.end("x".repeat(1 << 20));
});
ask("TLSv1.2").then(() => ask("TLSv1.3"));
"""


@pytest.fixture(params=engines.NAMES, scope="module")
def port(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tls_certificate_key_and_chain_path: str
) -> Iterator[int]:
    directory = tmp_path_factory.mktemp("app")
    (directory / "app.py").write_text(APP)
    settings = ["--port", "0", "--lifespan", "off", "--http2", "--tls", request.param]
    with ServerProcess(
        "app:app", "--ssl-certfile", tls_certificate_key_and_chain_path, *settings, cwd=directory
    ) as server:
        yield server.port


def run(*command: str, text: str | None = None) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("version", ["--tlsv1.2 --tls-max 1.2", "--tlsv1.3"])
@pytest.mark.parametrize(("protocol", "spoken"), [("--http1.1", "1.1"), ("--http2", "2")])
def test_curl(port: int, version: str, protocol: str, spoken: str) -> None:
    command = ["curl", "-sSk", *version.split(), protocol, "--data-binary", "@-", f"https://localhost:{port}/"]
    assert run(*command, text="x" * 100_000) == f"{spoken} 100000"


def test_go(port: int, tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text(GO)
    assert run("go", "run", str(tmp_path / "main.go"), str(port)).splitlines() == ["2 1048576 true true"] * 4


def test_node(port: int, tmp_path: Path) -> None:
    (tmp_path / "client.js").write_text(NODE)
    assert run("node", str(tmp_path / "client.js"), str(port)).splitlines() == ["1.1 1048576 true"] * 2


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssl_resumes(port: int, version: str) -> None:
    output = run("openssl", "s_time", "-connect", f"localhost:{port}", "-www", "/", "-reuse", "-time", "1", version)
    marks = next(line for line in output.splitlines() if line and set(line) <= {"r", "*"})
    assert set(marks) == {"r"}


def test_wrk(port: int) -> None:
    output = run("wrk", "-t1", "-c8", "-d1s", f"https://localhost:{port}/")
    assert "Socket errors" not in output and "Non-2xx" not in output and " requests in " in output


def test_h2load(port: int) -> None:
    output = run("h2load", "-n1000", "-c4", "-m10", f"https://localhost:{port}/")
    assert "1000 succeeded, 0 failed, 0 errored, 0 timeout" in output
