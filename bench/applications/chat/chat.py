"""A chat: socket.io over WebSocket, rooms, acknowledged messages, a history, and pages by Starlette beside it."""

from __future__ import annotations

from collections import deque
from typing import Any

import socketio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

HISTORY = 20
server = socketio.AsyncServer(async_mode="asgi", cors_allowed_origins="*")
histories: dict[str, deque[dict[str, Any]]] = {}


@server.event
async def join(sid: str, room: str) -> list[dict[str, Any]]:
    """Enter a room; the answer is its latest messages."""
    await server.enter_room(sid, room)
    await server.save_session(sid, {"room": room})
    return list(histories.setdefault(room, deque(maxlen=HISTORY)))


@server.event
async def say(sid: str, message: dict[str, Any]) -> int:
    """Say something to all in the room; the answer is its number."""
    room = (await server.get_session(sid))["room"]
    history = histories[room]
    number = history[-1]["number"] + 1 if history else 1
    told = {"number": number, "from": sid, "text": message["text"]}
    history.append(told)
    await server.emit("said", told, room=room, skip_sid=sid)
    return int(number)


async def rooms(request: Request) -> JSONResponse:
    """Which rooms there are."""
    return JSONResponse({room: len(history) for room, history in histories.items()})


application = socketio.ASGIApp(server, Starlette(routes=[Route("/", rooms)]))
