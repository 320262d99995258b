"""The table: every setting once, with its type, its default and what it does.

Derived from it are the parameters of ``Config``, the command line and its ``UVICORN_*`` variables, the signature of
``run`` and ``docs/settings.md`` (the last two are written by ``scripts/sync-settings``). A new setting is one row here,
keyword-only, and one run of that script.

Rows are in the order in which ``Config`` takes its positional arguments, which is older than this table.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

from uvicorn._declare import declarative, rows_of, setting
from uvicorn._types import ASGIApplication
from uvicorn.logging import LOG_LEVELS, LOGGING_CONFIG
from uvicorn.worker_events import WorkerEvent

if TYPE_CHECKING:
    from configparser import RawConfigParser

    # One setting is a function of the configuration: the only name from above this layer.
    from uvicorn.config import Config

HTTPProtocolType = Literal["auto", "h11", "httptools", "zttp", "native"]
WSProtocolType = Literal["auto", "none", "websockets", "websockets-sansio", "wsproto", "native"]
LifespanType = Literal["auto", "on", "off"]
LoopFactoryType = Literal["none", "auto", "asyncio", "uvloop", "zuvloop"]
InterfaceType = Literal["auto", "asgi3", "asgi2", "wsgi"]
WhenFullType = Literal["wait", "refuse"]
ProfileType = Literal["process", "thread", "hybrid", "auto"]
CountType = int | Literal["auto"]
ExtensionType = Literal[
    "http.response.trailers",
    "http.response.early_hint",
    "http.response.pathsend",
    "http.response.zerocopysend",
    "tls",
    "all",
]

MinVersionType = Literal["1.0", "1.1", "1.2", "1.3"]
TicketsType = Literal["own", "shared", "none"]
StartType = Literal["auto", "spawn", "fork"]

LONGEST = 10**9
"""Seconds, about 31 years: clocks can count that far."""

MOST_PROCESSES = 1024
"""Workers, or event loops of one: more than any machine has processors for; the parent has two descriptors for each."""

MOST_THREADS = 10_000
"""Threads of a process."""

ANY_TLS = ("ssl_certfile", "ssl_keyfile", "ssl_context_factory")
"""What turns TLS on."""

AUTO: Literal["auto"] = "auto"
"""A number that follows from the machine."""

SSL_PROTOCOL_VERSION = ssl.PROTOCOL_TLS_SERVER

DEFAULT_GRACEFUL_SHUTDOWN = 25
"""Seconds a graceful shutdown may take when ``timeout_graceful_shutdown`` is None."""


@declarative
class Settings:
    """One attribute per setting; ``Config`` adds what follows from them."""

    app: ASGIApplication | Callable[..., Any] | str = setting(
        section="Application",
        help="The application: an object, or an import string `module:attribute`. "
        "Reloading and several workers need the import string.",
    )
    host: str | Sequence[str] | None = setting(
        default="127.0.0.1",
        section="Socket",
        help="Bind a TCP socket to this host. A name may stand for several addresses; `::` is every address, IPv6 and "
        "IPv4 where the system allows it; `0.0.0.0` every IPv4 address. From Python, None is `0.0.0.0` and `::`.",
    )
    port: int = setting(
        default=8000,
        section="Socket",
        minimum=0,
        maximum=65535,
        help="Bind a TCP socket to this port; 0 picks a free one and logs which.",
    )
    uds: str | os.PathLike[str] | None = setting(
        default=None,
        section="Socket",
        check="uvicorn.sockets:check_unix_path",
        help="Bind a Unix domain socket at this path instead. Everybody may connect: restrict the directory around it.",
    )
    fd: int | None = setting(
        default=None,
        section="Socket",
        minimum=0,
        maximum=2**31 - 1,
        help="Take over the socket with this file descriptor instead of binding one.",
    )
    loop: LoopFactoryType | str = setting(
        default="auto",
        section="Implementations",
        help="Event loop: a name or the import string of a function that returns a new loop. "
        "`auto` is uvloop where it is installed, else asyncio; `none` leaves the choice to asyncio's policy.",
    )
    http: type[asyncio.Protocol] | HTTPProtocolType | str = setting(
        default="auto",
        section="Implementations",
        none_is_default=True,
        help="HTTP implementation: a name, or the import string of an asyncio protocol class. "
        "`auto` is the native core or, where that was not built, `httptools`, else `h11`: Python, which reads requests "
        "with that library. `zttp` is another name for `native`.",
    )
    http2: bool = setting(
        default=False,
        section="Implementations",
        protocols=True,
        help="Speak HTTP/2 as well, which takes the native core: over TLS where a client asks for it by ALPN, and "
        "without TLS, on the same port, with clients that begin with its preface.",
    )
    ws: type[asyncio.Protocol] | WSProtocolType | str = setting(
        default="auto",
        section="Implementations",
        help="WebSocket implementation: a name, or the import string of an asyncio protocol class. "
        "`auto` is the native core, else websockets-sansio, else wsproto, else none; `none` leaves upgrade requests to "
        "the application; `websockets` is a deprecated name for websockets-sansio.",
    )
    ws_max_size: int = setting(
        default=16777216,
        section="WebSocket",
        unit="bytes",
        minimum=1,
        protocols=True,
        help="Largest message in bytes, after inflation; beyond it close 1009.",
    )
    ws_max_queue: int = setting(
        default=32,
        section="WebSocket",
        none_is_default=True,
        minimum=0,
        protocols=True,
        help="Most messages kept for the application. Only third-party implementations read it: the ones here stop "
        "reading from the connection while a message waits.",
    )
    ws_ping_interval: float | None = setting(
        default=20.0,
        section="WebSocket",
        unit="seconds",
        minimum=0,
        protocols=True,
        help="Seconds between pings; 0 sends none. None, through the Python interface, is the same as 0.",
    )
    ws_ping_timeout: float | None = setting(
        default=20.0,
        section="WebSocket",
        unit="seconds",
        minimum=0,
        protocols=True,
        help="Seconds to wait for the answer to a ping; without one close 1011. None, through the Python interface, "
        "waits forever.",
    )
    ws_per_message_deflate: bool = setting(
        default=True,
        section="WebSocket",
        valued=True,
        protocols=True,
        help="Whether to compress messages of 32 bytes and more when the client offers it (RFC 7692).",
    )
    lifespan: LifespanType = setting(
        default="auto",
        section="Implementations",
        help="Whether the application is told of start and end. `auto` goes on when it does not know the protocol, "
        "`on` stops, `off` never asks.",
    )
    env_file: str | os.PathLike[str] | None = setting(
        default=None,
        section="Application",
        exists=True,
        help="File with environment variables, loaded before anything else reads them. It does not replace variables "
        "that are set, cannot hold `UVICORN_*` variables, and needs python-dotenv.",
    )
    log_config: dict[str, Any] | str | os.PathLike[str] | RawConfigParser | IO[Any] | None = setting(
        default=LOGGING_CONFIG,
        section="Logging",
        exists=True,
        help="Logging configuration file: .json and .yaml for dictConfig, anything else for fileConfig. YAML needs "
        "PyYAML. The Python interface also takes a dict, a file object, a RawConfigParser, and None, which configures "
        "nothing.",
    )
    log_level: str | int | None = setting(
        default=None,
        section="Logging",
        any_case=True,
        choices=tuple(LOG_LEVELS),
        help="Level of the server's loggers, instead of the one in the logging configuration (info). "
        "`trace` shows each ASGI message. The Python interface also takes a number.",
    )
    access_log: bool = setting(
        default=True, section="Logging", none_is_default=True, protocols=True, help="Whether to log each request."
    )
    use_colors: bool | None = setting(
        default=None,
        section="Logging",
        help="Whether log lines are in colour. By default they are where they go to a terminal. Has an effect on the "
        "formatters `default` and `access` of a logging configuration that is a dict.",
    )
    interface: InterfaceType = setting(
        default="auto",
        section="Application",
        help="Interface the application speaks. `auto` tells ASGI 3 from ASGI 2 by looking at it; WSGI must be said.",
    )
    reload: bool = setting(
        default=False,
        section="Development",
        help="Start again when a file changes. The application must be an import string.",
    )
    reload_dirs: Sequence[str | os.PathLike[str]] | str | None = setting(
        default=None,
        section="Development",
        flag="--reload-dir",
        multiple=True,
        exists=True,
        help="Directory to watch, instead of the current one; may be repeated.",
    )
    reload_delay: float = setting(
        default=0.25,
        section="Development",
        unit="seconds",
        minimum=0,
        maximum=LONGEST,
        help="Seconds between two looks at the files.",
    )
    reload_includes: Sequence[str | os.PathLike[str]] | str | None = setting(
        default=None,
        section="Development",
        flag="--reload-include",
        multiple=True,
        help="Glob pattern of files to watch, besides `*.py`; may be repeated. A directory is watched as a whole. "
        "The full name of a file, such as `.env`, wins over what excludes it.",
    )
    reload_excludes: Sequence[str | os.PathLike[str]] | str | None = setting(
        default=None,
        section="Development",
        flag="--reload-exclude",
        multiple=True,
        help="Glob pattern of files not to watch, besides `.*`, `.py[cod]`, `.sw.*` and `~*`; may be repeated. "
        "A pattern given here is taken out of the included ones, the default `*.py` too.",
    )
    workers: CountType | None = setting(
        default=None,
        section="Workers",
        cli_minimum=1,
        maximum=MOST_PROCESSES,
        help="Number of worker processes; by default what the variable WEB_CONCURRENCY says, else 1. `auto` is one for "
        "each processor, or for as many of them as each process has `threads`. Ignored with reload.",
    )
    proxy_headers: bool = setting(
        default=True,
        section="HTTP",
        help="Whether to take client and scheme from X-Forwarded-For and X-Forwarded-Proto of trusted peers.",
    )
    server_header: bool = setting(
        default=True, section="HTTP", help="Whether responses say `server: uvicorn` by themselves."
    )
    date_header: bool = setting(default=True, section="HTTP", help="Whether responses carry a Date by themselves.")
    forwarded_allow_ips: list[str] | str | None = setting(
        default=None,
        section="HTTP",
        help="Peers whose proxy headers are trusted: addresses, networks and literals separated by commas, or `*` for "
        "everybody; by default what the variable FORWARDED_ALLOW_IPS says, else `127.0.0.1,::1`.",
    )
    root_path: str = setting(
        default="",
        section="HTTP",
        none_is_default=True,
        protocols=True,
        help="Path below which the application is mounted: `root_path` of the ASGI scope, in front of each path.",
    )
    limit_concurrency: int | None = setting(
        default=None,
        section="Limits",
        minimum=1,
        protocols=True,
        help="Connections or tasks from which on a request is answered 503. Idle connections count, and so does the "
        "asking one.",
    )
    limit_max_requests: int | None = setting(
        default=None,
        section="Limits",
        minimum=1,
        help="Requests after which the process ends gracefully. With several workers it is replaced.",
    )
    limit_max_requests_jitter: int = setting(
        default=0,
        section="Limits",
        needs=("limit_max_requests",),
        none_is_default=True,
        minimum=0,
        help="Most requests added at random to limit_max_requests, so that workers do not all end at once.",
    )
    backlog: int = setting(
        default=2048,
        section="Socket",
        minimum=0,
        maximum=2**31 - 1,
        help="Most connections the system keeps waiting until they are accepted.",
    )
    timeout_keep_alive: int = setting(
        default=5,
        section="Timeouts",
        none_is_default=True,
        unit="seconds",
        minimum=0,
        protocols=True,
        help="Seconds an idle connection is kept open for the next request.",
    )
    timeout_notify: int = setting(
        default=30,
        section="Timeouts",
        needs=("callback_notify",),
        unit="seconds",
        cli=False,
        run=False,
        minimum=0,
        help="Seconds between two calls of callback_notify.",
    )
    timeout_graceful_shutdown: int | None = setting(
        default=None,
        section="Timeouts",
        unit="seconds",
        help="Seconds until what still runs at shutdown is cancelled; by default 25. 0 cancels at once, a negative "
        "number waits forever.",
    )
    timeout_worker_healthcheck: int = setting(
        default=5,
        section="Workers",
        unit="seconds",
        above=0,
        help="Seconds a worker may take to answer before it is replaced.",
    )
    callback_notify: Callable[..., Awaitable[None]] | None = setting(
        default=None,
        section="Application",
        cli=False,
        run=False,
        help="Function without arguments, awaited every timeout_notify seconds while the server runs.",
    )
    ssl_keyfile: str | os.PathLike[str] | None = setting(
        default=None, section="TLS", help="File with the private key, unless it is in the certificate's file."
    )
    ssl_certfile: str | os.PathLike[str] | None = setting(
        default=None,
        section="TLS",
        help="File with the certificate and those that lead to its authority; turns TLS on.",
    )
    ssl_keyfile_password: str | bytes | Callable[[], str | bytes] | None = setting(
        default=None,
        section="TLS",
        needs=ANY_TLS,
        secret=True,
        help="Password of an encrypted private key. "
        "Better given as a variable: everybody on the machine can read command lines.",
    )
    ssl_version: int = setting(
        default=SSL_PROTOCOL_VERSION,
        section="TLS",
        needs=ANY_TLS,
        help="Protocol constant of the ssl module. 17, PROTOCOL_TLS_SERVER, negotiates the best version both sides "
        "speak.",
    )
    ssl_cert_reqs: int = setting(
        default=ssl.CERT_NONE,
        section="TLS",
        needs=ANY_TLS,
        minimum=0,
        maximum=2,
        help="Whether clients must show a certificate: 0 no, 1 optional, 2 required (constants of the ssl module).",
    )
    ssl_ca_certs: str | os.PathLike[str] | None = setting(
        default=None,
        section="TLS",
        needs=ANY_TLS,
        help="File with the authorities that client certificates are checked against.",
    )
    ssl_ciphers: str | None = setting(
        default=None,
        section="TLS",
        needs=ANY_TLS,
        help="Cipher suites in OpenSSL's notation, instead of OpenSSL's defaults.",
    )
    ssl_context_factory: Callable[[Config, Callable[[], ssl.SSLContext]], ssl.SSLContext] | None = setting(
        default=None,
        section="TLS",
        cli=False,
        help="Function that returns the SSLContext; turns TLS on. It gets the configuration and a function without "
        "arguments that builds the context from the other settings.",
    )
    headers: list[tuple[str, str]] | None = setting(
        default=None,
        section="HTTP",
        parse="uvicorn.default_headers:parse_field",
        check="uvicorn.default_headers:check_field",
        flag="--header",
        multiple=True,
        help="Header field `Name:Value` added to every response; may be repeated. One named Server replaces the "
        "default.",
    )
    factory: bool = setting(
        default=False,
        section="Application",
        help="Whether the application is what calling the given object without arguments returns.",
    )
    h11_max_incomplete_event_size: int | None = setting(
        default=None,
        section="Limits",
        unit="bytes",
        minimum=1,
        protocols=True,
        help="Bytes of an incomplete event that h11 keeps, instead of its own default. limit_request_head bounds all "
        "implementations.",
    )
    reset_contextvars: bool = setting(
        default=False,
        section="Application",
        protocols=True,
        help="Whether requests start in an empty context instead of a copy of the one the server was started in.",
    )
    timeout_request_head: float = setting(
        default=30.0,
        section="Timeouts",
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        protocols=True,
        help="Seconds a request's head may take, from its first byte, or from the connection for the first request; "
        "then 408. A connection that sent nothing closes without an answer. 0 waits forever.",
    )
    timeout_request_body: float = setting(
        default=60.0,
        section="Timeouts",
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        protocols=True,
        help="Seconds to wait for a request's body, then 408. Each 240 bytes received give back one second of those "
        "that have passed, and time stands still while the application does not read. 0 waits forever.",
    )
    timeout_write: float = setting(
        default=60.0,
        section="Timeouts",
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        protocols=True,
        help="Seconds a client may read nothing of what waits for it, response or message, then its connection is "
        "dropped. One that takes 240 bytes a second has that time again. 0 waits forever.",
    )
    timeout_handshake: float = setting(
        default=10.0,
        section="Timeouts",
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        protocols=True,
        help="Seconds a TLS handshake may take; 0 stands for 60.",
    )
    limit_request_head: int = setting(
        default=131072,
        section="Limits",
        unit="bytes",
        kw_only=True,
        minimum=1,
        protocols=True,
        help="Bytes of a request line and header section together; beyond it 431.",
    )
    limit_request_fields: int = setting(
        default=256,
        section="Limits",
        kw_only=True,
        minimum=1,
        protocols=True,
        help="Header fields of a request, or trailer fields; beyond it 431.",
    )
    limit_request_target: int = setting(
        default=65536,
        section="Limits",
        unit="bytes",
        kw_only=True,
        minimum=1,
        protocols=True,
        help="Bytes of a request target; beyond it 414.",
    )
    limit_request_body: int | None = setting(
        default=None,
        section="Limits",
        unit="bytes",
        kw_only=True,
        minimum=0,
        protocols=True,
        help="Bytes of a request body; beyond it 413. By default any.",
    )
    ws_shutdown_code: int = setting(
        default=1012,
        section="WebSocket",
        pattern="1000|1001|1012|1013|[34]\\d{3}",
        form="1000, 1001, 1012, 1013 or from 3000 to 4999",
        kw_only=True,
        protocols=True,
        help="Close code clients get when the server stops: 1012 (service restart), 1001 (going away), 1000, 1013, or "
        "one of your own from 3000 to 4999.",
    )
    access_log_format: str | None = setting(
        default=None,
        section="Logging",
        needs=("access_log",),
        check="uvicorn.access_format:parse_format",
        kw_only=True,
        protocols=True,
        help="What an access line says: `json`, or text with gunicorn's atoms such as `%(h)s`. By default it is what "
        "upstream prints. The page about logging lists the atoms and the keys of the JSON object.",
    )
    timeout_worker_ready: float = setting(
        default=300.0,
        section="Workers",
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        help="Seconds a new worker may take until it serves, imports and start-up included, before its restart is "
        "given up and the old one kept; at least timeout_worker_healthcheck. 0 waits forever.",
    )
    drain_delay: float = setting(
        default=0.0,
        section="Timeouts",
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        help="Seconds for which a server that was told to stop goes on accepting, though it is not ready any more. "
        "Load balancers that ask `ready` of lifecycle_path need that time to send clients elsewhere. Workers that are "
        "replaced do not wait, because others serve.",
    )
    lifecycle_path: str | None = setting(
        default=None,
        section="HTTP",
        pattern="/([^?#]*/)?",
        form="a path that begins and ends with a slash",
        kw_only=True,
        protocols=True,
        help="Path below which the server answers `live`, `ready` and `status` itself, such as `/-/`. By default the "
        "application is asked, as for any path.",
    )
    threads: CountType | None = setting(
        default=None,
        section="Workers",
        kw_only=True,
        minimum=1,
        maximum=MOST_PROCESSES,
        help="Event loops of each process, by default 1. They share its memory, and run at the same time on a "
        "free-threaded interpreter. `auto` is one for each processor, shared out to the `workers`. Ignored with "
        "reload.",
    )
    worker_profile: ProfileType | None = setting(
        default=None,
        section="Workers",
        kw_only=True,
        help="What `workers` and `threads` are where they are not given, or `auto`: as many processes as processors "
        "(`process`), as many event loops in one (`thread`), or processes of up to four loops (`hybrid`). `auto` is "
        "`thread` on a free-threaded interpreter, else `process`.",
    )
    wsgi_threads: int = setting(
        default=10,
        section="WSGI",
        needs=("interface=wsgi",),
        kw_only=True,
        minimum=1,
        maximum=MOST_THREADS,
        help="Most threads of a process in which a WSGI application runs. One request takes one of them.",
    )
    wsgi_threads_least: int = setting(
        default=0,
        section="WSGI",
        needs=("interface=wsgi",),
        kw_only=True,
        minimum=0,
        maximum=MOST_THREADS,
        help="How many of these threads are made when the application is loaded, and kept; the others come when they "
        "are needed.",
    )
    wsgi_threads_idle: float = setting(
        default=60.0,
        section="WSGI",
        needs=("interface=wsgi",),
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        help="Seconds after which one of the others ends that has nothing to do. 0 keeps it.",
    )
    wsgi_queue: int | None = setting(
        default=None,
        section="WSGI",
        needs=("interface=wsgi",),
        kw_only=True,
        minimum=0,
        help="Requests that may wait for a thread, their bodies being read meanwhile; by default any number.",
    )
    wsgi_queue_full: WhenFullType = setting(
        default="wait",
        section="WSGI",
        needs=("wsgi_queue",),
        kw_only=True,
        help="What becomes of a request that finds `wsgi_queue` full: it waits, its body unread, or is refused with "
        "503 at once.",
    )
    preload: bool = setting(
        default=False,
        section="Workers",
        kw_only=True,
        help="Import the application once, in the parent, and fork the workers, which share its memory until they "
        "write to it. Needs a system that forks safely, and an application whose import starts no threads; changed "
        "code takes a restart of the parent.",
    )
    metrics: str | None = setting(
        default=None,
        section="Workers",
        check="uvicorn.sockets:parse_address",
        form="HOST:PORT",
        kw_only=True,
        help="Tell what the server counts, summed up over its workers, as Prometheus reads it, at this `HOST:PORT`, by "
        "default nowhere. Whoever can reach it can read it.",
    )
    limit_worker_lifetime: float | None = setting(
        default=None,
        section="Workers",
        unit="seconds",
        kw_only=True,
        above=0,
        maximum=LONGEST,
        help="Seconds a worker serves before it is replaced. It serves on until its replacement does. A single process "
        "gets a parent for this.",
    )
    limit_worker_lifetime_jitter: float = setting(
        default=0.0,
        section="Workers",
        needs=("limit_worker_lifetime",),
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        help="Most seconds added at random to limit_worker_lifetime, so that workers are not all replaced at once.",
    )
    limit_worker_memory: int | None = setting(
        default=None,
        section="Workers",
        unit="MiB",
        kw_only=True,
        minimum=1,
        maximum=2**30,
        help="MiB of memory a worker may occupy before it is replaced. The parent looks once a second at what is "
        "resident. A single process gets a parent for this.",
    )
    limit_worker_crashes: int | None = setting(
        default=10,
        section="Workers",
        kw_only=True,
        minimum=0,
        help="Stop the parent after N workers in a row died before they had served for 10 seconds. It exits with "
        "status 3, unless another worker serves. 0 keeps trying, in the end every 8 seconds.",
    )
    on_worker_event: Callable[[WorkerEvent], object] | None = setting(
        default=None,
        section="Workers",
        kw_only=True,
        cli=False,
        help="Function that the parent calls with each `uvicorn.worker_events.WorkerEvent`: a worker was started, "
        "serves, is replaced, has ended, has crashed, was killed. It must not take long.",
    )
    asgi_extensions: Sequence[ExtensionType] | ExtensionType | None = setting(
        default=None,
        section="HTTP",
        kw_only=True,
        flag="--asgi-extension",
        multiple=True,
        protocols=True,
        help="ASGI extension that scopes of requests offer; may be repeated. By default none: frameworks change what "
        "they send where they see one, and middleware that does not know the message fails, such as one that "
        "compresses and is handed the path of a file.",
    )

    bind: Sequence[str] | str | None = setting(
        default=None,
        section="Socket",
        check="uvicorn.sockets:place_of",
        kw_only=True,
        multiple=True,
        help="Listen at this place: `HOST:PORT`, `[IPv6]:PORT`, `unix:PATH`, `fd:NUMBER`, `systemd` for the sockets "
        "that systemd has opened, or `systemd:NAME` for those of a name. May be repeated, and takes the place of host, "
        "port, uds and fd; a host that has several addresses gets a socket for each.",
    )
    forwarded_headers: Sequence[str] | str = setting(
        default="x-forwarded-for,x-forwarded-proto",
        section="HTTP",
        needs=("proxy_headers",),
        check="uvicorn.middleware.proxy_headers:parse_fields",
        kw_only=True,
        help="Which proxy headers of trusted peers are believed, separated by commas: `x-forwarded-for`, "
        "`x-forwarded-proto`, `x-forwarded-host`, `x-forwarded-port` and `x-forwarded-prefix`, or `forwarded` alone. "
        "Name those that the proxy sets on each request, since others come from clients.",
    )
    forwarded_hops: int | None = setting(
        default=None,
        section="HTTP",
        needs=("proxy_headers",),
        kw_only=True,
        minimum=1,
        help="How many proxies stand in front: the client is so many from the end of the chain that they write. By "
        "default it is the last in there that is not trusted.",
    )
    proxy_protocol: bool = setting(
        default=False,
        section="HTTP",
        kw_only=True,
        help="Expect a PROXY header, version 1 or 2, in front of every connection of a trusted peer "
        "(`forwarded_allow_ips`, and every Unix socket): client, server and, if it says so, TLS are those that it "
        "tells of. Peers that are not trusted are served as they are.",
    )
    proxy_protocol_trusted_clients: list[str] | str | None = setting(
        default=None,
        section="HTTP",
        needs=("proxy_protocol",),
        kw_only=True,
        help="With `proxy_protocol`, the clients whose proxy headers and request ids are trusted: proxies that read "
        "requests and connect through the one that sends PROXY headers. Addresses, networks and literals separated by "
        "commas; by default nobody, since a proxy that passes bytes on cannot take off what a client has written.",
    )
    limit_connections: int | None = setting(
        default=None,
        section="Limits",
        kw_only=True,
        minimum=1,
        help="Connections that a process has at a time. Further ones wait in the backlog until others end.",
    )
    limit_connections_per_address: int | None = setting(
        default=None,
        section="Limits",
        kw_only=True,
        minimum=1,
        help="Connections that a process has at a time of one address, or of one network of IPv6 (/64). Further ones "
        "are closed, with 503 in the clear. Behind a proxy it takes `proxy_protocol`; Unix sockets do not count.",
    )
    limit_buffers: int = setting(
        default=256,
        section="Limits",
        unit="MiB",
        kw_only=True,
        minimum=0,
        maximum=2**30,
        help="MiB that a process holds of responses and messages that clients have not taken. Above it, connections of "
        "clients that do not read are reset, those that hold most first. 0 is any number.",
    )
    request_id: bool = setting(
        default=False,
        section="HTTP",
        kw_only=True,
        protocols=True,
        help="Give each request an id: what a trusted proxy says in `X-Request-ID` or `traceparent`, else one that is "
        'made. It is in `scope["request_id"]`, in the response, and the atom `%(request_id)s` of `access_log_format`.',
    )
    request_id_header: str = setting(
        default="x-request-id",
        section="HTTP",
        needs=("request_id",),
        check="uvicorn.request_id:check_header",
        kw_only=True,
        protocols=True,
        help="The field that has it, of requests and responses.",
    )
    debug_requests: bool = setting(
        default=False,
        section="Logging",
        kw_only=True,
        help="List the requests in flight, with their age, task and stack, and what has blocked the event loop: in the "
        "log at each SIGUSR1, and with `metrics` at `/requests` of that address, for those on the same machine "
        "who know the token that the log says.",
    )
    debug_requests_query: bool = setting(
        default=False,
        section="Logging",
        needs=("debug_requests",),
        kw_only=True,
        help="Show their query strings, too, which may hold secrets.",
    )
    debug_slow_callback: float = setting(
        default=0.1,
        section="Logging",
        needs=("debug_requests",),
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        help="Seconds after which what keeps the event loop from turning is slow, and remembered by debug_requests; 0 "
        "watches nothing.",
    )
    systemd: bool = setting(
        default=False,
        section="Workers",
        kw_only=True,
        help="Tell systemd when the service is ready, reloads or stops, and that it is alive, if it asks for that "
        "(units of `Type=notify` or `notify-reload`, `WatchdogSec=`).",
    )
    http2_max_concurrent_streams: int = setting(
        default=128,
        section="HTTP/2",
        needs=("http2",),
        kw_only=True,
        minimum=1,
        maximum=2**31 - 1,
        protocols=True,
        help="Requests of one connection that can be in hand at a time. One whose client has given it up counts until "
        "its application has ended; more are refused, and can be sent again.",
    )
    http2_initial_window_size: int = setting(
        default=65536,
        section="HTTP/2",
        needs=("http2",),
        unit="bytes",
        kw_only=True,
        minimum=1,
        maximum=2**31 - 1,
        protocols=True,
        help="Bytes of a request's body that a client may send before they are read, 2147483647 at most. Of requests "
        "that are read as fast as they come this grows, to 8 MiB each and 16 MiB for a connection.",
    )
    http2_max_frame_size: int = setting(
        default=16384,
        section="HTTP/2",
        needs=("http2",),
        unit="bytes",
        kw_only=True,
        minimum=16384,
        maximum=2**24 - 1,
        protocols=True,
        help="Bytes of a frame that clients may send, 16777215 at most.",
    )
    http2_max_header_list_size: int | None = setting(
        default=None,
        section="HTTP/2",
        needs=("http2",),
        unit="bytes",
        kw_only=True,
        minimum=1,
        maximum=2**32 - 1,
        protocols=True,
        help="Bytes of the fields of a request, decoded, of which each counts 32 more; beyond it 431. By default as "
        "many as limit_request_head.",
    )
    http2_ping_interval: float = setting(
        default=20.0,
        section="HTTP/2",
        needs=("http2",),
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        protocols=True,
        help="Seconds of silence after which a client is asked whether it is there; 0 asks nobody.",
    )
    http2_ping_timeout: float = setting(
        default=20.0,
        section="HTTP/2",
        needs=("http2",),
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        protocols=True,
        help="Seconds it may take to answer before its connection is dropped.",
    )
    limit_active_requests: CountType | None = setting(
        default=None,
        section="Limits",
        kw_only=True,
        minimum=1,
        protocols=True,
        help="Requests whose applications run at a time in one process. More wait in a short queue, and beyond that "
        "they are answered 503 by the server itself. `auto` finds out how many, from how long they take. Idle "
        "connections do not count, nor requests that wait for their clients; of a WebSocket the handshake does. A "
        "client below its share is served beyond the number, up to a quarter of it.",
    )
    limit_queue: int = setting(
        default=100,
        section="Limits",
        needs=("limit_active_requests",),
        kw_only=True,
        minimum=0,
        protocols=True,
        help="Requests that may wait while limit_active_requests are active; 0 refuses them at once.",
    )
    timeout_queue: float = setting(
        default=0.1,
        section="Timeouts",
        needs=("limit_active_requests",),
        unit="seconds",
        kw_only=True,
        above=0,
        maximum=LONGEST,
        protocols=True,
        help="Seconds a request may wait in that queue, then 503. Once the queue was not empty for that long it is a "
        "twentieth, except for clients below their share, and the newest are served first.",
    )
    limit_exempt: Sequence[str] | str | None = setting(
        default=None,
        section="Limits",
        needs=("limit_active_requests",),
        pattern="/[^?#*]*\\*?",
        form="a path that begins with a slash, with a `*` at most at its end",
        kw_only=True,
        multiple=True,
        protocols=True,
        help="Path that is served whatever limit_active_requests says, such as that of a probe; with `*` at its end "
        "all paths that begin so. May be repeated. Those of lifecycle_path always are.",
    )
    retry_after: int = setting(
        default=1,
        section="Limits",
        needs=("limit_active_requests",),
        unit="seconds",
        kw_only=True,
        minimum=1,
        maximum=LONGEST,
        protocols=True,
        help="Seconds after which a client may come again that limit_active_requests had refused: `retry-after`.",
    )

    ssl_cert: Sequence[str] | str | None = setting(
        default=None,
        section="TLS",
        check="uvicorn.tls:NamedCertificate.parse",
        kw_only=True,
        multiple=True,
        help="Certificate for clients that ask for a name (SNI), as `HOST=FILE,KEY`, or `HOST=FILE` where the key is "
        "in the same file; may be repeated. HOST is a name, or `*.` and a name for all that have one label more. "
        "Others get that of ssl_certfile, which is needed.",
    )
    ssl_min_version: MinVersionType | None = setting(
        default=None,
        section="TLS",
        needs=ANY_TLS,
        kw_only=True,
        help="Lowest version of TLS that is spoken, by default 1.2. For those below, ciphers are offered that OpenSSL "
        "takes for too weak otherwise, unless ssl_ciphers says which.",
    )
    ssl_reload: float | None = setting(
        default=None,
        section="TLS",
        needs=ANY_TLS,
        unit="seconds",
        kw_only=True,
        minimum=0,
        maximum=LONGEST,
        help="Seconds between two looks whether the files of ssl_certfile, ssl_keyfile, ssl_ca_certs, ssl_crl and "
        "ssl_cert have other contents; new connections then use those, if they are good. 0 looks only when a single "
        "process gets SIGHUP, which makes any other number look at once, too. By default they are read once.",
    )
    mount: Sequence[str] | str | None = setting(
        default=None,
        section="Files",
        check="uvicorn.mounts:parse_mount",
        kw_only=True,
        multiple=True,
        help="Answer requests below a path with the files of a directory, without the application: `/static=DIR`. May "
        "be repeated.",
    )
    mount_cache_control: Sequence[str] | str = setting(
        default="no-cache",
        section="Files",
        needs=("mount",),
        check="uvicorn.mounts:parse_cache_control",
        kw_only=True,
        multiple=True,
        lines=True,
        help="Cache-Control of the files of every `mount`, or of one: `/static=public,max-age=31536000,immutable`. May "
        "be repeated. By default clients may keep files and ask each time whether they have changed. Empty says "
        "nothing.",
    )

    ssl_tickets: TicketsType = setting(
        default="own",
        section="TLS",
        needs=ANY_TLS,
        kw_only=True,
        help="Who can read the tickets by which clients that come back are spared most of a handshake: the event loop "
        "that has written them (`own`), all workers (`shared`, where the interpreter is known), or nobody, because "
        "there are `none`.",
    )

    ssl_crl: str | os.PathLike[str] | None = setting(
        default=None,
        section="TLS",
        needs=ANY_TLS,
        kw_only=True,
        help="File with lists of client certificates that were revoked (CRL, in PEM form). Then each authority that "
        "has issued one that clients show needs a list there that has not expired.",
    )
    ssl_client_errors: bool = setting(
        default=False,
        section="TLS",
        needs=ANY_TLS,
        kw_only=True,
        help="Whether clients are served whose certificates cannot be verified. The application must look at "
        "`client_cert_error` of the extension `tls`, which asgi_extensions has to offer. Otherwise such a handshake "
        "fails.",
    )

    worker_start: StartType = setting(
        default="auto",
        section="Workers",
        kw_only=True,
        help="How workers start: each as a new interpreter (`spawn`), or forked from a parent that has imported the "
        "server, but not the application, which takes much less time (`fork`; an error says why not). `auto` forks "
        "where the parent has nothing but the server, which takes Linux and the command line, and else spawns.",
    )

    allow_skipped_overrides: bool = setting(
        default=False,
        section="Implementations",
        kw_only=True,
        help="Serve although a program overrides methods of a protocol class that this implementation never calls. "
        "Otherwise such a class ends the start.",
    )

    def __post_init__(self) -> None:
        """Derive what follows from the arguments; here nothing does."""

    def __repr__(self) -> str:
        """Show the settings that differ from their defaults; secrets only by name."""
        given = [
            f"{name}={'...' if row.secret else repr(value)}"
            for name, row in ROWS.items()
            if (value := getattr(self, name)) is not row.default and value != row.default and value != []
        ]
        return f"{type(self).__name__}({', '.join(given)})"


ROWS = rows_of(Settings)
"""The table, by name of the setting."""


class Relation(NamedTuple):
    """What the values of some settings mean for each other.

    Attributes:
        settings: those at fault.
        holds: whether a configuration has such values.
        text: the end of a sentence that begins with these settings and their values.
        is_fatal: whether the configuration is refused; otherwise a warning is logged.
    """

    settings: tuple[str, ...]
    holds: Callable[[Config], object]
    text: str
    is_fatal: bool = True


RELATIONS = (
    Relation(("bind", "uds"), lambda c: c.bind and c.uds, "name all places in bind, as unix:PATH."),
    Relation(("bind", "fd"), lambda c: c.bind and c.fd is not None, "name all places in bind, as fd:NUMBER."),
    Relation(
        ("ssl_cert",),
        lambda c: c.ssl_cert and not (c.ssl_certfile or c.ssl_context_factory),
        "clients that ask for another name, or for none, need ssl_certfile.",
    ),
    Relation(
        ("ssl_crl",),
        lambda c: c.ssl_crl is not None and not c.ssl_cert_reqs and c.ssl_context_factory is None,
        "only ssl_cert_reqs asks clients for certificates.",
    ),
    Relation(
        ("ssl_client_errors",),
        lambda c: c.ssl_client_errors and "tls" not in c.asgi_extensions,
        "applications learn of the errors by the extension tls, which asgi_extensions has to name.",
    ),
    Relation(
        ("ssl_client_errors",),
        lambda c: c.ssl_client_errors and (not c.ssl_cert_reqs or c.ssl_context_factory is not None),
        "it needs ssl_cert_reqs, and a context that ssl_context_factory does not make.",
    ),
    Relation(
        ("ssl_tickets",),
        lambda c: c.ssl_tickets != "own" and c.ssl_context_factory is not None,
        "tickets belong to the context, which ssl_context_factory makes.",
    ),
    Relation(
        ("wsgi_threads", "wsgi_threads_least"),
        lambda c: c.wsgi_threads < c.wsgi_threads_least,
        "wsgi_threads must be at least wsgi_threads_least.",
    ),
    Relation(
        ("systemd",),
        lambda c: c.systemd and c.should_reload,
        "a server that reloads is for development, and no service.",
    ),
    Relation(("preload",), lambda c: c.preload and c.reload, "reload loads the application anew in each child."),
    Relation(
        ("preload",),
        lambda c: c.preload and c.worker_start == "spawn",
        "worker_start='spawn' loads the application anew in each worker.",
    ),
    Relation(
        ("preload",),
        lambda c: c.preload and sys.platform in ("win32", "darwin"),
        "this system cannot fork safely.",
    ),
    Relation(("worker_start",), lambda c: c.worker_start == "fork" and c.reload, "reload spawns its children."),
    Relation(("host",), lambda c: c.bind and c.is_given("host"), "is ignored: bind says where to listen.", False),
    Relation(("port",), lambda c: c.bind and c.is_given("port"), "is ignored: bind says where to listen.", False),
    Relation(("uds",), lambda c: c.uds and c.fd is not None, "is ignored: fd is the socket.", False),
    Relation(
        ("ssl_cert_reqs",),
        lambda c: c.ssl_cert_reqs == ssl.CERT_REQUIRED and c.lacks_authorities,
        "rejects every client: ssl_ca_certs names no authorities to check their certificates against.",
        False,
    ),
    Relation(
        ("ssl_cert_reqs",),
        lambda c: c.ssl_cert_reqs == ssl.CERT_OPTIONAL and c.lacks_authorities,
        "rejects every client that shows a certificate: ssl_ca_certs names no authorities to check it against.",
        False,
    ),
    Relation(
        ("preload",),
        lambda c: c.preload and not c.use_subprocess,
        "is ignored: a single process has no parent that could load the application.",
        False,
    ),
)
"""What relates settings to each other, beside `Row.needs`."""
