"""HTTP/1.1 in Python, under upstream's name for it where httptools is not installed.

h11 is not used: see `httptools_impl`.
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
    ProtocolConfig,
)
from uvicorn.logging import TRACE_LOG_LEVEL
from uvicorn.protocols.http.cycle import RequestResponseCycle as Cycle
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, HIGH_WATER_LIMIT, FlowControl, service_unavailable
from uvicorn.protocols.http.hooks import original
from uvicorn.protocols.http.protocol import HTTPProtocol
from uvicorn.protocols.http.status import STATUS_PHRASES as _PHRASES
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
class RequestResponseCycle(Cycle):
    """One request of this implementation; programs that patch the class of each are called once."""

    __slots__ = ()


@original
class H11Protocol(HTTPProtocol):
    """One HTTP/1.1 connection."""

    __slots__ = ()

    never_called = ("handle_events", "handle_websocket_upgrade")
    """Methods of upstream's that nothing calls; see `hooks`."""

    @staticmethod
    def cycle_class() -> type[RequestResponseCycle]:
        """What serves one request."""
        return RequestResponseCycle

    @staticmethod
    def head_limit(config: ProtocolConfig) -> int:
        """Bytes a request head may have; the setting that upstream has for h11 comes first where it is given."""
        limit = config.h11_max_incomplete_event_size
        return config.limit_request_head if limit is None else limit
