"""permessage-deflate (RFC 7692): negotiation in the handshake, and the two streams of one connection.

The windows are 4 KiB each way where the client allows it, and a stream is made when its first message comes: an idle
connection costs next to nothing. No more is ever inflated than a message may have.
"""

from __future__ import annotations

import re
import sys
import zlib
from typing import TYPE_CHECKING

from uvicorn.protocols.http.wire.head import TOKEN, RequestRefused
from uvicorn.protocols.websockets.frames import FrameError, too_big
from uvicorn.rules import failures, refusals

if TYPE_CHECKING:
    from zlib import _Compress, _Decompress

WINDOW_BITS = 12
"""Of the 8 to 15 of section 7.1.2: 4 KiB of history compress chat-sized messages as well as 32 KiB do."""

LEVEL = 3
"""zlib's effort: a third less work than its default of 6, for output that is about a tenth longer."""

DEFLATE_MIN_SIZE = 32
"""Shorter messages are sent as they are (section 6): it would save a dozen bytes of a packet of nearly a hundred."""

MEMORY_LEVEL = 5
"""zlib's own bookkeeping; with `WINDOW_BITS` a compressor has about 32 KiB."""

# The end of each message of a flushed stream, which is left out on the wire (section 7.2.1).
_TAIL = b"\x00\x00\xff\xff"

_EMPTY_BLOCK = b"\x00"  # with the tail: a stored block of no bytes
_LAST_BLOCK = b"\x01" + _TAIL  # the same, and none follows
_BEHIND_LAST_BLOCK = ((b"", _EMPTY_BLOCK), (_TAIL, _EMPTY_BLOCK + _TAIL))  # before the end of the message, and there

_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*"'
_VALUE = rb"[ \t]*=[ \t]*(?:%b|%b)" % (TOKEN, _QUOTED)
_PARAMETERS = rb"(?:[ \t]*;[ \t]*%b(?:%b)?)*" % (TOKEN, _VALUE)
# No two runs of blanks may meet in it: a long run would be divided between them in every possible way.
_element = re.compile(rb"[ \t]*(?:(%b)(%b)[ \t]*)?(?:,|\Z)" % (TOKEN, _PARAMETERS)).match
_parameters = re.compile(rb";[ \t]*(%b)(%b)?" % (TOKEN, _VALUE)).findall


class Deflate:
    """The compression both sides agreed on, for one connection.

    Args:
        max_size: bytes a message may have when inflated; `None` sets no limit.
        client_bits, server_bits: window sizes of the client's and our compressor, as powers of two.
        client_reset, server_reset: the client, or we, start each message with an empty window.
    """

    __slots__ = (
        "max_size",
        "client_bits",
        "server_bits",
        "client_reset",
        "server_reset",
        "_size",
        "_inflater",
        "_deflater",
    )

    def __init__(
        self,
        max_size: int | None,
        client_bits: int = 15,
        server_bits: int = WINDOW_BITS,
        client_reset: bool = False,
        server_reset: bool = False,
    ) -> None:
        self.max_size = sys.maxsize - 1 if max_size is None else max_size
        self.client_bits = client_bits
        self.server_bits = server_bits
        self.client_reset = client_reset
        self.server_reset = server_reset
        self._size = 0  # of the message in progress, inflated
        self._inflater: _Decompress | None = None
        self._deflater: _Compress | None = None

    def inflate(self, data: bytes, final: bool) -> bytes:
        """Return the original of compressed `data`; `final`: it ends the message.

        Raises:
            FrameError: the message is larger than the limit (no more than that is inflated), or it is not DEFLATE data.
        """
        inflater = self._inflater
        if inflater is None:
            # zlib's compressors cannot do 8 bits and use 9.
            inflater = self._inflater = zlib.decompressobj(-max(9, self.client_bits))
        room = self.max_size - self._size
        try:
            plain = inflater.decompress(data + _TAIL if final else data, room + 1)
        except zlib.error as exc:
            raise FrameError(*failures.DEFLATE) from exc
        if len(plain) > room:
            raise too_big(self.max_size)
        self._size += len(plain)
        if inflater.eof and inflater.unused_data not in _BEHIND_LAST_BLOCK[final]:
            # A block may say that it is the last (section 7.2.3.4); something behind it is not a message.
            raise FrameError(*failures.DEFLATE)
        if final and not inflater.eof and not _is_between_blocks(inflater):
            raise FrameError(*failures.DEFLATE)
        if final:
            self._size = 0
            if self.client_reset or inflater.eof:
                self._inflater = None
        return plain

    def deflate(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return the compressed payload of one message, which is not empty."""
        deflater = self._deflater
        if deflater is None:
            deflater = zlib.compressobj(LEVEL, wbits=-self.server_bits, memLevel=MEMORY_LEVEL)
            if not self.server_reset:
                self._deflater = deflater
        return (deflater.compress(data) + deflater.flush(zlib.Z_SYNC_FLUSH))[:-4]


def _is_between_blocks(inflater: _Decompress) -> bool:
    """Tell whether a message has ended with a block. The tail may have gone into one that it has left unfinished."""
    probe = inflater.copy()
    try:
        plain = probe.decompress(_LAST_BLOCK, 1)
    except zlib.error:
        return False
    return probe.eof and not plain and not probe.unused_data


def negotiate(offers: list[bytes], max_size: int | None) -> tuple[Deflate, bytes] | None:
    """Choose among the client's offers; `offers` are the values of its Sec-WebSocket-Extensions fields.

    Returns:
        The compression and the value of our own field; `None` if nothing suitable is offered.

    Raises:
        RequestRefused: 400, the offers are malformed (RFC 6455 section 9.1).
    """
    value = b",".join(offers)
    position = 0
    while position < len(value):
        element = _element(value, position)
        if element is None:
            raise RequestRefused(refusals.WEBSOCKET_EXTENSIONS)
        position = element.end()
        if element[1] == b"permessage-deflate":
            agreed = _agree([(name, given.strip(b'=" \t')) for name, given in _parameters(element[2])], max_size)
            if agreed is not None:
                return agreed
    return None


def _agree(parameters: list[tuple[bytes, bytes]], max_size: int | None) -> tuple[Deflate, bytes] | None:
    """Accept one offer of section 7.1, or decline it (`None`) if it has a parameter that cannot be met."""
    asked = dict(parameters)
    if len(asked) < len(parameters) or not asked.keys() <= _NAMES:
        return None
    server_bits = _bits(asked.get(b"server_max_window_bits", b"15"))
    # Without a value it only permits a limit in the response (section 7.1.2.2).
    client_bits = _bits(asked.get(b"client_max_window_bits", b"15") or b"15")
    resets = [asked.get(b"client_no_context_takeover"), asked.get(b"server_no_context_takeover")]
    if client_bits is None or server_bits is None or server_bits < 9 or any(resets):
        return None
    server_bits = min(server_bits, WINDOW_BITS)
    client_reset, server_reset = (value is not None for value in resets)
    answer = [b"permessage-deflate"]
    if server_reset:
        answer.append(b"server_no_context_takeover")
    if client_reset:
        answer.append(b"client_no_context_takeover")
    answer.append(b"server_max_window_bits=%d" % server_bits)
    if b"client_max_window_bits" in asked:
        client_bits = min(client_bits, WINDOW_BITS)
        answer.append(b"client_max_window_bits=%d" % client_bits)
    return Deflate(max_size, client_bits, server_bits, client_reset, server_reset), b"; ".join(answer)


_NAMES = {
    b"client_no_context_takeover",
    b"server_no_context_takeover",
    b"client_max_window_bits",
    b"server_max_window_bits",
}


def _bits(value: bytes) -> int | None:
    """Return a window size, `None` if it is none of 8 to 15 in plain decimal."""
    return int(value) if value in _BITS else None


_BITS = frozenset(b"%d" % bits for bits in range(8, 16))
