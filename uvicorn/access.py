"""The access log: what one record is, and the hook that protocols call.

A record goes to the logger `uvicorn.access` as upstream sends it: format `%s - "%s %s HTTP/%s" %d` and five arguments.
While that logger is exactly as uvicorn set it up, the line is formatted here instead and all lines of one turn of the
event loop are written at once: the same bytes for a fraction of the cost. The check is made for each record, so any
handler, filter, formatter or level changed at any time is honoured from the next request on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TextIO

from uvicorn.logging import AccessFormatter
from uvicorn.protocols.utils import get_client_addr, get_path_with_query_string

if TYPE_CHECKING:
    from uvicorn._types import ProtocolConfig, WWWScope

logger = logging.getLogger("uvicorn.access")

FORMAT = '%s - "%s %s HTTP/%s" %d'
DEFAULT_FORMAT = '%(levelprefix)s %(client_addr)s - "%(request_line)s" %(status_code)s'

MAX_CLIENTS = 4096
"""Formatted client addresses kept: as many as connections that are busy at one moment, about half a megabyte."""


class AccessLog:
    """Writes the access records of one event loop.

    `handler` and `formatter` are uvicorn's own, `None` if others were configured; a line is `prefix`, the client,
    ` - "`, `before_line`, the request line, `after_line`, `" ` and the status.

    Args:
        loop: buffered lines are written at the end of its current turn. A loop that cannot `call_soon` (a double in a
            test) switches buffering off.
    """

    __slots__ = (
        "_loop",
        "_lines",
        "handler",
        "formatter",
        "_colors",
        "prefix",
        "_begins",
        "_ends",
        "before_line",
        "after_line",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines: list[str] = []
        self.handler: logging.StreamHandler[TextIO] | None = None
        self.formatter: AccessFormatter | None = None
        self._colors: bool | None = None
        self.prefix = ""
        self._begins: dict[tuple[str, int] | None, str] = {}
        self._ends: dict[tuple[str, int], str] = {}
        self.before_line = ""
        self.after_line = ""
        if isinstance(loop, asyncio.AbstractEventLoop):
            self._learn()

    @classmethod
    def from_config(cls, config: ProtocolConfig, loop: asyncio.AbstractEventLoop) -> AccessLog | None:
        """Return the access log that `config` asks for, `None` if it is switched off."""
        return cls(loop) if config.access_log else None

    def _learn(self) -> None:
        """Remember the handler and the formatter if they are uvicorn's own, and what they print around a record."""
        handlers = logger.handlers
        if len(handlers) != 1 or type(handlers[0]) is not logging.StreamHandler:
            return
        formatter = handlers[0].formatter
        if type(formatter) is not AccessFormatter or formatter._fmt != DEFAULT_FORMAT or formatter.datefmt is not None:
            return
        self.handler = handlers[0]
        self.formatter = formatter
        self._colors = formatter.use_colors
        record = logging.LogRecord(logger.name, logging.INFO, "", 0, FORMAT, ("", "", "", "", 200), None)
        # The formatter prints one record for us: what stands before the client, and how a request line is dressed up.
        text = formatter.format(record)
        self.prefix = text[: text.index(' - "')]
        dressed = text[text.index('"') + 1 : text.rindex('"')]
        self.before_line, _, self.after_line = dressed.partition("  HTTP/")

    def _is_untouched(self) -> bool:
        """Tell whether logging is still exactly as it was when `_learn` looked."""
        handler = self.handler
        formatter = self.formatter
        handlers = logger.handlers
        return (
            handler is not None
            and formatter is not None
            and len(handlers) == 1
            and handlers[0] is handler
            and not logger.filters
            and not logger.propagate
            and not handler.filters
            and handler.formatter is formatter
            and formatter.use_colors is self._colors
            and handler.level <= logging.INFO
            and logging._logRecordFactory is logging.LogRecord  # type: ignore[attr-defined] # the getter is a call
        )

    def record(self, scope: WWWScope, status: int) -> None:
        """Log one response: client, method, path with query and HTTP version from `scope`, and its status."""
        if not logger.isEnabledFor(logging.INFO):
            return
        path = get_path_with_query_string(scope)
        method: Any = scope["method"]  # type: ignore[typeddict-item]
        version = scope["http_version"]
        # Three parts: up to the method, the method and the path, and the rest. The first and the last repeat.
        try:
            begin = self._begins[scope["client"]]
        except (KeyError, TypeError):  # a client it has not met, or a list that somebody put there
            begin = self._begin(scope)
        # A forwarded address is any text; if the stream cannot encode it, that must not cost the lines of others.
        if not self._is_untouched() or not begin.isascii():
            self.flush()
            if logger.hasHandlers():
                logger.info(FORMAT, get_client_addr(scope), method, path, version, status)
            return
        end = self._ends.get((version, status))
        if end is None:
            end = self._end(version, status)
        lines = self._lines
        if not lines:
            self._loop.call_soon(self.flush)
        lines.append(f"{begin}{method} {path}{end}")

    def _begin(self, scope: WWWScope) -> str:
        """Format a line's beginning, for a client that will mostly be back; they are forgotten when there are many."""
        client = scope.get("client")
        begin = f'{self.prefix}{get_client_addr(scope)} - "{self.before_line}'
        if len(self._begins) >= MAX_CLIENTS:
            self._begins.clear()
        if client is None or type(client) is tuple:
            self._begins[client] = begin
        return begin

    def _end(self, version: str, status: int) -> str:
        """Format a line's end; there are few."""
        assert self.formatter is not None
        text = self.formatter.get_status_code(status)
        end = self._ends[version, status] = f' HTTP/{version}{self.after_line}" {text}\n'
        return end

    def flush(self) -> None:
        """Write the lines collected so far."""
        if self._lines:
            text = "".join(self._lines)
            self._lines.clear()
            self.write(text)

    def write(self, text: str) -> None:
        """Write whole lines to where the handler writes."""
        handler = self.handler
        assert handler is not None
        handler.acquire()
        if handler.terminator != "\n":
            text = text.replace("\n", handler.terminator)
        try:
            handler.stream.write(text)
            handler.flush()
        except Exception:
            # As logging does: a broken log must not break a response.
            handler.handleError(
                logging.LogRecord(logger.name, logging.INFO, __file__, 0, text.rstrip("\n"), None, None)
            )
        finally:
            handler.release()
