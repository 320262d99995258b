"""`--ws websockets`: upstream's name for an implementation on a part of `websockets` that is no longer developed.

It is the sans-I/O one under another name; choosing it makes the configuration warn.
"""

from __future__ import annotations

from uvicorn.hooks import original
from uvicorn.protocols.utils import ClientDisconnected as ClientDisconnected
from uvicorn.protocols.utils import get_client_addr as get_client_addr
from uvicorn.protocols.utils import get_local_addr as get_local_addr
from uvicorn.protocols.utils import get_path_with_query_string as get_path_with_query_string
from uvicorn.protocols.utils import get_remote_addr as get_remote_addr
from uvicorn.protocols.utils import is_ssl as is_ssl
from uvicorn.protocols.websockets.session_states import FRAME_METHODS, LEGACY, LEGACY_LIBRARY
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


@original
class WebSocketProtocol(WebSocketsSansIOProtocol):
    """The sans-I/O implementation, under the name that upstream's users import."""

    __slots__ = ()

    # Upstream's class of this name has no methods that take frames: a program that defines one means something else.
    never_called = (*LEGACY, *LEGACY_LIBRARY, *FRAME_METHODS)
    never_used = (
        "uvicorn.protocols.websockets.websockets_impl.ServerPerMessageDeflateFactory",
        "uvicorn.protocols.websockets.websockets_impl.Server",
        "uvicorn.protocols.websockets.websockets_impl.unquote",
        "websockets.legacy.server.WebSocketServerProtocol",
        "websockets.legacy.protocol.WebSocketCommonProtocol",
    )
    frame_methods = ()
