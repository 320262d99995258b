"""Loads a page with its objects by libcurl, over HTTP/3 and HTTP/2 by turns: BASE SIZE COUNT PAIRS. Prints seconds."""

from __future__ import annotations

import json
import sys
import time
from io import BytesIO
from typing import Any

import pycurl  # type: ignore[import-untyped,unused-ignore]

VERSIONS = {"3": 31, "2": 4}  # HTTP/3 alone; HTTP/2 over TLS


def request(url: str, version: str) -> Any:
    """A handle for this request."""
    handle: Any = pycurl.Curl()
    handle.content = BytesIO()
    options = {
        pycurl.URL: url,
        pycurl.HTTP_VERSION: VERSIONS[version],
        pycurl.SSL_VERIFYPEER: 0,
        pycurl.SSL_VERIFYHOST: 0,
        pycurl.WRITEFUNCTION: handle.content.write,
        pycurl.PIPEWAIT: 1,
        pycurl.TIMEOUT: 60,
    }
    for option, value in options.items():
        handle.setopt(option, value)
    return handle


def together(multi: Any, handles: list[Any], size: int) -> None:
    """Perform these requests at the same time."""
    for handle in handles:
        multi.add_handle(handle)
    running = len(handles)
    while running:
        _, running = multi.perform()
        wait = multi.timeout()  # milliseconds, of timers such as those of QUIC
        multi.select(0.1 if wait < 0 else min(wait / 1000, 0.1))
    for handle in handles:
        multi.remove_handle(handle)
        assert len(handle.content.getvalue()) == size, handle.errstr()


def load(base: str, size: int, count: int, version: str) -> tuple[float, float]:
    """The time of a page on a new connection, and of another one on the same."""
    multi: Any = pycurl.CurlMulti()
    multi.setopt(pycurl.M_PIPELINING, 2)  # CURLPIPE_MULTIPLEX
    multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, 1)
    found = []
    for _ in range(2):
        begin = time.perf_counter()
        together(multi, [request(f"{base}/bytes/{size}", version)], size)
        together(multi, [request(f"{base}/bytes/{size}?{number}", version) for number in range(count)], size)
        found.append(time.perf_counter() - begin)
    return found[0], found[1]


if __name__ == "__main__":
    address, object_size, objects, pairs = sys.argv[1], *map(int, sys.argv[2:])
    times: dict[str, list[tuple[float, float]]] = {"2": [], "3": []}
    for number in range(pairs):
        for name in ("3", "2") if number % 2 else ("2", "3"):
            times[name].append(load(address, object_size, objects, name))
    print(json.dumps(times))
