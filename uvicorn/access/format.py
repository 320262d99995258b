"""The formats of the access log: the syntax of `access_log_format`, compiled once, and the escaping of each value.

A format is text with gunicorn's atoms (`%(h)s`, `%({referer}i)s`), or the word `json`. Either is compiled to a list of
parts, which the native core takes as they are; so both write the same bytes. Pure functions: no logger, no stream.

Nothing a client sends can end a line, or the quotation marks around an atom. In text everything but visible ASCII and
the space is percent-encoded, byte by byte, and so are the quotation mark and the backslash; in atoms written
without quotation marks by convention (`h`, `u`) the space too. JSON strings are escaped into ASCII, and invalid UTF-8
is percent-encoded.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from uvicorn.rules.syntax import TOKEN

JSON = "json"
"""The format that is a word."""

Kind = Literal["literal", "text", "json"]


class Part(NamedTuple):
    """A piece of a line: literal text, or the value of an atom as text or as JSON.

    `name` is the literal itself or an atom; `argument` is the header of the atoms `i` and `o`, in lower case.
    """

    kind: Kind
    name: str
    argument: str = ""


AT_END = frozenset("BbTDMLo")
"""Atoms that are known only when the response is complete."""

ATOMS = frozenset("hlutrmUqHsfap") | AT_END - {"o"} | {"request_id"}
"""Atoms without an argument."""

# Keys of the JSON object, in order, and the atoms they show; documented, so they stay.
_KEYS = {
    "time": ("time", ""),
    "request_id": ("request_id", ""),
    "client": ("h", ""),
    "client_port": ("port", ""),
    "scheme": ("scheme", ""),
    "method": ("m", ""),
    "path": ("U", ""),
    "query": ("q", ""),
    "http_version": ("version", ""),
    "status": ("s", ""),
    "bytes": ("B", ""),
    "duration": ("L", ""),
    "referer": ("i", "referer"),
    "user_agent": ("i", "user-agent"),
}

_piece = re.compile(
    r"(?P<plain>[^%]+)|(?P<percent>%%)|%\((?:(?P<atom>\w+)|\{(?P<argument>[^{}()]*)\}(?P<kind>\w))\)s|(?P<stray>%.{0,20})"
)
_is_header_name = re.compile(TOKEN).fullmatch


def parse_format(text: str) -> tuple[Part, ...]:
    """Compile a format. What does not change while the process lives becomes literal: process id, environment.

    Raises:
        ValueError: an unknown atom, a `%` that begins none, a line break, or nothing at all.
    """
    if text == JSON:
        return tuple(_json_parts())
    if not text:
        raise ValueError("it is empty.")
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", text):
        raise ValueError("it contains a line break or another control character.")
    return tuple(_join_literals(map(_part_of, _piece.finditer(text))))


def _json_parts() -> Iterator[Part]:
    for number, (key, (atom, argument)) in enumerate(_KEYS.items()):
        yield Part("literal", f'{", " if number else "{"}"{key}": ')
        yield Part("json", atom, argument)
    yield Part("literal", "}")


def _part_of(match: re.Match[str]) -> Part:
    plain, percent, atom, argument, kind, stray = match.groups()
    if stray:
        raise ValueError(f"{stray!r} is not an atom; atoms look like %(h)s, and %% is a percent sign.")
    if plain or percent:
        return Part("literal", plain or "%")
    if atom in ("l", "p"):
        return Part("literal", "-" if atom == "l" else f"<{os.getpid()}>")
    if atom in ("f", "a"):
        return Part("text", "i", "referer" if atom == "f" else "user-agent")
    if atom in ATOMS:
        return Part("text", atom)
    if kind == "e" and argument:
        return Part("literal", escape(os.environ.get(argument) or "-"))
    if kind in ("i", "o") and _is_header_name(argument):
        return Part("text", kind, argument.lower())
    raise ValueError(
        f"unknown atom {match[0]}; there are {', '.join(f'%({name})s' for name in sorted(ATOMS))}, "
        "and %({header}i)s, %({header}o)s, %({variable}e)s."
    )


def _join_literals(parts: Iterator[Part]) -> Iterator[Part]:
    for is_literal, group in itertools.groupby(parts, lambda part: part.kind == "literal"):
        if is_literal:
            yield Part("literal", "".join(part.name for part in group))
        else:
            yield from group


def needs_end(parts: tuple[Part, ...]) -> bool:
    """Tell whether a line has to wait until the response is complete."""
    return any(part.kind != "literal" and part.name in AT_END for part in parts)


# Values


class Facts:
    """The facts about one request and its response.

    Attributes:
        scope: the request's, with changes by the application or a middleware.
        millis: when its head was complete, in milliseconds since 1970.
        status: 0 before the response.
        head: of the response, as it is sent.
        sent: bytes of the response's body given to the transport.
        micros: microseconds between the head of the request and the end of the response, 0 before that.
        request_id: once it was asked for.
    """

    __slots__ = ("scope", "millis", "status", "head", "sent", "micros", "request_id")

    def __init__(
        self, scope: Any, millis: int, status: int = 0, head: bytes = b"", sent: int = 0, micros: int = 0
    ) -> None:
        self.scope = scope
        self.millis = millis
        self.status = status
        self.head = head
        self.sent = sent
        self.micros = micros
        self.request_id: str | None = None


Value = Callable[[Facts], str | None]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@lru_cache(maxsize=16)
def stamps(second: int) -> tuple[str, str]:
    """Return a second since 1970 as servers log it, in local time and English, and as ISO 8601 has it, in UTC."""
    local = time.localtime(second)
    minutes = local.tm_gmtoff // 60
    date = f"{local.tm_mday:02}/{_MONTHS[local.tm_mon - 1]}/{local.tm_year}"
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{abs(minutes) % 60:02}"
    return (
        f"[{date}:{local.tm_hour:02}:{local.tm_min:02}:{local.tm_sec:02} {zone}]",
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)),
    )


def _iso_time(facts: Facts) -> str:
    second, millis = divmod(facts.millis, 1000)
    return f"{stamps(second)[1]}.{millis:03}Z"


def _host(facts: Facts) -> str | None:
    client = facts.scope.get("client")
    return str(client[0]) if client else None


def _port(facts: Facts) -> str | None:
    client = facts.scope.get("client")
    return f"{client[1]:d}" if client and isinstance(client[1], int) else None


def _method(facts: Facts) -> str:
    # The scope of a WebSocket has none: its handshake is a GET.
    return str(facts.scope.get("method", "GET"))


def _version(facts: Facts) -> str:
    return str(facts.scope["http_version"])


def _path(facts: Facts) -> str:
    return urllib.parse.quote(facts.scope["path"])


def _query(facts: Facts) -> str:
    return _decode(facts.scope["query_string"])


def _request_line(facts: Facts) -> str:
    query = _query(facts)
    return f"{_method(facts)} {_path(facts)}{'?' if query else ''}{query} HTTP/{_version(facts)}"


def _seconds(facts: Facts) -> str:
    return f"{facts.micros // 1_000_000}.{facts.micros % 1_000_000:06}"


def _decode(value: bytes) -> str:
    """Decode UTF-8; invalid bytes become surrogates, which `escape` and `quote_json` turn into `%XX`."""
    return value.decode("utf-8", "surrogateescape")


def _request_header(name: str) -> Value:
    key = name.encode("ascii")

    def header(facts: Facts) -> str | None:
        values = [value for field, value in facts.scope["headers"] if field == key]
        return _decode(b", ".join(values)) if values else None

    return header


def _response_header(name: str) -> Value:
    find = re.compile(rb"\r\n%b:[ \t]*([^\r\n]*)" % re.escape(name.encode("ascii")), re.IGNORECASE).findall

    def header(facts: Facts) -> str | None:
        values = find(facts.head)
        return _decode(b", ".join(values)) if values else None

    return header


_authorization = _request_header("authorization")
_request_id_header = _request_header("x-request-id")


def user_of(authorization: str) -> str | None:
    """Return the user of an Authorization field with the scheme Basic (RFC 7617), `None` if it has none."""
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, _ = base64.b64decode(credentials.strip(), validate=True).partition(b":")
    except ValueError:
        return None
    return _decode(user) if colon and user else None


def _user(facts: Facts) -> str | None:
    authorization = _authorization(facts)
    return None if authorization is None else user_of(authorization)


is_request_id = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}").fullmatch
"""Match an X-Request-ID that is taken over. More than one of them is joined with a comma, so it is none."""


def request_ids(prefix: str | None = None) -> Iterator[str]:
    """Generate request ids: 16 hexadecimal digits at random, the same for all of them, and 16 that count."""
    prefix = os.urandom(8).hex() if prefix is None else prefix
    return (f"{prefix}{number:016x}" for number in itertools.count(1))


_VALUES: dict[str, Value] = {
    "h": _host,
    "port": _port,
    "u": _user,
    "t": lambda facts: stamps(facts.millis // 1000)[0],
    "time": _iso_time,
    "r": _request_line,
    "m": _method,
    "U": _path,
    "q": _query,
    "H": lambda facts: f"HTTP/{_version(facts)}",
    "version": _version,
    "scheme": lambda facts: str(facts.scope["scheme"]),
    "s": lambda facts: str(facts.status),
    "B": lambda facts: str(facts.sent),
    "b": lambda facts: str(facts.sent) if facts.sent else None,
    "T": lambda facts: str(facts.micros // 1_000_000),
    "M": lambda facts: str(facts.micros // 1000),
    "D": lambda facts: str(facts.micros),
    "L": _seconds,
}
_HEADERS = {"i": _request_header, "o": _response_header}

_NUMBERS = frozenset({"s", "B", "L", "port"})
_WORDS = frozenset("hu")


# Escaping


def _percent(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    raw = bytes([code & 0xFF]) if 0xDC80 <= code <= 0xDCFF else character.encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in raw)


_escape_unsafe = re.compile(r"[^ !#-\[\]-~]").sub
_escape_unsafe_or_space = re.compile(r"[^!#-\[\]-~]").sub
_escape_undecodable = re.compile("[\udc80-\udcff]").sub


def escape(text: str) -> str:
    """Percent-encode everything except visible ASCII and the space; also the quotation mark and the backslash."""
    return _escape_unsafe(_percent, text)


def escape_word(text: str) -> str:
    """`escape`, and spaces as well."""
    return _escape_unsafe_or_space(_percent, text)


def quote_json(text: str) -> str:
    """Return `text` as a JSON string, in ASCII and without control characters; undecodable bytes percent-encoded."""
    if not text.isascii():
        text = _escape_undecodable(_percent, text)
    return json.dumps(text).replace("\x7f", "\\u007f")


def _shown(value: Value, escaped: Callable[[str], str], missing: str) -> Callable[[Facts], str]:
    def shown(facts: Facts) -> str:
        text = value(facts)
        return missing if text is None else escaped(text)

    return shown


class LineFormat:
    """A compiled format, which formats lines; with `has_ids` scopes have the ids of requests.

    Attributes:
        parts: the compiled parts.
        at_end: a line has to wait until the response is complete.
        is_ascii: so are all lines, and any stream can encode them.
    """

    __slots__ = ("parts", "at_end", "is_ascii", "_template", "_shown", "_ids", "_has_ids")

    def __init__(self, text: str, has_ids: bool = False) -> None:
        self.parts = parse_format(text)
        self.at_end = needs_end(self.parts)
        literals = [part.name for part in self.parts if part.kind == "literal"]
        self.is_ascii = all(literal.isascii() for literal in literals)
        self._template = "".join(
            part.name.replace("%", "%%") if part.kind == "literal" else "%s" for part in self.parts
        )
        self._shown = [self._show(part) for part in self.parts if part.kind != "literal"]
        self._ids = request_ids()
        self._has_ids = has_ids

    def _show(self, part: Part) -> Callable[[Facts], str]:
        name = part.name
        value = self.request_id if name == "request_id" else _VALUES.get(name) or _HEADERS[name](part.argument)
        if part.kind == "json":
            return _shown(value, str if name in _NUMBERS else quote_json, "null")
        return _shown(value, escape_word if name in _WORDS else escape, "-")

    def render(self, facts: Facts) -> str:
        """Return the line, without its end."""
        return self._template % tuple([shown(facts) for shown in self._shown])

    def request_id(self, facts: Facts) -> str:
        """Return what the scope says, if it does; else the request's X-Request-ID if it is valid, or one that is made
        now and kept in `facts`."""
        if self._has_ids and type(known := facts.scope.get("request_id")) is str:
            return known
        if facts.request_id is None:
            sent = _request_id_header(facts)
            facts.request_id = sent if sent is not None and is_request_id(sent) else next(self._ids)
        return facts.request_id
