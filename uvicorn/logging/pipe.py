"""Writes log lines to a pipe or a socket without waiting for its reader forever.

A pipe holds 64 KiB. When its reader has stopped, the next write blocks the event loop forever and silently. Here it
waits for `PATIENCE`, once; later output is dropped and counted until there is room again.

Whether writing waits is a property of the open file, which others share: a shell, the other workers, programs that the
application starts. So it is opened a second time, where the system can do that (Linux, pipes). Elsewhere the system is
asked first, and no more is written at a time than it has room for; then another process may be faster, and one line
waits after all.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
import time
from typing import TextIO

PATIENCE = 1.0
"""Seconds to wait for the reader when the pipe is full, before lines are dropped."""

LOOK_INTERVAL = 1.0
"""Seconds between two checks that the stream's descriptor still refers to the same file."""

_ATOMIC = getattr(select, "PIPE_BUF", 512)
"""Bytes that a pipe takes without waiting when it says that it takes any."""


class PipeWriter:
    """The pipe or socket behind a stream of the process.

    Attributes:
        lost: lines that were dropped since the last write that was not.
    """

    def __init__(self, stream: TextIO, descriptor: int, status: os.stat_result) -> None:
        self.lost = 0
        self._encoding = stream.encoding
        self._errors = stream.errors or "strict"
        self._shared = descriptor
        self._file = status.st_dev, status.st_ino
        self._own = _open_again(descriptor) if stat.S_ISFIFO(status.st_mode) else None
        self._look_at = time.monotonic() + LOOK_INTERVAL
        self._rest = b""  # of lines that the pipe has taken in part
        self._is_stalled = False

    @classmethod
    def of(cls, stream: object) -> PipeWriter | None:
        """The writer of a text stream; None if writing to that is something else, or never waits for a reader."""
        # A replacement of the stream by the program does its own writing.
        if sys.platform == "win32" or type(stream) is not io.TextIOWrapper:
            return None
        try:
            is_plain = type(stream.buffer) in (io.BufferedWriter, io.FileIO)
            descriptor = stream.fileno()
            status = os.fstat(descriptor)
        except (OSError, ValueError):  # closed, or nothing that has a descriptor
            return None
        waits = stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)
        return cls(stream, descriptor, status) if is_plain and waits else None

    @property
    def is_current(self) -> bool:
        """Whether the stream still leads here, as far as that was looked at."""
        now = time.monotonic()
        if now < self._look_at:
            return True
        self._look_at = now + LOOK_INTERVAL
        try:
            status = os.fstat(self._shared)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._file

    def close(self) -> None:
        """Give the descriptor back, if it is our own."""
        own, self._own = self._own, None
        if own is not None:
            os.close(own)

    def write(self, text: str) -> bool:
        """Write whole lines, or drop them and count; whether they were written, at least in part.

        Raises:
            OSError: the reader is gone.
            UnicodeEncodeError: the stream cannot encode the text.
        """
        data = text.encode(self._encoding, self._errors)
        patience = 0.0 if self._is_stalled else PATIENCE
        if self._rest:
            self._rest = self._put(self._rest, patience)
        unwritten = data if self._rest else self._put(data, patience)
        self._is_stalled = bool(unwritten)
        if len(unwritten) == len(data):
            self.lost += text.count("\n")
            return False
        # Others are to begin their lines at the beginning of one.
        self._rest = unwritten
        return True

    def _put(self, data: bytes, patience: float) -> bytes:
        """Write until the reader has made no room for `patience` seconds; returns the unwritten rest."""
        while data:
            try:
                data = data[self._put_now(data) :]
            except BlockingIOError:
                if not self._has_room(patience):
                    break
        return data

    def _put_now(self, data: bytes) -> int:
        if self._own is not None:
            return os.write(self._own, data)
        if not self._has_room(0):
            raise BlockingIOError
        return os.write(self._shared, data[:_ATOMIC])

    def _has_room(self, patience: float) -> bool:
        if sys.platform == "win32":
            return True  # never asked: there is no writer
        poll = select.poll()
        poll.register(self._shared if self._own is None else self._own, select.POLLOUT)
        return bool(poll.poll(patience * 1000))


def _open_again(descriptor: int) -> int | None:
    """A descriptor for the same pipe that never waits; None where that cannot be had."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return None
