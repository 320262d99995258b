"""The cores that the native protocols of one event loop share."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn._native as _native
from uvicorn._types import ProtocolConfig
from uvicorn.serving.state import ServerState

ARGUMENTS = ("config", "server_state", "app_state", "_loop")
"""Of the constructor of every protocol class, in their order; the last is optional."""


def cores_and_state(args: tuple[Any, ...], kwargs: dict[str, Any], *places: str) -> tuple[_native.Cores, Any]:
    """Return the parts of a native protocol, found among the arguments of a constructor that has more.

    Raises:
        TypeError: one of them is missing.
    """
    known = dict(zip(ARGUMENTS, args, strict=False)) | kwargs
    try:
        return cores_of(known["config"], known["server_state"], known.get("_loop"), *places), known["app_state"]
    except KeyError as exc:
        raise TypeError(f"a connection is made of {', '.join(ARGUMENTS)}: {exc} is missing") from None


def cores_of(
    config: ProtocolConfig, server_state: ServerState, loop: asyncio.AbstractEventLoop | None, *places: str
) -> _native.Cores:
    """Return the cores shared under `config` (loaded if it is not yet) by the protocols of `loop`, or the current one.

    They are the first found in one of these `places` of the state; otherwise they are created in the last one.
    """
    for place in places:
        known = getattr(server_state, place)
        if isinstance(known, _native.Cores) and known.config is config:
            return known
    if not config.loaded:
        config.load()
    cores = _native.Cores(config, server_state, loop or asyncio.get_event_loop())
    setattr(server_state, places[-1], cores)
    return cores
