"""Contexts that know the certificates they show, the names these are for, and what rustls makes of them."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uvicorn.tls.certificates import Certificate, RevocationList

if TYPE_CHECKING:
    from uvicorn._native import TLSConfig

_HOST = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")


FROM_NOW_ON = "TLS by OpenSSL from now on, not rustls: %s."
"""The log line of a server whose engine changes while it serves."""

logger = logging.getLogger("uvicorn.error")


class NamedCertificate(NamedTuple):
    """One member of `ssl_cert`: the certificate for clients that ask for `host`, a name or `*.` and a name."""

    host: str
    certfile: str
    keyfile: str | None

    @classmethod
    def parse(cls, text: str) -> NamedCertificate:
        """Read `HOST=FILE,KEY`, or `HOST=FILE` where the key is in the same file.

        Raises:
            ValueError: it is not of this form, or HOST is not a host name.
        """
        host, equals, files = text.partition("=")
        certfile, _, keyfile = files.partition(",")
        if not (equals and certfile):
            raise ValueError("it must be HOST=FILE,KEY.")
        with contextlib.suppress(UnicodeError):  # a long label, or an empty one
            host = host.encode("idna").decode("ascii")
        host = host.lower()
        if len(host) > 253 or not _HOST.fullmatch(host) or host.rpartition(".")[2].isdecimal():
            raise ValueError("HOST must be a host name, or `*.` and one, and not an address.")
        return cls(host, certfile, keyfile or None)


class Shown(NamedTuple):
    """A certificate as its files have it.

    Attributes:
        host: the name in `ssl_cert` that it is for; None for the default.
        chain: itself and those that lead to its authority, in PEM.
        key: its private key, in PEM.
        password: of the key, if one was asked for.
    """

    host: str | None
    chain: bytes
    key: bytes
    password: bytes | None


class ServerContext(ssl.SSLContext):
    """A context that knows the certificates it shows, and what rustls needs to do the same.

    A program that changes the context afterwards gets OpenSSL: its changes would have no effect on rustls.

    Attributes:
        certificate: which it shows, if that can be read.
        hosts: contexts to use instead for clients that ask for one of these names.
        authorities: which may sign the certificates of clients, if these are asked for any.
        lists: revocation lists for the certificates of clients.
        password: of the private key, if OpenSSL has asked for one.
        is_complete: no more changes are expected.
        is_served: a server has it, and has logged what encrypts.
        openssl_reason: why OpenSSL encrypts, as a clause; None if rustls does, or nothing else was asked for.
    """

    certificate: Certificate | None = None
    hosts: Mapping[str, ServerContext] = {}
    authorities: Sequence[Certificate] = ()
    lists: Sequence[RevocationList] = ()
    password: bytes | None = None
    openssl_reason: str | None = None
    _config: TLSConfig | None = None
    is_complete = False
    is_served = False

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(ssl.SSLContext, name):
            self._note_change(name)
        super().__setattr__(name, value)

    @property
    def rustls(self) -> TLSConfig | None:
        """The same for rustls, if that is to encrypt; read when connections are accepted."""
        return self._config

    def complete(self, config: TLSConfig | None) -> None:
        """Have rustls do what this context does; whatever a program changes from now on takes that back."""
        self._config = config
        self.is_complete = True

    def succeed(self, config: TLSConfig) -> None:
        """Have connections by `config`, of a context that this one replaces, be as this context says.

        A change by a program concerns these connections then.
        """
        config.replace(self._config)
        self._config = None if self._config is None else config

    def retire(self) -> None:
        """Have no connections any longer: another context has succeeded."""
        self._config = None

    def _note_change(self, name: str) -> None:
        if self.is_complete and self._config is not None:
            self._config.replace(None)
            self._config = None
            self.openssl_reason = f"a program has changed the context ({name})"
            if self.is_served:
                logger.info(FROM_NOW_ON, self.openssl_reason)

    def shown(self) -> Iterator[tuple[str, Certificate]]:
        """Return its certificates, by the host name they are for; `default` for all other names."""
        for name, context in {"default": self, **self.hosts}.items():
            if context.certificate is not None:
                yield name, context.certificate


_CHANGING = (
    *("load_cert_chain", "load_verify_locations", "load_default_certs", "set_default_verify_paths", "load_dh_params"),
    *("set_ciphers", "set_alpn_protocols", "set_npn_protocols", "set_ecdh_curve", "set_servername_callback"),
    *("set_psk_server_callback", "set_psk_client_callback"),
)
"""The methods that change a context, in all versions of Python."""


def _noting(name: str) -> Any:
    method = getattr(ssl.SSLContext, name)

    @functools.wraps(method)
    def change(self: ServerContext, *args: Any, **kwargs: Any) -> Any:
        self._note_change(name)
        return method(self, *args, **kwargs)

    return change


for _name in _CHANGING:
    if hasattr(ssl.SSLContext, _name):
        setattr(ServerContext, _name, _noting(_name))


def serve_hosts(context: ssl.SSLContext, hosts: Mapping[str, ssl.SSLContext]) -> None:
    """Leave clients that ask for one of these names to its context (RFC 6066 section 3)."""
    if isinstance(context, ServerContext):
        context.hosts = {name: host for name, host in hosts.items() if isinstance(host, ServerContext)}

    def choose(connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        found = host_of(hosts, name)
        if found is not None:
            connection.context = found

    context.sni_callback = choose


def host_of(hosts: Mapping[str, ssl.SSLContext], name: str | None) -> ssl.SSLContext | None:
    """Return the context for clients that ask for `name`: an exact match, else the wildcard of its siblings."""
    if not name or not hosts:
        return None
    name = name.lower().removesuffix(".")
    return hosts.get(name) or hosts.get("*." + name.partition(".")[2])
