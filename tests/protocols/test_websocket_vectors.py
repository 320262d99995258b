"""Every WebSocket vector on every implementation: whole, cut in two, one byte at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.websocket_tools import CLOSE, PONG, Application, Peer, handshake, listen
from uvicorn.config import Config

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).parent.parent / "vectors" / "websocket.toml"

#: Inputs are cut at each of this many bytes at either end of their frames, and at some places in between.
EDGE = 64

#: Rows of the threat list that bytes on one connection can show; the others have tests of their own.
ROWS = ("W1", "W2", "W3", "W4", "W8", "W9", "W10", "W11", "W12", "W13", "D8")


def octets(value: Any) -> bytes:
    """The bytes that a hexadecimal string, or a table with one, stands for."""
    if isinstance(value, str):
        return bytes.fromhex(value)
    return bytes.fromhex(value["hex"]) * int(value.get("times", 1))


@dataclass(frozen=True)
class Vector:
    id: str
    source: str
    head: bytes
    frames: bytes
    rows: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    status: int = 101
    messages: tuple[str | bytes, ...] = ()
    pongs: tuple[bytes, ...] = ()
    close: int | None = None
    told: int | None = None

    @classmethod
    def parse(cls, table: dict[str, Any]) -> Vector:
        table = dict(table)
        lines = table.pop("lines", [])
        request = table.pop("request", None)
        head = handshake(*lines) if request is None else request.encode("latin-1")
        frames = b"".join(octets(piece) for piece in table.pop("input", []))
        messages = tuple(item if isinstance(item, str) else octets(item) for item in table.pop("messages", []))
        pongs = tuple(octets(item) for item in table.pop("pongs", []))
        return cls(head=head, frames=frames, messages=messages, pongs=pongs, **{"told": table.get("close"), **table})

    @property
    def data(self) -> bytes:
        return self.head + self.frames

    def cuts(self) -> Iterator[int]:
        """Where to cut the bytes in two: heads that are followed by something stay whole, long payloads have edges."""
        length = len(self.data)
        for position in range(len(self.head) - 2 if self.frames else 1, length):
            if position < len(self.head) + EDGE or position > length - EDGE or position % 16 == 0:
                yield position


VECTORS = [Vector.parse(table) for table in tomllib.loads(FILE.read_text(encoding="utf-8"))["vector"]]


@dataclass
class Outcome:
    status: int
    messages: tuple[str | bytes, ...]
    pongs: tuple[bytes, ...]
    close: int | None
    told: int | None


async def replay(protocol_cls: Any, config: Config, app: Application, pieces: list[bytes]) -> Outcome:
    """What comes of `pieces`, sent one after the other."""
    app.events = []
    app.done = False
    peer = Peer(protocol_cls, config)
    for piece in pieces:
        peer.send(piece)
        await asyncio.sleep(0)
    await peer.turn()
    frames = peer.frames if peer.status == 101 else []
    closes = [frame for frame in frames if frame.first == CLOSE]
    assert len(closes) <= 1 and closes == frames[len(frames) - len(closes) :]
    told = [event["code"] for event in app.events if event["type"] == "websocket.disconnect"]
    outcome = Outcome(
        status=peer.status,
        messages=tuple(app.messages),
        pongs=tuple(frame.payload for frame in frames if frame.first == PONG),
        close=(int.from_bytes(closes[0].payload[:2], "big") or 1005) if closes else None,
        told=told[0] if told else None,
    )
    peer.wire.lose()
    await asyncio.gather(*peer.state.tasks)
    return outcome


def expected(vector: Vector) -> Outcome:
    return Outcome(vector.status, vector.messages, vector.pongs, vector.close, vector.told)


def server(vector: Vector) -> tuple[Config, Application]:
    app = Application(listen)
    config = Config(app, interface="asgi3", log_config=None, ws_ping_interval=None, **vector.settings)
    return config, app


async def faults(protocol_cls: Any, ways: Callable[[Vector], Iterable[list[bytes]]]) -> list[str]:
    """What came of each vector in each of the `ways` to send it, where it is not what the vector states."""
    found = []
    for vector in VECTORS:
        config, app = server(vector)
        for pieces in ways(vector):
            outcome = await replay(protocol_cls, config, app, pieces)
            if outcome != expected(vector):
                found.append(f"{vector.id}, {len(pieces)} pieces, the first of {len(pieces[0])} bytes: {outcome}")
    return found


@pytest.mark.anyio
async def test_vectors_whole(ws_reader_cls: Any) -> None:
    assert await faults(ws_reader_cls, lambda vector: [[vector.data]]) == []


@pytest.mark.no_cover
@pytest.mark.anyio
async def test_vectors_cut_in_two_anywhere(ws_reader_cls: Any) -> None:
    def ways(vector: Vector) -> Iterable[list[bytes]]:
        return ([vector.data[:at], vector.data[at:]] for at in vector.cuts())

    assert await faults(ws_reader_cls, ways) == []


@pytest.mark.no_cover
@pytest.mark.anyio
async def test_vectors_one_byte_at_a_time(ws_reader_cls: Any) -> None:
    assert await faults(ws_reader_cls, lambda vector: [[bytes((byte,)) for byte in vector.data]]) == []


def test_rows_are_covered_by_vectors() -> None:
    assert set(ROWS) - {row for vector in VECTORS for row in vector.rows} == set()


def test_vectors_have_unique_names_and_differ() -> None:
    assert len({vector.id for vector in VECTORS}) == len(VECTORS)
    assert len({(vector.head, vector.frames, repr(vector.settings)) for vector in VECTORS}) == len(VECTORS)
