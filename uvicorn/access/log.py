"""The access log: its records, and the hooks that protocols call.

A record goes to the logger `uvicorn.access` as upstream sends it: format `%s - "%s %s HTTP/%s" %d` and five arguments.
With the setting `access_log_format` the record has the same arguments, and its message is the formatted line.

While that logger is exactly as uvicorn set it up, the line is formatted here instead and all lines of one turn of the
event loop are written at once: the same bytes for a fraction of the cost. The logger is checked for
each record, because an application may change logging between two requests: a changed handler, filter, formatter or
level applies from the next request on. Methods of the logger, which monitoring agents replace, are checked once a turn
and apply from the next turn on.

Lines that exist when the first response of a turn leaves are written before it: a client with one request at a time
finds its line written when it has the response, and a busy server writes once more per turn.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from logging import Logger
from time import perf_counter_ns, time_ns
from types import FunctionType
from typing import TYPE_CHECKING, Any, TextIO

from uvicorn.access.arguments import get_client_addr, get_path_with_query_string
from uvicorn.access.format import Facts, LineFormat
from uvicorn.logging import ACCESS_FORMAT, AccessFormatter, PipeHandler
from uvicorn.rules.shortcuts import Shortcut, chosen, proved

if TYPE_CHECKING:
    from uvicorn._types import ProtocolConfig, WWWScope

LineArguments = Callable[["WWWScope", int], tuple[str, str, str, str, int]]

logger = logging.getLogger("uvicorn.access")
error_logger = logging.getLogger("uvicorn.error")

INFO = logging.INFO

_KEEPS_ANSWERS = Shortcut.LOGGING in proved()

FORMAT = '%s - "%s %s HTTP/%s" %d'

WITHOUT_ARGUMENTS = "%.0s" * 5
"""Takes the five arguments and shows none of them."""

MAX_CLIENTS = 4096
"""Formatted client addresses kept: as many as connections that are busy at one moment, about half a megabyte."""


_CALLED = ("info", "_log", "makeRecord", "handle", "callHandlers", "isEnabledFor", "findCaller", "filter")
"""The methods of a logger that a record passes. Monitoring agents replace some of the first five, at any time."""

_info, _log, _make_record, _handle, _call_handlers = (getattr(Logger, name) for name in _CALLED[:5])


def _are_own(cls: type, methods: tuple[str, ...]) -> bool:
    """Tell whether methods are functions of the modules of their classes, and not wrappers around them."""
    for method in methods:
        owner = next(base for base in cls.__mro__ if method in vars(base))
        function = vars(owner)[method]
        # By their type: some wrappers copy all attributes of the function inside.
        if type(function) is not FunctionType or function.__globals__ is not vars(sys.modules[owner.__module__]):
            return False
    return True


def is_wanted() -> bool:
    """Tell whether records are wanted at all: `logger.isEnabledFor(INFO)`, mostly without that call."""
    # The logger keeps the answers until any level changes.
    return (_KEEPS_ANSWERS and logger._cache.get(INFO)) or logger.isEnabledFor(INFO)  # type: ignore[attr-defined]


class LineBuffer:
    """The lines of one turn of an event loop, and whether they may be written here instead of by the logger.

    `lines` are those that wait; `handler` and `formatter` are uvicorn's own, `None` if others were configured.

    Args:
        loop: buffered lines are written at the end of its current turn. A loop that cannot `call_soon` (a double in a
            test) switches buffering off.
    """

    __slots__ = (
        *("lines", "handler", "formatter", "_loop", "_scheduled", "_begun", "_colors", "_handlers"),
        "_attributes",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.lines: list[str] = []
        self._scheduled = False
        self._begun = False  # some lines of this turn were written in front of a response
        self.handler: logging.StreamHandler[TextIO] | None = None
        self.formatter: AccessFormatter | None = None
        self._colors: bool | None = None
        self._handlers: list[logging.Handler] = []
        self._attributes = 0  # of the logger, when it had none of a method's name
        if isinstance(loop, asyncio.AbstractEventLoop):
            self._learn()

    def _learn(self) -> None:
        """Remember the handler and the formatter if they are uvicorn's own."""
        if Shortcut.LOGGING not in chosen() or type(logger) is not Logger or len(logger.handlers) != 1:
            return
        handler = logger.handlers[0]
        if not isinstance(handler, logging.StreamHandler) or type(handler) not in (PipeHandler, logging.StreamHandler):
            return
        formatter = handler.formatter
        if type(formatter) is not AccessFormatter or formatter._fmt != ACCESS_FORMAT or formatter.datefmt is not None:
            return
        is_own = _are_own(type(handler), ("handle", "emit")) and _are_own(AccessFormatter, ("format", "formatMessage"))
        if not (is_own and self.calls_own_functions()):
            return
        self.handler = handler
        self.formatter = formatter
        self._colors = formatter.use_colors
        self._handlers = [handler]

    def calls_own_functions(self) -> bool:
        """Tell whether the logger would still call the functions of `logging`; `is_untouched` mostly knows."""
        attributes = vars(logger)
        if type(logger) is not Logger or not _are_own(Logger, _CALLED) or not attributes.keys().isdisjoint(_CALLED):
            return False
        self._attributes = len(attributes)
        return True

    def is_untouched(self) -> bool:
        """Tell whether logging is still exactly as it was when `_learn` looked; `is_wanted` looks at levels."""
        handler, formatter = self.handler, self.formatter
        return (
            handler is not None
            and formatter is not None
            and logger.handlers == self._handlers
            and not (logger.filters or logger.propagate or logger.disabled or handler.filters)
            and handler.formatter is formatter
            and formatter.use_colors is self._colors
            and handler.level <= INFO
            and (self._scheduled or self._has_own_methods())
            and logging._logRecordFactory is logging.LogRecord  # type: ignore[attr-defined] # the getter is a call
        )

    def _has_own_methods(self) -> bool:
        """Tell whether a record would still pass the functions of `logging`: asked with the first line of a turn."""
        return (
            type(logger) is Logger
            and Logger.callHandlers is _call_handlers
            and Logger.makeRecord is _make_record
            and Logger.handle is _handle
            and Logger.info is _info
            and Logger._log is _log
            and (len(logger.__dict__) == self._attributes or self.calls_own_functions())
        )

    def schedule(self) -> None:
        """See to it that the lines are written when the turn ends."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.end_turn)

    def end_turn(self) -> None:
        """Write the remaining lines."""
        self._scheduled = self._begun = False
        self.flush()

    def precede(self) -> None:
        """A response is about to leave: if it is the first one of this turn, the lines that there are go first."""
        if not self._begun:
            self._begun = self._scheduled
            self.flush()

    def flush(self) -> None:
        """Write the lines collected so far."""
        if self.lines:
            text = "".join(self.lines)
            self.lines.clear()
            self.write(text)

    def write(self, text: str) -> None:
        """Write whole lines to where the handler writes."""
        handler = self.handler
        assert handler is not None
        handler.acquire()
        if handler.terminator != "\n":
            text = text.replace("\n", handler.terminator)
        try:
            if isinstance(handler, PipeHandler):
                handler.write(text)
            else:
                handler.stream.write(text)
                handler.flush()
        except Exception:
            # As logging does: a broken log must not break a response.
            handler.handleError(
                logging.LogRecord(logger.name, logging.INFO, __file__, 0, text.rstrip("\n"), None, None)
            )
        finally:
            handler.release()


class AccessLog(LineBuffer):
    """Writes the access records of one event loop, as upstream does.

    A line is `prefix`, the client, ` - "`, `before_line`, the request line, `after_line`, `" ` and the status.
    """

    __slots__ = ("prefix", "_begins", "_ends", "before_line", "after_line")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.prefix = ""
        self._begins: dict[tuple[str, int] | None, str] = {}
        self._ends: dict[tuple[str, int], str] = {}
        self.before_line = ""
        self.after_line = ""
        super().__init__(loop)

    @classmethod
    def from_config(cls, config: ProtocolConfig, loop: asyncio.AbstractEventLoop) -> AccessLog | None:
        """Return the access log that `config` asks for, `None` if it is switched off or has a format of its own."""
        return cls(loop) if config.access_log and config.access_log_format is None else None

    def _learn(self) -> None:
        """Remember also the text that the formatter prints around a record."""
        super()._learn()
        if self.formatter is None:
            return
        record = logging.LogRecord(logger.name, logging.INFO, "", 0, FORMAT, ("", "", "", "", 200), None)
        # The formatter prints one record: it shows the prefix of the client and the decoration of the request line.
        text = self.formatter.format(record)
        self.prefix = text[: text.index(' - "')]
        dressed = text[text.index('"') + 1 : text.rindex('"')]
        self.before_line, _, self.after_line = dressed.partition("  HTTP/")

    def record(self, scope: WWWScope, status: int) -> None:
        """Log one response: client, method, path with query and HTTP version from `scope`, and its status."""
        if not is_wanted():
            return
        # Three parts: up to the method, the method and the path, and the rest. The first and the last repeat.
        try:
            begin = self._begins[scope["client"]]
        except (KeyError, TypeError):  # a new client, or an unhashable one set by a middleware
            begin = self._begin(scope)
        # A forwarded address is any text; if the stream cannot encode it, that must not cost the lines of others.
        if not self.is_untouched() or not begin.isascii():
            self.flush()
            if logger.hasHandlers():
                logger.info(FORMAT, *arguments(scope, status))
            return
        path = get_path_with_query_string(scope)
        method: Any = scope["method"]  # type: ignore[typeddict-item]
        version = scope["http_version"]
        end = self._ends.get((version, status))
        if end is None:
            end = self._end(version, status)
        if not self._scheduled:
            self.schedule()
        self.lines.append(f"{begin}{method} {path}{end}")

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


class LoggerLog:
    """Calls a logger for each response, as upstream does, because it or functions of the line are the program's."""

    __slots__ = ("logger", "_arguments")

    def __init__(self, logger: Logger, line_arguments: LineArguments) -> None:
        self.logger = logger
        self._arguments = line_arguments

    def record(self, scope: WWWScope, status: int) -> None:
        """Log one response."""
        self.logger.info(FORMAT, *self._arguments(scope, status))


def arguments(
    scope: WWWScope,
    status: int,
    of_client: Callable[[WWWScope], str] = get_client_addr,
    of_path: Callable[[WWWScope], str] = get_path_with_query_string,
) -> tuple[str, str, str, str, int]:
    """Return the arguments of a record; the scope of a WebSocket has no method, and its handshake is a GET."""
    method: str = scope.get("method", "GET")  # type: ignore[assignment]
    return of_client(scope), method, of_path(scope), scope["http_version"], status


class FormattedLog(LineBuffer):
    """Writes access records in a format of the user's, one line for each response that `AccessLog` has a line for."""

    __slots__ = ("format",)

    def __init__(self, loop: asyncio.AbstractEventLoop, line_format: LineFormat) -> None:
        super().__init__(loop)
        self.format = line_format

    @classmethod
    def from_config(cls, config: ProtocolConfig, loop: asyncio.AbstractEventLoop) -> FormattedLog | None:
        """Return the access log that `config` asks for, `None` if it is switched off or has no format."""
        text = config.access_log_format
        return cls(loop, LineFormat(text, config.request_id)) if config.access_log and text is not None else None

    def begin(self, scope: WWWScope) -> Entry:
        """A request has come, whose scope this is."""
        return Entry(self, scope)

    def report(self, facts: Facts) -> None:
        """Log one response. An exception costs the line, never the response."""
        try:
            if not is_wanted():
                return
            if self.is_untouched() and self.format.is_ascii:
                line = self.format.render(facts)
                self.schedule()
                self.lines.append(line + "\n")
            elif logger.hasHandlers():
                self.flush()
                self._call_logger(facts)
        except Exception as exc:
            self.failed(exc)

    @staticmethod
    def failed(error: Exception) -> None:
        """Say that a line was lost."""
        error_logger.error("Lost an access line: its handler, filter or format raised an exception.", exc_info=error)

    def _call_logger(self, facts: Facts) -> None:
        line = self.format.render(facts)
        extra = {
            "access_line": line,
            "request_id": self.format.request_id(facts),
            "bytes_sent": facts.sent if self.format.at_end else None,
            "duration": facts.micros / 1e6 if self.format.at_end else None,
        }
        message = line.replace("%", "%%") + WITHOUT_ARGUMENTS
        logger.info(message, *arguments(facts.scope, facts.status), extra=extra)


class Entry(Facts):
    """The data that the access log gathers about one response. Its line is written once: at the start if the format
    needs no more, else at the end, even of an incomplete response. A response that never started has no line."""

    __slots__ = ("_log", "_began")

    def __init__(self, log: FormattedLog, scope: WWWScope) -> None:
        super().__init__(scope, time_ns() // 1_000_000)
        self._log: FormattedLog | None = log
        self._began = perf_counter_ns()

    def start(self, status: int, head: bytes = b"") -> None:
        """The response starts; `head` holds its bytes."""
        self.status = status
        self.head = head
        log = self._log
        if log is not None and not log.format.at_end:
            self._log = None
            log.report(self)

    def conclude(self, status: int, head: bytes) -> None:
        """The whole response is this head, which leaves now, after its line."""
        log = self._log
        self.start(status, head)
        self.end()
        if log is not None:
            log.precede()

    def end(self) -> None:
        """Nothing more will be sent; may be said again."""
        log, self._log = self._log, None
        if log is not None and self.status:
            self.micros = (perf_counter_ns() - self._began) // 1000
            log.report(self)
