"""What a measurement is: frozen records with a versioned JSON form.

Only raw values are stored; readers compute medians, ratios and intervals again.
Times are seconds, sizes are bytes, unless a name says otherwise.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench.errors import BenchError

# History of the JSON form: 1 = first.
SCHEMA = 1
# The share of one core from which on a server without a request polls.
POLLING = 0.5
# Under this name the data of a published result tell how it was measured: `about` and `commands` of its part then.
MEASURED = "measured"

Record = TypeVar("Record")


@dataclass(frozen=True)
class Latency:
    """Percentiles of one burst, in seconds."""

    mean: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True)
class Load:
    """The load that was asked for; `rate` is requests per second for open-loop generators, None for closed loops."""

    tool: str
    connections: int
    threads: int
    seconds: float
    rate: float | None = None
    pipeline: int = 1


@dataclass(frozen=True)
class Burst:
    """What a generator saw: completed requests, the time they took together, errors by kind, latency.

    `latency` is None where the generator cannot know it. `histogram` is the whole distribution as HdrHistogram encodes
    it (microseconds), where the generator has one. `unanswered` counts those who had no answer when the generator's
    patience was at its end: they are among the latencies with the time that they had waited.
    """

    requests: int
    seconds: float
    errors: Mapping[str, int]
    latency: Latency | None
    received: int = 0
    histogram: str | None = None
    unanswered: int = 0


@dataclass(frozen=True)
class ProcessUse:
    """CPU of one server process during a burst; `threads` counts its threads at the end."""

    name: str
    cpu: float
    threads: int


@dataclass(frozen=True)
class Usage:
    """What the server's process tree used during a burst; switches are context switches.

    `idle` is the share of one core that it used without a request, right after the burst, if it polls.
    """

    user: float
    system: float
    voluntary_switches: int
    involuntary_switches: int
    processes: tuple[ProcessUse, ...]
    idle: float = 0.0

    @property
    def cpu(self) -> float:
        """User and system time together, in seconds."""
        return self.user + self.system

    def without_polling(self, idle: float, outside: float) -> Usage:
        """Leave out what a server that polls used before and after the burst.

        Args:
            idle: the share of one core that it uses without a request; below `POLLING` nothing is left out.
            outside: the seconds before and after the burst in which it was measured.
        """
        if idle < POLLING or self.cpu == 0.0:
            return self
        kept = max(0.0, 1.0 - idle * outside / self.cpu)
        processes = tuple(dataclasses.replace(one, cpu=one.cpu * kept) for one in self.processes)
        return dataclasses.replace(
            self, user=self.user * kept, system=self.system * kept, processes=processes, idle=idle
        )


@dataclass(frozen=True)
class Memory:
    """Resident, proportional and unique set size of the process tree: highest in the burst, and after it settled."""

    peak_rss: int
    peak_pss: int
    peak_uss: int
    settled_rss: int
    settled_pss: int
    settled_uss: int


@dataclass(frozen=True)
class Machine:
    """How the machine behaved during a burst: shares are of one core, 1.0 = one core fully used.

    `foreign_cpu` is what others than the server took of the server's cores, the hypervisor among them; `steal` is what
    the hypervisor took of all cores.
    """

    client_cpu: float
    foreign_cpu: float
    steal: float


@dataclass(frozen=True)
class Sample:
    """One load burst against one server. `void` says why it must not be used; None means it counts.

    `repeats` is how many bursts before it were thrown away because others had used the server's cores. `payload` is how
    many bytes of bodies a request moves where they are what it costs, else 0.
    """

    target: str
    side: str
    workload: str
    mode: str
    load: Load
    block: int
    slot: int
    started: float
    burst: Burst | None = None
    usage: Usage | None = None
    memory: Memory | None = None
    machine: Machine | None = None
    void: str | None = None
    knobs: Mapping[str, float] = field(default_factory=dict)
    repeats: int = 0
    payload: int = 0

    @property
    def rps(self) -> float:
        """Completed requests per second; raises BenchError for a sample without a burst."""
        burst = self._burst()
        return burst.requests / burst.seconds

    @property
    def cpu_per_request(self) -> float:
        """Seconds of server CPU (user and system, whole process tree) per completed request."""
        if self.usage is None:
            raise BenchError(f"{self.target} on {self.workload}: no CPU figures ({self.void or 'not measured'})")
        return self.usage.cpu / self._burst().requests

    @property
    def cpu_per_mib(self) -> float | None:
        """Seconds of server CPU for each MiB of bodies; None where bodies are not what a request costs."""
        if not self.payload or self.usage is None:
            return None
        return self.cpu_per_request / (self.payload / 2**20)

    @property
    def latency(self) -> Latency | None:
        """Latency of the burst, None when it was not measured; raises BenchError for a sample without a burst."""
        return self._burst().latency

    @property
    def client_share(self) -> float:
        """CPU of the load generator, as a share of one core; 0 when it was not measured."""
        return self.machine.client_cpu if self.machine else 0.0

    @property
    def system_share(self) -> float:
        """The kernel's part of the server's CPU; 0 when it was not measured."""
        return self.usage.system / self.usage.cpu if self.usage and self.usage.cpu else 0.0

    @property
    def switches_per_request(self) -> float:
        """Context switches of the server per request; 0 when they were not measured."""
        if self.usage is None:
            return 0.0
        return (self.usage.voluntary_switches + self.usage.involuntary_switches) / self._burst().requests

    @property
    def process_texts(self) -> list[str]:
        """Each server process that used the CPU in a few words: name, threads, share of one core."""
        if self.usage is None:
            return []
        seconds = self._burst().seconds
        used = [one for one in self.usage.processes if one.cpu / seconds >= 0.005]
        return [f"{one.name} {one.threads} thr {one.cpu / seconds:.0%}" for one in used]

    def _burst(self) -> Burst:
        if self.burst is None or self.burst.requests == 0:
            raise BenchError(f"{self.target} on {self.workload}: no requests ({self.void or 'not measured'})")
        return self.burst


@dataclass(frozen=True)
class Result:
    """Everything one command measured. `data` holds the figures of commands that do not produce samples."""

    kind: str
    created: str
    environment: Mapping[str, Any]
    samples: tuple[Sample, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA


def usable(samples: typing.Iterable[Sample]) -> list[Sample]:
    """The samples that count."""
    return [sample for sample in samples if sample.void is None]


def to_json(result: Result) -> str:
    """The stored form: indented so that differences can be read in a review, with one line for each sample."""
    data = dataclasses.asdict(result)
    samples = [json.dumps(sample) for sample in data["samples"]]
    # Keys keep their order: it is that of the targets, the cases, the sections as they were asked for.
    text = json.dumps({**data, "samples": []}, indent=1) + "\n"
    if samples:
        # Inside a string the quotes would be escaped: this is the key.
        text = text.replace('"samples": []', '"samples": [\n  {}\n ]'.format(",\n  ".join(samples)))
    return text


def from_json(text: str) -> Result:
    """Read a stored result; raises BenchError when it is not one or has another schema version."""
    try:
        data = json.loads(text)
    except ValueError as exc:
        raise BenchError(f"not a stored result: {exc}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else None
        raise BenchError(f"not a stored result of schema {SCHEMA} (found {found!r})")
    return decode(Result, data)


def save(result: Result, path: Path) -> None:
    """Write a result whole or not at all; raises BenchError when the file cannot be written."""
    partial = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(to_json(result), encoding="utf-8")
        partial.replace(path)
    except OSError as exc:
        raise BenchError(f"cannot write {path}: {exc.strerror or exc}") from None


def load(path: Path) -> Result:
    """Read a stored result from a file; raises BenchError with the file's name."""
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise BenchError(f"cannot read {path}: {exc.strerror or exc}") from None
    except UnicodeDecodeError:
        raise BenchError(f"{path}: not a stored result: not text") from None
    except BenchError as exc:
        raise BenchError(f"{path}: {exc}") from None


def decode(cls: type[Record], data: Mapping[str, Any]) -> Record:
    """Build a record from its JSON form; unknown, missing and mistyped fields raise BenchError."""
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise BenchError(f"{cls.__name__} has no field {unknown[0]!r}")
    try:
        return cls(**{name: _value(hints[name], value, f"{cls.__name__}.{name}") for name, value in data.items()})
    except TypeError as exc:
        raise BenchError(f"{cls.__name__}: {exc}") from None


def _value(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _value(next(one for one in arguments if one is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise BenchError(f"{where} must be a list")
        return tuple(_value(arguments[0], one, where) for one in value)
    if origin is not None and isinstance(value, dict):
        return {key: _value(arguments[1], one, where) for key, one in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        return decode(kind, value)
    if kind is Any or (kind is float and isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise BenchError(f"{where} cannot be {value!r}")
