"""Mistakes in how the server is started: reported in one line that names the setting, without a traceback."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import NoReturn

STARTUP_FAILURE = 3
"""Exit status of a process that could not start its application or bind its address."""

SETTING_FAILURE = 1
"""Exit status for a setting that cannot be honoured."""

logger = logging.getLogger("uvicorn.error")


class SettingError(ValueError):
    """A setting has an invalid value; the text names both, and the values that it takes."""


def fail(message: str, *args: object, hint: str | None = None) -> NoReturn:
    """Log why the server cannot start, and a remedy if one is known, and exit."""
    logger.error(message, *args)
    if hint:
        logger.info(hint)
    sys.exit(STARTUP_FAILURE)


@contextlib.contextmanager
def refusing_exit() -> Iterator[None]:
    """Fail where loading the application ends the process with status 0: no service manager would start it again."""
    try:
        yield
    except SystemExit as exc:
        if not exc.code:
            fail("The application ended the process while it was loaded, with status 0.")
        raise


@contextlib.contextmanager
def blaming(*settings: str, status: int = SETTING_FAILURE) -> Iterator[None]:
    """Blame settings, each as ``name=value``, for any error that the block raises; see `report_error`.

    `status` is the exit status of a process that such an error ends.
    """
    try:
        yield
    except Exception as exc:
        exc.__dict__.setdefault("_settings_at_fault", settings)
        exc.__dict__.setdefault("_exit_status", status)
        raise


def report_error(exc: BaseException) -> bool:
    """Log one line about an error that settings caused; return False, and log nothing, for any other error.

    Such an error is a mistake in how the server is started: a traceback through the server would explain nothing.
    """
    settings = exc.__dict__.get("_settings_at_fault")
    if isinstance(exc, SettingError):
        message = str(exc)
    elif settings is None:
        return False
    else:
        message = f"Cannot use {', '.join(settings)}: {_text_of(exc)}"
    # Some parsers quote the line that they do not understand, on a line of its own.
    logger.log(getattr(exc, "level", logging.ERROR), "%s", " ".join(message.splitlines()))
    if hint := getattr(exc, "hint", None):
        logger.info(hint)
    return True


def exit_status(exc: BaseException) -> int:
    """Return the exit status of a process that an error ends which `report_error` has logged."""
    status: int = exc.__dict__.get("_exit_status", SETTING_FAILURE)
    return status


def _text_of(exc: BaseException) -> str:
    # The text of a KeyError is the repr of its argument.
    text = str(exc.args[0] if isinstance(exc, KeyError) and exc.args else exc) or type(exc).__name__
    return text if exc.__cause__ is None else f"{text} ({exc.__cause__})"


@contextlib.contextmanager
def blaming_package(setting: str, import_str: str) -> Iterator[None]:
    """Blame a setting for a module in a package that does not exist; not for a module that the named one imports."""
    try:
        yield
    except ModuleNotFoundError as exc:
        if not import_str.partition(":")[0].startswith(f"{exc.name}."):
            raise
        with blaming(f"{setting}={import_str!r}"):
            raise
