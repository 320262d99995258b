"""The answer to one handshake: accepted, refused, or a response of the application's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uvicorn.access.request_id import with_line
from uvicorn.protocols.http.wire.head import asks_for_head
from uvicorn.protocols.websockets.denial import DenialResponse
from uvicorn.protocols.websockets.handshake import (
    Handshake,
    HandshakeReader,
    Header,
    accept_response,
    refuse_response,
)
from uvicorn.protocols.websockets.output import Output
from uvicorn.serving.state import ServerState


class Answer:
    """Encodes the answer, logs it and writes it.

    Args:
        head: reads the handshake.
        state: of the server, whose own lines come first.
        output: of the connection.

    Attributes:
        handshake: the request being answered, from when it is read until it is accepted.
        extension: value of Sec-WebSocket-Extensions; empty if nothing was negotiated.
        id_line: the line of the request's id; empty if it has none.
        denial: the application's response, once it has begun.
    """

    __slots__ = ("handshake", "extension", "id_line", "denial", "_head", "_state", "_output")

    def __init__(self, head: HandshakeReader, state: ServerState, output: Output) -> None:
        self.handshake: Handshake | None = None
        self.extension = b""
        self.id_line = b""
        self.denial: DenialResponse | None = None
        self._head = head
        self._state = state
        self._output = output

    def encode_accept(self, message: Any) -> bytes:
        """Return the 101 response that the application asks for; reading its headers may run code of its own."""
        assert self.handshake is not None
        response = accept_response(
            self.handshake,
            self._state.default_head,
            message.get("headers") or (),
            message.get("subprotocol"),
            self.extension,
        )
        return with_line(response, self.id_line)

    def accept(self, response: bytes) -> None:
        """Write the 101 response."""
        self.handshake = None
        self._output.write_head(response)
        self._output.log.opened()

    def refuse(self, status: int, text: str, fields: Sequence[Header] = ()) -> None:
        """Write a response of the server's own."""
        head_request = asks_for_head(self._head.head)
        default_head = self._state.default_head + self.id_line
        response = refuse_response(status, text.encode(), default_head, head_request, fields)
        log = self._output.log
        log.answered(status, response)
        if log.entry is not None:
            log.entry.sent = len(text)
        self._output.write_head(response)

    def encode_denial(self, message: Any) -> DenialResponse:
        """Return the response that the application begins; reading its headers may run code of its own."""
        headers = message.get("headers") or ()
        return DenialResponse(message["status"], headers, self._state.default_head, own_line=self.id_line)

    def deny(self, response: DenialResponse) -> None:
        """Begin the application's response."""
        self.denial = response
        self._output.log.answered(response.status, response.head)

    def send(self, body: bytes, more_body: bool) -> DenialResponse:
        """Write a piece of the application's response, and return that."""
        response, entry = self.denial, self._output.log.entry
        assert response is not None
        self._output.write(response.encode(body, more_body))
        if entry is not None:
            entry.head, entry.sent = response.head, response.sent
        return response
