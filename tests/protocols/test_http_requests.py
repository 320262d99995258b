"""Requests: what is served, what is refused, and what the application is told about it."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.doubles import MockTransport
from tests.protocols.harness import GET, Calls, echo, make_config, request, respond, serve
from tests.utils import deep_after, turns, wait_until
from uvicorn.serving.state import ServerState

pytestmark = pytest.mark.anyio

INVALID = "Invalid HTTP request received."


# The scope


async def test_scope_has_these_keys_and_no_others(http_protocol_cls: Any) -> None:
    """SCO-01, SCO-02"""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        await (await service.connect()).ask()
    assert set(app.scope) == {
        *("type", "asgi", "http_version", "server", "client", "scheme", "method"),
        *("root_path", "path", "raw_path", "query_string", "headers", "state"),
    }
    assert app.scope["type"] == "http"
    assert app.scope["asgi"] == {"version": "3.0", "spec_version": "2.3"}


async def test_asgi_version_is_that_of_the_interface(http_protocol_cls: Any) -> None:
    """SCO-02, IF-06"""
    scopes = []

    class App:
        def __init__(self, scope: Any) -> None:
            scopes.append(scope)

        async def __call__(self, receive: Any, send: Any) -> None:
            await respond()(None, receive, send)

    async with serve(http_protocol_cls, App, interface="asgi2") as service:
        assert (await (await service.connect()).ask()).body == b"ok"
    assert scopes[-1]["asgi"] == {"version": "2.0", "spec_version": "2.3"}


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_http_version_is_the_clients(http_protocol_cls: Any, version: str) -> None:
    """SCO-03"""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        await (await service.connect()).ask(request(version=version))
    assert app.scope["http_version"] == version


async def test_addresses_are_those_of_the_two_ends(http_protocol_cls: Any) -> None:
    """SCO-04, SCO-05"""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.ask()
        assert app.scope["server"] == tuple(service.address)
        assert app.scope["client"] == client.sock.getsockname()


async def test_ipv6_addresses_have_two_items(http_protocol_cls: Any) -> None:
    """SCO-05, K11"""
    app = Calls()
    async with serve(http_protocol_cls, app, host="::1") as service:
        client = await service.connect()
        await client.ask()
        assert app.scope["server"] == tuple(service.address[:2])
        assert app.scope["client"] == client.sock.getsockname()[:2]


async def test_unix_socket_has_a_path_and_no_client(http_protocol_cls: Any, tmp_path: Path) -> None:
    """SCO-04, SCO-05, K11; and is a neighbour who may ask for https (RFC 9110 section 7.4)."""
    app = Calls()
    path = str(tmp_path / "s")
    async with serve(http_protocol_cls, app, uds=path, proxy_headers=False) as service:
        assert (await (await service.connect()).ask(request("GET", "https://a/"))).status == 200
    assert app.scope["server"] == (path, None)
    assert app.scope["client"] is None


@pytest.mark.parametrize("method", ["GET", "POST", "PROPFIND", "VERSION-CONTROL", "X1"])
async def test_method_is_text_as_sent(http_protocol_cls: Any, method: str) -> None:
    """SCO-06: upper-case tokens that nobody has registered are methods too."""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        assert (await (await service.connect()).ask(request(method))).status == 200
    assert app.scope["method"] == method


@pytest.mark.parametrize(
    ("target", "path", "raw_path", "query"),
    [
        pytest.param("/a%20b", "/a b", b"/a%20b", b"", id="decoded-once"),
        pytest.param("/%2525", "/%25", b"/%2525", b"", id="double-encoding"),
        pytest.param("/%E2%82%AC", "/€", b"/%E2%82%AC", b"", id="utf-8"),
        pytest.param("/%FF", "/\ufffd", b"/%FF", b"", id="undecodable"),
        pytest.param("/%00", "/\0", b"/%00", b"", id="nul"),
        pytest.param("/a%2Fb/../c", "/a/b/../c", b"/a%2Fb/../c", b"", id="slash-and-dots"),
        pytest.param("/p?a=1", "/p", b"/p", b"a=1", id="query"),
        pytest.param("/p?", "/p", b"/p", b"", id="empty-query"),
        pytest.param("/p?a?b=%20", "/p", b"/p", b"a?b=%20", id="second-question-mark"),
    ],
)
async def test_target_is_split_and_decoded(
    http_protocol_cls: Any, target: str, path: str, raw_path: bytes, query: bytes
) -> None:
    """SCO-07, SCO-08, SCO-12, SCO-13, U7"""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        await (await service.connect()).ask(request("GET", target))
    assert (app.scope["path"], app.scope["raw_path"], app.scope["query_string"]) == (path, raw_path, query)


@pytest.mark.parametrize(
    ("root_path", "target", "path", "raw_path"),
    [
        pytest.param("/api", "/q", "/api/q", b"/api/q", id="put-in-front"),
        pytest.param("/api", "/api/cl", "/api/api/cl", b"/api/api/cl", id="also-when-there"),
        pytest.param("/api/", "/q", "/api//q", b"/api//q", id="slashes-as-they-are"),
        pytest.param("/é", "/q", "/é/q", b"/%C3%A9/q", id="not-ascii"),
    ],
)
async def test_root_path_is_put_in_front(
    http_protocol_cls: Any, root_path: str, target: str, path: str, raw_path: bytes
) -> None:
    """SCO-07 to SCO-11; what is not ASCII is quoted in `raw_path`, where upstream fails each request."""
    app = Calls()
    async with serve(http_protocol_cls, app, root_path=root_path) as service:
        await (await service.connect()).ask(request("GET", target))
    assert (app.scope["root_path"], app.scope["path"], app.scope["raw_path"]) == (root_path, path, raw_path)


async def test_headers_are_lower_case_pairs_in_order(http_protocol_cls: Any) -> None:
    """SCO-14, SCO-15, SCO-16: white space around a value is no part of it, in either implementation."""
    app = Calls()
    head = b"GET / HTTP/1.1\r\nHOST: test\r\nX-A: 1\r\nx-b:\t two \t\r\nX-a: \xe9\xff\r\nEmpty:\r\n\r\n"
    async with serve(http_protocol_cls, app) as service:
        await (await service.connect()).ask(head)
    assert app.scope["headers"] == [
        (b"host", b"test"),
        (b"x-a", b"1"),
        (b"x-b", b"two"),
        (b"x-a", b"\xe9\xff"),
        (b"empty", b""),
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(["Transfer-Encoding: Chunked"], (b"transfer-encoding", b"Chunked"), id="coding-case"),
        pytest.param(["Content-Length: 00"], (b"content-length", b"00"), id="leading-zeros"),
    ],
)
async def test_framing_fields_are_shown_as_sent(
    http_protocol_cls: Any, fields: list[str], expected: tuple[bytes, bytes]
) -> None:
    """SCO-14: h11 would change their spelling."""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", *fields))
        assert (await client.response()).status == 200
    assert app.scope["headers"][-1] == expected


@pytest.mark.parametrize(
    ("settings", "trusted"),
    [
        pytest.param({"proxy_headers": False}, False, id="nobody-is-trusted"),
        pytest.param({"forwarded_allow_ips": "10.1.2.3"}, False, id="somebody-else-is-trusted"),
        pytest.param({"forwarded_allow_ips": "127.0.0.1"}, True, id="trusted"),
        pytest.param({"forwarded_allow_ips": "*"}, True, id="everybody-is-trusted"),
    ],
)
async def test_https_is_asked_for_in_clear_text_by_trusted_gateways_only(
    http_protocol_cls: Any, settings: dict[str, Any], trusted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """RFC 9110 section 7.4: anybody else MUST be refused, for the connection is not secured."""
    app = Calls()
    async with serve(http_protocol_cls, app, **{"proxy_headers": True, **settings}) as service:
        client = await service.connect()
        assert (await client.ask(request("GET", "http://other/"))).status == 200
        response = await client.ask(request("GET", "HttpS://other/"))
    assert (response.status, response.values(b"connection")) == ((200, []) if trusted else (421, [b"close"]))
    warning = "Request refused with 421 Misdirected Request: https requested in clear text by a peer outside "
    assert trusted is not any(warning in record.getMessage() for record in caplog.records)
    assert len(app.scopes) == 1 + trusted


@pytest.mark.parametrize(
    ("target", "raw_path", "query"),
    [
        pytest.param("http://other:81/bar?q", b"/bar", b"q", id="path"),
        pytest.param("http://other:81", b"/", b"", id="no-path"),
        pytest.param("HTTP://other:81?q", b"/", b"q", id="query-only"),
    ],
)
async def test_absolute_form_gives_its_path_and_its_host(
    http_protocol_cls: Any, target: str, raw_path: bytes, query: bytes
) -> None:
    """SCO-17, U4: RFC 9112 section 3.2.2: the authority in the target replaces the Host field."""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        assert (await (await service.connect()).ask(request("GET", target, "x: y"))).status == 200
    assert (app.scope["raw_path"], app.scope["query_string"]) == (raw_path, query)
    assert app.scope["headers"] == [(b"host", b"other:81"), (b"x", b"y")]


async def test_asterisk_belongs_to_options(http_protocol_cls: Any) -> None:
    """SCO-19"""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        assert (await client.ask(request("OPTIONS", "*"))).status == 200
        assert (await client.ask(request("OPTIONS", "http://test"))).status == 200
        assert (await client.ask(request("GET", "*"))).status == 400
    assert [(scope["path"], scope["raw_path"]) for scope in app.scopes] == [("*", b"*")] * 2


async def test_state_is_copied_for_each_request(http_protocol_cls: Any) -> None:
    """SCO-20: new keys stay private, values are shared."""
    shared: list[str] = []

    async def change(scope: Any, receive: Any, send: Any) -> None:
        assert set(scope["state"]) == {"shared"}
        scope["state"]["shared"].append(scope["path"])
        scope["state"]["own"] = 1
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, change, app_state={"shared": shared}) as service:
        client = await service.connect()
        assert (await client.ask(request("GET", "/1"))).status == 200
        assert (await client.ask(request("GET", "/2"))).status == 200
    assert shared == ["/1", "/2"]


async def test_state_without_a_lifespan_is_an_empty_dict_of_ones_own(http_protocol_cls: Any) -> None:
    """SCO-20, LSP-20"""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.ask()
        app.scope["state"]["mine"] = 1
        await client.ask()
    assert app.scopes[1]["state"] == {}


async def test_scheme_is_https_over_tls(
    http_protocol_cls: Any, tls_certificate: Any, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    """SCO-21, TLS-09"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_certificate.configure_cert(context)
    app = Calls()
    async with serve(http_protocol_cls, app, tls=context) as service:
        reader, writer = await asyncio.open_connection(
            *service.address, ssl=tls_ca_ssl_context, server_hostname="localhost"
        )
        for asked in (GET, request("GET", "https://a/")):
            writer.write(asked)
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
        await writer.wait_closed()
    assert [scope["scheme"] for scope in app.scopes] == ["https", "https"]


@pytest.mark.parametrize("scheme", ["https", "wss"])
async def test_scheme_is_what_a_trusted_proxy_says(http_protocol_cls: Any, scheme: str) -> None:
    """SCO-21"""
    app = Calls()
    async with serve(http_protocol_cls, app, proxy_headers=True) as service:
        await (await service.connect()).ask(request("GET", "/", f"x-forwarded-proto: {scheme}"))
    assert app.scope["scheme"] == scheme


async def test_scheme_is_http_in_clear_text(http_protocol_cls: Any) -> None:
    """SCO-21"""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        await (await service.connect()).ask()
    assert app.scope["scheme"] == "http"


@pytest.mark.parametrize("size", [65_535, 65_536])
async def test_long_target_arrives_whole(http_protocol_cls: Any, size: int) -> None:
    """U1"""
    app = Calls()
    target = "/?" + "q" * (size - 2)
    async with serve(http_protocol_cls, app) as service:
        assert (await (await service.connect()).ask(request("GET", target))).status == 200
    assert app.scope["query_string"] == b"q" * (size - 2)


# Refused


REFUSED = [
    pytest.param(b"garbage\r\n\r\n", 400, id="garbage"),
    pytest.param(b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, id="REQ-08-2.0"),
    pytest.param(b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 400, id="REQ-08-0.9"),
    pytest.param(b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 501, id="REQ-10-connect"),
    pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \xff\r\n\r\n", 400, id="D8-coding"),
    pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: \xff\r\nContent-Length: 0\r\n\r\n", 417, id="D8-expect"),
    pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nContent-Length: 0\r\n\r\n", 417, id="BODY-10"),
    pytest.param(b"G" * 65 + b" / HTTP/1.1\r\nHost: a\r\n\r\n", 501, id="U5-long-method"),
]


@pytest.mark.parametrize(("data", "status"), REFUSED)
async def test_refused_request_never_reaches_the_application(
    http_protocol_cls: Any, data: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """REQ-01, REQ-02, RES-34 and the facts in the ids; which requests are refused is said by `tests/vectors`."""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        response = await client.ask(data)
        assert response.status == status
        assert response.values(b"connection") == [b"close"]
        assert response.values(b"content-type") == [b"text/plain; charset=utf-8"]
        assert response.body == (INVALID.encode() if status == 400 else response.reason.encode())
        assert await client.rest() == b""
        client.close()
        await service.idle()
    assert app.scopes == []
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("uvicorn.error", logging.WARNING)
    if status == 400:
        assert record.getMessage() == INVALID
    else:
        assert record.getMessage().startswith(f"Request refused with {status} {response.reason}: ")


async def test_refusal_carries_the_default_headers(http_protocol_cls: Any) -> None:
    """REQ-03, REQ-04: a length and the configured headers, whatever is wrong with the request."""
    settings: dict[str, Any] = {"server_header": True, "headers": [("X-Custom", "yes")]}
    async with serve(http_protocol_cls, respond(), **settings) as service:
        assert (await (await service.connect()).ask(b"nonsense\r\n\r\n")).headers == [
            (b"server", b"uvicorn"),
            (b"x-custom", b"yes"),
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"30"),
            (b"connection", b"close"),
        ]


async def test_what_cannot_become_a_request_is_not_waited_for(http_protocol_cls: Any) -> None:
    """F6: bare LF line ends, or a TLS hello on a port without TLS, get their answer at once."""
    async with serve(http_protocol_cls, respond()) as service:
        assert (await (await service.connect()).ask(b"GET / HTTP/1.1\nHost: a\n")).status == 400
        assert (await (await service.connect()).ask(b"\x16\x03\x01\x02\x00\x01")).status == 400
        assert (await (await service.connect()).ask(b"get ")).status == 400


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(request(version="1.0").replace(b"host: test\r\n", b""), id="REQ-06-1.0-without-host"),
        pytest.param(request(version="1.2"), id="REQ-08-1.2"),
        pytest.param(b"\r\n\r\n" + GET, id="REQ-14-empty-lines"),
        pytest.param(request("GET", "/", "Connection: \xff"), id="D8-connection"),
        pytest.param(request("GET", "/", "Upgrade: \xff"), id="D8-upgrade"),
        pytest.param(request("GET", "/", "Cookie: \xff\xfe"), id="D8-cookie"),
        pytest.param(request("GET", "/", "X-Forwarded-For: \xff"), id="D8-forwarded"),
        pytest.param(request("GET", "/", "X-Many: " + "," * 30_000), id="D7-commas"),
        pytest.param(request("GET", "/", "Connection: " + "a," * 15_000), id="D7-options"),
        pytest.param(request("GET", "/", "X-Blank: " + " " * 32_000 + "x"), id="D7-blanks"),
    ],
)
async def test_unusual_request_is_served(http_protocol_cls: Any, data: bytes) -> None:
    """REQ-06, REQ-08, REQ-14, D7, D8"""
    async with serve(http_protocol_cls, respond()) as service:
        assert (await (await service.connect()).ask(data)).status == 200


async def test_request_in_single_bytes_is_the_same_request(http_protocol_cls: Any) -> None:
    """U6"""
    app = Calls(echo)
    data = request("POST", "/a%20b?c", "X-A: 1", body=b"hello")
    async with serve(http_protocol_cls, app) as service:
        whole = await (await service.connect()).ask(data)
        client = await service.connect()
        await client.send(*(data[at : at + 1] for at in range(len(data))))
        assert await client.response() == whole
    first, second = app.scopes
    assert {**first, "client": None} == {**second, "client": None}


async def test_garbage_behind_a_good_request_does_not_overtake_its_answer(http_protocol_cls: Any) -> None:
    """REQ-27, REQ-28: the answer first, then the 400; upstream's httptools implementation loses the answer."""
    release = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, slow) as service:
        client = await service.connect()
        await client.send(GET + b"garbage\r\n\r\n", b"more garbage\r\n\r\n")
        assert await client.silent()
        release.set()
        assert (await client.response()).status == 200
        assert (await client.response()).status == 400
        assert await client.rest() == b""


async def test_parser_is_sound_after_what_ends_other_connections(http_protocol_cls: Any) -> None:
    """A connection never sees what another one sent: not after close, an upgrade, a body, or an error."""
    async with serve(http_protocol_cls, echo) as service:
        for disturbance in (
            request("GET", "/", "connection: close"),
            request("GET", "/", "connection: upgrade", "upgrade: h2c"),
            request("GET", "/", "connection: close, upgrade", "upgrade: h2c"),
            request("POST", "/", "content-length: 9"),
            request("POST", "/", "transfer-encoding: chunked"),
            request("POST", "/", "transfer-encoding: chunked, chunked"),
            request("GET", "/", "content-length: x"),
        ):
            await (await service.connect()).send(disturbance)
            await turns()
            for _ in range(2):
                assert (await (await service.connect()).ask(request(body=b"mine"))).body == b"mine"


# Bodies


async def receive_all(receive: Any) -> list[Any]:
    messages = []
    while True:
        messages.append(await receive())
        if messages[-1]["type"] != "http.request" or not messages[-1]["more_body"]:
            return messages


async def test_request_without_body_gives_one_empty_event(http_protocol_cls: Any) -> None:
    """BODY-01, BODY-02, REQ-24"""
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(await receive())
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST") + GET)
        await client.response()
        await client.response()
    assert seen == [{"type": "http.request", "body": b"", "more_body": False}] * 2


async def test_body_is_delivered_as_it_comes(http_protocol_cls: Any) -> None:
    """BODY-01, BODY-03: everything buffered so far at each call; the end may come on its own."""
    seen: list[Any] = []
    turn = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not seen or seen[-1]["more_body"]:
            seen.append(await receive())
            turn.set()
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for piece in (request("PUT", "/", "transfer-encoding: chunked") + b"3\r\nabc\r\n", b"1\r\nd\r\n1\r\ne\r\n"):
            await client.send(piece)
            await turn.wait()
            turn.clear()
        await client.send(b"0\r\n\r\n")
        assert (await client.response()).status == 200
    assert [(message["body"], message["more_body"]) for message in seen] == [
        (b"abc", True),
        (b"de", True),
        (b"", False),
    ]


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_body_is_delivered_whatever_the_method(http_protocol_cls: Any, method: str) -> None:
    """REQ-25"""
    async with serve(http_protocol_cls, echo) as service:
        client = await service.connect()
        assert (await client.ask(request(method, body=b"hello"))).body == b"hello"
        assert (await client.ask(GET)).body == b""


async def test_chunk_extensions_and_trailers_are_dropped(http_protocol_cls: Any) -> None:
    """REQ-23, F14: a trailer is never promoted to a header, and the next request is where it should be."""
    app = Calls(echo)
    chunks = b'5;a;b=c;d="e\\"f"\r\nhello\r\n0;last\r\nHost: evil\r\nContent-Length: 9\r\nX: y\r\n\r\n'
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "Transfer-Encoding: CHUNKED") + chunks + GET)
        assert (await client.response()).body == b"hello"
        assert (await client.response()).body == b""
    assert app.scopes[0]["headers"] == [(b"host", b"test"), (b"transfer-encoding", b"CHUNKED")]


@pytest.mark.parametrize("chunk", [b"x\r\n", b"3\r\nabcd\r\n", b"3\nabc\r\n", b"3;\x01\r\n", b"ffffffffffffffff0\r\n"])
async def test_broken_chunk_ends_the_request_the_application_waits_for(http_protocol_cls: Any, chunk: bytes) -> None:
    """REQ-22: 400, and the application is told that the client is gone, not that the body is complete."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not seen or seen[-1]["type"] == "http.request":
            seen.append(await receive())

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "transfer-encoding: chunked") + b"1\r\na\r\n")
        await wait_until(lambda: seen)
        await client.send(chunk)
        assert (await client.response()).status == 400
        assert await client.rest() == b""
        await wait_until(lambda: seen[-1]["type"] == "http.disconnect")
    assert all(message.get("more_body", True) for message in seen)


async def test_broken_chunk_behind_the_start_of_a_response_cuts_it_short(http_protocol_cls: Any) -> None:
    """REQ-22, R7: there is no second status line inside a body; the application can no longer send."""
    started, sent = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        started.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b"second"})
        sent.set()

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "transfer-encoding: chunked"))
        await started.wait()
        await client.send(b"x\r\n")
        assert (await client.rest()).endswith(b"\r\n\r\n5\r\nfirst\r\n")
        await sent.wait()


async def test_receive_after_the_body_waits_for_the_end_of_the_response(http_protocol_cls: Any) -> None:
    """BODY-04"""
    order: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def listen() -> None:
            for _ in range(3):
                order.append((await receive())["type"])

        listener = asyncio.create_task(listen())
        while len(order) < 1:
            await asyncio.sleep(0)
        await turns()
        order.append("answer")
        await respond()(scope, receive, send)
        await listener

    async with serve(http_protocol_cls, app) as service:
        assert (await (await service.connect()).ask(request("POST", body=b"x"))).status == 200
        await wait_until(lambda: not service.state.tasks)
    assert order == ["http.request", "answer", "http.disconnect", "http.disconnect"]


async def test_receive_after_the_response_gives_disconnect_at_once(http_protocol_cls: Any) -> None:
    """BODY-04: also when the body was never asked for."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond()(scope, receive, send)
        seen.append(await receive())

    async with serve(http_protocol_cls, app) as service:
        await (await service.connect()).ask(request("POST", body=b"x"))
        await wait_until(lambda: seen)
    assert seen == [{"type": "http.disconnect"}]


async def test_two_listeners_share_the_body_and_both_end(http_protocol_cls: Any) -> None:
    """A piece reaches one of them, once; the disconnect reaches both."""
    pieces: list[bytes] = []
    ends: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def listen() -> None:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    ends.append(message["type"])
                    return
                pieces.append(message["body"])

        listeners = [asyncio.create_task(listen()) for _ in range(2)]
        while b"".join(pieces) != b"hello":
            await asyncio.sleep(0.001)
        await respond()(scope, receive, send)
        await asyncio.gather(*listeners)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 5"), b"he", b"llo")
        assert (await client.response()).status == 200
        await wait_until(lambda: len(ends) == 2)


async def test_client_that_leaves_in_the_middle_of_a_body_is_gone(http_protocol_cls: Any) -> None:
    """BODY-07, F16"""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(await receive_all(receive))

    async with serve(http_protocol_cls, app) as service:
        for data in (
            request("POST", "/", "content-length: 10") + b"hello",
            request("POST", "/", "transfer-encoding: chunked") + b"a\r\nhello",
            request("POST", "/", "transfer-encoding: chunked") + b"5\r\nhello\r\n0\r\n",
        ):
            seen.clear()
            client = await service.connect()
            await client.send(data)
            await wait_until(lambda: seen or service.state.tasks)
            client.close()
            await service.idle()
            assert seen[-1] == {"type": "http.disconnect"}
            assert all(message["more_body"] for message in seen[:-1])


async def test_reading_stops_while_the_application_does_not_read(http_protocol_cls: Any) -> None:
    """BODY-05, BODY-06, D4: little more than 64 KiB is held, and all of it arrives once it is asked for."""
    size = 16 * 1024 * 1024  # more than both sockets take while nobody reads
    ask = asyncio.Event()
    held: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await ask.wait()
        message = await receive()
        held.append(len(message["body"]))
        total = held[0]
        while message["more_body"]:
            message = await receive()
            total += len(message["body"])
        await respond(str(total).encode())(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", f"content-length: {size}"))
        await wait_until(lambda: service.state.connections)
        transport = service.transport
        sending = asyncio.create_task(client.send(bytes(size)))
        await wait_until(lambda: not transport.is_reading())
        assert not sending.done()
        ask.set()
        assert (await client.response()).body == str(size).encode()
        await sending
        assert 65_536 < held[0] <= 65_536 + 262_144
        assert (await client.ask()).status == 200


async def test_large_body_in_one_read_does_not_leave_reading_paused(http_protocol_cls: Any) -> None:
    """BODY-05: the application may take it and answer before the read is worked through."""
    async with serve(http_protocol_cls, echo) as service:
        client = await service.connect()
        body = bytes(200_000)
        for _ in range(3):
            await client.send(request("POST", body=body))
            assert (await client.response()).body == body
        client = await service.connect()
        for _ in range(3):
            assert (await client.ask(request("POST", body=bytes(66_000)))).body == bytes(66_000)


@pytest.mark.no_cover
@pytest.mark.parametrize("pieces", deep_after(1, [20_000, 400_000]))
async def test_body_in_small_pieces_is_taken_in_linear_time(http_protocol_cls: Any, pieces: int) -> None:
    """D5: each byte is copied a bounded number of times; a quadratic server would need minutes for the most of them."""
    done = asyncio.get_running_loop().create_future()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        done.set_result(len((await receive())["body"]))

    protocol = http_protocol_cls(config=make_config(app, http_protocol_cls), server_state=ServerState(), app_state={})
    protocol.connection_made(MockTransport())
    protocol.data_received(request("POST", "/", f"content-length: {pieces}"))
    for _ in range(pieces):
        protocol.data_received(b"x")
    assert await asyncio.wait_for(done, 20) == pieces
    protocol.connection_lost(None)


# Expect


async def test_continue_is_sent_on_the_first_receive(http_protocol_cls: Any) -> None:
    """BODY-08, R12"""
    ask = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await ask.wait()
        await echo(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "Expect: 100-Continue", "content-length: 5"))
        assert await client.silent()
        ask.set()
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"hello")
        assert (await client.response()).body == b"hello"
        assert (await client.ask(request("POST", body=b"next"))).body == b"next"


async def test_continue_is_sent_once_even_if_the_body_is_there(http_protocol_cls: Any) -> None:
    """BODY-08"""
    async with serve(http_protocol_cls, echo) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "Expect: 100-continue", body=b"hello"))
        assert (await client.response()).status == 100
        assert (await client.response()).body == b"hello"
        assert await client.silent()


async def test_no_continue_when_the_response_comes_first(http_protocol_cls: Any) -> None:
    """BODY-09, R12: and, as nobody knows whether the body will come, the connection ends."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"n", "more_body": True})
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"o"})
        assert (await receive())["type"] == "http.disconnect"

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        response = await client.ask(request("POST", "/", "Expect: 100-continue", "content-length: 5"))
        assert (response.status, response.body) == (401, b"no")
        assert response.values(b"connection") == [b"close"]
        assert await client.rest() == b""


async def test_receive_behind_the_start_of_the_response_sends_no_continue(http_protocol_cls: Any) -> None:
    """BODY-09"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": (await receive())["body"]})

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "Expect: 100-continue", "content-length: 5"), b"hello")
        assert (await client.response()).body == b"hello"


async def test_expectation_of_an_http_10_client_is_ignored(http_protocol_cls: Any) -> None:
    """BODY-11, R12"""
    async with serve(http_protocol_cls, echo) as service:
        client = await service.connect()
        data = request("POST", "/", "Expect: 100-continue", body=b"hello", version="1.0")
        assert (await client.ask(data)).body == b"hello"


# A body nobody reads


async def test_body_nobody_reads_is_dropped_and_the_connection_kept(http_protocol_cls: Any) -> None:
    """BODY-12, BODY-13, F15: what is left of it is never taken for a request."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 300000"))
        assert (await client.response()).status == 200
        await client.send(GET * 1000)
        await client.send(bytes(300_000 - 1000 * len(GET)))
        assert (await client.ask()).status == 200
        await client.send(request("POST", "/", "transfer-encoding: chunked"))
        assert (await client.response()).status == 200
        await client.send(b"5\r\nhello\r\n0\r\n\r\n" + GET)
        assert (await client.response()).status == 200


@pytest.mark.parametrize(
    ("fields", "piece"),
    [
        pytest.param(["content-length: 2000000"], bytes(65_536), id="length"),
        pytest.param(["transfer-encoding: chunked"], b"10000\r\n" + bytes(65_536) + b"\r\n", id="chunked"),
    ],
)
async def test_long_body_nobody_reads_ends_the_connection(
    http_protocol_cls: Any, fields: list[str], piece: bytes
) -> None:
    """F15, R13: beyond a megabyte; the client can read the answer although it is still sending."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(request("POST", "/", *fields))
        for _ in range(24):
            await client.send(piece)
        assert (await client.response()).status == 200
        assert await client.rest() == b""


async def test_rest_of_a_body_that_breaks_is_not_answered_twice(http_protocol_cls: Any) -> None:
    """F15: the request was answered; its broken rest ends the connection."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "transfer-encoding: chunked"))
        assert (await client.response()).status == 200
        await client.send(b"x\r\n")
        assert await client.rest() == b""


async def test_client_that_ends_before_a_body_nobody_reads_is_let_go(http_protocol_cls: Any) -> None:
    """K5: the rest will not come; nothing waits for its deadline."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(request("POST", "/", "content-length: 5"))
        assert (await client.response()).status == 200
        client.half_close()
        assert await client.rest() == b""
        await service.idle()
