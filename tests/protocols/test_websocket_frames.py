"""What cuts a stream into frames, the encoder, and compression, without a connection."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.websocket_tools import BINARY, PING, TEXT, close_frame, frame, parse_frames
from uvicorn.protocols.http.wire.head import RequestRefused
from uvicorn.protocols.websockets import frames
from uvicorn.protocols.websockets.deflate import Deflate, negotiate
from uvicorn.protocols.websockets.frames import (
    Close,
    FrameError,
    FrameSplitter,
    encode_message,
    parse_close,
    truncate_reason,
)
from uvicorn.rules import websocket_limits

masks = st.binary(min_size=4, max_size=4)


def read_all(reader: FrameSplitter) -> list[bytes | Close]:
    """What can be read."""
    items: list[bytes | Close] = []
    while (item := reader.read()) is not None:
        items.append(item)
    return items


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
@pytest.mark.parametrize("first", [0x81, 0x82, 0xC1, 0xC2])
def test_encoded_message_is_one_unmasked_frame(first: int, size: int) -> None:
    encoded = encode_message(first, b"x" * size)
    assert parse_frames(encoded) == [(first, b"x" * size)]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just(TEXT), st.text(max_size=200).map(str.encode)),
            st.tuples(st.just(BINARY), st.binary(max_size=200)),
            st.tuples(st.just(BINARY), st.integers(100, 70_000).map(bytes)),
            st.tuples(st.just(PING), st.binary(max_size=125)),
        ),
        max_size=6,
    ),
    masks,
    st.lists(st.integers(1, 50_000), max_size=10),
)
def test_any_cut_gives_the_same_frames(sent: list[tuple[int, bytes]], mask: bytes, cuts: list[int]) -> None:
    data = b"".join(frame(first, payload, mask) for first, payload in sent)
    reader = FrameSplitter(None)
    pieces = []
    for size in (*cuts, len(data)):
        reader.feed(data[:size])
        data = data[size:]
        pieces += read_all(reader)
    assert joined(pieces) == sent
    assert len(reader) == 0


def joined(pieces: list[bytes | Close]) -> list[tuple[int, bytes]]:
    """First bytes and payloads of the frames that came as `pieces`, each of which is a frame of its own."""
    found: list[tuple[int, bytes]] = []
    first, content = 0, b""
    for piece in pieces:
        assert isinstance(piece, bytes)
        length, start = piece[1] & 0x7F, 2
        if length > 125:
            start = 4 if length == 126 else 10
            length = int.from_bytes(piece[2:start], "big")
        mask, payload = piece[start : start + 4], piece[start + 4 :]
        assert len(payload) == length and frame(piece[0], payload)[:start] == piece[:start]
        opcode = piece[0] & 0x0F
        assert not content or opcode == 0
        first = first or opcode
        content += bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        if piece[0] & 0x80:
            found.append((first | 0x80, content))
            first, content = 0, b""
    assert not first
    return found


@given(st.binary(max_size=300), st.booleans())
def test_no_input_does_more_than_end_the_stream(data: bytes, deflate: bool) -> None:
    reader = FrameSplitter(100)
    if deflate:
        reader.allow_compression()
    reader.feed(data)
    try:
        items = read_all(reader)
    except FrameError as error:
        assert error.code in (1002, 1007, 1008, 1009) and 0 < len(error.reason) <= websocket_limits.MAX_CLOSE_REASON
    else:
        assert all(len(item) <= 14 + 100 + 100 // 16 + 64 for item in items if isinstance(item, bytes))


def test_half_a_frame_is_not_looked_at_again_for_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """D5, for a WebSocket: reading a large frame in small pieces is linear work."""
    looks = 0
    extent = frames._extent

    def count(data: bytes, start: int) -> Any:
        nonlocal looks
        looks += 1
        return extent(data, start)

    monkeypatch.setattr(frames, "_extent", count)
    reader = FrameSplitter(None)
    data = frame(BINARY, b"x" * 100_000)
    items: list[bytes | Close] = []
    for start in range(0, len(data), 7):
        reader.feed(data[start : start + 7])
        items += read_all(reader)
    assert joined(items) == [(BINARY, b"x" * 100_000)]
    assert looks < 5  # while the header comes


def test_nothing_is_kept_of_what_was_read() -> None:
    reader = FrameSplitter(None)
    data = frame(BINARY, b"x" * 100_000)
    for piece in (data[:50_000], data[50_000:] + frame(PING)[:3]):
        reader.feed(piece)
        read_all(reader)
    assert reader._data == frame(PING)[:3]


def test_clear_forgets_what_was_not_read() -> None:
    reader = FrameSplitter(None)
    reader.feed(frame(PING, b"a")[:-1])
    reader.clear()
    assert len(reader) == 0


@pytest.mark.parametrize(
    ("reason", "kept"),
    [("", ""), ("x" * 123, "x" * 123), ("x" * 124, "x" * 123), ("é" * 62, "é" * 61), ("😀" * 31, "😀" * 30)],
    ids=["empty", "fits", "cut", "two bytes", "four bytes"],
)
def test_reason_is_cut_at_a_character(reason: str, kept: str) -> None:
    """W4"""
    assert truncate_reason(reason) == kept


def test_close_frame_is_parsed() -> None:
    assert parse_close(close_frame(3000, "bye")) == Close(3000, "bye")
    assert parse_close(frame(0x88)) == Close(1005, "")


@given(st.lists(st.binary(min_size=1, max_size=5000), max_size=5), st.integers(9, 15), st.booleans())
def test_what_is_deflated_is_inflated_again(messages: list[bytes], bits: int, reset: bool) -> None:
    """WSC-04, for any windows"""
    ours = Deflate(None, client_bits=bits, server_bits=bits, client_reset=reset, server_reset=reset)
    theirs = Deflate(5000, client_bits=bits, server_bits=bits, client_reset=reset, server_reset=reset)
    for message in messages:
        payload = ours.deflate(message)
        half = len(payload) // 2
        assert theirs.inflate(payload[:half], False) + theirs.inflate(payload[half:], True) == message


def test_a_window_of_eight_bits_is_inflated_as_nine() -> None:
    """zlib compresses with nine where it is asked for eight."""
    compressor = zlib.compressobj(wbits=-9)
    payload = (compressor.compress(b"ab" * 300) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]
    agreed = negotiate([b"permessage-deflate; client_max_window_bits=8"], None)
    assert agreed is not None and agreed[1].endswith(b"client_max_window_bits=8")
    assert agreed[0].inflate(payload, True) == b"ab" * 300


@pytest.mark.parametrize("offer", [b";", b"a b", b"a;", b"a; b=", b'a; b="', b"\x80", b"a,,;"])
def test_malformed_offer_is_refused(offer: bytes) -> None:
    """D8"""
    with pytest.raises(RequestRefused) as refused:
        negotiate([offer], None)
    assert refused.value.status == 400


def test_long_offers_are_linear_work() -> None:
    """D7: nothing here may backtrack for long; the test would not end if it did."""
    for offer in (b" " * 60_000 + b"x", b"a;" * 30_000, b"a" + b" " * 60_000 + b"=", b'a; b="' + b"\\" * 60_000):
        with pytest.raises(RequestRefused):
            negotiate([offer + b"\x80"], None)
    assert negotiate([b"a; b=c," * 9_000], None) is None
