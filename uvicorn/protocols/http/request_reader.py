"""Reading the requests of one HTTP/1.1 connection: bytes in; requests, and pieces of their bodies, out.

::

             ┌────── answered ──────┐
             ▼                      │
    HEAD ──head──▶ BODY ──end──▶ WAIT ──▶ LINGER, CLOSED: nothing is read any more
      │                           ▲
      └──── whole request ────────┘

No transport, no clock, no application. What arrives behind a request that is not answered yet waits in `pending`, and
is looked at only when its turn comes: a bad request never overtakes a good one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeAlias, final

from uvicorn.protocols.http import limits, refusals
from uvicorn.protocols.http.body import ChunkedDecoder, LengthDecoder
from uvicorn.protocols.http.head import (
    CHUNKED,
    Field,
    FieldMemory,
    Framing,
    HeadLimits,
    HeadScan,
    RequestRefused,
    examine,
    is_usual,
    match_line,
    match_plain_line,
    refuse,
    split_target,
)
from uvicorn.protocols.http.recurring import Recurring
from uvicorn.protocols.http.scope import RequestLine


class Reading(IntEnum):
    """What the next byte from the client belongs to; the module's diagram shows the moves."""

    HEAD = 0
    BODY = 1
    WAIT = 2
    LINGER = 3
    CLOSED = 4


# A member looked up on its class costs several times a global, and these are read for each request.
HEAD, BODY, WAIT, LINGER, CLOSED = Reading


Special: TypeAlias = tuple[bytes, bool]
"""What few requests have: the head as the client has sent it, if that asks for another protocol (`Framing.upgrade`);
whether its target is one of https, in absolute form."""

Request: TypeAlias = tuple[RequestLine, list[Field], Framing, bytes | None, Special | None]
"""A request: line, fields, framing; its body, unless that is not whole and pieces follow; what is special about it.

Not a class: to make an object of one costs as much as to read a head that was met before."""


@final
class Piece(NamedTuple):
    """A piece of a body, which may be empty; how many bytes it was on the wire, and whether the body ends with it."""

    data: bytes
    size: int
    end: bool


class Memory:
    """What the connections of one server remember of heads: the conclusions from bytes that come again.

    They are within the limits, and for versions later than 1.0.

    Attributes:
        lines: of request lines.
        sections: of whole field sections, with the empty line behind them.
        fields: of field lines.
    """

    __slots__ = ("lines", "sections", "fields")

    def __init__(self) -> None:
        self.lines: Recurring[RequestLine] = Recurring(256, longest=256)
        self.sections: Recurring[tuple[tuple[Field, ...], Framing]] = Recurring(64, longest=2048)
        self.fields = FieldMemory()


class RequestReader:
    """The reading side of one connection.

    Args:
        head_limits: of each head.
        limit_body: bytes of body a request may have; `None` is any number.
        memory: shared with other connections.
        meaning: what a request line means.

    Attributes:
        state: what the next byte belongs to; `HEAD` is assigned when the request in hand is answered.
        more: there are bytes to `read`.
        pending: bytes that wait: for the rest of a head, or for their turn.
        first: there was no request yet.
        body_begun: something of the current body has come.
        discarding: nobody will read what is left of it.
        discarded: bytes of it that nobody has read.
    """

    __slots__ = (
        "state",
        "more",
        "pending",
        "first",
        "body_begun",
        "discarding",
        "discarded",
        "_limits",
        "_limit_body",
        "_memory",
        "_meaning",
        "_data",
        "_at",
        "_scan",
        "_begins",
        "_empty_lines",
        "_decoder",
    )

    def __init__(
        self,
        head_limits: HeadLimits,
        limit_body: int | None,
        memory: Memory,
        meaning: Callable[[bytes, bytes, bytes], RequestLine],
    ) -> None:
        self.state = HEAD
        self.more = False
        self.pending = bytearray()
        self.first = True
        self.body_begun = False
        self.discarding = False
        self.discarded = 0
        self._limits = head_limits
        self._limit_body = limit_body
        self._memory = memory
        self._meaning = meaning
        self._data = b""  # is being read, from _at on
        self._at = 0
        self._scan: HeadScan | None = None  # of the head that begins `pending`
        self._begins = False  # it has just begun
        self._empty_lines = 0
        self._decoder: LengthDecoder | ChunkedDecoder | None = None

    def receive(self, data: bytes) -> Request | Piece | None:
        """Take bytes from the client, and return what comes first; see `read`."""
        if not (self.pending or self.more):
            state = self.state
            if state is HEAD or state is BODY:
                self._data = data
                self._at = 0
                return self._read_head(data, 0) if state is HEAD else self._read_body(data, 0)
        if self.state < LINGER and self._join(data):
            return self.resume()
        return None

    def _join(self, data: bytes) -> bool:
        """Put bytes behind others: of a head in pieces, or requests behind the one being answered."""
        if self.more:
            # Somebody who runs while that is being read has them come.
            self._data, self._at = self._data[self._at :] + data, 0
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
        """Go on with what is pending; see `read`."""
        self._data = bytes(self.pending)
        self.pending.clear()
        self._scan = None
        self._at = 0
        self.more = True
        return self.read()

    def head_begins(self) -> bool:
        """Tell, once for each, that a head has begun and is not complete."""
        begins, self._begins = self._begins, False
        return begins

    def rest(self) -> bytes:
        """Return what was not read, from the beginning of the request that was refused, if one was."""
        return self._data[self._at :] or bytes(self.pending)

    def keep(self) -> None:
        """Stop reading: what is left is kept for later."""
        if self.more:
            self.pending += self._data[self._at :]
        self._release()

    def stop(self, state: Reading) -> None:
        """Read nothing any more, and forget what waits."""
        self.state = state
        self.pending.clear()
        self._release()

    def _release(self) -> None:
        self._data = b""
        self._at = 0
        self.more = False

    def discard(self) -> None:
        """The request in hand is answered, and the rest of its body is not wanted."""
        self.discarding = True
        self.discarded = 0

    def too_much_is_left(self) -> bool:
        """Tell whether more of the body is certain to come than would be dropped to keep the connection."""
        decoder = self._decoder
        return isinstance(decoder, LengthDecoder) and decoder.remaining > limits.MAX_DISCARDED

    def read(self) -> Request | Piece | None:
        """Return what comes next; `None` if that is not here, or has to wait for the answer to what came before.

        Raises:
            RequestRefused: it is no good.
        """
        if self.more and self.state is HEAD:
            return self._read_head(self._data, self._at)
        if self.more and self.state is BODY:
            return self._read_body(self._data, self._at)
        self.keep()
        return None

    # Heads.

    def _await_head(self) -> None:
        """A head has begun and is not complete: hold it to the rules."""
        if self.pending == b"\r":
            return  # of an empty line, probably
        if self._scan is None:
            self._scan = HeadScan(self._limits)
            self._begins = True
        self._scan.advance(self.pending)

    def _read_head(self, data: bytes, begin: int) -> Request | None:
        if data.startswith(b"\r\n", begin):
            begin = self._skip_empty_lines(data, begin)
        end = data.find(b"\r\n\r\n", begin) + 4
        if end == 3:
            self.pending += data[begin:]
            self._release()
            if self.pending:
                self._await_head()
            return None
        line_end = data.find(b"\r\n", begin) + 2
        known = self._memory.sections.get(data[line_end:end])
        text = data[begin:line_end]
        if (
            known is not None
            and end - begin <= self._limits.head
            and (line := self._memory.lines.get(text) or self._read_line(text)) is not None
        ):
            fields, framing = [*known[0]], known[1]
            special = None
        else:
            head = data[begin:end] if begin or end < len(data) else data
            line, fields, framing, special = self._read_new_head(head, line_end - begin)
        self.first = False
        self._empty_lines = 0
        length = framing[0]
        size = len(data)
        # Chunks need their decoder, and have a negative length.
        if 0 <= length <= size - end:
            self.state = WAIT
            body: bytes | None = data[end : end + length] if length else b""
            end += length
        else:
            self.state = BODY
            body = None
            self._begin_body(length)
        if end < size:
            self._at = end
            self.more = True
        else:
            self._data = b""
            self.more = False
        return line, fields, framing, body, special

    def _skip_empty_lines(self, data: bytes, at: int) -> int:
        """RFC 9112 section 2.2: an empty line in front of a request is ignored."""
        while data.startswith(b"\r\n", at):
            at += 2
            self._empty_lines += 1
            if self._empty_lines > limits.MAX_EMPTY_LINES:
                raise RequestRefused(refusals.EMPTY_LINES, limits.MAX_EMPTY_LINES)
        return at

    def _read_line(self, text: bytes) -> RequestLine | None:
        """Return what a plain request line means; `None` if it is not plain, and has to be looked at more closely."""
        match = match_plain_line(text)
        if match is None:
            return None
        method, target, minor = match.groups()
        if len(text) > self._limits.head or len(target) > self._limits.target:
            return None
        line = self._meaning(method, target, minor)
        self._memory.lines.note(text, line)
        return line

    def _read_new_head(self, head: bytes, line_end: int) -> tuple[RequestLine, list[Field], Framing, Special | None]:
        """Read a head whose fields were not met before together, or whose request line is not plain."""
        text = head[:line_end]
        line = self._memory.lines.get(text) or self._read_line(text)
        minor, host = b"1", None
        if line is None:
            line, minor, host = self._read_odd_line(head, text)
        fields, met = self._read_fields(head, line_end)
        framing = examine(minor, fields, self._limit_body)
        if met and minor != b"0" and not framing[3]:
            self._memory.sections.note(head[line_end:], (tuple(fields), framing))
        https = False
        if host is not None:
            if line[0] == "CONNECT":
                raise RequestRefused(refusals.CONNECT)
            https = text.partition(b" ")[2][:6].lower() == b"https:"
            # RFC 9112 section 3.2.2: the authority in the target replaces the Host field.
            fields = [(b"host", host), *(field for field in fields if field[0] != b"host")]
        special = (head if framing[3] else b"", https) if https or framing[3] else None
        return line, fields, framing, special

    def _read_odd_line(self, head: bytes, text: bytes) -> tuple[RequestLine, bytes, bytes | None]:
        """Return what a request line means that is not plain; the minor version; and the authority that it names."""
        match = match_line(text)
        if match is None:
            refuse(head, self._limits)
        method, target, minor = match.groups()
        host = None
        if not self._limits.allow(len(head), method, target):
            refuse(head, self._limits)
        if not is_usual(method, target):
            target, host = split_target(method, target)
        return self._meaning(method, target, minor), minor, host

    def _read_fields(self, head: bytes, line_end: int) -> tuple[list[Field], bool]:
        """Return the fields, and whether each of them was met before."""
        lines = head[line_end:-4].split(b"\r\n") if line_end < len(head) - 2 else []
        if len(head) > self._limits.head or len(lines) > self._limits.fields:
            refuse(head, self._limits)
        memory = self._memory.fields
        before = memory.unknown
        try:
            fields = [*map(memory.__getitem__, lines)]
        except KeyError:
            refuse(head, self._limits)
        return fields, memory.unknown == before

    # Bodies.

    def _begin_body(self, length: int) -> None:
        self.body_begun = self.discarding = False
        if length == CHUNKED:
            self._decoder = ChunkedDecoder(self._limits.fields, self._limit_body)
        else:
            self._decoder = LengthDecoder(length)

    def _read_body(self, data: bytes, begin: int) -> Piece:
        decoder = self._decoder
        assert decoder is not None
        self.body_begun = True
        body, end = decoder.decode(data, begin)
        size = end - begin
        if self.discarding:
            self.discarded += size
        if decoder.done:
            self._decoder = None
            self.state = WAIT
        self._at = end
        self.more = end < len(data)
        if not self.more:
            self._data = b""
        return Piece(body, size, decoder.done)
