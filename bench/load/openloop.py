"""A fixed arrival rate: requests are due at even distances whether or not the server keeps up.

Latency counts from the moment a request was due, so a server that stalls is charged for everything that had to wait
meanwhile (no coordinated omission).
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque

from bench.errors import LoadError
from bench.load import own
from bench.load.base import Aim, no_pipelining
from bench.load.closedloop import mixture
from bench.load.response import Answer, ResponseReader
from bench.load.sockets import Client, Connection, open_all
from bench.model import Burst, Load

# How long to wait, after the last request was due, for answers.
DRAIN = 10.0
# The generator itself may be this late with this share of its requests; beyond it the burst says nothing.
LATE, LATE_SHARE = 0.010, 0.01
ROUND = 0.05


class OpenLoop:
    """One burst. `latencies` are seconds from due to answered."""

    def __init__(self, aim: Aim, load: Load) -> None:
        """Opens the connections; raises LoadError when the server does not take them or no rate is given."""
        if not load.rate:
            raise LoadError("openloop needs --rate")
        self.aim, self.rate = aim, load.rate
        self.total = max(1, round(load.rate * load.seconds))
        self.latencies: list[float] = []
        self.errors: Counter[str] = Counter()
        self.received = 0
        self.late = 0
        self._ended = self._sent = 0
        self._requests = mixture(aim)
        self._client = Client(aim.port, tls=aim.tls)
        self._idle = open_all(self._client, load.connections)
        self._waiting: deque[float] = deque()
        self._due = 0
        for connection in self._idle:
            connection.reader = ResponseReader()

    def run(self) -> Burst:
        """Send everything when it is due, wait for the answers."""
        begun = time.perf_counter() + ROUND
        end = begun + self.total / self.rate + DRAIN
        while (now := time.perf_counter()) < end:
            self._arrive(begun, now)
            self._dispatch()
            if self._finished() or not self._client.connections:
                break
            next_due = begun + self._due / self.rate if self._due < self.total else now + ROUND
            for connection, data in self._client.wait(next_due):
                self._take(connection, data)
        seconds = time.perf_counter() - begun
        self._client.close()
        self.errors["unanswered"] = self.total - self._ended
        if self.late > LATE_SHARE * self.total:
            self.errors["sent late by the generator"] = self.late
        return own.burst(self.latencies, seconds, self.errors, self.received)

    def _arrive(self, begun: float, now: float) -> None:
        while self._due < self.total and (due := begun + self._due / self.rate) <= now:
            self.late += now - due > LATE
            self._waiting.append(due)
            self._due += 1

    def _dispatch(self) -> None:
        while self._waiting and self._idle:
            connection = self._idle.pop()
            connection.since = self._waiting.popleft()
            connection.left = 1
            self._sent += 1
            try:
                self._client.send(connection, self._requests[self._sent % len(self._requests)])
            except OSError:
                self._broken(connection, "write")

    def _finished(self) -> bool:
        return self._due == self.total and not self._waiting and not any(c.left for c in self._connections())

    def _connections(self) -> list[Connection]:
        return list(self._client.connections.values())

    def _take(self, connection: Connection, data: bytes | None) -> None:
        if data is None:
            self._broken(connection, "read")
            return
        self.received += len(data)
        reader = connection.reader
        assert isinstance(reader, ResponseReader)
        for answer in reader.feed(data):
            self._note(answer, time.perf_counter() - connection.since)
            connection.left = 0
            self._ended += 1
            if answer.close:
                self._broken(connection, "read")
            else:
                self._idle.append(connection)

    def _note(self, answer: Answer, seconds: float) -> None:
        """One answer, so long after it was due."""
        if answer.status >= 300:
            self.errors["status"] += 1
        elif self.aim.response_bytes is not None and answer.length != self.aim.response_bytes:
            self.errors["length"] += 1
        else:
            self.latencies.append(seconds)

    def _broken(self, connection: Connection, kind: str) -> None:
        """Count the request that was under way, if one was, and take a new connection."""
        if connection.left:
            self.errors[kind] += 1
            self._ended += 1
        elif connection in self._idle:
            self._idle.remove(connection)
        self._client.discard(connection)
        try:
            fresh = self._client.connect()
        except OSError:
            self.errors["connect"] += 1
            return
        fresh.reader = ResponseReader()
        self._idle.append(fresh)


class OpenLoopGenerator(own.Own):
    """The generator `openloop`."""

    name = "openloop"
    abilities = frozenset({"session", "variety", "tls"})
    module = "bench.load.openloop"

    def refusal(self, load: Load) -> str | None:
        """An open loop needs a rate."""
        return no_pipelining(self.name, load) if load.rate else "openloop needs --rate"


if __name__ == "__main__":
    sys.exit(own.main(sys.argv, lambda aim, load: OpenLoop(aim, load).run()))
