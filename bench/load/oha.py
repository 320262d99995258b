"""oha with a fixed rate: open loop, latency corrected for coordinated omission."""

from __future__ import annotations

import json
import shutil
from typing import Any

from bench.errors import LoadError
from bench.load.base import Aim, no_pipelining
from bench.model import Burst, Latency, Load

FIELDS = {"p50": "p50", "p75": "p75", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9"}


class Oha:
    """The generator `oha`."""

    name = "oha"
    abilities: frozenset[str] = frozenset()

    def missing(self) -> str | None:
        """oha has to be installed."""
        return None if shutil.which("oha") else "oha is not installed (cargo install oha --locked)"

    def refusal(self, load: Load) -> str | None:
        """With a rate it is an open loop, without one a closed loop."""
        return no_pipelining(self.name, load)

    def command(self, aim: Aim, load: Load) -> list[str]:
        """One burst; with a rate, latencies count from when a request was due."""
        argv = ["oha", "--no-tui", "--output-format", "json", "-z", f"{load.seconds:g}s", "-c", str(load.connections)]
        if load.rate:
            argv += ["-q", f"{load.rate:g}", "--latency-correction"]
        for name, value in aim.headers.items():
            argv += ["-H", f"{name}: {value}"]
        if aim.body:
            body = aim.directory / f"oha-{aim.port}.body"
            body.write_bytes(aim.body)
            argv += ["-D", str(body)]
        return [*argv, "-m", aim.method, aim.url]

    def parse(self, output: str, load: Load) -> Burst:
        """The JSON it prints; raises LoadError when it is not complete."""
        try:
            found: dict[str, Any] = json.loads(output[output.index("{") :])
            summary, percentiles = found["summary"], found["latencyPercentiles"]
            codes = {int(code): int(count) for code, count in found["statusCodeDistribution"].items()}
            errors = {kind: int(count) for kind, count in found["errorDistribution"].items()}
        except (ValueError, KeyError, AttributeError, TypeError) as exc:
            raise LoadError(f"oha: its output cannot be read: {exc!r}") from None
        # At its deadline oha abandons requests in flight; that is the end of the burst, not a fault of the server.
        errors = {kind: count for kind, count in errors.items() if "deadline" not in kind}
        good = sum(count for code, count in codes.items() if code < 300)
        errors["status"] = sum(codes.values()) - good
        kinds = {kind: count for kind, count in errors.items() if count}
        return Burst(
            good, float(summary["total"]), kinds, _latency(summary, percentiles), int(summary["totalData"] or 0)
        )


def _latency(summary: dict[str, Any], percentiles: dict[str, Any]) -> Latency | None:
    values = {name: percentiles.get(key) for name, key in FIELDS.items()}
    values |= {"mean": summary.get("average"), "max": summary.get("slowest")}
    if any(not isinstance(value, (int, float)) for value in values.values()):
        return None
    return Latency(**{name: float(value) for name, value in values.items() if value is not None})
