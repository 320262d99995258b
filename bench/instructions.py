"""Instructions per operation of the micro-benchmarks, counted by callgrind: the same on busy and idle machines."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import process
from bench.errors import BenchError, last_line
from bench.targets import HERE, ROOT, Target, import_root, interpreter

CASES = (
    *("native:get", "native:headers", "native:post", "native:pipeline", "native:stream"),
    *("httptools:get", "httptools:headers", "httptools:post", "httptools:pipeline", "httptools:stream"),
    *("h11:get", "h11:post", "event:pooled", "native:log", "httptools:log", "websocket:echo"),
)
# What the gate counts: both paths, the access log, a WebSocket; each case costs seconds.
GATE_CASES = (
    *("native:get", "native:post", "native:stream", "native:pipeline", "native:log"),
    *("httptools:get", "httptools:log", "h11:get", "websocket:echo"),
)
OPERATIONS = 300
TIMEOUT = 240.0


def missing() -> str | None:
    """Why instructions cannot be counted here; None when they can."""
    return None if shutil.which("valgrind") else "valgrind is not installed (apt-get install valgrind)"


def run_micro(
    target: Target,
    arguments: Sequence[str],
    *,
    directory: Path,
    wrapper: Sequence[str] = (),
    extra: Mapping[str, str] | None = None,
) -> str:
    """Run `bench.micro` against a tree in its own interpreter; returns its output. Raises BenchError in one line."""
    script = directory / "bench_micro.py"
    shutil.copyfile(HERE / "micro.py", script)
    root = import_root(target)
    # The doubles may come from another tree than the code under measurement.
    path = [str(one) for one in (root, ROOT) if one]
    fixed = {"PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0"}
    environment = {**process.clean_environment(), **fixed, **(extra or {})}
    argv = [*wrapper, interpreter(target), str(script), *arguments]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, cwd=directory, env=environment, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        raise BenchError(f"the micro-benchmarks did not end within {TIMEOUT:g} s") from None
    if done.returncode != 0:
        raise BenchError(f"the micro-benchmarks failed: {complaint(done.stderr or done.stdout)}")
    return done.stdout


def complaint(output: str) -> str:
    """What a program under valgrind said last itself."""
    return last_line("\n".join(line for line in output.splitlines() if not line.startswith("==")))


def available(target: Target, cases: Sequence[str]) -> list[str]:
    """Those of the cases that can run on a tree; raises BenchError for unknown cases."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        output = run_micro(target, ["available", *cases], directory=Path(name))
    found: list[str] = json.loads(output.strip().splitlines()[-1])
    return found


def count(target: Target, cases: Sequence[str] = CASES, *, operations: int = OPERATIONS) -> dict[str, float]:
    """Instructions per operation of each case; raises BenchError when valgrind is missing or a case fails."""
    trouble = missing()
    if trouble:
        raise BenchError(trouble)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        out = Path(name) / "callgrind.out"
        wrapper = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-before=getpgid"]
        run_micro(target, ["count", *cases, "--operations", str(operations)], directory=Path(name), wrapper=wrapper)
        # Dump 1 is everything before the first mark; from then on every second dump is a case between its marks.
        return {case: total(out, 2 * number + 2) / operations for number, case in enumerate(cases)}


def total(out: Path, dump: int) -> int:
    """The instructions of one callgrind dump; raises BenchError when it is not there or has no total."""
    return totalled(Path(f"{out}.{dump}"))


def totalled(path: Path) -> int:
    """The instructions in a file of callgrind's; raises BenchError when it is not there or has no total."""
    try:
        found = re.search(r"^totals: (\d+)", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        raise BenchError("callgrind did not see the marks of the micro-benchmarks") from None
    if found is None:
        raise BenchError("callgrind wrote a dump without a total")
    return int(found[1])
