"""The frames of a connection (RFC 6455 section 5): a client's bytes cut into frames, and data frames encoded.

Nearly all traffic is messages of one frame, and taking those through a library costs many times the work they need.
`FrameReader` takes them itself; every other frame it hands on whole, as it was on the wire, for a library to parse.
What the libraries judge differently, and every limit, is decided here by the header, before any payload is buffered.
No connection, no clock.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from enum import IntEnum

MAX_FRAGMENTS = 65536
"""Frames one message may consist of. Tiny fragments cost far more to keep than they carry (CVE-2026-48779 class)."""

MAX_CLOSE_REASON = 123
"""Bytes of a close reason: a control frame carries 125, the code takes two (RFC 6455 section 5.5)."""

FIN = 0x80
RSV1 = 0x40

# Close codes an endpoint may put into a frame: the registered ones, less those that only name how a connection ended.
# https://www.iana.org/assignments/websocket/websocket.xhtml
_CLOSE_CODES = frozenset((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014))

Buffer = bytes | bytearray | memoryview


class Opcode(IntEnum):
    """What a frame carries (RFC 6455 section 5.2)."""

    CONTINUATION = 0x0
    TEXT = 0x1
    BINARY = 0x2
    CLOSE = 0x8
    PING = 0x9
    PONG = 0xA


# Tells the opcodes of text and binary messages apart.
_TEXT_BIT = 0x01

_OPCODES = {opcode.value: opcode for opcode in Opcode}


class FrameError(Exception):
    """The client broke the protocol or a limit: the connection fails with close code `code`, for `reason`."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Frame:
    """A frame that is not a whole message: its opcode, and all of its bytes as they were on the wire."""

    __slots__ = ("opcode", "data")

    def __init__(self, opcode: Opcode, data: bytes) -> None:
        self.opcode = opcode
        self.data = data


def unmask_in_python(data: Buffer, mask: bytes | bytearray) -> bytes:
    """Return `data` with the masking of RFC 6455 section 5.3 taken off; `mask` has four bytes."""
    length = len(data)
    repeated = (bytes(mask) * (length // 4 + 1))[:length]
    plain = int.from_bytes(data, sys.byteorder) ^ int.from_bytes(repeated, sys.byteorder)
    return plain.to_bytes(length, sys.byteorder)


unmask: Callable[[Buffer, bytes | bytearray], bytes] = unmask_in_python
try:
    from websockets.speedups import apply_mask
except ImportError:
    pass
else:
    unmask = apply_mask


def is_close_code(code: int) -> bool:
    """Tell whether a close frame may carry `code` (RFC 6455 section 7.4)."""
    return code in _CLOSE_CODES or 3000 <= code <= 4999


def parse_close(data: bytes) -> tuple[int, str]:
    """Return code and reason of a client's close frame; 1005 and no reason if it carries none.

    Raises:
        FrameError: the payload is none that RFC 6455 section 5.5.1 allows.
    """
    payload = unmask(data[6:], data[2:6])
    if not payload:
        return 1005, ""
    if len(payload) == 1:
        raise FrameError(1002, "close frame too short")
    code = int.from_bytes(payload[:2], "big")
    if not is_close_code(code):
        raise FrameError(1002, "invalid status code")
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError as exc:
        raise FrameError(1007, "invalid UTF-8 in the close reason") from exc


def truncate_reason(reason: str) -> str:
    """Return as much of `reason` as fits into a close frame, in whole characters."""
    encoded = reason.encode()
    if len(encoded) <= MAX_CLOSE_REASON:
        return reason
    return encoded[:MAX_CLOSE_REASON].decode(errors="ignore")


# The two bytes that begin a short frame: most messages are short.
_SHORT = {
    first: tuple(bytes((first, length)) for length in range(126))
    for opcode in (Opcode.TEXT, Opcode.BINARY)
    for first in (FIN | opcode, FIN | RSV1 | opcode)
}


def encode_message(first: int, payload: bytes) -> bytes:
    """Return one unmasked frame with `payload`; `first` is its first byte, of a whole text or binary message."""
    length = len(payload)
    if length < 126:
        return _SHORT[first][length] + payload
    if length < 65536:
        return struct.pack("!BBH", first, 126, length) + payload
    return struct.pack("!BBQ", first, 127, length) + payload


class FrameReader:
    """Cuts what a client sends into messages and frames.

    Args:
        max_size: bytes a message may have, after decompression; `None` sets no limit.
        inflate: given if compression was negotiated: returns the plain bytes of compressed ones, and is told whether
            they end their message. It holds its output to the limit itself.
    """

    __slots__ = (
        "_max_size",
        "_max_wire_size",
        "_inflate",
        "_whole",
        "_data",
        "_start",
        "_needed",
        "_fragments",
        "_size",
        "_deflated",
    )

    def __init__(self, max_size: int | None, inflate: Callable[[bytes, bool], bytes] | None = None) -> None:
        limit = sys.maxsize if max_size is None else max_size
        self._max_size = limit
        # What does not compress grows by a few bytes per block.
        self._max_wire_size = limit if inflate is None else limit + (limit >> 4) + 64
        self._inflate = inflate
        # First bytes of the frames that are whole messages; none while a message in fragments is in progress.
        self._whole = _WHOLE if inflate is None else _WHOLE_DEFLATED
        self._data: bytes | bytearray = b""
        self._start = 0  # where in _data the next frame begins
        self._needed = 2  # bytes of it that must be there before another look is worth it
        self._fragments = 0  # of the message in progress
        self._size = 0  # of those, in bytes on the wire
        self._deflated = False  # and whether they are compressed

    def __len__(self) -> int:
        """Bytes received that were not yet read as frames."""
        return len(self._data) - self._start

    def feed(self, data: bytes) -> None:
        """Add bytes from the client."""
        if self._start >= len(self._data):
            self._data = data
        else:
            if not isinstance(self._data, bytearray):
                self._data = bytearray(self._data)
            del self._data[: self._start]
            self._data += data
        self._start = 0

    def clear(self) -> None:
        """Forget the bytes that were not yet read."""
        self._data = b""
        self._start = 0

    def read(self) -> str | bytes | Frame | None:
        """Return the next message or frame; `None` if it is not complete yet.

        Raises:
            FrameError: what comes next may not be sent by a client, or is beyond a limit. The stream ends here.
        """
        data, start = self._data, self._start
        if len(data) - start < self._needed:
            return None
        first, second = data[start], data[start + 1]
        whole = second >= 0x80 and first in self._whole
        if not whole:
            self._check(first, second)
        length = second & 0x7F
        body = start + 6
        if length > 125:
            body = start + (8 if length == 126 else 14)
            if len(data) < body:
                self._needed = body - start
                return None
            length = _extended_length(data[start + 2 : body - 4])
        if not whole or length > self._max_size:
            self._check_limits(first, length)
        end = body + length
        if end > len(data):
            self._needed = end - start
            return None
        if end < len(data):
            self._start = end
        else:
            self._data = b""
            self._start = 0
        self._needed = 2
        if whole:
            return self._message(first, data, body, end)
        return self._frame(first, bytes(data[start:end]), length)

    def _message(self, first: int, data: bytes | bytearray, body: int, end: int) -> str | bytes:
        """Return the content of a message that is one frame."""
        if end - body < 2048:
            payload = unmask(data[body:end], data[body - 4 : body])
        else:
            # A view saves copying what is being copied anyway.
            with memoryview(data) as view:
                payload = unmask(view[body:end], data[body - 4 : body])
        if first & RSV1:
            assert self._inflate is not None
            payload = self._inflate(payload, True)
        if not first & _TEXT_BIT:
            return payload
        try:
            return str(payload, "utf-8")
        except UnicodeDecodeError as exc:
            raise invalid_text() from exc

    def _frame(self, first: int, data: bytes, length: int) -> Frame:
        """Return a frame for a library, and keep track of the message in progress."""
        opcode = _OPCODES[first & 0x0F]
        if opcode < Opcode.CLOSE:
            if first & FIN:
                self._fragments = self._size = 0
                self._deflated = False
                self._whole = _WHOLE if self._inflate is None else _WHOLE_DEFLATED
            else:
                self._fragments += 1
                self._size += length
                self._deflated = self._deflated or bool(first & RSV1)
                self._whole = _NONE
        return Frame(opcode, data)

    def _check(self, first: int, second: int) -> None:
        """Refuse a header that no client may send (RFC 6455 sections 5.1 to 5.5, RFC 7692 section 6)."""
        opcode = first & 0x0F
        if opcode not in _OPCODES:
            raise FrameError(1002, "invalid opcode")
        if second < 0x80:
            raise FrameError(1002, "incorrect masking")
        if opcode >= Opcode.CLOSE:
            if second & 0x7F > 125:
                raise FrameError(1002, "control frame too long")
            if not first & FIN:
                raise FrameError(1002, "fragmented control frame")
        elif opcode == Opcode.CONTINUATION:
            if not self._fragments:
                raise FrameError(1002, "unexpected continuation frame")
        elif self._fragments:
            raise FrameError(1002, "expected a continuation frame")
        # Compression is marked on the first frame of a message, if it was negotiated.
        allowed = RSV1 if self._inflate is not None and 0 < opcode < Opcode.CLOSE else 0
        if first & 0x70 & ~allowed:
            raise FrameError(1002, "reserved bits must be 0")

    def _check_limits(self, first: int, length: int) -> None:
        """Refuse a payload that is too big, alone or with the fragments before it, or one fragment too many."""
        if first & 0x0F >= Opcode.CLOSE:
            return
        limit = self._max_wire_size if self._deflated or first & RSV1 else self._max_size
        if self._size + length > limit:
            raise too_big(self._max_size)
        if self._fragments >= MAX_FRAGMENTS:
            raise FrameError(1008, f"message in more than {MAX_FRAGMENTS} fragments")


_NONE: frozenset[int] = frozenset()
_WHOLE = frozenset((FIN | Opcode.TEXT, FIN | Opcode.BINARY))
_WHOLE_DEFLATED = frozenset(_SHORT)


def _extended_length(data: bytes | bytearray) -> int:
    """Return a length given in two or eight bytes (RFC 6455 section 5.2: the shortest form, below 2**63)."""
    length = int.from_bytes(data, "big")
    if length < (126 if len(data) == 2 else 65536) or length >> 63:
        raise FrameError(1002, "invalid payload length")
    return length


def too_big(max_size: int) -> FrameError:
    """Return the error of a message that is larger than `max_size` bytes."""
    return FrameError(1009, f"Message exceeds the maximum size ({max_size} bytes)")


def invalid_text() -> FrameError:
    """Return the error of a text message that is not UTF-8."""
    return FrameError(1007, "invalid UTF-8 in a text message")
