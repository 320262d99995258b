"""The order of measurements: interleaved, seeded, complete."""

from __future__ import annotations

import pytest

from bench import plan, report, targets
from bench.model import Load
from bench.plan import Scenario
from bench.report import METRICS
from bench.scenario import WORKLOADS, Mode
from tests.bench import records

SCENARIO = Scenario(WORKLOADS["hello"], Mode(), Load("wrk", 50, 1, 1.0))
OURS, UPSTREAM = targets.find("ours"), targets.find("upstream")


def test_each_block_has_everybody_once_and_the_next_one_is_mirrored() -> None:
    blocks = plan.comparison(SCENARIO, OURS, [UPSTREAM, OURS], blocks=20)
    assert [block.number for block in blocks] == list(range(20))
    assert all(sorted(block.order) == ["A", "B", "C"] for block in blocks)
    assert all(later.order == first.order[::-1] for first, later in zip(blocks[::2], blocks[1::2], strict=True))
    assert {block.order for block in blocks} > {("A", "B", "C")}
    assert [side.name for _, side in sorted(blocks[0].sides.items())] == ["ours", "upstream", "ours"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param("ABBA", [(0, 1), (3, 2)], id="ABBA"),
        pytest.param("BAAB", [(1, 0), (2, 3)], id="BAAB"),
        pytest.param("ACBBCA", [(0, 2), (5, 3)], id="with others between"),
        pytest.param("A", [], id="one burst"),
        pytest.param("ABB", [(0, 1)], id="cut short"),
    ],
)
def test_bursts_of_a_and_b_make_pairs_in_their_order(order: str, expected: list[tuple[int, int]]) -> None:
    samples = [records.sample(side, side, slot=slot) for slot, side in enumerate(order)]
    [pairs] = report.paired(samples) or [[]]
    assert [(a.slot, b.slot) for a, b in pairs] == expected


def test_a_machine_that_slows_down_steadily_does_not_change_the_ratio() -> None:
    clock, samples = 1.0, []
    for block in plan.comparison(SCENARIO, OURS, [UPSTREAM, OURS], blocks=6):
        for slot, side in enumerate(block.order):
            cpu = {"A": 2e-5, "B": 1e-5, "C": 4e-5}[side] * clock
            samples.append(records.sample(block.sides[side].name, side, cpu=cpu, block=block.number, slot=slot))
            clock += 0.01
    found = {key[4]: report.compare(chosen, METRICS[0]) for key, chosen in report.comparisons(samples).items()}
    ratios = {name: one.ratio.value for name, one in found.items() if one}
    assert ratios == {"upstream": pytest.approx(2.0, rel=0.001), "ours": pytest.approx(0.5, rel=0.001)}


def test_a_seed_gives_the_same_plan_and_another_seed_another() -> None:
    def orders(seed: int) -> list[tuple[str, ...]]:
        return [block.order for block in plan.comparison(SCENARIO, OURS, [UPSTREAM], blocks=16, seed=seed)]

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)


def test_a_survey_measures_every_target_in_every_round() -> None:
    chosen = [targets.find(name) for name in ("ours", "upstream", "granian")]
    blocks = plan.survey([SCENARIO, SCENARIO], chosen, rounds=3)
    assert len(blocks) == 18
    for start in range(0, 18, 3):
        assert {block.sides["A"].name for block in blocks[start : start + 3]} == {"ours", "upstream", "granian"}
    assert [block.number for block in plan.numbered(reversed(blocks))] == list(range(18))
