"""Run random cases for some seconds, or one again."""

from __future__ import annotations

import sys

from tests.loops import LOOPS
from tests.random_cases import parser, search
from tests.relations.case import Case, make_case
from tests.relations.compare import Servers, report, upstream_python
from tests.utils import NATIVE


def main() -> int:
    """Exit with 1 when a case has shown a fault."""
    arguments = parser("tests.relations")
    arguments.add_argument("--shortcuts", help="test only these shortcuts, such as eager,reuse (default: all)")
    arguments.add_argument("--python-only", action="store_true", help="do not run the native core")
    options = arguments.parse_args()
    servers = Servers(options.shortcuts, upstream_python(), NATIVE and not options.python_only)

    def find(seed: int) -> tuple[Case, list[str] | None]:
        case = make_case(seed, LOOPS)
        return case, servers.difference(case)

    status = search("relations", options, find, servers.shrink, report)
    servers.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
