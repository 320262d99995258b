"""The same bytes mean the same to every implementation, whatever they are.

Inputs are put together from good and bad parts of messages, or are vectors with a few bytes changed. Compared are the
application's responses, the requests that reached it whole (scope and body), and that the connection ends. What is left
to each is the refusal at the end: a message with two faults may be refused for either, and one that is hopeless already
at once or when the client gives up; the vectors see to its status. Besides, no input may make a server send anything
but responses, or a status that is not its to give.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.utils import NATIVE
from tests.vectors.judge import Observation
from tests.vectors.loader import load
from tests.vectors.replay import observe
from tests.vectors.responses import parse

IMPLEMENTATIONS = (
    "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol",
    "uvicorn.protocols.http.h11_impl:H11Protocol",
    *(["uvicorn.protocols.http.native_impl:NativeProtocol"] if NATIVE else []),
)

#: What may answer a client's bytes when the application only ever says 200.
STATUSES = {100, 200, 400, 408, 413, 414, 417, 421, 431, 501, 505}

#: Vectors worth changing: the long ones differ from these in length only.
SEEDS = [vector.data for vector in load() if len(vector.data) <= 512]

#: Bytes that mean something somewhere in a request, and some that never do.
BYTES = st.sampled_from([*b'\r\n\t :;,=/?#*%"\\0159aAfFgGHxX[]@+-.(\0\x0b\x7f\x80\xff'])


def mostly(good: Sequence[str], other: Sequence[str]) -> st.SearchStrategy[str]:
    """One of the good ones, nine times out of ten."""
    return st.sampled_from([*good] * (-(-9 * len(other) // len(good))) + [*other])


METHODS = mostly(["GET", "POST", "HEAD", "FOO"], ["OPTIONS", "CONNECT", "get", "G#T", ""])
TARGETS = mostly(["/", "/a?b=c", "http://b/c", "/%2F%ff"], ["*", "http://b", "b:80", "/#", "foo", "/%zz", "?a", ""])
VERSIONS = mostly(["HTTP/1.1"], ["HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 "])
ENDS = mostly(["\r\n"], ["\n", "\r", "\r\r\n"])
HOSTS = mostly(["Host: a"], ["Host: b:80", "host:\ta", "Host: a b", "Host:", "X: y"])
FIELDS = mostly(
    ["X-A: \t b \x80\xff\t ", "X-A:", "Connection: keep-alive", "Content-Type: a"],
    [
        "Host: a",
        "Connection: close",
        "Connection: keep-alive, Upgrade",
        "Upgrade: h2c",
        "Expect: 100-continue",
        "Expect: foo",
        "TE: chunked",
        " folded",
        "X-A : b",
        "no colon",
    ],
)
FRAMINGS = mostly(
    ["", "Content-Length: 5", "Transfer-Encoding: chunked"],
    [
        "Content-Length: 0",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked,",
    ],
)
#: By framing; any other body now and then.
BODIES = {
    "": [""],
    "Content-Length: 5": ["hello"],
    "Transfer-Encoding: chunked": [
        "5\r\nhello\r\n0\r\n\r\n",
        "2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX-A: b\r\n\r\n",
        "0\r\n\r\n",
    ],
}
BROKEN_BODIES = ["hell", "5\r\nhelloXX0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5\r\nhel"]


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Up to three messages, each of parts that are mostly good."""
    text = ""
    for _ in range(draw(st.integers(1, 3))):
        framing = draw(FRAMINGS)
        fields = [draw(HOSTS), *draw(st.lists(FIELDS, max_size=3)), *filter(None, [framing])]
        text += f"{draw(METHODS)} {draw(TARGETS)} {draw(VERSIONS)}{draw(ENDS)}"
        text += "".join(line + draw(ENDS) for line in draw(st.permutations(fields)))
        text += draw(ENDS) + draw(mostly(BODIES.get(framing, ["hello"]), BROKEN_BODIES))
    return text.encode("latin-1")


@st.composite
def changed_vectors(draw: st.DrawFn) -> bytes:
    """A vector in which up to four bytes were put in, taken out or replaced."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        taken = draw(st.integers(0, 1))
        data[at : at + taken] = bytes(draw(st.lists(BYTES, max_size=1)))
    return bytes(data)


def implementations() -> list[Any]:
    """The protocol classes."""
    paths = [path.partition(":") for path in IMPLEMENTATIONS]
    return [getattr(importlib.import_module(module), name) for module, _, name in paths]


def fields_of(headers: Any) -> list[tuple[bytes, bytes]]:
    """The fields of a request. h11 hands on a content-length without its leading zeros."""
    return [(name, value.lstrip(b"0") or b"0" if name == b"content-length" else value) for name, value in headers]


def outcome(seen: Observation) -> dict[str, Any]:
    """What implementations must agree on."""
    assert seen.requests is not None
    # What is refused has not reached the application; that it was a HEAD is told by the answer, which has no content.
    refused = "HEAD" if seen.output.endswith(b"\r\n\r\n") else "GET"
    methods = [*(request.scope["method"] for request in seen.requests), refused]
    responses = parse(seen.output, methods, ended=seen.closed)
    assert {response.status for response in responses} <= STATUSES
    assert [fault for response in responses for fault in response.faults] == []
    assert all(response.status < 400 for response in responses[:-1]), "something follows a refusal"
    whole = [request for request in seen.requests if request.complete]
    keys = ("method", "raw_path", "path", "query_string", "http_version")
    return {
        "responses": [response.status for response in responses if response.status < 400],
        "requests": [
            ({key: request.scope[key] for key in keys}, fields_of(request.scope["headers"]), request.body)
            for request in whole
        ],
        "closed": seen.closed,
    }


@pytest.mark.no_cover
@pytest.mark.anyio
@settings(max_examples=150, database=None)
@given(data=messages() | changed_vectors())
async def test_bytes_have_one_meaning(data: bytes) -> None:
    await require_one_meaning(data)


@pytest.mark.deep
@pytest.mark.no_cover
@pytest.mark.anyio
@settings(max_examples=1500, database=None)
@given(data=messages() | changed_vectors())
async def test_more_bytes_have_one_meaning(data: bytes) -> None:
    await require_one_meaning(data)


async def require_one_meaning(data: bytes) -> None:
    first, *others = [outcome(await observe(protocol, data)) for protocol in implementations()]
    for other in others:
        assert other == first
    assert first["closed"]
