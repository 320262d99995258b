"""The body decoders: exact, bounded, and the same however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uvicorn.protocols.http.wire.body import ChunkedDecoder, LengthDecoder
from uvicorn.protocols.http.wire.head import RequestRefused
from uvicorn.rules import refusals
from uvicorn.rules.limits import CHUNK_BYTES_PER_WASTE, MAX_CHUNK_WASTE, MAX_TRAILER_BYTES
from uvicorn.rules.refusals import Refusal


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


def refusal(*pieces: bytes, max_trailers: int = 10, limit: int | None = None) -> Refusal | None:
    """Why a body in these pieces is refused, if it is."""
    try:
        decode(ChunkedDecoder(max_trailers, limit), *pieces)
    except RequestRefused as refused:
        return refused.refusal
    return None


def singles(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


MALFORMED = {
    refusals.CHUNK_SIZE: [b"0x", b"+", b"-", b"\r", b" ", b"5g", b"g", b";", b"5\n", b"1\r\nx\r\n\r"],
    refusals.CHUNK_SIZE_TOO_LONG: [b"1" * 17],
    refusals.CHUNK_SIZE_SUM: [b"ffffffffffffffff\r\n"],
    refusals.CHUNK_EXTENSION: [
        *(b"5 x", b"5 \r", b"5\t\r", b"5;\r", b"5;a=\r", b'5;a="\r', b"5;a b", b"5;a=b c", b"5;=", b"5;a\0", b"5;a\n"),
        *(b'5;a="\\\r', b'5;a="b"c', b'5;a="\x7f', b"5;a \r", b"5;a=b \r", b"5;;", b"5;a=;", b"5;\xe9", b"5;a,"),
    ],
    refusals.CHUNK_LINE_END: [b"5\r\r", b"5;a\rb"],
    refusals.CHUNK_END: [b"1\r\nxy", b"1\r\nx\n", b"1\r\nx\r\r"],
    refusals.TRAILER: [
        *(b"0\r\nA ", b"0\r\n:", b"0\r\nA: \x01", b"0\r\nA: b\n", b"0\r\n ", b"0\r\n\n", b"0\r\n\rX", b"0\r\nA: b\rc"),
    ],
}


@pytest.mark.parametrize(
    ("reason", "data"), [(reason, data) for reason, rows in MALFORMED.items() for data in rows], ids=repr
)
def test_mistake_is_found_at_its_byte_wherever_the_bytes_are_cut(reason: Refusal, data: bytes) -> None:
    """F6, F8, F9, F10, REQ-22"""
    if reason is refusals.CHUNK_SIZE_SUM:
        data = b"1\r\nx\r\n" + data
    assert refusal(data[:-1]) is None
    for place in range(len(data)):
        assert refusal(data[:place], data[place:]) is reason
    assert refusal(*singles(data)) is reason
    assert refusal(data + b"\r\nmore") is reason


def test_largest_size_is_no_overflow() -> None:
    """F10"""
    assert decode(ChunkedDecoder(10), b"ffffffffffffffff\r\nabc") == (b"abc", b"")


@pytest.mark.parametrize(
    "line", [b"1;" + b"a" * (MAX_CHUNK_WASTE - 1), b"1" + b" " * (MAX_CHUNK_WASTE - 4) + b";a=b"], ids=["name", "space"]
)
def test_waste_passes_up_to_its_limit(line: bytes) -> None:
    """F13: also in a line that never ends, and in small pieces."""
    more = line[:1] + b" " + line[1:] if line[1:2] == b" " else line + b"a"
    for size, reason in ((line, None), (more, refusals.CHUNK_WASTE)):
        assert refusal(size + b"\r\n") is refusal(size) is refusal(*singles(size)) is reason


def test_leading_zeros_are_waste() -> None:
    chunk = b"0" * 15 + b"1\r\nx\r\n"
    fine = MAX_CHUNK_WASTE // 15
    assert refusal(chunk * fine) is None
    assert refusal(chunk * (fine + 1)) is refusals.CHUNK_WASTE


def test_extensions_of_all_chunks_count_together() -> None:
    """F13"""
    chunk = b"1;" + b"a" * 1023 + b"\r\nx\r\n"
    fine = MAX_CHUNK_WASTE // 1024
    for pieces in ([chunk * fine], singles(chunk * fine)):
        assert refusal(*pieces) is None
        assert refusal(*pieces, b"1;") is refusals.CHUNK_WASTE


def test_data_earns_waste_back() -> None:
    """One byte in so many; and never more than there was in the beginning."""
    extension = b";" + b"a" * 99
    size = 100 * CHUNK_BYTES_PER_WASTE
    data = bytes(size)
    chunk = b"%x%b\r\n%b\r\n" % (size, extension, data)
    assert refusal(chunk * (2 * MAX_CHUNK_WASTE // 100)) is None
    short = b"%x%b\r\n%b\r\n" % (size - 1, extension, data[1:])
    assert refusal(short * (MAX_CHUNK_WASTE + 1)) is refusals.CHUNK_WASTE
    large = b"%x\r\n%b\r\n" % (size, data)
    assert refusal(large * 1000, b"1;" + b"a" * (MAX_CHUNK_WASTE - 1)) is None
    assert refusal(large * 1000, b"1;" + b"a" * MAX_CHUNK_WASTE) is refusals.CHUNK_WASTE


def test_signed_chunks_of_an_object_store_pass() -> None:
    """The chunks of `aws-chunked` uploads, each with a signature, in any number."""
    signature = b";chunk-signature=" + b"0123456789abcdef" * 4
    chunk = b"10000%b\r\n%b\r\n" % (signature, bytes(65536))
    decoder = ChunkedDecoder(10)
    for _ in range(1000):
        assert decoder.decode(chunk, 0) == (bytes(65536), len(chunk))
    decoder.decode(b"0%b\r\n\r\n" % signature, 0)
    assert decoder.done


def test_limit_of_the_body_is_looked_at_before_the_data_comes() -> None:
    assert refusal(b"5\r\nhello\r\n5\r\n", limit=10) is None
    assert refusal(b"5\r\nhello\r\n6\r\n", limit=10) is refusals.BODY_TOO_LARGE


def test_bytes_of_trailers_are_bounded() -> None:
    """F14: those of their lines, with their ends."""
    for size, reason in ((MAX_TRAILER_BYTES, None), (MAX_TRAILER_BYTES + 1, refusals.TRAILERS_TOO_LARGE)):
        one = b"A: ".ljust(size - 2, b"a") + b"\r\n"
        several = one[: size // 2] + b"\r\nB: " + one[size // 2 + 5 :]
        for section in (one, several):
            assert len(section) == size
            assert refusal(b"0\r\n" + section + b"\r\n") is reason
            assert refusal(b"0\r\n", *singles(section), b"\r\n") is reason
    assert refusal(b"0\r\nA: " + b"a" * MAX_TRAILER_BYTES) is refusals.TRAILERS_TOO_LARGE


def test_number_of_trailers_is_bounded() -> None:
    """D2"""
    assert refusal(b"0\r\n" + b"A: b\r\n" * 3 + b"\r\n", max_trailers=3) is None
    assert refusal(b"0\r\n" + b"A: b\r\n" * 3 + b"A", max_trailers=3) is refusals.TOO_MANY_TRAILERS
