"""The attributes and methods of a session that programs use, under upstream's names, above all in subclasses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from uvicorn._types import ASGI3Application, ASGIReceiveEvent, Connection, ProtocolConfig, WebSocketScope
from uvicorn.hooks import original
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.utils import functions_of, is_secure
from uvicorn.protocols.websockets.inbox import Inbox
from uvicorn.protocols.websockets.keepalive import KeepAlive
from uvicorn.protocols.websockets.session_states import SessionState
from uvicorn.rules.websocket_limits import CLOSE_TIMEOUT

if TYPE_CHECKING:
    from uvicorn.protocols.websockets.close_handshake import CloseHandshake
    from uvicorn.protocols.websockets.incoming import Incoming
    from uvicorn.protocols.websockets.output import Output
    from uvicorn.serving.state import ServerState


def _of_keepalive(name: str, meaning: str) -> Any:
    def get(self: Attributes) -> Any:
        return getattr(self.keepalive, name)

    def assign(self: Attributes, value: Any) -> None:
        setattr(self.keepalive, name, value)

    return property(get, assign, doc=meaning)


def _of_scope(name: str, meaning: str) -> Any:
    """An attribute that the scope will have; a program may assign it until the handshake is read."""

    def get(self: Attributes) -> Any:
        given: dict[str, Any] = vars(self)
        return given[name] if name in given else self._origin(name)

    def assign(self: Attributes, value: Any) -> None:
        vars(self)[name] = value

    return property(get, assign, doc=meaning)


class Writable:
    """Upstream's event that is set while the transport takes more; programs clear and set it in methods of theirs."""

    __slots__ = ("_flow", "_output")

    def __init__(self, flow: FlowControl, output: Output) -> None:
        self._flow = flow
        self._output = output

    def is_set(self) -> bool:
        """Whether the transport takes more."""
        return not self._flow.write_paused

    def set(self) -> None:
        """Resume waiting callers."""
        self._output.resume()

    def clear(self) -> None:
        """Have senders wait."""
        self._output.pause()

    async def wait(self) -> Literal[True]:
        """Return when the transport takes more, or is gone."""
        await self._flow.drain()
        return True


class EventQueue:
    """Upstream's queue of events for the application; overridden methods put events there."""

    __slots__ = ("_session",)

    def __init__(self, session: Attributes) -> None:
        self._session = session

    def qsize(self) -> int:
        """How many events there are."""
        return len(self._session.inbox.queue)

    def empty(self) -> bool:
        """Whether there is none."""
        return not self._session.inbox.queue

    def put_nowait(self, event: ASGIReceiveEvent) -> None:
        """Add an event; behind `websocket.disconnect` there is nothing to add."""
        self._session.put_event(event)

    async def put(self, event: ASGIReceiveEvent) -> None:
        """The same."""
        self.put_nowait(event)

    async def get(self) -> ASGIReceiveEvent:
        """Return the next event. This bypasses an overridden `receive` of the session."""
        return await self._session.receive_next()

    def get_nowait(self) -> ASGIReceiveEvent:
        """Return the next event.

        Raises:
            asyncio.QueueEmpty: there is none.
        """
        if self.empty():
            raise asyncio.QueueEmpty
        return self._session.inbox.take()


@original
class Attributes(asyncio.Protocol):
    """The attributes of a session that have a meaning to others.

    Attributes:
        flow: of its transport.
        keepalive: its pings.
        inbox: the events that the application has not received yet.
        close_timeout: seconds the client has to answer a close frame.
    """

    __slots__ = ("flow", "keepalive", "inbox")

    config: ProtocolConfig
    app: ASGI3Application
    server_state: ServerState
    transport: asyncio.Transport
    scope: WebSocketScope | None
    state: SessionState
    flow: FlowControl
    keepalive: KeepAlive
    inbox: Inbox
    _output: Output
    _closing: CloseHandshake
    _incoming: Incoming

    close_timeout = CLOSE_TIMEOUT

    never_called: tuple[str, ...] = ()
    """Methods of upstream's classes that nothing calls; see `uvicorn.hooks`."""

    never_used: tuple[str, ...] = ()
    """Full names of the classes that upstream builds a connection from and that nothing here uses."""

    frame_methods: tuple[str, ...] = ()
    """Methods called for the client's frames if a program has overridden one of them."""

    ping_interval = _of_keepalive("interval", "Seconds between pings; `None` or 0 for none.")
    ping_timeout = _of_keepalive("timeout", "Seconds a pong may take; `None` or 0 for any time.")
    ping_timer = _of_keepalive("ping_timer", "The timer of the next ping.")
    pong_timer = _of_keepalive("pong_timer", "The timer of the pong's deadline.")
    pending_ping_payload = _of_keepalive("payload", "That of the ping whose pong is awaited, else `None`.")
    ping_sent_at = _of_keepalive("sent_at", "When the last ping was sent, by the loop's clock.")
    last_ping_rtt = _of_keepalive("rtt", "Seconds the last answered ping took.")

    client = _of_scope("client", "The peer's address, `None` if it has none.")
    server = _of_scope("server", "The address of this end.")
    scheme = _of_scope("scheme", "`ws` or `wss`.")
    root_path = _of_scope("root_path", "The path below which the application is mounted.")

    def _origin(self, name: str) -> Any:
        """Return the original value of such an attribute; `None` before there is a connection."""
        if name == "root_path":
            return self.config.root_path
        transport = self.transport
        if transport is None:
            return None
        functions = functions_of(type(self))
        if name == "scheme":
            return "wss" if is_secure(transport, functions.is_ssl) else "ws"
        return functions.get_remote_addr(transport) if name == "client" else functions.get_local_addr(transport)

    @property
    def asgi_version(self) -> str:
        """The version of the application's interface."""
        return self.config.asgi_version

    @property
    def connections(self) -> set[Connection]:
        """All connections of the server."""
        return self.server_state.connections

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The tasks of all requests that the server answers."""
        return self.server_state.tasks

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Fields of each response of the server."""
        return self.server_state.default_headers

    @property
    def handshake_initiated(self) -> bool:
        """The handshake was read."""
        return self.scope is not None

    @property
    def close_sent(self) -> bool:
        """Whether only frames that the close needs are still sent. A program may set it after sending a close frame."""
        return self.state >= SessionState.CLOSING

    @close_sent.setter
    def close_sent(self, value: bool) -> None:
        if value and self.state is SessionState.ACCEPTED:
            self._closing.sent_by_program()

    @property
    def writable(self) -> Writable:
        """Whether the transport takes more, as upstream has it."""
        return Writable(self.flow, self._output)

    def start_keepalive(self) -> None:
        """The connection is open: the first ping is due in one interval."""
        self.keepalive.start()

    def stop_keepalive(self) -> None:
        """Stop pings and deadlines."""
        self.keepalive.stop()

    def schedule_ping(self) -> None:
        """Schedule the next ping; called whenever its time becomes known."""
        self.keepalive.schedule()

    def send_keepalive_ping(self) -> None:
        """Send a ping, now; called when it is due."""
        self.keepalive.ping()

    @property
    def queue(self) -> EventQueue:
        """Events the application has not received yet, as upstream has them."""
        return EventQueue(self)

    def put_event(self, event: ASGIReceiveEvent) -> None:
        """Add an event that a program has made; `websocket.disconnect` is the last."""
        if event["type"] == "websocket.disconnect":
            self._closing.tell(event["code"], event.get("reason"))
        elif self.inbox.end is None:
            self._incoming.put(event)

    async def receive_next(self) -> ASGIReceiveEvent:
        """Return the next event."""
        raise NotImplementedError

    def _resume_reading(self) -> None:
        """Read on, beginning with the bytes that have arrived."""
        raise NotImplementedError

    @property
    def disconnected(self) -> bool:
        """Whether the application's disconnect event is queued or delivered."""
        return self.inbox.end is not None

    @property
    def read_paused(self) -> bool:
        """Reading from the socket is paused because the application does not read. A program may assign it."""
        return self.flow.read_paused

    @read_paused.setter
    def read_paused(self, value: bool) -> None:
        if value:
            self.flow.pause_reading()
        elif self.state is SessionState.ACCEPTED:
            self._resume_reading()
        else:
            self.flow.resume_reading()
