"""No lifespan: the application counts as ready and is never called for it."""

from __future__ import annotations

from typing import Any

from uvicorn._types import ProtocolConfig


class LifespanOff:
    """Replaces `LifespanOn` where lifespan is `off`; `state` is the initial state of each scope."""

    def __init__(self, config: ProtocolConfig) -> None:
        self.should_exit = False
        self.state: dict[str, Any] = {}

    async def startup(self) -> None:
        """Nothing to wait for."""

    async def shutdown(self) -> None:
        """Nothing to wait for."""

    async def cancel(self) -> bool:
        """Return that nothing was cut short."""
        return False
