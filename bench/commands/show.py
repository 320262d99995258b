"""`show FILE…`: stored results as tables."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import merge, model
from bench.commands import common


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Files, and the form of the output."""
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--details", action="store_true", help="also every percentile, and every kind of memory")
    parser.add_argument("--json", action="store_true", help="print the stored form instead of tables")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")


def execute(arguments: argparse.Namespace) -> int:
    """Print the results together; refuses to mix environments."""
    for result in merge.by_kind([model.load(path) for path in arguments.files]):
        common.show(arguments, result)
    return 0
