"""An agent that uses the tools, with the client of the protocol's own SDK."""

from __future__ import annotations

import asyncio
import random
import sys

from mcp import Client


async def main(base: str) -> None:
    """One conversation."""
    chance = random.Random(1)
    async with Client(f"{base}/mcp") as client:
        for turn in range(60):
            await client.call_tool("statistics_of", {"numbers": [chance.randint(1, 999) for _ in range(20)]})
            first, second = (f"20{chance.randint(10, 29)}-0{chance.randint(1, 9)}-1{turn % 10}" for _ in range(2))
            await client.call_tool("days_between", {"first": first, "second": second})
            await client.call_tool("search", {"word": chance.choice(["wind", "note-7", "west"]), "limit": turn % 9 + 1})
            if turn % 5 == 4:
                await client.list_tools()
                await client.read_resource(f"notes://note-{turn + 1}")


asyncio.run(main(sys.argv[1]))
