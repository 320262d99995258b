"""The formatters, the TRACE level and the built-in logging configuration."""

from __future__ import annotations

import contextlib
import http
import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TextIO

from uvicorn.logging.ansi import style as ansi_style
from uvicorn.logging.file import FileWriter
from uvicorn.logging.pipe import PipeWriter, StreamWriter

if TYPE_CHECKING:
    StreamHandler = logging.StreamHandler[TextIO]
else:
    StreamHandler = logging.StreamHandler

TRACE_LOG_LEVEL = 5
"""Below DEBUG: each ASGI message, each connection made and lost."""

LOG_LEVELS = {
    "critical": logging.CRITICAL,
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": TRACE_LOG_LEVEL,
}
"""Names accepted by the setting ``log_level``."""

ACCESS_FORMAT = '%(levelprefix)s %(client_addr)s - "%(request_line)s" %(status_code)s'
"""Format of an access line as upstream prints it."""

LOGGING_CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "default": {
            "()": "uvicorn.logging.DefaultFormatter",
            "fmt": "%(levelprefix)s %(message)s",
            "use_colors": None,
        },
        "access": {
            "()": "uvicorn.logging.AccessFormatter",
            "fmt": ACCESS_FORMAT,
        },
    },
    "handlers": {
        "default": {"class": "logging.StreamHandler", "formatter": "default", "stream": "ext://sys.stderr"},
        "access": {"class": "logging.StreamHandler", "formatter": "access", "stream": "ext://sys.stdout"},
    },
    "loggers": {
        "uvicorn": {"handlers": ["default"], "level": "INFO", "propagate": False},
        "uvicorn.error": {"level": "INFO"},
        "uvicorn.access": {"handlers": ["access"], "level": "INFO", "propagate": False},
    },
}
"""Default of the setting ``log_config``, for ``logging.config.dictConfig``."""

_DEFAULT_HANDLERS = {name: dict(handler) for name, handler in LOGGING_CONFIG["handlers"].items()}

_STREAMS = {"<stdout>": "standard output", "<stderr>": "standard error"}

_PREFIX_WIDTH = 9
"""Columns of a level name, its colon and the blanks behind it: room for CRITICAL."""


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether colours would be seen; a process without console has no stream, or an object that can only be written."""
    isatty = getattr(stream, "isatty", None)
    return isatty is not None and not getattr(stream, "closed", False) and bool(isatty())


class ColourizedFormatter(logging.Formatter):
    """A formatter whose format may use ``%(levelprefix)s``, in colour when ``use_colors`` is true.

    ``use_colors=None``, as anything but true and false, means: when the stream is a terminal. With colours on, a record
    that carries ``color_message`` (``extra={"color_message": ...}``) is rendered from that instead of its own message,
    with the same arguments.
    """

    level_name_colors: ClassVar[dict[int, Callable[[Any], str]]] = {
        TRACE_LOG_LEVEL: partial(ansi_style, fg="blue"),
        logging.DEBUG: partial(ansi_style, fg="cyan"),
        logging.INFO: partial(ansi_style, fg="green"),
        logging.WARNING: partial(ansi_style, fg="yellow"),
        logging.ERROR: partial(ansi_style, fg="red"),
        logging.CRITICAL: partial(ansi_style, fg="bright_red"),
    }

    def __init__(
        self,
        fmt: str | None = None,
        datefmt: str | None = None,
        style: Literal["%", "{", "$"] = "%",
        use_colors: bool | None = None,
    ) -> None:
        self.use_colors = bool(use_colors) if use_colors in (True, False) else self.should_use_colors()
        super().__init__(fmt=fmt, datefmt=datefmt, style=style)

    def should_use_colors(self) -> bool:
        """Whether to colour by default: when standard output is a terminal."""
        return _is_terminal(sys.stdout)

    def color_level_name(self, level_name: str, level_no: int) -> str:
        """Return the level name in the colour of the level, or as it is for a level without one."""
        color = self.level_name_colors.get(level_no)
        return level_name if color is None else color(level_name)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Add ``levelprefix`` to a copy of the record, so that other handlers see the record as it was."""
        return super().formatMessage(self._decorated(record))

    def _decorated(self, record: logging.LogRecord) -> logging.LogRecord:
        # Not copy.copy(): that goes by way of pickle's protocol and costs as much as the rest of the line.
        decorated = record.__class__.__new__(record.__class__)
        fields = decorated.__dict__
        fields.update(record.__dict__)
        name = record.levelname
        blanks = " " * (_PREFIX_WIDTH - 1 - len(name))
        if self.use_colors:
            name = self.color_level_name(name, record.levelno)
            if "color_message" in fields:
                fields["msg"] = fields["color_message"]
                fields["message"] = decorated.getMessage()
        fields["levelprefix"] = f"{name}:{blanks}"
        return decorated


class DefaultFormatter(ColourizedFormatter):
    """Formats the server's own log lines."""

    def should_use_colors(self) -> bool:
        """Whether to colour by default: when standard error, where these lines go, is a terminal."""
        return _is_terminal(sys.stderr)


class AccessFormatter(ColourizedFormatter):
    """Formats access records with the additional fields ``client_addr``, ``request_line`` and ``status_code``.

    The record's arguments are client address, method, path with query, HTTP version and status. A record with others
    (something else logged through ``uvicorn.access``) shows its message in place of the request line.

    A record that carries ``access_line``, made for the setting ``access_log_format``, is that line and nothing else,
    unless this formatter's own format asks for ``message``.
    """

    status_code_colours: ClassVar[dict[int, Callable[[Any], str]]] = {
        1: partial(ansi_style, fg="bright_white"),
        2: partial(ansi_style, fg="green"),
        3: partial(ansi_style, fg="yellow"),
        4: partial(ansi_style, fg="red"),
        5: partial(ansi_style, fg="bright_red"),
    }

    def get_status_code(self, status_code: int) -> str:
        """Return the number and its phrase (none for an unknown number), in the colour of its class."""
        try:
            phrase = http.HTTPStatus(status_code).phrase
        except ValueError:
            phrase = ""
        text = f"{status_code} {phrase}"
        color = self.status_code_colours.get(status_code // 100) if self.use_colors else None
        return text if color is None else color(text)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Add the parts of the request to a copy of the record."""
        line: str | None = record.__dict__.get("access_line")
        if line is not None and "message" not in (self._fmt or ""):
            return line
        decorated = self._decorated(record)
        match record.args:
            case (client_addr, method, path, http_version, int(status)):
                request_line = f"{method} {path} HTTP/{http_version}"
                status_code = self.get_status_code(status)
            case _:
                client_addr, request_line, status_code = "", decorated.message, ""
        if self.use_colors:
            request_line = ansi_style(request_line, bold=True)
        decorated.__dict__.update(client_addr=client_addr, request_line=request_line, status_code=status_code)
        return logging.Formatter.formatMessage(self, decorated)


class PipeHandler(StreamHandler):
    """A `logging.StreamHandler` that neither waits forever for the reader of a pipe nor fails on a full disk.

    Lines for which there is no room (see `uvicorn.logging.pipe` and `uvicorn.logging.file`) are dropped. One line says
    how many, when there is again. Another one says that a disk is full.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._writer: StreamWriter | None = None
        self._writer_of: TextIO | None = None
        self._is_reporting = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record as a line."""
        try:
            self.write(self.format(record) + self.terminator)
        except RecursionError:  # as in the class above: it cannot be reported
            raise
        except Exception:
            self.handleError(record)

    def write(self, text: str) -> None:
        """Write whole lines; the caller holds the lock."""
        stream, writer = self.stream, self._writer
        if stream is not self._writer_of or (writer is not None and not writer.is_current):
            writer = self._find_writer()
        if writer is None:
            stream.write(text)
            self.flush()
            return
        writer.write(text)
        # The warning may come back to this handler.
        if writer.lost and not self._is_reporting:
            self._report(writer, _STREAMS.get(stream.name, stream.name))

    def _report(self, writer: StreamWriter, place: str) -> None:
        report = writer.report(place)
        if report is not None:
            message, *arguments = report
            self._is_reporting = True
            try:
                logging.getLogger("uvicorn.error").warning(message, *arguments)
            finally:
                self._is_reporting = False

    def close(self) -> None:
        """Close the descriptor that the handler opened, but not the stream."""
        with self.lock or contextlib.nullcontext():
            self._close_writer()
        super().close()

    def _find_writer(self) -> StreamWriter | None:
        self._close_writer()
        self._writer_of = self.stream
        self._writer = PipeWriter.of(self.stream) or FileWriter.of(self.stream)
        return self._writer

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = self._writer_of = None


def use_pipe_handlers(config: Mapping[str, Any]) -> None:
    """Put a `PipeHandler` in the place of each default handler, where `config`, just applied, has it as the default.

    The default itself names `logging.StreamHandler`, as upstream's: programs copy and compare it.
    """
    handlers = config.get("handlers", {})
    for logger_name, name in (("uvicorn", "default"), ("uvicorn.access", "access")):
        if handlers.get(name) != _DEFAULT_HANDLERS[name]:
            continue
        logger = logging.getLogger(logger_name)
        for index, handler in enumerate(logger.handlers):
            if type(handler) is logging.StreamHandler and handler.name == name:
                successor = PipeHandler(handler.stream)
                successor.setLevel(handler.level)
                successor.setFormatter(handler.formatter)
                handler.close()
                successor.name = name
                logger.handlers[index] = successor
