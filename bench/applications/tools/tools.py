"""A server of the Model Context Protocol over HTTP: tools, a resource, a prompt; no session, answers as JSON."""

from __future__ import annotations

import statistics
from datetime import date

from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

server = MCPServer("benchmark")
NOTES = {f"note-{number}": f"On day {number} the wind came from the west." for number in range(1, 101)}


@server.tool()
def statistics_of(numbers: list[float]) -> dict[str, float]:
    """Mean, median and standard deviation of some numbers."""
    return {
        "mean": statistics.fmean(numbers),
        "median": statistics.median(numbers),
        "deviation": statistics.pstdev(numbers),
    }


@server.tool()
def days_between(first: date, second: date) -> int:
    """How many days are between two dates."""
    return abs((second - first).days)


@server.tool()
def search(word: str, limit: int = 5) -> list[str]:
    """Names of the notes that have a word in them."""
    return [name for name, text in NOTES.items() if word in text or word in name][:limit]


@server.resource("notes://{name}")
def note(name: str) -> str:
    """One note."""
    return NOTES[name]


@server.prompt()
def summary(name: str) -> str:
    """Ask for a summary of a note."""
    return f"Summarise in one sentence: {NOTES[name]}"


application = server.streamable_http_app(
    stateless_http=True,
    json_response=True,
    transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
)
