"""Writes log lines to a pipe or a socket without waiting for its reader forever.

A pipe holds 64 KiB. When its reader has stopped, the next write blocks the event loop forever and silently. Here it
waits for `PATIENCE`, once; later output is dropped and counted until there is room again.

Whether writing waits is a property of the open file, which others share: a shell, the other workers, programs that the
application starts. So it is opened a second time, where the system can do that (Linux, pipes). Elsewhere the system is
asked first, and no more is written at a time than it has room for; then another process may be faster, and one line
waits after all.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import select
import stat
import sys
import time
from abc import ABC, abstractmethod
from typing import TextIO

PATIENCE = 1.0
"""Seconds to wait for the reader when the pipe is full, before lines are dropped."""

LOOK_INTERVAL = 1.0
"""Seconds between two checks that the stream's descriptor still refers to the same file."""

_ATOMIC = getattr(select, "PIPE_BUF", 512)
"""Bytes that a pipe takes without waiting when it says that it takes any."""

_METHODS = ("write", "flush")
"""Methods of a stream that a program may replace."""

_WITH_MARK = {"utf-8-sig", "utf-16", "utf-32"}
"""Encodings in which only the first line begins with a byte order mark, as a stream knows."""


class StreamWriter(ABC):
    """Writes the lines of a text stream of the process to its descriptor, past its buffer.

    Attributes:
        lost: lines that were dropped and not reported yet.
    """

    def __init__(self, stream: TextIO, descriptor: int, status: os.stat_result) -> None:
        self.lost = 0
        self._stream = stream
        self._encoding, self._errors = _codec(stream)
        self._shared = descriptor
        self._file = status.st_dev, status.st_ino
        self._look_at = time.monotonic() + LOOK_INTERVAL

    @property
    def is_current(self) -> bool:
        """Whether the stream still leads here, and writes as it did, as far as that was looked at."""
        if not _writes_itself(self._stream) or _codec(self._stream) != (self._encoding, self._errors):
            return False
        now = time.monotonic()
        if now < self._look_at:
            return True
        self._look_at = now + LOOK_INTERVAL
        try:
            status = os.fstat(self._shared)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._file

    @abstractmethod
    def close(self) -> None:
        """Close what this writer has opened."""

    @abstractmethod
    def write(self, text: str) -> bool:
        """Write whole lines behind what the application has printed, or drop them and count."""

    @abstractmethod
    def report(self, place: str) -> tuple[str | int, ...] | None:
        """Return the format and the arguments of the warning that is due about dropped lines.

        Args:
            place: the stream, as the warning names it.
        """


class PipeWriter(StreamWriter):
    """The pipe or socket behind a stream of the process."""

    def __init__(self, stream: TextIO, descriptor: int, status: os.stat_result) -> None:
        super().__init__(stream, descriptor, status)
        self._own = _open_again(descriptor) if stat.S_ISFIFO(status.st_mode) else None
        self._rest = b""  # of lines that the pipe has taken in part
        self._is_stalled = False

    @classmethod
    def of(cls, stream: object) -> PipeWriter | None:
        """The writer of a text stream; None if writing to that is something else, or never waits for a reader."""
        match inspect_stream(stream):
            case (text, descriptor, status) if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
                return cls(text, descriptor, status)
        return None

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
        self._stream.flush()  # the application's own output comes first
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

    def report(self, place: str) -> tuple[str | int, ...] | None:
        """See `StreamWriter`: there is room again."""
        if self._is_stalled or not self.lost:
            return None
        lost, self.lost = self.lost, 0
        return (
            "Dropped %d log lines: the reader of %s did not keep up. Log less (access_log, log_level).",
            lost,
            place,
        )

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


def inspect_stream(stream: object) -> tuple[TextIO, int, os.stat_result] | None:
    """Return a text stream, its descriptor and the status of that; None if the stream does its own writing."""
    # A replacement of the stream by the program does.
    if sys.platform == "win32" or type(stream) is not io.TextIOWrapper or not _writes_itself(stream):
        return None
    try:
        buffer = stream.buffer
        is_plain = type(buffer.raw if type(buffer) is io.BufferedWriter else buffer) is io.FileIO
        descriptor = stream.fileno()
        status = os.fstat(descriptor)
    except (OSError, ValueError):  # closed, or nothing that has a descriptor
        return None
    if not is_plain or codecs.lookup(stream.encoding).name in _WITH_MARK:
        return None
    return stream, descriptor, status


def _writes_itself(stream: TextIO) -> bool:
    """Whether the stream has the methods of its class."""
    return vars(stream).keys().isdisjoint(_METHODS)


def _codec(stream: TextIO) -> tuple[str, str]:
    """The encoding and the error handler, which a program may change; empty where the stream is detached."""
    try:
        return stream.encoding, stream.errors or "strict"
    except ValueError:
        return "", ""


def _open_again(descriptor: int) -> int | None:
    """A descriptor for the same pipe that never waits; None where that cannot be had."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return None
