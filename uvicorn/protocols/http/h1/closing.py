"""The end of one connection from the server's side: at once or when the client has read its answer, and its last call.

::

    open ──close(linger)──▶ LINGER: half-closed but for TLS, input is thrown away ──▶ CLOSED
      └────────close───────────────────────────────────────────────────────────────────▲

The states are those of `Reading`: a connection that lingers or is closed reads no requests.
"""

from __future__ import annotations

from uvicorn.protocols.http.cycle import COMPLETE
from uvicorn.protocols.http.h1.deadline import Waits
from uvicorn.protocols.http.h1.parts import ConnectionParts
from uvicorn.protocols.http.h1.states import ENDING_ANNOUNCED, ENDING_LAST_CALL, ENDING_NONE, ENDING_NOW, HERE
from uvicorn.protocols.http.wire.request_reader import BODY, CLOSED, HEAD, LINGER, WAIT
from uvicorn.rules import limits


class Closing:
    """How one connection ends.

    Args:
        parts: of the connection.

    Attributes:
        ending: the effect of the server's shutdown on the connection.
    """

    __slots__ = ("ending", "_carrier", "_flow", "_reader", "_writer", "_deadline", "_input")

    def __init__(self, parts: ConnectionParts) -> None:
        self.ending = ENDING_NONE
        self._carrier = parts.carrier
        self._flow = parts.flow
        self._reader = parts.reader
        self._writer = parts.writer
        self._deadline = parts.deadline
        self._input = parts.source

    def close(self, linger: bool = False) -> None:
        """Close once everything is written; with `linger` only after the peer had a chance to read it."""
        self._carrier.flush()
        cycle, self._input.cycle = self._input.cycle, None
        state = self._reader.state
        self._reader.stop(state)
        if cycle is not None:
            self._input.leave(cycle)
            self._flow.resume_writing()  # waiting senders have nothing to wait for
        if linger and self._input.end is not HERE and state is not CLOSED and self._carrier.can_linger():
            # Closing with unread input makes the kernel reset the connection, and the peer may lose the answer.
            self._reader.state = LINGER
            # Before using the transport: the peer may have disconnected without notice.
            if self._carrier.is_tls:
                # It has no end of its output that leaves the input open, so it is closed as soon as nothing more comes.
                self._deadline.set(Waits.LINGER, limits.LAST_REQUEST_SECONDS)
            else:
                self._deadline.set(Waits.LINGER, limits.LINGER_SECONDS)
                self._carrier.attempt(self._carrier.transport.write_eof)
            self._input.resume()
        else:
            self._reader.state = CLOSED
            self._deadline.close()
            if self._carrier.is_tls:
                self._input.resume()  # TLS ends with an answer of the client's
            self._carrier.close()

    def linger_on(self) -> None:
        """Input came that is thrown away."""
        if self._carrier.is_tls:
            left = limits.LINGER_SECONDS - self._deadline.waited()
            self._deadline.put_off(limits.LAST_REQUEST_SECONDS, min(limits.LAST_REQUEST_SECONDS, left))

    def has_lingered(self) -> None:
        """The client has had its time to read the last output."""
        if self._carrier.is_tls:
            self.close()
        else:
            self._carrier.abort()

    def abort_response(self) -> None:
        """End a response that cannot be completed, so that the client notices."""
        if self._writer.cannot_tell_the_end():
            self._carrier.reset_on_close()
        self.close()

    # The end of the server.

    def announce(self) -> None:
        """The next response whose head is encoded is the last, and says so; nothing else changes."""
        self.ending = max(self.ending, ENDING_ANNOUNCED)

    def stop(self) -> None:
        """Close now if nothing is being answered, otherwise when the response is complete.

        After an `announce` a client without notice yet gets a moment for one more request.
        """
        if self.ending is ENDING_NONE:
            self.ending = ENDING_NOW
        elif self.ending is ENDING_ANNOUNCED:
            self.ending = ENDING_LAST_CALL
        cycle = self._input.cycle
        if cycle is None or cycle.state is COMPLETE:
            if self.ending is ENDING_LAST_CALL:
                self._wait_for_last_call()
            else:
                self.close()

    def _wait_for_last_call(self) -> None:
        """Nothing is being answered: close when the time for one more request is over."""
        reader, deadline = self._reader, self._deadline
        if reader.state is WAIT:
            return  # it is there
        left = limits.LAST_REQUEST_SECONDS
        if reader.state >= LINGER or self._input.end is HERE:
            left = 0.0
        elif reader.state is HEAD and not reader.pending:
            # Without a deadline it is unknown since when the client has been idle.
            left = left - deadline.waited() if deadline.waits else 0.0
        if left <= 0 and reader.state is HEAD and self._input.end is not HERE and deadline.has_pending_input():
            left = limits.LAST_REQUEST_SECONDS  # it has sent input that was not read yet
        if left > 0:
            deadline.set(Waits.DISCARD if reader.state is BODY else Waits.LAST_CALL, left)
        else:
            self.close()
