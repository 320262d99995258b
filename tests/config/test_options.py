"""Help by section, shell completion, and misspelt variables."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import uvicorn
from uvicorn.config.options import GENERAL, by_section, misspelt_variables
from uvicorn.config.settings import ROWS

SECTIONS = list(dict.fromkeys(row.section for row in ROWS.values() if row.cli and row.name != "app"))


def help_of(*args: str, color: bool = False, env: dict[str, str] | None = None) -> str:
    result = CliRunner().invoke(uvicorn.main, [*args], color=color, env=env)
    assert result.exit_code == 0, result.output
    return result.output


def test_help_is_grouped_by_section_in_the_order_of_the_table() -> None:
    headings = [line[:-1] for line in help_of("--help").splitlines() if line.endswith(":") and line[0] != " "]
    assert sorted(headings) == sorted([GENERAL, *SECTIONS])
    found = by_section(uvicorn.main.params)
    for section, params in found.items():
        if section != GENERAL:
            names = [name for name, row in ROWS.items() if row.section == section and row.cli]
            assert [param.name for param in params] == [name for name in names if name != "app"]


@pytest.mark.parametrize("name", ["tls", "TLS", "http/2"])
def test_one_section_is_explained_in_full(name: str) -> None:
    output = " ".join(help_of("--help-section", name).split())
    for row in ROWS.values():
        assert (row.option in output.split()) == (row.section.lower() == name.lower() and row.cli)
    assert "Accepts a " in output


def test_section_that_there_is_not_lists_them() -> None:
    result = CliRunner().invoke(uvicorn.main, ["--help-section", "tsl"])
    assert result.exit_code == 2
    assert all(f"'{section.lower()}'" in result.output for section in SECTIONS)


@pytest.mark.parametrize(("env", "is_colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_help_is_in_colour_on_a_terminal_unless_that_is_not_wanted(env: dict[str, str], is_colored: bool) -> None:
    assert ("\x1b[" in help_of("--help", env=env)) is False
    # As click does where it is a terminal.
    for args in (["--help"], ["--help-section", "files"]):
        with uvicorn.main.make_context("uvicorn", ["a:b"]):
            pass
        result = CliRunner(env={"NO_COLOR": "", **env}).invoke(uvicorn.main, args, color=True)
        assert ("\x1b[" in result.output) is is_colored


def test_shells_complete_choices_and_options() -> None:
    """What click's completion asks for (`_UVICORN_COMPLETE`)."""
    env = {"_UVICORN_COMPLETE": "bash_complete", "COMP_WORDS": "uvicorn --lifespan o", "COMP_CWORD": "2"}
    result = CliRunner().invoke(uvicorn.main, [], env=env, prog_name="uvicorn")
    assert result.output.split() == ["plain,on", "plain,off"]
    env = {"_UVICORN_COMPLETE": "bash_complete", "COMP_WORDS": "uvicorn --ssl-ce", "COMP_CWORD": "1"}
    result = CliRunner().invoke(uvicorn.main, [], env=env, prog_name="uvicorn")
    assert result.output.split() == ["plain,--ssl-certfile", "plain,--ssl-cert-reqs", "plain,--ssl-cert"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("UVICORN_WORKER", "UVICORN_WORKERS"),
        ("UVICORN_LOGLEVEL", "UVICORN_LOG_LEVEL"),
        ("UVICORN_HEADER", "UVICORN_HEADERS"),
        ("UVICORN_RELOAD_DIR", "UVICORN_RELOAD_DIRS"),
        ("UVICORN_SSL_CERT_FILE", "UVICORN_SSL_CERTFILE"),
        ("UVICORN_TIMEOUT_KEEPALIVE", "UVICORN_TIMEOUT_KEEP_ALIVE"),
        ("UVICORN_NO_ACCESS_LOG", "UVICORN_ACCESS_LOG"),
    ],
)
def test_variable_that_resembles_a_setting_s_is_found(name: str, meant: str) -> None:
    assert list(misspelt_variables({name: "1"}, uvicorn.main.params)) == [(name, meant)]


@pytest.mark.parametrize(
    "name",
    [
        "UVICORN_PORT",
        "UVICORN_APP",
        "UVICORN_CONFIG",
        "UVICORN_APP_DIR",
        "UVICORN_SHORTCUTS",
        "UVICORN_REQUIRE_NATIVE",
        # What Kubernetes says of a service of that name.
        "UVICORN_SERVICE_HOST",
        "UVICORN_SERVICE_PORT",
        "UVICORN_PORT_8000_TCP",
        "UVICORN_PORT_8000_TCP_ADDR",
        "UVICORN_CMD_ARGS",
        "UVICORN_HOME",
        "WORKERS",
    ],
)
def test_variable_of_something_else_is_left_alone(name: str) -> None:
    assert list(misspelt_variables({name: "1"}, uvicorn.main.params)) == []


@pytest.mark.parametrize("args", [["--check"], []])
def test_misspelt_variable_is_one_warning(args: list[str]) -> None:
    result = CliRunner().invoke(uvicorn.main, [*args, "not_there:app"], env={"UVICORN_WORKER": "4"})
    warning = (
        "Ignoring the environment variable UVICORN_WORKER: there is no such setting. Did you mean UVICORN_WORKERS?"
    )
    assert [line for line in result.output.splitlines() if "WARNING" in line] == [f"WARNING:  {warning}"]
