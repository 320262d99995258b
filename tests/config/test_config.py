"""Resolving settings, importing the application, choosing the implementations."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import pickle
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.utils import NATIVE, as_cwd
from uvicorn.config import (
    HTTP_PROTOCOLS,
    LIFESPAN,
    LOOP_FACTORIES,
    WS_PROTOCOLS,
    Config,
    UvicornDeprecationWarning,
    is_dir,
    resolve_reload_patterns,
)
from uvicorn.config._values import Number, values_of
from uvicorn.config.errors import SettingError, report_error
from uvicorn.config.settings import ROWS
from uvicorn.importer import ImportFromStringError
from uvicorn.middleware.asgi2 import ASGI2Middleware
from uvicorn.middleware.message_logger import MessageLoggerMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.middleware.wsgi import WSGIMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

HERE = "tests.config.test_config"


async def asgi_app(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


def wsgi_app(environ: Any, start_response: Any) -> Any:
    raise NotImplementedError


def create_app() -> Any:
    return asgi_app


def loaded(app: Any = asgi_app, **settings: Any) -> Config:
    """A loaded configuration with nothing around the application that was not asked for."""
    settings = {"log_config": None, "proxy_headers": False, "ws": "none", "http": "h11", **settings}
    config = Config(app, **settings)
    config.load()
    return config


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEB_CONCURRENCY", "FORWARDED_ALLOW_IPS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str]]]:
    """Level and text of every line on the error log so far."""
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


Log = Callable[[], list[tuple[str, str]]]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Writes the source of a module and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(source: str, name: str = "written_module") -> str:
        (tmp_path / f"{name}.py").write_text(source)
        return name

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


# Importing the application


def test_an_import_string_is_imported_and_an_object_is_taken_as_it_is() -> None:
    """APP-09"""
    assert loaded(f"{HERE}:asgi_app").loaded_app is loaded(asgi_app).loaded_app


@pytest.mark.parametrize(
    ("app", "reason"),
    [
        pytest.param(HERE, f'Import string "{HERE}" must be in format "<module>:<attribute>".', id="form"),
        pytest.param("not_a_module:app", 'Could not import module "not_a_module".', id="module"),
        pytest.param(f"{HERE}:nope", f'Attribute "nope" not found in module "{HERE}".', id="attribute"),
    ],
)
def test_an_application_that_is_not_there_is_named_and_ends_with_status_3(app: str, reason: str, log: Log) -> None:
    """APP-10"""
    with pytest.raises(SystemExit) as caught:
        Config(app, log_config=None, http="h11").load()
    assert caught.value.code == 3
    assert log()[0] == ("ERROR", f"Error loading ASGI app. {reason}")


def test_a_hint_follows_the_error(log: Log) -> None:
    with pytest.raises(SystemExit):
        Config(f"{HERE}:asgi_ap", log_config=None).load_app()
    level, text = log()[1]
    assert level == "INFO"
    assert text.startswith("Did you mean asgi_app")


def test_a_missing_package_around_the_module_is_one_line(log: Log) -> None:
    """APP-07: the recorded exception, but the command line makes one line of it instead of a traceback."""
    with pytest.raises(ModuleNotFoundError) as caught:
        Config("not_a_package.module:app", log_config=None).load_app()
    assert report_error(caught.value)
    assert log()[-1] == ("ERROR", "Cannot use app='not_a_package.module:app': No module named 'not_a_package'")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        pytest.param("import not_a_dependency", ModuleNotFoundError, id="dependency"),
        pytest.param("def app(:", SyntaxError, id="syntax"),
        pytest.param("raise RuntimeError", RuntimeError, id="exception"),
    ],
)
def test_an_error_inside_the_module_is_not_shortened(
    source: str, error: type[Exception], module: Callable[[str], str]
) -> None:
    """APP-06, APP-11"""
    with pytest.raises(error) as caught:
        Config(f"{module(source)}:app", log_config=None).load_app()
    assert not report_error(caught.value)


# Factories


def test_a_factory_is_called_once_and_its_result_served(log: Log) -> None:
    """APP-13"""
    calls: list[None] = []

    def factory() -> Any:
        calls.append(None)
        return asgi_app

    config = loaded(factory, factory=True)
    assert config.loaded_app is asgi_app
    assert len(calls) == 1
    assert log() == []


def test_importing_does_not_call_the_factory() -> None:
    """APP-12, APP-13"""
    assert Config(f"{HERE}:create_app", factory=True, log_config=None).load_app() is create_app


def test_a_factory_is_recognised_without_the_flag_and_says_so(log: Log) -> None:
    """APP-15"""
    assert loaded(create_app).loaded_app is asgi_app
    text = "ASGI app factory detected. Using it, but please consider setting the --factory flag explicitly."
    assert log() == [("WARNING", text)]


def test_an_application_is_not_taken_for_a_factory(log: Log) -> None:
    """APP-14"""
    assert loaded(asgi_app).loaded_app is asgi_app
    assert log() == []


class CallableApp:
    async def __call__(self, *args: Any) -> None:
        raise NotImplementedError


async def decorated_app(*args: Any, **kwargs: Any) -> None:
    raise NotImplementedError


@pytest.mark.parametrize("app", [pytest.param(CallableApp(), id="object"), pytest.param(decorated_app, id="function")])
def test_an_application_that_takes_any_arguments_is_not_taken_for_a_factory(app: Any, log: Log) -> None:
    """APP-13: deliberately different, upstream serves the coroutine that such a call returns."""
    assert loaded(app).loaded_app is app
    assert log() == []


def raising_factory() -> Any:
    raise TypeError("inside the factory")


@pytest.mark.parametrize("factory", [True, False])
def test_a_type_error_inside_a_factory_ends_with_status_3(factory: bool, log: Log) -> None:
    """APP-16; APP-18 deliberately different: upstream serves the factory when there is no flag."""
    with pytest.raises(SystemExit) as caught:
        loaded(raising_factory, factory=factory)
    assert caught.value.code == 3
    assert log() == [("ERROR", "Error loading ASGI app factory: inside the factory")]


def test_an_application_with_the_factory_flag_ends_with_status_3(log: Log) -> None:
    """APP-16"""
    with pytest.raises(SystemExit) as caught:
        loaded(asgi_app, factory=True)
    assert caught.value.code == 3
    (level, text), advice = log()
    assert level == "ERROR"
    assert text.startswith("Error loading ASGI app factory: asgi_app() missing 3 required positional arguments")
    assert advice == ("INFO", "This seems to be the application itself: leave out --factory.")


async def async_factory() -> Any:
    return asgi_app


@pytest.mark.parametrize("factory", [True, False])
def test_a_coroutine_function_is_no_factory(factory: bool, log: Log) -> None:
    with pytest.raises(SystemExit) as caught:
        loaded(async_factory, factory=factory)
    assert caught.value.code == 3
    assert log() == [
        ("ERROR", "Error loading ASGI app factory: a factory must not be a coroutine function"),
        ("INFO", "Name the application itself, such as main:app."),
    ]


@pytest.mark.parametrize("factory", [True, False])
def test_other_errors_of_a_factory_are_not_caught(factory: bool) -> None:
    """APP-17"""

    def failing() -> Any:
        raise LookupError("inside")

    with pytest.raises(LookupError):
        loaded(failing, factory=factory)


def test_something_that_cannot_be_called_is_accepted_with_a_warning(log: Log) -> None:
    """APP-19"""
    config = loaded("json:__name__")
    assert config.interface == "asgi2"
    warning = (
        "The ASGI app is not callable, so every request will fail: 'json'. Name an application or a factory, as "
        "module:attribute."
    )
    assert log() == [("WARNING", warning)]


def test_wsgi_application_served_as_asgi_is_warned_of(log: Log) -> None:
    def application(environ: Any, start_response: Any) -> list[bytes]:
        raise NotImplementedError

    loaded(application)
    ((level, text),) = log()
    assert level == "WARNING"
    assert text.startswith("The application takes two arguments, like a WSGI application, so every request will fail: ")
    assert text.endswith("Set interface to wsgi.")


async def _of_one_argument(request: Any) -> None:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("app", "interface", "said"),
    [
        (_of_one_argument, "auto", "does not accept the arguments of interface asgi3 (scope, receive, send)"),
        (asgi_app, "asgi2", "does not accept the arguments of interface asgi2 (scope)"),
        (asgi_app, "wsgi", "is a coroutine function, not a WSGI application"),
        (wsgi_app, "asgi2", "takes two arguments, like a WSGI application"),
    ],
)
def test_application_that_does_not_take_what_it_is_given_is_warned_of(
    app: Any, interface: Any, said: str, log: Log
) -> None:
    config = loaded(app, interface=interface)
    assert [level for level, text in log() if said in text] == ["WARNING"]
    assert config.fails_always


def test_what_a_decorator_says_of_its_function_counts_for_nothing(log: Log) -> None:
    @functools.wraps(_of_one_argument)
    async def decorated(scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError

    assert not loaded(decorated).fails_always
    assert log() == []


@pytest.mark.parametrize("interface", ["auto", "asgi3"])
def test_application_that_takes_what_it_is_given_is_not_warned_of(interface: Any, log: Log) -> None:
    class Application:
        async def __call__(self, *args: Any) -> None:
            raise NotImplementedError

    loaded(Application(), interface=interface)
    loaded(asgi_app, interface=interface)
    assert log() == []


def test_wsgi_application_served_as_wsgi_is_not_warned_of(log: Log) -> None:
    def application(environ: Any, start_response: Any) -> list[bytes]:
        raise NotImplementedError

    loaded(application, interface="wsgi")
    assert log() == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"uds": "/" + "x" * 120}, "the path of a Unix socket has at most "),
        ({"bind": "unix:/" + "x" * 120}, "the path of a Unix socket has at most "),
        ({"bind": ["unix:a", "unix:a"]}, "bind='unix:a': it is in the list twice."),
        ({"bind": ["127.0.0.1:80", "127.0.0.1:80"]}, "bind='127.0.0.1:80': it is in the list twice."),
    ],
)
def test_places_that_cannot_be_bound_are_told_before_the_start(settings: Any, said: str, log: Log) -> None:
    with pytest.raises(ValueError) as caught:
        Config(asgi_app, log_config=None, **settings)
    assert report_error(caught.value)
    assert said in log()[-1][1]


def test_two_free_ports_of_one_address_are_two_places() -> None:
    assert len(Config(asgi_app, log_config=None, bind=["127.0.0.1:0", "127.0.0.1:0"]).bind) == 2


# Interface


class ASGI2Class:
    def __init__(self, scope: Any) -> None:
        raise NotImplementedError

    async def __call__(self, receive: Any, send: Any) -> None:
        raise NotImplementedError


class ASGI3Class:
    def __init__(self, scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError

    def __await__(self) -> Any:
        raise NotImplementedError


class ASGI3Object:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError

    async def method(self, scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError

    @property
    def __signature__(self) -> Any:
        raise ValueError("cannot be inspected")


class ASGI2Object:
    def __call__(self, scope: Any) -> Any:
        raise NotImplementedError


class Uninspectable:
    """Callable, but its signature cannot be read."""

    __signature__ = "nonsense"

    def __call__(self, scope: Any) -> Any:
        raise TypeError


def asgi2_function(scope: Any) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("app", "interface"),
    [
        pytest.param(asgi_app, "asgi3", id="coroutine function"),
        pytest.param(asgi2_function, "asgi2", id="function of a scope"),
        pytest.param(ASGI3Class, "asgi3", id="awaitable class"),
        pytest.param(ASGI2Class, "asgi2", id="class of a scope"),
        pytest.param(ASGI3Object(), "asgi3", id="object with async call"),
        pytest.param(ASGI2Object(), "asgi2", id="object with plain call"),
        pytest.param(functools.partial(asgi_app), "asgi3", id="partial"),
        pytest.param(lambda scope, receive, send: asgi_app(scope, receive, send), "asgi3", id="lambda"),
        pytest.param(ASGI3Object().method, "asgi3", id="bound method"),
        pytest.param(Uninspectable(), "asgi2", id="cannot be inspected"),
    ],
)
def test_the_interface_is_detected(app: Any, interface: str) -> None:
    """IF-01, IF-02, IF-03, IF-05; IF-04 deliberately different for what can only be ASGI 3."""
    config = loaded(app)
    assert config.interface == interface
    assert config.asgi_version == {"asgi3": "3.0", "asgi2": "2.0"}[interface]


@pytest.mark.parametrize(("interface", "version"), [("asgi3", "3.0"), ("asgi2", "2.0"), ("wsgi", "3.0")])
def test_the_version_follows_the_interface(interface: Any, version: str) -> None:
    """IF-06"""
    assert Config(asgi_app, log_config=None, interface=interface).asgi_version == version


def test_the_version_is_unknown_until_the_interface_is_detected() -> None:
    """IF-11"""
    with pytest.raises(KeyError):
        _ = Config(asgi_app, log_config=None).asgi_version


@pytest.mark.parametrize("interface", ["cgi", "", None, 0, False, []])
def test_an_unknown_interface_is_refused(interface: Any, log: Log) -> None:
    """IF-08: deliberately different, upstream finds it when loading, or serves nobody"""
    with pytest.raises(SettingError) as caught:
        Config(asgi_app, log_config=None, interface=interface)
    assert report_error(caught.value)
    assert log() == [("ERROR", f"interface must be one of auto, asgi3, asgi2, wsgi, not {interface!r}.")]


def test_backlog_that_is_not_set_is_the_default() -> None:
    assert Config(asgi_app, log_config=None, backlog=None).backlog == 2048  # type: ignore[arg-type]


def test_asgi2_is_adapted() -> None:
    """IF-07"""
    assert isinstance(loaded(asgi2_function).loaded_app, ASGI2Middleware)


def test_wsgi_is_adapted_and_has_no_websockets() -> None:
    """WSGI-01, WSGI-02"""
    config = loaded(wsgi_app, interface="wsgi", ws="auto")
    assert isinstance(config.loaded_app, WSGIMiddleware)
    assert config.ws_protocol_class is None


def test_layers_are_wrapped_in_order() -> None:
    """IF-09, IF-10"""
    config = loaded(asgi2_function, proxy_headers=True, log_level="trace")
    proxy: Any = config.loaded_app
    assert isinstance(proxy, ProxyHeadersMiddleware)
    assert isinstance(proxy.app, MessageLoggerMiddleware)
    assert isinstance(proxy.app.app, ASGI2Middleware)
    assert proxy.app.app.app is asgi2_function


def test_without_trace_there_is_no_message_log() -> None:
    """IF-10"""
    assert loaded(log_level="debug").loaded_app is asgi_app


def test_the_proxy_layer_knows_the_trusted_hosts() -> None:
    proxy: Any = loaded(proxy_headers=True, forwarded_allow_ips="10.1.2.3").loaded_app
    assert "10.1.2.3" in proxy.trusted_hosts
    assert "127.0.0.1" not in proxy.trusted_hosts


# Environment


def test_workers_come_from_the_variable_only_when_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """ENV-06"""
    monkeypatch.setenv("WEB_CONCURRENCY", "5")
    assert Config(asgi_app, log_config=None).workers == 5
    assert Config(asgi_app, log_config=None, workers=2).workers == 2


@pytest.mark.parametrize("value", ["", "0"])
def test_an_empty_or_zero_variable_is_one_worker(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENV-03"""
    monkeypatch.setenv("WEB_CONCURRENCY", value)
    assert Config(asgi_app, log_config=None).workers == 1


def test_a_variable_that_is_no_number_is_a_value_error_of_one_line(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    """ENV-07"""
    monkeypatch.setenv("WEB_CONCURRENCY", "abc")
    with pytest.raises(ValueError) as caught:
        Config(asgi_app, log_config=None)
    assert report_error(caught.value)
    assert log() == [("ERROR", "WEB_CONCURRENCY must be a whole number from 1 to 1024 or `auto`, not 'abc'.")]


@pytest.mark.parametrize(
    ("workers", "resolved", "subprocess"),
    [(None, 1, False), (0, 1, False), (1, 1, False), (2, 2, True), (-1, -1, False)],
)
def test_number_of_workers(workers: int | None, resolved: int, subprocess: bool) -> None:
    """API-15, API-16, CLI-15"""
    config = Config(asgi_app, log_config=None, workers=workers)
    assert config.workers == resolved
    assert config.use_subprocess is subprocess


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("limit_max_requests_jitter", -1, "a whole number, at least 0"),
        ("drain_delay", -1, "a number of seconds, at least 0"),
        ("limit_worker_lifetime", 0, "a number of seconds, greater than 0"),
        ("limit_worker_memory", 0, "a whole number of MiB from 1 to 1073741824"),
        ("ws_shutdown_code", 5000, "1000, 1001, 1012, 1013 or from 3000 to 4999"),
    ],
)
def test_numbers_that_would_fail_later_are_refused_at_once(setting: str, value: object, reason: str, log: Log) -> None:
    """Deliberately different: upstream ends in an uncaught exception once the server runs."""
    settings: dict[str, Any] = {setting: value}
    with pytest.raises(ValueError) as caught:
        Config(asgi_app, log_config=None, **settings)
    assert report_error(caught.value)
    hint = "; leave it out for no limit" if ROWS[setting].default is None and setting.startswith("limit_") else ""
    assert log() == [("ERROR", f"{setting} must be {reason}, not {value!r}{hint}.")]


@pytest.mark.parametrize(
    ("variable", "given", "resolved"),
    [
        pytest.param(None, None, "127.0.0.1,::1", id="default"),
        pytest.param("10.0.0.1", None, "10.0.0.1", id="variable"),
        pytest.param("10.0.0.1", "10.0.0.2", "10.0.0.2", id="given"),
        pytest.param("10.0.0.1", "", "", id="given empty"),
        pytest.param("10.0.0.1", ["*"], ["*"], id="given list"),
    ],
)
def test_trusted_proxies(variable: str | None, given: Any, resolved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENV-09, ENV-10"""
    if variable is not None:
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", variable)
    assert Config(asgi_app, log_config=None, forwarded_allow_ips=given).forwarded_allow_ips == resolved


@pytest.mark.parametrize(
    "given", ["10.0.0.1/8", "127.0.0.1,10.0.0.0/33", ["::1/129"], "300.1.1.1", "10.0.0.1:80", "10.0.*"]
)
def test_a_malformed_proxy_is_refused(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """PRX-04: deliberately different, upstream takes it for a name that no peer has."""
    with pytest.raises(ValueError) as caught:
        Config(asgi_app, log_config=None, forwarded_allow_ips=given)
    assert report_error(caught.value)
    if isinstance(given, str):
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", given)
        with pytest.raises(ValueError) as caught:
            Config(asgi_app, log_config=None)
        assert caught.value.__dict__["_settings_at_fault"] == (f"FORWARDED_ALLOW_IPS={given!r}",)
    Config(asgi_app, log_config=None, forwarded_allow_ips=given, proxy_headers=False)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_no_requests_is_refused(limit: int) -> None:
    """LIM-01: deliberately different, upstream answers every request 503."""
    with pytest.raises(ValueError, match="leave it out for no limit"):
        Config(asgi_app, log_config=None, limit_concurrency=limit)


@pytest.mark.parametrize(
    "name, value",
    [
        ("limit_active_requests", 0),
        ("limit_active_requests", "many"),
        ("limit_queue", -1),
        ("timeout_queue", 0.0),
        ("timeout_queue", float("inf")),
        ("timeout_queue", float("nan")),
        ("retry_after", 0),
        ("limit_exempt", "health"),
        ("limit_exempt", ["/a", "/b?c"]),
        ("limit_exempt", "/*/a"),
    ],
)
def test_limits_of_active_requests_that_cannot_be_are_refused(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"^{name} must be "):
        Config(asgi_app, log_config=None, **{name: value})


@pytest.mark.parametrize("workers", [0, -1])
def test_any_number_of_workers_below_two_is_one_process(workers: int) -> None:
    """API-16, CLI-15: only the command line asks back."""
    assert not Config(asgi_app, log_config=None, workers=workers).use_subprocess


@pytest.fixture
def env_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An env file whose variables are gone from the process after the test."""
    for name in ("WEB_CONCURRENCY", "FORWARDED_ALLOW_IPS", "UVICORN_PORT"):
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)
    path = tmp_path / "server.env"
    path.write_text("WEB_CONCURRENCY=7\nFORWARDED_ALLOW_IPS=10.0.0.9\nUVICORN_PORT=9999\n")
    return path


def test_an_env_file_is_loaded_before_variables_are_read(env_file: Path, log: Log) -> None:
    """ENV-11, ENV-13, ENV-14"""
    config = Config(asgi_app, log_config=None, env_file=env_file)
    assert (config.workers, config.forwarded_allow_ips, config.port) == (7, "10.0.0.9", 8000)
    assert os.environ["UVICORN_PORT"] == "9999"
    (loading, ignored) = log()
    assert loading == ("INFO", f"Loading environment from '{env_file}'")
    assert ignored[0] == "WARNING" and ignored[1].startswith(f"Ignoring UVICORN_PORT in '{env_file}': ")


def test_an_env_file_does_not_replace_variables(env_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENV-12"""
    monkeypatch.setenv("WEB_CONCURRENCY", "3")
    assert Config(asgi_app, log_config=None, env_file=str(env_file)).workers == 3


def test_the_reload_line_comes_before_the_env_file_line(env_file: Path, log: Log) -> None:
    """ENV-14"""
    with as_cwd(env_file.parent):
        Config(f"{HERE}:asgi_app", log_config=None, env_file=env_file, reload=True)
    assert [text.split(" ")[0] for _, text in log()] == ["Will", "Loading", "Ignoring", '"workers"']


def test_an_env_file_without_its_library_says_what_to_do(
    env_file: Path, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    """ENV-15"""
    monkeypatch.setitem(sys.modules, "dotenv", None)
    with pytest.raises(ImportError, match="python-dotenv") as caught:
        Config(asgi_app, log_config=None, env_file=str(env_file))
    assert report_error(caught.value)
    assert log()[-1][1].startswith(f"Cannot use env_file={str(env_file)!r}: env files need python-dotenv")


# Reload


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """The current directory, with directories in it."""
    for name in ("app/css", "app/.hidden", "ext/sub"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file.py").touch()
    with as_cwd(tmp_path):
        yield tmp_path.resolve()


def reloading(**settings: Any) -> Config:
    return Config(f"{HERE}:asgi_app", reload=True, log_config=None, **settings)


def below(base: Path, paths: list[Path]) -> list[str]:
    return [path.relative_to(base).as_posix() for path in paths]


@pytest.mark.parametrize(
    ("settings", "dirs"),
    [
        pytest.param({}, ["."], id="nothing given"),
        pytest.param({"reload_dirs": "app"}, ["app"], id="one string"),
        pytest.param({"reload_dirs": ("app", "ext")}, ["app", "ext"], id="several"),
        pytest.param({"reload_dirs": Path("app")}, ["app"], id="one path"),
        pytest.param({"reload_dirs": [Path("ext")]}, ["ext"], id="paths"),
        pytest.param({"reload_dirs": ["app", "app/css"]}, ["app"], id="nested"),
        pytest.param({"reload_dirs": ["app", "./app"]}, ["app"], id="twice"),
        pytest.param({"reload_dirs": ["nope", "ext"]}, ["ext"], id="one missing"),
        pytest.param({"reload_dirs": "nope"}, ["."], id="all missing"),
        pytest.param({"reload_includes": "*.html"}, ["."], id="pattern of files"),
        pytest.param({"reload_includes": ["app", "*.x"]}, ["app"], id="directory among patterns"),
        pytest.param({"reload_includes": "e*"}, ["ext"], id="glob of directories"),
        pytest.param({"reload_includes": "app/*"}, ["app/.hidden", "app/css"], id="glob below"),
        pytest.param({"reload_includes": ".*"}, ["."], id="hidden files"),
        pytest.param({"reload_includes": "**/css"}, ["app/css"], id="recursive glob"),
        pytest.param({"reload_includes": ""}, ["."], id="empty pattern"),
        pytest.param({"reload_dirs": ["nope"], "reload_includes": ["ext"]}, ["ext"], id="only the include is there"),
        pytest.param({"reload_dirs": ["app", "ext"], "reload_excludes": "ext"}, ["app"], id="excluded"),
        pytest.param({"reload_dirs": ["app/css", "ext"], "reload_excludes": "app"}, ["ext"], id="excluded from above"),
        pytest.param({"reload_excludes": "app/css"}, ["."], id="excluded below"),
        pytest.param({"reload_includes": "app", "reload_excludes": "app"}, ["."], id="in both lists"),
    ],
)
def test_watched_directories(settings: dict[str, Any], dirs: list[str], tree: Path) -> None:
    """RLD-10, RLD-11, RLD-12, RLD-16, RLD-17, RLD-18, RLD-20, RLD-25"""
    assert below(tree, reloading(**settings).reload_dirs) == dirs


def test_an_absolute_glob_stands_for_directories_too(tree: Path) -> None:
    """RLD-16: deliberately different, upstream ends in an uncaught exception."""
    assert below(tree, reloading(reload_includes=str(tree / "e*")).reload_dirs) == ["ext"]


def test_a_pattern_pathlib_does_not_know_is_left_to_the_watcher(tree: Path) -> None:
    config = reloading(reload_includes="**.html")
    assert config.reload_includes == ["**.html"]
    assert config.reload_dirs == [tree]


@pytest.mark.parametrize(
    ("settings", "includes", "excludes", "excluded_dirs"),
    [
        ({"reload_includes": ["*.a", "app"]}, ["*.a", "app"], [], []),
        ({"reload_excludes": ["*.a", "app", "ext"]}, [], ["*.a", "app", "ext"], ["app", "ext"]),
        ({"reload_includes": ["*.a", "*.b"], "reload_excludes": "*.a"}, ["*.b"], ["*.a"], []),
        ({"reload_includes": ["*.a", "*.a"]}, ["*.a"], [], []),
    ],
)
def test_patterns(
    settings: dict[str, Any], includes: list[str], excludes: list[str], excluded_dirs: list[str], tree: Path
) -> None:
    """RLD-20, RLD-25"""
    config = reloading(**settings)
    assert (config.reload_includes, config.reload_excludes) == (includes, excludes)
    assert below(tree, config.reload_dirs_excludes) == excluded_dirs


def test_the_directories_are_logged(tree: Path, log: Log) -> None:
    """RLD-02"""
    reloading(reload_dirs=["ext", "app"])
    assert log() == [("INFO", f"Will watch for changes in these directories: {[str(tree / 'app'), str(tree / 'ext')]}")]


def test_directories_that_are_all_missing_are_logged(tree: Path, log: Log) -> None:
    """RLD-11"""
    reloading(reload_dirs=["nope", "nor this"])
    text = (
        "Provided reload directories ['nope', 'nor this'] did not contain valid directories, "
        "watching current working directory."
    )
    assert log()[0] == ("WARNING", text)


@pytest.mark.parametrize(
    "settings",
    [{"reload_dirs": "app"}, {"reload_includes": "*.a"}, {"reload_excludes": ["*.a"]}],
)
@pytest.mark.parametrize("app", [pytest.param(asgi_app, id="object"), pytest.param(f"{HERE}:asgi_app", id="string")])
def test_reload_options_that_cannot_apply_are_logged(settings: dict[str, Any], app: Any, log: Log) -> None:
    """RLD-01"""
    config = Config(app, log_config=None, reload=app is asgi_app, **settings)
    text = "Current configuration will not reload as not all conditions are met, please refer to documentation."
    shown = [f"{name}={[value] if isinstance(value, str) else value!r}" for name, value in settings.items()]
    advice = [("WARNING", f"{one} is ignored without reload.") for one in shown]
    assert log() == [("WARNING", text), *(() if app is asgi_app else advice)]
    assert (config.reload_dirs, config.reload_includes, config.reload_excludes) == ([], [], [])


def test_reload_options_that_are_empty_are_none(log: Log) -> None:
    """CLI-21"""
    Config(asgi_app, log_config=None, reload_dirs=(), reload_includes=[], reload_excludes=None)
    assert log() == []


@pytest.mark.parametrize("name", ["workers", "threads"])
def test_workers_are_ignored_when_reloading(name: str, tree: Path, log: Log) -> None:
    """RLD-03"""
    reloading(**{name: 2})
    assert log()[-1] == ("WARNING", f'"{name}" flag is ignored when reloading is enabled.')


@pytest.mark.parametrize(
    ("app", "reload", "should_reload", "use_subprocess"),
    [
        (f"{HERE}:asgi_app", True, True, True),
        (f"{HERE}:asgi_app", False, False, False),
        (asgi_app, True, False, True),
    ],
)
def test_reloading_needs_an_import_string(
    app: Any, reload: bool, should_reload: bool, use_subprocess: bool, tree: Path
) -> None:
    """API-15"""
    config = Config(app, reload=reload, log_config=None)
    assert (config.should_reload, config.use_subprocess) == (should_reload, use_subprocess)


def test_resolve_reload_patterns_returns_patterns_and_directories(tree: Path) -> None:
    patterns, directories = resolve_reload_patterns(["*.py", "ext/*", ".*"], ["app", "nope"])
    assert patterns == ["*.py", "ext/*", ".*"]
    assert directories == [tree / "app", tree / "ext" / "sub"]


@pytest.mark.parametrize("name", ["nope", "file.py", "x" * 5000, "a\0b"])
def test_what_is_not_a_directory(name: str, tree: Path) -> None:
    assert is_dir(Path(name)) is False
    assert is_dir(tree) is True


# Header fields


@pytest.mark.parametrize(
    ("settings", "encoded"),
    [
        pytest.param({}, [(b"server", b"uvicorn")], id="default"),
        pytest.param({"server_header": False}, [], id="no server"),
        pytest.param({"headers": [("X-A", "b")]}, [(b"server", b"uvicorn"), (b"x-a", b"b")], id="custom behind"),
        pytest.param({"headers": [("sErVer", "me")]}, [(b"server", b"me")], id="custom server"),
        pytest.param(
            {"headers": [("server", "me")], "server_header": False}, [(b"server", b"me")], id="only the default is off"
        ),
        pytest.param(
            {"headers": [("a", "1"), ("a", "2")], "server_header": False}, [(b"a", b"1"), (b"a", b"2")], id="repeated"
        ),
        pytest.param({"headers": [("a", " b\t ")], "server_header": False}, [(b"a", b"b")], id="white space"),
        pytest.param({"headers": [("a", "")], "server_header": False}, [(b"a", b"")], id="empty"),
        pytest.param({"headers": [("a", "ü\tx")], "server_header": False}, [(b"a", b"\xfc\tx")], id="latin-1 and tab"),
    ],
)
def test_header_fields_are_encoded(settings: dict[str, Any], encoded: list[tuple[bytes, bytes]]) -> None:
    """API-20, RES-01, RES-03, RES-04, CLI-11"""
    assert loaded(**settings).encoded_headers == encoded


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(("a", "\u20ac"), id="not latin-1"),
        pytest.param(("a", "b\r\nc: d"), id="line end"),
        pytest.param(("a", "b\0"), id="NUL"),
        pytest.param(("a b", "c"), id="space in name"),
        pytest.param(("", "c"), id="no name"),
        pytest.param(("a:", "c"), id="colon in name"),
        pytest.param(("\u00fc", "c"), id="name not ASCII"),
        pytest.param(("Content-Length", "3"), id="length"),
        pytest.param(("transfer-encoding", "chunked"), id="coding"),
    ],
)
def test_header_fields_that_cannot_be_sent_are_refused(field: tuple[str, str], log: Log) -> None:
    """API-20, CLI-11: upstream lets every response fail instead."""
    with pytest.raises(ValueError) as caught:
        loaded(headers=[field])
    assert report_error(caught.value)
    assert log()[-1][1].startswith(f"Cannot use headers={field!r}: ")


@pytest.mark.parametrize(
    ("values", "closes"),
    [
        ([], False),
        (["close"], True),
        (["Keep-Alive,\tClose"], True),
        (["x", "close"], True),
        (["keep-alive"], False),
        (["closed"], False),
    ],
)
def test_connection_close_for_all_responses_is_the_protocols_to_say(values: list[str], closes: bool) -> None:
    """RES-24"""
    headers = [("X-A", "b"), *(("Connection", value) for value in values)]
    config = loaded(headers=headers, server_header=False)
    assert config.closes_connections is closes
    expected = [(b"x-a", b"b"), *((b"connection", value.encode()) for value in ([] if closes else values))]
    assert config.encoded_headers == expected


def test_connection_close_is_sent_as_it_is_where_the_protocol_cannot_say_it() -> None:
    """API-07: a class of somebody else reads the default fields itself."""
    config = loaded(headers=[("connection", "close")], server_header=False, http=asyncio.Protocol)
    assert config.closes_connections is False
    assert config.encoded_headers == [(b"connection", b"close")]


def test_header_fields_are_pairs_of_text() -> None:
    """API-20"""
    config = Config(asgi_app, log_config=None, headers=[("X-A", "b")])
    assert config.headers == [("X-A", "b")]
    assert config.encoded_headers == []
    assert Config(asgi_app, log_config=None).headers == []


# Implementations


def test_loading_resolves_everything() -> None:
    """API-06"""
    config = loaded(http="auto", ws="auto", interface="auto", lifespan="off")
    assert config.loaded is True
    assert config.http_protocol_class.__module__.startswith("uvicorn.protocols.http.")
    assert config.ws_protocol_class is not None
    assert config.lifespan_class.__name__ == "LifespanOff"
    assert config.ssl is None
    assert config.encoded_headers == [(b"server", b"uvicorn")]
    assert config.interface == "asgi3"
    assert config.loaded_app is asgi_app


def test_loading_works_once() -> None:
    """API-05"""
    config = loaded()
    with pytest.raises(AssertionError):
        config.load()


@pytest.mark.parametrize("name", sorted(HTTP_PROTOCOLS.keys() - {"native", "zttp"}))
def test_http_implementations_by_name(name: str) -> None:
    assert callable(loaded(http=name).http_protocol_class)


@pytest.mark.parametrize("name", sorted(WS_PROTOCOLS.keys() - {"none", "websockets", *([] if NATIVE else ["native"])}))
def test_websocket_implementations_by_name(name: str) -> None:
    assert callable(loaded(ws=name).ws_protocol_class)


def test_no_websockets() -> None:
    assert loaded(ws="none").ws_protocol_class is None


def test_the_websockets_name_is_deprecated() -> None:
    """UPG-11"""
    with pytest.warns(UvicornDeprecationWarning, match="`websockets-sansio`"):
        config = loaded(ws="websockets")
    assert config.ws_protocol_class is not None
    assert issubclass(UvicornDeprecationWarning, UserWarning)


@pytest.mark.parametrize("name", sorted(LIFESPAN))
def test_lifespan_by_name(name: Any) -> None:
    assert loaded(lifespan=name).lifespan_class.__name__ == ("LifespanOff" if name == "off" else "LifespanOn")


class Protocol(asyncio.Protocol):
    """A third-party implementation."""


@pytest.mark.parametrize("given", [pytest.param(Protocol, id="class"), pytest.param(f"{HERE}:Protocol", id="string")])
def test_implementations_of_others(given: Any) -> None:
    """API-07, API-10"""
    config = loaded(http=given, ws=given)
    assert config.http_protocol_class.__name__ == "Protocol"  # type: ignore[attr-defined]
    assert config.ws_protocol_class is config.http_protocol_class


@pytest.mark.parametrize("setting", ["http", "ws"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("bogus", 'Import string "bogus" must be in format "<module>:<attribute>".'),
        ("not_a_module:Protocol", 'Could not import module "not_a_module".'),
    ],
)
def test_an_implementation_that_is_not_there(setting: str, value: str, reason: str, log: Log) -> None:
    """API-10, CLI-06"""
    with pytest.raises(ImportFromStringError) as caught:
        loaded(**{setting: value})
    assert report_error(caught.value)
    assert log()[0] == ("ERROR", f"Cannot use {setting}={value!r}: {reason}")
    assert (f"{setting} is one of auto," in log()[1][1]) is (value == "bogus")


@pytest.mark.parametrize(
    ("setting", "value", "library"),
    [
        ("ws", "websockets-sansio", "websockets"),
        ("ws", "wsproto", "wsproto"),
    ],
)
def test_an_implementation_without_its_library(
    setting: str, value: str, library: str, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    target = {**HTTP_PROTOCOLS, **WS_PROTOCOLS}[value] or ""
    monkeypatch.delitem(sys.modules, target.partition(":")[0], raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError) as caught:
        loaded(**{setting: value})
    assert report_error(caught.value)
    assert log()[-1][1].startswith(f"Cannot use {setting}={value!r}: it needs {library}")


def test_the_native_implementation_says_when_it_is_missing(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    """ZT-01: `zttp` is another name for it, with one warning."""
    monkeypatch.setitem(sys.modules, "uvicorn._native", None)
    monkeypatch.delitem(sys.modules, "uvicorn.protocols.http.native_impl", raising=False)
    with pytest.raises(ModuleNotFoundError) as caught:
        loaded(http="zttp")
    assert report_error(caught.value)
    warning, (level, said) = log()
    assert warning == ("WARNING", "http='zttp' is another name for http='native' here.")
    assert level == "ERROR"
    assert said.startswith("Cannot use http='zttp': the native core was not built: install Rust ")


@pytest.mark.parametrize(
    ("core", "advice"),
    [("native", ": set http='auto' or 'native'."), ("httptools", ", which was not built: install Rust ")],
)
@pytest.mark.parametrize("http", ["auto", "h11"])
def test_http2_is_refused_in_one_line(
    http: str, core: str, advice: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """API-14"""
    monkeypatch.setattr("uvicorn.protocols.http.auto.CORE", core)
    monkeypatch.setattr("uvicorn.protocols.http.auto.AutoHTTPProtocol", H11Protocol)
    with pytest.raises(ValueError) as caught:
        loaded(http=http, http2=True)
    assert report_error(caught.value)
    ((level, said),) = log()[-1:]
    assert level == "ERROR"
    assert said.startswith(f"Cannot use http2=True, http='{http}': HTTP/2 needs the native core{advice}")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "Cannot use http3=True: HTTP/3 is always encrypted: set ssl_certfile and ssl_keyfile."),
        (
            {"tls": "openssl"},
            "Cannot use http3=True, tls='openssl': HTTP/3 needs rustls: set tls to 'auto' or 'rustls'.",
        ),
        ({"uds": "s"}, "Cannot use http3=True, uds='s': HTTP/3 needs an IP address: name both in bind"),
        ({"bind": ["unix:s"]}, "Cannot use http3=True, bind=['unix:s']: HTTP/3 needs an IP address: add HOST:PORT"),
        ({"http3_alt_svc": ":443"}, "it must be like h3="),
        ({"http": "h11"}, "Cannot use http3=True, http='h11': HTTP/3 needs the native core"),
        ({"http": "native", "core": None}, "this build of the native core has no HTTP/3: install uvicorn again."),
        (
            {"http": "native", "ssl_cert_reqs": 1},
            "Cannot use http3=True: HTTP/3 needs rustls, and it rejects some certificates of clients, unless tls='",
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_http3_is_refused_in_one_line(
    settings: dict[str, Any],
    text: str,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_path: str,
) -> None:
    if sys.platform != "linux":
        text = "HTTP/3 needs Linux; elsewhere let a proxy serve it."
    elif "http" in settings:
        native = pytest.importorskip("uvicorn._native")
        monkeypatch.setattr(native, "HTTP3Listener", settings.get("core", object), raising=False)
    if settings:
        certificate = (tls_certificate_server_cert_path, tls_certificate_private_key_path)
        settings = {"ssl_certfile": certificate[0], "ssl_keyfile": certificate[1], **settings}
    with pytest.raises(ValueError) as caught:
        config = {name: settings[name] for name in settings if name != "core"}
        Config(app=asgi_app, log_config=None, http3=True, **config).check()
    assert report_error(caught.value)
    assert text in log()[-1][1]


def test_http3_beside_the_proxy_protocol_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, Any] = {"http3": True, "ssl_certfile": "unread", "proxy_protocol": True}
    with caplog.at_level(logging.WARNING, "uvicorn.error"):
        Config(app=asgi_app, log_config=None, **settings)
    assert "http3=True, proxy_protocol=True serves HTTP/3 without PROXY headers" in caplog.text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"http2_initial_window_size": 0}, "a whole number of bytes from 1 to 2147483647, not 0."),
        ({"http2_initial_window_size": 2**31}, "bytes from 1 to 2147483647, not 2147483648."),
        ({"http2_max_frame_size": 16383}, "bytes from 16384 to 16777215, not 16383."),
        ({"http2_max_frame_size": 2**24}, "bytes from 16384 to 16777215, not 16777216."),
    ],
)
def test_what_http2_cannot_say_is_refused_in_one_line(settings: dict[str, Any], text: str, log: Log) -> None:
    with pytest.raises(ValueError) as caught:
        loaded(**settings)
    assert report_error(caught.value)
    assert log()[-1][1].endswith(text)


@pytest.mark.parametrize(("http2", "protocols"), [(True, ("h2", "http/1.1")), (False, None)])
def test_alpn_offers_http2_where_it_is_spoken(
    http2: bool, protocols: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    offered: list[Any] = []
    monkeypatch.setattr("uvicorn.tls.context.load_ssl_context", lambda config, protocols: offered.append(protocols))
    loaded(http="native", http2=http2, ssl_certfile="any.pem")
    assert offered == [protocols]


def test_an_unknown_lifespan_is_refused(log: Log) -> None:
    """API-09: deliberately different, upstream finds it when loading"""
    with pytest.raises(SettingError) as caught:
        Config(asgi_app, log_config=None, lifespan="maybe")  # type: ignore[arg-type]
    assert report_error(caught.value)
    assert log() == [("ERROR", "lifespan must be one of auto, on, off, not 'maybe'.")]


# Event loops


def custom_loop() -> asyncio.AbstractEventLoop:
    raise NotImplementedError


not_a_function = 3


def test_no_loop_factory() -> None:
    """API-12"""
    assert Config(asgi_app, log_config=None, loop="none").get_loop_factory() is None


@pytest.mark.parametrize("name", sorted(LOOP_FACTORIES.keys() - {"none", "zuvloop", "uvloop"}))
def test_loop_factories_by_name_make_a_new_loop(name: str) -> None:
    """API-12"""
    factory = Config(asgi_app, log_config=None, loop=name).get_loop_factory()
    assert factory is not None
    loop = factory()
    loop.close()
    assert isinstance(loop, asyncio.AbstractEventLoop)


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop is not for Windows")
@pytest.mark.parametrize("name", ["auto", "uvloop"])
def test_uvloop_is_chosen_where_it_is_installed(name: str) -> None:
    """API-12"""
    uvloop = pytest.importorskip("uvloop")
    assert Config(asgi_app, log_config=None, loop=name).get_loop_factory() is uvloop.new_event_loop


def test_a_loop_factory_by_import_string() -> None:
    """API-11"""
    assert Config(asgi_app, log_config=None, loop=f"{HERE}:custom_loop").get_loop_factory() is custom_loop


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        ("bogus", 'Import string "bogus" must be in format "<module>:<attribute>".'),
        ("not_a_module:loop", 'Could not import module "not_a_module".'),
        (f"{HERE}:not_a_function", f'"{HERE}:not_a_function" is not callable.'),
    ],
)
def test_a_loop_factory_that_is_not_there_ends_with_status_3(loop: str, reason: str, log: Log) -> None:
    """API-11"""
    with pytest.raises(SystemExit) as caught:
        Config(asgi_app, log_config=None, loop=loop).get_loop_factory()
    assert caught.value.code == 3
    assert log()[0] == ("ERROR", f"Error loading custom loop setup function. {reason}")
    assert log()[1][1].startswith("loop is one of none, auto,")


def test_a_loop_instead_of_a_loop_factory_ends_with_status_3(log: Log) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(SystemExit):
        Config(asgi_app, log_config=None, loop=loop).get_loop_factory()
    assert log()[1] == ("INFO", "Give a function that returns a new loop, or await Server.serve() in this one.")


@pytest.mark.parametrize("name", ["uvloop", "zuvloop"])
def test_a_loop_without_its_library(name: str, monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    monkeypatch.delitem(sys.modules, f"uvicorn.loops.{name}", raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError) as caught:
        Config(asgi_app, log_config=None, loop=name).get_loop_factory()
    assert report_error(caught.value)
    assert log()[-1][1].startswith(f"Cannot use loop={name!r}: ")


def test_setup_event_loop_points_to_its_successor() -> None:
    """API-13"""
    with pytest.raises(AttributeError, match="get_loop_factory"):
        Config(asgi_app, log_config=None).setup_event_loop()


# Sockets and the rest


def test_bind_socket_binds_one_inheritable_socket_and_says_where(log: Log) -> None:
    """SOCK-02, SOCK-03, SOCK-04"""
    config = Config(asgi_app, log_config=None, host="127.0.0.1", port=0)
    with config.bind_socket() as sock:
        assert sock.get_inheritable()
        host, port = sock.getsockname()
    assert host == "127.0.0.1"
    assert log() == [("INFO", f"Uvicorn running on http://127.0.0.1:{port} (Press CTRL+C to quit)")]


def test_bind_socket_ends_with_status_3_when_the_address_is_taken(log: Log) -> None:
    """API-21, SOCK-06"""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = Config(asgi_app, log_config=None, port=taken.getsockname()[1])
        with pytest.raises(SystemExit) as caught:
            config.bind_socket()
    assert caught.value.code == 3
    (level, text), (_, advice) = log()
    assert level == "ERROR"
    assert "address already in use" in text
    assert "choose another port" in advice


@pytest.mark.parametrize(("setting", "resolved"), [(None, 25), (0, 0), (7, 7), pytest.param(-1, None, id="for ever")])
def test_graceful_shutdown_is_finite_unless_told_otherwise(setting: int | None, resolved: float | None) -> None:
    """LIFE-19: deliberately different, None waits for ever upstream."""
    config = Config(asgi_app, log_config=None, timeout_graceful_shutdown=setting)
    assert config.graceful_timeout == resolved
    assert config.timeout_graceful_shutdown == setting


def test_a_configuration_survives_pickling() -> None:
    """MP-02"""
    config = Config(f"{HERE}:asgi_app", port=7, headers=[("a", "b")], workers=3, ssl_ciphers="x", root_path="/r")
    copy = pickle.loads(pickle.dumps(config))
    assert vars(copy) == vars(config)


def test_configurations_compare_by_identity() -> None:
    config, other = Config(asgi_app, log_config=None), Config(asgi_app, log_config=None)
    assert config != other
    assert len({config, other, config}) == 2


@pytest.mark.parametrize("setting", ["http", "ws", "loop"])
def test_a_missing_package_around_an_implementation_is_one_line(setting: str, log: Log) -> None:
    """API-10, API-11"""
    settings: dict[str, Any] = {setting: "not_a_package.module:thing"}
    with pytest.raises(ModuleNotFoundError) as caught:
        loaded(**settings).get_loop_factory()
    assert report_error(caught.value)
    line = f"Cannot use {setting}='not_a_package.module:thing': No module named 'not_a_package'"
    assert log()[-1] == ("ERROR", line)


# What a parent of processes looks at


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"http": "bogus"}, ImportFromStringError),
        ({"ws": "bogus"}, ImportFromStringError),
        ({"loop": "bogus"}, SystemExit),
        ({"http2": True, "http": "h11"}, ValueError),
        ({"http2_max_frame_size": 1}, ValueError),
        ({"lifespan": "bogus"}, SettingError),
        ({"headers": [("a b", "c")]}, ValueError),
        ({"ssl_keyfile": "not-there.pem"}, AssertionError),
        ({"ssl_certfile": "not-there.pem"}, FileNotFoundError),
    ],
)
def test_mistakes_are_found_without_the_application(settings: dict[str, Any], error: type[BaseException]) -> None:
    """MP-24, TLS-04"""
    with pytest.raises(error):
        Config("not_there:app", log_config=None, **settings).check()


def test_what_is_checked_is_not_loaded() -> None:
    """MP-24: a module that is named is the application's, and the parent does not import it."""
    config = Config("not_there:app", log_config=None, http="not_there:Protocol", ws="not_there:Protocol", workers=2)
    config.check()
    assert not config.loaded
    Config(asgi_app, log_config=None, http=asyncio.Protocol, ws="bogus", interface="wsgi").check()


def test_context_factory_of_the_user_is_left_to_the_workers() -> None:
    """TLS-06"""

    def factory(config: Config, default: Any) -> Any:
        raise NotImplementedError

    Config("not_there:app", log_config=None, ssl_context_factory=factory).check()


def test_an_error_no_setting_caused_is_not_reported(log: Log) -> None:
    assert report_error(ValueError("something else")) is False
    assert log() == []


def test_an_error_without_text_is_reported_by_its_type(log: Log) -> None:
    from uvicorn.config.errors import blaming

    with pytest.raises(NotImplementedError) as caught, blaming("a=1", "b=2"):
        raise NotImplementedError
    assert report_error(caught.value)
    assert log() == [("ERROR", "Cannot use a=1, b=2: NotImplementedError")]


def test_building_a_configuration_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Config(asgi_app)


def _numbers() -> list[str]:
    return [name for name, row in ROWS.items() if isinstance(values_of(row), Number) and name != "ws_shutdown_code"]


def test_number_has_a_type_and_a_range(subtests: pytest.Subtests) -> None:
    """One table says both, wherever a value comes from."""
    for name in _numbers():
        with subtests.test(name):
            row = ROWS[name]
            wrong: list[Any] = [True, "many", b"1", [1], float("nan")]
            wrong += [row.minimum - 1] if row.minimum is not None else []
            wrong += [row.maximum + 1] if row.maximum is not None else []
            wrong += [row.above] if row.above is not None else []
            wrong += [float("inf"), float("-inf"), 10**30]
            wrong += [10.5] if "int" in row.kinds and (row.kw_only or row.unit != "seconds") else []
            for value in wrong:
                with pytest.raises(SettingError, match="must be") as caught:
                    Config(asgi_app, **{name: value})
                assert report_error(caught.value), "it is one line"
            right = row.minimum if row.minimum is not None else (row.above or 0) + 1
            assert getattr(Config(asgi_app, **{name: str(right)}), name) == right


# What programs leave unset


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"access_log": None}, True),
        ({"http": None}, "auto"),
        ({"root_path": None}, ""),
        ({"root_path": []}, ""),
        ({"timeout_keep_alive": None}, 5),
        ({"timeout_keep_alive": ""}, 5),
        ({"limit_max_requests_jitter": None}, 0),
        ({"limit_concurrency": ""}, None),
        ({"ws_max_size": ""}, 16777216),
        ({"ws_max_size": None}, None),
        ({"ws_max_queue": None}, 32),
        ({"ws_ping_interval": ""}, None),
        ({"ws_ping_timeout": []}, None),
        ({"workers": ""}, 1),
        ({"workers": False}, 1),
        ({"ws_ping_interval": False}, 0),
        ({"reload_dirs": ""}, []),
        ({"port": False}, 0),
    ],
)
def test_what_is_not_set_or_empty_is_not_given(settings: dict[str, Any], expected: object, log: Log) -> None:
    """Upstream keeps most of it, and fails with some or all requests."""
    config = Config(asgi_app, log_config=None, **settings)
    config.load()
    (name,) = settings
    assert getattr(config, name) == expected
    assert type(getattr(config, name)) is type(expected)
    assert [entry for entry in log() if NATIVE or "native core" not in entry[1]] == []


def test_loop_that_is_not_set_is_left_to_the_policy() -> None:
    loop: Any = None
    assert Config(asgi_app, log_config=None, loop=loop).get_loop_factory() is None


@pytest.mark.parametrize("http", [0, False, [], 5])
def test_what_is_no_protocol_class_is_refused(http: Any, log: Log) -> None:
    """Upstream starts, and closes every connection."""
    with pytest.raises(SettingError) as caught:
        Config(asgi_app, log_config=None, http=http).load()
    assert report_error(caught.value)
    assert log()[0][1].startswith(("Cannot use http=", "http must be one of auto, "))


@pytest.mark.parametrize("factory", ["", 0, []])
def test_context_factory_that_is_none_does_not_serve_clear_text(factory: Any) -> None:
    with pytest.raises(TypeError, match="not callable"):
        Config(asgi_app, log_config=None, ssl_context_factory=factory).load()


@pytest.mark.parametrize(("root_path", "warnings"), [("/api", 0), ("", 0), ("api", 1)])
def test_a_root_path_without_a_slash_is_a_warning(root_path: str, warnings: int, log: Log) -> None:
    Config(asgi_app, log_config=None, root_path=root_path)
    found = [text for level, text in log() if level == "WARNING"]
    assert found == ["root_path='api' should begin with a slash, as the paths of requests do."][:warnings]
