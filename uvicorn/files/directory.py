"""Opening files beneath a directory, and never outside of it.

Linux resolves the whole path in the kernel (`openat2` with `RESOLVE_BENEATH`): symbolic links are followed as long as
they stay beneath the directory, and concurrent renames or links cannot lead out of it. Where that is
missing, the path is walked component by component from descriptor to descriptor, and symbolic links are refused: to
follow them would be to resolve them here. Windows has no descriptors of directories: there the resolved path has to be
the requested path itself, which a process with write access to the directory can still race.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable

# Without O_NONBLOCK a named pipe would block the event loop until its other end is opened.
_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOINHERIT", 0)
)
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)

_OPENAT2 = 437
"""Number of the system call, the same on all machines but Alpha."""

_RESOLVE = 0x02 | 0x08
"""RESOLVE_NO_MAGICLINKS, RESOLVE_BENEATH."""

_ATTEMPTS = 16
"""How often to resolve a path again that changed during resolution."""

_REFUSED = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL})
"""Errors of kernels without this call, of sandboxes that refuse it, and of emulated kernels."""

Opener = Callable[[int, bytes], int]
"""Opens a path that is relative to the directory of a descriptor, for reading."""


def _openat2() -> Opener | None:
    """Make an opener of the kernel's, if it has one and lets us."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes
    except ImportError:
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    call.restype = ctypes.c_long
    how = (ctypes.c_uint64 * 3)(_FILE, 0, _RESOLVE)  # struct open_how: flags, mode, resolve
    address, size, get_errno = ctypes.addressof(how), ctypes.sizeof(how), ctypes.get_errno

    def open_beneath(directory: int, path: bytes, _keep: object = how) -> int:
        for _ in range(_ATTEMPTS):
            descriptor: int = call(_OPENAT2, directory, path, address, size)
            if descriptor >= 0:
                return descriptor
            number = get_errno()
            if number not in (errno.EAGAIN, errno.EINTR):
                break
        raise OSError(number, os.strerror(number), path)

    return open_beneath


def _walk(directory: int, path: bytes) -> int:
    """Open component by component."""
    *parents, name = path.split(b"/")
    at = directory
    try:
        for parent in parents:
            below = os.open(parent, _DIRECTORY | _NOFOLLOW, dir_fd=at)
            if at != directory:
                os.close(at)
            at = below
        return os.open(name, _FILE | _NOFOLLOW, dir_fd=at)
    finally:
        if at != directory:
            os.close(at)


class Directory:
    """A directory that files are opened beneath.

    It may be replaced while it is used, by another one of its name or by a link that leads elsewhere: `look` notices.

    Args:
        path: absolute.
    """

    __slots__ = ("path", "_descriptor", "_identity", "_open")

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1
        self._identity = (-1, -1)
        self._open: Opener | None = None

    def look(self) -> None:
        """Open files beneath the directory that has the configured name now.

        Raises:
            OSError: there is none.
        """
        found = os.stat(self.path)
        if (found.st_dev, found.st_ino) == self._identity:
            return
        self.close()
        if os.open not in os.supports_dir_fd:
            return
        self._descriptor = os.open(self.path, _DIRECTORY)
        if self._open is None:
            self._open = _choose(self._descriptor)
        found = os.fstat(self._descriptor)
        self._identity = found.st_dev, found.st_ino

    def open(self, path: bytes) -> int:
        """Open a file beneath for reading, whatever its kind is; behind `look`.

        Args:
            path: relative; its components are names, none of them empty, `.` or `..`.

        Raises:
            OSError: there is none that can be opened, or only outside.
        """
        if self._open is None:
            return _open_resolved(self.path, path)
        return self._open(self._descriptor, path)

    def close(self) -> None:
        """Let go of the descriptor; `look` opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._identity = (-1, -1)

    def __del__(self) -> None:
        self.close()


def _choose(directory: int) -> Opener:
    """The best opener that works here: sandboxes may refuse system calls that the kernel has.

    Raises:
        OSError: there are too few descriptors or too little memory to find out.
    """
    opener = _openat2()
    if opener is not None:
        try:
            os.close(opener(directory, b"."))
        except OSError as exc:
            if exc.errno not in _REFUSED:
                raise
            return _walk
        return opener
    return _walk


def _open_resolved(directory: str, path: bytes) -> int:
    """Open a file if its path resolves to the requested one: no link, no other name of it, no stream of a file."""
    root = os.path.realpath(directory)
    wanted = os.path.join(root, *os.fsdecode(path).split("/"))
    if ":" in wanted[len(root) :] or os.path.normcase(os.path.realpath(wanted)) != os.path.normcase(wanted):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), wanted)
    if not stat.S_ISREG(os.stat(wanted).st_mode):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), wanted)
    return os.open(wanted, _FILE)
