"""Session tickets that several contexts, event loops and processes have in common."""

from __future__ import annotations

import asyncio
import pickle
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.process import ServerProcess
from tests.tls.engines import handshake
from tests.utils import is_listening, run_server, server_port, wait_for
from uvicorn.config import Config
from uvicorn.tls import rustls
from uvicorn.tls.context import RenewableContext
from uvicorn.tls.tickets import PERIOD, TicketSecret

pytestmark = pytest.mark.anyio

shared = pytest.mark.skipif(rustls.why_not() is not None, reason=str(rustls.why_not()))

APP = """
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def client(request: pytest.FixtureRequest, tls_ca_ssl_context: ssl.SSLContext) -> ssl.SSLContext:
    tls_ca_ssl_context.minimum_version = tls_ca_ssl_context.maximum_version = request.param
    tls_ca_ssl_context.check_hostname = False
    return tls_ca_ssl_context


@pytest.fixture
def certificate(tls_certificate_key_and_chain_path: str) -> dict[str, Any]:
    return {"ssl_certfile": tls_certificate_key_and_chain_path}


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def config_of(**settings: Any) -> Config:
    return Config(app, port=0, lifespan="off", log_config=None, **{"ssl_tickets": "shared", **settings})


def contexts(count: int, **settings: Any) -> Iterator[ssl.SSLContext]:
    """Those of several workers, each of which has got the configuration by way of a pipe."""
    config = config_of(**settings)
    for _ in range(count):
        copy = pickle.loads(pickle.dumps(config))
        copy.load()
        yield copy.ssl


def context_of(secret: TicketSecret, certificate: dict[str, Any]) -> ssl.SSLContext:
    config = config_of(**certificate)
    config.ticket_secret = secret
    config.load()
    assert config.ssl is not None
    return config.ssl


def session_of(server: ssl.SSLContext, client: ssl.SSLContext, session: Any = None) -> tuple[Any, bool]:
    """What a client has in hand after a connection, and whether that has taken up `session`."""
    there, here = handshake(server, client, session=session)
    there.write(b"x")
    here.read(1)  # in TLS 1.3 a ticket comes behind the handshake
    return here.session, bool(here.session_reused)


@shared
def test_one_worker_reads_what_another_has_written(certificate: dict[str, Any], client: ssl.SSLContext) -> None:
    first, second, third = contexts(3, **certificate)
    session, reused = session_of(first, client)
    assert not reused
    for server in (second, third, first, second):
        session, reused = session_of(server, client, session)
        assert reused


@pytest.mark.usefixtures("engine")
def test_by_default_each_has_its_own(certificate: dict[str, Any], client: ssl.SSLContext) -> None:
    first, second = contexts(2, ssl_tickets="own", **certificate)
    session, _ = session_of(first, client)
    assert session_of(first, client, session)[1]
    assert not session_of(second, client, session)[1]


@shared
def test_two_servers_have_nothing_in_common(certificate: dict[str, Any], client: ssl.SSLContext) -> None:
    (first,), (second,) = contexts(1, **certificate), contexts(1, **certificate)
    session, _ = session_of(first, client)
    assert not session_of(second, client, session)[1]


@pytest.mark.parametrize("named", [False, True], ids=["default", "named"])
def test_there_may_be_none(certificate: dict[str, Any], client: ssl.SSLContext, named: bool, engine: str) -> None:
    """T6: nor what a server keeps of TLS 1.2 itself, which clients take up by an id."""
    names = [f"localhost={certificate['ssl_certfile']}"] if named else []
    (server,) = contexts(1, ssl_tickets="none", ssl_cert=names, **certificate)
    there, here = handshake(server, client)  # OpenSSL forgets sessions of connections that end without a word
    there.write(b"x")
    here.read(1)
    session: Any = here.session
    assert session is None or not session.has_ticket
    if engine == "rustls" or client.minimum_version is ssl.TLSVersion.TLSv1_3:
        again, reused = session_of(server, client, session)
        assert not reused and (again is None or not again.has_ticket)


@pytest.mark.parametrize("version", [None, "1.3"])
def test_the_log_says_where_openssl_keeps_sessions(
    caplog: pytest.LogCaptureFixture, certificate: dict[str, Any], version: str | None
) -> None:
    config = config_of(tls="openssl", ssl_tickets="none", ssl_min_version=version, **certificate)
    config.load()
    said = ["Clients can resume TLS 1.2 sessions by id, without a ticket (ssl_tickets=none): OpenSSL keeps them."]
    assert caplog.messages == ([] if version else said)
    assert config.ssl is not None and config.ssl.num_tickets == 0


@shared
def test_a_ticket_is_read_for_one_more_period(client: ssl.SSLContext, certificate: dict[str, Any]) -> None:
    clock = Clock()
    secret = TicketSecret(clock=clock)

    def connect(session: Any = None) -> tuple[Any, bool]:
        # A new context asks for the keys at once, an older one a second later.
        return session_of(context_of(secret, certificate), client, session)

    session, _ = connect()
    clock.now += PERIOD
    newer, reused = connect(session)
    assert reused
    clock.now += PERIOD
    assert not connect(session)[1]
    assert connect(newer)[1], "it was written anew when it was read"
    clock.now += 100 * PERIOD
    assert not connect(newer)[1]


@shared
def test_a_worker_that_comes_later_knows_as_much(client: ssl.SSLContext, certificate: dict[str, Any]) -> None:
    clock = Clock()
    secret = TicketSecret(clock=clock)
    session, _ = session_of(context_of(secret, certificate), client)
    clock.now += PERIOD
    copy = pickle.loads(pickle.dumps(secret))
    copy._clock = clock
    assert session_of(context_of(copy, certificate), client, session)[1]
    clock.now += 5 * PERIOD
    assert copy.keys(b"") == secret.keys(b"")


def test_nobody_can_go_back() -> None:
    """What is in memory, or in the pipe to a worker, says nothing of earlier periods."""
    clock = Clock()
    secret = TicketSecret(clock=clock)
    first = secret.keys(b"")[1]
    assert first is not None and len(first) == 80 and secret.keys(b"")[2] is None
    begin = pickle.dumps(secret)
    clock.now += PERIOD
    second = secret.keys(b"")[1]
    assert secret.keys(b"")[2] == first and second != first
    clock.now += PERIOD
    third = secret.keys(b"")[1]
    assert secret.keys(b"")[2] == second
    assert len({first, second, third, secret.keys(b"other")[1]}) == 4
    clock.now -= 10 * PERIOD
    assert secret.keys(b"")[1] == third, "nor does a clock that is set back"
    held = [value for value in vars(secret).values() if isinstance(value, bytes)]
    earlier = pickle.loads(begin)
    assert len(held) == 2 and earlier._secret not in held
    assert not any(value.hex() in repr(secret) for value in held)
    clock.now += 20 * PERIOD
    secret.advance()
    assert secret._before not in held


def test_keys_are_as_their_rfc_has_them() -> None:
    """RFC 5869, with the extraction left out: the secret is one already."""
    hkdf = pytest.importorskip("cryptography.hazmat.primitives.kdf.hkdf")
    hashes = pytest.importorskip("cryptography.hazmat.primitives.hashes")
    secret = TicketSecret(b"s" * 32, Clock())
    expected = hkdf.HKDFExpand(hashes.SHA512(), 80, b"purpose").derive(b"s" * 32)
    assert secret.keys(b"purpose")[1] == expected


@shared
def test_other_authorities_have_other_tickets(
    certificate: dict[str, Any], client: ssl.SSLContext, tmp_path: Path
) -> None:
    """T6: nobody comes in by a ticket whose certificate would not be good any more."""
    old, new = trustme.CA(), trustme.CA()
    old.cert_pem.write_to_path(tmp_path / "ca.pem")
    verify = {"ssl_ca_certs": str(tmp_path / "ca.pem"), "ssl_cert_reqs": ssl.CERT_OPTIONAL, "ssl_reload": 0}
    config = config_of(**certificate, **verify)
    config.load()
    assert isinstance(config.ssl, RenewableContext)
    old.issue_cert("me@example.org").configure_cert(client)
    session, _ = session_of(config.ssl, client)
    again, reused = session_of(config.ssl, client, session)
    assert reused
    new.cert_pem.write_to_path(tmp_path / "ca.pem")
    assert config.ssl.renewal.look()
    for known in (session, again):
        with pytest.raises(ssl.SSLError):
            session_of(config.ssl, client, known)


@shared
def test_a_new_certificate_leaves_tickets_good(
    certificate: dict[str, Any], tls_certificate_authority: trustme.CA, client: ssl.SSLContext, tmp_path: Path
) -> None:
    path = tmp_path / "server.pem"
    tls_certificate_authority.issue_cert("a.test").private_key_and_cert_chain_pem.write_to_path(path)
    config = config_of(ssl_certfile=str(path), ssl_reload=0)
    config.load()
    assert isinstance(config.ssl, RenewableContext)
    session, _ = session_of(config.ssl, client)
    tls_certificate_authority.issue_cert("b.test").private_key_and_cert_chain_pem.write_to_path(path)
    assert config.ssl.renewal.look()
    assert session_of(config.ssl, client, session)[1]


@shared
def test_certificates_of_names_go_by_the_same_tickets(certificate: dict[str, Any], client: ssl.SSLContext) -> None:
    file = certificate["ssl_certfile"]
    first, second = contexts(2, ssl_cert=[f"localhost={file}"], **certificate)
    session, _ = session_of(first, client)
    assert session_of(second, client, session)[1]


@shared
def test_threads_use_one_key(client: ssl.SSLContext, certificate: dict[str, Any]) -> None:
    clock = Clock()
    server = context_of(TicketSecret(clock=clock), certificate)
    failures: list[BaseException] = []

    def connect() -> None:
        session = None
        try:
            for _ in range(30):
                session, _ = session_of(server, client, session)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=connect) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        clock.now += PERIOD
        threading.Event().wait(0.01)
    assert failures == []


@shared
def test_tickets_that_are_none(client: ssl.SSLContext, certificate: dict[str, Any]) -> None:
    """A wrong key: a whole handshake, and no error."""
    written = context_of(TicketSecret(b"a" * 32), certificate)
    session, _ = session_of(written, client)
    assert not session_of(context_of(TicketSecret(b"b" * 32), certificate), client, session)[1]


def test_who_makes_the_context_decides() -> None:
    def factory(config: Any, default: Any) -> Any:
        raise NotImplementedError

    for value in ("shared", "none"):
        with pytest.raises(ValueError, match="ssl_context_factory"):
            config_of(ssl_tickets=value, ssl_context_factory=factory)
    with pytest.raises(ValueError, match="own, shared, none"):
        config_of(ssl_tickets="all")


def test_tickets_are_not_looked_for_where_nobody_asks() -> None:
    source = (
        "import sys, uvicorn.server as s; s.Config('a:b', ssl_certfile='c'); "
        "print('uvicorn.tls.tickets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


# Served.


def reused_at(port: int, client: ssl.SSLContext, session: Any) -> tuple[Any, bool]:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as sock,
        client.wrap_socket(sock, server_hostname="localhost", session=session) as tls,
    ):
        tls.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        while tls.recv(4096):
            pass
        return tls.session, bool(tls.session_reused)


@shared
@pytest.mark.measures_children
@pytest.mark.parametrize("arguments", [["--workers", "3"], ["--threads", "3"], ["--workers", "3", "--preload"]])
def test_all_workers_take_up_a_session(
    tmp_path: Path, client: ssl.SSLContext, tls_certificate_key_and_chain_path: str, arguments: list[str]
) -> None:
    if sys.platform != "linux" and "--preload" in arguments:
        pytest.skip("this system cannot fork safely")
    (tmp_path / "deployed.py").write_text(APP)
    fixed = ["deployed:app", "--port", "0", "--lifespan", "off", "--ssl-tickets", "shared"]
    certificate = ["--ssl-certfile", tls_certificate_key_and_chain_path]
    with ServerProcess(*fixed, *certificate, *arguments, cwd=tmp_path) as server:
        server.wait_for("Started server process", count=3)
        wait_for(lambda: is_listening(server.address))
        session, reused = reused_at(server.port, client, None)
        assert not reused
        for _ in range(12):
            session, reused = reused_at(server.port, client, session)
            assert reused
        assert "Traceback" not in server.error_output


@shared
@pytest.mark.parametrize("http", ["native", "httptools", "h11"])
async def test_a_server_takes_up_a_session(http: str, certificate: dict[str, Any], client: ssl.SSLContext) -> None:
    if http == "native":
        pytest.importorskip("uvicorn._native")
    async with run_server(config_of(http=http, **certificate)) as server:
        port = server_port(server)
        session, _ = await asyncio.to_thread(reused_at, port, client, None)
        assert (await asyncio.to_thread(reused_at, port, client, session))[1]
