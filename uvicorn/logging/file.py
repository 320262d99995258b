"""Writes log lines to a file and drops them while that is impossible, mostly because its disk is full.

`logging` would print a traceback for each line. The buffer of the stream would keep the first lines and write them long
after they were reported as lost. So each line is written at once, or dropped and counted.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import sys
import time
from typing import TextIO

from uvicorn.logging.pipe import StreamWriter, inspect_stream

REMEDIES = {
    errno.ENOSPC: "Free space on its disk",
    errno.EDQUOT: "Free space or raise the disk quota",
    errno.EFBIG: "Rotate the file or raise the size limit (ulimit -f)",
    errno.EIO: "Check its disk",
}
"""The errors that cost lines instead of being raised, and what to do about each."""

REPORT_INTERVAL = 60.0
"""Seconds between two warnings while lines are dropped."""

TAIL = 256
"""Bytes by which a line written in part is recognized in the file."""


class FileWriter(StreamWriter):
    """The file behind a stream of the process, or a device other than a terminal."""

    def __init__(self, stream: TextIO, descriptor: int, status: os.stat_result) -> None:
        super().__init__(stream, descriptor, status)
        self._is_regular = stat.S_ISREG(status.st_mode)
        self._is_failing = False
        self._is_torn = False  # the last line was written in part, and the next one would continue it
        self._reason = self._remedy = ""
        self._report_at = -math.inf
        self._is_reported = False  # lines are being dropped

    @classmethod
    def of(cls, stream: object) -> FileWriter | None:
        """The writer of a text stream; None if writing to that is something else."""
        match inspect_stream(stream):
            case (text, descriptor, status) if stat.S_ISREG(status.st_mode) or (
                stat.S_ISCHR(status.st_mode) and not os.isatty(descriptor)
            ):
                return cls(text, descriptor, status)
        return None

    def close(self) -> None:
        """Nothing is open: the descriptor is the stream's."""

    def write(self, text: str) -> bool:
        """Write whole lines, or drop them and count; whether all were written.

        Raises:
            OSError: another error than those of `REMEDIES`.
            UnicodeEncodeError: the stream cannot encode the text.
        """
        data = text.encode(self._encoding, self._errors)
        start = written = 0
        try:
            self._stream.flush()  # the application's own output comes first
            if self._is_torn:
                data = b"\n" + data
                start = 1
            while written < len(data):
                written += os.write(self._shared, data[written:] if written else data)
        except OSError as exc:
            if exc.errno not in REMEDIES:
                raise
            self._is_failing = True
            self._reason, self._remedy = os.strerror(exc.errno), REMEDIES[exc.errno]
            if written:
                tail = data[max(0, written - TAIL) : written]
                self._is_torn = not (tail.endswith(b"\n") or self._end_fragment(tail))
            self.lost += text.count("\n") - data.count(b"\n", start, max(start, written))
            return False
        self._is_failing = self._is_torn = False
        return True

    def report(self, place: str) -> tuple[str | int, ...] | None:
        """See `StreamWriter`: lines are being dropped, or are written again."""
        if not self.lost:
            return None
        now = time.monotonic()
        is_due = now >= self._report_at
        if not is_due and (self._is_failing or not self._is_reported):
            return None
        self._report_at = now + REPORT_INTERVAL
        self._is_reported = self._is_failing
        if self._is_failing:
            return (
                "Dropping log lines (%d so far): cannot write to %s (%s). %s, or log less (access_log, log_level).",
                self.lost,
                place,
                self._reason,
                self._remedy,
            )
        lost, self.lost = self.lost, 0
        return (
            "Dropped %d log lines: could not write to %s (%s). Writing works again. Log less (access_log, log_level).",
            lost,
            place,
            self._reason,
        )

    def _end_fragment(self, tail: bytes) -> bool:
        """Put a line break in place of the last byte of a line written in part: that takes no space.

        The next line may come from another worker, which does not know of the fragment. Returns whether it was
        possible, which requires the right to read the file.
        """
        if sys.platform != "linux" or not self._is_regular:
            return False
        try:
            file = os.open(f"/proc/self/fd/{self._shared}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            end = os.lseek(self._shared, 0, os.SEEK_CUR)
            # The workers share the position: the last bytes may be another one's.
            is_ours = os.pread(file, len(tail), end - len(tail)) == tail
            return is_ours and os.pwrite(file, b"\n", end - 1) == 1
        except OSError:
            return False
        finally:
            os.close(file)
