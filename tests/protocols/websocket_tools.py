"""What the WebSocket tests share: a client's bytes, a transport in memory, timers that move when they are told to."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from tests.utils import wait_until
from uvicorn.config import Config
from uvicorn.server import ServerState

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # RFC 6455 section 1.3

DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"

TEXT, BINARY, CLOSE, PING, PONG = 0x81, 0x82, 0x88, 0x89, 0x8A
RSV1 = 0x40  # a compressed message

MASK = b"\x11\x22\x33\x44"

App = Callable[[Any, Any, Any], Awaitable[Any]]


def handshake(*lines: str, target: str = "/", method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    """The bytes of an opening handshake with further header lines."""
    fixed = ["Host: example.org", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    head = [f"{method} {target} {version}", *fixed, f"Sec-WebSocket-Key: {KEY}", *lines, "", ""]
    return "\r\n".join(head).encode("latin-1")


def frame(first: int, payload: bytes = b"", mask: bytes | None = MASK) -> bytes:
    """One frame as a client sends it; `first` is its first byte."""
    length = len(payload)
    bit = 0 if mask is None else 0x80
    if length < 126:
        head = struct.pack("!BB", first, bit | length)
    elif length < 65536:
        head = struct.pack("!BBH", first, bit | 126, length)
    else:
        head = struct.pack("!BBQ", first, bit | 127, length)
    if mask is None:
        return head + payload
    masks = (mask * (length // 4 + 1))[:length]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(masks, "big")
    return head + mask + masked.to_bytes(length, "big")


def close_frame(code: int, reason: str = "") -> bytes:
    return frame(CLOSE, struct.pack("!H", code) + reason.encode())


class ServerFrame(NamedTuple):
    first: int
    payload: bytes

    @property
    def close(self) -> tuple[int, str]:
        assert self.first == CLOSE
        return struct.unpack("!H", self.payload[:2])[0], self.payload[2:].decode()


def parse_frames(data: bytes) -> list[ServerFrame]:
    """The frames a server has sent; they must be whole and unmasked."""
    frames = []
    while data:
        length, start = data[1], 2
        assert length < 0x80, "a server does not mask"
        if length == 126:
            length, start = int.from_bytes(data[2:4], "big"), 4
        elif length == 127:
            length, start = int.from_bytes(data[2:10], "big"), 10
        assert len(data) >= start + length
        frames.append(ServerFrame(data[0], data[start : start + length]))
        data = data[start + length :]
    return frames


class Timer:
    """What `Timers.call_later` returns."""

    def __init__(self, timers: Timers, when: float, callback: Callable[[], None]) -> None:
        self.timers = timers
        self.when = when
        self.callback = callback

    def cancel(self) -> None:
        if self in self.timers.pending:
            self.timers.pending.remove(self)


class Timers:
    """An event loop's side for a protocol, on a clock that `advance` moves."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.now = 1000.0
        self.pending: list[Timer] = []
        self.native: Any = None  # a native server that goes by this clock
        self.real = False  # it has the running loop

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[Any]:
        return self.loop.create_future()

    def create_task(self, coroutine: Any) -> asyncio.Task[Any]:
        return self.loop.create_task(coroutine)

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> Timer:
        timer = Timer(self, self.now + delay, partial(callback, *args))
        self.pending.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Let the time pass, and each timer fire when it is due."""
        end = self.now + seconds
        while due := sorted((timer for timer in self.pending if timer.when <= end), key=lambda timer: timer.when):
            self.pending.remove(due[0])
            self._pass_to(due[0].when)
            due[0].callback()
        self._pass_to(end)

    def _pass_to(self, when: float) -> None:
        while self.native is not None and self.real and when - self.now > 1:
            # The timers of the loop itself do not know this clock.
            self.now += 1
            self.native.advance(1)
        seconds, self.now = when - self.now, when
        if self.native is not None:
            self.native.advance(seconds + 1e-6)  # what is lost by rounding must not be what is missing


class Wire(asyncio.Transport):
    """A transport in memory. What is written counts as received by the peer unless it is `stalled`."""

    def __init__(self, tls: bool = False) -> None:
        super().__init__()
        self.protocol: Any = None
        self.tls = tls
        self.socket: Any = None
        self.written = bytearray()
        self.writes = 0
        self.unsent = 0
        self.stalled = False
        self.read_paused = False
        self.held = bytearray()
        self.closing = False
        self.eof = False
        self.aborted = False
        self.lost = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        info: dict[str, Any] = {
            "peername": ("192.0.2.7", 50000),
            "sockname": ("192.0.2.1", 8000),
            "sslcontext": self.tls or None,
        }
        info["socket"] = self.socket
        return info.get(name, default)

    def write(self, data: Any) -> None:
        assert not self.eof and not self.lost
        self.written += data
        self.writes += 1
        if self.stalled:
            self.unsent += len(data)

    def stall(self) -> None:
        """The peer does not read, and the buffer is above its high-water mark."""
        self.stalled = True
        self.unsent = 100_000
        self.protocol.pause_writing()

    def flow(self) -> None:
        """The peer has read all."""
        self.stalled = False
        self.unsent = 0
        self.protocol.resume_writing()
        if self.closing:
            self.lose()

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def can_write_eof(self) -> bool:
        return not self.tls

    def write_eof(self) -> None:
        self.eof = True

    def pause_reading(self) -> None:
        self.read_paused = True

    def resume_reading(self) -> None:
        self.read_paused = False

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            if not self.unsent:
                asyncio.get_running_loop().call_soon(self.lose)

    def abort(self) -> None:
        self.aborted = True
        self.closing = True
        asyncio.get_running_loop().call_soon(self.lose)

    def lose(self, exc: Exception | None = None) -> None:
        """The connection is gone."""
        if not self.lost:
            self.lost = True
            self.closing = True
            protocol, self.protocol = self.protocol, None
            protocol.connection_lost(exc)


@contextmanager
def outside_of_tasks() -> Iterator[None]:
    """As if a callback of the loop ran this, and not the current task."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    asyncio.tasks._leave_task(loop, task)
    try:
        yield
    finally:
        asyncio.tasks._enter_task(loop, task)


class Peer:
    """A client of one session, without a network between them."""

    def __init__(
        self, protocol_cls: Any, config: Config, tls: bool = False, state: dict[str, Any] | None = None
    ) -> None:
        if not config.loaded:
            config.load()
        self.state = ServerState()
        self.state.configure(headers=config.encoded_headers, date_header=False)
        self.timers = Timers()
        self.on_the_loop = self.timers.real = getattr(protocol_cls, "on_the_loop", False)
        loop = asyncio.get_running_loop() if self.on_the_loop else self.timers
        self.session = protocol_cls(config, self.state, state or {}, _loop=loop)
        if hasattr(self.session, "cores"):
            self.timers.native = self.session.cores
            self.timers.native.hold_clock()
        self.wire = Wire(tls)
        self.wire.protocol = self.session
        self.session.connection_made(self.wire)
        self.ended = False

    def send(self, *pieces: bytes) -> None:
        """Bytes from the client; they wait while the session does not read, and are lost when it has closed."""
        for data in pieces:
            self.wire.held += data
        self.deliver()

    def deliver(self) -> None:
        if self.wire.held and not self.wire.read_paused and not self.wire.closing:
            data = bytes(self.wire.held)
            self.wire.held.clear()
            # What an application hands over itself comes from its task.
            is_ours = asyncio.current_task() not in self.state.tasks
            with outside_of_tasks() if self.on_the_loop and is_ours else nullcontext():
                self.session.data_received(data)
        if self.ended and not self.wire.held and not self.wire.read_paused and not self.wire.closing:
            self.ended = False
            if not self.session.eof_received():
                self.wire.close()

    def eof(self) -> None:
        """The client closes its sending side, which is seen when all it has sent was read."""
        self.ended = True
        self.deliver()

    async def turn(self) -> None:
        """Let everything happen that can happen without the client or the clock."""
        for _ in range(20):
            self.deliver()
            await asyncio.sleep(0)

    async def until(self, condition: Callable[[], object]) -> None:
        def ready() -> object:
            self.deliver()
            return condition()

        await wait_until(ready)

    async def open(self, *lines: str, target: str = "/") -> None:
        """Send a handshake and take the answer, which must be 101."""
        self.send(handshake(*lines, target=target))
        await self.until(lambda: b"\r\n\r\n" in self.wire.written)
        assert self.status == 101, self.wire.written

    @property
    def kept(self) -> int:
        """Bytes of the client's that the session has not looked at yet."""
        kept = self.session.buffered if self.timers.native is not None else len(self.session._incoming.frames)
        assert isinstance(kept, int)
        return kept

    @property
    def queued(self) -> Any:
        """Events that the application has not received yet."""
        return self.session.queue if self.timers.native is not None else self.session.inbox.queue

    @property
    def waits_to_receive(self) -> bool:
        """Somebody waits for an event."""
        return bool(self.session.waiting[0] if self.timers.native is not None else self.session.inbox.receivers)

    @property
    def waits_to_send(self) -> bool:
        """Somebody waits until the client reads."""
        return bool(self.session.waiting[1] if self.timers.native is not None else self.session.flow._writers)

    @property
    def head(self) -> bytes:
        return bytes(self.wire.written).partition(b"\r\n\r\n")[0]

    @property
    def status(self) -> int:
        return int(self.head.split(b" ")[1])

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The header fields of the answer, names in lower case."""
        lines = (line.partition(": ") for line in self.head.decode("latin-1").split("\r\n")[1:])
        return [(name.lower(), value) for name, _, value in lines]

    @property
    def body(self) -> bytes:
        """What follows the head of the answer."""
        return bytes(self.wire.written).partition(b"\r\n\r\n")[2]

    @property
    def frames(self) -> list[ServerFrame]:
        """All frames sent so far."""
        return parse_frames(self.body)


class Application:
    """An application that does what `script` says and notes what it receives.

    `script(receive, send)` may be left out: then every event is received, the handshake accepted, messages echoed.
    """

    def __init__(self, script: Callable[[Any, Any], Awaitable[Any]] | None = None) -> None:
        self.script = script
        self.scope: Any = None
        self.events: list[Any] = []
        self.error: BaseException | None = None
        self.done = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        self.scope = scope

        async def note() -> Any:
            event = await receive()
            self.events.append(event)
            return event

        try:
            return await (self.script or echo)(note, send)
        except BaseException as exc:
            self.error = exc
            raise
        finally:
            self.done = True

    @property
    def messages(self) -> list[str | bytes]:
        """The contents of the messages received."""
        return [event.get("text", event.get("bytes")) for event in self.events if event["type"] == "websocket.receive"]


async def echo(receive: Any, send: Any) -> None:
    """Accept and send every message back, until the end."""
    assert await receive() == {"type": "websocket.connect"}
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        await send({**event, "type": "websocket.send"})


async def accept(receive: Any, send: Any) -> None:
    """Take the connect event and accept."""
    await receive()
    await send({"type": "websocket.accept"})


async def listen(receive: Any, send: Any) -> None:
    """Accept, then receive to the end and twice beyond it."""
    await accept(receive, send)
    while (await receive())["type"] != "websocket.disconnect":
        pass
    await receive()
    await receive()


@asynccontextmanager
async def connected(
    protocol_cls: Any, app: App, *, tls: bool = False, state: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Peer]:
    """A client in front of a session that serves `app`; no task of it is left at the end."""
    # With "auto" the log says so where the native core is missing.
    settings = {"log_config": None, "http": "h11", "ws_ping_interval": None, "proxy_headers": False, **settings}
    peer = Peer(protocol_cls, Config(app, interface="asgi3", **settings), tls, state)
    try:
        yield peer
    finally:
        peer.wire.lose()
        await peer.turn()
        tasks = list(peer.state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        peer.state.close()
        assert not peer.timers.pending
        assert peer.session not in peer.state.connections
