"""Numbers that a peer can push and no setting holds, for all implementations of HTTP/1.1, the native core included.

`scripts/sync-settings` writes those that the native core has to know before it has seen a configuration, and the
defaults of the settings beside them, into `native/wire/src/limits/table.rs`. A value of exactly the limit passes; one
more does not.
"""

from __future__ import annotations

MAX_METHOD_LENGTH = 64
"""Bytes of a method; beyond it 501. The longest registered one has 17."""

MAX_EMPTY_LINES = 8
"""Empty lines skipped in front of a request line; beyond it 400. RFC 9112 section 2.2 asks for at least one."""

MAX_LENGTH = 2**63 - 1
"""Longest body that can be declared: a signed number of 64 bits, as everywhere; beyond it 400."""

MAX_CHUNK_SIZE_DIGITS = 16
"""Digits of a chunk size: as many as 64 bits need; beyond it 400."""

MAX_CHUNK_WASTE = 16384
"""Bytes of chunk extensions and leading zeros that a body may waste at once; beyond it 400 (CVE-2023-39326). Data earns
them back."""

CHUNK_BYTES_PER_WASTE = 16
"""Bytes of a chunk that earn back one byte of waste: chunk signatures pass in chunks of 2 KiB, a flood does not."""

MAX_TRAILER_BYTES = 16384
"""Bytes of the field lines of a trailer section; beyond it 431. They are read only to find the end of the message."""

MAX_DISCARDED = 1048576
"""Body bytes an application left unread that are read and dropped to keep the connection; beyond it, it closes."""

HIGH_WATER_LIMIT = 65536
"""Bytes kept for an application or a peer that does not take them, before the other side is made to wait."""

BODY_BYTES_PER_SECOND = 240
"""Every this many bytes of a request body move its deadline on by a second, but never beyond the time a body has at its
beginning. Slower than this a client counts as one that does not send; a modem is faster."""

READ_BYTES_PER_SECOND = 240
"""Bytes per second that a peer has to read on average while output waits, or it counts as one that does not read."""

LINGER_SECONDS = 10.0
"""How long a connection goes on reading after its last response if its client was still sending, so that the client
reads that before a reset. Clients that do read it close at once; the others send the whole of a large body first."""

LAST_REQUEST_SECONDS = 1.0
"""How long a connection whose last response did not say `close` waits, when the server ends, for a request that its
client may have sent meanwhile; since that response, or since the connection was made. Also how long it waits, after its
last response was read, for its client's end."""

MAX_EAGER_REQUESTS = 32
"""Pipelined requests served before other connections get their turn."""

LONGEST_EAGER_STEP = 0.0003
"""Seconds of first steps, on average, up to which tasks start eagerly. That saves a turn of the loop, about 3 us. A new
request also overtakes all that wait for their turn, and mixes their stages: it cost litellm a fifth of its CPU time."""

EAGER_STEPS_PER_LOOK = 17
"""One in this many starts eagerly in any case, and is measured. A prime: requests of several kinds come in turn."""
