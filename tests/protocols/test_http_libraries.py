"""What the libraries read behind the rules: the fields that were sent, and never a head that the rules refuse."""

from __future__ import annotations

from typing import Any

import h11
import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols import harness
from tests.protocols.harness import Calls
from uvicorn.protocols.http.cycle import RequestResponseCycle
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.http.scope import ScopeBase
from uvicorn.protocols.http.wire.head import (
    PLAIN,
    HeadLimits,
    RequestRefused,
    look_at,
    match_head,
    native_field_list,
    native_reader,
    split_fields,
)
from uvicorn.protocols.http.wire.recurring import Recurring
from uvicorn.protocols.http.wire.request_reader import HEAD, Known, Piece, RequestReader

LINE = b"GET / HTTP/1.1\r\n"

FIELDS = st.sampled_from(
    [
        *(b"Host: a", b"X-A: 1", b"x-b:\t two \t", b"Empty:", b"Cookie: \xe9\xff"),
        *(b"Connection: close", b"Connection: keep-alive", b"Upgrade: websocket", b"Upgrade: h2c"),
        *(b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: 3, 3", b"Content-Length: x", b"Expect: tea"),
        *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Transfer-Encoding: Chunked, chunked"),
        *(b"Proxy-Connection: close", b"HTTP2-Settings: AAMA", b"Trailer: x", b"Keep-Alive: timeout=5"),
    ]
)
BYTES = st.text(alphabet="aZ-:  \t\x00\x01\x7f\x80\xff\n!~@(\x1f", max_size=12).map(lambda text: text.encode("latin-1"))


def head_of(lines: list[bytes]) -> bytes:
    return LINE + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def by_llhttp(head: bytes) -> Any:
    fields: list[tuple[bytes, bytes]] = []

    class Parser:
        def on_header(self, name: bytes, value: bytes) -> None:
            fields.append((name.lower(), value.strip(b" \t")))

    try:
        httptools.HttpRequestParser(Parser()).feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        return None
    return fields


def by_h11(head: bytes) -> Any:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(head)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    assert isinstance(event, h11.Request)
    # It lowers codings, and joins lengths that are equal.
    return [(name, value) for name, value in event.headers if name not in (b"transfer-encoding", b"content-length")]


LIMITS = HeadLimits(1000, 20, 100)


@pytest.mark.no_cover
@given(st.lists(FIELDS | BYTES.filter(bool), max_size=6))
def test_libraries_read_what_the_rules_take(lines: list[bytes]) -> None:
    """U1"""
    head = head_of([b"Host: a", *lines])
    try:
        look_at(head, LIMITS, None)
    except RequestRefused:
        return
    ours = split_fields(head, len(LINE))
    framing = (b"transfer-encoding", b"content-length")
    assert by_llhttp(head) in (ours, None)
    assert by_h11(head) == [field for field in ours if field[0] not in framing]
    assert by_llhttp(head) is not None or b"ransfer" in head  # "chunked" with a tab behind it


@pytest.mark.no_cover
@given(BYTES.filter(bool))
def test_line_is_a_field_where_the_rules_say_so(line: bytes) -> None:
    """U1"""
    head = head_of([line])
    if match_head(head) is not None:
        assert by_llhttp(head) == split_fields(head, len(LINE))


def test_cycles_are_one_class_but_for_their_names() -> None:
    """What is behind a head is the same code for both: its tests need not be run with each (`tests/machines.py`)."""
    class_body = {"__module__", "__doc__", "__slots__", "__dict__", "__firstlineno__", "__static_attributes__"}
    for kind in (HttpToolsProtocol, H11Protocol):
        assert vars(kind.cycle_class()).keys() <= class_body | {"__init__"}  # upstream's, for whoever replaces it
    assert HttpToolsProtocol.cycle_class().__base__ is H11Protocol.cycle_class().__base__ is RequestResponseCycle


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [HttpToolsProtocol, H11Protocol])
async def test_fields_are_those_that_were_sent(kind: Any) -> None:
    """SCO-14, SCO-15"""
    app = Calls()
    lines = [b"HOST: a", b"X-b:\t1 \t", b"x-B: \xe9", b"Empty:", b"Transfer-Encoding: Chunked\t"]
    async with harness.serve(kind, app) as service:
        client = await service.connect()
        await client.send(head_of(lines) + b"0\r\n\r\n")
        assert (await client.response()).status == 200
    assert app.scope["headers"] == [
        (b"host", b"a"),
        (b"x-b", b"1"),
        (b"x-b", b"\xe9"),
        (b"empty", b""),
        (b"transfer-encoding", b"Chunked"),
    ]


# The same look taken natively.

EXTENSIONS = ("http.response.trailers", "http.response.pathsend")
METHODS = st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS", b"CONNECT", b"PURGE", b"get", b"G#T", b"A" * 40])
TARGETS = st.sampled_from(
    [
        *(b"/", b"/a?", b"/a?b=c?d", b"/%e9?%x", b"/%x", b"//a", b"*", b"http://b/c", b"https://b", b"b:1", b"/a#b"),
        *(b"/" + b"a" * 98, b"/" + b"a" * 99, b"/" + b"a" * 100, b"/{}|", b"?", b""),
    ]
)
VERSIONS = st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/1.1 ", b"http/1.1"])
SPECIAL = st.sampled_from(
    [
        *(
            b"Host: b",
            b"Host:",
            b"hOST:  b:80 ",
            b"Host: b:x",
            b"X-Forwarded-For: 1.1.1.1",
            b"x-forwarded-proto: https",
        ),
        *(b"Expect: 100-continue", b"Expect: 100-Continue, ", b"Connection: upgrade,close", b"Connection: Upgrade"),
        *(b"Upgrade: WebSocket, h2c", b"Content-Length: 10", b"Content-Length: 11", b"Content-Length: 007"),
        *(b"Transfer-Encoding: chunked ", b"Content-Length: 99999999999999999999", b"Upgrade:", b"X-A:" + b"b" * 400),
    ]
)
LINES = st.lists(FIELDS | SPECIAL | BYTES.filter(bool), max_size=22)


def looked_at(head: bytes, limits: HeadLimits, limit_body: int | None) -> Any:
    try:
        return look_at(head, limits, limit_body)
    except RequestRefused:
        return None


@pytest.mark.no_cover
@given(METHODS, TARGETS, VERSIONS, st.sampled_from([[b"Host: a"], []]), LINES, st.sampled_from([None, 10]))
def test_native_look_is_the_same(
    method: bytes, target: bytes, version: bytes, host: list[bytes], lines: list[bytes], limit_body: int | None
) -> None:
    """It may leave a head to Python, but nothing that most requests have."""
    read = native_reader(LIMITS, limit_body, "", EXTENSIONS)
    if read is None:
        pytest.skip("the native core is not there, or not wanted")
    head = b"%b %b %b\r\n%b\r\n" % (method, target, version, b"".join(line + b"\r\n" for line in [*host, *lines]))
    look, found = looked_at(head, LIMITS, limit_body), read(head)
    if found is None:
        assert look is None or look[3] is not None or target == b"*" or version == b"HTTP/1.2"
        return
    natively, line = found
    assert natively == look
    # What is plain is known by being this object.
    assert (natively[5] is PLAIN) == (look[5] is PLAIN)
    whole = ScopeBase("3.0", "http", None, None, "", {}, EXTENSIONS).line(*natively[:3])
    assert line == whole or (line is None and (b"%" in target or version == b"HTTP/1.0"))


def test_native_look_leaves_paths_with_a_root_path_to_python() -> None:
    read = native_reader(LIMITS, None, "/api", EXTENSIONS)
    if read is None:
        pytest.skip("the native core is not there, or not wanted")
    found = read(head_of([b"Host: a"]))
    assert found is not None and found[0][1] == b"/" and found[1] is None


@pytest.mark.no_cover
@given(LINES)
def test_fields_are_gathered_natively_as_in_python(lines: list[bytes]) -> None:
    if native_reader(LIMITS, None, "", EXTENSIONS) is None:
        pytest.skip("the native core is not there, or not wanted")
    head = head_of([b"Host: a", *lines])
    if looked_at(head, LIMITS, None) is None:
        return
    fields: Any = native_field_list()
    try:
        httptools.HttpRequestParser(fields).feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        return
    assert fields.take() == split_fields(head, len(LINE))
    assert fields.take() == []


@pytest.mark.parametrize("kind", [HttpToolsProtocol, H11Protocol])
@pytest.mark.parametrize("chosen", ["none", "heads", "events", "heads,events"])
@pytest.mark.anyio
async def test_application_cannot_tell_how_a_head_was_read(
    kind: Any, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UVICORN_SHORTCUTS", chosen)
    app = Calls()
    lines = [b"HOST: a", b"X-b:\t1 \t", b"x-B: \xe9", b"Empty:", b"User-Agent: b"]
    async with harness.serve(kind, app) as service:
        client = await service.connect()
        for target in (b"/", b"/a%20b?c=%20", b"/?", b"http://b/c?d"):
            await client.send(head_of(lines).replace(b"/", target, 1))
            assert (await client.response()).status == 200
    scopes = app.scopes
    keys = ("method", "http_version", "path", "raw_path", "query_string")
    assert [tuple(scope[key] for key in keys) for scope in scopes] == [
        ("GET", "1.1", "/", b"/", b""),
        ("GET", "1.1", "/a b", b"/a%20b", b"c=%20"),
        ("GET", "1.1", "/", b"/", b""),
        ("GET", "1.1", "/c", b"/c", b"d"),
    ]
    fields = [(b"x-b", b"1"), (b"x-b", b"\xe9"), (b"empty", b""), (b"user-agent", b"b")]
    assert [scope["headers"] for scope in scopes] == [[(b"host", b"a"), *fields]] * 3 + [[(b"host", b"b"), *fields]]


# The machine around it, without a connection.


def reader(fields: int = 8) -> RequestReader:
    memory: Recurring[Known] = Recurring(1, longest=100)
    return RequestReader(HeadLimits(1000, fields, 100), None, memory)


def test_more_fields_than_are_taken_are_not_read() -> None:
    """D2"""
    machine = reader(fields=2)
    with pytest.raises(RequestRefused) as refused:
        machine.receive(head_of([b"Host: a", b"A:", b"A:"]))
    assert refused.value.status == 431


def test_bytes_in_events_out() -> None:
    """Requests behind one that is not answered wait for their turn."""
    machine = reader()
    first = head_of([b"Host: a", b"Content-Length: 3"])
    event = machine.receive(first + b"a")
    assert event is not None and not isinstance(event, Piece) and event[3] is None
    assert machine.read() == Piece(b"a", 1, False)
    assert machine.read() is None
    assert machine.receive(b"bc" + head_of([b"Host: b"])) == Piece(b"bc", 2, True)
    assert machine.read() is None
    assert machine.pending == head_of([b"Host: b"])
    machine.state = HEAD
    event = machine.resume()
    assert event is not None and not isinstance(event, Piece) and event[0] == head_of([b"Host: b"])
    assert not machine.pending and not machine.unread
