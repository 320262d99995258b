"""Results as tables: text, Markdown. Pure: nothing is measured and nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench import scenario, stats
from bench.errors import BenchError
from bench.model import Sample, usable
from bench.stats import Interval


@dataclass(frozen=True)
class Table:
    """A table before it has a form; the first column is text, the others are figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def is_text(table: Table, number: int) -> bool:
    """Whether a column reads as text: it is the first, or most of its cells begin with a letter or a backtick."""
    said = [row[number] for row in table.rows if row[number] not in ("", "-")]
    return number == 0 or 2 * sum(cell[0].isalpha() or cell[0] == "`" for cell in said) > len(said)


def markdown(table: Table) -> str:
    """The table in Markdown, title first; text to the left, figures to the right."""
    lines = [f"**{table.title}**", "", "| " + " | ".join(table.columns) + " |"]
    rules = ("---" if is_text(table, number) else "---:" for number in range(len(table.columns)))
    lines.append("| " + " | ".join(rules) + " |")
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table.rows]
    return "\n".join([*lines, *(["", table.note] if table.note else [])]) + "\n"


def without_constants(table: Table, columns: Mapping[str, str]) -> Table:
    """Columns that say the same in every row go into the title, in the words that `columns` has for them."""
    dropped, said = [], []
    for number, column in enumerate(table.columns):
        values = {row[number] for row in table.rows}
        if column in columns and len(values) == 1:
            dropped.append(number)
            said.append(columns[column].format(values.pop()))
    kept = [number for number in range(len(table.columns)) if number not in dropped]
    rows = tuple(tuple(row[number] for number in kept) for row in table.rows)
    title = f"{table.title} ({', '.join(said)})" if said else table.title
    return Table(title, tuple(table.columns[number] for number in kept), rows, table.note)


def micros(seconds: float | None) -> str:
    """A short time in the unit that fits it; a dash if it is not known."""
    if seconds is None:
        return "-"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 0.001:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds * 1e6:.1f} us"


def mib(size: float) -> str:
    """Bytes as MiB."""
    return f"{size / 2**20:.1f}"


@dataclass(frozen=True)
class Metric:
    """One figure of a sample that can be compared by ratio. `better` is "less" or "more"."""

    name: str
    better: str
    key: str

    def of(self, sample: Sample) -> float | None:
        """The figure; None when it was not measured, or by too few requests.

        Raises BenchError for a sample without a burst.
        """
        if self.key == "cpu":
            return sample.cpu_per_request if sample.usage else None
        if self.key == "rps":
            return sample.rps
        if self.key == "memory":
            return float(sample.memory.settled_pss) if sample.memory else None
        return percentile(sample, self.key)


# Requests of a burst that a percentile needs, so that at least two took longer.
FEWEST = {"p99": 200, "p999": 2000}


def timed(sample: Sample) -> int:
    """Requests of a burst that latencies are known of: with `accept` those of newcomers alone."""
    if sample.load.tool == ARRIVALS:
        return sample.load.connections
    return sample.burst.requests if sample.burst else 0


def percentile(sample: Sample, field: str) -> float | None:
    """A figure of the latency of a burst; None when it was not measured, or by too few requests."""
    if sample.latency is None or timed(sample) < FEWEST.get(field, 0):
        return None
    return float(getattr(sample.latency, field))


def middle(group: Sequence[Sample], field: str) -> float | None:
    """The median of a figure of the latency over bursts; None where half of the bursts or more have none."""
    known = [value for sample in group if (value := percentile(sample, field)) is not None]
    return stats.median(known) if 2 * len(known) > len(group) else None


def typical(group: Sequence[Sample], field: str) -> str:
    """`middle` in words, a dash for None."""
    return micros(middle(group, field))


def extent(group: Sequence[Sample], field: str) -> str:
    """`typical`, and in brackets the lowest and the highest if several bursts have the figure."""
    known = [value for sample in group if (value := percentile(sample, field)) is not None]
    if len(known) == 1 or middle(group, field) is None:
        return typical(group, field)
    return f"{typical(group, field)} ({micros(min(known))} to {micros(max(known))})"


METRICS = (
    Metric("CPU per request", "less", "cpu"),
    Metric("memory after load (PSS)", "less", "memory"),
    Metric("p50", "less", "p50"),
    Metric("p99", "less", "p99"),
    Metric("p99.9", "less", "p999"),
    Metric("requests per second", "more", "rps"),
)
# Figures that say nothing of workloads that are bound by these: work that is not counted, and the client's rate.
SAYING_NOTHING = {"other work": ("cpu", "rps", "memory"), "rate": ("rps",)}


# From fewer blocks an interval holds what it says, but it is so wide that little can be shown.
FEWEST_BLOCKS = 4


@dataclass(frozen=True)
class Comparison:
    """A against B in one figure: medians of each, and the paired ratio A / B with its interval over the blocks."""

    metric: Metric
    first: float
    second: float
    ratio: Interval
    pairs: int
    blocks: int

    def words(self, floor: float = 0.0) -> str:
        """The verdict: whether the interval clears 1 and the ratio the noise floor, and to whose side.

        There is none from one block, which has no interval.
        """
        if self.blocks < 2:
            return "no verdict from one block"
        if not self.ratio.excludes(1.0):
            return "no difference shown"
        if abs(self.ratio.value - 1) <= floor:
            return f"within the noise of {floor:.1%}"
        first_wins = (self.ratio.high < 1) == (self.metric.better == "less")
        return "A better" if first_wins else "B better"


def compare(samples: Sequence[Sample], metric: Metric) -> Comparison | None:
    """Pair the bursts of each block; pairs with a void burst are left out.

    None when the figure was not measured, or says nothing of this workload; raises BenchError when no pair remains.
    """
    found = paired(samples)
    if not found:
        raise BenchError(_why_nothing(samples))
    if says_nothing(samples[0].workload, metric):
        return None
    values = [_values(pairs, metric) for pairs in found]
    flat = [pair for group in values for pair in group]
    if not flat:
        return None
    return Comparison(
        metric,
        stats.median([first for first, _ in flat]),
        stats.median([second for _, second in flat]),
        stats.paired_ratio(values),
        len(flat),
        sum(bool(group) for group in values),
    )


def says_nothing(name: str, metric: Metric) -> bool:
    """Whether a figure says nothing of a workload."""
    workload = scenario.WORKLOADS.get(name)
    return workload is not None and metric.key in SAYING_NOTHING.get(workload.bound_by, ())


def paired(samples: Sequence[Sample]) -> list[list[tuple[Sample, Sample]]]:
    """The pairs (A, B) of each block that count: the first of A with the first of B, and so on.

    Blocks are mirrored, so bursts of the same position were measured close together.
    """
    blocks: dict[int, list[Sample]] = {}
    for sample in sorted(samples, key=lambda sample: sample.slot):
        blocks.setdefault(sample.block, []).append(sample)
    found = []
    for block in blocks.values():
        sides = ([sample for sample in block if sample.side == side] for side in "AB")
        found.append([(a, b) for a, b in zip(*sides, strict=False) if a.void is None and b.void is None])
    return [pairs for pairs in found if pairs]


def _values(pairs: Sequence[tuple[Sample, Sample]], metric: Metric) -> list[tuple[float, float]]:
    found = [(metric.of(first), metric.of(second)) for first, second in pairs]
    return [(first, second) for first, second in found if first and second]


def speedup(samples: Sequence[Sample], metric: Metric = METRICS[0]) -> Comparison | None:
    """`compare` the other way round: how many times the CPU per request of A does B need?"""
    return compare([replace(sample, side="AB"[sample.side == "A"]) for sample in samples], metric)


def _why_nothing(samples: Sequence[Sample]) -> str:
    reason = next((f"{sample.target}: {sample.void}" for sample in samples if sample.void), "nothing was measured")
    return f"no pair of bursts counts ({reason})"


def noise_floors(samples: Sequence[Sample]) -> dict[str, float]:
    """For each figure, how far from 1 its ratio strays when a server is compared with itself."""
    found = {}
    for metric in METRICS:
        one = compare(samples, metric)
        if one is not None:
            found[metric.key] = stats.noise_floor(one.ratio)
    return found


def comparison_table(title: str, samples: Sequence[Sample], floors: Mapping[str, float] | None = None) -> Table:
    """All figures of A against B, the ones that matter most first; `floors` are those of `noise_floors`."""
    rows = []
    for metric in METRICS:
        found = compare(samples, metric)
        if found is None:
            continue
        rows.append(
            (
                metric.name,
                figure(metric, found.first),
                figure(metric, found.second),
                f"{found.ratio.value:.3f}",
                found.ratio.words(),
                found.words((floors or {}).get(metric.key, 0.0)),
            )
        )
    names = {sample.side: sample.target for sample in samples}
    columns = ("figure", f"A: {names['A']}", f"B: {names['B']}", "A / B", "95% interval", "verdict")
    return Table(title, columns, tuple(rows))


def figure(metric: Metric, value: float) -> str:
    """A figure in the unit that fits its metric."""
    if metric.key == "rps":
        return f"{value:,.0f}"
    if metric.key == "memory":
        return f"{mib(value)} MiB"
    return micros(value)


def samples_table(title: str, samples: Sequence[Sample]) -> Table:
    """Each target, workload and connection count in a row: medians over the bursts that count."""
    rows = tuple((*case.cells(), *figures(group)) for case, group in groups(samples).items())
    return without_constants(Table(title, (*CASE_COLUMNS, *FIGURE_COLUMNS), rows, LITTLE), CONSTANT)


CASE_COLUMNS = ("workload", "target", "mode", "client", "conns")
FIGURE_COLUMNS = ("CPU/req", "PSS MiB", "p50", "p99", "p99.9", "req/s", "status")
# What a table's title says of a column that is the same in every row.
CONSTANT = {"workload": "{}", "mode": "{}", "client": "{}", "conns": "{} connections"}

LITTLE = (
    "In a closed loop a connection sends its next request when the last is answered, so the mean latency is the number "
    "of connections divided by the throughput: more in flight lengthens each wait while it shortens the total. Compare "
    "latencies at the same number of connections, or at a fixed rate (openloop, oha)."
)


def latency_table(samples: Sequence[Sample]) -> Table:
    """Every percentile of each case: medians over the bursts that count."""
    rows = []
    for case, group in groups(samples).items():
        found = [middle(usable(group), field) for field in PERCENTILES]
        if any(found):
            rows.append((*case.cells(), *map(micros, found)))
    return without_constants(Table("latency", (*CASE_COLUMNS, *PERCENTILES.values()), tuple(rows)), CONSTANT)


PERCENTILES = {"p50": "p50", "p75": "p75", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9", "max": "max"}


def memory_table(samples: Sequence[Sample]) -> Table:
    """Memory of each case's process tree, highest during the burst and settled after it, in MiB."""
    rows = []
    for case, group in groups(samples).items():
        known = [sample.memory for sample in usable(group) if sample.memory]
        if known:
            middle = (stats.median([getattr(one, field) for one in known]) for field in SIZES)
            rows.append((*case.cells(), *map(mib, middle)))
    return without_constants(Table("memory, MiB", (*CASE_COLUMNS, *SIZES.values()), tuple(rows)), CONSTANT)


SIZES = {
    "peak_rss": "RSS peak",
    "peak_pss": "PSS peak",
    "peak_uss": "USS peak",
    "settled_rss": "RSS settled",
    "settled_pss": "PSS settled",
    "settled_uss": "USS settled",
}


def bulk_table(samples: Sequence[Sample]) -> Table:
    """Where bodies are what a request costs: CPU for each MiB of them, and how many MiB went through in a second."""
    rows = []
    for case, group in groups(samples).items():
        good = [sample for sample in usable(group) if sample.cpu_per_mib is not None]
        if good:
            cpu = stats.median([sample.cpu_per_mib or 0.0 for sample in good])
            speed = stats.median([sample.rps * sample.payload / 2**20 for sample in good])
            rows.append((*case.cells(), micros(cpu), f"{speed:,.0f}"))
    return without_constants(Table("large bodies", (*CASE_COLUMNS, "CPU/MiB", "MiB/s"), tuple(rows)), CONSTANT)


# The generator whose latencies are those of newcomers.
ARRIVALS = "accept"


def arrivals_table(samples: Sequence[Sample]) -> Table:
    """How long newcomers waited for their first answer: medians of the bursts' percentiles."""
    rows = []
    for case, group in groups([sample for sample in samples if sample.load.tool == ARRIVALS]).items():
        good = usable(group)
        known = [sample.latency for sample in good if sample.latency]
        if known:
            middle = (stats.median([getattr(one, field) for one in known]) for field in ("p50", "p90", "p99", "max"))
            unanswered = stats.median([sample.burst.unanswered for sample in good if sample.burst])
            rows.append(
                (f"{case.connections:,}", case.target, *map(micros, middle), f"{unanswered:,.0f}", str(len(good)))
            )
    note = (
        "From connect(2) to the last byte of the first answer, of newcomers who all come at once while 200 others keep "
        "the server busy. A newcomer without an answer at the end counts with the time waited until then."
    )
    columns = ("newcomers", "target", "median", "p90", "p99", "longest", "no answer", "bursts")
    return Table("newcomers at a busy server", columns, tuple(rows), note)


def processes_table(samples: Sequence[Sample]) -> Table:
    """Use of the cores: threads and CPU of the client and of each server process, in shares of one core."""
    rows = []
    for case, group in groups(samples).items():
        good = [sample for sample in usable(group) if sample.usage and sample.machine and sample.burst]
        if good:
            last = good[-1]
            client = f"{last.load.threads} thr {stats.median([sample.client_share for sample in good]):.0%}"
            system = f"{stats.median([sample.system_share for sample in good]):.0%}"
            switches = stats.median([sample.switches_per_request for sample in good])
            servers = ", ".join(last.process_texts)
            rows.append((case.workload, case.target, str(case.connections), client, servers, system, f"{switches:.2f}"))
    columns = ("workload", "target", "conns", "client", "server processes", "of it in the kernel", "switches/req")
    found = Table("threads and cores", columns, tuple(rows))
    return without_constants(found, {name: CONSTANT[name] for name in ("workload", "conns")})


@dataclass(frozen=True)
class Case:
    """What bursts must have in common to be summed up in one row."""

    workload: str
    target: str
    mode: str
    client: str
    connections: int

    def cells(self) -> tuple[str, ...]:
        """As the first columns of a row, in the order of `CASE_COLUMNS`."""
        return (self.workload, self.target, self.mode, self.client, str(self.connections))


def groups(samples: Sequence[Sample]) -> dict[Case, list[Sample]]:
    """Samples by case, in the order of the table of workloads, then of targets as measured."""
    order = {name: number for number, name in enumerate(dict.fromkeys(sample.workload for sample in samples))}
    found: dict[Case, list[Sample]] = {}
    for sample in samples:
        load = sample.load
        client = load.tool if load.rate is None else f"{load.tool} {load.rate:g}/s"
        client += f" -t{load.threads}" if load.threads > 1 else ""
        found.setdefault(Case(sample.workload, sample.target, sample.mode, client, load.connections), []).append(sample)
    return dict(sorted(found.items(), key=lambda item: _place(item[0], order)))


def _place(case: Case, order: Mapping[str, int]) -> tuple[int, str, str, int, bool, bool, str]:
    """A sort key that keeps comparable rows together."""
    return (order[case.workload], case.mode, case.client, case.connections, *_rank(case.target))


def _rank(target: str) -> tuple[bool, bool, str]:
    """Ours first, then upstream, then the others by name."""
    return (not target.startswith("ours"), not target.startswith("upstream"), target)


def figures(group: Sequence[Sample]) -> tuple[str, ...]:
    """The cells of `FIGURE_COLUMNS` for bursts of one case: medians of those that count, and how many do not."""
    good = usable(group)
    if not good:
        return ("", "", "", "", "", "", f"failed: {group[0].void}")
    cells = []
    for metric in METRICS:
        values = [value for sample in good if (value := metric.of(sample)) is not None]
        cells.append(figure(metric, stats.median(values)).removesuffix(" MiB") if values else "-")
    lost = len(group) - len(good)
    return (*cells, "ok" if not lost else f"{lost} of {len(group)} void")


def environment_lines(environment: Mapping[str, Any]) -> list[str]:
    """The environment in the few lines a reader needs beside a figure."""
    lines = [f"{machine(environment)}; commit {environment['commit']}"]
    for name, target in environment["targets"].items():
        lines.append(f"{name}{_built(target)}: Python {target['python']}; {_versions(target) or 'no packages'}")
    return lines


def environment_text(environment: Mapping[str, Any]) -> str:
    """The environment as one paragraph: the machine, the Pythons, and each server with its own version."""
    return f"{machine(environment)}; {pythons(environment)}; {', '.join(servers(environment))}"


def pythons(environment: Mapping[str, Any]) -> str:
    """The versions of Python that the servers ran on."""
    found = {target["python"] for target in environment["targets"].values() if target["python"] != "none"}
    return f"Python {', '.join(sorted(found)) or 'none'}"


def servers(environment: Mapping[str, Any]) -> list[str]:
    """Each server once, whatever its options, with its version: ours is a commit."""
    found: dict[str, None] = {}
    for label, target in sorted(environment["targets"].items(), key=lambda item: _rank(item[0])):
        name = label.partition(":")[0]
        version = target["versions"].get("uvicorn" if name == "upstream" else name, "")
        found[f"{name}{_built(target)}" + (f" {version}" if version else "")] = None
    return list(found)


def machine(environment: Mapping[str, Any]) -> str:
    """The machine and how it was used, in one line."""
    return (
        f"{environment['cpu']}, {environment['cores']} cores, {environment['memory_mib']} MiB, "
        f"{environment['system']} {environment['kernel']} {environment['architecture']}; {environment['pinning']}; "
        f"load average {environment['load_average'][0]:g}"
    )


def _built(target: Mapping[str, Any]) -> str:
    if "commit" not in target:
        return ""
    return f" at {target['commit']} {'with' if target.get('native') else 'without'} the native core"


def _versions(target: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in target["versions"].items())


Rivalry = tuple[str, str, int, str, str]


def comparisons(samples: Sequence[Sample]) -> dict[Rivalry, list[Sample]]:
    """Samples by comparison: workload, mode, connections, target A, target B.

    In a block with more than two sides A is compared with each of the others, which is called B then.
    """
    blocks: dict[int, list[Sample]] = {}
    for sample in samples:
        blocks.setdefault(sample.block, []).append(sample)
    found: dict[Rivalry, list[Sample]] = {}
    for block in blocks.values():
        names = {sample.side: sample.target for sample in block}
        one = block[0]
        for side in sorted(set(names) - {"A"}):
            key = (one.workload, one.mode, one.load.connections, names.get("A", ""), names[side])
            both = [replace(sample, side=min(sample.side, "B")) for sample in block if sample.side in ("A", side)]
            found.setdefault(key, []).extend(both)
    return found


def speedups(samples: Sequence[Sample]) -> Iterator[tuple[Rivalry, Comparison]]:
    """The `speedup` of each comparison that could be made."""
    for rivalry, chosen in comparisons(samples).items():
        try:
            found = speedup(chosen)
        except BenchError:
            continue
        if found is not None:
            yield rivalry, found
