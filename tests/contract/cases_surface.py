"""The names of each module, and what can be called: with which parameters."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import types
import warnings
from typing import Any

from . import harness

_NAMES = """
    uvicorn uvicorn.config uvicorn.importer uvicorn.lifespan.off uvicorn.lifespan.on uvicorn.logging
    uvicorn.loops.asyncio uvicorn.loops.auto uvicorn.loops.uvloop uvicorn.main uvicorn.middleware.asgi2
    uvicorn.middleware.message_logger uvicorn.middleware.proxy_headers uvicorn.middleware.wsgi
    uvicorn.protocols.http.auto uvicorn.protocols.http.flow_control uvicorn.protocols.http.h11_impl
    uvicorn.protocols.http.httptools_impl uvicorn.protocols.utils uvicorn.protocols.websockets.auto
    uvicorn.protocols.websockets.websockets_sansio_impl uvicorn.protocols.websockets.wsproto_impl
    uvicorn.server uvicorn.supervisors uvicorn.supervisors.basereload uvicorn.supervisors.multiprocess
    uvicorn.supervisors.statreload uvicorn.supervisors.watchfilesreload
"""
MODULES = _NAMES.split()

DATA = (bool, int, float, str, bytes, dict, list, tuple, set, re.Pattern)
LAZY = ("create_ssl_context", "WSGIMiddleware", "BaseReload", "Multiprocess", "ChangeReload", "ServerState")
"""What a module may make when it is asked for."""

OF_PROTOCOLS = (
    *("__init__", "connection_made", "connection_lost", "data_received", "eof_received", "pause_writing"),
    *("resume_writing", "shutdown", "run_asgi", "send", "receive", "send_500_response", "timeout_keep_alive_handler"),
)
CALLED = ("__init__", "__call__", "__iter__", "__next__")


def parameters(function: Any) -> list[str]:
    """Each parameter, as `kind name`, with a question mark if it need not be given."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ["?"]
    return [
        f"{parameter.kind.name} {name}{'' if parameter.default is inspect.Parameter.empty else '?'}"
        for name, parameter in signature.parameters.items()
    ]


def called(function: Any) -> list[str]:
    """How a function is called."""
    kind = "async" if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) else "sync"
    return [kind, *parameters(function)]


def is_asked(cls: type, method: str, function: Any) -> bool:
    """Whether a method is part of what programs use; most of those of protocols belong to how they use a library."""
    if not isinstance(function, types.FunctionType) or not function.__module__.startswith("uvicorn"):
        return False
    if cls.__module__.startswith("uvicorn.protocols."):
        return method in OF_PROTOCOLS
    return not method.startswith("_") or method in CALLED


def surface(name: str) -> dict[str, Any]:
    """The public names of a module, and of classes their methods; and which of them it defines."""
    module = importlib.import_module(name)
    found: dict[str, Any] = {}
    defined: list[str] = []
    for public in sorted({*vars(module), *getattr(module, "__all__", ()), *LAZY}):
        if public.startswith("_") or not (public in vars(module) or hasattr(module, public)):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = getattr(module, public)
        if isinstance(value, (type, types.FunctionType)):
            if not value.__module__.startswith("uvicorn"):
                continue
            names = {public: ["class"] if isinstance(value, type) else called(value)}
            if isinstance(value, type):
                for method in sorted({each for cls in value.__mro__ for each in vars(cls)}):
                    function = inspect.getattr_static(value, method)
                    if is_asked(value, method, function):
                        names[f"{public}.{method}"] = called(function)
            found.update(names)
            defined += names if value.__module__ == name else []
        elif isinstance(value, DATA):
            found[public] = [type(value).__name__ if type(value).__module__ == "builtins" else "data"]
            defined += [] if name.startswith("uvicorn.protocols.websockets") else [public]
    return {"names": found, "defined": defined}


def cases() -> dict[str, harness.Case]:
    """One for each module."""
    return {name: functools.partial(surface, name) for name in MODULES}
