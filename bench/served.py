"""Instructions of a whole server per request, counted by callgrind: for what no micro-benchmark drives.

One request is under way at a time, so the same steps follow each other on busy and idle machines. The handshake and
everything else that is done once is in both of two counts, whose difference is taken.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bench import instructions
from bench.errors import BenchError
from bench.load.base import Aim
from bench.load.h3load import H3load
from bench.model import Load
from bench.plan import Scenario
from bench.runner import Runner, aim_of
from bench.scenario import WORKLOADS, Mode
from bench.targets import Launch, Target

# By name: the workload.
CASES: Mapping[str, str] = {"http3:get": "h3"}
# Requests of the two counts.
FEW, MANY = 100, 1100
TIMEOUT = 120.0
OUT = "callgrind.out"


def missing() -> str | None:
    """Why nothing can be counted here; None when it can."""
    return instructions.missing() or H3load().missing() or _control_missing()


def _control_missing() -> str | None:
    return (
        None if shutil.which("callgrind_control") else "callgrind_control is not installed (apt-get install valgrind)"
    )


def count(runner: Runner, target: Target, case: str) -> float:
    """Instructions per request of a case; raises BenchError when a tool is missing or the server fails."""
    trouble = missing()
    if trouble:
        raise BenchError(trouble)
    one = Scenario(WORKLOADS[CASES[case]], Mode(), Load("none", 1, 1, 0.0))
    with runner.alone(_watched(target), one) as (server, directory):
        aim = aim_of(server, one, directory)
        _run(["callgrind_control", "-i", "on", str(server.pid)])
        for requests in (FEW, MANY):
            _ask(aim, requests)
            _run(["callgrind_control", "-d", str(server.pid)])
        totals = [instructions.total(directory / "stage" / OUT, dump) for dump in (1, 2)]
    return (totals[1] - totals[0]) / (MANY - FEW)


def _watched(target: Target) -> Target:
    """The same server under callgrind, which counts nothing yet and writes where the server runs."""

    def command(launch: Launch) -> list[str]:
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={OUT}", "-q"]
        return [*tool, *target.command(launch)]

    return dataclasses.replace(target, command=command)


def _ask(aim: Aim, requests: int) -> None:
    generator = H3load()
    load = Load(generator.name, 1, 1, 0.0)
    burst = generator.parse(_run(generator.requests(aim, 1, 1, str(requests))), load)
    if burst.requests != requests:
        raise BenchError(f"{burst.requests} of {requests} requests were answered while instructions are counted")


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{Path(argv[0]).name} did not end within {TIMEOUT:g} s") from None
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()
        raise BenchError(f"{Path(argv[0]).name} failed: {last[-1] if last else 'no reason given'}")
    return done.stdout
