"""Run random cases for some seconds, or one again."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from random import SystemRandom

from tests.differential.case import leave_out, make_case
from tests.differential.compare import difference, report, shrink


def main() -> int:
    """Exit with 1 when a case has shown a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="how long to go on (default: 20)")
    parser.add_argument("--seed", type=int, help="run the case of this seed and no other")
    parser.add_argument("--first", type=int, help="begin with this seed, and go on by one (default: anywhere)")
    parser.add_argument("--keep-going", type=int, default=1, metavar="N", help="stop at the Nth fault (default: 1)")
    parser.add_argument("--without", default="", metavar="NAMES", help="leave these operations out, such as spawn,keep")
    parser.add_argument("--no-shrink", action="store_true", help="show the case as it is")
    options = parser.parse_args()
    loops = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]
    first = options.first if options.first is not None else SystemRandom().getrandbits(48)
    seeds = iter([options.seed]) if options.seed is not None else iter(range(first, sys.maxsize))
    end = time.monotonic() + options.seconds
    cases = faults = 0
    for seed in seeds:
        if cases and time.monotonic() >= end:
            break
        case = make_case(seed, loops)
        leave_out(case, options.without.split(","))
        cases += 1
        found = difference(case, look_for_leaks=seed % 16 == 0)
        if found is None:
            continue
        faults += 1
        if not options.no_shrink:
            case, found = shrink(case, found)
        print(report(case, found))
        if faults >= options.keep_going:
            break
    print(f"applications: {cases} cases from seed {first if options.seed is None else options.seed}, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
