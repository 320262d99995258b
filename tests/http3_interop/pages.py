"""Times of a page of 100 KB with 20 objects over HTTP/3 and HTTP/2, on one link: `scripts/http3-interop --pages`."""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path

from tests.http3_interop.app import OBJECTS
from tests.http3_interop.clients import HERE, PLACE, PYTHON
from tests.http3_interop.link import Conditions, Link
from tests.http3_interop.server import BASE, Certificate, Server

SIZE = 100_000 // (OBJECTS + 1)
CONDITIONS = {
    "30 ms": Conditions(delay=0.015),
    "30 ms, 1 % loss": Conditions(delay=0.015, loss=0.01),
    "30 ms, 2 % loss": Conditions(delay=0.015, loss=0.02),
    "30 ms, 1 % loss, 10 Mbit/s": Conditions(delay=0.015, loss=0.01, rate=1_250_000),
}


def measure(link: Link, place: Path, pairs: int = 50) -> None:
    """Print the medians, and the 90th percentiles."""
    with Server(Certificate(place), PLACE / "server.log"):
        for name, conditions in CONDITIONS.items():
            link.conditions = conditions
            command = [PYTHON, HERE / "page_client.py", BASE, str(SIZE), str(OBJECTS), str(pairs)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            for version, times in json.loads(done.stdout).items():
                for kind, one in zip(("new connection", "second page"), zip(*times, strict=True), strict=True):
                    tenths = statistics.quantiles(one, n=10)
                    print(
                        f"{name}, HTTP/{version}, {kind}: {tenths[4] * 1e3:.0f} ms, p90 {tenths[8] * 1e3:.0f}",
                        flush=True,
                    )
