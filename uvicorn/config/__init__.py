"""The configuration: settings resolved against environment and file system, then loaded into the server's objects."""

from __future__ import annotations

import contextlib
import json
import logging
import logging.config
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from ssl import SSLContext, SSLError
from typing import TYPE_CHECKING, Any, Literal, get_args

from uvicorn._compat import has_gil, iscoroutinefunction
from uvicorn._types import (
    ASGI3Application,
    ASGIApplication,
    ExtensionType,
    ProtocolFactory,
    WebSocketProtocolFactory,
)
from uvicorn.config._declare import Row
from uvicorn.config._values import LONGEST, accepts, check
from uvicorn.config.application import build_app, detect_interface, warn_of_mistakes
from uvicorn.config.default_headers import encode_fields, says_close, with_server, without_connection
from uvicorn.config.errors import STARTUP_FAILURE, SettingError, blaming, blaming_package, fail, refusing_exit
from uvicorn.config.implementations import (
    banner,
    check_protocol,
    core_advice,
    is_ours,
    load_custom_loop,
    load_implementation,
    load_known,
)
from uvicorn.config.mounts import Mount, resolve_mounts
from uvicorn.config.profile import WorkerProfile, processors
from uvicorn.config.reload_paths import ReloadPaths, is_dir, resolve_reload_patterns, watched_paths
from uvicorn.config.settings import (
    AUTO,
    DEFAULT_GRACEFUL_SHUTDOWN,
    PREFIX,
    RELATIONS,
    ROWS,
    SSL_PROTOCOL_VERSION,
    CountType,
    HTTPProtocolType,
    InterfaceType,
    LifespanType,
    LoopFactoryType,
    Settings,
    WSProtocolType,
)
from uvicorn.hooks import original, overrides, refuse_never_called, replaced, value_beside
from uvicorn.importer import ImportFromStringError, import_from_string
from uvicorn.listening import handover
from uvicorn.listening.sockets import bind_sockets
from uvicorn.logging import LOG_LEVELS, LOGGING_CONFIG, TRACE_LOG_LEVEL, use_pipe_handlers
from uvicorn.middleware import proxy_headers
from uvicorn.middleware.asgi2 import ASGI2Middleware
from uvicorn.middleware.lifecycle import LifecycleMiddleware, Report
from uvicorn.middleware.message_logger import MessageLoggerMiddleware
from uvicorn.middleware.proxy_headers import (
    DEFAULT_FIELDS,
    ProxyHeadersMiddleware,
    _TrustedHosts,
    check_trusted_hosts,
    parse_fields,
)
from uvicorn.rules import shortcuts
from uvicorn.rules.syntax import without_secrets

if TYPE_CHECKING:
    import asyncio

    from uvicorn.listening.udp_slots import UDPSlots
    from uvicorn.middleware.in_flight import InFlight
    from uvicorn.middleware.wsgi import WSGIMiddleware
    from uvicorn.tls.context import create_ssl_context
    from uvicorn.tls.tickets import TicketSecret
    from uvicorn.tracing.options import TracingOptions

__all__ = [
    "HTTP_PROTOCOLS",
    "INTERFACES",
    "LIFESPAN",
    "LOGGING_CONFIG",
    "LOG_LEVELS",
    "LOOP_FACTORIES",
    "SSL_PROTOCOL_VERSION",
    "STARTUP_FAILURE",
    "TRACE_LOG_LEVEL",
    "WS_PROTOCOLS",
    "ASGI2Middleware",
    "ASGIApplication",
    "Config",
    "HTTPProtocolType",
    "ImportFromStringError",
    "InterfaceType",
    "LifespanType",
    "LoopFactoryType",
    "MessageLoggerMiddleware",
    "ProxyHeadersMiddleware",
    "UvicornDeprecationWarning",
    "WSGIMiddleware",
    "WSProtocolType",
    "create_ssl_context",
    "import_from_string",
    "is_dir",
    "iscoroutinefunction",
    "resolve_reload_patterns",
]

HTTP_PROTOCOLS: dict[str, str] = {
    "auto": "uvicorn.protocols.http.auto:AutoHTTPProtocol",
    "h11": "uvicorn.protocols.http.h11_impl:H11Protocol",
    "httptools": "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol",
    "zttp": "uvicorn.protocols.http.native_impl:NativeProtocol",
    "native": "uvicorn.protocols.http.native_impl:NativeProtocol",
}
WS_PROTOCOLS: dict[str, str | None] = {
    "auto": "uvicorn.protocols.websockets.auto:AutoWebSocketsProtocol",
    "none": None,
    "websockets": "uvicorn.protocols.websockets.websockets_impl:WebSocketProtocol",
    "websockets-sansio": "uvicorn.protocols.websockets.websockets_sansio_impl:WebSocketsSansIOProtocol",
    "wsproto": "uvicorn.protocols.websockets.wsproto_impl:WSProtocol",
    "native": "uvicorn.protocols.websockets.native_impl:NativeWebSocketProtocol",
}
_AUTO_PROTOCOLS = {"http": HTTP_PROTOCOLS["auto"], "ws": str(WS_PROTOCOLS["auto"])}
"""The implementation behind `auto`, unless programs replace it."""
LIFESPAN: dict[str, str] = {
    "auto": "uvicorn.lifespan.on:LifespanOn",
    "on": "uvicorn.lifespan.on:LifespanOn",
    "off": "uvicorn.lifespan.off:LifespanOff",
}
LOOP_FACTORIES: dict[str, str | None] = {
    "none": None,
    "auto": "uvicorn.loops.auto:auto_loop_factory",
    "asyncio": "uvicorn.loops.asyncio:asyncio_loop_factory",
    "uvloop": "uvicorn.loops.uvloop:uvloop_loop_factory",
    "zuvloop": "uvicorn.loops.zuvloop:zuvloop_loop_factory",
}
INTERFACES: list[InterfaceType] = list(get_args(InterfaceType))

DEFAULT_TRUSTED_PROXIES = "127.0.0.1,::1"

STALL_THRESHOLD = 0.1
"""Seconds of `stall_threshold` where only `debug_requests` is set."""

_ASGI_VERSIONS: dict[str, Literal["2.0", "3.0"]] = {"asgi3": "3.0", "asgi2": "2.0", "wsgi": "3.0"}

logger = logging.getLogger("uvicorn.error")


class UvicornDeprecationWarning(UserWarning):
    """Something that still works, but should be changed. Shown by default, unlike a DeprecationWarning."""


def _strings(values: Sequence[str | os.PathLike[str]] | str | None) -> list[str]:
    """Return None, one string, or several strings and paths as a list of strings."""
    if not values:
        return []
    if isinstance(values, (str, os.PathLike)):
        return [os.fspath(values)]
    return [os.fspath(value) for value in values]


@original
class Config(Settings):
    """How to serve an application.

    Takes every setting of ``uvicorn.config.settings`` as an argument and has it as an attribute. Building one
    configures logging, loads the env file and resolves what depends on the environment; ``load()`` imports the
    application and the implementations. Configurations compare and hash by identity.
    """

    # Settings that are more precise once they are resolved.
    headers: list[tuple[str, str]]
    reload_dirs: list[Path]
    reload_includes: list[str]
    reload_excludes: list[str]
    workers: int
    threads: int
    forwarded_allow_ips: list[str] | str
    asgi_extensions: list[ExtensionType]
    bind: list[str]
    uds: str | None
    ssl_cert: list[str]
    mount: list[str]
    limit_exempt: list[str]
    on_disconnect_exempt: list[str]

    reload_dirs_excludes: list[Path]
    """Directories whose changes do not count."""
    mounts: list[Mount]
    """The mounts of the setting ``mount``."""
    tracing: TracingOptions | None
    """Where spans go, with ``otel_endpoint``."""
    encoded_headers: list[tuple[bytes, bytes]]
    """Header fields of every response but Date, as they are sent. Empty until the configuration is loaded."""
    closes_connections: bool
    """Whether each response is the last on its connection, because ``headers`` say so. False until it is loaded."""
    fails_always: bool
    """Whether it shows that the application fails on every request. False until the configuration is loaded."""
    loaded: bool
    """Whether `load` has run; the attributes below exist from then on."""
    loaded_app: ASGI3Application
    """The application behind its adapters and middleware."""
    http_protocol_class: ProtocolFactory
    ws_protocol_class: WebSocketProtocolFactory | None
    lifespan_class: type[Any]
    ssl: SSLContext | None
    ticket_secret: TicketSecret | None = None
    """The secret from which all workers derive the keys of session tickets; None if each has its own."""
    unavailable_app: ASGI3Application | None = None
    """Answers requests above ``limit_concurrency``; the protocols' own if it is None."""

    def __post_init__(self) -> None:
        """Resolve the settings that depend on the environment or on each other."""
        self.fails_always = False
        self.loaded = False
        self._core_logged = self._encryption_logged = False
        self.reporters: dict[asyncio.AbstractEventLoop, Callable[[], Report]] = {}
        self.in_flight: InFlight | None = None  # once it is loaded, if that is to be known
        self.encoded_headers = []
        self.closes_connections = False
        # First the settings that decide how errors in others are reported.
        self._check_settings(row for row in ROWS.values() if row.section == "Logging")
        self.configure_logging()
        self._check_settings(row for row in ROWS.values() if row.section != "Logging")
        if self.interface not in INTERFACES:  # `check` accepts every false value
            raise SettingError(f"interface must be {accepts(ROWS['interface'])}, not {self.interface!r}.")
        self.headers = self.headers or []
        self._resolve_places()
        self.mount = _strings(self.mount)
        self.mounts = resolve_mounts(self.mount, self.mount_cache_control, ROWS["mount_cache_control"].default)
        self.limit_exempt = [*_strings(self.limit_exempt)]
        self.on_disconnect_exempt = [*_strings(self.on_disconnect_exempt)]
        names = _strings(self.asgi_extensions)
        known = get_args(ExtensionType)
        self.asgi_extensions = [name for name in known if name != "all" and (name in names or "all" in names)]
        with blaming(f"{shortcuts.VARIABLE}={os.environ.get(shortcuts.VARIABLE)!r}"):
            shortcuts.chosen()
        self._resolve_certificates()
        self._resolve_reload()
        self._load_env_file()
        self._resolve_tracing()
        self._resolve_workers()
        self._resolve_trusted_proxies()
        self._check_relations()

    def _check_settings(self, rows: Iterable[Row]) -> None:
        for row in rows:
            setattr(self, row.name, check(row, getattr(self, row.name)))

    def _check_relations(self) -> None:
        for relation in RELATIONS:
            if relation.holds(self):
                shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in relation.settings)
                if relation.is_fatal:
                    raise SettingError(f"Cannot use {shown}: {relation.text}")
                logger.warning("%s %s", shown, relation.text)
        self._check_needs(ROWS)

    def _check_needs(self, names: Iterable[str]) -> None:
        for name in names:
            row = ROWS[name]
            if row.needs and self.is_given(name) and not any(map(self._is_met, row.needs)):
                shown = "..." if row.secret else repr(getattr(self, name))
                logger.warning("%s=%s is ignored without %s.", name, shown, row.needs[0])

    def _is_met(self, need: str) -> bool:
        name, equals, value = need.partition("=")
        return str(getattr(self, name)) == value if equals else bool(getattr(self, name))

    def is_given(self, name: str) -> bool:
        """Whether a setting has another value than its default, and not one that stands for nothing."""
        value = getattr(self, name)
        return bool(value) and value != ROWS[name].default

    @property
    def lacks_authorities(self) -> bool:
        """Whether no client certificate can be verified, though the server speaks TLS and rejects those that cannot."""
        asks_alone = self.ssl_context_factory is None and not self.ssl_client_errors
        return self.is_ssl and asks_alone and not self.ssl_ca_certs

    def __getstate__(self) -> dict[str, Any]:
        # The parent alone calls these, and lambdas cannot be pickled.
        return {**vars(self), "on_worker_event": None, "reporters": {}} if _is_spawning() else vars(self)

    @property
    def asgi_version(self) -> Literal["2.0", "3.0"]:
        """Version of ASGI the application speaks.

        Raises:
            KeyError: ``interface`` is ``"auto"`` and the configuration is not loaded.
        """
        return _ASGI_VERSIONS[self.interface]

    @property
    def is_ssl(self) -> bool:
        """Whether the server speaks TLS."""
        return bool(self.ssl_keyfile or self.ssl_certfile or self.ssl_context_factory)

    @property
    def ssl_context_builder(self) -> Callable[..., SSLContext]:
        """`create_ssl_context` of this module, which programs replace."""
        # Through the module, where it is imported when first asked for.
        builder: Callable[..., SSLContext] = sys.modules[__name__].create_ssl_context
        return builder

    @property
    def certificate_names(self) -> list[str]:
        """The names of the server's certificates in the log and the metrics."""
        if not self.is_ssl:
            return []
        # Imported only where it is needed, here as below.
        from uvicorn.tls.context import names_of

        return names_of(self)

    @property
    def should_reload(self) -> bool:
        """Whether to watch files and start again: wanted, and possible because the application is a string."""
        return isinstance(self.app, str) and self.reload

    @property
    def use_subprocess(self) -> bool:
        """Whether the server runs in child processes."""
        return bool(self.reload or self.workers > 1 or self.recycles_workers)

    @property
    def recycles_workers(self) -> bool:
        """Whether a parent has to replace workers, even a single one, that have served enough."""
        return self.limit_worker_lifetime is not None or self.limit_worker_memory is not None

    @property
    def graceful_timeout(self) -> float | None:
        """Seconds a graceful shutdown may take, None for any time; see ``timeout_graceful_shutdown``."""
        if self.timeout_graceful_shutdown is None:
            return DEFAULT_GRACEFUL_SHUTDOWN
        return None if self.timeout_graceful_shutdown < 0 else min(self.timeout_graceful_shutdown, LONGEST)

    @property
    def worker_ready_timeout(self) -> float | None:
        """Seconds a new worker may take until it serves, None for any time; see ``timeout_worker_ready``."""
        if not self.timeout_worker_ready:
            return None
        # Upstream has one setting for both: a longer health check means a longer start as well.
        return max(self.timeout_worker_ready, self.timeout_worker_healthcheck)

    @property
    def limits_connections(self) -> bool:
        """Whether there is a limit of connections."""
        return self.limit_connections is not None or self.limit_connections_per_address is not None

    @property
    def requires_proxy_header(self) -> Callable[[str | None], bool] | None:
        """Whether a peer must send a PROXY header: trusted proxies must, and peers of a Unix socket (host None).

        None if the setting is off. Other peers are served without one, so they cannot claim to be another client.
        """
        if not self.proxy_protocol:
            return None
        trusted = proxy_headers._TrustedHosts(self.forwarded_allow_ips)
        return lambda host: host is None or host in trusted

    @property
    def trusted_proxies(self) -> list[str] | str | None:
        """Peers whose forwarded fields and request ids are believed; None trusts no peer.

        A proxy that sends PROXY headers forwards bytes and cannot remove fields: trusting it does not mean trusting its
        clients, which have a setting of their own.
        """
        if not self.proxy_headers:
            return None
        return (self.proxy_protocol_trusted_clients or None) if self.proxy_protocol else self.forwarded_allow_ips

    @property
    def longest_turn(self) -> float:
        """Seconds from which a turn of the event loop is a stall (`stall_threshold`); 0 if they are not looked for."""
        if self.stall_threshold is None:
            return STALL_THRESHOLD if self.debug_requests else 0.0
        return self.stall_threshold

    # Logging

    def configure_logging(self) -> None:
        """Name the level TRACE and apply ``log_config``, ``log_level``, ``use_colors`` and ``access_log``.

        Raises:
            ImportError: the configuration is in YAML and PyYAML is not installed.
            OSError, ValueError, RuntimeError: the configuration cannot be read, or ``logging.config`` refuses it.
        """
        logging.addLevelName(TRACE_LOG_LEVEL, "TRACE")
        if self.log_config is not None:
            shown = "..." if isinstance(self.log_config, dict) else repr(self.log_config)
            with blaming(f"log_config={shown}"):
                self._apply_log_config(self.log_config)
        if self.log_level is not None:
            level = LOG_LEVELS[self.log_level.lower()] if isinstance(self.log_level, str) else self.log_level
            for name in ("uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
                logging.getLogger(name).setLevel(level)
        if not self.access_log:
            access_logger = logging.getLogger("uvicorn.access")
            access_logger.handlers = []
            access_logger.propagate = False

    def _apply_log_config(self, log_config: Any) -> None:
        if isinstance(log_config, os.PathLike):
            log_config = os.fspath(log_config)
        if isinstance(log_config, str) and log_config.endswith((".json", ".yaml", ".yml")):
            log_config = _read_log_config(log_config)
        elif isinstance(log_config, dict):
            for name in {"default", "access"} & log_config.get("formatters", {}).keys():
                if self.use_colors in (True, False):
                    log_config["formatters"][name]["use_colors"] = self.use_colors
        if isinstance(log_config, dict):
            logging.config.dictConfig(log_config)
            use_pipe_handlers(log_config)
            return
        try:
            logging.config.fileConfig(log_config, disable_existing_loggers=False)
        except KeyError as exc:
            raise KeyError(f"there is no section or key {exc.args[0]!r}.") from None
        except Exception as exc:
            if isinstance(log_config, str):
                exc.__dict__["hint"] = (
                    "Files for dictConfig end in .json, .yaml or .yml; others are read as INI (fileConfig)."
                )
            raise

    # Development

    def _resolve_reload(self) -> None:
        dirs, includes = _strings(self.reload_dirs), _strings(self.reload_includes)
        excludes = _strings(self.reload_excludes)
        paths = ReloadPaths()
        if self.should_reload:
            paths = watched_paths(dirs, includes, excludes)
        elif dirs or includes or excludes:
            logger.warning(
                "Current configuration will not reload as not all conditions are met, please refer to documentation."
            )
            self._check_needs(("reload_dirs", "reload_includes", "reload_excludes"))
        self.reload_dirs, self.reload_dirs_excludes = [*paths.directories], [*paths.excluded_directories]
        self.reload_includes, self.reload_excludes = [*paths.includes], [*paths.excludes]

    def _resolve_places(self) -> None:
        self.uds = os.fspath(self.uds) if isinstance(self.uds, os.PathLike) else self.uds
        self.bind = [*_strings(self.bind)]
        seen = set[str]()
        for text in self.bind:
            if text in seen and not text.endswith(":0"):
                raise SettingError(f"Cannot use bind={text!r}: it is in the list twice.")
            seen.add(text)

    def _resolve_certificates(self) -> None:
        self.ssl_cert = [*_strings(self.ssl_cert)]
        hosts: set[str] = set()
        for text in self.ssl_cert:
            with blaming(f"ssl_cert={text!r}"):
                from uvicorn.tls.server_context import NamedCertificate

                named = NamedCertificate.parse(text)
                if named.host in hosts:
                    raise ValueError("this name has a certificate already; name each host once.")
                hosts.add(named.host)
        self._resolve_tickets()

    def _resolve_tickets(self) -> None:
        if self.ssl_tickets != "shared" or not self.is_ssl or self.tls == "openssl":
            return
        # Imported where it is wanted.
        from uvicorn.tls.tickets import TicketSecret

        state = handover.current.tickets
        with blaming(handover.VARIABLE):
            self.ticket_secret = TicketSecret() if state is None else TicketSecret.parse(state)

    # Environment

    def _load_env_file(self) -> None:
        if self.env_file is None:
            return
        with blaming(f"env_file={self.env_file!r}"):
            try:
                from dotenv import load_dotenv
            except ImportError:
                raise ImportError("env files need python-dotenv: pip install 'uvicorn[standard]'.") from None
            logger.info("Loading environment from '%s'", self.env_file)
            before = set(os.environ)
            try:
                load_dotenv(dotenv_path=self.env_file)
            except UnicodeDecodeError:
                raise ValueError("it is not UTF-8 text.") from None
            for name in sorted(set(os.environ) - before):
                if name.startswith(PREFIX) and name.removeprefix(PREFIX).lower() in ROWS:
                    logger.warning(
                        "Ignoring %s in '%s': env_file is for the application, and read after the settings. Set it in "
                        "the environment, or in a settings file (--config).",
                        name,
                        self.env_file,
                    )

    def _resolve_tracing(self) -> None:
        self.tracing = None
        if self.otel_endpoint is None:
            return
        # Imported only where it is needed.
        from uvicorn.tracing.options import options_of

        with blaming(f"otel_endpoint={without_secrets(repr(self.otel_endpoint))}"):
            self.tracing = options_of(self.otel_endpoint, self.otel_sample_ratio, self.otel_query)

    def _resolve_workers(self) -> None:
        workers: CountType | None = self.workers
        threads: CountType | None = self.threads
        text = os.environ.get("WEB_CONCURRENCY")
        if workers is None and text not in (None, "", "0"):
            workers = check(ROWS["workers"], text, is_command=True, name="WEB_CONCURRENCY")
        self.workers, self.threads = WorkerProfile.resolve(
            self.worker_profile, workers, threads, processors(), has_gil()
        )
        for name, count in (("workers", self.workers), ("threads", self.threads)):
            if self.reload and count > 1:
                logger.warning('"%s" flag is ignored when reloading is enabled.', name)

    def _resolve_trusted_proxies(self) -> None:
        source = "forwarded_allow_ips"
        if self.forwarded_allow_ips is None:
            source = "FORWARDED_ALLOW_IPS"
            self.forwarded_allow_ips = os.environ.get(source, DEFAULT_TRUSTED_PROXIES)
        if self.proxy_headers or self.proxy_protocol:
            with blaming(f"{source}={self.forwarded_allow_ips!r}"):
                check_trusted_hosts(self.forwarded_allow_ips)
        if self.proxy_protocol:
            self._resolve_trusted_clients()

    def _resolve_trusted_clients(self) -> None:
        clients = self.proxy_protocol_trusted_clients
        with blaming(f"proxy_protocol_trusted_clients={clients!r}"):
            trusted = _TrustedHosts(clients or [])
            if trusted.always_trust:
                raise ValueError("every client could forge its address; name the proxies.")
            check_trusted_hosts(clients or [])
            both = trusted.overlap(_TrustedHosts(self.forwarded_allow_ips))
            if both is not None:
                raise ValueError(
                    f"{both} sends PROXY headers (forwarded_allow_ips), and clients it does not name (LOCAL, UNKNOWN) "
                    "have its address."
                )
        if self.proxy_headers and not clients:
            logger.warning(
                "Ignoring X-Forwarded-* fields behind PROXY headers: proxy_protocol_trusted_clients is empty."
            )

    # Loading

    def check(self) -> None:
        """Find the mistakes that can be seen without importing the application; nothing is loaded.

        The parent of processes does this, so that a mistake is reported once, and before there are any.

        Raises:
            Exception: any that `load` raises.
        """
        self.check_implementations()
        if self.is_ssl and self.ssl_context_factory is None:
            from uvicorn.tls.context import check_ssl_settings

            with self._blaming_ssl():
                context = check_ssl_settings(self)
            self._log_encryption(context)

    def check_implementations(self) -> None:
        """Find the mistakes in `loop`, `http` and `ws` that can be seen without the application.

        Raises:
            Exception: any that `load` raises.
        """
        # "auto" is never wrong, and a module of the application's is not the parent's to import.
        if is_ours(self.loop, LOOP_FACTORIES):
            self.get_loop_factory()
        if is_ours(self.http, HTTP_PROTOCOLS) or ((self.http2 or self.http3) and self.http == "auto"):
            self._http_protocol_class()
        if self.interface != "wsgi" and is_ours(self.ws, WS_PROTOCOLS):
            self._implementation("ws", WS_PROTOCOLS)

    def load(self) -> None:
        """Import the application and the implementations, build the TLS context and encode the header fields; once.

        Raises:
            AssertionError: it has run before; or there is a TLS key but no certificate.
            ImportFromStringError: ``http`` or ``ws`` is no known name, nor the import string of something that exists.
            ImportError: ``http`` or ``ws`` names an implementation whose library is not installed.
            ValueError: ``http2`` is set for an implementation without HTTP/2.
            OSError, ssl.SSLError: see `uvicorn.tls.context.create_ssl_context`.
            SystemExit: the application cannot be imported or built.
        """
        assert not self.loaded, "the configuration is loaded already"
        if self.http == "zttp":
            logger.warning("http='zttp' is another name for http='native' here.")
        self.http_protocol_class = self._http_protocol_class()
        self.log_core()
        self.ws_protocol_class = self._ws_protocol_class()
        for setting, implementation in (("http", self.http_protocol_class), ("ws", self.ws_protocol_class)):
            with blaming(setting):
                has_log_format = self.access_log and self.access_log_format is not None
                refuse_never_called(implementation, self.allow_skipped_overrides, has_log_format)
        self.lifespan_class = import_from_string(LIFESPAN[self.lifespan])
        self.ssl = self._ssl_context()
        self._log_encryption(self.ssl)
        self.encoded_headers = self._default_headers()
        loaded = self.load_app()
        with refusing_exit():
            app = build_app(loaded, self.factory)
        if self.interface == "auto":
            self.interface = detect_interface(app)
        self.fails_always = warn_of_mistakes(app, self.interface)
        self.loaded_app = self._wrap(app)
        self.loaded = True

    def log_core(self, with_banner: bool = False) -> None:
        """Log once which implementation serves HTTP, if `auto` does not mean the native core.

        `with_banner` always logs the banner instead, as the command and `uvicorn.run()` do. A supervisor calls this
        before its children copy this object, so that they do not log it again.
        """
        if self._core_logged:
            return
        self._core_logged = True
        core = self.http if isinstance(self.http, str) else getattr(self.http, "__qualname__", repr(self.http))
        if core == "auto":
            core = import_from_string("uvicorn.protocols.http.auto:core")()
        if with_banner:
            logger.info(banner(core))
        elif self.http == "auto" and core != "native":
            logger.info("HTTP core: %s", core)

    def log_threads(self) -> None:
        """Log the use of several event loops in one process, if threads run one at a time."""
        if self.threads > 1 and has_gil():
            logger.warning(
                "This interpreter has a GIL, so the %d event loops of a process take turns (threads): they share "
                "memory, and serve while others wait or compute without the GIL.",
                self.threads,
            )

    def load_app(self) -> Any:
        """Import the application if it is an import string, and return the named object.

        Raises:
            SystemExit: it names nothing, or its module ends the process.
            ModuleNotFoundError: the module needs another one that does not exist.
        """
        try:
            with refusing_exit(), blaming_package("app", str(self.app)):
                return import_from_string(self.app)
        except ImportFromStringError as exc:
            fail("Error loading ASGI app. %s", exc, hint=exc.hint)

    def _log_encryption(self, context: SSLContext | None) -> None:
        """Log once why OpenSSL encrypts, where that was not asked for, and what does not work then."""
        if context is None:
            return
        from uvicorn.tls.context import openssl_reason

        if self.tls == "openssl":
            self._note_openssl()
        elif reason := openssl_reason(context):
            self.rule_out_rustls(reason)

    def settle_encryption(self) -> None:
        """Log what encrypts if a program has changed the TLS context since `load`, and have later changes logged.

        Raises:
            SettingError: rustls was asked for.
        """
        if self.ssl is not None:
            from uvicorn.tls.context import mark_served

            self._log_encryption(self.ssl)
            mark_served(self.ssl)

    def rule_out_rustls(self, reason: str) -> None:
        """Log once that OpenSSL encrypts, and why.

        Raises:
            SettingError: rustls was asked for.
        """
        if self.tls == "rustls":
            raise SettingError(f"Cannot use tls='rustls': {reason}.")
        if self.http3:
            raise SettingError(f"Cannot use http3=True: HTTP/3 needs rustls, and {reason}.")
        if self.tls == "auto" and not self._encryption_logged:
            logger.info("TLS by OpenSSL, not rustls: %s.", reason)
            self._note_openssl()

    def _note_openssl(self) -> None:
        if self._encryption_logged:
            return
        self._encryption_logged = True
        if self.ssl_tickets == "shared" and self.tls != "openssl":  # else a relation of the settings says so
            logger.warning("TLS session tickets are not shared (ssl_tickets=shared): that needs rustls.")
        if self.ssl_tickets == "none" and self.ssl_min_version != "1.3":
            logger.warning(
                "Clients can resume TLS 1.2 sessions by id, without a ticket (ssl_tickets=none): OpenSSL keeps them."
            )

    def import_app(self) -> None:
        """Import the application before `load` does, unless the program has a `load_app` of its own.

        That is called by `load` alone, as by upstream: once, and in the event loop.

        Raises:
            SystemExit, ModuleNotFoundError: see `load_app`.
        """
        if not overrides(self, "load_app"):
            self.load_app()

    def load_implementations(self) -> None:
        """Import the implementations, and do nothing with them."""
        self._http_protocol_class()
        self._ws_protocol_class()
        import_from_string(LIFESPAN[self.lifespan])
        self.get_loop_factory()

    def load_own_implementations(self) -> None:
        """Import the server's own parts that serve the application: nothing that an import string names."""
        if self.http in HTTP_PROTOCOLS:
            self._implementation("http", HTTP_PROTOCOLS)
        if self.ws in WS_PROTOCOLS and self.interface != "wsgi":
            self._implementation("ws", WS_PROTOCOLS)
        import_from_string(LIFESPAN[self.lifespan])
        if self.loop in LOOP_FACTORIES:
            self.get_loop_factory()

    def _implementation(self, setting: Literal["http", "ws"], known: Mapping[str, str | None]) -> Any:
        value = getattr(self, setting)
        if not isinstance(value, str):
            return value
        if value == AUTO and known[AUTO] == _AUTO_PROTOCOLS[setting]:
            module, _, _ = _AUTO_PROTOCOLS[setting].partition(":")
            return import_from_string(f"{module}:fastest")()
        return load_implementation(setting, value, known)

    def _http_protocol_class(self) -> ProtocolFactory:
        implementation: ProtocolFactory = self._implementation("http", HTTP_PROTOCOLS)
        check_protocol("http", self.http, implementation)
        if self.http2 and "h2" not in (self._alpn_protocols(implementation) or ()):
            with blaming("http2=True", f"http={self.http!r}"):
                raise ValueError(f"HTTP/2 needs the native core{core_advice()}")
        if self.http3:
            with blaming("http3=True", f"http={self.http!r}"):
                _check_http3(implementation)
        return implementation

    def _alpn_protocols(self, implementation: ProtocolFactory) -> Sequence[str] | None:
        if self.http2 and getattr(implementation, "speaks_http2", False):
            return ("h2", "http/1.1")
        protocols: Sequence[str] | None = getattr(implementation, "alpn_protocols", None)
        return protocols

    def _ws_protocol_class(self) -> WebSocketProtocolFactory | None:
        if self.interface == "wsgi":
            return None
        if self.ws == "websockets":
            warnings.warn(
                "The `websockets` implementation is deprecated: the name stands for `websockets-sansio` now. "
                "Use `--ws websockets-sansio` or `--ws auto`.",
                UvicornDeprecationWarning,
                stacklevel=3,
            )
        implementation: WebSocketProtocolFactory | None = self._implementation("ws", WS_PROTOCOLS)
        if callable(implementation):
            check_protocol("ws", self.ws, implementation)
        return implementation

    def _ssl_context(self) -> SSLContext | None:
        if not self.is_ssl and self.ssl_context_factory is None:
            return None
        from uvicorn.tls.context import load_ssl_context

        alpn_protocols = self._alpn_protocols(self.http_protocol_class)
        if self.ssl_context_factory is not None:
            return load_ssl_context(self, alpn_protocols)
        with self._blaming_ssl():
            return load_ssl_context(self, alpn_protocols)

    @contextlib.contextmanager
    def _blaming_ssl(self) -> Iterator[None]:
        harmless = ("ssl_keyfile_password", "ssl_context_factory", "ssl_reload")
        names = [name for name in ROWS if name.startswith("ssl_") and name not in harmless]
        given = [name for name in names if getattr(self, name) not in (ROWS[name].default, [])]
        try:
            yield
        except Exception as exc:
            if isinstance(exc, OSError) and not isinstance(exc, SSLError):
                # Of a file that cannot be read; a key that does not fit has to do with its certificate.
                given = [name for name in given if getattr(self, name) == exc.filename] or given
            with blaming(*(f"{name}={getattr(self, name)!r}" for name in given)):
                raise

    def _default_headers(self) -> list[tuple[bytes, bytes]]:
        fields = encode_fields(self.headers)
        # A protocol that can announces the close itself.
        self.closes_connections = says_close(fields) and hasattr(self.http_protocol_class, "announce_close")
        if self.closes_connections:
            fields = without_connection(fields)
        return with_server(fields) if self.server_header else fields

    def _wrap(self, app: Any) -> ASGI3Application:
        """Put adapter, message log and proxy headers around the application, in this order."""
        if self.interface == "wsgi":
            # Through the module, where it is imported when first asked for, and may have been replaced.
            this: Any = sys.modules[__name__]
            app = self._in_threads(this.WSGIMiddleware(app))
        elif self.interface == "asgi2":
            app = ASGI2Middleware(app)
        if logger.getEffectiveLevel() <= TRACE_LOG_LEVEL:
            app = MessageLoggerMiddleware(app)
        if self.lifecycle_path is not None:
            # Within the next one, which requests without its fields need not pass.
            app = self._answering_lifecycle(app)
            unavailable = import_from_string("uvicorn.protocols.http.flow_control:service_unavailable")
            unavailable = value_beside(self.http_protocol_class, "service_unavailable", unavailable)
            self.unavailable_app = self._answering_lifecycle(unavailable)
        if self.debug_requests:
            self.in_flight = import_from_string("uvicorn.middleware.in_flight:InFlight")(app)
            app = import_from_string("uvicorn.middleware.in_flight:InFlightMiddleware")(app, self.in_flight)
        if self.trusted_proxies is not None:
            app = self._behind_proxies(app, self.trusted_proxies)
        loaded_app: ASGI3Application = app
        return loaded_app

    def _behind_proxies(self, app: ASGI3Application, trusted: list[str] | str) -> ASGI3Application:
        fields, hops = parse_fields(self.forwarded_headers), self.forwarded_hops
        if sorted(fields) == sorted(DEFAULT_FIELDS) and hops is None:
            return ProxyHeadersMiddleware(app, trusted_hosts=trusted)
        middleware = import_from_string("uvicorn.middleware.forwarded:ForwardedMiddleware")
        with blaming(f"forwarded_headers={self.forwarded_headers!r}", f"forwarded_hops={hops!r}"):
            return middleware(app, trusted, fields, hops)  # type: ignore[no-any-return]

    def _in_threads(self, app: Any) -> ASGI3Application:
        """Have an adapter for WSGI, whichever it is, run its application in threads as the settings say."""
        if not hasattr(app, "executor"):
            bounded: ASGI3Application = app
            return bounded
        pool = import_from_string("uvicorn.files.thread_pool:ThreadPool")
        app.executor = pool(self.wsgi_threads, self.wsgi_threads_min, self.wsgi_threads_idle or None, "WSGI")
        if self.wsgi_queue is None:
            return app  # type: ignore[no-any-return]
        unavailable = import_from_string("uvicorn.protocols.http.flow_control:service_unavailable")
        refuse = unavailable if self.wsgi_queue_full == "refuse" else None
        places = import_from_string("uvicorn.middleware.wsgi:RequestLimit")
        return places(app, self.wsgi_threads + self.wsgi_queue, refuse)  # type: ignore[no-any-return]

    def _answering_lifecycle(self, app: ASGI3Application) -> LifecycleMiddleware:
        return LifecycleMiddleware(app, f"{self.root_path}{self.lifecycle_path}", self.reporters)

    # The server's questions

    def get_loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop] | None:
        """Return the function that makes the event loop; None leaves it to asyncio's policy.

        Raises:
            SystemExit: ``loop`` is no known name, nor the import string of a callable.
            ModuleNotFoundError: ``loop`` names an implementation whose library is not installed.
        """
        if self.loop is None:
            return None
        if self.loop in LOOP_FACTORIES:
            make_factory = load_known("loop", self.loop, LOOP_FACTORIES[self.loop])
            if make_factory is None:
                return None
            with blaming(f"loop={self.loop!r}"):
                loop_factory: Callable[[], asyncio.AbstractEventLoop] = make_factory(use_subprocess=self.use_subprocess)
        else:
            loop_factory = load_custom_loop(self.loop, LOOP_FACTORIES)
        return loop_factory

    def setup_event_loop(self) -> None:
        """Say that this is gone.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(
            "The `setup_event_loop` method was replaced by `get_loop_factory` in uvicorn 0.36.0: "
            "run the server with `asyncio.run(..., loop_factory=config.get_loop_factory())`."
        )

    def bind_socket(self) -> socket.socket:
        """Bind the one socket that child processes share, log where, and return it, not listening yet.

        Raises:
            SystemExit: the address cannot be bound.
        """
        bound = self._bind(one=True)
        if len(bound) > 1:
            for sock in bound:
                sock.close()
            setting = "bind" if self.bind else f"host={self.host!r}"
            fail("%s names %d sockets: ask for bind_sockets().", setting, len(bound))
        return bound[0]

    def bind_sockets(self) -> list[socket.socket]:
        """Bind all sockets that child processes share, log where, and return them, not listening yet.

        There is one, unless `bind` says otherwise, or the host is not set, or a list.

        Raises:
            SystemExit: an address cannot be bound.
        """
        is_one = not self.bind and isinstance(self.host, str)
        return [self.bind_socket()] if is_one else self._bind()

    def open_udp_slots(self, listeners: Iterable[Any], loops: int, *, is_alone: bool = False) -> UDPSlots:
        """Open the UDP sockets of HTTP/3 beside these TCP sockets, for a number of event loops, and log where.

        With `is_alone` no event loop ever starts while another one serves.

        Raises:
            SystemExit: an address cannot be bound.
        """
        if sys.platform == "win32":
            raise NotImplementedError("HTTP/3 needs Linux")
        else:
            from uvicorn.listening.sockets import datagram_sockets
            from uvicorn.listening.udp_slots import UDPSlots, count_for

            try:
                passed = datagram_sockets(self)
                slots = UDPSlots.open(listeners, 1 if is_alone else count_for(loops), passed)
            except OSError as exc:
                fail("%s", exc, hint=getattr(exc, "hint", None))
            slots.log(loops)
            return slots

    def _bind(self, *, one: bool = False) -> list[socket.socket]:
        try:
            return bind_sockets(self, logger, one=one)
        except OSError as exc:
            fail("%s", exc, hint=getattr(exc, "hint", None))


def _check_http3(implementation: ProtocolFactory) -> None:
    """Refuse implementations that cannot serve HTTP/3.

    Raises:
        ValueError: this one cannot.
    """
    from uvicorn.listening.udp import native_listener

    if not getattr(implementation, "speaks_http3", False):
        raise ValueError(f"HTTP/3 needs the native core{core_advice()}")
    if native_listener() is None:
        raise ValueError("this build of the native core has no HTTP/3: install uvicorn again.")
    if isinstance(implementation, type) and (names := replaced(implementation)):
        raise ValueError(f"HTTP/3 would not call {', '.join(names)}, which the program overrides.")


def __getattr__(name: str) -> Any:
    if name == "WSGIMiddleware":
        # Few applications need its imports.
        return import_from_string("uvicorn.middleware.wsgi:WSGIMiddleware")
    if name == "create_ssl_context":
        return import_from_string("uvicorn.tls.context:create_ssl_context")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _is_spawning() -> bool:
    """Whether the object is being pickled for a child process."""
    context = sys.modules.get("multiprocessing.context")
    return context is not None and context.get_spawning_popen() is not None


def _read_log_config(path: str) -> Any:
    """Read a logging configuration in JSON or YAML; `open` is looked up in this module."""
    if path.endswith(".json"):
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    try:
        import yaml
    except ImportError:
        raise ImportError("YAML needs PyYAML: pip install 'uvicorn[standard]', or write it in JSON.") from None
    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file)
