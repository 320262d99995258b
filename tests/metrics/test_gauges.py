"""A gauge is the difference of two numbers that only grow: whatever clients do, each begin has exactly one end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests import loops, machines
from tests.native import http2_client as http2
from tests.protocols import websocket_tools as websocket
from tests.protocols.harness import Client, Service, request, respond, serve
from tests.utils import deep_after, turns
from uvicorn.metrics import page as metrics
from uvicorn.metrics.page import BUCKETS, DURATION, PAIRS, REQUESTS, STATUS_CLASSES, Page
from uvicorn.serving.state import ServerState

pytestmark = pytest.mark.anyio

anyio_backend = loops.one
http_protocol_cls = machines.each

SEEDS = range(4)
ROUNDS = 8
LONG = 3600.0

NAMES = {value: name for name, value in vars(metrics).items() if name.isupper() and isinstance(value, int)}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Does what the path says."""
    path = scope["path"]
    if path == "/fail":
        raise RuntimeError("on purpose")
    if path == "/nothing":
        return
    if scope["type"] == "websocket":
        return await converse(path, receive, send)
    if path in ("/wait", "/body"):
        while (message := await receive())["type"] != "http.disconnect":
            if path == "/body" and not message["more_body"]:
                break
    if path == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(4):
            await send({"type": "http.response.body", "body": b"x" * 30_000, "more_body": True})
            await asyncio.sleep(0)
        if scope["query_string"]:
            raise RuntimeError("on purpose")
    else:
        await respond()(scope, receive, send)


async def converse(path: str, receive: Any, send: Any) -> None:
    await receive()
    if path == "/wait":
        await receive()
    if path == "/body":
        await send({"type": "websocket.close"})
        return
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "text": message.get("text") or "bytes"})
        if path == "/stream":
            return


PATHS = ("/", "/wait", "/fail", "/nothing", "/body", "/stream", "/stream?fail")


def over_http1(random: Random) -> bytes:
    """Requests one behind the other, some of them wrong, and perhaps the beginning of another."""
    pieces = []
    for _ in range(random.randint(1, 5)):
        path = random.choice(PATHS)
        pieces.append(
            random.choice(
                [
                    request("GET", path),
                    request("GET", path, "connection: close"),
                    request("BREW", path),
                    request("POST", path, body=b"body"),
                    request("POST", path, "content-length: 10"),
                    request("POST", path, "expect: 100-continue", "content-length: 4"),
                    request("POST", path, "transfer-encoding: chunked") + b"4\r\nbody\r\n0\r\n\r\n",
                    request("POST", path, "transfer-encoding: chunked") + b"no size\r\n",
                    b"no request\r\n\r\n",
                    request("GET", path)[: random.randint(1, 20)],
                ]
            )
        )
    return b"".join(pieces)


def over_http2(random: Random) -> bytes:
    """Frames of requests, bodies and resets, also of streams that are over, in any order."""
    client = http2.HTTP2Client(Client.__new__(Client))
    pieces = [http2.PREFACE, http2.settings({http2.INITIAL_WINDOW_SIZE: random.choice([0, 10, 65535])})]
    for _ in range(random.randint(1, 12)):
        known = random.choice([*range(1, client.next_stream, 2), client.next_stream])
        kind = random.randint(0, 9)
        if kind < 5:
            fields = [] if random.random() < 0.7 else [("content-length", "4")]
            pieces.append(client.head(random.choice(PATHS), *fields, end=random.random() < 0.5))
            if random.random() < 0.3:
                pieces.append(http2.reset(client.next_stream - 2))
        elif kind < 7:
            pieces.append(http2.reset(known))
        elif kind < 9:
            pieces.append(http2.frame(http2.DATA, random.choice([0, http2.END_STREAM]), known, b"body"))
        else:
            pieces.append(random.choice([http2.frame(http2.PING, payload=b"question"), http2.window_update(9, known)]))
    return b"".join(pieces)


def over_websocket(random: Random) -> bytes:
    """A handshake, which may be wrong, and frames, which may be, too."""
    shake = websocket.handshake(target=random.choice(PATHS))
    if random.random() < 0.2:
        shake = shake.replace(b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 12")
    frames = [
        websocket.frame(websocket.TEXT, b"text"),
        websocket.frame(websocket.PING, b"ping"),
        websocket.frame(websocket.TEXT, b"\xff"),
        websocket.close_frame(1000),
        websocket.frame(websocket.TEXT, b"not masked", None),
    ]
    return shake + b"".join(random.choices(frames, [6, 3, 1, 2, 1], k=random.randint(0, 5)))


async def play(service: Service, data: bytes, random: Random) -> None:
    """Send `data`, cut anywhere, and go away in some way."""
    client = await service.connect()
    cuts = sorted(random.sample(range(1, len(data)), min(len(data) - 1, random.choice([0, 0, 1, 3]))))
    with contextlib.suppress(OSError):
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            await client.send(data[start:end])
            await turns(random.randint(0, 3))
        if random.random() < 0.3:
            client.half_close()
            await turns(random.randint(0, 5))
        if random.random() < 0.5:
            await turns(random.randint(0, 10))
        client.reset() if random.random() < 0.5 else client.close()


def unequal(page: Page) -> list[tuple[str, str]]:
    """Gauges that are not zero."""
    words = page.words
    pairs = [pair for pair in PAIRS if pair[0] != metrics.LIMIT_RAISED]
    return [(NAMES[more], NAMES[less]) for more, less in pairs if words[more] != words[less]]


@pytest.mark.parametrize("limits", [{}, {"limit_active_requests": 2, "limit_queue": 2}], ids=["unlimited", "limited"])
@pytest.mark.parametrize("seed", deep_after(1, SEEDS))
@pytest.mark.parametrize("speak", [over_http1, over_http2, over_websocket])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_each_begin_has_one_end(
    http_protocol_cls: Any, speak: Callable[[Random], bytes], seed: int, limits: dict[str, int]
) -> None:
    random = Random(seed)
    page, state = Page.make(), ServerState()
    state.metrics = page
    settings = {"ws": "native" if "native" in http_protocol_cls.__module__ else "auto", "timeout_queue": LONG}
    http2_setting = {"http2": True} if getattr(http_protocol_cls, "speaks_http2", False) else {}
    async with serve(http_protocol_cls, app, state=state, **settings, **http2_setting, **limits) as service:
        for _ in range(ROUNDS):
            await asyncio.gather(*(play(service, speak(random), random) for _ in range(random.randint(1, 3))))
            await turns(20)
            # A client that has closed both ways, one after the other, is not heard of while nothing may be sent to it.
            if service.state.connections and http2_setting:
                service.pass_time(LONG)
            await service.idle()
    await turns()
    words = page.words
    assert unequal(page) == []
    requests = sum(words[REQUESTS : REQUESTS + len(metrics.METHODS) * STATUS_CLASSES])
    assert requests >= words[metrics.ENDED] == sum(words[DURATION : DURATION + BUCKETS])
    assert words[metrics.CONNECTIONS_OPENED] > 0


async def test_stream_that_is_reset_in_the_read_that_brings_it_has_ended() -> None:
    implementation = pytest.importorskip("uvicorn.protocols.http.native_impl", exc_type=ModuleNotFoundError)
    page, state = Page.make(), ServerState()
    state.metrics = page
    async with serve(implementation.NativeProtocol, app, state=state, http2=True) as service:
        client = await http2.connect(service)
        await client.send(client.head("/wait") + http2.reset(1) + client.head("/"))
        assert (await client.answer(3)).status == 200
        assert page.words[metrics.BEGUN] == page.words[metrics.ENDED] == 2
        opened = [("CONNECTIONS_OPENED", "CONNECTIONS_CLOSED"), ("HTTP2_OPENED", "HTTP2_CLOSED")]
        assert unequal(page) == opened
