"""Encoding of responses, as functions. What it means for a connection is in test_http_responses."""

from __future__ import annotations

import http
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uvicorn.protocols.http.wire import response as encoding
from uvicorn.protocols.http.wire.response import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    BodyFraming,
    ResponseHead,
    check_status,
    encode_chunk,
    encode_head,
    encode_line,
    error_response,
)
from uvicorn.rules.status import STATUS_PHRASES

NONE, LENGTH, CHUNKED, CLOSE = BodyFraming.NONE, BodyFraming.LENGTH, BodyFraming.CHUNKED, BodyFraming.CLOSE
FIVE = (b"content-length", b"5")
CODED = (b"transfer-encoding", b"chunked")


def lines(head: ResponseHead) -> list[bytes]:
    assert head.data.endswith(b"\r\n\r\n")
    return head.data[:-4].split(b"\r\n")[1:]


def test_status_lines_are_complete() -> None:
    """RES-07, RES-08"""
    assert set(STATUS_LINE) == set(STATUS_PHRASES) == set(range(100, 600))
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
    assert STATUS_LINE[299] == b"HTTP/1.1 299 \r\n"
    renamed = {413, 414, 416, 422}
    assert all(STATUS_PHRASES[status] == status.phrase for status in http.HTTPStatus if status not in renamed)
    assert STATUS_PHRASES[413] == "Content Too Large"


@pytest.mark.parametrize("status", [200, 599, http.HTTPStatus.NOT_FOUND])
def test_status_that_may_be_sent(status: int) -> None:
    assert check_status(status) == STATUS_LINE[status]


@pytest.mark.parametrize("status", [-1, 0, 99, 100, 199, 600, 1000, True])
def test_status_that_may_not_be_sent(status: int) -> None:
    """R8, RES-09"""
    with pytest.raises(RuntimeError, match=f"'{int(status)}'"):
        check_status(status)


@pytest.mark.parametrize("status", ["200", 200.0, None, b"200"])
def test_status_that_is_no_number(status: Any) -> None:
    """R8"""
    with pytest.raises(TypeError):
        check_status(status)


# Header lines


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_line_is_one_line_or_an_error(name: bytes, value: bytes) -> None:
    """R1: nothing an application sends can write a second line."""
    try:
        line, _, _ = encode_line((name, value))
    except RuntimeError:
        assert not name or HEADER_RE.search(name) or HEADER_VALUE_RE.search(value) or name.lower() == b"content-length"
    else:
        assert line == name.lower() + b": " + value.strip(b" \t") + b"\r\n"
        assert b"\n" not in line[:-2]
        assert b"\r" not in line[:-2]
        assert b"\0" not in line


def test_lines_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """R9: neither many lines nor long ones fill the memory."""
    monkeypatch.setattr(encoding, "_lines", {})
    for number in range(3 * encoding._LINES):
        encode_line((b"x", b"%d" % number))
        encode_line((b"x", b"%d" % number + b"a" * encoding._LINE_BYTES))
        assert len(encoding._lines) <= encoding._LINES
    assert max(len(line) for line, _, _ in encoding._lines.values()) <= encoding._LINE_BYTES


def test_line_is_checked_again_if_it_looks_like_one_that_was_good() -> None:
    """R1: equal keys are equal bytes."""
    line = encode_head(200, [(b"x", b"1")], b"").data
    for header in ((b"x", b"1"), (bytearray(b"x"), b"1"), (b"x", memoryview(b"1"))):
        assert encode_head(200, [header], b"").data == line  # type: ignore[list-item]
    with pytest.raises(TypeError):
        encode_head(200, [("x", "1")], b"")  # type: ignore[list-item]


# Framing


@pytest.mark.parametrize(
    ("status", "headers", "options", "framing", "length", "close", "expected"),
    [
        pytest.param(200, [FIVE], {}, LENGTH, 5, False, [b"content-length: 5"], id="length"),
        pytest.param(200, [], {}, CHUNKED, 0, False, [b"transfer-encoding: chunked"], id="RES-10"),
        pytest.param(200, [], {"http_10": True}, CLOSE, 0, True, [b"connection: close"], id="RES-13"),
        pytest.param(200, [CODED], {"http_10": True}, CLOSE, 0, True, [b"connection: close"], id="coding-to-1.0"),
        pytest.param(
            200, [FIVE], {"http_10": True}, LENGTH, 5, True, [b"content-length: 5", b"connection: close"], id="RES-14"
        ),
        pytest.param(200, [FIVE], {"head_request": True}, NONE, 5, False, [b"content-length: 5"], id="HEAD"),
        pytest.param(200, [], {"head_request": True}, NONE, 0, False, [], id="RES-11"),
        pytest.param(
            200, [CODED], {"head_request": True}, NONE, 0, False, [b"transfer-encoding: chunked"], id="HEAD-te"
        ),
        pytest.param(204, [FIVE, CODED], {}, NONE, 5, False, [], id="204"),
        pytest.param(205, [FIVE, CODED], {}, NONE, 5, False, [b"content-length: 0"], id="205"),
        pytest.param(
            205, [], {"http_10": True}, NONE, 0, True, [b"content-length: 0", b"connection: close"], id="205-1.0"
        ),
        pytest.param(304, [FIVE], {}, NONE, 5, False, [b"content-length: 5"], id="304"),
        pytest.param(304, [], {}, NONE, 0, False, [], id="304-bare"),
        pytest.param(200, [FIVE, CODED], {}, CHUNKED, 5, False, [b"transfer-encoding: chunked"], id="R3-RES-19"),
        pytest.param(200, [CODED, FIVE], {}, CHUNKED, 5, False, [b"transfer-encoding: chunked"], id="R3-other-order"),
        pytest.param(200, [FIVE, FIVE], {}, LENGTH, 5, False, [b"content-length: 5"], id="RES-20"),
        pytest.param(
            200,
            [FIVE, (b"content-length", b"5 ")],
            {},
            LENGTH,
            5,
            False,
            [b"content-length: 5"],
            id="equal-when-stripped",
        ),
        pytest.param(
            200, [FIVE], {"close": True}, LENGTH, 5, True, [b"content-length: 5", b"connection: close"], id="RES-23"
        ),
        pytest.param(
            200,
            [(b"connection", b"Close"), FIVE],
            {"close": True},
            LENGTH,
            5,
            True,
            [b"connection: Close", b"content-length: 5"],
            id="RES-24",
        ),
        pytest.param(
            200,
            [(b"connection", b"keep-alive"), FIVE],
            {"close": True},
            LENGTH,
            5,
            True,
            [b"content-length: 5", b"connection: close"],
            id="RES-25",
        ),
        pytest.param(
            200,
            [(b"connection", b"keep-alive"), FIVE],
            {},
            LENGTH,
            5,
            False,
            [b"connection: keep-alive", b"content-length: 5"],
            id="keep-alive",
        ),
        pytest.param(
            200,
            [(b"connection", b"upgrade"), (b"connection", b"x, close"), FIVE],
            {},
            LENGTH,
            5,
            True,
            [b"connection: upgrade", b"connection: x, close", b"content-length: 5"],
            id="close-in-a-list",
        ),
    ],
)
def test_framing(
    status: int, headers: Any, options: Any, framing: Any, length: int, close: bool, expected: list[bytes]
) -> None:
    head = encode_head(status, headers, b"", **options)
    assert (head.framing, head.length, head.close) == (framing, length, close)
    assert lines(head) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([b"Chunked"], b"chunked", id="RES-17"),
        pytest.param([b"gzip"], b"gzip, chunked", id="RES-18"),
        pytest.param([b"GZIP, chunked"], b"gzip, chunked", id="last"),
        pytest.param([b"gzip", b"chunked"], b"gzip, chunked", id="two-fields"),
        pytest.param([b"chunked, gzip", b"chunked"], b"gzip, chunked", id="once"),
        pytest.param([b""], b"chunked", id="empty"),
    ],
)
def test_chunked_is_the_last_coding_and_there_once(values: list[bytes], expected: bytes) -> None:
    head = encode_head(200, [(b"transfer-encoding", value) for value in values], b"")
    assert lines(head) == [b"transfer-encoding: " + expected]
    assert head.framing is CHUNKED


def test_coding_behind_chunked_is_an_error() -> None:
    """RES-18; RFC 9112 section 6.1: chunked is the last coding."""
    with pytest.raises(RuntimeError, match="Transfer-Encoding"):
        encode_head(200, [CODED, (b"transfer-encoding", b"gzip")], b"")


@given(
    status=st.sampled_from([200, 204, 205, 304, 404, 500]),
    headers=st.lists(
        st.sampled_from(
            [
                FIVE,
                CODED,
                (b"Content-Length", b"5"),
                (b"Transfer-Encoding", b"CHUNKED"),
                (b"connection", b"close"),
                (b"Connection", b"keep-alive"),
                (b"connection", b"x"),
                (b"x", b"y"),
            ]
        ),
        max_size=5,
    ),
    head_request=st.booleans(),
    http_10=st.booleans(),
    close=st.booleans(),
)
def test_head_never_contradicts_itself(
    status: int, headers: Any, head_request: bool, http_10: bool, close: bool
) -> None:
    """R3, R5, R6: whatever the application sends."""
    head = encode_head(status, headers, b"server: s\r\n", head_request, http_10, close)
    names = [line.partition(b":")[0] for line in lines(head)]
    says_close = any(b"close" in line for line in lines(head) if line.startswith(b"connection"))
    assert names[0] == b"server"
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    assert says_close is head.close
    assert head.close or not (close or http_10)
    assert names.count(b"x") == headers.count((b"x", b"y"))
    if head_request or status in (204, 205, 304):
        assert head.framing is NONE
    elif b"content-length" in names:
        assert (head.framing, head.length) == (LENGTH, 5)
    elif http_10:
        assert head.framing is CLOSE
    else:
        assert head.framing is CHUNKED
        assert b"transfer-encoding" in names
    if status == 204:
        assert b"content-length" not in names
    if status == 205:
        assert b"content-length: 0" in lines(head)
    if status in (204, 205):
        assert b"transfer-encoding" not in names
    if http_10:
        assert b"transfer-encoding" not in names


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-length", b"1"), (b"content-length", b"2")],
        [(b"content-length", b"a")],
        [(b"content-length", b"")],
        [(b"content-length", b"-1")],
    ],
)
def test_length_that_says_nothing_is_an_error(headers: Any) -> None:
    """ERR-17"""
    with pytest.raises(RuntimeError):
        encode_head(200, headers, b"")


# Bodies


@given(st.lists(st.binary(max_size=40), max_size=6), st.binary(max_size=40))
def test_chunks_say_what_they_hold(pieces: list[bytes], last: bytes) -> None:
    """RES-15, RES-16"""
    data = b"".join(encode_chunk(piece, False) for piece in pieces) + encode_chunk(last, True)
    body = b""
    while True:
        size, _, rest = data.partition(b"\r\n")
        assert size == b"%x" % int(size, 16)
        body, data = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        if size == b"0":
            break
    assert data == b""
    assert body == b"".join(pieces) + last


def test_empty_piece_in_the_middle_is_nothing() -> None:
    """RES-15: it would end the body."""
    assert encode_chunk(b"", False) == b""
    assert encode_chunk(b"", True) == b"0\r\n\r\n"


def test_error_response_is_whole() -> None:
    """REQ-02, REQ-03"""
    assert error_response(400, b"why", b"x: y\r\n") == (
        b"HTTP/1.1 400 Bad Request\r\nx: y\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 3\r\n"
        b"connection: close\r\n\r\nwhy"
    )
