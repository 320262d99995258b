"""First packets of many clients that never go on, so that the server asks new ones for their address (Retry)."""

from __future__ import annotations

import socket
import subprocess
import sys
from urllib.parse import urlsplit


def flood(base: str, count: int) -> None:
    """Send them, by aioquic of the clients' environment."""
    from tests.http3_interop.clients import PYTHON

    subprocess.run([PYTHON, __file__, base, str(count)], check=True)


def _send(base: str, count: int) -> None:
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.connection import QuicConnection

    url = urlsplit(base)
    address = (url.hostname, url.port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _ in range(count):
            connection = QuicConnection(configuration=QuicConfiguration(is_client=True, alpn_protocols=["h3"]))
            connection.connect(address, now=0.0)
            for datagram, _ in connection.datagrams_to_send(now=0.0):
                sock.sendto(datagram, address)


if __name__ == "__main__":
    _send(sys.argv[1], int(sys.argv[2]))
