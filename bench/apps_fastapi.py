"""A FastAPI application: half a second and 30 MB to import, so only the servers that serve it pay.

Copied next to each server, like `apps.py`.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

application = FastAPI(openapi_url=None)


@application.get("/")
async def item() -> dict[str, Any]:
    """What the simplest endpoint of an API does: a dictionary, serialised."""
    return {"message": "Hello, World!", "items": [1, 2, 3]}
