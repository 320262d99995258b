"""Further fields of proxies: ``Forwarded`` (RFC 7239), and ``X-Forwarded-Host``, ``-Port`` and ``-Prefix``.

Only fields named in the settings are used, and only from trusted peers: any client can send them, so a field may be
believed only where the proxy sets it on every request.

Which member of a list counts is decided once, by the chain of addresses: that of the proxy that saw the client.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from uvicorn._compat import marked_as_coroutine_function
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope, WWWScope
from uvicorn.hooks import overrides
from uvicorn.middleware.proxy_headers import FORWARDED, SCHEMES, ProxyHeadersMiddleware
from uvicorn.rules.syntax import TOKEN

_DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}

# RFC 7239 section 4: forwarded-pair = token "=" value, and value = token / quoted-string (RFC 9110 section 5.6).
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_pair = re.compile(rf"[ \t]*({TOKEN})=({TOKEN}|{_QUOTED})[ \t]*(?:;|$)")

MAX_HOPS = 100
"""Members of ``Forwarded`` that are read, from the right; earlier ones cannot come from proxies."""
MAX_COMMAS = 16
"""Commas in the quoted strings of one member."""

_host = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.~-]+)(?::([0-9]{1,5}))?")
_prefix = re.compile(r"(?:/(?:[A-Za-z0-9_.~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)+")


class ForwardedClaims(NamedTuple):
    """The claims about one request, unchecked; None for missing ones."""

    client: tuple[str, int] | None = None
    scheme: str = ""
    host: str = ""
    port: str = ""
    prefix: str = ""


class ForwardedMiddleware(ProxyHeadersMiddleware):
    """Apply the values that a trusted proxy has replaced: client, scheme, host and path below which it serves.

    Args:
        fields: which are looked at, of `proxy_headers.KNOWN_FIELDS`, in lower case.
        hops: the number of proxies in front, if known: the client is that many from the end of the chain, whatever
            the addresses. Otherwise it is the last untrusted one.
    """

    def __init__(
        self, app: ASGI3Application, trusted_hosts: Sequence[str] | str, fields: Sequence[str], hops: int | None = None
    ) -> None:
        super().__init__(app, trusted_hosts)
        if overrides(self.trusted_hosts, "get_trusted_client_address"):
            raise ValueError(
                "`_TrustedHosts.get_trusted_client_address` is replaced, but never called for forwarded_headers and "
                "forwarded_hops. Override `__contains__` only, or leave both settings at their defaults."
            )
        self.fields = frozenset(name.encode() for name in fields)
        self.hops = hops

    @marked_as_coroutine_function
    def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> Awaitable[None]:
        """Correct the scope if the peer is trusted and has sent one of the fields, then call the application."""
        if scope["type"] != "lifespan":
            self.correct(scope)
        return self.app(scope, receive, send)

    def correct(self, scope: WWWScope) -> None:
        """Correct the scope if the peer is trusted and has sent one of the fields."""
        claims = self._claims(scope)
        if claims is not None:
            _apply(scope, claims)

    def client_of(self, scope: WWWScope) -> tuple[str, int] | None:
        """Return the client that the application will see; the scope stays unchanged."""
        claims = self._claims(scope)
        return (
            claims.client
            if claims is not None and claims.client is not None and claims.client[0]
            else scope.get("client")
        )

    def _claims(self, scope: WWWScope) -> ForwardedClaims | None:
        client = scope.get("client")
        if (client[0] if client else None) not in self.trusted_hosts:
            return None
        found: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            if name in self.fields:
                found.setdefault(name.decode(), []).append(value.decode("latin-1"))
        if not found:
            return None
        return self._by_standard(found) if FORWARDED in found else self._by_custom(found)

    def _by_standard(self, found: dict[str, list[str]]) -> ForwardedClaims:
        """By ``Forwarded``: client, scheme and host are of one member of the list.

        A member that violates the grammar ends the chain: members left of it may come from the client.
        """
        chain = _chain(found[FORWARDED])
        if not chain:
            return ForwardedClaims()
        place, client = self.trusted_hosts.client_in([pairs["for"] for pairs in chain], self.hops)
        pairs = chain[-1 - place]
        return ForwardedClaims(client, pairs.get("proto", ""), pairs.get("host", ""))

    def _by_custom(self, found: dict[str, list[str]]) -> ForwardedClaims:
        """By the ``X-Forwarded-`` fields.

        The last line of the scheme counts, as upstream has it. In the others the member at the client's position in
        ``X-Forwarded-For`` counts if the lists have equal length, and otherwise the last: the nearest proxy's.
        """
        chain = _items(found.get("x-forwarded-for", []))
        place, client = self.trusted_hosts.client_in(chain, self.hops) if chain else (0, None)

        def value_of(name: str) -> str:
            items = _items(found.get(f"x-forwarded-{name}", []))
            return "" if not items else items[-1 - place] if len(items) == len(chain) else items[-1]

        scheme = found.get("x-forwarded-proto", [""])[-1].strip(" \t")
        return ForwardedClaims(client, scheme, value_of("host"), value_of("port"), value_of("prefix"))


def _items(lines: Sequence[str]) -> list[str]:
    """The members of a list, in all its lines (RFC 9110 section 5.3)."""
    return [item.strip(" \t") for line in lines for item in line.split(",")]


def _chain(lines: Sequence[str]) -> list[dict[str, str]]:
    """The members of ``Forwarded``, in all its lines, from the right up to a malformed one or one without ``for``.

    Proxies add theirs at the end, and what a client has written in front cannot change where they begin: they are cut
    off from the end, each at the first comma behind which there is a member.
    """
    chain: list[dict[str, str]] = []
    for line in reversed(lines):
        rest = line.rstrip(", \t")
        while rest:
            pairs, rest = _last_member(rest)
            if pairs is None or "for" not in pairs or len(chain) == MAX_HOPS:
                return chain
            chain.insert(0, pairs)
    return chain


def _last_member(text: str) -> tuple[dict[str, str] | None, str]:
    """The last member of a list, and the rest in front of it."""
    end = len(text)
    for _ in range(MAX_COMMAS + 1):
        comma = text.rfind(",", 0, end)
        pairs = _pairs(text[comma + 1 :])
        if pairs is not None or comma < 0:
            return pairs, text[: max(0, comma)].rstrip(", \t")
        end = comma
    return None, ""


def _pairs(member: str) -> dict[str, str] | None:
    """The parameters of one member, by name in lower case; `None` if one is malformed or repeated."""
    pairs: dict[str, str] = {}
    at = 0
    while at < len(member):
        found = _pair.match(member, at)
        if found is None or found[1].lower() in pairs:
            return None
        value = found[2]
        pairs[found[1].lower()] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        at = found.end()
    return pairs


def _apply(scope: WWWScope, claims: ForwardedClaims) -> None:
    """Write valid claims into the scope."""
    schemes = SCHEMES.get(claims.scheme.lower().encode("latin-1"))
    if schemes is not None:
        scope["scheme"] = schemes[scope["type"]]
    if claims.client is not None and claims.client[0]:
        scope["client"] = claims.client
    _apply_host(scope, claims.host, claims.port)
    if claims.prefix and claims.prefix != "/":
        _apply_prefix(scope, claims.prefix.rstrip("/"))


def _apply_host(scope: WWWScope, host: str, port: str) -> None:
    asked = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    found = _host.fullmatch(host or asked)
    digits = port if port.isdecimal() and port.isascii() and len(port) <= 5 else ""
    if found is None or not (host or digits):
        return
    default = _DEFAULT_PORTS[scope["scheme"]]
    number = int(digits or found[2] or default)
    if not 0 < number <= 65535:
        return
    authority = found[1] if number == default else f"{found[1]}:{number}"
    scope["server"] = (found[1].strip("[]"), number)
    scope["headers"] = [
        (b"host", authority.encode()),
        *(field for field in scope["headers"] if field[0] != b"host"),
    ]


def _apply_prefix(scope: WWWScope, prefix: str) -> None:
    if _prefix.fullmatch(prefix) is None or not scope["path"].startswith("/"):
        return
    try:
        decoded = unquote(prefix, errors="strict")
    except UnicodeDecodeError:
        return
    # It gets into links, Location and logs: no control characters, and nothing that browsers take for a slash.
    if (
        not decoded.isprintable()
        or "\\" in decoded
        or "" in decoded.split("/")[1:]
        or {".", ".."} & set(decoded.split("/"))
    ):
        return
    scope["root_path"] = decoded + scope["root_path"]
    scope["path"] = decoded + scope["path"]
    scope["raw_path"] = prefix.encode() + scope["raw_path"]
