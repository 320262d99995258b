"""What proxies say beside address and scheme: RFC 7239, and the X-Forwarded fields of hosts, ports and prefixes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uvicorn.config import Config
from uvicorn.middleware.forwarded import ForwardedMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware, parse_fields

CUSTOM = ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix")
TRUSTED = ["127.0.0.1", "10.0.0.0/8"]


def seen(
    *lines: tuple[str, str],
    fields: tuple[str, ...] = ("forwarded",),
    hops: int | None = None,
    trusted: Any = TRUSTED,
    peer: str | None = "127.0.0.1",
    kind: str = "http",
) -> dict[str, Any]:
    """The scope of a request with these fields, as the application sees it."""
    scope: dict[str, Any] = {
        "type": kind,
        "client": (peer, 1) if peer else None,
        "scheme": "ws" if kind == "websocket" else "http",
        "server": ("127.0.0.1", 8000),
        "root_path": "",
        "path": "/a b",
        "raw_path": b"/a%20b",
        "headers": [
            (b"accept", b"*/*"),
            (b"host", b"inner:8000"),
            *((n.encode(), v.encode("latin-1")) for n, v in lines),
        ],
    }
    ForwardedMiddleware(None, trusted, fields, hops).correct(scope)  # type: ignore[arg-type]
    return scope


def client(*values: str, **options: Any) -> Any:
    """The client by these lines of ``Forwarded``."""
    return seen(*(("forwarded", value) for value in values), **options)["client"]


def host(scope: dict[str, Any]) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == b"host"]


UNCHANGED = ("127.0.0.1", 1)


# RFC 7239


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("for=192.0.2.60", ("192.0.2.60", 0)),
        ("For=192.0.2.60;Proto=http", ("192.0.2.60", 0)),
        ('for="192.0.2.60:4711"', ("192.0.2.60", 4711)),
        ('for="[2001:db8:cafe::17]:4711"', ("2001:db8:cafe::17", 4711)),
        ('for="[2001:db8:cafe::17]"', ("2001:db8:cafe::17", 0)),
        ("for=unknown", ("unknown", 0)),
        ("for=_gazonk", ("_gazonk", 0)),
        ('for="\\1\\92.0.2.60"', ("192.0.2.60", 0)),
        ("proto=https;by=10.0.0.1;for=192.0.2.60 ; host=a", ("192.0.2.60", 0)),
        ("for=192.0.2.43, for=198.51.100.17", ("198.51.100.17", 0)),
        ("for=192.0.2.43, for=10.0.0.3", ("192.0.2.43", 0)),
        ("for=10.0.0.4,for=10.0.0.3", ("10.0.0.4", 0)),
        ("for=192.0.2.43,,  ,for=10.0.0.3, ", ("192.0.2.43", 0)),
        ('for=192.0.2.43;ext="a,b\\",c", for=10.0.0.3', ("192.0.2.43", 0)),
        # What follows no grammar ends the chain, and what is behind it holds.
        ("for=192.0.2.43, nonsense, for=10.0.0.3", ("10.0.0.3", 0)),
        ("for=192.0.2.43, proto=http, for=10.0.0.3", ("10.0.0.3", 0)),
        ("for=192.0.2.43;for=192.0.2.44, for=10.0.0.3", ("10.0.0.3", 0)),
        ('for="192.0.2.43, for=10.0.0.3', ("10.0.0.3", 0)),
        ('for="192.0.2.43, for="[2001:db8::1]"', ("2001:db8::1", 0)),
        ('x="\\", for=192.0.2.44', ("192.0.2.44", 0)),
        ("", UNCHANGED),
        ("nonsense", UNCHANGED),
        ("for=", UNCHANGED),
        ('for=""', UNCHANGED),
        ("for =a", UNCHANGED),
        ('for="a\x00b"', UNCHANGED),
    ],
)
def test_client_by_the_standard(value: str, found: Any) -> None:
    assert client(value) == found


def test_lines_are_one_list() -> None:
    assert client("for=192.0.2.43", "for=10.0.0.3") == ("192.0.2.43", 0)
    assert client('for="192.0.2.43', 'for="[2001:db8::1]"') == ("2001:db8::1", 0)


def test_host_and_scheme_are_those_of_the_member_that_names_the_client() -> None:
    scope = seen(("forwarded", "for=192.0.2.1;proto=https;host=example.org, for=10.0.0.1;proto=http;host=inner"))
    assert (scope["client"], scope["scheme"], scope["server"]) == (("192.0.2.1", 0), "https", ("example.org", 443))
    assert host(scope) == [b"example.org"]
    spoofed = seen(("forwarded", "for=10.0.0.9;proto=https;host=evil, for=192.0.2.1;proto=http;host=example.org"))
    assert (spoofed["client"], spoofed["scheme"], host(spoofed)) == (("192.0.2.1", 0), "http", [b"example.org"])
    assert seen(("forwarded", "for=192.0.2.1;proto=https"), kind="websocket")["scheme"] == "wss"
    assert seen(("forwarded", "for=192.0.2.1;proto=gopher"))["scheme"] == "http"


@given(st.text(st.sampled_from('for=,;"\\ 1.[]:_a\t'), max_size=60))
def test_nothing_in_front_of_the_last_member_changes_it(front: str) -> None:
    """P5: whatever a client sends, the nearest proxy's word on it stands, in a line of its own or at the end of one."""
    assert client(front, "for=192.0.2.7") == ("192.0.2.7", 0)
    assert client(f'{front},for="[2001:db8::7]:1"') == ("2001:db8::7", 1)


@pytest.mark.parametrize("text", ["for=10.0.0.1,", 'a="', ',x="', '";', "\\", ",", 'a="\\",', "a=b;", '"'])
def test_long_fields_have_an_end(text: str) -> None:
    """P5: no expression or list of members may cost much more than its length, whoever has written it."""
    long = text * (60_000 // len(text))
    assert client(f"{long},for=192.0.2.2") == ("192.0.2.2", 0)
    assert client(long) in (UNCHANGED, ("10.0.0.1", 0), ("b", 0))


# How many proxies


def test_number_of_proxies_decides_whatever_the_addresses() -> None:
    chain = "for=192.0.2.1, for=192.0.2.2, for=192.0.2.3"
    assert [client(chain, hops=hops)[0][-1] for hops in (1, 2, 3, 9)] == ["3", "2", "1", "1"]
    assert client(chain, hops=2, trusted="*") == ("192.0.2.2", 0)
    assert client(chain, trusted="*") == ("192.0.2.1", 0)
    assert client(chain, hops=2, trusted="*", peer=None) == ("192.0.2.2", 0)
    custom = seen(
        ("x-forwarded-for", "192.0.2.1, 192.0.2.2:7"), ("x-forwarded-for", "192.0.2.3"), fields=CUSTOM, hops=2
    )
    assert custom["client"] == ("192.0.2.2", 7)


def test_peer_that_is_not_trusted_says_nothing() -> None:
    assert client("for=192.0.2.1", peer="192.0.2.9") == ("192.0.2.9", 1)
    assert client("for=192.0.2.1", peer=None) is None


# X-Forwarded-Host, -Port, -Prefix


def test_host_replaces_that_of_the_request() -> None:
    scope = seen(("x-forwarded-host", "Example.org:8443"), ("x-forwarded-proto", "https"), fields=CUSTOM)
    assert host(scope) == [b"Example.org:8443"]
    assert (scope["server"], scope["scheme"]) == (("Example.org", 8443), "https")
    assert scope["headers"].count((b"accept", b"*/*")) == 1
    assert host(seen(("x-forwarded-host", "[2001:db8::1]"), fields=CUSTOM)) == [b"[2001:db8::1]"]
    assert seen(("x-forwarded-host", "[2001:db8::1]"), fields=CUSTOM)["server"] == ("2001:db8::1", 80)


@pytest.mark.parametrize(
    ("port", "proto", "authority", "server"),
    [
        ("8443", "https", b"example.org:8443", ("example.org", 8443)),
        ("443", "https", b"example.org", ("example.org", 443)),
        ("80", "http", b"example.org", ("example.org", 80)),
        ("0", "http", b"inner:8000", ("127.0.0.1", 8000)),
        ("65536", "http", b"inner:8000", ("127.0.0.1", 8000)),
        ("8x", "http", b"example.org", ("example.org", 80)),
    ],
)
def test_port_belongs_to_the_host(port: str, proto: str, authority: bytes, server: Any) -> None:
    lines = ("x-forwarded-host", "example.org"), ("x-forwarded-port", port), ("x-forwarded-proto", proto)
    scope = seen(*lines, fields=CUSTOM)
    assert (host(scope), scope["server"]) == ([authority], server)


def test_port_alone_changes_that_of_the_request() -> None:
    scope = seen(("x-forwarded-port", "9000"), fields=CUSTOM)
    assert (host(scope), scope["server"]) == ([b"inner:9000"], ("inner", 9000))


@pytest.mark.parametrize("value", ["", "a b", "a/b", "a@b", "a:b", "[::1", "a,", "a:99999", 'a"', "ä.example"])
def test_what_is_no_host_changes_nothing(value: str) -> None:
    """P6"""
    scope = seen(("x-forwarded-host", value), fields=CUSTOM)
    assert (host(scope), scope["server"]) == ([b"inner:8000"], ("127.0.0.1", 8000))


def test_member_of_a_list_is_that_of_the_client() -> None:
    hosts = ("x-forwarded-host", "evil, example.org, inner")
    assert host(seen(("x-forwarded-for", "10.9.9.9, 192.0.2.1, 10.0.0.1"), hosts, fields=CUSTOM)) == [b"example.org"]
    # Lists that do not go together: the nearest proxy's word.
    assert host(seen(("x-forwarded-for", "192.0.2.1, 10.0.0.1"), hosts, fields=CUSTOM)) == [b"inner"]
    assert host(seen(hosts, fields=CUSTOM)) == [b"inner"]


def test_prefix_stands_in_front_of_the_path() -> None:
    scope = seen(("x-forwarded-prefix", "/api/v%201/"), fields=CUSTOM)
    assert (scope["root_path"], scope["path"], scope["raw_path"]) == ("/api/v 1", "/api/v 1/a b", b"/api/v%201/a%20b")


@pytest.mark.parametrize(
    "value",
    [
        *("", "/", "api", "//evil", "/a//b", "/%2F/evil", "/a/../b", "/%2e%2e", "/a?b", "/a b", "/ä", "/a%2f"),
        *("/a%0d%0ax-evil:%20b", "/a%0a", "/a%00", "/a%09b", "/a%1b[1m", "/a%7f", "/a%c2%85", "/%e2%80%a8"),
        *("/a\r\nb", "/a\0b", "/a\n", "/%5cevil", "/a%", "/a%0", "/a%zz", "/a%ff", "/%c0%af"),
    ],
)
def test_what_is_no_prefix_changes_nothing(value: str) -> None:
    """P6"""
    scope = seen(("x-forwarded-prefix", value), fields=CUSTOM)
    assert (scope["root_path"], scope["path"], scope["raw_path"]) == ("", "/a b", b"/a%20b")


CONTROLS = ["\r", "\n", "\0", "\r\n", "\x1b", "\x7f", "\x85", "\x9b"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-forwarded-for", "203.0.113.1{}2"),
        ("x-forwarded-for", "[2001:db8::1{}]:80"),
        ("x-forwarded-for", "203.0.113.1:8{}0"),
        ("x-forwarded-for", "name{}"),
        ("x-forwarded-proto", "https{}"),
        ("x-forwarded-host", "outer.example{}"),
        ("x-forwarded-host", "outer{}.example:80"),
        ("x-forwarded-port", "84{}43"),
        ("x-forwarded-port", "8443{}"),
        ("x-forwarded-prefix", "/api{}"),
        ("x-forwarded-prefix", "/api{}/b"),
        ("forwarded", 'for="203.0.113.1{}2"'),
        ("forwarded", 'for="\\{}203.0.113.1"'),
        ("forwarded", "for=203.0.113.1{}"),
        ("forwarded", 'for=10.0.0.1;host="outer{}.example"'),
        ("forwarded", 'for=10.0.0.1;proto="https{}"'),
        ("forwarded", "for=10.0.0.1;proto=https{}"),
    ],
)
def test_control_characters_get_nowhere(name: str, value: str, subtests: pytest.Subtests) -> None:
    """P6: parsers refuse them in heads, but middleware and other servers may have made the scope."""
    for kind in ("http", "websocket"):
        quiet = seen(kind=kind)
        for control in CONTROLS:
            with subtests.test(kind=kind, control=control):
                fields = ("forwarded",) if name == "forwarded" else CUSTOM
                scope = seen((name, value.format(control)), fields=fields, kind=kind)
                for key in ("scheme", "server", "root_path", "path", "raw_path"):
                    assert scope[key] == quiet[key]
                assert scope["client"] in (UNCHANGED, ("10.0.0.1", 0))
                assert host(scope) == host(quiet)


def test_only_what_is_named_is_looked_at() -> None:
    lines = [(name, "192.0.2.1") for name in CUSTOM] + [("forwarded", "for=192.0.2.1;host=evil")]
    scope = seen(*lines, fields=("x-forwarded-port",))
    assert (scope["client"], scope["root_path"], host(scope)) == (UNCHANGED, "", [b"inner:8000"])


# The settings


def test_default_is_what_upstream_does() -> None:
    config = Config(lambda scope, receive, send: None, log_config=None)
    config.load()
    assert type(config.loaded_app) is ProxyHeadersMiddleware
    assert "forwarded" not in repr(config).replace("forwarded_allow_ips", "")


@pytest.mark.parametrize("settings", [{"forwarded_headers": "Forwarded"}, {"forwarded_hops": 2}])
def test_settings_choose_the_middleware(settings: dict[str, Any]) -> None:
    config = Config(lambda scope, receive, send: None, log_config=None, **settings)
    config.load()
    assert isinstance(config.loaded_app, ForwardedMiddleware)
    assert config.loaded_app.hops == settings.get("forwarded_hops")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (["x-real-ip"], "'x-real-ip' is none of forwarded, "),
        (["forwarded", "x-forwarded-host"], "name what the proxy sets"),
        ([""], "'' is none of"),
    ],
)
def test_choice_that_a_client_could_decide_is_refused(fields: list[str], error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        parse_fields(fields)
    with pytest.raises(ValueError, match=re.escape(error)):
        Config("app:app", log_config=None, forwarded_headers=",".join(fields))
