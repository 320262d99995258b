"""The suite: GET and POST, small and large, streamed, with many headers, of this tree and of upstream.

    python tests/benchmarks/benchmark_uvicorn.py                      starts both servers for each workload
    python tests/benchmarks/benchmark_uvicorn.py --no-server          loads tests.benchmarks.test_app:app, served before
    python tests/benchmarks/benchmark_uvicorn.py --no-server --url http://127.0.0.1:9000/

Further arguments go to `python -m bench run`: `ours` measures this tree alone. The last line judges CPU per request
beside upstream's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.conclusion import driven

WORKLOADS = "hello,10k,json,headers,stream,files,echo,cpu,sleep"
URL = "http://127.0.0.1:8000/"
# The baselines that have these workloads of both servers.
STORED = "performance,plain,applications"


def main(argv: Sequence[str]) -> int:
    """Run; the exit status is that of the harness."""
    return driven(["--workload", WORKLOADS, "--rounds", "1"], argv, STORED, URL, "--by-path")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
