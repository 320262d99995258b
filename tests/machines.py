"""The machines that serve HTTP/1.1: that of Python, whichever library reads its header sections, and the native one."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from tests.utils import deep_after
from tests.websockets import ws_class
from uvicorn.listening import sockets


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


@pytest.fixture(
    name="ws_protocol_cls",
    params=["websockets-sansio", pytest.param("wsproto", marks=pytest.mark.deep), "native", "native-at-once"],
)
def each_websocket(request: pytest.FixtureRequest) -> Any:
    """Each WebSocket session; a module about more than reading frames says `ws_protocol_cls = machines.each_websocket`.

    wsproto and websockets only read control frames and fragments, for the same session: the former runs in the night.
    What each reads is tested by the vectors, `test_websocket_messages.py` and `test_websocket_frames.py`.
    """
    return ws_class(request.param)


@pytest.fixture(name="http", params=deep_after(2, ["native", "httptools", "h11"]))
def names(request: pytest.FixtureRequest) -> str:
    """Each machine by the name of an implementation, for a server that is configured with it."""
    if request.param == "native":
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    return str(request.param)


@pytest.fixture(name="reader", params=["native", "python"])
def readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who reads the connections of a server: the native core, or the transports of the event loop."""
    if request.param == "native":
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
        if sys.platform != "linux":
            pytest.skip("connections are read natively on Linux only")
    else:
        monkeypatch.setattr(sockets, "_poller_for", lambda *arguments: None)
        if sys.platform == "win32":
            pytest.skip("its event loop has no transports of ours")
    return str(request.param)
