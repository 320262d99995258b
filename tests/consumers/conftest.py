"""The consumers are installed and run only where `scripts/test-consumers` asks for that; the rest is always tested."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.consumers import table
from tests.consumers.table import Row

WANTED = os.environ.get("UVICORN_TEST_CONSUMERS")

collect_ignore = [] if WANTED else ["test_consumers.py"]

ROWS: list[Row] = []


@pytest.fixture
def report() -> Callable[[Row], None]:
    """What a test tells what it has seen; in the page at once, because a run takes long and may be interrupted."""

    def add(row: Row) -> None:
        ROWS.append(row)
        if WANTED == "write":
            table.write([row])

    return add


@pytest.fixture(scope="session", autouse=WANTED is not None)
def signals_not_ignored() -> None:
    """A shell starts what it puts into the background with signals ignored, and programs leave that so."""
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(ignored) is signal.SIG_IGN:
            signal.signal(ignored, signal.SIG_DFL)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if ROWS:
        terminalreporter.write_sep("=", "consumers")
        terminalreporter.write_line(table.markdown(ROWS))
