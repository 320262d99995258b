"""Records for handlers."""

from __future__ import annotations

import logging


def log(handler: logging.Handler, message: str) -> None:
    """Have a handler write a record with this message."""
    handler.handle(logging.LogRecord("x", logging.INFO, "", 0, message, None, None))
