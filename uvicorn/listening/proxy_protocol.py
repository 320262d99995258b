"""The PROXY protocol, versions 1 and 2: a proxy's description of its client, before everything else on a connection.

HAProxy's `proxy-protocol.txt` (2.2) defines it. The native core calls `read`, too, with what its sockets have received.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from typing import Any, NamedTuple

from uvicorn.logging.rate_limit import LogRateLimit
from uvicorn.rules.network import network_of

MAX_LENGTH = 4096
"""Longest header of version 2 in bytes. Names of hosts and certificates may take more than one segment of TCP."""

_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED = 16
_MAX_LINE = 107
_MAX_UNIQUE_ID = 128
_ADDRESSES = {0x00: 0, 0x11: 12, 0x12: 12, 0x21: 36, 0x22: 36, 0x31: 216, 0x32: 216}

_TEXT = bytes(range(0x20, 0x7F))

logger = logging.getLogger("uvicorn.error")

Address = tuple[str, int] | str
"""Host and port, or the path of a Unix socket, which may be empty."""


class MalformedHeader(ValueError):
    """The header is missing or invalid."""


class ClientTLS(NamedTuple):
    """The client's encryption, which ended at the proxy."""

    version: str = ""
    cipher: str = ""
    common_name: str = ""
    has_certificate: bool = False
    is_verified: bool = False


class ProxyHeader(NamedTuple):
    """The content of a header.

    Attributes:
        source: the client; `None` if the proxy names none (`LOCAL`, `UNKNOWN`), so that the addresses of the
            connection apply.
        destination: where the client has connected to, or `None`.
        authority: the server name of its TLS handshake, if there is one.
        alpn: the protocol that client and proxy have negotiated.
        unique_id: a name of the connection in the logs of several programs, 128 bytes at most.
        tls: `None` where it did not encrypt, or that is not said.
    """

    source: Address | None = None
    destination: Address | None = None
    authority: str = ""
    alpn: bytes = b""
    unique_id: bytes = b""
    tls: ClientTLS | None = None


def read(data: bytes) -> tuple[ProxyHeader, int] | None:
    """Read the header in front of `data`, and say how long it is; `None` if more has to come.

    The first byte that is wrong decides, so the outcome does not depend on how the bytes were cut.

    Raises:
        MalformedHeader: there is none, or it is malformed.
    """
    if b"PROXY "[: len(data)] == data[:6]:
        return _read_line(data)
    if _SIGNATURE[: len(data)] == data[: len(_SIGNATURE)]:
        return _read_binary(data)
    raise MalformedHeader("there is no PROXY header")


_log_limit = LogRateLimit()


def complain(peer: Any, reason: str) -> None:
    """Log a peer whose PROXY header is missing or malformed, at a limited rate."""
    has_address = isinstance(peer, tuple)
    if _log_limit.allows(network_of(peer[0]) if has_address else ""):
        name = f"{peer[0]}:{peer[1]}" if has_address else "a Unix socket"
        logger.warning(
            "Closed a connection from %s, which must begin with a PROXY header (proxy_protocol): %s.", name, reason
        )


def _read_line(data: bytes) -> tuple[ProxyHeader, int] | None:
    malformed = MalformedHeader("the line of the PROXY header is malformed")
    window = data[:_MAX_LINE]
    end = len(window) - len(window.lstrip(_TEXT))
    behind = window[end : end + 2]
    if behind in (b"", b"\r") and len(window) < _MAX_LINE:
        return None
    if behind != b"\r\n":
        raise malformed
    family, *words = window[6:end].decode("ascii").split(" ")
    if family == "UNKNOWN":
        return ProxyHeader(), end + 2
    kind = {"TCP4": socket.AF_INET, "TCP6": socket.AF_INET6}.get(family)
    if kind is None or len(words) != 4:
        raise malformed
    try:
        source, destination = (_host(socket.inet_pton(kind, word)) for word in words[:2])
        from_port, to_port = map(_port, words[2:])
    except (OSError, ValueError):
        raise malformed from None
    return ProxyHeader((source, from_port), (destination, to_port)), end + 2


def _host(packed: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def _port(word: str) -> int:
    if not word.isdecimal() or len(word) > 5 or (word[0] == "0" and word != "0") or int(word) > 65535:
        raise ValueError(word)
    return int(word)


def _read_binary(data: bytes) -> tuple[ProxyHeader, int] | None:
    if len(data) <= 12:
        return None
    command = data[12]
    if command not in (0x20, 0x21):
        raise MalformedHeader("version or command of the PROXY header is unknown")
    if len(data) <= 13:
        return None
    is_local = command == 0x20
    taken = 0 if is_local else _ADDRESSES.get(data[13], -1)
    if taken < 0:
        raise MalformedHeader("the addresses of the PROXY header are malformed")
    if len(data) < _FIXED:
        return None
    length = _FIXED + int.from_bytes(data[14:_FIXED], "big")
    if length > MAX_LENGTH:
        raise MalformedHeader("the PROXY header is too long")
    if length < _FIXED + taken:
        raise MalformedHeader("the addresses of the PROXY header are malformed")
    if len(data) < length:
        return None
    if is_local:
        return ProxyHeader(), length
    proxy_header = _ends(data[_FIXED : _FIXED + taken])
    return _read_extensions(proxy_header, data[:length], _FIXED + taken), length


def _ends(addresses: bytes) -> ProxyHeader:
    if not addresses:
        return ProxyHeader()
    if len(addresses) == 216:
        source, destination = (part.partition(b"\0")[0] for part in (addresses[:108], addresses[108:]))
        return ProxyHeader(source.decode("utf-8", "surrogateescape"), destination.decode("utf-8", "surrogateescape"))
    size = (len(addresses) - 4) // 2
    from_port, to_port = (int.from_bytes(addresses[at:][:2], "big") for at in (2 * size, 2 * size + 2))
    return ProxyHeader((_host(addresses[:size]), from_port), (_host(addresses[size : 2 * size]), to_port))


def _read_extensions(proxy_header: ProxyHeader, header: bytes, at: int) -> ProxyHeader:
    found: dict[str, Any] = {}
    while at < len(header):
        kind, begin, at = _extension(header, at)
        value = header[begin:at]
        if kind == 0x01:
            found["alpn"] = value
        elif kind == 0x02:
            found["authority"] = _text(value)
        elif kind == 0x03:
            if len(value) != 4:
                raise MalformedHeader("an extension of the PROXY header is malformed")
            summed = header[:begin] + bytes(4) + header[at:]
            if _checksum(summed) != int.from_bytes(value, "big"):
                raise MalformedHeader("the checksum of the PROXY header is wrong")
        elif kind == 0x05:
            if len(value) > _MAX_UNIQUE_ID:
                raise MalformedHeader("an extension of the PROXY header is malformed")
            found["unique_id"] = value
        elif kind == 0x20:
            found["tls"] = _read_tls(value)
    return proxy_header._replace(**found)


def _extension(data: bytes, at: int) -> tuple[int, int, int]:
    """Kind, begin and end of the value of the extension at `at`."""
    begin = at + 3
    end = begin + int.from_bytes(data[at + 1 : begin], "big")
    if begin > len(data) or end > len(data):
        raise MalformedHeader("an extension of the PROXY header is malformed")
    return data[at], begin, end


def _text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if any(char < " " or "\x7f" <= char <= "\x9f" for char in text):
        raise MalformedHeader("an extension of the PROXY header is malformed")
    return text


def _read_tls(data: bytes) -> ClientTLS | None:
    if len(data) < 5:
        raise MalformedHeader("an extension of the PROXY header is malformed")
    has_certificate = bool(data[0] & 0b110)
    found: dict[str, str] = {}
    at = 5
    while at < len(data):
        kind, begin, at = _extension(data, at)
        name = {0x21: "version", 0x22: "common_name", 0x23: "cipher"}.get(kind)
        if name is not None:
            found[name] = _text(data[begin:at])
    if not data[0] & 1:
        return None
    return ClientTLS(**found, has_certificate=has_certificate, is_verified=has_certificate and data[1:5] == bytes(4))


@functools.cache
def _remainders() -> list[int]:
    """The table of CRC-32C, by byte."""
    remainders = list(range(256))
    for _ in range(8):
        remainders = [crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1 for crc in remainders]
    return remainders


def _checksum(data: bytes) -> int:
    """CRC-32C (RFC 3720 appendix B.4)."""
    remainders = _remainders()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ remainders[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


# For transports of event loops.


async def receive_header(sock: socket.socket) -> ProxyHeader:
    """Take the header from a socket that does not block, and nothing behind it.

    Bytes after it stay in the kernel for a TLS handshake or a protocol.

    Raises:
        MalformedHeader: there is none, or it is malformed.
        OSError: the peer has gone without one.
    """
    taken = b""
    while True:
        try:
            data = sock.recv(MAX_LENGTH - len(taken), socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            await _readable(sock)
            continue
        if not data:
            raise ConnectionResetError("the peer disconnected before sending a PROXY header")
        found = read(taken + data)
        taken += sock.recv(len(data) if found is None else found[1] - len(taken))
        if found is not None:
            return found[0]


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    descriptor = sock.fileno()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    loop.add_reader(descriptor, wake)
    try:
        await future
    finally:
        loop.remove_reader(descriptor)


class ProxiedProtocol(asyncio.Protocol):
    """Occupies a new transport until its connection is made; then `protocol` takes over with the announced client."""

    def __init__(self, protocol: asyncio.BaseProtocol, proxy_header: ProxyHeader) -> None:
        self._protocol = protocol
        self._proxy_header = proxy_header

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Leave it to the protocol."""
        transport.set_protocol(self._protocol)
        self._protocol.connection_made(ProxiedTransport(transport, self._proxy_header))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)


class _Proxied:
    """Anything, but for the addresses of its ends."""

    def __init__(self, real: Any, proxy_header: ProxyHeader) -> None:
        self._real = real
        self._proxy_header = proxy_header

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class ProxiedSocket(_Proxied):
    """A socket with the addresses that the proxy announced."""

    def getpeername(self) -> Any:
        """The client."""
        told = socket_name(self._proxy_header.source)
        return self._real.getpeername() if told is None else told

    def getsockname(self) -> Any:
        """Where it has connected to."""
        told = socket_name(self._proxy_header.destination)
        return self._real.getsockname() if told is None else told


class ProxiedTransport(_Proxied, asyncio.Transport):
    """A transport with the addresses that the proxy announced."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Optional information about the connection; `proxy_protocol` is the `ProxyHeader`."""
        if name == "proxy_protocol":
            return self._proxy_header
        known = self._real.get_extra_info(name, default)
        if name == "socket" and known is not None:
            return ProxiedSocket(known, self._proxy_header)
        told = {"peername": self._proxy_header.source, "sockname": self._proxy_header.destination}.get(name)
        return known if told is None else socket_name(told)


def socket_name(address: Address | None) -> Any:
    """Return an address as `socket.getpeername()` does: four parts for IPv6."""
    if isinstance(address, tuple) and ":" in address[0]:
        return (*address, 0, 0)
    return address


def _delegate(name: str) -> Any:
    def method(self: ProxiedTransport, *args: Any, **options: Any) -> Any:
        return getattr(self._real, name)(*args, **options)

    return method


# Attributes of a base class are found there, without `__getattr__`.
for _method in set(dir(asyncio.Transport)) - set(dir(object)) - {"get_extra_info", "_extra", "__slots__"}:
    if not _method.startswith("__"):
        setattr(ProxiedTransport, _method, _delegate(_method))
