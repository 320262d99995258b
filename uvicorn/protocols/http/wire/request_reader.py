"""Cuts the input of one HTTP/1.1 connection: bytes in; checked heads, and pieces of their bodies, out.

::

             ┌────── answered ──────┐
             ▼                      │
    HEAD ──head──▶ BODY ──end──▶ WAIT ──▶ LINGER, CLOSED: nothing is read any more
      │                           ▲
      └──── whole request ────────┘

What a head means is read by a library (`httptools_impl`, `h11_impl`), which gets exactly the bytes of one message.
No transport, no clock, no application. What arrives behind a request that is not answered yet waits in `pending`, and
is looked at only when its turn comes: a bad request never overtakes a good one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias, final

from uvicorn.protocols.http.wire.body import ChunkedDecoder, LengthDecoder
from uvicorn.protocols.http.wire.head import (
    CHUNKED,
    Field,
    HeadLimits,
    HeadScan,
    Look,
    ReadHead,
    RequestLine,
    RequestRefused,
    look_at,
)
from uvicorn.protocols.http.wire.recurring import Recurring
from uvicorn.rules import limits, refusals


class Reading(IntEnum):
    """The meaning of the next byte from the client; the module's diagram shows the transitions."""

    HEAD = 0
    """A head, or an empty line in front of it."""
    BODY = 1
    """The body of the request in hand."""
    WAIT = 2
    """A later request, which is not looked at before its turn."""
    LINGER = 3
    """Nothing: it is thrown away, so that the client can read the answer."""
    CLOSED = 4
    """Nothing: the connection is closed."""


class Body(IntEnum):
    """How much of the current body was read."""

    AWAITED = 0
    """None of it has arrived."""
    BEGUN = 1
    """Part of it has."""
    UNWANTED = 2
    """The request is answered, and the rest is dropped."""


# A member looked up on its class costs several times a global, and these are read for each request.
HEAD, BODY, WAIT, LINGER, CLOSED = Reading
AWAITED, BEGUN, UNWANTED = Body


Known: TypeAlias = tuple[Look, RequestLine, tuple[Field, ...]]
"""A cached head: its checks, its decoded request line and its fields."""

Request: TypeAlias = tuple[bytes, Look, "Known | None", "bytes | None"]
"""A request: its head, the head's checks, the cached head if any, and the body unless it follows in pieces.

A tuple, because creating an object costs as much as looking up a cached head."""


@final
class Piece(NamedTuple):
    """A piece of a body, which may be empty; how many bytes it was on the wire, and whether the body ends with it."""

    data: bytes
    size: int
    end: bool


class RequestReader:
    """The reading side of one connection.

    Args:
        head_limits: of each head.
        limit_body: bytes of body a request may have; `None` is any number.
        memory: of heads that come again word for word; shared with other connections.
        read_head: the native `look_at`, if there is one.

    Attributes:
        state: the meaning of the next byte; `HEAD` is assigned when the request in hand is answered.
        unread: holds the bytes to `read` next, if there are any.
        pending: bytes that wait: for the rest of a head, or for their turn.
        body: how much of the current body was read.
        discarded: bytes of an unwanted body that were dropped.
        line: the decoded request line of the last head, if the native core has decoded it.
    """

    __slots__ = (
        "state",
        "unread",
        "pending",
        "body",
        "discarded",
        "line",
        "_limits",
        "_limit_body",
        "_memory",
        "_read_natively",
        "_at",
        "_first",
        "_scan",
        "_begins",
        "_empty_lines",
        "_decoder",
    )

    def __init__(
        self,
        head_limits: HeadLimits,
        limit_body: int | None,
        memory: Recurring[Known],
        read_head: ReadHead | None = None,
    ) -> None:
        self.state = HEAD
        self.unread = b""
        self.pending = bytearray()
        self.body = AWAITED
        self.discarded = 0
        self._limits = head_limits
        self._limit_body = limit_body
        self.line: RequestLine | None = None
        self._memory = memory
        self._read_natively = read_head
        self._at = 0  # in `unread`
        self._first = True  # there was no request yet
        self._scan: HeadScan | None = None  # of the head that begins `pending`
        self._begins = False  # it has just begun, and is not that of the first request
        self._empty_lines = 0
        self._decoder: LengthDecoder | ChunkedDecoder | None = None

    def receive(self, data: bytes) -> Request | Piece | None:
        """Take bytes from the client, and return the first result; see `read`."""
        if not (self.pending or self.unread):
            try:
                if self.state is HEAD:
                    return self._read_head(data, 0)
                if self.state is BODY:
                    return self._read_body(data, 0)
            except RequestRefused:
                self._give_back(data, 0)
                raise
        if self.state < LINGER and self._join(data):
            return self.resume()
        return None

    def _join(self, data: bytes) -> bool:
        """Put bytes behind others: of a head in pieces, or requests behind the one being answered."""
        if self.unread:
            # A callback during reading has received them.
            self.unread, self._at = self.unread[self._at :] + data, 0
            return False
        pending = self.pending
        searched = len(pending)
        pending += data
        if self.state is WAIT:
            return False
        # The end of the head can begin in the last three bytes searched before.
        if pending.find(b"\r\n\r\n", max(0, searched - 3)) < 0 and not pending.startswith(b"\r\n"):
            self._await_head()
            return False
        return True

    def resume(self) -> Request | Piece | None:
        """Continue with pending input; see `read`."""
        self.unread = bytes(self.pending)
        self.pending.clear()
        self._scan = None
        self._at = 0
        return self.read()

    def head_begins(self) -> bool:
        """Tell, once for each but that of the first request, that a head has begun and is not complete."""
        begins, self._begins = self._begins, False
        return begins

    def rest(self) -> bytes:
        """Return the unread input, from the beginning of the refused request, if one was refused."""
        return self.unread[self._at :] or bytes(self.pending)

    def keep(self) -> None:
        """Stop reading, and keep the rest for later."""
        self.pending += self.unread[self._at :]
        self.unread = b""

    def stop(self, state: Reading) -> None:
        """Stop reading for good, and forget pending input."""
        self.state = state
        self.pending.clear()
        self.unread = b""

    def discard(self) -> None:
        """The request in hand is answered, and the rest of its body is not wanted."""
        self.body = UNWANTED
        self.discarded = 0

    def too_much_is_left(self) -> bool:
        """Tell whether more of the body is certain to come than would be dropped to keep the connection."""
        decoder = self._decoder
        return isinstance(decoder, LengthDecoder) and decoder.remaining > limits.MAX_DISCARDED

    def read(self) -> Request | Piece | None:
        """Return the next request or piece; `None` if it has not arrived, or must wait for the previous response.

        Raises:
            RequestRefused: the head is invalid.
        """
        if self.unread and self.state <= BODY:
            data, at = self.unread, self._at
            self.unread = b""
            try:
                return self._read_head(data, at) if self.state is HEAD else self._read_body(data, at)
            except RequestRefused:
                self._give_back(data, at)
                raise
        self.keep()
        return None

    def _give_back(self, data: bytes, at: int) -> None:
        """Return refused input to `unread`, unless it is pending."""
        if not self.pending:
            self.unread, self._at = data, at

    # Heads.

    def _await_head(self) -> None:
        """A head has begun and is not complete: hold it to the rules."""
        if self.pending == b"\r":
            return  # of an empty line, probably
        if self._scan is None:
            self._scan = HeadScan(self._limits)
            self._begins = not self._first
        self._scan.advance(self.pending)

    def read_in_python(self) -> None:
        """Stop using the native core's request lines: they differ from those that scopes show from now on."""
        self._read_natively = None

    def _read_head(self, data: bytes, begin: int) -> Request | None:
        if data[begin] == 0x0D:  # of an empty line
            begin = self._skip_empty_lines(data, begin)
        end = data.find(b"\r\n\r\n", begin) + 4
        if end == 3:
            self.pending += data[begin:]
            if self.pending:
                self._await_head()
            return None
        size = len(data)
        head = data[begin:end] if begin or end < size else data
        known = self._memory.get(head)
        if known is not None:
            look = known[0]
        elif self._read_natively is not None and (found := self._read_natively(head)) is not None:
            look, self.line = found
        else:
            look, self.line = look_at(head, self._limits, self._limit_body), None
        self._first = False
        self._empty_lines = 0
        length = look[5][0]
        # Chunks need their decoder, and have a negative length.
        if 0 <= length <= size - end:
            self.state = WAIT
            body: bytes | None = data[end : end + length] if length else b""
            end += length
        else:
            self.state = BODY
            body = None
            self.body = AWAITED
            if length == CHUNKED:
                self._decoder = ChunkedDecoder(self._limits.fields, self._limit_body)
            else:
                self._decoder = LengthDecoder(length)
        if end < size:
            self.unread = data
            self._at = end
        return head, look, known, body

    def _skip_empty_lines(self, data: bytes, at: int) -> int:
        """RFC 9112 section 2.2: an empty line in front of a request is ignored."""
        while data.startswith(b"\r\n", at):
            at += 2
            self._empty_lines += 1
            if self._empty_lines > limits.MAX_EMPTY_LINES:
                raise RequestRefused(refusals.EMPTY_LINES, limits.MAX_EMPTY_LINES)
        return at

    # Bodies.

    def _read_body(self, data: bytes, begin: int) -> Piece:
        decoder = self._decoder
        assert decoder is not None
        body, end = decoder.decode(data, begin)
        size = end - begin
        if self.body is UNWANTED:
            self.discarded += size
        else:
            self.body = BEGUN
        if decoder.done:
            self._decoder = None
            self.state = WAIT
        if end < len(data):
            self.unread = data
            self._at = end
        return Piece(body, size, decoder.done)
