"""The command line: what it accepts, and how it refuses the rest."""

from __future__ import annotations

import importlib
import json
import logging.config
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import uvicorn
from tests.process import ROOT, ServerProcess
from tests.utils import as_cwd

HERE = "tests.test_cli:app"

NOT_BUILT = (
    "the native core was not built: install Rust 1.88 or later (https://rustup.rs), "
    "then reinstall uvicorn (pip install --force-reinstall --no-deps)"
)


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


def main_module() -> Any:
    return importlib.import_module("uvicorn.main")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path) -> Iterator[Path]:
    with as_cwd(tmp_path):
        yield tmp_path


def invoke(*args: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(uvicorn.main, args, env=env)


# Usage


def test_without_application_it_is_a_usage_error() -> None:
    """CLI-02, CLI-04"""
    result = invoke()
    assert result.exit_code == 2
    assert result.output.startswith("Usage:")
    assert result.output.endswith("Error: Missing argument 'APP'.\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(["--log-level", "LOUD"], "must be one of critical, ", id="CLI-05 level"),
        pytest.param(["--log-lev", "info"], "No such option", id="CLI-18 abbreviated"),
        pytest.param(["--port", "x"], "'--port': must be a whole number from 0 to 65535, not 'x'.", id="no number"),
        pytest.param(
            ["--ws-ping-interval", "None"], "must be a number of seconds, at least 0, not 'None'.", id="CLI-17 None"
        ),
        pytest.param(
            ["--ws-per-message-deflate", "perhaps"], "must be true or false, not 'perhaps'.", id="CLI-16 no boolean"
        ),
        pytest.param(["--ws-per-message-deflate"], "requires an argument", id="CLI-16 no flag"),
        pytest.param(["--interface", "cgi"], "must be one of auto, asgi3, asgi2, wsgi, not 'cgi'.", id="no choice"),
        pytest.param(["--env-file", "not-there"], "does not exist", id="CLI-07 env file"),
        pytest.param(["--log-config", "not-there"], "does not exist", id="CLI-07 log config"),
        pytest.param(["--reload-dir", "not-there"], "does not exist", id="CLI-07 reload dir"),
        pytest.param(["--no-reload"], "No such option", id="CLI-19 reload"),
        pytest.param(["--no-factory"], "No such option", id="CLI-19 factory"),
        pytest.param(["--no-http2"], "No such option", id="CLI-19 http2"),
        pytest.param(["--no-reset-contextvars"], "No such option", id="CLI-19 reset contextvars"),
        pytest.param(["--workers", "0"], "a whole number from 1 to 1024 or `auto`, not '0'.", id="no workers"),
        pytest.param(["--workers", "many"], "a whole number from 1 to 1024 or `auto`, not 'many'.", id="many workers"),
        pytest.param(["--workers", "-1"], "a whole number from 1 to 1024 or `auto`, not '-1'.", id="negative workers"),
        pytest.param(
            ["--limit-concurrency", "0"], "must be a whole number, at least 1, not '0'; leave it out for no limit."
        ),
        pytest.param(["--workers", "99999999"], "a whole number from 1 to 1024 or `auto`", id="too many workers"),
        pytest.param(["--access-log-format", "%(z)s"], "unknown atom %(z)s", id="access log format"),
        pytest.param(["another:app"], "Got unexpected extra argument", id="two applications"),
        pytest.param(["--ssl-context-factory", "x:y"], "No such option", id="TLS-08 Python only"),
    ],
)
def test_usage_errors_are_status_2(args: list[str], message: str, arguments: dict[str, Any]) -> None:
    """CLI-04, CLI-05, CLI-07, CLI-16, CLI-17, CLI-18, CLI-19, TLS-08"""
    result = invoke(HERE, *args)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert arguments == {}


def test_a_wrong_variable_is_the_same_usage_error(arguments: dict[str, Any]) -> None:
    """ENV-04"""
    result = invoke(HERE, env={"UVICORN_PORT": "x"})
    assert result.exit_code == 2
    message = "Invalid value for UVICORN_PORT: must be a whole number from 0 to 65535, not 'x'."
    assert message in result.output


@pytest.mark.parametrize("value", ["true", "on", "1", "yes"])
def test_deflate_takes_a_value(value: str, arguments: dict[str, Any]) -> None:
    """CLI-16"""
    assert invoke(HERE, "--ws-per-message-deflate", value).exit_code == 0
    assert arguments["ws_per_message_deflate"] is True


@pytest.mark.parametrize("setting", ["loop", "http", "ws"])
def test_implementations_are_free_text(setting: str, arguments: dict[str, Any]) -> None:
    """CLI-06"""
    assert invoke(HERE, f"--{setting}", "anything").exit_code == 0
    assert arguments[setting] == "anything"


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("access_log", "access-log"),
        ("use_colors", "use-colors"),
        ("proxy_headers", "proxy-headers"),
        ("server_header", "server-header"),
        ("date_header", "date-header"),
    ],
)
def test_flags_with_an_off_form(name: str, flag: str, arguments: dict[str, Any]) -> None:
    """CLI-19"""
    assert invoke(HERE, f"--{flag}").exit_code == 0
    assert arguments[name] is True
    assert invoke(HERE, f"--no-{flag}").exit_code == 0
    assert arguments[name] is False


# Precedence


def test_the_command_line_wins_over_the_environment(arguments: dict[str, Any]) -> None:
    """ENV-01"""
    assert invoke(HERE, "--port", "1111", env={"UVICORN_PORT": "2222"}).exit_code == 0
    assert arguments["port"] == 1111


def test_variables_are_named_after_the_setting(arguments: dict[str, Any]) -> None:
    """ENV-02"""
    assert invoke(HERE, env={"UVICORN_RELOAD_DIR": "not-there", "UVICORN_RELOAD_DIRS": "."}).exit_code == 0
    assert arguments["reload_dirs"] == (".",)


def test_variables_without_prefix_are_not_read(arguments: dict[str, Any]) -> None:
    """ENV-16"""
    assert invoke(HERE, env={"PORT": "1", "HOST": "0.0.0.0"}).exit_code == 0
    assert (arguments["port"], arguments["host"]) == (8000, "127.0.0.1")


def test_a_variable_stands_in_for_the_argument(arguments: dict[str, Any]) -> None:
    """ENV-05, CLI-02"""
    assert invoke(env={"UVICORN_APP": "from:variable"}).exit_code == 0
    assert arguments["app"] == "from:variable"
    assert invoke("from:argument", env={"UVICORN_APP": "from:variable"}).exit_code == 0
    assert arguments["app"] == "from:argument"


def test_empty_lists_are_handed_on_as_none(arguments: dict[str, Any]) -> None:
    """CLI-21"""
    assert invoke(HERE).exit_code == 0
    assert [arguments[name] for name in ("reload_dirs", "reload_includes", "reload_excludes")] == [None] * 3


# Header fields


@pytest.mark.parametrize(
    ("text", "field"),
    [
        pytest.param("X-A:b", ["X-A", "b"], id="plain"),
        pytest.param("X-B:c:d", ["X-B", "c:d"], id="CLI-09 first colon only"),
        pytest.param("X-A: b ", ["X-A", "b"], id="CLI-10 trimmed"),
        pytest.param("X-A:", ["X-A", ""], id="empty"),
        pytest.param("A:default-src 'self'; x y", ["A", "default-src 'self'; x y"], id="spaces inside"),
    ],
)
def test_header_fields(text: str, field: list[str], arguments: dict[str, Any]) -> None:
    """CLI-09, CLI-10, CLI-11"""
    assert invoke(HERE, "--header", text).exit_code == 0
    assert arguments["headers"] == [field]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nocolon", "it must be Name:Value."),
        (":value", "it must be Name:Value."),
        ("a b:c", "'a b' is not the name of a header field."),
    ],
)
def test_what_is_no_header_field_is_status_1(text: str, reason: str, arguments: dict[str, Any]) -> None:
    """CLI-12"""
    result = invoke(HERE, "--header", text)
    assert result.exit_code == 1
    said = f"Error: Invalid value for '--header': {text!r}: {reason}\n"
    assert result.output.endswith(said)
    assert arguments == {}


# Version and help


@pytest.mark.parametrize(
    ("args", "env"),
    [
        pytest.param(["--version"], {}, id="option"),
        pytest.param(["not.there:app", "--version"], {}, id="with an application"),
        pytest.param([], {"UVICORN_VERSION": "1"}, id="variable"),
    ],
)
def test_version(args: list[str], env: dict[str, str]) -> None:
    """CLI-03"""
    result = invoke(*args, env=env)
    assert result.exit_code == 0
    first, second = result.output.splitlines()
    assert first == (
        f"Running uvicorn {uvicorn.__version__} with {platform.python_implementation()} "
        f"{platform.python_version()} on {platform.system()}"
    )
    assert re.match(r"Fork of uvicorn 0\.54\.0; HTTP core: (native$|(httptools|h11) \(the native core )", second)


@pytest.mark.parametrize(
    ("core", "line"),
    [
        pytest.param("native", "native", id="native"),
        pytest.param("httptools", f"httptools ({NOT_BUILT})", id="httptools"),
        pytest.param("h11", f"h11 ({NOT_BUILT})", id="h11"),
    ],
)
def test_version_names_the_core_that_auto_picks(core: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from uvicorn.protocols.http import auto

    monkeypatch.setattr(auto, "CORE", core)
    assert invoke("--version").output.splitlines()[1] == f"Fork of uvicorn 0.54.0; HTTP core: {line}"


def test_version_says_why_a_core_that_was_built_does_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    from uvicorn.protocols.http import auto

    monkeypatch.setattr(auto, "CORE", "h11")
    monkeypatch.setattr(auto, "_failed", {"uvicorn.protocols.http.native_impl": ImportError("undefined symbol: x")})
    assert "h11 (the native core cannot be imported: undefined symbol: x; install Rust" in invoke("--version").output


def test_fork_is_required_by_an_option_that_upstream_has_not(arguments: dict[str, Any]) -> None:
    assert uvicorn.__fork__ == "0.54.0"
    result = invoke("--check", "--require-fork")
    assert (result.exit_code, result.output.count("\n")) == (0, 1)
    assert result.output.startswith("Fork of uvicorn 0.54.0; HTTP core: ")
    assert "application " in invoke("--check", "--require-fork", HERE).output
    missing = invoke("--require-fork")
    assert missing.exit_code == 2 and "Missing argument 'APP'" in missing.output
    assert arguments == {}
    assert invoke("--require-fork", HERE).exit_code == 0
    assert arguments["app"] == HERE


def test_help_lists_every_option() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for parameter in uvicorn.main.params:
        for flag in parameter.opts:
            assert flag == "app" or flag in result.output


def test_help_begins_with_examples() -> None:
    example = invoke("--help").output.splitlines()[2].partition("#")[0]
    assert example.split() == ["uvicorn", "main:app", "--reload"]


def test_completion_does_not_print_the_version() -> None:
    """What shells do to complete an option must have no effects."""
    context = uvicorn.main.make_context("uvicorn", ["--version", HERE], resilient_parsing=True)
    assert context.params["app"] == HERE


# As a process: the exit status, and one line instead of a traceback


def command(*args: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    with ServerProcess(*args, env=env) as server:
        return server.wait(), server.error_output + server.output


@pytest.fixture
def broken_modules(directory: Path) -> None:
    sources = {
        "served": "async def app(scope, receive, send): pass",
        "syntax": "def app(:",
        "raising": "raise RuntimeError('inside')",
        "quitting": "import sys\nsys.exit()",
        "dependency": "import not_a_dependency",
        "factories": (
            "import sys\ndef quits():\n    sys.exit(0)\n"
            "def fails():\n    raise LookupError('inside')\ndef mistyped():\n    raise TypeError('inside')"
        ),
    }
    for name, source in sources.items():
        (directory / f"{name}.py").write_text(source + "\n")
    (directory / "broken.json").write_text("{")
    (directory / "broken.ini").write_text("nothing\n")
    (directory / "partial.ini").write_text("[loggers]\nkeys = root\n")
    (directory / "broken.pem").write_text("nothing\n")
    (directory / "server.env").write_text("A=b\n")


@pytest.mark.usefixtures("broken_modules")
@pytest.mark.parametrize(
    ("args", "status", "last_error"),
    [
        pytest.param(["served"], 3, "Error loading ASGI app. Import string", id="APP-01 form"),
        pytest.param(["nope:app"], 3, 'Error loading ASGI app. Could not import module "nope".', id="APP-05 module"),
        pytest.param(["served:x"], 3, "Error loading ASGI app. Attribute", id="APP-04 attribute"),
        pytest.param(["nope.sub:app"], 1, "Cannot use app='nope.sub:app': No module", id="APP-07 package"),
        pytest.param(
            ["factories:mistyped", "--factory"], 3, "Error loading ASGI app factory: inside", id="APP-16 factory"
        ),
        pytest.param(["served:app", "--http", "bogus"], 1, "Cannot use http='bogus'", id="CLI-06 http"),
        pytest.param(["served:app", "--ws", "bogus"], 1, "Cannot use ws='bogus'", id="CLI-06 ws"),
        pytest.param(["served:app", "--loop", "bogus"], 3, "Error loading custom loop", id="CLI-06 loop"),
        pytest.param(["served:app", "--http2", "--http", "h11"], 1, "Cannot use http2=True", id="API-14 http2"),
        pytest.param(["served:app", "--ssl-certfile", "x.pem"], 1, "Cannot use ssl_certfile='x.pem'", id="CLI-08 file"),
        pytest.param(["served:app", "--ssl-keyfile", "x.pem"], 1, "Cannot use ssl_keyfile='x.pem'", id="TLS-02 key"),
        pytest.param(
            ["served:app", "--ssl-certfile", "broken.pem"],
            1,
            "Cannot use ssl_certfile='broken.pem'",
            id="CLI-08 content",
        ),
        pytest.param(
            ["served:app", "--ssl-certfile", "broken.pem", "--ssl-keyfile", "x.pem"],
            1,
            "Cannot use ssl_keyfile='x.pem': ",
            id="CLI-08 one of two",
        ),
        pytest.param(
            ["served:app", "--forwarded-allow-ips", "10.0.0.1/8"],
            1,
            "Cannot use forwarded_allow_ips='10.0.0.1/8': '10.0.0.1/8' is an address in a network; write 10.0.0.0/8.",
            id="PRX-04 host bits",
        ),
    ],
)
def test_mistakes_end_in_one_line(args: list[str], status: int, last_error: str) -> None:
    """APP-01, APP-04, APP-05, APP-07, APP-10, APP-16, API-10, API-11, API-14, CLI-06, CLI-08, CLI-12, TLS-02"""
    code, output = command(*args, "--port", "0")
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    assert len(errors) == 1, output
    assert errors[0].startswith(f"ERROR:    {last_error}")
    assert "Traceback" not in output
    assert "RuntimeWarning" not in output
    assert "Started server process" not in output
    assert code == status


@pytest.mark.usefixtures("broken_modules")
@pytest.mark.parametrize("mode", [["--workers", "2"], ["--reload"]], ids=["workers", "reload"])
@pytest.mark.parametrize(
    ("args", "status", "last_error"),
    [
        (["--http", "bogus"], 1, "Cannot use http='bogus'"),
        (["--loop", "bogus"], 3, "Error loading custom loop"),
        (["--ssl-certfile", "x.pem"], 1, "Cannot use ssl_certfile='x.pem'"),
    ],
)
def test_mistakes_in_settings_end_before_there_are_processes(
    mode: list[str], args: list[str], status: int, last_error: str
) -> None:
    """CLI-06, CLI-08, TLS-04, MP-19: one line, not one for each worker, and no attempt after the other."""
    code, output = command("served:app", *args, *mode, "--port", "0")
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    assert len(errors) == 1, output
    assert errors[0].startswith(f"ERROR:    {last_error}")
    assert code == status
    assert "running on" not in output


@pytest.mark.measures_children
@pytest.mark.usefixtures("broken_modules")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken.json", "Expecting property name"),
        ("broken.ini", None),
        ("partial.ini", "there is no section or key 'formatters'."),
    ],
)
def test_a_broken_logging_configuration_ends_in_one_line(name: str, reason: str | None) -> None:
    """LOG-12: there is no logging yet, so the line has the form of the default one."""
    advice = []
    if reason is None:
        # What Python says of it: releases of 3.11 differ in this.
        with pytest.raises(Exception, match=r"File contains no section headers\.") as caught:
            logging.config.fileConfig(name)
        reason = str(caught.value).splitlines()[0]
        advice = ["INFO:     Files for dictConfig end in .json, .yaml or .yml; others are read as INI (fileConfig)."]
    code, output = command("served:app", "--log-config", name)
    line, *rest = output.splitlines()
    assert line.startswith(f"ERROR:    Cannot use log_config={name!r}: {reason}")
    assert rest == advice
    assert code == 1


@pytest.mark.usefixtures("broken_modules")
def test_a_path_in_place_of_a_module_is_put_right() -> None:
    """APP-01"""
    code, output = command("served.py:app")
    assert output.splitlines()[-2:] == [
        'ERROR:    Error loading ASGI app. Could not import module "served.py".',
        'INFO:     Write a module instead of a path: "served:app".',
    ]
    assert code == 3


@pytest.mark.measures_children
@pytest.mark.usefixtures("broken_modules")
def test_a_missing_app_dir_is_named(directory: Path) -> None:
    """CLI-13: no error by itself, the application may be installed."""
    line = "WARNING:  The directory 'nowhere' in which to look for the application does not exist (--app-dir).\n"
    code, output = command("unknown:app", "--app-dir", "nowhere")
    assert line in output
    assert code == 3
    with ServerProcess(
        "served:app", "--app-dir", "nowhere", "--port", "0", env={"PYTHONPATH": f"{directory}:{ROOT}"}
    ) as server:
        assert server.port
        assert line in server.error_output


@pytest.mark.usefixtures("broken_modules")
@pytest.mark.parametrize(
    "arguments",
    [["quitting:app"], ["factories:quits", "--factory"], ["quitting:app", "--workers", "2", "--port", "0"]],
    ids=["import", "factory", "workers"],
)
def test_application_that_ends_the_process_while_it_is_loaded_is_a_failure(arguments: list[str]) -> None:
    """A service manager that restarts on failure has to see one."""
    code, output = command(*arguments)
    assert "ERROR:    The application ended the process while it was loaded, with status 0.\n" in output
    assert code == 3


@pytest.mark.usefixtures("broken_modules")
def test_a_wrong_number_of_workers_in_the_environment_ends_in_one_line() -> None:
    """ENV-07"""
    code, output = command("served:app", env={"WEB_CONCURRENCY": "abc"})
    assert output == "ERROR:    WEB_CONCURRENCY must be a whole number from 1 to 1024 or `auto`, not 'abc'.\n"
    assert code == 1


@pytest.mark.usefixtures("broken_modules")
@pytest.mark.parametrize(
    ("args", "last_line"),
    [
        pytest.param(["syntax:app"], "SyntaxError: invalid syntax", id="APP-11 syntax"),
        pytest.param(["raising:app"], "RuntimeError: inside", id="APP-11 exception"),
        pytest.param(["dependency:app"], f"not_a_dependency is not installed in {sys.prefix}.", id="APP-06"),
        pytest.param(["factories:fails", "--factory"], "LookupError: inside", id="APP-17"),
    ],
)
def test_errors_of_the_application_keep_their_traceback(args: list[str], last_line: str) -> None:
    """APP-06, APP-11, APP-17: without the frames of the server."""
    code, output = command(*args, "--port", "0")
    files = re.findall(r'^  File "(.*)", line \d', output, re.M)
    assert list(map(os.path.basename, files)) == [f"{args[0].partition(':')[0]}.py"]
    assert output.splitlines()[-1] == last_line
    assert code == 1


@pytest.mark.usefixtures("broken_modules")
@pytest.mark.parametrize("args", [["raising:app"], ["factories:fails", "--factory"]], ids=["import", "factory"])
def test_errors_of_the_application_in_workers_are_as_short(args: list[str]) -> None:
    code, output = command(*args, "--port", "0", "--workers", "2")
    assert output.count("Error: inside\n") == 2
    assert output.count('  File "') == 2
    assert code == 3


def test_libraries_that_are_missing_end_in_one_line(directory: Path) -> None:
    """ENV-15, LOG-14"""
    (directory / "served.py").write_text("async def app(scope, receive, send): pass\n")
    (directory / "dotenv.py").write_text("raise ImportError\n")
    (directory / "yaml.py").write_text("raise ImportError\n")
    (directory / "server.env").touch()
    (directory / "log.yaml").touch()
    env = {"PYTHONPATH": f"{directory}:{ROOT}"}
    code, output = command("served:app", "--env-file", "server.env", env=env)
    assert output.startswith("ERROR:    Cannot use env_file='server.env': env files need python-dotenv")
    assert (code, len(output.splitlines())) == (1, 1)
    code, output = command("served:app", "--log-config", "log.yaml", env=env)
    assert output.startswith("ERROR:    Cannot use log_config='log.yaml': YAML needs PyYAML")
    assert (code, len(output.splitlines())) == (1, 1)


def test_an_error_that_no_setting_caused_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(app: str, **settings: Any) -> None:
        raise LookupError("inside")

    monkeypatch.setattr(main_module(), "run", run)
    assert isinstance(invoke(HERE).exception, LookupError)


SERVED = """\
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})
"""


@pytest.mark.parametrize("limit", [["--limit-max-requests", "1"]])
def test_the_application_is_found_in_the_current_directory_or_in_app_dir(directory: Path, limit: list[str]) -> None:
    """CLI-13, LIM-08"""
    from tests.utils import request

    (directory / "here.py").write_text(SERVED)
    (directory / "sub").mkdir()
    (directory / "sub" / "there.py").write_text(SERVED)
    for args in (["here:app"], ["there:app", "--app-dir", "sub"]):
        with ServerProcess(*args, "--port", "0", *limit) as server:
            assert request(server.address).endswith(b"\r\n\r\nok")
            assert server.wait() == 0


@pytest.mark.measures_children
def test_the_package_and_the_command_are_the_same(directory: Path) -> None:
    """CLI-01"""
    code = "import uvicorn.__main__, uvicorn; assert uvicorn.main.name == 'main'"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    done = subprocess.run([sys.executable, "-m", "uvicorn", "--version"], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == invoke("--version").output


def test_options_of_the_logging_configuration_file_reach_the_server(directory: Path) -> None:
    """CLI-20, LOG-12"""
    (directory / "served.py").write_text(SERVED)
    config = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "mine %(levelname)s %(message)s"}},
        "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stdout"}},
        "loggers": {"uvicorn": {"handlers": ["out"], "level": "INFO"}},
    }
    (directory / "log.json").write_text(json.dumps(config))
    with ServerProcess("served:app", "--port", "0", "--log-config", "log.json") as server:
        server.wait_for("mine INFO Uvicorn running on")


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (["help"], "--help"),
        (["version"], "--version"),
        (["run", "app:app"], "main:app"),
        (["upgrade"], "upgrade PID"),
        (["upgrade", "5", "--port", "0"], "upgrade PID"),
    ],
)
def test_commands_of_other_programs_are_put_right(arguments: list[str], instead: str) -> None:
    result = CliRunner().invoke(uvicorn.main, arguments)
    assert result.exit_code == 2
    assert result.output.endswith(f"Error: {arguments[0]!r} is not an application: write `main {instead}`.\n")


@pytest.mark.parametrize("arguments", [["upgrade:app"], ["help:app"], ["app:app"]])
def test_modules_with_the_name_of_a_command_are_applications(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    apps: list[object] = []
    monkeypatch.setattr(importlib.import_module("uvicorn.main"), "run", lambda app, **options: apps.append(app))
    assert CliRunner().invoke(uvicorn.main, arguments).exit_code == 0
    assert apps == [arguments[0]]


@pytest.mark.parametrize(
    ("outcome", "status", "text"),
    [
        ("7", 0, "Upgraded: process [7] serves in place of [5].\n"),
        (RuntimeError("why not."), 1, "Not upgraded: why not.\n"),
    ],
)
def test_upgrade_with_a_process_prints_the_outcome(
    outcome: str | Exception, status: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upgrade(pid: int) -> str:
        assert pid == 5
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("uvicorn.supervisors.upgrade_status.upgrade", upgrade)
    result = CliRunner().invoke(uvicorn.main, ["upgrade", "5"])
    assert (result.exit_code, result.output) == (status, text)


@pytest.mark.parametrize(
    ("source", "last"),
    [
        ("import no_such_framework\n", f"no_such_framework is not installed in {sys.prefix}."),
        ("import json.no_such_module\n", "ModuleNotFoundError: No module named 'json.no_such_module'"),
        ("def broken(:\n", "SyntaxError"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
    ],
)
def test_error_in_the_application_shows_its_own_frames(tmp_path: Path, source: str, last: str) -> None:
    """No frame of the command line, of the server and of the import machinery."""
    (tmp_path / "mistaken.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "uvicorn", "mistaken:app", "--app-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[-1].startswith(last)
    assert "mistaken.py" in done.stderr
    assert not {"click", "importlib", "importer.py"} & set(re.findall(r"click|importlib|importer\.py", done.stderr))


def test_reload_watches_the_directory_of_the_application_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(main_module(), "_supervise", lambda config, server: seen.extend(config.reload_dirs))
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    with as_cwd(tmp_path / "here"):
        uvicorn.run("module:app", app_dir=str(tmp_path / "there"), reload=True, log_config=None)
    assert sorted(seen) == [tmp_path / "here", tmp_path / "there"]
