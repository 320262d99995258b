"""Who the client is, where a proxy says it in front of everything else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets

from tests import loops, machines
from tests.process import ServerProcess
from tests.utils import open_connection, read_to_end, run_server, server_port, turns, wait_until
from uvicorn.config import Config
from uvicorn.config.checking import findings
from uvicorn.listening import proxy_protocol, sockets
from uvicorn.listening.acceptor import Checkpoint
from uvicorn.listening.proxy_protocol import MAX_LENGTH, Address, MalformedHeader, ProxyHeader, read
from uvicorn.logging.rate_limit import LogRateLimit
from uvicorn.metrics import page as metrics
from uvicorn.metrics.page import Page
from uvicorn.server import Server

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.anyio

ws_protocol_cls = machines.each_websocket

anyio_backend = loops.one
reader = machines.readers

VECTORS = tomllib.loads((Path(__file__).parent.parent / "vectors" / "proxy_protocol.toml").read_text("utf-8"))["vector"]
BY_ID = {vector["id"]: vector for vector in VECTORS}
REQUEST = b"GET /a HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"


def octets(vector: dict[str, Any]) -> bytes:
    if "line" in vector:
        return str(vector["line"]).encode("latin-1")
    return bytes.fromhex("".join(vector["hex"]))


def shown(address: Address | None) -> str | None:
    if address is None:
        return None
    if isinstance(address, str):
        return f"unix:{address}"
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


HEADER = octets(BY_ID["v1-ipv4"])


# The parser.


def outcome(data: bytes) -> tuple[ProxyHeader, int] | str | None:
    try:
        return read(data)
    except MalformedHeader as exc:
        return str(exc)


def test_vectors(subtests: pytest.Subtests) -> None:
    for name, vector in BY_ID.items():
        with subtests.test(name):
            require_what_is_stated(vector)


def require_what_is_stated(vector: dict[str, Any]) -> None:
    data = octets(vector)
    found = outcome(data)
    if "error" in vector or "incomplete" in vector:
        assert found == vector.get("error")
        return
    assert isinstance(found, tuple)
    proxy_header, length = found
    assert length == len(data)
    assert shown(proxy_header.source) == vector.get("source_address")
    assert shown(proxy_header.destination) == vector.get("destination_address")
    assert proxy_header.authority == vector.get("authority", "")
    assert proxy_header.alpn.decode() == vector.get("alpn", "")
    assert proxy_header.unique_id.decode() == vector.get("unique_id", "")
    told = (
        None if proxy_header.tls is None else {key: value for key, value in proxy_header.tls._asdict().items() if value}
    )
    assert told == vector.get("tls")


def test_vectors_cut_at_every_byte(subtests: pytest.Subtests) -> None:
    for name, vector in BY_ID.items():
        with subtests.test(name):
            require_the_same_in_any_cut(octets(vector))


def require_the_same_in_any_cut(data: bytes) -> None:
    whole = outcome(data)
    found = [outcome(data[:end]) for end in range(0, len(data) + 1, 1 + len(data) // 500)]
    known = [one for one in found if one is not None]
    assert found == [None] * (len(found) - len(known)) + known
    assert all(one == whole for one in known)
    if whole is not None:
        assert outcome(data + REQUEST) == whole


@pytest.fixture(autouse=True)
def complaints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_protocol, "_log_limit", LogRateLimit())


# A server. Connections are read natively, or by the transports of the loops.


async def app(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    told = {key: scope[key] for key in ("client", "server", "scheme", "path")}
    if "tls" in scope.get("extensions", {}):
        told["tls"] = scope["extensions"]["tls"]
    body = json.dumps(told).encode()
    head = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Server]:
    config = Config(
        app, **{"port": 0, "log_config": None, "lifespan": "off", "ws": "none", "proxy_protocol": True, **settings}
    )
    async with run_server(config) as server:
        yield server
        await wait_until(lambda: not server.server_state.connections)


async def ask(server: Server, *pieces: bytes, eof: bool = False) -> bytes:
    """What the server says to these pieces, each of which it has seen before the next is sent."""
    reading, writing = await asyncio.open_connection("127.0.0.1", server_port(server))
    try:
        for piece in pieces:
            writing.write(piece)
            await turns()
        if eof:
            writing.write_eof()
        return await reading.read()
    except ConnectionResetError:
        return b""
    finally:
        writing.close()


def told_by(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), answer
    told = json.loads(body)
    assert isinstance(told, dict)
    return told


async def test_ends_of_a_connection_are_those_that_are_told(http_protocol_cls: Any, reader: str) -> None:
    async with serving(http=http_protocol_cls) as server:
        told = told_by(await ask(server, HEADER + REQUEST))
        assert told == {
            "client": ["192.0.2.1", 4711],
            "server": ["198.51.100.7", 443],
            "scheme": "http",
            "path": "/a",
        }
        told = told_by(await ask(server, octets(BY_ID["v2-ipv6"]) + REQUEST))
        assert (told["client"], told["server"]) == (["2001:db8::1", 4711], ["::1", 443])
        told = told_by(await ask(server, octets(BY_ID["v2-unix"]) + REQUEST))
        assert (told["client"], told["server"]) == (None, ["/run/proxy", None])
        told = told_by(await ask(server, octets(BY_ID["v2-tls"]) + REQUEST))
        assert (told["client"], told["scheme"]) == (["192.0.2.1", 4711], "https")


async def test_vectors_on_a_socket(
    reader: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    """P7: each address is taken over, and each mistake closes the connection with one line for the operator."""
    async with serving() as server:
        for name, vector in BY_ID.items():
            caplog.clear()
            monkeypatch.setattr(proxy_protocol, "_log_limit", LogRateLimit())
            with subtests.test(name):
                incomplete = "incomplete" in vector
                answer = await ask(server, octets(vector) + (b"" if incomplete else REQUEST), eof=incomplete)
                lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
                require_what_is_told(vector, answer, lines)


def require_what_is_told(vector: dict[str, Any], answer: bytes, lines: list[str]) -> None:
    if "incomplete" in vector:
        assert (answer, lines) == (b"", [])
    elif "error" in vector:
        assert answer == b""
        [line] = lines
        assert line.startswith("Closed a connection from 127.0.0.1:")
        assert line.endswith(f", which must begin with a PROXY header (proxy_protocol): {vector['error']}.")
    else:
        assert lines == []
        client = told_by(answer)["client"]
        told = vector.get("source_address", "[127.0.0.1]")
        if "source_address" not in vector:
            assert client[0] == "127.0.0.1"
        else:
            assert shown(None if client is None else tuple(client)) == (None if told.startswith("unix") else told)


@pytest.mark.parametrize("name", ["v1-ipv4", "v2-checksum"])
async def test_header_cut_at_every_byte(name: str, reader: str) -> None:
    header = octets(BY_ID[name])
    async with serving() as server:
        for end in range(1, len(header) + 1):
            told = told_by(await ask(server, header[:end], header[end:] + REQUEST))
            assert told["client"] == ["192.0.2.1", 4711]
        told = told_by(await ask(server, *(header[at : at + 1] for at in range(len(header))), REQUEST))
        assert told["client"] == ["192.0.2.1", 4711]


async def test_extension_tells_of_the_encryption_that_ended_at_the_proxy(http_protocol_cls: Any, reader: str) -> None:
    async with serving(http=http_protocol_cls, asgi_extensions=["tls"]) as server:
        told = told_by(await ask(server, octets(BY_ID["v2-tls"]) + REQUEST))["tls"]
        assert told == {
            "server_cert": None,
            "client_cert_chain": [],
            "client_cert_name": "CN=a client",
            "client_cert_error": None,
            "tls_version": 0x0304,
            "cipher_suite": 0x1301,
        }
        told = told_by(await ask(server, octets(BY_ID["v2-tls-with-a-certificate-that-fails"]) + REQUEST))["tls"]
        assert told["client_cert_error"] == "the proxy did not verify it"
        told = told_by(await ask(server, octets(BY_ID["v2-tls-without-a-certificate"]) + REQUEST))["tls"]
        assert (told["client_cert_name"], told["client_cert_error"], told["tls_version"]) == (None, None, None)
        assert "tls" not in told_by(await ask(server, HEADER + REQUEST))


async def test_header_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    headers: list[bytes] = []

    def note(data: bytes) -> tuple[ProxyHeader, int] | None:
        headers.append(data)
        return read(data)

    monkeypatch.setattr(proxy_protocol, "read", note)
    header = octets(BY_ID["v2-tls"])
    async with serving(asgi_extensions=["tls"]) as server:
        request = REQUEST.replace(b"connection: close\r\n", b"")
        answer = await ask(server, header + request + REQUEST)
        assert answer.count(b"CN=a client") == 2
        assert len(headers) == 1


async def test_a_second_header_is_no_request(reader: str) -> None:
    """P7"""
    async with serving() as server:
        assert b" 400 " in await ask(server, HEADER + HEADER + REQUEST)


async def test_who_is_not_trusted_is_served_and_cannot_say_who_it_is(http_protocol_cls: Any, reader: str) -> None:
    """P7"""
    async with serving(forwarded_allow_ips="192.0.2.1", http=http_protocol_cls) as server:
        assert told_by(await ask(server, REQUEST))["client"][0] == "127.0.0.1"
        assert b" 400 " in await ask(server, HEADER + REQUEST)


async def test_without_the_setting_nobody_can_say_who_it_is(http_protocol_cls: Any) -> None:
    async with serving(proxy_protocol=False, http=http_protocol_cls) as server:
        assert b" 400 " in await ask(server, HEADER + REQUEST)
        assert b" 400 " in await ask(server, octets(BY_ID["v2-ipv4"]) + REQUEST)


FORWARDED = (
    b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
    b"x-forwarded-for: 203.0.113.9\r\nx-forwarded-proto: https\r\nx-request-id: chosen\r\n\r\n"
)
UNNAMED = (b"PROXY UNKNOWN\r\n", octets(BY_ID["v2-local"]))


@pytest.mark.parametrize("forwarded_headers", ["x-forwarded-for,x-forwarded-proto", "x-forwarded-for"])
@pytest.mark.parametrize("trusted", ["*", "127.0.0.1,192.0.2.1"])
async def test_fields_of_a_client_do_not_count(
    http_protocol_cls: Any, reader: str, trusted: str, forwarded_headers: str
) -> None:
    """P8"""
    settings = {"forwarded_allow_ips": trusted, "forwarded_headers": forwarded_headers, "request_id": True}
    async with serving(http=http_protocol_cls, **settings) as server:
        for header in (HEADER, *UNNAMED):
            answer = await ask(server, header + FORWARDED)
            told = told_by(answer)
            assert told["client"][0] == ("192.0.2.1" if header == HEADER else "127.0.0.1")
            assert told["scheme"] == "http"
            assert b"x-request-id: " in answer and b"x-request-id: chosen\r\n" not in answer


async def test_fields_of_a_client_count_if_it_is_named(http_protocol_cls: Any, reader: str) -> None:
    """P8"""
    settings = {"proxy_protocol_trusted_clients": "192.0.2.1", "request_id": True, "forwarded_allow_ips": "127.0.0.0/8"}
    async with serving(http=http_protocol_cls, **settings) as server:
        answer = await ask(server, HEADER + FORWARDED)
        told = told_by(answer)
        assert (told["client"], told["scheme"]) == (["203.0.113.9", 0], "https")
        assert b"x-request-id: chosen\r\n" in answer
        for header in (b"PROXY TCP4 192.0.2.2 127.0.0.1 1 2\r\n", *UNNAMED):
            answer = await ask(server, header + FORWARDED)
            told = told_by(answer)
            assert told["client"][0] in ("192.0.2.2", "127.0.0.1")
            assert told["scheme"] == "http"
            assert b"x-request-id: chosen\r\n" not in answer


@pytest.mark.parametrize(
    ("clients", "proxies", "reason"),
    [
        ("*", "127.0.0.1", "every client could forge its address"),
        (["*"], "*", "every client could forge its address"),
        ("127.0.0.1", None, "127.0.0.1 sends PROXY headers"),
        ("10.0.0.0/8", "192.0.2.1,10.0.0.5", "10.0.0.5 sends PROXY headers"),
        ("10.0.0.0/8", "2001:db8::/32,10.1.0.0/16", "10.1.0.0/16 sends PROXY headers"),
        ("10.0.0.256", "127.0.0.1", "'10.0.0.256' is not an IPv4 or IPv6 address"),
    ],
)
def test_clients_that_cannot_be_trusted_are_a_mistake(clients: Any, proxies: Any, reason: str) -> None:
    """P8"""
    with pytest.raises(ValueError, match=reason):
        Config(
            app,
            log_config=None,
            proxy_protocol=True,
            proxy_protocol_trusted_clients=clients,
            forwarded_allow_ips=proxies,
        )


def test_whose_fields_count_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """P8"""
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    config = Config(app, log_config=None, proxy_protocol=True, forwarded_allow_ips="*")
    [line] = caplog.messages
    assert line.startswith("Ignoring X-Forwarded-* fields behind PROXY headers")
    assert dict(findings(config))["forwarded"] == "never trusted"
    caplog.clear()
    config = Config(app, log_config=None, proxy_protocol=True, proxy_protocol_trusted_clients=["10.0.0.7", "10.0.0.8"])
    assert caplog.messages == []
    assert dict(findings(config))["forwarded"] == "trusted from 10.0.0.7,10.0.0.8"


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
async def test_peers_of_a_unix_socket(http_protocol_cls: Any, reader: str, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with serving(uds=path, http=http_protocol_cls):
        for header, client in ((HEADER, ["192.0.2.1", 4711]), (b"PROXY UNKNOWN\r\n", None)):
            reading, writing = await asyncio.open_unix_connection(path)
            writing.write(header + REQUEST)
            assert told_by(await reading.read())["client"] == client
            writing.close()


async def test_header_comes_in_front_of_the_handshake(
    http_protocol_cls: Any,
    reader: str,
    tls_ca_ssl_context: ssl.SSLContext,
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_path: str,
) -> None:
    settings = {"ssl_certfile": tls_certificate_server_cert_path, "ssl_keyfile": tls_certificate_private_key_path}
    async with serving(http=http_protocol_cls, **settings) as server:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = tls_ca_ssl_context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        reading, writing = await asyncio.open_connection("127.0.0.1", server_port(server))
        writing.write(HEADER)
        answer = b""
        asked = False
        while not answer.endswith(b"}"):
            try:
                tls.do_handshake()
                if not asked:
                    tls.write(REQUEST)
                    asked = True
                answer += tls.read()
            except ssl.SSLWantReadError:
                # With the header, in one piece.
                writing.write(outgoing.read())
                data = await reading.read(65536)
                assert data, answer
                incoming.write(data)
        writing.close()
        told = told_by(answer)
        assert (told["client"], told["scheme"]) == (["192.0.2.1", 4711], "https")


async def test_who_says_nothing_is_closed_in_time(reader: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="uvicorn.error")
    async with serving(timeout_handshake=0.2) as server:
        assert await ask(server, b"") == b""
        assert await ask(server, HEADER[:9]) == b""
        lines = [line.partition(" - ")[2] for line in caplog.messages if "Connection lost while it was" in line]
        assert lines == ["Connection lost while it was being set up: the PROXY header took too long"] * 2


async def test_who_goes_without_a_word_leaves_no_line(reader: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="uvicorn.error")
    async with serving() as server:
        assert await ask(server, b"", eof=True) == b""
        assert [record.levelname for record in caplog.records if "set up" in record.getMessage()] == ["DEBUG"]


async def test_a_server_that_ends_does_not_wait_for_headers(reader: str) -> None:
    async with serving() as server:
        reading, writing = await asyncio.open_connection("127.0.0.1", server_port(server))
        writing.write(HEADER[:5])
        await turns()
    with contextlib.suppress(ConnectionResetError):
        assert await reading.read() == b""
    writing.close()


async def test_one_line_in_a_while_about_malformed_headers(reader: str, caplog: pytest.LogCaptureFixture) -> None:
    """P7"""
    async with serving() as server:
        for _ in range(5):
            assert await ask(server, REQUEST) == b""
    lines = [line for line in caplog.messages if "must begin with a PROXY header" in line]
    assert len(lines) == 1


def test_lines_about_malformed_headers_are_of_one_address(caplog: pytest.LogCaptureFixture) -> None:
    """P7"""
    for peer in (("192.0.2.1", 1), ("192.0.2.1", 2), ("2001:db8::1", 1, 0, 0), ("2001:db8::2", 1, 0, 0), "", None):
        proxy_protocol.complain(peer, "none")
    line = "Closed a connection from %s, which must begin with a PROXY header (proxy_protocol): none."
    assert caplog.messages == [line % name for name in ("192.0.2.1:1", "2001:db8::1:1", "a Unix socket")]


async def test_malformed_headers_are_counted(reader: str) -> None:
    config = Config(app, port=0, log_config=None, lifespan="off", proxy_protocol=True)
    server = Server(config)
    server.metrics_page = page = Page.make()
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started)
    try:
        for _ in range(2):
            assert await ask(server, REQUEST) == b""
        told_by(await ask(server, HEADER + REQUEST))
        assert page.words[metrics.NO_PROXY_HEADER] == 2
    finally:
        server.should_exit = True
        await task


async def test_websocket(ws_protocol_cls: Any, http_protocol_cls: Any, reader: str) -> None:
    found: list[Any] = []

    async def accepting(scope: Any, receive: Any, send: Any) -> None:
        found.append((scope["scheme"], scope["client"]))
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hello"})
        await send({"type": "websocket.close"})

    config = Config(
        accepting,
        port=0,
        log_config=None,
        lifespan="off",
        proxy_protocol=True,
        http=http_protocol_cls,
        ws=ws_protocol_cls,
    )
    async with run_server(config) as server:
        sock = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", server_port(server)))
        sock.sendall(octets(BY_ID["v2-tls"]))
        async with websockets.connect(f"ws://127.0.0.1:{server_port(server)}", sock=sock) as client:
            assert await client.recv() == "hello"
    assert found == [("wss", ("192.0.2.1", 4711))]


async def test_http2(reader: str) -> None:
    pytest.importorskip("uvicorn._native", exc_type=ModuleNotFoundError)
    import h2.config
    import h2.connection
    import h2.events

    async with serving(http="native", http2=True) as server:
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        fields = [(":method", "GET"), (":path", "/a"), (":scheme", "https"), (":authority", "a")]
        client.send_headers(1, fields, end_stream=True)
        reading, writing = await asyncio.open_connection("127.0.0.1", server_port(server))
        writing.write(octets(BY_ID["v2-tls"]) + client.data_to_send())
        body, ended = b"", False
        while not ended:
            data = await reading.read(65536)
            assert data
            for event in client.receive_data(data):
                body += event.data if isinstance(event, h2.events.DataReceived) and event.data else b""
                ended = ended or isinstance(event, h2.events.StreamEnded)
        writing.close()
        told = json.loads(body)
        assert (told["client"], told["scheme"]) == (["192.0.2.1", 4711], "https")


async def test_protocols_of_others_are_told(reader: str) -> None:
    made: list[asyncio.BaseTransport] = []
    names: list[Any] = []

    class Own(asyncio.Protocol):
        def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
            pass

        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            made.append(transport)
            names.append(transport.get_extra_info("socket").getpeername())

        def data_received(self, data: bytes) -> None:
            self.transport.write(b"you said " + data)
            self.transport.close()

    async with serving(http=Own) as server:
        header = octets(BY_ID["v2-alpn-authority-padding-unknown"])
        assert await ask(server, header + b"this") == b"you said this"
    [transport] = made
    assert transport.get_extra_info("peername") == ("192.0.2.1", 4711)
    assert transport.get_extra_info("sockname") == ("198.51.100.7", 443)
    assert names == [("192.0.2.1", 4711)]
    assert transport.get_extra_info("proxy_protocol").authority == "b\xfccher.example"
    assert transport.get_extra_info("nothing", 7) == 7
    assert transport.is_closing()


async def test_longest_header_is_taken(reader: str) -> None:
    header = octets(BY_ID["v2-longest"])
    assert len(header) == MAX_LENGTH
    async with serving() as server:
        told = told_by(await ask(server, header[:2000], header[2000:] + REQUEST))
        assert told["client"] == ["192.0.2.1", 4711]


def test_a_loop_that_cannot_wait_for_headers_says_so() -> None:
    class Proactor(asyncio.SelectorEventLoop):
        """One that watches no sockets."""

        def add_reader(self, *arguments: Any) -> Any:  # type: ignore[override]
            raise NotImplementedError

    loop = Proactor()

    async def listen() -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            with pytest.raises(OSError, match="use another loop"):
                await sockets._listen_on(
                    loop, sock, asyncio.Protocol, 5, None, None, Checkpoint(expects=lambda host: True)
                )

    try:
        loop.run_until_complete(listen())
    finally:
        loop.close()


@pytest.mark.measures_children
def test_command_line(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(
        "async def app(scope, receive, send):\n"
        "    body = repr(scope['client']).encode()\n"
        "    await send({'type': 'http.response.start', 'status': 200})\n"
        "    await send({'type': 'http.response.body', 'body': body})\n"
    )
    arguments = ("told:app", "--port", "0", "--lifespan", "off", "--proxy-protocol")
    with ServerProcess(*arguments, cwd=tmp_path) as server:
        with open_connection(("127.0.0.1", server.port), HEADER + REQUEST) as client:
            assert b"('192.0.2.1', 4711)" in read_to_end(client)
        server.wait_for('192.0.2.1:4711 - "GET /a HTTP/1.1" 200 OK')
