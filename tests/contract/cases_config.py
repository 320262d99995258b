"""`Config` with each of its parameters set to what programs set them to: also what they mean to leave unset."""

from __future__ import annotations

import functools
import inspect
import logging
from typing import Any

import uvicorn

from . import harness

_NAMES = """
    host port uds fd loop http http2 ws ws_max_size ws_max_queue ws_ping_interval ws_ping_timeout
    ws_per_message_deflate lifespan env_file log_config log_level access_log use_colors interface reload
    reload_dirs reload_delay reload_includes reload_excludes workers proxy_headers server_header date_header
    forwarded_allow_ips root_path limit_concurrency limit_max_requests limit_max_requests_jitter backlog
    timeout_keep_alive timeout_notify timeout_graceful_shutdown timeout_worker_healthcheck callback_notify
    ssl_keyfile ssl_certfile ssl_keyfile_password ssl_version ssl_cert_reqs ssl_ca_certs ssl_ciphers
    ssl_context_factory headers factory h11_max_incomplete_event_size reset_contextvars
"""
PARAMETERS = _NAMES.split()
"""Of upstream's `Config`; that they are there is part of what is asked."""

FALSY: dict[str, Any] = {"None": None, "0": 0, "''": "", "False": False, "[]": []}
OF_ITS_OWN: dict[str, dict[str, Any]] = {
    "log_level": {"'INFO'": "INFO", "'Debug'": "Debug", "10": 10, "logging.WARNING": logging.WARNING},
    "headers": {"pairs": [("X-A", "b")], "lists": [["x-a", "b"]], "server": [("Server", "mine")]},
    "forwarded_allow_ips": {
        "'*'": "*",
        "['*']": ["*"],
        "a list": ["10.0.0.0/8", "::1"],
        "with spaces": " 10.0.0.1 , ::1",
    },
    "loop": {"'none'": "none", "'asyncio'": "asyncio", "'uvloop'": "uvloop", "a path": "asyncio:SelectorEventLoop"},
    "http": {"'h11'": "h11", "'httptools'": "httptools", "a path": "uvicorn.protocols.http.h11_impl:H11Protocol"},
    "ws": {
        "'none'": "none",
        "'wsproto'": "wsproto",
        "'websockets-sansio'": "websockets-sansio",
        "'websockets'": "websockets",
    },
    "lifespan": {"'on'": "on", "'off'": "off"},
    "interface": {"'asgi3'": "asgi3", "'asgi2'": "asgi2", "'wsgi'": "wsgi"},
    "root_path": {"'/api'": "/api", "'/api/'": "/api/"},
    "ws_ping_interval": {"0.5": 0.5},
    "timeout_keep_alive": {"1.5": 1.5},
    "timeout_graceful_shutdown": {"1.5": 1.5},
    "limit_concurrency": {"5": 5},
    "workers": {"2": 2},
}


def values_of(parameter: str) -> dict[str, Any]:
    """What it is set to."""
    # The interpreter's own error for an empty path is another with each version.
    falsy = {text: value for text, value in FALSY.items() if (parameter, text) != ("log_config", "''")}
    return {**falsy, **OF_ITS_OWN.get(parameter, {})}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Never called."""


def configured(parameter: str, value: Any) -> dict[str, Any]:
    """The configuration with one parameter set, and what comes of loading it."""
    config = uvicorn.Config(app, **{"log_config": None, parameter: value})
    outcome = {
        "is": getattr(config, parameter, "no attribute"),
        "subprocess": config.use_subprocess,
        "reload": config.should_reload,
        "ssl": config.is_ssl,
        "workers": config.workers,
        "interface": config.interface,
    }
    outcome["load"] = harness.raised(config.load)
    outcome["headers"] = config.encoded_headers if config.loaded else None
    outcome["factory"] = harness.raised(config.get_loop_factory)
    return outcome


def positional() -> list[str]:
    """The names of the positional parameters."""
    return [name for name in inspect.signature(uvicorn.Config).parameters if name in ("app", *PARAMETERS)]


def cases() -> dict[str, harness.Case]:
    """One for each value of each parameter."""
    found: dict[str, harness.Case] = {"positional": positional}
    for parameter in PARAMETERS:
        for text, value in values_of(parameter).items():
            found[f"{parameter}={text}"] = functools.partial(configured, parameter, value)
    return found
