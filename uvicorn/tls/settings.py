"""The settings that this package reads, and the files that they name."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from uvicorn.tls.tickets import TicketSecret


class TLSSettings(Protocol):
    """The settings this package reads; see ``uvicorn.config.settings`` for their meaning."""

    ssl_keyfile: str | os.PathLike[str] | None
    ssl_certfile: str | os.PathLike[str] | None
    ssl_keyfile_password: str | bytes | Callable[[], str | bytes] | None
    ssl_version: int
    ssl_cert_reqs: int
    ssl_ca_certs: str | os.PathLike[str] | None
    ssl_ciphers: str | None
    ssl_context_factory: Callable[[Any, Callable[[], ssl.SSLContext]], ssl.SSLContext] | None
    ssl_reload: float | None
    ssl_crl: str | os.PathLike[str] | None
    ssl_client_errors: bool
    ticket_secret: TicketSecret | None

    @property
    def tls(self) -> str:
        """`rustls`, `openssl` or `auto`."""

    @property
    def ssl_context_builder(self) -> Callable[..., ssl.SSLContext]:
        """Makes the context of one certificate: `create_ssl_context`, unless the program has replaced that."""

    @property
    def ssl_tickets(self) -> str:
        """`none` for no session tickets; `ticket_secret` says whose they are."""

    @property
    def ssl_min_version(self) -> str | None:
        """A key of `MIN_VERSIONS`."""

    @property
    def ssl_cert(self) -> Sequence[str]:
        """Certificates of names, as `NamedCertificate.parse` reads them."""


def read(path: str | os.PathLike[str]) -> bytes:
    """Return the contents of a file; it fails as OpenSSL would, but with the name as it was given."""
    with open(path, "rb") as file:
        return file.read()
