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


# A member looked up on its class costs several times a global, and these are read for each request.
OPEN, KNOWN, HERE = End
ENDING_NONE, ENDING_ANNOUNCED, ENDING_LAST_CALL, ENDING_NOW = Ending
