"""Clients that repeat no request unasked, and so tell whether one was lost while workers came and went.

Used by `scripts/restarts` and the tests; `app` is what they ask.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
import threading
import time
from array import array
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

PATIENCE = 30.0
"""Seconds after which a request without an answer counts as lost."""


_leaked: list[bytes] = []


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers `/plain` in one piece, `/stream` in three that take their time, `/leak`, which costs it memory, and
    `/busy?N`, for which it computes so many milliseconds."""
    if scope["type"] == "lifespan":
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})
        return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
        return
    worker = (b"x-worker", b"%d" % os.getpid())
    if scope["path"] == "/leak":
        # A megabyte for a hundred requests, written to, so that it is there.
        _leaked.append(bytes([len(_leaked) % 255 + 1]) * 10_486)
        scope = {**scope, "path": "/plain"}
    if scope["path"] == "/busy":
        end = time.thread_time() + int(scope["query_string"]) / 1000
        while time.thread_time() < end:
            pass
        scope = {**scope, "path": "/plain"}
    if scope["path"] == "/plain":
        headers = [worker, (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [worker]})
    for _ in range(3):
        await send({"type": "http.response.body", "body": b"piece", "more_body": True})
        await asyncio.sleep(0.01)
    await send({"type": "http.response.body"})


class Load:
    """Clients, on connections that are kept alive or not, each with one request after the other, while the block runs.

    With a `rate` they ask so often in a second, all together, and not as often as they can; with `pauses`, each of them
    so many seconds after its last answer, between the two.

    Attributes:
        answered: whole responses.
        durations: seconds of each of these, at a rate from when the request was due.
        lost: what requests without one ended by, and how often.
        workers: process ids of those that had the connection, as far as it had an answer before; and how often.
    """

    def __init__(
        self,
        address: tuple[str, int],
        path: str,
        clients: int,
        *,
        keep_alive: bool = True,
        rate: float | None = None,
        pauses: tuple[float, float] | None = None,
    ) -> None:
        self.answered = 0
        self.lost: Counter[str] = Counter()
        self.workers: Counter[int] = Counter()
        self.durations = array("f")
        self.address = address
        fields = "host: test\r\n" if keep_alive else "host: test\r\nconnection: close\r\n"
        self._request = f"GET {path} HTTP/1.1\r\n{fields}\r\n".encode()
        self._clients = clients
        self._interval = 0.0 if rate is None else clients / rate
        self._pauses = pauses
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(2 * PATIENCE)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        await asyncio.gather(*(self._client(number) for number in range(self._clients)))

    async def _client(self, number: int) -> None:
        await asyncio.sleep((self._interval if self._pauses is None else self._pauses[1]) * number / self._clients)
        while not self._stopping.is_set():
            try:
                reader, writer = await asyncio.wait_for(asyncio.open_connection(*self.address), PATIENCE)
            except (OSError, asyncio.TimeoutError) as exc:
                self.lost[f"connecting: {type(exc).__name__}"] += 1
                await asyncio.sleep(0.01)
                continue
            try:
                await self._use(reader, writer)
            finally:
                writer.close()

    async def _use(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ask until the server says `close`, or has closed before the next request is sent: as clients do."""
        worker, due = 0, time.monotonic()  # no worker is known yet
        while not self._stopping.is_set():
            # So that an end of the connection is noticed, too.
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if reader.at_eof() or reader.exception() is not None:
                return
            head, began = b"", due if self._interval else time.monotonic()
            due += self._interval
            try:
                writer.write(self._request)
                head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)).lower()
                if not head.startswith(b"http/1.1 200 "):
                    self.lost[f"answered {head[9:12].decode()}"] += 1
                    self.workers[worker] += 1
                    return
                worker = int(head.partition(b"\r\nx-worker: ")[2].partition(b"\r\n")[0])
                end = b"0\r\n\r\n" if b"\r\ntransfer-encoding: chunked\r\n" in head else b"ok"
                await asyncio.wait_for(reader.readuntil(end), PATIENCE)
            except (OSError, EOFError, asyncio.TimeoutError) as exc:
                self.lost[f"{'in a response' if head else 'unanswered'}: {type(exc).__name__}"] += 1
                self.workers[worker] += 1
                return
            self.answered += 1
            self.durations.append(time.monotonic() - began)
            if b"\r\nconnection: close\r\n" in head:
                return
            if self._pauses is not None:
                due = time.monotonic() + random.uniform(*self._pauses)


class HTTP2Load(Load):
    """The same over HTTP/2, several requests of each client at a time.

    A client asks again for what the server says that it has not begun (RFC 9113 section 8.7): requests behind the last
    one that a GOAWAY names, and those that are refused. Anything else without a response is lost.

    Attributes:
        repeated: requests that were asked again, and why.
    """

    TOGETHER = 4

    def __init__(self, address: tuple[str, int], path: str, clients: int) -> None:
        super().__init__(address, path, clients)
        self.repeated: Counter[str] = Counter()
        path_field = b"\x04" + bytes([len(path)]) + path.encode()
        # GET, http, the path, the authority (RFC 7541 appendix A); nothing for the table.
        self._fields = b"\x82\x86" + path_field + b"\x01\x04test"

    async def _use(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ask until the server says that no more should come, then wait for what is to come."""
        connection = _HTTP2Connection(reader, writer, self._fields)
        worker = 0  # not known yet
        try:
            while not (self._stopping.is_set() or connection.told) or connection.asked:
                while len(connection.asked) < self.TOGETHER and not (self._stopping.is_set() or connection.told):
                    connection.ask()
                ended = await asyncio.wait_for(connection.step(), PATIENCE)
                worker = connection.worker or worker
                self.repeated.update(connection.refused)
                connection.refused.clear()
                if ended is not None:
                    self._note(ended, worker)
        except (OSError, EOFError, asyncio.TimeoutError) as exc:
            how = f"unanswered: {type(exc).__name__}"
            self.lost.update({how: len(connection.asked)} if connection.asked else {})
            self.workers[worker] += len(connection.asked)

    def _note(self, ended: tuple[str, float], worker: int) -> None:
        how, began = ended
        if how == "answered 200":
            self.answered += 1
            self.durations.append(time.monotonic() - began)
        else:
            self.lost[how] += 1
            self.workers[worker] += 1


class _HTTP2Connection:
    """One connection of a client, which takes the server's frames one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fields: bytes) -> None:
        import hpack  # the server that has `app` need not

        self._reader, self._writer, self._fields = reader, writer, fields
        self._decoder = hpack.Decoder()
        self._next = 1
        self._status: dict[int, str] = {}
        self.asked: dict[int, float] = {}
        """When each stream was asked that has not ended."""
        self.refused: Counter[str] = Counter()
        self.told = False
        """No more requests should come."""
        self.worker = 0
        window = struct.pack("!I", 2**31 - 1 - 65_535)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4) + _frame(8, payload=window))

    def ask(self) -> None:
        stream, self._next = self._next, self._next + 2
        self.asked[stream] = time.monotonic()
        self._writer.write(_frame(1, 0x5, stream, self._fields))

    async def step(self) -> tuple[str, float] | None:
        """Take one frame; how a request has ended with it, and when it was asked."""
        head = await self._reader.readexactly(9)
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        if kind == 1:
            fields = {str(name): str(value) for name, value in self._decoder.decode(payload)}
            self._status[stream] = fields[":status"]
            self.worker = int(fields.get("x-worker", self.worker))
        elif kind == 3:
            return self._reset(stream, int.from_bytes(payload, "big"))
        elif kind in (4, 6) and not flags & 1:
            self._writer.write(_frame(kind, 1, payload=payload if kind == 6 else b""))
        elif kind == 7:
            self._go_away(*struct.unpack_from("!II", payload))
        if kind in (0, 1) and flags & 1 and stream in self.asked:
            return f"answered {self._status.pop(stream, '')}", self.asked.pop(stream)
        return None

    def _reset(self, stream: int, code: int) -> tuple[str, float] | None:
        began = self.asked.pop(stream, None)
        if began is None:
            return None
        if code == 7:  # REFUSED_STREAM
            self.refused["refused"] += 1
            return None
        return f"reset: {code}", began

    def _go_away(self, last: int, code: int) -> None:
        self.told = True
        for stream in [stream for stream in self.asked if stream > last]:
            del self.asked[stream]
            self.refused["behind the last"] += 1
        if code:
            raise ConnectionAbortedError(code)


def _frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload
