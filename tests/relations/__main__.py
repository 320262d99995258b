"""Run random cases for some seconds, or one again."""

from __future__ import annotations

import argparse
import sys
import time
from random import SystemRandom

from tests.relations.case import make_case
from tests.relations.compare import Servers, loops, report, upstream_python
from tests.utils import NATIVE


def main() -> int:
    """Exit with 1 when a case has shown a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.relations", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="how long to go on (default: 20)")
    parser.add_argument("--seed", type=int, help="run the case of this seed and no other")
    parser.add_argument("--first", type=int, help="begin with this seed, and go on by one (default: anywhere)")
    parser.add_argument("--keep-going", type=int, default=1, metavar="N", help="stop at the Nth fault (default: 1)")
    parser.add_argument("--shortcuts", help="test only these shortcuts, such as eager,reuse (default: all)")
    parser.add_argument("--python-only", action="store_true", help="do not run the native core")
    parser.add_argument("--no-shrink", action="store_true", help="show the case as it is")
    options = parser.parse_args()
    first = options.first if options.first is not None else SystemRandom().getrandbits(48)
    seeds = iter([options.seed]) if options.seed is not None else iter(range(first, sys.maxsize))
    native = NATIVE and not options.python_only
    servers = Servers(options.shortcuts, upstream_python(), native)
    begin = time.monotonic()
    cases = faults = 0
    for seed in seeds:
        if cases and time.monotonic() - begin >= options.seconds:
            break
        case = make_case(seed, loops())
        cases += 1
        found = servers.difference(case)
        if found is None:
            continue
        faults += 1
        print(f"case {cases} shows a fault, after {time.monotonic() - begin:.1f} s")
        if not options.no_shrink:
            case, found = servers.shrink(case, found)
        print(report(case, found), flush=True)
        if faults >= options.keep_going:
            break
    servers.close()
    print(f"relations: {cases} cases from seed {first if options.seed is None else options.seed}, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
