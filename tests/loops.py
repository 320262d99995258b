"""The event loops that tests run on."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

#: Those that are installed, by the names of the setting.
LOOPS = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]


@pytest.fixture(name="anyio_backend", params=["asyncio", "uvloop"])
def each(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Each event loop in turn; a module that wants this says `anyio_backend = loops.each`."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture(name="anyloop", params=["asyncio", "uvloop"])
def factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes a loop, of each kind in turn."""
    if request.param == "asyncio":
        return asyncio.SelectorEventLoop
    factory: Callable[[], asyncio.AbstractEventLoop] = pytest.importorskip("uvloop").new_event_loop
    return factory
