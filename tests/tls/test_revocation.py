"""Certificates of clients that were revoked (RFC 5280): refused, also by a renewed list, and told of on request."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from tests.tls.engines import handshake
from uvicorn.config import Config
from uvicorn.config.errors import report_error
from uvicorn.tls.context import RenewableContext

pytestmark = pytest.mark.usefixtures("engine")

DAY = datetime.timedelta(days=1)


async def app(scope: Any, receive: Any, send: Any) -> None: ...


class Clients:
    """An authority, those that have a certificate of it, and its list."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.server = trustme.CA()
        self.is_plain = False
        self.list = directory / "list.pem"
        self.authorities = directory / "clients.pem"
        self.authority.cert_pem.write_to_path(self.authorities)
        chain = directory / "server.pem"
        self.server.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(chain)
        self.settings: dict[str, Any] = {"ssl_certfile": chain, "ssl_ca_certs": self.authorities, "ssl_crl": self.list}

    def new(self, issuer: trustme.CA | None = None) -> tuple[ssl.SSLContext, int]:
        """A client, and the number of its certificate."""
        context = ssl.create_default_context()
        self.server.configure_trust(context)
        leaf = (issuer or self.authority).issue_cert("client.test")
        leaf.configure_cert(context)
        return context, x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()).serial_number

    def revoke(self, *numbers: int, until: datetime.timedelta = DAY) -> None:
        """Write the list anew, with these, good for so long from now."""
        now = datetime.datetime.now(datetime.timezone.utc)
        issuer = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes())
        key = cast(ec.EllipticCurvePrivateKey, load_pem_private_key(self.authority.private_key_pem.bytes(), None))
        builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
        for number in numbers:
            revoked = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
            builder = builder.add_revoked_certificate(revoked)
        builder = builder.last_update(now - 2 * DAY).next_update(now + until)
        if not self.is_plain:
            # As RFC 5280 section 5.2 wants it, and rustls with it.
            identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]
            builder = builder.add_extension(identifier, critical=False)
            builder = builder.add_extension(x509.CRLNumber(1), critical=False)
        self.list.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def config(self, **settings: Any) -> Config:
        required = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "log_config": None, "lifespan": "off"}
        return Config(app, **{**self.settings, **required, **settings})

    def context(self, **settings: Any) -> ssl.SSLContext:
        config = self.config(**settings)
        config.load()
        assert config.ssl is not None
        return config.ssl


@pytest.fixture
def clients(tmp_path: Path) -> Clients:
    return Clients(tmp_path)


def test_who_is_in_the_list_is_refused_and_others_are_not(clients: Clients) -> None:
    """T7"""
    (revoked, number), (good, _) = clients.new(), clients.new()
    clients.revoke(number)
    context = clients.context()
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        handshake(context, revoked)
    handshake(context, good)


def test_certificates_of_names_go_by_the_same_list(clients: Clients) -> None:
    revoked, number = clients.new()
    clients.revoke(number)
    context = clients.context(ssl_cert=[f"localhost={clients.settings['ssl_certfile']}"])
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        handshake(context, revoked, "localhost")


def test_an_authority_without_a_list_is_not_taken_for_one_that_has_revoked_nothing(
    clients: Clients, engine: str
) -> None:
    """T7"""
    other = trustme.CA()
    clients.authorities.write_bytes(clients.authorities.read_bytes() + other.cert_pem.bytes())
    clients.revoke()
    context = clients.context()
    handshake(context, clients.new()[0])
    with pytest.raises(ssl.SSLError, match="unknown ca" if engine == "rustls" else "unable to get certificate CRL"):
        handshake(context, clients.new(other)[0])


def test_a_list_that_has_expired_lets_nobody_in(clients: Clients, engine: str) -> None:
    """T7"""
    clients.revoke(until=-DAY)
    with pytest.raises(ssl.SSLError, match="unknown ca" if engine == "rustls" else "CRL has expired"):
        handshake(clients.context(), clients.new()[0])


def test_a_list_is_renewed_with_the_certificates(clients: Clients) -> None:
    client, number = clients.new()
    clients.revoke()
    context = clients.context(ssl_reload=0)
    assert isinstance(context, RenewableContext)
    handshake(context, client)
    clients.revoke(number)
    assert context.renewal.look()
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        handshake(context, client)
    clients.list.write_text("half of a li")
    assert not context.renewal.look(), "the old one stays"
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        handshake(context, client)


def test_applications_that_want_to_know_are_told(clients: Clients, engine: str) -> None:
    revoked, number = clients.new()
    clients.revoke(number)
    if engine == "openssl":
        with pytest.raises(ValueError, match="OpenSSL cannot do that"):
            clients.context(asgi_extensions=["tls"], ssl_client_errors=True)
        return
    context = clients.context(asgi_extensions=["tls"], ssl_client_errors=True)
    server, _ = handshake(context, revoked)
    assert server.verification_error == "the certificate is revoked"


@pytest.mark.parametrize("engine", ["rustls"], indirect=True)
def test_lists_that_only_openssl_can_read(clients: Clients) -> None:
    clients.is_plain = True
    clients.revoke()
    with pytest.raises(ValueError, match="rustls cannot be used, because it cannot read the lists of ssl_crl"):
        clients.context()
    handshake(clients.context(tls="openssl"), clients.new()[0])


@pytest.mark.parametrize(
    "text, said",
    [
        pytest.param(None, "No such file", id="missing"),
        pytest.param(b"nonsense", "", id="no list"),
        pytest.param("certificate", "the file of `ssl_crl` contains a certificate", id="an authority"),
    ],
)
def test_a_file_that_is_no_list_is_a_fault_of_the_setting(
    clients: Clients, text: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """T7"""
    if text is not None:
        clients.list.write_bytes(trustme.CA().cert_pem.bytes() if text == "certificate" else text)
    with pytest.raises((OSError, ssl.SSLError)) as caught:
        clients.config().check()
    assert caught.value.filename == str(clients.list)
    assert report_error(caught.value)
    assert f"ssl_crl={clients.list!r}" in caplog.messages[-1] and said in caplog.messages[-1]


def test_a_list_without_clients_that_show_anything_is_a_fault(clients: Clients) -> None:
    with pytest.raises(ValueError, match="it needs ssl_cert_reqs, which asks clients for certificates"):
        clients.config(ssl_cert_reqs=ssl.CERT_NONE)
