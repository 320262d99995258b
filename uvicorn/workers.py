"""Worker classes for gunicorn, which then takes the part of `uvicorn.supervisors`.

gunicorn app:app --worker-class uvicorn.workers.UvicornWorker
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import warnings
from typing import Any

from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker

from uvicorn._compat import asyncio_run
from uvicorn.config import Config
from uvicorn.server import Server

assert sys.platform != "win32", "gunicorn does not run on Windows"

warnings.warn(
    "The `uvicorn.workers` module is deprecated. Please use `uvicorn-worker` package instead.\n"
    "For more details, see https://github.com/Kludex/uvicorn-worker.",
    DeprecationWarning,
    stacklevel=2,
)

GRACE_BEFORE_KILL = 2
"""Seconds the drain's deadline comes before gunicorn's `graceful_timeout`, when gunicorn kills the worker."""


class UvicornWorker(Worker):  # type: ignore[misc]  # gunicorn has no type information
    """Serves the application of gunicorn's configuration on gunicorn's sockets.

    `CONFIG_KWARGS` is for subclasses: arguments of `Config`, stronger than what gunicorn's settings say.
    """

    CONFIG_KWARGS: dict[str, Any] = {"loop": "auto", "http": "auto"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._adopt_logger("uvicorn.error", self.log.error_log)
        self._adopt_logger("uvicorn.access", self.log.access_log)
        self.config = Config(**{**self._settings(), **self.CONFIG_KWARGS})

    @staticmethod
    def _adopt_logger(name: str, source: logging.Logger) -> None:
        """Give the logger `name` the handlers and the level of gunicorn's logger `source`."""
        logger = logging.getLogger(name)
        logger.handlers = list(source.handlers)
        logger.setLevel(source.level)
        logger.propagate = False

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "app": None,
            "log_config": None,
            "timeout_keep_alive": self.cfg.keepalive,
            "timeout_notify": self.timeout,
            "callback_notify": self.callback_notify,
            "limit_max_requests": self.max_requests,
            "forwarded_allow_ips": self.cfg.forwarded_allow_ips,
            "backlog": self.cfg.backlog,
            "timeout_graceful_shutdown": max(self.cfg.graceful_timeout - GRACE_BEFORE_KILL, 0),
        }
        if self.cfg.is_ssl:
            options = self.cfg.ssl_options
            settings.update(
                {
                    "ssl_keyfile": options.get("keyfile"),
                    "ssl_certfile": options.get("certfile"),
                    "ssl_keyfile_password": options.get("password"),
                    "ssl_version": options.get("ssl_version"),
                    "ssl_cert_reqs": options.get("cert_reqs"),
                    "ssl_ca_certs": options.get("ca_certs"),
                    "ssl_ciphers": options.get("ciphers"),
                }
            )
        return settings

    def init_signals(self) -> None:
        """Give the signals back: the server takes SIGINT and SIGTERM itself when it starts."""
        for sig in self.SIGNALS:
            signal.signal(sig, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, self.handle_usr1)
        # Reopening the log files must not disturb a request.
        signal.siginterrupt(signal.SIGUSR1, False)

    def run(self) -> None:
        """Serve until gunicorn ends the worker.

        Raises:
            SystemExit: the application could not start, with the status that ends gunicorn as a whole.
        """
        if self.config.http3:
            self.log.error("Workers of gunicorn cannot share UDP sockets: remove http3, or use `uvicorn --workers`.")
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
        # Before the coroutine is made: a loop that cannot be had exits here.
        loop_factory = self.config.get_loop_factory()
        asyncio_run(self._serve(), loop_factory=loop_factory)

    async def _serve(self) -> None:
        self.config.app = self.wsgi
        server = Server(config=self.config)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGQUIT, self._quit, server)
        # gunicorn wraps its sockets in objects of its own.
        await server.serve(sockets=[getattr(sock, "sock", sock) for sock in self.sockets])
        if not server.started:
            sys.exit(Arbiter.WORKER_BOOT_ERROR)

    def _quit(self, server: Server) -> None:
        """Stop without waiting at SIGQUIT, gunicorn's signal for a quick shutdown."""
        server.force_exit = True
        server.should_exit = True

    async def callback_notify(self) -> None:
        """The heartbeat gunicorn expects."""
        self.notify()


class UvicornH11Worker(UvicornWorker):
    """With asyncio's event loop and h11: no compiled code."""

    CONFIG_KWARGS: dict[str, Any] = {"loop": "asyncio", "http": "h11"}
