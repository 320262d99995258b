"""A small application to be looked at by what instruments applications; nothing in it knows of that."""

import asyncio

from fastapi import FastAPI, HTTPException, WebSocket
from fastapi.responses import StreamingResponse

app = FastAPI()


@app.get("/")
async def root():
    return {"hello": "world"}


@app.get("/items/{number}")
def item(number: int):
    if number > 9:
        raise HTTPException(404)
    return {"number": number}


@app.post("/echo")
async def echo(body: dict):
    return body


@app.get("/stream")
async def stream():
    async def lines():
        for number in range(3):
            yield f"{number}\n"
            await asyncio.sleep(0)

    return StreamingResponse(lines(), media_type="text/plain")


@app.get("/fail")
async def fail():
    raise ValueError("wanted")


@app.websocket("/ws")
async def ws(websocket: WebSocket):
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text.upper())
