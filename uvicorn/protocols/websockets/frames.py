"""The frames of a connection (RFC 6455 section 5): the client's input cut at the ends of frames, messages encoded.

Libraries parse the payload of frames. They disagree about valid frames and set few limits, so `FrameSplitter` looks at
each header first and refuses the frame before any of its payload is buffered. It hands on one frame at a time, because
a library that is given more inflates and keeps all of it, however far behind the application is. A large frame
becomes fragments, one for each read, so that libraries keep none of it and find invalid text at once. Close frames are
read here, since libraries disagree about their codes and would answer them before the application has answered the
messages in front. No connection, no clock.
"""

from __future__ import annotations

import struct
import sys
from enum import IntEnum
from typing import NamedTuple

from uvicorn.rules import failures, websocket_limits

FIN = 0x80
RSV1 = 0x40

# Close codes an endpoint may put into a frame: the registered ones, less those that only name how a connection ended.
# https://www.iana.org/assignments/websocket/websocket.xhtml
_CLOSE_CODES = frozenset((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014))


class Opcode(IntEnum):
    """The type of a frame (RFC 6455 section 5.2)."""

    CONTINUATION = 0x0
    TEXT = 0x1
    BINARY = 0x2
    CLOSE = 0x8
    PING = 0x9
    PONG = 0xA


_OPCODES = {opcode.value: opcode for opcode in Opcode}


class FrameError(Exception):
    """The client broke the protocol or a limit: the connection fails with close code `code`, for `reason`.

    `is_last`: no close frame can follow, because the frame boundaries are lost, or because this was the close frame
    (`in_close`).
    """

    def __init__(self, code: int, reason: str, *, in_close: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.is_last = in_close or code == 1002


class Close(NamedTuple):
    """The content of a close frame; the code is 1005 if it is empty."""

    code: int
    reason: str


def is_close_code(code: int) -> bool:
    """Tell whether a close frame may carry `code` (RFC 6455 section 7.4)."""
    return code in _CLOSE_CODES or 3000 <= code <= 4999


def parse_close(data: bytes) -> Close:
    """Return the content of a client's whole close frame.

    Raises:
        FrameError: the payload is none that RFC 6455 section 5.5.1 allows.
    """
    mask = data[2:6] * 32
    payload = bytes(byte ^ key for byte, key in zip(data[6:], mask, strict=False))
    if not payload:
        return Close(1005, "")
    if len(payload) == 1:
        raise FrameError(*failures.CLOSE_TOO_SHORT)
    code = int.from_bytes(payload[:2], "big")
    if not is_close_code(code):
        raise FrameError(*failures.CLOSE_CODE)
    try:
        return Close(code, payload[2:].decode())
    except UnicodeDecodeError as exc:
        raise FrameError(*failures.CLOSE_REASON, in_close=True) from exc


def encode_close(code: int, reason: str) -> bytes:
    """Return a close frame; 1005 stands for none with a code."""
    return encode_control(Opcode.CLOSE, b"" if code == 1005 else code.to_bytes(2, "big") + reason.encode())


def encode_control(opcode: Opcode, payload: bytes) -> bytes:
    """Return an unmasked ping, pong or close frame; `payload` has at most 125 bytes."""
    return bytes((FIN | opcode, len(payload))) + payload


def truncate_reason(reason: str) -> str:
    """Return as much of `reason` as fits into a close frame, in whole characters.

    Raises:
        TypeError: it is no str.
    """
    encoded = str.encode(reason)
    if len(encoded) <= websocket_limits.MAX_CLOSE_REASON:
        return reason
    return encoded[: websocket_limits.MAX_CLOSE_REASON].decode(errors="ignore")


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
    return _encode_head(first, length) + payload


def _encode_head(first: int, length: int, mask_bit: int = 0) -> bytes:
    if length < 126:
        return bytes((first, mask_bit | length))
    if length < 65536:
        return struct.pack("!BBH", first, mask_bit | 126, length)
    return struct.pack("!BBQ", first, mask_bit | 127, length)


class FrameSplitter:
    """Cuts a client's input at the ends of frames, and refuses frames that no client may send.

    Args:
        max_size: bytes a message may have, after decompression; `None` sets no limit.
    """

    __slots__ = (
        "_max_size",
        "_max_wire_size",
        "_is_compressible",
        "_data",
        "_start",
        "_left",
        "_first",
        "_fin",
        "_mask",
        "_expected",
        "_size",
        "_headers",
        "_limit",
    )

    def __init__(self, max_size: int | None) -> None:
        self._max_size = self._max_wire_size = sys.maxsize if max_size is None else max_size
        self._is_compressible = False
        self._data: bytes | bytearray = b""
        self._start = 0  # of unread data; if beyond the end, the difference is skipped when it arrives
        # Of the data frame in progress: bytes of its payload from there on, and the first byte of their frame header.
        self._left = 0
        self._first = 0
        self._fin = 0  # set on the last of them
        self._mask = b""
        # The first bytes of frames that begin a message and end it; none inside a message.
        self._expected = _WHOLE
        # Of the message in fragments, so far: its bytes on the wire, those of its headers, and how many it may have.
        self._size = 0
        self._headers = 0
        self._limit = 0

    def allow_compression(self) -> None:
        """Compression was negotiated, before anything was read."""
        # Incompressible data grows by a few bytes per block.
        self._max_wire_size = self._max_size + (self._max_size >> 4) + 64
        self._is_compressible = True
        self._expected = _WHOLE_DEFLATED

    def __len__(self) -> int:
        """Bytes received that were not yet looked at."""
        return max(0, len(self._data) - self._start)

    def feed(self, data: bytes) -> None:
        """Add bytes from the client."""
        missing = self._start - len(self._data)
        if missing >= 0:
            self._data = data
            self._start = missing
            return
        if not isinstance(self._data, bytearray):
            self._data = bytearray(self._data)
        del self._data[: self._start]
        self._data += data
        self._start = 0

    def clear(self) -> None:
        """Forget the bytes that were not yet read."""
        self._data = b""
        self._start = self._left = 0

    def read(self) -> bytes | Close | None:
        """Return the next frame, or a fragment with as much of it as has arrived; `None` if that is too little.

        Raises:
            FrameError: the next frame is forbidden to clients or exceeds a limit. After that only the client's close
                frame can be read, and not even that if the code is 1002.
        """
        data, start = self._data, self._start
        if self._left:
            return self._fragment()
        if len(data) - start < 2:
            self._wait()
            return None
        first, second = data[start], data[start + 1]
        is_whole = second >= 0x80 and first in self._expected
        if not is_whole:
            self._check(first, second)
        extent = _extent(data, start)
        if extent is None:
            self._wait()
            return None
        body, end = extent
        if first & 0x08:
            if end > len(data):
                self._wait()
                return None
        else:
            length = end - body
            if not is_whole or length > self._max_size:
                self._count(first, length, body - start)
            if end > len(data):
                self._left = length
                self._first = first & ~FIN
                self._fin = first & FIN
                self._mask = bytes(data[body - 4 : body])
                self._start = body
                return self._fragment()
        self._consume(end)
        frame = bytes(data[start:end])
        return parse_close(frame) if first & 0x0F == Opcode.CLOSE else frame

    def _wait(self) -> None:
        """Too little has come for a frame: keep only that."""
        if self._start:
            self._data = self._data[self._start :]
            self._start = 0

    def _consume(self, end: int) -> None:
        """Drop the data before `end`, which was read."""
        if end < len(self._data):
            self._start = end
        else:
            self._data = b""
            self._start = 0

    def _fragment(self) -> bytes | None:
        """Return the part of a frame that has arrived as a frame of its own."""
        start = self._start
        payload = bytes(self._data[start : start + self._left])
        self._consume(start + len(payload))
        if not payload:
            return None
        self._left -= len(payload)
        first = self._first if self._left else self._first | self._fin
        mask = self._mask
        turn = len(payload) % 4
        self._first = Opcode.CONTINUATION
        self._mask = mask[turn:] + mask[:turn]
        return _encode_head(first, len(payload), 0x80) + mask + payload

    def read_close(self) -> Close | None:
        """Return the client's close frame once it has arrived. Frames before it are dropped.

        Raises:
            FrameError: 1002, the data is not a frame, or the close frame is invalid.
        """
        self._start += self._left
        self._left = 0
        while True:
            data, start = self._data, self._start
            if len(data) - start < 2:
                return None
            first, second = data[start], data[start + 1]
            _check_shape(first, second)
            extent = _extent(data, start)
            if extent is None:
                return None
            end = extent[1]
            if first & 0x0F == Opcode.CLOSE:
                return parse_close(bytes(data[start:end])) if end <= len(data) else None
            self._start = end

    def _check(self, first: int, second: int) -> None:
        """Refuse a header that no client may send (RFC 6455 sections 5.1 to 5.5, RFC 7692 section 6)."""
        _check_shape(first, second)
        opcode = first & 0x0F
        if opcode == Opcode.CONTINUATION:
            if self._expected:
                raise FrameError(*failures.CONTINUATION_UNEXPECTED)
        elif opcode < Opcode.CLOSE and not self._expected:
            raise FrameError(*failures.CONTINUATION_MISSING)
        # Compression is marked on the first frame of a message, if it was negotiated.
        allowed = RSV1 if self._is_compressible and 0 < opcode < Opcode.CLOSE else 0
        if first & 0x70 & ~allowed:
            raise FrameError(*failures.RESERVED_BITS)

    def _count(self, first: int, length: int, header: int) -> None:
        """Refuse a data frame that is too big, alone or with those before it, or fragments that carry nothing."""
        if self._expected:
            self._size = self._headers = 0
            self._limit = self._max_wire_size if first & RSV1 else self._max_size
        self._size += length
        self._headers += header
        if self._size > self._limit:
            raise too_big(self._max_size)
        if self._headers - self._size > websocket_limits.MAX_OVERHEAD:
            raise FrameError(*failures.TOO_MANY_FRAGMENTS)
        if not first & FIN:
            self._expected = _NONE
        else:
            self._expected = _WHOLE_DEFLATED if self._is_compressible else _WHOLE


def _check_shape(first: int, second: int) -> None:
    """Refuse headers that are invalid for a client, whatever came before them (RFC 6455 sections 5.1, 5.2 and 5.5)."""
    opcode = first & 0x0F
    if opcode not in _OPCODES:
        raise FrameError(*failures.OPCODE)
    if second < 0x80:
        raise FrameError(*failures.MASKING)
    if opcode >= Opcode.CLOSE:
        if second & 0x7F > 125:
            raise FrameError(*failures.CONTROL_TOO_LONG)
        if not first & FIN:
            raise FrameError(*failures.CONTROL_FRAGMENTED)


class WholeFrameSplitter(FrameSplitter):
    """Waits until a frame is complete: methods of programs expect no fragments but those of the client."""

    __slots__ = ()

    def _fragment(self) -> bytes | None:
        if len(self) < self._left:
            self._wait()
            return None
        return super()._fragment()


_NONE: frozenset[int] = frozenset()
_WHOLE = frozenset((FIN | Opcode.TEXT, FIN | Opcode.BINARY))
_WHOLE_DEFLATED = frozenset(_SHORT)


def _extent(data: bytes | bytearray, start: int) -> tuple[int, int] | None:
    """Return where the payload of a frame begins and ends; `None` if its header is not complete.

    Raises:
        FrameError: its length is not in the shortest form, or not below 2**63 (RFC 6455 section 5.2).
    """
    length = data[start + 1] & 0x7F
    body = start + 6
    if length > 125:
        body = start + (8 if length == 126 else 14)
    if len(data) < body:
        return None
    if length > 125:
        shortest = 126 if length == 126 else 65536
        length = int.from_bytes(data[start + 2 : body - 4], "big")
        if length < shortest or length >> 63:
            raise FrameError(*failures.LENGTH)
    return body, body + length


def too_big(max_size: int) -> FrameError:
    """Return the error of a message that is larger than `max_size` bytes."""
    failure = failures.TOO_BIG
    return FrameError(failure.code, failure.reason.format(limit=max_size))


def invalid_text() -> FrameError:
    """Return the error of a text message that is not UTF-8."""
    return FrameError(*failures.TEXT)
