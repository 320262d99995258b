"""The command line: `python -m bench COMMAND`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from bench.errors import BenchError

COMMANDS = {
    "list": "what can be measured here",
    "run": "workloads against targets",
    "compare": "two targets, paired: ratios with intervals",
    "app": "your own application on every server, side by side",
    "startup": "from nothing to the first answer, and back",
    "websocket": "echo and broadcast by message size",
    "profile": "where a server's time goes: yappi and flame graphs",
    "gate": "fail when this tree got slower (for CI)",
    "report": "stored results as Markdown and as one HTML page; tables inside documents",
    "baseline": "keep results in the repository, hold new ones against them",
    "show": "stored results as tables",
    "pool": "the event pool against no pool; slots; building bytes",
    "workers": "many processes: start-up, memory, load, recycling, leaks, mixed work",
    "micro": "one protocol object, no sockets: time, instructions, memory per operation",
    "memory": "memory at rest, under load, per connection; allocations; garbage collector",
}


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    main_parser = argparse.ArgumentParser(prog="python -m bench", description="Measure and compare ASGI servers.")
    commands = main_parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"bench.commands.{name}")
        module.add_arguments(commands.add_parser(name, help=summary, description=summary))
    return main_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; exit status 0 for success, 1 for a problem said in one line, 130 when interrupted."""
    arguments = parser().parse_args(argv)
    try:
        return int(importlib.import_module(f"bench.commands.{arguments.command}").execute(arguments))
    except BenchError as exc:
        print(f"bench: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
