"""What the runners of random cases share: the command line, reducing a case, event loops, and what is logged.

Other Pythons import this as well, which have neither pytest nor this server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import SystemRandom
from typing import TypeVar

CaseT = TypeVar("CaseT")
LinesT = TypeVar("LinesT", bound="Lines")


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line, and the type of its exception."""
        self.keep(record, record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else "")

    def keep(self, record: logging.LogRecord, error: str) -> None:
        """Keep a line, with its text."""
        self.lines.append((f"{record.name} {record.levelname}", record.getMessage(), error))


@contextlib.contextmanager
def captured(handler: LinesT, levels: Mapping[str, int]) -> Iterator[LinesT]:
    """Keep what these loggers log from these levels on, and print nothing of it."""
    loggers = [logging.getLogger(name) for name in levels]
    states = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(levels[logger.name])
        logger.propagate = False
    try:
        yield handler
    finally:
        for logger, (level, propagate) in zip(loggers, states, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    """Return an event loop of this kind."""
    if name == "uvloop":
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()


def shrink(
    case: CaseT,
    found: list[str],
    reductions: Callable[[CaseT], Iterable[CaseT]],
    difference: Callable[[CaseT], list[str] | None],
    kinds: Callable[[list[str]], set[str]],
) -> tuple[CaseT, list[str]]:
    """Return a smaller case that shows a fault of the same kind, and what it shows."""
    sort = kinds(found)
    again = True
    while again:
        again = False
        for smaller in reductions(case):
            now = difference(smaller)
            if now is not None and kinds(now) & sort:
                case, found, again = smaller, now, True
                break
    return case, found


def parser(package: str) -> argparse.ArgumentParser:
    """Return the command line of a package."""
    made = argparse.ArgumentParser(prog=f"python -m {package}", description="Run random cases, or one again.")
    made.add_argument("--seconds", type=float, default=20, help="how long to go on (default: 20)")
    made.add_argument("--seed", type=int, help="run the case of this seed and no other")
    made.add_argument("--first", type=int, help="begin with this seed, and go on by one (default: anywhere)")
    made.add_argument("--keep-going", type=int, default=1, metavar="N", help="stop at the Nth fault (default: 1)")
    made.add_argument("--no-shrink", action="store_true", help="show the case as it is")
    return made


def search(
    name: str,
    options: argparse.Namespace,
    find: Callable[[int], tuple[CaseT, list[str] | None]],
    smaller: Callable[[CaseT, list[str]], tuple[CaseT, list[str]]],
    report: Callable[[CaseT, list[str]], str],
) -> int:
    """Run the cases that the command line asks for, print those that show a fault, and return the exit status."""
    first = options.first if options.first is not None else SystemRandom().getrandbits(48)
    seeds = iter([options.seed]) if options.seed is not None else iter(range(first, sys.maxsize))
    begin = time.monotonic()
    cases = faults = 0
    for seed in seeds:
        if cases and time.monotonic() - begin >= options.seconds:
            break
        case, found = find(seed)
        cases += 1
        if found is None:
            continue
        faults += 1
        print(f"case {cases} shows a fault, after {time.monotonic() - begin:.1f} s")
        if not options.no_shrink:
            case, found = smaller(case, found)
        print(report(case, found), flush=True)
        if faults >= options.keep_going:
            break
    print(f"{name}: {cases} cases from seed {first if options.seed is None else options.seed}, {faults} faults")
    return 1 if faults else 0
