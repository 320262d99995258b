"""Decoders for request bodies: a counted one and a chunked one (RFC 9112 sections 6.2 and 7.1).

Both take what arrived and return what of it is body. They keep no data, bound everything a peer can grow, and do
linear work however the bytes are cut. A mistake is refused at its first byte, as in the native core: a line that
is there whole and well-formed is read at once, any other byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

from uvicorn.protocols.http.wire.head import TOKEN, RequestRefused
from uvicorn.rules import refusals
from uvicorn.rules.limits import CHUNK_BYTES_PER_WASTE, MAX_CHUNK_SIZE_DIGITS, MAX_CHUNK_WASTE, MAX_TRAILER_BYTES

_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*"'
_size_line = re.compile(
    rb"([0-9A-Fa-f]{1,%d})((?:[ \t]*;[ \t]*%b(?:[ \t]*=[ \t]*(?:%b|%b))?)*)\r\n"
    % (MAX_CHUNK_SIZE_DIGITS, TOKEN, TOKEN, _QUOTED)
).match
_token_run = re.compile(TOKEN).match
_value_run = re.compile(rb"[\t\x20-\x7e\x80-\xff]+").match

_LARGEST_SUM = 2**64 - 1


class LengthDecoder:
    """The body of a request with Content-Length: exactly `remaining` more bytes."""

    __slots__ = ("remaining", "done")

    def __init__(self, length: int) -> None:
        self.remaining = length
        self.done = length == 0

    def decode(self, data: bytes, position: int) -> tuple[bytes, int]:
        """Return the body bytes found in `data` from `position` on, and where they end."""
        end = position + self.remaining
        if end < len(data):
            body = data[position:end]
        else:
            body = data[position:] if position else data
            end = position + len(body)
        self.remaining -= len(body)
        self.done = self.remaining == 0
        return body, end


class _At(IntEnum):
    """Where in the grammar the next byte is."""

    SIZE = 0
    BEFORE_SEMICOLON = 1
    """White space behind a size or an extension: only `;` may follow."""
    EXTENSION = 2
    NAME = 3
    AFTER_NAME = 4
    """White space behind an extension's name: `=` or `;` may follow."""
    BEFORE_VALUE = 5
    VALUE = 6
    QUOTED = 7
    QUOTED_PAIR = 8
    AFTER_QUOTE = 9
    SIZE_LF = 10
    DATA = 11
    DATA_CR = 12
    DATA_LF = 13
    LINE = 14
    """The beginning of a trailer, or of the empty line behind the last."""
    TRAILER_NAME = 15
    TRAILER_VALUE = 16
    TRAILER_LF = 17
    LAST_LF = 18


# A member looked up on its class costs several times a global, and these are read for each chunk.
_SIZE, _DATA, _DATA_CR = _At.SIZE, _At.DATA, _At.DATA_CR

_DIGITS = {ord(digit): int(digit, 16) for digit in "0123456789abcdefABCDEF"}


def _moves(*moves: tuple[Iterable[int], _At]) -> dict[int, _At]:
    """Map each byte that may come to the place behind it; where a byte is in several sets, the first counts."""
    return {byte: to for bytes_, to in reversed(moves) for byte in bytes_}


_TOKEN_BYTES = [byte for byte in range(256) if re.fullmatch(TOKEN, bytes((byte,)))]
_TEXT_BYTES = [0x09, *range(0x20, 0x7F), *range(0x80, 0x100)]

# `*( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )` (RFC 9112 section 7.1.1).
_EXTENSIONS = {
    _At.BEFORE_SEMICOLON: _moves((b" \t", _At.BEFORE_SEMICOLON), (b";", _At.EXTENSION)),
    _At.EXTENSION: _moves((b" \t", _At.EXTENSION), (_TOKEN_BYTES, _At.NAME)),
    _At.NAME: _moves(
        (b" \t", _At.AFTER_NAME),
        (b"=", _At.BEFORE_VALUE),
        (b";", _At.EXTENSION),
        (b"\r", _At.SIZE_LF),
        (_TOKEN_BYTES, _At.NAME),
    ),
    _At.AFTER_NAME: _moves((b" \t", _At.AFTER_NAME), (b"=", _At.BEFORE_VALUE), (b";", _At.EXTENSION)),
    _At.BEFORE_VALUE: _moves((b" \t", _At.BEFORE_VALUE), (b'"', _At.QUOTED), (_TOKEN_BYTES, _At.VALUE)),
    _At.VALUE: _moves(
        (b" \t", _At.BEFORE_SEMICOLON), (b";", _At.EXTENSION), (b"\r", _At.SIZE_LF), (_TOKEN_BYTES, _At.VALUE)
    ),
    _At.QUOTED: _moves((b'"', _At.AFTER_QUOTE), (b"\\", _At.QUOTED_PAIR), (_TEXT_BYTES, _At.QUOTED)),
    _At.QUOTED_PAIR: _moves((_TEXT_BYTES, _At.QUOTED)),
    _At.AFTER_QUOTE: _moves((b" \t", _At.BEFORE_SEMICOLON), (b";", _At.EXTENSION), (b"\r", _At.SIZE_LF)),
}


class ChunkedDecoder:
    """The body of a request with chunked coding. Extensions and trailers are checked and dropped.

    Args:
        max_trailers: the number of trailer fields there may be.
        limit: bytes of body there may be; `None` is any number.
    """

    __slots__ = ("done", "max_trailers", "limit", "_at", "_digits", "_left", "_total", "_waste", "_fields", "_bytes")

    def __init__(self, max_trailers: int, limit: int | None = None) -> None:
        self.done = False
        self.max_trailers = max_trailers
        self.limit = limit
        self._at = _At.SIZE
        self._digits = 0  # of the size that is being read
        self._left = 0  # that size; then bytes of the chunk still to come
        self._total = 0  # bytes of the chunks so far, this one included
        self._waste = MAX_CHUNK_WASTE  # bytes that may still be wasted
        self._fields = 0
        self._bytes = 0  # of the trailer section

    def decode(self, data: bytes, position: int) -> tuple[bytes, int]:
        """Return the body bytes found in `data` from `position` on, and where the message ends or `data` does.

        Raises:
            RequestRefused: 400 for anything that is not exactly the grammar; 413 for a chunk that crosses the limit;
                431 for too many trailers.
        """
        pieces: list[bytes] = []
        end = len(data)
        while position < end and not self.done:
            at = self._at
            if at is _DATA:
                stop = min(position + self._left, end)
                pieces.append(data[position:stop])
                self._left -= stop - position
                position = stop
                if not self._left:
                    self._at = _DATA_CR
            elif at is _DATA_CR and data.startswith(b"\r\n", position):
                position += 2
                self._at = _SIZE
            elif at is _SIZE and not self._digits:
                position = self._read_size_line(data, position)
            elif at <= _At.SIZE_LF:
                position = self._read_size(data, position)
            elif at <= _At.DATA_LF:
                position = self._read_data_end(data, position)
            else:
                position = self._read_trailers(data, position)
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), position

    def _read_size_line(self, data: bytes, position: int) -> int:
        """Read a whole line with a size, and extensions perhaps, if there is one and nothing is wrong with it."""
        line = _size_line(data, position, position + MAX_CHUNK_SIZE_DIGITS + self._waste + 2)
        if line is not None:
            digits, extensions = line.groups()
            waste = len(digits) - max(1, len(digits.lstrip(b"0"))) + len(extensions)
            if waste <= self._waste:
                self._waste -= waste
                self._left = int(digits, 16)
                self._begin_chunk()
                return line.end()
        return self._read_size(data, position)

    def _begin_chunk(self) -> None:
        """The size is complete: data follows, or trailers if it is zero."""
        self._digits = 0
        size = self._left
        if not size:
            self._at = _At.LINE
            return
        self._total += size
        if self._total > _LARGEST_SUM:
            raise RequestRefused(refusals.CHUNK_SIZE_SUM)
        if self.limit is not None and self._total > self.limit:
            raise RequestRefused(refusals.BODY_TOO_LARGE, self.limit)
        self._waste = min(MAX_CHUNK_WASTE, self._waste + size // CHUNK_BYTES_PER_WASTE)
        self._at = _DATA

    def _read_size(self, data: bytes, position: int) -> int:
        """Read a size and its extensions, one byte at a time."""
        for at in range(position, len(data)):
            byte = data[at]
            if self._at is _At.SIZE:
                self._at = self._read_digit(byte)
            elif self._at is _At.SIZE_LF:
                if byte != 0x0A:
                    raise RequestRefused(refusals.CHUNK_LINE_END)
                self._begin_chunk()
                return at + 1
            else:
                to = _EXTENSIONS[self._at].get(byte)
                if to is None:
                    raise RequestRefused(refusals.CHUNK_EXTENSION)
                if to is not _At.SIZE_LF:
                    self._lose_byte()
                self._at = to
        return len(data)

    def _read_digit(self, byte: int) -> _At:
        """`1*HEXDIG`: no sign, no prefix, no white space in front. Zeros in front are wasted."""
        digit = _DIGITS.get(byte)
        if digit is not None:
            if self._digits == MAX_CHUNK_SIZE_DIGITS:
                raise RequestRefused(refusals.CHUNK_SIZE_TOO_LONG, MAX_CHUNK_SIZE_DIGITS)
            if not self._digits:
                self._left = 0
            elif not self._left:
                self._lose_byte()
            self._digits += 1
            self._left = self._left * 16 + digit
            return _At.SIZE
        if self._digits and byte == 0x0D:
            return _At.SIZE_LF
        if not self._digits or byte not in b"; \t":
            raise RequestRefused(refusals.CHUNK_SIZE)
        self._lose_byte()
        return _At.EXTENSION if byte == 0x3B else _At.BEFORE_SEMICOLON

    def _lose_byte(self) -> None:
        """Count a byte that only makes the framing longer."""
        if not self._waste:
            raise RequestRefused(refusals.CHUNK_WASTE)
        self._waste -= 1

    def _read_data_end(self, data: bytes, position: int) -> int:
        # Exactly CR LF: accepting any two bytes is CVE-2025-43859.
        if self._at is _At.DATA_CR and data[position] == 0x0D:
            self._at = _At.DATA_LF
        elif self._at is _At.DATA_LF and data[position] == 0x0A:
            self._at = _At.SIZE
        else:
            raise RequestRefused(refusals.CHUNK_END)
        return position + 1

    def _read_trailers(self, data: bytes, position: int) -> int:
        """Read field lines up to the empty one (section 7.1.2), as strictly as those of a head."""
        # The empty line behind them does not count.
        allowed = position + MAX_TRAILER_BYTES + 2 - self._bytes
        begin, end = position, min(len(data), allowed)
        while position < end and not self.done:
            position = self._read_trailer(data, position, end)
        if position == allowed < len(data) and not self.done:
            raise RequestRefused(refusals.TRAILERS_TOO_LARGE, MAX_TRAILER_BYTES)
        self._bytes += position - begin
        return position

    def _read_trailer(self, data: bytes, position: int, end: int) -> int:
        """Read on in a field line: a run of its name or value, or the byte that ends one."""
        byte = data[position]
        if self._at is _At.LINE and byte in _TOKEN_BYTES:
            if self._fields == self.max_trailers:
                raise RequestRefused(refusals.TOO_MANY_TRAILERS, self.max_trailers)
            self._fields += 1
            self._at = _At.TRAILER_NAME
        run = _RUNS.get(self._at)
        found = run and run(data, position, end)
        if found:
            return found.end()
        to = _TRAILERS.get((self._at, byte))
        if to is None:
            raise RequestRefused(refusals.TRAILER)
        self.done = self._at is _At.LAST_LF
        self._at = to
        return position + 1


_RUNS = {_At.TRAILER_NAME: _token_run, _At.TRAILER_VALUE: _value_run}
_TRAILERS = {
    (_At.LINE, 0x0D): _At.LAST_LF,
    (_At.LAST_LF, 0x0A): _At.LINE,
    (_At.TRAILER_NAME, 0x3A): _At.TRAILER_VALUE,
    (_At.TRAILER_VALUE, 0x0D): _At.TRAILER_LF,
    (_At.TRAILER_LF, 0x0A): _At.LINE,
}
