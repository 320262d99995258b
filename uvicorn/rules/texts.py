"""The texts of log lines and of exceptions for applications: once, for all implementations.

`scripts/sync-settings` writes `native/wire/src/texts.rs` from this module. Names in braces are filled in.
"""

from __future__ import annotations

# Warnings.

INVALID_REQUEST = "Invalid HTTP request received."
REQUEST_REFUSED = "Request refused with {status} {phrase}: {reason}."
CONNECTION_REFUSED = "{protocol} connection ended with {code}: {reason}."
CONCURRENCY_EXCEEDED = "Exceeded concurrency limit."
UPGRADE_UNSUPPORTED = "Unsupported upgrade request."
READER_LATE = "Client does not read its response, aborting the connection (timeout_write)."
WINDOW_CLOSED = "Client keeps its window closed, resetting the stream (timeout_write)."
PING_UNANSWERED = "Client does not answer a ping, aborting the connection (http2_ping_timeout)."
WEBSOCKET_UNSUPPORTED = (
    "No supported WebSocket library detected. Please use \"pip install 'uvicorn[standard]'\", or install "
    "'websockets' or 'wsproto' manually."
)

# Errors of an application's call. Values come as arguments of the record.

APPLICATION_FAILED = "Exception in ASGI application\n"
APPLICATION_RETURNED = "ASGI callable should return None, but returned '%s'."
NOT_STARTED = "ASGI callable returned without starting response."
NOT_COMPLETED = "ASGI callable returned without completing response."

# Mistakes of an application.

STATUS_TYPE = "The status of a response must be an int, got {status}."
STATUS = "Invalid HTTP status code '{status}' in response."
FIELD_TYPE = "Header names and values must be bytes, got {name}: {value}."
FIELD_NAME = "Invalid HTTP header name."
FIELD_VALUE = "Invalid HTTP header value."
CONTENT_LENGTH = "Invalid Content-Length header."
LENGTHS_CONFLICT = "Conflicting Content-Length headers."
TRANSFER_ENCODING = "Invalid Transfer-Encoding header."
OPENS_STREAM = "Status {status} would accept the WebSocket over HTTP/2; use 300 or more."
TRAILER = "Field '{name}' is not allowed in trailers."
LINK_TYPE = "Links must be bytes, got {link}."
TOO_LONG = "Response content longer than Content-Length"
TOO_SHORT = "Response content shorter than Content-Length"
ALREADY_COMPLETE = "Unexpected ASGI message '{type}' sent, after response already completed."
SENDING_FILE = "Unexpected ASGI message '{type}' sent, while a file is being sent."
OUT_OF_ORDER = "Expected ASGI message 'http.response.{expected}', but got '{type}'."
