"""The extension `tls` of ASGI scopes."""

from __future__ import annotations

import functools
import ssl
from typing import Any

from uvicorn.listening.proxy_protocol import ClientTLS, ProxyHeader

EXTENSION = "tls"

_VERSIONS = {"TLSv1": 0x0301, "TLSv1.1": 0x0302, "TLSv1.2": 0x0303, "TLSv1.3": 0x0304}

_suites: dict[str, int] = {}
"""Numbers of the cipher suites met so far, by OpenSSL's names for them."""


def describe(connection: Any) -> dict[str, Any]:
    """Return the extension's value for a connection whose handshake is complete.

    `connection` is its `ssl.SSLObject`, or anything that has its methods; or a proxy's description of its client, whose
    encryption ended there: it names the client's certificate, and does not pass it on.
    The values cannot be changed, so that a copy of the dict shares nothing.
    """
    if isinstance(connection, ProxyHeader):
        return _describe_told(connection.tls or ClientTLS())
    chain = _chain(connection)
    context = connection.context
    certificate = getattr(context, "certificate", None)
    return {
        # None if the program made the context: Python cannot read its certificate.
        "server_cert": None if certificate is None else certificate.pem,
        "client_cert_chain": tuple(ssl.DER_cert_to_PEM_cert(der) for der in chain),
        "client_cert_name": _name(chain),
        # By default a certificate that cannot be verified ends the handshake; OpenSSL has only that.
        "client_cert_error": getattr(connection, "verification_error", None),
        "tls_version": _VERSIONS.get(connection.version()),
        "cipher_suite": _suite(connection, context),
    }


def _describe_told(told: ClientTLS) -> dict[str, Any]:
    # Imported, here as below, only where certificates are asked for.
    from uvicorn.tls.certificates import escaped

    name = told.common_name and f"CN={escaped(told.common_name)}"
    return {
        "server_cert": None,
        "client_cert_chain": (),
        "client_cert_name": (name if told.has_certificate else None) or None,
        "client_cert_error": None if told.is_verified or not told.has_certificate else "the proxy did not verify it",
        "tls_version": _VERSIONS.get(told.version),
        "cipher_suite": _known_suites().get(told.cipher),
    }


@functools.cache
def _known_suites() -> dict[str, int]:
    """The suites of this OpenSSL, enabled or not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL")
    return {known["name"]: known["id"] & 0xFFFF for known in context.get_ciphers()}


def _chain(connection: Any) -> tuple[bytes, ...]:
    """The client's certificate and those that lead to its authority, as far as the client has sent them.

    Only what OpenSSL has followed counts: a client can send others beside it, which prove nothing. A session that was
    resumed remembers the client's own certificate alone.
    """
    own = connection.getpeercert(True)
    # Without verification the certificate proves nothing.
    if own is None or connection.context.verify_mode == ssl.CERT_NONE:
        return ()
    inner = getattr(connection, "_sslobj", connection)
    try:
        followed = [_der(certificate) for certificate in inner.get_verified_chain() or ()]
        sent = {_der(certificate) for certificate in inner.get_unverified_chain() or ()}
    except (AttributeError, ssl.SSLError):
        return (own,)
    return (own, *(der for der in followed if der in sent and der != own))


def _der(certificate: Any) -> bytes:
    # An object of `_ssl`, whose method takes a constant of that: 2, `ENCODING_DER`.
    return certificate if isinstance(certificate, bytes) else bytes(certificate.public_bytes(2))


def _name(chain: tuple[bytes, ...]) -> str | None:
    if not chain:
        return None
    from uvicorn.tls.certificates import name_of

    try:
        return name_of(chain[0])
    except ValueError:
        return None


def _suite(connection: Any, context: ssl.SSLContext) -> int | None:
    cipher = connection.cipher()
    if cipher is None:
        return None
    if cipher[0] not in _suites:
        # OpenSSL's id has the number in its lower half.
        _suites.update({known["name"]: known["id"] & 0xFFFF for known in context.get_ciphers()})
    return _suites.get(cipher[0])
