"""Compare what servers made of a case, and reduce one that shows a difference."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from tests.random_cases import shrink
from tests.relations.case import Case, reductions
from tests.relations.runner import Outcome, Services

ROOT = Path(__file__).parents[2]


class Upstream:
    """Runs cases in a process of another Python."""

    def __init__(self, python: str) -> None:
        command = [python, "-I", str(Path(__file__).with_name("upstream.py")), str(ROOT)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, case: Case) -> Outcome:
        """Run one."""
        assert self._process.stdin is not None and self._process.stdout is not None
        pickle.dump(case, self._process.stdin)
        self._process.stdin.flush()
        outcome: Outcome = pickle.load(self._process.stdout)
        return outcome

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


class Servers:
    """The servers that run each case.

    Args:
        shortcuts: those under test, as in `UVICORN_SHORTCUTS`; all if None. The oracles take none.
        upstream: the executable of a Python that has upstream.
        native: whether the native core runs cases, too.
    """

    def __init__(self, shortcuts: str | None = None, upstream: str | None = None, native: bool = True) -> None:
        self._services = Services()
        self._upstream = Upstream(upstream) if upstream else None
        self._variants: dict[str, tuple[str, str | None]] = {}
        if native:
            self._variants |= {"native": ("native", shortcuts), "native, no shortcuts": ("native", "none")}
        self._variants |= {"python": ("python", shortcuts), "python, no shortcuts": ("python", "none")}

    def outcomes(self, case: Case) -> dict[str, Outcome]:
        """Run a case on each."""
        found = {name: self._services.run(case, *variant) for name, variant in self._variants.items()}
        # The invariants of free programs are promises of this server, and its TLS ends otherwise.
        if self._upstream is not None and case.form == "scenes" and not case.tls:
            found["upstream"] = self._upstream.run(case)
        return found

    def difference(self, case: Case) -> list[str] | None:
        """Return what is wrong with a case, on any server or between them; `None` if nothing is."""
        outcomes = self.outcomes(case)
        found = [f"{name}: {fault}" for name, outcome in outcomes.items() for fault in outcome.faults]
        if case.form == "scenes":
            first, *others = outcomes
            for other in others:
                found += [f"{first}, {other}: {text}" for text in compare(case, outcomes[first], outcomes[other])]
        return found or None

    def shrink(self, case: Case, found: list[str]) -> tuple[Case, list[str]]:
        """Return a smaller case that shows a fault as well, and what it shows."""
        return shrink(case, found, reductions, self.difference, kinds)

    def close(self) -> None:
        """End them."""
        self._services.close()
        if self._upstream is not None:
            self._upstream.close()


def compare(case: Case, one: Outcome, other: Outcome) -> Iterator[str]:
    """Say where two outcomes differ."""
    for key in sorted({*one.notes, *other.notes}):
        left, right = one.notes.get(key), other.notes.get(key)
        if left != right:
            number, place = key
            yield f"participant {number} at scene {place} came to\n    {left!r}\n    {right!r}"
    for number, participant in enumerate(case.participants):
        # Of what a client is sent that goes away some may be lost.
        if participant.leaves is None and one.answers.get(number) != other.answers.get(number):
            yield f"client of {number} was sent\n    {one.answers.get(number)}\n    {other.answers.get(number)}"
    if one.log != other.log:
        yield f"the log says\n    {one.log}\n    {other.log}"


def kinds(found: list[str]) -> set[str]:
    """What sort of faults these are, so that reducing a case does not go astray."""
    return {"".join(letter for letter in line.split("\n")[0] if not letter.isdigit())[:60] for line in found}


def report(case: Case, found: list[str]) -> str:
    """Return what there is to know about a case that has shown a fault."""
    lines = [f"seed {case.seed}, again with: python -m tests.relations --seed {case.seed}"]
    for part in fields(case):
        if part.name not in ("seed", "participants", "scenes"):
            lines.append(f"  {part.name}: {getattr(case, part.name)!r}")
    for number, one in enumerate(case.participants):
        lines.append(f"  participant {number}: {one.kind} on connection {one.connection}, answers: {one.reply}, {one}")
    for place, scene in enumerate(case.scenes):
        lines.append(f"  scene {place}: {scene.kind} of {scene.members}")
        lines += [f"      {name}: {value!r}" for name, value in scene.data.items()]
    return "\n".join([*lines, *found])


def upstream_python() -> str | None:
    """The Python with upstream, if the environment names one."""
    return os.environ.get("UPSTREAM_PYTHON") or None
