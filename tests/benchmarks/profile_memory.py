"""Memory of the protocols without a server: what a connection holds, what a request allocates and leaves behind.

    python tests/benchmarks/profile_memory.py [ARGUMENTS OF bench micro]

For whole servers, at rest, under load and per idle connection: `python -m bench memory`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.__main__ import main as bench


def main(argv: Sequence[str]) -> int:
    """Run; the exit status is that of the harness."""
    return bench(["micro", "--no-instructions", *argv])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
