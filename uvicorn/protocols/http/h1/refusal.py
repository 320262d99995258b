"""Responses of the server's own to requests that no application gets to see."""

from __future__ import annotations

import logging
from collections.abc import Callable

from uvicorn.middleware.proxy_headers import is_trusted_gateway
from uvicorn.protocols.http.cycle import COMPLETE, IDLE
from uvicorn.protocols.http.h1.closing import Closing
from uvicorn.protocols.http.h1.parts import ConnectionParts
from uvicorn.protocols.http.h1.states import AMID_BODY
from uvicorn.protocols.http.scope import ScopeBase
from uvicorn.protocols.http.wire.head import Framing, RequestRefused
from uvicorn.protocols.http.wire.request_reader import LINGER
from uvicorn.protocols.http.wire.response import error_response
from uvicorn.rules import texts
from uvicorn.rules.status import STATUS_PHRASES
from uvicorn.serving.state import ServerState


class Refusal:
    """Refuses a request on one connection, which then closes.

    Args:
        parts: of the connection.
        closing: ends the connection.
        state: of the server.
    """

    __slots__ = ("_carrier", "_reader", "_writer", "_input", "_closing", "_state")

    def __init__(self, parts: ConnectionParts, closing: Closing, state: ServerState) -> None:
        self._carrier = parts.carrier
        self._reader = parts.reader
        self._writer = parts.writer
        self._input = parts.source
        self._closing = closing
        self._state = state

    def refuse(self, refused: RequestRefused, head_request: bool, say: Callable[[str], None]) -> None:
        """Answer in the application's place, and end the connection.

        Args:
            refused: the reason.
            head_request: the refused request is a HEAD, if it has no cycle.
            say: sends a 400; it is the protocol's, because programs have their own.
        """
        cycle, settings = self._input.cycle, self._carrier.settings
        if cycle is not None and cycle.state is COMPLETE:
            # The rest of an unwanted body.
            self._closing.close(AMID_BODY)
            return
        status = refused.status
        line = refused.line
        self._carrier.logger.warning(texts.INVALID_REQUEST if status == 400 else line)
        self._carrier.note(logging.DEBUG, line)
        if cycle is not None and cycle.state is not IDLE:
            self._closing.abort_response()
            return
        if cycle is not None and cycle.course is not None:
            cycle.course.respond(status)
        elif settings.metrics is not None:
            settings.metrics.refuse(status)
        if cycle is None:
            self._writer.head_request = head_request
        if status != 400:
            self.answer(status, STATUS_PHRASES[status])
            return
        if settings.customised:
            self._carrier.flush()  # a method that is not ours knows the transport only
        say(texts.INVALID_REQUEST)
        if self._reader.state < LINGER:
            self._closing.close(AMID_BODY)

    def answer(self, status: int, text: str) -> None:
        """Answer with `text`, and end the connection."""
        head_request = self._writer.head_request
        self._carrier.write(error_response(status, text.encode(), self._state.default_head, head_request))
        self._closing.close(AMID_BODY)

    def may_ask_for_https(self, base: ScopeBase) -> bool:
        """Tell whether the client of `base` may ask for a resource of https (RFC 9110 section 7.4)."""
        return base.scheme == "https" or is_trusted_gateway(self._carrier.settings.app, base.client)

    def warn_of_upgrade(self, framing: Framing) -> None:
        """Log that the connection is not upgraded; the request is served like any other."""
        self._carrier.logger.warning(texts.UPGRADE_UNSUPPORTED)
        if framing.asks_for_websocket:
            self._carrier.logger.warning(texts.WEBSOCKET_UNSUPPORTED)
