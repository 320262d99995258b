"""The header fields of every response: those of the setting `headers`, and the name of the server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

Field = tuple[bytes, bytes]

_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
"""Characters of a field name in lower case (RFC 9110 section 5.6.2)."""

_FRAMING = frozenset({"content-length", "transfer-encoding"})
"""Fields that only the author of a response can set correctly (RFC 9112 section 6)."""

_CONTROL_CHARACTERS = frozenset(map(chr, [*range(0x20), 0x7F])) - {"\t"}
"""Characters that a field value must not contain (RFC 9110 section 5.5)."""


_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = rf'[ \t]*;[ \t]*{_NAME}=(?:{_NAME}|"[ !#-\[\]-~]*")'
_ALTERNATIVE = rf'{_NAME}="[A-Za-z0-9.:\[\]_-]*:[0-9]{{1,5}}"(?:{_PARAMETER})*'
_ALT_SVC = re.compile(rf"clear|none|{_ALTERNATIVE}(?:[ \t]*,[ \t]*{_ALTERNATIVE})*")
"""Values of Alt-Svc (RFC 7838 section 3), and `none` for no field."""


def encode_fields(headers: Iterable[tuple[str, str]]) -> list[Field]:
    """Return fields as they are sent.

    Raises:
        ValueError: one of them cannot be.
    """
    return [_encode(name, value) for name, value in headers]


def parse_field(text: str) -> list[str]:
    """Cut ``Name:Value`` at its first colon.

    Raises:
        ValueError: there is none, or no name.
    """
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise ValueError("it must be Name:Value.")
    return [name, value.strip()]


def check_field(field: Sequence[str]) -> None:
    """Refuse a name and a value that cannot be sent.

    Raises:
        ValueError: it says why.
    """
    _encode(*field)


def check_alt_svc(text: str) -> None:
    """Refuse a text that is neither a value of Alt-Svc nor `none`.

    Raises:
        ValueError: it says the form.
    """
    if _ALT_SVC.fullmatch(text) is None:
        raise ValueError('it must be like h3=":443"; ma=3600, or clear, or none.')


def says_close(fields: Iterable[Field]) -> bool:
    """Tell whether the connection option `close` is among the fields (RFC 9112 section 9.6)."""
    options = b",".join(value for name, value in fields if name == b"connection").lower().split(b",")
    return b"close" in map(bytes.strip, options)


def without_connection(fields: Iterable[Field]) -> list[Field]:
    """Return the fields but those about the connection."""
    return [(name, value) for name, value in fields if name != b"connection"]


def with_server(fields: list[Field]) -> list[Field]:
    """Return the fields with the name of the server in front, unless they say another."""
    return fields if any(name == b"server" for name, _ in fields) else [(b"server", b"uvicorn"), *fields]


def _encode(name: str, value: str) -> Field:
    """Return a field as it is sent: name in lower case, value without the white space around it (RFC 9110, 5.5)."""
    field_name, field_value = name.lower(), value.strip(" \t")
    if not field_name or not _TOKEN.issuperset(field_name):
        raise ValueError(f"{name!r} is not the name of a header field.")
    if field_name in _FRAMING:
        raise ValueError(f"{name!r} depends on each response, so it cannot be a default header.")
    if any(character in _CONTROL_CHARACTERS for character in field_value):
        raise ValueError(f"the value of the header field {name!r} contains a control character.")
    return field_name.encode("ascii"), field_value.encode("latin-1")
