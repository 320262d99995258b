"""The lines about one connection: its beginning and its end, its handshake, and the debug lines of frames."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from uvicorn._types import WebSocketScope
from uvicorn.access.log import Entry
from uvicorn.logging import TRACE_LOG_LEVEL
from uvicorn.protocols.http.wire.head import RequestRefused
from uvicorn.protocols.utils import client_prefix, functions_of
from uvicorn.protocols.websockets.frame_log import FrameLog
from uvicorn.protocols.websockets.handshake import HandshakeReader, requested_target
from uvicorn.rules.status import STATUS_PHRASES

if TYPE_CHECKING:
    from uvicorn.tracing.span import ServerSpan


class SessionLog:
    """Writes them.

    Args:
        logger: where they go.
        head: of the request, as far as it has arrived; it names the target.
        session: the class of the session, whose module has the functions that make texts of a scope.

    Attributes:
        logger: where they go.
        frames: the debug lines, if they are wanted.
        entry: of the access log, if that has a format of the user's.
        span: if the session is traced, and sampled.
    """

    __slots__ = ("logger", "frames", "entry", "span", "_head", "_session", "_transport", "_scope")

    def __init__(self, logger: logging.Logger, head: HandshakeReader, session: type) -> None:
        self.logger = logger
        self.frames: FrameLog | None = None
        self.entry: Entry | None = None
        self.span: ServerSpan | None = None
        self._head = head
        self._session = session
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)  # until `connected`
        self._scope: WebSocketScope | None = None

    def connected(self, transport: asyncio.Transport) -> None:
        """The connection is here."""
        self._transport = transport
        self.frames = FrameLog.of(self.logger)
        self.trace("%sWebSocket connection made")

    def asked(self, scope: WebSocketScope, entry: Entry | None) -> None:
        """The handshake is read."""
        self._scope = scope
        self.entry = entry

    def _who_and_what(self) -> tuple[str, str]:
        functions = functions_of(self._session)
        if self._scope is not None:
            return functions.get_client_addr(self._scope), functions.get_path_with_query_string(self._scope)
        client = functions.get_remote_addr(self._transport)
        return "%s:%d" % client if client else "", requested_target(self._head.head)

    def answered(self, status: int, head: bytes) -> None:
        """Log the outcome of the handshake, with client and target; in the access log if that has a custom format."""
        if self.span is not None:
            self.span.respond(status)
            self.span.send()
        if self.entry is not None and status == 101:
            self.entry.conclude(status, head)
        elif self.entry is not None:
            self.entry.start(status, head)
        elif status == 101:
            self.logger.info('%s - "WebSocket %s" [accepted]', *self._who_and_what())
        else:
            self.logger.info('%s - "WebSocket %s" %d', *self._who_and_what(), status)

    def opened(self) -> None:
        """Log that the connection is open."""
        self.logger.info("connection open")

    def rejected(self, status: int) -> None:
        """Log that the connection was rejected."""
        self.logger.info("connection rejected (%d %s)", status, STATUS_PHRASES[status])

    def refused(self, refused: RequestRefused) -> None:
        """Log why a handshake is refused, as the HTTP protocols do for requests."""
        if self.logger.isEnabledFor(logging.DEBUG):
            self.logger.debug("%s%s", client_prefix(self._client()), refused.line)

    def ended(self, code: int) -> None:
        """Log the end of an open connection, with the application's close code."""
        self.logger.info('%s - "WebSocket %s" [closed %d]', *self._who_and_what(), code)

    def closed(self) -> None:
        """Nothing more is sent."""
        if self.entry is not None:
            self.entry.end()

    def trace(self, text: str) -> None:
        """Log a line of the lowest level, with the client for its `%s`."""
        if self.logger.isEnabledFor(TRACE_LOG_LEVEL):
            self.logger.log(TRACE_LOG_LEVEL, text, client_prefix(self._client()))

    def _client(self) -> tuple[str, int] | None:
        return functions_of(self._session).get_remote_addr(self._transport)
