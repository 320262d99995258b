"""What applications are made of: validation, files, streaming, WebSocket, background tasks, middleware, errors."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import BackgroundTasks, FastAPI, HTTPException, Request, UploadFile, WebSocket, WebSocketDisconnect
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import FileResponse, RedirectResponse, StreamingResponse
from pydantic import BaseModel


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
    # Each line in one write: there may be several workers.
    print("opened\n", end="")
    yield {"opened": "yes"}
    print("closed\n", end="")


app = FastAPI(lifespan=lifespan)
app.add_middleware(GZipMiddleware, minimum_size=100)
app.add_middleware(CORSMiddleware, allow_origins=["*"])

FILE = Path(tempfile.mkdtemp()) / "file.txt"
FILE.write_text("a line of text\n" * 1000)


class Item(BaseModel):
    name: str
    price: float


@app.middleware("http")
async def label(request: Request, call_next):
    response = await call_next(request)
    response.headers["x-label"] = "seen"
    return response


@app.get("/")
async def root(request: Request):
    return {"hello": "world", "state": request.state.opened, "url": str(request.url), "scheme": request.url.scheme}


@app.get("/sync/{number}")
def sync(number: int):
    return {"number": number}


@app.post("/items")
async def create(item: Item, background: BackgroundTasks):
    background.add_task(record, item)
    return item


async def record(item: Item) -> None:
    print(f"created {item.name}")


@app.post("/upload")
async def upload(file: UploadFile):
    return {"name": file.filename, "size": len(await file.read())}


@app.get("/file")
async def file():
    return FileResponse(FILE, headers={"last-modified": "Thu, 01 Jan 1970 00:00:00 GMT", "etag": "file"})


@app.get("/stream")
async def stream():
    async def lines():
        for number in range(5):
            yield f"data: {number}\n\n"
            await asyncio.sleep(0.01)

    return StreamingResponse(lines(), media_type="text/event-stream")


@app.get("/redirect")
async def redirect():
    return RedirectResponse("/")


@app.get("/missing")
async def missing():
    raise HTTPException(404, "no such thing", headers={"x-reason": "none"})


@app.get("/fail")
async def fail():
    raise ValueError("wanted")


@app.websocket("/ws")
async def echo(websocket: WebSocket, name: str = "nobody"):
    await websocket.accept(headers=[(b"x-name", name.encode())])
    try:
        while True:
            message = await websocket.receive_text()
            if message == "bye":
                await websocket.close(4000, "as you wish")
                return
            await websocket.send_text(f"{name}: {message}")
    except WebSocketDisconnect as end:
        print(f"disconnected {end.code}")


@app.websocket("/refused")
async def refused(websocket: WebSocket):
    await websocket.close()
