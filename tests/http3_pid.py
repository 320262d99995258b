"""An application that answers with the id of its process."""

from __future__ import annotations

import os
from typing import Any


async def app(scope: Any, receive: Any, send: Any) -> None:
    """For `--lifespan off`."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
