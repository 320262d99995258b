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
from uvicorn.protocols.http.head import HeadLimits, RequestRefused, look_at, match_head, split_fields
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.http.recurring import Recurring
from uvicorn.protocols.http.request_reader import HEAD, Known, Piece, RequestReader

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
        assert vars(kind.cycle_class()).keys() <= class_body
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
    assert not machine.pending and not machine.more
