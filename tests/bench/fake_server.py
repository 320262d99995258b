"""A server whose behaviour is known: run as `python fake_server.py PORT key=value…`.

delay=SECONDS before each answer; error_every=N answers 500; close_every=N closes instead of answering;
short_every=N sends one byte less than it promises to others; stall_at=N stops answering everybody for stall=SECONDS
when the Nth request comes; die_at=N ends the process; closing=1 answers once per connection; record=1 keeps the request
lines in the file `seen`; polls=1 never sleeps. Paths: `/count` tells how many requests came before.
"""

from __future__ import annotations

import asyncio
import os
import sys

BODY = b"Hello, World!"


class Known:
    """The behaviour, and how many requests came."""

    def __init__(self, options: dict[str, float]) -> None:
        self.options = options
        self.requests = 0
        self.resume = 0.0

    def every(self, name: str, number: int) -> bool:
        period = self.options.get(name, 0)
        return bool(period) and number % period == 0

    async def answer(self, head: bytes) -> bytes | None:
        if head.startswith(b"GET /count "):
            body = b"%d" % self.requests
            return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        if self.options.get("record"):
            with open("seen", "ab") as file:
                file.write(head.partition(b"\r\n")[0] + b"\n")
        self.requests += 1
        number = self.requests  # Others come while this one waits.
        loop = asyncio.get_running_loop()
        if number == self.options.get("die_at"):
            print("dying as told", flush=True)
            os._exit(3)
        if number == self.options.get("stall_at"):
            self.resume = loop.time() + self.options["stall"]
        if self.resume > loop.time():
            await asyncio.sleep(self.resume - loop.time())
        if self.options.get("delay"):
            await asyncio.sleep(self.options["delay"])
        if self.every("close_every", number):
            return None
        status = b"500 No" if self.every("error_every", number) else b"200 OK"
        body = BODY[1:] if self.every("short_every", number) else BODY
        close = b"connection: close\r\n" if self.options.get("closing") else b""
        return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, close, len(body), body)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                answer = await self.answer(head)
                if answer is None:
                    break
                writer.write(answer)
                if b"connection: close" in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


async def main() -> None:
    options = dict(argument.split("=") for argument in sys.argv[2:])
    known = Known({name: float(value) for name, value in options.items()})
    server = await asyncio.start_server(known.serve, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    if known.options.get("polls"):
        while True:
            await asyncio.sleep(0)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
