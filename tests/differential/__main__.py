"""Run random cases for some seconds, or one again."""

from __future__ import annotations

import sys

from tests.differential import streams
from tests.differential.case import Case, leave_out, make_case
from tests.differential.compare import difference, report, smaller
from tests.loops import LOOPS
from tests.random_cases import parser, search


def main() -> int:
    """Exit with 1 when a case has shown a fault."""
    arguments = parser("tests.differential")
    arguments.add_argument("--without", default="", metavar="NAMES", help="leave out operations, such as spawn,keep")
    options = arguments.parse_args()

    def find(seed: int) -> tuple[Case, list[str] | None]:
        case = make_case(seed, LOOPS)
        leave_out(case, options.without.split(","))
        found = difference(case, look_for_leaks=seed % 16 == 0)
        if found is None and streams.AVAILABLE and seed % 4 == 0:
            found = streams.difference(case)
        return case, found

    return search("applications", options, find, smaller, report)


if __name__ == "__main__":
    sys.exit(main())
