"""Run a case on one implementation, and say what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.differential.case import Case, Client
from tests.differential.player import Application
from tests.protocols.harness import make_config
from tests.random_cases import Lines, captured, new_loop
from uvicorn.importer import import_from_string
from uvicorn.listening.acceptor import NativeAcceptor
from uvicorn.rules import limits
from uvicorn.serving.state import ServerState

#: The protocol class, and whether its connections are accepted, read and written natively, or through the loop.
IMPLEMENTATIONS = {
    "native": ("uvicorn.protocols.http.native_impl:NativeProtocol", False),
    "httptools": ("uvicorn.protocols.http.httptools_impl:HttpToolsProtocol", False),
    "h11": ("uvicorn.protocols.http.h11_impl:H11Protocol", False),
}
if sys.platform.startswith("linux"):
    IMPLEMENTATIONS |= {f"{name}, accepted": (IMPLEMENTATIONS[name][0], True) for name in ("native", "httptools")}

QUIET_TURNS = 14
"""Turns of the event loop without anything happening after which nothing will: more than any operation sleeps."""

MOST_TURNS = 20_000

_DATE = re.compile(rb"date: [^\r]*")

LEVELS = {"uvicorn.error": logging.DEBUG, "asyncio": logging.WARNING}


@dataclass
class Outcome:
    """What came of a case: what implementations must agree on, and what is wrong in any case."""

    #: What each client was sent, and whether its connection had ended before it closed it itself.
    wire: list[tuple[bytes, bool]] = field(default_factory=list)
    #: For each request what its application saw, one for each call.
    seen: dict[str, list[Any]] = field(default_factory=dict)
    log: list[tuple[str, str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Peer:
    """The client's end of a connection."""

    def __init__(self, client: Client, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.client = client
        self.sock = sock
        self.pieces = client.pieces()
        self.sent = 0
        self.unsent = b""
        self.output = b""
        self.ended = False
        self.closed = False
        self.finished = False

    @property
    def reads(self) -> bool:
        """Whether the client reads at the moment."""
        pause = self.client.pause
        return pause is None or self.finished or not pause[0] <= self.sent < pause[0] + pause[1]

    def read(self) -> int:
        """Take what there is; how much it was."""
        size = 0
        while self.reads and not (self.ended or self.closed):
            try:
                data = self.sock.recv(65536)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            self.output += data
            self.ended = not data
            size += len(data) or 1
        return size

    def write(self) -> int:
        """Send what could not be sent before."""
        size = 0
        while self.unsent and not self.closed:
            try:
                taken = self.sock.send(self.unsent)
            except BlockingIOError:
                break
            except ConnectionError:
                taken = len(self.unsent)
            self.unsent = self.unsent[taken:]
            size += taken
        return size

    def step(self) -> None:
        """Do the next thing: send a piece, or end as the client ends."""
        if self.sent < len(self.pieces):
            self.unsent += self.pieces[self.sent]
            self.sent += 1
            self.write()
            return
        self.finished = True
        if self.client.end == "half-close":
            self.half_close()
        elif self.client.end == "drop":
            self.close()

    def half_close(self) -> None:
        """Say that nothing more will be sent; if it was all sent."""
        if not (self.unsent or self.closed):
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close, whatever has not been read."""
        self.closed = True
        self.sock.close()


class Handed:
    """Opens connections that the event loop reads and writes."""

    async def open(self, factory: Callable[[], asyncio.BaseProtocol]) -> socket.socket:
        """Connect a protocol; the client's end."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(factory, theirs)
        return ours

    def close(self) -> None:
        """Nothing is left to close."""


class Accepted:
    """Opens connections that are accepted, read and written natively."""

    def __init__(self) -> None:
        self.acceptor: NativeAcceptor | None = None
        self.address = b""
        self.factory: Callable[[], asyncio.BaseProtocol] = asyncio.Protocol

    async def open(self, factory: Callable[[], asyncio.BaseProtocol]) -> socket.socket:
        """Connect, and wait until the connection has its protocol; the client's end."""
        loop = asyncio.get_running_loop()
        opened = loop.create_future()

        def make() -> asyncio.BaseProtocol:
            opened.set_result(None)
            return factory()

        self.factory = make
        if self.acceptor is None:
            await self._listen(loop)
        ours = socket.socket(socket.AF_UNIX)
        ours.connect(self.address)
        await opened
        return ours

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        from uvicorn._native import Poller

        listening = socket.socket(socket.AF_UNIX)
        listening.bind(b"")  # a name of the system's own choice, in no directory
        self.address = listening.getsockname()
        self.acceptor = NativeAcceptor(listening, lambda: self.factory(), backlog=16, poller=Poller(loop))
        await self.acceptor.start_serving()

    def close(self) -> None:
        """Accept no more."""
        if self.acceptor is not None:
            self.acceptor.close()


class Run:
    """One case on one implementation."""

    def __init__(self, case: Case, protocol: Any, *, accepted: bool) -> None:
        self.case = case
        self.protocol = protocol
        self.opening = Accepted() if accepted else Handed()
        self.application = Application(case)
        self.state = ServerState()
        self.peers: list[Peer] = []

    async def go(self) -> None:
        """Let the clients take their steps in turn; then close what is open, and wait for all to end."""
        case = self.case
        settings = {"date_header": True, "timeout_keep_alive": 10_000, **case.settings}
        config = make_config(self.application, self.protocol, **settings)
        self.state.configure(headers=config.encoded_headers, date_header=config.date_header)
        for number, client in enumerate(case.clients):
            app_state = {"client": number, "list": [number]}
            factory = partial(self.protocol, config=config, server_state=self.state, app_state=app_state)
            self.peers.append(Peer(client, await self.opening.open(factory)))
        await self.until_quiet()
        step = 0
        while any(not peer.finished for peer in self.peers):
            moved: set[int] = set()
            for _ in range(case.together):
                peer = self.next_peer(step)
                step += 1
                # One step of each: whether a second is read before what the first began is for the loop to say.
                if peer is not None and id(peer) not in moved:
                    moved.add(id(peer))
                    peer.step()
            await self.until_quiet()
        await self.until_quiet()
        self.application.release()
        await self.until_quiet()
        # First half: that a client is gone may be noticed in front of its next request or behind it.
        for peer in self.peers:
            peer.half_close()
        await self.until_quiet()
        for peer in self.peers:
            peer.close()
        await self.until_quiet()

    def next_peer(self, step: int) -> Peer | None:
        """Whose turn it is: of those that have something left to do."""
        waiting = [peer for peer in self.peers if not peer.finished]
        if not waiting:
            return None
        order = self.case.order
        return waiting[order[step % len(order)] % len(waiting)]

    async def until_quiet(self) -> None:
        """Let the loop turn until nothing happens any more."""
        quiet = turns = 0
        before: Any = None
        while quiet < QUIET_TURNS:
            turns += 1
            assert turns < MOST_TURNS, "it never becomes quiet"
            await asyncio.sleep(0)
            moved = sum(peer.read() + peer.write() for peer in self.peers)
            now = (self.application.activity, len(self.state.tasks), len(self.state.connections))
            quiet = quiet + 1 if not moved and now == before else 0
            before = now

    async def end(self) -> list[str]:
        """Cancel what did not end by itself; say what that was."""
        left = [f"{len(self.state.connections)} connections are left"] if self.state.connections else []
        self.application.over = True
        self.opening.close()
        tasks = [*self.state.tasks, *self.application.tasks]
        if self.state.tasks:
            left.append(f"{len(self.state.tasks)} tasks are left")
        for connection in [*self.state.connections]:
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        for _ in range(3):
            await asyncio.sleep(0)
        self.state.close()
        return left


@contextlib.contextmanager
def eager_requests(count: int) -> Iterator[None]:
    """Have so many pipelined requests served before other connections."""
    before, limits.MAX_EAGER_REQUESTS = limits.MAX_EAGER_REQUESTS, count
    try:
        yield
    finally:
        limits.MAX_EAGER_REQUESTS = before


def run(case: Case, implementation: str, *, look_for_leaks: bool = False) -> Outcome:
    """Run `case` on an implementation, on an event loop of its own."""
    name, accepted = IMPLEMENTATIONS[implementation]
    protocol = import_from_string(name)
    outcome = Outcome()
    loop = new_loop(case.loop)
    asyncio.set_event_loop(loop)
    with captured(Lines(), LEVELS) as lines, eager_requests(case.eager):
        this = Run(case, protocol, accepted=accepted)
        try:
            loop.run_until_complete(this.go())
        except Exception as error:
            outcome.faults.append(f"the run failed: {error!r}")
        left = loop.run_until_complete(this.end())
        asyncio.set_event_loop(None)
        loop.close()
    outcome.faults += left
    outcome.wire = [(_DATE.sub(b"date: -", peer.output), peer.ended) for peer in this.peers]
    application = this.application
    for record in application.records:
        outcome.seen.setdefault(record.ident, []).append(record.notes)
    outcome.log = sorted(lines.lines)
    outcome.faults += isolation_faults(case, application, outcome)
    said = [line for line in lines.lines if line[0].startswith("asyncio")]
    if any(client.end == "drop" for client in case.clients):
        # With its sixth write between a reset and the turn that reports it, a loop says this, as on any server.
        said = [line for line in said if line[1] != "socket.send() raised exception."]
    outcome.faults += [f"logged: {line}" for line in said]
    if look_for_leaks:
        outcome.faults += leaks(this)
    return outcome


def leaks(this: Run) -> list[str]:
    """Tasks of the application that somebody still holds when all is over."""
    weak, this.application.kept = this.application.weak, []
    this.application.tasks.clear()
    gc.collect()
    return ["a task is never freed" for reference in weak if reference() is not None]


def isolation_faults(case: Case, application: Application, outcome: Outcome) -> list[str]:
    """Say which secret was seen where it does not belong, and what changed though nobody who may has changed it."""
    faults = [f"{what} has changed" for what in application.changed()]
    secrets = {
        request.secret: (number, request.ident)
        for number, client in enumerate(case.clients)
        for request in client.requests
    }
    clean = [all(request.clean for request in client.requests) for client in case.clients]
    for record in application.records:
        text = repr(record.notes)
        for secret, (number, ident) in secrets.items():
            # Who asks for "*", or for nothing that can be told, is known by its connection alone.
            own = ident == record.ident or (number == record.client and (record.ident == "?" or not clean[number]))
            if secret in text and not own:
                faults.append(f"{record.ident} has seen the secret of {ident}")
    for number, (output, _) in enumerate(outcome.wire):
        for secret, (owner, ident) in secrets.items():
            if owner != number and secret.encode() in output:
                faults.append(f"client {number} was sent the secret of {ident}")
    return faults
