"""Writes the responses of one HTTP/1.1 connection: the application's messages in, bytes out.

::

    AWAITING ──start──▶ BODY ──last piece──▶ ENDED ──next request──▶ AWAITING

The head is held back until the first piece of the body, so that both leave in one write. No transport,
no application; the shape is that of `BodyWriter` in the native core.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from uvicorn.protocols.http.wire.head import Field
from uvicorn.protocols.http.wire.response import BodyFraming, encode_chunk, encode_fields
from uvicorn.rules import texts


class Writing(IntEnum):
    """How far the response has come."""

    AWAITING = 0
    BODY = 1
    ENDED = 2


# A member looked up on its class costs several times a global, and these are read for each response.
AWAITING, BODY, ENDED = Writing
_NONE, _LENGTH, _CHUNKED, _CLOSE = BodyFraming


class ResponseWriter:
    """The writing side of one connection, one response at a time.

    Attributes:
        state: how far it has come; `AWAITING` is assigned when a request is to be answered.
        head: that of the response, until it is taken.
        framing: of its body.
        close: the connection ends with it.
        head_request: the request is HEAD; assigned as well.
        http_10: its client speaks HTTP/1.0; assigned as well.
    """

    __slots__ = ("state", "head", "close", "head_request", "http_10", "framing", "_left")

    def __init__(self) -> None:
        self.state = AWAITING
        self.head = b""
        self.close = False
        self.head_request = False
        self.http_10 = False
        self.framing = _NONE
        self._left = 0  # of the length that was promised

    def start(self, head: bytes, framing: BodyFraming, length: int, close: bool) -> None:
        """Take the head, as `encode_parts` gives it."""
        self.head, self.framing, self._left, self.close = head, framing, length, close
        self.state = BODY

    def cannot_tell_the_end(self) -> bool:
        """Tell whether the regular end of the connection would be taken for that of the body (RFC 9112 section 8)."""
        return self.state is BODY and self.framing is _CLOSE and not self.head

    def body(self, data: bytes, more: bool, trailers: bool = False) -> bytes:
        """Return the wire bytes of a piece of the body; `trailers` follow the last one.

        Raises:
            RuntimeError: more or, at the end, fewer bytes than the application's Content-Length.
        """
        framing = self.framing
        if framing is _LENGTH:
            left = self._left - len(data)
            if left < 0:
                raise RuntimeError(texts.TOO_LONG)
            if left and not more:
                raise RuntimeError(texts.TOO_SHORT)
            self._left = left
        elif framing is _CHUNKED:
            data = encode_chunk(data, not more and not trailers)
        elif framing is _NONE:
            data = b""
        if not more:
            self.state = ENDED
        return data

    def begin_part(self, length: int, more: bool) -> bool:
        """Make ready for `length` bytes of the body that are written as they are. Returns whether they are wanted.

        Raises:
            RuntimeError: as for `body`.
        """
        framing = self.framing
        if framing is _LENGTH:
            left = self._left - length
            if left < 0:
                raise RuntimeError(texts.TOO_LONG)
            if left and not more:
                raise RuntimeError(texts.TOO_SHORT)
            self._left = left
        elif framing is _CHUNKED and length:
            self.head += b"%x\r\n" % length
        return length > 0 and framing is not _NONE

    def end_part(self) -> None:
        """They are all written."""
        if self.framing is _CHUNKED:
            self.head = b"\r\n"  # leaves with the next output

    def trailers(self, fields: Iterable[Field]) -> bytes:
        """Return the end of a body that trailers follow, with those, where the framing can carry them."""
        return b"0\r\n%b\r\n" % encode_fields(fields) if self.framing is _CHUNKED else b""

    def announce_close(self) -> None:
        """Say `close` in the head, which is still here."""
        if not self.close:
            self.close = True
            self.head = self.head[:-2] + b"connection: close\r\n\r\n"

    def take_head(self) -> bytes:
        """Return the head, if it is still here."""
        head, self.head = self.head, b""
        return head
