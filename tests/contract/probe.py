"""Run the cases of a group against whichever `uvicorn` the running Python has, and print their outcomes as JSON.

python probe.py GROUP [CASE ...]
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main(group: str, *names: str) -> None:
    """Print the outcomes."""
    # Not the repository: there is a `uvicorn` in it.
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    harness = importlib.import_module("contract.harness")
    cases = importlib.import_module(f"contract.cases_{group}").cases()
    wanted = {name: case for name, case in cases.items() if not names or name in names}
    print(json.dumps(harness.outcomes(wanted)))


if __name__ == "__main__":
    main(*sys.argv[1:])
