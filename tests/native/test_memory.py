"""What is kept of freed memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")

MESSAGES = """
import resource
from uvicorn.metrics.memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

print(keep_freed_memory())
messages = []
for turn in range(21):
    messages = [bytes([turn]) * (1 << 20) for _ in range(8)]
    messages.clear()
    if turn == 0:
        before = faults()
print((faults() - before) // (20 * 8))
"""


def run(**environment: str) -> list[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_", "PYTHONMALLOC"))
    }
    done = subprocess.run(
        [sys.executable, "-c", MESSAGES], env={**kept, **environment}, capture_output=True, check=True
    )
    return done.stdout.decode().split()


def test_memory_of_large_messages_is_not_asked_for_again() -> None:
    """A page of 4 KiB is a fault, and a message of 1 MiB has 256."""
    kept, faults = run()
    assert kept == "True" and int(faults) < 5


@pytest.mark.parametrize(
    "environment", [{"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}]
)
def test_environment_decides(environment: dict[str, str]) -> None:
    kept, faults = run(**environment)
    assert kept == "False" and int(faults) > 100
