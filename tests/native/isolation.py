"""Random clients of all versions at once: nothing of one request reaches another, whatever becomes of either.

Connections of HTTP/1.1, HTTP/2, HTTP/3 and WebSockets on each of them, with and without TLS, are served by one event
loop, whose state they share. Every request has a secret: in its path, its fields (of which clients make entries of
their tables), its body or messages, and in a context variable of its application, which answers with all that it sees.
Clients leave in the midst of it.

``python -m tests.native.isolation`` runs cases for some seconds; ``--seed`` repeats one.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import re
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import hpack

from tests.loops import LOOPS
from tests.native.http2_client import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RST_STREAM,
    frame,
    reset,
    settings,
)
from tests.native.http2_client import window_update as window
from tests.random_cases import new_loop, parser, search
from tests.relations.clients import EncryptedSocket, arrived, ws_frame
from tests.utils import PATIENCE, run_server, server_port
from uvicorn.config import Config

SECRET = re.compile(rb"s[0-9a-f]{12}s")
END = b"<end>"
LARGEST = 2**30
TRANSPORTS = ("http/1 clear", "http/1 tls", "http/2 clear", "http/2 tls", "http/3")

variable: contextvars.ContextVar[str] = contextvars.ContextVar("secret")


@dataclass
class Talk:
    """One request, or one WebSocket with the same number of messages."""

    secret: bytes
    is_session: bool
    pieces: list[int]
    """Sizes of its body or messages."""
    leaves: int | None
    """The number of pieces behind which its client leaves."""


@dataclass
class Peer:
    """One connection."""

    transport: str
    talks: list[Talk]


@dataclass
class Case:
    """All that a run needs to be repeated."""

    seed: int
    loop: str
    peers: list[Peer]


def make_case(seed: int) -> Case:
    """The case of a seed."""
    random = Random(seed)
    transports = [*TRANSPORTS, *random.choices(TRANSPORTS, k=random.randrange(4))]
    peers = []
    for transport in transports:
        talks = [
            Talk(
                secret=b"s%012xs" % random.getrandbits(48),
                is_session=random.random() < 0.3,
                pieces=[random.choice([1, 20, 100, 3_000, 20_000]) for _ in range(random.randrange(5))],
                leaves=random.randrange(4) if random.random() < 0.25 else None,
            )
            for _ in range(random.randrange(1, 7))
        ]
        if transport.startswith("http/1") and any(talk.is_session for talk in talks):
            talks = [next(talk for talk in talks if talk.is_session)]
        peers.append(Peer(transport, talks))
    return Case(seed, random.choice(LOOPS), peers)


# The application.


class Application:
    """Answers with all that it sees, and says what it must not."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.calls = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request or session."""
        if variable.get(None) is not None:
            self.faults.append("a new request has the context of another")
        secret = scope["path"][1:]
        variable.set(secret)
        self.calls += 1
        self.check(secret, "its scope", repr(scope).encode())
        scope["kept"] = secret
        run = self.session if scope["type"] == "websocket" else self.request
        await run(secret, scope, receive, send)

    def check(self, secret: str, where: str, data: bytes) -> None:
        """Only the request's own secret may be there, and in its context."""
        if variable.get() != secret:
            self.faults.append(f"{secret} has the context of {variable.get()}")
        if others := {one for one in SECRET.findall(data) if one != secret.encode()}:
            self.faults.append(f"{secret} sees {others} in {where}")

    async def request(self, secret: str, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request piece by piece."""
        described = json.dumps([name.decode() + "=" + value.decode() for name, value in scope["headers"]]).encode()
        own = secret.encode()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"x-secret", own), (b"x-of-" + own, b"1")]}
        )
        await send({"type": "http.response.body", "body": described, "more_body": True})
        while True:
            message = await receive()
            self.check(secret, "its body", repr(message).encode())
            if message["type"] == "http.disconnect":
                return
            await asyncio.sleep(0)
            self.check(secret, "its scope", repr(scope).encode())
            await send({"type": "http.response.body", "body": message["body"], "more_body": True})
            if not message["more_body"]:
                break
        await send({"type": "http.response.body", "body": END})

    async def session(self, secret: str, scope: Any, receive: Any, send: Any) -> None:
        """Echo messages."""
        own = secret.encode()
        await receive()
        await send({"type": "websocket.accept", "headers": [(b"x-secret", own)]})
        while (message := await receive())["type"] == "websocket.receive":
            self.check(secret, "a message", repr(message).encode())
            await asyncio.sleep(0)
            with contextlib.suppress(Exception):  # it may have gone
                await send({"type": "websocket.send", "bytes": message["bytes"] + own})
        self.check(secret, "its scope", repr(scope).encode())


# Clients.


def filled(secret: bytes, size: int) -> bytes:
    """So many bytes, full of the secret."""
    return (secret * (size // len(secret) + 1))[: max(size, len(secret))]


class Connection:
    """A connection whose calls never wait."""

    def __init__(self, peer: Peer, random: Random, address: Any) -> None:
        self.peer = peer
        self.random = random
        sock: Any
        if peer.transport == "http/3":
            from tests.relations.http3 import HTTP3Socket

            sock = HTTP3Socket(address)
        else:
            sock = socket.create_connection(address)
            sock.setblocking(False)
            if peer.transport.endswith("tls"):
                sock = EncryptedSocket(sock, peer.transport.startswith("http/2"))
        self.sock = sock
        self.input = b""
        self.is_over = False

    async def put(self, data: bytes) -> None:
        """Send all of it, cut anywhere."""
        while data and not self.is_over:
            cut = self.random.randrange(1, len(data) + 1) if self.random.random() < 0.2 else len(data)
            try:
                data = data[self.sock.send(data[:cut]) :]
            except BlockingIOError:
                self.take()
            except OSError:
                self.is_over = True
            await asyncio.sleep(0)

    def take(self) -> None:
        """What has come."""
        if not self.is_over:
            data, self.is_over = arrived(self.sock)
            self.input += data

    def close(self) -> None:
        """Leave."""
        self.is_over = True
        self.sock.close()


async def play_1(connection: Connection, faults: list[str]) -> None:
    """Requests of HTTP/1.1, behind each other and pipelined, or one WebSocket."""
    own = {talk.secret for talk in connection.peer.talks}
    expected = 0
    for talk in connection.peer.talks:
        head = [
            b"GET /%b HTTP/1.1" if talk.is_session else b"POST /%b HTTP/1.1",
            b"Host: a",
            b"Cookie: a=%b" % talk.secret,
        ]
        head[0] %= talk.secret
        head += [b"X-%b: %b" % (talk.secret, talk.secret)]
        if talk.is_session:
            head += [b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Version: 13"]
            head += [b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        else:
            head += [b"Content-Length: %d" % sum(len(filled(talk.secret, size)) for size in talk.pieces)]
        await connection.put(b"\r\n".join(head) + b"\r\n\r\n")
        for number, size in enumerate(talk.pieces):
            if talk.leaves == number:
                return connection.close()
            data = filled(talk.secret, size)
            await connection.put(ws_frame(2, talk.secret) if talk.is_session else data)
        if talk.is_session:
            await until(connection, has_come(connection, talk.secret * 2, len(talk.pieces)), faults)
            await connection.put(ws_frame(8, b"\x03\xe8"))
            await until(connection, lambda: connection.is_over, faults)
            break
        expected += 1
        if connection.random.random() < 0.5:
            await until(connection, has_come(connection, END, expected), faults)
    else:
        await until(connection, has_come(connection, END, expected), faults)
    if connection.input.count(END) < expected:
        faults.append(f"{connection.peer.transport}: {expected} requests were answered by {connection.input!r}")
    if others := set(SECRET.findall(connection.input)) - own:
        faults.append(f"a client of HTTP/1.1 was sent {others}")


@dataclass
class Stream:
    """What has come of one."""

    talk: Talk
    input: bytes = b""
    is_over: bool = False
    steps: Iterator[bytes] = field(default_factory=lambda: iter(()))


async def play_2(connection: Connection, faults: list[str]) -> None:
    """Streams of HTTP/2, or of HTTP/3 by way of HTTP/2's frames, all at once."""
    encoder, decoder = hpack.Encoder(), hpack.Decoder()
    streams = {1 + 2 * number: Stream(talk) for number, talk in enumerate(connection.peer.talks)}
    await connection.put(PREFACE + settings({4: LARGEST}) + window(LARGEST))
    for number, one in streams.items():
        one.steps = steps_of(one, number, encoder)
    taken = 0
    unopened, waiting = list(streams), list[int]()
    while (unopened or waiting) and not connection.is_over:
        if not waiting or (unopened and connection.random.random() < 0.3):
            waiting.append(unopened.pop(0))  # streams are opened in their order
            number = waiting[-1]
        else:
            number = connection.random.choice(waiting)
        data = next(streams[number].steps, None)
        if data is None:
            waiting.remove(number)
        else:
            await connection.put(data)
        connection.take()
        taken = sort(connection, taken, streams, decoder)
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not all(one.is_over for one in streams.values()) and not connection.is_over:
        connection.take()
        taken = sort(connection, taken, streams, decoder)
        await asyncio.sleep(0)
        if asyncio.get_running_loop().time() > deadline:
            faults.append(
                f"{connection.peer.transport}: no answer to {[one for one in streams.values() if not one.is_over]}"
            )
            break
    for one in streams.values():
        stays = one.talk.leaves is None or one.talk.leaves >= len(one.talk.pieces)
        if stays and one.input.count(one.talk.secret) < len(one.talk.pieces) + (not one.talk.is_session):
            faults.append(f"{connection.peer.transport}: {one.talk.secret!r} was not answered: {one.input!r}")
        if others := set(SECRET.findall(one.input)) - {one.talk.secret}:
            faults.append(f"{connection.peer.transport}: {one.talk.secret!r} was sent {others}")


def steps_of(one: Stream, number: int, encoder: hpack.Encoder) -> Iterator[bytes]:
    """What is sent on a stream, step by step."""
    talk = one.talk
    fields = [(b":scheme", b"https"), (b":path", b"/" + talk.secret), (b":authority", b"a")]
    if talk.is_session:
        fields = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), *fields, (b"sec-websocket-version", b"13")]
    else:
        fields = [(b":method", b"POST"), *fields]
    fields += [(b"cookie", b"a=" + talk.secret), (b"cookie", b"b=" + talk.secret), (b"x-" + talk.secret, talk.secret)]
    yield frame(HEADERS, END_HEADERS, number, encoder.encode(fields))
    for place, size in enumerate(talk.pieces):
        if talk.leaves == place:
            one.is_over = True
            yield reset(number)
            return
        data = ws_frame(2, talk.secret) if talk.is_session else filled(talk.secret, size)
        for start in range(0, len(data), 16_000):
            yield frame(DATA, 0, number, data[start : start + 16_000])
    # The end of a session's stream would say that its client has left.
    yield frame(DATA, 0, number, ws_frame(8, b"\x03\xe8")) if talk.is_session else frame(DATA, END_STREAM, number)


def sort(connection: Connection, taken: int, streams: dict[int, Stream], decoder: hpack.Decoder) -> int:
    """Give each stream what has come for it; how many bytes of the input were taken."""
    data = connection.input
    while len(data) - taken >= 9 and len(data) - taken >= (
        length := 9 + int.from_bytes(data[taken : taken + 3], "big")
    ):
        kind, flags = data[taken + 3 : taken + 5]
        number = int.from_bytes(data[taken + 5 : taken + 9], "big")
        payload = data[taken + 9 : taken + length]
        taken += length
        if kind == HEADERS:
            payload = repr(decoder.decode(payload, raw=True)).encode()
        if number in streams and kind in (HEADERS, DATA, RST_STREAM):
            streams[number].input += payload
            streams[number].is_over |= kind == RST_STREAM or bool(flags & END_STREAM)
    return taken


def has_come(connection: Connection, text: bytes, times: int) -> Callable[[], bool]:
    """Whether it has so often."""
    return lambda: connection.input.count(text) >= times


async def until(connection: Connection, condition: Any, faults: list[str]) -> None:
    """Read until then, or until the connection is over."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not condition() and not connection.is_over:
        connection.take()
        await asyncio.sleep(0)
        if asyncio.get_running_loop().time() > deadline:
            faults.append(f"{connection.peer.transport}: no answer to {connection.peer}")
            return


# Runs.


@contextlib.asynccontextmanager
async def serving(application: Any, certificate: Path) -> AsyncIterator[dict[str, Any]]:
    """Both servers, on this event loop: addresses by the transports."""
    common: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 0,
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
    }
    common |= {"http2": True, "timeout_keep_alive": 600}
    clear = Config(application, **common)
    secure = Config(application, **common, http3=True, tls="rustls", ssl_certfile=str(certificate))
    async with run_server(clear) as one, run_server(secure) as other:
        ports = {"clear": server_port(one), "tls": server_port(other), "http/3": server_port(other)}
        yield {transport: ("127.0.0.1", ports[transport.split()[-1]]) for transport in TRANSPORTS}


async def run(case: Case, addresses: dict[str, Any], application: Application) -> list[str]:
    """Play a case on servers that run; what is wrong."""
    faults: list[str] = application.faults
    before = application.calls
    connections = []

    async def play(number: int, peer: Peer) -> None:
        connection = Connection(peer, Random(case.seed + number), addresses[peer.transport])
        connections.append(connection)
        await (play_1 if peer.transport.startswith("http/1") else play_2)(connection, faults)
        connection.close()

    await asyncio.gather(*(play(number, peer) for number, peer in enumerate(case.peers)))
    if application.calls == before:
        faults.append("no request has come")
    return faults


async def find(case: Case, certificate: Path) -> list[str] | None:
    """Serve, and play a case."""
    application = Application()
    async with serving(application, certificate) as addresses:
        return await run(case, addresses, application) or None


def main() -> int:
    """Exit with 1 when a case has shown a fault."""
    import trustme

    options = parser("tests.native.isolation").parse_args()
    with tempfile.TemporaryDirectory() as directory:
        certificate = Path(directory) / "certificate.pem"
        trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)

        def look(seed: int) -> tuple[Case, list[str] | None]:
            case = make_case(seed)
            loop = new_loop(case.loop)
            try:
                return case, loop.run_until_complete(find(case, certificate))
            finally:
                loop.close()

        return search("isolation", options, look, lambda case, found: (case, found), report)


def report(case: Case, found: list[str]) -> str:
    """What there is to know about a fault."""
    return "\n".join([f"seed {case.seed}, again with: python -m tests.native.isolation --seed {case.seed}", *found])


if __name__ == "__main__":
    sys.exit(main())
