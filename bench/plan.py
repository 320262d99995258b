"""In which order to measure: pure, seeded, interleaved."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bench.model import Load
from bench.scenario import Mode, Workload
from bench.targets import Target


@dataclass(frozen=True)
class Scenario:
    """A workload in a mode under a load: everything but the server."""

    workload: Workload
    mode: Mode
    load: Load


@dataclass(frozen=True)
class Block:
    """Fresh processes for each side, and the order of bursts against them."""

    number: int
    scenario: Scenario
    sides: dict[str, Target]
    order: tuple[str, ...]


def comparison(scenario: Scenario, first: Target, second: Target, *, blocks: int, seed: int = 1) -> list[Block]:
    """A B B A per block, or B A A B, drawn at random: slow drift of the machine cancels within each block."""
    generator = random.Random(seed)
    orders = [("A", "B", "B", "A"), ("B", "A", "A", "B")]
    sides = {"A": first, "B": second}
    return [Block(number, scenario, sides, generator.choice(orders)) for number in range(blocks)]


def survey(scenarios: Sequence[Scenario], targets: Sequence[Target], *, rounds: int, seed: int = 1) -> list[Block]:
    """Every target in every scenario, `rounds` times, in a new random order each round."""
    generator = random.Random(seed)
    blocks: list[Block] = []
    for scenario in scenarios:
        for _ in range(rounds):
            for target in generator.sample(list(targets), len(targets)):
                blocks.append(Block(len(blocks), scenario, {"A": target}, ("A",)))
    return blocks


def numbered(blocks: Iterable[Block]) -> list[Block]:
    """The same blocks numbered through, so that several plans can be one."""
    return [replace(block, number=number) for number, block in enumerate(blocks)]


def pairs(order: Sequence[str]) -> list[tuple[int, int]]:
    """The neighbouring bursts of a block that make a pair: (slot of A, slot of B)."""
    found = []
    for slot in range(0, len(order) - 1, 2):
        first, second = order[slot], order[slot + 1]
        if {first, second} == {"A", "B"}:
            found.append((slot, slot + 1) if first == "A" else (slot + 1, slot))
    return found


def seconds(blocks: Sequence[Block], *, warm_up: float, start: float = 1.0) -> float:
    """About how long a plan takes."""
    return sum(
        len(block.order) * (block.scenario.load.seconds + 0.4) + len(block.sides) * (warm_up + start)
        for block in blocks
    )
