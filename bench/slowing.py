"""Copies of a tree that are slower on purpose, to show that the gate sees it: a tenth more time in one path each."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench import trees
from bench.errors import BenchError
from bench.instructions import run_micro
from bench.targets import Target, import_root

SHARE = 0.10


@dataclass(frozen=True)
class Slowed:
    """One path made slower: `case` is the micro-benchmark that a tenth is taken of, `code` is added to a module."""

    path: str
    case: str
    module: str
    code: str


# Work that the loaded application does before each request or message, where a condition on the configuration holds.
_APPLICATION = """

_load = Config.load


def _slow_load(self):
    _load(self)
    application = self.loaded_app
    if CONDITION:

        async def slow(scope, receive, send):
            for _ in range(ITERATIONS):
                pass
            await application(scope, receive, send)

        self.loaded_app = slow


Config.load = _slow_load
"""

_METHOD = """

_quick = CLASS.data_received


def _slow(self, data):
    for _ in range(ITERATIONS):
        pass
    _quick(self, data)


CLASS.data_received = _slow
"""

SLOWED = (
    Slowed(
        "the native path",
        "native:get",
        "protocols/http/native_impl.py",
        _METHOD.replace("CLASS", "NativeProtocol").replace("_quick(self, data)", "return _quick(self, data)"),
    ),
    Slowed(
        "the Python path",
        "httptools:get",
        "protocols/http/httptools_impl.py",
        _METHOD.replace("CLASS", "HttpToolsProtocol"),
    ),
    Slowed("the access log", "native:log", "config/__init__.py", _APPLICATION.replace("CONDITION", "self.access_log")),
    Slowed(
        "WebSockets",
        "websocket:echo",
        "protocols/websockets/native_impl.py",
        _METHOD.replace("CLASS", "NativeWebSocketProtocol"),
    ),
)


def label(slowed: Slowed | None) -> str:
    """In words, for a row."""
    return "unchanged" if slowed is None else f"{SHARE:.0%} more time in {slowed.path}"


def copied(target: Target, directory: Path, slowed: Slowed | None) -> Path:
    """A copy of the target's package, slower in one path; returns the root to import it from."""
    root = import_root(target)
    if root is None:
        raise BenchError(f"{target.name} has no tree to copy: use ours")
    place = Path(tempfile.mkdtemp(dir=directory)) / "tree"
    trees.stage(root / "uvicorn", place)
    if slowed is not None:
        module = place / "uvicorn" / slowed.module
        code = slowed.code.replace("ITERATIONS", str(iterations(target, slowed.case)))
        module.write_text(module.read_text(encoding="utf-8") + code, encoding="utf-8")
    return place


def iterations(target: Target, case: str) -> int:
    """How many turns of an empty loop take a tenth of a case's time in the target's interpreter."""
    turns = 1000
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        order = ["time", case, f"spin:{turns}", "--operations", "200", "--rounds", "15"]
        output = run_micro(target, order, directory=Path(name))
    found: dict[str, list[float]] = json.loads(output.strip().splitlines()[-1])
    times = {name: min(rounds) for name, rounds in found.items()}
    return max(1, round(SHARE * times[case] / times[f"spin:{turns}"] * turns))
