"""A shop's API: FastAPI, validated by Pydantic, stored by SQLAlchemy in SQLite or PostgreSQL (`SHOP_DATABASE`)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from decimal import Decimal
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, Header, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import ForeignKey, String, func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship, selectinload

ITEMS, USERS, REVIEWS = 500, 50, 3
KINDS = ("chair", "desk", "kettle", "jacket", "lamp")
MATERIALS = ("wood", "steel", "glass", "wool", "paper")


class Base(DeclarativeBase):
    """What the tables share."""


class User(Base):
    """A customer, known by a token."""

    __tablename__ = "users"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(80))
    token: Mapped[str] = mapped_column(String(40), unique=True)


class Item(Base):
    """Something to buy."""

    __tablename__ = "items"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(80), index=True)
    kind: Mapped[str] = mapped_column(String(20), index=True)
    about: Mapped[str] = mapped_column(String(400))
    price: Mapped[Decimal]
    stock: Mapped[int]
    reviews: Mapped[list[Review]] = relationship(order_by="Review.id")


class Review(Base):
    """What a customer says of an item."""

    __tablename__ = "reviews"

    id: Mapped[int] = mapped_column(primary_key=True)
    item_id: Mapped[int] = mapped_column(ForeignKey("items.id"), index=True)
    stars: Mapped[int]
    text: Mapped[str] = mapped_column(String(400))


class Order(Base):
    """What a customer has bought."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    item_id: Mapped[int] = mapped_column(ForeignKey("items.id"))
    amount: Mapped[int]
    note: Mapped[str] = mapped_column(String(200))
    ordered: Mapped[datetime]


class ReviewShown(BaseModel):
    """A review in an answer."""

    model_config = ConfigDict(from_attributes=True)
    stars: int
    text: str


class ItemShown(BaseModel):
    """An item in a list."""

    model_config = ConfigDict(from_attributes=True)
    id: int
    name: str
    kind: str
    price: Decimal
    stock: int


class ItemDetail(ItemShown):
    """An item by itself."""

    about: str
    reviews: list[ReviewShown]


class Page(BaseModel):
    """Items, and how many there are."""

    total: int
    items: list[ItemShown]


class Line(BaseModel):
    """An ordered item."""

    item: int = Field(gt=0)
    amount: int = Field(ge=1, le=20)
    note: str = Field(default="", max_length=200)


class Purchase(BaseModel):
    """The body of an order."""

    lines: list[Line] = Field(min_length=1, max_length=10)


class Receipt(BaseModel):
    """The answer to an order."""

    customer: str
    orders: list[int]
    total: Decimal


engine = create_async_engine(os.environ.get("SHOP_DATABASE", "sqlite+aiosqlite:///shop.sqlite"), pool_size=10)
sessions = async_sessionmaker(engine, expire_on_commit=False)


async def fill() -> None:
    """Make the tables, with the same contents each time."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with sessions() as session:
        if await session.scalar(select(func.count(Item.id))):
            return
        session.add_all(User(id=n, name=f"Customer {n}", token=f"token-{n:04d}") for n in range(1, USERS + 1))
        for n in range(1, ITEMS + 1):
            kind, material = KINDS[n % len(KINDS)], MATERIALS[n // 7 % len(MATERIALS)]
            about = f"A {kind} of {material}, made by hand in a small workshop by the sea. " * 3
            price = Decimal(n * 37 % 20000) / 100
            session.add(Item(id=n, name=f"{material} {kind} {n}", kind=kind, about=about, price=price, stock=n % 90))
        await session.flush()
        session.add_all(
            Review(item_id=n % ITEMS + 1, stars=n % 5 + 1, text=f"Bought it {n} days ago and would do so again.")
            for n in range(ITEMS * REVIEWS)
        )
        await session.commit()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The tables are there before the first request."""
    await fill()
    yield
    await engine.dispose()


application = FastAPI(title="Shop", lifespan=lifespan)


async def opened() -> AsyncIterator[AsyncSession]:
    """A session for one request."""
    async with sessions() as session:
        yield session


Session = Annotated[AsyncSession, Depends(opened)]


async def customer(session: Session, authorization: Annotated[str, Header()] = "") -> User:
    """Whose token it is."""
    found = await session.scalar(select(User).where(User.token == authorization.removeprefix("Bearer ")))
    if found is None:
        raise HTTPException(401, "who are you?")
    return found


Customer = Annotated[User, Depends(customer)]


@application.get("/items")
async def items(
    session: Session,
    kind: str | None = None,
    sort: Literal["name", "price"] = "name",
    page: Annotated[int, Query(ge=1)] = 1,
) -> Page:
    """Twenty items."""
    chosen = select(Item).order_by(Item.price if sort == "price" else Item.name)
    counted = select(func.count(Item.id))
    if kind:
        chosen, counted = chosen.where(Item.kind == kind), counted.where(Item.kind == kind)
    found = await session.scalars(chosen.offset(20 * (page - 1)).limit(20))
    total = await session.scalar(counted)
    return Page(total=total or 0, items=[ItemShown.model_validate(one) for one in found])


@application.get("/items/{number}")
async def item(session: Session, number: int) -> ItemDetail:
    """One item with its reviews."""
    found = await session.scalar(select(Item).where(Item.id == number).options(selectinload(Item.reviews)))
    if found is None:
        raise HTTPException(404, "no such item")
    return ItemDetail.model_validate(found)


@application.post("/orders", status_code=201)
async def order(session: Session, user: Customer, purchase: Purchase) -> Receipt:
    """Buy something."""
    now, total, made = datetime.now(timezone.utc).replace(tzinfo=None), Decimal(0), []
    for line in purchase.lines:
        bought = await session.get(Item, line.item)
        if bought is None:
            raise HTTPException(404, "no such item")
        total += bought.price * line.amount
        made.append(Order(user_id=user.id, item_id=bought.id, amount=line.amount, note=line.note, ordered=now))
    session.add_all(made)
    await session.commit()
    return Receipt(customer=user.name, orders=[one.id for one in made], total=total)


@application.get("/me")
async def me(session: Session, user: Customer) -> dict[str, object]:
    """The customer and the last orders."""
    found = await session.scalars(select(Order).where(Order.user_id == user.id).order_by(Order.id.desc()).limit(10))
    return {"name": user.name, "orders": [{"id": one.id, "item": one.item_id, "amount": one.amount} for one in found]}
