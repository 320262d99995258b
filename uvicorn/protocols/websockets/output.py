"""The output of one connection, at the pace of the client."""

from __future__ import annotations

import asyncio

from uvicorn.metrics.page import BYTES_SENT
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.websockets.closing import Closer
from uvicorn.protocols.websockets.session_log import SessionLog
from uvicorn.serving.state import ServerState
from uvicorn.serving.write_deadlines import WriteDeadlines


class Output:
    """Writes to one transport, and ends it.

    Args:
        loop: the event loop.
        transport: of the connection.
        state: of the server.
        write_deadlines: deadlines of callers that wait for clients that do not read.
        log: of the connection.

    Attributes:
        transport, log: as above.
        metrics: of the server, if it counts.
        flow: of the transport.
        closer: of the transport.
    """

    __slots__ = ("transport", "log", "metrics", "flow", "closer", "_write_deadlines", "_pong")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        state: ServerState,
        write_deadlines: WriteDeadlines,
        log: SessionLog,
    ) -> None:
        self.transport = transport
        self.log = log
        self.metrics = state.metrics
        self.flow = FlowControl(transport)
        self.flow.context = state.context
        self.closer = Closer(loop, transport)
        self._write_deadlines = write_deadlines
        self._pong = b""  # the answer to the latest ping, while the peer does not read

    def send(self, data: bytes) -> None:
        """Write `data` to a transport that is open."""
        metrics = self.metrics
        if metrics is not None:
            metrics.add(BYTES_SENT, len(data))
        self.transport.write(data)

    def write(self, data: bytes) -> None:
        """Write `data`, unless the transport is closing."""
        if not self.transport.is_closing():
            self.send(data)

    def write_head(self, response: bytes) -> None:
        """Write the head of the answer to the handshake, with its body if it has one."""
        if self.log.frames is not None:
            self.log.frames.head(">", response)
        self.write(response)

    def write_pong(self, pong: bytes) -> None:
        """Answer a ping."""
        if self.flow.write_paused:
            # RFC 6455 section 5.5.3: only the latest need be answered. A peer that does not read gets no heap of them.
            self._pong = pong
        else:
            self.write(pong)

    # A client that does not read: `write_deadlines.Writer`.

    def pause(self) -> None:
        """The transport's buffer is above its high-water mark."""
        self.flow.pause_writing()
        self._write_deadlines.wait(self)

    def resume(self) -> None:
        """The transport's buffer is low again."""
        self._write_deadlines.forget(self)
        self.flow.resume_writing()
        if self._pong:
            pong, self._pong = self._pong, b""
            self.write(pong)

    def reader_is_late(self) -> None:
        """The client has taken next to nothing in all its time."""
        self.log.trace("%sWebSocket client does not read")
        self.transport.abort()

    def end(self) -> None:
        """Send nothing more except frames that the close needs; waiting writers are notified."""
        self._write_deadlines.forget(self)
        self._pong = b""
        self.flow.resume_writing()
