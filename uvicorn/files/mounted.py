"""Files that the server answers with itself: ``--mount /static=DIR``.

::

    request ──path──▶ Mounts ──▶ none of ours: the application's
                        │
                        ▼ open beneath, fstat      `representation`: coding, conditions, ranges
                     Answer ── complete: written at once, without a task
                        └───── large, or not in memory: an ASGI application, sent by `files`

Once, for every implementation. The cache of a path holds facts from its name, and response fields keyed by identity,
times and size of the file: each request opens and measures the file again, so fields never describe an older
version. Nothing of a request is kept.

Opening blocks the event loop for as long as the file system takes to find a name, which is microseconds where names are
in memory. Bytes are read at once only if they are in memory too, as far as the file system can tell.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import stat
import sys
import time
from binascii import hexlify
from collections.abc import Callable, Collection, Iterator, Sequence
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, HTTPScope, ProtocolConfig, WWWScope
from uvicorn.files import representation
from uvicorn.files.directory import Directory
from uvicorn.files.media_types import media_type
from uvicorn.files.representation import IDENTITY, NOT_MODIFIED, OK, Range, RequestConditions
from uvicorn.files.sending import MOUNTED
from uvicorn.logging.rate_limit import LogRateLimit
from uvicorn.middleware.forwarded import ForwardedMiddleware
from uvicorn.middleware.lifecycle import questions
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.rules.limits import HIGH_WATER_LIMIT
from uvicorn.rules.status import STATUS_PHRASES

AT_ONCE = HIGH_WATER_LIMIT
"""Bytes of a body that are read and written at once."""

INDEX = b"index.html"
"""The file to send for a directory."""

SUFFIXES = {b"zstd": b".zst", b"br": b".br", b"gzip": b".gz"}
"""Of the names of files that hold another one in a content coding."""

PER_FILE = 2
"""Descriptors that it takes to send a file, at most: its own, and a duplicate of the socket of its connection."""

_MAX_KNOWN = 1024
"""Paths that are remembered; only those where there was a file."""

_LOOK_AGAIN = 1.0
"""Seconds for which a file counts as one that has no encoded siblings but those it had; it is sent as it is."""

_MAX_KNOWN_LENGTH = 512

_MAX_PATH = 3 * 4096
"""Bytes of a path that may be one of a file: as many as systems have, each percent-encoded. Of a longer one no more is
decoded, which is enough to tell whose it is."""

_TEXT = b"text/plain; charset=utf-8"
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_VARY = (b"vary", b"accept-encoding")
_ALLOW = (b"allow", b"GET, HEAD, OPTIONS")

_MISSING = frozenset(
    {
        errno.EILSEQ,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.EMLINK,
        errno.ENAMETOOLONG,
        errno.ENODEV,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.EXDEV,
    }
)
"""Errors of names that lead to nothing that is served. EXDEV is the kernel's for a link that leads outside, EMLINK that
of some systems for a link that is not followed."""

_UNSAFE = re.compile(rb"[\0/\\]")
"""Characters that file names never contain, or that mean something else on some systems."""

Field = tuple[bytes, bytes]

logger = logging.getLogger("uvicorn.error")


_sent: set[int] = set()
"""Descriptors of the files that are being sent, by all event loops of the process, which have their limit in common. To
add and to discard is one step each, for threads and for finalisers."""


def _most_files() -> int:
    """As many as have half of the descriptors that the process may have: others need some, too."""
    if sys.platform == "win32":
        return 1024
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft // (2 * PER_FILE)


class OpenFile:
    """A descriptor that is closed with its last reference."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        _sent.add(descriptor)

    def close(self) -> None:
        """Close it, if it is not."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            _sent.discard(descriptor)  # first: the next file may have its number
            os.close(descriptor)

    __del__ = close


class Answer:
    """The server's own response to one request. It is an application as well, which sends it.

    Attributes:
        status: of the response.
        headers: those it has beside the server's default ones; read only, because the next one may have the same.
        body: all of it; `None` if it has to be sent from the file.
    """

    __slots__ = ("status", "headers", "body", "_file", "_parts", "_name")

    def __init__(self, status: int, headers: list[Field], body: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.body: bytes | None = body
        self._file: OpenFile | None = None
        self._parts: list[bytes | Range] = []
        self._name = b""

    def send_from(self, file: OpenFile, parts: list[bytes | Range], name: bytes) -> None:
        """Have the body put together of bytes and of ranges of a file, whose name is for the log."""
        self.body = None
        self._file, self._parts, self._name = file, parts, name

    async def __call__(self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Send the response."""
        send_any: Callable[[dict[str, Any]], Any] = send  # type: ignore[assignment]
        try:
            for message in self._messages():
                await send_any(message)
        except (OSError, RuntimeError) as exc:
            # The response is broken off, and the client can see that it is not all.
            logger.warning("Sending %r failed, closing its connection: %s", os.fsdecode(self._name), exc)
        except asyncio.CancelledError:
            logger.warning(
                "Sending %r was cut off by the shutdown (timeout_graceful_shutdown).", os.fsdecode(self._name)
            )
        finally:
            if self._file is not None:
                self._file.close()

    def _messages(self) -> Iterator[dict[str, Any]]:
        yield {"type": "http.response.start", "status": self.status, "headers": self.headers}
        if self._file is None:
            yield {"type": "http.response.body", "body": self.body}
            return
        last = len(self._parts) - 1
        for place, part in enumerate(self._parts):
            more = place < last
            if isinstance(part, bytes):
                yield {"type": "http.response.body", "body": part, "more_body": more}
            else:
                yield {
                    "type": MOUNTED,
                    "file": self._file.descriptor,
                    "offset": part[0],
                    "count": part[1],
                    "more_body": more,
                }


class _Form:
    """The response fields of a file in one content coding, valid for this stamp."""

    __slots__ = ("stamp", "etag", "modified", "not_modified", "partial", "whole")

    def __init__(self, found: os.stat_result, coding: bytes, kind: bytes, common: list[Field]) -> None:
        self.stamp = _stamp(found)
        # The change time, too: the modification time can be set back without restoring the content.
        etag = b'"%x-%x-%x"' % (found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        if coding != IDENTITY:
            etag = b'%b-%b"' % (etag[:-1], coding)
            common = [*common, (b"content-encoding", coding)]
        self.etag = etag
        self.modified = max(0, min(int(found.st_mtime), int(time.time())))  # RFC 9110 section 8.8.2.1
        modified = formatdate(self.modified, usegmt=True).encode()
        # RFC 9110 section 15.4.5: the client's copies of the other fields are as good.
        self.not_modified = [(b"etag", etag), *(field for field in common if field[0] in (b"cache-control", b"vary"))]
        self.partial = [(b"etag", etag), (b"last-modified", modified), (b"accept-ranges", b"bytes"), *common]
        self.whole = [(b"content-type", kind), (b"content-length", b"%d" % found.st_size), *self.partial]


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


class _Known:
    """The cached facts of one path.

    Attributes:
        path: as it was sent.
        directory: that of its mount.
        name: of the file, relative to that; `None` if nothing can have that name.
        last: the last segment of the path, for a redirect into the directory.
        fields: of all responses of that mount.
        kind: the media type.
        kept: it is remembered.
        codings: those in which the file is stored beside itself.
        looked: when that was found out.
        forms: the latest response fields of the file, by coding.
    """

    __slots__ = ("path", "directory", "name", "last", "fields", "kind", "kept", "codings", "looked", "forms")

    def __init__(self, path: bytes, directory: Directory, name: bytes | None, last: bytes, fields: list[Field]) -> None:
        self.path = path
        self.directory = directory
        self.name = name
        self.last = last
        self.fields = fields
        self.kind = media_type(os.fsdecode(name or b""))
        self.kept = False
        self.codings: list[bytes] = []
        self.looked = -_LOOK_AGAIN
        self.forms: dict[bytes, _Form] = {}

    def look_for_siblings(self, name: bytes, now: float) -> None:
        """Find out in which codings the file is stored."""
        codings = []
        for coding, suffix in SUFFIXES.items():
            sibling = self.open_sibling(name + suffix)
            if sibling is not None:
                os.close(sibling[0])
                codings.append(coding)
        if codings != self.codings:
            self.codings = codings
            self.forms.clear()
        self.looked = now

    def open_sibling(self, name: bytes) -> tuple[int, os.stat_result] | None:
        """Open and measure a file beside the one of this path, if there is one."""
        try:
            descriptor = self.directory.open(name)
        except OSError:
            return None
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            return descriptor, found
        os.close(descriptor)
        return None


def _fields_with(cache_control: str) -> list[Field]:
    return [_NO_SNIFFING, *([(b"cache-control", cache_control.encode("latin-1"))] if cache_control else [])]


class Mounts:
    """The directories that one event loop serves files of.

    Args:
        mounts: prefix, directory and Cache-Control of each; that is empty to say nothing.
        root_path: the prefix that scopes put in front of the paths of requests.
        app: the application, with the middleware that knows the client behind a proxy.
        spared: paths that belong to the application nevertheless.

    Attributes:
        prefixes: a path that begins with none of these, and contains no `%`, is none of ours.
    """

    __slots__ = (
        "prefixes",
        "_mounts",
        "_skipped",
        "_correct",
        "_always",
        "_known",
        "_most_files",
        "_log_limit",
        "_spared",
    )

    def __init__(
        self,
        mounts: Sequence[tuple[str, str, str]],
        root_path: str = "",
        app: object = None,
        spared: Collection[str] = (),
    ) -> None:
        self._mounts = sorted(
            (
                (prefix.encode().split(b"/"), Directory(directory), _fields_with(cache_control))
                for prefix, directory, cache_control in mounts
            ),
            key=lambda mount: -len(mount[0]),
        )
        self.prefixes = tuple(prefix.encode() for prefix, _, _ in mounts)
        self._skipped = len(root_path if root_path.isascii() else quote(root_path))
        self._correct: Callable[[WWWScope], None] | None = None
        self._always = type(app) is ForwardedMiddleware
        if type(app) is ProxyHeadersMiddleware or type(app) is ForwardedMiddleware:
            self._correct = app.correct  # the access log names the client that the application would see
        self._known: dict[bytes, _Known] = {}
        self._most_files = _most_files()
        self._log_limit = LogRateLimit()
        self._spared = frozenset(path.encode() for path in spared)

    @classmethod
    def from_config(cls, config: ProtocolConfig) -> Mounts | None:
        """Return those of a configuration, if it has any."""
        if not config.mounts:
            return None
        below = config.lifecycle_path
        spared = () if below is None else questions(below)
        return cls(config.mounts, config.root_path, config.loaded_app, spared)

    def close(self) -> None:
        """Let go of the directories."""
        for _, directory, _ in self._mounts:
            directory.close()

    @staticmethod
    def has_made(app: object) -> bool:
        """Tell whether this is an answer of ours."""
        return type(app) is Answer

    def answer(self, scope: HTTPScope, forwarded: bool) -> Answer | None:
        """Return the answer to a request; `None` if it is the application's.

        Args:
            scope: of the request, as the server has made it; the client in it is corrected.
            forwarded: the request has fields that proxies write.
        """
        path = scope["raw_path"]
        if self._skipped:
            path = path[self._skipped :]
        known = self._known.get(path)
        if known is None:
            known = self._find(path)
            if known is None:
                return None
        if self._correct is not None and (forwarded or self._always):
            self._correct(scope)
        method = scope["method"]
        if method != "GET" and method != "HEAD":
            return _answer_to_other_method(method)
        if known.name is None:
            return _error(404)
        try:
            return self._answer(known, known.name, scope, method == "GET")
        except OSError as exc:
            return self._failure(exc, known.name)

    def _find(self, path: bytes) -> _Known | None:
        """Resolve a path: to the file of a mount, or to None."""
        if b"%" not in path and not path.startswith(self.prefixes):
            return None
        is_too_long = len(path) > _MAX_PATH
        segments = path[:_MAX_PATH].split(b"/")
        if is_too_long:
            segments.pop()  # there may be more of it
        if b"%" in path:
            segments = [unquote_to_bytes(segment) for segment in segments]
        mount = next((mount for mount in self._mounts if segments[: len(mount[0])] == mount[0]), None)
        if mount is None:
            return None
        prefix, directory, fields = mount
        if is_too_long:
            return _Known(path, directory, None, b"", fields)
        if b"/".join(segments) in self._spared:
            return None
        names = segments[len(prefix) :]
        if names and not names[-1]:
            names[-1] = INDEX
        # Names that begin with a dot are hidden, and `.` and `..` are not names of files.
        if any(not name or name.startswith(b".") or _UNSAFE.search(name) for name in names):
            return _Known(path, directory, None, b"", fields)
        return _Known(path, directory, b"/".join(names) or b".", segments[-1], fields)

    def _keep(self, known: _Known) -> None:
        """Remember a path behind which there was a file."""
        if len(known.path) <= _MAX_KNOWN_LENGTH:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[known.path] = known
        known.kept = True

    def _answer(self, known: _Known, name: bytes, scope: HTTPScope, is_get: bool) -> Answer:
        """Answer with the current file of this name.

        Raises:
            OSError: nothing that can be read has.
        """
        directory = known.directory
        directory.look()
        descriptor = directory.open(name)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return self._redirect(known, name, scope) if stat.S_ISDIR(found.st_mode) else _error(404)
            if not known.kept:
                self._keep(known)
            now = time.monotonic()
            if now - known.looked >= _LOOK_AGAIN:
                known.look_for_siblings(name, now)
            conditions = representation.conditions_of(scope["headers"])
            coding = representation.choose_coding(conditions, known.codings)
            if coding != IDENTITY and coding is not None:
                coding, descriptor, found = _open_encoded(known, name, conditions, descriptor, found)
            if coding is None:
                return _error(406, _VARY)
            form = known.forms.get(coding)
            if form is None or form.stamp != _stamp(found):
                fields = [*known.fields, _VARY] if known.codings else known.fields
                form = known.forms[coding] = _Form(found, coding, known.kind, fields)
            answer, parts = _evaluate(form, conditions, found.st_size, known.kind, is_get)
            if not parts:
                return answer
            data = _read(descriptor, parts)
            if data is not None:
                answer.body = data
                return answer
            if len(_sent) >= self._most_files:
                raise OSError(errno.EMFILE, "too many files are being sent")
            answer.send_from(OpenFile(descriptor), parts, name)
            descriptor = -1
            return answer
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _redirect(self, known: _Known, name: bytes, scope: HTTPScope) -> Answer:
        """Redirect from a directory to its index, if there is one.

        Raises:
            OSError: there is none, or it cannot be found out.
        """
        if name.rpartition(b"/")[2] == INDEX:
            return _error(404)
        index = known.directory.open(name + b"/" + INDEX)
        try:
            if not stat.S_ISREG(os.fstat(index).st_mode):
                return _error(404)
        finally:
            os.close(index)
        # Relative, so that it is right behind every proxy; with a dot, so that no name looks like a scheme or a host.
        location = b"./%b/" % quote(known.last, safe="!$&'()*+,;=:@").encode()
        if scope["query_string"]:
            location += b"?" + scope["query_string"]
        return Answer(308, [(b"location", location), (b"content-length", b"0"), *known.fields])

    def _failure(self, exc: OSError, name: bytes) -> Answer:
        """The answer where a file cannot be opened; shortages are logged at intervals, not for each request."""
        if exc.errno in _MISSING:
            return _error(404)
        if isinstance(exc, PermissionError):
            return _error(403)
        if self._log_limit.allows(str(exc.errno)):
            logger.warning("Cannot open %r, answering 503: %s", os.fsdecode(name), exc.strerror)
        return _error(503)


def _open_encoded(
    known: _Known, name: bytes, conditions: RequestConditions, descriptor: int, found: os.stat_result
) -> tuple[bytes | None, int, os.stat_result]:
    """Open the file in the best coding that the client accepts, and close the others.

    One that is older than the file was made of another one.
    """
    stored = known.codings
    while True:
        coding = representation.choose_coding(conditions, stored)
        if coding is None or coding == IDENTITY:
            return coding, descriptor, found
        sibling = known.open_sibling(name + SUFFIXES[coding])
        if sibling is not None:
            if int(sibling[1].st_mtime) >= int(found.st_mtime):
                os.close(descriptor)
                return coding, *sibling
            os.close(sibling[0])
        stored = [other for other in stored if other != coding]


def _evaluate(
    form: _Form, conditions: RequestConditions, size: int, kind: bytes, is_get: bool
) -> tuple[Answer, list[bytes | Range]]:
    """Return the answer, still without its body, and the parts of that."""
    verdict = representation.precondition(conditions, form.etag, form.modified)
    if verdict == NOT_MODIFIED:
        return Answer(NOT_MODIFIED, form.not_modified), []
    if verdict != OK:
        return _error(verdict), []
    ranges = None
    if (
        is_get
        and b"range" in conditions
        and representation.range_applies(conditions, form.etag, form.modified, time.time())
    ):
        ranges = representation.ranges(conditions[b"range"], size)
    if ranges is None:
        return Answer(OK, form.whole), [(0, size)] if is_get and size else []
    if not ranges:
        return _error(416, (b"content-range", b"bytes */%d" % size), (b"accept-ranges", b"bytes")), []
    if len(ranges) == 1:
        headers = [(b"content-type", kind), (b"content-range", representation.content_range(ranges[0], size))]
        return Answer(206, [*headers, (b"content-length", b"%d" % ranges[0][1]), *form.partial]), [*ranges]
    # Random, so that the file cannot contain it.
    boundary = hexlify(os.urandom(16))
    *heads, end = representation.multipart_heads(ranges, size, kind, boundary)
    parts: list[bytes | Range] = [piece for pair in zip(heads, ranges, strict=True) for piece in pair]
    parts.append(end)
    length = sum(len(part) if isinstance(part, bytes) else part[1] for part in parts)
    headers = [(b"content-type", b"multipart/byteranges; boundary=" + boundary), (b"content-length", b"%d" % length)]
    return Answer(206, [*headers, *form.partial]), parts


def _read(descriptor: int, parts: list[bytes | Range]) -> bytes | None:
    """Put a body together, if it is small and can be read at once."""
    if len(parts) == 1:
        offset, count = parts[0]
        return _read_now(descriptor, offset, count) if count <= AT_ONCE else None
    if sum(len(part) if isinstance(part, bytes) else part[1] for part in parts) > AT_ONCE:
        return None
    pieces = [part if isinstance(part, bytes) else _read_now(descriptor, *part) for part in parts]
    return None if None in pieces else b"".join(pieces)  # type: ignore[arg-type]


if sys.platform == "linux":

    def _read_now(descriptor: int, offset: int, count: int) -> bytes | None:
        """Read from the page cache; `None` if the data is not in it, or beyond the end."""
        buffer = bytearray(count)
        try:
            size = os.preadv(descriptor, [buffer], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError:  # the file system cannot tell: most that cannot are in memory
            size = os.preadv(descriptor, [buffer], offset)
        return bytes(buffer) if size == count else None

else:

    def _read_now(descriptor: int, offset: int, count: int) -> bytes | None:
        """Read, which may wait for the disk; `None` if the file is gone."""
        os.lseek(descriptor, offset, os.SEEK_SET)
        data = os.read(descriptor, count)
        return data if len(data) == count else None


# Other answers.


def _error(status: int, *fields: Field) -> Answer:
    text = STATUS_PHRASES[status].encode()
    length = b"%d" % len(text)
    headers = [(b"content-type", _TEXT), (b"content-length", length), _NO_SNIFFING, *fields]
    return Answer(status, headers, text)


def _answer_to_other_method(method: str) -> Answer:
    """RFC 9110 sections 9.3.7 and 15.5.6."""
    return Answer(204, [_ALLOW]) if method == "OPTIONS" else _error(405, _ALLOW)
