"""HTTP/1.1 in Python, read by httptools.

`RequestReader` holds each head to the rules and gives httptools the bytes of one message at a time. httptools calls the
methods of the class, each of which a program may override as upstream's: what it changes is what the application gets.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote

import httptools
from httptools.parser.parser import HttpRequestParser as LibraryParser  # unlike the name above, never a program's

from uvicorn._types import (
    ASGI3Application,
    ASGIReceiveEvent,
    ASGISendEvent,
    HTTPRequestEvent,
    HTTPResponseBodyEvent,
    HTTPResponseStartEvent,
    HTTPScope,
    ProtocolConfig,
)
from uvicorn.hooks import original
from uvicorn.logging import TRACE_LOG_LEVEL
from uvicorn.protocols.http.cycle import RequestResponseCycle as Cycle
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, HIGH_WATER_LIMIT, FlowControl, service_unavailable
from uvicorn.protocols.http.protocol import HTTPProtocol
from uvicorn.protocols.http.wire.head import CHUNKED, PLAIN, Field, RequestRefused, native_field_list
from uvicorn.protocols.http.wire.response import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE
from uvicorn.protocols.utils import (
    get_client_addr,
    get_local_addr,
    get_path_with_query_string,
    get_remote_addr,
    is_ssl,
)
from uvicorn.rules.refusals import Refusal
from uvicorn.serving.state import ServerState

# With the other names of upstream's module.
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


METHODS = frozenset(
    b"GET HEAD POST PUT DELETE OPTIONS PATCH TRACE PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK SEARCH REPORT "
    b"MKACTIVITY CHECKOUT MERGE BIND REBIND UNBIND ACL MKCALENDAR LINK UNLINK PURGE SUBSCRIBE UNSUBSCRIBE NOTIFY "
    b"M-SEARCH QUERY".split()
)
"""The methods that llhttp takes; any other is read as POST, and keeps its name in the scope."""

_CLOSED = "Connection: close"
_UNREADABLE = Refusal(400, "not understood by httptools")
_METHOD_FAILED = Refusal(400, "a method of the protocol class has failed")


class _FieldList:
    """Collects the fields of a head."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: list[Field] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by httptools for each field."""
        self._fields.append((name.lower(), value.rstrip(b" \t")))

    def take(self) -> list[Field]:
        """Return the fields that came since the last call."""
        fields, self._fields = self._fields, []
        return fields


class _Gatherer:
    """Reads heads for all connections of a server whose protocol methods are not overridden, without calling them.

    Only of requests that have no body and let their connection live on, so that the parser is at its beginning again.

    Args:
        natively: the fields are gathered by the native core.
    """

    __slots__ = ("_fields", "_parser")

    def __init__(self, natively: bool) -> None:
        self._fields = cast(_FieldList, native_field_list()) if natively else _FieldList()
        self._parser = httptools.HttpRequestParser(self._fields)

    def read(self, head: bytes) -> list[Field] | None:
        """Return the fields of a head; `None` if llhttp does not take it."""
        try:
            self._parser.feed_data(head)
        except httptools.HttpParserError:
            self._fields.take()
            self._parser = httptools.HttpRequestParser(self._fields)
            return None
        return self._fields.take() or None


class _Rest:
    """Hands a body on, and the end of its message."""

    __slots__ = ("on_body", "on_message_complete")

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete


class _Parser(LibraryParser):
    """The parser of a class of the program's, whose `data_received` may feed it, as it would under upstream.

    What it feeds is held to the rules like anything else: only what passes reaches httptools.
    """

    __slots__ = ("_protocol",)

    def __init__(self, protocol: HttpToolsProtocol, listener: object) -> None:
        super().__init__(listener)
        self._protocol = protocol

    def feed_data(self, data: Any) -> None:
        """Take bytes that the client has sent."""
        HTTPProtocol.data_received(self._protocol, bytes(data))

    def should_upgrade(self) -> bool:
        """Tell whether the request in hand ends HTTP on this connection."""
        return self._protocol.leaves

    def asks_to_upgrade(self) -> bool:
        """Tell what httptools says itself."""
        return bool(super().should_upgrade())

    def read(self, data: bytes) -> None:
        """Have httptools read them."""
        super().feed_data(data)


@original
class RequestResponseCycle(Cycle):
    """One request of this implementation; programs that patch the class of each are called once."""

    __slots__ = ("__dict__",)  # for the attributes of patched methods

    def __init__(
        self,
        scope: HTTPScope,
        transport: asyncio.Transport,
        flow: FlowControl,
        logger: logging.Logger,
        access_logger: logging.Logger,
        access_log: bool,
        default_headers: list[tuple[bytes, bytes]],
        message_event: asyncio.Event,
        expect_100_continue: bool,
        keep_alive: bool,
        on_response: Callable[..., None],
    ) -> None:
        self.meet(scope, transport)


@original
class HttpToolsProtocol(HTTPProtocol):
    """One HTTP/1.1 connection whose requests are read by httptools.

    Attributes:
        url: the target of the request being read, as it was sent.
        expect_100_continue: its client holds the body back until it is asked for it.
    """

    __slots__ = ("url", "expect_100_continue", "_parser", "_reads_rest", "__dict__")

    never_used = ("uvicorn.protocols.http.httptools_impl.unquote",)

    def __init__(
        self,
        config: ProtocolConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.url = b""
        self.expect_100_continue = False
        self._parser: httptools.HttpRequestParser | None = None
        self._reads_rest = False  # it has read no head

    @staticmethod
    def cycle_class() -> type[RequestResponseCycle]:
        """The class that serves one request."""
        return RequestResponseCycle

    def cycle_arguments(self, expect_continue: bool) -> dict[str, Any]:
        """Return upstream's arguments for a cycle, but for its scope."""
        own = {"expect_100_continue": expect_continue, "keep_alive": self._look[5][1]}
        return {**super().cycle_arguments(expect_continue), **own}

    @staticmethod
    def library_is_patched() -> bool:
        """Tell whether a program has replaced the parser."""
        return httptools.HttpRequestParser is not LibraryParser

    @property
    def parser(self) -> httptools.HttpRequestParser:
        """The reader of the connection's requests, which calls the methods below."""
        if self._parser is None:
            self._parser = self._make_parser(self)
        return self._parser

    @parser.setter
    def parser(self, parser: object) -> None:
        """Drop the parser; the assigned object is not used, since it would not enforce the server's rules."""
        self._parser = None

    @property
    def pipeline(self) -> deque[Any]:
        """Upstream's queue of requests behind the one in hand. Here those wait unread, so it is always empty."""
        return deque()

    def _make_parser(self, listener: object) -> httptools.HttpRequestParser:
        if self.settings.customised and not self.library_is_patched():
            return _Parser(self, listener)
        return httptools.HttpRequestParser(listener)

    def _parse(self, data: bytes) -> None:
        parser = self.parser
        if type(parser) is _Parser:
            parser.read(data)
        else:
            parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, for whatever reason."""
        super().connection_lost(exc)
        self._parser = None  # which knows it

    def feed_head(self, head: bytes) -> None:
        """Have httptools read a head."""
        settings, look = self.settings, self._look
        method, _, minor, host, _, framing, target = look
        if framing is PLAIN and host is None and not settings.customised:
            # Taken out while in use: a garbage collection may run code that reads another connection.
            gatherer, settings.gatherer = settings.gatherer, None
            if gatherer is None:
                gatherer = _Gatherer(settings.read_head is not None)
            fields = gatherer.read(head)
            settings.gatherer = gatherer
            if fields is not None:
                self._meet_plain(fields)
                return
        if method not in METHODS or minor > b"1" or framing[0] == CHUNKED:
            # It is within the rules, but llhttp may not know it.
            fields = head[head.index(b"\r\n") + 2 :]
            if framing[0] == CHUNKED:
                fields = fields.replace(b"\t\r\n", b"\r\n")
            method = method if method in METHODS else b"POST"
            head = b"%b %b HTTP/1.%b\r\n%b" % (method, target, min(minor, b"1"), fields)
        if self._reads_rest:
            self._reads_rest = False
            self._parser = None
        self.feed(head)

    def feed(self, data: bytes) -> None:
        """Have httptools read more of the message."""
        try:
            try:
                self._parse(data)
            except httptools.HttpParserUpgrade:
                raise
            except httptools.HttpParserCallbackError:
                raise
            except httptools.HttpParserError as error:
                if _CLOSED not in str(error):
                    raise
                # llhttp takes `Proxy-Connection: close` for the end, which it is not.
                self._parser = None
                self._parse(data)
        except httptools.HttpParserUpgrade:
            self._parser = None  # which has come to its end
            if self._is_leaving:
                self.handle_websocket_upgrade()
            else:
                self._read_rest(self._look[5][0])
        except httptools.HttpParserCallbackError as error:
            self.logger.error("Exception in a method of %s", type(self).__name__, exc_info=error.__context__ or error)
            self._refuse(RequestRefused(_METHOD_FAILED))
        except httptools.HttpParserError as error:
            raise RequestRefused(_UNREADABLE) from error

    def _read_rest(self, length: int) -> None:
        """Read the body of a request that asks for another protocol: llhttp takes its head for the end of it all."""
        if length:
            self._reads_rest = True
            self._parser = self._make_parser(_Rest(self))
            framing = b"Transfer-Encoding: chunked" if length == CHUNKED else b"Content-Length: %d" % length
            self._parse(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)

    # Called by httptools: for each request of a program's subclass, and for others with a body.

    def on_message_begin(self) -> None:
        """A request begins."""
        self.url = b""
        self.expect_100_continue = self._look[5][2]
        self._begin_scope_with([])

    def on_url(self, url: bytes) -> None:
        """This is its target, as it was sent."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """This is a header field, as it was sent."""
        cast(Any, self.scope)["headers"].append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Its head is complete: make its cycle."""
        self._ask_whether_to_upgrade()
        if not self._is_leaving:
            self._meet(cast(HTTPScope, self.scope), self.url, self.expect_100_continue)

    def on_body(self, body: bytes) -> None:
        """This is a piece of its body."""
        self._feed_cycle(body)

    def on_message_complete(self) -> None:
        """It is complete."""
        if self._reads_rest or not self._look[5][0] or not self._ends_http():
            self._end_body()

    def _ends_http(self) -> bool:
        """Tell whether httptools takes the head that it has read for the end of HTTP on this connection."""
        parser = self.parser
        return bool(parser.asks_to_upgrade() if type(parser) is _Parser else parser.should_upgrade())

    def handle_websocket_upgrade(self) -> None:
        """Give the connection to the WebSocket protocol."""
        self._hand_over_as(self.url, cast(HTTPScope, self.scope)["headers"])
