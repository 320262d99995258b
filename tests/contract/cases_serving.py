"""A server with each parameter of `Config` set to what is false: what it answers, and how it ends."""

from __future__ import annotations

import functools

from . import harness
from .cases_config import FALSY, PARAMETERS


def cases() -> dict[str, harness.Case]:
    """One for each value of each parameter, served by a server in this process."""
    found: dict[str, harness.Case] = {}
    for parameter in PARAMETERS:
        for text, value in FALSY.items():
            if (parameter, text) not in (("port", "0"), ("log_config", "''")):
                found[f"{parameter}={text}"] = functools.partial(harness.served, **{parameter: value})
    return found
