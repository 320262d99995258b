"""Doubts about a result, in words. Pure: samples and an environment in, sentences out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench import stats
from bench.model import Sample, usable
from bench.report import FEWEST_BLOCKS

# Shares of one core, fractions, counts: beyond these a figure deserves a remark.
FOREIGN = 0.05
STEAL = 0.02
CLIENT = 0.95
SPREAD = 0.10
FEW_REQUESTS = 1000


def doubts(samples: Sequence[Sample], environment: Mapping[str, Any]) -> list[str]:
    """Everything a sceptic should know about these samples, most serious first."""
    return [
        *_voids(samples),
        *_repeats(samples),
        *_machine(environment),
        *_disturbance(samples),
        *_spread(samples),
        *_tails(samples),
        *_blocks(samples),
    ]


def _voids(samples: Sequence[Sample]) -> Iterable[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for sample in samples:
        if sample.void:
            reasons.setdefault((sample.target, sample.void), []).append(sample.workload)
    for (target, reason), workloads in reasons.items():
        where = ", ".join(dict.fromkeys(workloads))
        yield f"{len(workloads)} bursts of {target} on {where} do not count: {reason}"


def _repeats(samples: Sequence[Sample]) -> Iterable[str]:
    repeated = [sample for sample in samples if sample.repeats]
    if repeated:
        thrown = sum(sample.repeats for sample in repeated)
        yield (
            f"{thrown} bursts were thrown away and repeated because other programs or the hypervisor used the server's "
            f"cores meanwhile ({len(repeated)} of {len(samples)} places in the plan)"
        )


def _machine(environment: Mapping[str, Any]) -> Iterable[str]:
    if environment.get("pinning") == "not pinned":
        yield "client and server shared the same cores: throughput says little, CPU per request is what to read"
    load = environment.get("load_average", [0.0])[0]
    if load > 0.5:
        yield f"the machine was busy before the start (load average {load:g})"
    if environment.get("governor") not in ("performance", "not visible", None):
        yield f"the CPU governor is {environment['governor']}: clock speed may have changed between bursts"
    if environment.get("virtual"):
        yield "a virtual machine: its neighbours are invisible"
    for name, target in environment.get("targets", {}).items():
        if target.get("debug"):
            yield f"{name} ran in a debug build of Python"
    plain = [name for name, target in environment.get("targets", {}).items() if target.get("optimised") is False]
    if plain:
        yield f"Python was built without profile-guided optimisation for {', '.join(plain)}"
    pythons = {target["python"] for target in environment.get("targets", {}).values() if target["python"] != "none"}
    if len(pythons) > 1:
        yield f"the targets ran on different Python versions: {', '.join(sorted(pythons))}"


def _disturbance(samples: Sequence[Sample]) -> Iterable[str]:
    measured = [sample.machine for sample in usable(samples) if sample.machine is not None]
    if not measured:
        return
    foreign = max(machine.foreign_cpu for machine in measured)
    if foreign > FOREIGN:
        yield f"other programs used up to {foreign:.0%} of a core where the server ran"
    steal = max(machine.steal for machine in measured)
    if steal > STEAL:
        yield f"the hypervisor took up to {steal:.0%} of a core away"
    busiest = [sample for sample in usable(samples) if sample.machine and _client_full(sample)]
    for target in sorted({sample.target for sample in busiest}):
        yield f"the client was at its limit against {target}: throughput there is the client's, not the server's"


def _client_full(sample: Sample) -> bool:
    # An open loop spins while it waits; it says itself when it could not keep up.
    return (
        sample.machine is not None
        and sample.load.rate is None
        and sample.machine.client_cpu > CLIENT * min(sample.load.threads, sample.load.connections)
    )


def _groups(samples: Sequence[Sample]) -> dict[tuple[str, str, int], list[Sample]]:
    groups: dict[tuple[str, str, int], list[Sample]] = {}
    for sample in usable(samples):
        groups.setdefault((sample.target, sample.workload, sample.load.connections), []).append(sample)
    return groups


def _spread(samples: Sequence[Sample]) -> Iterable[str]:
    wide = []
    groups = _groups(samples)
    for key, group in groups.items():
        values = [sample.cpu_per_request for sample in group if sample.usage]
        spread = stats.deviation(values) / stats.mean(values) if len(values) > 1 else 0.0
        if spread > SPREAD:
            wide.append((spread, key, stats.runs_needed(values)))
    if wide:
        spread, (target, workload, connections), needed = max(wide)
        yield (
            f"CPU per request varies by more than {SPREAD:.0%} from burst to burst in {len(wide)} of {len(groups)} "
            f"cases, most of all {target} on {workload} ({connections} connections), by {spread:.0%}: about {needed} "
            "bursts would be needed to know that to 1%; ratios are of bursts side by side"
        )


def _tails(samples: Sequence[Sample]) -> Iterable[str]:
    few = []
    for (target, workload, connections), group in _groups(samples).items():
        fewest = min(sample.burst.requests for sample in group if sample.burst)
        if fewest < FEW_REQUESTS:
            few.append(f"{target} on {workload} ({connections} connections, {fewest} requests)")
    if few:
        yield f"p99.9 rests on fewer than {FEW_REQUESTS} requests: {', '.join(few)}"


def _blocks(samples: Sequence[Sample]) -> Iterable[str]:
    blocks: dict[tuple[str, str, int], set[int]] = {}
    for sample in usable(samples):
        if sample.side not in ("", "A"):
            blocks.setdefault((sample.workload, sample.target, sample.load.connections), set()).add(sample.block)
    fewest = min(map(len, blocks.values()), default=FEWEST_BLOCKS)
    if fewest < FEWEST_BLOCKS:
        yield f"only {fewest} blocks in a comparison: its interval is so wide that only large differences show"
