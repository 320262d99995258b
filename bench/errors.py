"""What can go wrong in a run, said in one line."""

from __future__ import annotations


class BenchError(Exception):
    """A problem the reader can act on; its text is one clear line and is printed without a traceback."""


class ServerError(BenchError):
    """A server did not start, did not answer as it should, or ended while it was measured."""


class NotReady(ServerError):
    """A server that runs but never answered, which took a while to find out."""


class LoadError(BenchError):
    """A load generator is missing, failed, or printed something that cannot be understood."""


def last_line(output: str, otherwise: str = "no reason given") -> str:
    """What a program said last, for an error's text."""
    return (output.strip().splitlines() or [otherwise])[-1]
