"""What the native protocols of one event loop share."""

from __future__ import annotations

import asyncio

import uvicorn._native as _native
from uvicorn._types import ProtocolConfig
from uvicorn.state import ServerState


def server_of(
    config: ProtocolConfig, server_state: ServerState, loop: asyncio.AbstractEventLoop | None, *places: str
) -> _native.Server:
    """Return what is shared under `config` (loaded if it is not yet), by protocols of `loop`, or the current one.

    It is the first that stands in one of these `places` of the state; otherwise it is made, for the last of them.
    """
    for place in places:
        known = getattr(server_state, place)
        if isinstance(known, _native.Server) and known.config is config:
            return known
    if not config.loaded:
        config.load()
    server = _native.Server(config, server_state, loop or asyncio.get_event_loop())
    setattr(server_state, places[-1], server)
    return server
