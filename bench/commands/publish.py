"""`publish`: measure everything the documents show, part by part, and write them.

A part is kept as soon as it is finished, so a run that was interrupted goes on where it ended. Parts that were measured
on another machine or of other code are measured again. Bursts of several times may be put together (`--more`), which
makes intervals narrower.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import shlex
import time
from dataclasses import replace
from pathlib import Path

from bench import environment, merge, model, parts, targets
from bench.commands import common
from bench.commands.baseline import BASELINES, check_portable
from bench.errors import BenchError
from bench.model import Result
from bench.report import Table
from bench.targets import ROOT

# The load average at which a publication may begin, and how many seconds it waits for that.
CALM, PATIENCE = 0.3, 900.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which parts, how thoroughly, where to."""
    parser.add_argument("--only", default=",".join(parts.NAMES), help="parts to measure, comma-separated")
    parser.add_argument(
        "--everything", action="store_true", help="also the parts that take long: for a machine that has been waiting"
    )
    parser.add_argument("--quick", action="store_true", help="try everything out with short bursts, in bench/results")
    parser.add_argument("--plan", action="store_true", help="only say what would be measured, and how long it takes")
    repeated = parser.add_mutually_exclusive_group()
    repeated.add_argument("--again", action="store_true", help="measure finished parts again")
    repeated.add_argument("--more", action="store_true", help="add as many bursts again to parts that are finished")


def execute(arguments: argparse.Namespace) -> int:
    """Measure missing parts, then write the documents; exit status 1 if a part could not be measured."""
    campaign = Campaign(arguments.quick)
    wanted = [name.strip() for name in arguments.only.split(",")]
    if arguments.everything:
        wanted += [part.name for part in parts.LONG if part.name not in wanted]
    for name in wanted:
        if name != "gate":
            parts.find(name)
    if arguments.plan:
        common.print_table(campaign.plan(wanted), as_markdown=False)
        return 0
    if arguments.more:
        campaign.check_more(wanted)
    # Nothing is worse than to learn after half an hour that a server is missing.
    for line in (line for name in wanted for line in campaign.commands(name)):
        for word in shlex.split(line)[1:]:
            if word.partition(":")[0] in targets.TARGETS:
                targets.find_all([word])
    if not arguments.quick:
        environment.await_calm(CALM, PATIENCE, common.told)
    if arguments.again:
        campaign.forget(wanted)
    failed = campaign.carry_out(wanted, more=arguments.more)
    campaign.publish()
    if failed:
        raise BenchError(f"not measured: {', '.join(failed)} (run this again to try once more)")
    return 0


class Campaign:
    """Everything that is published, or a quick trial of it with its documents aside."""

    def __init__(self, quick: bool) -> None:
        """A trial leaves the repository alone."""
        self.quick = quick
        self.work = common.RESULTS / ("publish-quick" if quick else "publish")
        self.baselines = self.work / "baselines" if quick else BASELINES
        self.root = self.work / "documents" if quick else ROOT
        self.tree = environment.describe([targets.find("ours")], environment.cores(1))

    def commands(self, name: str) -> list[str]:
        """The command lines of a part."""
        if name == "gate":
            stored = shlex.quote(str(self.baselines / "gate.json"))
            lines, quick = [f"{line} --stored {stored}" for line in parts.GATE], parts.GATE_QUICK
        else:
            lines, quick = list(parts.find(name).commands), parts.find(name).quick
        return [f"{line} {quick}" if self.quick else line for line in lines]

    def minutes(self, name: str) -> float:
        """About how long a part takes."""
        if name == "gate":
            return parts.GATE_QUICK_MINUTES if self.quick else parts.GATE_MINUTES
        part = parts.find(name)
        return part.quick_minutes if self.quick else part.minutes

    def plan(self, names: list[str]) -> Table:
        """The planned and the finished parts."""
        rows = [
            (name, f"{self.minutes(name):g}", "finished" if self._finished(name) else "to do", self.commands(name)[0])
            for name in names
        ]
        left = sum(self.minutes(name) for name in names if not self._finished(name))
        rows.append(("left to do", f"{left:g}", "", ""))
        return Table("parts", ("part", "minutes", "state", "first command"), tuple(rows))

    def forget(self, names: list[str]) -> None:
        """Measure these parts again, whatever is there."""
        for name in names:
            for path in self.work.glob(f"{name}-*.json"):
                if path.stem.removeprefix(f"{name}-")[0].isdigit():
                    path.unlink()

    def check_more(self, names: list[str]) -> None:
        """Raises BenchError for a part that has no bursts: nothing can be added to it."""
        for name in names:
            if name == "gate" or (self._finished(name) and not model.load(self._file(name, 0)).samples):
                raise BenchError(f"{name} has no bursts that others could be added to: use --again")

    def carry_out(self, names: list[str], *, more: bool = False) -> list[str]:
        """Measure the parts that are not finished, or once more those that are; returns those that failed."""
        failed = []
        for number, name in enumerate(names, 1):
            left = sum(self.minutes(one) for one in names[number - 1 :] if more or not self._finished(one))
            finished = self._rounds(name)
            if finished and not more:
                common.told(f"part {number} of {len(names)}, {name}: finished before")
                continue
            common.told(f"part {number} of {len(names)}, {name}: about {self.minutes(name):g} of {left:g} minutes left")
            begun = time.monotonic()
            if self._measure(name, finished):
                common.told(f"{name} took {(time.monotonic() - begun) / 60:.1f} minutes")
            else:
                failed.append(name)
        return failed

    def publish(self) -> None:
        """Put finished parts where documents read them, and write the documents."""
        for part in (*parts.PARTS, *parts.LONG):
            if self._finished(part.name):
                kept = [(one, model.load(self._file(part.name, one, nth))) for one, nth in self._kept(part.name)]
                merged = merge.merge([result for _, result in kept])
                # Once for each time it was measured.
                told = {"about": part.about, "commands": [part.commands[number] for number, _ in kept]}
                begun = [result.created for number, result in kept if number == 0]
                note = f"bursts of {len(begun)} times together: {', '.join(begun)}"
                notes = (*merged.notes, note) if len(begun) > 1 else merged.notes
                result = replace(merged, data={**merged.data, model.MEASURED: told}, notes=notes)
                check_portable(result)
                model.save(result, self.baselines / f"{part.name}.json")
        importlib.import_module("bench.commands.report").write_documents(self.baselines, self.root)

    def _file(self, name: str, number: int, nth: int = 0) -> Path:
        return self.work / (f"{name}-{number}-{nth}.json" if nth else f"{name}-{number}.json")

    def _measure(self, name: str, nth: int) -> bool:
        """Whether every command of a part left a whole result; one that is there from before is not run again."""
        for number, line in enumerate(self.commands(name)):
            path = self._file(name, number, nth)
            if self._whole(path, line):
                continue
            path.unlink(missing_ok=True)
            # The gate stores its values itself, and leaves its word that it has.
            stores = [] if name == "gate" else ["--output", str(path)]
            command = importlib.import_module("bench.__main__").main
            status = command([*shlex.split(line), *stores])
            if status == 130 or self._interrupted(path):
                raise KeyboardInterrupt
            if name == "gate" and status == 0:
                model.save(Result("gate", common.now(), self.tree), path)
            if not self._whole(path, line):
                return False
            result = model.load(path)
            model.save(replace(result, data={**result.data, model.MEASURED: {"commands": [line]}}), path)
        return True

    def _finished(self, name: str) -> bool:
        return self._rounds(name) > 0

    def _rounds(self, name: str) -> int:
        """How many times every command of a part left a whole result."""
        every = len(self.commands(name))
        return next(nth for nth in itertools.count() if len(self._done(name, nth)) < every)

    def _kept(self, name: str) -> list[tuple[int, int]]:
        """Which command's result of which time is whole: the last time may have been interrupted between two."""
        return [(number, nth) for nth in range(self._rounds(name) + 1) for number in self._done(name, nth)]

    def _done(self, name: str, nth: int) -> list[int]:
        """The commands of a part that left a whole result at one time."""
        lines = enumerate(self.commands(name))
        return [number for number, line in lines if self._whole(self._file(name, number, nth), line)]

    @staticmethod
    def _interrupted(path: Path) -> bool:
        return path.exists() and f"ended early: {common.INTERRUPTED}" in model.load(path).notes

    def _whole(self, path: Path, line: str) -> bool:
        """Whether a result is there, was not cut short, and is of this machine, this code and this command line."""
        if not path.exists():
            return False
        result = model.load(path)
        measured = result.data.get(model.MEASURED, {}).get("commands", [line])
        if line not in measured or any(note.startswith("ended early") for note in result.notes):
            return False
        try:
            environment.same(self.tree, result.environment, pinning=False)
        except BenchError:
            return False
        return True
