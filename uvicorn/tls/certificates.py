"""The parts of certificates and revocation lists (RFC 5280) that a server has to know: subject, names, expiry.

Python's `ssl` gives these only for the certificate of a peer, and without its exact name. This module reads DER and
verifies nothing: OpenSSL decides whether a certificate is valid.
"""

from __future__ import annotations

import base64
import calendar
import contextlib
import ipaddress
import re
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

ParsedT = TypeVar("ParsedT")

_PEM = re.compile(rb"-----BEGIN (?:X509 )?CERTIFICATE-----(.+?)-----END (?:X509 )?CERTIFICATE-----", re.DOTALL)
_LIST = re.compile(rb"-----BEGIN X509 CRL-----([^-]+)-----END X509 CRL-----")

# Tags of DER (X.690).
_INTEGER, _BIT_STRING, _OCTET_STRING, _OID, _SEQUENCE, _SET = 0x02, 0x03, 0x04, 0x06, 0x30, 0x31
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_VERSION, _EXTENSIONS, _LIST_EXTENSIONS = 0xA0, 0xA3, 0xA0
_DNS_NAME, _IP_ADDRESS = 0x82, 0x87

_ENCODINGS = {
    0x0C: "utf-8",  # UTF8String
    0x12: "ascii",  # NumericString
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # TeletexString, as used in practice
    0x16: "ascii",  # IA5String
    0x1A: "ascii",  # VisibleString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}

_COMMON_NAME = "2.5.4.3"
_SUBJECT_ALT_NAME = "2.5.29.17"
_ISSUING_DISTRIBUTION_POINT, _AUTHORITY_KEY_IDENTIFIER = "2.5.29.28", "2.5.29.35"

_SHORT_NAMES = {
    _COMMON_NAME: "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Those of RFC 4514 section 3; others are written as numbers."""


@dataclass(frozen=True)
class Certificate:
    """One certificate.

    Attributes:
        der: itself.
        subject: whose it is, as RFC 4514 writes a distinguished name.
        names: host names and addresses it is for; its common name where it has none.
        not_before: its first second, in seconds since the epoch.
        not_after: its last second.
    """

    der: bytes
    subject: str
    names: tuple[str, ...]
    not_before: int
    not_after: int

    @property
    def pem(self) -> str:
        """Itself, in PEM."""
        return ssl.DER_cert_to_PEM_cert(self.der)

    @classmethod
    def read(cls, der: bytes) -> Certificate:
        """Parse a certificate in DER.

        Raises:
            ValueError: it is none.
        """
        return _parsed(_certificate, der, "certificate")


@dataclass(frozen=True)
class RevocationList:
    """One revocation list.

    Attributes:
        issuer: whose it is, as RFC 4514 writes a distinguished name.
        scope: equal for lists that replace each other.
        this_update: when it was issued, in seconds since the epoch.
        next_update: when it expires; None if it does not say.
    """

    issuer: str
    scope: bytes
    this_update: int
    next_update: int | None

    @classmethod
    def read(cls, der: bytes) -> RevocationList:
        """Parse a list in DER.

        Raises:
            ValueError: it is none.
        """
        return _parsed(_revocation_list, der, "revocation list")


def lists_of_pem(text: bytes) -> Iterator[RevocationList]:
    """Return the revocation lists of a file in PEM that can be read."""
    for content in _LIST.findall(text):
        with contextlib.suppress(ValueError):
            yield RevocationList.read(base64.b64decode(content))


def first_of_pem(text: bytes) -> bytes | None:
    """The first certificate of a file in PEM, in DER; the one that OpenSSL shows for the file of a server.

    Where that is not in the usual form, None.
    """
    found = _PEM.search(text)
    if found is None:
        return None
    try:
        return ssl.PEM_cert_to_DER_cert(f"{ssl.PEM_HEADER}\n{found[1].decode('ascii').strip()}\n{ssl.PEM_FOOTER}")
    except ValueError:
        return None


def name_of(der: bytes) -> str:
    """Whose certificate it is, as RFC 4514 writes that.

    Raises:
        ValueError: it is not a certificate.
    """
    return Certificate.read(der).subject


# DER.


def _element(data: bytes, at: int = 0) -> tuple[int, bytes, int]:
    """Tag and contents of the value that begins `at`, and the place of the next one."""
    tag, length = data[at], data[at + 1]
    at += 2
    if length & 0x80:
        size = length & 0x7F
        if not 1 <= size <= 4:
            raise ValueError("a length must have one to four bytes.")
        length = int.from_bytes(data[at : at + size], "big")
        at += size
    if at + length > len(data):
        raise ValueError("an element extends beyond the data.")
    return tag, data[at : at + length], at + length


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, contents, at = _element(data, at)
        yield tag, contents


def _contents(element: tuple[int, bytes], *tags: int) -> bytes:
    tag, contents = element
    if tag not in tags:
        raise ValueError(f"an element has the unexpected tag {tag:#x}.")
    return contents


def _parsed(parse: Callable[[bytes], ParsedT], der: bytes, what: str) -> ParsedT:
    try:
        return parse(der)
    except (IndexError, OverflowError, StopIteration) as exc:
        raise ValueError(f"the {what} is truncated or malformed.") from exc


def _signed(der: bytes, version: int) -> tuple[list[tuple[int, bytes]], int]:
    """The fields of a signed object but for its version, which has this tag, and the place after the object."""
    tag, outer, end = _element(der)
    fields = list(_elements(_contents(next(_elements(_contents((tag, outer), _SEQUENCE))), _SEQUENCE)))
    return fields[1:] if fields[0][0] == version else fields, end


def _certificate(der: bytes) -> Certificate:
    fields, end = _signed(der, _VERSION)
    # serial number, algorithm, issuer, validity, subject, key, and then optional elements
    validity = list(_elements(_contents(fields[3], _SEQUENCE)))
    subject = list(_elements(_contents(fields[4], _SEQUENCE)))
    names: tuple[str, ...] = ()
    for kind, contents in fields[6:]:
        if kind == _EXTENSIONS:
            names = tuple(_alternative_names(contents))
    return Certificate(
        der=der[:end],
        subject=_distinguished_name(subject),
        names=names or tuple(_common_names(subject)),
        not_before=_time(validity[0]),
        not_after=_time(validity[1]),
    )


def _revocation_list(der: bytes) -> RevocationList:
    fields, _ = _signed(der, _INTEGER)
    # algorithm, issuer, date, and then optional elements
    issuer, rest = _contents(fields[1], _SEQUENCE), fields[3:]
    ends = bool(rest) and rest[0][0] in (_UTC_TIME, _GENERALIZED_TIME)
    scope = issuer
    for kind, contents in rest:
        if kind == _LIST_EXTENSIONS:
            parts = (_ISSUING_DISTRIBUTION_POINT, _AUTHORITY_KEY_IDENTIFIER)
            scope += b"".join(value for oid, value in _extensions(contents) if oid in parts)
    return RevocationList(
        issuer=_distinguished_name(list(_elements(issuer))),
        scope=scope,
        this_update=_time(fields[2]),
        next_update=_time(rest[0]) if ends else None,
    )


def _time(element: tuple[int, bytes]) -> int:
    """Seconds since the epoch (RFC 5280 section 4.1.2.5)."""
    text = _contents(element, _UTC_TIME, _GENERALIZED_TIME).decode("ascii")
    if element[0] == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ"))


def _oid(contents: bytes) -> str:
    numbers, number = [], 0
    for byte in contents:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _extensions(extensions: bytes) -> Iterator[tuple[str, bytes]]:
    """Return the identifier and the value of each."""
    for element in _elements(_contents(next(_elements(extensions)), _SEQUENCE)):
        extension = list(_elements(_contents(element, _SEQUENCE)))
        yield _oid(_contents(extension[0], _OID)), _contents(extension[-1], _OCTET_STRING)


def _alternative_names(extensions: bytes) -> Iterator[str]:
    """Host names and addresses (RFC 5280 section 4.2.1.6)."""
    for oid, extension in _extensions(extensions):
        if oid != _SUBJECT_ALT_NAME:
            continue
        for tag, value in _elements(_contents(next(_elements(extension)), _SEQUENCE)):
            if tag == _DNS_NAME:
                yield value.decode("ascii", "backslashreplace")
            elif tag == _IP_ADDRESS and len(value) in (4, 16):
                yield str(ipaddress.ip_address(value))


def _attributes(relative: tuple[int, bytes]) -> Iterator[tuple[str, tuple[int, bytes]]]:
    for element in _elements(_contents(relative, _SET)):
        kind, value = _elements(_contents(element, _SEQUENCE))
        yield _oid(_contents(kind, _OID)), value


def _common_names(subject: list[tuple[int, bytes]]) -> Iterator[str]:
    for relative in subject:
        for oid, value in _attributes(relative):
            text = _text(value)
            if oid == _COMMON_NAME and text is not None:
                yield text


def _distinguished_name(subject: list[tuple[int, bytes]]) -> str:
    """Write a name in the order of RFC 4514 section 2: last element first."""
    parts = []
    for relative in reversed(subject):
        parts.append("+".join(_assertion(oid, value) for oid, value in _attributes(relative)))
    return ",".join(parts)


def _assertion(oid: str, value: tuple[int, bytes]) -> str:
    name, text = _SHORT_NAMES.get(oid), _text(value)
    if name is None or text is None:
        return f"{name or oid}=#{_encoded(value).hex()}"
    return f"{name}={escaped(text)}"


def _encoded(element: tuple[int, bytes]) -> bytes:
    tag, contents = element
    size = len(contents)
    length = b"" if size < 0x80 else size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length) if length else size]) + length + contents


def _text(value: tuple[int, bytes]) -> str | None:
    encoding = _ENCODINGS.get(value[0])
    if encoding is None:
        return None
    try:
        return value[1].decode(encoding)
    except UnicodeDecodeError:
        return None


def escaped(text: str) -> str:
    """RFC 4514 section 2.4; control characters too, since this is a line wherever it is written."""
    out = []
    for place, char in enumerate(text):
        is_edge = (char in " #" and place == 0) or (char == " " and place == len(text) - 1)
        if char in '"+,;<>\\' or is_edge:
            out.append("\\" + char)
        elif char < " " or "\x7f" <= char < "\xa0":
            out.append("".join(f"\\{byte:02x}" for byte in char.encode()))
        else:
            out.append(char)
    return "".join(out)
