"""Numbers that a peer can push and no setting holds, for all implementations of HTTP/1.1, the native core included."""

from __future__ import annotations

BODY_BYTES_PER_SECOND = 16384
"""Every this many bytes of a request body move its deadline on by a second."""

MAX_DISCARDED = 1024 * 1024
"""Body bytes an application left unread that are read and dropped to keep the connection; beyond it, it closes."""

LINGER_SECONDS = 10.0
"""How long a connection that was refused goes on reading, so that its peer reads the answer before a reset. Peers that
do read it close at once; the others are those that send the whole of a large body first."""

MAX_EAGER_REQUESTS = 32
"""Pipelined requests served before other connections get their turn."""
