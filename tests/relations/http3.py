"""A connection of HTTP/3 for clients that say what they have to say in frames of HTTP/2."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Any

import hpack
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, StopSendingReceived, StreamReset

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM = 0, 1, 3
_END_HEADERS = 4
_REQUEST_CANCELLED = 0x10C
_LARGE = 2**40


class HTTP3Socket:
    """Takes and gives frames of HTTP/2 like a socket, and sends and receives them over HTTP/3. No call ever waits.

    What it gives are HEADERS, DATA and RST_STREAM.
    """

    def __init__(self, address: Any) -> None:
        self._address = address
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.connect(address)
        self._sock.setblocking(False)
        configuration = QuicConfiguration(
            is_client=True,
            alpn_protocols=["h3"],
            verify_mode=ssl.CERT_NONE,
            server_name="localhost",
            idle_timeout=600,
            max_data=_LARGE,
            max_stream_data=_LARGE,
        )
        self._quic = QuicConnection(configuration=configuration)
        self._quic.connect(address, time.monotonic())
        self._http: H3Connection | None = None
        self._decoder, self._encoder = hpack.Decoder(), hpack.Encoder()
        self._is_over = False
        self._stopped: set[int] = set()
        self._input = b""
        self._output = b""
        self._push()

    def _push(self) -> None:
        for data, _ in self._quic.datagrams_to_send(time.monotonic()):
            with contextlib.suppress(OSError):  # what is lost is sent again
                self._sock.send(data)

    def _pull(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            while True:
                self._quic.receive_datagram(self._sock.recv(65536), self._address, time.monotonic())
        timer = self._quic.get_timer()
        if timer is not None and timer <= time.monotonic():
            self._quic.handle_timer(time.monotonic())
        while (event := self._quic.next_event()) is not None:
            if isinstance(event, ConnectionTerminated):
                self._is_over = True
            elif isinstance(event, HandshakeCompleted):
                self._http = H3Connection(self._quic)
                # It does not know that the length of a response to HEAD is that of no content.
                setattr(self._http, "_check_content_length", lambda stream: None)  # noqa: B010
            elif isinstance(event, StopSendingReceived):
                self._stopped.add(event.stream_id)
            elif isinstance(event, StreamReset):
                self._give(_RST_STREAM, 0, event.stream_id, bytes(4))
            if self._http is not None:
                for one in self._http.handle_event(event):
                    if isinstance(one, DataReceived):
                        self._give(_DATA, one.stream_ended, one.stream_id, one.data)
                    elif isinstance(one, HeadersReceived):
                        fields = self._encoder.encode(one.headers)
                        self._give(_HEADERS, _END_HEADERS | one.stream_ended, one.stream_id, fields)
        self._push()

    def _give(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + (stream // 2 + 1).to_bytes(4, "big")
        self._output += head + payload

    def send(self, data: bytes) -> int:
        """Send all of it, or none before the handshake is done."""
        self._pull()
        if self._is_over:
            raise BrokenPipeError
        if self._http is None:
            raise BlockingIOError
        self._input += data
        self._input = self._input.removeprefix(PREFACE)
        while len(self._input) >= 9 and len(self._input) >= (end := 9 + int.from_bytes(self._input[:3], "big")):
            kind, flags = self._input[3:5]
            stream = 2 * (int.from_bytes(self._input[5:9], "big") - 1)
            self._take(self._http, kind, flags, stream, self._input[9:end])
            self._input = self._input[end:]
        self._push()
        return len(data)

    def _take(self, http: H3Connection, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if stream in self._stopped:
            return
        if kind == _HEADERS:
            http.send_headers(stream, self._decoder.decode(payload, raw=True), bool(flags & 1))
        elif kind == _DATA:
            http.send_data(stream, payload, bool(flags & 1))
        elif kind == _RST_STREAM:
            self._stopped.add(stream)
            with contextlib.suppress(ValueError):  # it is over
                self._quic.reset_stream(stream, _REQUEST_CANCELLED)
                self._quic.stop_stream(stream, _REQUEST_CANCELLED)

    def recv(self, size: int) -> bytes:
        """Take what there is: nothing at the end."""
        self._pull()
        data, self._output = self._output[:size], self._output[size:]
        if not data and not self._is_over:
            raise BlockingIOError
        return data

    def setsockopt(self, *arguments: Any) -> None:
        """Options are those of TCP."""

    def shutdown(self, how: int) -> None:
        """Only streams end by halves."""

    def close(self) -> None:
        """Close the connection: the server is told."""
        self._quic.close()
        self._push()
        self._sock.close()
