"""h3load: closed loop over HTTP/3; the program is an example of `native/quic`.

The same aim with `over` reaches the server over HTTP/2 and TLS instead, through h2load: so the two versions of HTTP can
be compared in one run.
"""

from __future__ import annotations

import json
from pathlib import Path

from bench.errors import LoadError, last_line
from bench.load import histogram
from bench.load.base import Aim, ClosedLoop
from bench.load.h2load import H2load
from bench.model import Burst, Load

_NATIVE = Path(__file__).resolve().parent.parent.parent / "native"
PROGRAM = _NATIVE / "target" / "release" / "examples" / "h3load"
BUILD = "cargo build --release --package quic --example h3load"


class H3load(ClosedLoop):
    """The generator `h3load`."""

    name = "h3load"
    pipelines = True
    abilities = frozenset({"http3", "tls", "over"})

    def __init__(self) -> None:
        self._over_tcp = H2load("h2load-h2", ("-p", "h2c"), "http2", "tls")

    def missing(self) -> str | None:
        """It has to be built, and h2load to be installed."""
        if not PROGRAM.exists():
            return f"h3load is not built (cd native && {BUILD})"
        return self._over_tcp.missing()

    def command(self, aim: Aim, load: Load) -> list[str]:
        """One burst."""
        if "over" in aim.options:
            return self._over_tcp.command(aim, load)
        return self.requests(aim, load.connections, load.pipeline, f"{load.seconds}s")

    def requests(self, aim: Aim, connections: int, streams: int, many: str) -> list[str]:
        """The command for `many` requests, or with an `s` behind it for that many seconds."""
        argv = [str(PROGRAM), f"127.0.0.1:{aim.port}", str(connections), str(streams), many, aim.path, "--json"]
        for name, value in aim.headers.items():
            argv += ["--field", f"{name}:{value}"]
        argv += ["--method", aim.method] if aim.method != "GET" else []
        argv += ["--expect", str(aim.response_bytes)] if aim.response_bytes is not None else []
        if aim.body:
            body = aim.directory / f"h3load-{aim.port}.body"
            body.write_bytes(aim.body)
            argv += ["--body", str(body)]
        return argv

    def parse(self, output: str, load: Load) -> Burst:
        """Its last line; raises LoadError when that is not there."""
        last = last_line(output, "nothing")
        if not last.startswith('{"requests"'):
            if "traffic: " in output:
                return self._over_tcp.parse(output, load)
            raise LoadError(f"h3load did not finish; it printed: {last[:200]}")
        found = json.loads(last)
        recorded = histogram.counted((micros, count) for micros, count in found["times"])
        known = histogram.latency(recorded)
        encoded = histogram.encode(recorded) if known else None
        return Burst(found["requests"], found["seconds"], found["errors"], known, found["received"], encoded)
