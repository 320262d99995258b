"""System calls of a server per request, exactly: strace follows it, and requests are sent one by one.

strace and not a preloaded library: that would see calls through the C library's functions only. Counting slows a server
down by much, which does not matter: one request is under way at a time, so nothing depends on how fast it is.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.errors import BenchError
from bench.load.response import request_bytes
from bench.load.single import exchange, received
from bench.load.websocket import BINARY, FrameReader, frame, handshake_bytes
from bench.model import Load
from bench.plan import Scenario
from bench.runner import Runner, request_of
from bench.scenario import WORKLOADS, Mode
from bench.targets import Launch, Target

# By name: options of the target, and the workload.
CASES: Mapping[str, tuple[Mapping[str, str], str]] = {
    "native hello": ({}, "hello"),
    "native log": ({}, "log"),
    "native echo": ({}, "echo"),
    "python hello": ({"http": "httptools"}, "hello"),
    "python log": ({"http": "httptools"}, "log"),
    "websocket": ({}, "websocket"),
}
# Before it counts, a server has done once what it does once.
FIRST, COUNTED = 20, 200
WHAT = "system calls"
TIMEOUT = 30.0
_CALL = re.compile(r"^\d+ +(\w+)\(", re.MULTILINE)


def missing() -> str | None:
    """Why system calls cannot be counted here; None when they can."""
    return None if shutil.which("strace") else "strace is not installed (apt-get install strace)"


def count(runner: Runner, target: Target, case: str) -> dict[str, float]:
    """System calls per request of a case, by name; raises BenchError when strace is missing or the server fails."""
    trouble = missing()
    if trouble:
        raise BenchError(trouble)
    options, name = CASES[case]
    workload = WORKLOADS[name]
    one = Scenario(workload, Mode(), Load("none", 1, 1, 0.0))
    chosen = dataclasses.replace(target, options={**target.options, **options})
    with runner.alone(traced(chosen), one) as (server, directory):
        trace = directory / "stage" / TRACE
        with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT) as client:
            ask = _asker(client, one)
            for _ in range(FIRST):
                ask()
            before = trace.stat().st_size
            for _ in range(COUNTED):
                ask()
            text = _read(trace, before)
    return {call: number / COUNTED for call, number in sorted(Counter(_CALL.findall(text)).items())}


TRACE = "strace.out"


def traced(target: Target) -> Target:
    """The same server, followed by strace with all its threads and children; the trace is where it runs."""

    def command(launch: Launch) -> list[str]:
        # -D: the server stays the process that was started, which is the one that is asked to end.
        return ["strace", "-D", "-f", "-qq", "-e", "signal=none", "-s", "0", "-o", TRACE, *target.command(launch)]

    return dataclasses.replace(target, command=command)


def _asker(client: socket.socket, one: Scenario) -> Callable[[], None]:
    """What sends one request, or message, and waits for its answer."""
    if one.workload.name == "websocket":
        return _messages(client, one.workload.body)
    request = request_of(one)
    data = request_bytes(request.method, request.path, dict(request.headers or {}), request.body)

    return lambda: exchange(client, data, WHAT)


def _messages(client: socket.socket, body: bytes) -> Callable[[], None]:
    client.sendall(handshake_bytes("127.0.0.1", "/"))
    head = b""
    while b"\r\n\r\n" not in head:
        head += received(client, WHAT)
    if not head.startswith(b"HTTP/1.1 101"):
        raise BenchError(f"the handshake was refused: {head.splitlines()[0][:60]!r}")
    reader, message = FrameReader(head.partition(b"\r\n\r\n")[2]), frame(BINARY, body)

    def ask() -> None:
        client.sendall(message)
        while not reader.feed(received(client, WHAT)):
            pass

    return ask


def _read(trace: Path, start: int) -> str:
    with trace.open("rb") as file:
        file.seek(start)
        return file.read().decode("utf-8", "replace")
