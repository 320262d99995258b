from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest

from uvicorn.config import Config
from uvicorn.loops.asyncio import asyncio_loop_factory
from uvicorn.loops.auto import auto_loop_factory
from uvicorn.loops.zuvloop import zuvloop_loop_factory


async def app(scope: object, receive: object, send: object) -> None:
    raise AssertionError("not called")


@pytest.mark.parametrize("use_subprocess", [False, True])
def test_asyncio_gives_the_selector_loop(use_subprocess: bool) -> None:
    """API-12"""
    if sys.platform != "win32":
        assert asyncio_loop_factory(use_subprocess) is asyncio.SelectorEventLoop


def test_asyncio_gives_the_proactor_loop_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """WIN-03: only without children, which inherit sockets a proactor cannot serve."""
    monkeypatch.setattr(sys, "platform", "win32")
    proactor = type("ProactorEventLoop", (), {})
    monkeypatch.setattr(asyncio, "ProactorEventLoop", proactor, raising=False)
    assert asyncio_loop_factory() is proactor
    assert asyncio_loop_factory(use_subprocess=True) is asyncio.SelectorEventLoop


@pytest.mark.parametrize("factory", [auto_loop_factory, asyncio_loop_factory])
def test_every_factory_makes_a_new_loop(factory: Callable[..., Callable[[], asyncio.AbstractEventLoop]]) -> None:
    """API-12"""
    loops = [factory()(), factory(use_subprocess=True)()]
    try:
        assert loops[0] is not loops[1]
    finally:
        for loop in loops:
            loop.close()


def test_auto_prefers_uvloop() -> None:
    """API-12"""
    uvloop = pytest.importorskip("uvloop")
    assert auto_loop_factory() is uvloop.new_event_loop


def test_auto_does_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """API-12"""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    monkeypatch.delitem(sys.modules, "uvicorn.loops.uvloop", raising=False)
    assert auto_loop_factory(use_subprocess=True) is asyncio.SelectorEventLoop


def test_uvloop_is_named() -> None:
    uvloop = pytest.importorskip("uvloop")
    assert Config(app, loop="uvloop").get_loop_factory() is uvloop.new_event_loop


def test_zuvloop_is_used_when_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Zuvloop:
        new_event_loop = object()

    monkeypatch.setitem(sys.modules, "zuvloop", Zuvloop())
    assert zuvloop_loop_factory() is Zuvloop.new_event_loop


def test_zuvloop_that_is_not_installed_is_a_clear_error() -> None:
    with pytest.raises(ImportError, match="needs the package zuvloop"):
        zuvloop_loop_factory()
