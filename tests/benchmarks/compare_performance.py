"""Did it get faster, and can the figure be trusted?

Measures this tree against upstream, paired (ratios with intervals, and the noise floor of this tree against itself),
then holds the same bursts against the stored baseline, if that was measured on this machine.

Where upstream is not installed, this tree is measured alone, at 1, 10, 50 and 100 connections, and shown beside what
was stored of both: that is less than a comparison, and it says how to get one.

    python tests/benchmarks/compare_performance.py [--rival TARGET] [--baseline NAME] [ARGUMENTS OF bench compare]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import targets
from bench.__main__ import main as bench
from bench.errors import BenchError

ALONE = ("--connections", "1,10,50,100", "--rounds", "3", "--seconds", "2", "--warm-up", "0.5")

# Workloads of the baseline `performance` that need no environment of their own.
STORED = "varying,echo"


def main(argv: Sequence[str]) -> int:
    """Exit status of the measurement or of its conclusion; a baseline of another machine is no failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rival", default="upstream", help="what this tree is paired with")
    parser.add_argument("--baseline", help="name of the stored baseline")
    arguments, rest = parser.parse_known_args(argv)
    paired = ["--workload", STORED, *rest]  # one that is given comes later, and counts
    try:
        targets.find(arguments.rival)
    except BenchError as exc:
        parser.error(str(exc))
    try:
        targets.find_all([arguments.rival])
    except BenchError as exc:
        print(f"{exc}: without it, only the stored baseline can be compared with", file=sys.stderr)
        print("paired ratios with intervals: make bench-setup, then this script again", file=sys.stderr)
        return alone(arguments.baseline or "concurrency", rest)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        result = str(Path(name) / "comparison.json")
        status = bench(["compare", "ours", arguments.rival, "--output", result, *paired])
        if status == 0:
            bench(["baseline", "compare", arguments.baseline or "performance", result])
            return bench(["baseline", "conclude", arguments.baseline or "performance", result])
    print("conclusion: not measured, for the reason above")
    return status


def alone(baseline: str, rest: Sequence[str]) -> int:
    """This tree beside the stored figures of both; the exit status of its measurement."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        result = str(Path(name) / "run.json")
        status = bench(["run", "ours", *ALONE, "--output", result, *rest])
        if status == 0:
            bench(["baseline", "progress", baseline, result])
            return bench(["baseline", "conclude", baseline, result])
    print("conclusion: not measured, for the reason above")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
