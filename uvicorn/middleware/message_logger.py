"""The TRACE log of the messages between server and application.

Only in place when the log level is TRACE, so nothing here is on the path of a server in production.
"""

from __future__ import annotations

import logging
from typing import Any, cast

from uvicorn._types import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
    Scope,
)
from uvicorn.logging import TRACE_LOG_LEVEL

PLACEHOLDER_FORMAT = {
    "body": "<{length} bytes>",
    "bytes": "<{length} bytes>",
    "text": "<{length} chars>",
    "headers": "<...>",
}
"""Placeholders in the log for keys with long or secret values."""


def message_with_placeholders(message: Any) -> Any:
    """Return a copy of an ASGI message or scope with its payload and header fields replaced by placeholders."""
    copy = dict(message)
    for key, placeholder in PLACEHOLDER_FORMAT.items():
        if message.get(key) is not None:
            content = message[key]
            # Header fields are any iterable: asking for its length might fail, and the placeholder has no use for it.
            copy[key] = placeholder if key == "headers" else placeholder.format(length=len(content))
    return copy


def _log_prefix(scope: Scope) -> str:
    if scope["type"] == "lifespan" or not scope.get("client"):
        return "ASGI"
    host, port = cast(tuple[str, int], scope["client"])
    # A proxy may have passed on a name with control characters in it: one event stays one line.
    return f"{host if host.isprintable() else ascii(host)[1:-1]}:{port} - ASGI"


class MessageLoggerMiddleware:
    """Log each call of the application, and each message of it, to ``uvicorn.asgi`` at TRACE level."""

    def __init__(self, app: ASGI3Application) -> None:
        self.app = app
        self.task_counter = 0
        self.logger = logging.getLogger("uvicorn.asgi")

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Number the call, and run the application between logging ends of ``receive`` and ``send``."""
        self.task_counter += 1
        number = self.task_counter
        prefix = _log_prefix(scope)

        def log(text: str, *args: object) -> None:
            self.logger.log(TRACE_LOG_LEVEL, "%s [%d] " + text, prefix, number, *args)

        async def logged_receive() -> ASGIReceiveEvent:
            message = await receive()
            log("Receive %s", message_with_placeholders(message))
            return message

        async def logged_send(message: ASGISendEvent) -> None:
            log("Send %s", message_with_placeholders(message))
            await send(message)

        log("Started scope=%s", message_with_placeholders(scope))
        try:
            # The server inspects the result of the application, so it is passed on.
            result = await self.app(scope, logged_receive, logged_send)  # type: ignore[func-returns-value]
        except BaseException:
            log("Raised exception")
            raise
        log("Completed")
        return result
