"""Certificates of clients: revocation lists, the dates of these and of authorities (RFC 5280)."""

from __future__ import annotations

import datetime
import ssl
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from tests import loops
from tests.tls.engines import handshake
from tests.utils import run_server, wait_until
from uvicorn.config import Config
from uvicorn.config.errors import report_error
from uvicorn.listening.loads import LoadTable
from uvicorn.tls.certificates import RevocationList, lists_of_pem
from uvicorn.tls.context import RenewableContext
from uvicorn.tls.renewal import CertificateWatch

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("engine")]

anyio_backend = loops.each

HOUR = datetime.timedelta(hours=1)
DAY = 24 * HOUR
NOW = datetime.datetime(2030, 3, 17, 12, tzinfo=datetime.timezone.utc)


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

    def issuer(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """The authority's certificate and key."""
        key = load_pem_private_key(self.authority.private_key_pem.bytes(), None)
        certificate = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes())
        return certificate, cast(ec.EllipticCurvePrivateKey, key)

    def between(
        self, begin: datetime.timedelta, end: datetime.timedelta, now: datetime.datetime | None = None
    ) -> bytes:
        """Another certificate of the authority's name and key, with these dates from now, in PEM."""
        own, key = self.issuer()
        now = now or datetime.datetime.now(datetime.timezone.utc)
        builder = x509.CertificateBuilder(own.issuer, own.subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now + begin).not_valid_after(now + end)
        for extension in own.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def revoke(
        self,
        *numbers: int,
        since: datetime.timedelta = -2 * DAY,
        until: datetime.timedelta = DAY,
        now: datetime.datetime | None = None,
    ) -> bytes:
        """Write the list anew, with these, valid between these times from now; returns it."""
        now = now or datetime.datetime.now(datetime.timezone.utc)
        issuer, key = self.issuer()
        builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
        for number in numbers:
            revoked = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
            builder = builder.add_revoked_certificate(revoked)
        builder = builder.last_update(now + since).next_update(now + until)
        if not self.is_plain:
            # As RFC 5280 section 5.2 wants it, and rustls with it.
            identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]
            builder = builder.add_extension(identifier, critical=False)
            builder = builder.add_extension(x509.CRLNumber(1), critical=False)
        text = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
        self.list.write_bytes(text)
        return text

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


# Dates of lists.


def watch(context: ssl.SSLContext, now: datetime.datetime, place: Any = None) -> CertificateWatch:
    return CertificateWatch(context, None, None, place, clock=now.timestamp)


def look(context: ssl.SSLContext, now: datetime.datetime, place: Any = None) -> None:
    watching = watch(context, now, place)
    watching.start()
    watching.stop()


def notices(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    return [(level, text.partition("CN=")[2] or text) for level, text in lines if "revocation list" in text]


REPLACED = "no client certificate of this authority is accepted. Put a {} list into the file of ssl_crl."


@pytest.mark.parametrize(
    "since, until, level, text",
    [
        pytest.param(-6 * DAY, DAY, None, "", id="a week's list on its last day"),
        pytest.param(
            -6.4 * DAY,
            0.6 * DAY,
            "WARNING",
            "expires on 2030-03-18 02:24 UTC, in 14 hours: from then on " + REPLACED.format("newer"),
            id="a week's list in its last hours",
        ),
        pytest.param(-21 * HOUR, 3 * HOUR, None, "", id="a day's list"),
        pytest.param(-22 * HOUR, 2 * HOUR, "WARNING", "14:00 UTC, in 2 hours: from", id="a day's list that is late"),
        pytest.param(-23 * HOUR, 0.5 * HOUR, "WARNING", "12:30 UTC, in 30 minutes: from", id="the last minutes"),
        pytest.param(-300 * DAY, 14.1 * DAY, None, "", id="a year's list"),
        pytest.param(-300 * DAY, 13.9 * DAY, "WARNING", "in 13 days: from", id="a year's list in two weeks"),
        pytest.param(
            -DAY, 0 * DAY, "ERROR", "expired on 2030-03-17 12:00 UTC: " + REPLACED.format("current"), id="end"
        ),
        pytest.param(-9 * DAY, -DAY, "ERROR", "expired on 2030-03-16 12:00 UTC: no", id="expired"),
        pytest.param(
            HOUR,
            9 * DAY,
            "ERROR",
            "is not valid before 2030-03-17 13:00 UTC. Check this machine's clock, or put a current list into the file "
            "of ssl_crl.",
            id="from tomorrow",
        ),
    ],
)
async def test_lists_that_expire_have_a_line(
    clients: Clients,
    caplog: pytest.LogCaptureFixture,
    since: datetime.timedelta,
    until: datetime.timedelta,
    level: str | None,
    text: str,
) -> None:
    """T7"""
    clients.revoke(since=since, until=until, now=NOW)
    look(clients.context(), NOW)
    assert [found for found, _ in notices(caplog)] == ([] if level is None else [level])
    assert text in caplog.text


async def test_a_list_that_expires_during_service_has_its_lines_at_once(
    clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    clients.revoke(since=-9 * HOUR, until=HOUR, now=NOW)
    now = NOW - 0.5 * HOUR
    watching = CertificateWatch(clients.context(), None, None, None, clock=lambda: now.timestamp())
    for _ in range(6):
        watching.look()
        now += datetime.timedelta(seconds=watching.pause(now.timestamp()))
    watching.stop()
    assert [level for level, _ in notices(caplog)] == ["WARNING", "ERROR"]
    caplog.clear()
    now += DAY
    watching.look()
    watching.stop()
    assert [level for level, _ in notices(caplog)] == ["ERROR"], "once a day"


async def test_the_next_look_is_when_something_expires(clients: Clients) -> None:
    clients.revoke(since=-9 * HOUR, until=HOUR, now=NOW)
    watching = watch(clients.context(), NOW)
    for before, seconds in ((70, 3600), (10, 601), (0, 1), (-1, 59 * 60 + 1), (-59, 61), (-61, 3600)):
        now = NOW - datetime.timedelta(minutes=before)
        assert watching.pause(now.timestamp()) == seconds


@pytest.mark.skipif(sys.platform != "linux", reason="workers have no memory in common")
async def test_one_of_several_workers_has_each_line(clients: Clients, caplog: pytest.LogCaptureFixture) -> None:
    good = clients.revoke(now=NOW)
    bad = clients.revoke(until=-DAY, now=NOW)
    context = clients.context(ssl_reload=0)
    assert isinstance(context, RenewableContext)
    table = LoadTable.make()
    assert table is not None
    watches = [watch(context, NOW, table.take()) for _ in range(3)]
    for text in (bad, bad, good, bad, good):
        clients.list.write_bytes(text)
        context.renewal.look()
        for watching in watches:
            watching.look()
            watching.stop()
    assert [level for level, _ in notices(caplog)] == ["ERROR", "ERROR"], "one of each time it was loaded"


@pytest.mark.parametrize("order", [1, -1])
async def test_the_newest_list_of_an_authority_counts(
    clients: Clients, caplog: pytest.LogCaptureFixture, order: int
) -> None:
    """T7"""
    (revoked, number), (good, _) = clients.new(), clients.new()
    lists = [clients.revoke(until=-DAY), clients.revoke(number, since=-DAY)]
    clients.list.write_bytes(b"".join(lists[::order]))
    context = clients.context()
    handshake(context, good)
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        handshake(context, revoked)
    look(context, datetime.datetime.now(datetime.timezone.utc))
    assert not notices(caplog)


async def test_a_server_logs_expired_lists(clients: Clients, caplog: pytest.LogCaptureFixture) -> None:
    """T7: at the start, and when one is loaded."""
    caplog.set_level("INFO", logger="uvicorn.error")
    clients.revoke(until=-DAY)
    async with run_server(clients.config(ssl_reload=0.02, port=0)):
        assert [level for level, _ in notices(caplog)] == ["ERROR"]
        good = clients.revoke(until=99 * DAY)
        await wait_until(lambda: "Loaded new TLS certificates" in caplog.text)
        caplog.clear()
        clients.list.write_bytes(good + clients.revoke(since=-DAY, until=-HOUR))
        await wait_until(lambda: bool(notices(caplog)))
        ((level, text),) = notices(caplog)
        assert level == "ERROR" and "expired on" in text


def test_what_a_list_says(clients: Clients) -> None:
    clients.revoke(now=NOW)
    der = ssl.PEM_cert_to_DER_cert(clients.list.read_text().replace("X509 CRL", "CERTIFICATE"))
    (found,) = lists_of_pem(
        b"text\n" + clients.list.read_bytes() + b"-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n"
    )
    assert RevocationList.read(der) == found
    assert "trustme" in found.issuer
    assert (found.this_update, found.next_update) == ((NOW - 2 * DAY).timestamp(), (NOW + DAY).timestamp())
    for length in range(len(der)):
        with pytest.raises(ValueError):
            RevocationList.read(der[:length])


@pytest.mark.parametrize("version", [b"", b"\x02\x01\x01"])
def test_a_list_that_does_not_expire(version: bytes) -> None:
    """RFC 5280 section 5.1.2.5 wants a date, X.509 does not, and OpenSSL writes lists without."""

    def sequence(*parts: bytes) -> bytes:
        return bytes([0x30, len(b"".join(parts))]) + b"".join(parts)

    fields = sequence(version, sequence(), sequence(), b"\x17\x0d300317120000Z", sequence(sequence()))
    assert RevocationList.read(sequence(fields)) == RevocationList("", b"", int(NOW.timestamp()), None)


# Dates of authorities.


@pytest.mark.parametrize("begin, end", [(-9 * DAY, -DAY), (DAY, 9 * DAY)], ids=["expired", "not yet valid"])
def test_clients_of_an_authority_that_is_not_valid_are_refused(
    clients: Clients, begin: datetime.timedelta, end: datetime.timedelta
) -> None:
    """T2"""
    client, _ = clients.new()
    clients.revoke()
    late, valid = clients.between(begin, end), clients.between(-DAY, DAY)
    for beside in (b"", trustme.CA().cert_pem.bytes()):
        clients.authorities.write_bytes(late + beside)
        with pytest.raises(ssl.SSLError, match=r"certificate (has |is )?(expired|not yet valid)"):
            handshake(clients.context(), client)
    for both in (late + valid, valid + late):
        clients.authorities.write_bytes(both)
        handshake(clients.context(), client)


@pytest.mark.parametrize("engine", ["rustls"], indirect=True)
def test_applications_learn_of_an_authority_that_has_expired(clients: Clients) -> None:
    client, _ = clients.new()
    clients.revoke()
    clients.authorities.write_bytes(clients.between(-9 * DAY, -DAY))
    server, _ = handshake(clients.context(asgi_extensions=["tls"], ssl_client_errors=True), client)
    assert server.verification_error == "the authority of the certificate has expired or is not yet valid"


@pytest.mark.parametrize(
    "begin, end, level, text",
    [
        (-9 * DAY, 14.1 * DAY, None, ""),
        (-9 * DAY, 13.9 * DAY, "WARNING", "expires on 2030-03-31 09:36 UTC, in 13 days: from then on {}. Replace it."),
        (-9 * DAY, -DAY, "ERROR", "expired on 2030-03-16 12:00 UTC: {}. Replace or remove it."),
        (DAY, 9 * DAY, "ERROR", "is not valid before 2030-03-18 12:00 UTC: {}. Check this machine's clock."),
    ],
)
async def test_authorities_that_expire_have_a_line(
    clients: Clients,
    caplog: pytest.LogCaptureFixture,
    begin: datetime.timedelta,
    end: datetime.timedelta,
    level: str | None,
    text: str,
) -> None:
    clients.revoke(until=99 * DAY, now=NOW)
    authority = clients.between(begin, end, NOW)
    other = trustme.CA().cert_pem.bytes()  # valid until 2038
    clients.authorities.write_bytes(other + authority)
    context = clients.context()
    look(context, NOW)
    assert [record.levelname for record in caplog.records] == ([] if level is None else [level])
    assert text.format("no client certificate of it is accepted") in caplog.text
    if level is not None:
        assert (
            f"The authority {clients.issuer()[0].subject.rfc4514_string()} in the file of ssl_ca_certs" in caplog.text
        )
    assert watch(context, (NOW + begin) - HOUR / 2).pause((NOW + begin - HOUR / 2).timestamp()) == 1801
    # A successor of the same name, as well as no request for certificates, makes up for it.
    caplog.clear()
    clients.authorities.write_bytes(other + clients.between(-DAY, 99 * DAY, NOW) + authority)
    look(clients.context(), NOW)
    look(clients.context(ssl_cert_reqs=ssl.CERT_NONE, ssl_crl=None), NOW)
    assert not caplog.messages
