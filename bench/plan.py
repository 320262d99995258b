"""In which order to measure: pure, seeded, interleaved."""

from __future__ import annotations

import random
import string
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

    def seen_by(self, target: Target) -> Scenario:
        """The same with the version of HTTP that the options of a target name."""
        over = {name: value for name, value in target.options.items() if name == "over" and self.workload.http3}
        workload = replace(self.workload, options={**self.workload.options, **over}) if over else self.workload
        return replace(self, workload=workload)


@dataclass(frozen=True)
class Block:
    """The order of bursts, each against a fresh process of its side."""

    number: int
    scenario: Scenario
    sides: dict[str, Target]
    order: tuple[str, ...]


def comparison(
    scenario: Scenario, first: Target, rivals: Sequence[Target], *, blocks: int, seed: int = 1
) -> list[Block]:
    """Each target once per block: in a random order, and in the mirrored one in the next block (B C A, A C B).

    Slow drift of the machine cancels from block to block. Side A is the one the others are compared with.
    """
    generator = random.Random(seed)
    sides = dict(zip(string.ascii_uppercase, [first, *rivals], strict=False))
    found: list[Block] = []
    for number in range(blocks):
        mirrored = number % 2 == 1
        order = found[-1].order[::-1] if mirrored else tuple(generator.sample(sorted(sides), len(sides)))
        found.append(Block(number, scenario, sides, order))
    return found


def survey(scenarios: Sequence[Scenario], targets: Sequence[Target], *, rounds: int, seed: int = 1) -> list[Block]:
    """Every target in every scenario, `rounds` times, in a new random order each round."""
    generator = random.Random(seed)
    blocks: list[Block] = []
    for scenario in scenarios:
        for _ in range(rounds):
            for target in generator.sample(list(targets), len(targets)):
                blocks.append(Block(len(blocks), scenario, {"A": target}, ("A",)))
    return blocks


def numbered(blocks: Iterable[Block], first: int = 0) -> list[Block]:
    """The same blocks numbered through, so that several plans can be one."""
    return [replace(block, number=number) for number, block in enumerate(blocks, first)]
