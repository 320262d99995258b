"""The server's SSLContext, built from the settings or by the function the user gave."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol


class TLSSettings(Protocol):
    """The settings this module reads; ``uvicorn.settings`` says what they mean."""

    ssl_keyfile: str | os.PathLike[str] | None
    ssl_certfile: str | os.PathLike[str] | None
    ssl_keyfile_password: str | None
    ssl_version: int
    ssl_cert_reqs: int
    ssl_ca_certs: str | os.PathLike[str] | None
    ssl_ciphers: str | None
    ssl_context_factory: Callable[[Any, Callable[[], ssl.SSLContext]], ssl.SSLContext] | None


def create_ssl_context(
    certfile: str | os.PathLike[str],
    keyfile: str | os.PathLike[str] | None,
    password: str | Callable[[], str] | None,
    ssl_version: int,
    cert_reqs: int,
    ca_certs: str | os.PathLike[str] | None,
    ciphers: str | None,
    alpn_protocols: Sequence[str] | None = None,
) -> ssl.SSLContext:
    """Build a context that shows ``certfile`` and asks clients for certificates as ``cert_reqs`` says.

    Raises:
        OSError: a file cannot be read; the error carries its name.
        ssl.SSLError: certificate, key and password do not fit, or OpenSSL refuses the ciphers or authorities.
    """
    for path in (certfile, keyfile, ca_certs):
        if path is not None:
            _require_readable(path)
    context = ssl.SSLContext(ssl_version)
    try:
        context.load_cert_chain(certfile, keyfile, password)
    except ssl.SSLError as exc:
        reason = _what_is_wrong(certfile, keyfile, has_password=password is not None)
        if reason is None:
            raise
        raise ssl.SSLError(exc.errno, reason) from None
    context.verify_mode = ssl.VerifyMode(cert_reqs)
    if ca_certs is not None:
        context.load_verify_locations(ca_certs)
    if ciphers is not None:
        context.set_ciphers(ciphers)
    if alpn_protocols:
        context.set_alpn_protocols(list(alpn_protocols))
    return context


def _require_readable(path: str | os.PathLike[str]) -> None:
    """Fail as OpenSSL would, but with the name of the file."""
    with open(path, "rb"):
        pass


def _what_is_wrong(
    certfile: str | os.PathLike[str], keyfile: str | os.PathLike[str] | None, *, has_password: bool
) -> str | None:
    """Why certificate and key were refused, if that can be seen; OpenSSL has the same words for most of it."""
    certificates = Path(certfile).read_bytes()
    key = certificates if keyfile is None else Path(keyfile).read_bytes()
    if b"CERTIFICATE-----" not in certificates:
        return "there is no certificate (in PEM form) in the file of `ssl_certfile`."
    if b"PRIVATE KEY-----" not in key:
        where = "name its file with `ssl_keyfile`" if keyfile is None else "the file of `ssl_keyfile` has none"
        return f"a certificate needs its private key: {where}."
    if b"ENCRYPTED" in key and has_password:
        return "`ssl_keyfile_password` does not fit the private key."
    return None


def load_ssl_context(settings: TLSSettings, alpn_protocols: Sequence[str] | None = None) -> ssl.SSLContext:
    """Return the context the settings ask for.

    Raises:
        AssertionError: there is a key file but no certificate file.
        TypeError: the user's function returned something else than a context.
        OSError, ssl.SSLError: as for `create_ssl_context`.
    """

    def default_ssl_context_factory() -> ssl.SSLContext:
        if not settings.ssl_certfile:
            raise RuntimeError(
                "`default_ssl_context_factory()` requires `ssl_certfile` to be set on `Config`. Set it, or build the "
                "SSLContext inside `ssl_context_factory` without calling the default."
            )
        return _default_context(settings, settings.ssl_certfile, alpn_protocols, settings.ssl_keyfile_password)

    if settings.ssl_context_factory is None:
        _certificate_of(settings)
        return default_ssl_context_factory()
    context: object = settings.ssl_context_factory(settings, default_ssl_context_factory)
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(f"`ssl_context_factory` must return an `ssl.SSLContext`, got {type(context).__name__}")
    return context


class _PasswordNeeded(Exception):
    """The key is encrypted, and its password is not among the settings."""


def _ask_nobody() -> str:
    raise _PasswordNeeded


def check_ssl_settings(settings: TLSSettings) -> None:
    """Raise what `load_ssl_context` would, without asking anybody for a password; then some faults stay unseen."""
    with contextlib.suppress(_PasswordNeeded):
        _default_context(settings, _certificate_of(settings), None, settings.ssl_keyfile_password or _ask_nobody)


def _certificate_of(settings: TLSSettings) -> str | os.PathLike[str]:
    assert settings.ssl_certfile, "`ssl_keyfile` needs a certificate too: set `ssl_certfile`."
    return settings.ssl_certfile


def _default_context(
    settings: TLSSettings,
    certfile: str | os.PathLike[str],
    alpn_protocols: Sequence[str] | None,
    password: str | Callable[[], str] | None,
) -> ssl.SSLContext:
    return create_ssl_context(
        certfile=certfile,
        keyfile=settings.ssl_keyfile,
        password=password,
        ssl_version=settings.ssl_version,
        cert_reqs=settings.ssl_cert_reqs,
        ca_certs=settings.ssl_ca_certs,
        ciphers=settings.ssl_ciphers,
        alpn_protocols=alpn_protocols,
    )
