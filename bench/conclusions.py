"""One sentence about a result beside the stored ones, for a reader who looks at nothing else. Pure.

Figures that other machines find, too, are judged: ratios of two servers measured together, memory, allocations. Rates
are judged on the machine of the stored ones alone. A ratio is judged by the interval of both measurements: it is worse
if the whole of that is beyond a margin, and as stored if all of it is within.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench import environment, report, stats
from bench.errors import BenchError
from bench.judge import FOREIGN_MARGIN, RATIO_MARGIN
from bench.model import Result, Sample, usable
from bench.stats import Interval

# What another hour on the same machine may do to rates, and what may be due to chance of memory and allocations, which
# repeat. Of ratios, that is the margin of the gate.
RATE_MARGIN, EXACT_MARGIN = 0.25, 0.10
AS_STORED, WORSE, BETTER = "as stored", "worse than stored", "better than stored"
UNSURE = "Too uncertain to see a change of"
# Beside which server a run is judged, wherever it was measured.
RIVAL = "upstream"

Place = tuple[str, int, str]


@dataclass(frozen=True)
class Conclusion:
    """What to conclude; `is_worse` if something is worse than stored by more than chance."""

    text: str
    is_worse: bool


def of(stored: Sequence[Result], result: Result) -> Conclusion:
    """Conclude from a result; raises BenchError for kinds without a conclusion."""
    for one in stored:
        if one.kind not in KINDS.get(result.kind, ((), None))[0]:
            raise BenchError(f"no conclusion from {result.kind} beside {one.kind}")
    return KINDS[result.kind][1](stored, result)


def _compare(stored: Sequence[Result], result: Result) -> Conclusion:
    then = {key: ratio for one in stored for key, ratio in _speedups(one)}
    found = {key: ratio for key, ratio in _speedups(result) if key in then}
    if not found or not all(map(usable, report.groups(result.samples).values())):
        return _failed(result) or _nothing()
    told = ", ".join(
        f"{rival} {now.value:.2f} times on {workload} (stored: {then[workload, rival].value:.2f})"
        for (workload, rival), now in found.items()
    )
    changes = {f"the ratio to {key[1]} on {key[0]}": stats.quotient(now, then[key]) for key, now in found.items()}
    return _judged(f"CPU per request over this tree's: {told}", changes, _margin(stored, result))


def _speedups(result: Result) -> Iterator[tuple[tuple[str, str], Interval]]:
    """CPU per request of the others over that of the first, by workload and name."""
    for (workload, _, _, first, second), one in report.speedups(result.samples):
        if first != second:
            yield (workload, second), one.ratio


def _run(stored: Sequence[Result], result: Result) -> Conclusion:
    if failed := _failed(result):
        return failed
    now = _medians(result, "ours", lambda one: one.rps)
    if not now:
        return Conclusion(
            "all cases answered rightly; this tree is not among the targets, and only its figures are stored", False
        )
    best, (_, connections, _) = max((rate, place) for place, rate in now.items())
    told = f"all cases answered rightly, {best:,.0f} requests/s at best ({connections} connections)"
    if ratios := _ratios([result]):
        then = _ratios(stored)
        if not (known := [place for place in ratios if place in then]):
            return Conclusion(f"{told}; none of these cases is stored", False)
        ratio, before = (stats.geometric_mean([one[place] for place in known]) for one in (ratios, then))
        told += f"; {RIVAL} needs {ratio:.2f} times the CPU per request (stored: {before:.2f}; cases: {len(known)})"
        changes = {"the mean ratio": _mean_change(known, ratios, then)}
        return _judged(told, changes, _margin(stored, result))
    if _is_foreign(stored, result):
        why = f"rates are not judged on another machine than the stored ones, nor is CPU without {RIVAL} beside it"
        return Conclusion(f"{told}; {why}", False)
    then = {place: rate for one in stored for place, rate in _medians(one, "ours", lambda one: one.rps).items()}
    known = [place for place in now if place in then]
    if not known:
        return Conclusion(f"{told}; none of these cases is stored", False)
    return _judged(told, {"the mean rate": _mean_change(known, now, then)}, RATE_MARGIN)


def _medians(result: Result, target: str, of: Callable[[Sample], float]) -> dict[Place, float]:
    """A figure of a target, by workload, connections and load generator."""
    return {
        (case.workload, case.connections, case.client): stats.median([of(one) for one in usable(group)])
        for case, group in report.groups(result.samples).items()
        if case.target == target and usable(group)
    }


def _ratios(results: Sequence[Result]) -> dict[Place, float]:
    """CPU per request of the rival over this tree's, where one result has both."""
    found: dict[Place, float] = {}
    for result in results:
        ours, others = (_medians(result, name, lambda one: one.cpu_per_request) for name in ("ours", RIVAL))
        found |= {place: others[place] / cpu for place, cpu in ours.items() if place in others}
    return found


def _mean_change(known: Sequence[Place], now: Mapping[Place, float], then: Mapping[Place, float]) -> Interval:
    """Now over stored, the mean over all cases: each of them is a measurement of its own."""
    return stats.paired_ratio([[(now[place], then[place])] for place in known])


def _is_foreign(stored: Sequence[Result], result: Result) -> bool:
    """Whether a stored result is of another machine."""
    try:
        for one in stored:
            environment.same_machine(one.environment, result.environment)
    except BenchError:
        return True
    return False


def _margin(stored: Sequence[Result], result: Result) -> float:
    return FOREIGN_MARGIN if _is_foreign(stored, result) else RATIO_MARGIN


def _micro(stored: Sequence[Result], result: Result) -> Conclusion:
    then = {case: figures for one in stored for case, figures in one.data["records"].items()}
    changes, told = [], []
    for case, figures in result.data["records"].items():
        before: Mapping[str, float] = then.get(case, {})
        for key, what in (
            ("held", "a connection holds {:.1f} KiB"),
            ("allocations", "a request allocates {:.1f} times"),
        ):
            if key in figures and before.get(key):
                changes.append(before[key] / max(figures[key], 0.001))
                if case == next(iter(result.data["records"])):
                    told.append(what.format(figures[key] / 1024 if key == "held" else figures[key]) + f" ({case})")
    if not changes:
        return _nothing()
    exact = {"one case": Interval(min(changes), min(changes), min(changes))}
    return _judged(", ".join(told) or "memory of each case is known", exact, EXACT_MARGIN)


def _judged(told: str, changes: Mapping[str, Interval], margin: float) -> Conclusion:
    """Judge changes, now over stored, by the case whose interval lies lowest; above 1 is better."""
    name, worst = min(changes.items(), key=lambda change: change[1].high)
    if worst.high < 1 - margin:
        return Conclusion(f"{told}. {name[0].upper()}{name[1:]} is {1 / worst.value:.2f} times {WORSE}", True)
    unsure = [
        f"{name} is {one.value:.2f} ({one.words('.2f')})" for name, one in changes.items() if one.low < 1 - margin
    ]
    if unsure:
        return Conclusion(f"{told}. {UNSURE} {margin:.0%}: {', '.join(unsure)} times the stored one", False)
    if all(one.low > 1 + margin for one in changes.values()):
        return Conclusion(f"{told}. That is {BETTER}", False)
    return Conclusion(f"{told}. That is {AS_STORED}, within {margin:.0%}", False)


def _failed(result: Result) -> Conclusion | None:
    reasons = sorted({sample.void for sample in result.samples if sample.void})
    return Conclusion(f"not every burst counts: {'; '.join(reasons)}", True) if reasons else None


def _nothing() -> Conclusion:
    return Conclusion("none of these cases is stored: nothing to compare with", False)


# For each kind, the kinds of stored results that it can be held against, and how.
KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[Sequence[Result], Result], Conclusion]]] = {
    "compare": (("compare",), _compare),
    "run": (("run", "compare"), _run),
    "micro": (("micro",), _micro),
}
