"""The settings of a context as rustls takes them, or why it cannot.

rustls encrypts what the native core reads and writes itself: all connections on Linux, with asyncio's selector loop or
uvloop. It knows TLS 1.2 and 1.3, with cipher suites that encrypt and authenticate in one step and keep past traffic
secret. OpenSSL serves settings that need anything else, and all connections elsewhere.
"""

from __future__ import annotations

import functools
import re
import ssl
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from uvicorn.tls.connection import SUITES, TLSConnection
from uvicorn.tls.settings import read
from uvicorn.tls.tickets import purpose_of

if TYPE_CHECKING:
    from uvicorn._native import TLSConfig
    from uvicorn.tls.server_context import ServerContext, Shown
    from uvicorn.tls.settings import TLSSettings
    from uvicorn.tls.tickets import TicketSecret

_CERTIFICATE = re.compile(rb"-----BEGIN (?:X509 )?CERTIFICATE-----")


class NotPossible(ValueError):
    """rustls cannot do what the settings ask for. Its text is a clause that says why."""


def why_not() -> str | None:
    """Why rustls cannot serve here; None if it can."""
    if not sys.platform.startswith("linux"):
        return "the sockets of this system are the event loop's"
    try:
        from uvicorn._native import TLSConfig  # noqa: F401
    except ImportError:
        return "there is no native core"
    return None


def provider() -> str:
    """The library that encrypts for rustls: AWS-LC, or ring if the core was built so."""
    from uvicorn._native import TLS_PROVIDER

    return TLS_PROVIDER


def configure(
    settings: TLSSettings, context: ServerContext, shown: Iterable[Shown], alpn_protocols: Sequence[str] | None
) -> TLSConfig:
    """Return what `context`, made from these settings, would do, for rustls. The certificates are in `shown`.

    Raises:
        NotPossible: rustls cannot do that.
    """
    reason = why_not() or _obstacle(settings)
    if reason is not None:
        raise NotPossible(reason)
    from uvicorn._native import TLSConfig

    shown = list(shown)
    passwords = {one.password for one in shown if one.password is not None}
    if len(passwords) > 1:
        raise NotPossible("each key has a password of its own")
    paths = (settings.ssl_ca_certs, settings.ssl_crl)
    authorities, revoked = (None if path is None else read(path) for path in paths)
    if authorities is not None and (settings.ssl_cert_reqs or any(_is_alone(one.chain) for one in shown)):
        _check_authorities(context)
    secret = settings.ticket_secret
    try:
        return TLSConfig(
            certificates=[(one.host, one.chain, one.key) for one in shown],
            password=next(iter(passwords), None),
            alpn=alpn_protocols or (),
            min_version=0x0304 if context.minimum_version == ssl.TLSVersion.TLSv1_3 else 0x0303,
            max_version=0x0303 if context.maximum_version == ssl.TLSVersion.TLSv1_2 else 0x0304,
            suites=None if settings.ssl_ciphers is None else _suites(context),
            verify=settings.ssl_cert_reqs,
            authorities=authorities if settings.ssl_cert_reqs else None,
            revoked=revoked,
            serves_unverified=settings.ssl_client_errors,
            tickets="shared" if secret is not None else settings.ssl_tickets.replace("shared", "own"),
            ticket_keys=None if secret is None else _keys(settings, secret, authorities or b"", revoked or b""),
            describe=functools.partial(TLSConnection, context),
        )
    except ValueError as exc:
        raise NotPossible(str(exc).rstrip(".")) from exc


def _obstacle(settings: TLSSettings) -> str | None:
    if settings.ssl_version not in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS):
        return f"it has no ssl_version {settings.ssl_version}"
    if settings.ssl_min_version in ("1.0", "1.1"):
        return f"it has no TLS {settings.ssl_min_version}"
    if settings.tls == "auto" and settings.ssl_cert_reqs and not settings.ssl_client_errors:
        # Whether it accepts those of all clients is known too late: it wants RFC 5280, OpenSSL also takes version 1.
        return "it rejects some certificates of clients, unless tls='rustls' accepts that"
    return None


def _suites(context: ssl.SSLContext) -> list[int]:
    """The suites of `ssl_ciphers`, as OpenSSL has understood them, in their order.

    Raises:
        NotPossible: rustls does not have them all.
    """
    chosen = [(cipher["id"] & 0xFFFF, cipher["name"]) for cipher in context.get_ciphers()]
    missing = [name for number, name in chosen if number not in SUITES]
    if missing:
        raise NotPossible(f"it has no cipher suite {missing[0]}, which ssl_ciphers names")
    return [number for number, _ in chosen]


def _is_alone(chain: bytes) -> bool:
    """Whether OpenSSL completes the chain from `ssl_ca_certs` for clients, which rustls does not."""
    return len(_CERTIFICATE.findall(chain)) < 2


def _check_authorities(context: ssl.SSLContext) -> None:
    """Look for intermediates: OpenSSL does not take them for the end of a chain, as rustls would, and shows them.

    Raises:
        NotPossible: there are some.
    """
    for authority in context.get_ca_certs():
        if authority.get("subject") != authority.get("issuer"):
            raise NotPossible("ssl_ca_certs has an intermediate certificate")


def _keys(
    settings: TLSSettings, secret: TicketSecret, authorities: bytes, revoked: bytes
) -> Callable[[], tuple[int, bytes, bytes | None]]:
    """Return what gives the period of the tickets being written, their key, and that of those before.

    Connections go by the tickets of one configuration, whichever name they ask for. Clients that other authorities
    have admitted are not readmitted.
    """
    purpose = purpose_of(authorities, revoked, b"%d %d" % (settings.ssl_cert_reqs, settings.ssl_client_errors))
    return functools.partial(secret.keys, purpose)
