"""HTTP/1.1 in Python, read by h11.

`RequestReader` holds each head to the rules and gives h11 the bytes of one message at a time; `handle_events` takes its
events, and a program may override that as upstream's. h11 writes nothing here: responses are the stream's to encode.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast
from urllib.parse import unquote

import h11
from h11._connection import Connection as LibraryConnection  # unlike `h11.Connection`, never a program's

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
from uvicorn.protocols.http.wire.head import CHUNKED, PLAIN, Field, RequestRefused
from uvicorn.protocols.utils import (
    get_client_addr,
    get_local_addr,
    get_path_with_query_string,
    get_remote_addr,
    is_ssl,
)
from uvicorn.rules.refusals import Refusal
from uvicorn.rules.status import STATUS_PHRASES as _PHRASES
from uvicorn.serving.state import ServerState

# With the other names of upstream's module.
__all__ = [
    "CLOSE_HEADER",
    "HIGH_WATER_LIMIT",
    "STATUS_PHRASES",
    "TRACE_LOG_LEVEL",
    "ASGI3Application",
    "ASGIReceiveEvent",
    "ASGISendEvent",
    "FlowControl",
    "H11Protocol",
    "HTTPRequestEvent",
    "HTTPResponseBodyEvent",
    "HTTPResponseStartEvent",
    "HTTPScope",
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

STATUS_PHRASES = {status: phrase.encode() for status, phrase in _PHRASES.items()}


_coding = re.compile(rb"\r\ntransfer-encoding:[ \t]*([!-~]+)", re.IGNORECASE).search
_long_length = re.compile(rb"(\r\ncontent-length:[ \t]*)0+(?=[0-9])", re.IGNORECASE).sub
_UNREAD = (h11.IDLE, h11.SEND_BODY, h11.ERROR)
_RESPONSE = h11.Response(status_code=200, headers=[(b"content-length", b"0")])
_END = h11.EndOfMessage()
_UNREADABLE = Refusal(400, "not understood by h11")


class _Gatherer:
    """Reads heads for all connections of a server whose protocol methods are not overridden.

    It is used for requests without a body on connections that stay open. h11's state machine adds nothing to these: the
    connection stays in its first state, whose reader parses each head (`Shortcut.EVENTS`).
    """

    __slots__ = ("_buffer", "_read")

    def __init__(self) -> None:
        conn = h11.Connection(h11.SERVER)
        self._buffer = conn._receive_buffer
        self._read = conn._reader

    def read(self, head: bytes) -> list[Field]:
        """Return the fields of a head.

        Raises:
            h11.LocalProtocolError: h11 does not take it.
        """
        self._buffer += head
        request = cast(h11.Request, cast(Any, self._read)(self._buffer))
        return [(name, value) for _, name, value in request.headers._full_items]


class _Connection(LibraryConnection):
    """That of a class of the program's, whose `data_received` may feed it, as it would under upstream.

    What it feeds is held to the rules like anything else: only what passes reaches h11.
    """

    __slots__ = ("_protocol",)

    def __init__(self, protocol: H11Protocol) -> None:
        super().__init__(h11.SERVER, protocol.settings.limits.head)
        self._protocol = protocol

    def receive_data(self, data: bytes) -> None:
        """Take bytes that the client has sent."""
        if data:
            HTTPProtocol.data_received(self._protocol, bytes(data))

    def read(self, data: bytes) -> None:
        """Have h11 read them."""
        super().receive_data(data)


@original
class RequestResponseCycle(Cycle):
    """One request of this implementation; programs that patch the class of each are called once."""

    __slots__ = ("__dict__",)  # for the attributes of patched methods

    def __init__(
        self,
        scope: HTTPScope,
        conn: h11.Connection,
        transport: asyncio.Transport,
        flow: FlowControl,
        logger: logging.Logger,
        access_logger: logging.Logger,
        access_log: bool,
        default_headers: list[tuple[bytes, bytes]],
        message_event: asyncio.Event,
        on_response: Callable[..., None],
    ) -> None:
        self.meet(scope, transport)


@original
class H11Protocol(HTTPProtocol):
    """One HTTP/1.1 connection whose requests are read by h11."""

    __slots__ = ("_conn", "_coding", "__dict__")

    never_used = ("uvicorn.protocols.http.h11_impl.unquote",)

    def __init__(
        self,
        config: ProtocolConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._conn: h11.Connection | None = None
        self._coding = b""

    @staticmethod
    def cycle_class() -> type[RequestResponseCycle]:
        """The class that serves one request."""
        return RequestResponseCycle

    def cycle_arguments(self, expect_continue: bool) -> dict[str, Any]:
        """Return upstream's arguments for a cycle, but for its scope."""
        return {"conn": self.conn, **super().cycle_arguments(expect_continue)}

    @staticmethod
    def head_limit(config: ProtocolConfig) -> int:
        """Bytes a request head may have; the setting that upstream has for h11 comes first where it is given."""
        limit = config.h11_max_incomplete_event_size
        return config.limit_request_head if limit is None else limit

    @staticmethod
    def library_is_patched() -> bool:
        """Tell whether a program has replaced the reader of requests."""
        return h11.Connection is not LibraryConnection or not all(
            isinstance(part, FunctionType) and part.__module__ == "h11._connection"
            for part in (h11.Connection.next_event, h11.Connection.receive_data)
        )

    @property
    def conn(self) -> h11.Connection:
        """The reader of the connection's requests."""
        if self._conn is None:
            settings = self.settings
            if settings.customised and not self.library_is_patched():
                self._conn = _Connection(self)
            else:
                self._conn = h11.Connection(h11.SERVER, settings.limits.head)
        return self._conn

    @conn.setter
    def conn(self, conn: h11.Connection) -> None:
        self._conn = conn

    def _conclude(self, conn: h11.Connection) -> None:
        """Have h11 expect the next request."""
        if not self.settings.customised:
            self._conn = None  # a new one is made in a tenth of the time
            return
        if conn.our_state is h11.SEND_RESPONSE and conn.their_state not in _UNREAD:
            # h11 has not seen the response that was sent.
            conn.send(_RESPONSE)
            conn.send(_END)
        if conn.our_state is conn.their_state is h11.DONE:
            conn.start_next_cycle()

    def feed_head(self, head: bytes) -> None:
        """Have h11 read a head."""
        look, settings = self._look, self.settings
        if look[5] is PLAIN and look[3] is None and settings.reads_heads_alone:
            # Taken out while in use: a garbage collection may run code that reads another connection.
            gatherer, settings.gatherer = settings.gatherer or _Gatherer(), None
            try:
                fields = gatherer.read(head)
            except h11.LocalProtocolError as error:
                raise RequestRefused(_UNREADABLE) from error
            settings.gatherer = gatherer
            self._meet_plain(fields)
            return
        if self._conn is not None:
            self._conclude(self._conn)
        length = look[5][0]
        if length == CHUNKED:
            self._coding = cast("re.Match[bytes]", _coding(head))[1]  # h11 puts it into lower case
        elif length > 0 and len(head) > 20:
            head = _long_length(rb"\1", head)  # h11 limits the number of digits
        self.feed(head)

    def feed(self, data: bytes) -> None:
        """Have h11 read more of the message."""
        try:
            conn = self.conn
            if type(conn) is _Connection:
                conn.read(data)
            else:
                conn.receive_data(data)
            self.handle_events()
        except h11.RemoteProtocolError as error:
            raise RequestRefused(_UNREADABLE) from error
        if conn.their_state is h11.DONE and not self.settings.customised:
            self._conn = None  # an idle connection needs none

    def handle_events(self) -> None:
        """Take the events of h11: the head of a request, pieces of its body, and its end."""
        while True:
            event = self.conn.next_event()
            if isinstance(event, h11.Request):
                self._begin_scope(event)
                if self._is_leaving:
                    return self.handle_websocket_upgrade(event)
            elif isinstance(event, h11.Data):
                self._feed_cycle(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return self._end_body()
            else:
                return None

    def _begin_scope(self, event: h11.Request) -> None:
        headers = list(event.headers)
        if self._look[5][0] == CHUNKED:
            headers = [(name, self._coding if name == b"transfer-encoding" else value) for name, value in headers]
        scope = self._begin_scope_with(headers)
        self._ask_whether_to_upgrade()
        if not self._is_leaving:
            self._meet(scope, bytes(event.target), self._look[5][2])

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Give the connection to the WebSocket protocol."""
        self._hand_over_as(bytes(event.target), event.headers)
