"""The command `uvicorn` with a listener in Python in place of the native one: it answers which worker has a datagram.

The answer is JSON. `python -m tests.http3_server ARGUMENTS`.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn._native as native

if os.path.exists(os.environ.get("BROKEN_IF_EXISTS", "")):
    raise RuntimeError("a broken release")


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the process id; for `--lifespan off`."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})


class HTTP3Listener:
    """Answers datagrams with the process, the slot and the generation."""

    def __init__(
        self, *, poller: Any, descriptors: Sequence[int], slot: int, generation: int, secret: bytes, **others: Any
    ) -> None:
        assert isinstance(poller, native.Poller)
        assert others["context"].rustls is not None
        assert callable(others["factory"])
        self._loop = asyncio.get_running_loop()
        self._sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        self._told = {"pid": os.getpid(), "slot": slot, "generation": generation, "secret": secret.hex()}
        self._is_leaving = False

    def resume(self) -> None:
        """Read."""
        for sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._read, sock)

    def _read(self, sock: socket.socket) -> None:
        datagram, client = sock.recvfrom(2048)
        told = {**self._told, "size": len(datagram), "is_ignored": self._is_leaving}
        sock.sendto(json.dumps(told).encode(), client)

    def stop_accepting(self, is_opened: Callable[[], object]) -> None:
        """Say so from now on."""
        self._is_leaving = True
        is_opened()

    def close(self) -> None:
        """Read no more."""
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()


setattr(native, "HTTP3Listener", HTTP3Listener)  # noqa: B010

if __name__ == "__main__":
    from uvicorn.main import main

    main()
