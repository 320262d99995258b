"""The same random applications over HTTP/2 and HTTP/3: what they see and what clients are sent must be the same.

The requests of a case that are in order are sent on streams, one after the other, each as a whole. Addresses, the
version and the code of a reset are left out of the comparison.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib.util
import re
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hpack

from tests.differential.case import SIZES, Case, Request, without
from tests.differential.compare import compare_calls, short
from tests.differential.player import Application
from tests.native.http2_client import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, frame, settings
from tests.native.http2_client import window_update as window
from tests.random_cases import Lines, captured, new_loop
from tests.relations.clients import EncryptedSocket, arrived
from tests.relations.runner import certificate
from tests.utils import run_server, server_port
from uvicorn.config import Config

AVAILABLE = sys.platform == "linux" and importlib.util.find_spec("aioquic") is not None
VERSIONS = ("2", "3")
LARGEST = 2**30
MOST = 500
"""Bytes of a body, so that a request is one packet."""
QUIET_TURNS = 40
QUIET_TIME = 0.03
"""Seconds that a client waits for an answer while nothing happens: QUIC paces and repeats by time."""

_HEAD = re.compile(rb"(GET|HEAD|POST|PUT|OPTIONS) (/[^ ]*) HTTP/1\.[01]\r\n((?:[^\r\n]+\r\n)*)\r\n")
_CHUNK = re.compile(rb"([0-9a-f]+)[^\r]*\r\n")
_NUMBER = re.compile(r"/r([0-9]+)-")
_OF_HTTP_1 = {b"connection", b"upgrade", b"transfer-encoding", b"host", b"expect"}


def request_of(request: Request) -> tuple[list[tuple[bytes, bytes]], bytes] | None:
    """Fields and body, as streams have them; `None` if it is not in order."""
    head = _HEAD.match(request.data)
    if head is None or not request.clean:
        return None
    fields = [line.partition(b":")[::2] for line in head[3].split(b"\r\n") if line]
    if [value for name, value in fields if name.lower() == b"host"] != [b" a"]:
        return None
    body = request.data[head.end() :]
    if any(name.lower() == b"transfer-encoding" for name, _ in fields):
        content = b""
        while (chunk := _CHUNK.match(body)) and int(chunk[1], 16):
            content += body[chunk.end() : chunk.end() + int(chunk[1], 16)]
            body = body[chunk.end() + int(chunk[1], 16) + 2 :]
        if body != b"0\r\n\r\n":
            return None
        body = content
    pseudo = [(b":method", head[1]), (b":scheme", b"https"), (b":authority", b"a"), (b":path", head[2])]
    others = [(name.lower(), value.strip()) for name, value in fields if name.lower() not in _OF_HTTP_1]
    if len(body) > MOST:  # how it is cut is for the network to say
        others = [(name, b"%d" % MOST if name == b"content-length" else value) for name, value in others]
        body = body[-MOST:]
    return pseudo + others, body


@dataclass
class Outcome:
    """What came of a case over one version."""

    seen: dict[str, list[Any]] = field(default_factory=dict)
    answers: list[list[Any]] = field(default_factory=list)
    log: list[tuple[str, str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Client:
    """A connection, by frames of HTTP/2."""

    def __init__(self, version: str, address: Any) -> None:
        self.sock: Any
        if version == "3":
            from tests.relations.http3 import HTTP3Socket

            self.sock = HTTP3Socket(address)
        else:
            sock = socket.create_connection(address)
            sock.setblocking(False)
            self.sock = EncryptedSocket(sock, True)
        self.unsent = PREFACE + settings({4: LARGEST}) + window(LARGEST)
        self.input = b""
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.next_stream = 1
        self.is_over = False
        #: For each stream: the sections, the data, how it has ended.
        self.answers: dict[int, list[Any]] = {}

    def move(self) -> int:
        """Send and take what can be; how much it was."""
        moved = 0
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while self.unsent and not self.is_over:
                sent = self.sock.send(self.unsent)
                self.unsent, moved = self.unsent[sent:], moved + sent
        if not self.is_over:
            data, self.is_over = arrived(self.sock)
            self.input, moved = self.input + data, moved + len(data)
        self._sort()
        return moved

    @property
    def waits(self) -> bool:
        """It has something to send, or a stream is not answered."""
        return not self.is_over and (bool(self.unsent) or any(one[2] == "open" for one in self.answers.values()))

    def ask(self, fields: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a request as a whole."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        end = 0 if body else END_STREAM
        data = frame(HEADERS, END_HEADERS | end, stream, self.encoder.encode(fields))
        for start in range(0, len(body), 16_000):
            last = END_STREAM if start + 16_000 >= len(body) else 0
            data += frame(DATA, last, stream, body[start : start + 16_000])
        self.unsent += data
        self.answers[stream] = [[], b"", "open"]

    def _sort(self) -> None:
        while len(self.input) >= 9 and len(self.input) >= (length := 9 + int.from_bytes(self.input[:3], "big")):
            kind, flags = self.input[3:5]
            one = self.answers.get(int.from_bytes(self.input[5:9], "big"), [[], b"", "none"])
            payload, self.input = self.input[9:length], self.input[length:]
            if kind == HEADERS:
                one[0].append([pair for pair in self.decoder.decode(payload, raw=True) if pair[0] != b"date"])
            elif kind == DATA:
                one[1] += payload
            if kind == RST_STREAM and one[2] == "open":
                one[2] = "reset"  # behind the end it is about the request
            elif kind in (HEADERS, DATA) and flags & END_STREAM:
                one[2] = "end"


def certain(answer: list[Any]) -> Any:
    """Return what of an answer is the same whenever its pieces leave.

    What came in front of a reset may be lost. A head waits for the first piece of the body, and leaves before it with
    whatever the connection writes: over HTTP/2 an update of a window is enough.
    """
    sections, data, end = answer
    if end == "reset":
        return "reset"
    if end == "open" and not data:
        sections = [section for section in sections if section[0][1].startswith(b"1")]
    return [sections, data, end]


async def play(case: Case, version: str, outcome: Outcome) -> None:
    """Serve and play a case."""
    application = Application(case)

    async def app(scope: Any, receive: Any, send: Any) -> Any:
        number = _NUMBER.search(scope["path"])
        scope["state"] = {"client": int(number[1]) if number else -1}
        scope |= {"client": ("client", 1), "server": ("server", 1), "http_version": "2 or 3"}
        scope.get("extensions", {}).pop("tls", None)
        return await application(scope, receive, send)

    path = certificate()
    assert Path(path).exists()
    common: dict[str, Any] = {"lifespan": "off", "log_config": None, "access_log": False, "interface": "asgi3"}
    common |= {"host": "127.0.0.1", "port": 0, "timeout_keep_alive": 10_000, "http3_alt_svc": "none", **case.settings}
    config = Config(app, http2=True, http3=True, tls="rustls", ssl_certfile=path, **common)
    async with run_server(config) as server:
        state = server.server_state
        clients = [Client(version, ("127.0.0.1", server_port(server))) for _ in case.clients]

        async def until_quiet() -> None:
            quiet = 0
            before: Any = None
            moved_at = time.monotonic()
            while quiet < QUIET_TURNS or (
                any(client.waits for client in clients) and time.monotonic() - moved_at < QUIET_TIME
            ):
                await asyncio.sleep(0)
                moved = sum(client.move() for client in clients)
                now = application.activity, len(state.tasks)
                quiet = quiet + 1 if not moved and now == before else 0
                moved_at = moved_at if quiet else time.monotonic()
                before = now

        await until_quiet()
        for number, one in enumerate(case.clients):
            for request in one.requests:
                made = request_of(request)
                if made is not None and not clients[number].is_over:
                    clients[number].ask(*made)
                    await until_quiet()
        application.release()
        await until_quiet()
        application.over = True
        for client in clients:
            outcome.answers.append([certain(one) for one in client.answers.values()])
            client.sock.close()
        for task in application.tasks:
            task.cancel()
    for record in application.records:
        outcome.seen.setdefault(record.ident, []).append(record.notes)


def run(case: Case, version: str) -> Outcome:
    """Play a case on an event loop of its own."""
    outcome = Outcome()
    loop = new_loop(case.loop)
    asyncio.set_event_loop(loop)
    with captured(Lines(), {"uvicorn.error": 30, "asyncio": 30}) as lines:
        try:
            loop.run_until_complete(play(case, version, outcome))
        except Exception as error:
            outcome.faults.append(f"the run failed: {error!r}")
        asyncio.set_event_loop(None)
        loop.close()
    outcome.log = sorted((name, text.replace("HTTP/3", "HTTP/2"), error) for name, text, error in lines.lines)
    return outcome


def difference(case: Case) -> list[str] | None:
    """What is different over HTTP/3, or wrong over either; `None` if nothing is.

    Whether a client has taken a large body by then is for the network to say: no send beside one is driven by hand.
    """
    case = copy.deepcopy(case)
    for request in (request for client in case.clients for request in client.requests):
        if str(max(SIZES)) in repr(request.operations):
            request.operations = [*without(request.operations, ("send-stepped",))]
    one, other = (run(case, version) for version in VERSIONS)
    return [*one.faults, *other.faults, *compare(one, other)] or None


def compare(one: Outcome, other: Outcome) -> Iterator[str]:
    """Say where two outcomes differ."""
    for number, (left, right) in enumerate(zip(one.answers, other.answers, strict=False)):
        if left != right:
            yield f"HTTP/2, HTTP/3: client {number} was sent\n    {short(left)}\n    {short(right)}"
    for ident in sorted({*one.seen, *other.seen}):
        for text in compare_calls(ident, one.seen.get(ident, []), other.seen.get(ident, [])):
            yield f"HTTP/2, HTTP/3: {text}"
    if one.log != other.log:
        yield f"HTTP/2, HTTP/3: the log says\n    {short(one.log)}\n    {short(other.log)}"
