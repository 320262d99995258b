"""Sessions beside the sans-IO core of `websockets`: the same messages, pongs and codes of random streams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocols.websocket_oracle import expected, found, make_case
from tests.utils import deep_after

pytestmark = pytest.mark.anyio

STREAMS = 60


@pytest.mark.parametrize("part", deep_after(1, range(4)))
async def test_random_streams_are_what_the_library_takes_them_for(ws_reader_cls: Any, part: int) -> None:
    """W8 W10 W11; `python -m tests.protocols.websocket_oracle` goes on for as long as one likes."""
    for seed in range(part, STREAMS, 4):
        case = make_case(seed)
        wanted = expected(case)
        outcome, echoes = await found(case, ws_reader_cls)
        assert outcome == wanted, f"seed {seed}"
        assert echoes == wanted.messages, f"seed {seed}"


def test_streams_end_in_every_way() -> None:
    """Otherwise nothing would be compared."""
    outcomes = [expected(make_case(seed)) for seed in range(STREAMS)]
    assert {None, 1000, 1002, 1007, 1009} <= {outcome.code for outcome in outcomes}
    assert sum(len(outcome.messages) for outcome in outcomes) > STREAMS
    assert any(outcome.pongs for outcome in outcomes)
    assert {make_case(seed).deflate for seed in range(STREAMS)} == {False, True}
