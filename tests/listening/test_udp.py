"""HTTP/3 on one event loop: when it listens, offers itself to clients, refuses and ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable, Sequence

import pytest

if sys.platform != "linux":
    pytest.skip("HTTP/3 needs Linux", allow_module_level=True)

from tests.listening.test_udp_slots import holding
from tests.utils import PATIENCE
from uvicorn.config.default_headers import check_alt_svc
from uvicorn.listening import udp
from uvicorn.listening.udp import HTTP3Endpoint, alt_svc
from uvicorn.listening.udp_slots import UDPSlot, UDPSlots


class Listener:
    """Notes its calls."""

    def __init__(self, descriptors: Sequence[int], calls: list[str]) -> None:
        self._sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        self.calls = calls

    def resume(self) -> None:
        self.calls.append("resume")

    def stop_accepting(self, is_opened: Callable[[], object]) -> None:
        self.calls.append("stop")
        self.is_opened = is_opened

    def close(self) -> None:
        self.calls.append("close")
        for sock in self._sockets:
            sock.close()


class Endpoint:
    """One whose slot is real; what it does is in `calls`."""

    def __init__(self, stack: contextlib.ExitStack, fails: bool = False) -> None:
        self.calls: list[str] = []
        self.listeners: list[Listener] = []
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        slots = UDPSlots.open([listener], 4)
        stack.callback(slots.close)
        (self.slot,) = slots.take()
        self._fails = fails
        self.endpoint = HTTP3Endpoint(self.slot, self.make, lambda on: self.calls.append(f"alt-svc {on}"))

    def make(self, slot: UDPSlot, descriptors: Sequence[int]) -> udp.NativeListener:
        listener = Listener(descriptors, self.calls)
        self.listeners.append(listener)
        if self._fails:
            listener.close()
            raise OSError("no such thing")
        return listener


@pytest.mark.anyio
async def test_from_start_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It still accepts while the parent steers new connections to other workers."""
    monkeypatch.setattr(udp, "STEERING_DELAY", 0.001)
    with contextlib.ExitStack() as stack:
        one = Endpoint(stack)
        one.endpoint.start()
        assert one.calls == ["resume", "alt-svc True"]
        one.endpoint.leave()
        one.endpoint.leave()
        assert one.calls[2:] == ["alt-svc False"]
        one.endpoint.refuse()
        assert one.calls[3:] == []
        await asyncio.sleep(0.01)
        assert one.calls[3:] == ["stop"]
        one.endpoint.close()
        one.endpoint.close()
        assert one.calls[4:] == ["close"]
        assert [sock.fileno() for sock in one.slot.sockets] == [-1]


@pytest.mark.anyio
async def test_end_without_others() -> None:
    with contextlib.ExitStack() as stack:
        one = Endpoint(stack)
        one.endpoint.start()
        one.endpoint.refuse(is_last=True)
        waiting = asyncio.ensure_future(one.endpoint.wait_refused())
        await asyncio.sleep(0.05)
        assert one.calls == ["resume", "alt-svc True", "alt-svc False", "stop"]
        assert not waiting.done()
        one.listeners[0].is_opened()
        await waiting
        one.endpoint.close()


@pytest.mark.anyio
async def test_end_does_not_wait_for_handshakes_that_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp, "OPENING_GRACE", 0.05)
    with contextlib.ExitStack() as stack:
        one = Endpoint(stack)
        one.endpoint.start()
        one.endpoint.refuse(is_last=True)
        await asyncio.wait_for(one.endpoint.wait_refused(), PATIENCE)
        assert one.calls[3:] == ["stop"]
        one.endpoint.close()


@pytest.mark.anyio
async def test_end_at_once() -> None:
    with contextlib.ExitStack() as stack:
        one = Endpoint(stack)
        one.endpoint.start()
        one.endpoint.refuse()
        one.endpoint.close()
        await one.endpoint.wait_refused()
        await asyncio.sleep(2 * udp.STEERING_DELAY)
        assert one.calls == ["resume", "alt-svc True", "alt-svc False", "close"]


@pytest.mark.anyio
async def test_waits_while_another_process_reads_the_slot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(udp, "RETRY_INTERVAL", 0.01)
    caplog.set_level("INFO")
    with contextlib.ExitStack() as stack:
        one, ended = Endpoint(stack), Endpoint(stack)
        with holding(one.slot.locks, one.slot.number), holding(ended.slot.locks, ended.slot.number):
            one.endpoint.start()
            ended.endpoint.start()
            await asyncio.sleep(0.05)
            assert one.calls == []
            ended.endpoint.refuse()
        while not one.calls:
            await asyncio.sleep(0.01)
        assert one.calls == ["resume", "alt-svc True"]
        assert caplog.messages[-1] == "Serving HTTP/3, which another process did until now."
        await asyncio.sleep(0.05)
        assert ended.calls == []
        one.endpoint.close()


@pytest.mark.anyio
async def test_error_is_raised_at_start_and_logged_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(udp, "RETRY_INTERVAL", 0.01)
    with contextlib.ExitStack() as stack:
        at_once, later = Endpoint(stack, fails=True), Endpoint(stack, fails=True)
        with pytest.raises(OSError, match="no such thing"):
            at_once.endpoint.start()
        with holding(later.slot.locks, later.slot.number):
            later.endpoint.start()
        while not caplog.messages:
            await asyncio.sleep(0.01)
        assert caplog.messages == ["Cannot serve HTTP/3: no such thing."]
        at_once.endpoint.close()
        later.endpoint.close()


@pytest.mark.parametrize(
    ("setting", "ports", "value"),
    [
        (None, [8000], 'h3=":8000"'),
        (None, [443, 8443], 'h3=":443", h3=":8443"'),
        ('h3="cdn.example.org:443"; ma=60', [8000], 'h3="cdn.example.org:443"; ma=60'),
        ("clear", [8000], "clear"),
        ("none", [8000], None),
    ],
)
def test_alt_svc(setting: str | None, ports: list[int], value: str | None) -> None:
    assert alt_svc(setting, ports) == value


@pytest.mark.parametrize(
    "text", ['h3=":443"', 'h3=":443"; ma=60; persist=1, h3-29="a.example:1"', 'h3="[::1]:443"', "clear", "none"]
)
def test_alternatives_are_accepted(text: str) -> None:
    check_alt_svc(text)


@pytest.mark.parametrize(
    "text",
    ["", ":443", "h3=:443", 'h3=":443"\r\nx: y', 'h3=":443";', 'h3=":443", clear', 'h3="a b:1"', "h3", 'h3="é:1"'],
)
def test_other_alternatives_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be like"):
        check_alt_svc(text)
