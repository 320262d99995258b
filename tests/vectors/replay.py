"""Drive a protocol class with a vector's bytes: a real event loop, a real transport, and one end of a socket pair.

The protocol is handed to the loop as an accepted socket is, and the other end is the client. The client sends a piece,
lets the loop turn until the protocol has taken it, sends the next. It never waits by the clock; the deadline is only
there to end a run in which the server does not do what was expected, and is in seconds of this process's work, so that
a machine that is busy with other things takes nothing from it.

Who replays a vector a hundred times, cut otherwise each time, does so in memory: what there is between client and
protocol is not what is tried out then, and takes longer than the protocol.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any, Protocol, cast

from tests.vectors.applications import APPLICATIONS, SeenRequest
from tests.vectors.judge import PROBE, Observation, needs_probe
from tests.vectors.loader import Vector
from uvicorn.config import Config
from uvicorn.serving.state import ServerState

__all__ = ["observe", "replay"]

#: Seconds of work after which a server that has neither closed nor answered has had its chance.
DEADLINE = 10.0

#: Turns of the loop from a client's send to the end of the protocol's `data_received`: in the first the client goes on,
#: in the second the reader is called; the third lets tasks started there take their first step.
TURNS_PER_PIECE = 3

#: Turns without anything happening after which a server is taken to wait for more.
QUIET_TURNS = 40

#: Most bytes given to the socket at a time: less than its buffer, so that a send is whole or refused.
PIECE_SIZE = 32768


@cache
def loaded_config(protocol: Any, app: str, settings: tuple[tuple[str, int], ...]) -> Config:
    """A loaded configuration; connections share it as they do in a server."""
    # No time limit ends what a busy machine holds up.
    overrides: dict[str, Any] = {"timeout_keep_alive": 600, "timeout_request_head": 0, "timeout_request_body": 0}
    overrides.update(settings)
    config = Config(
        app=APPLICATIONS[app],
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        **overrides,
    )
    config.load()
    return config


def new_server(config: Config) -> ServerState:
    """What the connections of one server share."""
    state = ServerState()
    state.configure(headers=config.encoded_headers, date_header=config.date_header)
    return state


class Line(Protocol):
    """The client's end of a connection: a socket that does not block, or what does as one would."""

    def send(self, data: memoryview) -> int: ...

    def recv(self, size: int) -> bytes: ...

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...


class Memory(asyncio.Transport):
    """A transport without a network, and the client's end of it: what one side writes is at the other's at once."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        """Tell the protocol of the connection in the next turn of the running loop."""
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._sent = bytearray()
        self._to_come = bytearray()
        self._paused = self._closing = self._lost = False
        self._server_ended = self._client_ended = self._end_told = False
        self._loop.call_soon(protocol.connection_made, self)

    # The server's end

    def write(self, data: Any) -> None:
        assert not self._server_ended, "written behind the end"
        if not self._closing:
            self._sent += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._server_ended = True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def is_closing(self) -> bool:
        return self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def close(self) -> None:
        """Of either side: neither gets anything more."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._lose)

    def abort(self) -> None:
        self.close()

    def _lose(self) -> None:
        self._lost = True
        self._protocol.connection_lost(None)

    def _deliver(self) -> None:
        if self._to_come and self.is_reading():
            data = bytes(self._to_come)
            self._to_come.clear()
            self._protocol.data_received(data)
        if self._client_ended and not self._end_told and self.is_reading() and not self._to_come:
            self._end_told = True
            if not self._protocol.eof_received():
                self.close()

    # The client's end

    def send(self, data: memoryview) -> int:
        if self._lost:
            raise ConnectionResetError
        self._to_come += data
        self._loop.call_soon(self._deliver)
        return len(data)

    def recv(self, size: int) -> bytes:
        if not self._sent and not (self._lost or self._server_ended):
            raise BlockingIOError
        data = bytes(self._sent)
        self._sent.clear()
        return data

    def shutdown(self, how: int) -> None:
        self._client_ended = True
        self._loop.call_soon(self._deliver)


class Client:
    """The other end: sends, and reads whatever there is on every turn of the loop."""

    def __init__(self, sock: Line, requests: list[SeenRequest]) -> None:
        """Take over a connection, and the list the application fills."""
        self.sock = sock
        self.seen = Observation(requests=requests)
        self.activity = 0

    async def turn(self) -> None:
        """One turn of the event loop, then read."""
        await asyncio.sleep(0)
        if self.seen.closed:
            return
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return
        except ConnectionError:  # closed with our bytes unread
            data = b""
        self.activity += 1
        self.seen.output += data
        self.seen.closed = not data

    async def turns(self, count: int) -> None:
        """Some turns."""
        for _ in range(count):
            await self.turn()

    async def send(self, data: bytes, deadline: float) -> None:
        """Send all of it, or as much as the server takes before it closes or the deadline passes."""
        view = memoryview(data)
        while view and not self.seen.closed and time.process_time() < deadline:
            try:
                view = view[self.sock.send(view[:PIECE_SIZE]) :]
            except BlockingIOError:
                pass
            except ConnectionError:
                break  # what it has sent can still be read
            await self.turns(TURNS_PER_PIECE)

    async def until_closed(self, deadline: float) -> None:
        """Read to the end, or to the deadline."""
        while not self.seen.closed and time.process_time() < deadline:
            await self.turn()

    async def until_quiet(self) -> None:
        """Read until nothing has come for some turns."""
        quiet = 0
        while quiet < QUIET_TURNS and not self.seen.closed:
            before = self.activity
            await self.turn()
            quiet = quiet + 1 if self.activity == before else 0


async def connect(
    protocol: Any, app: str, settings: Mapping[str, int], state: ServerState | None = None, *, in_memory: bool = False
) -> tuple[Client, ServerState]:
    """A new connection served by a new protocol object of the class `protocol`, on a new server unless one is given."""
    config = loaded_config(protocol, app, tuple(sorted(settings.items())))
    state = new_server(config) if state is None else state
    requests: list[SeenRequest] = []
    factory = partial(protocol, config=config, server_state=state, app_state={"requests": requests})
    if in_memory:
        return Client(Memory(factory()), requests), state
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    await asyncio.get_running_loop().connect_accepted_socket(factory, theirs)
    return Client(ours, requests), state


async def disconnect(client: Client, state: ServerState) -> None:
    """Close the client's end and wait for the server to have let go of the connection and of its tasks."""
    client.sock.close()
    deadline = time.process_time() + DEADLINE
    while (state.connections or state.tasks) and time.process_time() < deadline:
        await asyncio.sleep(0)
    if state.connections or state.tasks:
        left = f"{len(state.connections)} connection(s), {len(state.tasks)} task(s)"
        for connection in [*state.connections]:
            cast(Any, connection).transport.abort()  # for the sake of the tests that follow
        raise AssertionError(f"{DEADLINE} seconds of work after the client has gone, the server still has {left}")


async def replay(
    protocol: Any,
    vector: Vector,
    pieces: Iterable[bytes],
    server: ServerState | None = None,
    *,
    in_memory: bool = False,
) -> Observation:
    """Send a vector's bytes in these pieces to a new connection, of a new server unless one is given; what happened."""
    client, state = await connect(protocol, vector.app, vector.settings, server, in_memory=in_memory)
    deadline = time.process_time() + DEADLINE
    try:
        for piece in pieces:
            await client.send(piece, deadline)
        if vector.eof and not client.seen.closed:
            client.sock.shutdown(socket.SHUT_WR)
        if needs_probe(vector):
            await client.send(PROBE, deadline)
        if "waiting" in vector.connection:
            await client.until_quiet()
        else:
            await client.until_closed(deadline)
    finally:
        await disconnect(client, state)
        if server is None:
            state.close()
    return client.seen


async def observe(protocol: Any, data: bytes, *, app: str = "echo") -> Observation:
    """Send bytes nobody has foreseen, close the sending side, read to the end."""
    client, state = await connect(protocol, app, {})
    deadline = time.process_time() + DEADLINE
    try:
        await client.send(data, deadline)
        await client.until_quiet()
        if not client.seen.closed:
            client.sock.shutdown(socket.SHUT_WR)
        await client.until_closed(deadline)
    finally:
        await disconnect(client, state)
        state.close()
    return client.seen
