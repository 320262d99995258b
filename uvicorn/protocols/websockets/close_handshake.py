"""The end of a WebSocket that was open, from either side, and of one that never was: RFC 6455 section 7.

::

    ACCEPTED ──close frame sent──▶ CLOSING, awaiting the client's ──close frame, time over──▶ the transport closes
        └──────close frame received, echoed; a mistake, answered; no more of the client──────────────▲
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from uvicorn.protocols.websockets.frames import Close, FrameError, encode_close
from uvicorn.protocols.websockets.incoming import Incoming
from uvicorn.protocols.websockets.output import Output
from uvicorn.protocols.websockets.session_states import SessionState
from uvicorn.rules.websocket_limits import CLOSE_TIMEOUT

_ACCEPTED = SessionState.ACCEPTED


class Ended(Protocol):
    """The session that ends."""

    state: SessionState

    def leave_queue(self) -> bool:
        """Wait no longer for the application to be called."""

    def stop_keepalive(self) -> None:
        """Stop pings and deadlines."""

    def on_close(self, close: Close) -> None:
        """The answer to our close frame: call `CloseHandshake.receive`."""


class CloseHandshake:
    """Ends one session.

    Args:
        session: its state is advanced here, until `release`.
        incoming: frames from the client, its close frame last.
        output: where close frames are written, and the connection to close.

    Attributes:
        awaiting: our close frame is sent, and the client's is awaited.
    """

    __slots__ = ("awaiting", "_session", "_frames", "_incoming", "_output", "_closer", "_log")

    def __init__(self, session: Ended, incoming: Incoming, output: Output) -> None:
        self.awaiting = False
        self._session = session
        self._frames = incoming.frames
        self._incoming = incoming
        self._output = output
        self._closer = output.closer
        self._log = output.log

    def tell(self, code: int, reason: str | None = None) -> None:
        """Tell the application that the connection has ended; the first to say so is right."""
        if self._incoming.inbox.end is None:
            if self._session.state is _ACCEPTED:
                self._log.ended(code)
            self._incoming.inbox.put_end(code, reason)

    def begin(self) -> None:
        """Send nothing more except frames that the close needs; waiting writers are notified."""
        session = self._session
        session.leave_queue()
        session.state = SessionState.CLOSING
        self._log.closed()
        session.stop_keepalive()
        self._incoming.drop_pieces()
        self._output.end()

    def release(self) -> None:
        """Drop the session: the connection is gone, and the application knows."""
        self._session = cast(Ended, None)

    # From the server's side.

    def close(self, code: int, reason: str = "") -> None:
        """Start the closing handshake and wait a limited time for the client's part of it (section 7.1.2)."""
        self._say(code, reason)
        self._await_or_finish()

    def sent_by_program(self) -> None:
        """A program has written a close frame itself."""
        self.begin()
        self._await_or_finish()

    def time_out(self, reason: str) -> None:
        """Send the reason and close without waiting for an answer: the client does not respond."""
        self.tell(1005)
        self._say(1011, reason)
        self._closer.close()

    def _say(self, code: int, reason: str) -> None:
        self.tell(code, reason)
        self.begin()
        if self._log.frames is not None:
            self._log.frames.close(">", code, reason)
        self._output.write(encode_close(code, reason))

    def _await_or_finish(self) -> None:
        """Await the client's answer, unless the client has already sent its last."""
        if self._incoming.peer_end:
            self._incoming.peer_end.take_effect()
        else:
            self._await_answer()

    def _await_answer(self) -> None:
        if self._output.transport.is_closing():
            return
        self.awaiting = True
        self._closer.close_within(CLOSE_TIMEOUT)
        self._output.flow.resume_reading()
        self.look_for_answer()

    def look_for_answer(self) -> None:
        """Look for the answer to our close frame in the data read, and ignore everything else."""
        try:
            close = self._frames.read_close()
            if close is None:
                return
            self._session.on_close(close)
        except FrameError:
            self._closer.close()
        self.awaiting = False
        self._frames.clear()

    # From the client's.

    def act_behind_messages(self, act: Callable[[], None]) -> None:
        """Call `act` on the client's last input, once the application could answer all messages before it."""
        if self._incoming.inbox.is_awaited():
            act()
            return
        self._output.flow.pause_reading()
        self._session.stop_keepalive()  # no pong would be read
        self._incoming.peer_end.wait(act)

    def receive(self, close: Close) -> None:
        """A close frame."""
        code, reason = close
        if self._log.frames is not None:
            self._log.frames.close("<", code, reason)
        if self._session.state is _ACCEPTED:
            self._frames.clear()
            self.act_behind_messages(partial(self._answer, code, reason))
        else:
            self._closer.close()

    def _answer(self, code: int, reason: str) -> None:
        """Echo a close frame if it is not the echo of ours, and close (section 5.5.1)."""
        if self._session.state is _ACCEPTED:
            self._say(code, reason)
        self._closer.close()

    def receive_mistake(self, error: FrameError) -> None:
        """The client broke the protocol or a limit."""
        self.act_behind_messages(partial(self._fail, error))

    def _fail(self, error: FrameError) -> None:
        """Say why, and close (section 7.1.7)."""
        if error.code == 1007:
            self._log.logger.error("Invalid UTF-8 sequence received from client.")
        if self._session.state is not _ACCEPTED:
            self._closer.close()
            return
        self._say(error.code, error.reason)
        if error.is_last:
            self._frames.clear()
            if not self._output.transport.is_closing():
                self._output.flow.resume_reading()
                self._closer.linger()
        else:
            # It may be in the middle of a message that is refused: its library would fail if we half-closed.
            self._await_answer()

    def receive_end(self) -> None:
        """The client sends nothing more, and still reads: answers to all that it has sent."""
        if not self._incoming.peer_end:
            self.act_behind_messages(self._leave)

    def _leave(self) -> None:
        self.lose()
        self._closer.close()

    def lose(self) -> None:
        """End the connection in both directions, without a close frame."""
        # There was no close frame, which section 7.1.5 calls 1006 and upstream 1005 once it is open.
        self.tell(1005 if self._session.state is _ACCEPTED else 1006)
        self.begin()
        self.awaiting = False
        self._frames.clear()
