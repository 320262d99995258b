"""sse-starlette, driven by httpx."""

from __future__ import annotations

import signal

import httpx
import pytest

from tests.applications.conftest import APPS, client_of, serving
from tests.process import ServerProcess
from tests.utils import wait_for


def test_stream_of_events(http: tuple[str, ...]) -> None:
    with serving("sse_app", *http) as server, client_of(server) as client:
        response = client.get("/three")
        assert response.headers["content-type"].startswith("text/event-stream")
        events = response.text.replace("\r\n", "\n").strip().split("\n\n")
        assert events == [f"id: {n}\nevent: count\ndata: number {n}" for n in range(3)]


def test_stream_ends_when_the_client_leaves(http: tuple[str, ...]) -> None:
    with serving("sse_app", *http) as server, client_of(server) as client:
        # Over HTTP/2 httpx lets a response that it does not read on be sent: it is the connection that ends.
        with client_of(server) as leaving, leaving.stream("GET", "/endless") as response:
            assert next(response.iter_lines()) == "data: 0"
        wait_for(lambda: client.get("/streams").json() == ["opened", "closed"])


def test_open_stream_says_farewell_when_the_server_stops(http: tuple[str, ...]) -> None:
    """sse-starlette finds the server through its signal handler, to learn that it should exit."""
    with (
        serving("sse_app", *http) as server,
        client_of(server) as client,
        client.stream("GET", "/farewell") as response,
    ):
        lines = response.iter_lines()
        assert next(lines) == "data: hello"
        server.send_signal(signal.SIGTERM)
        assert [line for line in lines if line] == ["data: farewell"]


def test_endless_stream_does_not_hold_up_the_server(http: tuple[str, ...]) -> None:
    """Without a farewell sse-starlette breaks the stream off: the response is incomplete, and the server ends."""
    with ServerProcess("sse_app:app", "--app-dir", APPS, "--port", "0", *http) as server:
        with client_of(server) as client, client.stream("GET", "/endless") as response:
            lines = response.iter_lines()
            assert next(lines) == "data: 0"
            server.send_signal(signal.SIGTERM)
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
        assert server.wait() == -signal.SIGTERM
        assert "Application shutdown complete." in server.error_output
