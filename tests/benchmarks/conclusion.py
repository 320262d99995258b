"""The last line of each script: what to conclude from its result beside the stored one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.__main__ import main as bench


def concluded(command: Sequence[str], baseline: str, before_last: Sequence[Sequence[str]] = ()) -> int:
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
                print("conclusion: not measured, for the reason above")
                return status
        return bench(["baseline", "conclude", baseline, result])
