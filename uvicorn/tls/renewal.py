"""Certificates during service: load renewed ones, and warn before any expires, or a revocation list.

Once a day, at the start, when they are renewed and when they expire, those that need attention have a line in the log;
of several workers one writes it. Keys of session tickets are forgotten after their period, even if none is used.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from uvicorn.listening.loads import WorkerLoad
from uvicorn.metrics.page import CERTIFICATES, MOST_CERTIFICATES, Page
from uvicorn.tls.certificates import Certificate, RevocationList
from uvicorn.tls.context import RenewableContext, Watch, in_force
from uvicorn.tls.server_context import ServerContext
from uvicorn.tls.validity import (
    DAY,
    HOUR,
    Notice,
    changes,
    in_use,
    latest,
    notice_of_authority,
    notice_of_certificate,
    notice_of_list,
)

if TYPE_CHECKING:
    from uvicorn.tls.tickets import TicketSecret

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
        self._told: set[bytes] = set()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
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
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.stop()

    def look(self) -> None:
        """Record when the certificates expire, warn once a day if that is soon, and look again within an hour."""
        self.note()
        if self._secret is not None:
            self._secret.advance()
        now = self._clock()
        self._warn(now)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = contextvars.Context().run(self._loop.call_later, self.pause(now), self.look)

    def pause(self, now: float) -> float:
        """Return the seconds after `now` until the next look: an hour, less if something expires or becomes valid."""
        authorities, lists = self._of_clients()
        times = changes((*(found for _, found in self._shown()), *authorities), lists)
        return min([HOUR, *(time - now + 1 for time in times if time >= now)])

    def _warn(self, now: float) -> None:
        notices = list(self._notices(now))
        day = b"%d " % (now // DAY)
        told, self._told = self._told, {day + notice.key for notice in notices}
        if self._told == told:
            return
        # Of this day and these objects: others that are loaded today have their lines too.
        note = zlib.crc32(day + b"".join(notice.key for notice in notices)) or 1
        if self._place is None or self._place.is_first_to(note):
            for notice in notices:
                if day + notice.key not in told:
                    logger.log(notice.level, "%s", notice.text)

    def _notices(self, now: float) -> Iterator[Notice]:
        authorities, lists = self._of_clients()
        return filter(
            None,
            (
                *(notice_of_certificate(name, found, now) for name, found in self._shown()),
                *(notice_of_authority(found, now) for found in latest(authorities, now)),
                *(notice_of_list(found, now) for found in in_use(lists, now)),
            ),
        )

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

    def _of_clients(self) -> tuple[Sequence[Certificate], Sequence[RevocationList]]:
        """Return what the certificates of clients are verified by."""
        context = in_force(self._context)
        return (context.authorities, context.lists) if isinstance(context, ServerContext) else ((), ())

    def _renewed(self) -> None:
        """Called in the thread of the watch. The page is the event loop's to write."""
        try:
            self._loop.call_soon_threadsafe(self._follow)
        except RuntimeError:  # it is closed
            pass

    def _follow(self) -> None:
        """Other certificates are in force."""
        if not self._is_stopped:
            self.look()
