"""Which engine encrypts, why, and what programs see of it."""

from __future__ import annotations

import asyncio
import functools
import re
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.process import ServerProcess
from tests.tls.engines import handshake
from tests.utils import run_server, server_port
from uvicorn.config import Config
from uvicorn.config.errors import report_error
from uvicorn.server import Server
from uvicorn.tls import rustls
from uvicorn.tls.connection import SUITES, TLSConnection
from uvicorn.tls.context import in_force
from uvicorn.tls.server_context import ServerContext

pytestmark = pytest.mark.skipif(rustls.why_not() is not None, reason=str(rustls.why_not()))


async def app(scope: Any, receive: Any, send: Any) -> None: ...


def loaded(certfile: str, **settings: Any) -> Config:
    config = Config(app, log_config=None, lifespan="off", ssl_certfile=certfile, **settings)
    config.load()
    return config


def engine_of(config: Config) -> tuple[bool, str | None]:
    """Whether rustls encrypts, and why it does not."""
    assert isinstance(config.ssl, ServerContext)
    return config.ssl.rustls is not None, config.ssl.openssl_reason


def default_context(config: Any, default: Any) -> Any:
    return default()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, None),
        ({"tls": "rustls"}, None),
        ({"ssl_min_version": "1.2"}, None),
        ({"ssl_min_version": "1.3"}, None),
        ({"ssl_version": ssl.PROTOCOL_TLS}, None),
        ({"ssl_ciphers": "ECDHE+AESGCM:ECDHE+CHACHA20"}, None),
        ({"ssl_ciphers": "ECDHE-RSA-AES128-GCM-SHA256"}, None),
        ({"ssl_tickets": "none"}, None),
        ({"ssl_tickets": "shared"}, None),
        ({"ssl_context_factory": default_context}, None),
        ({"ssl_min_version": "1.0"}, "it has no TLS 1.0"),
        ({"ssl_min_version": "1.1"}, "it has no TLS 1.1"),
        ({"ssl_version": ssl.PROTOCOL_TLSv1_2}, f"it has no ssl_version {int(ssl.PROTOCOL_TLSv1_2)}"),
        ({"ssl_ciphers": "TLSv1"}, "it has no cipher suite .*-SHA, which ssl_ciphers names"),
        ({"ssl_ciphers": "DHE+AESGCM"}, "it has no cipher suite DHE-.*, which ssl_ciphers names"),
    ],
)
@pytest.mark.filterwarnings("ignore:ssl.:DeprecationWarning")
def test_rustls_encrypts_what_it_can_and_the_log_says_why_not(
    settings: dict[str, Any],
    reason: str | None,
    tls_certificate_key_and_chain_path: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="uvicorn.error")
    serves, found = engine_of(loaded(tls_certificate_key_and_chain_path, **settings))
    said = [text for text in caplog.messages if "rustls" in text]
    if reason is None:
        assert (serves, found, said) == (True, None, [])
    else:
        assert not serves and found is not None and re.fullmatch(reason, found)
        assert said == [f"TLS by OpenSSL, not rustls: {found}."]
        caplog.clear()
        with pytest.raises(ValueError, match="rustls cannot be used, because ") as caught:
            loaded(tls_certificate_key_and_chain_path, **{**settings, "tls": "rustls"})
        assert report_error(caught.value) and caplog.messages[-1].endswith(f"rustls cannot be used, because {found}.")


@pytest.mark.parametrize("key", ["unknown kind", "intermediate authority"])
def test_files_that_rustls_cannot_use_are_left_to_openssl(key: str, tmp_path: Path) -> None:
    cryptography = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
    authority = trustme.CA()
    path = tmp_path / "chain.pem"
    settings: dict[str, Any] = {}
    if key == "unknown kind":
        path.write_bytes(certificate_of(cryptography.generate_private_key(cryptography.SECP256K1())))
    else:
        authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(path)
        child = authority.create_child_ca()
        (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes() + child.cert_pem.bytes())
        settings = {"ssl_ca_certs": tmp_path / "ca.pem", "ssl_cert_reqs": ssl.CERT_REQUIRED}
        with pytest.raises(ValueError, match="because ssl_ca_certs has an intermediate certificate"):
            loaded(str(path), **settings, tls="rustls")
    serves, reason = engine_of(loaded(str(path), **settings))
    assert not serves and reason is not None


def test_clients_with_certificates_keep_openssl_unless_rustls_is_asked_for(
    tls_certificate_key_and_chain_path: str, tls_ca_certificate_pem_path: str
) -> None:
    """Certificates that OpenSSL accepts, and rustls does not, are known only when their clients come."""
    settings: dict[str, Any] = {"ssl_ca_certs": tls_ca_certificate_pem_path, "ssl_cert_reqs": ssl.CERT_OPTIONAL}
    serves, reason = engine_of(loaded(tls_certificate_key_and_chain_path, **settings))
    assert (serves, reason) == (False, "it rejects some certificates of clients, unless tls='rustls' accepts that")
    assert engine_of(loaded(tls_certificate_key_and_chain_path, **settings, tls="rustls")) == (True, None)
    settings = {**settings, "ssl_client_errors": True, "asgi_extensions": ["tls"]}
    assert engine_of(loaded(tls_certificate_key_and_chain_path, **settings)) == (True, None)


@pytest.mark.parametrize("is_complete", [False, True])
def test_chain_that_openssl_completes_from_the_authorities_is_left_to_it(is_complete: bool, tmp_path: Path) -> None:
    """Clients that know the root alone have connected, though the file has no intermediate certificate."""
    root = trustme.CA()
    child = root.create_child_ca()
    shown = child.issue_cert("localhost")
    chain = shown.cert_chain_pems if is_complete else shown.cert_chain_pems[:1]
    path = tmp_path / "chain.pem"
    path.write_bytes(b"".join(part.bytes() for part in (shown.private_key_pem, *chain)))
    child.cert_pem.write_to_path(tmp_path / "ca.pem")
    config = loaded(str(path), ssl_ca_certs=tmp_path / "ca.pem")
    reason = None if is_complete else "ssl_ca_certs has an intermediate certificate"
    assert engine_of(config) == (is_complete, reason)
    client = ssl.create_default_context()
    root.configure_trust(client)
    assert config.ssl is not None
    _, here = handshake(config.ssl, client)
    assert here.getpeercert()


def certificate_of(key: Any) -> bytes:
    """A certificate signed by itself, and its key."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    text: bytes = key.private_bytes(encoding, form, serialization.NoEncryption())
    return text + builder.sign(key, hashes.SHA256()).public_bytes(encoding)


CHANGES: dict[str, Any] = {
    "options": lambda context: setattr(context, "options", context.options | ssl.OP_NO_TICKET),
    "maximum_version": lambda context: setattr(context, "maximum_version", ssl.TLSVersion.TLSv1_2),
    "sni_callback": lambda context: setattr(context, "sni_callback", lambda *arguments: None),
    "sslobject_class": lambda context: setattr(context, "sslobject_class", ssl.SSLObject),
    "set_ciphers": lambda context: context.set_ciphers("ECDHE-RSA-AES256-SHA"),
    "set_alpn_protocols": lambda context: context.set_alpn_protocols(["http/1.1"]),
    "load_default_certs": lambda context: context.load_default_certs(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("renewed", [False, True], ids=["as it was made", "renewed"])
def test_context_that_a_program_changes_encrypts_itself_from_then_on(
    change: str,
    renewed: bool,
    tls_certificate_key_and_chain_path: str,
    tls_ca_ssl_context: ssl.SSLContext,
    tmp_path: Path,
) -> None:
    """Listening sockets notice it too, for new connections."""
    path = tmp_path / "chain.pem"
    path.write_bytes(Path(tls_certificate_key_and_chain_path).read_bytes())
    front: Any = loaded(str(path), ssl_reload=0).ssl
    if renewed:
        path.write_bytes(path.read_bytes() + b"\n")
        assert front.renewal.look()
    there, _ = handshake(front, tls_ca_ssl_context)
    assert isinstance(there.transport.get_extra_info("ssl_object"), TLSConnection)
    CHANGES[change](front.current)
    assert front.current.openssl_reason == f"a program has changed the context ({change})"
    there, here = handshake(front, tls_ca_ssl_context)
    assert not isinstance(there.transport.get_extra_info("ssl_object"), TLSConnection)
    if change == "maximum_version":
        assert here.version() == "TLSv1.2"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_connection_answers_as_one_of_openssl_does(
    version: ssl.TLSVersion, tls_certificate_key_and_chain_path: str, tls_ca_certificate_pem_path: str, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(tls_ca_certificate_pem_path)
    client.minimum_version = client.maximum_version = version
    client.set_alpn_protocols(["http/1.1"])
    authority.issue_cert("me@example.org", common_name="me").configure_cert(client)
    verify = {"ssl_ca_certs": str(tmp_path / "ca.pem"), "ssl_cert_reqs": ssl.CERT_REQUIRED, "http2": True}
    suite = {"ssl_ciphers": "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384"}
    seen = {}
    for engine in ("rustls", "openssl"):
        context = loaded(tls_certificate_key_and_chain_path, tls=engine, **verify, **suite).ssl
        assert context is not None
        there, here = handshake(context, client)
        seen[engine] = [
            there.version(),
            there.cipher(),
            there.compression(),
            there.selected_alpn_protocol(),
            there.getpeercert(),
            there.getpeercert(True),
            there.session_reused,
            there.server_side,
            there.pending(),
            there.context.verify_mode,
            here.cipher(),
        ]
        assert there.cipher() in there.shared_ciphers()
        assert there.context is context
        with pytest.raises(ValueError, match="channel binding type not implemented"):
            there.get_channel_binding("tls-server-end-point")
    assert seen["rustls"] == seen["openssl"]


def test_connection_can_be_read_and_not_driven() -> None:
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    connection = TLSConnection(context, 0x0304, 0x1301, None, "a.test", group=0x11EC)
    assert isinstance(connection, ssl.SSLObject)
    assert (connection.server_hostname, connection.group, connection.session) == ("a.test", 0x11EC, None)
    assert connection.getpeercert() is None and connection.get_verified_chain() == []
    calls: list[Any] = [connection.read, connection.do_handshake, connection.unwrap, lambda: connection.write(b"x")]
    calls += [functools.partial(setattr, connection, name, None) for name in ("context", "session")]
    for call in calls:
        with pytest.raises(ssl.SSLError, match="rustls drives this connection"):
            call()


def test_names_of_suites_are_those_of_openssl() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL")
    known = {cipher["id"] & 0xFFFF: (cipher["name"], cipher["strength_bits"]) for cipher in context.get_ciphers()}
    assert {number: known[number] for number in SUITES} == SUITES


def test_certificate_that_could_not_be_verified_is_not_decoded(tls_certificate: trustme.LeafCert) -> None:
    der = ssl.PEM_cert_to_DER_cert(tls_certificate.cert_chain_pems[0].bytes().decode())
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    for error in (None, "it has expired"):
        connection = TLSConnection(context, 0x0303, 0xC02F, chain=(der,), error=error)
        assert connection.getpeercert(True) == der
        assert bool(connection.getpeercert()) is (error is None)


@pytest.mark.anyio
async def test_loop_whose_transports_encrypt_is_named(
    tls_certificate_key_and_chain_path: str,
    tls_ca_ssl_context: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="uvicorn.error")
    monkeypatch.setattr("uvicorn.listening.sockets._poller_for", lambda *arguments: None)
    settings: dict[str, Any] = {"ssl_certfile": tls_certificate_key_and_chain_path, "log_config": None, "port": 0}
    async with run_server(Config(app, lifespan="off", **settings)) as server:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", server_port(server), ssl=tls_ca_ssl_context, server_hostname="localhost"
        )
        writer.transport.abort()
    assert "TLS by OpenSSL, not rustls: the event loop's transports carry it." in caplog.messages


REPLACED = {
    "is replaced": "a program has made the context",
    "is changed": "a program has changed the context (options)",
}


def meddle(config: Config, change: str) -> None:
    if change == "is replaced":
        config.ssl = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    else:
        assert config.ssl is not None
        config.ssl.options |= ssl.OP_NO_TICKET


@pytest.mark.anyio
@pytest.mark.parametrize("change", REPLACED)
async def test_context_that_changes_before_the_start_is_named(
    change: str, tls_certificate_key_and_chain_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="uvicorn.error")
    config = loaded(tls_certificate_key_and_chain_path, port=0)
    meddle(config, change)
    async with run_server(config):
        pass
    assert caplog.messages.count(f"TLS by OpenSSL, not rustls: {REPLACED[change]}.") == 1
    config = loaded(tls_certificate_key_and_chain_path, port=0, tls="rustls")
    meddle(config, change)
    with pytest.raises(ValueError, match=f"tls='rustls': {re.escape(REPLACED[change])}"):
        await Server(config).serve()


@pytest.mark.anyio
@pytest.mark.parametrize("settings", [{}, {"ssl_reload": 0}], ids=["fixed", "renewable"])
async def test_context_that_changes_while_it_serves_is_named_once(
    settings: dict[str, Any], tls_certificate_key_and_chain_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="uvicorn.error")
    config = loaded(tls_certificate_key_and_chain_path, port=0, **settings)
    async with run_server(config):
        assert config.ssl is not None
        context = in_force(config.ssl)
        for _ in range(2):
            context.options |= ssl.OP_NO_TICKET
    said = [text for text in caplog.messages if "rustls" in text]
    assert said == ["TLS by OpenSSL from now on, not rustls: a program has changed the context (options)."]


@pytest.mark.parametrize("tls", ["auto", "rustls"])
def test_engine_that_changes_with_a_renewal_is_named_or_refused(
    tls: str, tls_certificate_key_and_chain_path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="uvicorn.error")
    path = tmp_path / "chain.pem"
    path.write_bytes(Path(tls_certificate_key_and_chain_path).read_bytes())
    changes = False

    def factory(config: Any, default: Any) -> Any:
        context = default()
        if changes:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    front: Any = loaded(str(path), ssl_reload=0, ssl_context_factory=factory, tls=tls).ssl
    changes = True
    assert front.renewal.insist() is (tls == "auto")
    reason = "a program has changed the context (minimum_version)"
    if tls == "auto":
        assert caplog.messages[-1] == f"TLS by OpenSSL from now on, not rustls: {reason}."
    else:
        assert caplog.messages[-1].endswith(f"keeping the previous ones: rustls cannot be used, because {reason}.")
        assert front.current.minimum_version != ssl.TLSVersion.TLSv1_3


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_workers_say_once_why_openssl_encrypts(tmp_path: Path, tls_certificate_key_and_chain_path: str) -> None:
    (tmp_path / "app.py").write_text("async def app(scope, receive, send): ...\n")
    settings = ["--workers", "2", "--lifespan", "off", "--ssl-ciphers", "AES128-SHA"]
    with ServerProcess(
        "app:app", "--port", "0", "--ssl-certfile", tls_certificate_key_and_chain_path, *settings, cwd=tmp_path
    ) as server:
        server.wait_for("Started server process", count=2)
        server.stop()
        assert server.error_output.count("TLS by OpenSSL, not rustls: it has no cipher suite") == 1
