"""marimo: `marimo run` and `marimo edit`, whose notebooks live on a WebSocket."""

import json
import re

from tests.consumers.client import Client, WebSocket
from tests.consumers.consumer import INSTALLED, Consumer

SESSION = "s_abcdef"


def run(client: Client) -> None:
    """The page, and a run of the notebook."""
    visit(client)
    require_run(client, open_notebook(client))


def edit(client: Client) -> None:
    """The page, and a run that the editor asks for."""
    token = re.search(r'data-token="([^"]+)"', visit(client))
    assert token
    notebook = open_notebook(client)
    headers = {"marimo-session-id": SESSION, "marimo-server-token": token[1]}
    client.post("/api/kernel/instantiate", headers=headers, json={"objectIds": [], "values": [], "autoRun": True})
    require_run(client, notebook)


def visit(client: Client) -> str:
    """Everything a browser loads; the page."""
    client.get("/health")
    client.get("/api/status/connections")
    client.get("/favicon.ico")
    client.get("/nothing", 404)
    return client.get("/").text


def open_notebook(client: Client) -> WebSocket:
    """A session that has a kernel."""
    notebook = client.websocket(f"/ws?session_id={SESSION}")
    ready = notebook.receive_until(lambda message: "kernel-ready" in str(message))
    client.write(*sorted(json.loads(ready)))
    return notebook


def require_run(client: Client, notebook: WebSocket) -> None:
    """What a cell says comes."""
    notebook.receive_until(lambda message: "Hello</span>" in str(message))
    notebook.receive_until(lambda message: "completed-run" in str(message))
    client.write("the notebook says Hello")


CONSUMERS = [
    Consumer(
        f"marimo {talk.__name__}",
        "programs",
        "marimo",
        ("marimo", talk.__name__, "marimo_app.py", "--port", "{port}", "--headless", "--no-token"),
        talk,
        ready="URL: http",
        environ={"MARIMO_SKIP_UPDATE_CHECK": "1"},
        momentary={
            r'data-token="[^"]+"': 'data-token="TOKEN"',
            r'"serverToken": "[^"]+"': '"serverToken": "TOKEN"',
            **INSTALLED,
            r"objects to clean up at shutdown: .*": "objects to clean up at shutdown",
        },
    )
    for talk in (run, edit)
]
