"""Records for handlers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

import pytest

from uvicorn.access.log import AccessLog
from uvicorn.logging import ACCESS_FORMAT, AccessFormatter


def log(handler: logging.Handler, message: str) -> None:
    """Have a handler write a record with this message."""
    handler.handle(logging.LogRecord("x", logging.INFO, "", 0, message, None, None))


@contextlib.contextmanager
def access_log_to(handler: logging.Handler, monkeypatch: pytest.MonkeyPatch) -> Iterator[AccessLog]:
    """An access log that writes through this handler alone."""
    logger = logging.getLogger("uvicorn.access")
    handler.setFormatter(AccessFormatter(ACCESS_FORMAT, use_colors=False))
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "level", logging.INFO)
    loop = asyncio.new_event_loop()
    access_log = AccessLog(loop)
    assert access_log.handler is handler
    yield access_log
    loop.close()
