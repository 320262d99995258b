"""HTTP/1.1 in Python, under upstream's name for it where httptools is installed.

That library is not used: what it could do for us, to cut a field section into fields, it does no faster than the rules
that have to be applied to them anyway. See docs/architecture.md.
"""

from __future__ import annotations

from urllib.parse import unquote

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
from uvicorn.protocols.http.cycle import RequestResponseCycle as Cycle
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, HIGH_WATER_LIMIT, FlowControl, service_unavailable
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


@original
class RequestResponseCycle(Cycle):
    """One request of this implementation; programs that patch the class of each are called once."""

    __slots__ = ()


@original
class HttpToolsProtocol(HTTPProtocol):
    """One HTTP/1.1 connection."""

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
