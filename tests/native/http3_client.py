"""A client of HTTP/3 by aioquic, and a listener that serves it in this process."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trustme

pytest.importorskip("aioquic")

from aioquic.asyncio.client import connect as connect_quic
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StopSendingReceived, StreamDataReceived, StreamReset

from tests.native.test_encrypted import RustlsContext, rustls_config
from tests.protocols.harness import make_config
from tests.utils import PATIENCE, wait_until
from uvicorn._native import HTTP3Listener, Poller
from uvicorn.metrics.page import Page
from uvicorn.protocols.http.native_impl import NativeProtocol
from uvicorn.serving.state import ServerState
from uvicorn.tls.connection import TLSConnection

NO_ERROR, _, INTERNAL_ERROR = range(0x100, 0x103)
CONTROL = 3
"""The number of the server's control stream."""
REQUEST_REJECTED, REQUEST_CANCELLED, _, MESSAGE_ERROR = range(0x10B, 0x10F)

Fields = Iterable[tuple[str, str]]


@dataclass
class Answer:
    """What a stream has brought: sections, data, and the codes by which it was reset and stopped."""

    sections: list[dict[str, str]] = field(default_factory=list)
    body: bytes = b""
    reset: int | None = None
    stopped: int | None = None

    @property
    def status(self) -> int:
        """That of the final response; 0 if there is none."""
        statuses = [int(section[":status"]) for section in self.sections if ":status" in section]
        return statuses[-1] if statuses else 0

    @property
    def headers(self) -> dict[str, str]:
        """The fields of the final response."""
        return next(section for section in reversed(self.sections) if ":status" in section)


class HTTP3Client(QuicConnectionProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.ended: ConnectionTerminated | None = None
        self.control = b""
        """What the server's control stream has brought."""
        self.acknowledges = True
        """Whether it acknowledges what comes, once `hold_acknowledgements` was called."""
        self._received: dict[int, int] = defaultdict(int)
        self._events: dict[int, asyncio.Queue[Any]] = defaultdict(asyncio.Queue)

    def quic_event_received(self, event: Any) -> None:
        """Sort what has come by its stream."""
        if isinstance(event, ConnectionTerminated):
            self.ended = event
            for events in self._events.values():
                events.put_nowait(event)
        if isinstance(event, StreamDataReceived):
            self._received[event.stream_id] += len(event.data)
            if event.stream_id == CONTROL:
                self.control += event.data
        if isinstance(event, StreamReset | StopSendingReceived):
            self._events[event.stream_id].put_nowait(event)
        for one in self.http.handle_event(event):
            self._events[one.stream_id].put_nowait(one)  # type: ignore[attr-defined]

    def send(self, path: str = "/", *fields: tuple[str, str], method: str = "GET", end: bool = True) -> int:
        """Send the head of a request; return its stream."""
        stream: int = self._quic.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path), *fields]
        self.http.send_headers(stream, [(name.encode(), value.encode()) for name, value in head], end_stream=end)
        self.transmit()
        return stream

    def send_data(self, stream: int, data: bytes, *, end: bool = True) -> None:
        """Send a part of a body."""
        self.http.send_data(stream, data, end)
        self.transmit()

    def give_up(self, stream: int, *, reset: bool = True, stop: bool = True) -> None:
        """Reset a request, and want no more of its response."""
        if reset:
            self._quic.reset_stream(stream, REQUEST_CANCELLED)
        if stop:
            self._quic.stop_stream(stream, REQUEST_CANCELLED)
        self.transmit()

    def hold_acknowledgements(self) -> None:
        """Acknowledge nothing from now on, except while `acknowledges` and by `acknowledge`."""
        quic: Any = self._quic
        write_ack_frame = quic._write_ack_frame

        def write_ack_frame_or_none(builder: Any, space: Any, now: float) -> None:
            if self.acknowledges:
                write_ack_frame(builder=builder, space=space, now=now)
            space.ack_at = None

        quic._write_ack_frame = write_ack_frame_or_none
        self.acknowledges = False

    def acknowledge(self) -> None:
        """Acknowledge what has come."""
        list(self._quic._spaces.values())[-1].ack_at = 0.0
        self.acknowledges = True
        self.transmit()
        self.acknowledges = False

    def received(self, stream: int) -> int:
        """Bytes that have come on a stream."""
        return self._received[stream]

    async def next(self, stream: int) -> Any:
        """What comes next on a stream."""
        return await asyncio.wait_for(self._events[stream].get(), PATIENCE)

    async def data(self, stream: int, length: int) -> bytes:
        """At least so much of its data."""
        data = b""
        while len(data) < length:
            event = await self.next(stream)
            assert isinstance(event, DataReceived), event
            data += event.data
        return data

    async def answer(self, stream: int) -> Answer:
        """All that comes until its end."""
        answer, parts = Answer(), []
        while True:
            event = await self.next(stream)
            if isinstance(event, HeadersReceived):
                answer.sections.append({name.decode(): value.decode() for name, value in event.headers})
            elif isinstance(event, DataReceived):
                parts.append(event.data)
            elif isinstance(event, StopSendingReceived):
                answer.stopped = event.error_code
                continue
            elif isinstance(event, StreamReset):
                answer.reset = event.error_code
            if not getattr(event, "stream_ended", True):
                continue
            answer.body = b"".join(parts)
            return answer

    async def end(self) -> int:
        """Wait until the connection is over; return the code by which it was closed."""
        await wait_until(lambda: self.ended is not None)
        assert self.ended is not None
        return int(self.ended.error_code)

    async def ask(self, path: str = "/", *fields: tuple[str, str], method: str = "GET", body: bytes = b"") -> Answer:
        """Send a request and take its response."""
        stream = self.send(path, *fields, method=method, end=not body)
        if body:
            self.send_data(stream, body)
        return await self.answer(stream)


@dataclass
class Service:
    """A listener on one UDP socket.

    Attributes:
        state: of its server.
        listener: the native one.
        port: its UDP port.
    """

    state: ServerState
    listener: Any
    port: int

    @asynccontextmanager
    async def connect(self, *, wait: bool = True, **configuration: Any) -> AsyncIterator[HTTP3Client]:
        """A new connection; it need not `wait` for the handshake."""
        handlers = {name: configuration.pop(name, None) for name in ("session_ticket_handler", "token_handler")}
        quic = QuicConfiguration(
            is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE, server_name="localhost", **configuration
        )
        async with connect_quic(
            "127.0.0.1",
            self.port,
            configuration=quic,
            create_protocol=HTTP3Client,
            **handlers,
            wait_connected=wait,
        ) as client:
            assert isinstance(client, HTTP3Client)
            yield client

    def pass_time(self, seconds: float) -> None:
        """Have so many seconds pass at once for the deadlines of connections."""
        settings: Any = self.state.protocol_settings
        settings.advance(seconds)

    def hold_clock(self) -> None:
        """Have no other time pass for them."""
        settings: Any = self.state.protocol_settings
        settings.hold_clock()

    async def idle(self) -> None:
        """Wait until no connection and no task is left."""
        await wait_until(lambda: not self.state.connections and not self.state.tasks)


@asynccontextmanager
async def serve(
    app: Any,
    certificate: trustme.LeafCert,
    *,
    enter: Any = None,
    tickets: str = "none",
    page: Page | None = None,
    own_headers: list[tuple[bytes, bytes]] | None = None,
    **settings: Any,
) -> AsyncIterator[Service]:
    """Serve `app`, count on `page`, and add `own_headers`; on exit nothing of it is left."""
    own = {name: settings.pop(name) for name in list(settings) if name.startswith("http3_")}
    config = make_config(app, NativeProtocol, **settings)
    for name, value in {"http3": True, **own}.items():  # files of certificates are not needed
        setattr(config, name, value)
    state = ServerState()
    state.configure(headers=[*config.encoded_headers, *(own_headers or [])], date_header=config.date_header)
    state.metrics = page
    context = RustlsContext(ssl.PROTOCOL_TLS_SERVER)
    context.rustls = rustls_config(certificate, tickets=tickets, describe=functools.partial(TLSConnection, context))
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.setblocking(False)
    port = sock.getsockname()[1]
    poller = Poller(asyncio.get_running_loop())
    if page is not None:
        poller.measure(page.words)
    listener = HTTP3Listener(
        poller=poller,
        descriptors=[sock.detach()],
        factory=NativeProtocol.factory(config, state, {}),
        context=context,
        slot=0,
        generation=0,
        secret=os.urandom(32),
        enter=enter,
        handshake_timeout=10,
    )
    listener.resume()
    try:
        yield Service(state, listener, port)
    finally:
        listener.close()
        for task in list(state.tasks):
            task.cancel()
        await wait_until(lambda: not state.connections and not state.tasks)
        state.close()
