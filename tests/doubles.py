"""Test doubles for a transport and an event loop, used by the tests and by the micro-benchmarks. Once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class MockTransport:
    """Keeps what is written, and remembers what was asked of it."""

    def __init__(
        self,
        sockname: Any = ("127.0.0.1", 8000),
        peername: Any = ("127.0.0.1", 8001),
        sslcontext: Any = None,
    ) -> None:
        self.extra = {"sockname": sockname, "peername": peername, "sslcontext": sslcontext}
        self.buffer = b""
        self.writes: list[bytes] = []
        self.closed = self.ended = False
        self.read_paused = False
        self.protocol: Any = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.extra.get(name, default)

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.buffer += data
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.read_paused = True

    def resume_reading(self) -> None:
        self.read_paused = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def clear_buffer(self) -> None:
        self.buffer = b""
        self.writes.clear()


class MockTimerHandle:
    """What `MockLoop.call_later` returns."""

    def __init__(self, loop: MockLoop, delay: float, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.loop = loop
        self.delay = delay
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self.loop.timers.remove(self)


class MockTask:
    """Runs its done callbacks never: the loop's double forgets a task once it ran."""

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        pass


class MockLoop:
    """An event loop that does only what it is told to: run one task, or the timers due within a delay."""

    def __init__(self) -> None:
        self.coroutines: list[Coroutine[Any, Any, None]] = []
        self.timers: list[MockTimerHandle] = []

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> MockTask:
        self.coroutines.insert(0, coroutine)
        return MockTask()

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> MockTimerHandle:
        handle = MockTimerHandle(self, delay, callback, args)
        self.timers.append(handle)
        return handle

    async def run_one(self) -> None:
        """Run the oldest task to its end."""
        await self.coroutines.pop()

    def run_later(self, with_delay: float) -> None:
        """Fire the timers that are due within `with_delay` seconds."""
        for handle in [handle for handle in self.timers if handle.delay <= with_delay]:
            self.timers.remove(handle)
            handle.cancelled = True
            handle.callback(*handle.args)

    def close(self) -> None:
        """Forget tasks that never ran."""
        while self.coroutines:
            self.coroutines.pop().close()
