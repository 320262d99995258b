"""The command line: `python -m bench COMMAND`."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from bench.errors import BenchError
from bench.progress import ticker

COMMANDS = {
    "list": "what can be measured here",
    "run": "workloads against targets",
    "compare": "two targets, paired: ratios with intervals",
    "latency": "at fixed rates, shares of the slowest server's capacity, by connections",
    "overload": "at several times a server's capacity: the responses in time",
    "app": "your own application on every server, side by side",
    "startup": "from nothing to the first answer, and back; what importing costs",
    "websocket": "messages, handshakes and broadcasts, case by case",
    "memory": "memory at rest, under load, per connection; allocations; garbage collector",
    "scaling": "one, two, four ... workers or event loops: CPU per request, tails, a model for many cores",
    "workers": "many processes: start-up, memory, load, recycling, leaks, mixed work",
    "profile": "where a server's time goes: yappi and flame graphs",
    "micro": "one protocol object, no sockets: time, instructions, memory per operation",
    "pool": "the event pool against no pool; slots; building bytes",
    "gate": "fail when this tree got slower (for CI)",
    "record": "what the clients of a real application ask, to be replayed",
    "publish": "measure everything the documents show, and write them",
    "report": "stored results as Markdown and as one HTML page; tables inside documents",
    "baseline": "keep results in the repository, hold new ones against them",
    "show": "stored results as tables",
}


class UsageError(BenchError):
    """A command line that cannot be understood."""


class Parser(argparse.ArgumentParser):
    """Reports a mistake in a command line in one line, without the usage of thirty."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def parser(name: str) -> Parser:
    """The arguments of one command."""
    found = Parser(prog=f"python -m bench {name}", description=COMMANDS[name])
    importlib.import_module(f"bench.commands.{name}").add_arguments(found)
    return found


def overview() -> Parser:
    """The help for a missing or unknown command."""
    listed = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
    found = Parser(
        prog="python -m bench",
        description="Measure and compare ASGI servers.",
        epilog=f"commands:\n{listed}\n\nEach has its own help: python -m bench COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s COMMAND ...",
    )
    found.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help=argparse.SUPPRESS)
    return found


def _ended(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; exit status 0 for success, 1 for a problem and 2 for a wrong command line, each said in one
    line, 130 when interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Keep finished measurements, as with Ctrl-C. In a thread no signal can be caught, and none arrives.
    main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _ended) if main_thread else None
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    try:
        if not arguments or arguments[0] not in COMMANDS:
            overview().parse_args(arguments[:1])
        # Targets may come before and after options.
        chosen = parser(arguments[0]).parse_intermixed_args(arguments[1:])
        status = int(importlib.import_module(f"bench.commands.{arguments[0]}").execute(chosen))
        sys.stdout.flush()
        return status
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] in ("bench", "uvicorn"):
            raise
        print(
            f"bench: no module {exc.name} for {sys.executable}: run make bench-setup, then .venv/bin/python",
            file=sys.stderr,
        )
        return 1
    except BenchError as exc:
        print(f"bench: {exc}", file=sys.stderr)
        return 2 if isinstance(exc, UsageError) else 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of the output has closed it; the buffered rest must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        ticker.end()
        if main_thread:
            signal.signal(signal.SIGTERM, before)
        # Commands move to the cores of the client.
        if cores:
            os.sched_setaffinity(0, cores)


if __name__ == "__main__":
    sys.exit(main())
