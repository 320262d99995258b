"""HTTP/1.1 with llhttp, through httptools, reading the header section.

The request line, the framing and the body are read by `protocol.py` for every implementation alike: llhttp knows a
closed list of methods, drops a body behind an ignored upgrade, and is lax or strict in places of its own.
"""

from __future__ import annotations

import threading
from urllib.parse import unquote

import httptools

from uvicorn._types import (
    ASGI3Application,
    ASGIReceiveEvent,
    ASGISendEvent,
    HTTPRequestEvent,
    HTTPResponseBodyEvent,
    HTTPResponseStartEvent,
    HTTPScope,
)
from uvicorn.logging import TRACE_LOG_LEVEL
from uvicorn.protocols.http.cycle import RequestResponseCycle
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, HIGH_WATER_LIMIT, FlowControl, service_unavailable
from uvicorn.protocols.http.head import NOT_TAKEN, RequestRefused
from uvicorn.protocols.http.hooks import original
from uvicorn.protocols.http.protocol import HTTPProtocol
from uvicorn.protocols.http.response import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE
from uvicorn.protocols.utils import (
    get_client_addr,
    get_local_addr,
    get_path_with_query_string,
    get_remote_addr,
    is_ssl,
)
from uvicorn.state import ServerState

# With what upstream's module has beside its class.
__all__ = [
    "CLOSE_HEADER",
    "HEADER_RE",
    "HEADER_VALUE_RE",
    "HIGH_WATER_LIMIT",
    "STATUS_LINE",
    "TRACE_LOG_LEVEL",
    "ASGI3Application",
    "ASGIReceiveEvent",
    "ASGISendEvent",
    "FlowControl",
    "HTTPRequestEvent",
    "HTTPResponseBodyEvent",
    "HTTPResponseStartEvent",
    "HTTPScope",
    "HttpToolsProtocol",
    "RequestResponseCycle",
    "ServerState",
    "get_client_addr",
    "get_local_addr",
    "get_path_with_query_string",
    "get_remote_addr",
    "is_ssl",
    "service_unavailable",
    "unquote",
]

_NEUTRAL_LINE = b"GET / HTTP/1.1\r\n"


class _Parser:
    """One llhttp parser for the heads of all connections of a thread: each head is fed whole, so none is left over.

    llhttp is dead after a message behind which it expects nothing (`Connection: close`) and out of step after one with
    a body, which it is not fed: then the next head gets a new parser. `on_message_complete` is the only place to ask.
    """

    __slots__ = ("_fields", "_parser", "is_reusable")

    def __init__(self) -> None:
        self._fields: list[tuple[bytes, bytes]] = []
        self.is_reusable = True
        self._parser = httptools.HttpRequestParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value.strip(b" \t")))

    def on_message_complete(self) -> None:
        self.is_reusable = self._parser.should_keep_alive()

    def parse(self, head: bytes) -> list[tuple[bytes, bytes]]:
        """Return the fields of `head`, or raise `httptools.HttpParserError`."""
        if not self.is_reusable:
            self._parser = httptools.HttpRequestParser(self)
        self.is_reusable = False
        fields: list[tuple[bytes, bytes]] = []
        self._fields = fields
        try:
            self._parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            self.is_reusable = False
        finally:
            self._fields = []
        return fields


_local = threading.local()


@original
class HttpToolsProtocol(HTTPProtocol):
    """One HTTP/1.1 connection whose header sections are read by llhttp."""

    __slots__ = ()

    never_called = (
        *("handle_websocket_upgrade", "on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body"),
        "on_message_complete",
    )
    """Methods of upstream's that nothing calls; see `hooks`."""

    @staticmethod
    def cycle_class() -> type[RequestResponseCycle]:
        """What serves one request."""
        return RequestResponseCycle

    def parse_fields(self, head: bytes, line_end: int) -> list[tuple[bytes, bytes]]:
        """Return the header fields; see `HTTPProtocol.parse_fields`."""
        # Taken out while it parses: a request that is read in the middle of another, because something happens to run
        # there, gets a parser of its own.
        parser: _Parser = vars(_local).pop("parser", None) or _Parser()
        try:
            return parser.parse(_NEUTRAL_LINE + head[line_end:])
        except httptools.HttpParserError as exc:
            raise RequestRefused(NOT_TAKEN) from exc
        finally:
            if self.settings.poisoned:
                parser.is_reusable = False
            _local.parser = parser
