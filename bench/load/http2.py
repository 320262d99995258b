"""HTTP/2 as far as a generator speaks it (RFC 9113): frames, the fields of a GET, and a reader that counts answers."""

from __future__ import annotations

import struct

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
INITIAL_WINDOW_SIZE = 4
LARGEST = 2**31 - 1
# `:status: 200` in the static table, and what may follow another name of `:status` there (RFC 7541 appendices A and B):
# the text, or the same in Huffman's code.
INDEXED_200, OTHER_STATUSES = 0x88, range(8, 15)
TEXTS_200 = (b"\x03200", b"\x82\x10\x01")


def frame_head(data: memoryview | bytes, at: int) -> tuple[int, int, int, int]:
    """Length, type, flags and stream of the frame that begins there."""
    high, low, kind, flags, stream = struct.unpack_from("!BHBBI", data, at)
    return high << 16 | low, kind, flags, stream


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def section(path: str, scheme: str, authority: str) -> bytes:
    """The fields of a GET, none of which is remembered."""
    fields = b"\x82" + (b"\x87" if scheme == "https" else b"\x86")
    for index, text in ((4, path), (1, authority)):
        fields += bytes([index, len(text)]) + text.encode("ascii")
    return fields


def is_success(section: bytes) -> bool:
    """Whether a field section begins with `:status: 200`, indexed or as a literal (RFC 7541, section 6)."""
    first = section[0]
    if first == INDEXED_200:
        return True
    name = first & 0x3F if first & 0xC0 == 0x40 else first & 0x0F if first < 0x20 else 0
    return name in OTHER_STATUSES and section[1:].startswith(TEXTS_200)


def get(fields: bytes, first: int, count: int) -> bytes:
    """`count` requests with these fields, on streams from `first` on."""
    streams = range(first, first + 2 * count, 2)
    return b"".join(frame(HEADERS, END_HEADERS | END_STREAM, stream, fields) for stream in streams)


class FrameReader:
    """Counts the streams that end, and answers SETTINGS and PING."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> tuple[int, bytes]:
        """How many streams have ended, and what the server waits for."""
        data, at = self._data + data, 0
        ended, answer = 0, b""
        while len(data) - at >= 9:
            length, kind, flags, _ = frame_head(data, at)
            behind = at + 9 + length
            if behind > len(data):
                break
            if kind in (SETTINGS, PING) and not flags & ACK:
                answer += frame(kind, ACK, 0, data[at + 9 : behind] if kind == PING else b"")
            ended += kind in (DATA, HEADERS) and flags & END_STREAM
            at = behind
        self._data = data[at:]
        return ended, answer
