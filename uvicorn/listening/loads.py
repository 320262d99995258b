"""How many connections each of several workers has, for all of them to see.

Workers that accept from the same sockets leave a new connection to the one that has the fewest (`share.rs` of the
native core does it). They know by a file in memory: a number for each of them, written by itself, read by the others. A
number that is old for a moment costs nothing but a less even spread, so nothing is locked.

    note │ place 0 │ place 1 │ ...        32 bits each, in the order of the machine

    note: information that workers leave for each other; 0 before there is any
    place: 0 if unused, else connections + 1; with RESTS while nothing is accepted

The file ends with the last place that was ever taken, so a reader stops there: nothing else may be written behind the
places.
"""

from __future__ import annotations

import os
import struct
import sys
import weakref
from typing import Any

PLACES = 1024
"""Workers with a place; further ones accept whenever they can."""

RESTS = 1 << 31
"""The bit of a number that says that nothing is accepted: at a limit, without descriptors, while draining."""

_NUMBER = struct.Struct("=I")


def _offset(index: int) -> int:
    """Where the number of a place is: behind the note."""
    return _NUMBER.size * (1 + index)


class LoadFile:
    """The file, by its descriptor; pickled to a process, once for all places in it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __getstate__(self) -> Any:
        if sys.platform == "win32":
            raise TypeError("there are no tables of loads on Windows")
        else:
            from multiprocessing.reduction import DupFd

            return DupFd(self.descriptor)

    def __setstate__(self, duplicate: Any) -> None:
        self.descriptor = duplicate.detach()


class WorkerLoad:
    """One event loop's place; pickled to its process.

    Attributes:
        file: the table's. A server duplicates its descriptor.
        index: which place.
    """

    def __init__(self, file: LoadFile, index: int) -> None:
        self.file = file
        self.index = index

    def is_first_to(self, note: int) -> bool:
        """Leave a number, not 0, for the other workers with a place; false if it is the one that was left last.

        So any of them can report an event that all notice.
        """
        if sys.platform == "win32":
            return True
        descriptor, data = self.file.descriptor, _NUMBER.pack(note)
        if os.pread(descriptor, _NUMBER.size, 0) == data:
            return False
        os.pwrite(descriptor, data, 0)
        return True

    def connections(self) -> int | None:
        """Connections that the event loop last said it has; None before it has accepted any."""
        if sys.platform == "win32":
            return None
        (number,) = _NUMBER.unpack(os.pread(self.file.descriptor, _NUMBER.size, _offset(self.index)))
        return (number & ~RESTS) - 1 if number else None


class LoadTable:
    """The file, and the owners of its places. It belongs to the process that starts the workers."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._file = LoadFile(descriptor)
        self._taken: set[int] = set()
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def make(cls) -> LoadTable | None:
        """A table; None on systems that have no files in memory."""
        if sys.platform != "linux":
            return None
        try:
            return cls(os.memfd_create("uvicorn-loads", os.MFD_CLOEXEC))
        except OSError:
            return None

    def take(self) -> WorkerLoad | None:
        """Take a free place; None if there is none."""
        index = next((index for index in range(PLACES) if index not in self._taken), None)
        if index is None:
            return None
        self._taken.add(index)
        self._clear(index)
        return WorkerLoad(self._file, index)

    def give_back(self, place: WorkerLoad) -> None:
        """Free the place of a process that has ended."""
        self._taken.discard(place.index)
        self._clear(place.index)

    def numbers(self) -> list[int | None]:
        """Connections of each place; None for unused ones."""
        if sys.platform == "win32":
            return []
        data = os.pread(self._descriptor, _NUMBER.size * PLACES, _offset(0))
        return [number - 1 if 0 < number < RESTS else None for (number,) in _NUMBER.iter_unpack(data)]

    def _clear(self, index: int) -> None:
        if sys.platform != "win32":
            os.pwrite(self._descriptor, _NUMBER.pack(0), _offset(index))
