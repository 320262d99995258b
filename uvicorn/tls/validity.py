"""Log lines about certificates and revocation lists that expire soon, have expired or are not yet valid."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from uvicorn.tls.certificates import Certificate, RevocationList

HOUR = 3600
DAY = 24 * HOUR
NOTICE = 14 * DAY
"""Seconds before expiry in which warnings are logged, at most."""

LIST_PART = 10
"""The last part of a revocation list's validity in which warnings are logged, as a divisor.

Issuers replace lists early: halfway (AWS), after two thirds (step-ca), five sixths (Vault) or nine tenths (Microsoft).
A longer notice would warn about each list of the last ones.
"""


class Notice(NamedTuple):
    """One line of the log.

    Attributes:
        key: equal for lines that say the same about the same object.
        level: of the line.
        text: itself.
    """

    key: bytes
    level: int
    text: str


def notice_of_certificate(name: str, certificate: Certificate, now: float) -> Notice | None:
    """Return what to log about the certificate for the host `name`, `default` for all other names."""
    what = f"The TLS certificate ({name}: {', '.join(certificate.names)})"
    date = time.strftime("%Y-%m-%d", time.gmtime(certificate.not_after))
    if now < certificate.not_before:
        level = logging.ERROR
        setting = "ssl_certfile" if name == "default" else "ssl_cert"
        text = (
            f"{what} is not valid before {minute(certificate.not_before)}: clients reject it. Check this machine's "
            f"clock, or replace the files of {setting}."
        )
    elif certificate.not_after < now:
        level, text = logging.ERROR, f"{what} expired on {date}."
    elif certificate.not_after - now < NOTICE:
        days = int((certificate.not_after - now) // DAY)
        level, text = logging.WARNING, f"{what} expires on {date}, in {days} days."
    else:
        return None
    return Notice(b"%d %s" % (level, certificate.der), level, text)


def notice_of_authority(authority: Certificate, now: float) -> Notice | None:
    """Return what to log about a certificate that may sign those of clients."""
    what = f"The authority {authority.subject} in the file of ssl_ca_certs"
    accepted = "no client certificate of it is accepted"
    if now < authority.not_before:
        level = logging.ERROR
        text = f"{what} is not valid before {minute(authority.not_before)}: {accepted}. Check this machine's clock."
    elif authority.not_after < now:
        level = logging.ERROR
        text = f"{what} expired on {minute(authority.not_after)}: {accepted}. Replace or remove it."
    elif authority.not_after - now < NOTICE:
        level = logging.WARNING
        left = duration(authority.not_after - now)
        text = f"{what} expires on {minute(authority.not_after)}, in {left}: from then on {accepted}. Replace it."
    else:
        return None
    return Notice(b"%d authority %s" % (level, authority.der), level, text)


def latest(authorities: Iterable[Certificate], now: float) -> list[Certificate]:
    """Return the last to expire of the authorities with the same name; one that is not valid if there is no other."""
    best_last = sorted(authorities, key=lambda one: (one.not_before <= now <= one.not_after, one.not_after))
    return list({one.subject: one for one in best_last}.values())


def notice_of_list(found: RevocationList, now: float) -> Notice | None:
    """Return what to log about a revocation list."""
    what = f"The revocation list of {found.issuer}"
    if now < found.this_update:
        level = logging.ERROR
        text = (
            f"{what} is not valid before {minute(found.this_update)}. Check this machine's clock, or put a current "
            "list into the file of ssl_crl."
        )
    elif found.next_update is None or now < found.next_update - list_notice(found):
        return None
    elif found.next_update <= now:
        level = logging.ERROR
        text = (
            f"{what} expired on {minute(found.next_update)}: no client certificate of this authority is accepted. Put "
            "a current list into the file of ssl_crl."
        )
    else:
        level = logging.WARNING
        text = (
            f"{what} expires on {minute(found.next_update)}, in {duration(found.next_update - now)}: from then on no "
            "client certificate of this authority is accepted. Put a newer list into the file of ssl_crl."
        )
    return Notice(b"%d %s %d %r" % (level, found.scope, found.this_update, found.next_update), level, text)


def list_notice(found: RevocationList) -> float:
    """Return the seconds before a list's expiry in which warnings are logged."""
    return 0 if found.next_update is None else min(NOTICE, (found.next_update - found.this_update) / LIST_PART)


def in_use(lists: Iterable[RevocationList], now: float) -> list[RevocationList]:
    """Return the newest of the lists with the same scope; one that is not yet valid only if there is no other."""
    best_last = sorted(lists, key=lambda one: (one.this_update <= now, one.this_update))
    return list({one.scope: one for one in best_last}.values())


def changes(certificates: Iterable[Certificate], lists: Iterable[RevocationList]) -> Iterator[float]:
    """Return the times at which there are other notices."""
    for certificate in certificates:
        yield from (certificate.not_before, certificate.not_after - NOTICE, certificate.not_after)
    for found in lists:
        yield found.this_update
        if found.next_update is not None:
            yield from (found.next_update - list_notice(found), found.next_update)


def minute(seconds: float) -> str:
    """Write a time to the minute."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def duration(seconds: float) -> str:
    """Write how long that is, in its largest unit of which there are two."""
    for unit, size in (("days", DAY), ("hours", HOUR)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds // 60)} minutes"
