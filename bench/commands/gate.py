"""`gate`: for CI: fails when this tree got slower than the stored ratios and instruction counts allow.

Six parts. Instructions of the micro-benchmarks and of whole servers (counted by callgrind) and system calls per request
(counted by strace) are exact: they see a few per cent on the busiest machine; memory of idle connections nearly is. CPU
time of the micro-benchmarks over that of a yardstick sees what takes longer without more instructions. Paired CPU per
request of this tree and upstream under load sees what only a whole server shows, if it is large. Each is held against
stored values, those of the last publication, so that small steps add up; with `--base` another tree takes their place,
which is what pull requests are judged by.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench import (
    cputime,
    environment,
    instructions,
    judge,
    plan,
    process,
    report,
    scenario,
    served,
    slowing,
    stats,
    syscalls,
    targets,
    trees,
)
from bench.commands import common, memory
from bench.errors import BenchError
from bench.judge import Line
from bench.load import generators
from bench.model import Load, Result, Sample
from bench.plan import Scenario
from bench.report import Table
from bench.runner import Runner
from bench.stats import Interval
from bench.targets import Target

STORED = Path(__file__).resolve().parent.parent / "baselines" / "gate.json"
# By load generator, the better one first. The harness's own is there always, but it keeps a server busy with pipelined
# requests only; a server that waits for its client needs more CPU the more often it is woken, which is chance.
WORKLOADS = {"wrk": "hello", "closedloop": "pipeline"}
TOOLS = tuple(WORKLOADS)
# Whose idle connections are weighed, and how many of them.
MEMORY = ("hello", "tls", "websocket", "h2")
IDLE = 1000
# The cases of each part that does not run the micro-benchmarks' own.
PARTS: Mapping[str, Sequence[str]] = {
    "time": cputime.CASES,
    "calls": tuple(syscalls.CASES),
    "served": served.CASES,
    "memory": MEMORY,
}
# A stored value is used for a long time, so its own error should be small: this many times the blocks of a judgement.
STORED_BLOCKS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure and what to hold it against."""
    parser.add_argument("--target", default="ours", help="the tree under judgement, for example ours:root=../other")
    parser.add_argument(
        "--workload",
        help=f"workloads of the paired part, empty for none (default: {WORKLOADS['wrk']}, as far as stored)",
    )
    parser.add_argument("--blocks", type=common.count, default=6, help="blocks of a burst of each per workload")
    parser.add_argument("--seconds", type=common.duration, default=1.0, help="length of a burst")
    parser.add_argument("--tool", choices=TOOLS, help="load generator (default: wrk where installed, else closedloop)")
    parser.add_argument("--stored", type=Path, default=STORED, help="file with the stored values")
    parser.add_argument(
        "--base", type=Path, help="a tree to compare this one with, instead of upstream and the stored values"
    )
    parser.add_argument(
        "--cases", default=",".join(instructions.GATE_CASES), help="whose instructions are counted; empty for none"
    )
    parser.add_argument("--time", default=",".join(cputime.CASES), help="whose CPU time is taken; empty for none")
    parser.add_argument("--calls", default=",".join(syscalls.CASES), help="whose system calls are counted; empty: none")
    parser.add_argument("--served", default=",".join(served.CASES), help="whole servers whose instructions are counted")
    parser.add_argument("--memory", default=",".join(MEMORY), help="workloads whose idle connections are weighed")
    parser.add_argument(
        "--prove", action="store_true", help="show that the unchanged tree passes and worse ones fail, --times each"
    )
    parser.add_argument("--update", action="store_true", help="store the measured values instead of judging them")
    parser.add_argument("--times", type=common.count, default=1, help="judge so often, and say how often it passed")
    common.output_arguments(parser)


@dataclass
class Gate:
    """What one judgement needs, and what it has found so far."""

    arguments: argparse.Namespace
    target: Target
    rival: Target
    stored: dict[str, Any]
    runner: Runner
    described: dict[str, Any]
    tool: str
    notes: list[str] = field(default_factory=list)


def execute(arguments: argparse.Namespace) -> int:
    """Exit status 1 when a case fails; what could not be judged is said and does not fail."""
    if arguments.prove:
        if arguments.base or arguments.update:
            raise BenchError("--prove holds the tree against itself: leave --base and --update out")
        # Upstream says nothing about that.
        arguments.workload = ""
    gate = _prepared(arguments)
    if arguments.prove:
        return _proven(gate)
    if arguments.update:
        return _store(gate)
    samples: list[Sample] = []
    runs: list[list[Line]] = []

    def judged() -> None:
        while len(runs) < arguments.times:
            runs.append(_judged(gate))
            samples.extend(gate.runner.samples)

    trouble = common.guarded(judged)
    data: dict[str, Any] = {"lines": [asdict(line) for line in (runs or [[]])[-1]]}
    if arguments.times > 1:
        data["repeated"] = judge.repeated(runs)
    kept = samples if arguments.times == 1 else []
    result = Result("gate", common.now(), gate.described, tuple(kept), data, common.noted(gate.notes, trouble))
    common.deliver(arguments, result, trouble)
    return _outcome(runs)


def _judged(gate: Gate) -> list[Line]:
    judges = (_ratios_judged, _instructions_judged, _served_judged, _times_judged, _calls_judged, _memory_judged)
    return [line for judged in judges for line in judged(gate)]


def _proven(gate: Gate) -> int:
    """Judge the tree as it is and slowed copies of it, all against what the tree as it is needs here and now."""
    arguments = gate.arguments
    proof: list[dict[str, Any]] = []

    def prove() -> None:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            gate.stored = _measured_values(gate)
            for slowed in (None, *slowing.known(gate.stored)):
                tree = targets.find(f"ours:root={slowing.copied(gate.target, Path(name), slowed, gate.stored)}")
                found: list[list[Line]] = []
                while len(found) < arguments.times:
                    gate.runner.progress(f"{slowing.label(slowed)}: {len(found) + 1} of {arguments.times}")
                    found.append(_judged(replace(gate, target=tree)))
                proof.append(judge.proof(slowing.label(slowed), found))
                # Report each result at once, because the whole takes hours.
                common.told("{tree}: passed {passed}, failed {failed} ({by})".format(**proof[-1]))

    trouble = common.guarded(prove)
    data: dict[str, Any] = {"lines": [], "proof": proof}
    result = Result("gate", common.now(), gate.described, (), data, common.noted(gate.notes, trouble))
    common.deliver(arguments, result, trouble)
    unchanged, *slower = proof
    return int(unchanged["failed"] > 0 or any(one["passed"] for one in slower))


def _measured_values(gate: Gate) -> dict[str, Any]:
    """What the tree needs now, in the form of stored values, without speed-ups."""
    times = cputime.several(gate.target, _listed(gate.arguments.time)) if gate.arguments.time else {}
    return {
        "identity": judge.identity(gate.described["targets"][gate.target.label()]),
        "instructions": _counted(gate, gate.target, _listed(gate.arguments.cases)) if gate.arguments.cases else {},
        "served": _served(gate, gate.target, _listed(gate.arguments.served)),
        "calls": _calls(gate, gate.target, _listed(gate.arguments.calls)),
        "memory": _memory(gate, gate.target, _listed(gate.arguments.memory)),
        "machines": {
            judge.machine(gate.described): {
                "ratios": {},
                "time": {case: stats.mean(all_) for case, all_ in times.items()},
            }
        },
    }


def _listed(text: str) -> list[str]:
    return [one for one in text.split(",") if one]


def _prepared(arguments: argparse.Namespace) -> Gate:
    """Everything that can be wrong with the order is found before anything is measured."""
    target = targets.find(arguments.target)
    for part, known in PARTS.items():
        for case in _listed(getattr(arguments, part)):
            if case not in known:
                raise BenchError(f"unknown case {case!r} of --{part}: choose from {', '.join(known)}")
    rival = targets.find(f"ours:root={arguments.base}" if arguments.base else "upstream")
    tool = arguments.tool or next(name for name in TOOLS if not generators.find(name).missing() or name == TOOLS[-1])
    if arguments.workload is None:
        arguments.workload = WORKLOADS[tool]
    needed = [target, rival] if arguments.workload else [target]
    for one in needed:
        targets.interpreter(one)
    if cases := _listed(arguments.cases):
        instructions.available(target, cases)
    stored = {} if arguments.update or arguments.base or arguments.prove else _read(arguments.stored)
    if arguments.workload:
        scenario.find(arguments.workload)
        generators.require(tool)
    runner = common.plain_runner(1, warm_up=0.5, tolerated=math.inf)
    return Gate(arguments, target, rival, stored, runner, environment.describe(needed, runner.cores), tool)


def _outcome(runs: Sequence[Sequence[Line]]) -> int:
    if not all(runs):
        raise BenchError("nothing was judged")
    failed = [line.case for line in runs[-1] if line.failed]
    if len(runs) > 1:
        passed = sum(not any(line.failed for line in lines) for lines in runs)
        common.told(f"passed {passed} of {len(runs)} times")
        return int(passed < len(runs))
    for case in failed:
        print(f"bench: regression: {case}", file=sys.stderr)
    return int(bool(failed))


def _ratios_judged(gate: Gate) -> list[Line]:
    """Speed-ups by workload. One that fails is measured once more, and judged by both measurements together."""
    gate.runner.samples = []
    workloads, reason = _comparable(gate)
    if reason:
        _note(gate, reason)
    if not workloads:
        return []
    lines = _paired(gate, workloads)
    suspects = [name for name, line in lines.items() if line.failed]
    if suspects:
        common.told(f"measured again: {', '.join(suspects)}")
        lines |= _paired(gate, suspects, seed=2)
    return list(lines.values())


def _comparable(gate: Gate) -> tuple[list[str], str]:
    """The workloads whose speed-up has something to be held against, and why others have not."""
    wanted = [one.name for one in scenario.find(gate.arguments.workload)] if gate.arguments.workload else []
    if not wanted:
        return [], ""
    native = gate.described["targets"][gate.target.label()]["native"]
    if gate.arguments.base:
        if native != gate.described["targets"][gate.rival.label()]["native"]:
            return [], "CPU was not compared: the native core is built in one of the trees only"
        return wanted, ""
    if not native:
        return [], "speed-ups were not judged: the stored ones are of the native core, which is not built here"
    if gate.arguments.update:
        return wanted, ""
    machine = _nearest(gate)
    stored = machine.ratios.get(gate.tool, {})
    known = [name for name in wanted if name in stored]
    if known and not machine.is_this:
        wider = f"judged with a margin of {judge.FOREIGN_MARGIN:.0%}"
        _note(gate, f"the stored speed-ups are of another machine ({machine.name}): {wider}")
    missing = ", ".join(name for name in wanted if name not in known)
    return known, f"no stored speed-up through {gate.tool} for {missing}" if missing else ""


class Machine(NamedTuple):
    """The stored values of one machine: speed-ups by load generator, and CPU times. `is_this`: they are of this one.

    `times_of` is the commit that the CPU times are of, empty where that is not known.
    """

    name: str
    ratios: dict[str, dict[str, float]]
    time: dict[str, float]
    is_this: bool
    times_of: str


def _nearest(gate: Gate) -> Machine:
    """The stored values of this machine; without any, those of the machine that was measured last."""
    machines: dict[str, dict[str, Any]] = gate.stored["machines"]
    name = here = judge.machine(gate.described)
    if machines and here not in machines:
        name = max(machines, key=lambda one: str(machines[one].get("created", "")))
    values = machines.get(name, {})
    return Machine(name, values.get("ratios", {}), values.get("time", {}), name == here, _times_of(values))


def _times_of(values: Mapping[str, Any]) -> str:
    """The commit that the CPU times of a machine are of: that of the other values, if these came together."""
    return str(values.get("times_of", values.get("commit", "")))


def _note(gate: Gate, text: str) -> None:
    if text not in gate.notes:
        gate.notes.append(text)


def _paired(gate: Gate, workloads: Sequence[str], *, seed: int = 1) -> dict[str, Line]:
    """Measure workloads, and judge them by everything that was measured of them in this run."""
    _measure(gate, workloads, seed)
    found = {}
    for name, interval in _speedups(gate.runner.samples).items():
        if name in workloads:
            if gate.arguments.base:
                found[name] = judge.judge_ratio(f"CPU of the base over this, {name}", 1.0, interval)
            else:
                machine = _nearest(gate)
                stored = machine.ratios[gate.tool][name]
                margin = judge.RATIO_MARGIN if machine.is_this else judge.FOREIGN_MARGIN
                found[name] = judge.judge_ratio(f"speed-up over upstream, {name}", stored, interval, margin)
    return found


def _measure(gate: Gate, workloads: Sequence[str], seed: int, *, times: int = 1) -> None:
    """Add bursts of these workloads to the samples; raises BenchError when that ends early."""
    blocks = []
    for workload in (scenario.WORKLOADS[name] for name in workloads):
        load = Load(gate.tool, workload.connections, 1, gate.arguments.seconds, None, workload.pipeline)
        one = Scenario(workload, scenario.Mode(), load)
        blocks += plan.comparison(one, gate.target, [gate.rival], blocks=times * gate.arguments.blocks, seed=seed)
    first = 1 + max((sample.block for sample in gate.runner.samples), default=-1)
    trouble = common.measure(gate.runner, plan.numbered(blocks, first))
    if trouble:
        raise KeyboardInterrupt if trouble == common.INTERRUPTED else BenchError(trouble)


def _speedups(samples: Sequence[Sample]) -> dict[str, Interval]:
    """CPU per request of the other over that of the tree, by workload. Raises BenchError when a server failed."""
    found = {}
    for (workload, *_), chosen in report.comparisons(samples).items():
        one = report.speedup(chosen)
        if one is None:
            raise BenchError(f"no CPU figures for {workload}")
        found[workload] = one.ratio
    return found


def _instructions_judged(gate: Gate) -> list[Line]:
    """Instruction counts against those of a base tree, or against stored ones of the same interpreter."""
    cases = [case for case in gate.arguments.cases.split(",") if case]
    if not cases:
        return []
    own = _identity(gate)
    if not gate.arguments.base and own != gate.stored.get("identity"):
        _note(
            gate, "instructions were not judged: the stored counts are of another interpreter or compiler (use --base)"
        )
        return []
    found = _counted(gate, gate.target, cases)
    if gate.arguments.base and found:
        stored = _counted(gate, gate.rival, list(found))
    else:
        stored = gate.stored.get("instructions", {})
    for case in found:
        if case not in stored:
            _note(gate, f"no stored count for {case}")
    return [judge.judge_instructions(case, stored[case], count) for case, count in found.items() if case in stored]


def _identity(gate: Gate) -> dict[str, Any]:
    """Of the tree that the order names: a copy of it has the same."""
    [first, *_] = gate.described["targets"].values()
    return judge.identity(first)


def _times_judged(gate: Gate) -> list[Line]:
    """CPU time over that of the yardstick, against stored values or beside another tree.

    A virtual machine that was started again, or its neighbours, can move a stored value by more than the margin. So
    what fails against one is measured beside the tree that it is of, and judged by that.
    """
    cases = _comparable_cases(gate, "time")
    if gate.arguments.base:
        return list(_timed(gate, cases, dict.fromkeys(cases, 1.0), gate.rival).values())
    machine = _nearest(gate)
    stored, commit = machine.time, machine.times_of
    lines = _timed(gate, cases, stored, None)
    failed = [case for case, line in lines.items() if line.failed]
    if failed and commit:
        about, tree = f"CPU time of {', '.join(failed)}, above the stored value,", f"the tree that it is of, {commit}"
        try:
            lines |= _timed(gate, failed, stored, _tree(gate, commit))
            _note(gate, f"{about} was judged beside {tree}")
        except BenchError as exc:
            _note(gate, f"{about} was not measured beside {tree}: {exc}")
    return list(lines.values())


def _timed(gate: Gate, cases: Sequence[str], stored: Mapping[str, float], base: Target | None) -> dict[str, Line]:
    """Measure and judge. A case above the limit is measured again before it fails.

    Beside `base`, if there is one, process by process: its time counts as the stored one then.
    """
    found: dict[str, list[float]] = {}
    lines: dict[str, Line] = {}
    for _ in range(2):
        suspects = [case for case in cases if case not in lines or lines[case].found > lines[case].limit]
        if not suspects:
            break
        gate.runner.progress(f"CPU time of {', '.join(suspects)}")
        with process.pinned(gate.runner.cores.server):
            for _ in range(cputime.PROCESSES):
                own = cputime.once(gate.target, suspects)
                other = cputime.once(base, suspects) if base else stored
                for case in suspects:
                    found.setdefault(case, []).append(own[case] / other[case] * stored[case])
        for case in suspects:
            lines[case] = judge.judge_time(case, stored[case], stats.mean_interval(found[case]))
    return lines


def _tree(gate: Gate, commit: str) -> Target:
    """The tree of a commit, checked out; raises BenchError where it cannot be had, or not built."""
    root = trees.checkout(targets.source_root(gate.target) or targets.ROOT, commit)
    tree = targets.find(f"ours:root={root}")
    targets.import_root(tree)
    return tree


def _comparable_cases(gate: Gate, part: str) -> list[str]:
    """The cases of a part that the order names, that run here, and that have something to be held against."""
    wanted = _listed(getattr(gate.arguments, part))
    if gate.arguments.base or not wanted:
        return wanted
    if _identity(gate) != gate.stored.get("identity"):
        _note(gate, f"{part} was not judged: the stored values are of another interpreter or compiler (use --base)")
        return []
    if part == "time" and not _nearest(gate).is_this:
        _note(gate, "CPU time was not judged: the stored values are of another machine")
        return []
    stored = _nearest(gate).time if part == "time" else gate.stored.get(part, {})
    missing = [case for case in wanted if case not in stored]
    if missing:
        _note(gate, f"no stored {part} for {', '.join(missing)}")
    return [case for case in wanted if case in stored]


def _calls_judged(gate: Gate) -> list[Line]:
    """System calls per request against stored ones, or those of a base tree."""
    cases = _comparable_cases(gate, "calls")
    found = _calls(gate, gate.target, cases)
    stored = _calls(gate, gate.rival, list(found)) if gate.arguments.base else gate.stored.get("calls", {})
    return [judge.judge_calls(case, stored[case], number) for case, number in found.items()]


def _served_judged(gate: Gate) -> list[Line]:
    """Instructions of whole servers against stored ones, or those of a base tree."""
    cases = _comparable_cases(gate, "served")
    found = _served(gate, gate.target, cases)
    stored = _served(gate, gate.rival, list(found)) if gate.arguments.base else gate.stored.get("served", {})
    return [judge.judge_instructions(case, stored[case], number) for case, number in found.items()]


def _served(gate: Gate, tree: Target, cases: Sequence[str]) -> dict[str, float]:
    here = []
    for case in cases:
        if trouble := served.missing(case):
            _note(gate, f"instructions of {case} were not counted: {trouble}")
        else:
            here.append(case)
    gate.runner.progress(f"instructions of {tree.label()} as a server")
    return served.count(gate.runner, tree, here)


def _memory_judged(gate: Gate) -> list[Line]:
    """Memory of idle connections against stored values, or those of a base tree."""
    cases = _comparable_cases(gate, "memory")
    found = _memory(gate, gate.target, cases)
    stored = _memory(gate, gate.rival, list(found)) if gate.arguments.base else gate.stored.get("memory", {})
    return [judge.judge_memory(f"idle connection of {case}", stored[case], size) for case, size in found.items()]


def _memory(gate: Gate, tree: Target, cases: Sequence[str]) -> dict[str, float]:
    """Bytes of an idle connection, by workload: the lowest of three, since pages of others may be among them.

    Of one process: its resident set, because the proportional one changes when other programs share its libraries.
    """
    found = {}
    for case in cases:
        gate.runner.progress(f"idle connections of {tree.label()}, {case}")
        one = Scenario(scenario.WORKLOADS[case], scenario.Mode(), Load("none", 1, 1, 0.0))
        found[case] = min(memory.idle(gate.runner, tree, one, IDLE)["rss"] for _ in range(3))
    return found


def _calls(gate: Gate, tree: Target, cases: Sequence[str]) -> dict[str, float]:
    trouble = syscalls.missing()
    if trouble and cases:
        _note(gate, f"system calls were not counted: {trouble}")
        return {}
    found = {}
    for case in cases:
        gate.runner.progress(f"system calls of {tree.label()}, {case}")
        found[case] = sum(syscalls.count(gate.runner, tree, case).values())
    return found


def _counted(gate: Gate, tree: Target, cases: Sequence[str]) -> dict[str, float]:
    trouble = instructions.missing()
    if trouble:
        _note(gate, f"instructions were not counted: {trouble}")
        return {}
    gate.runner.progress(f"counting instructions of {tree.label()}")
    here = instructions.available(tree, cases)
    for case in cases:
        if case not in here:
            _note(gate, f"{case} cannot run on {tree.label()}")
    return instructions.count(tree, here) if here else {}


def _store(gate: Gate) -> int:
    """Store the measured values; speed-ups from another generator than this one stay unchanged."""
    old = _read(gate.arguments.stored) if gate.arguments.stored.exists() else {}
    workloads, reason = _comparable(gate)
    if reason:
        raise BenchError(reason)
    if workloads:
        _measure(gate, workloads, 1, times=STORED_BLOCKS)
    found = _speedups(gate.runner.samples)
    cases = [case for case in gate.arguments.cases.split(",") if case]
    counts = _counted(gate, gate.target, cases) if cases else {}
    with process.pinned(gate.runner.cores.server):
        times = cputime.several(gate.target, _listed(gate.arguments.time), STORED_BLOCKS * cputime.PROCESSES)
    calls = _calls(gate, gate.target, _listed(gate.arguments.calls))
    whole = _served(gate, gate.target, _listed(gate.arguments.served))
    weighed = _memory(gate, gate.target, _listed(gate.arguments.memory))
    machine = judge.machine(gate.described)
    machines: dict[str, dict[str, Any]] = dict(old.get("machines", {}))
    measured = {name: round(one.value, 4) for name, one in found.items()}
    spread = {name: [round(one.low, 4), round(one.high, 4)] for name, one in found.items()}
    if measured or times:
        kept = machines.get(machine, {})
        own = gate.described["targets"][gate.target.label()].get("commit", "")
        machines[machine] = {
            "created": common.now(),
            "commit": gate.described["commit"],
            "times_of": own if times else _times_of(kept),
            "ratios": {**kept.get("ratios", {}), **({gate.tool: measured} if measured else {})},
            "intervals": {**kept.get("intervals", {}), **({gate.tool: spread} if spread else {})},
            "time": {case: round(stats.mean(all_), 4) for case, all_ in times.items()} or kept.get("time", {}),
        }
    identity = judge.identity(gate.described["targets"][gate.target.label()])
    values = {
        "schema": judge.SCHEMA,
        "identity": identity if counts else old.get("identity", identity),
        # Instructions and system calls apply to every machine.
        "instructions": {case: round(one, 1) for case, one in counts.items()} or old.get("instructions", {}),
        "served": {case: round(one) for case, one in whole.items()} or old.get("served", {}),
        "calls": {case: round(one, 2) for case, one in calls.items()} or old.get("calls", {}),
        "memory": {case: round(one) for case, one in weighed.items()} or old.get("memory", {}),
        "machines": machines,
    }
    _write(gate.arguments.stored, values)
    rows = tuple((name, f"{value:,.3f}") for name, value in {**measured, **counts}.items())
    common.print_table(
        Table(f"stored, through {gate.tool}", ("case", "value"), rows), as_markdown=gate.arguments.markdown
    )
    for note in gate.notes:
        print(f"doubt: {note}")
    return 0


def _write(path: Path, values: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as exc:
        raise BenchError(f"cannot write {path}: {exc.strerror or exc}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return judge.check_stored(json.loads(path.read_text(encoding="utf-8")))
    except OSError:
        raise BenchError(f"no stored values in {path.name}: store them with --update") from None
    except ValueError as exc:
        raise BenchError(f"{path.name}: {exc}") from None
