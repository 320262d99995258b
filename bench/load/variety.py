"""Requests that differ from each other: path, query and a header. The same ones in every run, for every server."""

from __future__ import annotations

import random

from bench.load.base import Aim
from bench.load.response import request_bytes

WORDS = (
    "archive",
    "blue",
    "chair",
    "desk",
    "eleven",
    "forest",
    "garden",
    "house",
    "island",
    "jacket",
    "kettle",
    "lamp",
)
SORTS = ("name", "price", "-price", "newest", "rating")
# Beside the aim's own headers.
HEADER = "X-Request-ID"


def requests(aim: Aim) -> list[bytes]:
    """As many requests as the aim's option `variety` says, no two alike."""
    generator = random.Random(1)
    found = []
    for number in range(int(aim.options["variety"])):
        first, second = generator.choice(WORDS), generator.choice(WORDS)
        page, sort = generator.randrange(1, 200), generator.choice(SORTS)
        target = f"/items/{number}/{first}-{second}?page={page}&sort={sort}&q={second}+{generator.randrange(10**6)}"
        headers = {**aim.headers, HEADER: f"{generator.getrandbits(128):032x}"}
        found.append(request_bytes(aim.method, target, headers, aim.body))
    return found
