"""The table: well formed as a whole, and each row reachable from Python, the command line and the environment."""

from __future__ import annotations

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
from uvicorn.config._declare import Row
from uvicorn.config._values import Number, Switch, Text, values_of
from uvicorn.config.settings import DEFAULT_GRACEFUL_SHUTDOWN, ROWS, Settings

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


SPECIAL: dict[str, Sample] = {
    "host": Sample(["--host", "::1"], "::1"),
    "loop": Sample(["--loop", "asyncio"], "asyncio"),
    "http": Sample(["--http", "mine:Protocol"], "mine:Protocol"),
    "ws": Sample(["--ws", "none"], "none"),
    "env_file": Sample(["--env-file", "empty.env"], "empty.env"),
    "log_config": Sample(["--log-config", "log.json"], "log.json"),
    "use_colors": Sample(["--no-use-colors"], False, "false"),
    "metrics_buckets": Sample(["--metrics-buckets", "0.1,1"], "0.1,1"),
    "reload_dirs": Sample(
        ["--reload-dir", "one", "--reload-dir", "two"], ("one", "two"), os.pathsep.join(("one", "two"))
    ),
    "reload_includes": Sample(["--reload-include", "*.a", "--reload-include", "*.b"], ("*.a", "*.b"), "*.a *.b"),
    "reload_excludes": Sample(["--reload-exclude", "*.a", "--reload-exclude", "*.b"], ("*.a", "*.b"), "*.a *.b"),
    "forwarded_allow_ips": Sample(["--forwarded-allow-ips", "10.0.0.1,10.0.0.2"], "10.0.0.1,10.0.0.2"),
    "root_path": Sample(["--root-path", "/api"], "/api"),
    "timeout_graceful_shutdown": Sample(["--timeout-graceful-shutdown", "-1"], -1),
    "ssl_version": Sample(["--ssl-version", "5"], 5),
    "headers": Sample(["--header", "A:b", "--header", "C:d"], [["A", "b"], ["C", "d"]], "A:b C:d"),
    "ws_shutdown_code": Sample(["--ws-shutdown-code", "1001"], 1001),
    "http3_alt_svc": Sample(["--http3-alt-svc", 'h3=":443"; ma=60'], 'h3=":443"; ma=60'),
    "access_log_format": Sample(["--access-log-format", "%(h)s %({referer}i)s"], "%(h)s %({referer}i)s"),
    "lifecycle_path": Sample(["--lifecycle-path", "/-/"], "/-/"),
    "probe": Sample(["--probe", "127.0.0.1:9101"], "127.0.0.1:9101"),
    "metrics": Sample(["--metrics", "127.0.0.1:9100"], "127.0.0.1:9100"),
    "otel_endpoint": Sample(["--otel-endpoint", "http://127.0.0.1:4318"], "http://127.0.0.1:4318"),
    "asgi_extensions": Sample(
        ["--asgi-extension", "http.response.pathsend", "--asgi-extension", "http.response.trailers"],
        ("http.response.pathsend", "http.response.trailers"),
        "http.response.pathsend http.response.trailers",
    ),
    "bind": Sample(["--bind", "127.0.0.1:0", "--bind", "unix:s"], ("127.0.0.1:0", "unix:s"), "127.0.0.1:0 unix:s"),
    "forwarded_headers": Sample(["--forwarded-headers", "forwarded"], "forwarded"),
    "proxy_protocol_trusted_clients": Sample(["--proxy-protocol-trusted-clients", "10.0.0.7"], "10.0.0.7"),
    "limit_active_requests": Sample(["--limit-active-requests", "auto"], "auto"),
    "on_disconnect_exempt": Sample(["--on-disconnect-exempt", "/a"], ("/a",), "/a"),
    "limit_exempt": Sample(["--limit-exempt", "/a", "--limit-exempt", "/b/*"], ("/a", "/b/*"), "/a /b/*"),
    "ssl_cert": Sample(
        ["--ssl-certfile", "c", "--ssl-cert", "a.test=a.pem,a.key", "--ssl-cert", "*.b.test=b.pem"],
        ("a.test=a.pem,a.key", "*.b.test=b.pem"),
        "a.test=a.pem,a.key *.b.test=b.pem",
    ),
    "mount": Sample(["--mount", "/one=one", "--mount", "/=two"], ("/one=one", "/=two"), "/one=one /=two"),
    "mount_cache_control": Sample(
        ["--mount-cache-control", "no-store", "--mount-cache-control", "/static=public, max-age=60"],
        ("no-store", "/static=public, max-age=60"),
        "no-store\n/static=public, max-age=60",
    ),
}
"""Values that do not follow from the type."""


def sample_of(row: Row) -> Sample:
    """A value that follows from the row."""
    values = values_of(row)
    if isinstance(values, Switch) and not row.valued:
        flag = row.option.replace("--", "--no-", 1) if row.default else row.option
        return Sample([flag], not row.default, "0" if row.default else "1")
    value: Any = "text"
    if isinstance(values, Switch):
        value = not row.default
    elif isinstance(values, Number):
        low = max(row.minimum or 0, row.above or 0)
        candidates = (low + (2 if values.is_whole else 1.5), row.minimum, row.maximum)
        value = next(
            number
            for number in candidates
            if number is not None and number != row.default and number <= (row.maximum or number)
        )
    elif isinstance(values, Text) and values.only:
        value = next(name for name in values.only if name != row.default)
    return Sample([row.option, str(value)], value)


SAMPLES = {name: SPECIAL.get(name) or sample_of(row) for name, row in OPTIONS.items()}


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> typing.Iterator[None]:
    """The files and directories the samples name, in the current directory."""
    (tmp_path / "empty.env").touch()
    (tmp_path / "log.json").write_text(json.dumps({"version": 1, "disable_existing_loggers": False}))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with as_cwd(tmp_path):
        yield


def invoke(*args: str, env: dict[str, str] | None = None) -> None:
    result = CliRunner().invoke(uvicorn.main, ["module:attribute", *args], env=env)
    assert result.exit_code == 0, result.output


def resolved(name: str, value: Any) -> Any:
    """What a configuration makes of a setting; the log configuration is left alone."""
    settings: dict[str, Any] = {"log_config": None, "reload": name not in ("systemd", "preload"), name: value}
    if name == "ssl_cert":
        settings["ssl_certfile"] = "c"
    if name == "http3":
        settings["ssl_certfile"] = "c"
    if name == "mount_cache_control":
        settings["mount"] = "/static=."
    if name == "ssl_crl":
        settings["ssl_cert_reqs"] = 1
    if name == "ssl_client_errors":
        settings.update(ssl_cert_reqs=1, asgi_extensions="tls")
    return getattr(Config("module:attribute", **settings), name)


def test_samples_are_of_options() -> None:
    assert SPECIAL.keys() <= OPTIONS.keys()


def test_the_command_line_sets_each(arguments: dict[str, Any], subtests: pytest.Subtests) -> None:
    for name, sample in SAMPLES.items():
        with subtests.test(name):
            invoke(*sample.args)
            assert arguments.pop(name) == sample.value
            assert resolved(name, sample.value) != resolved(name, ROWS[name].default)


def test_the_environment_sets_each(arguments: dict[str, Any], subtests: pytest.Subtests) -> None:
    """ENV-01, ENV-02"""
    for name, sample in SAMPLES.items():
        with subtests.test(name):
            invoke(env={f"UVICORN_{name.upper()}": sample.environment})
            assert arguments.pop(name) == sample.value


def test_an_empty_variable_sets_nothing(arguments: dict[str, Any], subtests: pytest.Subtests) -> None:
    """ENV-03"""
    for name in SAMPLES:
        with subtests.test(name):
            invoke(env={f"UVICORN_{name.upper()}": ""})
            assert arguments.pop(name) in (ROWS[name].default, [])


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


def test_the_help_is_made_of_sentences(subtests: pytest.Subtests) -> None:
    for name, row in ROWS.items():
        with subtests.test(name):
            assert re.fullmatch(r"[A-Z`].*\.", row.help, re.DOTALL)
            assert "  " not in row.help


def test_the_command_shows_the_first_sentence(subtests: pytest.Subtests) -> None:
    for name in OPTIONS:
        with subtests.test(name):
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
