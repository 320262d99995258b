"""Pools against no pools, slots against dicts, ways of building bytes: operations timed one object at a time.

This file is copied and run in the interpreter of the tree under measurement, so it imports the standard library only.
It prints one JSON object: figures by case. With BENCH_ALLOC_FILE it also counts allocations (see c/alloc_count.c).
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import mmap
import os
import statistics
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

BURST = 1000
ROUNDS = 5
# Operations timed one by one for the percentiles; the clock itself costs about 50 ns of each.
SINGLE = 50_000
# Requests held at once: within what the native buffer pool keeps, and beyond it.
HELD = (1, 100, 1000)

Operation = Callable[[int], None]


def cycle(acquire: Callable[[], Any], release: Callable[[Any], object]) -> Operation:
    """One object at a time: taken, given back."""

    def run(operations: int) -> None:
        for _ in range(operations):
            release(acquire())

    return run


def burst(acquire: Callable[[], Any], release: Callable[[Any], object]) -> Operation:
    """Many at once: BURST objects taken, then all given back; an operation is one of them."""

    def run(operations: int) -> None:
        for _ in range(-(-operations // BURST)):
            held = [acquire() for _ in range(BURST)]
            while held:
                release(held.pop())

    return run


def drop(one: object) -> None:
    """What giving back means without a pool."""


def event_cases(capacities: list[int]) -> dict[str, Operation]:
    """The event pool at each capacity, plain, preallocated and with expiry, and fresh events."""
    pool_class = importlib.import_module("uvicorn.serving.event_pool").EventPool
    found = {
        "events, no pool": cycle(asyncio.Event, drop),
        f"events, no pool, bursts of {BURST}": burst(asyncio.Event, drop),
    }
    for capacity in capacities:
        forms = {
            "": pool_class(capacity),
            ", preallocated": pool_class(capacity, preallocate=capacity),
            ", expiry 60 s": pool_class(capacity, idle_expiry=60.0),
        }
        for form, pool in forms.items():
            name = f"events, pool of {capacity:,}{form}"
            found[name] = cycle(pool.acquire, pool.release)
            found[f"{name}, bursts of {BURST}"] = burst(pool.acquire, pool.release)
    return found


class Plain:
    """Eight attributes in a dict."""

    def __init__(self) -> None:
        self.a = self.b = self.c = self.d = self.e = self.f = self.g = self.h = None


class Slotted:
    """Eight attributes in slots."""

    __slots__ = ("a", "b", "c", "d", "e", "f", "g", "h")

    def __init__(self) -> None:
        self.a = self.b = self.c = self.d = self.e = self.f = self.g = self.h = None


NAMES = [(b"server", b"uvicorn"), (b"date", b"Mon, 01 Jan 2024 00:00:00 GMT"), (b"content-length", b"13")]


def by_join() -> bytes:
    """A response head from one list."""
    parts = [b"HTTP/1.1 200 OK\r\n"]
    for name, value in NAMES:
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


def by_percent() -> bytes:
    """A response head by formatting each line."""
    return b"HTTP/1.1 200 OK\r\n%b\r\n" % b"".join([b"%b: %b\r\n" % pair for pair in NAMES])


def by_addition() -> bytes:
    """A response head by adding bytes to bytes."""
    head = b"HTTP/1.1 200 OK\r\n"
    for name, value in NAMES:
        head += name + b": " + value + b"\r\n"
    return head + b"\r\n"


def by_bytearray() -> bytes:
    """A response head in a growing buffer."""
    head = bytearray(b"HTTP/1.1 200 OK\r\n")
    for name, value in NAMES:
        head += name + b": " + value + b"\r\n"
    return bytes(head + b"\r\n")


def by_text() -> bytes:
    """A response head as text, encoded at the end."""
    lines = "".join([f"{name.decode()}: {value.decode()}\r\n" for name, value in NAMES])
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode("latin-1")


def repeat(function: Callable[[], Any]) -> Operation:
    """Return an operation that calls it `count` times."""

    def run(operations: int) -> None:
        for _ in range(operations):
            function()

    return run


class Transport:
    """Discards all output."""

    def __init__(self) -> None:
        self.answers = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 8000) if name in ("sockname", "peername") else default

    def write(self, data: bytes) -> None:
        self.answers += data.count(b"HTTP/1.1 200")

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        raise SystemExit("the native protocol closed a connection")

    abort = close


async def posted(scope: Any, receive: Any, send: Any) -> None:
    """Reads a body, answers without one."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def native_cases(counts: tuple[int, ...]) -> dict[str, Operation]:
    """Requests with bodies in two pieces, in numbers below and above the cap of the native buffers."""
    try:
        protocol = importlib.import_module("uvicorn.protocols.http.native_impl").NativeProtocol
    except ImportError:
        return {}
    uvicorn, loop = importlib.import_module("uvicorn"), asyncio.new_event_loop()
    found: dict[str, Operation] = {}
    for count in counts:
        # All cases are made first: a connection waits for its turn, and in each round for the other connections.
        patience = dict.fromkeys(("timeout_keep_alive", "timeout_request_head", "timeout_request_body"), 86400)
        config = uvicorn.Config(app=posted, access_log=False, lifespan="off", log_config=None, **patience)
        state = importlib.import_module("uvicorn.server").ServerState()
        found[f"native requests, {count:,} at once"] = Held(loop, protocol, config, state, count)
    return found


class Held:
    """Connections with a half-read request each, which are then all finished."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: Any, config: Any, state: Any, count: int) -> None:
        self.loop, self.state, self.count = loop, state, count
        self.pairs = []
        for _ in range(count):
            connection, transport = protocol(config, state, {}, _loop=loop), Transport()
            connection.connection_made(transport)
            self.pairs.append((connection, transport))

    def __call__(self, operations: int) -> None:
        self.loop.run_until_complete(self._run(-(-operations // self.count)))

    async def _run(self, rounds: int) -> None:
        for _ in range(rounds):
            for connection, _ in self.pairs:
                connection.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n12")
            await asyncio.sleep(0)
            for connection, transport in self.pairs:
                transport.answers = 0
                connection.data_received(b"34")
            while not all(transport.answers for _, transport in self.pairs):
                await asyncio.sleep(0)

    def stats(self) -> dict[str, int]:
        """The native pool's own figures."""
        found: dict[str, int] = self.state.protocol_settings.stats()["buffers"]
        return found


def plain_cases() -> dict[str, Operation]:
    """Objects and bytes, and an empty call as what the measuring itself costs."""
    heads = (by_join, by_percent, by_addition, by_bytearray, by_text)
    found = {"nothing (cost of measuring)": repeat(lambda: None)}
    found |= {"objects, dict": repeat(Plain), "objects, slots": repeat(Slotted)}
    return found | {f"head, {one.__name__.replace('_', ' ')}": repeat(one) for one in heads}


class Pauses:
    """Runs and pauses of the garbage collector."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._begun = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            self.seconds.append(time.perf_counter() - self._begun)


def measure(operation: Operation, operations: int, unit: int) -> dict[str, Any]:
    """Nanoseconds per operation, percentiles of single ones (`unit` at a time), collector runs and pauses."""
    operation(operations // 10)
    pauses = Pauses()
    gc.collect()
    gc.callbacks.append(pauses)
    rounds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter_ns()
        operation(operations // ROUNDS)
        rounds.append((time.perf_counter_ns() - begun) / max(1, operations // ROUNDS))
    gc.callbacks.remove(pauses)
    found: dict[str, Any] = {"rounds": rounds, "gc_runs": len(pauses.seconds), "gc_pauses": sum(pauses.seconds)}
    found["gc_longest"] = max(pauses.seconds, default=0.0)
    single = sorted(_single(operation, unit, min(SINGLE, operations)))
    for name, share in {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}.items():
        found[name] = single[int(share * (len(single) - 1))]
    return found


def _single(operation: Operation, unit: int, operations: int) -> list[float]:
    clock, found = time.perf_counter_ns, []
    for _ in range(max(1, operations // unit)):
        begun = clock()
        operation(unit)
        found.append((clock() - begun) / unit)
    return found


def allocations(operation: Operation, operations: int, path: str) -> dict[str, float]:
    """Calls of the allocator and bytes asked of it per operation, once everything is warm."""
    operation(operations)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 16, prot=mmap.PROT_READ) as counters:
        before = struct.unpack("=QQ", counters[:16])
        operation(operations)
        after = struct.unpack("=QQ", counters[:16])
    return {"allocations": (after[0] - before[0]) / operations, "bytes": (after[1] - before[1]) / operations}


def main() -> None:
    """Read the order (JSON: operations, capacities), run every case, print the figures."""
    order = json.loads(sys.argv[1])
    counter = os.environ.get("BENCH_ALLOC_FILE")
    cases = plain_cases() | event_cases(order["capacities"]) | native_cases(HELD)
    found: dict[str, dict[str, Any]] = {}
    for name, operation in cases.items():
        if counter:
            found[name] = allocations(operation, order["operations"], counter)
        else:
            unit = operation.count if isinstance(operation, Held) else BURST if "bursts" in name else 1
            found[name] = measure(operation, order["operations"], unit)
            found[name]["ns"] = statistics.median(found[name]["rounds"])
            if isinstance(operation, Held):
                found[name]["stats"] = operation.stats()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
