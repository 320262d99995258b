"""What the tests of the native core share: the module, if it was built, and the event loop."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)

from tests import loops
from uvicorn.protocols.http.native_impl import NativeProtocol

anyio_backend = loops.one


@pytest.fixture
def native() -> Any:
    """The protocol class."""
    return NativeProtocol
