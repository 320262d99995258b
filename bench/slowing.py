"""Copies of a tree that are slower on purpose, to show that the gate sees it: a tenth more in one path each."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import instructions, trees
from bench.errors import BenchError
from bench.instructions import run_micro
from bench.targets import Target, import_root, interpreter

SHARE = 0.10


@dataclass(frozen=True)
class Slowed:
    """One path made slower: `case` is the case of the gate that a tenth is taken of, `code` is added to a module."""

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

# Work before each request of one version of HTTP: inside the middleware, which others bypass as before.
_REQUEST = """

_load = Config.load


def _slow_load(self):
    _load(self)
    application = self.loaded_app.app

    def slow(scope, receive, send):
        if scope.get("http_version") == "VERSION":
            for _ in range(ITERATIONS):
                pass
        return application(scope, receive, send)

    self.loaded_app.app = slow


Config.load = _slow_load
"""

# Work, or memory that is kept, for each connection.
_CONNECTION = """

_factory = Server._protocol_factory
_kept = []


def _slow_factory(self, loop):
    made = _factory(self, loop)

    def slow():
        WORK
        return made()

    return slow


Server._protocol_factory = _slow_factory
"""

# Work that is done once.
_ONCE = """

def _slow():
    for _ in range(ITERATIONS):
        pass


_slow()
"""

_START = """

_started = Config.load


def _slow(self):
    for _ in range(ITERATIONS):
        pass
    _started(self)


Config.load = _slow
"""

_CONFIG, _SERVER = "config/__init__.py", "server.py"

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
    Slowed("TLS", "tls get", _CONFIG, _REQUEST.replace("VERSION", "1.1")),
    Slowed("HTTP/2", "h2 get", _CONFIG, _REQUEST.replace("VERSION", "2")),
    Slowed("HTTP/3", "h3 get", _CONFIG, _REQUEST.replace("VERSION", "3")),
    Slowed(
        "handshakes", "tls new", _SERVER, _CONNECTION.replace("WORK", "for _ in range(ITERATIONS):\n            pass")
    ),
    Slowed("the import", "import", "main.py", _ONCE),
    Slowed("the start", "start", _CONFIG, _START),
)
# More memory in place of more time.
HEAVIER = Slowed("an idle connection", "hello", _SERVER, _CONNECTION.replace("WORK", "_kept.append(bytes(ITERATIONS))"))


def label(slowed: Slowed | None) -> str:
    """In words, for a row."""
    if slowed is None:
        return "unchanged"
    return f"{SHARE:.0%} more {'memory' if slowed is HEAVIER else 'time'} in {slowed.path}"


def copied(target: Target, directory: Path, slowed: Slowed | None, stored: Mapping[str, Any]) -> Path:
    """A copy of the target's package, slower in one path; returns the root to import it from.

    `stored` are the values of the gate, of which cases of whole servers get a tenth more.
    """
    root = import_root(target)
    if root is None:
        raise BenchError(f"{target.name} has no tree to copy: use ours")
    place = Path(tempfile.mkdtemp(dir=directory)) / "tree"
    trees.stage(root / "uvicorn", place)
    if slowed is not None:
        module = place / "uvicorn" / slowed.module
        if slowed is HEAVIER:
            more = round(SHARE * stored["memory"][slowed.case])
        elif slowed.case in stored.get("served", {}):
            more = round(SHARE * stored["served"][slowed.case] / _turn(target))
        else:
            more = iterations(target, slowed.case)
        code = slowed.code.replace("ITERATIONS", str(more))
        module.write_text(module.read_text(encoding="utf-8") + code, encoding="utf-8")
    # Compiling is no part of an import that is counted.
    subprocess.run([interpreter(target), "-m", "compileall", "-q", str(place)], check=True, capture_output=True)
    return place


def known(stored: Mapping[str, Any]) -> list[Slowed]:
    """The slowdowns whose path one of the gate's values is about."""
    times = (machine["time"] for machine in stored["machines"].values())
    cases = {*stored["instructions"], *stored["served"], *(case for found in times for case in found)}
    found = [one for one in SLOWED if one.case in cases]
    return [*found, HEAVIER] if HEAVIER.case in stored["memory"] else found


def _turn(target: Target) -> float:
    """Instructions of a turn of an empty loop."""
    few, many = instructions.count(target, ["spin:1000", "spin:2000"], operations=10).values()
    return (many - few) / 1000


def iterations(target: Target, case: str) -> int:
    """How many turns of an empty loop take a tenth of a case's time in the target's interpreter."""
    turns = 1000
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        order = ["time", case, f"spin:{turns}", "--operations", "200", "--rounds", "15"]
        output = run_micro(target, order, directory=Path(name))
    found: dict[str, list[float]] = json.loads(output.strip().splitlines()[-1])
    times = {name: min(rounds) for name, rounds in found.items()}
    return max(1, round(SHARE * times[case] / times[f"spin:{turns}"] * turns))
