"""Small tools the tests share: a server inside the running loop, the current directory, a signal that must arrive."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import Server

#: Whether threads are kept apart, as they are everywhere but in the free-threaded builds.
GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()

#: Whether the native core is there: the package is complete without.
NATIVE = importlib.util.find_spec("uvicorn._native") is not None


def deep_after(first: int, values: Iterable[Any]) -> list[Any]:
    """`values` as parameters of a test: the `first` of them for every run, the others for that of the night."""
    import pytest  # processes that import this module do without

    return [
        value if number < first else pytest.param(value, marks=pytest.mark.deep) for number, value in enumerate(values)
    ]


#: Seconds a test waits for something that takes milliseconds on a quiet machine.
PATIENCE = 30.0


@asynccontextmanager
async def run_server(config: Config, sockets: list[socket.socket] | None = None) -> AsyncIterator[Server]:
    """Serve `config` inside the running event loop; the server is started on entry and has stopped gracefully on exit.

    Raises:
        RuntimeError: `serve()` returned before the server had started.
    """
    from uvicorn.server import Server

    server = Server(config=config)
    task = asyncio.create_task(server.serve(sockets=sockets))
    try:
        await wait_until(lambda: server.started or task.done())
        if not server.started:
            await task
            raise RuntimeError("the server ended before it had started")
        yield server
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, PATIENCE)


async def wait_until(condition: Callable[[], object], timeout: float = PATIENCE) -> None:
    """Let the event loop run until `condition()` is true; `AssertionError` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not true within {timeout} s: {condition}"
        await asyncio.sleep(0.002)


class Mapping:
    """Some of what a mapping has: as much as a message needs."""

    def __init__(self, **items: Any) -> None:
        self.items = items

    def __getitem__(self, key: str) -> Any:
        return self.items[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.items.get(key, default)


async def turns(count: int = 10) -> None:
    """Let the event loop run what is ready, read what has come, and run what becomes ready of that."""
    for _ in range(count):
        await asyncio.sleep(0)


def wait_for(condition: Callable[[], object], timeout: float = PATIENCE) -> None:
    """`wait_until` for code without an event loop (processes, threads, files)."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not true within {timeout} s: {condition}"
        time.sleep(0.005)


def server_port(server: Server) -> int:
    """The TCP port a started server is bound to."""
    port = server.servers[0].sockets[0].getsockname()[1]
    assert isinstance(port, int)
    return port


@contextmanager
def as_cwd(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Work in the directory `path`, then go back."""
    previous = Path.cwd()
    os.chdir(path)
    try:
        yield Path(path)
    finally:
        os.chdir(previous)


@contextmanager
def assert_signal(sig: signal.Signals) -> Iterator[None]:
    """Require that `sig` reaches this process inside the block; main thread only."""
    received: list[int] = []
    previous = signal.signal(sig, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(sig, previous)
    assert received, f"{sig.name} was not received"


@contextmanager
def running_thread(target: Callable[..., object], *args: object) -> Iterator[threading.Thread]:
    """Run `target(*args)` in a daemon thread; it must have returned soon after the block ends."""
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    yield thread
    thread.join(PATIENCE)
    assert not thread.is_alive(), f"{target} still runs"


def join_threads(name: str) -> None:
    """Wait until the threads with this name have ended."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"{name} still runs"


def open_connection(address: tuple[str, int] | str, payload: bytes = b"", timeout: float = PATIENCE) -> socket.socket:
    """A blocking client socket connected to a (host, port) or a Unix socket path, after sending `payload`."""
    if sys.platform == "win32" or not isinstance(address, str):
        client = socket.create_connection(cast("tuple[str, int]", address), timeout=timeout)
    else:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.settimeout(timeout)
        try:
            client.connect(address)
        except BaseException:
            client.close()
            raise
    if payload:
        client.sendall(payload)
    return client


def is_listening(address: tuple[str, int] | str) -> bool:
    """Whether somebody accepts connections there (a server does so a moment after its application is ready)."""
    try:
        open_connection(address).close()
    except OSError:
        return False
    return True


def read_to_end(client: socket.socket) -> bytes:
    """Everything the peer sends until it closes (or resets) the connection."""
    received = bytearray()
    while True:
        try:
            data = client.recv(65536)
        except ConnectionResetError:
            return bytes(received)
        if not data:
            return bytes(received)
        received += data


def read_until(client: socket.socket, marker: bytes) -> bytes:
    """Everything the peer sends up to the first read that completes `marker`; `AssertionError` when it ends before."""
    received = bytearray()
    while marker not in received:
        data = client.recv(65536)
        assert data, f"{marker!r} is missing in {bytes(received)!r}"
        received += data
    return bytes(received)


def request(
    address: tuple[str, int] | str, target: str = "/", method: str = "GET", headers: Sequence[str] = ()
) -> bytes:
    """One HTTP/1.1 request with `connection: close`; the whole answer as it was on the wire."""
    head = "\r\n".join([f"{method} {target} HTTP/1.1", "host: test", "connection: close", *headers, "", ""])
    with open_connection(address, head.encode("latin-1")) as client:
        return read_to_end(client)
