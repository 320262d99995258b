"""Find the client behind a proxy in ``X-Forwarded-For`` and ``X-Forwarded-Proto``.

The fields are believed only if the peer itself is trusted, and the client is found by walking the chain from the right,
from proxy to proxy, up to the first address that is not trusted: everything left of it could have been made up by it.

Every request passes here, so the common cases are short: a peer whose answer is known is one dictionary lookup, and
without forwarded fields nothing else happens but a look at the field names. All work is linear in the size of the head.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from uvicorn._compat import marked_as_coroutine_function
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope, WWWScope
from uvicorn.hooks import is_ours, original, overrides

_FORWARDED_FIELDS = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})

FORWARDED = "forwarded"
DEFAULT_FIELDS = ("x-forwarded-for", "x-forwarded-proto")
"""The fields that upstream reads."""
KNOWN_FIELDS = (FORWARDED, *DEFAULT_FIELDS, "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix")
"""The fields that may be named: the standard's field (RFC 7239), or some of the others."""

SCHEMES = {
    b"http": {"http": "http", "websocket": "ws"},
    b"https": {"http": "https", "websocket": "wss"},
    b"ws": {"http": "ws", "websocket": "ws"},
    b"wss": {"http": "wss", "websocket": "wss"},
}
"""Accepted values of X-Forwarded-Proto, and the scheme each means for a scope of either type."""

_OPTIONAL_WHITE_SPACE = " \t"  # OWS, RFC 9110 section 5.6.3

_MAX_ANSWERS = 1024
"""Answers kept by one middleware: more peers than usual proxies and frequent clients, about 100 KiB at the most."""

_MAX_ADDRESS_LENGTH = 64
"""Longer than any address with a zone: such text is not an address, and is not worth remembering."""


class _Answers(dict[str, bool]):
    """Maps a host to whether it is trusted. Missing hosts are looked up and remembered, up to a bound."""

    def __init__(self, hosts: _TrustedHosts) -> None:
        self.hosts = hosts

    def __missing__(self, host: str) -> bool:
        answer = self.hosts._compute_trust(host)
        if len(host) <= _MAX_ADDRESS_LENGTH:
            if len(self) >= _MAX_ANSWERS:
                self.clear()
            self[host] = answer
        return answer


@original
class _TrustedHosts:
    """The peers whose forwarded fields are believed.

    ``trusted_hosts`` is comma-separated text or a sequence of addresses (compared by value), networks in CIDR notation
    and literals (compared as text); ``"*"`` alone trusts everything, a peer without address included. A socket for both
    families has peers of IPv4 as IPv4-mapped addresses (RFC 4291 section 2.5.5.2): these are trusted like the others.

    Programs replace the class and patch its methods, so it has upstream's names and calls them as upstream does.
    """

    def __init__(self, trusted_hosts: Sequence[str] | str) -> None:
        self.always_trust = trusted_hosts in ("*", ["*"], ("*",))
        self.trusted_literals: set[str] = set()
        self.trusted_hosts: set[ipaddress.IPv4Address | ipaddress.IPv6Address] = set()
        self.trusted_networks: set[ipaddress.IPv4Network | ipaddress.IPv6Network] = set()
        self.answers = _Answers(self)
        self._trusts: Callable[[str], bool] = self.answers.__getitem__
        if self.always_trust:
            return
        for item in _parse_raw_hosts(trusted_hosts) if isinstance(trusted_hosts, str) else trusted_hosts:
            self._add(item.strip())

    def _add(self, item: str) -> None:
        try:
            if "/" in item:
                self.trusted_networks.add(ipaddress.ip_network(item))
            else:
                self.trusted_hosts.add(ipaddress.ip_address(item))
        except ValueError:
            self.trusted_literals.add(item)

    def __contains__(self, host: str | None) -> bool:
        return self.always_trust or (bool(host) and self._trusts(host))  # type: ignore[arg-type]  # a bool of its own

    def _compute_trust(self, host: str) -> bool:
        """Decide whether ``host`` is trusted; `answers` remembers the result."""
        if host in self.trusted_literals:
            return True
        if len(host) > _MAX_ADDRESS_LENGTH:
            return False
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return self._has(address) or (mapped is not None and self._has(mapped))

    def _has(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        return address in self.trusted_hosts or any(address in network for network in self.trusted_networks)

    def overlap(self, others: _TrustedHosts) -> str | None:
        """Return an address of `others` that is trusted here, or a network of theirs of which one here has a part."""
        for address in others.trusted_hosts:
            if str(address) in self:
                return str(address)
        for network in others.trusted_networks:
            if any(own.version == network.version and own.overlaps(network) for own in self.trusted_networks):
                return str(network)
        return None

    def get_trusted_client_address(self, x_forwarded_for: str) -> tuple[str, int]:
        """Return host and port of the client that ``X-Forwarded-For`` names; see `client_in`."""
        _, client = self.client_in(_parse_raw_hosts(x_forwarded_for))
        return client

    def client_in(self, chain: Sequence[str], hops: int | None = None) -> tuple[int, tuple[str, int]]:
        """Find the client in the chain of proxies; return its place from the end, its host and port.

        The client is the right-most item that is not trusted, or the first if all are, or if everything is trusted;
        with `hops`, the item that many places from the end, or the first. An unknown port is 0, the host may be empty.
        """
        first = len(chain) - 1
        place = first if hops is None else min(hops - 1, first)
        if hops is None and not self.always_trust:
            for near, item in enumerate(reversed(chain)):
                host, port = _parse_host_port(item)
                if host not in self:
                    return near, (host, port)
        return place, _parse_host_port(chain[-1 - place])


_ADDRESS_LIKE = re.compile(
    r"[0-9.*]*\.[0-9.*]*|[0-9.]+:[0-9]+"  # dotted numbers, perhaps with a port
    r"|[0-9a-fA-F.]*:[0-9a-fA-F.]*:[0-9a-fA-F:.]*|\[.*\].*"  # two colons at least, or brackets
)


def check_trusted_hosts(trusted_hosts: Sequence[str] | str) -> None:
    """Find items that are meant for addresses or networks, but would be taken for names, which no peer has.

    Raises:
        ValueError: there is one; it says which, and why.
    """
    if not is_ours(_TrustedHosts):
        return  # a class of the program's has rules of its own
    # Split here: what programs replace is called for the middleware only.
    items = trusted_hosts.split(",") if isinstance(trusted_hosts, str) else trusted_hosts
    for literal in sorted(_TrustedHosts(items).trusted_literals):
        address, slash, _ = literal.partition("/")
        if not _ADDRESS_LIKE.fullmatch(address):
            continue
        if slash:
            network = ipaddress.ip_network(literal, strict=False)  # it says why
            raise ValueError(f"{literal!r} is an address in a network; write {network}.")
        raise ValueError(f"{literal!r} is not an IPv4 or IPv6 address; write networks as in 10.0.0.0/8.")


def _parse_host_port(value: str) -> tuple[str, int]:
    """Split one item of ``X-Forwarded-For``: ``1.2.3.4``, ``1.2.3.4:99``, ``::5``, ``[::5]`` or ``[::5]:99``.

    An item of any other form is kept whole if a log line may contain it; otherwise the host is empty.
    The port is 0 if it is missing or out of range.
    """
    item = value.strip(_OPTIONAL_WHITE_SPACE)
    if not item.isprintable():
        return "", 0
    if item.startswith("["):
        host, bracket, rest = item[1:].partition("]")
        if bracket and (not rest or rest.startswith(":")):
            return host, _port(rest[1:]) or 0
    elif item.count(":") == 1:
        host, _, digits = item.partition(":")
        port = _port(digits)
        if port is not None:
            return host, port
    return item, 0


def _parse_raw_hosts(value: str) -> list[str]:
    """Split a list at its commas."""
    return [item.strip(_OPTIONAL_WHITE_SPACE) for item in value.split(",")]


def _port(digits: str) -> int | None:
    # Five digits at the most, so that no text of any length reaches int().
    if len(digits) <= 5 and digits.isascii() and digits.isdigit() and (port := int(digits)) <= 65535:
        return port
    return None


def parse_fields(names: Sequence[str] | str) -> list[str]:
    """Return the names of fields in lower case; in a text they are separated by commas.

    Raises:
        ValueError: one is none of `KNOWN_FIELDS`, or clients could forge the values.
    """
    names = [name.strip().lower() for name in (names.split(",") if isinstance(names, str) else names)]
    for name in names:
        if name not in KNOWN_FIELDS:
            raise ValueError(f"{name!r} is none of {', '.join(KNOWN_FIELDS)}.")
    if FORWARDED in names and len(names) > 1:
        raise ValueError(
            "a proxy that sets Forwarded passes the others on as clients send them, or the other way round: "
            "name what the proxy sets."
        )
    return names


@original
class ProxyHeadersMiddleware:
    """Replace ``client`` and ``scheme`` of a scope by those that a trusted proxy reports.

    The scope is changed in place, so that the server's access log names the same client as the application sees.
    The default of ``trusted_hosts`` is for direct use; the server passes its setting ``forwarded_allow_ips``.
    """

    def __init__(self, app: ASGI3Application, trusted_hosts: Sequence[str] | str = "127.0.0.1") -> None:
        self.app = app
        self.trusted_hosts = _TrustedHosts(trusted_hosts)

    @marked_as_coroutine_function
    def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> Awaitable[None]:
        """Correct the scope if the peer is trusted and has sent forwarded fields, then call the application.

        What the application is awaited for is given back: a coroutine of its own around that would live as long as each
        request, or WebSocket, and do nothing.
        """
        if scope["type"] != "lifespan":
            self.correct(scope)
        return self.app(scope, receive, send)

    def correct(self, scope: WWWScope) -> None:
        """Correct the scope if the peer is trusted and has sent forwarded fields."""
        client = scope.get("client")
        if (client[0] if client else None) in self.trusted_hosts:
            for name, _ in scope["headers"]:
                if name in _FORWARDED_FIELDS:
                    self._correct(scope)
                    break

    def client_of(self, scope: WWWScope) -> tuple[str, int] | None:
        """Return the client that the application will see, without changing the scope."""
        client = scope.get("client")
        if (client[0] if client else None) in self.trusted_hosts:
            forwarded_for, _ = _forwarded_fields(scope["headers"])
            if forwarded_for:
                host, port = self.trusted_hosts.get_trusted_client_address(forwarded_for)
                if host:
                    return host, port
        return client

    def _correct(self, scope: WWWScope) -> None:
        forwarded_for, forwarded_proto = _forwarded_fields(scope["headers"])
        schemes = SCHEMES.get(forwarded_proto)
        if schemes is not None:
            scope["scheme"] = schemes[scope["type"]]
        if forwarded_for:
            host, port = self.trusted_hosts.get_trusted_client_address(forwarded_for)
            if host:
                scope["client"] = (host, port)


def app_without_fields(app: ASGI3Application) -> ASGI3Application | None:
    """Return what may answer requests without forwarded fields directly: the application behind the middleware.

    None if these have to pass `app`, because it is another middleware, or a program has replaced a part of it.
    """
    proxy: Any = app
    if overrides(proxy, "__call__", "correct") or overrides(proxy.trusted_hosts, "__contains__", "_compute_trust"):
        return None
    behind: ASGI3Application = proxy.app
    return behind


def _forwarded_fields(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, bytes]:
    """Return X-Forwarded-For, all lines joined (RFC 9110 section 5.3), and the last line of X-Forwarded-Proto."""
    hops: list[bytes] = []
    proto = b""
    for name, value in headers:
        if name == b"x-forwarded-for":
            hops.append(value)
        elif name == b"x-forwarded-proto":
            proto = value
    return b",".join(hops).decode("latin-1"), proto.strip(b" \t")


def is_trusted_gateway(app: ASGI3Application, client: tuple[str, int] | None) -> bool:
    """Tell whether `client` may ask for an https resource in clear text, because a gateway has secured the connection.

    RFC 9110 section 7.4 denies that to everyone else. Gateways are the peers whose scheme `app`, the outermost
    middleware, trusts; and peers without an address, since a Unix socket only connects processes of one machine.
    """
    return client is None or (isinstance(app, ProxyHeadersMiddleware) and client[0] in app.trusted_hosts)
