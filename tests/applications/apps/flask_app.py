"""Flask, a WSGI application: requests, forms, cookies, streaming, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Flask, Response, abort, request, session

app = Flask(__name__)
app.secret_key = "only for tests"


@app.get("/greet/<name>")
def greet(name: str) -> dict[str, Any]:
    return {"name": name, "q": request.args.get("q"), "url": request.url, "client": request.remote_addr}


@app.post("/form")
def form() -> dict[str, Any]:
    upload = request.files["file"]
    return {"field": request.form["field"], "name": upload.filename, "size": len(upload.read())}


@app.post("/upload")
def receive_upload() -> str:
    return str(len(request.get_data()))


@app.get("/visits")
def visits() -> str:
    session["visits"] = session.get("visits", 0) + 1
    return str(session["visits"])


@app.get("/stream")
def stream() -> Response:
    def numbers() -> Iterator[str]:
        for number in range(1000):
            yield f"{number}\n"

    return Response(numbers(), mimetype="text/plain")


@app.get("/teapot")
def teapot() -> str:
    abort(418)
