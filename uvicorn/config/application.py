"""Finds out the kind of an application from the object."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Literal

from uvicorn._compat import iscoroutinefunction
from uvicorn.config.errors import fail
from uvicorn.importer import call_factory

logger = logging.getLogger("uvicorn.error")

NAMES = {"asgi3": "scope, receive, send", "asgi2": "scope", "wsgi": "environ, start_response"}
"""The arguments of an application's call, by interface."""

ARGUMENTS = {interface: len(names.split(", ")) for interface, names in NAMES.items()}


def build_app(app: Any, factory: bool) -> Any:
    """Call a factory for its application; anything else, which such a call does not suit, is the application."""
    if not factory and not inspect.isclass(app) and _is_async(app) and _may_be_application(app):
        return app
    try:
        built = call_factory(app)
    except TypeError as exc:
        if factory or (callable(app) and not _may_be_application(app)):
            is_application = callable(app) and not _callable_with(app, 0) and _may_be_application(app)
            hint = "This seems to be the application itself: leave out --factory." if is_application else None
            fail("Error loading ASGI app factory: %s", exc, hint=hint)
        return app
    if inspect.iscoroutine(built):
        built.close()
        fail(
            "Error loading ASGI app factory: a factory must not be a coroutine function",
            hint="Name the application itself, such as main:app.",
        )
    if not factory:
        logger.warning(
            "ASGI app factory detected. Using it, but please consider setting the --factory flag explicitly."
        )
    return built


def _callable_with(function: Callable[..., Any], count: int, *, follow_wrapped: bool = True) -> bool:
    """Whether the function takes this number of positional arguments; a function that cannot be inspected takes any."""
    try:
        signature = inspect.signature(function, follow_wrapped=follow_wrapped)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _may_be_application(app: Callable[..., Any]) -> bool:
    """Whether the object takes the arguments of ASGI 3, of WSGI, or of ASGI 2."""
    return any(_callable_with(app, count) for count in (3, 2, 1))


def _is_async(app: Any) -> bool:
    """Whether calling the object, or an instance of the class, gives something to be awaited."""
    if inspect.isclass(app):
        return hasattr(app, "__await__")
    # The method is looked at itself: whether a call works is not the question.
    return iscoroutinefunction(app) or iscoroutinefunction(getattr(app, "__call__", None))  # noqa: B004


def warn_of_mistakes(app: Any, interface: Literal["asgi3", "asgi2", "wsgi"]) -> bool:
    """Warn if every request would fail because the object cannot be called as its interface requires."""
    if not callable(app):
        logger.warning(
            "The ASGI app is not callable, so every request will fail: %r. Name an application or a factory, as "
            "module:attribute.",
            app,
        )
    elif interface == "wsgi" and iscoroutinefunction(app):
        logger.warning(
            "The application is a coroutine function, not a WSGI application, so every request will fail: %r. Set "
            "interface to auto.",
            app,
        )
    elif _takes(app, ARGUMENTS[interface]):
        return False
    elif _takes(app, ARGUMENTS["wsgi"]):
        logger.warning(
            "The application takes two arguments, like a WSGI application, so every request will fail: %r. Set "
            "interface to wsgi.",
            app,
        )
    else:
        logger.warning(
            "The application does not accept the arguments of interface %s (%s), so every request will fail: %r.",
            interface,
            NAMES[interface],
            app,
        )
    return True


def _takes(app: Callable[..., Any], count: int) -> bool:
    """Whether a call passes; the function behind a decorator may have other arguments."""
    return _callable_with(app, count, follow_wrapped=False)


def detect_interface(app: Any) -> Literal["asgi2", "asgi3"]:
    """Distinguish ASGI 3 from ASGI 2: an object that is awaited at once, or needs more than the scope, is ASGI 3."""
    only_asgi3 = not inspect.isclass(app) and callable(app) and _callable_with(app, 3) and not _callable_with(app, 1)
    return "asgi3" if _is_async(app) or only_asgi3 else "asgi2"
