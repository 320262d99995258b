"""The table: well formed as a whole, and each row reachable from Python, the command line and the environment."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import typing
from configparser import RawConfigParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import uvicorn
from tests.utils import as_cwd
from uvicorn._types import ProtocolConfig
from uvicorn.config import Config
from uvicorn.settings import DEFAULT_GRACEFUL_SHUTDOWN, ROWS, Settings

OPTIONS = {name: row for name, row in ROWS.items() if row.cli and name != "app"}
PYTHON_ONLY = {name: row for name, row in ROWS.items() if not row.cli}


@dataclass
class Sample:
    """A value other than the default: as arguments, as a variable (None: the argument), and in Python."""

    args: list[str]
    value: Any
    variable: str | None = None

    @property
    def environment(self) -> str:
        return self.args[-1] if self.variable is None else self.variable


SAMPLES: dict[str, Sample] = {
    "host": Sample(["--host", "::1"], "::1"),
    "port": Sample(["--port", "9000"], 9000),
    "uds": Sample(["--uds", "x.sock"], "x.sock"),
    "fd": Sample(["--fd", "5"], 5),
    "loop": Sample(["--loop", "asyncio"], "asyncio"),
    "http": Sample(["--http", "mine:Protocol"], "mine:Protocol"),
    "http2": Sample(["--http2"], True, "1"),
    "ws": Sample(["--ws", "none"], "none"),
    "ws_max_size": Sample(["--ws-max-size", "7"], 7),
    "ws_max_queue": Sample(["--ws-max-queue", "7"], 7),
    "ws_ping_interval": Sample(["--ws-ping-interval", "1.5"], 1.5),
    "ws_ping_timeout": Sample(["--ws-ping-timeout", "1.5"], 1.5),
    "ws_per_message_deflate": Sample(["--ws-per-message-deflate", "off"], False),
    "lifespan": Sample(["--lifespan", "on"], "on"),
    "env_file": Sample(["--env-file", "empty.env"], "empty.env"),
    "log_config": Sample(["--log-config", "log.json"], "log.json"),
    "log_level": Sample(["--log-level", "error"], "error"),
    "access_log": Sample(["--no-access-log"], False, "0"),
    "use_colors": Sample(["--no-use-colors"], False, "false"),
    "interface": Sample(["--interface", "asgi2"], "asgi2"),
    "reload": Sample(["--reload"], True, "yes"),
    "reload_dirs": Sample(
        ["--reload-dir", "one", "--reload-dir", "two"], ("one", "two"), os.pathsep.join(("one", "two"))
    ),
    "reload_delay": Sample(["--reload-delay", "0.5"], 0.5),
    "reload_includes": Sample(["--reload-include", "*.a", "--reload-include", "*.b"], ("*.a", "*.b"), "*.a *.b"),
    "reload_excludes": Sample(["--reload-exclude", "*.a", "--reload-exclude", "*.b"], ("*.a", "*.b"), "*.a *.b"),
    "workers": Sample(["--workers", "3"], 3),
    "proxy_headers": Sample(["--no-proxy-headers"], False, "no"),
    "server_header": Sample(["--no-server-header"], False, "off"),
    "date_header": Sample(["--no-date-header"], False, "f"),
    "forwarded_allow_ips": Sample(["--forwarded-allow-ips", "10.0.0.1,10.0.0.2"], "10.0.0.1,10.0.0.2"),
    "root_path": Sample(["--root-path", "/api"], "/api"),
    "limit_concurrency": Sample(["--limit-concurrency", "7"], 7),
    "limit_max_requests": Sample(["--limit-max-requests", "7"], 7),
    "limit_max_requests_jitter": Sample(["--limit-max-requests-jitter", "7"], 7),
    "backlog": Sample(["--backlog", "7"], 7),
    "timeout_keep_alive": Sample(["--timeout-keep-alive", "7"], 7),
    "timeout_graceful_shutdown": Sample(["--timeout-graceful-shutdown", "-1"], -1),
    "timeout_worker_healthcheck": Sample(["--timeout-worker-healthcheck", "7"], 7),
    "ssl_keyfile": Sample(["--ssl-keyfile", "not-there.key"], "not-there.key"),
    "ssl_certfile": Sample(["--ssl-certfile", "not-there.pem"], "not-there.pem"),
    "ssl_keyfile_password": Sample(["--ssl-keyfile-password", "hush"], "hush"),
    "ssl_version": Sample(["--ssl-version", "5"], 5),
    "ssl_cert_reqs": Sample(["--ssl-cert-reqs", "2"], 2),
    "ssl_ca_certs": Sample(["--ssl-ca-certs", "not-there.pem"], "not-there.pem"),
    "ssl_ciphers": Sample(["--ssl-ciphers", "ECDHE"], "ECDHE"),
    "headers": Sample(["--header", "A:b", "--header", "C:d"], [["A", "b"], ["C", "d"]], "A:b C:d"),
    "factory": Sample(["--factory"], True, "true"),
    "h11_max_incomplete_event_size": Sample(["--h11-max-incomplete-event-size", "7"], 7),
    "reset_contextvars": Sample(["--reset-contextvars"], True, "on"),
    "timeout_request_head": Sample(["--timeout-request-head", "1.5"], 1.5),
    "timeout_request_body": Sample(["--timeout-request-body", "1.5"], 1.5),
    "timeout_write": Sample(["--timeout-write", "1.5"], 1.5),
    "timeout_handshake": Sample(["--timeout-handshake", "1.5"], 1.5),
    "limit_request_head": Sample(["--limit-request-head", "7"], 7),
    "limit_request_fields": Sample(["--limit-request-fields", "7"], 7),
    "limit_request_target": Sample(["--limit-request-target", "7"], 7),
    "limit_request_body": Sample(["--limit-request-body", "7"], 7),
    "ws_shutdown_code": Sample(["--ws-shutdown-code", "1001"], 1001),
    "access_log_format": Sample(["--access-log-format", "%(h)s %({referer}i)s"], "%(h)s %({referer}i)s"),
    "timeout_worker_ready": Sample(["--timeout-worker-ready", "7.5"], 7.5),
    "drain_delay": Sample(["--drain-delay", "7.5"], 7.5),
    "lifecycle_path": Sample(["--lifecycle-path", "/-/"], "/-/"),
    "threads": Sample(["--threads", "3"], 3),
    "worker_profile": Sample(["--worker-profile", "hybrid"], "hybrid"),
    "wsgi_threads": Sample(["--wsgi-threads", "4"], 4),
    "wsgi_threads_least": Sample(["--wsgi-threads-least", "2"], 2),
    "wsgi_threads_idle": Sample(["--wsgi-threads-idle", "7.5"], 7.5),
    "wsgi_queue": Sample(["--wsgi-queue", "3"], 3),
    "wsgi_queue_full": Sample(["--wsgi-queue-full", "refuse"], "refuse"),
    "preload": Sample(["--preload"], True, "yes"),
    "metrics": Sample(["--metrics", "127.0.0.1:9100"], "127.0.0.1:9100"),
    "limit_worker_lifetime": Sample(["--limit-worker-lifetime", "7.5"], 7.5),
    "limit_worker_lifetime_jitter": Sample(["--limit-worker-lifetime-jitter", "7.5"], 7.5),
    "limit_worker_memory": Sample(["--limit-worker-memory", "7"], 7),
    "limit_worker_crashes": Sample(["--limit-worker-crashes", "7"], 7),
    "asgi_extensions": Sample(
        ["--asgi-extension", "http.response.pathsend", "--asgi-extension", "http.response.trailers"],
        ("http.response.pathsend", "http.response.trailers"),
        "http.response.pathsend http.response.trailers",
    ),
    "bind": Sample(["--bind", "127.0.0.1:0", "--bind", "unix:s"], ("127.0.0.1:0", "unix:s"), "127.0.0.1:0 unix:s"),
    "forwarded_headers": Sample(["--forwarded-headers", "forwarded"], "forwarded"),
    "forwarded_hops": Sample(["--forwarded-hops", "2"], 2),
    "proxy_protocol": Sample(["--proxy-protocol"], True, "on"),
    "proxy_protocol_trusted_clients": Sample(["--proxy-protocol-trusted-clients", "10.0.0.7"], "10.0.0.7"),
    "limit_connections": Sample(["--limit-connections", "1000"], 1000),
    "limit_connections_per_address": Sample(["--limit-connections-per-address", "20"], 20),
    "limit_buffers": Sample(["--limit-buffers", "64"], 64),
    "request_id": Sample(["--request-id"], True, "1"),
    "request_id_header": Sample(["--request-id-header", "x-trace"], "x-trace"),
    "debug_requests": Sample(["--debug-requests"], True, "1"),
    "debug_requests_query": Sample(["--debug-requests-query"], True, "1"),
    "debug_slow_callback": Sample(["--debug-slow-callback", "0.5"], 0.5),
    "systemd": Sample(["--systemd"], True, "on"),
    "http2_max_concurrent_streams": Sample(["--http2-max-concurrent-streams", "7"], 7),
    "http2_initial_window_size": Sample(["--http2-initial-window-size", "7"], 7),
    "http2_max_frame_size": Sample(["--http2-max-frame-size", "16385"], 16385),
    "http2_max_header_list_size": Sample(["--http2-max-header-list-size", "7"], 7),
    "http2_ping_interval": Sample(["--http2-ping-interval", "7.5"], 7.5),
    "http2_ping_timeout": Sample(["--http2-ping-timeout", "7.5"], 7.5),
    "limit_active_requests": Sample(["--limit-active-requests", "auto"], "auto"),
    "limit_queue": Sample(["--limit-queue", "7"], 7),
    "timeout_queue": Sample(["--timeout-queue", "0.5"], 0.5),
    "limit_exempt": Sample(["--limit-exempt", "/a", "--limit-exempt", "/b/*"], ("/a", "/b/*"), "/a /b/*"),
    "retry_after": Sample(["--retry-after", "7"], 7),
    "ssl_cert": Sample(
        ["--ssl-certfile", "c", "--ssl-cert", "a.test=a.pem,a.key", "--ssl-cert", "*.b.test=b.pem"],
        ("a.test=a.pem,a.key", "*.b.test=b.pem"),
        "a.test=a.pem,a.key *.b.test=b.pem",
    ),
    "ssl_min_version": Sample(["--ssl-min-version", "1.3"], "1.3"),
    "ssl_reload": Sample(["--ssl-reload", "7.5"], 7.5),
    "mount": Sample(["--mount", "/one=one", "--mount", "/=two"], ("/one=one", "/=two"), "/one=one /=two"),
    "mount_cache_control": Sample(
        ["--mount-cache-control", "no-store", "--mount-cache-control", "/static=public, max-age=60"],
        ("no-store", "/static=public, max-age=60"),
        "no-store\n/static=public, max-age=60",
    ),
    "ssl_tickets": Sample(["--ssl-tickets", "none"], "none"),
    "ssl_crl": Sample(["--ssl-crl", "revoked.pem"], "revoked.pem"),
    "ssl_client_errors": Sample(["--ssl-client-errors"], True, "yes"),
    "worker_start": Sample(["--worker-start", "spawn"], "spawn"),
    "allow_skipped_overrides": Sample(["--allow-skipped-overrides"], True, "yes"),
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> typing.Iterator[None]:
    """The files and directories the samples name, in the current directory."""
    (tmp_path / "empty.env").touch()
    (tmp_path / "log.json").write_text(json.dumps({"version": 1, "disable_existing_loggers": False}))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with as_cwd(tmp_path):
        yield


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command hands to `run`, once it has been invoked."""
    taken: dict[str, Any] = {}
    module = importlib.import_module("uvicorn.main")
    monkeypatch.setattr(module, "run", lambda app, **kwargs: taken.update(kwargs, app=app))
    return taken


def invoke(*args: str, env: dict[str, str] | None = None) -> None:
    result = CliRunner().invoke(uvicorn.main, ["module:attribute", *args], env=env)
    assert result.exit_code == 0, result.output


def resolved(name: str, value: Any) -> Any:
    """What a configuration makes of a setting; the log configuration is left alone."""
    settings: dict[str, Any] = {"log_config": None, "reload": name not in ("systemd", "preload"), name: value}
    if name == "ssl_cert":
        settings["ssl_certfile"] = "c"
    if name == "mount_cache_control":
        settings["mount"] = "/static=."
    if name == "ssl_crl":
        settings["ssl_cert_reqs"] = 1
    if name == "ssl_client_errors":
        settings.update(ssl_cert_reqs=1, asgi_extensions="tls")
    return getattr(Config("module:attribute", **settings), name)


def test_every_option_has_a_sample() -> None:
    assert list(SAMPLES) == list(OPTIONS)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_command_line_sets_it(name: str, arguments: dict[str, Any]) -> None:
    sample = SAMPLES[name]
    invoke(*sample.args)
    assert arguments[name] == sample.value
    assert resolved(name, arguments[name]) == resolved(name, sample.value)
    assert resolved(name, sample.value) != resolved(name, ROWS[name].default)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_environment_sets_it(name: str, arguments: dict[str, Any]) -> None:
    """ENV-01, ENV-02"""
    sample = SAMPLES[name]
    invoke(env={f"UVICORN_{name.upper()}": sample.environment})
    assert arguments[name] == sample.value


@pytest.mark.parametrize("name", SAMPLES)
def test_an_empty_variable_sets_nothing(name: str, arguments: dict[str, Any]) -> None:
    """ENV-03"""
    invoke(env={f"UVICORN_{name.upper()}": ""})
    assert arguments[name] in (ROWS[name].default, [])


def test_without_options_run_gets_the_defaults(arguments: dict[str, Any]) -> None:
    """CLI-20: the built-in logging configuration, not None."""
    invoke()
    defaults = {name: row.default for name, row in OPTIONS.items()}
    assert arguments == {**defaults, "headers": [], "app": "module:attribute", "app_dir": ""}


# The table as a whole


def type_hints() -> dict[str, Any]:
    """The types, with the two names that the table knows to a type checker only."""
    return typing.get_type_hints(Settings, localns={"Config": Config, "RawConfigParser": RawConfigParser})


def flags() -> list[str]:
    return [flag for parameter in uvicorn.main.params for flag in (*parameter.opts, *parameter.secondary_opts)]


def test_names_and_flags_are_unique() -> None:
    assert len(flags()) == len(set(flags()))


@pytest.mark.parametrize("name", ROWS)
def test_the_help_is_made_of_sentences(name: str) -> None:
    text = ROWS[name].help
    assert re.fullmatch(r"[A-Z`].*\.", text, re.DOTALL)
    assert "  " not in text


@pytest.mark.parametrize("name", OPTIONS)
def test_the_command_shows_the_first_sentence(name: str) -> None:
    (parameter,) = (parameter for parameter in uvicorn.main.params if parameter.name == name)
    assert isinstance(parameter, click.Option)
    assert parameter.help
    assert parameter.help.endswith(".")
    assert ROWS[name].help.startswith(parameter.help)


def test_literal_rows_list_their_choices() -> None:
    hints = type_hints()
    for parameter in uvicorn.main.params:
        kinds = typing.get_args(hints.get(parameter.name or ""))
        names = [name for kind in kinds if typing.get_origin(kind) is typing.Literal for name in typing.get_args(kind)]
        if names:
            numbers = ["INTEGER"] if int in kinds else []
            assert parameter.metavar == f"[{'|'.join([*numbers, *names])}]"


def test_annotations_can_be_evaluated() -> None:
    assert type_hints().keys() == ROWS.keys()


def test_what_python_alone_offers() -> None:
    """TLS-08"""
    assert list(PYTHON_ONLY) == ["timeout_notify", "callback_notify", "ssl_context_factory", "on_worker_event"]


def test_protocols_read_rows_that_say_so_and_what_config_derives() -> None:
    derived = {"loaded", "encoded_headers", "unavailable_app"}
    read = set(inspect.get_annotations(ProtocolConfig)) | {name for name in ROWS if hasattr(ProtocolConfig, name)}
    assert read - derived == {name for name, row in ROWS.items() if row.protocols}


def test_every_row_is_an_attribute() -> None:
    config = Config("module:attribute", log_config=None)
    for name in ROWS:
        assert hasattr(config, name)


def test_repr_shows_what_differs_from_the_defaults_but_no_secret() -> None:
    config = Config(
        "module:attribute",
        log_config=None,
        port=9000,
        ssl_keyfile_password="hush",
        workers=1,
        threads=1,
        forwarded_allow_ips="10.0.0.1",
    )
    assert repr(config) == (
        "Config(app='module:attribute', port=9000, log_config=None, workers=1, forwarded_allow_ips='10.0.0.1', "
        "ssl_keyfile_password=..., threads=1)"
    )


def test_the_default_of_a_graceful_shutdown_is_in_its_help() -> None:
    assert f"by default {DEFAULT_GRACEFUL_SHUTDOWN}" in ROWS["timeout_graceful_shutdown"].help


def test_settings_by_themselves_resolve_nothing() -> None:
    settings = Settings("module:attribute", workers=None)
    assert settings.workers is None
    assert repr(settings) == "Settings(app='module:attribute')"
