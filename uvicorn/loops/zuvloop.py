"""zuvloop: a third-party event loop, used when asked for by name."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import cast


def zuvloop_loop_factory(use_subprocess: bool = False) -> Callable[[], asyncio.AbstractEventLoop]:
    """zuvloop's own factory; `use_subprocess` makes no difference to it.

    Raises:
        ImportError: the package is not installed; the text names the command that installs it.
    """
    try:
        zuvloop = importlib.import_module("zuvloop")
    except ModuleNotFoundError as exc:
        raise ImportError(
            "The event loop 'zuvloop' needs the package zuvloop, which is not installed. "
            "Install it, or choose --loop auto, uvloop or asyncio."
        ) from exc
    return cast("Callable[[], asyncio.AbstractEventLoop]", zuvloop.new_event_loop)
