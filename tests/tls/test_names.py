"""Several certificates behind one address: which one a client gets, by the name it asks for (RFC 6066)."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests import loops, machines
from tests.tls.engines import handshake
from tests.utils import run_server, server_port
from uvicorn.config import Config
from uvicorn.tls.certificates import Certificate
from uvicorn.tls.server_context import NamedCertificate, ServerContext

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("engine")]

anyio_backend = loops.one
http = machines.names


async def app(scope: Any, receive: Any, send: Any) -> None:
    names = Certificate.read(ssl.PEM_cert_to_DER_cert(scope["extensions"]["tls"]["server_cert"])).names
    body = names[0].encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def settings(tls_certificate_authority: trustme.CA, tmp_path: Path) -> dict[str, Any]:
    """A default certificate, one of a name, one of all names below another, and one of one of these."""
    paths = {}
    for file, name in (("default", "default.test"), ("a", "a.test"), ("wild", "*.b.test"), ("x", "x.b.test")):
        leaf = tls_certificate_authority.issue_cert(name)
        leaf.cert_chain_pems[0].write_to_path(tmp_path / f"{file}.pem")
        leaf.private_key_pem.write_to_path(tmp_path / f"{file}.key")
        paths[file] = f"{tmp_path / file}.pem,{tmp_path / file}.key"
    certfile, keyfile = paths["default"].split(",")
    return {
        "ssl_certfile": certfile,
        "ssl_keyfile": keyfile,
        "ssl_cert": [f"A.test={paths['a']}", f"*.b.test={paths['wild']}", f"x.b.test={paths['x']}"],
        "asgi_extensions": ["tls"],
    }


def unverified() -> ssl.SSLContext:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return client


def config_of(settings: dict[str, Any], **more: Any) -> Config:
    return Config(app, port=0, lifespan="off", log_config=None, **{**settings, **more})


ASKED = [
    (None, "default.test"),
    ("a.test", "a.test"),
    ("A.TEST", "a.test"),
    ("y.b.test", "*.b.test"),
    ("Y.B.Test", "*.b.test"),
    ("x.b.test", "x.b.test"),
    ("z.y.b.test", "default.test"),
    ("b.test", "default.test"),
    ("unknown.test", "default.test"),
    ("test", "default.test"),
]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_the_certificate_is_that_of_the_name(http: str, settings: dict[str, Any], version: Any) -> None:
    """T1"""
    client = unverified()
    client.minimum_version = client.maximum_version = version
    async with run_server(config_of(settings, http=http)) as server:
        for name, expected in ASKED:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server_port(server), ssl=client, server_hostname=name or ""
            )
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            response = await asyncio.wait_for(reader.read(), 10)
            shown = writer.get_extra_info("ssl_object").getpeercert(True)
            writer.transport.abort()
            assert Certificate.read(shown).names == (expected,), name
            assert response.endswith(expected.encode()), "what the application is told"


def client_hello(name: bytes | None) -> bytes:
    """A client's first record, of TLS 1.2, that asks for any name; OpenSSL would not send most of them."""
    extensions = struct.pack("!HHHH", 0x000A, 4, 2, 0x0017) + struct.pack("!HHHHH", 0x000D, 6, 4, 0x0403, 0x0804)
    if name is not None:
        entry = b"\0" + struct.pack("!H", len(name)) + name
        extensions += struct.pack("!HHH", 0, len(entry) + 2, len(entry)) + entry
    suites = struct.pack("!HHH", 4, 0xC02B, 0xC02F)
    body = b"\3\3" + bytes(32) + b"\0" + suites + b"\1\0" + struct.pack("!H", len(extensions)) + extensions
    hello = b"\1" + struct.pack("!I", len(body))[1:] + body
    return b"\x16\3\1" + struct.pack("!H", len(hello)) + hello


@pytest.mark.parametrize(
    "name, expected",
    [
        (None, b"default.test"),
        (b"a.test", b"a.test"),
        (b"a.test.", b"a.test"),
        (b"a.test..", b"default.test"),
        (b".b.test", b"*.b.test"),
        (b"*.b.test", b"*.b.test"),
        (b"127.0.0.1", b"default.test"),
        (b"::1", b"default.test"),
        (b".", b"default.test"),
        (b"a" * 255, b"default.test"),
        (b"a" * 300, None),
        (b"a" * 10000, None),
        (b"", b"default.test"),
        (b"a\0.test", None),
    ],
)
async def test_names_that_no_client_would_ask_for(
    http: str, settings: dict[str, Any], name: bytes | None, expected: bytes | None, engine: str
) -> None:
    """T1: a certificate, or the end of the connection; the next client is served. rustls refuses malformed names."""
    if (engine == "rustls" and name is not None and name[:1] in (b"", b".", b"*")) or name in (b"a.test..", b"a" * 255):
        expected = None if engine == "rustls" else expected
    async with run_server(config_of(settings, http=http)) as server:
        for data in (name, b"a.test"):
            with socket.create_connection(("127.0.0.1", server_port(server))) as sock:
                sock.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(sock, client_hello(data))
                answer = b""
                while b"\x0e\0\0\0" not in answer:  # ServerHelloDone
                    piece = await asyncio.wait_for(loop.sock_recv(sock, 65536), 10)
                    if not piece:
                        break
                    answer += piece
            wanted = expected if data is name else b"a.test"
            if wanted is None:
                assert answer[:1] in (b"", b"\x15")
            else:
                assert wanted in answer


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a.test=c.pem,k.pem", ("a.test", "c.pem", "k.pem")),
        ("A.Test=c.pem", ("a.test", "c.pem", None)),
        ("*.a.test=/x=y/c.pem,k.pem", ("*.a.test", "/x=y/c.pem", "k.pem")),
        ("bücher.test=c", ("xn--bcher-kva.test", "c", None)),
        ("localhost=c", ("localhost", "c", None)),
        ("a_b.c-d.test=c", ("a_b.c-d.test", "c", None)),
    ],
)
def test_the_setting(text: str, expected: Any) -> None:
    assert NamedCertificate.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("=", "a.test", "a.test=", "a.test=,k", "=c", "*=c", "*.=c", "*.*.a=c", "a.*.b=c", "a*.test=c"),
        *("127.0.0.1=c", "[::1]=c", "::1=c", "a..b=c", ".a=c", "a.=c", "-a.test=c", "a b=c", "a\n.test=c"),
        f"{'a.' * 130}test=c",
    ],
)
def test_mistakes_in_the_setting(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST"):
        Config(app, log_config=None, ssl_certfile="c", ssl_cert=text)


def test_one_certificate_for_a_name() -> None:
    with pytest.raises(ValueError, match="each host once"):
        Config(app, log_config=None, ssl_certfile="c", ssl_cert=["a.test=c", "A.test=d"])


def test_a_certificate_for_all_others_is_needed() -> None:
    with pytest.raises(ValueError, match="ssl_certfile"):
        Config(app, log_config=None, ssl_cert=["a.test=c"])


def test_a_file_that_is_not_there(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    settings["ssl_cert"].append("c.test=/nowhere.pem")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        config_of(settings).check()


def test_what_is_shown(settings: dict[str, Any]) -> None:
    config = config_of(settings)
    config.load()
    assert isinstance(config.ssl, ServerContext)
    shown = {name: certificate.names for name, certificate in config.ssl.shown()}
    assert shown == {
        "default": ("default.test",),
        "a.test": ("a.test",),
        "*.b.test": ("*.b.test",),
        "x.b.test": ("x.b.test",),
    }
    assert list(shown) == config.certificate_names


@pytest.mark.parametrize(
    "least, refused, taken",
    [
        (None, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2),
        ("1.3", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        ("1.1", ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_lowest_version(settings: dict[str, Any], least: str | None, refused: Any, taken: Any) -> None:
    config = config_of(settings, ssl_min_version=least)
    config.load()
    assert config.ssl is not None
    client = unverified()
    client.set_ciphers("DEFAULT:@SECLEVEL=0")
    client.minimum_version = client.maximum_version = taken
    handshake(config.ssl, client, "a.test")
    client.minimum_version = ssl.TLSVersion.TLSv1
    client.maximum_version = refused
    client.minimum_version = refused
    with pytest.raises((ssl.SSLError, AssertionError)):
        handshake(config.ssl, client, "a.test")


def test_by_default_all_ciphers_are_safe(settings: dict[str, Any]) -> None:
    """Ephemeral keys for each connection, no MD5, SHA-1, RC4 or DES, and nothing below 128 bits."""
    config = config_of(settings)
    config.load()
    assert config.ssl is not None
    by_default = [cipher["name"] for cipher in ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()]
    assert [cipher["name"] for cipher in config.ssl.get_ciphers()] == by_default
    if "AES256-SHA" in by_default:
        pytest.skip("this Python's ciphers are those of its distribution")
    for cipher in config.ssl.get_ciphers():
        assert cipher["protocol"] in ("TLSv1.2", "TLSv1.3")
        assert cipher["name"].startswith(("TLS_", "ECDHE-", "DHE-")), cipher["name"]
        assert not cipher["name"].endswith("-SHA") and cipher["strength_bits"] >= 128


@pytest.mark.skipif(shutil.which("openssl") is None, reason="Python's clients cannot ask for it")
async def test_a_client_cannot_begin_another_handshake(http: str, settings: dict[str, Any]) -> None:
    """T5"""
    async with run_server(config_of(settings, http=http)) as server:
        arguments = ["s_client", "-tls1_2", "-connect", f"127.0.0.1:{server_port(server)}", "-servername", "a.test"]
        process = await asyncio.create_subprocess_exec(
            *("openssl", *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdin is not None and process.stdout is not None
        await asyncio.wait_for(process.stdout.readuntil(b"Verify return code"), 30)
        process.stdin.write(b"R\n")  # what it takes for the wish to renegotiate
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        assert b"RENEGOTIATING" in output and b"no renegotiation" in output
        reader, writer = await asyncio.open_connection("127.0.0.1", server_port(server), ssl=unverified())
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
        writer.transport.abort()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_name_that_is_no_ascii(http: str, settings: dict[str, Any]) -> None:
    """T1: Python cannot tell it, and ends the handshake with a note on standard error."""
    async with run_server(config_of(settings, http=http)) as server:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", server_port(server))) as sock:
            sock.setblocking(False)
            await loop.sock_sendall(sock, client_hello(b"\xff\xfe.test"))
            assert (await asyncio.wait_for(loop.sock_recv(sock, 65536), 10))[:1] in (b"", b"\x15")
        reader, writer = await asyncio.open_connection("127.0.0.1", server_port(server), ssl=unverified())
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
        writer.transport.abort()


async def test_each_certificate_comes_with_http2(settings: dict[str, Any]) -> None:
    pytest.importorskip("uvicorn._native")
    client = unverified()
    client.set_alpn_protocols(["h2", "http/1.1"])
    config = config_of(settings, http="native", http2=True)
    config.load()
    assert config.ssl is not None
    for name, expected in ASKED[1:]:
        there, here = handshake(config.ssl, client, name)
        assert here.selected_alpn_protocol() == there.selected_alpn_protocol() == "h2"
        assert Certificate.read(here.getpeercert(True) or b"").names == (expected,)
