"""Names of upstream's that programs replace or override, and how these are called."""

# mypy: disable-error-code="attr-defined,assignment,valid-type,misc,method-assign"

from __future__ import annotations

import ssl
from typing import Any

import uvicorn

from . import harness
from .harness import App

FOUND: dict[str, harness.Case] = {}


def case(function: harness.Case) -> harness.Case:
    """Have it run, under the name of the function."""
    FOUND[function.__name__.replace("_", " ")] = function
    return function


def recorder(calls: list[Any], function: Any) -> Any:
    """A function that notes its arguments, those of a method without its object, and calls another."""

    def record(*args: Any, **kwargs: Any) -> Any:
        calls.append([function.__name__, args[1:] if "." in function.__qualname__ else args, kwargs])
        return function(*args, **kwargs)

    return record


# TLS


@case
def create_ssl_context() -> Any:
    calls: list[Any] = []

    def create(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        calls.append([args, kwargs])
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    uvicorn.config.create_ssl_context = create
    for settings in ({}, {"ssl_keyfile": "key"}, {"ssl_context_factory": lambda config, default: default()}):
        uvicorn.Config(App(), ssl_certfile="none.pem", ssl_keyfile_password="secret", **settings).load()
    return {"calls": calls}


def cases() -> dict[str, harness.Case]:
    """All of them."""
    return dict(FOUND)
