"""The server's SSLContext, built from the settings or by the function the user gave; and how it is renewed.

```text
RenewableContext ──current──▶ ServerContext, of ssl_certfile ──sni_callback──▶ ServerContext, of each name in ssl_cert
       │ rustls                      │ rustls
       ▼                             ▼
   TLSConfig  ◀──────replace─────  TLSConfig, of all certificates
```

OpenSSL reads and checks the files in any case, so errors are the same whichever engine encrypts. The engine of a
connection is rustls where the context has a `TLSConfig` and the socket is the native core's.

With `ssl_reload` the server listens with a `RenewableContext`, which makes no connections itself. A `Renewal` builds
the real context again when the contents of the files change; the next handshake uses the new one, and connections
keep theirs. A context in use never changes: authorities can only be added to it, and its session tickets would readmit
clients that new authorities do not verify. One lasting context with `sni_callback` has the same flaw.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import queue
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uvicorn.tls.certificates import Certificate, first_of_pem, lists_of_pem
from uvicorn.tls.rustls import NotPossible, configure
from uvicorn.tls.server_context import FROM_NOW_ON, NamedCertificate, ServerContext, Shown, serve_hosts
from uvicorn.tls.settings import TLSSettings, read

if TYPE_CHECKING:
    from uvicorn._native import TLSConfig

MIN_VERSIONS = {
    "1.0": ssl.TLSVersion.TLSv1,
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
"""The values of `ssl_min_version`."""

_LOWEST_SECURITY = "DEFAULT:@SECLEVEL=0"
"""Ciphers for versions below 1.2, whose signatures OpenSSL takes for too weak otherwise."""


logger = logging.getLogger("uvicorn.error")


def create_ssl_context(
    certfile: str | os.PathLike[str],
    keyfile: str | os.PathLike[str] | None,
    password: str | bytes | Callable[[], str | bytes] | None,
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
    if password is None and not _has_terminal():
        password = _reject_password_prompt
    for path in (keyfile, ca_certs):
        if path is not None:
            read(path)
    certificate = _certificate_in(read(certfile))
    context = ServerContext(ssl_version)
    context.certificate = certificate
    password = _remembering(context, password)
    # Clients get its benefits from a new connection (RFC 9325 section 3.5).
    context.options |= getattr(ssl, "OP_NO_RENEGOTIATION", 0)
    # Some distributions accept an unexpected EOF as a proper close: a truncated connection would look complete.
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    try:
        context.load_cert_chain(certfile, keyfile, password)
    except ssl.SSLError as exc:
        reason = _what_is_wrong(exc, certfile, keyfile, has_password=password is not None)
        if reason is None:
            raise
        raise ssl.SSLError(exc.errno, reason) from None
    context.verify_mode = ssl.VerifyMode(cert_reqs)
    if ca_certs is not None:
        try:
            context.load_verify_locations(ca_certs)
        except ssl.SSLError as exc:
            exc.filename = os.fspath(ca_certs)
            raise
    if ciphers is not None:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            raise NoSuchCipher(ciphers) from None
    if alpn_protocols:
        context.set_alpn_protocols(list(alpn_protocols))
    return context


def _remembering(
    context: ServerContext, password: str | bytes | Callable[[], str | bytes] | None
) -> Callable[[], str | bytes] | None:
    """Have the context keep the password that OpenSSL has asked for: rustls needs it too."""
    if password is None:
        return None

    def answer() -> str | bytes:
        given = password() if callable(password) else password
        context.password = given.encode() if isinstance(given, str) else bytes(given)
        return given

    return answer


def _certificate_in(text: bytes) -> Certificate | None:
    der = first_of_pem(text)
    try:
        return None if der is None else Certificate.read(der)
    except ValueError:  # whether it is good is OpenSSL's to say
        return None


def _what_is_wrong(
    exc: ssl.SSLError, certfile: str | os.PathLike[str], keyfile: str | os.PathLike[str] | None, *, has_password: bool
) -> str | None:
    """Why certificate and key were refused, if that can be seen; OpenSSL has the same words for most of it."""
    certificates = Path(certfile).read_bytes()
    key = certificates if keyfile is None else Path(keyfile).read_bytes()
    if b"CERTIFICATE-----" not in certificates:
        return "the file of `ssl_certfile` contains no certificate in PEM form."
    if b"PRIVATE KEY-----" not in key:
        where = "name its file with `ssl_keyfile`" if keyfile is None else "the file of `ssl_keyfile` has none"
        return f"a certificate needs its private key: {where}."
    # Of an encrypted key too: its password was right. The second reason is that of a key of another kind.
    if exc.reason in ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
        return "the private key does not match the certificate."
    if b"ENCRYPTED" in key and has_password:
        return "`ssl_keyfile_password` does not fit the private key."
    return None


def load_ssl_context(settings: TLSSettings, alpn_protocols: Sequence[str] | None = None) -> ssl.SSLContext:
    """Return the context the settings ask for, one that can be renewed if they say so.

    Raises:
        AssertionError: there is a key file but no certificate file.
        TypeError: the user's function returned something else than a context.
        OSError, ssl.SSLError: as for `create_ssl_context`.
    """
    if settings.ssl_reload is None:
        return _build(settings, alpn_protocols, settings.ssl_keyfile_password)
    renewal = Renewal(settings, alpn_protocols)
    return renewal.front


def _build(
    settings: TLSSettings,
    alpn_protocols: Sequence[str] | None,
    password: str | bytes | Callable[[], str | bytes] | None,
) -> ssl.SSLContext:
    def default_ssl_context_factory() -> ssl.SSLContext:
        if not settings.ssl_certfile:
            raise RuntimeError(
                "`default_ssl_context_factory()` requires `ssl_certfile` to be set on `Config`. Set it, or build the "
                "SSLContext inside `ssl_context_factory` without calling the default."
            )
        return _default_context(settings, settings.ssl_certfile, alpn_protocols, password)

    if settings.ssl_context_factory is None:
        _certificate_of(settings)
        return default_ssl_context_factory()
    context: object = settings.ssl_context_factory(settings, default_ssl_context_factory)
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(f"`ssl_context_factory` must return an `ssl.SSLContext`, got {type(context).__name__}")
    return context


class NoSuchCipher(ssl.SSLError):
    """OpenSSL knows none of these ciphers."""

    def __str__(self) -> str:
        return f"OpenSSL knows none of these ciphers: {self.args[0]}."


class _PasswordNeeded(Exception):
    """The key is encrypted, and its password is not among the settings."""

    filename: str | None = None

    def __str__(self) -> str:
        return "the private key is encrypted; set ssl_keyfile_password."


def _reject_password_prompt() -> str:
    raise _PasswordNeeded


def _has_terminal() -> bool:
    """Whether OpenSSL can ask for a password."""
    try:
        with open("/dev/tty"):
            return True
    except OSError:
        return sys.platform == "win32" and sys.stdin is not None and sys.stdin.isatty()


def check_ssl_settings(settings: TLSSettings) -> ssl.SSLContext | None:
    """Raise the errors of `load_ssl_context`, without asking for a password; then some faults stay unseen.

    Returns a context like the server's; None if it cannot be made yet.
    """
    if is_replaced(settings):
        return None  # it is called once for each server, as by upstream
    with contextlib.suppress(_PasswordNeeded):
        return _default_context(
            settings, _certificate_of(settings), None, settings.ssl_keyfile_password or _reject_password_prompt
        )
    return None


def openssl_reason(context: ssl.SSLContext) -> str | None:
    """Why OpenSSL encrypts for this context though rustls was not ruled out, as a clause; None if rustls does."""
    context = in_force(context)
    if isinstance(context, ServerContext) and context.is_complete:
        return context.openssl_reason
    return "a program has made the context"


def mark_served(context: ssl.SSLContext) -> None:
    """Log changes of the context by programs from now on: a server has it."""
    context = in_force(context)
    if isinstance(context, ServerContext):
        context.is_served = True


def is_replaced(settings: TLSSettings) -> bool:
    """Whether the program has put a function of its own in place of `create_ssl_context`."""
    return settings.ssl_context_builder is not create_ssl_context


def _certificate_of(settings: TLSSettings) -> str | os.PathLike[str]:
    assert settings.ssl_certfile, "`ssl_keyfile` needs a certificate too: set `ssl_certfile`."
    return settings.ssl_certfile


def _default_context(
    settings: TLSSettings,
    certfile: str | os.PathLike[str],
    alpn_protocols: Sequence[str] | None,
    password: str | bytes | Callable[[], str | bytes] | None,
) -> ssl.SSLContext:
    context = _context(settings, certfile, settings.ssl_keyfile, alpn_protocols, password)
    named = [NamedCertificate.parse(text) for text in settings.ssl_cert]
    if named:
        if context.sni_callback is not None:
            raise ValueError(
                "`uvicorn.config.create_ssl_context` is replaced, and its context has an `sni_callback`, which "
                "`ssl_cert` needs for itself. Remove one of the two."
            )
        hosts = {host: _context(settings, certfile, key, alpn_protocols, password) for host, certfile, key in named}
        serve_hosts(context, hosts)
    if isinstance(context, ServerContext):
        if settings.ssl_cert_reqs:
            context.authorities = tuple(_authorities(context))
        if settings.ssl_crl is not None:
            context.lists = tuple(lists_of_pem(read(settings.ssl_crl)))
        _choose_engine(settings, context, certfile, alpn_protocols)
    return context


def _authorities(context: ssl.SSLContext) -> Iterator[Certificate]:
    for der in context.get_ca_certs(binary_form=True):
        with contextlib.suppress(ValueError):
            yield Certificate.read(der)


def _choose_engine(
    settings: TLSSettings,
    context: ServerContext,
    certfile: str | os.PathLike[str],
    alpn_protocols: Sequence[str] | None,
) -> None:
    """Have rustls do what `context` does, unless it cannot, or is not to.

    Raises:
        ValueError: it has to, and cannot.
    """
    config = None
    try:
        if is_replaced(settings):
            raise NotPossible("`uvicorn.config.create_ssl_context` is replaced")
        if settings.tls != "openssl":
            config = configure(settings, context, _files(settings, context, certfile), alpn_protocols)
    except NotPossible as exc:
        if settings.tls == "rustls" or settings.ssl_client_errors:
            raise ValueError(f"rustls cannot be used, because {exc}.") from None
        context.openssl_reason = str(exc)
    context.complete(config)


def _files(settings: TLSSettings, context: ServerContext, certfile: str | os.PathLike[str]) -> Iterator[Shown]:
    """Return the certificates of `context`, the default first."""
    named = [NamedCertificate.parse(text) for text in settings.ssl_cert]
    for host, cert, key in ((None, certfile, settings.ssl_keyfile), *named):
        password = context.password if host is None else context.hosts[host].password
        yield Shown(host, read(cert), read(key or cert), password)


def _context(
    settings: TLSSettings,
    certfile: str | os.PathLike[str],
    keyfile: str | os.PathLike[str] | None,
    alpn_protocols: Sequence[str] | None,
    password: str | bytes | Callable[[], str | bytes] | None,
) -> ssl.SSLContext:
    """The context of one certificate; all have the rest of the settings in common."""
    ciphers = settings.ssl_ciphers
    lowest = None if settings.ssl_min_version is None else MIN_VERSIONS[settings.ssl_min_version]
    if ciphers is None and lowest is not None and lowest < ssl.TLSVersion.TLSv1_2:
        ciphers = _LOWEST_SECURITY
    replaced = is_replaced(settings)
    try:
        context: object = settings.ssl_context_builder(
            keyfile=keyfile,
            certfile=certfile,
            password=settings.ssl_keyfile_password if replaced else password,
            ssl_version=settings.ssl_version,
            cert_reqs=settings.ssl_cert_reqs,
            ca_certs=settings.ssl_ca_certs,
            ciphers=ciphers,
            alpn_protocols=None if alpn_protocols is None else list(alpn_protocols),
        )
    except (ssl.SSLError, _PasswordNeeded) as exc:
        exc.filename = exc.filename or os.fspath(certfile)
        raise
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(
            "`uvicorn.config.create_ssl_context` is replaced, and must return an `ssl.SSLContext`, "
            f"not {type(context).__name__}."
        )
    if settings.ssl_crl is not None:
        _refuse_revoked(context, settings.ssl_crl)
    if lowest is not None:
        context.minimum_version = max(lowest, context.minimum_version) if replaced else lowest
    if settings.ssl_tickets == "none":
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def _refuse_revoked(context: ssl.SSLContext, path: str | os.PathLike[str]) -> None:
    """Refuse certificates on the lists of this file, and those of authorities without a list there (RFC 5280)."""
    try:
        if b"CERTIFICATE-----" in read(path):
            raise ssl.SSLError("the file of `ssl_crl` contains a certificate, which would become an authority.")
        context.load_verify_locations(path)
    except ssl.SSLError as exc:
        exc.filename = os.fspath(path)
        raise
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


# Renewal.


class RenewableContext(ssl.SSLContext):
    """A front for the context in force; changing the front itself has no effect.

    Attributes:
        current: the context of new connections.
        renewal: replaces it.
        rustls: the same for rustls, if the first context could be that.
    """

    current: ssl.SSLContext
    renewal: Renewal
    rustls: TLSConfig | None = None

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """As of the context in force."""
        return self.current.wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """As of the context in force."""
        return self.current.wrap_socket(*args, **kwargs)


def names_of(settings: TLSSettings) -> list[str]:
    """The names that `ServerContext.shown` has for the certificates of these settings."""
    return ["default", *(NamedCertificate.parse(text).host for text in settings.ssl_cert)]


def in_force(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context that the next connection gets of `context`."""
    return context.current if isinstance(context, RenewableContext) else context


class Renewal:
    """Keeps the context of a `RenewableContext` up to date with the files.

    Several threads may use it, where servers share a configuration. Changes are detected by the contents of the
    files, so it does not matter whether they were written in place, renamed or linked, nor what their times are.

    Raises:
        Exception: raised while building the first context.
    """

    def __init__(self, settings: TLSSettings, alpn_protocols: Sequence[str] | None) -> None:
        self._settings = settings
        self._alpn_protocols = alpn_protocols
        named = [NamedCertificate.parse(text) for text in settings.ssl_cert]
        self._files = [
            path
            for path in (
                *(settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_ca_certs, settings.ssl_crl),
                *(path for _, *pair in named for path in pair),
            )
            if path is not None
        ]
        self._lock = threading.Lock()
        self._used = self._seen = self._contents()
        self.front = RenewableContext(ssl.PROTOCOL_TLS_SERVER)
        self.front.current = _build(settings, alpn_protocols, settings.ssl_keyfile_password)
        self.front.rustls = getattr(self.front.current, "rustls", None)
        self.front.renewal = self

    def look(self) -> bool:
        """Load the files if they are new and valid; returns whether they were. Logs the result in one line."""
        with self._lock:
            contents = self._contents()
            return contents != self._seen and self._renew(contents)

    def insist(self) -> bool:
        """Load the files even if they did not change: a function that makes the context may have other reasons."""
        with self._lock:
            return self._renew(self._contents())

    def _renew(self, contents: bytes) -> bool:
        self._seen = contents
        if contents == self._used and self._settings.ssl_context_factory is None:
            return False
        try:
            password = self._settings.ssl_keyfile_password or _reject_password_prompt
            context = _build(self._settings, self._alpn_protocols, password)
            reason = openssl_reason(context)
            if reason is not None and self._settings.tls == "rustls":
                raise ValueError(f"rustls cannot be used, because {reason}.")
        except Exception as exc:
            if contents == self._contents():
                logger.error("Cannot load the new TLS certificates, keeping the previous ones: %s", _why(exc))
            else:
                self._seen = b""  # the files are still being written
            return False
        if contents != self._contents():
            self._seen = b""
            return False
        self._used = contents
        before = openssl_reason(self.front.current)
        mark_served(context)
        if self.front.rustls is not None:
            if isinstance(self.front.current, ServerContext):
                self.front.current.retire()
            if isinstance(context, ServerContext):
                context.succeed(self.front.rustls)
            else:
                self.front.rustls.replace(None)
        self.front.current = context
        logger.info("Loaded new TLS certificates: %s", summary(context))
        if reason is not None and before is None and self._settings.tls == "auto":
            logger.info(FROM_NOW_ON, reason)
        return True

    def _contents(self) -> bytes:
        """Return a digest of the files, including which ones cannot be read."""
        whole = hashlib.sha256()
        for path in self._files:
            try:
                part = hashlib.sha256(read(path)).digest()
            except OSError:
                part = b""
            whole.update(bytes([len(part)]) + part)
        return whole.digest()


def _why(exc: Exception) -> str:
    """One line, with the name of the file."""
    text = " ".join(str(exc).split())
    name = getattr(exc, "filename", None)
    return text if name is None or repr(name) in text else f"{name!r}: {text}"


def summary(context: ssl.SSLContext) -> str:
    """Describe the certificates of a context, for the log."""
    if not isinstance(context, ServerContext):
        return "of ssl_context_factory, or a function that replaces create_ssl_context"
    return "; ".join(f"{name}: {', '.join(certificate.names)}" for name, certificate in context.shown())


class Watch:
    """Looks every `interval` seconds whether there are new certificates, and whenever it is woken; 0 only then.

    In a thread of its own, because files may be far away. `renewed` is called there when connections get new ones,
    `on_reload` with true before and with false after a look for which it was woken. It begins with `start` and ends
    with `stop`.
    """

    def __init__(
        self,
        renewal: Renewal,
        interval: float,
        renewed: Callable[[], object],
        on_reload: Callable[[bool], object] = lambda begins: None,
    ) -> None:
        self._renewal = renewal
        self._interval = interval or None
        self._renewed = renewed
        self._on_reload = on_reload
        # Whether to go on. Unlike an event it can be used by a signal handler that interrupts its user.
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="uvicorn-certificates", daemon=True)

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def wake(self) -> None:
        """Look at once; from any thread or signal handler."""
        self._requests.put(True)

    def stop(self) -> None:
        """Stop checking; returns without waiting for a check in progress."""
        self._requests.put(False)

    def _run(self) -> None:
        while True:
            try:
                if not self._requests.get(timeout=self._interval):
                    return
            except queue.Empty:
                self._look(self._renewal.look)
                continue
            self._on_reload(True)
            self._look(self._renewal.insist)
            self._on_reload(False)

    def _look(self, look: Callable[[], bool]) -> None:
        try:
            if look():
                self._renewed()
        except Exception:
            logger.exception("Cannot check for new TLS certificates")
