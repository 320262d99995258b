"""Loads everything that a server would, without serving: ``uvicorn --check``."""

from __future__ import annotations

import calendar
import logging
import platform
import ssl
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from uvicorn.config import Config
from uvicorn.config.errors import STARTUP_FAILURE, blaming
from uvicorn.listening.sockets import setting_of, source_of
from uvicorn.rules import shortcuts
from uvicorn.tls.context import in_force, openssl_reason
from uvicorn.tls.rustls import provider
from uvicorn.tls.server_context import NamedCertificate, ServerContext
from uvicorn.tls.validity import DAY, duration, in_use, minute, notice_of_list


def findings(config: Config) -> Iterator[tuple[str, str]]:
    """Load all that a server with this configuration loads, and describe each part.

    The application is imported, and built if the setting is a factory, but neither called nor started. No address is
    bound: the server that is checked for may be running.

    Raises:
        Exception: whatever would end the server before it serves; of a setting, it names the setting.
        SystemExit: the application or an implementation could not be loaded; the log says why.
    """
    config.check()
    _load(config)
    loop = config.get_loop_factory()
    name = config.app if isinstance(config.app, str) else type(config.app).__name__
    yield "application", f"{name} ({config.interface})"
    yield "http", f"{_name_of(config.http_protocol_class)}, {_versions(config)}"
    yield "websocket", "none" if config.ws_protocol_class is None else _name_of(config.ws_protocol_class)
    yield "event loop", "of asyncio's policy" if loop is None else f"{loop.__module__}.{loop.__qualname__}"
    if (taken := _shortcuts()) != "all":
        yield "shortcuts", taken
    yield "lifespan", config.lifespan
    yield "processes", f"{config.workers}, event loops in each: {config.threads}"
    yield "listens", ", ".join(_places(config))
    if config.http3:
        yield "http3", f"on the UDP ports of the same numbers, Alt-Svc: {config.http3_alt_svc or 'these ports'}"
    for mount in config.mounts:
        yield "files", str(mount)
    if config.limit_active_requests is not None:
        yield "requests", f"{config.limit_active_requests} active ones of a process, and {config.limit_queue} that wait"
    if config.proxy_protocol:
        yield "proxies", f"begin with PROXY headers: {_listed(config.forwarded_allow_ips)}, and Unix sockets"
        clients = config.trusted_proxies
        yield "forwarded", f"trusted from {_listed(clients)}" if clients else "never trusted"
    if config.ssl is not None:
        yield "encryption", _encryption(config, config.ssl)
        yield "tls", _of_certificate(config, config.ssl)
        for host, certfile, _ in map(NamedCertificate.parse, config.ssl_cert if config.ssl_certfile else ()):
            with blaming(f"ssl_cert={host}={certfile}"):
                yield "tls", f"for {host}: {_until(_shake_hands(config.ssl, certfile, host.replace('*', 'any', 1)))}"
        yield from (("tls", text) for text in _lists(config, config.ssl))


def _versions(config: Config) -> str:
    versions = ["HTTP/1.1", *["HTTP/2"] * config.http2, *["HTTP/3"] * config.http3]
    return " and ".join(filter(None, [", ".join(versions[:-1]), versions[-1]]))


def _places(config: Config) -> list[str]:
    """Where it would listen; descriptors and directories of Unix sockets have to exist."""
    source = source_of(config)
    with blaming(setting_of(config) or "host", status=STARTUP_FAILURE):
        source.check()
    return source.places()


def _load(config: Config) -> None:
    """Load it; report a server that would fail on each request."""
    config.load()
    if config.fails_always:
        sys.exit(STARTUP_FAILURE)  # the log says why


def _shortcuts() -> str:
    """Which are taken, and which cannot be because their assumptions are not proved on this interpreter."""
    taken = shortcuts.chosen()
    text = "all" if len(taken) == len(shortcuts.Shortcut) else _names(taken) or "none"
    unproved = _names(set(shortcuts.Shortcut) - shortcuts.proved())
    return f"{text}; not proved on {_interpreter()}: {unproved}" if unproved else text


def _names(some: Collection[shortcuts.Shortcut]) -> str:
    return ", ".join(one.value for one in shortcuts.Shortcut if one in some)


def _interpreter() -> str:
    build = ", free-threaded" if shortcuts.is_free_threaded() else ""
    return f"{platform.python_implementation()} {platform.python_version()}{build}"


def _listed(hosts: Sequence[str] | str) -> str:
    return hosts if isinstance(hosts, str) else ",".join(hosts)


def _name_of(implementation: Any) -> str:
    return f"{implementation.__module__}.{implementation.__qualname__}"


def _encryption(config: Config, context: ssl.SSLContext) -> str:
    if config.tls == "openssl":
        return "OpenSSL"
    reason = openssl_reason(context)
    return f"rustls, {provider()}" if reason is None else f"OpenSSL, not rustls: {reason}"


def _of_certificate(config: Config, context: ssl.SSLContext) -> str:
    """Names and end of the server's certificate, as a client sees it that trusts nothing but that file.

    Raises:
        ssl.SSLCertVerificationError: its time is over or has not come, or it is none for servers.
    """
    if not config.ssl_certfile:
        return "by ssl_context_factory"
    with blaming(f"ssl_certfile={str(config.ssl_certfile)!r}"):
        return _until(_shake_hands(context, str(config.ssl_certfile)))


def _lists(config: Config, context: ssl.SSLContext) -> Iterator[str]:
    """Issuer and expiry of each revocation list.

    Raises:
        ValueError: one has expired, or is not yet valid.
    """
    context, now = in_force(context), time.time()
    for found in in_use(context.lists if isinstance(context, ServerContext) else (), now):
        notice = notice_of_list(found, now)
        if notice is not None and notice.level == logging.ERROR:
            with blaming(f"ssl_crl={str(config.ssl_crl)!r}"):
                raise ValueError(notice.text)
        ends = ""
        if found.next_update is not None:
            ends = f", until {minute(found.next_update)} ({duration(found.next_update - now)})"
        yield f"revocation list of {found.issuer}{ends}"


def _until(found: dict[str, Any]) -> str:
    names = [value for _, value in found.get("subjectAltName", ())]
    if not names:
        names = [value for part in found["subject"] for key, value in part if key == "commonName"]
    until = calendar.timegm(time.strptime(found["notAfter"], "%b %d %H:%M:%S %Y GMT"))
    days = int((until - time.time()) // DAY)
    return f"{', '.join(names)}, until {time.strftime('%Y-%m-%d', time.gmtime(until))} ({days} days)"


def _shake_hands(server: ssl.SSLContext, certfile: str, name: str | None = None) -> dict[str, Any]:
    """Return the certificate that `server` shows for `name`, by a handshake in memory."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(certfile)
    # The file is trusted, regardless of its issuer.
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=name)
    while True:
        try:
            theirs.do_handshake()
            return dict(theirs.getpeercert() or {})
        except ssl.SSLWantReadError:
            pass
        try:
            ours.do_handshake()
        except ssl.SSLWantReadError:
            pass
