"""h2load: closed loop, HTTP/1.1 or HTTP/2. Percentiles come from its request log, counts from its summary."""

from __future__ import annotations

import re
import shlex
import shutil

from bench.errors import LoadError, last_line
from bench.load import histogram
from bench.load.base import Aim, ClosedLoop
from bench.model import Burst, Load

_ANSWER = re.compile(r"^\d{15,}\t2\d\d\t(\d+)$", re.MULTILINE)
"""A good answer in the log: start, status, duration in us."""


class H2load(ClosedLoop):
    """The generator `h2load` (HTTP/1.1), or `h2load-h2` (HTTP/2: by prior knowledge in the clear, by ALPN over TLS)."""

    pipelines = True

    def __init__(self, name: str, protocol: tuple[str, ...], *abilities: str) -> None:
        self.name = name
        self.abilities = frozenset(abilities)
        self._protocol = protocol

    def missing(self) -> str | None:
        """h2load has to be installed."""
        return None if shutil.which("h2load") else "h2load is not installed (apt-get install nghttp2-client)"

    def command(self, aim: Aim, load: Load) -> list[str]:
        """One burst; the request log is written into the aim's directory and printed after the summary."""
        log, body = aim.directory / f"h2load-{aim.port}.log", aim.directory / f"h2load-{aim.port}.body"
        threads = min(load.threads, load.connections)
        argv = [
            "h2load",
            *self._protocol,
            "-c",
            str(load.connections),
            "-t",
            str(threads),
            "-D",
            f"{load.seconds * 1000:.0f}ms",
        ]
        argv += ["-m", str(load.pipeline), f"--log-file={log}"]
        for name, value in aim.headers.items():
            argv += ["-H", f"{name}: {value}"]
        if aim.method != "GET":
            argv += ["-H", f":method: {aim.method}"]
        if aim.body:
            body.write_bytes(aim.body)
            argv += ["-d", str(body)]
        log.unlink(missing_ok=True)
        # h2load goes on without a word when a server closes a connection.
        open_ones = f"grep -c ' 0100007F:[0-9A-F]* 0100007F:{aim.port:04X} 01 ' /proc/net/tcp 2>/dev/null"
        count = f'{{ sleep {load.seconds * 0.9:.3f}; echo "open connections: $({open_ones})"; }}'
        return ["sh", "-c", f"{count} & {shlex.join([*argv, aim.url])} && wait && cat {shlex.quote(str(log))}"]

    def parse(self, output: str, load: Load) -> Burst:
        """Counts of the summary, durations of the log; raises LoadError when either is missing."""
        counts = re.search(
            r"^requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, "
            r"(\d+) failed, (\d+) errored, (\d+) timeout",
            output,
            re.MULTILINE,
        )
        codes = re.search(r"^status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output, re.MULTILINE)
        finished = re.search(r"^finished in ([\d.]+)(us|ms|s|m)\b", output, re.MULTILINE)
        traffic = re.search(r"^traffic: .*?\((\d+)\) total", output, re.MULTILINE)
        if counts is None or codes is None or finished is None or traffic is None:
            last = last_line(output, "nothing")
            raise LoadError(f"h2load did not finish; it printed: {last}")
        seconds = float(finished[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60}[finished[2]]
        durations = [int(row[1]) / 1e6 for row in _ANSWER.finditer(output)]
        # Requests in flight when the time was up may be in one count and not in the other.
        if abs(len(durations) - int(codes[1])) > load.connections * load.pipeline:
            raise LoadError(f"h2load: its log has {len(durations)} answers, its summary {codes[1]}")
        bad_status = sum(int(codes[number]) for number in (2, 3, 4))
        failed = max(0, int(counts[4]) - bad_status)
        open_ones = re.search(r"^open connections: (\d+)", output, re.MULTILINE)
        errors = {
            "lost connections": max(0, load.connections - int(open_ones[1])) if open_ones else 0,
            "failed": failed,
            "status": bad_status,
            "errored": int(counts[5]),
            "timeout": int(counts[6]),
        }
        recorded = histogram.record(durations)
        known = histogram.latency(recorded)
        encoded = histogram.encode(recorded) if known else None
        kinds = {kind: count for kind, count in errors.items() if count}
        return Burst(int(codes[1]), seconds, kinds, known, int(traffic[1]), encoded)
