"""`run`: which way the server runs, what is cleaned up, and the exit status."""

from __future__ import annotations

import importlib
import logging
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import uvicorn
from uvicorn.config import Config
from uvicorn.config.errors import STARTUP_FAILURE
from uvicorn.server import Server

HERE = "tests.test_main:app"


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


class Calls:
    """Stands in for everything that would serve, and remembers what was asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, Any]] = []
        self.effect: Callable[[Any], None] = lambda instance: None
        calls = self

        class Supervisor:
            def __init__(self, config: Config, sockets: list[socket.socket], target: Any = None) -> None:
                (self.socket,) = sockets
                self.address = self.socket.getsockname()
                self.config = config
                self.target = target

            def run(self) -> None:
                calls.record("Multiprocess" if self.target is None else "ChangeReload", self)

        module = importlib.import_module("uvicorn.main")
        monkeypatch.setattr(module, "Multiprocess", Supervisor)
        monkeypatch.setattr(module, "ChangeReload", Supervisor)
        monkeypatch.setattr(Server, "run", lambda server: calls.record("Server", server))

    def record(self, name: str, instance: Any) -> None:
        self.made.append((name, instance))
        self.effect(instance)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.made]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    return Calls(monkeypatch)


def started(server: Server) -> None:
    server.started = True


def interrupted(instance: Any) -> None:
    raise KeyboardInterrupt


def test_one_process_serves_by_itself_and_returns(calls: Calls) -> None:
    """LIFE-25"""
    calls.effect = started
    uvicorn.run(HERE, port=0, log_config=None)
    ((name, server),) = calls.made
    assert name == "Server"
    assert server.config.port == 0


def test_a_server_that_never_started_is_status_3(calls: Calls) -> None:
    """LIFE-26"""
    with pytest.raises(SystemExit) as caught:
        uvicorn.run(HERE, log_config=None)
    assert caught.value.code == 3


def test_a_negative_number_of_workers_serves_by_itself(calls: Calls) -> None:
    """CLI-15"""
    with pytest.raises(SystemExit) as caught:
        uvicorn.run(HERE, log_config=None, workers=-2)
    assert caught.value.code == 3
    assert calls.names == ["Server"]


def test_the_application_is_imported_before_the_server_runs(calls: Calls, caplog: pytest.LogCaptureFixture) -> None:
    """APP-12"""
    with pytest.raises(SystemExit) as caught:
        uvicorn.run("tests.test_main:nope", log_config=None)
    assert caught.value.code == 3
    assert calls.names == []
    assert "not found" in caplog.text


@pytest.mark.parametrize(
    ("settings", "supervisor"),
    [
        pytest.param({"workers": 2}, "Multiprocess", id="workers"),
        pytest.param({"reload": True}, "ChangeReload", id="reload"),
        pytest.param({"reload": True, "workers": 2}, "ChangeReload", id="both"),
    ],
)
def test_a_supervisor_gets_one_bound_socket(
    settings: dict[str, Any], supervisor: str, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    """SOCK-02, SOCK-04, RLD-03, MP-24: the application is not imported."""
    caplog.set_level(logging.INFO, "uvicorn.error")
    uvicorn.run("tests.not_there:app", port=0, log_config=None, **settings)
    ((name, instance),) = calls.made
    assert name == supervisor
    _, port = instance.address
    assert f"Uvicorn running on http://127.0.0.1:{port} (Press CTRL+C to quit)" in caplog.messages
    assert instance.socket.fileno() == -1, "closed at the end"


def test_the_variable_for_workers_counts_too(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENV-08"""
    monkeypatch.setenv("WEB_CONCURRENCY", "3")
    uvicorn.run(HERE, port=0, log_config=None)
    assert calls.names == ["Multiprocess"]


@pytest.mark.parametrize("settings", [{"workers": 2}, {"reload": True}])
def test_supervisors_need_an_import_string(
    settings: dict[str, Any], calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    """APP-20"""
    with pytest.raises(SystemExit) as caught:
        uvicorn.run(app, log_config=None, **settings)
    assert caught.value.code == 3
    assert calls.names == []
    text = "You must pass the application as an import string to enable 'reload' or 'workers'."
    assert caplog.record_tuples[-1] == ("uvicorn.error", logging.WARNING, text)


def test_an_interrupt_ends_quietly(calls: Calls) -> None:
    """SIG-04"""

    def serve(server: Server) -> None:
        server.started = True
        raise KeyboardInterrupt

    calls.effect = serve
    uvicorn.run(HERE, log_config=None)


@pytest.mark.parametrize("settings", [{"workers": 2}, {"reload": True}])
def test_an_interrupt_of_a_supervisor_ends_quietly(settings: dict[str, Any], calls: Calls) -> None:
    calls.effect = interrupted
    uvicorn.run(HERE, port=0, log_config=None, **settings)


def test_other_errors_are_not_caught(calls: Calls) -> None:
    def fail(server: Server) -> None:
        raise LookupError("inside")

    calls.effect = fail
    with pytest.raises(LookupError):
        uvicorn.run(HERE, log_config=None)


def test_app_dir_is_where_is_looked_first(calls: Calls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CLI-14"""
    monkeypatch.setattr(sys, "path", sys.path[:])
    calls.effect = started
    (tmp_path / "only_there.py").write_text("app = print\n")
    uvicorn.run("only_there:app", app_dir=str(tmp_path), log_config=None)
    assert sys.path[0] == str(tmp_path)


def test_without_app_dir_the_path_is_left_alone(calls: Calls) -> None:
    """CLI-14"""
    before = sys.path[:]
    calls.effect = started
    uvicorn.run(HERE, log_config=None)
    assert sys.path == before


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
@pytest.mark.parametrize("settings", [{"workers": 2}, {"reload": True}])
@pytest.mark.parametrize("effect", [lambda instance: None, interrupted])
def test_a_socket_file_is_removed_when_the_supervisor_ends(
    settings: dict[str, Any], effect: Callable[[Any], None], calls: Calls, tmp_path: Path
) -> None:
    """SOCK-11, MP-22"""
    path = tmp_path / "server.sock"
    seen: list[bool] = []

    def supervise(instance: Any) -> None:
        seen.append(path.is_socket())
        effect(instance)

    calls.effect = supervise
    uvicorn.run(HERE, uds=str(path), log_config=None, **settings)
    assert seen == [True]
    assert not path.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
def test_a_socket_file_of_somebody_else_stays(calls: Calls, tmp_path: Path) -> None:
    """SOCK-09: deliberately different, upstream fails and removes it."""
    path = tmp_path / "server.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        with pytest.raises(SystemExit) as caught:
            uvicorn.run(HERE, uds=str(path), workers=2, log_config=None)
        assert caught.value.code == 3
        assert path.is_socket()
    assert calls.names == []


def test_every_argument_reaches_the_configuration(calls: Calls) -> None:
    calls.effect = started
    uvicorn.run(app, host="::1", root_path="/r", headers=[("a", "b")], limit_request_head=7, log_config=None)
    config: Config = calls.made[0][1].config
    assert (config.app, config.host, config.root_path) == (app, "::1", "/r")
    assert (config.headers, config.limit_request_head) == ([("a", "b")], 7)


def test_a_program_without_the_guard_is_told_so(tmp_path: Path) -> None:
    """Its workers import it, and would start a server of their own."""
    program = tmp_path / "program.py"
    program.write_text('import uvicorn\n\nuvicorn.run("program:app", port=0, workers=2)\n')
    result = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == STARTUP_FAILURE
    assert 'Put the call below `if __name__ == "__main__":`.' in result.stderr
    assert "Traceback" not in result.stderr
