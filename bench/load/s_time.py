"""openssl's `s_time`: one TLS connection after the other, each for one request, resumed or not."""

from __future__ import annotations

import re
import shutil

from bench.errors import LoadError, last_line
from bench.load.base import Aim, ClosedLoop
from bench.model import Burst, Load

_SUMMARY = re.compile(r"^(\d+) connections in (\d+) real seconds, (\d+) bytes read per connection$", re.MULTILINE)
_RESUMED, _FULL = "r", "*"


class TLSConnections(ClosedLoop):
    """The generator `s_time`: connects, asks in HTTP/1.0, reads to the end. It has no latencies."""

    name = "s_time"
    abilities = frozenset({"tls", "close", "resumes"})

    def missing(self) -> str | None:
        """openssl has to be installed."""
        return None if shutil.which("openssl") else "openssl is not installed (apt-get install openssl)"

    def refusal(self, load: Load) -> str | None:
        """It has one connection at a time."""
        if load.connections != 1:
            return f"{self.name} has one connection at a time: --connections 1"
        return super().refusal(load)

    def command(self, aim: Aim, load: Load) -> list[str]:
        """One burst."""
        mode = "-reuse" if "resumes" in aim.options else "-new"
        seconds = str(max(1, round(load.seconds)))
        return ["openssl", "s_time", "-connect", f"127.0.0.1:{aim.port}", "-www", aim.path, mode, "-time", seconds]

    def parse(self, output: str, load: Load) -> Burst:
        """Connections and bytes of the summary; raises LoadError when it is missing, or when none was resumed.

        The summary counts whole seconds, one too many: the time asked for is taken instead.
        """
        found = _SUMMARY.search(output)
        if found is None:
            last = last_line(output, "nothing")
            raise LoadError(f"s_time did not finish; it printed: {last[:200]}")
        requests = int(found[1])
        marks = "".join(line for line in output.splitlines() if set(line) <= {_RESUMED, _FULL})
        errors = {"not resumed": marks.count(_FULL)} if _RESUMED in marks else {}
        return Burst(requests, max(1.0, round(load.seconds)), errors, None, requests * int(found[3]))
