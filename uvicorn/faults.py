"""Mistakes in how the server is started: told in a line that names the setting, without a traceback."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import NoReturn

STARTUP_FAILURE = 3
"""Exit status of a process that could not start its application or bind its address."""

BINDING = ("metrics=", "uds=")
"""How settings begin that name an address, and are blamed if that cannot be bound."""

logger = logging.getLogger("uvicorn.error")


def fail(message: str, *args: object, hint: str | None = None) -> NoReturn:
    """Log why the server cannot start, and what to do if that is known, and exit."""
    logger.error(message, *args)
    if hint:
        logger.info(hint)
    sys.exit(STARTUP_FAILURE)


@contextlib.contextmanager
def blaming(*settings: str) -> Iterator[None]:
    """Say in any error the block raises which settings, as ``name=value``, are at fault; see `report_fault`."""
    try:
        yield
    except Exception as exc:
        exc.__dict__.setdefault("_settings_at_fault", settings)
        raise


def report_fault(exc: BaseException) -> bool:
    """Log one line about an error that settings caused; False, and nothing, for any other error.

    Such an error is a mistake in how the server is started: a traceback through the server would explain nothing.
    """
    settings = exc.__dict__.get("_settings_at_fault")
    if settings is None:
        return False
    # The text of a KeyError is the repr of its argument.
    text = str(exc.args[0] if isinstance(exc, KeyError) and exc.args else exc) or type(exc).__name__
    if exc.__cause__ is not None:
        text += f" ({exc.__cause__})"
    # Some parsers quote the line that they do not understand, on a line of its own.
    level = getattr(exc, "level", logging.ERROR)
    logger.log(level, "Cannot use %s: %s", ", ".join(settings), " ".join(text.splitlines()))
    if hint := getattr(exc, "hint", None):
        logger.info(hint)
    return True


def is_bind_failure(exc: BaseException) -> bool:
    """Whether an error that `report_fault` has logged is an address that could not be bound."""
    settings = exc.__dict__.get("_settings_at_fault", ())
    return isinstance(exc, OSError) and any(setting.startswith(BINDING) for setting in settings)


@contextlib.contextmanager
def blaming_package(setting: str, import_str: str) -> Iterator[None]:
    """Blame a setting for a module it names, if a package around that does not exist; not for what a module imports."""
    try:
        yield
    except ModuleNotFoundError as exc:
        if not import_str.partition(":")[0].startswith(f"{exc.name}."):
            raise
        with blaming(f"{setting}={import_str!r}"):
            raise
