"""The states of a connection. States that exclude each other are one enum; each only ever goes forward.

The states of reading and writing are in their state machines: `Reading`, `Writing`, `CycleState`.
"""

from __future__ import annotations

from enum import IntEnum


class End(IntEnum):
    """The end of the client's input."""

    OPEN = 0
    """More may come."""
    KNOWN = 1
    """Nothing more comes, beyond the bytes that the system still holds."""
    HERE = 2
    """All that there is was received."""


class Ending(IntEnum):
    """The effect of the server's shutdown on a connection."""

    NONE = 0
    ANNOUNCED = 1
    """The next head says `close`."""
    LAST_CALL = 2
    """And its request has to come soon."""
    NOW = 3
    """No further request is taken."""


class Closing(IntEnum):
    """The end of the server's output.

    One that is not at once leaves the client time to read it: if its input came to a closed socket, the kernel would
    reset the connection, and the last responses could be lost (RFC 9112 section 9.6).
    """

    AT_ONCE = 0
    """Nothing was sent that the client may still be reading, or it is to notice that the rest is missing."""
    AFTER_RESPONSE = 1
    """A response was the last thing sent."""
    AMID_BODY = 2
    """The same, and the client is sending a body, perhaps with pauses."""


# A member looked up on its class costs several times a global, and these are read for each request.
OPEN, KNOWN, HERE = End
ENDING_NONE, ENDING_ANNOUNCED, ENDING_LAST_CALL, ENDING_NOW = Ending
AT_ONCE, AFTER_RESPONSE, AMID_BODY = Closing
