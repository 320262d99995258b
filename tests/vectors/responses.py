"""Read what a server sent, as strictly as RFC 9112 lets a client be; every fault is a sentence.

The rules that hold for any response, whatever the request was, are kept here (README.md lists them), so that every
vector also checks them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["BrokenResponse", "Response", "parse"]

STATUS_LINE: Final = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) ([\t\x20-\x7e\x80-\xff]*)\r\n")
FIELD_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[\t ]*([\t\x20-\x7e\x80-\xff]*?)[\t ]*\r\n")
CHUNK_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,16})\r\n")
#: RFC 9110 section 5.6.7; a generated date must be an IMF-fixdate.
IMF_FIXDATE: Final = re.compile(
    rb"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-3][0-9] (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [0-9]{4}"
    rb" [0-2][0-9]:[0-5][0-9]:[0-6][0-9] GMT"
)
#: Fields that are no lists: twice is wrong (RFC 9110 section 5.3).
SINGLE: Final = (b"content-length", b"transfer-encoding", b"date", b"content-type", b"etag")


class BrokenResponse(Exception):
    """The bytes are not a sequence of HTTP/1.1 responses."""


@dataclass
class Response:
    """One response, interim or final."""

    status: int
    headers: list[tuple[bytes, bytes]]
    framing: str = "none"
    body: bytes = b""
    #: Sentences about what RFC 9110 or 9112 forbids in it.
    faults: list[str] = field(default_factory=list)

    @property
    def interim(self) -> bool:
        """Another response to the same request follows."""
        return self.status < 200

    @property
    def says_close(self) -> bool:
        """It has the connection option `close`."""
        options = b",".join(self.values(b"connection")).lower().split(b",")
        return b"close" in [option.strip(b" \t") for option in options]

    def values(self, name: bytes) -> list[bytes]:
        """The values of the fields called `name` (lower case)."""
        return [value for key, value in self.headers if key == name]


def parse(data: bytes, methods: Sequence[str], *, ended: bool, date_expected: bool = True) -> list[Response]:
    """The responses in `data`, which were sent to requests of these methods, in this order.

    Args:
        data: all the server sent.
        methods: of the requests that can be answered; a final response beyond them answers no HEAD.
        ended: the server has closed its side.
        date_expected: hold the responses to the rule that an origin server with a clock sends Date.

    Raises:
        BrokenResponse: what is not a complete response, or what stands behind the last.
    """
    responses: list[Response] = []
    position = finals = 0
    while position < len(data):
        method = methods[finals] if finals < len(methods) else None
        response, position = head(data, position)
        position = content(response, data, position, method, ended)
        check(response, date_expected)
        responses.append(response)
        finals += not response.interim
    return responses


def head(data: bytes, position: int) -> tuple[Response, int]:
    """The status line and fields at `position`, and where they end."""
    line = STATUS_LINE.match(data, position)
    if line is None:
        raise BrokenResponse(f"no status line: {data[position : position + 60]!r}")
    response = Response(int(line[1]), [])
    position = line.end()
    while not data.startswith(b"\r\n", position):
        found = FIELD_LINE.match(data, position)
        if found is None:
            raise BrokenResponse(f"no field line: {data[position : position + 60]!r}")
        response.headers.append((found[1].lower(), found[2]))
        position = found.end()
    return response, position + 2


def content(response: Response, data: bytes, position: int, method: str | None, ended: bool) -> int:
    """Take the content by the rules of RFC 9112 section 6.3; give where it ends."""
    if method == "HEAD" or response.interim or response.status in (204, 304):
        return position
    if response.values(b"transfer-encoding"):
        response.framing = "chunked"
        return chunked(response, data, position)
    lengths = response.values(b"content-length")
    if lengths:
        response.framing = "length"
        if not lengths[0].isdigit():
            raise BrokenResponse(f"content-length: {lengths[0]!r}")
        end = position + int(lengths[0])
        if end > len(data):
            raise BrokenResponse(f"{len(data) - position} bytes of content, content-length says {lengths[0]!r}")
        response.body = data[position:end]
        return end
    response.framing = "close"
    if not ended:
        raise BrokenResponse("content up to the end of the connection, which stays open")
    response.body = data[position:]
    return len(data)


def chunked(response: Response, data: bytes, position: int) -> int:
    """Decode the chunks at `position`; the server has no reason to send extensions or trailers here."""
    while True:
        size = CHUNK_SIZE.match(data, position)
        if size is None:
            raise BrokenResponse(f"no chunk size: {data[position : position + 40]!r}")
        position, end = size.end(), size.end() + int(size[1], 16)
        if data[end : end + 2] != b"\r\n":
            raise BrokenResponse(f"chunk not ended: {data[end : end + 40]!r}")
        response.body += data[position:end]
        if end == position:
            return end + 2
        position = end + 2


def check(response: Response, date_expected: bool) -> None:
    """Note what no response may have, or lack."""
    complain = response.faults.append
    for name in SINGLE:
        if len(response.values(name)) > 1:
            complain(f"{name.decode()} is there more than once")
    lengths, codings = response.values(b"content-length"), response.values(b"transfer-encoding")
    if lengths and codings:
        complain("both content-length and transfer-encoding (RFC 9112 section 6.2)")
    if codings and [coding.lower() for coding in codings] != [b"chunked"]:
        complain(f"transfer-encoding: {codings!r}")
    if (response.interim or response.status == 204) and (lengths or codings):
        complain("content-length or transfer-encoding in 1xx or 204 (RFC 9110 section 8.6, RFC 9112 section 6.1)")
    dates = response.values(b"date")
    if date_expected and 200 <= response.status < 500 and not dates:
        complain("no date (RFC 9110 section 6.6.1)")
    if any(not IMF_FIXDATE.fullmatch(date) for date in dates):
        complain(f"date: {dates!r}")
    if response.status == 405 and not response.values(b"allow"):
        complain("405 without allow (RFC 9110 section 15.5.6)")
    if response.status == 426 and not response.values(b"upgrade"):
        complain("426 without upgrade (RFC 9110 section 15.5.22)")
