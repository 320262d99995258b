"""The client's input on one connection: whether its socket is read, for which request, and its end.

Reading stops where the client is too far ahead of its answers. While reading is paused, the system reports the
client's end (`hang_up.py`), because an application may be waiting for it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from uvicorn.protocols.http.cycle import COMPLETE, RequestResponseCycle
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.h1.carrier import Carrier
from uvicorn.protocols.http.h1.deadline import NOTHING, Deadline
from uvicorn.protocols.http.h1.states import KNOWN, OPEN
from uvicorn.protocols.http.wire.request_reader import BODY, HEAD, LINGER, WAIT, Piece, RequestReader
from uvicorn.rules import limits


class Input:
    """The input of one connection.

    Args:
        carrier: of the connection.
        flow: of its transport.
        reader: reads the input.
        deadline: for the rest of a body.
        context: in which turns are taken.

    Attributes:
        cycle: of the request that is being answered, whose body is read; `None` between requests.
        end: of the client's input.
    """

    __slots__ = ("cycle", "end", "_carrier", "_flow", "_reader", "_deadline", "_context", "_heeded")

    def __init__(
        self,
        carrier: Carrier,
        flow: FlowControl,
        reader: RequestReader,
        deadline: Deadline,
        context: contextvars.Context,
    ) -> None:
        self.cycle: RequestResponseCycle | None = None
        self.end = OPEN
        self._carrier = carrier
        self._flow = flow
        self._reader = reader
        self._deadline = deadline
        self._context = context
        self._heeded = -1  # the socket's descriptor, while reading is paused and the peer's end is watched for

    def take(self, piece: Piece) -> bool:
        """Give the application a piece of its request's body. Returns whether it may still have it."""
        cycle = self.cycle
        assert cycle is not None
        if cycle.state is COMPLETE:
            return False
        if piece.data:
            cycle.feed(piece.data)
        if piece.end:
            cycle.feed_end()
        self.account(cycle, piece)
        return True

    def account(self, cycle: RequestResponseCycle, piece: Piece) -> None:
        """The cycle was given a piece: read on or not, and move the deadline on."""
        deadline = self._deadline
        if piece.end:
            deadline.waits = NOTHING
            return
        if piece.data and len(cycle.body) > HIGH_WATER_LIMIT:
            self.regulate()
        if deadline.waits:
            deadline.put_off(piece.size / limits.BODY_BYTES_PER_SECOND, self._carrier.settings.timeout_body)

    # Whether the socket is read.

    def regulate(self) -> None:
        """Read while pending requests, or the body for the application, are below the high-water mark."""
        state = self._reader.state
        if state >= LINGER:
            return
        if state is WAIT:
            waits = len(self._reader.pending)
        elif state is BODY and self.cycle is not None and self.cycle.state is not COMPLETE:
            waits = len(self.cycle.body)
        else:
            waits = 0  # part of a head, which has limits of its own, or nothing that is kept
        if waits <= HIGH_WATER_LIMIT:
            if self._flow.read_paused:
                self.resume()
        else:
            if not self._flow.read_paused:
                self._carrier.attempt(self._flow.pause_reading)
            if state is BODY:
                self._deadline.waits = NOTHING  # the client cannot be late while reading is paused
            else:
                self._carrier.attempt(self._heed_end)

    def resume(self) -> None:
        """Read from the socket, whatever waits."""
        if self._heeded >= 0:
            self._ignore_end()
        if self._flow.read_paused:
            self._carrier.attempt(self._flow.resume_reading)

    def close(self) -> None:
        """The connection is gone, and its request in hand with it."""
        cycle, self.cycle = self.cycle, None
        if cycle is not None:
            self.leave(cycle)
        if self._heeded >= 0:
            self._ignore_end()

    # Turns of pipelined requests.

    def take_turns(self, loop: asyncio.AbstractEventLoop, go_on: Callable[[], None]) -> None:
        """Continue with pending requests in the loop's next turn, after other connections have had theirs."""
        self._reader.state = WAIT
        self._context.run(loop.call_soon, self._next_turn, go_on)

    def _next_turn(self, go_on: Callable[[], None]) -> None:
        if self._reader.state is WAIT:
            self._reader.state = HEAD
            go_on()

    # The client's end while reading is paused.

    def _heed_end(self) -> None:
        transport = self._carrier.transport
        sock = transport.get_extra_info("socket")
        if self._heeded < 0 and self._carrier.settings.real_loop and sock is not None and not transport.is_closing():
            self._heeded = sock.fileno()
            self._carrier.settings.hang_ups.watch(self._heeded, self._hung_up)

    def _ignore_end(self) -> None:
        self._carrier.settings.hang_ups.unwatch(self._heeded)
        self._heeded = -1

    def _hung_up(self, reset: bool) -> None:
        """The client has ended, or reset the connection. Its earlier input is still there, and is read in turn."""
        if reset:
            self._carrier.abort()
            return
        self.end = max(self.end, KNOWN)
        if self.cycle is not None:
            self.leave(self.cycle, reachable=True)

    def leave(self, cycle: RequestResponseCycle, reachable: bool = False) -> None:
        """The client of this request has gone; `reachable`: its response can still be sent."""
        cycle.disconnect(reachable)
        cancellation = self._carrier.settings.cancellation
        if cancellation is not None:
            cancellation.client_left(cycle.scope)

    def disconnect(self) -> None:
        """The server stops: tell the application as if its client were gone, while its response can still be sent."""
        if self.cycle is not None:
            self.cycle.disconnect(reachable=True)
