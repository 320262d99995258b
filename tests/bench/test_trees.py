"""A tree that is named is the one that is measured, its native core included."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import instructions, slowing, targets, trees
from bench.__main__ import main
from bench.commands import common
from bench.errors import BenchError

needs_builds = pytest.mark.skipif(
    not os.environ.get("BENCH_BUILD") or not shutil.which("cargo"),
    reason="builds the native core twice, which takes minutes: BENCH_BUILD=1 pytest -o faulthandler_timeout=1500",
)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BENCH_OURS_PYTHON", sys.executable)
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    trees.staged.cache_clear()


@pytest.mark.parametrize("command", [("gate", "--base"), ("run", "ours:root=")], ids=["gate", "run"])
def test_a_path_without_a_checkout_is_an_error(
    command: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = command
    words = [first, second, str(tmp_path)] if second.startswith("--") else [first, f"{second}{tmp_path}"]
    assert main([*words, "--workload", "hello"]) == 1
    assert capsys.readouterr().err == (
        f"bench: no checkout of this project at {tmp_path}: it has no uvicorn/__init__.py\n"
    )


def checkout(directory: Path) -> Path:
    """A copy of this tree's sources, without anything built."""
    ignored = shutil.ignore_patterns("__pycache__", "target", "*.so", "fuzz")
    for name in ("uvicorn", "native"):
        shutil.copytree(targets.ROOT / name, directory / name, ignore=ignored)
    return directory


def test_a_core_that_cannot_be_built_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = checkout(tmp_path / "tree")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BenchError, match=r"native core of .*tree cannot be built: cargo is not installed"):
        targets.import_root(targets.find(f"ours:root={tree}"))


def test_the_sources_of_a_commit_are_had_from_the_history(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        return subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet")
    for name in trees.CHECKOUT:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("first")
    git("add", ".")
    git("commit", "--quiet", "--message", "First")
    first = git("rev-parse", "--short=12", "HEAD")
    (tmp_path / trees.CHECKOUT[0]).write_text("second")
    for _ in range(2):
        found = trees.checkout(tmp_path, first)
        trees.check(found)
        assert (found / trees.CHECKOUT[0]).read_text() == "first"
    with pytest.raises(BenchError, match=r"git failed in .*: fatal: not a valid object name"):
        trees.checkout(tmp_path, "0123456789ab")


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def built_by(monkeypatch: pytest.MonkeyPatch, log: list[Path]) -> None:
    """Instead of cargo: a core whose content tells the sources it was built from."""

    def output(argv: list[str], directory: Path, extra: dict[str, str]) -> str:
        if argv[0] == "cargo":
            log.append(directory)
            place = Path(argv[-1]) / "release"
            place.mkdir(parents=True, exist_ok=True)
            sources = (directory / "bindings" / "src" / "lib.rs").read_bytes()
            (place / "lib_native.so").write_bytes(b"built of " + sources)
            return ""
        return "3.13\n.so\n" if argv[0] == sys.executable else "rustc 1"

    monkeypatch.setattr(trees, "_output", output)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


def test_each_state_of_a_tree_is_built_once_and_imported_from_a_place_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Path] = []
    built_by(monkeypatch, log)
    tree = checkout(tmp_path / "tree")
    # A core that lies in the tree may be of other sources.
    (tree / "uvicorn" / "_native.cpython-313-x86_64-linux-gnu.so").write_bytes(b"stale")

    def imported() -> Path:
        trees.staged.cache_clear()
        found = targets.import_root(targets.find(f"ours:root={tree}"))
        assert found is not None
        return found

    first = imported()
    assert [path.name for path in (first / "uvicorn").glob("_native*.so")] == ["_native.so"]
    assert (first / "uvicorn" / "_native.so").read_bytes().startswith(b"built of ")
    assert imported() == first
    append(tree / "uvicorn" / "config" / "__init__.py", "\nCHANGED = True\n")
    second = imported()
    assert second != first
    assert "CHANGED" in (second / "uvicorn" / "config" / "__init__.py").read_text()
    assert "CHANGED" not in (first / "uvicorn" / "config" / "__init__.py").read_text()
    assert len(log) == 1
    append(tree / "native" / "bindings" / "src" / "lib.rs", "\n// changed\n")
    third = imported()
    assert (third / "uvicorn" / "_native.so").read_bytes().endswith(b"// changed\n")
    assert len(log) == 2
    # Nothing was written into the tree.
    assert not (tree / "native" / "target").exists()


SLOWED_CORE = """    fn data_received(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        for turn in 0..2000_u32 {
            std::hint::black_box(turn);
        }
"""
HOT = SLOWED_CORE.partition("\n")[0] + "\n"
PLACE = Path("native", "bindings", "src", "protocol.rs")


def test_the_place_where_a_core_is_slowed_is_there() -> None:
    """The test below is run once a week: what it changes must not go away meanwhile."""
    assert (targets.ROOT / PLACE).read_text().count(HOT) == 1


@needs_builds
@pytest.mark.skipif(instructions.missing() is not None, reason=instructions.missing() or "")
@pytest.mark.timeout(1500)
def test_the_gate_sees_a_slowed_core_and_a_slowed_python_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # It is the difference that counts: both are built quickly.
    for name, value in {"LTO": "off", "CODEGEN_UNITS": "64", "OPT_LEVEL": "1", "DEBUG": "0"}.items():
        monkeypatch.setenv(f"CARGO_PROFILE_RELEASE_{name}", value)
    base, core, python = (checkout(tmp_path / name) for name in ("base", "core", "python"))
    source = core / PLACE
    source.write_text(source.read_text().replace(HOT, SLOWED_CORE))
    slowed = next(one for one in slowing.SLOWED if one.case == "httptools:get")
    module = python / "uvicorn" / slowed.module
    module.write_text(module.read_text() + slowed.code.replace("ITERATIONS", "150"))

    def gate(tree: Path) -> int:
        none = [word for part in ("workload", "time", "calls", "served", "memory") for word in (f"--{part}", "")]
        parts = (*none, "--cases", "native:get,httptools:get")
        return main(["gate", "--target", f"ours:root={tree}", "--base", str(base), *parts, "--markdown"])

    assert gate(base) == 0
    capsys.readouterr()
    assert gate(core) == 1
    assert capsys.readouterr().err.endswith("bench: regression: instructions, native:get\n")
    assert gate(python) == 1
    assert capsys.readouterr().err.endswith("bench: regression: instructions, httptools:get\n")
