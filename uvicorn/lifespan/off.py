"""No lifespan: the application is taken to be ready, and is told nothing."""

from __future__ import annotations

from typing import Any

from uvicorn._types import ProtocolConfig


class LifespanOff:
    """Stands in for `LifespanOn` where lifespan is `off`; `state` is what every request's scope starts with."""

    def __init__(self, config: ProtocolConfig) -> None:
        self.should_exit = False
        self.state: dict[str, Any] = {}

    async def startup(self) -> None:
        """Nothing to wait for."""

    async def shutdown(self) -> None:
        """Nothing to wait for."""

    async def cancel(self) -> None:
        """Nothing to cancel."""
