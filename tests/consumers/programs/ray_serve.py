"""Ray Serve: `serve run`, whose proxy is a server on sockets of its own in an actor."""

import signal

from tests.consumers.client import Client
from tests.consumers.consumer import Consumer
from tests.utils import wait_for


def talk(client: Client) -> None:
    """Requests to a FastAPI ingress, streaming, a WebSocket."""
    wait_for(lambda: client.look("/hello"), timeout=600)
    client.get("/hello?name=you")
    client.get("/hello")
    client.post("/echo", json={"a": [1, 2, 3], "b": "x" * 50_000})
    client.get("/stream")
    client.get("/nothing", 404)
    client.get("/-/healthz")
    client.get("/-/routes")
    session = client.websocket("/ws")
    session.send("hello")
    session.receive()
    session.send("bye")
    session.finish()


CONSUMERS = [
    Consumer(
        "Ray Serve",
        "models",
        "ray",
        ("serve", "run", "serve.yaml"),
        talk,
        ready="Submitted deploy config successfully",
        environ={
            "RAY_ADDRESS": "local",
            "RAY_AUTH_MODE": "disabled",
            "RAY_TMPDIR": "{directory}/home",
            "RAY_USAGE_STATS_ENABLED": "0",
            # A start may take minutes where there is something else to do.
            "RAY_raylet_start_wait_time_s": "600",
            "RAY_agent_register_timeout_ms": "600000",
        },
        momentary={
            r"pid=\d+": "pid=PID",
            r"(serve|controller build_web_| web_Web) ?\w+": r"\1 ID",
            r"on node \w+": "on node ID",
            r"\d+\.\d+ms": "TIME",
            r"received at time=\d+ on cpu \d+": "received",
        },
        # What the cluster does beside serving, told as fast as it is read.
        noise=(r"\(raylet\)", r"\(ServeController", "Got updated endpoints", "SharedRouter", "autoscaler", " @ +0x"),
        unordered=True,
        # Told to end, it aborts while it says goodbye to its cluster, or does not; with upstream, too.
        alike=(-signal.SIGABRT, signal.SIGTERM),
    )
]
