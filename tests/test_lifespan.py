"""The lifespan protocol, driven without a server and, where the exit status matters, through the command line."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process import ServerProcess
from tests.utils import request, wait_until
from uvicorn.config import Config
from uvicorn.lifespan.off import LifespanOff
from uvicorn.lifespan.on import LifespanOn
from uvicorn.logging import TRACE_LOG_LEVEL
from uvicorn.server import Server

pytestmark = pytest.mark.anyio

posix = pytest.mark.skipif(sys.platform == "win32", reason="these signals cannot be sent on Windows")

UNSUPPORTED = "ASGI 'lifespan' protocol appears unsupported."

App = Callable[[Any, Any, Any], Awaitable[None]]


@pytest.fixture(params=["auto", "on"])
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    return caplog


def lines(log: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.levelname} {record.getMessage()}" for record in log.records if record.name == "uvicorn.error"]


def make(app: App, mode: Any) -> LifespanOn:
    return LifespanOn(Config(app, http="h11", lifespan=mode, log_config=None))


async def test_scope_and_messages_are_those_of_the_specification(mode: Any, log: pytest.LogCaptureFixture) -> None:
    """LSP-01, LSP-03"""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(dict(scope))
        scope["state"]["key"] = "value"
        seen.append(await receive())
        await send({"type": "lifespan.startup.complete"})
        seen.append(await receive())
        await send({"type": "lifespan.shutdown.complete"})

    lifespan = make(app, mode)
    await lifespan.startup()
    assert lifespan.state == {"key": "value"}
    await lifespan.shutdown()
    assert seen == [
        {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {"key": "value"}},
        {"type": "lifespan.startup"},
        {"type": "lifespan.shutdown"},
    ]
    assert not lifespan.should_exit
    assert lines(log) == [
        "INFO Waiting for application startup.",
        "INFO Application startup complete.",
        "INFO Waiting for application shutdown.",
        "INFO Application shutdown complete.",
    ]


async def test_the_same_class_serves_both_modes(mode: Any) -> None:
    """LSP-04"""
    config = Config(app_raising_at_shutdown, lifespan=mode, log_config=None)
    config.load()
    assert config.lifespan_class is LifespanOn


async def test_scope_passes_the_proxy_headers_and_is_logged_at_trace_level(
    mode: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """LSP-02, TRC-04"""
    caplog.set_level(TRACE_LOG_LEVEL)
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await receive()
        await send({"type": "lifespan.startup.complete"})

    config = Config(app, lifespan=mode, log_config=None, log_level="trace", proxy_headers=True)
    await LifespanOn(config).startup()
    assert set(scopes[0]) == {"type", "asgi", "state"}
    shown = [record.getMessage() for record in caplog.records if record.name == "uvicorn.asgi"]
    assert shown[0].startswith("ASGI [1] Started scope={'type': 'lifespan'")
    assert shown[1:3] == [
        "ASGI [1] Receive {'type': 'lifespan.startup'}",
        "ASGI [1] Send {'type': 'lifespan.startup.complete'}",
    ]


async def test_asgi2_application_sees_version_2() -> None:
    """LSP-01"""
    seen: list[Any] = []

    class App2:
        def __init__(self, scope: Any) -> None:
            seen.append(scope["asgi"])

        async def __call__(self, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "lifespan.startup.complete"})

    await make(App2, "on").startup()  # type: ignore[arg-type]
    assert seen == [{"version": "2.0", "spec_version": "2.0"}]


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_exception_before_startup_means_unsupported_under_auto(
    error: BaseException, log: pytest.LogCaptureFixture
) -> None:
    """LSP-05, LSP-06, X3"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error

    lifespan = make(app, "auto")
    await lifespan.startup()
    assert not lifespan.should_exit
    await lifespan.shutdown()
    assert lines(log) == [
        "INFO Waiting for application startup.",
        f"INFO {UNSUPPORTED}",
        "INFO Application startup complete.",
    ]


async def test_exception_before_startup_is_an_error_under_on(log: pytest.LogCaptureFixture) -> None:
    """LSP-07"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("no")

    lifespan = make(app, "on")
    await lifespan.startup()
    assert lifespan.should_exit
    assert lines(log) == [
        "INFO Waiting for application startup.",
        "ERROR Exception in 'lifespan' protocol\n",
        "ERROR Application startup failed. Exiting.",
    ]
    assert log.records[1].exc_info and "no" in str(log.records[1].exc_info[1])


async def test_application_that_returns_silently_counts_as_started(mode: Any, log: pytest.LogCaptureFixture) -> None:
    """LSP-08, LSP-17"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        return None

    lifespan = make(app, mode)
    await lifespan.startup()
    await lifespan.shutdown()
    assert not lifespan.should_exit
    assert lines(log)[1:] == [
        "INFO Application startup complete.",
        "INFO Waiting for application shutdown.",
        "INFO Application shutdown complete.",
    ]


@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
async def test_startup_failed_ends_the_server(mode: Any, raises: bool, log: pytest.LogCaptureFixture) -> None:
    """LSP-09, LSP-10"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "the database is away"})
        if raises:
            raise RuntimeError("not logged")

    lifespan = make(app, mode)
    await lifespan.startup()
    assert lifespan.should_exit
    assert lines(log) == [
        "INFO Waiting for application startup.",
        "ERROR the database is away",
        "ERROR Application startup failed. Exiting.",
    ]


async def test_failure_without_a_message_logs_none(mode: Any, log: pytest.LogCaptureFixture) -> None:
    """LSP-09: the key is optional."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "lifespan.startup.failed"})

    await make(app, mode).startup()
    assert lines(log)[1:] == ["ERROR Application startup failed. Exiting."]


async def test_shutdown_failed_is_logged(mode: Any, log: pytest.LogCaptureFixture) -> None:
    """LSP-11"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.failed", "message": "not flushed"})

    lifespan = make(app, mode)
    await lifespan.startup()
    await lifespan.shutdown()
    assert lines(log)[2:] == [
        "INFO Waiting for application shutdown.",
        "ERROR not flushed",
        "ERROR Application shutdown failed. Exiting.",
    ]


async def app_raising_at_shutdown(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    raise RuntimeError("at the end")


async def test_exception_during_shutdown_under_auto(log: pytest.LogCaptureFixture) -> None:
    """LSP-12"""
    lifespan = make(app_raising_at_shutdown, "auto")
    await lifespan.startup()
    await lifespan.shutdown()
    assert lines(log)[3:] == [f"INFO {UNSUPPORTED}", "INFO Application shutdown complete."]


async def test_exception_during_shutdown_under_on(log: pytest.LogCaptureFixture) -> None:
    """LSP-13"""
    lifespan = make(app_raising_at_shutdown, "on")
    await lifespan.startup()
    await lifespan.shutdown()
    assert lines(log)[3:] == [
        "ERROR Exception in 'lifespan' protocol\n",
        "ERROR Application shutdown failed. Exiting.",
    ]


@pytest.mark.parametrize(
    "messages",
    [
        ["lifespan.startup.complete", "lifespan.startup.complete"],
        ["lifespan.startup.complete", "lifespan.startup.failed"],
        ["lifespan.shutdown.complete"],
        ["lifespan.startup.complete", "lifespan.shutdown.complete", "lifespan.shutdown.failed"],
    ],
    ids=["startup twice", "failed after complete", "shutdown first", "shutdown twice"],
)
async def test_message_that_is_not_due_is_an_assertion_error(messages: list[str]) -> None:
    """LSP-14"""
    error: list[BaseException] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages[:-1]:
            await send({"type": message})
        with pytest.raises(AssertionError) as caught:
            await send({"type": messages[-1]})
        error.append(caught.value)

    lifespan = make(app, "on")
    await lifespan.startup()
    await wait_until(lambda: error)
    assert str(error[0]) == "Got invalid state transition on lifespan protocol."


@pytest.mark.parametrize(("mode", "should_exit"), [("auto", False), ("on", True)])
async def test_startup_completed_twice_fails_the_start_under_on_only(mode: Any, should_exit: bool) -> None:
    """LSP-15"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.startup.complete"})

    lifespan = make(app, mode)
    await lifespan.startup()
    assert lifespan.should_exit is should_exit


async def test_unknown_message_is_a_bare_assertion_error() -> None:
    """LSP-16"""
    error: list[BaseException] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(AssertionError) as caught:
            await send({"type": "lifespan.unheard.of"})
        error.append(caught.value)

    await make(app, "on").startup()
    assert str(error[0]) == ""


@pytest.mark.parametrize(("mode", "line"), [("auto", f"INFO {UNSUPPORTED}"), ("on", "ERROR Exception in 'lifespan' ")])
async def test_exception_while_serving_is_logged_at_once(mode: Any, line: str, log: pytest.LogCaptureFixture) -> None:
    """LSP-18"""
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await go_on.wait()
        raise RuntimeError("later")

    lifespan = make(app, mode)
    await lifespan.startup()
    assert len(lines(log)) == 2
    go_on.set()
    await wait_until(lambda: lifespan.error_occurred)
    await lifespan.shutdown()
    assert [entry.startswith(line) for entry in lines(log)[2:]] == [True]
    assert not lifespan.should_exit


async def test_cancelled_lifespan_says_nothing(mode: Any, log: pytest.LogCaptureFixture) -> None:
    """LSP-22, without upstream's wrong line: the application was not unsupported."""
    cleaned_up = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal cleaned_up
        await receive()
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        finally:
            cleaned_up = True

    lifespan = make(app, mode)
    await lifespan.startup()
    await lifespan.cancel()
    assert cleaned_up
    assert len(lines(log)) == 2


async def test_cancel_of_a_lifespan_that_has_ended_does_nothing(mode: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        return None

    lifespan = make(app, mode)
    await lifespan.cancel()
    await lifespan.startup()
    await lifespan.cancel()
    assert not lifespan.error_occurred


async def test_configuration_is_loaded_if_that_has_not_happened() -> None:
    """API-05"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        return None

    config = Config(app, log_config=None)
    LifespanOn(config)
    assert config.loaded


async def test_off_waits_for_nothing() -> None:
    """LIFE-03, LSP-20"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("not called")

    lifespan = LifespanOff(Config(app, lifespan="off", log_config=None))
    await lifespan.startup()
    await lifespan.shutdown()
    await lifespan.cancel()
    assert lifespan.state == {}
    assert not lifespan.should_exit


async def test_context_variables_of_the_lifespan_are_not_visible_to_the_server() -> None:
    """CON-12"""
    import contextvars

    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        variable.set("by the lifespan")
        await receive()
        await send({"type": "lifespan.startup.complete"})

    config = Config(app, log_config=None, port=0)
    server = Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[])
    assert server.server_state.context.get(variable) in (None, "unset")


# Through the command line

LIFESPANS = """
async def lifespan(scope, receive, send, startup, shutdown):
    await receive()
    await send(startup)
    await receive()
    if shutdown is None:
        raise RuntimeError("at the end")
    await send(shutdown)

def make(startup, shutdown):
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            return await lifespan(scope, receive, send, startup, shutdown)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"served"})
    return app

complete = {"type": "lifespan.startup.complete"}
failing = make({"type": "lifespan.startup.failed", "message": "no database"}, None)
ending_badly = make(complete, {"type": "lifespan.shutdown.failed", "message": "not flushed"})
raising = make(complete, None)

async def hanging(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    import asyncio
    await asyncio.sleep(3600)
"""


@pytest.fixture
def apps(tmp_path: Path) -> Path:
    (tmp_path / "apps.py").write_text(LIFESPANS)
    return tmp_path


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_server_whose_application_does_not_start_exits_with_3(apps: Path, mode: str) -> None:
    """LSP-09, LIFE-26, X3"""
    with ServerProcess("apps:failing", "--port", "0", "--lifespan", mode, cwd=apps) as server:
        assert server.wait() == 3
        assert server.error_output.endswith("ERROR:    no database\nERROR:    Application startup failed. Exiting.\n")
        assert "Uvicorn running" not in server.error_output


@posix
@pytest.mark.parametrize("app", ["ending_badly", "raising"])
def test_shutdown_that_fails_leaves_the_exit_status_alone(apps: Path, app: str) -> None:
    """LSP-11, LSP-13"""
    with ServerProcess(f"apps:{app}", "--port", "0", "--lifespan", "on", cwd=apps) as server:
        assert request(server.address).endswith(b"served\r\n0\r\n\r\n")
        assert server.stop(signal.SIGINT) == 0
        assert "ERROR:    Application shutdown failed. Exiting.\n" in server.error_output


@posix
def test_second_interrupt_ends_a_lifespan_shutdown_that_hangs(apps: Path) -> None:
    """SIG-10 is a wait for ever: the second SIGINT ends the lifespan's shutdown like everything else (K8)."""
    with ServerProcess("apps:hanging", "--port", "0", cwd=apps) as server:
        assert server.port
        server.send_signal(signal.SIGINT)
        server.wait_for("Waiting for application shutdown.")
        assert server.stop(signal.SIGINT) == 0
        assert "Application shutdown complete." not in server.error_output
        assert UNSUPPORTED not in server.error_output


async def test_application_that_nobody_has_started_is_not_shut_down(log: pytest.LogCaptureFixture) -> None:
    class Mocked(Server):
        async def startup(self, sockets: Any = None) -> None:
            self.started = self.should_exit = True

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    await asyncio.wait_for(Mocked(Config(app, log_config=None, lifespan="on")).serve(), 20)
    assert [line for line in log.messages if "pplication" in line] == []
