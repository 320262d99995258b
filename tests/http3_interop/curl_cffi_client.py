"""A client of HTTP/3 by curl_cffi (ngtcp2 and BoringSSL). See `clients` for its arguments and its output."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from typing import Any

from curl_cffi import CurlHttpVersion, CurlMOpt  # type: ignore[import-not-found,unused-ignore]
from curl_cffi.requests import AsyncSession  # type: ignore[import-not-found,unused-ignore]
from curl_cffi.requests.exceptions import RequestException  # type: ignore[import-not-found,unused-ignore]

UNSUPPORTED = 3


def told(response: Any) -> dict[str, Any]:
    """What the runner has of a response."""
    assert response.http_version == 30, response.http_version
    content = response.content
    return {"status": response.status_code, "length": len(content), "digest": hashlib.sha256(content).hexdigest()}


async def perform(operation: str, base: str, *arguments: str) -> dict[str, Any]:
    """Return the result."""
    url = base + (arguments or [""])[-1]
    version: Any = CurlHttpVersion.V3ONLY
    async with AsyncSession(http_version=version, verify=False, timeout=60, max_clients=100) as client:
        if operation == "get":
            count = int(arguments[0])
            if count > 1:
                client.acurl.setopt(CurlMOpt.MAX_HOST_CONNECTIONS, 1)
                await client.get(base + "/pid")
            return {"responses": [told(one) for one in await asyncio.gather(*(client.get(url) for _ in range(count)))]}
        if operation == "post":
            return {"responses": [told(await client.post(url, data=bytes(int(arguments[0]))))]}
        if operation == "load":
            count, failures, end = 0, [], time.monotonic() + float(arguments[0])
            while time.monotonic() < end:
                try:
                    await client.get(url)
                    count += 1
                except RequestException as exc:
                    failures.append(str(exc))
            return {"count": count, "failures": failures}
        if operation == "again":
            await client.get(url)
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            begin = time.monotonic()
            try:
                return {"responses": [told(await client.get(url))]}
            except RequestException as exc:
                return {"error": str(exc), "seconds": time.monotonic() - begin}
    sys.exit(UNSUPPORTED)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(perform(*sys.argv[1:]))))
