"""The table: every setting once, with its type, its default and its help text.

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

from uvicorn._types import ASGIApplication, ExtensionType
from uvicorn.config._declare import declarative, rows_of, setting
from uvicorn.logging import LOG_LEVELS, LOGGING_CONFIG
from uvicorn.rules import paths
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
MinVersionType = Literal["1.0", "1.1", "1.2", "1.3"]
TicketsType = Literal["own", "shared", "none"]
TLSType = Literal["auto", "rustls", "openssl"]
OnDisconnectType = Literal["ignore", "cancel"]
StartType = Literal["auto", "spawn", "fork"]

MOST_PROCESSES = 1024
"""Workers, or event loops of one: more than any machine has processors for; the parent has two descriptors for each."""

MOST_THREADS = 10_000
"""Threads of a process."""

ANY_TLS = ("ssl_certfile", "ssl_keyfile", "ssl_context_factory")
"""The settings that turn TLS on."""

AUTO: Literal["auto"] = "auto"
"""A number that follows from the machine."""

SSL_PROTOCOL_VERSION = ssl.PROTOCOL_TLS_SERVER

DEFAULT_GRACEFUL_SHUTDOWN = 25
"""Seconds a graceful shutdown may take when ``timeout_graceful_shutdown`` is None."""


@declarative
class Settings:
    """One attribute per setting; ``Config`` adds derived ones."""

    app: ASGIApplication | Callable[..., Any] | str = setting(
        section="Application",
        help="The application: an object, or an import string `module:attribute`. Reloading and several workers need "
        "the import string.",
    )
    host: str | Sequence[str] | None = setting(
        default="127.0.0.1",
        section="Socket",
        check="uvicorn.listening.sockets:check_host",
        help="Bind a TCP socket to this host. A name may stand for several addresses. `0.0.0.0` is every IPv4 address, "
        "`::` every address, IPv4 included where the system allows it. From Python, a list binds each host, and "
        "None `0.0.0.0` and `::`.",
    )
    port: int = setting(
        default=8000,
        section="Socket",
        minimum=0,
        maximum=65535,
        help="Bind a TCP socket to this port; 0 picks a free one and logs it.",
    )
    uds: str | os.PathLike[str] | None = setting(
        default=None,
        section="Socket",
        check="uvicorn.listening.sockets:check_unix_path",
        help="Bind a Unix domain socket at this path instead. All local users may connect: restrict the directory "
        "around it.",
    )
    fd: int | None = setting(
        default=None,
        section="Socket",
        minimum=0,
        maximum=2**31 - 1,
        help="Serve the socket with this file descriptor instead of binding one.",
    )
    loop: LoopFactoryType | Callable[[], asyncio.AbstractEventLoop] | asyncio.AbstractEventLoop | str = setting(
        default="auto",
        section="Implementations",
        help="Event loop: a name, or the import string of a function that returns a new loop. `auto` is uvloop where "
        "it is installed, else asyncio; `none` leaves the choice to asyncio's policy.",
    )
    http: type[asyncio.Protocol] | HTTPProtocolType | str = setting(
        default="auto",
        section="Implementations",
        none_is_default=True,
        help="HTTP implementation: a name, or the import string of an asyncio protocol class. `auto` is the native "
        "core or, where that was not built, `httptools`, else `h11` (both are Python implementations). `zttp` is "
        "another name for `native`.",
    )
    http2: bool = setting(
        default=False,
        section="Implementations",
        protocols=True,
        help="Serve HTTP/2 as well, with the native core: over TLS by ALPN, and in clear text to clients that begin "
        "with its preface.",
    )
    ws: type[asyncio.Protocol] | WSProtocolType | str = setting(
        default="auto",
        section="Implementations",
        help="WebSocket implementation: a name, or the import string of an asyncio protocol class. `auto` is the "
        "native core, else websockets-sansio, else wsproto, else none; `none` leaves upgrade requests to the "
        "application; `websockets` is a deprecated name for websockets-sansio.",
    )
    ws_max_size: int = setting(
        default=16777216,
        section="WebSocket",
        unit="bytes",
        minimum=1,
        protocols=True,
        help="Close with 1009 when a message is larger than N bytes after inflation.",
    )
    ws_max_queue: int = setting(
        default=32,
        section="WebSocket",
        none_is_default=True,
        minimum=0,
        protocols=True,
        help="Stop reading from a connection while N messages, or 64 KiB, wait for the application.",
    )
    ws_ping_interval: float | None = setting(
        default=20.0,
        section="WebSocket",
        unit="seconds",
        minimum=0,
        protocols=True,
        help="Seconds between pings; 0 sends none. From Python, None is the same as 0.",
    )
    ws_ping_timeout: float | None = setting(
        default=20.0,
        section="WebSocket",
        unit="seconds",
        minimum=0,
        protocols=True,
        help="Close with 1011 when a ping has had no answer for N seconds. From Python, None waits forever.",
    )
    ws_per_message_deflate: bool = setting(
        default=True,
        section="WebSocket",
        valued=True,
        protocols=True,
        help="Whether to compress messages of at least 32 bytes when the client offers it (RFC 7692).",
    )
    lifespan: LifespanType = setting(
        default="auto",
        section="Implementations",
        protocols=True,
        help="Whether to run the lifespan protocol. `auto` continues if the application does not support it, `on` "
        "stops, `off` never asks.",
    )
    env_file: str | os.PathLike[str] | None = setting(
        default=None,
        section="Application",
        exists=True,
        help="Load environment variables from this file before anything else reads them. It replaces no variable that "
        "is set, cannot hold `UVICORN_*` variables, and needs python-dotenv.",
    )
    log_config: dict[str, Any] | str | os.PathLike[str] | RawConfigParser | IO[Any] | None = setting(
        default=LOGGING_CONFIG,
        section="Logging",
        exists=True,
        help="Logging configuration file: .json and .yaml for dictConfig, anything else for fileConfig. YAML needs "
        "PyYAML. Python also takes a dict, a file object, a RawConfigParser, and None, which configures nothing.",
    )
    log_level: str | int | None = setting(
        default=None,
        section="Logging",
        any_case=True,
        choices=tuple(LOG_LEVELS),
        help="Level of the server's loggers, instead of that of the logging configuration (info). `trace` logs each "
        "ASGI message. Python also takes a number.",
    )
    access_log: bool = setting(
        default=True, section="Logging", none_is_default=True, protocols=True, help="Whether to log each request."
    )
    use_colors: bool | None = setting(
        default=None,
        section="Logging",
        help="Whether to colour log lines; by default where they go to a terminal. Applies to the formatters `default` "
        "and `access` of a logging configuration that is a dict.",
    )
    interface: InterfaceType = setting(
        default="auto",
        section="Application",
        help="Interface of the application. `auto` tells ASGI 3 from ASGI 2; WSGI must be named.",
    )
    reload: bool = setting(
        default=False,
        section="Development",
        help="Restart when a file changes. The application must be an import string.",
    )
    reload_dirs: Sequence[str | os.PathLike[str]] | str | None = setting(
        default=None,
        section="Development",
        needs=("reload",),
        flag="--reload-dir",
        multiple=True,
        exists=True,
        help="Watch this directory instead of the current one; may be repeated.",
    )
    reload_delay: float = setting(
        default=0.25,
        section="Development",
        unit="seconds",
        minimum=0,
        help="Seconds between two checks of the files.",
    )
    reload_includes: Sequence[str | os.PathLike[str]] | str | None = setting(
        default=None,
        section="Development",
        needs=("reload",),
        flag="--reload-include",
        multiple=True,
        help="Watch files of this glob pattern besides `*.py`; may be repeated. A directory is watched as a whole. The "
        "full name of a file, such as `.env`, overrides what excludes it.",
    )
    reload_excludes: Sequence[str | os.PathLike[str]] | str | None = setting(
        default=None,
        section="Development",
        needs=("reload",),
        flag="--reload-exclude",
        multiple=True,
        help="Ignore files of this glob pattern besides `.*`, `.py[cod]`, `.sw.*` and `~*`; may be repeated. A pattern "
        "given here is removed from the included ones, the default `*.py` too.",
    )
    workers: CountType | None = setting(
        default=None,
        section="Workers",
        cli_minimum=1,
        maximum=MOST_PROCESSES,
        help="Number of worker processes; by default the variable WEB_CONCURRENCY, else 1. `auto` is one for each "
        "processor, or for each group of as many processors as a process has `threads`. Ignored with reload.",
    )
    proxy_headers: bool = setting(
        default=True,
        section="HTTP",
        help="Whether to take client and scheme from X-Forwarded-For and X-Forwarded-Proto of trusted peers.",
    )
    server_header: bool = setting(default=True, section="HTTP", help="Whether to add `server: uvicorn` to responses.")
    date_header: bool = setting(default=True, section="HTTP", help="Whether to add a Date to responses.")
    forwarded_allow_ips: list[str] | str | None = setting(
        default=None,
        section="HTTP",
        help="Trust the proxy headers of these peers: addresses, networks and literals separated by commas, or `*` for "
        "all; by default the variable FORWARDED_ALLOW_IPS, else `127.0.0.1,::1`.",
    )
    root_path: str = setting(
        default="",
        section="HTTP",
        none_is_default=True,
        protocols=True,
        help="Path under which the application is mounted: `root_path` of the ASGI scope, in front of each path.",
    )
    limit_concurrency: int | None = setting(
        default=None,
        section="Limits",
        minimum=1,
        protocols=True,
        help="Reject requests with 503 at N connections or tasks. Idle connections count, and so does the connection "
        "of the request.",
    )
    limit_max_requests: int | None = setting(
        default=None,
        section="Limits",
        minimum=1,
        help="Stop the process gracefully after N requests. With several workers it is replaced.",
    )
    limit_max_requests_jitter: int = setting(
        default=0,
        section="Limits",
        needs=("limit_max_requests",),
        none_is_default=True,
        minimum=0,
        help="Add up to N requests at random to limit_max_requests, so that workers do not all stop at once.",
    )
    backlog: int = setting(
        default=2048,
        section="Socket",
        none_is_default=True,
        minimum=0,
        maximum=2**31 - 1,
        help="Connections that the system queues until they are accepted.",
    )
    timeout_keep_alive: int = setting(
        default=5,
        section="Timeouts",
        none_is_default=True,
        unit="seconds",
        minimum=0,
        protocols=True,
        help="Close an idle connection after N seconds.",
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
        help="Cancel what still runs N seconds after shutdown began, by default 25. 0 cancels at once, a negative "
        "number waits forever.",
    )
    timeout_worker_healthcheck: int = setting(
        default=5,
        section="Workers",
        unit="seconds",
        above=0,
        help="Replace a worker that does not answer for N seconds.",
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
        help="File with the certificate and its chain; turns TLS on.",
    )
    ssl_keyfile_password: str | bytes | Callable[[], str | bytes] | None = setting(
        default=None,
        section="TLS",
        needs=ANY_TLS,
        secret=True,
        help="Password of an encrypted private key. Prefer the variable: all users of the machine can read command "
        "lines.",
    )
    ssl_version: int = setting(
        default=SSL_PROTOCOL_VERSION,
        section="TLS",
        needs=ANY_TLS,
        help="Protocol constant of the ssl module. 17, PROTOCOL_TLS_SERVER, negotiates the best version both sides "
        "support.",
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
        help="Function that returns the SSLContext; turns TLS on. It gets the configuration, and a function without "
        "arguments that builds the context from the other settings.",
    )
    headers: list[tuple[str, str]] | None = setting(
        default=None,
        section="HTTP",
        parse="uvicorn.config.default_headers:parse_field",
        check="uvicorn.config.default_headers:check_field",
        flag="--header",
        multiple=True,
        help="Add the header field `Name:Value` to every response; may be repeated. One named Server replaces the "
        "default.",
    )
    factory: bool = setting(
        default=False,
        section="Application",
        help="Call the given object without arguments; what it returns is the application.",
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
        help="Start requests in an empty context instead of a copy of the one the server was started in.",
    )
    timeout_request_head: float = setting(
        default=30.0,
        section="Timeouts",
        unit="seconds",
        kw_only=True,
        minimum=0,
        protocols=True,
        help="Answer 408 when a request's head is not complete N seconds after its first byte, or after the connection "
        "was made for the first request. A connection that sent nothing closes without an answer. 0 waits "
        "forever.",
    )
    timeout_request_body: float = setting(
        default=60.0,
        section="Timeouts",
        unit="seconds",
        kw_only=True,
        minimum=0,
        protocols=True,
        help="Answer 408 after waiting N seconds for a request's body. Each 240 bytes received give back one of these "
        "seconds, and the clock stops while the application does not read. 0 waits forever.",
    )
    timeout_write: float = setting(
        default=60.0,
        section="Timeouts",
        unit="seconds",
        kw_only=True,
        minimum=0,
        protocols=True,
        help="Reset a connection whose client has read nothing of a response or message for N seconds. Reading 240 "
        "bytes a second restarts the clock. 0 waits forever.",
    )
    timeout_handshake: float = setting(
        default=10.0,
        section="Timeouts",
        unit="seconds",
        kw_only=True,
        minimum=0,
        protocols=True,
        help="Close a connection whose PROXY header and TLS handshake take longer than N seconds; 0 stands for 60.",
    )
    limit_request_head: int = setting(
        default=131072,
        section="Limits",
        unit="bytes",
        kw_only=True,
        minimum=1,
        protocols=True,
        help="Answer 431 when request line and header section exceed N bytes together.",
    )
    limit_request_fields: int = setting(
        default=256,
        section="Limits",
        kw_only=True,
        minimum=1,
        protocols=True,
        help="Answer 431 when a request has more than N header fields, or trailer fields.",
    )
    limit_request_target: int = setting(
        default=65536,
        section="Limits",
        unit="bytes",
        kw_only=True,
        minimum=1,
        protocols=True,
        help="Answer 414 when a request target exceeds N bytes.",
    )
    limit_request_body: int | None = setting(
        default=None,
        section="Limits",
        unit="bytes",
        kw_only=True,
        minimum=0,
        protocols=True,
        help="Answer 413 when a request body exceeds N bytes; by default any size is accepted.",
    )
    ws_shutdown_code: int = setting(
        default=1012,
        section="WebSocket",
        pattern="1000|1001|1012|1013|[34]\\d{3}",
        form="1000, 1001, 1012, 1013 or from 3000 to 4999",
        kw_only=True,
        protocols=True,
        help="Close code that clients get when the server stops: 1012 (service restart), 1001 (going away), 1000, "
        "1013, or one of your own from 3000 to 4999.",
    )
    access_log_format: str | None = setting(
        default=None,
        section="Logging",
        needs=("access_log",),
        check="uvicorn.access.format:parse_format",
        kw_only=True,
        protocols=True,
        help="Format of access lines: `json`, or text with gunicorn's atoms such as `%(h)s`; by default that of "
        "upstream. The page about logging lists atoms and JSON keys.",
    )
    timeout_worker_ready: float = setting(
        default=300.0,
        section="Workers",
        unit="seconds",
        kw_only=True,
        minimum=0,
        help="Kill a new worker that does not serve after N seconds, imports and start-up included, and start another; "
        "a restart is aborted and keeps the old worker. At least timeout_worker_healthcheck. If none of the first "
        "workers serves by then, the parent stops. 0 waits forever.",
    )
    drain_delay: float = setting(
        default=0.0,
        section="Timeouts",
        unit="seconds",
        kw_only=True,
        minimum=0,
        help="Keep accepting for N seconds after the signal to stop, while `ready` of lifecycle_path already fails. "
        "Load balancers need that time to send clients elsewhere. Workers that are replaced do not wait, because "
        "others serve.",
    )
    lifecycle_path: str | None = setting(
        default=None,
        section="HTTP",
        pattern="/([^?#]*/)?",
        form="a path that begins and ends with a slash",
        kw_only=True,
        protocols=True,
        help="Answer `live`, `ready` and `status` below this path, such as `/-/`, instead of asking the application.",
    )
    threads: CountType | None = setting(
        default=None,
        section="Workers",
        kw_only=True,
        minimum=1,
        maximum=MOST_PROCESSES,
        help="Event loops of each process, by default 1. They share its memory, and run in parallel on a free-threaded "
        "interpreter. `auto` is one for each processor, divided among the `workers`. Ignored with reload.",
    )
    worker_profile: ProfileType | None = setting(
        default=None,
        section="Workers",
        kw_only=True,
        help="Number of `workers` and `threads` where they are not given, or `auto`: as many processes as processors "
        "(`process`), as many event loops in one (`thread`), or processes of up to four loops (`hybrid`). `auto` "
        "is `thread` on a free-threaded interpreter, else `process`.",
    )
    wsgi_threads: int = setting(
        default=10,
        section="WSGI",
        needs=("interface=wsgi",),
        kw_only=True,
        minimum=1,
        maximum=MOST_THREADS,
        help="Maximum number of threads per process for a WSGI application. Each request takes one.",
    )
    wsgi_threads_min: int = setting(
        default=0,
        section="WSGI",
        needs=("interface=wsgi",),
        kw_only=True,
        minimum=0,
        maximum=MOST_THREADS,
        help="Threads started when the application is loaded, and kept; the others start when they are needed.",
    )
    wsgi_threads_idle: float = setting(
        default=60.0,
        section="WSGI",
        needs=("interface=wsgi",),
        unit="seconds",
        kw_only=True,
        minimum=0,
        help="Stop one of the other threads after N idle seconds. 0 keeps it.",
    )
    wsgi_queue: int | None = setting(
        default=None,
        section="WSGI",
        needs=("interface=wsgi",),
        kw_only=True,
        minimum=0,
        help="Requests that may wait for a thread while their bodies are read; by default any number.",
    )
    wsgi_queue_full: WhenFullType = setting(
        default="wait",
        section="WSGI",
        needs=("wsgi_queue",),
        kw_only=True,
        help="What happens to a request when `wsgi_queue` is full: it waits with its body unread (`wait`), or is "
        "rejected with 503 (`refuse`).",
    )
    preload: bool = setting(
        default=False,
        section="Workers",
        kw_only=True,
        help="Import the application once, in the parent, and fork the workers, which share its memory until they "
        "write to it. Needs a system that forks safely, and an application whose import starts no threads; "
        "changed code needs a restart of the parent.",
    )
    metrics: str | None = setting(
        default=None,
        section="Workers",
        check="uvicorn.listening.sockets:parse_address",
        form="HOST:PORT",
        kw_only=True,
        help="Serve metrics of all workers in Prometheus' format at this `HOST:PORT`. The endpoint has no "
        "authentication.",
    )
    limit_worker_lifetime: float | None = setting(
        default=None,
        section="Workers",
        unit="seconds",
        kw_only=True,
        above=0,
        help="Replace a worker after N seconds. It serves until its replacement does. A single process gets a parent "
        "for this.",
    )
    limit_worker_lifetime_jitter: float = setting(
        default=0.0,
        section="Workers",
        needs=("limit_worker_lifetime",),
        unit="seconds",
        kw_only=True,
        minimum=0,
        help="Add up to N seconds at random to limit_worker_lifetime, so that workers are not all replaced at once.",
    )
    limit_worker_memory: int | None = setting(
        default=None,
        section="Workers",
        unit="MiB",
        kw_only=True,
        minimum=1,
        maximum=2**30,
        help="Replace a worker that occupies more than N MiB. The parent checks its resident memory once a second. A "
        "single process gets a parent for this.",
    )
    limit_worker_crashes: int | None = setting(
        default=10,
        section="Workers",
        kw_only=True,
        minimum=0,
        help="Stop the parent after N workers in a row died before they had served for 10 seconds. It exits with "
        "status 3, unless another worker serves. 0 keeps trying, at most 8 seconds apart.",
    )
    on_worker_event: Callable[[WorkerEvent], object] | None = setting(
        default=None,
        section="Workers",
        kw_only=True,
        cli=False,
        help="Function that the parent calls with each `uvicorn.worker_events.WorkerEvent`: a worker was started, "
        "serves, is replaced, has ended, has crashed, was killed. It must return quickly.",
    )
    asgi_extensions: Sequence[ExtensionType] | ExtensionType | None = setting(
        default=None,
        section="HTTP",
        kw_only=True,
        flag="--asgi-extension",
        multiple=True,
        protocols=True,
        help="Offer this ASGI extension in the scopes of requests; may be repeated. Frameworks change what they send "
        "where they see one, and middleware that does not know the message fails, such as one that compresses and "
        "gets the path of a file.",
    )

    bind: Sequence[str] | str | None = setting(
        default=None,
        section="Socket",
        check="uvicorn.listening.sockets:place_of",
        kw_only=True,
        multiple=True,
        help="Listen here instead of host, port, uds and fd: `HOST:PORT`, `[IPv6]:PORT`, `unix:PATH`, `fd:NUMBER`, "
        "`systemd` for the sockets that systemd has opened, or `systemd:NAME` for those of a name. May be "
        "repeated. A host with several addresses gets a socket for each.",
    )
    forwarded_headers: Sequence[str] | str = setting(
        default="x-forwarded-for,x-forwarded-proto",
        section="HTTP",
        needs=("proxy_headers",),
        check="uvicorn.middleware.proxy_headers:parse_fields",
        kw_only=True,
        help="Proxy headers that are believed of trusted peers, separated by commas: `x-forwarded-for`, "
        "`x-forwarded-proto`, `x-forwarded-host`, `x-forwarded-port` and `x-forwarded-prefix`, or `forwarded` "
        "alone. Name those that the proxy sets on each request; others come from clients.",
    )
    forwarded_hops: int | None = setting(
        default=None,
        section="HTTP",
        needs=("proxy_headers",),
        kw_only=True,
        minimum=1,
        help="Number of proxies in front: the Nth address from the right of the forwarded chain is the client. By "
        "default it is the last address that is not trusted.",
    )
    proxy_protocol: bool = setting(
        default=False,
        section="HTTP",
        kw_only=True,
        help="Require a PROXY header, version 1 or 2, on every connection of a trusted peer (`forwarded_allow_ips`, "
        "and every Unix socket). The header gives the addresses of client and server and, optionally, the use of "
        "TLS. Other peers are served normally.",
    )
    proxy_protocol_trusted_clients: list[str] | str | None = setting(
        default=None,
        section="HTTP",
        needs=("proxy_protocol",),
        kw_only=True,
        help="Trust the proxy headers and request ids of these clients behind `proxy_protocol`: proxies that read "
        "requests and connect through the one that sends PROXY headers. Addresses, networks and literals "
        "separated by commas; by default none, since a proxy that forwards bytes cannot remove what a client has "
        "written.",
    )
    limit_connections: int | None = setting(
        default=None,
        section="Limits",
        kw_only=True,
        minimum=1,
        help="Accept at most N connections in a process. Further ones wait in the listen backlog.",
    )
    limit_connections_per_address: int | None = setting(
        default=None,
        section="Limits",
        kw_only=True,
        minimum=1,
        help="Accept at most N connections from one address, or one IPv6 network (/64), in a process. Further ones are "
        "closed, with 503 in clear text. Behind a proxy it needs `proxy_protocol`; Unix sockets do not count.",
    )
    limit_buffers: int = setting(
        default=256,
        section="Limits",
        unit="MiB",
        kw_only=True,
        minimum=0,
        maximum=2**30,
        help="Hold at most N MiB of responses and messages that clients have not read. Above it, connections of "
        "clients that do not read are reset, those that hold most first. 0 is no limit.",
    )
    request_id: bool = setting(
        default=False,
        section="HTTP",
        kw_only=True,
        protocols=True,
        help="Give each request an id: that of a trusted proxy in `X-Request-ID` or `traceparent`, else a new one. It "
        'is in `scope["request_id"]`, in the response, and in the atom `%(request_id)s` of `access_log_format`.',
    )
    request_id_header: str = setting(
        default="x-request-id",
        section="HTTP",
        needs=("request_id",),
        check="uvicorn.access.request_id:check_header",
        kw_only=True,
        protocols=True,
        help="Field of requests and responses that carries the id.",
    )
    debug_requests: bool = setting(
        default=False,
        section="Logging",
        kw_only=True,
        help="List requests in flight with their age, task and stack, and what blocked the event loop: in the log at "
        "each SIGUSR1, and with `metrics` at `/requests` of that address, for local users who have the token from "
        "the log, who can also measure profiles (`/profile`) and the growth of memory (`/memory`) there.",
    )
    debug_requests_query: bool = setting(
        default=False,
        section="Logging",
        needs=("debug_requests",),
        kw_only=True,
        help="Also show the query strings of requests in flight, which may contain secrets.",
    )
    stall_threshold: float | None = setting(
        default=None,
        section="Logging",
        unit="seconds",
        kw_only=True,
        minimum=0,
        help="Attribute turns of the event loop longer than N seconds to a route, a kind and a stack: in the log, in "
        "the metrics, and with `metrics` at `/stalls` of that address. 0 disables that. By default 0.1 with "
        "debug_requests and otherwise disabled.",
    )
    systemd: bool = setting(
        default=False,
        section="Workers",
        kw_only=True,
        help="Notify systemd when the service is ready, reloads or stops, and that it is alive, where the unit asks "
        "for it (`Type=notify` or `notify-reload`, `WatchdogSec=`).",
    )
    http2_max_concurrent_streams: int = setting(
        default=128,
        section="HTTP/2",
        needs=("http2",),
        kw_only=True,
        minimum=1,
        maximum=2**31 - 1,
        protocols=True,
        help="Requests of one connection that may be in progress at a time. A request that its client has reset counts "
        "until the application returns. Requests beyond the limit are refused and can be retried.",
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
        help="Bytes of a request body that a client may send before they are read. For requests that are read as fast "
        "as they arrive it grows, to 8 MiB each and 16 MiB for a connection.",
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
        help="Bytes of a frame that clients may send.",
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
        help="Answer 431 when the fields of a request exceed N bytes, decoded, counting 32 extra bytes per field; "
        "by default as limit_request_head.",
    )
    http2_ping_interval: float = setting(
        default=20.0,
        section="HTTP/2",
        needs=("http2",),
        unit="seconds",
        kw_only=True,
        minimum=0,
        protocols=True,
        help="Ping a client after N silent seconds; 0 sends no pings.",
    )
    http2_ping_timeout: float = setting(
        default=20.0,
        section="HTTP/2",
        needs=("http2",),
        unit="seconds",
        kw_only=True,
        minimum=0,
        protocols=True,
        help="Close the connection when a ping has had no answer for N seconds.",
    )
    limit_active_requests: CountType | None = setting(
        default=None,
        section="Limits",
        kw_only=True,
        minimum=1,
        protocols=True,
        help="Run at most N requests at a time in one process. More wait in a short queue; beyond that the server "
        "answers 503. `auto` finds the number from how long requests take. Idle connections do not count, nor "
        "requests that wait for their clients; of a WebSocket the handshake counts. A client below its share is "
        "served beyond N, by up to a quarter of it, or by 2.",
    )
    limit_queue: int = setting(
        default=100,
        section="Limits",
        needs=("limit_active_requests",),
        kw_only=True,
        minimum=0,
        protocols=True,
        help="Queue at most N requests while limit_active_requests are active; 0 rejects them at once.",
    )
    timeout_queue: float = setting(
        default=0.1,
        section="Timeouts",
        needs=("limit_active_requests",),
        unit="seconds",
        kw_only=True,
        above=0,
        protocols=True,
        help="Answer 503 after N seconds in the queue of limit_active_requests. After a rejection the wait drops to "
        "N/20 and the newest request goes first, until N seconds pass without one; clients below their share keep N.",
    )
    limit_exempt: Sequence[str] | str | None = setting(
        default=None,
        section="Limits",
        needs=("limit_active_requests",),
        pattern=paths.PATTERN,
        form=paths.FORM,
        kw_only=True,
        multiple=True,
        protocols=True,
        help="Serve this path regardless of limit_active_requests, such as that of a probe; with `*` at its end all "
        "paths with this prefix. May be repeated. Paths of lifecycle_path are always exempt.",
    )
    retry_after: int = setting(
        default=1,
        section="Limits",
        needs=("limit_active_requests",),
        unit="seconds",
        kw_only=True,
        minimum=1,
        protocols=True,
        help="Seconds in the `retry-after` of a 503 of limit_active_requests.",
    )

    ssl_cert: Sequence[str] | str | None = setting(
        default=None,
        section="TLS",
        check="uvicorn.tls.context:NamedCertificate.parse",
        kw_only=True,
        multiple=True,
        help="Certificate for clients that ask for a name (SNI): `HOST=FILE,KEY`, or `HOST=FILE` with the key in the "
        "same file; may be repeated. HOST is a name, or `*.example.org` for its direct subdomains. Others "
        "get that of ssl_certfile, which is needed.",
    )
    ssl_min_version: MinVersionType | None = setting(
        default=None,
        section="TLS",
        needs=ANY_TLS,
        kw_only=True,
        help="Lowest TLS version, by default 1.2. Lower ones also offer ciphers that OpenSSL considers too weak "
        "otherwise, unless ssl_ciphers is set.",
    )
    ssl_reload: float | None = setting(
        default=None,
        section="TLS",
        needs=ANY_TLS,
        unit="seconds",
        kw_only=True,
        minimum=0,
        help="Check every N seconds whether the files of ssl_certfile, ssl_keyfile, ssl_ca_certs, ssl_crl and ssl_cert "
        "have changed; new connections then use them, if they are valid. 0 checks only when a single process gets "
        "SIGHUP, which triggers a check in any case. By default they are read once.",
    )
    mount: Sequence[str] | str | None = setting(
        default=None,
        section="Files",
        check="uvicorn.config.mounts:parse_mount",
        kw_only=True,
        multiple=True,
        help="Answer requests below a path with the files of a directory, without the application: `/static=DIR`. May "
        "be repeated.",
    )
    mount_cache_control: Sequence[str] | str = setting(
        default="no-cache",
        section="Files",
        needs=("mount",),
        check="uvicorn.config.mounts:parse_cache_control",
        kw_only=True,
        multiple=True,
        lines=True,
        help="Cache-Control of the files of every `mount`, or of one: `/static=public,max-age=31536000,immutable`. May "
        "be repeated. By default clients may keep files and must revalidate them. Empty sends none.",
    )

    ssl_tickets: TicketsType = setting(
        default="own",
        section="TLS",
        needs=ANY_TLS,
        kw_only=True,
        help="Session tickets, which spare returning clients most of a handshake: readable by the event loop that "
        "wrote them (`own`), by all workers (`shared`, with rustls), or `none`.",
    )

    ssl_crl: str | os.PathLike[str] | None = setting(
        default=None,
        section="TLS",
        needs=ANY_TLS,
        kw_only=True,
        help="File with revocation lists of client certificates (CRL, in PEM form). Each authority whose certificates "
        "clients show then needs a list there that has not expired.",
    )
    ssl_client_errors: bool = setting(
        default=False,
        section="TLS",
        needs=ANY_TLS,
        kw_only=True,
        help="Serve clients whose certificates cannot be verified, instead of failing the handshake; needs rustls. The "
        "application must check `client_cert_error` of the extension `tls`, which asgi_extensions must offer.",
    )

    worker_start: StartType = setting(
        default="auto",
        section="Workers",
        kw_only=True,
        help="How workers start: each as a new interpreter (`spawn`), or forked from a parent that has imported the "
        "server but not the application, which is much faster (`fork`; fails with the reason where that is unsafe). "
        "`auto` forks where the parent holds nothing but the server, on Linux from the command line, and otherwise "
        "spawns.",
    )

    allow_skipped_overrides: bool = setting(
        default=False,
        section="Implementations",
        kw_only=True,
        help="Serve although a program overrides methods of a protocol class that this implementation never calls. "
        "Otherwise such a class is an error at start.",
    )

    on_disconnect: OnDisconnectType = setting(
        default="ignore",
        section="Application",
        kw_only=True,
        protocols=True,
        help="When a client disconnects before its response is complete, `cancel` the application's call, or `ignore` "
        "it: then only `receive()` reports the disconnect.",
    )
    on_disconnect_grace: float = setting(
        default=0.5,
        section="Application",
        needs=("on_disconnect=cancel", "asgi_extensions"),
        unit="seconds",
        kw_only=True,
        minimum=0,
        protocols=True,
        help="Seconds that a call has to end by itself before on_disconnect cancels it.",
    )
    on_disconnect_exempt: Sequence[str] | str | None = setting(
        default=None,
        section="Application",
        needs=("on_disconnect=cancel", "asgi_extensions"),
        pattern=paths.PATTERN,
        form=paths.FORM,
        kw_only=True,
        multiple=True,
        protocols=True,
        help="Never cancel requests of this path; with `*` at its end of all paths with this prefix. May be repeated.",
    )
    metrics_routes: int = setting(
        default=0,
        section="Workers",
        kw_only=True,
        minimum=0,
        maximum=4096,
        unit="series",
        needs=("metrics",),
        help="Also count by method and route: the first N of these series, and further ones as `other`. 0 is off.",
    )
    metrics_buckets: str | None = setting(
        default=None,
        section="Workers",
        kw_only=True,
        check="uvicorn.metrics.route_table:parse_bounds",
        form="at most 64 increasing numbers of seconds, separated by commas",
        needs=("metrics_routes",),
        help="Bounds of the histograms by route, in seconds: `0.01,0.1,1`. Default: those of the other histograms.",
    )

    probe: str | None = setting(
        default=None,
        section="Workers",
        check="uvicorn.listening.sockets:parse_address",
        form="HOST:PORT",
        kw_only=True,
        help="Answer `/live` and `/ready` at this `HOST:PORT`, for all workers and even while event loops are blocked.",
    )
    probe_lateness: float = setting(
        default=1.0,
        section="Workers",
        needs=("probe",),
        unit="seconds",
        kw_only=True,
        above=0,
        help="Answer `/ready` of `probe` with 503 while every event loop is blocked for more than N seconds.",
    )

    otel_endpoint: str | None = setting(
        default=None,
        section="Tracing",
        check="uvicorn.tracing.options:check_endpoint",
        kw_only=True,
        help="Send a span of each sampled request and WebSocket to the OpenTelemetry collector at this URL, by OTLP "
        "over HTTP; `env` takes the URL from OTEL_EXPORTER_OTLP_ENDPOINT. Other OTEL_ variables are read only with "
        "this setting.",
    )
    otel_sample_ratio: float | None = setting(
        default=None,
        section="Tracing",
        needs=("otel_endpoint",),
        kw_only=True,
        minimum=0,
        maximum=1,
        help="Sample this share of the requests without a `traceparent`, from 0 to 1; the others follow it. By default "
        "OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG decide, else all are sampled.",
    )
    otel_query: bool = setting(
        default=False,
        section="Tracing",
        needs=("otel_endpoint",),
        kw_only=True,
        help="Put the query of requests into spans. Queries may contain secrets.",
    )
    tls: TLSType = setting(
        default="auto",
        section="TLS",
        needs=ANY_TLS,
        kw_only=True,
        help="What encrypts: `rustls` (less CPU), `openssl`, or rustls unless it lacks something that other "
        "settings ask for (`auto`); the log says so.",
    )
    http3: bool = setting(
        default=False,
        section="HTTP/3",
        kw_only=True,
        protocols=True,
        help="Serve HTTP/3 as well, on the UDP port with the number of each TCP port. It needs Linux, the native core "
        "and TLS by rustls. Responses of HTTP/1.1 and HTTP/2 offer it (Alt-Svc).",
    )
    http3_alt_svc: str | None = setting(
        default=None,
        section="HTTP/3",
        needs=("http3",),
        check="uvicorn.config.default_headers:check_alt_svc",
        kw_only=True,
        help='Value of the field `alt-svc`, where clients reach another port than the server: `h3=":443"; ma=3600`. '
        "`none` sends no such field. By default it names the server's UDP ports, for a day.",
    )
    http3_early_data: bool = setting(
        default=False,
        section="HTTP/3",
        needs=("http3",),
        kw_only=True,
        protocols=True,
        help="Serve requests in early data (0-RTT) of returning clients, which attackers can replay: those with a safe "
        "method, others get 425. Without an address token of an earlier connection they wait for the handshake.",
    )
    http3_max_concurrent_streams: int = setting(
        default=128,
        section="HTTP/3",
        needs=("http3",),
        kw_only=True,
        minimum=1,
        maximum=65536,
        protocols=True,
        help="Requests of one connection that may be in progress at a time. A client waits before it sends more.",
    )

    def __post_init__(self) -> None:
        """Derive further attributes from the arguments; here none."""

    def __repr__(self) -> str:
        """Show the settings that differ from their defaults; secrets only by name."""
        given = [
            f"{name}={'...' if row.secret else repr(value)}"
            for name, row in ROWS.items()
            if (value := getattr(self, name)) is not row.default and value != row.default and value != []
        ]
        return f"{type(self).__name__}({', '.join(given)})"


PREFIX = "UVICORN_"
"""How the variables of settings begin."""

ROWS = rows_of(Settings)
"""The table, by name of the setting."""


class Relation(NamedTuple):
    """A relation between the values of some settings.

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
    Relation(("bind", "uds"), lambda c: c.bind and c.uds, "bind replaces uds: write bind=unix:PATH."),
    Relation(("bind", "fd"), lambda c: c.bind and c.fd is not None, "bind replaces fd: write bind=fd:NUMBER."),
    Relation(
        ("http3",),
        lambda c: c.http3 and sys.platform != "linux",
        "HTTP/3 needs Linux; elsewhere let a proxy serve it.",
    ),
    Relation(
        ("http3",),
        lambda c: c.http3 and not c.is_ssl,
        "HTTP/3 is always encrypted: set ssl_certfile and ssl_keyfile.",
    ),
    Relation(
        ("http3", "tls"),
        lambda c: c.http3 and c.tls == "openssl",
        "HTTP/3 needs rustls: set tls to 'auto' or 'rustls'.",
    ),
    Relation(
        ("http3", "uds"),
        lambda c: c.http3 and c.uds and c.fd is None,
        "HTTP/3 needs an IP address: name both in bind, as HOST:PORT and unix:PATH.",
    ),
    Relation(
        ("http3", "bind"),
        lambda c: c.http3 and c.bind and all(text.startswith("unix:") for text in c.bind),
        "HTTP/3 needs an IP address: add HOST:PORT to bind.",
    ),
    Relation(
        ("http3_early_data",),
        lambda c: c.http3_early_data and c.ssl_tickets == "none",
        "has no effect without session tickets (ssl_tickets='none').",
        is_fatal=False,
    ),
    Relation(
        ("http3", "proxy_protocol"),
        lambda c: c.http3 and c.proxy_protocol,
        "serves HTTP/3 without PROXY headers: only TCP has them, so its clients are the senders of the packets.",
        is_fatal=False,
    ),
    Relation(
        ("ssl_cert",),
        lambda c: c.ssl_cert and not (c.ssl_certfile or c.ssl_context_factory),
        "it needs ssl_certfile, the certificate for clients that ask for another name or none.",
    ),
    Relation(
        ("ssl_crl",),
        lambda c: c.ssl_crl is not None and not c.ssl_cert_reqs and c.ssl_context_factory is None,
        "it needs ssl_cert_reqs, which asks clients for certificates.",
    ),
    Relation(
        ("ssl_client_errors",),
        lambda c: c.ssl_client_errors and "tls" not in c.asgi_extensions,
        "add `tls` to asgi_extensions: applications learn of the errors there.",
    ),
    Relation(
        ("ssl_client_errors",),
        lambda c: c.ssl_client_errors and (not c.ssl_cert_reqs or c.ssl_context_factory is not None),
        "it needs ssl_cert_reqs, and does not work with ssl_context_factory.",
    ),
    Relation(
        ("ssl_client_errors",),
        lambda c: c.ssl_client_errors and c.tls == "openssl",
        "OpenSSL cannot do that: set tls to 'auto' or 'rustls'.",
    ),
    Relation(
        ("ssl_tickets",),
        lambda c: c.ssl_tickets == "shared" and c.tls == "openssl",
        "is ignored: with OpenSSL each event loop has its own (tls='openssl').",
        False,
    ),
    Relation(
        ("ssl_tickets",),
        lambda c: c.ssl_tickets != "own" and c.ssl_context_factory is not None,
        "configure tickets in the context that ssl_context_factory makes.",
    ),
    Relation(
        ("wsgi_threads", "wsgi_threads_min"),
        lambda c: c.wsgi_threads < c.wsgi_threads_min,
        "wsgi_threads must be at least wsgi_threads_min.",
    ),
    Relation(
        ("root_path",),
        lambda c: c.root_path and not c.root_path.startswith("/"),
        "should begin with a slash, as the paths of requests do.",
        is_fatal=False,
    ),
    Relation(
        ("systemd",),
        lambda c: c.systemd and c.should_reload,
        "reload is for development, not for a service.",
    ),
    Relation(("preload",), lambda c: c.preload and c.reload, "reload loads the application again in each child."),
    Relation(
        ("preload",),
        lambda c: c.preload and c.worker_start == "spawn",
        "worker_start='spawn' loads the application again in each worker.",
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
"""All relations between settings, beside `Row.needs`."""
