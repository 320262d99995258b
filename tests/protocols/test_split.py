"""Every HTTP/1.1 vector cut: in two, and one byte at a time. Packets have no meaning (U6, D5).

An input longer than `WHOLE` bytes (limits, floods) is cut in the first and last `EDGE` bytes, around each multiple of
the usual read size, and at some places in between; and only those first and last bytes arrive one at a time.

The machine's state after the first piece is the same for all vectors that begin with it. So a beginning that vectors
share is cut by the first of them only, and within a word only behind the first letter. The nightly run cuts at every
byte, and shared beginnings by each of the other vectors at every `TURNS`th. One byte at a time, every vector comes in
every piece, over a socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Any

import pytest

from tests import machines
from tests.utils import deep_after
from tests.vectors.judge import verdict
from tests.vectors.loader import Vector, groups
from tests.vectors.replay import replay
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.http.protocol import HTTPProtocol

# The same code as for whole vectors, which are covered: tracing it would take three times as long.
pytestmark = pytest.mark.no_cover

# Each machine puts pieces together; both libraries are given whole heads by that of Python.
http_protocol_cls = machines.each

GROUPS = groups()

#: Inputs up to this length are cut at every byte.
WHOLE = 1024
#: Of longer ones, this many bytes at either end.
EDGE = 48
#: And these many places in between, evenly.
PLACES = 8
#: What transports and flow control count in.
READ_SIZE = 65536
#: Vectors that share a beginning cut it by turns, each at every so many bytes.
TURNS = 4

#: Connections served side by side, sharing the turns of the loop; and how many of those with a long input.
SIDE_BY_SIDE = 64
SIDE_BY_SIDE_LONG = 8


@pytest.fixture(autouse=True)
def refusals_are_not_logged() -> None:
    """Hundreds of connections a test, most of them refused: capturing each warning would take longer than the rest."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def cuts(length: int) -> list[int]:
    """Where to cut an input of this length in two."""
    if length <= WHOLE:
        return list(range(1, length))
    edges = {*range(1, EDGE), *range(length - EDGE, length)}
    between = {length * place // PLACES for place in range(1, PLACES)}
    reads = {at + step for at in range(READ_SIZE, length, READ_SIZE) for step in (-1, 0, 1)}
    return sorted(at for at in edges | between | reads if 0 < at < length)


def beginning(vector: Vector, at: int) -> object:
    """What the first piece is to the machine: bytes under conditions."""
    return vector.app, tuple(sorted(vector.settings.items())), vector.data[:at]


def within_a_word(vector: Vector, at: int) -> bool:
    """Whether another place in front of this one, in the same run of letters and digits, shows the same."""
    return at >= 2 and vector.data[at - 2 : at + 1].isalnum()


@cache
def places(everywhere: bool) -> dict[str, list[int]]:
    """Where to cut each vector: after each beginning that none before it had; everywhere, more often (see above)."""
    found: dict[str, list[int]] = {}
    met: set[object] = set()
    for turn, vector in enumerate(chain.from_iterable(GROUPS.values())):
        found[vector.id] = []
        for at in cuts(len(vector.data)):
            is_new = at > WHOLE or beginning(vector, at) not in met
            if (is_new and (everywhere or not within_a_word(vector, at))) or (everywhere and (at + turn) % TURNS == 0):
                found[vector.id].append(at)
        met.update(beginning(vector, at) for at in found[vector.id] if at <= WHOLE)
    return found


def crumbs(data: bytes) -> Iterator[bytes]:
    """The input one byte at a time; of a long one, the middle in pieces."""
    if len(data) <= WHOLE:
        yield from (data[at : at + 1] for at in range(len(data)))
        return
    yield from crumbs(data[:EDGE])
    middle = data[EDGE:-EDGE]
    yield from (middle[at : at + READ_SIZE // 16] for at in range(0, len(middle), READ_SIZE // 16))
    yield from crumbs(data[-EDGE:])


def test_libraries_read_with_the_same_machine() -> None:
    """Else each would have to be given the pieces."""
    for name in ("data_received", "eof_received"):
        assert getattr(HttpToolsProtocol, name) is getattr(H11Protocol, name) is getattr(HTTPProtocol, name)


@pytest.mark.anyio
@pytest.mark.parametrize("everywhere", deep_after(1, [False, True]))
@pytest.mark.parametrize("group", GROUPS)
async def test_vectors_cut_in_two_anywhere_have_the_same_outcome(
    group: str, everywhere: bool, http_protocol_cls: Any
) -> None:
    """U6: a request in two packets is that in one."""

    async def faults(vector: Vector, at: int) -> list[str]:
        found = verdict(
            vector, await replay(http_protocol_cls, vector, [vector.data[:at], vector.data[at:]], in_memory=True)
        )
        return [f"{vector.id} cut at {at}: {fault}" for fault in found]

    failed: list[str] = []
    for vector in GROUPS[group]:
        found = places(everywhere)[vector.id]
        side_by_side = SIDE_BY_SIDE if len(vector.data) <= WHOLE else SIDE_BY_SIDE_LONG
        for start in range(0, len(found), side_by_side):
            outcomes = await asyncio.gather(*(faults(vector, at) for at in found[start : start + side_by_side]))
            failed += chain.from_iterable(outcomes)
    assert failed == []


def test_every_beginning_is_cut_at_every_byte() -> None:
    vectors = list(chain.from_iterable(GROUPS.values()))
    cut = {beginning(vector, at) for vector in vectors for at in places(True)[vector.id] if at <= WHOLE}
    assert cut == {beginning(vector, at) for vector in vectors for at in cuts(len(vector.data)) if at <= WHOLE}


@pytest.mark.anyio
@pytest.mark.parametrize("group", GROUPS)
async def test_vectors_byte_by_byte_have_the_same_outcome(group: str, http_protocol_cls: Any) -> None:
    """U6, D5: as a client that sends one byte after the other."""
    failed: list[str] = []
    for vector in GROUPS[group]:
        found = verdict(vector, await replay(http_protocol_cls, vector, crumbs(vector.data)))
        failed += [f"{vector.id}: {fault}" for fault in found]
    assert failed == []
