"""fastmcp: `fastmcp run --transport http`, a tool over streamable HTTP."""

from typing import Any

from tests.consumers.client import Client
from tests.consumers.consumer import Consumer

ACCEPT = {"accept": "application/json, text/event-stream"}


def talk(client: Client) -> None:
    """A session: initialize, list, call, read, a call that fails, the end of it."""
    client.get("/health")
    client.get("/mcp", 400)
    client.post("/mcp", 400, headers=ACCEPT, content="{}")

    session = dict(ACCEPT)
    number = iter(range(100))

    def call(method: str, **parameters: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": next(number), "method": method, "params": parameters}
        return client.post("/mcp", headers=session, json=message)

    capabilities = {"capabilities": {}, "clientInfo": {"name": "consumer", "version": "1"}}
    answer = call("initialize", protocolVersion="2025-06-18", **capabilities)
    session["mcp-session-id"] = answer.headers["mcp-session-id"]
    client.post("/mcp", 202, headers=session, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    call("tools/list")
    call("tools/call", name="add", arguments={"first": 2, "second": 3})
    call("tools/call", name="add", arguments={"first": "two"})
    call("resources/read", uri="data://greeting")
    client.request("DELETE", "/mcp", headers=session)


CONSUMERS = [
    Consumer(
        "fastmcp",
        "programs",
        "fastmcp",
        ("fastmcp", "run", "fastmcp_app.py", "--transport", "http", "--port", "{port}", "--no-banner"),
        talk,
        environ={"FASTMCP_CHECK_FOR_UPDATES": "off"},
        # The time is printed where it is another than that of the line before.
        momentary={r"^(\[\d\d/\d\d/\d\d \d\d:\d\d:\d\d\]| {19}) ": ""},
    )
]
