"""The transport of one connection: bytes that leave together, a client that does not read, a call that raises.

It knows nothing of HTTP. Output written while input is consumed leaves in one write at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable

from uvicorn.metrics.page import BYTES_SENT
from uvicorn.protocols.http.protocol_settings import ProtocolSettings
from uvicorn.protocols.http.scope import ScopeBase
from uvicorn.protocols.http.wire.request_reader import CLOSED, LINGER, RequestReader
from uvicorn.protocols.utils import client_prefix, is_ssl
from uvicorn.rules import texts
from uvicorn.rules.limits import HIGH_WATER_LIMIT
from uvicorn.serving.write_deadlines import reset_on_close, unsent_by_process


def pause_early(transport: asyncio.Transport) -> None:
    """Have `transport` pause writing while anything waits, and resume once nothing does."""
    # Not 0: asyncio's and uvloop's TLS would pause a writer with nothing left to write, until its next write.
    transport.set_write_buffer_limits(1)


def keep_little(transport: asyncio.Transport, most: int) -> None:
    """Limit the output of `transport` that later output cannot overtake: in the kernel to `most` bytes beyond those in
    flight; and make it pause writing early."""
    sock = transport.get_extra_info("socket")
    if sock is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        with contextlib.suppress(OSError):  # sockets other than TCP
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, most)
    pause_early(transport)


class Carrier:
    """Carries one connection.

    Args:
        transport: of the connection.
        base: the addresses of client and server.
        reader: stops reading once the transport has failed.
        settings: of the connection.
        logger: where its lines go.
        lost: called if the transport cannot even be aborted, because it will not report `connection_lost`.

    Attributes:
        transport: as above.
        ends_as_a_whole: it is encrypted, and cannot end its output without its input.
        settings: of the connection; assigned when a program gives it some of its own.
        logger: where its lines go; assigned when a program has one of its own.
        holding: output is held until the next `flush`; assigned while input is consumed.
        held: the held output.
    """

    __slots__ = (
        "transport",
        "ends_as_a_whole",
        "settings",
        "logger",
        "holding",
        "held",
        "_size",
        "_base",
        "_reader",
        "_lost",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        base: ScopeBase,
        reader: RequestReader,
        settings: ProtocolSettings,
        logger: logging.Logger,
        lost: Callable[[Exception | None], None],
    ) -> None:
        self.transport = transport
        # Doubles of programs do not have the method.
        self.ends_as_a_whole = is_ssl(transport) and not getattr(transport, "can_write_eof", bool)()
        self.settings = settings
        self.logger = logger
        self.holding = False
        self.held: list[bytes] = []
        self._size = 0
        self._base = base
        self._reader = reader
        self._lost: Callable[[Exception | None], None] | None = lost

    def note(self, level: int, text: str) -> None:
        """Log a line about this connection, with the client in front."""
        if self.logger.isEnabledFor(level):
            self.logger.log(level, "%s%s", client_prefix(self._base.client), text)

    # Bytes.

    def write(self, data: bytes) -> None:
        """Write `data`, with all else that is written while input is consumed."""
        self.held.append(data)
        self._size += len(data)
        if not self.holding or self._size > HIGH_WATER_LIMIT:
            self.flush()

    def flush(self) -> None:
        """Write the held output."""
        settings = self.settings
        log = settings.log_lines
        if log is not None and log.lines:
            log.precede()
        held = self.held
        if held:
            data = held[0] if len(held) == 1 else b"".join(held)
            self.held = []
            self._size = 0
            if settings.metrics is not None:
                settings.metrics.words[BYTES_SENT] += len(data)
            try:
                self.transport.write(data)
            except Exception as exc:
                self.fail(exc)

    # A transport that raises.

    def attempt(self, act: Callable[[], object]) -> None:
        """Have the transport do something, which ends the connection if it cannot."""
        try:
            act()
        except Exception as exc:
            self.fail(exc)

    def fail(self, exc: Exception) -> None:
        """The transport has raised: whatever the connection was doing is over, and `connection_lost` clears up."""
        if not isinstance(exc, OSError):
            self.logger.error("Transport failed, aborting the connection.\n", exc_info=exc)
        self._reader.state = CLOSED
        try:
            self.transport.abort()
        except Exception:
            if self._lost is not None:
                self._lost(exc)

    # The end.

    def close(self) -> None:
        """Close once everything is written, which is up to the client; it has its time for that."""
        self.attempt(self._close)

    def _close(self) -> None:
        self.transport.close()
        if unsent_by_process(self.transport):
            self.await_reader()

    def abort(self) -> None:
        """Close at once, whatever is still to be written."""
        self.attempt(self.transport.abort)

    def can_linger(self) -> bool:
        """Whether reading can continue after the last output."""
        transport = self.transport
        if not self.settings.real_loop:
            return False
        try:
            return not transport.is_closing() and (self.ends_as_a_whole or transport.can_write_eof())
        except Exception as exc:
            self.fail(exc)
            return False

    def reset_on_close(self) -> None:
        """See to it that closing resets the connection, so that the peer does not take it for a regular end."""
        reset_on_close(self.transport)

    def leave(self) -> None:
        """Let go of the connection, which is closed or belongs to another protocol."""
        self._lost = None
        self.stop_awaiting_reader()

    # A client that does not read: `readers.Writer`.

    @property
    def awaits_reader(self) -> bool:
        """The client was given its time to read some of its pending output."""
        return self.settings.write_deadlines.waits(self)

    def await_reader(self) -> None:
        """Give the client time to read some of its pending output."""
        self.settings.write_deadlines.wait(self)

    def stop_awaiting_reader(self) -> None:
        """The client has taken enough of it."""
        self.settings.write_deadlines.forget(self)

    def reader_is_late(self) -> None:
        """The client has taken next to nothing in all its time."""
        if self._reader.state is LINGER and not unsent_by_process(self.transport):
            self.abort()  # the rest is up to the kernel
            return
        self.note(logging.DEBUG, texts.READER_LATE)
        self.reset_on_close()  # otherwise the kernel would keep its buffer for the client
        self.abort()
