"""A launcher in the manner of vLLM's: it cancels `serve()` on a signal, then awaits `shutdown()`."""

from tests.consumers.client import Client
from tests.consumers.consumer import Consumer


def stopped(client: Client) -> None:
    """Completions; one response is under way when the signal comes, and says so after it."""
    completions(client)
    client.get("/keep-alive")
    client.stream("/until-stopped").read_until("before")


def died(client: Client) -> None:
    """The engine dies; the server ends by itself."""
    completions(client)
    client.post("/kill", 500)


def completions(client: Client) -> None:
    """Health, a streamed answer, a large head, a large body."""
    client.get("/health")
    client.post("/v1/completions", json={"max_tokens": 20})
    client.get("/health", headers={"x-large": "x" * 40_000})
    client.post("/v1/completions", json={"max_tokens": 1, "prompt": "x" * 1_000_000})
    client.post("/v1/completions", 422, content=b"{")


COMMAND = ("python", "launcher.py", "{port}")
CONSUMERS = [
    Consumer("vLLM-style launcher, stopped", "programs", "fastapi", COMMAND, stopped),
    Consumer(
        "vLLM-style launcher, engine dies",
        "programs",
        "fastapi",
        COMMAND,
        died,
        signals=(None,),
    ),
]
