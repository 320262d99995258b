"""What the generators written here share: the aim goes in as a file, the burst comes out as one line of JSON."""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import LoadError, last_line
from bench.load import histogram
from bench.load.base import Aim
from bench.model import Burst, Load, decode

MARK = "bench: "
MARKED = "bench: mark\n"
"""Printed when what follows is to be measured, and again when no more is; the harness answers with a line."""


class Own:
    """A generator that is a module of this package, run by the harness's own interpreter."""

    name = ""
    module = ""
    abilities: frozenset[str] = frozenset()

    def missing(self) -> str | None:
        """hdrhistogram has to be installed."""
        try:
            histogram.record(())
        except LoadError as exc:
            return str(exc)
        return None

    def command(self, aim: Aim, load: Load) -> list[str]:
        """One burst; the aim is written into its own directory."""
        order = {"aim": dataclasses.asdict(aim), "load": dataclasses.asdict(load)}
        order["aim"]["body"] = base64.b64encode(aim.body).decode()
        order["aim"]["directory"] = str(aim.directory)
        path = aim.directory / f"{self.name}-{aim.port}.json"
        path.write_text(json.dumps(order), encoding="utf-8")
        return [sys.executable, "-m", self.module, str(path)]

    def parse(self, output: str, load: Load) -> Burst:
        """The one marked line; raises LoadError when it is not there."""
        lines = [line for line in output.splitlines() if line.startswith(MARK)]
        if len(lines) != 1:
            last = last_line(output, "nothing")
            raise LoadError(f"{self.name} did not finish; it printed: {last}")
        return decode(Burst, json.loads(lines[0][len(MARK) :]))


def burst(latencies: Sequence[float], seconds: float, errors: Mapping[str, int], received: int) -> Burst:
    """A burst from single latencies, in seconds."""
    recorded = histogram.record(latencies)
    kinds = {kind: count for kind, count in errors.items() if count}
    known = histogram.latency(recorded)
    return Burst(len(latencies), seconds, kinds, known, received, histogram.encode(recorded) if known else None)


def mark() -> None:
    """Have the harness read the server's figures now."""
    sys.stdout.write(MARKED)
    sys.stdout.flush()
    sys.stdin.readline()


def main(argv: Sequence[str], drive: Callable[[Aim, Load], Burst]) -> int:
    """The program of a generator: read the order, drive, print. Problems are said in one line, exit status 1."""
    order: dict[str, Any] = json.loads(Path(argv[1]).read_text(encoding="utf-8"))
    aim = order["aim"]
    aim["body"], aim["directory"] = base64.b64decode(aim["body"]), Path(aim["directory"])
    try:
        found = drive(Aim(**aim), decode(Load, order["load"]))
    except (LoadError, OSError) as exc:
        print(exc)
        return 1
    print(MARK + json.dumps(dataclasses.asdict(found)))
    return 0
