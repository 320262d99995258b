"""The messages of one client: pieces joined, given to the application, read no faster than it takes them."""

from __future__ import annotations

import io
from collections.abc import Callable

from uvicorn.metrics.page import MESSAGES_RECEIVED
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.websockets.frames import Close, FrameSplitter
from uvicorn.protocols.websockets.output import Output
from uvicorn.protocols.websockets.peer_end import PeerEnd


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
    """

    __slots__ = ("frames", "inbox", "flow", "peer_end", "_output", "_pieces")

    def __init__(self, max_size: int | None, peer_end: PeerEnd, output: Output) -> None:
        self.frames = FrameSplitter(max_size)
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

    def read(self, parse: Callable[[bytes], None]) -> Close | None:
        """Have frames parsed while the application keeps up. Returns the client's close frame, if that is next.

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
            parse(frame)
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

    def _deliver(self, content: str | bytes) -> None:
        """Queue a message for the application, and stop reading when it falls behind."""
        metrics = self._output.metrics
        if metrics is not None:
            metrics.add(MESSAGES_RECEIVED)
        if self.inbox.put(content):
            self.flow.pause_reading()
        log = self._output.log.frames
        if log is not None:
            log.message(content)

    def drop_pieces(self) -> None:
        """Drop an incomplete message: its rest will not be read."""
        self._pieces = None
