"""Instructions of a whole server, counted by callgrind: for TLS, HTTP/2, HTTP/3, an import, a start with its end.

The micro-benchmarks have no sockets. Here a server gets requests one by one, so that every one of them needs a turn
of the event loop; the application marks where counting begins and ends. User space alone is counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import instructions, process
from bench.errors import BenchError, last_line
from bench.load.base import Aim
from bench.load.h3load import H3load
from bench.load.http2 import PREFACE, SETTINGS, FrameReader, frame, get, section
from bench.load.response import request_bytes
from bench.load.single import exchange, received
from bench.load.sockets import trusting
from bench.model import Load
from bench.plan import Scenario
from bench.runner import Runner, aim_of, server_environment, stage_applications
from bench.scenario import WORKLOADS, Mode
from bench.targets import Launch, Target, interpreter

REQUESTS = ("tls get", "tls new", "h2 get")
HTTP3 = "h3 get"
CASES = (*REQUESTS, HTTP3, "import", "start")
# Counted are so many that what a server does once a second hardly weighs.
FIRST, COUNTED = 30, 1000
# A handshake needs as much as a hundred requests.
HANDSHAKES = 30
# Of HTTP/3, whose client counts by itself: requests of two counts, whose difference is taken.
FEW, MANY = 100, 1100
MARK = "/mark"
WHAT = "instructions"
OUT = "callgrind.out"
TIMEOUT = 120.0
# For `bench.apps`.
COUNTED_ENVIRONMENT = {"BENCH_COUNTED": "1"}

Ask = Callable[[str], None]


def missing(case: str) -> str | None:
    """Why a case cannot be counted here; None when it can."""
    return instructions.missing() or (H3load().missing() if case == HTTP3 else None)


def count(runner: Runner, target: Target, cases: Sequence[str]) -> dict[str, float]:
    """Instructions of each case, by name; raises BenchError when valgrind is missing or the server fails."""
    for trouble in filter(None, map(missing, cases)):
        raise BenchError(trouble)
    found: dict[str, float] = {}
    if wanted := [case for case in cases if case in REQUESTS]:
        found |= _requests(runner, target, wanted)
    if HTTP3 in cases:
        found[HTTP3] = _http3(runner, target)
    for case, order in (("import", _importing), ("start", _starting)):
        if case in cases:
            found[case] = _whole(target, order)
    return found


def _requests(runner: Runner, target: Target, cases: Sequence[str]) -> dict[str, float]:
    workload = dataclasses.replace(WORKLOADS["tls"], app="marked")
    one = Scenario(workload, Mode(), Load("none", 1, 1, 0.0))
    found = {}
    with runner.alone(_followed(target), one, COUNTED_ENVIRONMENT) as (server, directory):
        out, dump = directory / "stage" / OUT, 0
        for case in cases:
            counted = HANDSHAKES if case == "tls new" else COUNTED
            with _asking(case, server.port) as ask:
                for _ in range(min(FIRST, counted)):
                    ask("/")
                ask(MARK)
                for _ in range(counted):
                    ask("/")
                ask(MARK)
            dump += 2
            found[case] = instructions.total(out, dump) / counted
    return found


def _http3(runner: Runner, target: Target) -> float:
    """The handshake and everything else that is done once is in both counts."""
    one = Scenario(WORKLOADS["h3"], Mode(), Load("none", 1, 1, 0.0))
    with runner.alone(_controlled(target), one, COUNTED_ENVIRONMENT) as (server, directory):
        aim = aim_of(server, one, directory)
        _run(["callgrind_control", "-i", "on", str(server.pid)])
        for requests in (FEW, MANY):
            _load(aim, requests)
            _run(["callgrind_control", "-d", str(server.pid)])
        few, many = (instructions.total(directory / "stage" / OUT, dump) for dump in (1, 2))
    return (many - few) / (MANY - FEW)


def _controlled(target: Target) -> Target:
    """The same server under callgrind, which counts nothing yet."""

    def command(launch: Launch) -> list[str]:
        return [*_callgrind(OUT), "--instr-atstart=no", *target.command(launch)]

    return dataclasses.replace(target, command=command)


def _load(aim: Aim, requests: int) -> None:
    generator = H3load()
    burst = generator.parse(_run(generator.requests(aim, 1, 1, str(requests))), Load(generator.name, 1, 1, 0.0))
    if burst.requests != requests:
        raise BenchError(f"{burst.requests} of {requests} requests were answered while instructions are counted")


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise BenchError(f"{Path(argv[0]).name} failed: {exc}") from None
    if done.returncode != 0:
        raise BenchError(f"{Path(argv[0]).name} failed: {last_line(done.stderr or done.stdout)}")
    return done.stdout


def _followed(target: Target) -> Target:
    def command(launch: Launch) -> list[str]:
        chosen = dataclasses.replace(launch, http2=True)
        return [*_callgrind(OUT), "--dump-before=getpgid", *target.command(chosen)]

    return dataclasses.replace(target, command=command)


def _callgrind(out: str) -> list[str]:
    return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]


@contextlib.contextmanager
def _asking(case: str, port: int) -> Iterator[Ask]:
    """What asks for a path and waits for the answer; raises BenchError for another one than 200."""
    if case == "tls new":
        yield lambda path: _ask_once(port, path)
        return
    with _connected(port, "h2" if case == "h2 get" else "http/1.1") as sock:
        yield _HTTP2(sock, port).ask if case == "h2 get" else lambda path: _ask(sock, path)


def _connected(port: int, protocol: str) -> ssl.SSLSocket:
    context = trusting()
    context.set_alpn_protocols([protocol])
    plain = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain)


def _ask(sock: ssl.SSLSocket, path: str) -> None:
    exchange(sock, request_bytes("GET", path, {}, b""), WHAT)


def _ask_once(port: int, path: str) -> None:
    with _connected(port, "http/1.1") as sock:
        _ask(sock, path)


class _HTTP2:
    """A connection of HTTP/2 with one request at a time."""

    def __init__(self, sock: ssl.SSLSocket, port: int) -> None:
        self._sock = sock
        self._authority = f"127.0.0.1:{port}"
        self._stream = 1
        self._reader = FrameReader()
        sock.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def ask(self, path: str) -> None:
        """Send a request; return when its stream has ended."""
        self._sock.sendall(get(section(path, "https", self._authority), self._stream, 1))
        self._stream += 2
        ended = 0
        while not ended:
            ended, answer = self._reader.feed(received(self._sock, WHAT))
            if answer:
                self._sock.sendall(answer)


def _importing(target: Target, stage: Path) -> list[str]:
    return [interpreter(target), "-c", f"import {target.package}.main"]


def _starting(target: Target, stage: Path) -> list[str]:
    launch = Launch("bench_apps:ending", process.free_port(), Mode(), False, interpreter(target), target.options)
    return target.command(launch)


def _whole(target: Target, order: Callable[[Target, Path], list[str]]) -> float:
    """All instructions of a program from its start to its end."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        stage = stage_applications(Path(name))
        argv = [*_callgrind(OUT), *order(target, stage)]
        environ = {**server_environment(target, stage), "PYTHONHASHSEED": "0"}
        try:
            done = subprocess.run(argv, cwd=stage, env=environ, capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{target.label()} did not end within {TIMEOUT:g} s") from None
        if done.returncode not in (0, -15):
            told = instructions.complaint(done.stderr)
            raise BenchError(f"{target.label()} ended with status {done.returncode}: {told}")
        return float(instructions.totalled(stage / OUT))
