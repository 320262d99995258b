"""The suite: GET and POST, small and large, streamed, with many headers, with the access log.

    python tests/benchmarks/benchmark_uvicorn.py                      starts this tree's server for each workload
    python tests/benchmarks/benchmark_uvicorn.py --no-server          loads tests.benchmarks.test_app:app, served before
    python tests/benchmarks/benchmark_uvicorn.py --no-server --url http://127.0.0.1:9000/

Further arguments go to `python -m bench run`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.conclusion import concluded

WORKLOADS = "hello,10k,json,headers,stream,files,echo,cpu,sleep"
URL = "http://127.0.0.1:8000/"


def main(argv: Sequence[str]) -> int:
    """Run; the exit status is that of the harness."""
    arguments = list(argv)
    command = ["run", "--workload", WORKLOADS, "--rounds", "1"]
    if "--no-server" in arguments:
        arguments.remove("--no-server")
        command += ["--by-path", "--url", URL]
    return concluded([*command, *arguments], "concurrency")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
