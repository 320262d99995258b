"""Closed loop on plain sockets: the replacement for wrk where that is not installed.

Every connection sends its next request (or batch of pipelined ones) when its last one is answered. Answers are read
strictly until one is known; the others of the same length only have to begin alike, which lets one core of Python drive
some ten thousand batches per second.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from bench import applications
from bench.load import own, variety
from bench.load.base import Aim, ClosedLoop
from bench.load.response import ResponseReader, request_bytes
from bench.load.sockets import Client, Connection, open_all
from bench.model import Burst, Load

# How long to wait for the answers to the last requests.
DRAIN = 10.0
GOOD = b"HTTP/1.1 200 "


class Closed:
    """One burst. `latencies` are seconds from sent to answered."""

    def __init__(self, aim: Aim, load: Load) -> None:
        """Opens the connections; raises LoadError when the server does not take them."""
        self.aim = aim
        self.seconds = load.seconds
        self.batch = load.pipeline
        self.latencies: list[float] = []
        self.errors: Counter[str] = Counter()
        self.received = 0
        self._requests = [request * load.pipeline for request in mixture(aim)]
        self._is_recorded = "session" in aim.options
        self._sent = self._busy = self._whole = 0
        self._client = Client(aim.port)
        self._connections = open_all(self._client, load.connections)
        for connection in self._connections:
            connection.reader = ResponseReader()

    def run(self) -> Burst:
        """Keep every connection busy for the load's seconds, then wait for requests in flight.

        Recorded requests are sent to the end of the recording, so that each server answers the same mixture.
        """
        begun = time.perf_counter()
        self._end = begun + self.seconds
        for connection in self._connections:
            self._send(connection)
        while self._busy and (now := time.perf_counter()) < self._end + DRAIN:
            for connection, data in self._client.wait(now + 0.05):
                self._take(connection, data)
        seconds = time.perf_counter() - begun
        self.errors["unanswered"] = sum(one.left for one in self._client.connections.values())
        self._client.close()
        return own.burst(self.latencies, seconds, self.errors, self.received)

    def _send(self, connection: Connection) -> None:
        request = self._requests[self._sent % len(self._requests)]
        self._sent += 1
        self._busy += 1
        connection.left = self.batch
        connection.since = time.perf_counter()
        try:
            self._client.send(connection, request)
        except OSError:
            self._broken(connection, "write")

    def _take(self, connection: Connection, data: bytes | None) -> None:
        if data is None:
            self._broken(connection, "read")
            return
        self.received += len(data)
        reader = connection.reader
        assert isinstance(reader, ResponseReader)
        if len(data) == self._whole and reader.empty and data.count(GOOD) == self.batch:
            self.latencies += [time.perf_counter() - connection.since] * self.batch
            self._next(connection)
            return
        alone, answers = reader.empty, reader.feed(data)
        for answer in answers:
            if answer.status >= 300:
                self.errors["status"] += 1
            elif self.aim.response_bytes is not None and answer.length != self.aim.response_bytes:
                self.errors["length"] += 1
            else:
                self.latencies.append(time.perf_counter() - connection.since)
            connection.left -= 1
            if answer.close and connection.left == 0:
                self._busy -= 1
                self._renewed(connection)
                return
            if answer.close:
                self._broken(connection, "read")
                return
        if connection.left == 0:
            if alone and len(self._requests) == 1 and len(answers) == self.batch and not self.errors:
                self._whole = len(data)
            self._next(connection)

    def _next(self, connection: Connection) -> None:
        self._busy -= 1
        connection.left = 0
        if not self._is_over():
            self._send(connection)

    def _is_over(self) -> bool:
        """Whether nothing more is to be sent; a recording is sent to its end."""
        is_within = self._is_recorded and self._sent % len(self._requests) != 0
        return time.perf_counter() >= self._end and not is_within

    def _broken(self, connection: Connection, kind: str) -> None:
        """Count the request that was under way, if one was, and go on with a new connection while there is time."""
        if connection.left:
            self.errors[kind] += connection.left
            self._busy -= 1
        self._renewed(connection)

    def _renewed(self, connection: Connection) -> None:
        """A new connection takes the place of one that is at its end."""
        self._client.discard(connection)
        if self._is_over():
            return
        try:
            fresh = self._client.connect()
        except OSError:
            self.errors["connect"] += 1
            return
        fresh.reader = ResponseReader()
        self._send(fresh)


def mixture(aim: Aim) -> list[bytes]:
    """The requests to send in turn: the aim's; with `session` those that were recorded for a real application; with
    `variety` that many different ones; with `post-percent` that many of a hundred, the others a GET.
    """
    if "session" in aim.options:
        return applications.session(aim.options["session"])
    if "variety" in aim.options:
        return variety.requests(aim)
    headers = dict(aim.headers)
    request = request_bytes(aim.method, aim.path, headers, aim.body)
    if "post-percent" not in aim.options:
        return [request]
    share, other = int(aim.options["post-percent"]), request_bytes("GET", aim.path, headers, b"")
    return [request if number * share % 100 < share else other for number in range(100)]


class ClosedLoopGenerator(own.Own, ClosedLoop):
    """The generator `closedloop`."""

    name = "closedloop"
    module = "bench.load.closedloop"
    pipelines = True
    abilities = frozenset({"post-percent", "session", "variety", "close"})


if __name__ == "__main__":
    sys.exit(own.main(sys.argv, lambda aim, load: Closed(aim, load).run()))
