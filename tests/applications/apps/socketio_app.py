"""python-socketio: events, acknowledgements, rooms, over long polling and WebSocket."""

from __future__ import annotations

from typing import Any

import socketio

# A client that polls has its last poll answered only when these two have passed.
sio = socketio.AsyncServer(async_mode="asgi", ping_interval=2, ping_timeout=4)
app = socketio.ASGIApp(sio)


@sio.event
async def connect(sid: str, environ: Any, auth: Any) -> None:
    await sio.emit("welcome", {"name": (auth or {}).get("name")}, to=sid)


@sio.event
async def add(sid: str, numbers: list[int]) -> int:
    return sum(numbers)


@sio.event
async def join(sid: str, room: str) -> str:
    await sio.enter_room(sid, room)
    return "joined"


@sio.event
async def say(sid: str, data: dict[str, Any]) -> None:
    await sio.emit("said", data["text"], room=data["room"])


@sio.event
async def mirror(sid: str, data: bytes) -> bytes:
    return data[::-1]
