"""The one stream of an HTTP/1.1 connection: encodes the messages of the present cycle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from uvicorn._types import ASGISendEvent, HTTPScope
from uvicorn.access.request_id import with_line
from uvicorn.files.sending import SocketRoute, route_past
from uvicorn.metrics.page import BYTES_SENT
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.h1.client_deadline import ClientDeadline
from uvicorn.protocols.http.h1.closing import Closing
from uvicorn.protocols.http.h1.parts import ConnectionParts
from uvicorn.protocols.http.h1.states import ENDING_NONE, HERE
from uvicorn.protocols.http.protocol_settings import ProtocolSettings
from uvicorn.protocols.http.wire.head import Field
from uvicorn.protocols.http.wire.request_reader import AWAITED, BODY
from uvicorn.protocols.http.wire.response import BodyFraming, encode_interim, encode_parts, error_response
from uvicorn.protocols.http.wire.response_writer import AWAITING
from uvicorn.serving.event_pool import EventPool
from uvicorn.serving.state import ServerState

_NONE = BodyFraming.NONE


class H1Callbacks(Protocol):
    """The connection as a stream knows it."""

    settings: ProtocolSettings
    server_state: ServerState

    @property
    def logger(self) -> logging.Logger:
        """The logger for errors of the application."""

    def on_response_complete(self) -> None:
        """The response is complete: go on."""


class H1Stream:
    """Implements `_types.Stream` for HTTP/1.1, where there is one at a time: each request has the same.

    Attributes:
        flow: of the connection.
        logger: for errors of the application.
        writer: of its responses.
        keep_alive: the request in hand lets the connection live on.
        id_line: the response's line with the request's id; empty if it has none.
        finish: the response is complete, and the connection goes on; its own method, without a call in between.
    """

    __slots__ = (
        "flow",
        "logger",
        "writer",
        "keep_alive",
        "id_line",
        "finish",
        "_connection",
        "_carrier",
        "_reader",
        "_input",
        "_closing",
        "_client_deadline",
    )

    def __init__(
        self, connection: H1Callbacks, parts: ConnectionParts, closing: Closing, client_deadline: ClientDeadline
    ) -> None:
        self.flow = parts.flow
        self.logger: logging.Logger = connection.logger
        self.writer = parts.writer
        self.keep_alive = True
        self.id_line = b""
        self.finish: Callable[[], None] = connection.on_response_complete
        self._connection = connection
        self._carrier = parts.carrier
        self._reader = parts.reader
        self._input = parts.source
        self._closing = closing
        self._client_deadline = client_deadline

    @property
    def own_connection(self) -> asyncio.Transport:
        """The transport: the stream has it to itself."""
        return self._carrier.transport

    @property
    def file_route(self) -> SocketRoute | None:
        """Past the transport, if that is a plain socket."""
        return route_past(self._carrier.transport)

    @property
    def events(self) -> EventPool:
        """Those of the event loop."""
        return self._connection.server_state.event_pool

    def flush_log(self) -> None:
        """Write the access lines that wait."""
        self._connection.settings.flush()

    def offers(self, extension: str) -> bool:
        """Tell whether scopes offer this extension."""
        return extension in self._connection.settings.extensions

    # The response.

    def start(self, status: int, fields: Iterable[Field]) -> bool:
        """Encode the head, which waits for the first piece of the body; and log the response."""
        connection, reader, writer = self._connection, self._reader, self.writer
        source = self._input
        cycle = source.cycle
        assert cycle is not None
        close = not self.keep_alive or self._closing.ending is not ENDING_NONE
        if source.end is HERE:
            close = close or not reader.pending
        if reader.state is BODY:
            # The client may send its body or not, so the start of the next request is unknown.
            close = close or (cycle.expect_continue and reader.body is AWAITED)
        default_head = connection.server_state.default_head
        parts = encode_parts(status, fields, default_head, writer.head_request, writer.http_10, close)
        if source.cycle is not cycle or writer.state is not AWAITING:
            # Reading the fields ran code of the application, which has started the response meanwhile, or completed it.
            return False
        writer.start(*parts)
        if self.id_line:
            writer.head = with_line(writer.head, self.id_line)
        settings = connection.settings
        if cycle.course is not None:
            cycle.course.respond(status)
        if settings.access is not None:
            settings.access.record(cycle.scope, status)
        elif cycle.entry is not None:
            cycle.entry.start(status, writer.head)
        return True

    def dropped(self, scope: HTTPScope, message: ASGISendEvent) -> None:
        """A message was dropped, because the client cannot be reached."""
        cancellation = self._connection.settings.cancellation
        if cancellation is not None:
            cancellation.dropped(scope, message)

    def body(self, data: bytes, more: bool, trailers: bool = False) -> int:
        """Write a piece of the body, behind the head if that still waits."""
        writer = self.writer
        size = len(data)
        data = writer.body(data, more, trailers)
        if writer.head:
            cycle = self._input.cycle
            if cycle is not None and cycle.course is not None:
                cycle.course.send()
            if not more and self._reader.state is BODY and self._reader.too_much_is_left():
                writer.announce_close()
            head, writer.head = writer.head, b""
            if len(data) > HIGH_WATER_LIMIT:
                self._carrier.write(head)  # not worth a copy
            else:
                data = head + data
        if data:
            self._carrier.write(data)
        return size if writer.framing is not _NONE else 0

    def interim(self, status: int, fields: Iterable[Field] = ()) -> None:
        """Write an interim response in front of the final one: dropped if that has left, or the client is of 1.0."""
        writer = self.writer
        if status == 100:
            self._carrier.write(encode_interim(100))
            if self._reader.state is BODY:
                self._client_deadline.await_body()
        elif not writer.http_10 and (writer.head or writer.state is AWAITING):
            self._carrier.write(encode_interim(status, fields))

    def trailers(self, fields: Iterable[Field]) -> None:
        """Write the end of a body that trailers follow, with those, where the framing can carry them."""
        data = self.writer.trailers(fields)
        if data:
            self._carrier.write(data)

    def begin_file(self, length: int, more: bool) -> bool:
        """Make ready for `length` bytes of the body, which come through `file` or by the file route."""
        return self.writer.begin_part(length, more)

    def sent_past(self, size: int) -> None:
        """Count `size` of these bytes as sent by the file route."""
        metrics = self._connection.settings.metrics
        if metrics is not None:
            metrics.add(BYTES_SENT, size)

    def file(self, data: bytes) -> None:
        """Write some of these bytes at once, after the pending output."""
        cycle = self._input.cycle
        if cycle is not None and cycle.course is not None:
            cycle.course.send()
        data = self.writer.take_head() + data
        if data:
            self._carrier.write(data)
        self._carrier.flush()

    def end_file(self) -> None:
        """All of these bytes are written."""
        self.writer.end_part()

    def announce_close(self) -> None:
        """The response is the last, and says so."""
        self._closing.announce()

    def refuse(self, status: int, body: bytes) -> None:
        """Answer in the application's place, which has not begun to, and end the connection."""
        cycle, connection = self._input.cycle, self._connection
        if cycle is None:
            return
        if cycle.course is not None:
            cycle.course.respond(status)
        default_head = connection.server_state.default_head
        self._carrier.write(error_response(status, body, default_head, self.writer.head_request))
        self._closing.close_behind_response()

    def abort(self) -> None:
        """Break off the response of the request in hand, if that is not over."""
        if self._input.cycle is not None:
            self._closing.abort_response()

    # The request, and room for the response.

    def want_body(self) -> None:
        """Read on, and give the client its time, if nothing was read because too much waited."""
        if self.flow.read_paused:
            self._input.regulate()
            if self._reader.state is BODY:
                self._client_deadline.await_body()

    async def writable(self) -> None:
        """Wait until the transport takes more."""
        await self.flow.drain()

    def await_reader(self) -> None:
        """Give the client time to read some of its pending output."""
        self._carrier.await_reader()

    def stop_awaiting_reader(self) -> None:
        """The client has taken enough of it."""
        self._carrier.stop_awaiting_reader()
