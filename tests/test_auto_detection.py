"""`auto`: the fastest implementation that can be imported, of HTTP and of WebSocket."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.protocols.harness import respond
from uvicorn.config import Config

HTTP = "uvicorn.protocols.http"
WEBSOCKETS = "uvicorn.protocols.websockets"


@pytest.fixture
def reimport(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a module anew, as if the given others could not be imported."""

    def reimport(name: str, *missing: str) -> Any:
        for other in (name, *missing):
            monkeypatch.delitem(sys.modules, other, raising=False)
        for other in missing:
            monkeypatch.setitem(sys.modules, other, None)
        return importlib.import_module(name)

    # The parents keep the module as an attribute; it is put back as it was.
    before = {name: importlib.import_module(name) for name in (f"{HTTP}.auto", f"{WEBSOCKETS}.auto")}
    yield reimport
    monkeypatch.undo()
    for name, module in before.items():
        package, _, attribute = name.rpartition(".")
        sys.modules[name] = module
        setattr(sys.modules[package], attribute, module)


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        pytest.param(["uvicorn._native", f"{HTTP}.native_impl"], "HttpToolsProtocol", id="without-native"),
        pytest.param(
            ["uvicorn._native", f"{HTTP}.native_impl", "httptools", f"{HTTP}.httptools_impl"],
            "H11Protocol",
            id="only-h11",
        ),
    ],
)
def test_http_is_the_fastest_there_is(reimport: Any, missing: list[str], expected: str) -> None:
    assert reimport(f"{HTTP}.auto", *missing).AutoHTTPProtocol.__name__ == expected


def test_http_is_native_where_it_was_built(reimport: Any) -> None:
    pytest.importorskip("uvicorn._native")
    assert reimport(f"{HTTP}.auto").AutoHTTPProtocol.__name__ == "NativeProtocol"


def test_websocket_is_native_where_it_was_built(reimport: Any) -> None:
    """Also without a library."""
    pytest.importorskip("uvicorn._native")
    missing = [f"{WEBSOCKETS}.websockets_sansio_impl", f"{WEBSOCKETS}.wsproto_impl"]
    assert reimport(f"{WEBSOCKETS}.auto", *missing).AutoWebSocketsProtocol.__name__ == "NativeWebSocketProtocol"


NO_NATIVE = ["uvicorn._native", f"{WEBSOCKETS}.native_impl"]


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        pytest.param([], "WebSocketsSansIOProtocol", id="websockets"),
        pytest.param(["websockets", f"{WEBSOCKETS}.websockets_sansio_impl"], "WSProtocol", id="wsproto"),
    ],
)
def test_websocket_prefers_websockets(reimport: Any, missing: list[str], expected: str) -> None:
    """UPG-10"""
    assert reimport(f"{WEBSOCKETS}.auto", *NO_NATIVE, *missing).AutoWebSocketsProtocol.__name__ == expected


def test_websocket_is_none_without_native_core_and_library(reimport: Any) -> None:
    """UPG-10"""
    missing = [*NO_NATIVE, f"{WEBSOCKETS}.websockets_sansio_impl", f"{WEBSOCKETS}.wsproto_impl"]
    assert reimport(f"{WEBSOCKETS}.auto", *missing).AutoWebSocketsProtocol is None


def test_configuration_takes_what_was_found() -> None:
    from uvicorn.protocols.http.auto import AutoHTTPProtocol
    from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

    config = Config(respond(), log_config=None)
    config.load()
    assert vars(config)["http_protocol_class"] is AutoHTTPProtocol
    assert vars(config)["ws_protocol_class"] is AutoWebSocketsProtocol
