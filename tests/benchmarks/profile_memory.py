"""Memory without a server: what connections and requests hold, which lines ask for it, and what saves some.

    python tests/benchmarks/profile_memory.py [ARGUMENTS OF bench micro]

First the protocols: the size of a connection, the allocations of a request and the lines they are from. Then objects:
with `__slots__` and without, bytes built in several ways, pools against new objects. Each ends with what that means.

For whole servers, at rest, under load and per idle connection: `python -m bench memory`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.conclusion import concluded

# Enough to tell them apart, in seconds.
POOL = ("--operations", "20000", "--capacities", "100")


def main(argv: Sequence[str]) -> int:
    """Run; the exit status is that of the harness."""
    return concluded(["micro", "--no-instructions", "--places", *argv], "micro", [["pool", *POOL]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
