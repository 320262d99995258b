"""The worker classes for gunicorn, with gunicorn as their parent."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import re
import signal
import ssl
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process import APP_BEGINS, ServerProcess
from tests.utils import is_listening, open_connection, read_until, request, wait_for

if sys.platform == "win32":
    pytest.skip("gunicorn does not run on Windows", allow_module_level=True)


gunicorn_config = pytest.importorskip("gunicorn.config")

APP = (
    """
import asyncio, os
"""
    + APP_BEGINS
    + """    body = f"{scope['scheme']} {os.getpid()}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begin ", "more_body": True})
    if scope["path"] == "/stuck":
        await asyncio.sleep(3600)
    await send({"type": "http.response.body", "body": body})

async def failing(scope, receive, send):
    await send({"type": "lifespan.startup.failed", "message": "no database"})
"""
)


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


class Gunicorn(ServerProcess):
    """gunicorn with one of our workers, on a Unix socket in `cwd`."""

    def __init__(self, cwd: Path, *arguments: str, app: str = "app:app", worker: str = "UvicornWorker") -> None:
        self.path = str(cwd / "s")
        command = [sys.executable, "-m", "gunicorn", "--no-control-socket"]
        options = ["-k", f"uvicorn.workers.{worker}", "-b", f"unix:{self.path}", "--access-logfile", "-"]
        super().__init__(app, *options, *arguments, cwd=cwd, command=command)

    def serve(self) -> None:
        """Wait until it does."""
        self.wait_for("Application startup complete.")
        wait_for(lambda: is_listening(self.path))


@pytest.mark.parametrize("worker", ["UvicornWorker", "UvicornH11Worker"])
def test_application_is_served_and_ended_gracefully(cwd: Path, worker: str) -> None:
    """GUN-01, GUN-04, GUN-09"""
    with Gunicorn(cwd, worker=worker) as server:
        server.serve()
        assert b"http " in request(server.path)
        assert server.stop() == 0
        text = server.error_output
        assert f"Using worker: uvicorn.workers.{worker}" in text
        assert re.search(r"\[INFO\] Started server process \[\d+\]\n", text)
        assert re.search(r"\[INFO\] Application shutdown complete\.\n", text)
        assert "Uvicorn running" not in text
        assert server.output == ' - "GET / HTTP/1.1" 200\n'


@pytest.mark.measures_children
def test_worker_whose_application_does_not_start_ends_gunicorn(cwd: Path) -> None:
    """GUN-07"""
    with Gunicorn(cwd, app="app:failing") as server:
        assert server.wait() == 3
        assert "no database" in server.error_output
        assert "Worker failed to boot." in server.error_output


def test_request_limit_ends_the_worker_and_gunicorn_replaces_it(cwd: Path) -> None:
    """GUN-08"""
    with Gunicorn(cwd, "--max-requests", "2") as server:
        server.serve()
        for _ in range(2):
            request(server.path)
        server.wait_for("Maximum request limit of 2 exceeded. Terminating process.")
        server.wait_for("Application startup complete.", count=2)
        assert len(set(server.pids())) == 2
        assert server.stop() == 0


def test_heartbeat_keeps_the_worker_alive(cwd: Path) -> None:
    """GUN-06"""
    with Gunicorn(cwd, "--timeout", "2") as server:
        server.serve()
        with pytest.raises(AssertionError):
            server.wait_for("WORKER TIMEOUT", timeout=5)
        assert len(server.pids()) == 1
        assert server.stop() == 0


@pytest.mark.measures_children
def test_quick_end_waits_for_nobody(cwd: Path) -> None:
    """GUN-05: upstream's worker on asyncio's loop does not end at all."""
    with Gunicorn(cwd, "--graceful-timeout", "60", worker="UvicornH11Worker") as server:
        server.serve()
        client = open_connection(server.path, b"GET /stuck HTTP/1.1\r\nhost: test\r\n\r\n")
        read_until(client, b"begin")
        assert server.stop(signal.SIGQUIT, timeout=20) == 0
        client.close()


def test_log_files_are_reopened_without_disturbing_the_worker(cwd: Path) -> None:
    """GUN-05"""
    with Gunicorn(cwd, "--error-logfile", str(cwd / "log")) as server:
        log = cwd / "log"
        wait_for(lambda: log.exists() and "Application startup complete." in log.read_text())
        wait_for(lambda: is_listening(server.path))
        log.rename(cwd / "old")
        server.send_signal(signal.SIGUSR1)
        wait_for(log.exists)
        assert b"http " in request(server.path)
        assert server.stop() == 0
        assert "Application shutdown complete." in log.read_text()


def test_deadline_of_the_drain_comes_before_gunicorns(cwd: Path) -> None:
    """K8: so that the application is shut down, not killed."""
    with Gunicorn(cwd, "--graceful-timeout", "6") as server:
        server.serve()
        client = open_connection(server.path, b"GET /stuck HTTP/1.1\r\nhost: test\r\n\r\n")
        read_until(client, b"begin")
        assert server.stop() == 0
        assert "Cancel 1 running task(s), timeout graceful shutdown exceeded" in server.error_output
        assert "Application shutdown complete." in server.error_output
        client.close()


def test_tls(
    cwd: Path,
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_path: str,
    tls_ca_ssl_context: ssl.SSLContext,
) -> None:
    """GUN-03"""
    options = ["--certfile", tls_certificate_server_cert_path, "--keyfile", tls_certificate_private_key_path]
    with Gunicorn(cwd, *options) as server:
        server.serve()
        with (
            open_connection(server.path) as plain,
            tls_ca_ssl_context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
            assert b"https " in read_until(client, b"0\r\n\r\n")
        assert server.stop() == 0


# Without gunicorn's processes


@pytest.fixture
def workers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import uvicorn.workers
    return uvicorn.workers


@pytest.fixture
def make(workers: Any) -> Iterator[Callable[..., Any]]:
    """Makes a worker as gunicorn's parent does before it forks, from settings of gunicorn's."""
    from gunicorn.glogging import Logger

    made: list[Any] = []

    def make(cls: type[Any] = workers.UvicornWorker, **settings: Any) -> Any:
        cfg = gunicorn_config.Config()
        for name, value in settings.items():
            cfg.set(name, value)
        made.append(cls(1, os.getpid(), [], None, cfg.timeout, cfg, Logger(cfg)))
        return made[-1]

    yield make
    for worker in made:
        worker.tmp.close()


def test_import_warns(workers: Any) -> None:
    """GUN-01"""
    with pytest.warns(DeprecationWarning, match="uvicorn-worker"):
        importlib.reload(workers)


def test_configuration_is_derived_from_gunicorns(make: Callable[..., Any]) -> None:
    """GUN-03, GUN-06"""
    worker = make(
        keepalive=7,
        timeout=40,
        max_requests=100,
        forwarded_allow_ips="10.0.0.1",
        backlog=55,
        graceful_timeout=20,
    )
    config = worker.config
    assert config.timeout_keep_alive == 7
    assert config.timeout_notify == worker.timeout
    assert config.callback_notify == worker.callback_notify
    assert config.limit_max_requests == 100
    assert config.forwarded_allow_ips == ["10.0.0.1"]
    assert config.backlog == 55
    assert config.timeout_graceful_shutdown == 18
    assert config.log_config is None
    assert (config.loop, config.http) == ("auto", "auto")
    assert not config.is_ssl


def test_tls_options_are_derived(make: Callable[..., Any], tls_certificate_key_and_chain_path: str) -> None:
    """GUN-03"""
    config = make(certfile=tls_certificate_key_and_chain_path, ciphers="HIGH", cert_reqs=1).config
    assert config.ssl_certfile == tls_certificate_key_and_chain_path
    assert (config.ssl_ciphers, config.ssl_cert_reqs) == ("HIGH", 1)
    assert config.is_ssl


def test_arguments_of_the_class_are_stronger(workers: Any, make: Callable[..., Any]) -> None:
    """GUN-01, GUN-02"""
    assert workers.UvicornWorker.CONFIG_KWARGS == {"loop": "auto", "http": "auto"}
    assert workers.UvicornH11Worker.CONFIG_KWARGS == {"loop": "asyncio", "http": "h11"}
    custom = type("Custom", (workers.UvicornWorker,), {"CONFIG_KWARGS": {"timeout_keep_alive": 1, "ws": "none"}})
    config = make(custom, keepalive=7).config
    assert (config.timeout_keep_alive, config.ws) == (1, "none")


def test_loggers_are_gunicorns(make: Callable[..., Any]) -> None:
    """GUN-04"""
    worker = make(loglevel="warning")
    for name, theirs in (("uvicorn.error", worker.log.error_log), ("uvicorn.access", worker.log.access_log)):
        logger = logging.getLogger(name)
        assert logger.handlers == theirs.handlers
        assert logger.level == theirs.level
        assert not logger.propagate


@pytest.fixture
def signals_restored(workers: Any) -> Iterator[None]:
    before = {sig: signal.getsignal(sig) for sig in workers.UvicornWorker.SIGNALS}
    yield
    for sig, handler in before.items():
        signal.signal(sig, handler)


def test_signals_are_given_back(make: Callable[..., Any], signals_restored: None) -> None:
    """GUN-05"""
    worker = make()
    worker.init_signals()
    handlers = {sig: signal.getsignal(sig) for sig in worker.SIGNALS}
    assert handlers.pop(signal.SIGUSR1) == worker.handle_usr1
    assert set(handlers.values()) == {signal.SIG_DFL}


def test_heartbeat_is_gunicorns_notify(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """GUN-06"""
    worker = make()
    calls: list[int] = []
    monkeypatch.setattr(worker, "notify", lambda: calls.append(1))
    asyncio.run(worker.callback_notify())
    assert calls == [1]
