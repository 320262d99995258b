"""Streams of tokens: how evenly do small events arrive, and what does each cost?

Every connection asks once, for a long stream of server-sent events (`stream-path` among the aim's options). The
connections begin evenly over a second, so that their clocks differ. Measuring begins after that.

A request of the burst is one event; its latency is the jitter: by how much the time since the stream's last event
differs from the option `interval`, in seconds. Events that arrive together count as no time apart.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter

from bench.load import own
from bench.load.base import Aim, ClosedLoop
from bench.load.response import request_bytes
from bench.load.sockets import Client, Connection
from bench.model import Burst, Load

# Seconds over which the streams begin.
SPREAD = 1.0
# An event begins with it, whatever its lines end in.
EVENT = b"data: "


class Stream:
    """One connection's stream; `since` is the time of its last event, 0 before the first."""

    __slots__ = ("since", "_head")

    def __init__(self) -> None:
        self.since = 0.0
        self._head: bytes | None = b""

    def events(self, data: bytes) -> int:
        """The number of events in these bytes, which may begin with the response's head; -1 for an error."""
        if self._head is None:
            return data.count(EVENT)
        self._head += data
        head, end, data = self._head.partition(b"\r\n\r\n")
        if not end:
            return 0
        self._head = None
        return data.count(EVENT) if head.startswith(b"HTTP/1.1 200") else -1


class Tokens:
    """One burst; the load's connections are the streams.

    Attributes:
        starts: moment from which events count.
        jitter: of each event, in seconds.
        errors: counts by kind.
    """

    def __init__(self, aim: Aim, load: Load) -> None:
        self.aim, self.load = aim, load
        self._interval = float(aim.options["interval"])
        self._request = request_bytes("GET", aim.options["stream-path"], dict(aim.headers), b"")
        self._client = Client(aim.port)
        self.jitter: list[float] = []
        self.errors: Counter[str] = Counter()
        self._received = 0
        self.starts = math.inf

    def run(self) -> Burst:
        """Until the load's seconds are over, from the moment when all streams have begun."""
        begun = time.perf_counter()
        for number in range(self.load.connections):
            self._listen(begun + SPREAD * number / self.load.connections)
            self._open()
        self._listen(begun + SPREAD)
        own.mark()
        self.starts = time.perf_counter()
        self._listen(self.starts + self.load.seconds)
        seconds = time.perf_counter() - self.starts
        own.mark()
        self._client.close()
        return own.burst(self.jitter, seconds, self.errors, self._received)

    def _listen(self, until: float) -> None:
        while time.perf_counter() < until:
            for connection, data in self._client.wait(until):
                self.take(connection, data)

    def _open(self) -> None:
        try:
            connection = self._client.connect()
        except OSError:
            self.errors["connect"] += 1
            return
        connection.reader = Stream()
        self._client.send(connection, self._request)

    def take(self, connection: Connection, data: bytes | None) -> None:
        """Count the events in what a stream's connection has received; `None` is its end."""
        stream = connection.reader
        assert isinstance(stream, Stream)
        events = -1 if data is None else stream.events(data)
        if data is None or events < 0:
            self.errors["read" if data is None else "status"] += 1
            self._client.discard(connection)
        elif events:
            now = time.perf_counter()
            if stream.since and now >= self.starts:
                self._received += len(data)
                self.jitter.append(abs(now - stream.since - self._interval))
                self.jitter += [self._interval] * (events - 1)
            stream.since = now


class TokensGenerator(own.Own, ClosedLoop):
    """The generator `tokens`."""

    name = "tokens"
    module = "bench.load.tokens"
    abilities = frozenset({"interval", "stream-path"})


if __name__ == "__main__":
    sys.exit(own.main(sys.argv, lambda aim, load: Tokens(aim, load).run()))
