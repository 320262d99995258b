"""The first look: how many requests per second at 1, 10, 50 and 100 connections, through httpx, in under a minute.

    python tests/benchmarks/simple_bench.py                                  starts this tree's server itself
    python -m tests.benchmarks.simple_bench --url http://127.0.0.1:8000/     loads one that already runs

Further arguments go to `python -m bench run`. A result file with the time in its name lands in bench/results.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.conclusion import concluded

ARGUMENTS = ["--tool", "httpx", "--connections", "1,10,50,100", "--seconds", "5", "--rounds", "1"]


def main(argv: Sequence[str]) -> int:
    """Run; the exit status is that of the harness."""
    return concluded(["run", *ARGUMENTS, *argv], "concurrency")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
