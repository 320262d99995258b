"""`--ws auto`: the implementation whose library is installed, `websockets` first; none if neither is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uvicorn.protocols.websockets.session import WebSocketSession

AutoWebSocketsProtocol: type[WebSocketSession] | None
try:
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
except ImportError:
    try:
        from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
    except ImportError:
        AutoWebSocketsProtocol = None
    else:
        AutoWebSocketsProtocol = WSProtocol
else:
    AutoWebSocketsProtocol = WebSocketsSansIOProtocol
