"""Clients that never repeat a request, and so tell whether one was lost while workers came and went.

Used by `scripts/restarts` and the tests; `app` is what they ask.
"""

from __future__ import annotations

import asyncio
import os
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
    """Answers `/plain` in one piece, `/stream` in three that take their time, and `/leak`, which costs it memory."""
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

    Attributes:
        answered: whole responses.
        durations: seconds of each of these.
        lost: what requests without one ended by, and how often.
        workers: process ids of those that had the connection, as far as it had an answer before; and how often.
    """

    def __init__(self, address: tuple[str, int], path: str, clients: int, *, keep_alive: bool = True) -> None:
        self.answered = 0
        self.lost: Counter[str] = Counter()
        self.workers: Counter[int] = Counter()
        self.durations = array("f")
        self.address = address
        fields = "host: test\r\n" if keep_alive else "host: test\r\nconnection: close\r\n"
        self._request = f"GET {path} HTTP/1.1\r\n{fields}\r\n".encode()
        self._clients = clients
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
        await asyncio.gather(*(self._client() for _ in range(self._clients)))

    async def _client(self) -> None:
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
        worker = 0  # not known yet
        while not self._stopping.is_set() and not reader.at_eof() and reader.exception() is None:
            head, began = b"", time.monotonic()
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
            await asyncio.sleep(0)  # so that the end of the connection is noticed
