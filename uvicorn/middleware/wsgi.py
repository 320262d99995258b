"""WSGI applications (PEP 3333), each request in a thread of a pool.

``WSGIMiddleware`` is the adapter of the package a2wsgi where that is installed, and otherwise the built-in one below,
which is deprecated: it reads a request's body into memory before the application starts.

Either way header fields with an underscore in their name do not reach the application: its environ could not tell
``X_Forwarded_For``, which anybody may send, from the ``X-Forwarded-For`` of a proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import io
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from uvicorn._types import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGISendCallable,
    ASGISendEvent,
    Environ,
    ExcInfo,
    HTTPRequestEvent,
    HTTPResponseBodyEvent,
    HTTPResponseStartEvent,
    HTTPScope,
    Scope,
    StartResponse,
    WSGIApp,
)
from uvicorn.metrics.routes import ORIGINAL_SCOPE

_QUEUE_SIZE = 10
"""Messages an application's thread may be ahead of the network: enough to keep both busy, without filling memory."""

_CGI_NAMES = {b"content-type": "CONTENT_TYPE", b"content-length": "CONTENT_LENGTH"}


def unambiguous_fields(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the header fields whose names stay apart in an environ, where ``-`` and ``_`` are written the same."""
    return [field for field in headers if b"_" not in field[0]]


def build_environ(scope: HTTPScope, message: HTTPRequestEvent, body: io.BytesIO) -> Environ:
    """Return the environ of one request, ``body`` being its input stream (``message`` is not looked at).

    Text is as PEP 3333 wants it: the bytes of UTF-8, read as latin-1.
    """
    script_name = scope.get("root_path", "").encode("utf-8").decode("latin-1")
    path_info = scope["path"].encode("utf-8").decode("latin-1")
    if path_info.startswith(script_name):
        path_info = path_info[len(script_name) :]
    server = scope.get("server") or ("localhost", 80)
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": script_name,
        "PATH_INFO": path_info,
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": server[0],
        "SERVER_PORT": server[1],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": body,
        "wsgi.errors": sys.stdout,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    client = scope.get("client")
    if client is not None:
        environ["REMOTE_ADDR"] = client[0]
    _add_fields(environ, unambiguous_fields(scope["headers"]))
    return environ


def _add_fields(environ: Environ, headers: Iterable[tuple[bytes, bytes]]) -> None:
    values: dict[str, list[str]] = {}
    for name, value in headers:
        key = _CGI_NAMES.get(name) or "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        values.setdefault(key, []).append(value.decode("latin-1"))
    for key, lines in values.items():
        environ[key] = ",".join(lines)


class _WSGIMiddleware:
    """The built-in adapter: runs the application in a pool of ``workers`` threads of its own."""

    def __init__(self, app: WSGIApp, workers: int = 10) -> None:
        warnings.warn(
            "Uvicorn's native WSGI implementation is deprecated, you should switch to a2wsgi (`pip install a2wsgi`).",
            DeprecationWarning,
            stacklevel=2,
        )
        self.app = app
        self.executor = ThreadPoolExecutor(thread_name_prefix="WSGI", max_workers=workers)

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Serve one HTTP request; other scopes are refused by an AssertionError."""
        assert scope["type"] == "http"
        await WSGIResponder(self.app, self.executor, scope)(receive, send)


if TYPE_CHECKING:  # To a type checker both are the one whose signature is ours.
    WSGIMiddleware = _WSGIMiddleware
else:
    try:
        from a2wsgi import WSGIMiddleware as _A2WSGIMiddleware
    except ModuleNotFoundError:
        WSGIMiddleware = _WSGIMiddleware
    else:

        class WSGIMiddleware(_A2WSGIMiddleware):
            """a2wsgi's adapter, shielded from header fields that an environ cannot tell apart."""

            async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
                """Serve one scope."""
                if scope["type"] == "http":
                    copy: dict = {**scope, "headers": unambiguous_fields(scope["headers"]), ORIGINAL_SCOPE: scope}
                    scope = copy
                await super().__call__(scope, receive, send)


class RequestLimit:
    """Admits a limited number of requests; the others wait with their bodies unread, or are refused.

    Args:
        app: the application behind the limit.
        places: how many there are.
        refuse: answers a request that finds none; None if it is to wait, in the order in which they came.
    """

    def __init__(self, app: ASGI3Application, places: int, refuse: ASGI3Application | None) -> None:
        self._app = app
        self._free = places
        self._refuse = refuse
        self._line: deque[asyncio.Future[None]] = deque()

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Serve one scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._free:
            self._free -= 1
        elif self._refuse is not None:
            await self._refuse(scope, receive, send)
            return
        else:
            await self._wait()
        try:
            await self._app(scope, receive, send)
        finally:
            self._leave()

    async def _wait(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled():
                self._leave()  # it was given away in the same moment
            raise

    def _leave(self) -> None:
        """Give the place to the first caller that still waits."""
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1


class _Abandoned(Exception):
    """Raised in the application's thread when its output cannot be sent any longer."""


class WSGIResponder:
    """One request: the application runs in a thread and puts messages on a queue, a coroutine sends them.

    The thread waits when it is `_QUEUE_SIZE` messages ahead, and learns at its next message that the request is over.
    """

    def __init__(self, app: WSGIApp, executor: Executor, scope: HTTPScope) -> None:
        self.app = app
        self.executor = executor
        self.scope = scope
        self.exc_info: ExcInfo | None = None
        self.loop = asyncio.get_running_loop()
        self._messages: asyncio.Queue[ASGISendEvent | None] = asyncio.Queue()
        self._room = threading.Semaphore(_QUEUE_SIZE)
        self._abandoned = False
        self._head: HTTPResponseStartEvent | None = None
        self._head_sent = False

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Read the whole request, run the application and send its response; its exceptions are raised here.

        A client that goes away before its request is complete has not made a request: the application is not run.
        """
        body = await self._read_body(receive)
        if body is None:
            return
        environ = build_environ(self.scope, {"type": "http.request", "body": b"", "more_body": False}, body)
        environ["asgi.scope"] = self.scope
        context = contextvars.copy_context()
        run = partial(context.run, self.wsgi, environ, self.start_response)
        thread = self.loop.run_in_executor(self.executor, run)
        try:
            await self.sender(send)
        except BaseException:
            # The thread cannot be stopped, only notified; its outcome is dropped.
            self._abandon()
            thread.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise
        await thread
        if self.exc_info is not None:
            raise self.exc_info[1].with_traceback(self.exc_info[2])

    async def _read_body(self, receive: ASGIReceiveCallable) -> io.BytesIO | None:
        body = io.BytesIO()
        more_body = True
        while more_body:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body.write(message.get("body", b""))
            more_body = message.get("more_body", False)
        body.seek(0)
        return body

    async def sender(self, send: ASGISendCallable) -> None:
        """Send the messages that the application's thread puts on the queue, until it has ended."""
        while (message := await self._messages.get()) is not None:
            self._room.release()
            await send(message)

    def _abandon(self) -> None:
        self._abandoned = True
        self._room.release()

    # From here on: called in the application's thread.

    def start_response(
        self, status: str, response_headers: Iterable[tuple[str, str]], exc_info: ExcInfo | None = None
    ) -> Callable[[bytes], None]:
        """Take the status line and header fields, which go out with the first piece of the body.

        With ``exc_info`` it replaces a head that has not gone out yet; if it has, the exception is raised again. Either
        way the error reaches the server in the end. Returns the ``write`` callable of PEP 3333.
        """
        if exc_info is not None:
            self.exc_info = exc_info
            if self._head_sent:
                raise exc_info[1].with_traceback(exc_info[2])
        elif self._head is not None:
            raise AssertionError("start_response() was called twice without exc_info")
        self._head = {
            "type": "http.response.start",
            "status": int(status.split(" ", 1)[0]),
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response_headers],
        }
        return self._write

    def wsgi(self, environ: Environ, start_response: StartResponse) -> None:
        """Run the application and put its response on the queue, then the mark that nothing follows."""
        try:
            chunks = self.app(environ, start_response)
            try:
                for chunk in chunks:
                    self._write(chunk)
            finally:
                if hasattr(chunks, "close"):
                    chunks.close()
            self._put({"type": "http.response.body", "body": b"", "more_body": False})
        except _Abandoned:
            pass
        except StopIteration as exc:
            # A future cannot carry it, so the coroutine would wait forever.
            raise RuntimeError("the application raised StopIteration") from exc
        finally:
            # The loop may be gone by now, if the server did not wait for this thread.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._messages.put_nowait, None)

    def _write(self, chunk: bytes) -> None:
        # It is sent by another thread, later: a buffer that the application uses again is copied here.
        data = chunk if type(chunk) is bytes else bytes(memoryview(chunk))
        body: HTTPResponseBodyEvent = {"type": "http.response.body", "body": data, "more_body": True}
        self._put(body)

    def _put(self, message: HTTPResponseBodyEvent) -> None:
        if not self._head_sent:
            if self._head is None:
                raise AssertionError("the application sent a body before it called start_response()")
            self._head_sent = True
            self._put_one(self._head)
        self._put_one(message)

    def _put_one(self, message: ASGISendEvent) -> None:
        if not self._abandoned:
            self._room.acquire()
        if self._abandoned:
            raise _Abandoned
        self.loop.call_soon_threadsafe(self._messages.put_nowait, message)
