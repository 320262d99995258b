"""The frames of a connection (RFC 6455 section 5): a client's bytes cut into frames, and data frames encoded.

Nearly all traffic is messages of one frame, and taking those through a library costs many times the work they need.
`FrameReader` takes them itself; every other frame it hands on whole, as it was on the wire, for a library to parse.
What the libraries judge differently, and every limit, is decided here by the header, before any payload is buffered.
No connection, no clock.
"""

from __future__ import annotations

import codecs
import io
import struct
import sys
from collections.abc import Callable
from enum import IntEnum

from uvicorn.protocols.websockets import failures, limits

FIN = 0x80
RSV1 = 0x40

# Close codes an endpoint may put into a frame: the registered ones, less those that only name how a connection ended.
# https://www.iana.org/assignments/websocket/websocket.xhtml
_CLOSE_CODES = frozenset((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014))

Buffer = bytes | bytearray | memoryview

_utf8 = codecs.getincrementaldecoder("utf-8")
_CONTINUED = bytes(range(0x80, 0xC0))  # bytes of a character other than its first
_LONGEST = 3  # bytes of a character that is not complete


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
    """The client broke the protocol or a limit: the connection fails with close code `code`, for `reason`.

    `is_last`: no close frame can follow, because where frames begin cannot be told any more, or because this was it
    (`in_close`).
    """

    def __init__(self, code: int, reason: str, *, in_close: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.is_last = in_close or code == 1002


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
        raise FrameError(*failures.CLOSE_TOO_SHORT)
    code = int.from_bytes(payload[:2], "big")
    if not is_close_code(code):
        raise FrameError(*failures.CLOSE_CODE)
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError as exc:
        raise FrameError(*failures.CLOSE_REASON, in_close=True) from exc


def truncate_reason(reason: str) -> str:
    """Return as much of `reason` as fits into a close frame, in whole characters."""
    encoded = reason.encode()
    if len(encoded) <= limits.MAX_CLOSE_REASON:
        return reason
    return encoded[: limits.MAX_CLOSE_REASON].decode(errors="ignore")


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


class _Partial:
    """A frame of which not all is there.

    Args:
        first: its first byte.
        whole: it is a message: what comes is unmasked at once, so that no two copies of it are kept. Otherwise all is
            kept as it is.
        mask: what its payload is masked with.
        left: bytes that are missing.
        decoder: of a text, to refuse what is none. What it makes is not kept: that may have four times the size.
    """

    __slots__ = ("first", "whole", "left", "_mask", "_kept", "_decoder")

    def __init__(
        self, first: int, whole: bool, mask: bytes, left: int, decoder: codecs.IncrementalDecoder | None
    ) -> None:
        self.first = first
        self.whole = whole
        self.left = left
        self._mask = mask
        self._kept = io.BytesIO()
        self._decoder = decoder

    def keep(self, header: Buffer) -> None:
        """Keep what stands in front of the payload."""
        self.left -= len(header)
        self._kept.write(header)

    def add(self, piece: Buffer) -> None:
        """Keep some of what is missing.

        Raises:
            FrameError: it cannot become a text.
        """
        self.left -= len(piece)
        if not self.whole:
            self._kept.write(piece)
            if self._decoder is None:
                return
        mask = self._mask
        plain = unmask(piece, mask)
        if self.whole:
            self._kept.write(plain)
        turn = len(piece) % 4
        self._mask = mask[turn:] + mask[:turn]
        if self._decoder is not None:
            try:
                self._decoder.decode(plain)
            except UnicodeDecodeError as exc:
                raise invalid_text() from exc

    def content(self) -> bytes:
        """Return all that was added."""
        return self._kept.getvalue()


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
        "_partial",
        "_fragmented",
        "_size",
        "_headers",
        "_deflated",
        "_text_end",
    )

    def __init__(self, max_size: int | None, inflate: Callable[[bytes, bool], bytes] | None = None) -> None:
        limit = sys.maxsize if max_size is None else max_size
        self._max_size = limit
        self._max_wire_size = limit
        self._inflate: Callable[[bytes, bool], bytes] | None = None
        # First bytes of the frames that are whole messages; none while a message in fragments is in progress.
        self._whole = _WHOLE
        self._data: bytes | bytearray = b""
        self._start = 0  # where in _data the next frame begins; what is beyond its end is dropped when it comes
        self._partial: _Partial | None = None  # the frame in front of that, if it is not complete
        self._fragmented = False  # a message in fragments is in progress
        self._size = 0  # of its fragments, in bytes on the wire
        self._headers = 0  # of those, in bytes
        self._deflated = False  # and whether they are compressed
        self._text_end: bytes | None = None  # the last bytes of a text in fragments, which may be part of a character
        if inflate is not None:
            self.inflate_with(inflate)

    def inflate_with(self, inflate: Callable[[bytes, bool], bytes]) -> None:
        """Compression was negotiated before anything was read; see the class."""
        # What does not compress grows by a few bytes per block.
        self._max_wire_size = self._max_size + (self._max_size >> 4) + 64
        self._inflate = inflate
        self._whole = _WHOLE_DEFLATED

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
        self._start = 0
        self._partial = None

    def _consume(self, end: int) -> None:
        """What is in front of `end` was read."""
        if end < len(self._data):
            self._start = end
        else:
            self._data = b""
            self._start = 0

    def _wait(self) -> None:
        """The head of a frame is not complete: keep nothing but that."""
        if self._start:
            self._data = self._data[self._start :]
            self._start = 0

    def read(self) -> str | bytes | Frame | None:
        """Return the next message or frame; `None` if it is not complete yet.

        Raises:
            FrameError: what comes next may not be sent by a client, or is beyond a limit. No more can be read, but,
                unless the code is 1002, the client's close frame.
        """
        if self._partial is not None:
            return self._read_rest(self._partial)
        data, start = self._data, self._start
        if len(data) - start < 2:
            self._wait()
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
            self._wait()
            return None
        if length > 125:
            length = _extended_length(data[start + 2 : body - 4])
        if not whole or length > self._max_size:
            self._check_limits(first, length, body - start)
        end = body + length
        if end > len(data):
            self._begin(first, whole, body, end)
            return None
        self._consume(end)
        if not whole:
            return self._frame(first, bytes(data[start:end]), length)
        if length < 2048:
            return self._message(first, unmask(data[body:end], data[body - 4 : body]))
        # A view saves copying what is being copied anyway.
        with memoryview(data) as view:
            payload = unmask(view[body:end], data[body - 4 : body])
        return self._message(first, payload)

    def _begin(self, first: int, whole: bool, body: int, end: int) -> None:
        """Keep what there is of a frame whose end has not come."""
        data = self._data
        start, mask = self._start, bytes(data[body - 4 : body])
        self._partial = partial = _Partial(first, whole, mask, end - (body if whole else start), self._decoder(first))
        self._consume(end)
        with memoryview(data) as view:
            if not whole:
                partial.keep(view[start:body])
            partial.add(view[body:])

    def _decoder(self, first: int) -> codecs.IncrementalDecoder | None:
        """Return what decodes the payload of this frame, if it is of a text that is not compressed."""
        if first & ~FIN == Opcode.TEXT:
            return _utf8()
        if first & ~FIN != Opcode.CONTINUATION or self._text_end is None:
            return None
        decoder = _utf8()
        # Characters that are complete say nothing; in front of the first of them may be a piece of another.
        decoder.decode(self._text_end.lstrip(_CONTINUED))
        return decoder

    def _read_rest(self, partial: _Partial) -> str | bytes | Frame | None:
        """Return a message or frame of which some was kept; `None` if it is not complete yet."""
        data, start = self._data, self._start
        end = start + partial.left
        self._consume(end)
        with memoryview(data) as view:
            partial.add(view[start:end])
        if partial.left:
            return None
        self._partial = None
        content = partial.content()
        if partial.whole:
            return self._message(partial.first, content)
        return self._frame(partial.first, content, _payload_length(content))

    def read_close(self) -> Frame | None:
        """Return the client's close frame, once it is there. What comes in front of it is dropped, and not kept.

        Raises:
            FrameError: 1002, what comes next is not a frame.
        """
        if self._partial is not None:
            self._start += self._partial.left
            self._partial = None
        while True:
            data, start = self._data, self._start
            if len(data) - start < 2:
                return None
            first, second = data[start], data[start + 1]
            _check_shape(first, second)
            length = second & 0x7F
            body = start + 6
            if length > 125:
                body = start + (8 if length == 126 else 14)
                if len(data) < body:
                    return None
                length = _extended_length(data[start + 2 : body - 4])
            end = body + length
            if first & 0x0F == Opcode.CLOSE:
                return Frame(Opcode.CLOSE, bytes(data[start:end])) if end <= len(data) else None
            self._start = end

    def _message(self, first: int, payload: bytes) -> str | bytes:
        """Return the content of a message that is one frame."""
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
                self._fragmented = self._deflated = False
                self._text_end = None
                self._size = self._headers = 0
                self._whole = _WHOLE if self._inflate is None else _WHOLE_DEFLATED
            else:
                self._fragmented = True
                self._note_text(first, data, length)
                self._size += length
                self._headers += len(data) - length
                self._deflated = self._deflated or bool(first & RSV1)
                self._whole = _NONE
        return Frame(opcode, data)

    def _note_text(self, first: int, data: bytes, length: int) -> None:
        """Remember how a fragment of a text that is not compressed ends."""
        before = b"" if first == Opcode.TEXT else self._text_end
        if before is None:
            return
        body = len(data) - length
        last = body + max(0, length - _LONGEST) // 4 * 4  # where the mask begins anew
        self._text_end = (before + unmask(data[last:], data[body - 4 : body]))[-_LONGEST:]

    def _check(self, first: int, second: int) -> None:
        """Refuse a header that no client may send (RFC 6455 sections 5.1 to 5.5, RFC 7692 section 6)."""
        _check_shape(first, second)
        opcode = first & 0x0F
        if opcode == Opcode.CONTINUATION:
            if not self._fragmented:
                raise FrameError(*failures.CONTINUATION_UNEXPECTED)
        elif opcode < Opcode.CLOSE and self._fragmented:
            raise FrameError(*failures.CONTINUATION_MISSING)
        # Compression is marked on the first frame of a message, if it was negotiated.
        allowed = RSV1 if self._inflate is not None and 0 < opcode < Opcode.CLOSE else 0
        if first & 0x70 & ~allowed:
            raise FrameError(*failures.RESERVED_BITS)

    def _check_limits(self, first: int, length: int, header: int) -> None:
        """Refuse a payload that is too big, alone or with the fragments before it, or fragments that carry nothing."""
        if first & 0x0F >= Opcode.CLOSE:
            return
        limit = self._max_wire_size if self._deflated or first & RSV1 else self._max_size
        size = self._size + length
        if size > limit:
            raise too_big(self._max_size)
        if self._headers + header - size > limits.MAX_OVERHEAD:
            raise FrameError(*failures.TOO_MANY_FRAGMENTS)


def _check_shape(first: int, second: int) -> None:
    """Refuse what no frame of a client begins with, whatever came before it (RFC 6455 sections 5.1, 5.2 and 5.5)."""
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


_NONE: frozenset[int] = frozenset()
_WHOLE = frozenset((FIN | Opcode.TEXT, FIN | Opcode.BINARY))
_WHOLE_DEFLATED = frozenset(_SHORT)


def _payload_length(data: bytes) -> int:
    """Return how long the payload of a whole frame is."""
    length = data[1] & 0x7F
    return len(data) - (6 if length < 126 else 8 if length == 126 else 14)


def _extended_length(data: bytes | bytearray) -> int:
    """Return a length given in two or eight bytes (RFC 6455 section 5.2: the shortest form, below 2**63)."""
    length = int.from_bytes(data, "big")
    if length < (126 if len(data) == 2 else 65536) or length >> 63:
        raise FrameError(*failures.LENGTH)
    return length


def too_big(max_size: int) -> FrameError:
    """Return the error of a message that is larger than `max_size` bytes."""
    failure = failures.TOO_BIG
    return FrameError(failure.code, failure.reason.format(limit=max_size))


def invalid_text() -> FrameError:
    """Return the error of a text message that is not UTF-8."""
    return FrameError(*failures.TEXT)
