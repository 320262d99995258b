"""Behind a proxy: what is believed of what it says."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.features.feature import Group
from tests.features.table import Finding
from tests.features.trial import GRANIAN, GUNICORN, HYPERCORN, NGINX, OURS, UPSTREAM, Means, Running, Trial
from tests.features.wire import Way, ask

PROXIES = Group("Behind a proxy")

CLIENT = "192.0.2.7"

FIX = """\
from hypercorn.middleware import ProxyFixMiddleware
from probe import app
app = ProxyFixMiddleware(app, {arguments})
"""

WRAP = """\
from granian.utils.proxies import wrap_asgi_with_proxy_headers
from probe import app
app = wrap_asgi_with_proxy_headers(app)
"""

# What nginx itself believes, in the words of a scope.
TOLD = """\
location = /scope {{
    return 200 '{{"client": ["$remote_addr", 0], "scheme": "$scheme", "headers": [["host", "$host"]]}}';
}}"""


def wrapped(shown: str, text: str) -> Means:
    """The application in a wrapper that comes with its server."""
    return Means(shown, files={"wrapped.py": text}, application="wrapped:app")


def fixed(arguments: str) -> Means:
    """hypercorn's wrapper."""
    return wrapped("`ProxyFixMiddleware`", FIX.format(arguments=arguments))


def believing(shown: str, *lines: str) -> Means:
    """nginx, which says what it believes."""
    return Means(shown, [*lines, TOLD.format()])


def host_of(scope: Mapping[str, Any]) -> str:
    """The `Host` of a request, as the application has it."""
    return next((str(value) for name, value in scope.get("headers", []) if name == "host"), "")


def client_of(scope: Mapping[str, Any]) -> str | None:
    """The address of the client."""
    address: list[str] = scope.get("client") or []
    return address[0] if address else None


@PROXIES.feature("`X-Forwarded-For`, `X-Forwarded-Proto`")
def common(trial: Trial) -> Finding:
    """Both fields from a trusted peer set client and scheme in the scope."""
    means = {
        OURS: Means("by default"),
        UPSTREAM: Means("by default"),
        GRANIAN: wrapped("`wrap_asgi_with_proxy_headers`", WRAP),
        GUNICORN: Means("`--forwarded-allow-ips`", ["--forwarded-allow-ips", "127.0.0.1"]),
        HYPERCORN: fixed("mode='legacy'"),
        NGINX: believing("`real_ip_header`", "set_real_ip_from 127.0.0.1;", "real_ip_header X-Forwarded-For;"),
    }
    with trial.serving(means) as server:
        scope = server.ask("/scope", "GET", f"x-forwarded-for: {CLIENT}", "x-forwarded-proto: https").json()
    return {"client": client_of(scope) == CLIENT, "scheme": scope.get("scheme") == "https"}


@PROXIES.feature("`Forwarded` (RFC 7239)")
def forwarded(trial: Trial) -> Finding:
    """`Forwarded: for=192.0.2.7;proto=https;host=shop.test` from a trusted peer sets client, scheme and host in the
    scope."""
    means = {
        OURS: Means("`--forwarded-headers`", ["--forwarded-headers", "forwarded"]),
        GRANIAN: wrapped("", WRAP),
        HYPERCORN: fixed("mode='modern'"),
        NGINX: believing("", "set_real_ip_from 127.0.0.1;", "real_ip_header Forwarded;"),
    }
    with trial.serving(means) as server:
        scope = server.ask("/scope", "GET", f"forwarded: for={CLIENT};proto=https;host=shop.test").json()
    return {
        "client": client_of(scope) == CLIENT,
        "scheme": scope.get("scheme") == "https",
        "host": host_of(scope) == "shop.test",
    }


@PROXIES.feature("`X-Forwarded-Host`, `-Port`, `-Prefix`")
def others(trial: Trial) -> Finding:
    """`X-Forwarded-Host: shop.test`, `X-Forwarded-Port: 8443` and `X-Forwarded-Prefix: /shop` from a trusted peer set
    host, port and `root_path`."""
    names = "x-forwarded-for,x-forwarded-proto,x-forwarded-host,x-forwarded-port,x-forwarded-prefix"
    means = {
        OURS: Means("`--forwarded-headers`", ["--forwarded-headers", names]),
        GRANIAN: wrapped("", WRAP),
        HYPERCORN: fixed("mode='legacy'"),
        NGINX: believing("", "set_real_ip_from 127.0.0.1;", "real_ip_header X-Forwarded-For;"),
    }
    fields = ["x-forwarded-host: shop.test", "x-forwarded-port: 8443", "x-forwarded-prefix: /shop"]
    with trial.serving(means) as server:
        scope = server.ask("/scope", "GET", f"x-forwarded-for: {CLIENT}", *fields).json()
    host = host_of(scope)
    return {
        "host": host.startswith("shop.test"),
        "port": host.endswith(":8443"),
        "prefix": scope.get("root_path") == "/shop",
    }


@PROXIES.feature("Number of proxies")
def hops(trial: Trial) -> Finding:
    """`X-Forwarded-For: 203.0.113.66, 192.0.2.7, 198.51.100.9` behind two proxies with unknown addresses: the client is
    the second from the right."""
    means = {
        OURS: Means("`--forwarded-hops 2`", ["--forwarded-allow-ips", "*", "--forwarded-hops", "2"]),
        UPSTREAM: Means("", ["--forwarded-allow-ips", "*"]),
        GRANIAN: wrapped("", WRAP.replace("(app)", "(app, '*')")),
        GUNICORN: Means("", ["--forwarded-allow-ips", "*"]),
        HYPERCORN: fixed("trusted_hops=2"),
        NGINX: believing("", "set_real_ip_from 0.0.0.0/0;", "real_ip_header X-Forwarded-For;"),
    }
    with trial.serving(means) as server:
        scope = server.ask("/scope", "GET", f"x-forwarded-for: 203.0.113.66, {CLIENT}, 198.51.100.9").json()
    return {"": client_of(scope) == CLIENT}


VERSION_1 = f"PROXY TCP4 {CLIENT} 127.0.0.1 4711 80\r\n".encode()
VERSION_2 = (
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"
    + socket.inet_aton(CLIENT)
    + socket.inet_aton("127.0.0.1")
    + (4711).to_bytes(2, "big")
    + (80).to_bytes(2, "big")
)
HEADERS = (VERSION_1, VERSION_2)


@PROXIES.feature("PROXY protocol")
def proxy_protocol(trial: Trial) -> Finding:
    """A PROXY header from a trusted peer, version 1 or 2, with or without TLS behind it, sets the client in the scope;
    from an untrusted peer it does not."""
    gunicorn = ["--proxy-protocol", "auto", "--proxy-allow-from", "127.0.0.1", "--forwarded-allow-ips", "127.0.0.1"]
    means = {
        OURS: Means("`--proxy-protocol`", ["--proxy-protocol", "--forwarded-allow-ips", "127.0.0.1"]),
        GUNICORN: Means("`--proxy-protocol`", gunicorn),
        NGINX: Means(
            "`listen ... proxy_protocol`",
            ["set_real_ip_from 127.0.0.1;", "real_ip_header proxy_protocol;", TOLD.format()],
            listen="proxy_protocol",
        ),
    }
    with trial.serving(means) as server:
        found = {f"version {version}": names_client(server, text) for version, text in enumerate(HEADERS, 1)}
        strangers = [replace(server.way, source="127.0.0.2", before=text) for text in HEADERS]
        guarded = any(found.values()) and not any(client_of(ask(way, "/scope").json()) == CLIENT for way in strangers)
    with trial.serving(means, certificate=trial.certificate("server.test")) as server:
        found["in front of TLS"] = any(names_client(server, text) for text in HEADERS)
    return {**found, "of trusted peers alone": guarded}


def names_client(server: Running, header: bytes) -> bool:
    """Whether the client is whom the header names."""
    way: Way = replace(server.way, before=header)
    return client_of(ask(way, "/scope").json()) == CLIENT
