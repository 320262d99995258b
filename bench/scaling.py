"""Several workers or event loops: the cost of a request by their number, and what follows for many cores. Pure.

The model is Amdahl's for costs: with n processes a request needs c(n) = c(1) * (1 + s * (n - 1)) of CPU, where s is
added by each further one through what they share: sockets of the kernel, memory bandwidth, caches, a lock. N cores then
answer N / c(N) requests a second. It is fitted to the numbers of processes for which there are cores, N processes and
their client on N of them, taken at the high end of its interval, and knows nothing of machines with several processors,
nor of network cards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench import report, stats
from bench.model import Result, Sample, usable
from bench.report import Table
from bench.scenario import parse_mode
from bench.stats import Interval

CORES = (8, 16, 32, 64)
# Rounds that an interval needs.
FEWEST = 3


@dataclass(frozen=True)
class Row:
    """A server with one way to use cores.

    `costs` are CPU seconds of a request, by round, for each number of processes or loops.
    """

    target: str
    kind: str
    costs: Mapping[int, Mapping[int, float]]

    def share(self, cores: int) -> Interval | None:
        """What each further process adds, by those for which there are cores.

        None if too few rounds are known, or numbers.
        """
        first = self.costs.get(1, {})
        known = {count: costs for count, costs in self.costs.items() if 1 < count <= cores}
        rounds = set(first).intersection(*known.values()) if known else set()
        if len(rounds) < FEWEST:
            return None
        below = sum((count - 1) ** 2 for count in known)
        # Least squares through the point (1, 1), for each round.
        shares = [
            sum((count - 1) * (costs[number] / first[number] - 1) for count, costs in known.items()) / below
            for number in sorted(rounds)
        ]
        return stats.mean_interval(shares)

    def rate(self, cores: int, share: float) -> float:
        """Requests per second of a number of cores, by the model."""
        return cores / (stats.median([*self.costs[1].values()]) * (1 + share * (cores - 1)))


def _grouped(samples: Sequence[Sample]) -> Iterator[tuple[str, str, dict[int, list[Sample]]]]:
    """Target, kind and the samples by number of processes or loops, this tree first."""
    found: dict[tuple[str, str], dict[int, list[Sample]]] = {}
    for sample in samples:
        mode = parse_mode(sample.mode)
        kind = "processes" if mode.kind == "single" else mode.kind
        counts = found.setdefault((sample.target, kind), {})
        counts.setdefault(mode.loops, []).append(sample)
    for (target, kind), counts in sorted(found.items(), key=lambda item: (item[0][0] != "ours", item[0])):
        yield target, kind, dict(sorted(counts.items()))


def _costs(group: Sequence[Sample]) -> dict[int, float]:
    """By round, without the void ones."""
    return {
        number: sample.cpu_per_request
        for number, sample in enumerate(group)
        if sample.void is None and sample.usage is not None
    }


def rows(samples: Sequence[Sample]) -> list[Row]:
    """A row for each target and kind, this tree first."""
    return [
        Row(target, kind, {count: costs for count, group in counts.items() if (costs := _costs(group))})
        for target, kind, counts in _grouped(samples)
    ]


def tables(result: Result) -> list[Table]:
    """The measured costs and tails, then the model."""
    return [_measured(result), _model(result)]


def _measured(result: Result) -> Table:
    found = []
    for target, kind, counts in _grouped(result.samples):
        first = [*_costs(counts.get(1, [])).values()]
        for count, group in counts.items():
            costs = [*_costs(group).values()]
            row = (target, kind, str(count), str(group[0].load.connections))
            if not costs:
                found.append((*row, *["-"] * 4, f"failed: {group[0].void}"))
                continue
            good = usable(group)
            times = f"{stats.median(costs) / stats.median(first):.2f}" if first else "-"
            spread = f"{report.micros(min(costs))} to {report.micros(max(costs))}"
            p99 = report.typical(good, "p99")
            rate = f"{stats.median([sample.rps for sample in good]):,.0f}"
            found.append((*row, report.micros(stats.median(costs)), times, p99, rate, spread))
    columns = ("target", "of", "how many", "conns", "CPU/req", "times one", "p99", "req/s", "spread of CPU/req")
    return Table("several workers and event loops", columns, tuple(found), NOTE)


NOTE = (
    "N of them and their client, of N threads, share N cores, or all where there are fewer. Requests per second and "
    "p99 are of both together; the measure is CPU per request."
)


def _model(result: Result) -> Table:
    cores = int(result.environment.get("cores", 1))
    found = []
    for row in rows(result.samples):
        added = row.share(cores)
        # With the global interpreter lock, loops of one process share one core.
        if added is not None and not (row.kind == "threads" and _has_gil(result, row.target)):
            share = added.high
            # Without growth there is nothing to extrapolate.
            rates = (f"{_rounded(row.rate(count, share)):,.0f}" if share > 0 else "-" for count in CORES)
            found.append((row.target, row.kind, f"{share:.0%}", *rates))
    columns = ("target", "of", "each further one adds (high estimate)", *(f"{count} cores, req/s" for count in CORES))
    note = (
        "A model, not a measurement: CPU per request grows by the same share with each further process, the high end "
        "of the 95% interval of that share. Requests per second are those of cores that only serve. Fitted to at most "
        f"{cores} processes, as many as the machine has cores: an order of magnitude. Event loops that share "
        "an interpreter lock share one core, too, and are left out. `python -m bench publish --everything` measures a "
        "larger machine."
    )
    if any("-" in row for row in found):
        note += " - : no growth was seen, so that there is nothing to extrapolate."
    return Table("by the model, for many cores", columns, tuple(found), note)


def _rounded(value: float) -> float:
    """Two digits: more would say more than a model knows."""
    return float(f"{value:.1e}")


def _has_gil(result: Result, target: str) -> bool:
    described = result.environment.get("targets", {}).get(target, {})
    return bool(described.get("gil", True))
