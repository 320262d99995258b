"""Building the TLS context from the settings."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from tests.tls.engines import handshake
from uvicorn.config import Config, create_ssl_context
from uvicorn.config.errors import report_error

pytestmark = pytest.mark.usefixtures("engine")

PASSWORD = "uvicorn password for the win"
KEYS = Path(__file__).parents[2] / "native" / "tls" / "tests" / "keys"


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


def loaded(**settings: Any) -> Config:
    config = Config(app, log_config=None, ws="none", **settings)
    config.load()
    return config


def context_of(**settings: Any) -> ssl.SSLContext:
    context = loaded(**settings).ssl
    assert context is not None
    return context


def test_without_certificate_there_is_no_tls() -> None:
    """TLS-01"""
    config = loaded()
    assert config.is_ssl is False
    assert config.ssl is None


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"ssl_certfile": "cert.pem"}, id="certificate"),
        pytest.param({"ssl_keyfile": "key.pem"}, id="key"),
        pytest.param({"ssl_context_factory": lambda config, default: default()}, id="factory"),
    ],
)
def test_certificate_key_or_factory_turn_tls_on(settings: dict[str, Any]) -> None:
    """TLS-01"""
    assert Config(app, log_config=None, **settings).is_ssl is True


def test_nothing_is_read_before_the_configuration_is_loaded() -> None:
    """TLS-04"""
    config = Config(app, log_config=None, ssl_certfile="not-there.pem")
    assert not hasattr(config, "ssl")


def test_certificate_and_key_in_two_files_make_a_context_that_serves(
    tls_certificate_server_cert_path: str, tls_certificate_private_key_path: str, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    context = context_of(
        ssl_certfile=tls_certificate_server_cert_path, ssl_keyfile=Path(tls_certificate_private_key_path)
    )
    server, client = handshake(context, tls_ca_ssl_context)
    assert client.version() == server.version()


def test_one_file_may_hold_both(tls_certificate_key_and_chain_path: str, tls_ca_ssl_context: ssl.SSLContext) -> None:
    """TLS-02"""
    handshake(context_of(ssl_certfile=tls_certificate_key_and_chain_path), tls_ca_ssl_context)


def test_a_key_without_certificate_is_refused(
    tls_certificate_private_key_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """TLS-02"""
    with pytest.raises(AssertionError, match="ssl_certfile") as caught:
        loaded(ssl_keyfile=tls_certificate_private_key_path)
    assert report_error(caught.value)
    assert caplog.messages[-1] == (
        f"Cannot use ssl_keyfile={tls_certificate_private_key_path!r}: "
        "`ssl_keyfile` needs a certificate too: set `ssl_certfile`."
    )


def test_defaults(tls_certificate_key_and_chain_path: str, tls_ca_ssl_context: ssl.SSLContext) -> None:
    """TLS-03"""
    context = context_of(ssl_certfile=tls_certificate_key_and_chain_path)
    assert context.protocol == ssl.PROTOCOL_TLS_SERVER
    assert context.verify_mode == ssl.CERT_NONE
    assert context.get_ciphers() == ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()
    tls_ca_ssl_context.set_alpn_protocols(["http/1.1"])
    _, client = handshake(context, tls_ca_ssl_context)
    assert client.selected_alpn_protocol() is None


def test_an_encrypted_key_opens_with_its_password(
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_encrypted_path: str,
    tls_ca_ssl_context: ssl.SSLContext,
) -> None:
    context = context_of(
        ssl_certfile=tls_certificate_server_cert_path,
        ssl_keyfile=tls_certificate_private_key_encrypted_path,
        ssl_keyfile_password=PASSWORD,
    )
    handshake(context, tls_ca_ssl_context)


def test_a_wrong_password_is_reported_without_showing_it(
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_encrypted_path: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """CLI-08"""
    with pytest.raises(ssl.SSLError) as caught:
        loaded(
            ssl_certfile=tls_certificate_server_cert_path,
            ssl_keyfile=tls_certificate_private_key_encrypted_path,
            ssl_keyfile_password="guess",
        )
    assert report_error(caught.value)
    assert tls_certificate_private_key_encrypted_path in caplog.messages[-1]
    assert "guess" not in caplog.messages[-1]


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_checking_asks_nobody_for_a_password(
    password: str | None, tls_certificate_server_cert_path: str, tls_certificate_private_key_encrypted_path: str
) -> None:
    """TLS-04: the parent of processes would ask once, and each of them again."""
    config = Config(
        app,
        log_config=None,
        ssl_certfile=tls_certificate_server_cert_path,
        ssl_keyfile=tls_certificate_private_key_encrypted_path,
        ssl_keyfile_password=password,
    )
    config.check()


def test_checking_finds_a_wrong_password(
    tls_certificate_server_cert_path: str, tls_certificate_private_key_encrypted_path: str
) -> None:
    """CLI-08"""
    config = Config(
        app,
        log_config=None,
        ssl_certfile=tls_certificate_server_cert_path,
        ssl_keyfile=tls_certificate_private_key_encrypted_path,
        ssl_keyfile_password="guess",
    )
    with pytest.raises(ssl.SSLError):
        config.check()


@pytest.mark.parametrize("setting", ["ssl_certfile", "ssl_keyfile", "ssl_ca_certs"])
def test_a_file_that_is_not_there_is_named(
    setting: str, tls_certificate_key_and_chain_path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CLI-08"""
    path = str(tmp_path / "not-there.pem")
    with pytest.raises(FileNotFoundError) as caught:
        loaded(**{"ssl_certfile": tls_certificate_key_and_chain_path, setting: path})
    assert caught.value.filename == path
    assert report_error(caught.value)
    assert f"{setting}={path!r}" in caplog.messages[-1]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"ssl_ciphers": "NO-SUCH-CIPHER"}, id="ciphers"),
        pytest.param({"ssl_certfile": __file__}, id="not a certificate"),
        pytest.param({"ssl_ca_certs": __file__}, id="not an authority"),
    ],
)
def test_what_openssl_refuses_is_reported(
    settings: dict[str, Any], tls_certificate_key_and_chain_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CLI-08"""
    with pytest.raises(ssl.SSLError) as caught:
        loaded(**{"ssl_certfile": tls_certificate_key_and_chain_path, **settings})
    assert report_error(caught.value)
    ((name, value),) = settings.items()
    assert f"{name}={value!r}" in caplog.messages[-1]


@pytest.fixture
def pem(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_path: str,
) -> dict[str, str]:
    foreign = tmp_path / "foreign.pem"
    pem = trustme.CA().issue_cert("localhost").private_key_pem
    pem.write_to_path(str(foreign))
    (tmp_path / "encrypted.pem").write_bytes(
        serialization.load_pem_private_key(pem.bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"right"),
        )
    )
    return {
        "cert": tls_certificate_server_cert_path,
        "key": tls_certificate_private_key_path,
        "other": request.getfixturevalue("tls_certificate_private_key_encrypted_path"),
        "foreign": str(foreign),
        "of another kind": str(KEYS / "pkcs1.pem"),
        "foreign and encrypted": str(tmp_path / "encrypted.pem"),
    }


@pytest.mark.parametrize("method", ["check", "load"])
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ssl_certfile": "cert"}, "a certificate needs its private key: name its file with `ssl_keyfile`."),
        (
            {"ssl_certfile": "cert", "ssl_keyfile": "cert"},
            "a certificate needs its private key: the file of `ssl_keyfile` has none.",
        ),
        (
            {"ssl_certfile": "key", "ssl_keyfile": "key"},
            "the file of `ssl_certfile` contains no certificate in PEM form.",
        ),
        (
            {"ssl_certfile": "cert", "ssl_keyfile": "other", "ssl_keyfile_password": "guess"},
            "`ssl_keyfile_password` does not fit the private key.",
        ),
        ({"ssl_certfile": "cert", "ssl_keyfile": "foreign"}, "the private key does not match the certificate."),
        (
            {"ssl_certfile": "cert", "ssl_keyfile": "of another kind"},
            "the private key does not match the certificate.",
        ),
        (
            {"ssl_certfile": "cert", "ssl_keyfile": "foreign and encrypted", "ssl_keyfile_password": "right"},
            "the private key does not match the certificate.",
        ),
    ],
)
def test_what_is_missing_is_said(
    settings: dict[str, str], reason: str, method: str, pem: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """CLI-08, TLS-02: OpenSSL says `PEM lib` for all of it."""
    config = Config(app, log_config=None, **{name: pem.get(value, value) for name, value in settings.items()})  # type: ignore[arg-type]
    with pytest.raises(ssl.SSLError) as caught:
        getattr(config, method)()
    assert report_error(caught.value)
    assert caplog.messages[-1].endswith(f": {reason}")


def test_without_a_terminal_nobody_is_asked_for_a_password(
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_encrypted_path: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("uvicorn.tls.context._has_terminal", lambda: False)
    with pytest.raises(Exception, match="set ssl_keyfile_password") as caught:
        loaded(ssl_certfile=tls_certificate_server_cert_path, ssl_keyfile=tls_certificate_private_key_encrypted_path)
    assert report_error(caught.value)
    assert caplog.messages[-1].endswith("the private key is encrypted; set ssl_keyfile_password.")


def test_ciphers_are_those_asked_for(tls_certificate_key_and_chain_path: str) -> None:
    context = context_of(ssl_certfile=tls_certificate_key_and_chain_path, ssl_ciphers="ECDHE+AESGCM")
    old_style = [cipher["name"] for cipher in context.get_ciphers() if not cipher["name"].startswith("TLS_")]
    assert old_style and all("GCM" in name for name in old_style)


@pytest.mark.parametrize("requirement", [ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED, 2])
def test_client_certificates_are_checked(
    requirement: int,
    tls_certificate_key_and_chain_path: str,
    tls_ca_certificate_pem_path: str,
    tls_client_ssl_context: ssl.SSLContext,
) -> None:
    context = context_of(
        ssl_certfile=tls_certificate_key_and_chain_path,
        ssl_ca_certs=Path(tls_ca_certificate_pem_path),
        ssl_cert_reqs=requirement,
    )
    assert context.verify_mode == requirement
    server, _ = handshake(context, tls_client_ssl_context)
    certificate = server.getpeercert()
    assert certificate is not None
    assert certificate["subjectAltName"] == (("email", "client@example.com"),)


def test_a_required_client_certificate_must_be_there(
    tls_certificate_key_and_chain_path: str, tls_ca_certificate_pem_path: str, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    context = context_of(
        ssl_certfile=tls_certificate_key_and_chain_path,
        ssl_ca_certs=tls_ca_certificate_pem_path,
        ssl_cert_reqs=ssl.CERT_REQUIRED,
    )
    with pytest.raises(ssl.SSLError):
        handshake(context, tls_ca_ssl_context)


def test_the_protocol_version_is_the_one_asked_for(tls_certificate_key_and_chain_path: str) -> None:
    with pytest.warns(DeprecationWarning, match="PROTOCOL_TLSv1_2"):
        context = context_of(ssl_certfile=tls_certificate_key_and_chain_path, ssl_version=ssl.PROTOCOL_TLSv1_2)
    assert context.protocol == ssl.PROTOCOL_TLSv1_2


def test_alpn_protocols_are_offered_when_given(
    tls_certificate_key_and_chain_path: str, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    context = create_ssl_context(
        tls_certificate_key_and_chain_path, None, None, 17, 0, None, None, alpn_protocols=("h2", "http/1.1")
    )
    tls_ca_ssl_context.set_alpn_protocols(["http/1.1"])
    _, client = handshake(context, tls_ca_ssl_context)
    assert client.selected_alpn_protocol() == "http/1.1"


def test_the_protocol_class_says_what_alpn_offers(
    tls_certificate_key_and_chain_path: str, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    class Both(asyncio.Protocol):
        alpn_protocols = ("h2", "http/1.1")

    context = context_of(ssl_certfile=tls_certificate_key_and_chain_path, http=Both)
    tls_ca_ssl_context.set_alpn_protocols(["h2"])
    _, client = handshake(context, tls_ca_ssl_context)
    assert client.selected_alpn_protocol() == "h2"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="everything is readable")
def test_an_unreadable_file_is_named(tls_certificate_key_and_chain_path: str, tmp_path: Path) -> None:
    """CLI-08"""
    path = tmp_path / "secret.pem"
    shutil.copy(tls_certificate_key_and_chain_path, path)
    path.chmod(0)
    with pytest.raises(PermissionError) as caught:
        loaded(ssl_certfile=path)
    assert caught.value.filename == path


# ssl_context_factory


def test_the_factory_gets_the_configuration_and_a_default(tls_certificate_key_and_chain_path: str) -> None:
    """TLS-06, TLS-08"""
    seen: list[Config] = []

    def factory(config: Config, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        seen.append(config)
        context = default()
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    config = loaded(ssl_certfile=tls_certificate_key_and_chain_path, ssl_context_factory=factory)
    assert seen == [config]
    assert config.ssl is not None
    assert config.ssl.minimum_version == ssl.TLSVersion.TLSv1_3


def test_the_factory_may_do_without_the_default() -> None:
    """TLS-06"""
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert context_of(ssl_context_factory=lambda config, default: own) is own


def test_the_default_needs_a_certificate() -> None:
    """TLS-07"""
    with pytest.raises(RuntimeError, match="ssl_certfile"):
        loaded(ssl_context_factory=lambda config, default: default())


def test_a_factory_that_returns_something_else_is_a_type_error() -> None:
    """TLS-06"""
    with pytest.raises(TypeError, match=r"must return an `ssl\.SSLContext`, got int"):
        loaded(ssl_context_factory=lambda config, default: 3)


def test_errors_of_the_factory_itself_are_the_users(caplog: pytest.LogCaptureFixture) -> None:
    """A traceback leads into the function that was given, so it is not shortened to a line."""

    def factory(config: Config, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        raise LookupError("inside")

    with pytest.raises(LookupError) as caught:
        loaded(ssl_context_factory=factory)
    assert report_error(caught.value) is False
    assert caplog.messages == []


# Replaced by the program.


def test_replaced_function_builds_each_context(
    tls_certificate_key_and_chain_path: str, tls_ca_ssl_context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function that upstream documents nowhere, and programs replace to demand TLS 1.3."""
    calls: list[dict[str, Any]] = []

    def strict(**arguments: Any) -> ssl.SSLContext:
        calls.append(arguments)
        context = create_ssl_context(**arguments)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    monkeypatch.setattr("uvicorn.config.create_ssl_context", strict)
    path = tls_certificate_key_and_chain_path
    config = Config(app, log_config=None, ssl_certfile=path, ssl_cert=[f"a.test={path}"], ssl_min_version="1.2")
    config.check()
    assert not calls  # upstream has no check
    config.load()
    assert len(calls) == 2
    assert calls[0] == {
        "keyfile": None,
        "certfile": path,
        "password": None,
        "ssl_version": ssl.PROTOCOL_TLS_SERVER,
        "cert_reqs": ssl.CERT_NONE,
        "ca_certs": None,
        "ciphers": None,
        "alpn_protocols": None,
    }
    tls_ca_ssl_context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert config.ssl is not None
    for name in ("localhost", "a.test"):
        with pytest.raises(ssl.SSLError):
            handshake(config.ssl, tls_ca_ssl_context, name)


def test_replaced_function_serves_the_factory(
    tls_certificate_key_and_chain_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    monkeypatch.setattr("uvicorn.config.create_ssl_context", lambda **arguments: own)
    settings = {"ssl_certfile": tls_certificate_key_and_chain_path}
    assert context_of(ssl_context_factory=lambda config, default: default(), **settings) is own


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        pytest.param({}, "must return an `ssl.SSLContext`, not NoneType", id="no context"),
        pytest.param({"ssl_cert": ["a.test=a.pem"]}, "Remove one of the two", id="names of its own"),
    ],
)
def test_replacement_that_cannot_be_honoured_is_refused(
    settings: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(**arguments: Any) -> ssl.SSLContext | None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sni_callback = lambda *arguments: None
        return context if settings else None

    monkeypatch.setattr("uvicorn.config.create_ssl_context", make)
    with pytest.raises((TypeError, ValueError), match=problem) as raised:
        context_of(ssl_certfile="cert.pem", **settings)
    assert "create_ssl_context` is replaced" in str(raised.value)
    assert report_error(raised.value)
