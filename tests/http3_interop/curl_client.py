"""A client of HTTP/3 by pycurl: libcurl with ngtcp2 and OpenSSL. See `clients` for its arguments and its output."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from io import BytesIO
from typing import Any

import pycurl  # type: ignore[import-untyped,unused-ignore]

UNSUPPORTED = 3
HTTP_3_ONLY = 31
EARLY_DATA = 1 << 6  # CURLSSLOPT_EARLYDATA


class Request:
    """One request; `handle` can perform several, one after another."""

    def __init__(self, url: str, body: bytes | None = None) -> None:
        self.handle: Any = pycurl.Curl()
        self.content = BytesIO()
        options = {
            pycurl.URL: url,
            pycurl.HTTP_VERSION: HTTP_3_ONLY,
            pycurl.SSL_VERIFYPEER: 0,
            pycurl.SSL_VERIFYHOST: 0,
            pycurl.WRITEFUNCTION: self.content.write,
            pycurl.TIMEOUT: 60,
            pycurl.PIPEWAIT: 1,
        }
        if body is not None:
            options |= {pycurl.POST: 1, pycurl.READDATA: BytesIO(body), pycurl.POSTFIELDSIZE_LARGE: len(body)}
        for option, value in options.items():
            self.handle.setopt(option, value)

    def told(self) -> dict[str, Any]:
        """What the runner has of the response."""
        assert self.handle.getinfo(pycurl.INFO_HTTP_VERSION) == 30
        content = self.content.getvalue()
        digest = hashlib.sha256(content).hexdigest()
        return {"status": self.handle.getinfo(pycurl.RESPONSE_CODE), "length": len(content), "digest": digest}

    def perform(self) -> dict[str, Any]:
        """The response."""
        self.content.seek(0)
        self.content.truncate()
        self.handle.perform()
        return self.told()


def together(url: str, count: int) -> list[dict[str, Any]]:
    """The responses of requests on one connection."""
    multi: Any = pycurl.CurlMulti()
    multi.setopt(pycurl.M_PIPELINING, 2)  # CURLPIPE_MULTIPLEX
    multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, 1)
    requests = [Request(url) for _ in range(count)]
    for request in requests:
        multi.add_handle(request.handle)
    running = count
    while running:
        _, running = multi.perform()
        multi.select(0.1)
    _, _, failed = multi.info_read(count)
    assert not failed, failed
    return [request.told() for request in requests]


def perform(operation: str, base: str, *arguments: str) -> dict[str, Any]:
    """Return the result."""
    url = base + (arguments or [""])[-1]
    if operation == "get":
        return {"responses": together(url, int(arguments[0]))}
    if operation == "post":
        return {"responses": [Request(url, bytes(int(arguments[0]))).perform()]}
    request = Request(url)
    if operation == "chacha20":
        request.handle.setopt(pycurl.TLS13_CIPHERS, "TLS_CHACHA20_POLY1305_SHA256")
        return {"responses": [request.perform()]}
    if operation == "load":
        count, failures, end = 0, [], time.monotonic() + float(arguments[0])
        while time.monotonic() < end:
            try:
                request.perform()
                count += 1
            except pycurl.error as exc:
                failures.append(str(exc))
        return {"count": count, "failures": failures}
    if operation in ("resume", "early"):
        if operation == "early":
            request.handle.setopt(pycurl.SSL_OPTIONS, EARLY_DATA)
        share: Any = pycurl.CurlShare()
        share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_SSL_SESSION)
        request.handle.setopt(pycurl.SHARE, share)
        request.perform()
        request.handle.setopt(pycurl.FRESH_CONNECT, 1)
        return {"responses": [request.perform()]}
    if operation == "again":
        request.perform()
        print("ready", flush=True)
        sys.stdin.readline()
        begin = time.monotonic()
        try:
            return {"responses": [request.perform()]}
        except pycurl.error as exc:
            return {"error": str(exc), "seconds": time.monotonic() - begin}
    sys.exit(UNSUPPORTED)


if __name__ == "__main__":
    print(json.dumps(perform(*sys.argv[1:])))
