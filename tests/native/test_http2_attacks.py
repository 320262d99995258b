"""`scripts/http2-attacks` says of each attack what ended it, and what it cost. How long others wait is not judged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "http2-attacks"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory and connections are those of /proc")


def test_each_attack_has_a_row_of_figures() -> None:
    command = [sys.executable, str(SCRIPT), "--seconds", "0.5", "WebSockets", "table", "messages"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "|" in line]
    assert [row[1] for row in rows] == ["none", "rapid reset of WebSockets", "table above its limit", "small messages"]
    assert not done.stderr
    for _, _, _, lines, memory, waits in rows:
        assert re.fullmatch(r"[\d,]+", lines)
        assert re.fullmatch(r"[\d.]+ / [\d.]+ / [\d.]+", memory)
        assert re.fullmatch(r"[\d.]+ / [\d.]+ / [\d.]+", waits)
    assert rows[1][2].startswith("GOAWAY ENHANCE_YOUR_CALM (")
    assert rows[2][2].startswith("GOAWAY COMPRESSION_ERROR (")
    assert rows[3][2].startswith("200 (")
    assert "not ended by" not in done.stdout
    assert "lines in the log" not in done.stdout
