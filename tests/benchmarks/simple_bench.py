"""The first look: how many requests per second at 1, 10, 50 and 100 connections, through httpx, in a minute.

    python tests/benchmarks/simple_bench.py                                  starts this tree's server, and upstream's
    python -m tests.benchmarks.simple_bench --url http://127.0.0.1:8000/     loads one that already runs (--no-server)

Further arguments go to `python -m bench run`: `ours` measures this tree alone. The last line judges CPU per request
beside upstream's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.conclusion import driven

ARGUMENTS = ["--tool", "httpx", "--connections", "1,10,50,100", "--seconds", "4", "--rounds", "1"]
URL = "http://127.0.0.1:8000/"


def main(argv: Sequence[str]) -> int:
    """Run; the exit status is that of the harness."""
    return driven(ARGUMENTS, argv, "concurrency", URL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
