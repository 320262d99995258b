"""FastAPI applications: half a second and 30 MB to import, so only the servers that serve it pay.

Copied next to each server, like `apps.py`.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from bench_apps import API_WAIT, api_document  # type: ignore[import-not-found]
from fastapi import FastAPI, Header, Query
from pydantic import BaseModel, Field

application = FastAPI(openapi_url=None)


class Price(BaseModel):
    """An amount of money."""

    amount: str
    currency: str


class Offer(BaseModel):
    """A row of the answer."""

    id: str
    title: str
    price: Price
    available: bool


class Page(BaseModel):
    """The answer."""

    page: str
    items: list[Offer]


class Wanted(BaseModel):
    """The query."""

    page: int = Field(ge=1, le=1000)
    sort: Literal["name", "price", "-price", "newest", "rating"]
    q: str = Field(max_length=100)


@application.get("/")
async def item() -> dict[str, Any]:
    """What the simplest endpoint of an API does: a dictionary, serialised."""
    return {"message": "Hello, World!", "items": [1, 2, 3]}


@application.get("/items/{number}/{name}")
async def items(
    number: int, name: str, wanted: Annotated[Wanted, Query()], x_request_id: Annotated[str, Header(min_length=8)]
) -> Page:
    """What most endpoints do: validate, wait for a database, answer with 2 KB that is validated, too."""
    await asyncio.sleep(API_WAIT)
    return Page.model_validate(api_document(number, wanted.page))
