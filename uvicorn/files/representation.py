"""The part of a stored representation that a request gets: its content coding, its conditions, its ranges (RFC 9110).

::

    fields ──▶ conditions ──choose_coding──▶ which representation, or 406
                  │                              │
                  └──────precondition────▶ 304 · 412 · the whole
                                                 │
                  └──────ranges──────────▶ 206, one part or several · 416 · the whole

Functions of header fields, for every implementation: nothing here knows a file, a connection or an application. All of
it is linear in what the client sends, and what cannot be understood is as if it had not been sent.
"""

from __future__ import annotations

import calendar
import functools
import re
import time
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

_CONDITIONS = frozenset(
    {
        b"accept-encoding",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-range",
        b"if-unmodified-since",
        b"range",
    }
)

MAX_RANGES = 64
"""Ranges of one request; more yield the whole file (RFC 9110 section 14.2). Viewers ask for a few."""

_MAX_LIST = 8192
"""Bytes of a list, of entity tags or codings, that is read: a hundred tags. A longer one names nothing."""

_MAX_DIGITS = 100
"""Digits of a position; longer numbers are malformed."""

_MAX_REMEMBERED = 256
"""Bytes of a field value whose meaning is remembered, and how many of them are."""

IDENTITY = b"identity"

# In the order in which they are preferred where a client has no preference: by how little they leave of a text.
CODINGS = (b"zstd", b"br", b"gzip")
"""Content codings that a representation may be stored in."""

_ALIASES = {b"x-gzip": b"gzip"}  # RFC 9110 section 8.4.1.3

_LEAST = 0.5
"""A weight below any that a client can give but zero."""

OK, NOT_MODIFIED, PRECONDITION_FAILED = 200, 304, 412

RequestConditions = dict[bytes, bytes]
"""The fields of a request that have a say in this, by name; several lines of one are joined."""


def conditions_of(fields: Iterable[tuple[bytes, bytes]]) -> RequestConditions:
    """Pick the fields that the functions below look at.

    Lines of one name are joined like those of a list (RFC 9110 section 5.3). A repeated field that is not a list thus
    becomes an invalid value and is ignored.
    """
    found: RequestConditions = {}
    for name, value in fields:
        if name in _CONDITIONS:
            found[name] = b"%b, %b" % (found[name], value) if name in found else value
    return found


# Conditions.


def precondition(found: RequestConditions, etag: bytes, modified: int) -> int:
    """Evaluate the conditions of a GET or HEAD in the order of RFC 9110 section 13.2.2; If-Range is `range_applies`.

    Args:
        found: the request's conditions.
        etag: entity tag of the representation, a strong one.
        modified: when it was changed, in seconds since the epoch.

    Returns:
        `OK`, `NOT_MODIFIED` or `PRECONDITION_FAILED`.
    """
    if b"if-match" in found:
        if not _is_among(etag, found[b"if-match"], weakly=False):
            return PRECONDITION_FAILED
    elif b"if-unmodified-since" in found:
        date = parse_date(found[b"if-unmodified-since"])
        if date is not None and modified > date:
            return PRECONDITION_FAILED
    if b"if-none-match" in found:
        if _is_among(etag, found[b"if-none-match"], weakly=True):
            return NOT_MODIFIED
    elif b"if-modified-since" in found:
        date = parse_date(found[b"if-modified-since"])
        if date is not None and modified <= date:
            return NOT_MODIFIED
    return OK


def range_applies(found: RequestConditions, etag: bytes, modified: int, now: float) -> bool:
    """Tell whether the ranges that are asked for are of this representation (RFC 9110 section 13.1.5).

    A date says so only if the second is over in which the representation was changed: it may change again in there.
    """
    condition = found.get(b"if-range")
    if condition is None:
        return True
    if condition.endswith(b'"'):
        return condition == etag
    return parse_date(condition) == modified and modified < int(now)


_MEMBER = re.compile(rb'[ \t,]*((?:W/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,|$)')


def _is_among(etag: bytes, value: bytes, weakly: bool) -> bool:
    """Tell whether a list of entity tags, or `*`, names this one (RFC 9110 section 8.8.3.2)."""
    if value == etag or value == b"*":
        return True
    if len(value) > _MAX_LIST:
        return False
    at = 0
    while member := _MEMBER.match(value, at):
        tag = member[1]
        if tag == etag or (weakly and tag[:2] == b"W/" and tag[2:] == etag):
            return True
        at = member.end()
    return False


_MONTHS = {name: number for number, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_DATES = (
    re.compile(rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?P<d>\d\d) (?P<m>\w{3}) (?P<y>\d{4}) (?P<t>\d\d:\d\d:\d\d) GMT"),
    re.compile(
        rb"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?P<d>\d\d)-(?P<m>\w{3})-(?P<y>\d\d) (?P<t>\d\d:\d\d:\d\d) GMT"
    ),
    re.compile(rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<m>\w{3}) (?P<d>[ \d]\d) (?P<t>\d\d:\d\d:\d\d) (?P<y>\d{4})"),
)


def parse_date(value: bytes) -> int | None:
    """Return an HTTP-date, in any of its three forms (RFC 9110 section 5.6.7), as seconds since the epoch."""
    return _parse_date(value) if len(value) <= _MAX_REMEMBERED else None


@functools.lru_cache(_MAX_REMEMBERED)
def _parse_date(value: bytes) -> int | None:
    for pattern in _DATES:
        found = pattern.fullmatch(value)
        if found is not None:
            break
    else:
        return None
    year, day = int(found["y"]), int(found["d"])
    if len(found["y"]) == 2:
        this_year = time.gmtime().tm_year
        year += this_year - this_year % 100
        year -= 100 if year > this_year + 50 else 0
    hour, minute, second = map(int, found["t"].split(b":"))
    try:
        # A leap second is in the grammar, and none to a clock that counts without them.
        date = datetime(year, _MONTHS[found["m"]], day, hour, minute, min(second, 59) if second == 60 else second)
    except (KeyError, ValueError):
        return None
    return calendar.timegm(date.timetuple())


# Ranges.


_SPEC = re.compile(rb"[ \t]*(\d*)-(\d*)[ \t]*")

Range = tuple[int, int]
"""Where the bytes begin, and how many they are: at least one."""


def ranges(value: bytes, length: int) -> list[Range] | None:
    """Return the ranges that a Range field asks for, of a representation of `length` bytes (RFC 9110 section 14.1.2).

    Ranges that overlap or touch are made one, so that no byte is sent twice; otherwise they come in the client's order.

    Returns:
        `None` if the field is invalid or has too many ranges: the whole is sent. An empty list if no range overlaps the
        file: 416. An empty representation is sent as a whole, since it has no ranges.
    """
    unit, equals, members = value.partition(b"=")
    if unit.lower() != b"bytes" or not equals or not length or members.count(b",") >= MAX_RANGES:
        return None
    found: list[Range] = []
    is_empty = True
    for member in members.split(b","):
        if not member.strip(b" \t"):
            continue  # RFC 9110 section 5.6.1.2
        spec = _SPEC.fullmatch(member)
        if spec is None or max(len(spec[1]), len(spec[2])) > _MAX_DIGITS or not (spec[1] or spec[2]):
            return None
        is_empty = False
        if not spec[1]:
            count = min(int(spec[2]), length)
            first = length - count
        else:
            first = int(spec[1])
            last = int(spec[2]) if spec[2] else length - 1
            if spec[2] and last < first:
                return None
            count = min(last, length - 1) - first + 1
        if count > 0:
            found.append((first, count))
    if is_empty:
        return None
    return found if len(found) < 2 else _apart(found)


def _apart(found: list[Range]) -> list[Range]:
    """Make one of those that overlap or touch."""
    ordered = sorted(found)
    joined = ordered[:1]
    for first, count in ordered[1:]:
        begin, size = joined[-1]
        if first <= begin + size:
            joined[-1] = begin, max(size, first + count - begin)
        else:
            joined.append((first, count))
    return found if len(joined) == len(found) else joined


def content_range(part: Range, length: int) -> bytes:
    """Return the value of Content-Range for a part (RFC 9110 section 14.4)."""
    first, count = part
    return b"bytes %d-%d/%d" % (first, first + count - 1, length)


def multipart_heads(parts: Sequence[Range], length: int, media_type: bytes, boundary: bytes) -> list[bytes]:
    """Return the heads of the parts of a multipart/byteranges body, and, last, its end."""
    heads = [
        b"\r\n--%b\r\ncontent-type: %b\r\ncontent-range: %b\r\n\r\n"
        % (boundary, media_type, content_range(part, length))
        for part in parts
    ]
    heads[0] = heads[0][2:]
    return [*heads, b"\r\n--%b--\r\n" % boundary]


# Content codings.


def choose_coding(found: RequestConditions, stored: Collection[bytes]) -> bytes | None:
    """Return the content coding to send, one of `stored` or `IDENTITY`; `None` if the client takes none of them.

    The client's weights decide, then the order of `CODINGS`, where `identity` comes last (RFC 9110 section 12.5.3).
    """
    accept = found.get(b"accept-encoding")
    if accept is None or len(accept) > _MAX_LIST:
        return IDENTITY
    order = _preferences(accept) if len(accept) <= _MAX_REMEMBERED else _order(accept)
    for coding in order:
        if coding == IDENTITY or coding in stored:
            return coding
    return None


def _order(accept: bytes) -> tuple[bytes, ...]:
    """The codings that an Accept-Encoding field takes, best first."""
    weights: dict[bytes, float] = {}
    for member in accept.lower().split(b","):
        name, _, parameter = member.partition(b";")
        name = name.strip(b" \t")
        weight = _weight(parameter)
        if name and weight is not None:
            weights[_ALIASES.get(name, name)] = weight
    others = weights.get(b"*", 0)
    taken = [(weights.get(coding, others), coding) for coding in CODINGS]
    # Without a weight, identity is the last resort, unless a star excludes it.
    taken.append((weights.get(IDENTITY, weights.get(b"*", _LEAST)), IDENTITY))
    taken.sort(key=lambda pair: -pair[0])
    return tuple(coding for weight, coding in taken if weight > 0)


_preferences = functools.lru_cache(_MAX_REMEMBERED)(_order)

_QVALUE = re.compile(rb"[ \t]*q=(?:(0)(?:\.(\d{0,3}))?|1(?:\.0{0,3})?)[ \t]*")


def _weight(parameter: bytes) -> int | None:
    """A weight in thousandths (RFC 9110 section 12.4.2): all of them if none is given, `None` if it is malformed."""
    if not parameter.strip(b" \t"):
        return 1000
    found = _QVALUE.fullmatch(parameter)
    if found is None:
        return None
    return int((found[2] or b"").ljust(3, b"0")) if found[1] else 1000
