"""Decoders for request bodies: a counted one and a chunked one (RFC 9112 sections 6.2 and 7.1).

Both take what arrived and return what of it is body. They keep no data beyond an unfinished line, bound everything a
peer can grow, and do linear work however the bytes are cut.
"""

from __future__ import annotations

import re

from uvicorn.protocols.http.head import FIELD_LINE, TOKEN, RequestRefused

MAX_EXTENSION_BYTES = 16384
"""Chunk extensions of one message together: nobody uses them, so they need no more (CVE-2023-39326 class)."""

MAX_TRAILER_BYTES = 16384
"""The trailer section of one message; it is dropped, so it need not be large."""

MAX_CHUNK_LINE = 16 + MAX_EXTENSION_BYTES + 2
"""Longest chunk-size line: sixteen digits, the extensions, CR LF."""

_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*"'
_chunk_line = re.compile(
    rb"([0-9A-Fa-f]{1,16})((?:[ \t]*;[ \t]*%b(?:[ \t]*=[ \t]*(?:%b|%b))?)*)" % (TOKEN, TOKEN, _QUOTED)
).fullmatch
_trailer_line = re.compile(FIELD_LINE).fullmatch


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


class ChunkedDecoder:
    """The body of a request with chunked coding. Extensions and trailers are checked and dropped.

    `max_trailers` bounds the number of trailer fields.
    """

    __slots__ = ("done", "max_trailers", "_read", "_line", "_left", "_extensions", "_trailers", "_trailer_bytes")

    def __init__(self, max_trailers: int) -> None:
        self.done = False
        self.max_trailers = max_trailers
        self._line = bytearray()  # an unfinished line
        self._left = 0  # bytes of the current chunk still to come
        self._extensions = 0
        self._trailers = 0
        self._trailer_bytes = 0
        self._read = ChunkedDecoder._read_size  # a plain function: a bound method would be a reference cycle

    def decode(self, data: bytes, position: int) -> tuple[bytes, int]:
        """Return the body bytes found in `data` from `position` on, and where the message ends or `data` does.

        Raises:
            RequestRefused: 400 for anything that is not exactly the grammar; 431 for too many trailers.
        """
        pieces: list[bytes] = []
        end = len(data)
        while position < end and not self.done:
            position = self._read(self, data, position, pieces)
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), position

    def _take_line(
        self, data: bytes, position: int, longest: int, status: int, reason: str
    ) -> tuple[bytes | None, int]:
        """Return the next line without its CR LF, or `None` if it is not complete, and where to go on.

        A line of more than `longest` bytes, CR LF included, is refused with `status`.
        """
        feed = data.find(b"\n", position)
        end = len(data) if feed < 0 else feed + 1
        if len(self._line) + end - position > longest:
            raise RequestRefused(status, reason)
        if feed >= 0 and not self._line:
            line = data[position:end]
        else:
            self._line += data[position:end]
            if feed < 0:
                return None, end
            line = bytes(self._line)
            self._line.clear()
        if line[-2:] != b"\r\n":
            raise RequestRefused(400, "bare LF in chunked coding")
        return line[:-2], end

    def _read_size(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        line, position = self._take_line(data, position, MAX_CHUNK_LINE, 400, "too many chunk extensions")
        if line is not None:
            match = _chunk_line(line)
            if match is None:
                raise RequestRefused(400, "malformed chunk size")
            self._extensions += len(match[2])
            if self._extensions > MAX_EXTENSION_BYTES:
                raise RequestRefused(400, "too many chunk extensions")
            self._left = int(match[1], 16)
            self._read = ChunkedDecoder._read_data if self._left else ChunkedDecoder._read_trailer
        return position

    def _read_data(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        end = min(position + self._left, len(data))
        pieces.append(data[position:end])
        self._left -= end - position
        if not self._left:
            self._read = ChunkedDecoder._read_data_end
        return end

    def _read_data_end(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        # Exactly CR LF: accepting any two bytes is CVE-2025-43859.
        missing = 2 - len(self._line)
        self._line += data[position : position + missing]
        if not b"\r\n".startswith(self._line):
            raise RequestRefused(400, "chunk data not followed by CR LF")
        if len(self._line) == 2:
            self._line.clear()
            self._read = ChunkedDecoder._read_size
        return min(position + missing, len(data))

    def _read_trailer(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        line, position = self._take_line(data, position, MAX_TRAILER_BYTES + 2, 431, "trailer section too large")
        if line is None:
            return position
        if not line:
            self.done = True
            return position
        self._trailers += 1
        self._trailer_bytes += len(line)
        if self._trailers > self.max_trailers or self._trailer_bytes > MAX_TRAILER_BYTES:
            raise RequestRefused(431, "trailer section too large")
        if _trailer_line(line) is None:
            raise RequestRefused(400, "malformed trailer")
        return position
