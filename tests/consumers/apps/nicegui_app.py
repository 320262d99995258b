"""A page that is updated over its WebSocket, and an endpoint beside it."""

import os

from nicegui import app, ui


@ui.page("/")
def index():
    label = ui.label("Hello")
    ui.button("press", on_click=lambda: label.set_text("pressed"))


@app.get("/api/{number}")
def api(number: int):
    return {"number": number}


ui.run(port=int(os.environ["PORT"]), show=False, reload=False, storage_secret="secret")
