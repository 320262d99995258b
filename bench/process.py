"""Start a server, wait until it answers, read what its process tree uses, stop it by pid."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import resource
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.errors import BenchError, NotReady, ServerError
from bench.model import Memory, ProcessUse, Usage

# Under callgrind, on a machine with other work, a server needs half a minute. One that has ended is noticed at once.
READY_TIMEOUT = 120.0
# Beside this, for each process or event loop after the first: they start side by side, and the first answers late.
READY_TIMEOUT_EACH = 2.0
STOP_TIMEOUT = 10.0
MEMORY_INTERVAL = 0.25
# Variables that would change measurements: the harness's own Python, settings of servers, coverage of tests.
FOREIGN = ("PYTHON", "UVICORN_", "BENCH_", "COVERAGE_")
# Linux gives clients ports from 32768 on.
PORTS = (15000, 32000)
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessFigures:
    """Counters of one process since it began; `reaped` is CPU of children that ended and were waited for."""

    pid: int
    born: int
    name: str
    user: float
    system: float
    cpu: float
    reaped_user: float
    reaped_system: float
    voluntary: int
    involuntary: int
    threads: int


@contextlib.contextmanager
def pinned(cores: Iterable[int]) -> Iterator[None]:
    """Children started inside inherit these cores. No cores means no pinning."""
    chosen = set(cores)
    if not chosen or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def clean_environment() -> dict[str, str]:
    """The environment of this process without what would change a measurement in a child."""
    return {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}


def raise_file_limit() -> int:
    """Allow as many open files as the hard limit says (children inherit it); returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)


def free_port() -> int:
    """A currently free port, from below the kernel's ephemeral range.

    Ten thousand client connections take ten thousand of the kernel's; a server must not find one of them on its port.
    """
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """A running server process and its children."""

    def __init__(
        self,
        label: str,
        argv: Sequence[str],
        *,
        port: int,
        directory: Path,
        log: Path,
        environment: Mapping[str, str],
        cores: Iterable[int] = (),
    ) -> None:
        """Starts the process in a directory; its output goes to `log`. Raises ServerError when it cannot."""
        self.label = label
        self.port = port
        self.log = log
        self._seen: dict[int, int] = {}
        self.ready_after = 0.0
        self.started = time.perf_counter()
        try:
            with self.log.open("wb") as output, pinned(cores):
                self._process = subprocess.Popen(
                    argv, cwd=directory, env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
        except OSError as exc:
            raise ServerError(f"{label} does not start: {exc}") from None

    @property
    def pid(self) -> int:
        """The process that was started; workers are its descendants."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the started process still runs."""
        return self._process.poll() is None

    def check_alive(self) -> None:
        """Raises ServerError, with the last line the server wrote, when it has ended."""
        if not self.alive():
            raise ServerError(f"{self.label} ended with status {self._process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        """The last line the server wrote."""
        with contextlib.suppress(OSError):
            lines = self.log.read_bytes()[-4000:].decode("utf-8", "replace").strip().splitlines()
            if lines:
                return lines[-1][:300]
        return "it wrote nothing"

    def wait_ready(self, request: Request, timeout: float = READY_TIMEOUT) -> float:
        """Wait for a right answer; returns seconds since the start. Raises ServerError for a wrong answer or none."""
        deadline = time.monotonic() + timeout
        while True:
            self.check_alive()
            try:
                request.ask(self.port)
                self.check_alive()
                self.ready_after = time.perf_counter() - self.started
                return self.ready_after
            except (OSError, http.client.HTTPException) as exc:
                trouble: Exception = exc
            if time.monotonic() > deadline:
                raise NotReady(f"{self.label} did not answer within {timeout:g} s: {trouble or type(trouble)}")
            time.sleep(0.005)

    def figures(self) -> dict[int, ProcessFigures]:
        """Counters of every live process of the tree, by pid."""
        found = {pid: figures for pid in tree(self.pid) if (figures := read_figures(pid)) is not None}
        self._seen.update((pid, figures.born) for pid, figures in found.items())
        return found

    def stop(self) -> int:
        """Ask the process to end, then insist; returns its exit status. Ends workers that outlive it, too."""
        self.figures()
        if self.alive():
            self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        for pid, born in self._seen.items():
            figures = read_figures(pid)
            if figures is not None and figures.born == born:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return status


class Elsewhere:
    """A foreign server on loopback: it can be loaded, but not inspected."""

    def __init__(self, url: str) -> None:
        """Raises BenchError for an address that is not plain HTTP on loopback."""
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "localhost") or not parts.port:
            raise BenchError(f"load goes to http://127.0.0.1:PORT/… only, not to {url!r}")
        self.port: int = parts.port
        self.path = parts.path or "/"
        self.label = f"127.0.0.1:{self.port}"

    def check_alive(self) -> None:
        """Raises ServerError if its port is not open."""
        if not in_use(self.port):
            raise ServerError(f"no server listens at {self.label}")


@dataclass(frozen=True)
class Request:
    """One request with its right answer."""

    method: str = "GET"
    path: str = "/"
    headers: Mapping[str, str] | None = None
    body: bytes = b""
    response_bytes: int | None = None
    tls: bool = False
    closes: bool = False

    def ask(self, port: int, timeout: float = 10.0) -> float:
        """Send it once; returns the seconds it took. Raises ServerError for a wrong answer, OSError without one."""
        begun = time.perf_counter()
        if self.tls:
            # What answers was started here with a certificate made for it: there is nothing to verify.
            trusting = ssl._create_unverified_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=timeout, context=trusting
            )
        else:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        try:
            connection.request(self.method, self.path, self.body or None, dict(self.headers or {}))
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise ServerError(f"the server answers {answer.status} to {self.method} {self.path}")
        if self.response_bytes is not None and len(body) != self.response_bytes:
            raise ServerError(f"the server answers {len(body)} bytes instead of {self.response_bytes}")
        if self.closes and not answer.will_close:
            raise ServerError("the server does not say that it closes the connection, as it was asked to")
        return time.perf_counter() - begun


def in_use(port: int) -> bool:
    """Whether a port of the loopback address accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def tree(root: int) -> list[int]:
    """The process and all its descendants that are alive."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (fields := _stat(int(entry))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def read_figures(pid: int) -> ProcessFigures | None:
    """Counters of one process; None when it is gone."""
    fields = _stat(pid)
    if fields is None or fields[0] == "Z":
        return None
    try:
        cpu = process_clock(pid)
        voluntary = involuntary = 0
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                status = _status(f"/proc/{pid}/task/{thread}/status")
            except OSError:
                continue  # it has ended since
            voluntary += status.get("voluntary_ctxt_switches", 0)
            involuntary += status.get("nonvoluntary_ctxt_switches", 0)
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None
    ticks = [int(field) / _TICK for field in fields[11:15]]
    return ProcessFigures(
        pid, int(fields[19]), name, ticks[0], ticks[1], cpu, ticks[2], ticks[3], voluntary, involuntary, int(fields[17])
    )


def process_clock(pid: int) -> float:
    """CPU seconds of all threads of a process, to the nanosecond; /proc/PID/stat only knows hundredths.

    The clock id is the one clock_getcpuclockid(3) computes: the complement of the pid, and 2 for the scheduler's clock.
    """
    return time.clock_gettime((~pid << 3) | 2)


def difference(before: Mapping[int, ProcessFigures], after: Mapping[int, ProcessFigures]) -> Usage:
    """What a process tree used between two readings.

    A process that ended in between is counted by its parent's figure for reaped children.
    """
    user = system = cpu = reaped = 0.0
    voluntary = involuntary = 0
    uses = []
    for pid, now in after.items():
        then = before.get(pid)
        if then is None or then.born != now.born:
            then = ProcessFigures(pid, now.born, now.name, 0, 0, 0, 0, 0, 0, 0, 0)
        user += now.user - then.user + now.reaped_user - then.reaped_user
        system += now.system - then.system + now.reaped_system - then.reaped_system
        reaped += now.reaped_user + now.reaped_system - then.reaped_user - then.reaped_system
        cpu += now.cpu - then.cpu
        voluntary += now.voluntary - then.voluntary
        involuntary += now.involuntary - then.involuntary
        uses.append(ProcessUse(now.name, now.cpu - then.cpu, now.threads))
    gone = sum(figures.cpu for pid, figures in before.items() if pid not in after)
    total = cpu + max(0.0, reaped - gone)
    # The split comes from coarse ticks, the total from the exact clock.
    share = user / (user + system) if user + system > 0 else 1.0
    return Usage(total * share, total * (1 - share), voluntary, involuntary, tuple(uses))


@dataclass(frozen=True)
class MemoryFigures:
    """Resident, proportional and unique set size of a process tree at one moment, in bytes."""

    rss: int
    pss: int
    uss: int


def read_memory(root: int) -> MemoryFigures:
    """Memory of the tree, summed; processes that end meanwhile count as nothing."""
    rss = pss = uss = 0
    for pid in tree(root):
        try:
            sizes = _status(f"/proc/{pid}/smaps_rollup")
        except OSError:
            continue
        rss += sizes.get("Rss", 0)
        pss += sizes.get("Pss", 0)
        uss += sizes.get("Private_Clean", 0) + sizes.get("Private_Dirty", 0)
    return MemoryFigures(rss * 1024, pss * 1024, uss * 1024)


class MemoryWatch:
    """Reads a tree's memory in a thread, four times a second: keeps the highest, and every process seen."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._done = threading.Event()
        self.pids: set[int] = set(tree(root))
        self.peak = read_memory(root)
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._done.wait(MEMORY_INTERVAL):
            self._look()

    def _look(self) -> None:
        self.pids.update(tree(self._root))
        self._take(read_memory(self._root))

    def _take(self, now: MemoryFigures) -> None:
        peak = self.peak
        self.peak = MemoryFigures(max(peak.rss, now.rss), max(peak.pss, now.pss), max(peak.uss, now.uss))

    def settled(self, now: MemoryFigures) -> Memory:
        """The record for a sample: the peak so far, and the figures after the burst."""
        self._take(now)
        return Memory(self.peak.rss, self.peak.pss, self.peak.uss, now.rss, now.pss, now.uss)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on (state, parent, …); None when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def _status(path: str) -> dict[str, int]:
    """The numeric `Name: value` lines of a /proc file; raises OSError when the process is gone."""
    found: dict[str, int] = {}
    for line in Path(path).read_text().splitlines():
        name, _, rest = line.partition(":")
        value = rest.split()
        if value and value[0].isdecimal():
            found[name] = found.get(name, 0) + int(value[0])
    return found
