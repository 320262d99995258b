"""Types shared by every layer: ASGI messages and scopes, WSGI, and the structural types between our own layers.

The typed dicts follow the ASGI specification (https://asgi.readthedocs.io), main part and extensions. A key is
``NotRequired`` where a sender may leave it out. The structural types at the end name what one layer may ask of another,
so that a lower layer never imports a higher one.
"""

# No ``from __future__ import annotations`` here: it would turn ``NotRequired[...]`` into text, and the
# ``__required_keys__`` that validators read from a typed dict would then name keys that are not required.

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from ssl import SSLContext
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TypeAlias

if sys.version_info >= (3, 11):
    from typing import NotRequired, TypedDict
else:
    from typing_extensions import NotRequired, TypedDict

__all__ = [
    "EXTENSIONS_10",
    "EXTENSIONS_WEBSOCKET",
    "ASGI2Application",
    "ASGI2Protocol",
    "ASGI3Application",
    "ASGIApplication",
    "ASGIReceiveCallable",
    "ASGIReceiveEvent",
    "ASGISendCallable",
    "ASGISendEvent",
    "ASGIVersions",
    "Connection",
    "Environ",
    "Events",
    "ExcInfo",
    "ExtensionType",
    "HTTPDisconnectEvent",
    "HTTPRequestEvent",
    "HTTPResponseBodyEvent",
    "HTTPResponseDebugEvent",
    "HTTPResponseEarlyHintEvent",
    "HTTPResponsePathSendEvent",
    "HTTPResponseStartEvent",
    "HTTPResponseTrailersEvent",
    "HTTPResponseZeroCopySendEvent",
    "HTTPScope",
    "HTTPServerPushEvent",
    "HasFileno",
    "LifespanScope",
    "LifespanShutdownCompleteEvent",
    "LifespanShutdownEvent",
    "LifespanShutdownFailedEvent",
    "LifespanStartupCompleteEvent",
    "LifespanStartupEvent",
    "LifespanStartupFailedEvent",
    "ProtocolConfig",
    "ProtocolFactory",
    "Scope",
    "StartResponse",
    "Stream",
    "WSGIApp",
    "WWWScope",
    "WebSocketAcceptEvent",
    "WebSocketCloseEvent",
    "WebSocketConnectEvent",
    "WebSocketDisconnectEvent",
    "WebSocketEvent",
    "WebSocketProtocolFactory",
    "WebSocketReceiveEvent",
    "WebSocketResponseBodyEvent",
    "WebSocketResponseStartEvent",
    "WebSocketScope",
    "WebSocketSendEvent",
    "WriteCapacity",
]


# WSGI (PEP 3333)

Environ: TypeAlias = MutableMapping[str, Any]
ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]
StartResponse: TypeAlias = Callable[..., Callable[[bytes], object]]  # status, headers, exc_info=None; gives write()
WSGIApp: TypeAlias = Callable[[Environ, StartResponse], Iterable[bytes]]


# Scopes


class ASGIVersions(TypedDict):
    """Versions of ASGI: of the interface the application speaks, and of the protocol part of the specification."""

    spec_version: str
    version: Literal["2.0", "3.0"]


class HTTPScope(TypedDict):
    """One HTTP request. ``path`` is decoded text, ``raw_path`` and ``query_string`` are bytes as sent."""

    type: Literal["http"]
    asgi: ASGIVersions
    http_version: str
    method: str
    scheme: str
    path: str
    raw_path: bytes
    query_string: bytes
    root_path: str
    headers: Iterable[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    server: tuple[str, int | None] | None
    state: NotRequired[dict[str, Any]]
    request_id: NotRequired[str]
    traceparent: NotRequired[str]
    tracestate: NotRequired[str]
    extensions: NotRequired[dict[str, dict[object, object]]]


class WebSocketScope(TypedDict):
    """One WebSocket connection, from its handshake on."""

    type: Literal["websocket"]
    asgi: ASGIVersions
    http_version: str
    scheme: str
    path: str
    raw_path: bytes
    query_string: bytes
    root_path: str
    headers: Iterable[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    server: tuple[str, int | None] | None
    subprotocols: Iterable[str]
    state: NotRequired[dict[str, Any]]
    request_id: NotRequired[str]
    traceparent: NotRequired[str]
    tracestate: NotRequired[str]
    extensions: NotRequired[dict[str, dict[object, object]]]


class LifespanScope(TypedDict):
    """The life of one event loop of the server; what the application puts in ``state`` reaches each of its requests."""

    type: Literal["lifespan"]
    asgi: ASGIVersions
    state: NotRequired[dict[str, Any]]


WWWScope: TypeAlias = HTTPScope | WebSocketScope
Scope: TypeAlias = HTTPScope | WebSocketScope | LifespanScope


# HTTP messages

ExtensionType = Literal[
    "http.response.trailers",
    "http.response.early_hint",
    "http.response.pathsend",
    "http.response.zerocopysend",
    "tls",
    "uvicorn.on_disconnect",
    "all",
]
"""Extensions that scopes can offer: values of the setting ``asgi_extensions``."""

ON_DISCONNECT: Final = "uvicorn.on_disconnect"
"""The extension, and the key of a scope, by which an application decides for one request: `"cancel"`, `"ignore"`."""

EXTENSIONS_10: tuple[ExtensionType, ...] = (
    "http.response.pathsend",
    "http.response.zerocopysend",
    "tls",
    "uvicorn.on_disconnect",
)
"""Those that clients of HTTP/1.0 have: they know neither chunks, where trailers go, nor interim responses."""

EXTENSIONS_WEBSOCKET: tuple[ExtensionType, ...] = ("tls", "uvicorn.on_disconnect")
"""Those that WebSockets have, beside the one that all of them have."""


class HTTPRequestEvent(TypedDict):
    """A piece of the request body; the last one has ``more_body`` false."""

    type: Literal["http.request"]
    body: bytes
    more_body: bool


class HTTPDisconnectEvent(TypedDict):
    """The client is gone, or the response is complete."""

    type: Literal["http.disconnect"]


class HTTPResponseStartEvent(TypedDict):
    """Status and header fields of the response."""

    type: Literal["http.response.start"]
    status: int
    headers: NotRequired[Iterable[tuple[bytes, bytes]]]
    trailers: NotRequired[bool]


class HTTPResponseBodyEvent(TypedDict):
    """A piece of the response body; absent ``more_body`` means it was the last."""

    type: Literal["http.response.body"]
    body: bytes
    more_body: NotRequired[bool]


class HTTPResponseDebugEvent(TypedDict):
    """Extension ``http.response.debug``: facts for test clients, never sent to the peer."""

    type: Literal["http.response.debug"]
    info: dict[str, object]


class HTTPResponseTrailersEvent(TypedDict):
    """Extension ``http.response.trailers``: sends fields after the body, if the start had ``trailers``."""

    type: Literal["http.response.trailers"]
    headers: Iterable[tuple[bytes, bytes]]
    more_trailers: bool


class HTTPServerPushEvent(TypedDict):
    """Extension ``http.response.push``: a request the server answers unasked."""

    type: Literal["http.response.push"]
    path: str
    headers: Iterable[tuple[bytes, bytes]]


class HasFileno(Protocol):
    """An open file of the operating system."""

    def fileno(self) -> int:
        """Return its descriptor."""


class HTTPResponsePathSendEvent(TypedDict):
    """Extension ``http.response.pathsend``: sends a file as the rest of the body."""

    type: Literal["http.response.pathsend"]
    path: str


class HTTPResponseZeroCopySendEvent(TypedDict):
    """Extension ``http.response.zerocopysend``: sends part of an open file.

    Without ``offset`` it begins at the file's position, which moves on; without ``count`` it is the rest of the file.
    """

    type: Literal["http.response.zerocopysend"]
    file: HasFileno | int
    offset: NotRequired[int]
    count: NotRequired[int]
    more_body: NotRequired[bool]


class HTTPResponseEarlyHintEvent(TypedDict):
    """Extension ``http.response.early_hint``: sends a 103 (RFC 8297) with a ``Link`` field for each."""

    type: Literal["http.response.early_hint"]
    links: Iterable[bytes]


# WebSocket messages


class WebSocketConnectEvent(TypedDict):
    """The client asks to open; accept, close, or answer with a response."""

    type: Literal["websocket.connect"]


class WebSocketAcceptEvent(TypedDict):
    """Open the connection."""

    type: Literal["websocket.accept"]
    subprotocol: NotRequired[str | None]
    headers: NotRequired[Iterable[tuple[bytes, bytes]]]


class _WebSocketReceiveBytesEvent(TypedDict):
    type: Literal["websocket.receive"]
    bytes: bytes
    text: NotRequired[None]


class _WebSocketReceiveTextEvent(TypedDict):
    type: Literal["websocket.receive"]
    bytes: NotRequired[None]
    text: str


WebSocketReceiveEvent: TypeAlias = _WebSocketReceiveBytesEvent | _WebSocketReceiveTextEvent


class _WebSocketSendBytesEvent(TypedDict):
    type: Literal["websocket.send"]
    bytes: bytes
    text: NotRequired[None]


class _WebSocketSendTextEvent(TypedDict):
    type: Literal["websocket.send"]
    bytes: NotRequired[None]
    text: str


WebSocketSendEvent: TypeAlias = _WebSocketSendBytesEvent | _WebSocketSendTextEvent


class WebSocketResponseStartEvent(TypedDict):
    """Extension ``websocket.http.response``: refuse the handshake with this status and these fields."""

    type: Literal["websocket.http.response.start"]
    status: int
    headers: Iterable[tuple[bytes, bytes]]


class WebSocketResponseBodyEvent(TypedDict):
    """Extension ``websocket.http.response``: a piece of the refusal's body."""

    type: Literal["websocket.http.response.body"]
    body: bytes
    more_body: NotRequired[bool]


class WebSocketDisconnectEvent(TypedDict):
    """The connection is closed; ``code`` is the close code of RFC 6455 section 7.4."""

    type: Literal["websocket.disconnect"]
    code: int
    reason: NotRequired[str | None]


class WebSocketCloseEvent(TypedDict):
    """Close the connection, or refuse it with 403 when it is not open yet. Absent ``code`` means 1000."""

    type: Literal["websocket.close"]
    code: NotRequired[int]
    reason: NotRequired[str | None]


# Lifespan messages


class LifespanStartupEvent(TypedDict):
    """The event loop runs; requests wait until the application has answered."""

    type: Literal["lifespan.startup"]


class LifespanStartupCompleteEvent(TypedDict):
    """The application is ready."""

    type: Literal["lifespan.startup.complete"]


class LifespanStartupFailedEvent(TypedDict):
    """The application cannot start; ``message`` is logged and the server ends."""

    type: Literal["lifespan.startup.failed"]
    message: str


class LifespanShutdownEvent(TypedDict):
    """The last request is done; the application may close what it opened."""

    type: Literal["lifespan.shutdown"]


class LifespanShutdownCompleteEvent(TypedDict):
    """The application has closed what it opened."""

    type: Literal["lifespan.shutdown.complete"]


class LifespanShutdownFailedEvent(TypedDict):
    """Closing failed; ``message`` is logged."""

    type: Literal["lifespan.shutdown.failed"]
    message: str


WebSocketEvent: TypeAlias = WebSocketReceiveEvent | WebSocketDisconnectEvent | WebSocketConnectEvent

ASGIReceiveEvent: TypeAlias = (
    HTTPRequestEvent
    | HTTPDisconnectEvent
    | WebSocketConnectEvent
    | WebSocketReceiveEvent
    | WebSocketDisconnectEvent
    | LifespanStartupEvent
    | LifespanShutdownEvent
)

ASGISendEvent: TypeAlias = (
    HTTPResponseStartEvent
    | HTTPResponseBodyEvent
    | HTTPResponseTrailersEvent
    | HTTPServerPushEvent
    | HTTPResponseEarlyHintEvent
    | HTTPResponsePathSendEvent
    | HTTPResponseZeroCopySendEvent
    | HTTPDisconnectEvent
    | WebSocketAcceptEvent
    | WebSocketSendEvent
    | WebSocketResponseStartEvent
    | WebSocketResponseBodyEvent
    | WebSocketCloseEvent
    | LifespanStartupCompleteEvent
    | LifespanStartupFailedEvent
    | LifespanShutdownCompleteEvent
    | LifespanShutdownFailedEvent
)

ASGIReceiveCallable: TypeAlias = Callable[[], Awaitable[ASGIReceiveEvent]]
ASGISendCallable: TypeAlias = Callable[[ASGISendEvent], Awaitable[None]]


class ASGI2Protocol(Protocol):
    """The result of calling an ASGI 2 application with a scope: it is awaited with ``receive`` and ``send``."""

    def __init__(self, scope: Scope) -> None: ...

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None: ...


ASGI2Application: TypeAlias = type[ASGI2Protocol]
ASGI3Application: TypeAlias = Callable[[Scope, ASGIReceiveCallable, ASGISendCallable], Awaitable[None]]
ASGIApplication: TypeAlias = ASGI2Application | ASGI3Application


# Between our layers


class Connection(Protocol):
    """A live connection as the server knows it: something that can be asked to end."""

    def shutdown(self) -> None:
        """End gracefully: at once when idle, after the response in progress when not. Never raises, never waits."""


class WriteCapacity(Protocol):
    """Whether the carrier of a response takes more of it."""

    congested: bool
    """Its buffer is full, or others wait: new writers must wait for `Stream.writable` first."""
    write_paused: bool
    """It has enough."""

    def waiter(self) -> asyncio.Future[None]:
        """Return a future that is done when it takes more, or is gone."""


class FileRoute(Protocol):
    """A way past a stream by which the kernel sends files."""

    async def move(self, sink: Any, part: Any) -> None:
        """Send as much of ``part`` as possible, behind all data written before; see ``files.sending``."""


class Stream(Protocol):
    """The stream of one request and its response: all that a cycle knows of the connection and its protocol.

    The order is ``start``, ``body`` or a file until there is no more, ``trailers`` if they were promised, and
    ``finish``; ``interim`` in front of all that. The native core's trait has the same words.
    """

    @property
    def flow(self) -> WriteCapacity:
        """Of the connection."""

    @property
    def logger(self) -> logging.Logger:
        """The logger for errors of the application."""

    def dropped(self, scope: HTTPScope, message: ASGISendEvent) -> None:
        """A message of the response was dropped, because the client cannot be reached."""

    @property
    def own_connection(self) -> Any:
        """The connection as programs know it; ``None`` if it has other streams as well."""

    @property
    def file_route(self) -> "FileRoute | None":
        """By which the kernel sends files past this stream; ``None`` if all bytes have to come here."""

    @property
    def events(self) -> "Events":
        """Events for callers that wait for the request's body."""

    def offers(self, extension: str) -> bool:
        """Tell whether scopes offer this extension; messages of others are out of order."""

    def start(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> bool:
        """Prepare the head. Returns false if the response was started while ``fields`` were read.

        Raises:
            RuntimeError, TypeError: something that may not be sent; nothing has happened.
        """

    def body(self, data: bytes, more: bool, trailers: bool = False) -> int:
        """Write a piece of the body; ``trailers`` follow the last one. Returns how much of it is sent: nothing to HEAD.

        Raises:
            RuntimeError: it contradicts the length that was named.
        """

    def interim(self, status: int, fields: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Write an interim response, if there is a client for it and it is not too late."""

    def trailers(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Write the end of the response, with trailers if it can have some."""

    def want_body(self) -> None:
        """The application waits for more of the request's body, or for the client's end."""

    async def writable(self) -> None:
        """Wait until more can be written, or the client is gone; first come, first served."""

    def begin_file(self, length: int, more: bool) -> bool:
        """Make ready for ``length`` bytes of the body from a file. Returns whether they are wanted.

        Raises:
            RuntimeError: as for ``body``.
        """

    def sent_past(self, size: int) -> None:
        """Count `size` of these bytes as sent by the file route."""

    def file(self, data: bytes) -> None:
        """Write some of these bytes at once, after the pending output."""

    def end_file(self) -> None:
        """They are all written, here or by the file route."""

    def refuse(self, status: int, body: bytes) -> None:
        """Answer in place of an application that has not started its response, and take no further request."""

    def await_reader(self) -> None:
        """Start the deadline for the client to read data sent by the file route."""

    def stop_awaiting_reader(self) -> None:
        """Cancel that deadline."""

    def finish(self) -> None:
        """The response is complete: continue with the next request."""

    def announce_close(self) -> None:
        """This response is the last of its connection, where that matters."""

    def abort(self) -> None:
        """End a response that cannot be completed, so that the client notices."""

    def flush_log(self) -> None:
        """Write pending access lines, so that a following error line comes after them."""


class Events(Protocol):
    """A stock of events."""

    def acquire(self) -> asyncio.Event:
        """Return an unset event without waiters."""

    def release(self, event: asyncio.Event) -> None:
        """Give it back."""


class ProtocolConfig(Protocol):
    """The settings that protocols read from the configuration; ``uvicorn.config.settings`` documents each."""

    # The settings are written by scripts/sync-settings: begin.
    http2: bool
    ws_max_size: int
    ws_max_queue: int
    ws_ping_interval: float | None
    ws_ping_timeout: float | None
    ws_per_message_deflate: bool
    lifespan: Literal["auto", "on", "off"]
    access_log: bool
    root_path: str
    limit_concurrency: int | None
    timeout_keep_alive: int
    h11_max_incomplete_event_size: int | None
    reset_contextvars: bool
    timeout_request_head: float
    timeout_request_body: float
    timeout_write: float
    timeout_handshake: float
    limit_request_head: int
    limit_request_fields: int
    limit_request_target: int
    limit_request_body: int | None
    ws_shutdown_code: int
    access_log_format: str | None
    lifecycle_path: str | None
    request_id: bool
    request_id_header: str
    http2_max_concurrent_streams: int
    http2_initial_window_size: int
    http2_max_frame_size: int
    http2_max_header_list_size: int | None
    http2_ping_interval: float
    http2_ping_timeout: float
    limit_active_requests: int | Literal["auto"] | None
    limit_queue: int
    timeout_queue: float
    retry_after: int
    on_disconnect: Literal["ignore", "cancel"]
    on_disconnect_grace: float
    http3: bool
    http3_early_data: bool
    http3_max_concurrent_streams: int

    @property
    def asgi_extensions(self) -> Sequence[str]: ...

    @property
    def limit_exempt(self) -> Sequence[str]: ...

    @property
    def on_disconnect_exempt(self) -> Sequence[str]: ...

    # The settings are written by scripts/sync-settings: end.

    @property
    def trusted_proxies(self) -> list[str] | str | None:
        """Peers whose proxy headers and request ids are believed; None is none of them."""

    loaded: bool
    encoded_headers: list[tuple[bytes, bytes]]
    unavailable_app: "ASGI3Application | None"

    def load(self) -> None:
        """Import the application and resolve the classes below; once."""

    # Read-only, so that a configuration may declare more precise types.

    @property
    def mounts(self) -> "Sequence[tuple[str, str, str]]":
        """Where the server answers with files itself, the directories they are in, and their Cache-Control."""

    @property
    def loaded_app(self) -> ASGI3Application:
        """The application behind its adapters and middleware."""

    @property
    def asgi_version(self) -> Literal["2.0", "3.0"]:
        """Version of the interface of the application that was loaded."""

    @property
    def graceful_timeout(self) -> float | None:
        """Seconds a graceful shutdown may take; None: unlimited."""

    @property
    def is_ssl(self) -> bool:
        """Whether the server speaks TLS."""

    @property
    def ssl(self) -> SSLContext | None:
        """The TLS context, if any."""

    @property
    def http_protocol_class(self) -> "ProtocolFactory":
        """Makes the protocol of a new connection."""

    @property
    def ws_protocol_class(self) -> "WebSocketProtocolFactory | None":
        """Makes the protocol that takes over at a WebSocket upgrade; None leaves upgrades alone."""

    @property
    def lifespan_class(self) -> type[Any]:
        """Runs the lifespan of the application."""


class ProtocolFactory(Protocol):
    """Makes the protocol of one HTTP connection; the built-in ones and those given by class or import string.

    ``config`` is a ``uvicorn.config.Config`` and ``server_state`` a ``uvicorn.server.ServerState``, which third-party
    classes name in their signatures; both live above this module, hence ``Any``.
    """

    def __call__(
        self,
        config: Any,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> asyncio.Protocol: ...


class WebSocketProtocolFactory(Protocol):
    """Makes the protocol that takes over a connection at a WebSocket upgrade; arguments as for `ProtocolFactory`."""

    def __call__(self, *, config: Any, server_state: Any, app_state: dict[str, Any]) -> asyncio.Protocol: ...
