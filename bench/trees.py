"""Other trees of this project, as they are measured: their own Python files and a core built from their own sources.

A tree is staged in the user's cache: a copy of its package with the core that was built for it. It is imported from
there by the interpreter of this tree, so that everything else is the same. A staged tree never changes: another
state of the tree is another directory.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.errors import BenchError

# In a directory that holds a package as it is to be imported, nothing to be built.
MARK = ".staged"
# What a checkout has.
CHECKOUT = ("uvicorn/__init__.py", "native/Cargo.toml", "native/bindings/Cargo.toml")
BUILD_TIMEOUT = 1800.0
_ABOUT = "import sys, sysconfig; print(sys.version, sysconfig.get_config_var('EXT_SUFFIX'), sep='\\n')"


def cache() -> Path:
    """The user's cache of what this harness compiles."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uvicorn-bench"


def check(root: Path) -> None:
    """Raises BenchError when a path is neither a checkout of this project nor a staged tree."""
    if (root / MARK).exists():
        return
    missing = [name for name in CHECKOUT if not (root / name).is_file()]
    if missing:
        raise BenchError(f"no checkout of this project at {root}: it has no {missing[0]}")


def checkout(root: Path, commit: str) -> Path:
    """The sources of a commit of the repository at `root`, in the user's cache.

    Raises BenchError when that repository does not have it, as a clone of the last commits alone does not.
    """
    place = cache() / "checkouts" / commit
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as name:
            packed, partial = Path(name) / "sources.tar", Path(name) / "sources"
            partial.mkdir()
            _output(["git", "archive", f"--output={packed}", commit, "uvicorn", "native"], root, {})
            _output(["tar", "--extract", f"--file={packed}"], partial, {})
            partial.rename(place)
    return place


@functools.cache
def staged(root: Path, python: str) -> Path:
    """Where a tree is imported from, its native core built if it is not yet.

    Raises BenchError when there is no tree, or when its core cannot be built: without it another program would be
    measured than the one that was named.
    """
    check(root)
    if (root / MARK).exists():
        return root
    suffix, core = _built(root, python)
    place = cache() / "trees" / _digest([*_files(root / "uvicorn", (".py",)), core], root)
    if not (place / MARK).exists():
        stage(root / "uvicorn", place, core, suffix)
    return place


def stage(package: Path, place: Path, core: Path | None = None, suffix: str = "") -> None:
    """Copy a package to be imported from a directory: with that native core, or with the one that lies in it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    ignored = ["__pycache__"] if core is None else ["__pycache__", "*.so", "*.pyd"]
    with tempfile.TemporaryDirectory(dir=place.parent) as name:
        partial = Path(name) / "tree"
        shutil.copytree(package, partial / "uvicorn", ignore=shutil.ignore_patterns(*ignored))
        if core is not None:
            shutil.copyfile(core, partial / "uvicorn" / f"_native{suffix}")
        (partial / MARK).touch()
        shutil.rmtree(place, ignore_errors=True)
        partial.rename(place)


def _built(root: Path, python: str) -> tuple[str, Path]:
    """The native core of a tree for an interpreter: the suffix of its name, and where it lies."""
    version, suffix = _output([python, "-c", _ABOUT], root, {}).strip().split("\n")
    if shutil.which("cargo") is None:
        raise BenchError(f"the native core of {root} cannot be built: cargo is not installed")
    # A profile may be set in the environment; it makes another program.
    profile = {name: value for name, value in os.environ.items() if name.startswith(("CARGO_PROFILE", "RUSTFLAGS"))}
    about = [version, _output(["rustc", "--version"], root, {}), repr(sorted(profile.items()))]
    sources = _files(root / "native", (".rs", ".toml", ".lock"))
    core = cache() / "cores" / f"{_digest(sources, root, about)}.so"
    if not core.exists():
        target = cache() / "target"
        argv = ["cargo", "build", "--quiet", "--release", "-p", "bindings", "--target-dir", str(target)]
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            # Build in a copy, so that the tree stays unchanged and the build matches the sources that were read.
            for path in sources:
                copy = Path(name) / path.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
            _output(argv, Path(name) / "native", {"PYO3_PYTHON": python})
        core.parent.mkdir(parents=True, exist_ok=True)
        partial = core.with_suffix(f".{os.getpid()}")
        shutil.copyfile(target / "release" / "lib_native.so", partial)
        partial.replace(core)
    return suffix, core


def _output(argv: list[str], directory: Path, extra: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            argv, cwd=directory, env={**os.environ, **extra}, capture_output=True, text=True, timeout=BUILD_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise BenchError(f"{argv[0]} failed: {exc}") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("error")] or done.stderr.splitlines()
        raise BenchError(f"{Path(argv[0]).name} failed in {directory}: {said[0] if said else 'no reason given'}")
    return done.stdout


def _files(directory: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The source files below a directory, without build products."""

    def found(place: Path) -> Iterator[Path]:
        for path in sorted(place.iterdir()):
            if path.is_dir() and path.name not in ("target", "__pycache__"):
                yield from found(path)
            elif path.is_file() and (path.suffix in suffixes or path.name == "py.typed"):
                yield path

    return list(found(directory))


def _digest(paths: Iterable[Path], root: Path, about: Iterable[str] = ()) -> str:
    digest = hashlib.sha256("\n".join(about).encode())
    for path in paths:
        name = path.relative_to(root) if path.is_relative_to(root) else path.name
        digest.update(f"\n{name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
