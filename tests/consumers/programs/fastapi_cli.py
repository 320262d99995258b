"""FastAPI's own command line: `fastapi run` and `fastapi dev`, with workers and with the reloader."""

import pytest
from websockets.exceptions import InvalidStatus

from tests.consumers.client import Client
from tests.consumers.consumer import END_LOGGED, Consumer
from tests.utils import wait_for


def ordinary(client: Client) -> None:
    """Everything an ordinary application does; a WebSocket is left open."""
    client.get("/")
    client.get("/sync/7")
    client.get("/sync/seven", 422)
    client.post("/items", json={"name": "thing", "price": 1.5})
    client.post("/upload", files={"file": ("a.txt", b"x" * 200_000)})
    client.get("/file")
    client.get("/file", headers={"accept-encoding": "gzip"})
    client.get("/file", 206, headers={"range": "bytes=0-9"})
    client.get("/stream")
    client.get("/redirect", 307)
    client.get("/missing", 404)
    # Upstream closes the connection after an exception without announcing it.
    client.get("/fail", 500, headers={"connection": "close"})
    client.request("HEAD", "/", 405)
    client.request("OPTIONS", "/", headers={"origin": "http://a.test", "access-control-request-method": "GET"})
    client.get("/openapi.json")
    client.get("/docs")
    named = client.websocket("/ws?name=me")
    named.send("hello")
    named.receive()
    named.send("bye")
    named.finish()
    with pytest.raises(InvalidStatus) as refusal:
        client.websocket("/refused")
    client.write(f"refused: {refusal.value.response.status_code}")
    client.websocket("/ws").leave()
    client.websocket("/ws")


def edited(client: Client) -> None:
    """The application before and after it was edited."""
    client.get("/version")
    client.post("/edit")
    wait_for(lambda: client.look("/version") == 2)
    client.write("the edit is served")


def command(verb: str, app: str, *options: str) -> tuple[str, ...]:
    """`fastapi VERB APP` on the port."""
    return "fastapi", verb, f"{app}.py", "--port", "{port}", *options


STARTED = "Application startup complete"
CONSUMERS = [
    Consumer(
        "fastapi run",
        "programs",
        "fastapi-cli",
        command("run", "fastapi_app"),
        ordinary,
        differences=(END_LOGGED,),
    ),
    Consumer(
        "fastapi run, two workers",
        "programs",
        "fastapi-cli",
        command("run", "fastapi_app", "--workers", "2"),
        ordinary,
        ready=f"(?s){STARTED}.*{STARTED}",
        unordered=True,
        # Upstream ends workers that are busy with their imports for five seconds, and starts others.
        noise=(r"Waiting for child process \[", r"Child process \[PID\] died"),
        differences=(END_LOGGED,),
    ),
    Consumer(
        "fastapi dev",
        "programs",
        "fastapi-cli",
        command("dev", "reload_app"),
        edited,
        ready=STARTED,
        unordered=True,
    ),
]
