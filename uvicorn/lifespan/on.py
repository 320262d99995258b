"""The lifespan of an application on one event loop: a task of its own and four messages."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Queue
from typing import Any, cast

from uvicorn._types import (
    ASGISendCallable,
    LifespanScope,
    LifespanShutdownCompleteEvent,
    LifespanShutdownEvent,
    LifespanShutdownFailedEvent,
    LifespanStartupCompleteEvent,
    LifespanStartupEvent,
    LifespanStartupFailedEvent,
    ProtocolConfig,
)
from uvicorn.serving.state import ForcedEnd

LifespanReceiveMessage = LifespanStartupEvent | LifespanShutdownEvent
LifespanSendMessage = (
    LifespanStartupFailedEvent
    | LifespanShutdownFailedEvent
    | LifespanStartupCompleteEvent
    | LifespanShutdownCompleteEvent
)

STATE_TRANSITION_ERROR = "Got invalid state transition on lifespan protocol."

CANCEL_GRACE = 2.0
"""Seconds a cancelled lifespan call gets to clean up."""


class LifespanOn:
    """Runs the application's lifespan call next to the server, for `auto` and for `on`.

    The two differ in the meaning of an exception: with `on` it is an error; with `auto` it means that the application
    does not support the protocol, and the server serves it.

    Attributes:
        state: the state that the application leaves for its requests.
        should_exit: whether start-up or shutdown has failed.
        error_occurred: the lifespan call has raised an exception, and gets no more messages.
    """

    def __init__(self, config: ProtocolConfig) -> None:
        if not config.loaded:
            config.load()
        self.config = config
        self.logger = logging.getLogger("uvicorn.error")
        self.startup_event = asyncio.Event()
        self.shutdown_event = asyncio.Event()
        self.receive_queue: Queue[LifespanReceiveMessage] = asyncio.Queue()
        self.error_occurred = False
        self.startup_failed = False
        self.shutdown_failed = False
        self.should_exit = False
        self.state: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_cancelled = False

    async def startup(self) -> None:
        """Start the lifespan call and wait until the application is ready, has failed or has returned."""
        self.logger.info("Waiting for application startup.")
        self._task = asyncio.get_running_loop().create_task(self.main())
        await self.receive_queue.put({"type": "lifespan.startup"})
        await self.startup_event.wait()
        if self._is_cancelled:
            self.should_exit = True
        elif self.startup_failed or self._failed_with_error():
            self.logger.error("Application startup failed. Exiting.")
            self.should_exit = True
        else:
            self.logger.info("Application startup complete.")

    async def shutdown(self) -> None:
        """Ask the application to shut down, and wait until it has completed, failed or returned."""
        if self.error_occurred or self._task is None:  # never started: a program overrides the startup
            return
        self.logger.info("Waiting for application shutdown.")
        await self.receive_queue.put({"type": "lifespan.shutdown"})
        await self.shutdown_event.wait()
        if self._is_cancelled:
            self.should_exit = True
        elif self.shutdown_failed or self._failed_with_error():
            self.logger.error("Application shutdown failed. Exiting.")
            self.should_exit = True
        else:
            self.logger.info("Application shutdown complete.")

    def _failed_with_error(self) -> bool:
        return self.error_occurred and self.config.lifespan == "on"

    async def cancel(self) -> bool:
        """Cancel the lifespan call and give it a moment; it is not asked to shut down, and nothing is logged.

        Returns:
            Whether the call was cut short, by this or by an interruption before.
        """
        if self._task is not None and not self._task.done():
            self._is_cancelled = True
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CANCEL_GRACE)
        return self._is_cancelled

    async def main(self) -> None:
        """Call the application with the lifespan scope, until it returns or raises."""
        scope: LifespanScope = {
            "type": "lifespan",
            "asgi": {"version": self.config.asgi_version, "spec_version": "2.0"},
            "state": self.state,
        }
        try:
            await self.config.loaded_app(scope, self.receive, cast(ASGISendCallable, self.send))
        except BaseException as exc:
            self.error_occurred = True
            self._is_cancelled = self._is_cancelled or isinstance(exc, ForcedEnd)
            # After a failure it has reported, or our own cancellation, the exception says nothing new.
            if not (self.startup_failed or self.shutdown_failed or self._is_cancelled):
                self._log_exception(exc)
        finally:
            self.startup_event.set()
            self.shutdown_event.set()

    def _log_exception(self, exc: BaseException) -> None:
        if self.config.lifespan == "auto":
            self.logger.info("ASGI 'lifespan' protocol appears unsupported.")
        else:
            self.logger.error("Exception in 'lifespan' protocol\n", exc_info=exc)

    async def receive(self) -> LifespanReceiveMessage:
        """Return the next event for the application: startup, then shutdown."""
        return await self.receive_queue.get()

    async def send(self, message: LifespanSendMessage) -> None:
        """Take the application's answer to an event.

        Raises:
            AssertionError: the message is not known, or not due: it answers something that was answered before, or a
                shutdown before the start-up.
        """
        assert message["type"] in (
            "lifespan.startup.complete",
            "lifespan.startup.failed",
            "lifespan.shutdown.complete",
            "lifespan.shutdown.failed",
        )
        is_startup = message["type"] in ("lifespan.startup.complete", "lifespan.startup.failed")
        assert self.startup_event.is_set() is not is_startup, STATE_TRANSITION_ERROR
        assert not self.shutdown_event.is_set(), STATE_TRANSITION_ERROR
        if message["type"] == "lifespan.startup.failed":
            self.startup_failed = True
            self._log_reason(message)
        elif message["type"] == "lifespan.shutdown.failed":
            self.shutdown_failed = True
            self._log_reason(message)
        (self.startup_event if is_startup else self.shutdown_event).set()

    def _log_reason(self, message: LifespanStartupFailedEvent | LifespanShutdownFailedEvent) -> None:
        # The key is optional in the specification.
        if message.get("message"):
            self.logger.error(message["message"])
