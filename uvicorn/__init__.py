"""An ASGI server.

    import uvicorn

    uvicorn.run("main:app", port=8000)

``run`` starts it as the command line does. ``Server(Config(...)).serve()`` runs inside a running event loop.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config
from uvicorn.server import Server

if TYPE_CHECKING:
    from uvicorn.main import main, run

# Three integers, because programs compare them; above every release of upstream's 0.54, and within `>=0.54,<0.55`. The
# line of `uvicorn --version` marks the fork.
__version__ = "0.54.100"
# The release of upstream that this fork replaces. Upstream has no such name: `assert uvicorn.__fork__`.
__fork__ = "0.54.0"
__all__ = ["Config", "Server", "main", "run"]


class _Package(ModuleType):
    """This package: its `main` is the command, even after the module of that name was imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "main" and isinstance(value, ModuleType):
            value = value.main
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    # Attributes of the package ever since, but a worker needs no command line, and only several processes need the
    # others: imported when first asked for.
    if name in ("main", "run"):
        return getattr(importlib.import_module("uvicorn.main"), name)
    if name in ("supervisors", "_subprocess"):
        return importlib.import_module(f"uvicorn.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
