"""Every WebSocket vector on every implementation: whole, cut in two at every byte, one byte at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
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

    def cuts(self) -> Iterator[list[bytes]]:
        """The same bytes in all ways they can be cut in two; heads that are followed by something stay in one piece."""
        data = self.head + self.frames
        for position in range(len(self.head) - 2 if self.frames else 1, len(data)):
            yield [data[:position], data[position:]]


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


@pytest.mark.anyio
@pytest.mark.parametrize("vector", VECTORS, ids=attrgetter("id"))
async def test_vector_whole(vector: Vector, ws_protocol_cls: Any) -> None:
    config, app = server(vector)
    assert await replay(ws_protocol_cls, config, app, [vector.head + vector.frames]) == expected(vector)


@pytest.mark.no_cover
@pytest.mark.anyio
@pytest.mark.parametrize("vector", VECTORS, ids=attrgetter("id"))
async def test_vector_cut_in_two_at_every_byte(vector: Vector, ws_protocol_cls: Any) -> None:
    config, app = server(vector)
    for pieces in vector.cuts():
        assert await replay(ws_protocol_cls, config, app, pieces) == expected(vector), len(pieces[0])


@pytest.mark.no_cover
@pytest.mark.anyio
@pytest.mark.parametrize("vector", VECTORS, ids=attrgetter("id"))
async def test_vector_one_byte_at_a_time(vector: Vector, ws_protocol_cls: Any) -> None:
    config, app = server(vector)
    pieces = [bytes((byte,)) for byte in vector.head + vector.frames]
    assert await replay(ws_protocol_cls, config, app, pieces) == expected(vector)


@pytest.mark.parametrize("row", ROWS)
def test_row_is_covered_by_a_vector(row: str) -> None:
    assert any(row in vector.rows for vector in VECTORS)


def test_vectors_have_unique_names_and_differ() -> None:
    assert len({vector.id for vector in VECTORS}) == len(VECTORS)
    assert len({(vector.head, vector.frames, repr(vector.settings)) for vector in VECTORS}) == len(VECTORS)
