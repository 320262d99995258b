"""The C programs of this harness, compiled when they are first needed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from bench import trees
from bench.errors import BenchError

SOURCES = Path(__file__).resolve().parent / "c"


def missing() -> str | None:
    """Why nothing can be compiled here; None when it can."""
    return None if _compiler() else "no C compiler (apt-get install gcc)"


def _compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def compiled(name: str, *, shared: bool = False) -> Path:
    """The program (or shared library) of `bench/c/NAME.c`, compiled with gcc -O2 into the user's cache.

    Raises BenchError without a compiler.
    """
    source = SOURCES / f"{name}.c"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    cache = trees.cache()
    program = cache / f"{name}-{digest}"
    if program.exists():
        return program
    compiler = _compiler()
    if compiler is None:
        raise BenchError(f"{name} needs a C compiler: install gcc")
    cache.mkdir(parents=True, exist_ok=True)
    flags = ["-shared", "-fPIC"] if shared else []
    partial = cache / f"{name}-{digest}.{os.getpid()}"
    done = subprocess.run([compiler, "-O2", *flags, "-o", str(partial), str(source)], capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"{name}.c does not compile: {done.stderr.strip().splitlines()[-1]}")
    partial.replace(program)
    return program
