"""The client and the scheme behind a proxy: PRX-* of tests/catalogue/behaviour.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from uvicorn.access.request_id import RequestIds
from uvicorn.config import Config
from uvicorn.config.errors import report_error
from uvicorn.middleware import proxy_headers
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware, _TrustedHosts

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VECTORS = tomllib.loads((Path(__file__).parent.parent / "vectors" / "proxy.toml").read_text("utf-8"))["vector"]

pytestmark = pytest.mark.anyio


def scope_from(vector: dict[str, Any]) -> dict[str, Any]:
    scope_type = vector.get("type", "http")
    peer = vector.get("peer", "127.0.0.1")
    return {
        "type": scope_type,
        "client": (peer, 1) if peer else None,
        "scheme": "ws" if scope_type == "websocket" else "http",
        "root_path": "",
        "server": ("192.0.2.80", 8000),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in vector["fields"]],
    }


async def through_middleware(scope: dict[str, Any], *trusted: Any) -> dict[str, Any]:
    """Return the scope as the application behind the middleware sees it."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    middleware = ProxyHeadersMiddleware(app, *trusted)
    await middleware(scope, None, None)  # type: ignore[arg-type]
    assert [given is scope for given in seen] == [True]
    return scope


async def client_seen(forwarded_for: str, trusted: str = "127.0.0.1") -> Any:
    vector = {"fields": [["x-forwarded-for", forwarded_for]]}
    return (await through_middleware(scope_from(vector), trusted))["client"]


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["id"]) for vector in VECTORS])
async def test_vector(vector: dict[str, Any]) -> None:
    """PRX-01 to PRX-19, PRX-21; P1, P2, P3, P4: each row names the ones it covers."""
    before = scope_from(vector)
    expected = dict(before)
    if "client" in vector:
        expected["client"] = tuple(vector["client"])
    if "scheme" in vector:
        expected["scheme"] = vector["scheme"]

    after = await through_middleware(dict(before), vector.get("trusted", "127.0.0.1,::1"))

    assert after == expected
    assert type(after["client"]) is type(expected["client"])


def test_vectors_have_unique_names() -> None:
    assert len({vector["id"] for vector in VECTORS}) == len(VECTORS)


async def test_without_argument_only_the_ipv4_loopback_is_trusted() -> None:
    """PRX-20."""
    fields = [["x-forwarded-for", "198.51.100.1"]]
    by_ipv4 = await through_middleware(scope_from({"fields": fields}))
    by_ipv6 = await through_middleware(scope_from({"fields": fields, "peer": "::1"}))
    assert by_ipv4["client"] == ("198.51.100.1", 0)
    assert by_ipv6["client"] == ("::1", 1)


async def test_client_absent_from_the_scope_is_an_untrusted_peer() -> None:
    scope = scope_from({"fields": [["x-forwarded-for", "198.51.100.1"]]})
    del scope["client"]
    assert "client" not in await through_middleware(scope, "127.0.0.1")


async def test_lifespan_scope_passes_unchanged() -> None:
    scope = {"type": "lifespan", "state": {}}
    assert await through_middleware(scope, "*") == {"type": "lifespan", "state": {}}


async def test_what_the_application_returns_is_passed_on() -> None:
    """The server reports an application that returns something: it must see it."""

    async def app(scope: Any, receive: Any, send: Any) -> Any:
        return "something"

    scope: Any = scope_from({"fields": []})
    assert await ProxyHeadersMiddleware(app)(scope, None, None) == "something"  # type: ignore[arg-type, func-returns-value]


@pytest.mark.parametrize(
    "value, host",
    [
        pytest.param("," * 60_000, "127.0.0.1", id="commas"),
        pytest.param("198.51.100.1" + "," * 60_000 + "127.0.0.1", "127.0.0.1", id="commas-inside"),
        pytest.param(" " * 32_000, "127.0.0.1", id="spaces"),
        pytest.param(" " * 32_000 + "198.51.100.1", "198.51.100.1", id="leading-spaces"),
        pytest.param("198.51.100.1, " + "127.0.0.1 , " * 8_000 + "127.0.0.1", "198.51.100.1", id="trusted-hops"),
        pytest.param(":" * 60_000, ":" * 60_000, id="colons"),
        pytest.param("[" * 60_000, "[" * 60_000, id="brackets"),
        pytest.param("a" * 60_000, "a" * 60_000, id="long-name"),
        pytest.param("1.2.3.4:" + "9" * 60_000, "1.2.3.4:" + "9" * 60_000, id="long-port"),
    ],
)
async def test_hostile_lists_are_read_in_one_pass(value: str, host: str) -> None:
    """D7: the result is right, and the hosts asked for grow with the items, not with their square."""
    assert (await client_seen(value))[0] == host


async def test_hostile_white_space_around_a_scheme() -> None:
    """D7."""
    vector = {"fields": [["x-forwarded-proto", " " * 32_000 + "https" + "\t" * 32_000]]}
    assert (await through_middleware(scope_from(vector)))["scheme"] == "https"


async def test_each_item_is_judged_at_most_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: work is linear in the number of items, repeated ones being remembered."""
    asked: list[str | None] = []
    decide = _TrustedHosts._compute_trust

    def counting(self: _TrustedHosts, host: str | None) -> bool:
        asked.append(host)
        return decide(self, host)

    monkeypatch.setattr(_TrustedHosts, "_compute_trust", counting)
    hops = [f"10.0.{n // 250}.{n % 250}" for n in range(500)]
    assert await client_seen("192.0.2.1," + ",".join(hops), "127.0.0.1,10.0.0.0/8") == ("192.0.2.1", 0)
    assert sorted(map(str, asked)) == sorted(["127.0.0.1", "192.0.2.1", *hops])


async def test_known_peer_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request costs one lookup of its peer, whether that is trusted or not."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        pass

    middleware = ProxyHeadersMiddleware(app, "127.0.0.1")
    scopes: list[Any] = [scope_from({"fields": [], "peer": peer}) for peer in ("127.0.0.1", "192.0.2.1")]
    for scope in scopes:
        await middleware(scope, None, None)  # type: ignore[arg-type]
    monkeypatch.setattr(proxy_headers, "ipaddress", None)
    for scope in scopes:
        await middleware(scope, None, None)  # type: ignore[arg-type]


def test_answers_about_many_peers_stay_bounded() -> None:
    """D7: neither the addresses of peers nor the items of lists can fill the memory."""
    trusted = _TrustedHosts("10.0.0.0/8")
    assert all(f"10.1.{n // 250}.{n % 250}" in trusted for n in range(5_000))
    assert len(trusted.answers) <= proxy_headers._MAX_ANSWERS
    assert "x" * 65 not in trusted
    assert "x" * 65 not in trusted.answers


@pytest.mark.parametrize(
    "trusted, host, expected",
    [
        pytest.param("127.0.0.1", "127.0.0.1", True, id="address"),
        pytest.param("127.0.0.1", "127.0.0.2", False, id="other-address"),
        pytest.param("127.0.0.1", None, False, id="no-address"),
        pytest.param("127.0.0.1", "", False, id="empty"),
        pytest.param("", "", False, id="empty-list-and-host"),
        pytest.param("*", None, True, id="star-no-address"),
        pytest.param("*", "anything", True, id="star-any"),
        pytest.param(["*", "x"], "*", True, id="star-as-literal"),
        pytest.param("fe80::/10", "fe80::1%eth0", True, id="zone-in-network"),
        pytest.param("::ffff:0:0/96", "127.0.0.1", False, id="families-are-not-mixed"),
        pytest.param("x" * 100, "x" * 100, True, id="long-literal"),
    ],
)
def test_trusted_hosts_contain(trusted: Any, host: str | None, expected: bool) -> None:
    """PRX-02, PRX-03, PRX-05, PRX-06, PRX-07."""
    hosts = _TrustedHosts(trusted)
    assert (host in hosts) is expected
    assert (host in hosts) is expected, "the remembered answer is another"


@given(st.text(st.characters(max_codepoint=255)))
def test_any_text_names_a_host_and_a_port_that_could_exist(forwarded_for: str) -> None:
    """P2: no garbage raises, and a port is a port."""
    for trusted in ("127.0.0.1", "*"):
        host, port = _TrustedHosts(trusted).get_trusted_client_address(forwarded_for)
        assert host in forwarded_for
        assert 0 <= port <= 65535


@given(st.lists(st.ip_addresses(), min_size=1), st.integers(0, 65535), st.booleans())
def test_left_of_the_client_nothing_matters(chain: Any, port: int, with_port: bool) -> None:
    """PRX-12, PRX-13, PRX-15, P2: whatever stands left of the right-most untrusted item changes nothing."""

    def item(address: Any) -> str:
        text = f"[{address}]" if address.version == 6 else str(address)
        return f"{text}:{port}" if with_port else str(address)

    client = chain[0]
    hosts = _TrustedHosts([str(address) for address in chain[1:] if address != client])
    assume(str(client) not in hosts)  # as the IPv4-mapped address of another
    items = ", ".join(item(address) for address in [client, *(a for a in chain[1:] if a != client)])
    expected = (str(client), port if with_port else 0)
    for invented in ("", "127.0.0.1, ", "unknown,,", str(chain[-1]) + ","):
        assert hosts.get_trusted_client_address(invented + items) == expected


@pytest.mark.parametrize("trusted", ["10.0.0.5", "10.0.0.0/8", "::ffff:10.0.0.5", "::ffff:0:0/96", "0.0.0.0/0", "::/0"])
@pytest.mark.parametrize("host", ["::ffff:10.0.0.5", "::FFFF:0a00:0005"])
def test_who_comes_through_a_socket_of_both_families_is_trusted_like_who_does_not(trusted: str, host: str) -> None:
    assert host in _TrustedHosts(trusted)


@pytest.mark.parametrize("host", ["::ffff:10.0.0.6", "::10.0.0.5", "2002:a00:5::", "64:ff9b::10.0.0.5"])
@pytest.mark.parametrize("trusted", ["10.0.0.5", "10.0.0.5/32", "::ffff:10.0.0.5"])
def test_addresses_that_are_alike_are_not_trusted(trusted: str, host: str) -> None:
    """P1"""
    assert host not in _TrustedHosts(trusted)


def test_chain_is_followed_through_mapped_addresses() -> None:
    """P2"""
    hosts = _TrustedHosts("10.0.0.0/8")
    assert hosts.get_trusted_client_address("203.0.113.9, ::ffff:192.0.2.1, ::ffff:10.0.0.5") == ("::ffff:192.0.2.1", 0)


# Replaced by the program.


class Nobody(_TrustedHosts):
    def __contains__(self, host: str | None) -> bool:
        return False


def test_replaced_class_decides_about_headers_of_its_own_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where upstream has no such feature: PROXY headers, and the ids of requests."""
    monkeypatch.setattr(proxy_headers, "_TrustedHosts", Nobody)
    config = Config("none:app", log_config=None, forwarded_allow_ips="10.0.*", proxy_protocol=True)
    assert config.requires_proxy_header is not None
    assert not config.requires_proxy_header("10.0.0.1")
    assert not RequestIds("x-request-id", "*").trusts(("127.0.0.1", 1))


@pytest.mark.parametrize("settings", [{"forwarded_headers": "forwarded"}, {"forwarded_hops": 1}])
def test_replaced_search_for_the_client_is_refused_where_it_is_not_called(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        pass

    monkeypatch.setattr(proxy_headers, "_TrustedHosts", Nobody)
    Config(app, log_config=None, **settings).load()  # that is called
    monkeypatch.setattr(Nobody, "get_trusted_client_address", lambda self, value: ("1.2.3.4", 0))
    config = Config(app, log_config=None, **settings)
    with pytest.raises(ValueError, match="get_trusted_client_address` is replaced, but never called") as raised:
        config.load()
    assert report_error(raised.value)


def test_untouched_middleware_is_passed_by_requests_without_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        pass

    assert proxy_headers.app_without_fields(ProxyHeadersMiddleware(app)) is app
    assert proxy_headers.app_without_fields(app) is None
    changed = type("Changed", (ProxyHeadersMiddleware,), {"__call__": app})
    assert proxy_headers.app_without_fields(changed(app)) is None
    monkeypatch.setattr(_TrustedHosts, "_compute_trust", lambda self, host: True)
    assert proxy_headers.app_without_fields(ProxyHeadersMiddleware(app)) is None
