"""The common ground of all implementations of WebSocket: so little that each process may import it."""

from __future__ import annotations

from enum import IntEnum

LEGACY = ("asgi_receive", "asgi_send", "process_request", "process_subprotocol", "ws_handler")
"""Methods of upstream's class on the legacy part of `websockets`, which nothing calls."""

LEGACY_LIBRARY = (
    *("handler", "handshake", "process_extensions", "process_origin", "read_http_request", "select_subprotocol"),
    *("write_http_response", "connection_open", "connection_closed_exc", "close_connection", "close_transport"),
    *("close", "closed", "ensure_open", "fail_connection", "open", "wait_closed", "wait_for_connection_lost"),
    *("read_data_frame", "read_frame", "read_message", "recv", "send", "transfer_data", "write_close_frame"),
    *("write_frame", "write_frame_sync", "abort_pings", "keepalive_ping", "ping", "pong"),
    *("_drain", "_drain_helper", "drain"),
)
"""Those that it inherits from the library, and that the library calls under upstream; `send` is another there."""

FRAME_METHODS = (
    "handle_bytes",
    "handle_close",
    "handle_cont",
    "handle_events",
    "handle_message",
    "handle_parser_exception",
    "handle_ping",
    "handle_pong",
    "handle_text",
    "send_receive_event_to_app",
)
"""Methods of upstream's classes that take what the client sends; the classes in Python call them."""

CALLED_IN_PYTHON = (
    *("handle_connect", "on_task_complete", "send_500_response", "run_asgi", "receive", "send"),
    *("start_keepalive", "stop_keepalive", "schedule_ping", "send_keepalive_ping", "keepalive_timeout"),
)
"""Others that only those call."""


class SessionState(IntEnum):
    """How far the connection has come; the diagram of `session.py` shows the moves."""

    CONNECTING = 0
    ACCEPTED = 1
    DENYING = 2
    CLOSING = 3
    CLOSED = 4
