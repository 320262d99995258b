"""Import implementations by the value of a setting, and explain mistakes in it."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn._compat import iscoroutinefunction
from uvicorn.config.errors import SettingError, blaming, blaming_package, fail
from uvicorn.importer import ImportFromStringError, import_from_string


def banner(core: str) -> str:
    """Return the line that distinguishes this server from upstream and names the implementation that serves HTTP."""
    fork = sys.modules["uvicorn"].__fork__  # the layers do not permit an import of the package itself
    return f"Fork of uvicorn {fork}; HTTP core: {core}"


def is_ours(value: Any, known: Mapping[str, str | None]) -> bool:
    """Whether the value names an implementation of the server's own, except `auto`, or is no import string."""
    return isinstance(value, str) and value != "auto" and (value in known or ":" not in value)


def load_implementation(setting: str, value: str, known: Mapping[str, str | None]) -> Any:
    """Import the implementation that a setting names: one of `known`, or an import string.

    Raises:
        ImportFromStringError: it is neither.
        ModuleNotFoundError: the library of a known one is not installed.
    """
    if value in known:
        return load_known(setting, value, known[value])
    try:
        with blaming_package(setting, value):
            return import_from_string(value)
    except ImportFromStringError as exc:
        if ":" not in value:
            exc.hint = f"{setting} is one of {', '.join(known)}, or an import string."
        with blaming(f"{setting}={value!r}"):
            raise


def load_known(setting: str, value: str, path: str | None) -> Any:
    """Import the implementation of a known name; the only possible mistake is a missing library."""
    try:
        return import_from_string(path)
    except (ImportFromStringError, ModuleNotFoundError) as exc:
        missing = getattr(exc, "name", "uvicorn")
    if missing == "uvicorn._native":
        message = f"the native core {_of_core('absence')()}."
    elif missing.partition(".")[0] == "uvicorn":
        message = "this installation comes without it."
    else:
        message = f"it needs {missing}, which is not installed: pip install {missing}."
    with blaming(f"{setting}={value!r}"):
        raise ModuleNotFoundError(message, name=missing)


def core_advice() -> str:
    """Continue a sentence that ends with the native core by saying how to have it serve."""
    return ": set http='auto' or 'native'." if _of_core("CORE") == "native" else f", which {_of_core('absence')()}."


def _of_core(name: str) -> Any:
    return import_from_string(f"uvicorn.protocols.http.auto:{name}")


def check_protocol(setting: str, value: Any, implementation: Any) -> None:
    """Check that an implementation is a protocol class.

    Raises:
        SettingError: it cannot be called as one.
    """
    if not callable(implementation) or not _takes(implementation, config=0, server_state=0, app_state=0):
        kind = "a function" if inspect.isroutine(implementation) else f"a {type(implementation).__name__}"
        raise SettingError(f"Cannot use {setting}={value!r}: it must be a protocol class, not {kind}.")


def load_custom_loop(value: Any, known: Mapping[str, str | None]) -> Any:
    """Import the function that an import string names, which makes an event loop.

    Raises:
        SystemExit: there is none, or it takes arguments.
    """
    hint = f"loop is one of {', '.join(known)}, or an import string."
    try:
        with blaming_package("loop", str(value)):
            factory = import_from_string(value)
    except ImportFromStringError as exc:
        fail("Error loading custom loop setup function. %s", exc, hint=hint)
    if isinstance(factory, asyncio.AbstractEventLoop):
        hint = "Give a function that returns a new loop, or await Server.serve() in this one."
    if not callable(factory):
        fail('Error loading custom loop setup function. "%s" is not callable.', value, hint=hint)
    if not _takes(factory):
        message = 'Error loading custom loop setup function. "%s" is not a function without arguments.'
        fail(message, value, hint=hint)
    return factory


def _takes(function: Callable[..., Any], **arguments: Any) -> bool:
    """Whether it can be called with these arguments and need not be awaited; of a class that is not asked."""
    if isinstance(function, type):
        return True
    if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
        return False
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError:
        return False
    except ValueError:  # it has none that can be read
        return True
    return True
