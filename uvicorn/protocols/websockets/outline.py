"""The common ground of all implementations of WebSocket: so little that each process may import it."""

from __future__ import annotations

from enum import IntEnum

NEVER_CALLED = (
    "asgi_receive",
    "asgi_send",
    "handle_bytes",
    "handle_close",
    "handle_cont",
    "handle_events",
    "handle_message",
    "handle_parser_exception",
    "handle_ping",
    "handle_pong",
    "handle_text",
    "process_request",
    "process_subprotocol",
    "send_receive_event_to_app",
    "ws_handler",
)
"""Methods of upstream's classes that nothing calls; see `uvicorn.protocols.http.hooks`."""

CALLED_IN_PYTHON = ("handle_connect", "on_task_complete", "send_500_response")
"""Those that the native core does not call, either."""


class SessionState(IntEnum):
    """How far the connection has come; the diagram of `session.py` shows the moves."""

    CONNECTING = 0
    ACCEPTED = 1
    DENYING = 2
    CLOSING = 3
    CLOSED = 4
