"""The command line and ``run``, its equal in Python: from settings to a running server, and to the exit status.

Every option comes from a row of ``uvicorn.config.settings``, and so does the signature of ``run``, which
``scripts/sync-settings`` writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import logging.config
import os
import re
import socket
import ssl
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from uvicorn._types import ASGIApplication, ExtensionType
from uvicorn.config import (
    INTERFACES,
    LIFESPAN,
    LOG_LEVELS,
    LOGGING_CONFIG,
    SSL_PROTOCOL_VERSION,
    Config,
    HTTPProtocolType,
    InterfaceType,
    LifespanType,
    LoopFactoryType,
    WSProtocolType,
)
from uvicorn.config.errors import STARTUP_FAILURE, blaming, exit_status, fail, report_error
from uvicorn.config.implementations import banner
from uvicorn.config.options import TableCommand, misspelt_variables, option_of
from uvicorn.config.settings import (
    PREFIX,
    ROWS,
    CountType,
    MinVersionType,
    OnDisconnectType,
    ProfileType,
    StartType,
    TicketsType,
    TLSType,
    WhenFullType,
)
from uvicorn.importer import print_import_error
from uvicorn.listening import handover
from uvicorn.listening.sockets import close_later
from uvicorn.server import Server
from uvicorn.serving.init_signals import handle_as_default, is_init
from uvicorn.worker_events import WorkerEvent

if TYPE_CHECKING:
    from configparser import RawConfigParser

    from uvicorn.config.settings_file import PoolSettings
    from uvicorn.listening.systemd import Share
    from uvicorn.supervisors import ChangeReload, Multiprocess
    from uvicorn.supervisors.threaded import ThreadedServer

__all__ = [
    "INTERFACES",
    "INTERFACE_CHOICES",
    "LEVEL_CHOICES",
    "LIFESPAN",
    "LIFESPAN_CHOICES",
    "LOGGING_CONFIG",
    "LOG_LEVELS",
    "SSL_PROTOCOL_VERSION",
    "STARTUP_FAILURE",
    "ChangeReload",
    "Config",
    "Multiprocess",
    "Server",
    "main",
    "print_version",
    "run",
]

LEVEL_CHOICES = click.Choice(list(LOG_LEVELS))
LIFESPAN_CHOICES = click.Choice(list(LIFESPAN))
INTERFACE_CHOICES = click.Choice(list(INTERFACES))

POOLS = "uvicorn.pools"
"""Where a context keeps the pools of a settings file."""

EXPLICIT_SOURCES = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
"""Sources that take precedence over a file."""

logger = logging.getLogger("uvicorn.error")


def print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print version, interpreter and system, and which HTTP implementation ``auto`` picks here, and exit."""
    if not value or ctx.resilient_parsing:
        return
    import platform

    import uvicorn

    interpreter = f"{platform.python_implementation()} {platform.python_version()}"
    click.echo(f"Running uvicorn {uvicorn.__version__} with {interpreter} on {platform.system()}")
    click.echo(_what_serves())
    ctx.exit()


def _read_settings_file(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    """Apply the settings of a file wherever the command line and the environment set nothing."""
    if path is None or ctx.resilient_parsing:
        return
    from uvicorn.config.settings_file import SettingsFileError, read_settings

    try:
        found = read_settings(path)
    except SettingsFileError as exc:
        raise click.BadParameter(f"{path}: {exc}", ctx=ctx, param=param) from None
    ctx.default_map = found.settings
    if found.pools:
        ctx.meta[POOLS] = found.pools
        # Each pool may name one; pools without one are reported later.
        ctx.default_map.setdefault("app", "")


def _what_serves() -> str:
    """Say what this is, and which HTTP implementation ``auto`` picks here."""
    return banner(importlib.import_module("uvicorn.protocols.http.auto").core())


def _require_fork(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """``--check --require-fork`` needs no application."""
    if value and not ctx.resilient_parsing:
        ctx.default_map = {"app": "", **(ctx.default_map or {})}


def _parameters() -> Iterator[click.Parameter]:
    # The first, as upstream's: programs make commands of the others, which know their application.
    # Unlike those of options, variables of arguments do not follow from the prefix.
    yield click.Argument(["app"], envvar="UVICORN_APP")
    # Eager, because the values of the file are the defaults of the other options.
    yield click.Option(
        ["--config"],
        type=click.Path(exists=True, dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=_read_settings_file,
        help="Read settings from this TOML file; the command line and the environment override it.",
    )
    for name, row in ROWS.items():
        if row.cli and name != "app":
            yield option_of(row)
    yield click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=print_version,
        help="Display the version and exit.",
    )
    yield click.Option(
        ["--check"],
        is_flag=True,
        allow_from_autoenv=False,
        help="Load the application, the settings and the certificates, say what would be served, and exit.",
    )
    yield click.Option(
        ["--require-fork"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_require_fork,
        help="Fail where upstream is installed, which has no such option. With `--check` it needs no application.",
    )
    yield click.Option(
        ["--app-dir"],
        default="",
        help="Look for the application in this directory first, instead of the current one.",
    )


def _start(app: Any, **options: Any) -> None:
    """Call ``run`` with the settings of the command line; one that cannot be honoured ends in one line.

    Programs call this for their own application, in commands that may have fewer parameters.
    """
    options["app"] = app
    if is_init():
        from uvicorn._subprocess import is_command

        if is_command():
            handle_as_default()
    ctx = click.get_current_context(silent=True)
    is_check = options.pop("check", False)
    pools: list[PoolSettings] = [] if ctx is None else ctx.meta.get(POOLS, [])
    try:
        if pools:
            several = [(pool, _with_defaults(_of_pool(cast(click.Context, ctx), pool, options))) for pool in pools]
            if is_check:
                for pool, own in several:
                    click.echo(f"[pools.{pool.name}]")
                    _check(own, pool.environment)
            else:
                _run_pools(several)
        elif not app and ctx is not None and isinstance(ctx.command, TableCommand):
            if not is_check:
                raise click.MissingParameter(ctx=ctx, param=ctx.command.params[0])
            click.echo(_what_serves())
        elif is_check:
            _check(_with_defaults(options), {})
        else:
            run(**_with_defaults(options))
    except Exception as exc:
        if not logger.hasHandlers():  # the mistake is in the logging configuration
            logging.config.dictConfig(LOGGING_CONFIG)
        if not report_error(exc) and not print_import_error(exc):
            raise
        sys.exit(exit_status(exc))


def _check(options: dict[str, Any], environment: dict[str, str]) -> None:
    """Print the sockets and applications that would be served."""
    from uvicorn.config.checking import findings
    from uvicorn.supervisors.pools import PoolEnvironment

    directory = options.pop("app_dir", None)
    with PoolEnvironment(environment, directory)():
        config = Config(**options)
        _warn_of_misspelt_variables()
        for name, text in findings(config):
            click.echo(f"{name:<12}{text}")


def _with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    return {name: ROWS[name].default if value is None or value == () else value for name, value in options.items()}


def _of_pool(ctx: click.Context, pool: PoolSettings, options: dict[str, Any]) -> dict[str, Any]:
    """The options of one pool: those of the command line and the environment, then of its table, then the rest."""
    own = dict(options)
    for param in ctx.command.params:
        name = param.name or ""
        if name in pool.settings and ctx.get_parameter_source(name) not in EXPLICIT_SOURCES:
            try:
                own[name] = param.process_value(ctx, pool.settings[name])
            except click.BadParameter as exc:
                raise click.BadParameter(f"pools.{pool.name}: {exc.format_message()}", ctx=ctx) from None
    if not own["app"]:
        raise click.BadParameter(f"pools.{pool.name} has no app.", ctx=ctx)
    return own


def _run_pools(pools: Sequence[tuple[PoolSettings, dict[str, Any]]]) -> None:
    """Serve each pool, under one parent."""
    from uvicorn.supervisors.pools import Plan, Pools

    _begin()
    supervisor = Pools([Plan(pool.name, options, pool.environment) for pool, options in pools])
    if sys.platform != "win32":
        supervisor.allow_upgrades()
    _warn_of_misspelt_variables()
    supervisor.run()


def _warn_of_misspelt_variables() -> None:
    for name, meant in misspelt_variables(os.environ, main.params):
        logger.warning("Ignoring the environment variable %s: there is no such setting. Did you mean %s?", name, meant)


def _begin() -> None:
    """Take over from the process that this one replaces, if there is one.

    Raises:
        ValueError: its description is invalid.
    """
    with blaming(handover.VARIABLE):
        handover.begin()


def _upgrade(arguments: Sequence[str]) -> int | None:
    """Run `uvicorn upgrade PID`: return its exit status; None for any other command line."""
    if len(arguments) != 2 or arguments[0] != "upgrade" or re.fullmatch("[0-9]{1,9}", arguments[1]) is None:
        return None
    from uvicorn.supervisors.upgrade_status import upgrade

    try:
        successor = upgrade(int(arguments[1]))
    except RuntimeError as exc:
        click.echo(f"Not upgraded: {exc}", err=True)
        return 1
    click.echo(f"Upgraded: process [{successor}] serves in place of [{arguments[1]}].")
    return 0


INSTEAD = {"help": "--help", "version": "--version", "run": "main:app", "upgrade": "upgrade PID"}
"""First arguments that are commands of other programs, or lack something, and the arguments to give instead."""


class Command(TableCommand):
    """The command `uvicorn`, which also knows `uvicorn upgrade PID`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options, unless the arguments request an upgrade."""
        status = _upgrade(args)
        if status is not None:
            ctx.exit(status)
        if args and args[0] in INSTEAD:
            ctx.fail(f"{args[0]!r} is not an application: write `{ctx.command_path} {INSTEAD[args[0]]}`.")
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show two examples."""
        formatter.write("\n  uvicorn main:app --reload     # `app` in main.py, while you develop it\n")
        formatter.write("  uvicorn main:app --workers 4  # the same, in four processes\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Name the other form of the command, too."""
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text("`uvicorn upgrade PID` replaces a running server without closing its port.")


main = Command("main", _parameters, callback=_start, context_settings={"auto_envvar_prefix": PREFIX.rstrip("_")})


# The signature is written by scripts/sync-settings: begin.
def run(
    app: ASGIApplication | Callable[..., Any] | str,
    *,
    host: str | Sequence[str] | None = "127.0.0.1",
    port: int = 8000,
    uds: str | os.PathLike[str] | None = None,
    fd: int | None = None,
    loop: LoopFactoryType | Callable[[], asyncio.AbstractEventLoop] | asyncio.AbstractEventLoop | str = "auto",
    http: type[asyncio.Protocol] | HTTPProtocolType | str = "auto",
    http2: bool = False,
    ws: type[asyncio.Protocol] | WSProtocolType | str = "auto",
    ws_max_size: int = 16777216,
    ws_max_queue: int = 32,
    ws_ping_interval: float | None = 20.0,
    ws_ping_timeout: float | None = 20.0,
    ws_per_message_deflate: bool = True,
    lifespan: LifespanType = "auto",
    env_file: str | os.PathLike[str] | None = None,
    log_config: dict[str, Any] | str | os.PathLike[str] | RawConfigParser | IO[Any] | None = LOGGING_CONFIG,
    log_level: str | int | None = None,
    access_log: bool = True,
    use_colors: bool | None = None,
    interface: InterfaceType = "auto",
    reload: bool = False,
    reload_dirs: Sequence[str | os.PathLike[str]] | str | None = None,
    reload_delay: float = 0.25,
    reload_includes: Sequence[str | os.PathLike[str]] | str | None = None,
    reload_excludes: Sequence[str | os.PathLike[str]] | str | None = None,
    workers: CountType | None = None,
    proxy_headers: bool = True,
    server_header: bool = True,
    date_header: bool = True,
    forwarded_allow_ips: list[str] | str | None = None,
    root_path: str = "",
    limit_concurrency: int | None = None,
    limit_max_requests: int | None = None,
    limit_max_requests_jitter: int = 0,
    backlog: int = 2048,
    timeout_keep_alive: int = 5,
    timeout_graceful_shutdown: int | None = None,
    timeout_worker_healthcheck: int = 5,
    ssl_keyfile: str | os.PathLike[str] | None = None,
    ssl_certfile: str | os.PathLike[str] | None = None,
    ssl_keyfile_password: str | bytes | Callable[[], str | bytes] | None = None,
    ssl_version: int = SSL_PROTOCOL_VERSION,
    ssl_cert_reqs: int = ssl.CERT_NONE,
    ssl_ca_certs: str | os.PathLike[str] | None = None,
    ssl_ciphers: str | None = None,
    ssl_context_factory: Callable[[Config, Callable[[], ssl.SSLContext]], ssl.SSLContext] | None = None,
    headers: list[tuple[str, str]] | None = None,
    factory: bool = False,
    h11_max_incomplete_event_size: int | None = None,
    reset_contextvars: bool = False,
    timeout_request_head: float = 30.0,
    timeout_request_body: float = 60.0,
    timeout_write: float = 60.0,
    timeout_handshake: float = 10.0,
    limit_request_head: int = 131072,
    limit_request_fields: int = 256,
    limit_request_target: int = 65536,
    limit_request_body: int | None = None,
    ws_shutdown_code: int = 1012,
    access_log_format: str | None = None,
    timeout_worker_ready: float = 300.0,
    drain_delay: float = 0.0,
    lifecycle_path: str | None = None,
    threads: CountType | None = None,
    worker_profile: ProfileType | None = None,
    wsgi_threads: int = 10,
    wsgi_threads_min: int = 0,
    wsgi_threads_idle: float = 60.0,
    wsgi_queue: int | None = None,
    wsgi_queue_full: WhenFullType = "wait",
    preload: bool = False,
    metrics: str | None = None,
    limit_worker_lifetime: float | None = None,
    limit_worker_lifetime_jitter: float = 0.0,
    limit_worker_memory: int | None = None,
    limit_worker_crashes: int | None = 10,
    on_worker_event: Callable[[WorkerEvent], object] | None = None,
    asgi_extensions: Sequence[ExtensionType] | ExtensionType | None = None,
    bind: Sequence[str] | str | None = None,
    forwarded_headers: Sequence[str] | str = "x-forwarded-for,x-forwarded-proto",
    forwarded_hops: int | None = None,
    proxy_protocol: bool = False,
    proxy_protocol_trusted_clients: list[str] | str | None = None,
    limit_connections: int | None = None,
    limit_connections_per_address: int | None = None,
    limit_buffers: int = 256,
    request_id: bool = False,
    request_id_header: str = "x-request-id",
    debug_requests: bool = False,
    debug_requests_query: bool = False,
    stall_threshold: float | None = None,
    systemd: bool = False,
    http2_max_concurrent_streams: int = 128,
    http2_initial_window_size: int = 65536,
    http2_max_frame_size: int = 16384,
    http2_max_header_list_size: int | None = None,
    http2_ping_interval: float = 20.0,
    http2_ping_timeout: float = 20.0,
    limit_active_requests: CountType | None = None,
    limit_queue: int = 100,
    timeout_queue: float = 0.1,
    limit_exempt: Sequence[str] | str | None = None,
    retry_after: int = 1,
    ssl_cert: Sequence[str] | str | None = None,
    ssl_min_version: MinVersionType | None = None,
    ssl_reload: float | None = None,
    mount: Sequence[str] | str | None = None,
    mount_cache_control: Sequence[str] | str = "no-cache",
    ssl_tickets: TicketsType = "own",
    ssl_crl: str | os.PathLike[str] | None = None,
    ssl_client_errors: bool = False,
    worker_start: StartType = "auto",
    allow_skipped_overrides: bool = False,
    on_disconnect: OnDisconnectType = "ignore",
    on_disconnect_grace: float = 0.5,
    on_disconnect_exempt: Sequence[str] | str | None = None,
    metrics_routes: int = 0,
    metrics_buckets: str | None = None,
    probe: str | None = None,
    probe_lateness: float = 1.0,
    otel_endpoint: str | None = None,
    otel_sample_ratio: float | None = None,
    otel_query: bool = False,
    tls: TLSType = "auto",
    http3: bool = False,
    http3_alt_svc: str | None = None,
    http3_early_data: bool = False,
    http3_max_concurrent_streams: int = 128,
    app_dir: str | None = None,
) -> None:
    # The signature is written by scripts/sync-settings: end.
    """Serve an application until a signal stops it; the settings are those of ``uvicorn.config.settings``.

    ``app_dir`` is where the application is looked for first. With ``reload`` or several ``workers`` this process only
    supervises those that serve. Returns after a graceful end.

    Raises:
        SystemExit: the server could not start (status 3).
    """
    arguments = dict(locals())
    del arguments["app_dir"]
    if app_dir is not None:
        sys.path.insert(0, app_dir)
        if reload and not reload_dirs:
            arguments["reload_dirs"] = [os.getcwd(), app_dir]
    _begin()
    config = Config(**arguments)
    if app_dir and not os.path.isdir(app_dir):
        # No mistake if the application is installed.
        logger.warning("The directory %r in which to look for the application does not exist (--app-dir).", app_dir)
    context = click.get_current_context(silent=True)
    if context is not None and context.command is main:
        _warn_of_misspelt_variables()
    server = Server(config=config)
    if config.use_subprocess and _is_imported_by_child():
        fail(
            "uvicorn.run() with 'reload' or 'workers' was called while a worker imported the program. Put the call "
            'below `if __name__ == "__main__":`.'
        )
    if config.use_subprocess and not isinstance(config.app, str):
        logger.warning("You must pass the application as an import string to enable 'reload' or 'workers'.")
        sys.exit(STARTUP_FAILURE)
    try:
        if config.use_subprocess or config.threads > 1:
            _supervise(config, server)
        else:
            # Before there is an event loop, so that a mistake in the application is the first thing to be seen.
            config.load_app()
            config.check_implementations()
            config.log_core(with_banner=True)
            with _upgradeable(config, server, _notify_of(server, 1) if config.systemd else None):
                server.run()
    except KeyboardInterrupt:
        pass
    if not config.use_subprocess and config.threads == 1 and not server.started:
        sys.exit(STARTUP_FAILURE)


def _is_imported_by_child() -> bool:
    """Whether this is a new process of `multiprocessing` that is still importing the program that started it."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and getattr(process.current_process(), "_inheriting", False)


def _upgradeable(
    config: Config, server: Server | ThreadedServer, notifier: Share | None
) -> contextlib.AbstractContextManager[None]:
    """Have signals start a successor of this server in the block."""
    from uvicorn.supervisors.upgrade import ServerUpgrades, Start

    return ServerUpgrades(config, Start.now(), server, notifier).handling_signals()


def _notify_of(server: Server | ThreadedServer, loops: int) -> Share | None:
    """Notify the service manager of a server in this process; each of its event loops feeds the watchdog."""
    from uvicorn.listening.systemd import Reloads, shares_of_service
    from uvicorn.serving.drain import Stage

    shares = shares_of_service(loops)
    if not shares:
        return None
    reloads = Reloads(shares[0], loops)

    def on_stage(stage: Stage) -> None:
        if stage is Stage.SERVING:
            for share, loop in zip(shares, server.loops, strict=True):
                share.ready()
                loop.call_soon_threadsafe(share.beat_on, loop)
        elif stage >= Stage.LEAVING:
            shares[0].stopping()

    server.on_stage = on_stage
    if isinstance(server, Server):
        server.on_reload = partial(reloads.note, 0)
    else:
        server.on_reload = reloads.note
    return shares[0]


def _run_threads(config: Config, sockets: list[socket.socket], clean_up: Callable[[], None]) -> None:
    """Serve on several event loops of this process."""
    from uvicorn.supervisors.threaded import ThreadedServer

    server = ThreadedServer(config)
    server.clean_up = clean_up
    with _upgradeable(config, server, _notify_of(server, config.threads) if config.systemd else None):
        server.run(sockets)
    if not server.started:
        sys.exit(STARTUP_FAILURE)


def _supervise(config: Config, server: Server) -> None:
    """Serve in processes or threads that share sockets; clean up the paths of Unix sockets we have bound."""
    # Through the module, where they are imported when they are first asked for, and may have been replaced.
    this: Any = sys.modules[__name__]
    config.check()
    config.log_core(with_banner=True)
    if not config.should_reload:
        config.log_threads()
    if config.should_reload and handover.current.is_taking_over:
        fail("--reload cannot take over from a running server; restart it instead.")
    sockets = config.bind_sockets()
    with contextlib.ExitStack() as last, contextlib.ExitStack() as stack:
        close_later(stack, config, sockets)
        if not config.use_subprocess:
            _run_threads(config, sockets, stack.close)
            return
        if config.should_reload:
            if config.http3:
                slots = config.open_udp_slots(sockets, 1, is_alone=True)
                last.callback(slots.close)
                server.udp_slots = slots.take()
            supervisor = this.ChangeReload(config, target=server.run, sockets=sockets)
        else:
            supervisor = this.Multiprocess(config, sockets=sockets)
            notifier = None
            if config.systemd:
                from uvicorn.listening.systemd import shares_of_service

                supervisor.notifier = notifier = next(iter(shares_of_service()), None)
            if sys.platform != "win32":
                from uvicorn.supervisors.upgrade import Start, Upgrades

                supervisor.upgrades = upgrades = Upgrades(
                    [config], Start.now(), lambda: sockets, notifier, lambda: {"": supervisor.workers_for_successor()}
                )
                last.callback(upgrades.close)
        supervisor.refuse = stack.close
        supervisor.run()


def __getattr__(name: str) -> Any:
    if name in ("ChangeReload", "Multiprocess"):
        # Most servers are one process: only the others pay for imports that supervising needs.
        return getattr(importlib.import_module("uvicorn.supervisors"), name)
    if name == "ServerState":
        warnings.warn(
            "uvicorn.main.ServerState is deprecated, use uvicorn.server.ServerState instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        return importlib.import_module("uvicorn.server").ServerState
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
