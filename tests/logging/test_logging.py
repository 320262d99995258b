"""Formatters, the TRACE level, and what the logging settings do to the loggers."""

from __future__ import annotations

import configparser
import copy
import io
import json
import logging
import logging.config
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from uvicorn.config import LOGGING_CONFIG, Config
from uvicorn.config.errors import report_error
from uvicorn.logging import (
    TRACE_LOG_LEVEL,
    AccessFormatter,
    ColourizedFormatter,
    DefaultFormatter,
)

DEFAULT_FORMAT = LOGGING_CONFIG["formatters"]["default"]["fmt"]
ACCESS_FORMAT = LOGGING_CONFIG["formatters"]["access"]["fmt"]


@pytest.fixture(autouse=True)
def built_in_configuration_restored() -> Iterator[None]:
    """`use_colors` is written into the built-in configuration (LOG-15)."""
    original = copy.deepcopy(LOGGING_CONFIG)
    yield
    LOGGING_CONFIG.clear()
    LOGGING_CONFIG.update(original)


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


def record(level: int, message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("uvicorn.error", level, __file__, 1, message, args, None)
    made.__dict__.update(extra)
    return made


def access_record(status: object, path: str = "/a?b=c") -> logging.LogRecord:
    return record(20, '%s - "%s %s HTTP/%s" %d', "1.2.3.4:5", "GET", path, "1.1", status)


# Formatters


@pytest.mark.parametrize(
    ("level", "line"),
    [
        (5, "TRACE:    said 1"),
        (10, "DEBUG:    said 1"),
        (20, "INFO:     said 1"),
        (30, "WARNING:  said 1"),
        (40, "ERROR:    said 1"),
        (50, "CRITICAL: said 1"),
        (25, "Level 25: said 1"),
    ],
)
def test_the_level_and_its_blanks_take_ten_columns(level: int, line: str) -> None:
    """LOG-03, LOG-04"""
    logging.addLevelName(TRACE_LOG_LEVEL, "TRACE")
    assert DefaultFormatter(DEFAULT_FORMAT, use_colors=False).format(record(level, "said %d", 1)) == line


@pytest.mark.parametrize(
    ("level", "prefix"),
    [
        (5, "\x1b[34mTRACE\x1b[0m:   "),
        (10, "\x1b[36mDEBUG\x1b[0m:   "),
        (20, "\x1b[32mINFO\x1b[0m:    "),
        (30, "\x1b[33mWARNING\x1b[0m: "),
        (40, "\x1b[31mERROR\x1b[0m:   "),
        (50, "\x1b[91mCRITICAL\x1b[0m:"),
        (25, "Level 25:"),
    ],
)
def test_level_names_have_colours(level: int, prefix: str) -> None:
    """LOG-19"""
    logging.addLevelName(TRACE_LOG_LEVEL, "TRACE")
    assert DefaultFormatter(DEFAULT_FORMAT, use_colors=True).format(record(level, "said")) == f"{prefix} said"


@pytest.mark.parametrize(
    ("use_colors", "text"),
    [pytest.param(True, "bright 7", id="colours"), pytest.param(False, "plain 7", id="no colours")],
)
def test_color_message_takes_the_place_of_the_message_in_colour_only(use_colors: bool, text: str) -> None:
    """LOG-20"""
    line = DefaultFormatter("%(message)s", use_colors=use_colors).format(
        record(20, "plain %d", 7, color_message="bright %d")
    )
    assert line == text


@pytest.mark.parametrize("formatter_class", [DefaultFormatter, AccessFormatter])
def test_the_record_itself_is_left_alone(formatter_class: type[ColourizedFormatter]) -> None:
    """Another handler must see the record as it was made."""
    given = access_record(200)
    given.color_message = "%s %s %s %s bright %d"
    formatter_class("%(levelprefix)s", use_colors=True).format(given)
    assert given.getMessage() == '1.2.3.4:5 - "GET /a?b=c HTTP/1.1" 200'
    assert not {"levelprefix", "client_addr", "request_line", "status_code"} & set(vars(given))


def test_a_traceback_follows_the_line() -> None:
    try:
        raise LookupError("inside")
    except LookupError:
        given = record(40, "failed")
        given.exc_info = sys.exc_info()
    first, *rest = DefaultFormatter(DEFAULT_FORMAT, use_colors=False).format(given).splitlines()
    assert first == "ERROR:    failed"
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "LookupError: inside"


@pytest.mark.parametrize(
    ("status", "shown"),
    [(200, "200 OK"), (404, "404 Not Found"), (299, "299 "), (600, "600 "), (99, "99 ")],
)
def test_access_lines_have_the_phrase_of_the_status(status: int, shown: str) -> None:
    """LOG-03, LOG-22"""
    line = AccessFormatter(ACCESS_FORMAT, use_colors=False).format(access_record(status))
    assert line == f'INFO:     1.2.3.4:5 - "GET /a?b=c HTTP/1.1" {shown}'


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (101, "\x1b[97m101 Switching Protocols\x1b[0m"),
        (200, "\x1b[32m200 OK\x1b[0m"),
        (304, "\x1b[33m304 Not Modified\x1b[0m"),
        (404, "\x1b[31m404 Not Found\x1b[0m"),
        (500, "\x1b[91m500 Internal Server Error\x1b[0m"),
        (600, "600 "),
    ],
)
def test_access_lines_in_colour_show_the_class_of_the_status(status: int, shown: str) -> None:
    """LOG-21"""
    line = AccessFormatter(ACCESS_FORMAT, use_colors=True).format(access_record(status))
    assert line == f'\x1b[32mINFO\x1b[0m:     1.2.3.4:5 - "\x1b[1mGET /a?b=c HTTP/1.1\x1b[0m" {shown}'


def test_something_else_in_the_access_log_shows_its_message() -> None:
    line = AccessFormatter(ACCESS_FORMAT, use_colors=False).format(record(20, "not a %s", "request"))
    assert line == 'INFO:      - "not a request" '


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stdout", [Terminal(), io.StringIO()])
@pytest.mark.parametrize("stderr", [Terminal(), io.StringIO()])
def test_colours_follow_the_stream_the_lines_go_to(
    stdout: io.StringIO, stderr: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOG-18: deliberately different for the default formatter, whose lines go to standard error."""
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", stderr)
    assert DefaultFormatter().use_colors is stderr.isatty()
    assert AccessFormatter().use_colors is stdout.isatty()
    assert ColourizedFormatter().use_colors is stdout.isatty()


@pytest.mark.parametrize("variable", [pytest.param("NO_COLOR"), pytest.param("FORCE_COLOR"), pytest.param("TERM")])
def test_variables_have_no_influence_on_colours(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENV-16"""
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert DefaultFormatter().use_colors is True
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert DefaultFormatter().use_colors is False


def test_a_process_without_streams_has_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert DefaultFormatter().use_colors is False
    closed = Terminal()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    assert AccessFormatter().use_colors is False


# The built-in configuration


def test_the_built_in_configuration_gives_each_logger_its_place() -> None:
    """LOG-01, LOG-02, CLI-20"""
    Config(app)
    uvicorn, error, access, asgi = (
        logging.getLogger(name) for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")
    )
    (default_handler,) = uvicorn.handlers
    (access_handler,) = access.handlers
    assert isinstance(default_handler, logging.StreamHandler) and default_handler.stream is sys.stderr
    assert isinstance(access_handler, logging.StreamHandler) and access_handler.stream is sys.stdout
    assert type(default_handler.formatter) is DefaultFormatter
    assert type(access_handler.formatter) is AccessFormatter
    assert (uvicorn.level, uvicorn.propagate) == (logging.INFO, False)
    assert (error.level, error.propagate, error.handlers) == (logging.INFO, True, [])
    assert (access.level, access.propagate) == (logging.INFO, False)
    assert (asgi.level, asgi.propagate, asgi.handlers) == (logging.NOTSET, True, [])


def test_level_five_is_called_trace() -> None:
    """LOG-05"""
    logging.addLevelName(TRACE_LOG_LEVEL, "something")
    Config(app, log_config=None)
    assert logging.getLevelName(TRACE_LOG_LEVEL) == "TRACE"


@pytest.mark.parametrize(
    ("given", "level"),
    [("debug", 10), ("DEBUG", 10), ("Trace", 5), ("critical", 50), (15, 15), (0, 0)],
)
def test_log_level_sets_three_loggers_but_not_their_parent(given: str | int, level: int) -> None:
    """LOG-06, LOG-07"""
    config = Config(app, log_level=given)
    levels = [logging.getLogger(f"uvicorn.{name}").level for name in ("error", "access", "asgi")]
    assert levels == [level] * 3
    assert logging.getLogger("uvicorn").level == logging.INFO
    assert config.log_level == given


def test_without_log_level_the_configuration_decides() -> None:
    """LOG-08"""
    Config(app, log_config={"version": 1, "loggers": {"uvicorn.error": {"level": "ERROR"}}})
    assert logging.getLogger("uvicorn.error").level == logging.ERROR


def test_an_unknown_log_level_is_an_error_that_names_the_known_ones() -> None:
    """LOG-07"""
    with pytest.raises(ValueError, match="critical, error, warning, info, debug, trace"):
        Config(app, log_level="loud")


def test_access_log_false_silences_the_access_logger() -> None:
    """LOG-09"""
    Config(app, access_log=False)
    access = logging.getLogger("uvicorn.access")
    assert access.handlers == []
    assert access.propagate is False
    assert not access.hasHandlers()


def test_log_config_none_leaves_the_loggers_alone() -> None:
    """LOG-11"""
    logger = logging.getLogger("uvicorn")
    logger.handlers[:] = handlers = [logging.NullHandler()]
    Config(app, log_config=None)
    assert logger.handlers == handlers


# Other configurations


CUSTOM = {"version": 1, "disable_existing_loggers": False, "loggers": {"uvicorn.error": {"level": "WARNING"}}}

INI = """\
[loggers]
keys=root,error

[handlers]
keys=

[formatters]
keys=

[logger_root]
handlers=

[logger_error]
level=WARNING
handlers=
qualname=uvicorn.error
"""


def as_json(path: Path) -> Any:
    file = path / "log.json"
    file.write_text(json.dumps(CUSTOM))
    return str(file)


def as_yaml(path: Path) -> Any:
    file = path / "log.yaml"
    file.write_text("version: 1\ndisable_existing_loggers: false\nloggers:\n  uvicorn.error:\n    level: WARNING\n")
    return str(file)


def as_yml(path: Path) -> Any:
    return str(Path(as_yaml(path)).rename(path / "log.yml"))


def as_ini(path: Path) -> Any:
    file = path / "log.ini"
    file.write_text(INI)
    return str(file)


def as_parser(path: Path) -> Any:
    parser = configparser.RawConfigParser()
    parser.read_string(INI)
    return parser


SOURCES: dict[str, Callable[[Path], Any]] = {
    "dict": lambda path: CUSTOM,
    "json": as_json,
    "json as path object": lambda path: Path(as_json(path)),
    "yaml": as_yaml,
    "yml": as_yml,
    "ini": as_ini,
    "ini as path object": lambda path: Path(as_ini(path)),
    "file object": lambda path: io.StringIO(INI),
    "parser": as_parser,
}


@pytest.fixture
def root_logger_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers


@pytest.mark.parametrize("source", [pytest.param(source, id=name) for name, source in SOURCES.items()])
@pytest.mark.usefixtures("root_logger_restored")
def test_every_form_of_configuration_is_applied(source: Callable[[Path], Any], tmp_path: Path) -> None:
    """LOG-12, LOG-13"""
    bystander = logging.getLogger("tests.bystander")
    Config(app, log_config=source(tmp_path))
    assert logging.getLogger("uvicorn.error").level == logging.WARNING
    assert not bystander.disabled


def test_a_file_configuration_is_handed_over_as_a_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LOG-13"""
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(logging.config, "fileConfig", lambda *args, **kwargs: calls.append((args, kwargs)))
    Config(app, log_config=tmp_path / "log.ini")
    assert calls == [((str(tmp_path / "log.ini"),), {"disable_existing_loggers": False})]


def test_the_file_is_opened_by_the_configuration_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names `uvicorn.config.open` and `logging.config` are replaced by tests of applications."""
    monkeypatch.setattr("uvicorn.config.open", lambda *args, **kwargs: io.StringIO(json.dumps(CUSTOM)), raising=False)
    configured: list[Any] = []
    monkeypatch.setattr(logging.config, "dictConfig", configured.append)
    Config(app, log_config="not-there.json")
    assert configured == [CUSTOM]


def test_yaml_without_its_library_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LOG-14"""
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ImportError, match="PyYAML"):
        Config(app, log_config=as_yaml(tmp_path))


def log_config_error(log_config: Any, caplog: pytest.LogCaptureFixture) -> str:
    with pytest.raises(ValueError) as caught:
        Config(app, log_config=log_config)
    assert report_error(caught.value)
    return caplog.messages[-1]


def test_a_configuration_that_cannot_be_read_is_reported_with_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """LOG-12: one line on the command line, instead of a traceback."""
    path = tmp_path / "log.json"
    path.write_text("{")
    assert log_config_error(str(path), caplog).startswith(f"Cannot use log_config={str(path)!r}: Expecting property")


def test_a_configuration_that_is_refused_is_reported_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    handler = {"version": 1, "handlers": {"x": {"class": "not_a_module.Handler"}}}
    message = log_config_error(handler, caplog)
    assert message.startswith("Cannot use log_config=...: Unable to configure handler 'x' (Cannot resolve")


# Colours in a configuration


@pytest.mark.parametrize("use_colors", [None, ""], ids=repr)
@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_is_not_set_leaves_colours_to_the_terminal(
    use_colors: Any, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOG-15, LOG-18: as upstream has it."""
    monkeypatch.setattr(AccessFormatter, "should_use_colors", lambda self: is_terminal)
    assert AccessFormatter(use_colors=use_colors).use_colors is is_terminal
    given: dict[str, Any] = {
        "version": 1,
        "formatters": {"default": {}, "access": {}},
        "disable_existing_loggers": False,
    }
    Config("app:app", log_config=given, use_colors=use_colors)
    assert given["formatters"] == {"default": {}, "access": {}}


@pytest.mark.parametrize("use_colors", [1, 0])
def test_numbers_that_equal_true_and_false_are_those(use_colors: Any) -> None:
    assert AccessFormatter(use_colors=use_colors).use_colors is bool(use_colors)


@pytest.mark.parametrize("use_colors", [True, False])
def test_use_colors_is_written_into_the_formatters(use_colors: bool) -> None:
    """LOG-15"""
    Config(app, use_colors=use_colors)
    assert LOGGING_CONFIG["formatters"]["default"]["use_colors"] is use_colors
    assert LOGGING_CONFIG["formatters"]["access"]["use_colors"] is use_colors
    formatter = logging.getLogger("uvicorn").handlers[0].formatter
    assert isinstance(formatter, DefaultFormatter) and formatter.use_colors is use_colors


def test_without_use_colors_the_formatters_decide() -> None:
    """LOG-15, LOG-18"""
    Config(app)
    assert LOGGING_CONFIG["formatters"]["default"]["use_colors"] is None
    assert "use_colors" not in LOGGING_CONFIG["formatters"]["access"]


@pytest.mark.parametrize("use_colors", [True, False])
@pytest.mark.parametrize(
    "formatters",
    [
        pytest.param(None, id="no formatters"),
        pytest.param({"mine": {"format": "%(message)s"}}, id="other formatters"),
    ],
)
def test_use_colors_passes_over_a_configuration_without_the_formatters(
    use_colors: bool, formatters: dict[str, Any] | None
) -> None:
    """LOG-16: deliberately different, upstream fails with a KeyError."""
    config: dict[str, Any] = {**CUSTOM, **({} if formatters is None else {"formatters": formatters})}
    expected = copy.deepcopy(config)
    Config(app, log_config=config, use_colors=use_colors)
    assert config == expected


@pytest.mark.usefixtures("root_logger_restored")
def test_use_colors_has_no_effect_on_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LOG-17"""
    configured: list[Any] = []
    monkeypatch.setattr(logging.config, "dictConfig", configured.append)
    Config(app, log_config=as_json(tmp_path), use_colors=True)
    assert configured == [CUSTOM]
