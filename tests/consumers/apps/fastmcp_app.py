"""An MCP server with a tool, a resource and a custom route."""

from fastmcp import FastMCP
from starlette.responses import PlainTextResponse

mcp = FastMCP("consumer")


@mcp.tool
def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


@mcp.resource("data://greeting")
def greeting() -> str:
    return "Hello"


@mcp.custom_route("/health", methods=["GET"])
async def health(request):
    return PlainTextResponse("ok")
