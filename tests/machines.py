"""The machines that serve HTTP/1.1: that of Python, whichever library reads its header sections, and the native one."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.fixture(
    name="http_protocol_cls",
    params=[
        pytest.param("uvicorn.protocols.http.httptools_impl:HttpToolsProtocol", id="python"),
        pytest.param("uvicorn.protocols.http.native_impl:NativeProtocol", id="native"),
    ],
)
def each(request: pytest.FixtureRequest) -> Any:
    """Each machine in turn; a module about what comes behind a request's head says `http_protocol_cls = machines.each`.

    What the libraries have for themselves is a head's fields; `test_http_libraries.py` holds them to that.
    """
    if "native" in request.param:
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    module, _, attribute = request.param.partition(":")
    return getattr(importlib.import_module(module), attribute)
