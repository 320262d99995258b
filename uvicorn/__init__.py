"""An ASGI server.

    import uvicorn

    uvicorn.run("main:app", port=8000)

``run`` starts it as the command line does. ``Server(Config(...)).serve()`` runs inside an event loop of one's own.
"""

import importlib
from typing import Any

from uvicorn.config import Config
from uvicorn.main import Server, main, run

# A local label (PEP 440) marks the fork: above 0.54.0 for every resolver, and not mistaken for upstream's own release.
__version__ = "0.54.100+fast"
__all__ = ["Config", "Server", "main", "run"]


def __getattr__(name: str) -> Any:
    # Attributes of the package ever since, but only several processes need them: imported when first asked for.
    if name in ("supervisors", "_subprocess"):
        return importlib.import_module(f"uvicorn.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
