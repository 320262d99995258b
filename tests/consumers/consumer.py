"""What is known of one program that depends on the server: how its users start it, and what to ask it then."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.consumers.client import Client


@dataclass(frozen=True)
class Difference:
    """Lines that only one of the servers leads to, and why that is right."""

    pattern: str
    reason: str


#: Of files of an environment: when it was installed. For `momentary`.
INSTALLED = {r"(etag|last-modified): .*": r"\1: ..."}

#: Of every consumer that shows the access log and has WebSockets.
END_LOGGED = Difference(r'^\+.* "WebSocket [^"]*" \[closed \d+\]$', "the end of a WebSocket has an access line")


@dataclass(frozen=True)
class Consumer:
    """A program and one way to start it."""

    #: As the table names it.
    name: str
    #: The file of `requirements/` it is installed from.
    group: str
    #: The distribution whose version the table has.
    package: str
    #: A program of the environment and its arguments; `{port}` and `{spare}` become free ports, `{directory}` where
    #: it runs; in `environ` and in YAML files as well.
    command: tuple[str, ...]
    #: Asks, and leaves open what is to be open when the server is told to stop.
    talk: Callable[[Client], None]
    #: Found in the output when it serves.
    ready: str = r"Uvicorn running on|Application startup complete"
    #: The signals that end it, one run for each; None where it ends by itself.
    signals: tuple[signal.Signals | None, ...] = (signal.SIGINT, signal.SIGTERM)
    environ: Mapping[str, str] = field(default_factory=dict)
    #: Expressions for what is of the moment, and what stands in its place.
    momentary: Mapping[str, str] = field(default_factory=dict)
    #: Output that comes or does not, or in any order, with either server.
    noise: tuple[str, ...] = ()
    #: Lines of several processes or threads: neither their order nor their number is anybody's promise.
    unordered: bool = False
    #: Exit statuses of which one comes or another, with either server: as good as the first.
    alike: tuple[int, ...] = ()
    differences: tuple[Difference, ...] = ()
