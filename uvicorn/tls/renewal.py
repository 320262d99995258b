"""Certificates during service: load renewed ones, and warn before they expire.

Once a day, at the start and when they are renewed, those that expire soon have a line in the log; of several workers
one writes it. Keys of session tickets are forgotten after their period, even if none is used.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import ssl
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from uvicorn.listening.loads import WorkerLoad
from uvicorn.metrics.page import CERTIFICATES, MOST_CERTIFICATES, Page
from uvicorn.tls.certificates import Certificate
from uvicorn.tls.context import RenewableContext, Watch, in_force
from uvicorn.tls.server_context import ServerContext

if TYPE_CHECKING:
    from uvicorn.tls.tickets import TicketSecret

DAY = 86400
HOUR = 3600
NOTICE = 14 * DAY
"""Seconds before expiry in which warnings are logged."""

logger = logging.getLogger("uvicorn.error")


class CertificateWatch:
    """Watches the certificates that `context` shows to clients of the running event loop, from `start` to `stop`.

    Args:
        context: the server's.
        interval: seconds between two looks at the files, if it can be renewed.
        page: where it is noted when the certificates expire.
        place: by which one of several workers is the one that says so.
        secret: of session tickets.
        on_reload: as of a `Watch`.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        interval: float | None,
        page: Page | None,
        place: WorkerLoad | None,
        secret: TicketSecret | None = None,
        on_reload: Callable[[bool], object] = lambda begins: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._context = context
        self._page = page
        self._place = place
        self._secret = secret
        self._clock = clock
        self._told = -1
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._watch: Watch | None = None
        if interval is not None and isinstance(context, RenewableContext):
            self._watch = Watch(context.renewal, interval, self._renewed, on_reload)

    def start(self) -> None:
        """Watch from now on."""
        self.look()
        if self._watch is not None:
            self._watch.start()

    def wake(self) -> None:
        """Look at once for new certificates; from any thread or signal handler."""
        if self._watch is not None:
            self._watch.wake()

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.stop()

    def look(self) -> None:
        """Record when the certificates expire, warn once a day if that is soon, and check again in an hour."""
        self.note()
        if self._secret is not None:
            self._secret.advance()
        self._warn(self._clock())
        self._timer = contextvars.Context().run(self._loop.call_later, HOUR, self.look)

    def _warn(self, now: float) -> None:
        soon = [(name, found) for name, found in self._shown() if found.not_after - now < NOTICE]
        # Of this day and these certificates: others that are loaded today have their lines too.
        note = zlib.crc32(b"%d " % (now // DAY) + b"".join(found.der for _, found in soon)) or 1
        if not soon or self._told == note:
            return
        self._told = note
        if self._place is None or self._place.is_first_to(note):
            for name, certificate in soon:
                _tell(name, certificate, now)

    def note(self) -> None:
        """Note when the certificates expire, for the metrics."""
        if self._page is None:
            return
        context = in_force(self._context)
        ends = {name: max(1, found.not_after) for name, found in self._shown()}
        names = ("default", *context.hosts) if isinstance(context, ServerContext) else ()
        for place, name in enumerate(names[:MOST_CERTIFICATES], CERTIFICATES):
            self._page.words[place] = ends.get(name, 0)

    def _shown(self) -> list[tuple[str, Certificate]]:
        context = in_force(self._context)
        return list(context.shown()) if isinstance(context, ServerContext) else []

    def _renewed(self) -> None:
        """Called in the thread of the watch. The page is the event loop's to write."""
        try:
            self._loop.call_soon_threadsafe(self._follow)
        except RuntimeError:  # it is closed
            pass

    def _follow(self) -> None:
        """Other certificates are in force."""
        self.note()
        self._warn(self._clock())


def _tell(name: str, certificate: Certificate, now: float) -> None:
    """One line."""
    date = time.strftime("%Y-%m-%d", time.gmtime(certificate.not_after))
    days = int((certificate.not_after - now) // DAY)
    names = ", ".join(certificate.names)
    if days < 0:
        logger.error("The TLS certificate (%s: %s) expired on %s.", name, names, date)
    else:
        logger.warning("The TLS certificate (%s: %s) expires on %s, in %d days.", name, names, date, days)
