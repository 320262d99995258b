"""The native WebSocket as it is served: applications take their steps inside of what they wait for."""

from __future__ import annotations

from uvicorn.protocols.websockets.native_impl import NativeWebSocketProtocol


class AtOnceWebSocketProtocol(NativeWebSocketProtocol):
    """On the running loop, from whose callbacks its input comes. A double of a loop has no tasks to step."""

    __slots__ = ()

    on_the_loop = True
