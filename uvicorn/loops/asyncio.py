"""The standard library's event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable


def asyncio_loop_factory(use_subprocess: bool = False) -> Callable[[], asyncio.AbstractEventLoop]:
    """The class of asyncio's loop for this platform.

    On Windows that is the proactor loop, except with `use_subprocess` (reload or several workers): a socket inherited
    from the parent can be served by a selector loop only.
    """
    if sys.platform == "win32" and not use_subprocess:
        return asyncio.ProactorEventLoop
    return asyncio.SelectorEventLoop
