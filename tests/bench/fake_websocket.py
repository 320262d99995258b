"""A WebSocket server whose behaviour is known, in threads of this process: what a client under test is to notice."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# What is sent back for a message: its first byte (with FIN and RSV1) and payload.
Answer = Callable[[int, bytes], bytes]


def plain(first: int, payload: bytes) -> bytes:
    """One frame of a server."""
    size = len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    if size < 65536:
        return bytes((first, 126)) + size.to_bytes(2, "big") + payload
    return bytes((first, 127)) + size.to_bytes(8, "big") + payload


def fragments(first: int, payload: bytes) -> bytes:
    """A message in three pieces, a ping and a pong between them."""
    third = len(payload) // 3
    pieces = plain(first & 0x7F, payload[:third]) + plain(0x89, b"well?") + plain(0, payload[third : 2 * third])
    return pieces + plain(0x8A, b"") + plain(0x80, payload[2 * third :])


def compressing() -> Answer:
    """Compresses with the context of the messages before, those of this connection."""
    compressor = zlib.compressobj(wbits=-15)

    def answer(first: int, payload: bytes) -> bytes:
        assert first & 0x40
        found = zlib.decompressobj(wbits=-15).decompress(payload + b"\0\0\xff\xff")
        data = compressor.compress(found) + compressor.flush(zlib.Z_SYNC_FLUSH)
        return plain(first, data[:-4])

    return answer


@contextlib.contextmanager
def running(
    make: Callable[[], Answer], *, delay: float = 0.0, accept: bytes = b"", extension: str = ""
) -> Iterator[int]:
    """Serves until left; gives the port. Each connection has an answer of its own, and waits before each by a delay."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=serve, args=(client,), daemon=True).start()

        def serve(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError, EOFError):
                stream = client.makefile("rb")
                key = b""
                while (line := stream.readline()) not in (b"\r\n", b""):
                    name, _, value = line.partition(b": ")
                    key = value.strip() if name == b"Sec-WebSocket-Key" else key
                token = accept or base64.b64encode(hashlib.sha1(key + GUID).digest())
                more = f"Sec-WebSocket-Extensions: {extension}\r\n".encode() if extension else b""
                head = b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: %b\r\n%b\r\n" % (token, more)
                answer = make()
                # In two writes: a client has to put it together.
                client.sendall(head[:20])
                client.sendall(head[20:])
                while (frame := read(stream.read))[0] & 15 != 8:
                    if frame[0] & 15 != 10:
                        time.sleep(delay)
                        client.sendall(answer(*frame))
                client.sendall(plain(0x88, frame[1]))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def read(take: Callable[[int], bytes]) -> tuple[int, bytes]:
    """One frame of a client, unmasked; raises EOFError at the end."""

    def exactly(size: int) -> bytes:
        data = take(size)
        if len(data) < size:
            raise EOFError
        return data

    first, size = exactly(2)
    assert size & 0x80, "clients mask"
    size &= 0x7F
    if size >= 126:
        size = int.from_bytes(exactly(2 if size == 126 else 8), "big")
    mask = exactly(4)
    data = exactly(size)
    stream = (mask * (size // 4 + 1))[:size]
    return first, bytes(one ^ other for one, other in zip(data, stream, strict=True))
