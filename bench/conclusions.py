"""One sentence about a result beside the stored one of its kind, for a reader who looks at nothing else. Pure.

Figures that other machines find, too, are judged: ratios of two servers measured together, memory, allocations. Rates
are judged on the machine of the stored ones alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bench import environment, report, stats
from bench.errors import BenchError
from bench.model import Result, Sample, usable

# What may be due to chance, of ratios and rates; and of memory and allocations, which repeat.
MARGIN, EXACT_MARGIN = 0.25, 0.10
AS_STORED, WORSE, BETTER = "as stored", "worse than stored", "better than stored"


@dataclass(frozen=True)
class Conclusion:
    """What to conclude; `is_worse` if something is worse than stored by more than chance."""

    text: str
    is_worse: bool


def of(stored: Result, result: Result) -> Conclusion:
    """Conclude from a result; raises BenchError for kinds without a conclusion."""
    if result.kind not in KINDS or stored.kind != result.kind:
        raise BenchError(f"no conclusion from {result.kind} beside {stored.kind}")
    return KINDS[result.kind](stored, result)


def _compare(stored: Result, result: Result) -> Conclusion:
    then = dict(_speedups(stored))
    found = [(key, now, then[key]) for key, now in _speedups(result) if key in then]
    if not found or not all(map(usable, report.groups(result.samples).values())):
        return _failed(result) or _nothing()
    changes = [now / before for _, now, before in found]
    told = ", ".join(
        f"{rival} {now:.2f} times on {workload} (stored: {before:.2f})" for (workload, rival), now, before in found
    )
    return _concluded(f"CPU per request over this tree's: {told}", changes, MARGIN)


def _speedups(result: Result) -> Iterator[tuple[tuple[str, str], float]]:
    """CPU per request of the others over that of the first, by workload and name."""
    for (workload, _, _, first, second), one in report.speedups(result.samples):
        if first != second:
            yield (workload, second), one.ratio.value


def _run(stored: Result, result: Result) -> Conclusion:
    if failed := _failed(result):
        return failed
    now, then = _rates(result.samples), _rates(stored.samples)
    if not now:
        return Conclusion(
            "all cases answered rightly; this tree is not among the targets, and only its rates are stored", False
        )
    best, (_, connections, _) = max((rate, case) for case, rate in now.items())
    told = f"all cases answered rightly, {best:,.0f} requests/s at best ({connections} connections)"
    try:
        environment.same_machine(stored.environment, result.environment)
    except BenchError:
        return Conclusion(f"{told}; the stored rates are of another machine, so compare servers on this one", False)
    changes = [rate / then[case] for case, rate in now.items() if case in then]
    return _concluded(told, changes, MARGIN) if changes else Conclusion(f"{told}; none of these cases is stored", False)


def _rates(samples: tuple[Sample, ...]) -> dict[tuple[str, int, str], float]:
    """Requests per second of this tree, by workload, connections and load generator."""
    return {
        (case.workload, case.connections, case.client): stats.median([one.rps for one in usable(group)])
        for case, group in report.groups(samples).items()
        if case.target == "ours" and usable(group)
    }


def _micro(stored: Result, result: Result) -> Conclusion:
    then, now = stored.data["records"], result.data["records"]
    changes, told = [], []
    for case, figures in now.items():
        before: Mapping[str, float] = then.get(case, {})
        for key, what in (
            ("held", "a connection holds {:.1f} KiB"),
            ("allocations", "a request allocates {:.1f} times"),
        ):
            if key in figures and before.get(key):
                changes.append(before[key] / max(figures[key], 0.001))
                if case == next(iter(now)):
                    told.append(what.format(figures[key] / 1024 if key == "held" else figures[key]) + f" ({case})")
    if not changes:
        return _nothing()
    return _concluded(", ".join(told) or "memory of each case is known", changes, EXACT_MARGIN)


def _concluded(told: str, changes: list[float], margin: float) -> Conclusion:
    """Judge by the worst case; changes above 1 are improvements."""
    worst, middle = min(changes), stats.median(changes)
    if worst < 1 - margin:
        return Conclusion(f"{told}. One case is {1 / worst:.2f} times {WORSE}", True)
    return Conclusion(f"{told}. That is {BETTER if middle > 1 + margin else AS_STORED}", False)


def _failed(result: Result) -> Conclusion | None:
    reasons = sorted({sample.void for sample in result.samples if sample.void})
    return Conclusion(f"not every burst counts: {'; '.join(reasons)}", True) if reasons else None


def _nothing() -> Conclusion:
    return Conclusion("none of these cases is stored: nothing to compare with", False)


KINDS: Mapping[str, Callable[[Result, Result], Conclusion]] = {"compare": _compare, "run": _run, "micro": _micro}
