"""Middleware between the server and an application."""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    # An attribute of the package ever since, which few applications need: imported when first asked for.
    if name == "wsgi":
        return importlib.import_module("uvicorn.middleware.wsgi")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
