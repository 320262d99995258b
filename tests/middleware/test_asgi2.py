"""The adapter for ASGI 2 applications."""

from __future__ import annotations

from typing import Any

import pytest

from uvicorn.middleware.asgi2 import ASGI2Middleware

pytestmark = pytest.mark.anyio


async def test_application_is_called_with_the_scope_and_awaited_with_the_rest() -> None:
    """IF-07."""
    calls: list[Any] = []

    class Application:
        def __init__(self, scope: Any) -> None:
            calls.append(scope)

        async def __call__(self, receive: Any, send: Any) -> None:
            calls.append((receive, send))

    scope: Any = {"type": "http"}
    receive: Any = object()
    send: Any = object()
    await ASGI2Middleware(Application)(scope, receive, send)
    assert calls == [scope, (receive, send)]


async def test_function_returning_a_coroutine_function_is_an_application() -> None:
    """IF-02, IF-07."""
    calls: list[Any] = []

    def application(scope: Any) -> Any:
        async def instance(receive: Any, send: Any) -> None:
            calls.append((scope, receive, send))

        return instance

    middleware = ASGI2Middleware(application)  # type: ignore[arg-type]
    await middleware({"type": "lifespan"}, 1, 2)  # type: ignore[arg-type]
    assert calls == [({"type": "lifespan"}, 1, 2)]


async def test_exception_of_the_application_reaches_the_server() -> None:
    class Application:
        def __init__(self, scope: Any) -> None: ...

        async def __call__(self, receive: Any, send: Any) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ASGI2Middleware(Application)({"type": "http"}, None, None)  # type: ignore[arg-type]
