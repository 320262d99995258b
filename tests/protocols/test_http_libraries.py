"""The libraries that tokenise header sections: what they are asked; nothing of one head is left for the next."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.head import HeadLimits, RequestRefused, match_head, split_fields
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LINE = b"GET / HTTP/1.1\r\n"

FIELDS = st.sampled_from(
    [
        *(b"Host: a", b"X-A: 1", b"x-b:\t two \t", b"Empty:", b"Cookie: \xe9\xff"),
        *(
            b"Connection: close",
            b"Connection: keep-alive",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Upgrade: h2c",
        ),
        *(b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: 3, 3", b"Content-Length: x", b"Expect: tea"),
        *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Transfer-Encoding: Chunked, chunked"),
        *(b"Proxy-Connection: close", b"HTTP2-Settings: AAMA", b"Trailer: x", b"Keep-Alive: timeout=5"),
    ]
)
HEADS = st.lists(FIELDS, max_size=6).map(lambda fields: LINE + b"".join(field + b"\r\n" for field in fields) + b"\r\n")


def bare(kind: Any, limit_fields: int = 256) -> Any:
    """A protocol without a connection around it."""
    protocol = object.__new__(kind)
    protocol.settings = SimpleNamespace(limits=HeadLimits(1000, limit_fields, 1000), poisoned=False)
    return protocol


@pytest.fixture(params=[pytest.param(HttpToolsProtocol, id="httptools"), pytest.param(H11Protocol, id="h11")])
def parse_fields(request: pytest.FixtureRequest) -> Any:
    """The one method an implementation has, without a connection around it."""
    protocol = bare(request.param)
    return lambda head: protocol.parse_fields(head, len(LINE))


def fields_or_refusal(parse_fields: Any, head: bytes) -> Any:
    try:
        return parse_fields(head)
    except RequestRefused as refused:
        return refused.status


def test_libraries_are_asked_about_heads_alone() -> None:
    """What is behind a head is the same code for both: its tests need not be run with each (`tests/machines.py`)."""
    class_body = {"__module__", "__doc__", "__slots__", "__firstlineno__", "__static_attributes__"}
    for kind in (HttpToolsProtocol, H11Protocol):
        own = vars(kind).keys() - class_body - {"never_called"}
        assert own - {"cycle_class"} <= {"parse_fields", "head_limit"}, kind
    assert HttpToolsProtocol.cycle_class() is H11Protocol.cycle_class()


def test_fields_are_those_that_were_sent(parse_fields: Any) -> None:
    """SCO-14, SCO-15"""
    head = LINE + b"HOST: a\r\nX-b:\t1 \t\r\nx-B: \xe9\r\nEmpty:\r\nTransfer-Encoding: Chunked\r\n\r\n"
    assert parse_fields(head) == [
        (b"host", b"a"),
        (b"x-b", b"1"),
        (b"x-b", b"\xe9"),
        (b"empty", b""),
        (b"transfer-encoding", b"Chunked"),
    ]


def test_what_the_library_refuses_is_a_refusal(parse_fields: Any) -> None:
    for value in (b"Content-Length: x", b"Content-Length: 1\r\nContent-Length: 2"):
        with pytest.raises(RequestRefused) as caught:
            parse_fields(LINE + b"Host: a\r\n" + value + b"\r\n\r\n")
        assert caught.value.status == 400
        assert caught.value.__cause__ is not None


@pytest.mark.no_cover
@given(st.lists(HEADS, max_size=8))
def test_heads_of_other_connections_change_nothing(heads: list[bytes]) -> None:
    """llhttp's parser is shared: whatever was read before, a head gives the fields it gives alone."""
    protocol = bare(HttpToolsProtocol)

    def parse(head: bytes) -> Any:
        return protocol.parse_fields(head, len(LINE))

    for head in [*heads, LINE + b"Host: last\r\n\r\n"]:
        assert match_head(head)
        found = fields_or_refusal(parse, head)
        assert found in (split_fields(head, len(LINE)), 400)
    assert found == [(b"host", b"last")]


@pytest.mark.no_cover
@given(HEADS)
def test_libraries_agree_with_our_own_reading(head: bytes) -> None:
    """Where they take a head at all."""
    for kind in (HttpToolsProtocol, H11Protocol):
        protocol = bare(kind)
        found = fields_or_refusal(lambda data, protocol=protocol: protocol.parse_fields(data, len(LINE)), head)
        assert found in (split_fields(head, len(LINE)), 400)


def test_h11_is_not_asked_about_more_fields_than_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """D2: for each of thousands it would take ten times as long as counting them."""
    protocol = bare(H11Protocol, limit_fields=2)
    assert len(protocol.parse_fields(LINE + b"Host: a\r\nA:\r\n\r\n", len(LINE))) == 2
    monkeypatch.setattr(h11, "Connection", None)
    with pytest.raises(RequestRefused) as refused:
        protocol.parse_fields(LINE + b"Host: a\r\nA:\r\nA:\r\n\r\n", len(LINE))
    assert refused.value.status == 431
