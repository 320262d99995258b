"""faststream: `faststream run` with an ASGI application and a broker in memory."""

from tests.consumers.client import Client
from tests.consumers.consumer import Consumer


def talk(client: Client) -> None:
    """A health check, and a request that publishes a message."""
    client.get("/health")
    client.get("/health?twice=1")
    client.post("/publish", content="hello")
    client.get("/nothing", 404)


#: Upstream ends workers that are busy with their imports for five seconds, and starts others.
SLOW_START = (r"Waiting for child process \[", r"Child process \[PID\] died")

CONSUMERS = [
    Consumer(
        name,
        "programs",
        "faststream",
        ("faststream", "run", "faststream_app:app", "--host", "127.0.0.1", "--port", "{port}", *options),
        talk,
        ready="(?s)startup complete" + ".*startup complete" * bool(options),
        unordered=bool(options),
        noise=SLOW_START,
        momentary={r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+": "TIME"},
    )
    for name, options in (("faststream", ()), ("faststream, two workers", ("--workers", "2")))
]
