"""Starting the application on the requests of one connection."""

from __future__ import annotations

import asyncio
import contextvars
from typing import cast

from uvicorn.protocols.http import texts
from uvicorn.protocols.http.carrier import Carrier
from uvicorn.protocols.http.deadline import NOTHING, Deadline
from uvicorn.protocols.http.h1_stream import H1Stream
from uvicorn.protocols.http.input import Input
from uvicorn.protocols.http.patience import Patience
from uvicorn.protocols.http.protocol_settings import ProtocolSettings
from uvicorn.protocols.http.request_reader import Piece, Request, RequestReader
from uvicorn.protocols.http.response_writer import AWAITING
from uvicorn.protocols.http.scope import ScopeBase
from uvicorn.protocols.http.states import HERE, OPEN
from uvicorn.protocols.utils import start_task
from uvicorn.state import ServerState


class Runner:
    """Makes the cycle of each request, and has its application started.

    Args:
        loop: the event loop.
        carrier: of the connection.
        state: of the server.
        base: of each scope.
        reader: what the requests were read by.
        source: gives a request the body behind it.
        stream: what responses go to.
        deadline: of the connection.
        patience: waits for bodies.
        settings: of the connection.

    Attributes:
        settings: of the connection; assigned when a program gives it some of its own.
    """

    __slots__ = (
        "settings",
        "_loop",
        "_carrier",
        "_state",
        "_base",
        "_reader",
        "_input",
        "_stream",
        "_deadline",
        "_patience",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        carrier: Carrier,
        state: ServerState,
        base: ScopeBase,
        reader: RequestReader,
        source: Input,
        stream: H1Stream,
        deadline: Deadline,
        patience: Patience,
        settings: ProtocolSettings,
    ) -> None:
        self.settings = settings
        self._loop = loop
        self._carrier = carrier
        self._state = state
        self._base = base
        self._reader = reader
        self._input = source
        self._stream = stream
        self._deadline = deadline
        self._patience = patience

    def begin(self, request: Request) -> None:
        """Start the application on a request."""
        line, fields, framing, body, _ = request
        settings = self.settings
        state, stream, source = self._state, self._stream, self._input
        _, stream.keep_alive, expect_continue, _, forwarded = framing
        app = settings.app if forwarded else settings.direct_app
        limit = settings.limit_concurrency
        if limit is not None and (len(state.connections) >= limit or len(state.tasks) >= limit):
            self._carrier.logger.warning(texts.CONCURRENCY_EXCEEDED)
            app = settings.unavailable_app
        scope = self._base.build(line, fields)
        writer = stream.writer
        writer.state = AWAITING
        writer.head_request = line[0] == "HEAD"
        writer.http_10 = line[1] == "1.0"
        self._deadline.waits = NOTHING
        source.cycle = cycle = settings.cycle_class(stream, scope, body is None, expect_continue)
        if settings.formatted is not None:
            cycle.entry = settings.formatted.begin(scope)
        if settings.metrics is not None:
            cycle.course = settings.metrics.begin(scope["method"])
        if body is not None:
            cycle.body = body
        else:
            if not expect_continue:
                self._patience.await_body()
            # What is there reaches the cycle before the application starts, which then need not wait for it.
            piece = self._reader.read()
            if piece is not None:
                source.take(cast(Piece, piece))
        if source.end is not OPEN:
            cycle.disconnect(reachable=True)
        context = contextvars.Context() if settings.reset_contextvars else state.context.copy()
        # After the client's end a response has to know whether it is the last: not before all input is pending.
        eager = settings.eager and source.end is not HERE
        task = start_task(self._loop, cycle.run_asgi(app), context, eager)
        if not (eager and task.done()):
            cycle.task = task
            state.tasks.add(task)
            task.add_done_callback(state.tasks.discard)
