"""The last line of each script: what to conclude from its result beside the stored ones."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import targets
from bench.__main__ import main as bench
from bench.errors import BenchError

NO_SERVER = "--no-server"


def driven(command: Sequence[str], argv: Sequence[str], stored: str, url: str, *served: str) -> int:
    """`concluded` for `bench run`: of this tree beside upstream, if that is installed and the arguments name no server.

    With `--no-server` a server that runs at `url` is loaded, and `served` says how it serves workloads.
    """
    arguments = [one for one in argv if one != NO_SERVER]
    if NO_SERVER in argv:
        arguments = [*served, "--url", url, *arguments]
    elif not any(one == "--url" or one.partition(":")[0] in targets.TARGETS for one in argv):
        arguments = ["ours", *_rival(), *arguments]
    return concluded(["run", *command, *arguments], stored)


def _rival() -> list[str]:
    """Upstream where it is installed: without it, rates alone would be measured, which other machines do not repeat."""
    try:
        targets.find_all(["upstream"])
    except BenchError:
        return []
    return ["upstream"]


def concluded(command: Sequence[str], stored: str, before_last: Sequence[Sequence[str]] = ()) -> int:
    """Measure, print further commands' output, and conclude; the exit status is the first that is not 0.

    The result lands where `--output` of the command says, else nowhere.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        arguments = list(command)
        if "--output" not in arguments:
            arguments += ["--output", str(Path(name) / "result.json")]
        result = arguments[arguments.index("--output") + 1]
        for one in (arguments, *before_last):
            if status := bench(one):
                if Path(result).exists():
                    bench(["baseline", "conclude", stored, result])  # It has the reason.
                else:
                    print("conclusion: not measured, for the reason above")
                return status
        return bench(["baseline", "conclude", stored, result])
