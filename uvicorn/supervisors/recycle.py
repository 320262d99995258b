"""Whether a worker has served enough: from figures to a reason, and nothing else."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass

from uvicorn.config import Config

MIB = 1024 * 1024


class Reason(str, enum.Enum):
    """Why another worker is started in the place of one that serves."""

    REQUESTS = "requests"
    LIFETIME = "lifetime"
    MEMORY = "memory"
    RESTART = "restart"


@dataclass(frozen=True)
class RecycleLimits:
    """The limits after which a worker is replaced; None is no limit. The server itself reports its limit of requests.

    Attributes:
        lifetime: seconds it serves.
        memory: resident bytes.
    """

    lifetime: float | None = None
    memory: int | None = None

    @classmethod
    def of(cls, config: Config, draw: Callable[[], float] = random.random) -> RecycleLimits:
        """Derive them from the settings for one worker; `draw` returns a number from 0 to 1 for its jitter."""
        lifetime = config.limit_worker_lifetime
        if lifetime is not None:
            lifetime += draw() * config.limit_worker_lifetime_jitter
        return cls(lifetime, None if config.limit_worker_memory is None else config.limit_worker_memory * MIB)

    def reached(self, age: float, memory: int | None) -> Reason | None:
        """Which limit a worker has reached that has served for `age` seconds; `memory` is None if it is not known."""
        if self.lifetime is not None and age >= self.lifetime:
            return Reason.LIFETIME
        if self.memory is not None and memory is not None and memory > self.memory:
            return Reason.MEMORY
        return None
