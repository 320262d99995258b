from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.utils import as_cwd, running_thread
from uvicorn import supervisors
from uvicorn.config import Config

watchfilesreload = pytest.importorskip("uvicorn.supervisors.watchfilesreload")
FileFilter, WatchFilesReload = watchfilesreload.FileFilter, watchfilesreload.WatchFilesReload


def serve_nothing(sockets: list[socket.socket] | None) -> None:
    """The target of a child that ends at once."""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path.resolve()
    for name in ("app", "app/sub", "ext"):
        (root / name).mkdir()
    (root / "main.py").touch()
    with as_cwd(root):
        yield root


def make_config(**settings: Any) -> Config:
    return Config("main:app", **{"reload": True, "reload_delay": 0, "log_config": None, **settings})


def test_it_is_preferred_when_it_is_installed() -> None:
    """RLD-02"""
    assert supervisors.ChangeReload is WatchFilesReload


@pytest.mark.measures_children
def test_reload_without_it_looks_at_times() -> None:
    """RLD-02"""
    import subprocess

    code = (
        "import sys; sys.modules['watchfiles'] = None\n"
        "from uvicorn.supervisors import ChangeReload; print(ChangeReload.__name__)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "StatReload\n"


# The filter


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        ("main.py", True),
        ("app/sub/deep.py", True),
        (".git/hook.py", True),
        (".hidden.py", False),
        ("main.pyc", False),
        (".sw.main.py", False),
        ("~main.py", False),
        ("notes.txt", False),
    ],
)
def test_defaults(tree: Path, name: str, matters: bool) -> None:
    """RLD-13, RLD-15"""
    assert FileFilter(make_config())(tree / name) is matters


def test_default_is_dropped_when_it_is_given_on_the_other_side(tree: Path) -> None:
    """RLD-14, RLD-20"""
    assert FileFilter(make_config(reload_excludes=["*.py"])).includes == []
    assert ".*" not in FileFilter(make_config(reload_includes=[".*"])).excludes
    assert FileFilter(make_config(reload_includes=[".*"]))(tree / ".env")
    both = make_config(reload_includes=["*.py"], reload_excludes=["*.py"])
    assert not FileFilter(both)(tree / "main.py")


def test_patterns_are_added_to_the_defaults(tree: Path) -> None:
    """RLD-15"""
    file_filter = FileFilter(make_config(reload_includes=["*.html"], reload_excludes=["test_*.py"]))
    assert file_filter.includes == ["*.py", "*.html"]
    assert file_filter.excludes == [".*", ".py[cod]", ".sw.*", "~*", "test_*.py"]
    assert file_filter(tree / "page.html")
    assert not file_filter(tree / "test_main.py")


@pytest.mark.parametrize("excluded", ["app/sub", "absolute", "app/sub/*"])
def test_excluded_directory_is_excluded_however_it_is_written(tree: Path, excluded: str) -> None:
    """RLD-19: in upstream a relative one has no effect."""
    pattern = str(tree / "app" / "sub") if excluded == "absolute" else excluded
    file_filter = FileFilter(make_config(reload_excludes=[pattern]))
    assert not file_filter(tree / "app" / "sub" / "deep.py")
    assert file_filter(tree / "app" / "main.py")


@pytest.mark.parametrize(
    ("included", "name", "excluded", "matters"),
    [
        (".env", ".env", (), True),
        (".env", "app/.env", (), True),
        (".env", ".env.py", (), False),
        ("app/.env", "app/.env", (), True),
        ("app/.env", ".env", (), False),
        (".hidden.py", ".hidden.py", (), True),
        ("~main.py", "~main.py", (), True),
        ("notes.txt", "notes.txt", ("*.txt",), True),
        (".env", "app/sub/.env", ("app/sub",), True),
        (".e*", ".env", (), False),
        (".env", "main.py", ("*.py",), False),
    ],
)
def test_name_in_full_wins_over_what_excludes_it(
    tree: Path, included: str, name: str, excluded: tuple[str, ...], matters: bool
) -> None:
    """RLD-14: in upstream the order of a set decides where another pattern matches the file, too."""
    assert FileFilter(make_config(reload_includes=[included], reload_excludes=excluded))(tree / name) is matters


# The reloader


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Calls of `watch`, which is looked up in the module."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def watch(*args: Any, **kwargs: Any) -> Iterator[set[Any]]:
        calls.append((args, kwargs))
        return iter([set(), {(1, str(Path.cwd() / "main.py")), (2, str(Path.cwd() / "notes.txt"))}])

    monkeypatch.setattr(watchfilesreload, "watch", watch)
    return calls


def test_directories_are_watched(tree: Path, watched: list[Any]) -> None:
    """RLD-10, RLD-12, RLD-16"""
    reloader = WatchFilesReload(make_config(reload_dirs=["app", "ext", "app/sub"]), target=serve_nothing, sockets=[])
    ((directories, options),) = watched
    assert set(directories) == set(reloader.reload_dirs) == {tree / "app", tree / "ext"}
    assert options == {
        "watch_filter": None,
        "stop_event": reloader.should_exit,
        "yield_on_timeout": True,
        "rust_timeout": watchfilesreload.STEP,
        "ignore_permission_denied": True,
    }
    assert reloader.reloader_name == "WatchFiles"


def test_changes_that_matter_are_reported(tree: Path, watched: list[Any]) -> None:
    """RLD-04"""
    reloader = WatchFilesReload(make_config(), target=serve_nothing, sockets=[])
    assert list(reloader) == [[tree / "main.py"]]


def test_look_without_changes_ends(tree: Path, watched: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """RLD-04"""
    monkeypatch.setattr(watchfilesreload, "LOOK", 0.0)
    reloader = WatchFilesReload(make_config(), target=serve_nothing, sockets=[])
    assert list(reloader) == [None, [tree / "main.py"]]


def test_end_is_the_end_of_the_iteration(tree: Path, watched: list[Any]) -> None:
    """RLD-08"""
    reloader = WatchFilesReload(make_config(), target=serve_nothing, sockets=[])
    reloader.should_exit.set()
    assert list(reloader) == []


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"reload_dirs": ["app"]},
        {"reload_includes": ["app"]},
        {"reload_includes": ["app/*.txt"]},
        {"reload_dirs": ["ext", "app"], "reload_includes": ["*.txt"]},
    ],
    ids=["default", "directory", "directory included", "files included", "both"],
)
def test_change_while_the_child_starts_counts(tree: Path, settings: dict[str, Any]) -> None:
    """RLD-22: it may have read the file before."""
    files = [tree / "app" / "module.py", tree / "app" / "notes.txt"]
    for file in files:
        file.touch()
    file = files[any(".txt" in pattern for pattern in settings.get("reload_includes", []))]
    reloader = WatchFilesReload(make_config(**settings), target=serve_nothing, sockets=[])
    for start in (reloader.startup, reloader.restart):
        start()
        file.touch()
        assert next(reloader) == [file]
    reloader.shutdown()


@pytest.mark.parametrize("kind", ["created", "changed", "deleted"])
def test_every_kind_of_change_counts(tree: Path, kind: str) -> None:
    """RLD-21"""
    path = tree / "app" / "module.py"
    if kind != "created":
        path.write_text("one")
    reloader = WatchFilesReload(make_config(reload_dirs=[str(tree / "app")]), target=serve_nothing, sockets=[])
    with running_thread(change_again_and_again, path, kind, reloader.should_exit):
        found: list[Any] = []
        while path not in found:
            found = next(reloader) or []
        reloader.should_exit.set()


def change_again_and_again(path: Path, kind: str, stop: threading.Event) -> None:
    """What happened before the watcher was at work is not reported."""
    while not stop.wait(0.05):
        if kind == "changed":
            path.write_text("two")
        else:
            path.touch()
            path.unlink()
