"""`tests/vectors/files.toml`, which is described there, on every implementation."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.native import http2_client
from tests.protocols.harness import Response, request, respond, serve

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.anyio

FILE = Path(__file__).parent.parent / "vectors" / "files.toml"

MODIFIED = 1704110400

KEYS = {"id", "source", "method", "file", "fields", "status", "body", "headers"}


@dataclass
class Answer:
    """What came, of whichever version of HTTP."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def value(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name.encode()]
        assert len(values) < 2, f"{name} stands there twice"
        return values[0].decode("latin-1") if values else None


Ask = Callable[[str, str, list[str]], Awaitable[Answer]]


@functools.cache
def vectors() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(FILE.read_text(encoding="utf-8"))["vector"]
    for vector in found:
        assert {"id", "source", "fields", "status"} <= set(vector) <= KEYS, vector
    assert len({vector["id"] for vector in found}) == len(found)
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    contents = {
        "alphabet.txt": b"abcdefghijklmnopqrstuvwxyz",
        "alphabet.txt.gz": b"in gzip",
        "alphabet.txt.br": b"in br",
        "plain.txt": b"abcdefghijklmnopqrstuvwxyz",
        "empty": b"",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, (MODIFIED, MODIFIED))
    return tmp_path


def parts_of(answer: Answer) -> list[str]:
    """The contents of the parts of a multipart/byteranges body, whose heads are right (RFC 9110 section 14.6)."""
    kind, _, boundary = (answer.value("content-type") or "").partition("; boundary=")
    assert kind == "multipart/byteranges"
    assert answer.value("content-length") == str(len(answer.body))
    first, *parts, end = (b"\r\n" + answer.body).split(b"\r\n--" + boundary.encode())
    assert (first, end) == (b"", b"--\r\n")
    found = []
    for part in parts:
        head, _, content = part.partition(b"\r\n\r\n")
        assert head.startswith(b"\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-range: bytes ")
        begin, _, last = head.rpartition(b" ")[2].partition(b"/")[0].partition(b"-")
        assert content == b"abcdefghijklmnopqrstuvwxyz"[int(begin) : int(last) + 1]
        found.append(content.decode())
    return found


async def replay(ask: Ask) -> None:
    tags = {}
    for name, fields in (("etag", []), ("gzip", ["accept-encoding: gzip"]), ("br", ["accept-encoding: br"])):
        tags[name] = (await ask("HEAD", "/static/alphabet.txt", fields)).value("etag")
    assert len(set(tags.values())) == 3
    for vector in vectors():
        fields = [line.replace("{etag}", tags["etag"] or "") for line in vector["fields"]]
        fields = [line.replace("{gzip}", tags["gzip"] or "") for line in fields]
        answer = await ask(vector.get("method", "GET"), f"/static/{vector.get('file', 'alphabet.txt')}", fields)
        seen = f"{vector['id']}: {answer}"
        assert answer.status == vector["status"], seen
        expected = vector.get("body")
        if isinstance(expected, list):
            assert parts_of(answer) == expected, seen
        elif expected is not None:
            assert answer.body.decode() == expected, seen
        for name, value in vector.get("headers", {}).items():
            wanted = value and value.format(**tags) if value else None
            assert answer.value(name) == wanted, seen


async def test_over_http_1(http_protocol_cls: Any, directory: Path) -> None:
    """S1: each is answered as RFC 9110 says, and the connection serves the next."""
    async with serve(http_protocol_cls, respond(), mount=f"/static={directory}") as service:
        client = await service.connect()

        async def ask(method: str, target: str, fields: list[str]) -> Answer:
            response: Response = await client.ask(request(method, target, *fields), method)
            return Answer(response.status, response.headers, response.body)

        await replay(ask)


async def test_over_http_2(directory: Path) -> None:
    pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    native = importlib.import_module("uvicorn.protocols.http.native_impl").NativeProtocol
    async with serve(native, respond(), mount=f"/static={directory}", http2=True) as service:
        client = await http2_client.connect(service)

        async def ask(method: str, target: str, fields: list[str]) -> Answer:
            pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in fields)]
            answer = await client.ask(target, *pairs, method=method)
            return Answer(answer.status, answer.headers, answer.body)

        await replay(ask)
