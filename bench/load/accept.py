"""Newcomers at a busy server: how long does a new client wait while others keep the server busy?

Busy connections (`busy` among the aim's options) send requests for `busy-path` without a break, each when its last
one is answered. After a moment all newcomers connect at once, and each sends one request as soon as it is connected.
The time of each runs from its call of connect(2) to the last byte of its answer. They stay connected.

The burst's latencies are those of the newcomers; its requests include the busy connections', as does the server's CPU.
A newcomer without an answer at the deadline counts with the time waited until then, which is too short; the burst
counts these.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter

from bench.load import own
from bench.load.base import Aim, ClosedLoop
from bench.load.response import Answer, ResponseReader, request_bytes
from bench.load.sockets import Client, Connection, open_all
from bench.model import Burst, Load

# Seconds of the busy ones alone before the newcomers come.
ALONE = 0.5
# Deadline in seconds.
PATIENCE = 15.0
# Connections begun between two reads: the busy ones must not wait for the client.
TOGETHER = 50


class Newcomers:
    """One burst; the load's connections are the newcomers."""

    def __init__(self, aim: Aim, load: Load) -> None:
        """Opens the busy connections; raises LoadError when the server does not take them."""
        self.aim, self.load = aim, load
        self.latencies: list[float] = []
        self.errors: Counter[str] = Counter()
        self.received = 0
        self.answered = 0
        headers = dict(aim.headers)
        self._request = request_bytes(aim.method, aim.path, headers, aim.body)
        self._busy_request = request_bytes("GET", aim.options.get("busy-path", aim.path), headers, b"")
        self._client = Client(aim.port)
        self._busy = set(open_all(self._client, int(aim.options.get("busy", "0"))))
        self._waiting: set[Connection] = set()
        self._to_come = load.connections
        for connection in self._busy:
            connection.reader = ResponseReader()

    def run(self) -> Burst:
        """Until the load's seconds are over and every newcomer has its answer, or has waited in vain."""
        begun = time.perf_counter()
        self._arrival = begun + min(ALONE, self.load.seconds / 2)
        self._end = begun + self.load.seconds
        for connection in list(self._busy):
            self._ask(connection, self._busy_request)
        while (now := time.perf_counter()) < self._arrival + PATIENCE:
            if now >= self._arrival:
                self._connect()
            if now >= self._end and not self._to_come and not self._waiting:
                break
            pause = 0.0 if self._to_come and now >= self._arrival else 0.02
            for connection, data in self._client.wait(now + pause):
                self._take(connection, data)
        seconds = time.perf_counter() - begun
        late = [time.perf_counter() - connection.since for connection in self._waiting]
        self._client.close()
        found = own.burst([*self.latencies, *late], seconds, self.errors, self.received)
        return dataclasses.replace(found, requests=self.answered, unanswered=len(late))

    def _connect(self) -> None:
        for _ in range(min(TOGETHER, self._to_come)):
            self._to_come -= 1
            since = time.perf_counter()
            try:
                connection = self._client.begin()
            except OSError:
                self.errors["connect"] += 1
                continue
            connection.since, connection.left = since, 1
            connection.reader = ResponseReader()
            # Goes out as soon as the connection is there.
            connection.out = self._request
            self._waiting.add(connection)

    def _ask(self, connection: Connection, request: bytes) -> None:
        try:
            self._client.send(connection, request)
        except OSError:
            self._lost(connection)

    def _take(self, connection: Connection, data: bytes | None) -> None:
        if data is None:
            self._lost(connection)
            return
        self.received += len(data)
        reader = connection.reader
        assert isinstance(reader, ResponseReader)
        for answer in reader.feed(data):
            if fault := self._fault(answer):
                self.errors[fault] += 1
            self.answered += 1
            if connection in self._waiting:
                self._waiting.remove(connection)
                self.latencies.append(time.perf_counter() - connection.since)
            elif connection in self._busy:
                self._ask(connection, self._busy_request)

    def _fault(self, answer: Answer) -> str:
        if answer.status >= 300:
            return "status"
        wrong = self.aim.response_bytes is not None and answer.length != self.aim.response_bytes
        return "length" if wrong else ""

    def _lost(self, connection: Connection) -> None:
        if connection in self._waiting or connection in self._busy:
            self.errors["read"] += 1
        self._waiting.discard(connection)
        self._busy.discard(connection)
        self._client.discard(connection)


class AcceptGenerator(own.Own, ClosedLoop):
    """The generator `accept`."""

    name = "accept"
    module = "bench.load.accept"
    abilities = frozenset({"busy", "busy-path"})


if __name__ == "__main__":
    sys.exit(own.main(sys.argv, lambda aim, load: Newcomers(aim, load).run()))
