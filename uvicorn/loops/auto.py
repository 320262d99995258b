"""uvloop when it can be imported, else the standard library's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def auto_loop_factory(use_subprocess: bool = False) -> Callable[[], asyncio.AbstractEventLoop]:
    """The factory of the fastest event loop that is installed."""
    try:
        from uvicorn.loops.uvloop import uvloop_loop_factory
    except ImportError:
        from uvicorn.loops.asyncio import asyncio_loop_factory

        return asyncio_loop_factory(use_subprocess=use_subprocess)
    return uvloop_loop_factory(use_subprocess=use_subprocess)
