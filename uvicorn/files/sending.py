"""Files as response bodies: the ASGI extensions `http.response.pathsend` and `http.response.zerocopysend`.

::

    message ──▶ open, measure ──▶ declare ──▶ os.sendfile ──▶ read and write ──▶ complete
                 │ OSError           │ wrong length   │                │
                 ▼                   ▼                └── shorter now ──┴──▶ abandon
              raised, and nothing has been sent           raised, and the connection breaks off

Once, for every implementation: what sends is a `FileSink`, which both the Python cycle and the native one are.

The kernel moves the bytes where the socket can be written to beside its transport: plain connections of asyncio's
selector loops and of uvloop. Everywhere else (TLS, other transports, Windows), and if the file fits in one piece, they
are read and written. `loop.sendfile` is not used: uvloop lacks it, and asyncio's waits forever if the transport is
aborted meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import io
import os
import stat
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from uvicorn._types import FileRoute

PIECE = 131072
"""Bytes that are read and written at a time. For a smaller file the kernel's help does not pay."""

MOUNTED = "uvicorn.response.file"
"""A message of the server's own, when it is the application: `count` bytes of `file`, a descriptor, from `offset`; and
there may be `more_body`. Unlike others it is always offered, and where it fails the response is broken off."""

KERNEL_PIECE = 1048576
"""Bytes the kernel is given at a time, so that one fast client does not hold up the others."""

_PLAIN_TRANSPORTS = {
    ("asyncio.selector_events", "_SelectorSocketTransport"),
    ("uvloop.loop", "TCPTransport"),
    ("uvloop.loop", "UnixTransport"),
    ("uvicorn._native", "Transport"),
}

# Without O_NONBLOCK a named pipe would block the event loop until its other end is opened.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)

_SHORTER = "The file shrank while it was sent."


class FileSink(Protocol):
    """The response that a file becomes a part of, from the side of its connection."""

    @property
    def file_route(self) -> FileRoute | None:
        """By which the kernel can send files; `None` if there is none."""

    @property
    def unreachable(self) -> bool:
        """Whether nothing can be sent any longer."""

    @property
    def write_paused(self) -> bool:
        """The stream has enough to write."""

    def waiter(self) -> asyncio.Future[None]:
        """Return a future that is done when the stream takes more, or the connection ends."""

    def park(self) -> None:
        """The application waits until the client has read some of a file: its place is free meanwhile."""

    def resume(self) -> asyncio.Future[None] | None:
        """All of it is written. Returns a future if no place is free to go on; call again when that is done."""

    def force(self) -> None:
        """The application goes on, whether or not there is a place."""

    def await_reader(self) -> None:
        """Start the deadline for the client to read data sent by the file route."""

    def stop_awaiting_reader(self) -> None:
        """Cancel that deadline."""

    def declare(self, kind: str, length: int, more_body: bool) -> bool:
        """Prepare for `length` bytes of the body, and refuse other messages until `complete`.

        Returns whether these bytes are wanted: not if there are none, nor in answer to HEAD.

        Raises:
            RuntimeError: a message of type `kind` is out of order, or the length contradicts the Content-Length.
        """

    def write(self, data: bytes, /) -> None:
        """Write some of these bytes to the stream, now, behind all that is in front of them."""

    def sent(self, size: int) -> None:
        """Count `size` of these bytes as sent by the file route."""

    def complete(self, begun: bool, more_body: bool) -> None:
        """All were written, if they were wanted (`begun`): go on with the response, or complete it."""

    def abandon(self) -> None:
        """Break the response off: not all that was declared can be sent."""


class FileRange:
    """The bytes of an open file that are still to be sent; never more than there were at first."""

    __slots__ = ("descriptor", "offset", "left")

    def __init__(self, descriptor: int, offset: int = 0, count: int | None = None, name: str | None = None) -> None:
        """Measure the file.

        Raises:
            OSError: it cannot be measured, or is not a regular file.
        """
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", name)
        self.descriptor = descriptor
        self.offset = offset
        self.left = max(status.st_size - offset, 0)
        if count is not None:
            self.left = min(self.left, count)

    async def read(self) -> bytes:
        """Return the next piece.

        Raises:
            RuntimeError: the file is shorter than announced.
        """
        data = await _read(self.descriptor, min(self.left, PIECE), self.offset)
        self._advance(len(data))
        return data

    def send_to(self, socket: int) -> int:
        """Have the kernel send as much as the socket takes at once, and return how much that was.

        Raises:
            OSError: it cannot, or the peer is gone.
            RuntimeError: the file is shorter than announced.
        """
        if sys.platform == "win32":
            return 0
        try:
            sent = os.sendfile(socket, self.descriptor, self.offset, min(self.left, KERNEL_PIECE))
        except BlockingIOError:
            return 0
        self._advance(sent)
        return sent

    def _advance(self, size: int) -> None:
        if not size:
            raise RuntimeError(_SHORTER)
        self.offset += size
        self.left -= size


async def send_file(sink: FileSink, message: Mapping[str, Any]) -> None:
    """Take a `http.response.pathsend` or a `http.response.zerocopysend` message from the application.

    Does nothing once the client is gone, and returns in the middle when it goes.

    Raises:
        OSError: the file cannot be opened, is not a regular one, or cannot be read.
        RuntimeError: the message is out of order, the file contradicts the Content-Length, or became shorter.
        TypeError: a value of the wrong type.
        ValueError: a negative number.
    """
    try:
        await _writable(sink)
        if sink.unreachable:
            return
        if message["type"] == "http.response.pathsend":
            await _send_path(sink, message["path"])
        elif message["type"] == MOUNTED:
            await _send_mounted(sink, message)
        else:
            await _send_open_file(sink, message)
        # Parked from the first wait on: sending a file is not work of the application.
        while not sink.unreachable and (future := sink.resume()) is not None:
            await future
    finally:
        sink.force()


async def _send_path(sink: FileSink, path: object) -> None:
    """Send a whole file, as the end of the body.

    The specification wants an absolute path. A relative one is taken from the working directory nevertheless, as `open`
    does, because Starlette passes on the arguments of its `FileResponse`.
    """
    if not isinstance(path, str):
        raise TypeError(f"The path of a file to send must be a str, got {path!r}.")
    descriptor = os.open(path, _OPEN_FLAGS)
    try:
        await _send(sink, "http.response.pathsend", FileRange(descriptor, name=path), more_body=False)
    finally:
        os.close(descriptor)


async def _send_open_file(sink: FileSink, message: Mapping[str, Any]) -> None:
    """Send from a file that the application has opened, and will close."""
    file = message["file"]
    offset, count = _number(message, "offset"), _number(message, "count")
    descriptor = _descriptor(file)
    position = await _tell(file) if offset is None else offset
    part = FileRange(descriptor, position, count)
    position += part.left
    await _send(sink, "http.response.zerocopysend", part, bool(message.get("more_body", False)))
    if offset is None:
        await _seek(file, position)


async def _send_mounted(sink: FileSink, message: Mapping[str, Any]) -> None:
    """Send exactly the announced part of a file, or abort."""
    try:
        part = FileRange(message["file"], message["offset"], message["count"])
        if part.left < message["count"]:
            raise RuntimeError(_SHORTER)
    except (OSError, RuntimeError):
        sink.abandon()
        raise
    await _send(sink, MOUNTED, part, message["more_body"])


def _number(message: Mapping[str, Any], name: str) -> int | None:
    value = message.get(name)
    if value is None:
        return None
    if not isinstance(value, int):
        raise TypeError(f"The {name} of a file to send must be an int, got {value!r}.")
    if value < 0:
        raise ValueError(f"The {name} of a file to send must not be negative, got {value}.")
    return value


def _descriptor(file: Any) -> int:
    if isinstance(file, int):
        return file
    try:
        descriptor: int = file.fileno()
    except (AttributeError, io.UnsupportedOperation):
        raise TypeError(f"A file to send must have a file descriptor, got {file!r}.") from None
    return descriptor


async def _tell(file: Any) -> int:
    """Return the position of a file; of a Python object its own, which buffering sets apart from the descriptor's."""
    if not hasattr(file, "tell"):
        return os.lseek(_descriptor(file), 0, os.SEEK_CUR)
    position = file.tell()
    if inspect.isawaitable(position):  # anyio's files
        position = await position
    return int(position)


async def _seek(file: Any, position: int) -> None:
    if not hasattr(file, "seek"):
        os.lseek(_descriptor(file), position, os.SEEK_SET)
        return
    moved = file.seek(position)
    if inspect.isawaitable(moved):
        await moved


async def _send(sink: FileSink, kind: str, part: FileRange, more_body: bool) -> None:
    """Make `part` a piece of the body."""
    if sink.unreachable:
        return
    begun = sink.declare(kind, part.left, more_body)
    if begun:
        try:
            if part.left > PIECE and (route := sink.file_route) is not None:
                await route.move(sink, part)
            await _copy(sink, part)
        except BaseException:
            sink.abandon()
            raise
    if not sink.unreachable:
        sink.complete(begun, more_body)


async def _writable(sink: FileSink) -> None:
    """Wait until the stream takes more to write, or the connection ends."""
    while sink.write_paused and not sink.unreachable:
        sink.park()
        await sink.waiter()


# Reading and writing.


async def _copy(sink: FileSink, part: FileRange) -> None:
    while part.left:
        await _writable(sink)
        data = b"" if sink.unreachable else await part.read()
        if sink.unreachable:
            return
        sink.write(data)
        if part.left:
            await asyncio.sleep(0)  # a fast client is not to hold up the others


if sys.platform == "win32":

    async def _read(descriptor: int, size: int, offset: int) -> bytes:
        """Read at an offset. In one go, because the position in between is not the file's own."""
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        try:
            os.lseek(descriptor, offset, os.SEEK_SET)
            return os.read(descriptor, size)
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)

else:

    async def _read(descriptor: int, size: int, offset: int) -> bytes:
        """Read at an offset: at once if the data is in memory, otherwise in a thread."""
        if _is_cached(descriptor, offset + size - 1):
            return os.pread(descriptor, size, offset)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, os.pread, descriptor, size, offset)


def _is_cached(descriptor: int, position: int) -> bool:
    """Tell whether a byte of a file, and so most likely those in front of it, can be read without waiting."""
    if sys.platform == "linux":
        try:
            os.preadv(descriptor, [bytearray(1)], position, os.RWF_NOWAIT)
        except OSError:  # it is not, or the file system cannot tell
            return False
        return True
    return False


# The kernel's way.


def route_past(transport: asyncio.Transport | None) -> SocketRoute | None:
    """Return the way past `transport`, if its socket can be written to beside it by the kernel."""
    kind = type(transport)
    known = (kind.__module__, kind.__qualname__) in _PLAIN_TRANSPORTS
    if not known or not hasattr(os, "sendfile") or transport is None or transport.is_closing():
        return None
    return SocketRoute(transport) if transport.get_extra_info("sslcontext") is None else None


class SocketRoute:
    """Sends files by the socket of a transport, past that: a `FileRoute`."""

    __slots__ = ("_transport",)

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    async def move(self, sink: FileSink, part: FileRange) -> None:
        """Let the kernel move `part` to the socket, as far as it can."""
        transport = self._transport
        low, high = transport.get_write_buffer_limits()
        # The transport is to wake us when everything in front of the file has left it, and not before.
        transport.set_write_buffer_limits(0)
        try:
            sink.write(b"")
            await _writable(sink)
            if not sink.unreachable and not transport.get_write_buffer_size():
                await _Pump(sink, transport, part).run()
        finally:
            if not transport.is_closing():
                transport.set_write_buffer_limits(high, low)


def _duplicate(transport: asyncio.Transport) -> int:
    """Return a new descriptor of a connection.

    Raises:
        OSError: there is none left.
    """
    duplicate = getattr(transport, "duplicate", None)
    # The socket that our own transport shows is a duplicate as well, and stays as long as the connection.
    return int(duplicate()) if duplicate is not None else os.dup(transport.get_extra_info("socket").fileno())


class _Pump:
    """Moves a part of a file whenever its socket takes more."""

    __slots__ = ("_sink", "_transport", "_part", "_socket", "_over", "_failure", "_waiter")

    def __init__(self, sink: FileSink, transport: asyncio.Transport, part: FileRange) -> None:
        self._sink = sink
        self._transport = transport
        self._part = part
        self._socket = -1
        self._over = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Return when all has been sent, when the client is gone, or when the rest must be copied."""
        try:
            # A duplicate descriptor: loops refuse to watch that of a transport, and a duplicate cannot be reused for
            # another connection meanwhile.
            self._socket = _duplicate(self._transport)
        except OSError:
            return
        try:
            self._step()
            if not self._over:
                await self._watch()
        finally:
            os.close(self._socket)
        if self._failure is None or isinstance(self._failure, ConnectionError):
            while self._part.left and not self._sink.unreachable:
                await self._sink.waiter()
        elif not isinstance(self._failure, OSError):
            raise self._failure

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_writer(self._socket, self._step)
        self._sink.park()
        self._sink.await_reader()
        try:
            while not self._over and not self._sink.unreachable:
                self._waiter = self._sink.waiter()
                await self._waiter
        finally:
            loop.remove_writer(self._socket)
            self._sink.stop_awaiting_reader()

    def _step(self) -> None:
        if self._over:
            return
        if self._sink.unreachable or self._transport.is_closing():
            self._end()
            return
        try:
            self._sink.sent(self._part.send_to(self._socket))
        except ConnectionError as exc:
            # The transport would notice only if it was reading.
            self._transport.abort()
            self._end(exc)
        except Exception as exc:
            self._end(exc)
        else:
            if not self._part.left:
                self._end()
            elif self._waiter is not None:
                self._sink.await_reader()

    def _end(self, failure: Exception | None = None) -> None:
        self._over = True
        self._failure = failure
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
