"""Debug lines: each head and each frame of a connection, received `<` and sent `>`."""

from __future__ import annotations

import logging

from uvicorn.protocols.websockets.frames import Opcode

MAX_BYTES = 75
"""Of a payload that are shown."""


class FrameLog:
    """Logs the frames of one connection. Bytes of the peer's cannot end a line, nor reach the terminal as control."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    @classmethod
    def of(cls, logger: logging.Logger) -> FrameLog | None:
        """Return a log if `logger` takes debug lines, `None` if not."""
        return cls(logger) if logger.isEnabledFor(logging.DEBUG) else None

    def head(self, direction: str, head: bytes) -> None:
        """Log the lines of a request or response head."""
        for line in head.partition(b"\r\n\r\n")[0].split(b"\r\n"):
            self._logger.debug("%s %s", direction, line.decode("ascii", "backslashreplace"))

    def frame(self, direction: str, opcode: int, payload: bytes) -> None:
        """Log a message, a ping or a pong."""
        start = payload[:MAX_BYTES].decode(errors="backslashreplace")
        self._logger.debug("%s %s %r [%d bytes]", direction, Opcode(opcode).name, start, len(payload))

    def message(self, content: str | bytes) -> None:
        """Log a message that was received."""
        if isinstance(content, str):
            self.frame("<", Opcode.TEXT, content.encode())
        else:
            self.frame("<", Opcode.BINARY, content)

    def close(self, direction: str, code: int, reason: str) -> None:
        """Log a close frame."""
        self._logger.debug("%s CLOSE %d %r", direction, code, reason)
