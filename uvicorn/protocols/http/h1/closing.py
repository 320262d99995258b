"""The end of one connection from the server's side: at once or when the client has read its answer, and its last call.

::

    open ──AFTER_RESPONSE, AMID_BODY──▶ LINGER: half-closed, input is thrown away ──▶ CLOSED
      └────AT_ONCE──────────────────────────────────────────────────────────────────────▲

The states are those of `Reading`: a connection that lingers or is closed reads no requests.
"""

from __future__ import annotations

from uvicorn.protocols.http.cycle import COMPLETE
from uvicorn.protocols.http.h1.carrier import pause_early
from uvicorn.protocols.http.h1.deadline import Waits
from uvicorn.protocols.http.h1.parts import ConnectionParts
from uvicorn.protocols.http.h1.states import (
    AFTER_RESPONSE,
    AMID_BODY,
    AT_ONCE,
    ENDING_ANNOUNCED,
    ENDING_LAST_CALL,
    ENDING_NONE,
    ENDING_NOW,
    HERE,
)
from uvicorn.protocols.http.h1.states import Closing as How
from uvicorn.protocols.http.wire.request_reader import BODY, CLOSED, HEAD, LINGER, WAIT
from uvicorn.rules import limits
from uvicorn.serving.write_deadlines import unsent, unsent_by_process


class Closing:
    """How one connection ends.

    Args:
        parts: of the connection.
        lingering: those of all connections, by their carriers.

    Attributes:
        ending: the effect of the server's shutdown on the connection.
    """

    __slots__ = ("ending", "_carrier", "_flow", "_reader", "_writer", "_deadline", "_input", "_lingering")

    def __init__(self, parts: ConnectionParts, lingering: set[object]) -> None:
        self.ending = ENDING_NONE
        self._carrier = parts.carrier
        self._flow = parts.flow
        self._reader = parts.reader
        self._writer = parts.writer
        self._deadline = parts.deadline
        self._input = parts.source
        self._lingering = lingering

    def close(self, how: How = AT_ONCE) -> None:
        """Close once everything is written, and unless that is to be at once, the client has had time to read it."""
        carrier, reader, deadline = self._carrier, self._reader, self._deadline
        carrier.flush()
        cycle, self._input.cycle = self._input.cycle, None
        state = reader.state
        reader.stop(state)
        if cycle is not None:
            self._input.leave(cycle)
            self._flow.resume_writing()  # waiting senders have nothing to wait for
        if how is AFTER_RESPONSE and carrier.ends_as_a_whole:
            how = AT_ONCE  # asyncio's transports of TLS read on by themselves, if nothing but the client's end comes
        if how and self._input.end is not HERE and state < LINGER and carrier.can_linger():
            reader.state = LINGER
            # Before using the transport: the peer may have disconnected without notice.
            if carrier.ends_as_a_whole:
                # It has no end of its output that leaves the input open, so it is closed as soon as nothing more comes.
                deadline.set(Waits.LINGER, limits.LAST_REQUEST_SECONDS)
            else:
                deadline.set(Waits.LINGER, self._longest() if how is AMID_BODY else limits.LAST_REQUEST_SECONDS)
                carrier.attempt(carrier.transport.write_eof)
            carrier.attempt(self.note_linger)
            self._input.resume()
        else:
            reader.state = CLOSED
            deadline.close()
            if carrier.ends_as_a_whole:
                self._input.resume()  # TLS ends with an answer of the client's
            carrier.close()

    def close_behind_response(self) -> None:
        """Close after a response, which the client may be reading."""
        self.close(AMID_BODY if self._reader.state is BODY else AFTER_RESPONSE)

    def close_between_requests(self) -> None:
        """Close when a request may come, but none has."""
        if self._reader.state is BODY:
            self.close(AMID_BODY)
        else:
            self.close(AFTER_RESPONSE if self._reader.pending or unsent(self._carrier.transport) else AT_ONCE)

    def linger_on(self) -> None:
        """Input came that is thrown away: its client, which may be sending more, has its time again."""
        self._deadline.extend(limits.LAST_REQUEST_SECONDS, self._longest())

    def _longest(self) -> float:
        """Seconds for a client that is still sending; a server that ends does not wait for the rest of a body."""
        return limits.LINGER_SECONDS if self.ending is ENDING_NONE else limits.LAST_REQUEST_SECONDS

    def note_linger(self) -> None:
        """Let another connection have the place of this one, once the kernel has its last response.

        Call it again when the transport resumes writing.
        """
        carrier = self._carrier
        # It may have been lost meanwhile.
        if self._reader.state is not LINGER:
            return
        if unsent_by_process(carrier.transport):
            pause_early(carrier.transport)
        else:
            self._lingering.add(carrier)

    def has_lingered(self) -> None:
        """The client has not ended its side after the last output: close, unless it is still reading that.

        Then it has the time of a reader; but a server that ends leaves to the kernel what that has.
        """
        carrier = self._carrier
        if carrier.ends_as_a_whole:
            self.close()
            return
        rest = (unsent if self.ending is ENDING_NONE else unsent_by_process)(carrier.transport)
        if not rest:
            carrier.abort()
            return
        carrier.attempt(self.note_linger)
        if not carrier.awaits_reader:
            carrier.await_reader()
        self._deadline.set(Waits.LINGER, limits.LAST_REQUEST_SECONDS)

    def abort_response(self) -> None:
        """End a response that cannot be completed, so that the client notices."""
        if self._writer.cannot_tell_the_end():
            self._carrier.reset_on_close()
            self.close()
        else:
            self.close_behind_response()  # responses in front of it are to arrive

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
        cycle, state = self._input.cycle, self._reader.state
        if state is LINGER:
            self._deadline.set(Waits.LINGER, limits.LAST_REQUEST_SECONDS)
        elif cycle is None or cycle.state is COMPLETE:
            if self.ending is ENDING_LAST_CALL:
                self._wait_for_last_call()
            else:
                self.close_between_requests()

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
            self.close_between_requests()
