"""A client of HTTP/3 by niquests, whose QUIC is qh3. See `clients` for its arguments and its output."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import niquests  # type: ignore[import-not-found,unused-ignore]

UNSUPPORTED = 3


def told(response: Any) -> dict[str, Any]:
    """What the runner has of a response."""
    assert response.http_version == 30, response.http_version
    content = response.content
    return {"status": response.status_code, "length": len(content), "digest": hashlib.sha256(content).hexdigest()}


def session(base: str, **settings: Any) -> Any:
    """A session that knows that the server has HTTP/3."""
    url = urlsplit(base)
    # Or it changes to HTTP/2 where HTTP/3 takes long.
    settings |= {"disable_http1": True, "disable_http2": True}
    made = niquests.Session(quic_cache_layer={(url.hostname, url.port): (url.hostname, url.port)}, **settings)
    made.verify, made.trust_env = False, False
    return made


def perform(operation: str, base: str, *arguments: str) -> dict[str, Any]:
    """Return the result."""
    url = base + (arguments or [""])[-1]
    if operation == "get":
        with session(base, multiplexed=int(arguments[0]) > 1) as client:
            if int(arguments[0]) > 1:
                client.get(base + "/pid").content  # noqa: B018 - the connection is there
            responses = [client.get(url, timeout=60) for _ in range(int(arguments[0]))]
            if len(responses) > 1:
                client.gather()
            return {"responses": [told(response) for response in responses]}
    if operation == "post":
        with session(base) as client:
            return {"responses": [told(client.post(url, data=bytes(int(arguments[0])), timeout=60))]}
    if operation == "load":
        count, failures, end = 0, [], time.monotonic() + float(arguments[0])
        with session(base) as client:
            while time.monotonic() < end:
                try:
                    told(client.get(url, timeout=20))
                    count += 1
                except niquests.exceptions.RequestException as exc:
                    failures.append(str(exc))
        return {"count": count, "failures": failures}
    if operation == "again":
        with session(base) as client:
            client.get(url).content  # noqa: B018 - reads it
            print("ready", flush=True)
            sys.stdin.readline()
            begin = time.monotonic()
            try:
                return {"responses": [told(client.get(url, timeout=20))]}
            except niquests.exceptions.RequestException as exc:
                return {"error": str(exc), "seconds": time.monotonic() - begin}
    sys.exit(UNSUPPORTED)


if __name__ == "__main__":
    print(json.dumps(perform(*sys.argv[1:])))
