"""The input that one connection awaits from its client, and the deadline for it."""

from __future__ import annotations

from uvicorn.protocols.http.h1.closing import Closing
from uvicorn.protocols.http.h1.deadline import Waits
from uvicorn.protocols.http.h1.parts import ConnectionParts
from uvicorn.protocols.http.h1.states import AMID_BODY, ENDING_LAST_CALL, HERE
from uvicorn.rules import limits


class ClientDeadline:
    """Sets the deadline of one connection, which is shorter when the server ends.

    Args:
        parts: of the connection.
        closing: knows whether the server ends, and is asked to close where nothing more can come.
    """

    __slots__ = ("_carrier", "_deadline", "_reader", "_input", "_closing")

    def __init__(self, parts: ConnectionParts, closing: Closing) -> None:
        self._carrier = parts.carrier
        self._deadline = parts.deadline
        self._reader = parts.reader
        self._input = parts.source
        self._closing = closing

    def await_first(self) -> None:
        """The client has connected."""
        self._deadline.set(Waits.FIRST, self._carrier.settings.timeout_head)

    def await_request(self) -> None:
        """No request is in progress: wait for the next one, for a limited time, and only if it can still come."""
        if self._input.end is HERE:
            self._closing.close()
        elif not self._deadline.waits:
            if self._closing.ending is ENDING_LAST_CALL:
                self._deadline.set(Waits.LAST_CALL, limits.LAST_REQUEST_SECONDS)
            else:
                self._deadline.set(Waits.IDLE, self._carrier.settings.timeout_idle)

    def await_head(self) -> None:
        """A head has begun and is not complete; that of the first request has no deadline of its own."""
        reader = self._reader
        if reader.head_begins():
            if self._closing.ending is ENDING_LAST_CALL:
                self._deadline.set(Waits.LAST_CALL, limits.LAST_REQUEST_SECONDS)
            else:
                self._deadline.set(Waits.HEAD, self._carrier.settings.timeout_head)

    def await_body(self) -> None:
        """The client has its time to send some of the request's body."""
        self._deadline.set(Waits.BODY, self._carrier.settings.timeout_body)

    def discard_body(self) -> None:
        """The application has answered without reading the whole body: keep the connection if the rest is short."""
        reader, deadline = self._reader, self._deadline
        if self._input.end is HERE or reader.too_much_is_left():
            self._closing.close(AMID_BODY)
            return
        reader.discard()
        self._input.resume()
        last_call = self._closing.ending is ENDING_LAST_CALL
        if not deadline.waits or last_call:
            deadline.set(
                Waits.DISCARD, limits.LAST_REQUEST_SECONDS if last_call else self._carrier.settings.timeout_body
            )
        else:
            deadline.waits = Waits.DISCARD
