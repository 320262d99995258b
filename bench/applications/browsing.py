"""A browser and an API client, for the visits that are recorded."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable

BROWSER = "chromium"


def browse(base: str, targets: Iterable[str], *, remembers: bool = False) -> None:
    """Open pages one after the other; with `remembers` the browser keeps cookies and cache between them."""
    with tempfile.TemporaryDirectory(prefix="bench-") as profile:
        for number, target in enumerate(targets):
            directory = profile if remembers else f"{profile}/{number}"
            argv = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={directory}"]
            subprocess.run([*argv, "--dump-dom", base + target], check=True, capture_output=True, timeout=60)
