"""Settings in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import uvicorn
from tests.utils import as_cwd
from uvicorn.config import settings_file
from uvicorn.config.settings_file import SettingsFileError, check_settings, read_settings

toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="no TOML")


def invoke(path: Path, text: str, *args: str, env: dict[str, str] | None = None) -> Result:
    (path / "uvicorn.toml").write_text(text)
    with as_cwd(path):
        return CliRunner().invoke(uvicorn.main, ["--config", "uvicorn.toml", *args], env=env)


@toml
def test_file_says_what_to_serve_and_how(tmp_path: Path, arguments: dict[str, Any]) -> None:
    text = """
app = "module:attribute"
port = 9000
workers = 3
access_log = false
factory = true
timeout_write = 7
drain_delay = 1.5
log_level = "error"
headers = ["A:b", "C: d"]
reload_includes = "*.html"
app_dir = "src"
"""
    result = invoke(tmp_path, text)
    assert result.exit_code == 0, result.output
    expected = {
        "app": "module:attribute",
        "port": 9000,
        "workers": 3,
        "access_log": False,
        "factory": True,
        "timeout_write": 7.0,
        "drain_delay": 1.5,
        "log_level": "error",
        "headers": [["A", "b"], ["C", "d"]],
        "reload_includes": ("*.html",),
        "app_dir": "src",
        "host": "127.0.0.1",
    }
    assert {name: arguments[name] for name in expected} == expected


@toml
def test_command_line_wins_over_environment_and_that_over_the_file(tmp_path: Path, arguments: dict[str, Any]) -> None:
    text = 'app = "of:file"\nport = 1\nworkers = 1\nlimit_concurrency = 1\n'
    env = {"UVICORN_PORT": "2", "UVICORN_WORKERS": "2"}
    result = invoke(tmp_path, text, "--port", "3", "of:command", env=env)
    assert result.exit_code == 0, result.output
    found = [arguments[name] for name in ("app", "port", "workers", "limit_concurrency", "backlog")]
    assert found == ["of:command", 3, 2, 1, 2048]


@toml
def test_file_may_be_named_by_a_variable(tmp_path: Path, arguments: dict[str, Any]) -> None:
    path = tmp_path / "elsewhere.toml"
    path.write_text("port = 9000\n")
    result = CliRunner().invoke(uvicorn.main, ["module:attribute"], env={"UVICORN_CONFIG": str(path)})
    assert result.exit_code == 0, result.output
    assert arguments["port"] == 9000


@toml
@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("wokers = 4", 2, "uvicorn.toml: there is no setting 'wokers'; the nearest is 'workers'."),
        ("limit-worker-memory = 4", 2, "the nearest is 'limit_worker_memory'."),
        ("header = ['A:b']", 2, "the nearest is 'headers'."),
        ("callback_notify = 'x:y'", 2, "callback_notify can only be set in Python."),
        ("port = [1, 2]", 2, "port takes one value, not a list."),
        ("[port]\nnumber = 1", 2, "port takes one value, not a table."),
        ("headers = [1]", 2, "headers must be a list of texts, not 1."),
        ("headers = ['A']", 2, "Cannot use headers='A': it must be Name:Value."),
        ("port = ", 2, "it is not TOML: "),
        ("port = 'many'", 2, "port must be a whole number from 0 to 65535, not 'many'."),
        ("port = true", 2, "port must be a whole number from 0 to 65535, not True."),
        ("workers = 2.9", 2, "workers must be a whole number from 1 to 1024 or `auto`, not 2.9."),
        ("access_log = 2", 2, "access_log must be true or false, not 2."),
        ("host = 1", 2, "host must be text, not 1."),
        ("bind = 8000", 2, "bind must be a list of texts, not 8000."),
        ("mount = 5", 2, "mount must be a list of texts, not 5."),
        ("ssl_keyfile = 5", 2, "ssl_keyfile must be a path, not 5."),
        ("app_dir = true", 2, "app_dir must be text, not True."),
        ("http = 3", 2, "http must be one of auto, h11, httptools, zttp, native or an import string, not 3."),
        ("app = 3", 2, "app must be text, not 3."),
        ("backlog = 100000000000", 2, "backlog must be a whole number from 0 to 2147483647, not 100000000000."),
        (
            "timeout_graceful_shutdown = -inf",
            2,
            "timeout_graceful_shutdown must be a whole number of seconds, not -inf.",
        ),
        (
            "limit_request_body = -1",
            2,
            "must be a whole number of bytes, at least 0, not -1; leave it out for no limit.",
        ),
        ("timeout_write = nan", 2, "timeout_write must be a number of seconds, at least 0, not nan."),
        ("timeout_write = inf", 2, "timeout_write must be a number of seconds, at least 0, not inf."),
        ("workers = 0", 2, "uvicorn.toml: workers must be a whole number from 1 to 1024 or `auto`, not 0."),
        ("lifespan = 'maybe'", 2, "uvicorn.toml: lifespan must be one of auto, on, off, not 'maybe'."),
    ],
)
def test_mistakes(tmp_path: Path, arguments: dict[str, Any], text: str, status: int, said: str) -> None:
    result = invoke(tmp_path, text, "module:attribute")
    assert result.exit_code == status
    assert said in " ".join(result.output.split())
    assert arguments == {}


def test_file_that_is_not_there(arguments: dict[str, Any]) -> None:
    result = CliRunner().invoke(uvicorn.main, ["--config", "not-there.toml", "module:attribute"])
    assert result.exit_code == 2
    assert "does not exist" in result.output


@toml
def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsFileError, match="directory"):
        read_settings(tmp_path)


def test_interpreter_that_knows_no_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_file, "tomllib", None)
    with pytest.raises(SettingsFileError, match=r"Python 3\.11"):
        read_settings(tmp_path / "any.toml")


def test_one_value_of_several_is_a_list() -> None:
    assert check_settings({"reload_dirs": "src", "port": 1}) == {"reload_dirs": ["src"], "port": 1}


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the command makes pools of, once it has been invoked."""
    taken: list[Any] = []

    class Taking:
        def __init__(self, plans: Any) -> None:
            taken.extend(plans)

        def allow_upgrades(self) -> None:
            pass

        def run(self) -> None:
            pass

    monkeypatch.setattr("uvicorn.supervisors.pools.Pools", Taking)
    return taken


POOLS = """
workers = 2
port = 9000
timeout_write = 7

[pools.api]
app = "api:app"
workers = 4
headers = ["A:b"]

[pools.compute]
app = "compute:app"
port = 9001
environment = { OMP_NUM_THREADS = "4" }
"""


@toml
def test_pools_have_settings_of_their_own_before_those_of_the_file(tmp_path: Path, plans: list[Any]) -> None:
    result = invoke(tmp_path, POOLS, "--timeout-write", "8", env={"UVICORN_PORT": "9002"})
    assert result.exit_code == 0, result.output
    names = ("app", "workers", "port", "timeout_write", "headers")
    assert [{name: plan.options[name] for name in names} for plan in plans] == [
        {"app": "api:app", "workers": 4, "port": 9002, "timeout_write": 8.0, "headers": [["A", "b"]]},
        {"app": "compute:app", "workers": 2, "port": 9002, "timeout_write": 8.0, "headers": []},
    ]
    assert [(plan.name, plan.environment) for plan in plans] == [("api", {}), ("compute", {"OMP_NUM_THREADS": "4"})]


@toml
@pytest.mark.parametrize(
    "text, message",
    [
        ("[pools.api]\napp = 'a:b'\nwokers = 1", "pools.api: there is no setting 'wokers'; the nearest is 'workers'."),
        ("[pools.api]\napp = 'a:b'\nenviroment = {}", "the nearest is 'environment'."),
        ("[pols.api]\napp = 'a:b'", "there is no setting 'pols'; the nearest is 'pools'."),
        ("pools = 3", "pools takes a table for each pool, as in [pools.NAME]."),
        ("[pools]\napi = 3", "pools takes a table for each pool, as in [pools.NAME]."),
        (
            "[pools.api]\napp = 'a:b'\nmetrics = ':1'",
            "pools.api: metrics must be set outside the pools, for all of them.",
        ),
        ("[pools.api]\napp = 'a:b'\nenvironment = { A = 1 }", "pools.api: environment takes a table of texts."),
        ("[pools.api]\napp = 'a:b'\nworkers = 0", "pools.api: workers must be a whole number from 1 to 1024"),
        ("[pools.api]\nworkers = 1", "pools.api has no app."),
    ],
)
def test_mistakes_in_pools_are_told(tmp_path: Path, plans: list[Any], text: str, message: str) -> None:
    result = invoke(tmp_path, text)
    assert result.exit_code in (1, 2), result.output
    assert message in " ".join(result.output.split())
    assert not plans


@toml
def test_number_may_be_written_as_a_text_or_a_float(tmp_path: Path, arguments: dict[str, Any]) -> None:
    result = invoke(tmp_path, "port = '9000'\nworkers = 3.0\naccess_log = 0\n", "module:attribute")
    assert result.exit_code == 0, result.output
    assert (arguments["port"], arguments["workers"], arguments["access_log"]) == (9000, 3, False)


@toml
def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    """Not to wherever a service manager starts the server."""
    path = tmp_path / "uvicorn.toml"
    (tmp_path / "files").mkdir()
    path.write_text(
        'ssl_certfile = "cert.pem"\nssl_keyfile = "/key.pem"\nuds = ""\napp_dir = "src"\nreload_dirs = ["a"]\n'
        'mount = ["/static=files", "/media=/"]\nssl_cert = "a.test=a.pem,b.pem"\n'
        'bind = ["unix:socket", "127.0.0.1:80"]\n[pools.one]\nssl_crl = "crl.pem"\n'
    )
    found = read_settings(path)
    assert found.settings == {
        "ssl_certfile": f"{tmp_path}/cert.pem",
        "ssl_keyfile": "/key.pem",
        "uds": "",
        "app_dir": f"{tmp_path}/src",
        "reload_dirs": [f"{tmp_path}/a"],
        "mount": [f"/static={tmp_path}/files", "/media=/"],
        "ssl_cert": [f"a.test={tmp_path}/a.pem,{tmp_path}/b.pem"],
        "bind": [f"unix:{tmp_path}/socket", "127.0.0.1:80"],
    }
    assert found.pools[0].settings == {"ssl_crl": f"{tmp_path}/crl.pem"}
