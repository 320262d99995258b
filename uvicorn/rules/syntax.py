"""Syntax that several packages check, and text that may be shown anywhere."""

from __future__ import annotations

import re
from typing import Final

TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
"""A token (RFC 9110 section 5.6.2), such as the name of a header field, as a regular expression."""


_CREDENTIALS: Final = re.compile(r"(://).*@|[^\s/?#'\"]*:[^\s/?#'\"]*@")
_QUERY: Final = re.compile(r"([?#])[^'\"]+")


def printable(text: str) -> str:
    """Return a text in which a question mark replaces each character that could change how a terminal shows others."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def without_secrets(text: str) -> str:
    """Leave out credentials, query and fragment of a URL in a text for the log or an error."""
    text = _CREDENTIALS.sub(r"\1...@", text)
    return _QUERY.sub(r"\1...", text) if "://" in text else text
