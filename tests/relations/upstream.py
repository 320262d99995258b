"""Cases for whichever `uvicorn` another Python has: pickled on standard input, their outcomes on standard output.

python -I upstream.py DIRECTORY, with the directory that has the package `tests`
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import uvicorn  # noqa: F401  # before the directory, where there is another

sys.path.insert(0, str(Path(sys.argv[1])))

from tests.relations.runner import Services


def main() -> None:
    """Run each case that comes."""
    services = Services()
    while True:
        try:
            case = pickle.load(sys.stdin.buffer)
        except EOFError:
            services.close()
            return
        outcome = services.run(case, "upstream", None)
        pickle.dump(outcome, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
