"""An application that can be asked to edit itself, as a developer does."""

from pathlib import Path

from fastapi import FastAPI

VERSION = 1

app = FastAPI()


@app.get("/version")
async def version():
    return VERSION


@app.post("/edit")
async def edit():
    here = Path(__file__)
    here.write_text(here.read_text().replace("VERSION = 1", "VERSION = 2"))
