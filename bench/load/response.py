"""Reads HTTP/1.1 responses as a client under measurement must: quickly, and strictly enough to notice a wrong one."""

from __future__ import annotations

from dataclasses import dataclass

from bench.errors import LoadError

HEAD_LIMIT = 65536


@dataclass(frozen=True)
class Answer:
    """A complete response: its status, body length, and whether the server ends the connection after it."""

    status: int
    length: int
    close: bool


class ResponseReader:
    """Feed bytes in any cut, get complete responses out. Bodies are counted, not kept."""

    __slots__ = ("_buffer", "_chunked", "_close", "_left", "_length", "_status", "_trailer")

    def __init__(self) -> None:
        self._buffer = b""
        self._status = 0
        self._left = self._length = 0
        self._chunked = self._close = self._trailer = False

    @property
    def empty(self) -> bool:
        """Whether no response is begun."""
        return not self._buffer and self._status == 0

    def feed(self, data: bytes) -> list[Answer]:
        """The responses that these bytes complete; raises LoadError for malformed responses."""
        self._buffer += data
        found: list[Answer] = []
        while (answer := self._next()) is not None:
            found.append(answer)
        return found

    def _next(self) -> Answer | None:
        if self._status == 0 and not self._head():
            return None
        if not (self._chunks() if self._chunked else self._counted()):
            return None
        answer = Answer(self._status, self._length, self._close)
        self._status = 0
        return answer

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise LoadError("a response head without an end")
            return False
        head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
        lines = head.split(b"\r\n")
        if not lines[0].startswith(b"HTTP/1.") or not lines[0][9:12].isdigit():
            raise LoadError(f"not an HTTP response: {lines[0][:60]!r}")
        fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            fields[name.lower()] = value.strip().lower()
        self._chunked = fields.get(b"transfer-encoding") == b"chunked"
        self._left = int(fields.get(b"content-length", b"0"))
        self._length = 0
        self._trailer = False
        self._close = fields.get(b"connection") == b"close"
        self._status = int(lines[0][9:12])
        return True

    def _counted(self) -> bool:
        taken = min(self._left, len(self._buffer))
        self._buffer = self._buffer[taken:]
        self._left -= taken
        self._length += taken
        return self._left == 0

    def _chunks(self) -> bool:
        while True:
            if self._left:
                if not self._counted():
                    return False
                continue
            end = self._buffer.find(b"\r\n")
            if end < 0:
                return False
            line, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
            if self._trailer:
                if not line:
                    return True
            elif line:
                self._left = self._size(line)
                self._trailer = self._left == 0

    @staticmethod
    def _size(line: bytes) -> int:
        try:
            return int(line.split(b";")[0], 16)
        except ValueError:
            raise LoadError(f"not a chunk size: {line[:40]!r}") from None


def request_bytes(method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    """One request as it goes over the wire."""
    fields = {"Host": "127.0.0.1", **headers}
    if body:
        fields["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
