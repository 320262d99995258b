"""Start a consumer, talk to it, stop it; what was seen, without what is of the moment."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from tests.consumers.client import Client
from tests.consumers.consumer import Consumer
from tests.consumers.environments import Environment
from tests.process import ServerProcess
from tests.utils import is_listening, wait_for

APPS = Path(__file__).parent / "apps"

#: Seconds that a start or an end may take: some of these programs start a dozen processes.
PATIENCE = 600.0

#: Nothing is reported to anybody, and what is printed depends neither on the machine nor on a terminal.
ENVIRON = {
    "PYTHONPATH": "",
    "COLUMNS": "200",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "DO_NOT_TRACK": "1",
    "NO_PROXY": "*",
    "PYTHONHASHSEED": "0",  # sets are printed in one order
}

#: What differs from one start to the next, whatever the server.
MOMENTARY = {
    r"\x1b\[[0-9;?]*[A-Za-z]": "",
    r"(127\.0\.0\.1|localhost):\d+": r"\1:PORT",
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}([.,]\d+)?(Z|\+00:?00)?": "TIME",
    r"\[\d{2,}\]": "[PID]",
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}": "UUID",
    r"\b0x[0-9a-f]{6,}\b": "0xID",
    r"\b\d+\.\d{4,}(e-\d+)?\b|\b\d(\.\d+)?e-\d+\b": "FRACTION",
    r"\b[0-9a-f]{32}([0-9a-f]{32})?\b": "HEX",
    r"\b\d{15,}\b": "NUMBER",
}

#: The line at the start that says which implementation serves.
STARTS_AS = r"Fork of uvicorn [0-9.]+; HTTP core: native"

SERVER_FRAME = re.compile(r'  File ".*/site-packages/uvicorn/')


@dataclass(frozen=True)
class Observation:
    """What one start of a consumer came to."""

    answers: list[str]
    output: list[str]
    error_output: list[str]
    exit_status: int

    def text(self) -> list[str]:
        """All of it, to be compared line by line."""
        return [
            "--- answers",
            *self.answers,
            "--- standard output",
            *self.output,
            "--- standard error",
            *self.error_output,
            f"--- exit status {self.exit_status}",
        ]


def observe(consumer: Consumer, environment: Environment, stop_by: signal.Signals | None) -> Observation:
    """Start a consumer in a copy of the applications, and see what comes of it."""
    with TemporaryDirectory(prefix="u") as directory:  # a short name: some make Unix sockets in it
        place = _Place(Path(directory), environment, *_free_ports())
        place.prepare()
        with place.start(consumer) as process, Client(place.port, place.spare) as client:
            process.wait_for_pattern(consumer.ready, PATIENCE)
            wait_for(lambda: is_listening(("127.0.0.1", place.port)), PATIENCE)
            try:
                consumer.talk(client)
            except Exception as error:
                raise AssertionError(f"{error!r}\n{process.describe()}") from error
            if stop_by is signal.SIGINT:
                os.killpg(process.pid, stop_by)  # as a terminal does
            elif stop_by:
                process.send_signal(stop_by)
            client.finish()
            exit_status = process.wait(PATIENCE)
    if exit_status in consumer.alike:
        exit_status = consumer.alike[0]
    replaced = {**place.momentary(), rf"\b{process.pid}\b": "PID", **MOMENTARY, **consumer.momentary}

    def lines(text: Iterable[str]) -> list[str]:
        return [line for line in without_moment(text, replaced) if not _matches(line, (STARTS_AS, *consumer.noise))]

    def log(text: str) -> list[str]:
        kept = lines(without_server_frames(text.splitlines()))
        return sorted(set(kept)) if consumer.unordered else kept

    return Observation(lines(client.transcript), log(process.output), log(process.error_output), exit_status)


@dataclass(frozen=True)
class _Place:
    """Where one start happens: a directory and two ports that nobody else has."""

    directory: Path
    environment: Environment
    port: int
    spare: int

    def prepare(self) -> None:
        """Put the applications there, and an empty home directory."""
        shutil.copytree(APPS, self.directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        for configuration in self.directory.glob("*.yaml"):
            configuration.write_text(self.filled(configuration.read_text()))
        (self.directory / "home").mkdir()

    def start(self, consumer: Consumer) -> ServerProcess:
        """Start the consumer as if its environment had been activated."""
        program, *arguments = map(self.filled, consumer.command)
        programs = self.environment.path / "bin"
        environ = {
            **ENVIRON,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.directory / "home"),
            "VIRTUAL_ENV": str(self.environment.path),
            **{name: self.filled(value) for name, value in consumer.environ.items()},
        }
        return ServerProcess(*arguments, command=[programs / program], cwd=self.directory, env=environ)

    def filled(self, text: str) -> str:
        """A text with this place's names in it."""
        for name in ("port", "spare", "directory"):
            text = text.replace(f"{{{name}}}", str(getattr(self, name)))
        return text

    def momentary(self) -> dict[str, str]:
        """Expressions for this place's names, and what stands in their place."""
        names = {str(self.environment.path): "ENVIRONMENT", str(self.directory): "DIRECTORY"}
        names[quote(str(self.directory), safe="")] = "DIRECTORY"
        return {
            **{re.escape(name): replacement for name, replacement in names.items()},
            rf"\b({self.port}|{self.spare})\b": "PORT",
        }


def differences(consumer: Consumer, upstream: Observation, ours: Observation) -> tuple[list[str], list[str]]:
    """Lines that only one side has and that nobody has explained, and the reasons of those that were explained."""
    _, _, *found = [*unified_diff(upstream.text(), ours.text(), lineterm="", n=0)] or ["", ""]
    changed = [line for line in found if line[0] in "+-"]
    explained = [known for known in consumer.differences if any(re.search(known.pattern, line) for line in changed)]
    patterns = [known.pattern for known in explained]
    return [line for line in changed if not _matches(line, patterns)], [known.reason for known in explained]


def without_server_frames(lines: Iterable[str]) -> Iterator[str]:
    """Leave out a traceback's steps through the server: they are nobody's interface."""
    inside = False
    for line in lines:
        if inside:
            inside = line.startswith("    ")
        if SERVER_FRAME.match(line):
            inside = True
        if not inside:
            yield line


def without_moment(lines: Iterable[str], replaced: Mapping[str, str]) -> Iterator[str]:
    """Replace what the expressions are found in, one after the other."""
    for line in lines:
        for pattern, replacement in replaced.items():
            line = re.sub(pattern, replacement, line)
        yield line.rstrip()


def _matches(line: str, patterns: Iterable[str]) -> bool:
    return any(re.search(pattern, line) for pattern in patterns)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
