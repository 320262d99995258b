"""A chat over socket.io: sockets in rooms of eight, one message of each under way until it is acknowledged.

Engine.IO 4 puts one character before what socket.io says (0 open, 2 ping, 3 pong, 4 message); socket.io another (0
connect, 2 event, 3 acknowledgement). What others say arrives beside the acknowledgements, and is counted as received.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter

from bench.errors import LoadError
from bench.load import own
from bench.load.base import Aim, ClosedLoop
from bench.load.sockets import Client, Connection, open_all
from bench.load.websocket import TEXT, FrameReader, frame, upgrade
from bench.model import Burst, Load

PATH = "/socket.io/?EIO=4&transport=websocket"
ROOM = 8
TEXTS = 500
SENTENCE = "shall we meet at noon by the old harbour or is it too far for you today my friend"
DRAIN = 10.0
OPEN, PING, PONG, CONNECTED, ACKNOWLEDGED = b"0", b"2", b"3", b"40", b"43"


class Chat:
    """One burst. `latencies` are seconds from a message to its acknowledgement."""

    def __init__(self, aim: Aim, load: Load) -> None:
        """Opens the sockets and enters the rooms; raises LoadError when the server does not let them."""
        chance = random.Random(1)
        self.seconds = load.seconds
        self.latencies: list[float] = []
        self.errors: Counter[str] = Counter()
        self.received = 0
        self._sent = 0
        self._texts = [" ".join(chance.choices(SENTENCE.split(), k=chance.randint(2, 30))) for _ in range(TEXTS)]
        self._client = Client(aim.port)
        self._connections = open_all(self._client, load.connections)
        upgrade(self._client, self._connections, PATH)
        self._say_all([b"40"] * len(self._connections), CONNECTED)
        rooms = [f'420["join","room-{number // ROOM}"]'.encode() for number in range(len(self._connections))]
        self._say_all(rooms, ACKNOWLEDGED)

    def run(self) -> Burst:
        """Keep a message of each socket under way for the load's seconds, then wait for the last ones."""
        begun = time.perf_counter()
        end = begun + self.seconds
        for connection in self._connections:
            self._say(connection)
        busy = len(self._connections)
        while busy and (now := time.perf_counter()) < end + DRAIN:
            for connection, data in self._client.wait(now + 0.05):
                for packet in self._packets(connection, data):
                    if not packet.startswith(ACKNOWLEDGED):
                        continue
                    self.latencies.append(time.perf_counter() - connection.since)
                    connection.left = 0
                    if time.perf_counter() < end:
                        self._say(connection)
                    else:
                        busy -= 1
        seconds = time.perf_counter() - begun
        self.errors["unanswered"] = sum(connection.left for connection in self._connections)
        self._client.close()
        return own.burst(self.latencies, seconds, self.errors, self.received)

    def _say(self, connection: Connection) -> None:
        self._sent += 1
        event = json.dumps(["say", {"text": self._texts[self._sent % TEXTS]}])
        connection.left, connection.since = 1, time.perf_counter()
        self._client.send(connection, frame(TEXT, f"42{self._sent}{event}".encode()))

    def _say_all(self, packets: list[bytes], wanted: bytes) -> None:
        """Say one thing on each socket; raises LoadError unless all get an answer that begins so."""
        for connection, packet in zip(self._connections, packets, strict=True):
            self._client.send(connection, frame(TEXT, packet))
        waiting, deadline = {connection.sock.fileno() for connection in self._connections}, time.perf_counter() + DRAIN
        while waiting:
            if time.perf_counter() > deadline:
                raise LoadError(f"{len(waiting)} sockets got no answer that begins with {wanted.decode()}")
            for connection, data in self._client.wait(time.perf_counter() + 0.05):
                if any(packet.startswith(wanted) for packet in self._packets(connection, data)):
                    waiting.discard(connection.sock.fileno())

    def _packets(self, connection: Connection, data: bytes | None) -> list[bytes]:
        """What arrived; pings are answered. Raises LoadError when the server has closed."""
        if data is None:
            raise LoadError("the server closed a socket")
        self.received += len(data)
        assert isinstance(connection.reader, FrameReader)
        found = [payload for opcode, payload in connection.reader.feed(data) if opcode == TEXT]
        for _ in range(found.count(PING)):
            self._client.send(connection, frame(TEXT, PONG))
        return found


class ChatGenerator(own.Own, ClosedLoop):
    """The generator `chat`."""

    name = "chat"
    module = "bench.load.chat"


if __name__ == "__main__":
    sys.exit(own.main(sys.argv, lambda aim, load: Chat(aim, load).run()))
