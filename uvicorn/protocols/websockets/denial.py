"""The response with which an application refuses to open a WebSocket (ASGI extension `websocket.http.response`)."""

from __future__ import annotations

from collections.abc import Iterable

from uvicorn.protocols.http import texts
from uvicorn.protocols.http.response import BodyFraming, encode_chunk, encode_head


class DenialResponse:
    """Encodes one response, after which the connection ends.

    The head waits for the first piece of the body: if that is also the last, its length is known and the head says it.
    Otherwise the body is streamed, counted if the application names its length and chunked if not.

    Args:
        status: 200 to 599.
        headers: the application's, any iterable of (name, value).
        default_head: the server's own lines, in front of those.

    Attributes:
        head: as it is sent, or will be.
        sent: bytes of the body that were encoded.

    Raises:
        RuntimeError: status, header name or header value that may not be sent.
        TypeError: a status that is not an int, a header that is not bytes.
    """

    __slots__ = ("status", "head", "sent", "_headers", "_default_head", "_head", "_framing", "_owed")

    def __init__(self, status: int, headers: Iterable[tuple[bytes, bytes]], default_head: bytes) -> None:
        self.status = status
        self._headers = list(headers)
        self._default_head = default_head
        self.sent = 0
        self._encode_head()

    def _encode_head(self) -> None:
        head = encode_head(self.status, self._headers, self._default_head, close=True)
        self._head, self._framing, self._owed = head.data, head.framing, head.length
        self.head = head.data

    def encode(self, body: bytes, more_body: bool) -> bytes:
        """Return what goes on the wire for a piece of the body.

        Raises:
            RuntimeError: more or, at the end, fewer bytes than the application's Content-Length.
        """
        if self._head and not more_body and self._framing is BodyFraming.CHUNKED:
            self._headers.append((b"content-length", b"%d" % len(body)))
            self._encode_head()
        if self._framing is BodyFraming.LENGTH:
            owed = self._owed - len(body)
            if owed < 0:
                raise RuntimeError(texts.TOO_LONG)
            if owed and not more_body:
                raise RuntimeError(texts.TOO_SHORT)
            self._owed = owed
        if self._framing is BodyFraming.NONE:
            body = b""
        self.sent += len(body)
        if self._framing is BodyFraming.CHUNKED:
            body = encode_chunk(body, not more_body)
        head, self._head = self._head, b""
        return head + body
