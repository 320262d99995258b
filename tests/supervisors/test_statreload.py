from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.utils import as_cwd
from uvicorn.config import Config
from uvicorn.supervisors.statreload import StatReload


def serve_nothing(sockets: list[socket.socket] | None) -> None:
    """The target of a child that ends at once."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    for name in ("app.py", "pkg/module.py", "notes.txt"):
        (tmp_path / name).touch()
    return tmp_path


def make(tree: Path, **settings: object) -> StatReload:
    with as_cwd(tree):
        config = Config("app:app", reload=True, reload_delay=0, log_config=None, **settings)  # type: ignore[arg-type]
    return StatReload(config, target=serve_nothing, sockets=[])


def touch(path: Path) -> None:
    """Give the file a modification time that is certainly newer."""
    later = path.stat().st_mtime + 2
    os.utime(path, (later, later))


def test_name(tree: Path) -> None:
    """RLD-02"""
    assert make(tree).reloader_name == "StatReload"


def test_python_files_below_are_found(tree: Path) -> None:
    """RLD-23"""
    files = {path.relative_to(tree.resolve()).as_posix() for path in make(tree).iter_py_files()}
    assert files == {"app.py", "pkg/module.py"}


@pytest.mark.parametrize("name", ["app.py", "pkg/module.py"])
def test_newer_file_counts(tree: Path, name: str) -> None:
    """RLD-23"""
    reloader = make(tree)
    assert next(reloader) is None
    assert next(reloader) is None
    touch(tree / name)
    assert next(reloader) == [(tree / name).resolve()]


def test_other_files_do_not_count(tree: Path) -> None:
    """RLD-23"""
    reloader = make(tree)
    assert next(reloader) is None
    touch(tree / "notes.txt")
    assert next(reloader) is None


def test_new_file_counts_when_it_changes(tree: Path) -> None:
    """RLD-23"""
    reloader = make(tree)
    assert next(reloader) is None
    (tree / "new.py").touch()
    assert next(reloader) is None
    touch(tree / "new.py")
    assert next(reloader) == [(tree / "new.py").resolve()]


def test_file_that_vanishes_is_left_out(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reloader = make(tree)
    monkeypatch.setattr(reloader, "iter_py_files", lambda: iter([tree / "gone.py", tree / "app.py"]))
    assert next(reloader) is None
    assert list(reloader.mtimes) == [tree / "app.py"]


def test_times_that_a_subclass_sets_are_those_of_the_last_look(tree: Path) -> None:
    reloader = make(tree)
    assert next(reloader) is None
    touch(tree / "app.py")
    reloader.mtimes = {}
    assert next(reloader) is None
    reloader.mtimes = {**reloader.mtimes, (tree / "app.py").resolve(): 1.0}
    assert next(reloader) == [(tree / "app.py").resolve()]


def test_subclass_may_name_the_files(tree: Path) -> None:
    class Notes(StatReload):
        def iter_py_files(self) -> Iterator[Path]:
            yield from (tree / "notes.txt", *super().iter_py_files())

    reloader = Notes(make(tree).config, target=serve_nothing, sockets=[])
    assert next(reloader) is None
    assert set(reloader.mtimes) == {(tree / name).resolve() for name in ("app.py", "pkg/module.py", "notes.txt")}
    touch(tree / "notes.txt")
    assert next(reloader) == [(tree / "notes.txt").resolve()]


def test_program_may_patch_what_names_the_files(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StatReload, "iter_py_files", lambda self: iter([tree / "notes.txt"]))
    reloader = make(tree)
    assert next(reloader) is None
    touch(tree / "app.py")
    assert next(reloader) is None
    touch(tree / "notes.txt")
    assert next(reloader) == [(tree / "notes.txt").resolve()]


def test_look_resolves_directories_but_not_each_file(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolving took most of the time of a restart in a large tree."""
    reloader = make(tree)
    resolved: list[Path] = []
    resolve = Path.resolve

    def note(path: Path) -> Path:
        resolved.append(path)
        return resolve(path)

    monkeypatch.setattr(Path, "resolve", note)
    assert next(reloader) is None
    assert resolved == reloader.config.reload_dirs
    assert len(reloader.mtimes) == 2


def test_change_behind_a_symbolic_link_counts(tree: Path) -> None:
    """RLD-23: the target is reported. A linked directory is not entered."""
    outside = tree / "outside.txt"
    outside.touch()
    (tree / "pkg" / "link.py").symlink_to(outside)
    (tree / "pkg" / "dangling.py").symlink_to(tree / "nothing")
    (tree / "pkg" / "linked").symlink_to(tree, target_is_directory=True)
    reloader = make(tree)
    assert next(reloader) is None
    assert len(reloader.mtimes) == 3
    touch(outside)
    assert next(reloader) == [outside.resolve()]


def test_what_has_changed_before_a_restart_is_not_news_after_it(tree: Path) -> None:
    """RLD-23"""
    reloader = make(tree)
    reloader.startup()
    assert next(reloader) is None
    touch(tree / "app.py")
    (tree / "pkg" / "module.py").unlink()
    reloader.restart()
    assert list(reloader.mtimes) == [tree.resolve() / "app.py"]
    assert next(reloader) is None
    reloader.shutdown()


@pytest.mark.parametrize(
    "settings",
    [{}, {"reload_dirs": ["pkg"]}, {"reload_includes": ["pkg"]}, {"reload_includes": ["pkg/*.py"]}],
    ids=["default", "directory", "directory included", "files included"],
)
def test_change_while_the_child_starts_counts(tree: Path, settings: dict[str, Any]) -> None:
    """RLD-23: it may have read the file before."""
    reloader = make(tree, **settings)
    for start in (reloader.startup, reloader.restart):
        start()
        touch(tree / "pkg" / "module.py")
        assert next(reloader) == [tree.resolve() / "pkg" / "module.py"]
    reloader.shutdown()


def test_end_is_the_end_of_the_iteration(tree: Path) -> None:
    """RLD-08"""
    reloader = make(tree)
    reloader.should_exit.set()
    assert list(reloader) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"reload_includes": ["*.txt"]}, {"app.py", "pkg/module.py", "notes.txt"}),
        ({"reload_includes": [".env"]}, {"app.py", "pkg/module.py", "pkg/.env"}),
        ({"reload_excludes": ["app.py"]}, {"pkg/module.py"}),
        ({"reload_excludes": ["pkg"]}, {"app.py"}),
    ],
    ids=["included", "named in full", "excluded", "directory excluded"],
)
def test_patterns_have_the_same_effect_as_with_watchfiles(
    tree: Path, settings: dict[str, list[str]], expected: set[str]
) -> None:
    """RLD-24: deliberately different, upstream's does not look at them."""
    for name in (".hidden.py", "pkg/.env"):
        (tree / name).touch()
    with as_cwd(tree):
        reloader = make(tree, **settings)
        assert {path.relative_to(tree.resolve()).as_posix() for path in reloader.iter_py_files()} == expected


def test_change_of_a_file_that_is_named_in_full_counts(tree: Path) -> None:
    """RLD-24"""
    (tree / ".env").touch()
    reloader = make(tree, reload_includes=[".env"])
    assert next(reloader) is None
    touch(tree / ".env")
    assert next(reloader) == [(tree / ".env").resolve()]
