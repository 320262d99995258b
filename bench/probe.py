"""The harness's end of `bench.inside`: asks the interpreters of a running server."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

from bench import process
from bench.errors import BenchError, ServerError
from bench.process import Server
from bench.targets import HERE

TIMEOUT = 60.0
ENVIRONMENT = {"BENCH_INSIDE": "1"}


def install(stage: Path) -> None:
    """Put the answering code where servers started there find it."""
    shutil.copyfile(HERE / "inside.py", stage / "sitecustomize.py")


def ask_all(server: Server, directory: Path, do: str, /, **order: Any) -> dict[int, dict[str, Any]]:
    """One question to every Python process of a server; raises ServerError when none answers."""
    found = {}
    for pid in process.tree(server.pid):
        path = directory / "stage" / f"inside-{pid}.sock"
        if path.exists():
            found[pid] = ask(path, do, **order)
    if not found:
        raise ServerError(f"{server.label}: none of its processes can be asked (no Python inside?)")
    return found


def ask(path: Path, do: str, /, **order: Any) -> dict[str, Any]:
    """One question to one process; raises BenchError when it cannot be answered."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(TIMEOUT)
            client.connect(str(path))
            with client.makefile("rwb") as stream:
                stream.write(json.dumps({"do": do, **order}).encode() + b"\n")
                stream.flush()
                answer: dict[str, Any] = json.loads(stream.readline())
    except (OSError, ValueError) as exc:
        raise ServerError(f"a measured process does not answer: {exc}") from None
    if "error" in answer:
        raise BenchError(f"inside the server: {answer['error']}")
    return answer
