"""An application that keeps what clients ask of another, for a load that is like theirs.

`BENCH_RECORDED` names the other, `BENCH_RECORDING` the file that is written. The harness does not import this
module: it runs where the recorded application runs.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

ORIGIN = b"http://example.com"
# What belongs to a connection, or to one request.
OWN = (b"host", b"connection", b"content-length", b"transfer-encoding")

module, _, name = os.environ["BENCH_RECORDED"].partition(":")
recorded = getattr(importlib.import_module(module), name)
requests: list[tuple[str, str, list[list[str]], str, int]] = []


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Pass everything on, and keep requests with their answer's status."""
    if scope["type"] == "lifespan":
        await recorded(scope, receive, send)
        return
    body, status = bytearray(), 0

    async def reading() -> Any:
        message = await receive()
        body.extend(message.get("body", b""))
        return message

    async def sending(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        await send(message)

    await recorded(scope, reading, sending)
    if scope["type"] == "http":
        target = scope["raw_path"].decode() + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
        origin = b"http://" + dict(scope["headers"])[b"host"]
        # The address is another one each time.
        plain = [(key, value.replace(origin, ORIGIN)) for key, value in scope["headers"] if key not in OWN]
        fields = [[key.decode(), value.decode("latin-1")] for key, value in plain]
        requests.append((scope["method"], target, fields, body.decode(), status))
        write(Path(os.environ["BENCH_RECORDING"]))


def write(path: Path) -> None:
    """Header fields that several requests have are written once."""
    sets: list[list[list[str]]] = []
    for request in requests:
        if request[2] not in sets:
            sets.append(request[2])
    rows = [[method, target, sets.index(fields), body, status] for method, target, fields, body, status in requests]
    lines = [",\n".join("  " + json.dumps(row) for row in part) for part in (sets, rows)]
    path.write_text('{"fields": [\n' + lines[0] + '\n],\n"requests": [\n' + lines[1] + "\n]}\n", encoding="utf-8")
