"""Closed loop through httpx: the driver that is always there. It is slow: its throughput is mostly its own."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
import time
from collections import Counter

import httpx

from bench.load import own
from bench.load.base import Aim, ClosedLoop
from bench.model import Burst, Load

TIMEOUT = 10.0


class HttpxGenerator(own.Own, ClosedLoop):
    """The generator `httpx`."""

    name = "httpx"
    module = "bench.load.httpx_driver"


class Driver:
    """One burst: as many tasks as connections, each sending its next request when the last one is answered."""

    def __init__(self, aim: Aim, load: Load) -> None:
        self.aim, self.load = aim, load
        self.latencies: list[float] = []
        self.errors: Counter[str] = Counter()
        self.received = 0

    async def run(self) -> Burst:
        """Drive for the load's seconds.

        Each connection is a client of its own: the pool of a shared one takes longer for each request the more
        connections it has, which would be all that is measured at a hundred.
        """
        # Loading certificates takes 20 ms for each client, and nothing here is encrypted.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        one = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    httpx.AsyncClient(limits=one, timeout=TIMEOUT, trust_env=False, verify=context)
                )
                for _ in range(self.load.connections)
            ]
            begun = time.perf_counter()
            end = begun + self.load.seconds
            await asyncio.gather(*(self._one(client, end) for client in clients))
            seconds = time.perf_counter() - begun
        return own.burst(self.latencies, seconds, self.errors, self.received)

    async def _one(self, client: httpx.AsyncClient, end: float) -> None:
        aim = self.aim
        while (begun := time.perf_counter()) < end:
            try:
                answer = await client.request(aim.method, aim.url, headers=dict(aim.headers), content=aim.body or None)
            except httpx.TimeoutException:
                self.errors["timeout"] += 1
                continue
            except httpx.ConnectError:
                self.errors["connect"] += 1
                return
            except httpx.HTTPError:
                self.errors["read"] += 1
                continue
            self._count(answer, time.perf_counter() - begun)

    def _count(self, answer: httpx.Response, seconds: float) -> None:
        self.received += len(answer.content)
        if answer.status_code >= 300:
            self.errors["status"] += 1
        elif self.aim.response_bytes is not None and len(answer.content) != self.aim.response_bytes:
            self.errors["length"] += 1
        else:
            self.latencies.append(seconds)


if __name__ == "__main__":
    sys.exit(own.main(sys.argv, lambda aim, load: asyncio.run(Driver(aim, load).run())))
