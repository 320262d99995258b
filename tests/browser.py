"""Headless Chromium, for tests that need what only a browser does."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

_PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

is_needed = pytest.mark.skipif(_PROGRAM is None, reason="there is no Chromium")


def command(profile: Path, *options: str) -> list[str]:
    """What starts a browser with an empty profile in this directory, reachable by the DevTools protocol."""
    assert _PROGRAM is not None
    return [
        *(_PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--disable-extensions", f"--user-data-dir={profile}", *options),
        "--remote-debugging-port=0",  # else it ends when the page is loaded
    ]


@asynccontextmanager
async def browsing(url: str, profile: Path, *options: str) -> AsyncIterator[None]:
    """A browser that has opened this page."""
    browser = await asyncio.create_subprocess_exec(
        *command(profile, *options),
        url,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        browser.terminate()
        await browser.wait()
