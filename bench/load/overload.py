"""More requests than a server can answer, at a fixed arrival rate: which of them are answered in time.

As `openloop`, but a server that refuses a request does what it should. It is no error, and what it has answered too
late is counted: the client has given up by then.
"""

from __future__ import annotations

import sys

from bench.load import own
from bench.load.openloop import OpenLoop, OpenLoopGenerator
from bench.load.response import Answer

# Seconds after the due time of a request in which its answer counts.
IN_TIME = 0.5
REFUSED, TOO_LATE = "refused", "too late"


class Overload(OpenLoop):
    """One burst. `latencies` are those of all answers, in time or not; `errors` has the refusals, too."""

    def _note(self, answer: Answer, seconds: float) -> None:
        if answer.status == 503:
            self.errors[REFUSED] += 1
            return
        super()._note(answer, seconds)
        if answer.status < 300 and seconds > IN_TIME:
            self.errors[TOO_LATE] += 1


class OverloadGenerator(OpenLoopGenerator):
    """The generator `overload`."""

    name = "overload"
    module = "bench.load.overload"


if __name__ == "__main__":
    sys.exit(own.main(sys.argv, lambda aim, load: Overload(aim, load).run()))
