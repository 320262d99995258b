"""What a setting takes, with the same answer and the same message wherever a value comes from."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Callable
from configparser import RawConfigParser
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import uvicorn
from uvicorn.config import Config
from uvicorn.config._declare import union_members
from uvicorn.config._values import accepts, check
from uvicorn.config.errors import SettingError
from uvicorn.config.settings import ROWS
from uvicorn.importer import import_from_string
from uvicorn.server import Server

WRONG = {
    "port": ("many", "port must be a whole number from 0 to 65535, not 'many'."),
    "workers": ("99999999", "workers must be a whole number from 1 to 1024 or `auto`, not '99999999'."),
    "retry_after": ("0", "retry_after must be a whole number of seconds, at least 1, not '0'."),
    "limit_connections": (
        "0",
        "limit_connections must be a whole number, at least 1, not '0'; leave it out for no limit.",
    ),
    "timeout_write": ("-1", "timeout_write must be a number of seconds, at least 0, not '-1'."),
    "backlog": ("9" * 30, f"backlog must be a whole number from 0 to 2147483647, not '{'9' * 30}'."),
    "limit_max_requests": ("9" * 30, f"Cannot use limit_max_requests='{'9' * 30}': it must be at most {sys.maxsize}."),
    "timeout_handshake": ("1e10", "Cannot use timeout_handshake='1e10': it must be at most 1000000000."),
    "access_log": ("perhaps", "access_log must be true or false, not 'perhaps'."),
    "lifespan": ("maybe", "lifespan must be one of auto, on, off, not 'maybe'."),
    "metrics": ("here", "metrics must be HOST:PORT, not 'here'."),
    "lifecycle_path": ("/live", "lifecycle_path must be a path that begins and ends with a slash, not '/live'."),
    "ws_shutdown_code": ("1006", "ws_shutdown_code must be 1000, 1001, 1012, 1013 or from 3000 to 4999, not '1006'."),
    "access_log_format": ("%", "Cannot use access_log_format='%': '%' is not an atom; "),
    "request_id_header": ("a b", "Cannot use request_id_header='a b': "),
}
"""A wrong value of a setting as a text, and the message."""


class Integer:
    """A library's integer, as NumPy's are."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> int:
        number: int = self.value
        return number


@pytest.mark.parametrize("name", WRONG)
def test_message_is_the_same_from_everywhere(name: str, tmp_path: Path) -> None:
    value, message = WRONG[name]
    with pytest.raises(SettingError) as caught:
        Config("a:b", log_config=None, **{name: value})
    # Python takes no workers, too, for one.
    assert message.replace("number from 1 to 1024", "number, at most 1024,") in str(caught.value)
    environments: list[dict[str, str]] = [{f"UVICORN_{name.upper()}": value}]
    flag = ROWS[name].option
    arguments: list[list[str]] = [["a:b"], ["a:b", flag, value]]
    environments.append({})
    if sys.version_info >= (3, 11):
        path = tmp_path / "uvicorn.toml"
        path.write_text(f"{name} = '{value}'\n")
        arguments.append(["a:b", "--config", str(path)])
        environments.append({})
    if name == "access_log":
        arguments[1:2], environments[1:2] = [], []  # a flag
    for args, env in zip(arguments, environments, strict=True):
        result = CliRunner().invoke(uvicorn.main, args, env=env)
        assert result.exit_code in (1, 2)
        # An option and a variable are named by click already.
        rest = message.removeprefix(f"{name} ").removeprefix(f"Cannot use {name}=")
        place = {flag: f"'{flag}': {rest}", "--config": message}.get(args[-2:][0], f"UVICORN_{name.upper()}: {rest}")
        assert place in result.output


@pytest.mark.parametrize(
    ("name", "value", "becomes"),
    [
        ("port", "80", 80),
        ("port", 80.0, 80),
        ("timeout_keep_alive", 1.5, 1.5),
        ("port", Integer(80), 80),
        ("timeout_keep_alive", Decimal(5), 5.0),
        ("ws_ping_interval", Fraction(1, 2), 0.5),
        ("access_log", "no", False),
        ("access_log", " Yes ", True),
        ("access_log", 1, True),
        ("log_level", "INFO", "INFO"),
        ("log_level", 15, 15),
        ("http", "module:Class", "module:Class"),
        ("http", RawConfigParser, RawConfigParser),
        ("loop", asyncio.new_event_loop, asyncio.new_event_loop),
        ("host", ["a", "b"], ["a", "b"]),
        ("uds", Path("socket"), Path("socket")),
        ("ssl_keyfile_password", b"hush", b"hush"),
        ("ssl_keyfile_password", input, input),
        ("reload_dirs", Path("a"), ["a"]),
        ("reload_dirs", (Path("a"), "b"), ["a", "b"]),
        ("reload_dirs", "", []),
        ("headers", ["A:b", ("C", "d")], [["A", "b"], ("C", "d")]),
        ("limit_queue", None, 100),
        ("limit_request_body", None, None),
        ("ws_max_size", None, None),
        ("workers", "auto", "auto"),
        ("log_config", {}, {}),
    ],
)
def test_value_becomes_what_the_setting_has(name: str, value: Any, becomes: Any) -> None:
    found = check(ROWS[name], value)
    assert found == becomes and type(found) is type(becomes)


@pytest.mark.parametrize(
    "value",
    [int, Decimal, Decimal("sNaN"), Fraction(10**400), Integer("many")],
    ids=["int", "Decimal", "no number", "too large", "no integer"],
)
@pytest.mark.parametrize("name", ["port", "ws_ping_interval"])
def test_object_that_is_no_number_is_refused_as_others(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"^{name} must be a .*, not "):
        check(ROWS[name], value)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no TOML")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout_keep_alive", 2.9),
        ("timeout_graceful_shutdown", 2.9),
        ("timeout_worker_healthcheck", 2.9),
        ("access_log", 1.0),
        ("proxy_headers", 0.0),
    ],
)
def test_file_takes_no_number_that_the_command_line_refuses(name: str, value: float, tmp_path: Path) -> None:
    path = tmp_path / "uvicorn.toml"
    path.write_text(f"{name} = {value}\n")
    result = CliRunner().invoke(uvicorn.main, ["a:b", "--config", str(path)])
    assert result.exit_code == 2
    assert f"{name} must be " in result.output and f"not {value}." in result.output


@pytest.mark.parametrize("value", [io.StringIO(), RawConfigParser(), Path("log.ini")], ids=lambda value: type(value))
def test_objects_pass_as_they_are(value: Any) -> None:
    assert check(ROWS["log_config"], value) is value


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ssl_certfile", 5, "a path, not 5."),
        ("ssl_certfile", b"cert.pem", "a path, not b'cert.pem'."),
        ("host", 127, "text or a list of texts, not 127."),
        ("host", [127], "text or a list of texts, not [127]."),
        ("access_log", 2, "true or false, not 2."),
        ("use_colors", [1], "true or false, not [1]."),
        ("http", 3, "one of auto, h11, httptools, zttp, native or an import string or a protocol class, not 3."),
        ("loop", 5, "one of none, auto, asyncio, uvloop, zuvloop or an import string or a function, not 5."),
        ("reload_dirs", 5, "a list of paths, not 5."),
        ("mount", [5], "a list of texts, not 5."),
        ("asgi_extensions", ["push"], "of http.response.trailers, "),
        ("callback_notify", "module:function", "a function, not 'module:function'."),
        ("on_worker_event", 5, "a function, not 5."),
        ("log_config", 5, "a file or a RawConfigParser or a dict or a path, not 5."),
        ("log_level", True, "or a whole number, not True."),
        ("retry_after", 1.5, "not 1.5."),
        ("ssl_keyfile_password", 5, "text or a function or bytes, not ..."),
        ("headers", [("a", 1)], "a list of texts, not ('a', 1)."),
    ],
)
def test_object_of_another_type_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(SettingError, match=f"^{name} must be ") as caught:
        check(ROWS[name], value)
    assert said in str(caught.value)


def test_default_is_taken_and_every_setting_says_what_it_takes(subtests: pytest.Subtests) -> None:
    for name, row in ROWS.items():
        with subtests.test(name):
            assert name == "app" or check(row, row.default) is row.default
            assert accepts(row)


def test_functions_that_check_values_exist(subtests: pytest.Subtests) -> None:
    paths = {path for row in ROWS.values() for path in (row.check, row.parse) if path}
    assert paths
    for path in paths:
        with subtests.test(path):
            assert callable(import_from_string(path))


def test_member_of_a_union_may_have_bars_inside() -> None:
    assert union_members("Sequence[str | int] | Callable[[], a | b] | None") == [
        "Sequence[str | int]",
        "Callable[[], a | b]",
        "None",
    ]


# What relates settings


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"ssl_ca_certs": "ca.pem"}, "ssl_ca_certs='ca.pem' is ignored without ssl_certfile."),
        ({"ssl_reload": 5}, "ssl_reload=5 is ignored without ssl_certfile."),
        ({"ssl_keyfile_password": "hush"}, "ssl_keyfile_password=... is ignored without ssl_certfile."),
        ({"limit_queue": 5}, "limit_queue=5 is ignored without limit_active_requests."),
        ({"mount_cache_control": "no-store"}, "mount_cache_control=['no-store'] is ignored without mount."),
        ({"wsgi_threads": 5}, "wsgi_threads=5 is ignored without interface=wsgi."),
        ({"http2_ping_interval": 5}, "http2_ping_interval=5 is ignored without http2."),
        ({"bind": "127.0.0.1:0", "host": "::1"}, "host='::1' is ignored: bind says where to listen."),
        ({"bind": "127.0.0.1:0", "port": 5}, "port=5 is ignored: bind says where to listen."),
        ({"fd": 3, "uds": "socket"}, "uds='socket' is ignored: fd is the socket."),
        (
            {"ssl_certfile": "a.pem", "ssl_cert_reqs": 2},
            "ssl_cert_reqs=2 rejects every client: ssl_ca_certs names no authorities to check their certificates "
            "against.",
        ),
        (
            {"ssl_certfile": "a.pem", "ssl_cert_reqs": 1},
            "ssl_cert_reqs=1 rejects every client that shows a certificate: ssl_ca_certs names no authorities to check "
            "it against.",
        ),
    ],
)
def test_setting_that_changes_nothing_is_warned_of(
    settings: dict[str, Any], warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Deliberately different: upstream ignores what it has of these without a word."""
    Config("a:b", log_config=None, **settings)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("WARNING", warning)]


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl_certfile": "a.pem", "ssl_ca_certs": "ca.pem", "ssl_cert_reqs": 2},
        {"ssl_context_factory": lambda config, default: default(), "ssl_cert_reqs": 2},
        {"limit_active_requests": 5, "limit_queue": 5},
        {"limit_queue": 100},
        {"interface": "wsgi", "wsgi_threads": 5},
        {"host": "::1", "port": 5},
    ],
)
def test_setting_that_has_what_it_needs_is_not_warned_of(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    Config("a:b", log_config=None, **settings)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bind": "127.0.0.1:0", "uds": "socket"}, "Cannot use bind=['127.0.0.1:0'], uds='socket': bind replaces uds"),
        ({"bind": "127.0.0.1:0", "fd": 3}, "Cannot use bind=['127.0.0.1:0'], fd=3: bind replaces fd"),
        ({"ssl_cert": "a.test=a.pem"}, "it needs ssl_certfile"),
        ({"systemd": True, "reload": True}, "Cannot use systemd=True: "),
        ({"wsgi_threads": 1, "wsgi_threads_min": 2}, "wsgi_threads must be at least wsgi_threads_min."),
    ],
)
def test_settings_that_exclude_each_other_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as caught:
        Config("a:b", log_config=None, **settings)
    assert said in str(caught.value)


async def application(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


def takes_three(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


class Callable3:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError


instance = Callable3()


def protocol(config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize("name", ["application", "takes_three", "instance"])
@pytest.mark.parametrize("setting", ["http", "ws"])
def test_function_that_is_no_protocol_class_is_refused(setting: str, name: str) -> None:
    """Upstream starts, and each connection ends in a traceback."""
    config = Config(application, log_config=None, **{setting: f"tests.config.test_values:{name}"})  # type: ignore[arg-type]
    with pytest.raises(SettingError) as caught:
        config.load()
    kind = "Callable3" if name == "instance" else "function"
    reason = f"it must be a protocol class, not a {kind}."
    assert str(caught.value) == f"Cannot use {setting}='tests.config.test_values:{name}': {reason}"


def test_function_that_makes_protocols_is_taken() -> None:
    config = Config(application, log_config=None, http=f"{__name__}:protocol", ws=f"{__name__}:protocol")
    config.load()
    assert config.http_protocol_class is config.ws_protocol_class is protocol


@pytest.mark.parametrize("name", ["application", "takes_three", "instance"])
def test_function_that_makes_no_loop_is_refused(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SystemExit) as caught:
        Config(application, log_config=None, loop=f"{__name__}:{name}").get_loop_factory()
    assert caught.value.code == 3
    assert caplog.messages[0].endswith(f'"{__name__}:{name}" is not a function without arguments.')


def makes_none() -> Any:
    return None


@pytest.mark.parametrize(("loop", "what"), [("makes_none", "None"), ("Callable3", "an object of type 'Callable3'")])
def test_function_that_returns_no_loop_ends_the_start(loop: str, what: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server(Config(application, log_config=None, loop=f"{__name__}:{loop}"))
    with pytest.raises(SystemExit) as caught:
        server.run()
    assert caught.value.code == 3
    assert caplog.messages[-1].endswith(f'"{__name__}:{loop}" returned {what} instead of an event loop.')


def test_callable_without_a_signature_is_taken_for_what_is_wanted() -> None:
    opaque: Callable[..., Any] = min  # of C, with two signatures
    config = Config(application, log_config=None, http=opaque)  # type: ignore[arg-type]
    config.load()
    assert config.http_protocol_class is opaque


def test_env_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "binary.env"
    path.write_bytes(b"\xff\xfe\x00A=b")
    with pytest.raises(ValueError, match=r"^it is not UTF-8 text\.$"):
        Config("a:b", log_config=None, env_file=str(path))
