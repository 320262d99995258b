"""The applications under load. This file is copied next to each server, so it imports the standard library only.

Every server gets the same object for a workload; there is no router, so that only the server's work is measured.
Knobs come from the environment: BENCH_SLEEP_MS, BENCH_CPU_ITERATIONS, BENCH_IO_MS.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SLEEP = float(os.environ.get("BENCH_SLEEP_MS", "10")) / 1000
CPU_ITERATIONS = int(float(os.environ.get("BENCH_CPU_ITERATIONS", "2000")))
IO = float(os.environ.get("BENCH_IO_MS", "5")) / 1000
if os.environ.get("BENCH_COUNTED") and (limits := sys.modules.get("uvicorn.rules.limits")):
    # Under callgrind a step takes fifty times as long, and a server that looks at the clock would behave differently.
    setattr(limits, "LONGEST_EAGER_STEP", 3600.0)  # noqa: B010

HELLO = b"Hello, World!"
TEN_KIB = b"x" * 10240
KIB = b"x" * 1024
FILE_BYTES = 65536
FILE_PIECE = 16384
# Where a file is found, of a directory of that name beside the applications.
MOUNT = "/static"
MOUNTED_FILE = "10k.txt"


def _head(length: int | None, kind: bytes = b"text/plain") -> Message:
    headers = [(b"content-type", kind)]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    return {"type": "http.response.start", "status": 200, "headers": headers}


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def reading(scope: Message, receive: Receive, send: Send) -> None:
    """Looks at what a router looks at, then says hello: a server must not gain by not having read the request."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    found = dict(scope["headers"])
    if not (scope["path"].startswith("/") and scope["query_string"] is not None and found.get(b"x-request-id")):
        # Asked whether it is ready, or by a load that is not meant for it.
        return await _answer(send, b"not browsed")
    await _answer(send, HELLO)


async def _answer(send: Send, body: bytes) -> None:
    await send(_head(len(body)))
    await send({"type": "http.response.body", "body": body})


def spend(seconds: float) -> None:
    """Use the processor for `seconds`."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


NEIGHBOUR = 200e-6


async def accept(scope: Message, receive: Receive, send: Send) -> None:
    """200 us of CPU at /busy, hello anywhere else."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    if scope["path"] == "/busy":
        spend(NEIGHBOUR)
    await _answer(send, HELLO)


ONE_MIB = b"m" * 2**20


async def one_mib(scope: Message, receive: Receive, send: Send) -> None:
    """1 MiB in one piece."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    await _answer(send, ONE_MIB)


BULK = 16 * 2**20
BULK_PIECE = b"d" * 65536


async def upload(scope: Message, receive: Receive, send: Send) -> None:
    """Reads the body piece by piece, keeps none of it, answers its length."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    length, more = 0, True
    while more:
        message = await receive()
        length += len(message.get("body", b""))
        more = message.get("more_body", False)
    await _answer(send, b"%012d" % length)


async def download(scope: Message, receive: Receive, send: Send) -> None:
    """16 MiB of a known length in pieces of 64 KiB."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    await send(_head(BULK, b"application/octet-stream"))
    for left in range(BULK // len(BULK_PIECE), 0, -1):
        await send({"type": "http.response.body", "body": BULK_PIECE, "more_body": left > 1})


BESIDE = 100 * 2**20


async def beside(scope: Message, receive: Receive, send: Send) -> None:
    """100 MiB in pieces of 64 KiB at /download, hello anywhere else."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    if scope["path"] != "/download":
        return await _answer(send, HELLO)
    await send(_head(BESIDE, b"application/octet-stream"))
    for left in range(BESIDE // len(BULK_PIECE), 0, -1):
        await send({"type": "http.response.body", "body": BULK_PIECE, "more_body": left > 1})


async def _body(receive: Receive) -> bytes:
    message = await receive()
    # One server gives a memoryview where ASGI says bytes, and answers nonsense when it is given that back.
    body = bytes(message.get("body", b""))
    if not message.get("more_body"):
        return body
    parts = [body]
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
    return b"".join(parts)


async def hello(scope: Message, receive: Receive, send: Send) -> None:
    """13 bytes, nothing read: the server's own work."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    await send(_head(len(HELLO)))
    await send({"type": "http.response.body", "body": HELLO})


async def one_kib(scope: Message, receive: Receive, send: Send) -> None:
    """1 KiB in one piece."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    await send(_head(len(KIB)))
    await send({"type": "http.response.body", "body": KIB})


async def ten_kib(scope: Message, receive: Receive, send: Send) -> None:
    """10 KiB in one piece."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    await send(_head(len(TEN_KIB)))
    await send({"type": "http.response.body", "body": TEN_KIB})


async def echo(scope: Message, receive: Receive, send: Send) -> None:
    """Read the whole body, send it back."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    body = await _body(receive)
    await send(_head(len(body)))
    await send({"type": "http.response.body", "body": body})


async def stream(scope: Message, receive: Receive, send: Send) -> None:
    """10 pieces of 1 KiB without a length: chunked over HTTP/1.1."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    await send(_head(None))
    for _ in range(10):
        await send({"type": "http.response.body", "body": KIB, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


TOKEN = b"data: " + b"t" * 12 + b"\n\n"
TOKEN_INTERVAL = 0.02
STREAM_PATH = "/stream"
TOKENS = 1500


async def ticks() -> AsyncIterator[int]:
    """`TOKENS` times, one each `TOKEN_INTERVAL`: a model that is as fast whatever the server takes."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    for number in range(TOKENS):
        yield number
        due += TOKEN_INTERVAL
        await asyncio.sleep(due - loop.time())


async def tokens(scope: Message, receive: Receive, send: Send) -> None:
    """20 bytes each 20 ms at /stream, hello anywhere else."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    if scope["path"] != STREAM_PATH:
        return await _answer(send, HELLO)
    await send(_head(None, b"text/event-stream"))
    async for _ in ticks():
        await send({"type": "http.response.body", "body": TOKEN, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def sleep(scope: Message, receive: Receive, send: Send) -> None:
    """Wait on the event loop, then say hello: many requests in flight."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    await asyncio.sleep(SLEEP)
    await send(_head(len(HELLO)))
    await send({"type": "http.response.body", "body": HELLO})


def work(iterations: int) -> int:
    """Plain interpreter work, about 30 ns per iteration."""
    total = 0
    for number in range(iterations):
        total += number & 7
    return total


async def cpu(scope: Message, receive: Receive, send: Send) -> None:
    """The application computes: a better server gains little here."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    body = b"%012d" % work(CPU_ITERATIONS)
    await send(_head(len(body)))
    await send({"type": "http.response.body", "body": body})


COMPUTING = 0.001


async def busy(scope: Message, receive: Receive, send: Send) -> None:
    """Wait on the event loop, as for a database, then compute for a millisecond of processor time."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    await asyncio.sleep(SLEEP)
    spend(COMPUTING)
    await _answer(send, HELLO)


async def io(scope: Message, receive: Receive, send: Send) -> None:
    """A blocking call in the default thread pool, as database drivers without asyncio make it."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    await asyncio.get_running_loop().run_in_executor(None, time.sleep, IO)
    await send(_head(len(HELLO)))
    await send({"type": "http.response.body", "body": HELLO})


DOCUMENT = {"items": [{"id": number, "name": f"item {number}", "price": number * 1.5} for number in range(20)]}
DOCUMENT_BYTES = len(json.dumps(DOCUMENT))


API_WAIT = 0.002
"""Seconds that an API waits for its database."""


def api_document(number: int, page: int) -> dict[str, Any]:
    """What an API answers to a question for a page of an item's offers: 2 KB, always as long."""
    rows = [
        {
            "id": f"{number:05d}-{row:02d}",
            "title": "A garden chair of oak",
            "price": {"amount": f"{row * 13 % 90 + 10}.50", "currency": "EUR"},
            "available": row % 3 > 0,
        }
        for row in range(17, 37)
    ]
    return {"page": f"{page:03d}", "items": rows}


async def marked(scope: Message, receive: Receive, send: Send) -> None:
    """Says hello; asked for /mark, it calls what callgrind waits for."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    if scope["path"] == "/mark":
        os.getpgid(0)
    await _answer(send, HELLO)


async def ending(scope: Message, receive: Receive, send: Send) -> None:
    """Ends its server as soon as that has started."""
    loop = asyncio.get_running_loop()
    loop.call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
    await _lifespan(receive, send)


async def document(scope: Message, receive: Receive, send: Send) -> None:
    """Serialise a document of 20 items for each request."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    body = json.dumps(DOCUMENT).encode()
    await send(_head(len(body), b"application/json"))
    await send({"type": "http.response.body", "body": body})


@functools.cache
def _file_path() -> str:
    """Opens a file that has no name of its own, and so leaves nothing behind however the process ends."""
    with tempfile.TemporaryFile() as file:
        file.write(b"f" * FILE_BYTES)
        file.flush()
        return f"/proc/self/fd/{os.dup(file.fileno())}"


async def files(scope: Message, receive: Receive, send: Send) -> None:
    """64 KiB from disk in pieces of 16 KiB, read in the loop's thread (the file is in the page cache)."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    await send(_head(FILE_BYTES, b"application/octet-stream"))
    with open(_file_path(), "rb") as source:
        left = FILE_BYTES
        while left:
            piece = source.read(FILE_PIECE)
            left -= len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": left > 0})


MATRIX = [[float(row * column % 7) for column in range(16)] for row in range(16)]


def multiply() -> float:
    """One 16 x 16 matrix product in plain Python, about 0.4 ms; returns its trace."""
    size = range(len(MATRIX))
    product = [[sum(MATRIX[row][k] * MATRIX[k][column] for k in size) for column in size] for row in size]
    return sum(product[index][index] for index in size)


async def mixed(scope: Message, receive: Receive, send: Send) -> None:
    """POST echoes, GET multiplies matrices: the client decides the share of each."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    body = await _body(receive) if scope["method"] == "POST" else b"%012d" % int(multiply())
    await send(_head(len(body)))
    await send({"type": "http.response.body", "body": body})


LEAKED: list[bytes] = []


async def leaking(scope: Message, receive: Receive, send: Send) -> None:
    """Keeps 10 KiB of each request for ever."""
    if scope["type"] != "http":
        return await _lifespan(receive, send)
    LEAKED.append(os.urandom(8) * 1280)
    await send(_head(len(HELLO)))
    await send({"type": "http.response.body", "body": HELLO})


async def websocket(scope: Message, receive: Receive, send: Send) -> None:
    """Echo every message; plain HTTP requests get a hello, which is how readiness is asked."""
    if scope["type"] == "http":
        return await hello(scope, receive, send)
    if scope["type"] != "websocket":
        return await _lifespan(receive, send)
    await receive()
    await send({"type": "websocket.accept"})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("bytes") is not None:
            await send({"type": "websocket.send", "bytes": message["bytes"]})
        else:
            await send({"type": "websocket.send", "text": message["text"]})


CLIENTS: set[Send] = set()


async def broadcast(scope: Message, receive: Receive, send: Send) -> None:
    """Every message from any client goes to all clients."""
    if scope["type"] == "http":
        return await hello(scope, receive, send)
    if scope["type"] != "websocket":
        return await _lifespan(receive, send)
    await receive()
    await send({"type": "websocket.accept"})
    CLIENTS.add(send)
    try:
        while (message := await receive())["type"] != "websocket.disconnect":
            out = {"type": "websocket.send", "bytes": message.get("bytes") or message["text"].encode()}
            await asyncio.gather(*(client(dict(out)) for client in CLIENTS), return_exceptions=True)
    finally:
        CLIENTS.discard(send)


StartResponse = Callable[[str, list[tuple[str, str]]], object]


def wsgi_hello(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """The hello of the WSGI mode."""
    start_response("200 OK", [("content-type", "text/plain"), ("content-length", str(len(HELLO)))])
    return [HELLO]


def wsgi_ten_kib(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """10 KiB in one piece, WSGI."""
    start_response("200 OK", [("content-type", "text/plain"), ("content-length", str(len(TEN_KIB)))])
    return [TEN_KIB]


def wsgi_echo(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """Read the whole body, send it back, WSGI."""
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("200 OK", [("content-type", "text/plain"), ("content-length", str(len(body)))])
    return [body]
