"""Non-blocking client connections on one epoll, for the generators written here.

No event loop library: its timers are too coarse to place a request within 0.1 ms. The loop spins when something is due
soon, which is right for a client that has a core to itself.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Iterator

from bench.errors import LoadError

READ_SIZE = 262144
# poll() waits in whole milliseconds; for shorter times it is called repeatedly.
SPIN = 0.002


class Connection:
    """One client connection; `out` holds bytes the kernel has not taken yet, `left` counts answers to come."""

    __slots__ = ("left", "out", "reader", "since", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.out = b""
        self.left = 0
        self.since = 0.0
        self.reader: object = None


class Client:
    """A set of connections to one server on loopback; with `tls` encrypted, whatever the certificate."""

    def __init__(self, port: int, *, tls: bool = False) -> None:
        self.port = port
        self._context = trusting() if tls else None
        self.connections: dict[int, Connection] = {}
        self._poll = select.epoll()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def connect(self, timeout: float = 10.0) -> Connection:
        """Open one more connection, handshake included; raises OSError when the server does not take it."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            sock = self._context.wrap_socket(sock)
        sock.setblocking(False)
        connection = Connection(sock)
        self.connections[sock.fileno()] = connection
        self._poll.register(sock.fileno(), select.EPOLLIN)
        return connection

    def begin(self) -> Connection:
        """Begin to connect without waiting; `out` is sent once connected.

        Raises OSError when the server refuses at once. A connection that fails later is at its end.
        """
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock.connect(("127.0.0.1", self.port))
        except BlockingIOError:
            pass
        except OSError:
            sock.close()
            raise
        connection = Connection(sock)
        self.connections[sock.fileno()] = connection
        self._poll.register(sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
        return connection

    def discard(self, connection: Connection) -> None:
        """Close a connection and forget it."""
        number = connection.sock.fileno()
        if self.connections.pop(number, None) is not None:
            with contextlib.suppress(OSError):
                self._poll.unregister(number)
        connection.sock.close()

    def send(self, connection: Connection, data: bytes) -> None:
        """Send, keeping what the kernel does not take; raises OSError when the connection is gone."""
        if connection.out:
            connection.out += data
            return
        try:
            sent = connection.sock.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError):
            sent = 0
        if sent < len(data):
            connection.out = data[sent:]
            self._poll.modify(connection.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def wait(self, until: float) -> Iterator[tuple[Connection, bytes | None]]:
        """What arrived, waiting at most until a moment of `time.perf_counter`.

        Yields connections with their bytes; None when the connection is at its end.
        """
        left = until - time.perf_counter()
        for number, event in self._poll.poll(max(0.0, left - 0.001) if left > SPIN else 0.0):
            connection = self.connections.get(number)
            if connection is None:
                continue
            if event & select.EPOLLOUT and not self._flush(connection):
                yield connection, None
            elif event & ~select.EPOLLOUT:
                yield connection, self._read(connection)

    def close(self) -> None:
        """Close everything."""
        for connection in list(self.connections.values()):
            self.discard(connection)
        self._poll.close()

    def _flush(self, connection: Connection) -> bool:
        data, connection.out = connection.out, b""
        self._poll.modify(connection.sock.fileno(), select.EPOLLIN)
        try:
            self.send(connection, data)
        except OSError:
            return False
        return True

    @staticmethod
    def _read(connection: Connection) -> bytes | None:
        sock = connection.sock
        try:
            data = sock.recv(READ_SIZE)
            # What TLS has read ahead is not seen by epoll.
            while data and isinstance(sock, ssl.SSLSocket) and sock.pending():
                data += sock.recv(READ_SIZE)
            return data or None
        except (BlockingIOError, ssl.SSLWantReadError):
            return b""
        except OSError:
            return None


def trusting() -> ssl.SSLContext:
    """Return a context that takes every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def open_all(client: Client, count: int) -> list[Connection]:
    """Open many connections; raises LoadError saying how many the server took when it does not take all."""
    found: list[Connection] = []
    for _ in range(count):
        try:
            found.append(client.connect())
        except OSError as exc:
            raise LoadError(f"connection {len(found) + 1} of {count}: {exc}") from None
    return found
