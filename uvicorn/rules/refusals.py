"""The server's own error responses: every reason for a 4xx, with its status and its text for the operator's log.

For all implementations: `scripts/sync-settings` writes the table of the native core, `native/wire/src/error/table.rs`,
from this one. A text never holds bytes of the peer's; `{limit}` in it is the number that was passed.
"""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """A reason not to serve a request: its status, and the text for the operator."""

    status: int
    reason: str


# The request line (RFC 9112 section 3).
EMPTY_LINES = Refusal(400, "more than {limit} empty lines in front of a request line")
LINE_BEGIN = Refusal(400, "bare CR or LF in front of a request line")
METHOD = Refusal(400, "malformed method")
METHOD_TOO_LONG = Refusal(501, "method longer than {limit} bytes")
TARGET = Refusal(400, "malformed request target")
TARGET_FRAGMENT = Refusal(400, "fragment in the request target")
TARGET_PERCENT = Refusal(400, "malformed percent-encoding in the request target")
TARGET_TOO_LONG = Refusal(414, "request target longer than limit_request_target ({limit})")
LINE_TOO_LONG = Refusal(414, "request line longer than limit_request_head ({limit} bytes)")
TARGET_AUTHORITY = Refusal(400, "invalid host or port in the request target")
VERSION = Refusal(400, "malformed HTTP version")
VERSION_TOO_OLD = Refusal(400, "HTTP version below 1.0")
VERSION_UNSUPPORTED = Refusal(505, "HTTP version above 1")
CONNECT_TARGET = Refusal(400, "CONNECT without host and port")
CONNECT = Refusal(501, "CONNECT is not implemented")
MISDIRECTED = Refusal(421, "https requested in clear text by a peer outside forwarded_allow_ips")

# The header section (RFC 9112 section 5, RFC 9110 sections 7.2 and 10.1.1).
HEAD_TOO_LARGE = Refusal(431, "request head larger than limit_request_head ({limit} bytes)")
HEAD_TIMEOUT = Refusal(408, "head not complete within timeout_request_head ({limit} s)")
HEAD_END = Refusal(400, "bare CR at the end of the header section")
TOO_MANY_FIELDS = Refusal(431, "more header fields than limit_request_fields ({limit})")
FIELD_NAME = Refusal(400, "malformed field name")
FIELD_VALUE = Refusal(400, "control character in a field value")
FIELD_END = Refusal(400, "bare CR in a field value")
HOST_MISSING = Refusal(400, "missing Host")
HOST_REPEATED = Refusal(400, "more than one Host")
HOST = Refusal(400, "malformed Host")
EXPECTATION = Refusal(417, "unknown expectation")
EARLY_DATA = Refusal(425, "early data, which may be a replay (http3_early_data, safe methods)")

# The framing of the body (RFC 9112 sections 6 and 7).
LENGTH = Refusal(400, "malformed Content-Length")
LENGTH_REPEATED = Refusal(400, "more than one Content-Length")
LENGTH_BESIDE_CODING = Refusal(400, "Content-Length beside Transfer-Encoding")
CODING_TOO_EARLY = Refusal(400, "Transfer-Encoding in an HTTP/1.0 request")
CODING = Refusal(400, "malformed Transfer-Encoding")
CODING_ORDER = Refusal(400, "chunked must be the last transfer coding, once")
CODING_UNSUPPORTED = Refusal(501, "unsupported transfer coding")
BODY_TOO_LARGE = Refusal(413, "request body larger than limit_request_body ({limit} bytes)")
BODY_TIMEOUT = Refusal(408, "body not complete within timeout_request_body ({limit} s)")
CHUNK_SIZE = Refusal(400, "malformed chunk size")
CHUNK_SIZE_TOO_LONG = Refusal(400, "chunk size of more than {limit} digits")
CHUNK_SIZE_SUM = Refusal(400, "chunks add up to more than 64 bits hold")
CHUNK_EXTENSION = Refusal(400, "malformed chunk extension")
CHUNK_WASTE = Refusal(400, "too many chunk extensions")
CHUNK_LINE_END = Refusal(400, "chunk size not followed by CR LF")
CHUNK_END = Refusal(400, "chunk data not followed by CR LF")
TRAILER = Refusal(400, "malformed trailer")
TOO_MANY_TRAILERS = Refusal(431, "more trailer fields than limit_request_fields ({limit})")
TRAILERS_TOO_LARGE = Refusal(431, "trailer section larger than {limit} bytes")

# The opening of a WebSocket (RFC 6455 section 4.2).
WEBSOCKET_METHOD = Refusal(405, "WebSocket requested with a method other than GET")
WEBSOCKET_VERSION = Refusal(505, "WebSocket requested with HTTP/1.0")
WEBSOCKET_UPGRADE = Refusal(426, "this needs a WebSocket client")
WEBSOCKET_BODY = Refusal(400, "a WebSocket handshake has no body")
WEBSOCKET_NO_PROTOCOL_VERSION = Refusal(400, "missing Sec-WebSocket-Version header")
WEBSOCKET_PROTOCOL_VERSION = Refusal(426, "unsupported Sec-WebSocket-Version")
WEBSOCKET_NO_KEY = Refusal(400, "missing Sec-WebSocket-Key header")
WEBSOCKET_KEY = Refusal(400, "invalid Sec-WebSocket-Key header")
WEBSOCKET_SUBPROTOCOLS = Refusal(400, "invalid Sec-WebSocket-Protocol header")
WEBSOCKET_EXTENSIONS = Refusal(400, "invalid Sec-WebSocket-Extensions header")
