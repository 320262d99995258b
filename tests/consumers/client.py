"""A client that writes down what it has sent and what came back, so that two servers can be held side by side."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx
from websockets import Subprotocol
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.utils import PATIENCE

if TYPE_CHECKING:
    from typing_extensions import Self

#: Fields whose value is of the moment; that they are there is compared all the same.
MOMENTARY = ("date", "sec-websocket-accept")


class Client:
    """One connection to one server, by which it also finds out whether that is kept.

    What a conversation leaves open, it leaves open on purpose: the server is asked to stop then, and `finish` writes
    down how it ended. A status that is not expected ends the conversation, for two servers that fail alike are not what
    is to be seen.
    """

    def __init__(self, port: int, spare: int) -> None:
        self.port = port
        self.spare = spare
        self.transcript: list[str] = []
        self._open: list[WebSocket | Stream] = []
        self._sessions = contextlib.ExitStack()
        self._http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            timeout=PATIENCE,
            trust_env=False,
            headers={"user-agent": "consumer", "accept-encoding": "identity"},
        )

    def get(self, path: str, expect: int = 200, **options: Any) -> httpx.Response:
        """`GET path`."""
        return self.request("GET", path, expect, **options)

    def post(self, path: str, expect: int = 200, **options: Any) -> httpx.Response:
        """`POST path`."""
        return self.request("POST", path, expect, **options)

    def request(
        self,
        method: str,
        path: str,
        expect: int = 200,
        arrange: Callable[[list[str]], list[str]] = list,
        **options: Any,
    ) -> httpx.Response:
        """One request, whose answer is written down in full, its lines as `arrange` puts them; options are httpx's."""
        response = self._http.request(method, path, **options)
        # What the body says of the moment also says how long it is.
        encoded = "content-encoding" in response.headers
        self._note(response, "" if encoded else str(len(response.content)))
        lines = (part for line in response.text.splitlines() for part in _broken(line))
        self.write(*arrange([*lines]))
        assert response.status_code == expect, self.transcript[-40:]
        return response

    def look(self, path: str, port: int | None = None) -> Any:
        """The JSON at a path, which is not written down; None if there is none."""
        try:
            return httpx.get(f"http://127.0.0.1:{port or self.port}{path}", timeout=PATIENCE, trust_env=False).json()
        except (httpx.HTTPError, ValueError):
            return None

    def stream(self, path: str, method: str = "GET", expect: int = 200, **options: Any) -> Stream:
        """Start reading an answer that need not end."""
        request = self._http.build_request(method, path, **options)
        response = self._http.send(request, stream=True)
        self._note(response)
        assert response.status_code == expect, self.transcript[-40:]
        stream = Stream(self, response)
        self._open.append(stream)
        return stream

    def websocket(self, path: str, subprotocols: Sequence[Subprotocol] = ()) -> WebSocket:
        """Open a WebSocket, with the cookies of the answers so far."""
        self.write(f"> WebSocket {path}")
        connection = self._sessions.enter_context(
            connect(
                f"ws://127.0.0.1:{self.port}{path}",
                additional_headers=self._cookies(),
                subprotocols=subprotocols or None,
                user_agent_header="consumer",
                proxy=None,
                open_timeout=PATIENCE,
                close_timeout=PATIENCE,
                max_size=None,
            )
        )
        assert connection.response is not None
        self.write(f"< {connection.response.status_code} {connection.response.reason_phrase}")
        self._note_fields(connection.response.headers.raw_items())
        session = WebSocket(self, connection)
        self._open.append(session)
        return session

    def _cookies(self) -> dict[str, str]:
        pairs = "; ".join(f"{name}={value}" for name, value in self._http.cookies.items())
        return {"cookie": pairs} if pairs else {}

    def finish(self) -> None:
        """Read what was left open to its end, and close everything."""
        for left in self._open:
            left.finish()
        self._http.close()

    def write(self, *lines: str) -> None:
        """Add to the transcript."""
        self.transcript += lines

    def _note(self, response: httpx.Response, length: str = "") -> None:
        self.write(f"> {response.request.method} {response.request.url.raw_path.decode()}")
        self.write(f"< {response.http_version} {response.status_code} {response.reason_phrase}")
        fields = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw)
        self._note_fields(fields, length)

    def _note_fields(self, fields: Iterable[tuple[str, str]], length: str = "") -> None:
        for name, value in fields:
            self.write(f"< {name}: {'...' if name.lower() in MOMENTARY or value == length else value}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._sessions.close()
        self._http.close()


def _broken(line: str) -> list[str]:
    """A long line in parts, so that one can see in which of them a difference is."""
    return re.split(r"(?<=,)", line) if len(line) > 200 else [line]


class Stream:
    """An answer that is read line by line."""

    def __init__(self, client: Client, response: httpx.Response) -> None:
        self._client = client
        self._response = response
        self._lines = response.iter_lines()

    def read_until(self, pattern: str) -> str:
        """Write down lines up to the one in which the expression is found, and return that."""
        for line in self._lines:
            self._client.write(line)
            if re.search(pattern, line):
                return line
        raise AssertionError(f"{pattern!r} never came\n{self._client.transcript[-40:]}")

    def read(self) -> None:
        """Write down all lines up to the end."""
        self._client.write(*self._lines)
        self._response.close()

    def finish(self) -> None:
        """Write down the rest and how it ended, if nobody has."""
        if not self._response.is_closed:
            try:
                self.read()
            except httpx.HTTPError as error:
                self._client.write(f"broken off: {type(error).__name__}")


class WebSocket:
    """A session, whose messages are written down."""

    def __init__(self, client: Client, connection: ClientConnection) -> None:
        self._client = client
        self._connection = connection
        self._closed = False

    def send(self, message: str | bytes) -> None:
        """Send one message."""
        self._connection.send(message)

    def send_json(self, message: Any) -> None:
        """Send a text message."""
        self.send(json.dumps(message))

    def receive(self) -> str | bytes:
        """Write down the next message and return it."""
        message = self._connection.recv(PATIENCE)
        self._client.write(message if isinstance(message, str) else f"{len(message)} bytes")
        return message

    def receive_until(self, wanted: Callable[[str | bytes], object]) -> str | bytes:
        """Take messages without writing them down, up to the first that is wanted."""
        while not wanted(message := self._connection.recv(PATIENCE)):
            pass
        return message

    def leave(self, code: int = 1000) -> None:
        """Close it from this side."""
        self._connection.close(code)
        self._note_end()

    def finish(self) -> None:
        """Wait for the server to close it, if it is open."""
        if not self._closed:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    self._connection.recv(PATIENCE)
            self._note_end()

    def _note_end(self) -> None:
        self._closed = True
        self._client.write(f"closed: {self._connection.close_code} {self._connection.close_reason}".rstrip())
