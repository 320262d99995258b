"""Did it get faster, and can the figure be trusted?

Measures this tree against upstream, paired (ratios with intervals, and the noise floor of this tree against itself),
then holds the same bursts against the stored baseline, if that was measured on this machine.

    python tests/benchmarks/compare_performance.py [--rival TARGET] [--baseline NAME] [ARGUMENTS OF bench compare]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.__main__ import main as bench


def main(argv: Sequence[str]) -> int:
    """Exit status of the paired comparison; a baseline of another machine is said, and no failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rival", default="upstream", help="what this tree is paired with")
    parser.add_argument("--baseline", default="performance", help="name of the stored baseline")
    arguments, rest = parser.parse_known_args(argv)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        result = str(Path(name) / "comparison.json")
        status = bench(["compare", "ours", arguments.rival, "--output", result, *rest])
        if status == 0:
            bench(["baseline", "compare", arguments.baseline, result])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
