"""The clients' own readers: any cut of the bytes gives the same answers, wrong bytes are noticed."""

from __future__ import annotations

import pytest

from bench.errors import LoadError
from bench.load import http2, websocket
from bench.load.response import Answer, ResponseReader, request_bytes
from bench.load.websocket import BINARY, FrameReader

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n"
)
EMPTY = b"HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
ANSWERS = [Answer(200, 5, False), Answer(201, 15, False), Answer(500, 0, True)]


@pytest.mark.parametrize(
    ("section", "succeeds"),
    [
        pytest.param(b"\x88\x5f", True, id="indexed"),
        pytest.param(b"\x08\x03200", True, id="literal"),
        pytest.param(b"\x18\x03200", True, id="never indexed"),
        pytest.param(b"\x48\x82\x10\x01\x5f", True, id="remembered, in Huffman's code"),
        pytest.param(b"\x8d", False, id="404, indexed"),
        pytest.param(b"\x08\x03503", False, id="503"),
        pytest.param(b"\x0f\x10\x03200", False, id="another field"),
        pytest.param(b"\x48", False, id="cut"),
    ],
)
def test_a_status_is_read_in_every_form(section: bytes, succeeds: bool) -> None:
    assert http2.is_success(section) == succeeds


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_responses_are_the_same_in_any_cut(size: int) -> None:
    data = PLAIN + CHUNKED + EMPTY
    reader, found = ResponseReader(), []
    for start in range(0, len(data), size):
        found += reader.feed(data[start : start + size])
    assert found == ANSWERS


def test_a_chunked_response_may_be_cut_anywhere() -> None:
    for cut in range(1, len(CHUNKED)):
        reader = ResponseReader()
        assert reader.feed(CHUNKED[:cut]) + reader.feed(CHUNKED[cut:]) == [ANSWERS[1]], cut


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"SSH-2.0-x\r\n\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 2xx\r\n\r\n", id="no status"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="no chunk size"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70000, id="endless head"),
    ],
)
def test_what_is_no_response_is_an_error(data: bytes) -> None:
    with pytest.raises(LoadError):
        ResponseReader().feed(data)


def test_a_request_carries_host_and_length() -> None:
    assert request_bytes("POST", "/x", {"A": "b"}, b"12") == (
        b"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nA: b\r\nContent-Length: 2\r\n\r\n12"
    )
    assert b"Content-Length" not in request_bytes("GET", "/", {}, b"")


def _server_frame(payload: bytes) -> bytes:
    frame = websocket.frame(BINARY, payload)
    head = len(frame) - len(payload) - len(websocket.MASK)
    return frame[:1] + bytes([frame[1] & 0x7F]) + frame[2:head] + payload


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65535, 65536])
def test_frames_of_every_length_form_are_read(length: int) -> None:
    payload = b"p" * length
    data = _server_frame(payload) + _server_frame(b"next")
    for cut in (1, 2, 5, 9, len(data) - 1):
        reader = FrameReader()
        assert reader.feed(data[:cut]) + reader.feed(data[cut:]) == [(BINARY, payload), (BINARY, b"next")]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x02\x00", id="fragment"),
        pytest.param(b"\x82\x80", id="masked"),
        pytest.param(b"\xc2\x00", id="reserved"),
    ],
)
def test_frames_no_server_should_send_are_an_error(data: bytes) -> None:
    with pytest.raises(LoadError, match="not a plain server frame"):
        FrameReader().feed(data)
