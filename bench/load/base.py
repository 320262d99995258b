"""The interface of load generators: a command to run, and a strict parser for its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.model import Burst, Load

# A burst that completed in less than this share of the time asked for was cut short.
SHORTEST = 0.8


@dataclass(frozen=True)
class Aim:
    """Where a burst goes. `directory` is for the generator's own files."""

    port: int
    directory: Path
    method: str = "GET"
    path: str = "/"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    response_bytes: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    tls: bool = False

    @property
    def url(self) -> str:
        """The address, always on loopback."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}{self.path}"


class ClosedLoop:
    """What generators share whose next request waits for the last answer."""

    name = ""
    pipelines = False
    abilities: frozenset[str] = frozenset()

    def refusal(self, load: Load) -> str | None:
        """A closed loop has no arrival rate, and few of them pipeline."""
        if load.rate is not None:
            return f"{self.name} has no fixed arrival rate: leave --rate out, or choose openloop or oha"
        return no_pipelining(self.name, load) if not self.pipelines else None


def no_pipelining(name: str, load: Load) -> str | None:
    """Why a generator that sends one request at a time cannot drive a load; None when it can."""
    return f"{name} does not pipeline: choose wrk, h2load or closedloop" if load.pipeline > 1 else None


class Generator(Protocol):
    """A load generator. Each is pinned and run by the runner as a process of its own.

    `abilities` are what it can do beyond one request again and again: options of an aim that it heeds, `tls`, and
    `close` for a connection per request.
    """

    name: str
    abilities: frozenset[str]

    def missing(self) -> str | None:
        """Why it cannot be used here, in words; None when it can."""

    def refusal(self, load: Load) -> str | None:
        """Why it cannot drive such a load, in words; None when it can."""

    def command(self, aim: Aim, load: Load) -> list[str]:
        """The command line for one burst."""

    def parse(self, output: str, load: Load) -> Burst:
        """Read what the command printed for a load; raises LoadError for anything unexpected."""


def verdict(burst: Burst, load: Load) -> str | None:
    """Why a burst must not count; None when it may."""
    faults = [f"{count} {kind}" for kind, count in sorted(burst.errors.items()) if count]
    if faults:
        return f"errors: {', '.join(faults)} (beside {burst.requests} answers)"
    if burst.requests == 0:
        return "no request was answered"
    if burst.seconds < load.seconds * SHORTEST:
        return f"short: {burst.seconds:.2f} s instead of {load.seconds:g} s"
    return None
