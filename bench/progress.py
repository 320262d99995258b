"""Progress of a measurement: a line rewritten in place on a terminal, one every ten seconds elsewhere."""

from __future__ import annotations

import sys
import threading
import time

INTERVAL = 10.0


class Progress:
    """Prints the latest status. Where standard error is not a terminal, a separate thread repeats it: a burst
    may take longer than the time between two lines.
    """

    def __init__(self) -> None:
        self._text = ""
        self._begun = 0.0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, text: str) -> None:
        """What happens now; nothing when the text is empty."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()
            return
        with self._lock:
            self._text = text
            if text and self._thread is None:
                self._begun = time.monotonic()
                self._wake.clear()
                self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Nothing happens any more; returns when nothing more will be said."""
        self.say("")
        thread = self._thread
        if thread is not None:
            self._wake.set()
            thread.join()

    def _run(self) -> None:
        while not self._wake.wait(INTERVAL):
            with self._lock:
                text = self._text
            if text:
                print(f"{time.monotonic() - self._begun:5.0f} s  {text}", file=sys.stderr, flush=True)
        with self._lock:
            self._thread = None


ticker = Progress()
