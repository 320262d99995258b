"""The messages of one client: pieces joined, given to the application, read no faster than it takes them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Protocol, TypeVar

from uvicorn._types import ASGIReceiveEvent
from uvicorn.metrics.page import MESSAGES_RECEIVED
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.websockets.frames import Close, FrameError, FrameSplitter, WholeFrameSplitter
from uvicorn.protocols.websockets.output import Output
from uvicorn.protocols.websockets.peer_end import PeerEnd
from uvicorn.protocols.websockets.session_states import SessionState

T = TypeVar("T")


class Reader(Protocol):
    """The session that reads frames with its library."""

    state: SessionState

    def parse(self, data: bytes) -> None:
        """Parse one frame other than a close frame."""

    def call_for_frame(self, data: bytes) -> None:
        """The same, with the methods that programs override."""

    def call_for_close(self, close: Close) -> None:
        """Call those methods for a close frame."""

    def call_for_mistake(self, error: FrameError) -> None:
        """Call those methods for a mistake of the client's."""


class Incoming:
    """The input of one session.

    Args:
        max_size: bytes a message may have, after decompression; `None` sets no limit.
        peer_end: the client's last, behind its messages.
        output: of the same connection.

    Attributes:
        frames: cuts the input into frames.
        inbox: events that the application has not received yet.
        flow: of the transport.
        peer_end: as above.
        calls_methods: frames are given to the methods that programs override.
    """

    __slots__ = ("frames", "inbox", "flow", "peer_end", "_output", "_pieces")

    calls_methods = False
    splitter = FrameSplitter

    def __init__(self, max_size: int | None, peer_end: PeerEnd, output: Output) -> None:
        self.frames = self.splitter(max_size)
        self.inbox = peer_end.inbox
        self.flow = output.flow
        self.peer_end = peer_end
        self._output = output
        # A message that has not ended; a text in UTF-8. Not a list: objects for pieces are larger than the pieces.
        self._pieces: io.BytesIO | None = None

    def hold(self, data: bytes) -> None:
        """Keep frames until they can be read, up to a limit."""
        self.frames.feed(data)
        if len(self.frames) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def read(self, reader: Reader) -> Close | None:
        """Have `reader` parse frames while the application keeps up. Returns the client's close frame, if that is next.

        Raises:
            FrameError: the client broke the protocol or a limit.
        """
        frames, flow = self.frames, self.flow
        while not flow.read_paused:
            frame = frames.read()
            if frame is None:
                return None
            if isinstance(frame, Close):
                return frame
            reader.parse(frame)
        return None

    def add(self, piece: str | bytes, final: bool) -> None:
        """Take all or some of a message; all pieces of one message are text, or all bytes."""
        pieces = self._pieces
        if pieces is None:
            if final:
                self._deliver(piece)
                return
            pieces = self._pieces = io.BytesIO()
        pieces.write(piece.encode() if isinstance(piece, str) else piece)
        if final:
            self._pieces = None
            content = pieces.getvalue()
            self._deliver(content.decode() if isinstance(piece, str) else content)

    def put(self, event: ASGIReceiveEvent) -> None:
        """Queue an event that a program has made, and stop reading when the application falls behind."""
        self._enqueue(self.inbox.put_event, event)

    def _deliver(self, content: str | bytes) -> None:
        """Queue a message for the application, and stop reading when it falls behind."""
        self._enqueue(self.inbox.put, content)
        log = self._output.log.frames
        if log is not None:
            log.message(content)

    def _enqueue(self, put: Callable[[T], bool], item: T) -> None:
        """Count a message, `put` it into the inbox, and stop reading if that is full."""
        metrics = self._output.metrics
        if metrics is not None:
            metrics.add(MESSAGES_RECEIVED)
        if put(item):
            self.flow.pause_reading()

    def drop_pieces(self) -> None:
        """Drop an incomplete message: its rest will not be read."""
        self._pieces = None


class OverriddenIncoming(Incoming):
    """The input of a session of which a program has overridden methods: those get every frame.

    Attributes:
        last: what the client did wrong, or its close frame, once the methods were called for it. Whatever they make of
            that, nothing behind it is read.
    """

    __slots__ = ("last", "_is_reading")

    calls_methods = True
    splitter = WholeFrameSplitter

    def __init__(self, max_size: int | None, peer_end: PeerEnd, output: Output) -> None:
        super().__init__(max_size, peer_end, output)
        self.last: FrameError | Close | None = None
        self._is_reading = False

    def read(self, reader: Reader) -> None:
        """Call methods for the frames that have arrived, while the application keeps up."""
        if self._is_reading:
            return  # one of those methods has resumed reading
        self._is_reading = True
        try:
            if self.last is None:
                self._read(reader)
            elif not self.flow.read_paused:
                # As upstream: the connection fails again with each read, and an overridden method closes it.
                self.frames.clear()
                if isinstance(self.last, FrameError):
                    reader.call_for_mistake(self.last)
        finally:
            self._is_reading = False

    def _read(self, reader: Reader) -> None:
        frames, flow = self.frames, self.flow
        try:
            while self.last is None and not flow.read_paused and reader.state is SessionState.ACCEPTED:
                frame = frames.read()
                if frame is None:
                    return
                if isinstance(frame, Close):
                    self.last = frame
                    reader.call_for_close(frame)
                else:
                    reader.call_for_frame(frame)
        except FrameError as error:
            self.last = error
            reader.call_for_mistake(error)
