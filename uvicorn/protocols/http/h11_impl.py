"""HTTP/1.1 with h11 reading the request head.

h11 parses each head from scratch; the framing, the body and the response are handled by `protocol.py` for every
implementation alike, where h11 would be laxer (bare LF, repeated Content-Length) or slower.
"""

from __future__ import annotations

from urllib.parse import unquote

import h11

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
from uvicorn.logging import TRACE_LOG_LEVEL
from uvicorn.protocols.http import refusals
from uvicorn.protocols.http.cycle import RequestResponseCycle
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, HIGH_WATER_LIMIT, FlowControl, service_unavailable
from uvicorn.protocols.http.head import NOT_TAKEN, RequestRefused, split_fields
from uvicorn.protocols.http.hooks import original
from uvicorn.protocols.http.protocol import HTTPProtocol
from uvicorn.protocols.http.response import STATUS_PHRASES as _PHRASES
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


@original
class H11Protocol(HTTPProtocol):
    """One HTTP/1.1 connection whose request heads are parsed by h11."""

    __slots__ = ()

    never_called = ("handle_events", "handle_websocket_upgrade")
    """Methods of upstream's that nothing calls; see `hooks`."""

    @staticmethod
    def cycle_class() -> type[RequestResponseCycle]:
        """What serves one request."""
        return RequestResponseCycle

    @staticmethod
    def head_limit(config: ProtocolConfig) -> int:
        """Bytes a request head may have; h11's own setting comes first where it is given."""
        limit = config.h11_max_incomplete_event_size
        return config.limit_request_head if limit is None else limit

    def parse_fields(self, head: bytes, line_end: int) -> list[tuple[bytes, bytes]]:
        """Return the header fields as they were sent, once h11 has taken them; see `HTTPProtocol.parse_fields`.

        Not h11's own list: it joins equal Content-Length fields and changes the case of transfer codings.
        """
        if head.count(b"\r\n", line_end) - 1 > self.settings.limits.fields:
            # Refused anyway, and h11 is slow enough for that to be an attack.
            raise RequestRefused(refusals.TOO_MANY_FIELDS, self.settings.limits.fields)
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(head)
        try:
            connection.next_event()
        except h11.RemoteProtocolError as exc:
            raise RequestRefused(NOT_TAKEN) from exc
        return split_fields(head, line_end)
