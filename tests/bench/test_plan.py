"""The order of measurements: interleaved, seeded, complete."""

from __future__ import annotations

import pytest

from bench import plan, stats, targets
from bench.model import Load
from bench.plan import Scenario
from bench.scenario import WORKLOADS, Mode

SCENARIO = Scenario(WORKLOADS["hello"], Mode(), Load("wrk", 50, 1, 1.0))
OURS, UPSTREAM = targets.find("ours"), targets.find("upstream")


def test_each_block_has_both_servers_twice_and_mirrored() -> None:
    blocks = plan.comparison(SCENARIO, OURS, UPSTREAM, blocks=20)
    assert {block.order for block in blocks} == {("A", "B", "B", "A"), ("B", "A", "A", "B")}
    assert [block.number for block in blocks] == list(range(20))


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param("ABBA", [(0, 1), (3, 2)], id="ABBA"),
        pytest.param("BAAB", [(1, 0), (2, 3)], id="BAAB"),
        pytest.param("A", [], id="one burst"),
        pytest.param("AAB", [], id="no neighbours that differ"),
    ],
)
def test_neighbours_make_pairs_of_a_and_b(order: str, expected: list[tuple[int, int]]) -> None:
    assert plan.pairs(order) == expected


def test_a_machine_that_slows_down_steadily_does_not_change_the_ratio() -> None:
    clock, groups = 0.0, []
    for block in plan.comparison(SCENARIO, OURS, UPSTREAM, blocks=6):
        values = []
        for side in block.order:
            values.append({"A": 2.0, "B": 1.0}[side] * (1 + clock))
            clock += 0.01
        groups.append([(values[a], values[b]) for a, b in plan.pairs(block.order)])
    assert stats.paired_ratio(groups).value == pytest.approx(2.0, rel=0.001)


def test_a_seed_gives_the_same_plan_and_another_seed_another() -> None:
    def orders(seed: int) -> list[tuple[str, ...]]:
        return [block.order for block in plan.comparison(SCENARIO, OURS, UPSTREAM, blocks=16, seed=seed)]

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)


def test_a_survey_measures_every_target_in_every_round() -> None:
    chosen = [targets.find(name) for name in ("ours", "upstream", "granian")]
    blocks = plan.survey([SCENARIO, SCENARIO], chosen, rounds=3)
    assert len(blocks) == 18
    for start in range(0, 18, 3):
        assert {block.sides["A"].name for block in blocks[start : start + 3]} == {"ours", "upstream", "granian"}
    assert [block.number for block in plan.numbered(reversed(blocks))] == list(range(18))
