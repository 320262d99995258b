"""Why a connection fails: every mistake of a client's, with the code and the reason of the close frame that answers it.

For all implementations: `scripts/sync-settings` writes the table of the native core from this one. `{limit}` in a
reason is the number that was passed.
"""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """A reason to fail a connection (RFC 6455 section 7.1.7): its close code, and the text of the close frame."""

    code: int
    reason: str


# The head of a frame (RFC 6455 sections 5.1 to 5.5, RFC 7692 section 6).
OPCODE = Failure(1002, "invalid opcode")
MASKING = Failure(1002, "incorrect masking")
CONTROL_TOO_LONG = Failure(1002, "control frame too long")
CONTROL_FRAGMENTED = Failure(1002, "fragmented control frame")
RESERVED_BITS = Failure(1002, "reserved bits must be 0")
LENGTH = Failure(1002, "invalid payload length")

# Messages in fragments (RFC 6455 section 5.4).
CONTINUATION_UNEXPECTED = Failure(1002, "unexpected continuation frame")
CONTINUATION_MISSING = Failure(1002, "expected a continuation frame")
TOO_MANY_FRAGMENTS = Failure(1008, "message in too many small fragments")

# The payload of messages (RFC 6455 sections 8.1 and 10.4, RFC 7692 section 7.2.2).
TOO_BIG = Failure(1009, "Message exceeds the maximum size ({limit} bytes)")
TEXT = Failure(1007, "invalid UTF-8 in a text message")
DEFLATE = Failure(1002, "decompression failed")

# Close frames (RFC 6455 sections 5.5.1 and 7.4).
CLOSE_TOO_SHORT = Failure(1002, "close frame too short")
CLOSE_CODE = Failure(1002, "invalid status code")
CLOSE_REASON = Failure(1007, "invalid UTF-8 in the close reason")
