"""What the tests of the native core share: the module, if it was built, and both kinds of event loop."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)

from uvicorn.protocols.http.native_impl import NativeProtocol

LOOPS = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Each event loop in turn."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
def native() -> Any:
    """The protocol class."""
    return NativeProtocol
