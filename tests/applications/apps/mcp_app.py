"""The MCP SDK's server over streamable HTTP: tools, resources, progress reported while a call runs."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("tests", log_level="WARNING")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(upto: int, context: Context) -> str:
    """Count, reporting each number."""
    for number in range(upto):
        await context.report_progress(number + 1, upto)
    return f"counted to {upto}"


@server.resource("greeting://{name}")
def greeting(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}"


app = server.streamable_http_app()
