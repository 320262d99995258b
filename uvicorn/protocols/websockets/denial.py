"""The response with which an application refuses to open a WebSocket (ASGI extension `websocket.http.response`)."""

from __future__ import annotations

from collections.abc import Iterable

from uvicorn.access.request_id import with_line
from uvicorn.protocols.http.wire.response import BodyFraming, encode_parts
from uvicorn.protocols.http.wire.response_writer import ResponseWriter


class DenialResponse:
    """Encodes one response, after which the connection ends.

    The head waits for the first piece of the body: if that is also the last, its length is known and the head says it.
    Otherwise the body is streamed, counted if the application names its length and chunked if not.

    Args:
        status: 200 to 599.
        headers: the application's, any iterable of (name, value).
        default_head: the server's own lines, in front of those.
        chunks: whether a body of unknown length is sent in chunks; else as it is, because something else marks its end.
        own_line: one more, unless the application has a field of this name.

    Attributes:
        head: as it is sent, or will be.
        sent: bytes of the body that were encoded.

    Raises:
        RuntimeError: status, header name or header value that may not be sent.
        TypeError: a status that is not an int, a header that is not bytes-like.
    """

    __slots__ = ("status", "head", "sent", "_headers", "_default_head", "_chunks", "_own_line", "_writer")

    def __init__(
        self,
        status: int,
        headers: Iterable[tuple[bytes, bytes]],
        default_head: bytes,
        chunks: bool = True,
        own_line: bytes = b"",
    ) -> None:
        self.status = status
        self.sent = 0
        self._headers = list(headers)
        self._default_head = default_head
        self._chunks = chunks
        self._own_line = own_line
        self._start()

    def _start(self) -> None:
        self._writer = ResponseWriter()
        self._writer.start(
            *encode_parts(self.status, self._headers, self._default_head, False, not self._chunks, close=True)
        )
        self.head = self._writer.head = with_line(self._writer.head, self._own_line)

    def encode(self, body: bytes, more_body: bool) -> bytes:
        """Return the wire bytes of a piece of the body.

        Raises:
            RuntimeError: more or, at the end, fewer bytes than the application's Content-Length.
        """
        if self._writer.head and self._writer.framing is BodyFraming.CHUNKED and not more_body:
            self._headers.append((b"content-length", b"%d" % len(body)))
            self._start()
        data = self._writer.body(body, more_body)
        if self._writer.framing is not BodyFraming.NONE:
            self.sent += len(body)
        return self._writer.take_head() + data
