"""The event loops that tests run on."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.utils import deep_after

#: Those that are installed, by the names of the setting.
LOOPS = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]


def _backend(loop: str) -> tuple[str, dict[str, Any]]:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    return "asyncio", {"use_uvloop": loop == "uvloop"}


@pytest.fixture(name="anyio_backend", params=["asyncio", "uvloop"])
def each(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Each event loop in turn; a module about what transports do says `anyio_backend = loops.each`."""
    return _backend(request.param)


@pytest.fixture(name="anyio_backend", params=deep_after(1, ["asyncio", "uvloop"]))
def one(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """asyncio's event loop, in the night uvloop's as well; for a module about what is behind the transport."""
    return _backend(request.param)


@pytest.fixture(name="anyloop", params=["asyncio", "uvloop"])
def factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes a loop, of each kind in turn."""
    if request.param == "asyncio":
        return asyncio.SelectorEventLoop
    factory: Callable[[], asyncio.AbstractEventLoop] = pytest.importorskip("uvloop").new_event_loop
    return factory


async def busy(act: Callable[[], object] = lambda: None, seconds: float = 0.6) -> None:
    """Have the loop hear nobody for so long. Then, still before it looks at its sockets again, the client acts."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    calls = 0
    acted = loop.create_future()

    def block() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            time.sleep(seconds)
            return
        # asyncio's loop has looked meanwhile, and timers that are due come next; uvloop's had them before.
        loop.remove_reader(ours)
        act()
        acted.set_result(None)

    with ours, theirs:
        theirs.send(b"busy")
        loop.add_reader(ours, block)
        await acted
