"""Numbers that a peer can push and no setting holds, for all implementations of WebSocket."""

from __future__ import annotations

MAX_OVERHEAD = 1048576
"""Bytes of frame headers one message may have beyond its payload; beyond it 1008. Fragments smaller than their headers
are never necessary, and an endless series of them is an attack (CVE-2026-48779)."""

MAX_CLOSE_REASON = 123
"""Bytes of a close reason: a control frame carries 125, the code takes two (RFC 6455 section 5.5)."""

MAX_LOGGED_TARGET = 2048
"""Bytes of the target of a refused handshake that a log line shows."""

CLOSE_TIMEOUT = 10.0
"""Seconds without progress after which a connection is dropped: the peer answers no close frame, or reads no data."""

ANSWER_SECONDS = 2.0
"""Seconds an application has to answer the last message it took, when the client has ended behind that."""

LINGER_SECONDS = 2.0
"""How long a connection that failed or was refused goes on reading, so that its peer reads why before a reset."""
