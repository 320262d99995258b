"""Drive a protocol class with a vector's bytes: a real event loop, a real transport, and one end of a socket pair.

Nothing is doubled: the protocol is handed to the loop as an accepted socket is, and the other end is the client. The
client sends a piece, lets the loop turn until the protocol has taken it, sends the next. It never waits by the clock;
the deadline is only there to end a run in which the server does not do what was expected, and is in seconds of this
process's work, so that a machine that is busy with other things takes nothing from it.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any, cast

from tests.vectors.applications import APPLICATIONS, SeenRequest
from tests.vectors.judge import PROBE, Observation, needs_probe
from tests.vectors.loader import Vector
from uvicorn.config import Config
from uvicorn.state import ServerState

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


class Client:
    """The other end: sends, and reads whatever there is on every turn of the loop."""

    def __init__(self, sock: socket.socket, requests: list[SeenRequest]) -> None:
        """Take over a connected socket, and the list the application fills."""
        sock.setblocking(False)
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
    protocol: Any, app: str, settings: Mapping[str, int], state: ServerState | None = None
) -> tuple[Client, ServerState]:
    """A new connection served by a new protocol object of the class `protocol`, on a new server unless one is given."""
    config = loaded_config(protocol, app, tuple(sorted(settings.items())))
    state = new_server(config) if state is None else state
    requests: list[SeenRequest] = []
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    factory = partial(protocol, config=config, server_state=state, app_state={"requests": requests})
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
    protocol: Any, vector: Vector, pieces: Iterable[bytes], server: ServerState | None = None
) -> Observation:
    """Send a vector's bytes in these pieces to a new connection, of a new server unless one is given; what happened."""
    client, state = await connect(protocol, vector.app, vector.settings, server)
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
