"""Doubts about results, in words, each cause once. Pure: samples and environments in, sentences out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import report, stats
from bench.model import Machine, Result, Sample, usable
from bench.report import FEWEST_BLOCKS

# Shares of one core, fractions, counts: beyond these a figure deserves a remark.
FOREIGN = 0.05
STEAL = 0.02
CLIENT = 0.95
SPREAD = 0.10
BUSY = 0.5
UNCOUNTED = 0.05


@dataclass(frozen=True)
class Seen:
    """What doubts are found in. The title says where, when several are looked at together."""

    samples: Sequence[Sample]
    environment: Mapping[str, Any]
    title: str = ""


def of(result: Result) -> list[str]:
    """What speaks against a result: its own notes, and what its samples and its environment show."""
    return [*result.notes, *doubts([Seen(result.samples, result.environment)])]


def doubts(seen: Sequence[Seen]) -> list[str]:
    """Everything a sceptic should know about these samples, most serious first."""
    return [
        *_voids(seen),
        *_repeats(seen),
        *_machines(seen),
        *_disturbance(seen),
        *_polling(seen),
        *_clients(seen),
        *_spread(seen),
        *_uncounted(seen),
        *_blocks(seen),
    ]


def where(titles: Iterable[str], every: int) -> str:
    """The titles concerned, in brackets, to append to a doubt; empty if there is only one."""
    several = list(dict.fromkeys(titles))
    if every == 1:
        return ""
    return f" ({'everywhere' if len(several) == every else '; '.join(several)})"


def _each(seen: Sequence[Seen]) -> Iterator[tuple[Seen, Sample]]:
    return ((one, sample) for one in seen for sample in one.samples)


def _usable(seen: Sequence[Seen]) -> Iterator[tuple[Seen, Sample]]:
    return ((one, sample) for one in seen for sample in usable(one.samples))


def _voids(seen: Sequence[Seen]) -> Iterable[str]:
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for one, sample in _each(seen):
        if sample.void:
            found.setdefault((sample.target, sample.workload), []).append((sample.void, one.title))
    # Each reason once, with all servers and results that it concerns.
    concerned: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for (target, workload), every in found.items():
        reasons, titles = zip(*every, strict=True)
        reason = reasons[0] + (", and the like" if len(set(reasons)) > 1 else "")
        concerned.setdefault(reason, []).append((f"{len(every)} of {target} on {workload}", titles))
    for reason, cases in concerned.items():
        place = where((title for _, titles in cases for title in titles), len(seen))
        yield f"bursts that do not count: {', '.join(case for case, _ in cases)}: {reason}{place}"


def _repeats(seen: Sequence[Seen]) -> Iterable[str]:
    repeated = [sample for _, sample in _each(seen) if sample.repeats]
    if repeated:
        thrown = sum(sample.repeats for sample in repeated)
        yield (
            f"{thrown} bursts were thrown away and repeated because other programs or the hypervisor used the server's "
            f"cores meanwhile ({len(repeated)} of {sum(len(one.samples) for one in seen)} places in the plan)"
        )


def _machines(seen: Sequence[Seen]) -> Iterable[str]:
    """What the machines and the interpreters do not offer."""
    found: dict[str, list[str]] = {}
    busy: dict[str, float] = {}
    plain: dict[str, None] = {}
    for one in seen:
        for doubt in _machine(one.environment):
            found.setdefault(doubt, []).append(one.title)
        load = one.environment.get("load_average", [0.0])[0]
        if load > BUSY:
            busy[one.title] = load
        targets = one.environment.get("targets", {})
        plain |= {name.partition(":")[0]: None for name, target in targets.items() if target.get("optimised") is False}
    if busy:
        yield f"the machine was busy before the start (load average {max(busy.values()):g}){where(busy, len(seen))}"
    for doubt, titles in found.items():
        yield doubt + where(titles, len(seen))
    if plain:
        yield f"Python was built without profile-guided optimisation for {', '.join(plain)}"


def _machine(environment: Mapping[str, Any]) -> Iterable[str]:
    if environment.get("pinning") == "not pinned":
        yield "client and server shared the same cores: throughput says little, CPU per request is what to read"
    if environment.get("governor") not in ("performance", "not visible", None):
        yield f"the CPU governor is {environment['governor']}: clock speed may have changed between bursts"
    if environment.get("virtual"):
        yield "a virtual machine: its neighbours are invisible"
    for name, target in environment.get("targets", {}).items():
        if target.get("debug"):
            yield f"{name} ran in a debug build of Python"
    pythons = {target["python"] for target in environment.get("targets", {}).values() if target["python"] != "none"}
    if len(pythons) > 1:
        yield f"the targets ran on different Python versions: {', '.join(sorted(pythons))}"


def _disturbance(seen: Sequence[Seen]) -> Iterable[str]:
    measured = [(one.title, sample.machine) for one, sample in _usable(seen) if sample.machine is not None]
    yield from _taken(measured, "foreign_cpu", FOREIGN, "other programs used", "of a core where the server ran")
    yield from _taken(measured, "steal", STEAL, "the hypervisor took", "of a core away")


def _taken(measured: Sequence[tuple[str, Machine]], share: str, limit: float, who: str, what: str) -> Iterable[str]:
    over = [(title, taken) for title, machine in measured if (taken := getattr(machine, share)) > limit]
    if over:
        titles = [title for title, _ in measured]
        concerned = dict.fromkeys(title for title, _ in over)
        often = f"more than {limit:.0%} in {len(over)} of {sum(title in concerned for title in titles)} bursts"
        yield f"{who} up to {max(taken for _, taken in over):.0%} {what}, {often}{where(concerned, len(set(titles)))}"


def _polling(seen: Sequence[Seen]) -> Iterable[str]:
    shares: dict[str, list[float]] = {}
    for _, sample in _usable(seen):
        if sample.usage:
            shares.setdefault(sample.target, []).append(sample.usage.idle)
    for target, found in shares.items():
        # One that is busy after some of its bursts alone has work left over from them.
        if share := stats.median(found):
            yield (
                f"{target} polls: without a request it uses {share:.0%} of a core, and at less than full load its CPU "
                "per request is that, too; what it uses before and after a burst is left out"
            )


def _clients(seen: Sequence[Seen]) -> Iterable[str]:
    full: dict[str, list[str]] = {}
    for one, sample in _usable(seen):
        if sample.machine and _client_full(sample.machine, sample):
            full.setdefault(sample.target, []).append(one.title)
    said = [target + where(titles, len(seen)) for target, titles in sorted(full.items())]
    if said:
        yield f"the client was at its limit against {', '.join(said)}: throughput there is the client's"


def _client_full(machine: Machine, sample: Sample) -> bool:
    # An open loop spins while it waits; it says itself when it could not keep up.
    load = sample.load
    return load.rate is None and machine.client_cpu > CLIENT * min(load.threads, load.connections)


def _groups(seen: Sequence[Seen]) -> list[tuple[report.Case, list[Sample]]]:
    """What each part has measured, case by case."""
    return [found for one in seen for found in report.groups(usable(one.samples)).items()]


def _spread(seen: Sequence[Seen]) -> Iterable[str]:
    wide = []
    groups = _groups(seen)
    for case, group in groups:
        values = [sample.cpu_per_request for sample in group if sample.usage]
        spread = stats.deviation(values) / stats.mean(values) if len(values) > 1 else 0.0
        if spread > SPREAD:
            wide.append((spread, case, stats.runs_needed(values)))
    if wide:
        spread, case, needed = max(wide, key=lambda one: one[0])
        place = f"{case.target} on {case.workload} ({case.connections} connections)"
        yield (
            f"CPU per request varies by more than {SPREAD:.0%} from burst to burst in {len(wide)} of {len(groups)} "
            f"cases, most of all {place}, by {spread:.0%}: about {needed} bursts would be needed to know that to 1%; "
            "ratios are of bursts of one block"
        )


def _uncounted(seen: Sequence[Seen]) -> Iterable[str]:
    """wrk leaves out the requests under way when a burst ends; the server's CPU time has a part of theirs."""
    worst: dict[str, float] = {}
    for case, group in _groups(seen):
        shares = [
            sample.load.connections * sample.load.pipeline / sample.burst.requests
            for sample in group
            if sample.load.tool == "wrk" and sample.burst and sample.burst.requests
        ]
        if shares and max(shares) > UNCOUNTED:
            worst[case.workload] = max(worst.get(case.workload, 0.0), *shares)
    if worst:
        said = [f"{workload} (up to {share:.0%} of the requests)" for workload, share in worst.items()]
        yield f"requests under way at the end of a burst are not counted, which favours fast servers: {', '.join(said)}"


def _blocks(seen: Sequence[Seen]) -> Iterable[str]:
    compared = (samples for one in seen for samples in report.comparisons(one.samples).values())
    # One without a pair has no interval, and its bursts are doubts of their own.
    fewest = min(filter(None, (len(report.paired(samples)) for samples in compared)), default=FEWEST_BLOCKS)
    if fewest < FEWEST_BLOCKS:
        yield f"only {fewest} blocks in a comparison: its interval is so wide that only large differences show"
