"""What a result comes to, in a few sentences for a reader who looks at nothing else. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench import report, stats
from bench.errors import BenchError
from bench.model import Result, usable

# Objects of this many attributes, and heads, are what the pools' cases are about.
PLAIN, SLOTTED, HEAD = "objects, dict", "objects, slots", "head, "
NO_POOL, POOL = "events, no pool", "events, pool of "


def of(result: Result) -> list[str]:
    """The sentences about a result; none about one that measured nothing, or whose tables say it all."""
    maker = KINDS.get(result.kind)
    return list(maker(result)) if maker else []


def run(result: Result) -> Iterator[str]:
    """Of each target: its best rate, and what the bursts that do not count say."""
    cases = report.groups(result.samples)
    for target in dict.fromkeys(case.target for case in cases):
        rates = {
            (case.workload, case.connections): stats.median([one.rps for one in usable(group)])
            for case, group in cases.items()
            if case.target == target and usable(group)
        }
        every = sum(case.target == target for case in cases)
        if not rates:
            yield f"{target} answered rightly in none of {every} cases"
            continue
        (workload, connections), best = max(rates.items(), key=lambda item: item[1])
        whole = "all cases answered rightly" if len(rates) == every else f"{every - len(rates)} of {every} cases failed"
        yield f"{target} does {best:,.0f} requests/s at best ({workload}, {connections} connections); {whole}"


def compare(result: Result) -> Iterator[str]:
    """For each pair: the ratio of CPU, if it is significant."""
    for (workload, _, connections, first, second), chosen in report.comparisons(result.samples).items():
        if first == second:
            continue
        where = f"{workload}, {connections} connections"
        try:
            found = report.speedup(chosen)
        except BenchError as exc:
            yield f"{where}: {first} and {second} cannot be compared: {exc}"
            continue
        if found is None:
            continue
        ratio = found.ratio
        if found.blocks < report.FEWEST_BLOCKS or not ratio.excludes(1.0):
            few = f"too few blocks ({found.blocks}) to tell a difference in CPU"
            why = few if found.blocks < report.FEWEST_BLOCKS else "no difference in CPU is shown"
            yield f"{where}: {why} between {first} and {second} ({ratio.value:.2f}, {ratio.words('.2f')})"
        else:
            better, worse = first, second
            if ratio.value < 1:
                better, worse, ratio = second, first, ratio.inverse()
            times = f"{ratio.value:.2f} times the CPU per request"
            yield f"{where}: {worse} needs {times} of {better} ({ratio.words('.2f')})"


def micro(result: Result) -> Iterator[str]:
    """What a request and a connection cost in memory, and whether anything stays."""
    for name, figures in result.data["records"].items():
        said = [f"a connection holds {figures['held'] / 1024:.1f} KiB"] if "held" in figures else []
        if "allocations" in figures:
            said.append(f"an operation asks the allocator {figures['allocations']:.0f} times for memory")
        if "left" in figures:
            kept = figures["left"] >= 1
            said.append(f"each leaves {figures['left']:.0f} bytes behind" if kept else "nothing is left behind")
        if said:
            yield f"{name}: {', '.join(said)}"


def pool(result: Result) -> Iterator[str]:
    """Slots against dicts, ways of building a head, pools against new objects."""
    records: Mapping[str, Any] = result.data["records"]
    if {PLAIN, SLOTTED} <= set(records) and "bytes" in records[PLAIN]:
        plain, slotted = records[PLAIN]["bytes"], records[SLOTTED]["bytes"]
        yield f"__slots__ save {plain - slotted:.0f} of {plain:.0f} bytes of an object with eight attributes"
    heads = {name: figures["ns"] for name, figures in records.items() if name.startswith(HEAD)}
    if heads:
        fast, slow = min(heads, key=heads.__getitem__), max(heads, key=heads.__getitem__)
        how, other = (name.removeprefix(HEAD) for name in (fast, slow))
        yield f"a response head is made fastest {how}: {heads[slow] / heads[fast]:.1f} times as fast as {other}"
    pools = {name: one["ns"] for name, one in records.items() if name.startswith(POOL) and "bursts" not in name}
    if pools and NO_POOL in records:
        best, fresh = min(pools, key=pools.__getitem__), records[NO_POOL]["ns"]
        saved = fresh - pools[best]
        pays = f"saves {saved:.0f} ns" if saved > 0 else f"costs {-saved:.0f} ns"
        which = best.removeprefix("events, ")
        yield f"an event from a pool {pays} against a new one ({fresh:.0f} ns), at best ({which})"


KINDS: dict[str, Callable[[Result], Iterator[str]]] = {
    "run": run,
    "compare": compare,
    "websocket": compare,
    "micro": micro,
    "pool": pool,
}
