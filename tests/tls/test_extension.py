"""The extension `tls` of ASGI, on each implementation: what it says, and that each request has its own."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import hpack
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests import loops, machines
from tests.native.http2_client import END_HEADERS, END_STREAM, HEADERS, PREFACE, frame
from tests.native.http2_client import settings as http2_settings
from tests.protocols.websocket_tools import handshake
from tests.tls.test_tickets import reused_at
from tests.utils import run_server, server_port, wait_until
from uvicorn.config import Config
from uvicorn.protocols.http.scope import ScopeBase
from uvicorn.tls.certificates import Certificate

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("engine")]

anyio_backend = loops.each
http = machines.names

KEYS = {"server_cert", "client_cert_chain", "client_cert_name", "client_cert_error", "tls_version", "cipher_suite"}


class Scopes(list[Any]):
    """An application that keeps what it is shown."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.append(scope)
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    @property
    def tls(self) -> list[Any]:
        return [scope["extensions"]["tls"] for scope in self]


@pytest.fixture
def certificate(tls_certificate_key_and_chain_path: str) -> dict[str, Any]:
    return {"ssl_certfile": tls_certificate_key_and_chain_path}


@asynccontextmanager
async def serving(app: Any, **settings: Any) -> AsyncIterator[int]:
    config = Config(app, port=0, lifespan="off", log_config=None, **{"asgi_extensions": ["tls"], **settings})
    async with run_server(config) as server:
        yield server_port(server)


@asynccontextmanager
async def connected(port: int, context: ssl.SSLContext | None) -> AsyncIterator[Any]:
    name = None if context is None else "localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def get(port: int, context: ssl.SSLContext | None, *requests: bytes) -> None:
    async with connected(port, context) as (reader, writer):
        for data in requests or (b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",):
            writer.write(data)
            assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).startswith(b"HTTP/1.")


@pytest.mark.parametrize("transports", ["ours", "the loop's"])
async def test_version_cipher_and_the_certificate_of_the_server(
    http: str,
    certificate: dict[str, Any],
    tls_certificate: trustme.LeafCert,
    tls_ca_ssl_context: ssl.SSLContext,
    transports: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if transports != "ours":
        monkeypatch.setattr("uvicorn.listening.sockets._poller_for", lambda *arguments: None)
    app = Scopes()
    async with serving(app, http=http, **certificate) as port:
        await get(port, tls_ca_ssl_context)
        tls_ca_ssl_context.maximum_version = ssl.TLSVersion.TLSv1_2
        tls_ca_ssl_context.set_ciphers("ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384")
        await get(port, tls_ca_ssl_context)
    newer, older = app.tls
    assert newer.keys() == older.keys() == KEYS
    assert newer["tls_version"] == 0x0304 and newer["cipher_suite"] in (0x1301, 0x1302, 0x1303)
    assert older["tls_version"] == 0x0303 and older["cipher_suite"] in (0xC02C, 0xC030)
    shown = Certificate.read(ssl.PEM_cert_to_DER_cert(newer["server_cert"]))
    assert shown.der == ssl.PEM_cert_to_DER_cert(tls_certificate.cert_chain_pems[0].bytes().decode())
    assert (newer["client_cert_chain"], newer["client_cert_name"], newer["client_cert_error"]) == ((), None, None)


async def test_nobody_hears_of_it_without_the_setting_or_without_tls(
    http: str, certificate: dict[str, Any], tls_ca_ssl_context: ssl.SSLContext
) -> None:
    app = Scopes()
    async with serving(app, http=http, asgi_extensions=None, **certificate) as port:
        await get(port, tls_ca_ssl_context)
    async with serving(app, http=http) as port:
        await get(port, None)
    assert [scope.get("extensions", {}) for scope in app] == [{}, {}]


@pytest.mark.parametrize("required", [ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
async def test_the_certificate_of_the_client(
    http: str, certificate: dict[str, Any], tls_ca_certificate_pem_path: str, tmp_path: Path, required: int
) -> None:
    authority = trustme.CA()
    between = authority.create_child_ca()
    leaf = between.issue_cert("me@example.org", organization_name='Ünder, "Sons"', common_name="#me")
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(tls_ca_certificate_pem_path)
    leaf.configure_cert(client)
    app = Scopes()
    verify = {"ssl_ca_certs": str(tmp_path / "ca.pem"), "ssl_cert_reqs": required}
    async with serving(app, http=http, **certificate, **verify) as port:
        await get(port, client)
    (tls,) = app.tls
    chain = [ssl.PEM_cert_to_DER_cert(text) for text in tls["client_cert_chain"]]
    assert chain == [ssl.PEM_cert_to_DER_cert(pem.bytes().decode()) for pem in leaf.cert_chain_pems]
    assert len(chain) == 2
    assert tls["client_cert_name"].startswith("CN=\\#me,")
    assert tls["client_cert_name"].endswith('O=Ünder\\, \\"Sons\\"')
    assert tls["client_cert_error"] is None


async def test_certificates_that_prove_nothing_are_not_in_the_chain(
    http: str, certificate: dict[str, Any], tls_ca_certificate_pem_path: str, tmp_path: Path
) -> None:
    """T2"""
    authority, stranger = trustme.CA(), trustme.CA()
    leaf = authority.issue_cert("me@example.org")
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    bundle = leaf.private_key_and_cert_chain_pem.bytes() + stranger.cert_pem.bytes()
    (tmp_path / "client.pem").write_bytes(bundle)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(tls_ca_certificate_pem_path)
    client.load_cert_chain(tmp_path / "client.pem")
    app = Scopes()
    verify = {"ssl_ca_certs": str(tmp_path / "ca.pem"), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    async with serving(app, http=http, **certificate, **verify) as port:
        await get(port, client)
    assert len(app.tls[0]["client_cert_chain"]) == 1


@pytest.mark.parametrize("fault", ["missing", "expired", "stranger"])
async def test_a_client_that_cannot_be_verified_is_not_served(
    http: str, certificate: dict[str, Any], tls_ca_certificate_pem_path: str, tmp_path: Path, fault: str
) -> None:
    """T2"""
    authority = trustme.CA()
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(tls_ca_certificate_pem_path)
    yesterday = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    if fault == "expired":
        authority.issue_cert("me@example.org", not_after=yesterday).configure_cert(client)
    elif fault == "stranger":
        trustme.CA().issue_cert("me@example.org").configure_cert(client)
    app = Scopes()
    verify = {"ssl_ca_certs": str(tmp_path / "ca.pem"), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    async with serving(app, http=http, **certificate, **verify) as port:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await get(port, client)
    assert app == []


# Clients that cannot be verified, where they are served.

reached = pytest.mark.parametrize("engine", ["rustls"], indirect=True)  # OpenSSL refuses them
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])


@reached
@VERSIONS
@pytest.mark.parametrize("fault", [None, "missing", "expired", "stranger", "self-signed"])
async def test_the_application_is_told_why_a_client_cannot_be_verified(
    http: str,
    certificate: dict[str, Any],
    tls_ca_certificate_pem_path: str,
    tmp_path: Path,
    version: Any,
    fault: str | None,
) -> None:
    """T2"""
    authority, stranger = trustme.CA(), trustme.CA()
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(tls_ca_certificate_pem_path)
    client.minimum_version = client.maximum_version = version
    yesterday = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    if fault in (None, "expired"):
        options = {} if fault is None else {"not_after": yesterday}
        authority.issue_cert("me@example.org", common_name="me", **options).configure_cert(client)
    elif fault == "stranger":
        stranger.create_child_ca().issue_cert("me@example.org", common_name="me").configure_cert(client)
    elif fault == "self-signed":
        stranger.private_key_pem.write_to_path(tmp_path / "own.pem")
        stranger.cert_pem.write_to_path(tmp_path / "own.pem", append=True)
        client.load_cert_chain(tmp_path / "own.pem")
    app = Scopes()
    verify = {"ssl_ca_certs": str(tmp_path / "ca.pem"), "ssl_cert_reqs": ssl.CERT_OPTIONAL, "ssl_client_errors": True}
    names = [f"localhost={certificate['ssl_certfile']}"]
    async with serving(app, http=http, ssl_cert=names, **certificate, **verify) as port:
        session, _ = await asyncio.to_thread(reused_at, port, client, None)
        await asyncio.to_thread(reused_at, port, client, session)
    first, second = app.tls
    assert first["client_cert_error"] == second["client_cert_error"], "nor is it forgotten by a session"
    error = first["client_cert_error"]
    expected = {"expired": "has expired", "stranger": "issuer", "self-signed": "issuer"}
    assert error is None if fault in (None, "missing") else expected[str(fault)] in error
    if fault == "missing":
        assert (first["client_cert_chain"], first["client_cert_name"]) == ((), None)
    else:
        (own, *_) = first["client_cert_chain"]
        assert Certificate.read(ssl.PEM_cert_to_DER_cert(own)).subject == first["client_cert_name"]


@reached
async def test_a_certificate_may_be_required_though_it_need_not_be_good(
    http: str, certificate: dict[str, Any], tls_ca_certificate_pem_path: str, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    app = Scopes()
    verify = {
        "ssl_ca_certs": tls_ca_certificate_pem_path,
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
        "ssl_client_errors": True,
    }
    async with serving(app, http=http, **certificate, **verify) as port:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await get(port, tls_ca_ssl_context)
        trustme.CA().issue_cert("me@example.org").configure_cert(tls_ca_ssl_context)
        await get(port, tls_ca_ssl_context)
    assert [tls["client_cert_error"] is not None for tls in app.tls] == [True]


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"asgi_extensions": ["tls"]}, "ssl_cert_reqs"),
        ({"ssl_cert_reqs": 1}, "add `tls` to asgi_extensions"),
        ({"ssl_cert_reqs": 1, "asgi_extensions": ["http.response.pathsend"]}, "add `tls` to asgi_extensions"),
        ({"ssl_cert_reqs": 1, "asgi_extensions": "all", "ssl_context_factory": print}, "ssl_context_factory"),
    ],
)
def test_who_is_not_told_serves_nobody_who_cannot_be_verified(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Config(Scopes(), log_config=None, ssl_client_errors=True, **settings)


@VERSIONS
async def test_a_client_that_comes_back_is_the_same(
    http: str, certificate: dict[str, Any], tls_ca_certificate_pem_path: str, tmp_path: Path, version: Any, engine: str
) -> None:
    authority = trustme.CA()
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(tls_ca_certificate_pem_path)
    client.minimum_version = client.maximum_version = version
    authority.create_child_ca().issue_cert("me@example.org", common_name="me").configure_cert(client)
    app = Scopes()
    verify = {"ssl_ca_certs": str(tmp_path / "ca.pem"), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    async with serving(app, http=http, **certificate, **verify) as port:
        session, reused = await asyncio.to_thread(reused_at, port, client, None)
        assert not reused
        _, reused = await asyncio.to_thread(reused_at, port, client, session)
        assert reused
    first, second = app.tls
    assert first["client_cert_name"] == second["client_cert_name"]
    assert first["client_cert_name"].startswith("CN=me,")
    assert len(first["client_cert_chain"]) == 2
    assert len(second["client_cert_chain"]) == (2 if engine == "rustls" else 1), "OpenSSL forgets the others"
    assert first["client_cert_chain"][0] == second["client_cert_chain"][0]


async def test_where_nobody_verifies_a_certificate_is_none(
    http: str, certificate: dict[str, Any], tls_client_ssl_context: ssl.SSLContext
) -> None:
    app = Scopes()
    async with serving(app, http=http, **certificate) as port:
        await get(port, tls_client_ssl_context)
    assert (app.tls[0]["client_cert_chain"], app.tls[0]["client_cert_name"]) == ((), None)


async def test_a_request_cannot_change_what_the_next_one_sees(
    http: str, certificate: dict[str, Any], tls_ca_ssl_context: ssl.SSLContext
) -> None:
    """T4"""
    scopes = Scopes()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        tls = scope["extensions"]["tls"]
        scopes.append({"extensions": {"tls": dict(tls)}})
        tls["client_cert_name"] = "CN=admin"
        tls["more"] = tls.pop("tls_version")
        scope["extensions"]["other"] = {}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    old = b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
    async with serving(app, http=http, **certificate) as port:
        await get(port, tls_ca_ssl_context, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", old)
    first, second = scopes.tls
    assert first == second and first.keys() == KEYS


@pytest.mark.parametrize("ws", ["native", "websockets-sansio", "wsproto"])
async def test_a_websocket(http: str, ws: str, certificate: dict[str, Any], tls_ca_ssl_context: ssl.SSLContext) -> None:
    if ws == "native":
        pytest.importorskip("uvicorn._native")
    app = Scopes()
    async with serving(app, http=http, ws=ws, **certificate) as port:
        await get(port, tls_ca_ssl_context, handshake())
    (scope,) = app
    assert scope["type"] == "websocket" and scope["scheme"] == "wss"
    assert list(scope["extensions"]) == ["websocket.http.response", "tls"]
    assert scope["extensions"]["tls"]["tls_version"] == 0x0304


async def test_http2_and_a_websocket_on_it(certificate: dict[str, Any], tls_ca_ssl_context: ssl.SSLContext) -> None:
    pytest.importorskip("uvicorn._native")
    tls_ca_ssl_context.set_alpn_protocols(["h2"])
    app = Scopes()
    packed = hpack.Encoder()

    def headers(stream: int, *fields: tuple[str, str]) -> bytes:
        block = packed.encode([(":scheme", "https"), (":authority", "a"), (":path", "/"), *fields])
        return frame(HEADERS, END_HEADERS | (END_STREAM if len(fields) == 1 else 0), stream, block)

    connect = [(":method", "CONNECT"), (":protocol", "websocket"), ("sec-websocket-version", "13")]
    requests = headers(1, (":method", "GET")) + headers(3, (":method", "GET")) + headers(5, *connect)
    async with (
        serving(app, http="native", http2=True, **certificate) as port,
        connected(port, tls_ca_ssl_context) as (_, writer),
    ):
        writer.write(PREFACE + http2_settings() + requests)
        await wait_until(lambda: len(app) == 3)
    one, other, websocket = app.tls
    assert one == other == websocket and one is not other and one.keys() == KEYS
    assert app[2]["type"] == "websocket"


async def test_a_context_of_somebody_else_does_not_tell_its_certificate(
    http: str, tls_certificate: trustme.LeafCert, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_certificate.configure_cert(context)
    app = Scopes()
    async with serving(app, http=http, ssl_context_factory=lambda config, default: context) as port:
        await get(port, tls_ca_ssl_context)
    assert app.tls[0]["server_cert"] is None and app.tls[0]["tls_version"] == 0x0304


async def test_nothing_is_found_out_before_it_is_asked_for() -> None:
    class Connection:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    base = ScopeBase("3.0", "https", None, None, "", {}, ["http.response.pathsend"], Connection())
    assert base.build(base.line(b"GET", b"/", b"1"), [])["extensions"] == {"http.response.pathsend": {}}


# What a certificate says.


def made(name: x509.Name, *names: x509.GeneralName) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2020, 1, 1))
        .not_valid_after(datetime.datetime(2051, 2, 3, 4, 5, 6))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


Attribute = x509.NameAttribute


@pytest.mark.parametrize(
    "attributes, subject",
    [
        ([], ""),
        ([Attribute(NameOID.COUNTRY_NAME, "DE"), Attribute(NameOID.COMMON_NAME, "a")], "CN=a,C=DE"),
        ([Attribute(NameOID.COMMON_NAME, " a ")], "CN=\\ a\\ "),
        ([Attribute(NameOID.COMMON_NAME, " ")], "CN=\\ "),
        ([Attribute(NameOID.COMMON_NAME, '#,+"\\<>;=')], 'CN=\\#\\,\\+\\"\\\\\\<\\>\\;='),
        ([Attribute(NameOID.COMMON_NAME, "a\0b\r\nc\x7f\x85")], "CN=a\\00b\\0d\\0ac\\7f\\c2\\85"),
        ([Attribute(NameOID.EMAIL_ADDRESS, "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([Attribute(NameOID.DOMAIN_COMPONENT, "net"), Attribute(NameOID.USER_ID, "Lučić")], "UID=Lučić,DC=net"),
        ([Attribute(NameOID.COMMON_NAME, "x" * 64)], "CN=" + "x" * 64),
        ([Attribute(NameOID.PSEUDONYM, "y" * 200)], "2.5.4.65=#0c81c8" + "79" * 200),
    ],
)
def test_a_distinguished_name(attributes: list[Any], subject: str) -> None:
    """RFC 4514"""
    found = Certificate.read(made(x509.Name(attributes)))
    assert found.subject == subject
    assert found.not_after == datetime.datetime(2051, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc).timestamp()


def test_several_attributes_of_one_part() -> None:
    part = x509.RelativeDistinguishedName([Attribute(NameOID.COMMON_NAME, "a"), Attribute(NameOID.USER_ID, "b")])
    assert set(Certificate.read(made(x509.Name([part]))).subject.split("+")) == {"CN=a", "UID=b"}


def test_the_names_it_is_for() -> None:
    name = x509.Name([Attribute(NameOID.COMMON_NAME, "own.test")])
    names = (x509.DNSName("*.a.test"), x509.IPAddress(ipaddress.ip_address("::1")), x509.RFC822Name("a@b"))
    assert Certificate.read(made(name, *names)).names == ("*.a.test", "::1")
    assert Certificate.read(made(name)).names == ("own.test",)


def test_bytes_that_are_no_certificate_are_an_error_and_nothing_else() -> None:
    whole = made(x509.Name([Attribute(NameOID.COMMON_NAME, "a")]), x509.DNSName("a.test"))
    for place in range(len(whole)):
        for data in (whole[:place], whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]):
            try:
                Certificate.read(data)
            except ValueError:
                continue
            assert len(data) == len(whole), "what is cut off is none"
