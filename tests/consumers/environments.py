"""Two environments for each file in `requirements/`: the same packages in both, and only the server differs.

They are made when they are first asked for, in `.venv-consumers` at the root of the clone, and kept. This checkout's
package is built anew whenever its sources have changed. uv is used where it is, because a group is a gigabyte that it
links in place of copying; pip does as well.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.process import ROOT

UPSTREAM = "uvicorn[standard]==0.54.0"
REQUIREMENTS = Path(__file__).parent / "requirements"
DIRECTORY = ROOT / ".venv-consumers"
UV = shutil.which("uv")


class CommandFailed(Exception):
    """A command ended with another status than 0; the message is what it said."""


class NotInstallable(Exception):
    """A group cannot be installed on this interpreter or system; the message is the installer's."""


@dataclass(frozen=True)
class Environment:
    """A directory with an interpreter and what is installed for it."""

    path: Path

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.path / "bin" / "python"

    def create(self) -> None:
        """Make it anew, empty, with the interpreter that runs this."""
        shutil.rmtree(self.path, ignore_errors=True)
        if UV:
            _run(UV, "venv", "--quiet", "--python", sys.executable, self.path)
        else:
            _run(sys.executable, "-m", "venv", self.path)

    def install(self, *arguments: str | Path) -> None:
        """`pip install ARGUMENTS`."""
        if UV:
            _run(UV, "pip", "install", "--quiet", "--python", self.python, *arguments)
        else:
            _run(self.python, "-m", "pip", "install", "--quiet", *arguments)

    def packages(self) -> dict[str, str]:
        """Name and version of everything that is installed, pip and the like excepted."""
        if UV:
            listed = _run(UV, "pip", "list", "--format", "json", "--python", self.python)
        else:
            listed = _run(self.python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check")
        found = {package["name"].lower().replace("_", "-"): package["version"] for package in json.loads(listed)}
        return {name: version for name, version in sorted(found.items()) if name not in ("pip", "setuptools")}

    def holds(self, state: str) -> bool:
        """Whether it was completed for this state."""
        marker = self.path / "state"
        return marker.is_file() and marker.read_text() == state

    def complete(self, state: str) -> None:
        """Note what it was made for."""
        (self.path / "state").write_text(state)


@dataclass(frozen=True)
class Pair:
    """The two environments of a group."""

    upstream: Environment
    ours: Environment

    def version(self, package: str) -> str:
        """The version of a package, the same in both."""
        return self.upstream.packages()[package.lower().replace("_", "-")]


def groups() -> list[str]:
    """Each file of requirements is a group."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


@cache
def pair(group: str) -> Pair:
    """The environments of a group, installed if they are not, or not as the files say now.

    Raises:
        NotInstallable: the packages cannot be installed beside upstream.
        CommandFailed: this checkout's package cannot be built, or not installed beside them.
    """
    requirements = REQUIREMENTS / f"{group}.txt"
    found = Pair(Environment(DIRECTORY / group / "upstream"), Environment(DIRECTORY / group / "ours"))
    state = _digest(requirements.read_bytes(), UPSTREAM.encode(), sys.version.encode())
    if not found.upstream.holds(state):
        found.upstream.create()
        try:
            found.upstream.install("-r", requirements, UPSTREAM)
        except CommandFailed as why:
            raise NotInstallable(f"{group} cannot be installed: {why}") from None
        found.upstream.complete(state)

    sources = _digest(*(path.read_bytes() for path in _sources()))
    if not found.ours.holds(state + sources):
        lock = DIRECTORY / group / "lock.txt"
        others = {name: version for name, version in found.upstream.packages().items() if name != "uvicorn"}
        lock.write_text("".join(f"{name}=={version}\n" for name, version in others.items()))
        if not found.ours.path.exists():
            found.ours.create()
        found.ours.install("--no-deps", "-r", lock)
        found.ours.install("--no-deps", "--force-reinstall", _wheel(sources))
        found.ours.complete(state + sources)
    _require_difference(found)
    return found


def _require_difference(found: Pair) -> None:
    """The comparison is worth something only if the server differs, and nothing else."""
    upstream, ours = found.upstream.packages(), found.ours.packages()
    assert f"uvicorn[standard]=={upstream.pop('uvicorn')}" == UPSTREAM
    assert ours.pop("uvicorn") != UPSTREAM.partition("==")[2]
    assert upstream == ours
    said = _run(found.ours.path / "bin" / "uvicorn", "--version")
    assert "HTTP core: native" in said, said


def _sources() -> Iterator[Path]:
    """What the package is built from."""
    yield from (ROOT / "pyproject.toml", ROOT / "setup.py")
    for pattern in ("uvicorn/**/*.py", "uvicorn/**/*.pyi", "native/*/src/**/*.rs", "native/*/Cargo.toml"):
        yield from sorted(ROOT.glob(pattern))


@cache
def _wheel(sources: str) -> Path:
    """This checkout as users install it, with the native core."""
    directory = DIRECTORY / "wheels" / sources[:16]
    if not directory.exists():
        shutil.rmtree(DIRECTORY / "wheels", ignore_errors=True)
        if UV:
            _run(UV, "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", directory, ROOT)
        else:
            _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, ROOT)
    (wheel,) = directory.glob("uvicorn-*.whl")
    return wheel


def _digest(*contents: bytes) -> str:
    return hashlib.sha256(b"\0".join(contents)).hexdigest()


def _run(*command: str | Path) -> str:
    """Run a command to its end and return what it printed."""
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if run.returncode:
        raise CommandFailed(run.stderr.strip() or run.stdout.strip())
    return run.stdout
