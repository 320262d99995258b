"""Accepts connections for a selector event loop; and handles, on any loop, running out of file descriptors.

When `accept()` fails with EMFILE, `loop.create_server` of asyncio's selector loop tries again as often as the backlog
is long, logs a traceback for each try and starts a timer for each: thousands a second while clients wait. Here the
socket rests for `RETRY_DELAY` instead, connections that are served go on, and the log gets one line per shortage.
Proactor loops and uvloop accept below Python; `uvicorn.listening.sockets.listen` leaves it to them. uvloop then closes
each new connection at once and silently: a `WatchedServer` logs that.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from uvicorn.listening.connection_limit import (
    ConnectionLimit,
    ConnectionSlot,
    CountedListener,
    CountedSocket,
    Rejections,
)
from uvicorn.listening.proxy_protocol import MalformedHeader, ProxiedProtocol, ProxyHeader, complain, receive_header
from uvicorn.rules.grace import GraceTimer, is_readable, wait_for

if TYPE_CHECKING:
    from uvicorn._native import Listener, Poller

BATCH = 64
"""Connections accepted in one turn of the loop, so that those already open get their turn too."""

RETRY_DELAY = 0.5
"""Seconds a socket rests after the system had no descriptor (or memory) for a connection."""

QUIET_PERIOD = 60.0
"""Seconds within which further shortages are not logged again."""

WATCH_INTERVAL = 1.0
"""Seconds between two looks of a `WatchedServer` while clients come."""

HANDSHAKE_TIMEOUT = 60.0
"""Seconds until a protocol is made, by default: the loops' own default for TLS handshakes."""

OPENING_GRACE = 0.25
"""Seconds that TLS handshakes under way have left when the socket is closed; other connections need a turn or two."""

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

# Errors of the one connection that was to be accepted, not of the socket (accept(2): treat like EAGAIN and go on).
_LOST = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOPROTOOPT,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EPROTO,
        errno.ETIMEDOUT,
    }
)

logger = logging.getLogger("uvicorn.error")


class ShortageLog:
    """A line about a shortage, and then none for a while."""

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def warn(self, exc: OSError, follows: str, now: float) -> None:
        """Log that connections cannot be accepted, and the consequence."""
        if now >= self._quiet_until:
            logger.error("Cannot accept new connections: %s. %s", exc, follows)
            self._quiet_until = now + QUIET_PERIOD


class Checkpoint(NamedTuple):
    """Checks that connections must pass before a protocol is made; none by default.

    Attributes:
        expects: whether a peer at this address, or without one, must begin with a PROXY header.
        connection_limit: counts connections.
        note_refused: called for each that has no room.
        note_malformed: called for each whose PROXY header is malformed.
    """

    expects: Callable[[str | None], bool] | None = None
    connection_limit: ConnectionLimit | None = None
    note_refused: Callable[[], object] = lambda: None
    note_malformed: Callable[[], object] = lambda: None

    @property
    def is_open(self) -> bool:
        """Whether there is nothing to pass."""
        return self.expects is None and self.connection_limit is None

    def counted(self, tell: Callable[[], object]) -> CountedListener | None:
        """Return what counts connections, if they are counted; `tell` is called when there is room again."""
        if self.connection_limit is None:
            return None
        return CountedListener(self.connection_limit, tell, self.note_refused)


OPEN = Checkpoint()
"""Nothing to pass."""


class NativeCheckpoint(NamedTuple):
    """The same, as the native core asks."""

    expects: Callable[[str | None], bool] | None
    enter: Callable[[], ConnectionSlot | None] | None
    reject: Callable[[int], None]


NEVER = 1e6
"""Seconds: disables the event loop's own handshake timeout, which counts time in which the loop was blocked."""


class _InvalidProxyHeader(Exception):
    """A peer that must begin with a PROXY header did not."""


class Acceptor(asyncio.AbstractServer):
    """Serves one listening socket on a selector event loop; the counterpart of the result of `loop.create_server`.

    `factory` makes the protocol of each connection; `backlog` connections may wait to be accepted. With `context`,
    connections start with a TLS handshake that may take `handshake_timeout` seconds; one that fails or takes longer is
    closed without a log line. Connections that do not pass `checkpoint` are closed as well. If `is_shared`, other
    processes accept from the same socket.
    """

    def __init__(
        self,
        sock: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        backlog: int,
        context: ssl.SSLContext | None = None,
        handshake_timeout: float | None = None,
        checkpoint: Checkpoint = OPEN,
        is_shared: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = sock
        self._factory = factory
        self._backlog = backlog
        self._context = context
        self._handshake_timeout = handshake_timeout or HANDSHAKE_TIMEOUT
        self._checkpoint = checkpoint
        self._is_shared = is_shared
        self._listens = False
        self._counted = checkpoint.counted(self._announce_capacity)
        self._rejections = Rejections(self._loop)
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._shortage_log = ShortageLog()

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening socket; nothing once closed."""
        return () if self._sock is None else (self._sock,)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop connections are served on."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether connections are accepted (a pause for lack of descriptors included)."""
        return self._sock is not None

    async def start_serving(self) -> None:
        """Listen and accept connections from now on."""
        assert self._sock is not None, "the acceptor is closed"
        self._sock.setblocking(False)
        if self._sock.family != getattr(socket, "AF_UNIX", None):
            # Accepted sockets inherit it. asyncio sets it only on sockets that were made for TCP by name.
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.listen(self._backlog)
        self._listens = True
        self._watch()

    def _is_closed(self) -> bool:
        """Whether the program that supplied the socket has closed it."""
        return self._sock is None or self._sock.fileno() < 0

    def _watch(self) -> None:
        assert self._sock is not None
        if not self._is_closed():
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def _look_away(self) -> None:
        assert self._sock is not None
        if not self._is_closed():
            self._loop.remove_reader(self._sock.fileno())

    def leave_rest(self) -> None:
        """Leave waiting connections to another process at `close`: it accepts from the same socket."""
        self._is_shared = True

    async def serve_forever(self) -> None:
        """Accept connections until this call is cancelled, then close."""
        await self.start_serving()
        try:
            await self._loop.create_future()
        finally:
            self.close()

    def close(self) -> None:
        """Accept only waiting connections from now on. They get their protocol, if they are ready for it soon."""
        if self._sock is None:
            return
        if self._listens and not self._is_shared:
            self._take_rest()
        self._look_away()
        if self._retry is not None:
            self._retry.cancel()
        if self._counted is not None:
            self._counted.close()
        self._rejections.close()
        self._sock.close()
        self._sock = None
        if self._opening:
            GraceTimer(self._loop, OPENING_GRACE, self._give_up_opening)

    def _take_rest(self) -> None:
        """Accept all waiting connections: the system resets pending ones when the socket is closed."""
        while self._retry is None and self._accept():
            pass

    def _give_up_opening(self) -> None:
        for task in self._opening:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return once no connection is half open, soon after `close`; established ones are not awaited."""
        while self._opening:
            await asyncio.wait(self._opening)

    def _accept(self) -> bool:
        """Accept connections. Returns whether more may wait."""
        assert self._sock is not None
        for _ in range(BATCH):
            slot = None
            if self._counted is not None:
                slot = self._enter()
                if slot is None:
                    return False
            try:
                connection, address = self._sock.accept()
            except OSError as exc:
                if slot is not None:
                    slot.leave()
                if isinstance(exc, (BlockingIOError, InterruptedError)):
                    return False
                if exc.errno in _LOST:
                    continue
                if not self._is_closed():
                    self._rest(exc)
                return False
            if slot is not None:
                connection = CountedSocket.take(connection, slot)
            connection.setblocking(False)
            task = self._loop.create_task(self._open(connection, address, slot))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        return True

    async def _open(self, connection: socket.socket, address: Any, slot: ConnectionSlot | None) -> None:
        """Hand the accepted socket to a new protocol: after its PROXY header, and after the TLS handshake if there
        is one."""
        deadline = self._loop.time() + self._handshake_timeout
        try:
            proxy_header = await self._receive_header(connection, address)
            client = address if proxy_header is None or proxy_header.source is None else proxy_header.source
            if slot is not None and not slot.admit(_host_of(client)):
                if self._context is None:
                    self._reject(connection.detach())
                connection.close()
                return
            protocol = self._factory()
        except _InvalidProxyHeader as exc:
            connection.close()
            self._note_lost(exc, address)
            return
        except BaseException:
            connection.close()
            raise
        if proxy_header is not None:
            protocol = ProxiedProtocol(protocol, proxy_header)
        never = None if self._context is None else NEVER
        # From here on asyncio owns the socket and closes it when something goes wrong.
        opened = self._loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=self._context, ssl_handshake_timeout=never
        )
        try:
            if self._context is None:
                await opened
            else:
                await wait_for(opened, max(0.001, deadline - self._loop.time()), lambda: is_readable(connection))
        except asyncio.TimeoutError:
            self._note_lost("the TLS handshake took too long", address)
        except OSError as exc:  # ssl.SSLError is one
            self._note_lost(exc, address)

    @staticmethod
    def _note_lost(exc: object, address: Any) -> None:
        client = f"{address[0]}:{address[1]} - " if isinstance(address, tuple) else ""
        logger.debug("%sConnection lost while it was being set up: %s", client, exc)

    async def _receive_header(self, connection: socket.socket, address: Any) -> ProxyHeader | None:
        """The peer's description of its client, if the peer is a proxy that has to give one.

        Raises:
            _InvalidProxyHeader: it does not.
        """
        expects = self._checkpoint.expects
        if expects is None or not expects(_host_of(address)):
            return None
        try:
            return await wait_for(receive_header(connection), self._handshake_timeout, lambda: is_readable(connection))
        except asyncio.TimeoutError:
            raise _InvalidProxyHeader("the PROXY header took too long") from None
        except OSError as exc:
            raise _InvalidProxyHeader(str(exc)) from exc
        except MalformedHeader as exc:
            self._checkpoint.note_malformed()
            complain(address, str(exc))
            raise _InvalidProxyHeader(str(exc)) from exc

    # Room for connections.

    def _enter(self) -> ConnectionSlot | None:
        """A place for one connection more; without one nothing is accepted until there is."""
        assert self._counted is not None
        slot = self._counted.enter()
        if slot is None:
            self._look_away()
        return slot

    def _reject(self, descriptor: int) -> None:
        """Answer the connection of `descriptor`, which owns it from then on, that there is no room."""
        self._rejections.tell(socket.socket(fileno=descriptor))

    def _announce_capacity(self) -> None:
        """Called from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._find_room)

    def _find_room(self) -> None:
        if self._sock is not None and self._retry is None:
            self._watch()

    def _rest(self, exc: OSError) -> None:
        """Look away from the socket for a while: the selector would report it again at once."""
        assert self._sock is not None
        follows = "Waiting for connections to close." if exc.errno in _SHORTAGES else "Trying again."
        self._shortage_log.warn(exc, follows, self._loop.time())
        self._look_away()
        self._retry = self._loop.call_later(RETRY_DELAY, self._resume)

    def _resume(self) -> None:
        self._retry = None
        if self._sock is not None:
            self._watch()


def _host_of(address: Any) -> str | None:
    return address[0] if isinstance(address, tuple) else None


class NativeAcceptor(Acceptor):
    """Serves one listening socket through a `Poller`, which also reads and writes its connections."""

    def __init__(
        self,
        sock: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        backlog: int,
        poller: Poller,
        context: ssl.SSLContext | None = None,
        handshake_timeout: float | None = None,
        checkpoint: Checkpoint = OPEN,
        is_shared: bool = False,
    ) -> None:
        super().__init__(
            sock,
            factory,
            backlog=backlog,
            context=context,
            handshake_timeout=handshake_timeout,
            checkpoint=checkpoint,
            is_shared=is_shared,
        )
        self.poller = poller
        self._listener: Listener | None = None
        self._opened: asyncio.Future[None] | None = None

    def _watch(self) -> None:
        if self._listener is None:
            assert self._sock is not None
            from uvicorn._native import Listener

            self._listener = Listener(
                self.poller,
                self._sock.dup().detach(),
                self._factory,
                self._fail,
                self._context,
                self._handshake_timeout,
                NativeCheckpoint(
                    self._checkpoint.expects, None if self._counted is None else self._enter, self._reject
                ),
            )
        self._listener.resume()

    def _look_away(self) -> None:
        assert self._listener is not None
        self._listener.pause()

    def _take_rest(self) -> None:
        if self._listener is not None:
            self._listener.take_rest()

    def close(self) -> None:
        """Stop accepting. Handshakes in progress have a moment left."""
        if self._sock is None:
            return
        super().close()
        # It knows us, too, and the collector does not see that.
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            self._opened = self._loop.create_future()
            if listener.when_opened(self._is_opened):
                GraceTimer(self._loop, OPENING_GRACE, listener.give_up_opening)
            else:
                self._is_opened()

    async def wait_closed(self) -> None:
        """Return once no handshake is in progress, soon after `close`; connections are not awaited."""
        if self._opened is not None:
            await asyncio.shield(self._opened)

    def _is_opened(self) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def _fail(self, exc: OSError) -> bool:
        """Whether the socket is looked away from, because of `exc`."""
        if exc.errno in _LOST:
            return False
        self._rest(exc)
        return True


class WatchedServer(asyncio.AbstractServer):
    """A server of a loop that accepts below Python, and keeps it to itself that there are no descriptors left.

    Whether there are is looked at when a client comes, at most once in `WATCH_INTERVAL`, and once more after that.
    Without clients nothing happens. It has all other attributes of `server`.
    """

    def __init__(self, server: asyncio.AbstractServer, sock: socket.socket) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._shortage_log = ShortageLog()
        self._timer: asyncio.TimerHandle | None = None
        # The loop does not let a descriptor it serves be watched. A duplicate socket object would be made blocking, or
        # not, as Python believes the original to be, and the original with it.
        self._descriptor: int | None = os.dup(sock.fileno())
        self._watch()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop connections are served on."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether connections are accepted."""
        return self._server.is_serving()

    async def start_serving(self) -> None:
        """Accept connections from now on."""
        await self._server.start_serving()

    async def serve_forever(self) -> None:
        """Accept connections until this call is cancelled, then close."""
        try:
            await self._server.serve_forever()
        finally:
            self.close()

    def close(self) -> None:
        """Stop accepting."""
        self._server.close()
        if self._descriptor is None:
            return
        self._loop.remove_reader(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._descriptor)
        self._descriptor = None

    async def wait_closed(self) -> None:
        """Return once the server is closed, as it understands that."""
        await self._server.wait_closed()

    def _watch(self) -> None:
        assert self._descriptor is not None
        self._timer = None
        self._loop.add_reader(self._descriptor, self._see)

    def _see(self) -> None:
        """A client has come. Others may, for a while, unwatched."""
        assert self._descriptor is not None
        self._loop.remove_reader(self._descriptor)
        self._look()
        self._timer = self._loop.call_later(WATCH_INTERVAL, self._look_again)

    def _look_again(self) -> None:
        self._look()
        self._watch()

    def _look(self) -> None:
        """Take a descriptor, if there is one, and give it back."""
        assert self._descriptor is not None
        try:
            os.close(os.dup(self._descriptor))
        except OSError as exc:
            self._shortage_log.warn(exc, "They are closed at once until others end.", self._loop.time())
