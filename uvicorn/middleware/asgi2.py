"""ASGI 2: an application that is called with the scope and gives a coroutine function for the rest."""

from __future__ import annotations

from uvicorn._types import ASGI2Application, ASGIReceiveCallable, ASGISendCallable, Scope


class ASGI2Middleware:
    """Make an ASGI 2 application callable as ASGI 3."""

    def __init__(self, app: ASGI2Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Instantiate the application for this scope and await it."""
        await self.app(scope)(receive, send)
