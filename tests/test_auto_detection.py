"""`auto`: the fastest implementation that can be imported, of HTTP and of WebSocket."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.protocols.harness import respond
from uvicorn.config import HTTP_PROTOCOLS, WS_PROTOCOLS, Config

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
    auto = reimport(f"{HTTP}.auto")
    assert auto.fastest().__name__ == "NativeProtocol"
    assert "AutoHTTPProtocol" not in vars(auto)


def test_websocket_is_native_where_it_was_built(reimport: Any) -> None:
    """Also without a library."""
    pytest.importorskip("uvicorn._native")
    missing = [f"{WEBSOCKETS}.websockets_sansio_impl", f"{WEBSOCKETS}.wsproto_impl"]
    auto = reimport(f"{WEBSOCKETS}.auto", *missing)
    assert auto.fastest().__name__ == auto.AutoWebSocketsProtocol.__name__ == "NativeWebSocketProtocol"


def test_class_for_programs_to_derive_theirs_from_is_upstream_s() -> None:
    """Its methods can be overridden and its attributes assigned, which the native core's cannot all."""
    from uvicorn.protocols.http import auto, httptools_impl
    from uvicorn.protocols.websockets import auto as ws_auto
    from uvicorn.protocols.websockets import websockets_sansio_impl

    assert auto.AutoHTTPProtocol is httptools_impl.HttpToolsProtocol
    assert ws_auto.AutoWebSocketsProtocol is websockets_sansio_impl.WebSocketsSansIOProtocol
    for module in (auto, ws_auto):
        assert not hasattr(module, "something_else")


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


def loaded() -> dict[str, Any]:
    config = Config(respond(), log_config=None)
    config.load()
    return vars(config)


def test_configuration_takes_what_was_found() -> None:
    from uvicorn.protocols.http import auto
    from uvicorn.protocols.websockets import auto as ws_auto

    assert loaded()["http_protocol_class"] is auto.fastest()
    assert loaded()["ws_protocol_class"] is ws_auto.fastest()


def test_configuration_takes_what_a_program_has_put_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the module, or into the dictionary of names."""
    mine, other = type("Mine", (), {}), type("Other", (), {})
    monkeypatch.setattr(f"{HTTP}.auto.AutoHTTPProtocol", mine)
    monkeypatch.setattr(f"{WEBSOCKETS}.auto.AutoWebSocketsProtocol", None)
    assert (loaded()["http_protocol_class"], loaded()["ws_protocol_class"]) == (mine, None)
    monkeypatch.setattr("tests.test_auto_detection.OTHER", other, raising=False)
    monkeypatch.setitem(HTTP_PROTOCOLS, "auto", "tests.test_auto_detection:OTHER")
    monkeypatch.setitem(WS_PROTOCOLS, "auto", "tests.test_auto_detection:OTHER")
    assert (loaded()["http_protocol_class"], loaded()["ws_protocol_class"]) == (other, other)
