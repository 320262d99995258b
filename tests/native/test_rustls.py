"""Connections that rustls encrypts: what Python gives it, and what it tells Python."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
import threading
from typing import Any

import pytest
import trustme

from tests.native.test_encrypted import Client, RustlsContext, recorders, rustls_config
from tests.utils import wait_until
from uvicorn.metrics import page
from uvicorn.metrics.page import Page

native = pytest.importorskip("uvicorn._native")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there are no native sockets"),
]


def context_of(certificate: trustme.LeafCert, **settings: Any) -> ssl.SSLContext:
    context = RustlsContext(ssl.PROTOCOL_TLS_SERVER)
    context.rustls = rustls_config(certificate, **settings)
    return context


async def test_programs_are_shown_a_description_that_is_made_once(
    tls_certificate: trustme.LeafCert, tls_certificate_authority: trustme.CA, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    described: list[tuple[Any, ...]] = []

    def describe(*facts: Any) -> object:
        described.append(facts)
        return facts

    pem = b"".join(blob.bytes() for blob in tls_certificate.cert_chain_pems)
    key = tls_certificate.private_key_pem.bytes()
    server = context_of(
        tls_certificate,
        certificates=[(None, pem, key), ("localhost", pem, key)],
        alpn=["h2", "http/1.1"],
        verify=ssl.CERT_OPTIONAL,
        authorities=tls_certificate_authority.cert_pem.bytes(),
        describe=describe,
    )
    client_certificate = tls_certificate_authority.issue_cert("client")
    client_certificate.configure_cert(tls_ca_ssl_context)
    tls_ca_ssl_context.set_alpn_protocols(["http/1.1"])
    async with recorders(server, tls_ca_ssl_context) as both:
        recorder, _ = await both.open()
        transport = recorder.transport
        assert transport.get_extra_info("sslcontext") is server
        assert described == []
        shown = transport.get_extra_info("ssl_object")
        assert transport.get_extra_info("ssl_object") is shown
        client_der = ssl.PEM_cert_to_DER_cert(client_certificate.cert_chain_pems[0].bytes().decode())
        version, suite, *rest, chain, resumed, group, error, host = shown
        assert (version, suite, rest) == (0x0304, 0x1301, ["http/1.1", "localhost"])
        assert (chain[0], resumed, error, host) == (client_der, False, None, "localhost")
        assert group in (29, 4588)
        assert len(described) == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tickets_are_read_by_all_that_have_the_key(
    tls_certificate: trustme.LeafCert,
    tls_ca_ssl_context: ssl.SSLContext,
    version: ssl.TLSVersion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those of the period before; keys of another purpose do not admit anyone."""
    tls_ca_ssl_context.maximum_version = version
    key = {number: bytes([number]) * 80 for number in range(4)}

    def server(*keys: Any) -> ssl.SSLContext:
        return context_of(tls_certificate, tickets="shared", ticket_keys=lambda: keys)

    async def visit(context: ssl.SSLContext, session: Any) -> tuple[Any, bool]:
        async with recorders(context, tls_ca_ssl_context) as both:
            client = await both.connect()
            client.tls = tls_ca_ssl_context.wrap_bio(
                client.incoming, client.outgoing, server_hostname="localhost", session=session
            )
            await client.open()
            await wait_until(lambda: len(both.made) == 1)
            both.made[0].transport.write(b"data")
            await client.read(lambda received: received == b"data")
            return client.tls.session, bool(client.tls.session_reused)

    session, reused = await visit(server(1, key[1], None), None)
    assert not reused
    assert (await visit(server(1, key[1], None), session))[1]
    assert (await visit(server(2, key[2], key[1]), session))[1]
    assert not (await visit(server(1, key[3], None), session))[1]
    # A function that fails costs the tickets, and not the connection.
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    assert not (await visit(server(1, "no key", None), session))[1]
    assert unraisable


async def test_new_settings_are_for_new_connections(
    tls_certificate: trustme.LeafCert, tls_certificate_authority: trustme.CA, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    server = context_of(tls_certificate, describe=lambda *facts: "old")
    other = tls_certificate_authority.issue_cert("localhost")
    async with recorders(server, tls_ca_ssl_context) as both:
        old, client = await both.open()
        config = server.rustls  # type: ignore[attr-defined]
        thread = threading.Thread(target=lambda: config.replace(rustls_config(other, describe=lambda *facts: "new")))
        thread.start()
        thread.join()
        await (await both.connect()).open()
        await wait_until(lambda: len(both.made) == 2)
        assert [made.transport.get_extra_info("ssl_object") for made in both.made] == ["old", "new"]
        old.transport.write(b"still here")
        assert await client.read(lambda received: len(received) == 10) == b"still here"


@pytest.mark.parametrize("engine", ["openssl", "rustls"])
async def test_handshakes_are_counted(
    engine: str, tls_certificate: trustme.LeafCert, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    """Both engines tell success and the reasons of failures alike."""
    server = context_of(tls_certificate)
    tls_certificate.configure_cert(server)
    if engine == "openssl":
        server.rustls = None  # type: ignore[attr-defined]
    server.minimum_version = ssl.TLSVersion.TLSv1_2
    counts = Page.make()
    async with recorders(server, tls_ca_ssl_context, patience=0.3) as both:
        both.acceptor.poller.measure(counts.words)
        await (await both.connect()).open()
        for data in [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03", None]:
            client = await both.connect()
            if data is not None:
                await asyncio.get_running_loop().sock_sendall(client.sock, data)
            if data == b"\x16\x03":
                client.sock.shutdown(socket.SHUT_WR)
            if data is not None:
                with contextlib.suppress(ConnectionResetError):
                    while await client.pull():
                        pass
        client = Client(ssl.create_default_context(), (await both.connect()).sock)
        with pytest.raises(ssl.SSLCertVerificationError):
            await client.open()
        await client.push()

        def told() -> dict[str, int]:
            places = {
                name: value for name, value in vars(page).items() if "HANDSHAKE" in name or name.startswith("TLS1")
            }
            return {name: counts.words[place] for name, place in places.items() if counts.words[place]}

        expected = {
            "HANDSHAKES_BEGUN": 5,
            "TLS13_HANDSHAKES": 1,
            "HANDSHAKES_NOT_TLS": 1,
            "HANDSHAKES_CLOSED": 1,
            "HANDSHAKE_TIMEOUTS": 1,
            "HANDSHAKE_ALERTS": 1,
        }
        await wait_until(lambda: told() == expected)


@pytest.mark.parametrize("ends", [True, False])
async def test_hello_of_a_client_that_has_gone_is_not_answered(
    ends: bool, tls_certificate: trustme.LeafCert, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    """The answer is what a handshake costs: clients that only send hellos would have others wait for seconds."""
    counts = Page.make()
    async with recorders(context_of(tls_certificate), tls_ca_ssl_context) as both:
        both.acceptor.poller.measure(counts.words)
        client = await both.connect()
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.do_handshake()
        hello = client.outgoing.read()
        # In two parts, and the end with the second: nothing is read between these.
        client.sock.send(hello[:100])
        await asyncio.sleep(0.05)
        client.sock.send(hello[100:])
        if ends:
            client.sock.shutdown(socket.SHUT_WR)
        assert bool(await client.pull()) is not ends
        await wait_until(lambda: counts.words[page.HANDSHAKES_CLOSED] == ends)


def test_settings_that_cannot_be_expressed_are_errors(tls_certificate: trustme.LeafCert) -> None:
    for settings, text in [
        ({"suites": [0x002F]}, "none of the cipher suites fits the versions of TLS."),
        ({"min_version": 0x0301, "max_version": 0x0302}, "only TLS 1.2 and 1.3 are supported."),
        ({"verify": 3}, "`verify` must be 0, 1 or 2, not 3."),
        ({"verify": 2}, "client certificates need authorities to verify them."),
        ({"tickets": "shared"}, "`tickets` must be 'own', 'none', or 'shared' with `ticket_keys`."),
        ({"certificates": []}, "one certificate must be for all names."),
        ({"certificates": [(None, b"", b"")]}, "the PEM data contains no certificate."),
    ]:
        with pytest.raises(ValueError, match=text.replace(".", r"\.")):
            rustls_config(tls_certificate, **settings)
