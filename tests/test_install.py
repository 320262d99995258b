"""`scripts/install`, behind `make serve` and `make test`: what it says, and when it installs and builds again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.process import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell script")

TOOLS = ("sh", "dirname", "sort", "head", "cut", "rm", "env")

WITHOUT_INSTALLERS = """
import sys
sys.modules["ensurepip"] = sys.modules["pip"] = None
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A directory with the script in it, and beside it the few programs that every system has."""
    (tmp_path / "clone" / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "install", tmp_path / "clone" / "scripts")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    return tmp_path / "clone"


def install(clone: Path, *arguments: str, **variables: str) -> tuple[int, list[str]]:
    """Exit status and the lines on standard error."""
    run = subprocess.run(
        [clone / "scripts" / "install", *arguments],
        env={"PATH": str(clone.parent / "bin"), **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not (clone / ".venv").exists()
    return run.returncode, run.stderr.splitlines()


def test_without_python_one_line_says_what_to_install(clone: Path) -> None:
    status, (line,) = install(clone)
    assert status == 1
    assert line == (
        "scripts/install: no CPython >= 3.10 was found; install one, for instance: apt-get install python3 python3-venv"
    )


def test_without_pip_one_line_says_what_to_install(clone: Path) -> None:
    """Debian keeps it, and what would fetch it, in a package of its own."""
    (clone.parent / "sitecustomize.py").write_text(WITHOUT_INSTALLERS)
    status, (line,) = install(clone, PYTHON=sys.executable, PYTHONPATH=str(clone.parent))
    assert status == 1
    assert line.endswith("has neither ensurepip nor pip; install them: apt-get install python3-venv")


@pytest.mark.parametrize("python", ["not-there", os.curdir])
def test_python_that_was_chosen_and_is_none_is_named(clone: Path, python: str) -> None:
    status, (line,) = install(clone, PYTHON=python)
    assert status == 1
    assert line == f"scripts/install: PYTHON={python} is no CPython >= 3.10 with the module venv"


def test_unknown_extras_are_a_usage_error(clone: Path) -> None:
    assert install(clone, "everything") == (2, ["usage: scripts/install [standard|test|dev]"])


# With an environment. The installer and cargo are doubles: a module is a file that holds what it was built from.

MODULE = f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
PYTHON = f"""#!/bin/sh
case "$*" in *_native.SOURCES*) exec cat uvicorn/{MODULE} ;; *) exec {sys.executable} "$@" ;; esac
"""
UV = f"""#!/bin/sh
case $1 in
--version) exit ;;
venv) echo "$@" >>made; exit ;;
esac
echo "$@" >>installed
cargo build 2>/dev/null || exit 0
if [ -e broken ]; then
    echo "error[E0308]: mismatched types" >&2
    exit "$UVICORN_REQUIRE_NATIVE"
fi
.venv/bin/python native/fingerprint.py >uvicorn/{MODULE}
"""
COMPILES = "Compiling the native core, which takes one to four minutes."
NEEDED = "install Rust 1.88 or later (https://rustup.rs) and run this again"


@dataclass
class Tree:
    """A clone with an environment, on a system with `uv`."""

    clone: Path

    def provide(self, name: str, script: str) -> None:
        """Put a program on PATH."""
        program = self.clone.parent / "bin" / name
        program.write_text(script)
        program.chmod(0o755)

    def provide_cargo(self, version: str = "1.95.0", builds: bool = True) -> None:
        script = f"[ $1 = --version ] || exit {int(not builds)}\necho 'cargo {version} (f2d3ce0bd 2026-03-21)'"
        self.provide("cargo", f"#!/bin/sh\n{script}\n")

    def install(self, **variables: str) -> tuple[int, str, str]:
        """Exit status, and what was said."""
        run = subprocess.run(
            [self.clone / "scripts" / "install"],
            env={"PATH": str(self.clone.parent / "bin"), **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return run.returncode, run.stdout, run.stderr

    @property
    def module(self) -> Path:
        return self.clone / "uvicorn" / MODULE

    @property
    def is_built(self) -> bool:
        """Whether the module is there, of the sources that are there."""
        said = subprocess.check_output([sys.executable, "native/fingerprint.py"], cwd=self.clone, text=True)
        return self.module.exists() and self.module.read_text() == said

    @property
    def times(self) -> int:
        """How often something was installed."""
        path = self.clone / "installed"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def tree(clone: Path) -> Tree:
    for name in ("native/bindings/src", "uvicorn", ".venv/bin"):
        (clone / name).mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "native/Cargo.toml", "native/fingerprint.py"):
        shutil.copy(ROOT / name, clone / name)
    (clone / "native" / "bindings" / "src" / "lib.rs").write_text("// first\n")
    (clone / ".venv" / "pyvenv.cfg").touch()
    (clone / ".venv" / "bin" / "python").write_text(PYTHON)
    (clone / ".venv" / "bin" / "python").chmod(0o755)
    for tool in ("cat", "cksum", "sed"):
        (clone.parent / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    tree = Tree(clone)
    tree.provide("uv", UV)
    return tree


def change(tree: Tree) -> None:
    (tree.clone / "native" / "bindings" / "src" / "lib.rs").write_text("// second\n")


def test_once_rust_is_there_the_native_core_is_built(tree: Tree) -> None:
    status, said, _ = tree.install()
    assert status == 0
    assert f"There is no cargo, so the native core is left out: to have it, {NEEDED}." in said
    assert tree.install() == (0, "", "")
    assert (tree.times, tree.is_built) == (1, False)
    tree.provide_cargo()
    status, said, _ = tree.install()
    assert (status, tree.times, tree.is_built) == (0, 2, True)
    assert COMPILES in said
    assert tree.install() == (0, "", "")
    assert tree.times == 2


def test_compiling_is_announced_only_where_cargo_has_something_to_compile(tree: Tree) -> None:
    def says_so() -> bool:
        status, said, _ = tree.install()
        assert (status, tree.is_built) == (0, True)
        return COMPILES in said

    tree.provide_cargo("1.94.0")
    assert says_so()
    (tree.clone / ".venv" / "installed-standard").unlink()
    assert not says_so()
    with (tree.clone / "pyproject.toml").open("a") as file:
        file.write("# another requirement\n")
    assert not says_so()
    assert tree.times == 3
    tree.provide_cargo("1.95.0")
    assert says_so()
    change(tree)
    assert says_so()
    tree.module.unlink()
    assert says_so()


def test_a_build_is_made_again_with_another_cargo_other_sources_or_where_the_module_is_gone(tree: Tree) -> None:
    tree.provide_cargo("1.94.0")
    tree.install()
    tree.provide_cargo("1.95.0")
    assert tree.install()[0] == 0
    assert tree.times == 2
    change(tree)
    assert not tree.is_built
    assert tree.install()[0] == 0
    assert (tree.times, tree.is_built) == (3, True)
    tree.module.unlink()
    assert tree.install()[0] == 0
    assert (tree.times, tree.is_built) == (4, True)
    tree.module.write_text("of another tree")
    assert tree.install()[0] == 0
    assert (tree.times, tree.is_built) == (5, True)


@pytest.mark.parametrize("version", ["1.63.0", "1.87.9", "0.66.0", "1.9.0"])
def test_cargo_that_is_too_old_is_named_with_the_version_that_is_needed(version: str, tree: Tree) -> None:
    tree.provide_cargo(version, builds=False)
    status, said, _ = tree.install()
    assert status == 0
    assert f"cargo {version} is too old, so the native core is left out: to have it, {NEEDED}." in said
    status, _, error = tree.install(UVICORN_REQUIRE_NATIVE="1")
    assert (status, error) == (
        1,
        f"scripts/install: cargo {version} is too old, and UVICORN_REQUIRE_NATIVE=1: {NEEDED}\n",
    )


@pytest.mark.parametrize("version", ["1.88.0", "1.88.0-nightly", "1.100.0", "2.0.0"])
def test_cargo_that_is_new_enough_is_used(version: str, tree: Tree) -> None:
    tree.provide_cargo(version)
    assert tree.install()[0] == 0
    assert tree.is_built


def test_cargo_that_does_not_run_is_told_of(tree: Tree) -> None:
    tree.provide("cargo", "#!/bin/sh\necho 'error: no default toolchain is configured' >&2\nexit 1\n")
    status, said, _ = tree.install()
    assert status == 0
    assert "cargo does not run (error: no default toolchain is configured), so the native core is left out" in said


def test_an_error_of_the_compiler_ends_the_installation_and_leaves_no_older_module(tree: Tree) -> None:
    tree.provide_cargo()
    tree.install()
    change(tree)
    (tree.clone / "broken").touch()
    for _ in range(2):
        status, _, error = tree.install()
        assert status == 1
        assert error.splitlines() == [
            "error[E0308]: mismatched types",
            "scripts/install: the installation failed; the lines above say why",
        ]
        assert not tree.module.exists()
    status, said, _ = tree.install(UVICORN_REQUIRE_NATIVE="0")
    assert status == 0
    assert said.endswith("The native core was not built; UVICORN_REQUIRE_NATIVE=1 shows why.\n")
    (tree.clone / "broken").unlink()
    assert tree.install()[0] == 0
    assert tree.is_built


def test_without_cargo_a_module_of_other_sources_is_removed_and_one_of_these_stays(tree: Tree) -> None:
    tree.provide_cargo()
    tree.install()
    (tree.clone.parent / "bin" / "cargo").unlink()
    status, said, _ = tree.install()
    assert (status, tree.is_built) == (0, True)
    assert "left out" not in said
    change(tree)
    status, said, _ = tree.install()
    assert (status, tree.module.exists()) == (0, False)
    assert "left out" in said


def test_the_oldest_interpreter_can_be_asked_for_and_has_an_environment_of_its_own(tree: Tree) -> None:
    for minor in (10, 12, 9):
        number = f"{minor:03}000 " if minor != 9 else ""  # as an interpreter that is too old: nothing
        script = f"case $1 in --version) echo Python 3.{minor} ;; *) cat >/dev/null; echo '{number}'\"$0\" ;; esac"
        tree.provide(f"python3.{minor}", f"#!/bin/sh\n{script if number else 'exit 1'}\n")
    status, said, _ = tree.install(PYTHON="oldest", VENV=".venv-oldest")
    assert said.splitlines()[0] == "Creating .venv-oldest with Python 3.10."
    made = (tree.clone / "made").read_text()
    assert made == f"venv --quiet --python {tree.clone.parent}/bin/python3.10 .venv-oldest\n"
    assert status != 0  # nothing was made by the double


def test_an_environment_of_another_interpreter_than_the_chosen_one_is_made_anew(tree: Tree) -> None:
    assert tree.install(PYTHON=sys.executable)[0] == 0
    assert not (tree.clone / "made").exists()
    script = 'case $1 in --version) echo Python 3.12 ;; -c) echo other ;; *) cat >/dev/null; echo "012000 $0" ;; esac'
    tree.provide("python3.12", f"#!/bin/sh\n{script}\n")
    assert tree.install(PYTHON="python3.12")[1].startswith("Creating .venv with Python 3.12.\n")
    assert (tree.clone / "made").exists()


def test_python_that_only_another_version_of_pyenv_has_is_found_there(tree: Tree) -> None:
    """The one on PATH is pyenv's, and names the versions that have it."""
    tree.provide("python3.12", "#!/bin/sh\nexit 127\n")
    directory = tree.clone.parent / "pyenv" / "versions" / "3.12.1" / "bin"
    directory.mkdir(parents=True)
    script = 'case $1 in --version) echo Python 3.12 ;; *) cat >/dev/null; echo "012000 $0" ;; esac'
    directory.joinpath("python3.12").write_text(f"#!/bin/sh\n{script}\n")
    directory.joinpath("python3.12").chmod(0o755)
    _, said, _ = tree.install(PYTHON="python3.12", PYENV_ROOT=str(tree.clone.parent / "pyenv"), VENV=".venv-other")
    assert said.startswith("Creating .venv-other with Python 3.12.\n")
    assert f" --python {directory}/python3.12 " in (tree.clone / "made").read_text()


def test_a_directory_that_is_no_environment_is_not_replaced(tree: Tree) -> None:
    (tree.clone / "notes").mkdir()
    status, _, error = tree.install(PYTHON=sys.executable, VENV="notes")
    assert (status, error) == (1, "scripts/install: notes is there and is no environment\n")
    assert (tree.clone / "notes").exists()
