"""gradio: `demo.launch()` serves from a thread of the program."""

from tests.consumers.client import Client
from tests.consumers.consumer import Consumer


def talk(client: Client) -> None:
    """The page, its configuration, a call through the queue, one that answers in pieces."""
    client.get("/")
    client.get("/config")
    client.get("/gradio_api/info")
    client.get("/nothing", 404)
    for function, argument in ("greet", "you"), ("count", 4):
        event = client.post(f"/gradio_api/call/{function}", json={"data": [argument]}).json()["event_id"]
        client.get(f"/gradio_api/call/{function}/{event}")
    client.post("/gradio_api/upload", files={"files": ("a.txt", b"x" * 100_000)})
    joined = {"data": ["you"], "fn_index": 0, "session_hash": "session"}
    client.post("/gradio_api/queue/join", json=joined)
    client.get("/gradio_api/queue/data?session_hash=session")


CONSUMERS = [
    Consumer(
        "gradio",
        "programs",
        "gradio",
        ("python", "gradio_app.py"),
        talk,
        ready="Running on local URL",
        environ={
            "GRADIO_SERVER_PORT": "{port}",
            "GRADIO_ANALYTICS_ENABLED": "False",
            "GRADIO_SSR_MODE": "False",
            "GRADIO_TEMP_DIR": "files",
        },
    )
]
