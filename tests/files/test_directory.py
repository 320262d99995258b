"""Opening beneath a directory where the kernel does not help, and where it asks to be asked again."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from uvicorn.files import directory as beneath
from uvicorn.files.directory import Directory

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links are made here")


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_bytes(b"outside")
    inside = tmp_path / "inside"
    (inside / "sub" / "deep").mkdir(parents=True)
    (inside / "sub" / "deep" / "file").write_bytes(b"inside")
    (inside / "link").symlink_to("sub")
    (inside / "out").symlink_to("..")
    (inside / "file:stream").write_bytes(b"inside")
    return inside


def read(directory: Directory, path: bytes) -> bytes:
    directory.look()
    descriptor = directory.open(path)
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


def test_without_descriptors_of_directories_paths_are_resolved(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: as on Windows."""
    monkeypatch.setattr(os, "supports_dir_fd", set())
    directory = Directory(str(inside))
    assert read(directory, b"sub/deep/file") == b"inside"
    for path in (b"link/deep/file", b"out/outside", b"sub", b"nothing", b"file:stream"):
        with pytest.raises(FileNotFoundError):
            read(directory, path)


@pytest.mark.skipif(sys.platform != "linux", reason="openat2")
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM, errno.EINVAL])
def test_where_the_system_call_is_refused_paths_are_walked(
    inside: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """S2: as in sandboxes."""

    def refused(directory: int, path: bytes) -> int:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(beneath, "_openat2", lambda: refused)
    directory = Directory(str(inside))
    assert read(directory, b"sub/deep/file") == b"inside"
    for path in (b"link/deep/file", b"out/outside", b"sub/deep/nothing", b"sub/nothing/file"):
        with pytest.raises(OSError) as caught:
            read(directory, path)
        assert caught.value.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT)


@pytest.mark.skipif(sys.platform != "linux", reason="openat2")
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES])
def test_what_is_lacking_for_the_moment_does_not_change_how_paths_are_resolved(
    inside: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """S2"""
    if beneath._openat2() is None:
        pytest.skip("the kernel has no openat2")

    def lacking(directory: int, path: bytes) -> int:
        raise OSError(number, os.strerror(number), path)

    directory = Directory(str(inside))
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(beneath, "_openat2", lambda: lacking)
        with pytest.raises(OSError) as caught:
            read(directory, b"sub/deep/file")
        assert caught.value.errno == number
    assert read(directory, b"link/deep/file") == b"inside", "a link is followed beneath"


@pytest.mark.skipif(sys.platform != "linux", reason="openat2")
def test_without_ctypes_paths_are_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert beneath._openat2() is None


@pytest.mark.skipif(sys.platform != "linux", reason="openat2")
def test_what_changes_while_the_kernel_looks_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [errno.EAGAIN, errno.EINTR, errno.EAGAIN]

    def syscall(*_: Any) -> int:
        ctypes.set_errno(numbers.pop(0) if numbers else 0)
        return -1 if ctypes.get_errno() else 7

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syscall=syscall))
    opener = beneath._openat2()
    assert opener is not None
    assert opener(3, b"a") == 7
    numbers += [errno.EAGAIN] * 100
    with pytest.raises(BlockingIOError):
        opener(3, b"a")
    assert len(numbers) == 84
