"""scripts/compare-features [--write] [--bare] [--server NAME]... [WORD...]: try each feature on each server.

Features are chosen by words in their names, all by default; servers are ours, upstream, granian, gunicorn, hypercorn
and nginx. --bare leaves out the options that a feature takes, so that it should be missed: what says `yes` then is no
evidence, unless the server does it by default. --write puts what was seen into docs/features.md; cells that were not
tried stay as they are.

Takes about ten minutes. Needs the servers in .venv-peers (`scripts/bench-setup`, or BENCH_PEERS_PYTHON), and nginx and
strace.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from bench import targets
from tests.features.catalog import FEATURES
from tests.features.feature import Feature
from tests.features.table import NotTried, between_markers, markdown, parse, write
from tests.features.trial import NGINX, OURS, SERVERS, Trial, nginx_program

TITLES = {OURS: "this server", "upstream": "uvicorn"}


def tried(feature: Feature, server: str, bare: bool = False) -> str:
    """The cell of a feature and a server."""
    with tempfile.TemporaryDirectory(prefix="feature-") as directory:
        trial = Trial(server, Path(directory), bare)
        try:
            return str(trial.seen(feature.observe(trial)))
        except NotTried as reason:
            return f"not tried: {reason}"


def version(server: str) -> str:
    """Of the program that was tried."""
    if server == OURS:
        return metadata.version("uvicorn")
    if server == NGINX:
        said = subprocess.run([nginx_program(), "-v"], capture_output=True, text=True, check=True).stderr
        return said.rpartition("/")[2].strip()
    target = targets.find(server)
    program = f"from importlib.metadata import version; print(version({target.distributions[0]!r}))"
    command = [targets.interpreter(target), "-I", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def column(server: str) -> str:
    """The title of a column."""
    return f"{TITLES.get(server, server)} {version(server)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    assert __doc__
    parser = argparse.ArgumentParser("scripts/compare-features", description=__doc__.partition(": ")[2])
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("words", nargs="*", metavar="WORD", help="of the names of features")
    parser.add_argument("--server", action="append", choices=SERVERS, help="this one only; may be repeated")
    parser.add_argument("--bare", action="store_true", help="without the options that the features take")
    parser.add_argument("--write", action="store_true", help="put what was seen into docs/features.md")
    asked = parser.parse_args(arguments)
    if asked.write and asked.bare:
        parser.error("what is seen without options is not for the page")
    chosen = [one for one in FEATURES if all(word.lower() in one.name.lower() for word in asked.words)]
    known = parse(between_markers(), SERVERS) if asked.write else {}
    cells = {feature.name: dict(known.get(feature.name, dict.fromkeys(SERVERS, ""))) for feature in FEATURES}
    failed = False
    for feature in chosen:
        for server in asked.server or SERVERS:
            try:
                cell = tried(feature, server, asked.bare)
                cells[feature.name][server] = cell
            except Exception:
                # Whatever it is, the others are tried; nothing is written then.
                cell, failed = f"failed: {traceback.format_exc()}", True
            print(f"{feature.name} | {server} | {cell}", flush=True)
    if asked.write and not failed:
        where = f"Python {platform.python_version()} and Linux {platform.release().partition('-')[0]}"
        when = datetime.datetime.now(datetime.timezone.utc).date()
        columns = {server: column(server) for server in SERVERS}
        write(markdown([feature.row for feature in FEATURES], columns, cells, [f"Last run on {when}, with {where}."]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
