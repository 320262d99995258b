"""One object, no sockets: nanoseconds and instructions per operation.

This file is copied and run in the interpreter of the tree under measurement, so it imports the standard library only;
what it drives (a protocol class, a transport double, a pool) is named by import strings `module:attribute`.

    python bench_micro.py time        CASE… --operations N --rounds R    nanoseconds of each round
    python bench_micro.py count       CASE… --operations N               the same work between marks for callgrind
    python bench_micro.py ratio       CASE… --operations N --rounds R    CPU time over that of a yardstick
    python bench_micro.py memory      CASE… --operations N               bytes held, and left behind
    python bench_micro.py allocations CASE… --operations N               calls of the allocator and bytes asked of it
    python bench_micro.py places      CASE…                              what a request holds, by line

    python bench_micro.py available   CASE…                              those of the cases that can run here

Each prints one line of JSON: figures by case.

In `count` mode each mark is a call of getpgid(2), at which callgrind (`--dump-before=getpgid`) writes its counters.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import importlib
import json
import mmap
import os
import struct
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

# Where memory is from that no line of a module asked for.
NATIVE = "the native core, and this harness"
# Cases prepared at once to know what one of them holds.
HELD = 50

Operation = Callable[[int], Awaitable[None]]

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n"
HEADERS = (
    b"GET /start/page?with=query HTTP/1.1\r\nHost: example.com\r\n"
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
    b"Accept-Language: en-GB,en;q=0.7,de;q=0.3\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"
    b"Referer: https://example.com/start\r\nCookie: session=0123456789abcdef; theme=dark\r\n"
    b"Sec-Fetch-Mode: navigate\r\nCache-Control: max-age=0\r\n\r\n"
)
POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Length: 10240\r\n\r\n" + b"x" * 10240
REQUESTS = {
    "get": (GET, 1),
    "headers": (HEADERS, 1),
    "post": (POST, 1),
    "pipeline": (GET * 16, 16),
    "stream": (GET, 1),
    "log": (GET, 1),
}
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
# 128 bytes from a client whose mask is zero, and how long it is when it comes back.
FRAME, ECHOED = b"\x82\xfe\x00\x80" + bytes(4) + b"w" * 128, 4 + 128
PROTOCOLS = {
    "h11": "uvicorn.protocols.http.h11_impl:H11Protocol",
    "httptools": "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol",
    "native": "uvicorn.protocols.http.native_impl:NativeProtocol",
}
BODY = b"Hello, World!"
START: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}


def resolve(path: str) -> Any:
    """The object an import string names."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """The shortest application; a posted body is read first."""
    if scope["method"] == "POST":
        while (await receive()).get("more_body"):
            pass
    await send({**START, "headers": [*START["headers"], (b"content-length", b"13")]})
    await send({"type": "http.response.body", "body": BODY})


async def stream(scope: Any, receive: Any, send: Any) -> None:
    """Ten pieces without a length."""
    await send(START)
    for _ in range(10):
        await send({"type": "http.response.body", "body": BODY, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Sends every message back."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "bytes": message["bytes"]})


# No connection of an earlier case may end in the middle of a later one: under callgrind, 5 s are few requests.
KEEP_ALIVE = 3600


@functools.cache
def configured(application: Any, *, access_log: bool = False) -> Any:
    """A loaded configuration, which all connections share as in a server.

    With the access log it has the default logging, whose lines go nowhere.
    """
    if not access_log:
        config = resolve("uvicorn:Config")(
            app=application, access_log=False, lifespan="off", log_config=None, timeout_keep_alive=KEEP_ALIVE
        )
        config.load()
        return config
    # Handlers keep the stream that was there when they were made. It must outlive this call.
    before, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115
    try:
        config = resolve("uvicorn:Config")(app=application, lifespan="off", timeout_keep_alive=KEEP_ALIVE)
        config.load()
    finally:
        sys.stdout = before
    return config


async def websocket_case(kind: str, transport: str) -> Operation:
    """Messages through one WebSocket on a transport double, one at a time."""
    config = configured(echo)
    state = resolve("uvicorn.server:ServerState")()
    connection = config.ws_protocol_class(config=config, server_state=state, app_state={})
    double = resolve(transport)()
    connection.connection_made(double)
    connection.data_received(UPGRADE)
    while not double.buffer.endswith(b"\r\n\r\n"):
        await asyncio.sleep(0)
    if not double.buffer.startswith(b"HTTP/1.1 101 "):
        raise SystemExit(f"no WebSocket: {double.buffer[:200]!r}")
    double.clear_buffer()

    async def run(operations: int) -> None:
        for _ in range(operations):
            connection.data_received(FRAME)
            while len(double.buffer) < ECHOED:
                await asyncio.sleep(0)
            double.clear_buffer()

    return run


async def http_case(protocol: str, kind: str, transport: str, application: Any = None) -> Operation:
    """Requests through one protocol object on a transport double, inside a real event loop."""
    request, answers = REQUESTS[kind]
    application = application or (stream if kind == "stream" else hello)
    config = configured(application, access_log=kind == "log")
    state = resolve("uvicorn.server:ServerState")()
    connection = resolve(PROTOCOLS[protocol])(config=config, server_state=state, app_state={})
    double = resolve(transport)()
    connection.connection_made(double)

    async def run(operations: int) -> None:
        for _ in range(operations):
            connection.data_received(request)
            while state.tasks or double.buffer.count(b"HTTP/1.1 200") < answers:
                await asyncio.sleep(0)
            if double.closed:
                raise SystemExit(f"{protocol} {kind}: the connection was closed: {double.buffer[:200]!r}")
            double.clear_buffer()

    return run


async def event_case(kind: str, transport: str) -> Operation:
    """Taking and giving back an event, or making a fresh one."""
    if kind == "fresh":

        async def fresh(operations: int) -> None:
            for _ in range(operations):
                asyncio.Event()

        return fresh
    pool = resolve("uvicorn.serving.event_pool:EventPool")(256)

    async def pooled(operations: int) -> None:
        acquire, release = pool.acquire, pool.release
        for _ in range(operations):
            release(acquire())

    return pooled


async def spin_case(kind: str, transport: str) -> Operation:
    """Known work, to check the harness itself: `spin:N` runs N iterations of a loop."""
    iterations = int(kind)

    async def run(operations: int) -> None:
        for _ in range(operations):
            for _ in range(iterations):
                pass

    return run


async def prepare(case: str, transport: str) -> Operation:
    """The operation of a case `family:kind`; families are the protocols, `websocket`, `event` and `spin`."""
    family, _, kind = case.partition(":")
    if family in PROTOCOLS and kind in REQUESTS:
        return await http_case(family, kind, transport)
    if (family, kind) == ("websocket", "echo"):
        return await websocket_case(kind, transport)
    if family == "event" and kind in ("fresh", "pooled"):
        return await event_case(kind, transport)
    if family == "spin" and kind.isdecimal():
        return await spin_case(kind, transport)
    raise SystemExit(f"unknown micro-benchmark {case!r}")


async def measure(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Nanoseconds per operation of each round, by case."""
    found: dict[str, list[float]] = {}
    for case in arguments.cases:
        operation = await prepare(case, arguments.transport)
        await operation(arguments.operations // 10 + 1)
        rounds = found.setdefault(case, [])
        for _ in range(arguments.rounds):
            begun = time.perf_counter_ns()
            await operation(arguments.operations)
            rounds.append((time.perf_counter_ns() - begun) / arguments.operations)
    return found


async def yardstick(operations: int) -> None:
    """Work of the kind a server does in Python, to tell how fast this processor is at this moment."""
    for number in range(operations):
        head = {b"name-%d" % (place + number & 15): b"value" for place in range(4)}
        line = "%s - %d" % ("yardstick", number)
        YARD.append((head, line.encode("latin-1"), [*line.partition(" ")]))
        if len(YARD) == 64:
            YARD.clear()
        await asyncio.sleep(0)


YARD: list[Any] = []
# Operations of the yardstick that take about as long as one round of a case.
YARDS = 1000


async def ratio(arguments: argparse.Namespace) -> dict[str, float]:
    """CPU time of each case over that of the yardstick, both the least of many short rounds in turn.

    Disturbances lengthen a round: the least of many is that of the code alone. The remaining variation comes from this
    process's memory layout, so several processes are needed.
    """
    found = {}
    for case in arguments.cases:
        operation = await prepare(case, arguments.transport)
        await operation(arguments.operations)
        await yardstick(YARDS)
        own, yard = [], []
        for _ in range(arguments.rounds):
            times = [time.thread_time_ns()]
            for work, count in ((yardstick, YARDS), (operation, arguments.operations)):
                await work(count)
                times.append(time.thread_time_ns())
            yard.append((times[1] - times[0]) / YARDS)
            own.append((times[2] - times[1]) / arguments.operations)
        found[case] = min(own) / min(yard)
    return found


async def memory(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Bytes that one case holds (a protocol: a connection that served a request), and that each operation leaves."""
    found: dict[str, dict[str, float]] = {}
    for case in arguments.cases:
        await (await prepare(case, arguments.transport))(10)
        gc.collect()
        tracemalloc.start()
        held = []
        for _ in range(HELD):
            operation = await prepare(case, arguments.transport)
            await operation(1)
            held.append(operation)
        gc.collect()
        each = tracemalloc.get_traced_memory()[0] / HELD
        await held[0](10)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await held[0](arguments.operations)
        gc.collect()
        left = (tracemalloc.get_traced_memory()[0] - before) / arguments.operations
        tracemalloc.stop()
        found[case] = {"held": each, "left": left}
    return found


async def places(arguments: argparse.Namespace) -> dict[str, list[tuple[str, float, float]]]:
    """Blocks and bytes that a request of each case holds while its application runs, by the line that asked."""
    found = {}
    for case in arguments.cases:
        family, _, kind = case.partition(":")
        if family in PROTOCOLS and kind in REQUESTS:
            found[case] = await _places(family, kind, arguments.transport)
    return found


async def _places(protocol: str, kind: str, transport: str) -> list[tuple[str, float, float]]:
    pictures: list[tracemalloc.Snapshot] = []

    async def look(scope: Any, receive: Any, send: Any) -> None:
        if tracemalloc.is_tracing():
            pictures.append(tracemalloc.take_snapshot())
        await (stream if kind == "stream" else hello)(scope, receive, send)

    # Several requests at once, so that one-time allocations do not hide the memory of each.
    operations = [await http_case(protocol, kind, transport, look) for _ in range(HELD)]
    for operation in operations:
        await operation(10)
    gc.collect()
    tracemalloc.start()
    for operation in operations:
        tracemalloc.clear_traces()
        await operation(1)
    tracemalloc.stop()
    blocks: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for picture in pictures:
        for one in picture.statistics("lineno"):
            path, line = one.traceback[0].filename, one.traceback[0].lineno
            # Native allocations have no line of their own except the calling one, in this file.
            name = NATIVE if path == __file__ else f"{'/'.join(path.split('/')[-3:])}:{line}"
            blocks[name] = blocks.get(name, 0.0) + one.count / len(pictures)
            sizes[name] = sizes.get(name, 0.0) + one.size / len(pictures)
    order = sorted((name for name in sizes if "tracemalloc" not in name), key=sizes.__getitem__, reverse=True)
    return [(name, blocks[name], sizes[name]) for name in order]


async def allocations(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Calls of the allocator and bytes asked of it per operation; needs the preloaded counter (c/alloc_count.c)."""
    found = {}
    with (
        open(os.environ["BENCH_ALLOC_FILE"], "rb") as file,
        mmap.mmap(file.fileno(), 16, prot=mmap.PROT_READ) as counters,
    ):
        for case in arguments.cases:
            operation = await prepare(case, arguments.transport)
            await operation(arguments.operations)
            before = struct.unpack("=QQ", counters[:16])
            await operation(arguments.operations)
            after = struct.unpack("=QQ", counters[:16])
            each = [(now - then) / arguments.operations for now, then in zip(after, before, strict=True)]
            found[case] = {"allocations": each[0], "bytes": each[1]}
    return found


async def count(arguments: argparse.Namespace) -> dict[str, int]:
    """Run each case between two marks; the marks' order is the order of the cases."""
    for case in arguments.cases:
        operation = await prepare(case, arguments.transport)
        # Specialising interpreters rewrite code while it is warm-up; the marks come after.
        await operation(arguments.operations // 2 + 50)
        # Otherwise chance decides whether a collection falls between the marks.
        gc.collect()
        os.getpgid(0)
        await operation(arguments.operations)
        os.getpgid(0)
    return dict.fromkeys(arguments.cases, arguments.operations)


async def available(arguments: argparse.Namespace) -> list[str]:
    """The cases that can be run here: a protocol may need an extension or a package that is not there."""
    found = []
    for case in arguments.cases:
        try:
            await prepare(case, arguments.transport)
        except ImportError:
            continue
        found.append(case)
    return found


MODES: dict[str, Callable[[argparse.Namespace], Coroutine[Any, Any, Any]]] = {
    "available": available,
    "time": measure,
    "ratio": ratio,
    "count": count,
    "memory": memory,
    "allocations": allocations,
    "places": places,
}


def main() -> None:
    """Read the command line, run, print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=list(MODES))
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--operations", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--transport", default="tests.doubles:MockTransport")
    arguments = parser.parse_args()
    with contextlib.suppress(ImportError):
        # Under callgrind a step takes fifty times as long; a server that looks at the clock would behave differently.
        setattr(importlib.import_module("uvicorn.rules.limits"), "LONGEST_EAGER_STEP", 3600.0)  # noqa: B010
    print(json.dumps(asyncio.run(MODES[arguments.mode](arguments))))


if __name__ == "__main__":
    main()
