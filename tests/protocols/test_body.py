"""The body decoders: exact, bounded, and the same however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uvicorn.protocols.http.body import (
    MAX_CHUNK_LINE,
    MAX_EXTENSION_BYTES,
    MAX_TRAILER_BYTES,
    ChunkedDecoder,
    LengthDecoder,
)
from uvicorn.protocols.http.head import RequestRefused


def decode(decoder: Any, *pieces: bytes) -> tuple[bytes, bytes]:
    """The body in these pieces, and what is left of them behind it."""
    body = b""
    for number, piece in enumerate(pieces):
        position = 0
        while position < len(piece):
            if decoder.done:
                return body, piece[position:] + b"".join(pieces[number + 1 :])
            part, position = decoder.decode(piece, position)
            body += part
    return body, b""


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(marks)]


PLACES = st.lists(st.integers(0, 10_000), max_size=8)


@given(st.binary(max_size=100), st.binary(max_size=20), PLACES)
def test_length_takes_exactly_its_bytes(body: bytes, following: bytes, places: list[int]) -> None:
    decoder = LengthDecoder(len(body))
    assert decode(decoder, *cut(body + following, places)) == (body, following)
    assert decoder.done
    assert decoder.remaining == 0


def test_length_knows_what_is_missing() -> None:
    decoder = LengthDecoder(10)
    assert decode(decoder, b"abc", b"de") == (b"abcde", b"")
    assert (decoder.remaining, decoder.done) == (5, False)


def test_length_of_zero_is_done() -> None:
    assert LengthDecoder(0).done


def test_whole_read_is_not_copied() -> None:
    data = bytes(100)
    body, _ = LengthDecoder(100).decode(data, 0)
    assert body is data


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.sampled_from([b"", b";a", b" ; a=b", b';a="\\"x;"', b";a=1;b\t=\t2"]),
    st.sampled_from([b"", b"X: y\r\n", b"X:\r\nHost: z\r\n"]),
    st.binary(max_size=20),
    PLACES,
)
def test_chunks_are_joined_wherever_they_are_cut(
    chunks: list[bytes], extension: bytes, trailers: bytes, following: bytes, places: list[int]
) -> None:
    """REQ-23, U6: encode then decode is the identity."""
    data = b"".join(b"%X%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
    data += b"0%b\r\n%b\r\n" % (extension, trailers)
    decoder = ChunkedDecoder(10)
    assert decode(decoder, *cut(data + following, places)) == (b"".join(chunks), following)
    assert decoder.done


def test_chunked_in_single_bytes() -> None:
    data = b"3;a=b\r\nabc\r\n00a\r\n0123456789\r\n0\r\nA: b\r\n\r\nnext"
    decoder = ChunkedDecoder(10)
    assert decode(decoder, *(data[at : at + 1] for at in range(len(data)))) == (b"abc0123456789", b"next")


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"0x10\r\n",
            b"+5\r\n",
            b"-1\r\n",
            b"\r\n",
            b" 5\r\n",
            b"5 \r\n",
            b"5 x\r\n",
            b"g\r\n",
            b"5\t\r\n",
            b"5;\r\n",
        ),
        *(b"1" * 17 + b"\r\n", b"5;a=\r\n", b'5;a="\r\n', b"5;a b\r\n", b"5;a=b c\r\n", b"5;=b\r\n", b"5;a\x00\r\n"),
        *(b"5\n", b"5\r\r\n", b"5;a\n", b"5;a\rb\r\n"),
        *(b"1\r\nxyz", b"1\r\nx\n", b"1\r\nx\r\r", b"1\r\nx\r\n\r\n"),
        *(b"0\r\nA b\r\n", b"0\r\n: x\r\n", b"0\r\nA : b\r\n", b"0\r\nA: \x01\r\n", b"0\r\nA: b\n", b"0\r\n b\r\n"),
    ],
)
def test_malformed_chunks_are_refused_wherever_they_are_cut(data: bytes) -> None:
    """F6, F8, F9, F10, REQ-22"""
    for place in range(len(data)):
        with pytest.raises(RequestRefused) as caught:
            decode(ChunkedDecoder(10), data[:place], data[place:])
        assert caught.value.status == 400


def test_largest_size_is_no_overflow() -> None:
    """F10"""
    assert decode(ChunkedDecoder(10), b"ffffffffffffffff\r\nabc") == (b"abc", b"")


def test_line_is_bounded() -> None:
    """F13: also one that never ends, and one in small pieces."""
    for pieces in (
        [b"1;" + b"a" * MAX_CHUNK_LINE + b"\r\n"],
        [b"1;" + b"a" * MAX_CHUNK_LINE],
        [b"1;", *[b"a"] * MAX_CHUNK_LINE],
    ):
        with pytest.raises(RequestRefused) as caught:
            decode(ChunkedDecoder(10), *pieces)
        assert caught.value.status == 400


def test_trailer_line_is_bounded() -> None:
    """F14"""
    for size, refused in ((MAX_TRAILER_BYTES, False), (MAX_TRAILER_BYTES + 1, True)):
        line = b"A: ".ljust(size, b"a")
        for pieces in ([b"0\r\n" + line + b"\r\n\r\n"], [b"0\r\n", *(bytes((byte,)) for byte in line), b"\r\n\r\n"]):
            if not refused:
                assert decode(ChunkedDecoder(10), *pieces) == (b"", b"")
                continue
            with pytest.raises(RequestRefused) as caught:
                decode(ChunkedDecoder(10), *pieces)
            assert caught.value.status == 431


def test_extensions_of_all_chunks_are_bounded() -> None:
    """F13"""
    chunk = b"1;" + b"a" * 1000 + b"\r\nx\r\n"
    decoder = ChunkedDecoder(10)
    fine = MAX_EXTENSION_BYTES // 1001
    assert decode(decoder, chunk * fine) == (b"x" * fine, b"")
    with pytest.raises(RequestRefused):
        decode(decoder, chunk)


@pytest.mark.parametrize(
    "trailers", [b"A: b\r\n" * 4, b"A: " + b"b" * 4000 + b"\r\n" + b"A: " + b"b" * 13_000 + b"\r\n"]
)
def test_trailers_are_bounded(trailers: bytes) -> None:
    """F14, D2: in number and in bytes."""
    with pytest.raises(RequestRefused):
        decode(ChunkedDecoder(3), b"0\r\n" + trailers + b"\r\n")


def test_trailer_bytes_are_bounded_together() -> None:
    """F14"""
    decoder = ChunkedDecoder(100)
    with pytest.raises(RequestRefused) as caught:
        decode(decoder, b"0\r\n" + (b"A: " + b"b" * 4000 + b"\r\n") * 5)
    assert caught.value.status == 431
