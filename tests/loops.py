"""The event loops that tests run on."""

from __future__ import annotations

import importlib.util
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
