"""What programs see as `ssl_object` of a connection that rustls encrypts."""

from __future__ import annotations

import os
import ssl
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from uvicorn.tls.server_context import ServerContext

VERSIONS = {0x0303: "TLSv1.2", 0x0304: "TLSv1.3"}
"""OpenSSL's names of the versions that rustls has."""

SUITES = {
    0x1301: ("TLS_AES_128_GCM_SHA256", 128),
    0x1302: ("TLS_AES_256_GCM_SHA384", 256),
    0x1303: ("TLS_CHACHA20_POLY1305_SHA256", 256),
    0xC02B: ("ECDHE-ECDSA-AES128-GCM-SHA256", 128),
    0xC02C: ("ECDHE-ECDSA-AES256-GCM-SHA384", 256),
    0xC02F: ("ECDHE-RSA-AES128-GCM-SHA256", 128),
    0xC030: ("ECDHE-RSA-AES256-GCM-SHA384", 256),
    0xCCA8: ("ECDHE-RSA-CHACHA20-POLY1305", 256),
    0xCCA9: ("ECDHE-ECDSA-CHACHA20-POLY1305", 256),
}
"""The cipher suites that rustls has, by their IANA number: OpenSSL's name, and the bits of the key."""


class TLSConnection(ssl.SSLObject):
    """The parameters of a connection whose handshake is complete; it can be read, and not driven.

    Args:
        front: the context of the listening socket; `context` is that of the certificate the client was shown.
        version: of TLS, as on the wire.
        suite: IANA number of the cipher suite.
        alpn: the protocol agreed on, if any.
        server_name: the host name that the client asked for (RFC 6066 section 3), if any.
        chain: the client's certificate and those that lead to its authority, in DER; empty without one.
        resumed: whether the client came with a session ticket.
        group: IANA number of the key exchange group, if one was negotiated.
        error: why the client's certificate could not be verified, if it is served nevertheless.
        host: the name in `ssl_cert` whose certificate was shown; None for the default.
    """

    _front: ServerContext
    _version: int
    _suite: int
    _alpn: str | None
    _server_name: str | None
    _chain: tuple[bytes, ...]
    _resumed: bool
    _host: str | None
    group: int | None
    verification_error: str | None

    def __new__(cls, *args: Any, **kwargs: Any) -> TLSConnection:
        """`ssl.SSLObject` has no public constructor."""
        return object.__new__(cls)

    def __init__(
        self,
        front: ServerContext,
        version: int,
        suite: int,
        alpn: str | None = None,
        server_name: str | None = None,
        chain: tuple[bytes, ...] = (),
        resumed: bool = False,
        group: int | None = None,
        error: str | None = None,
        host: str | None = None,
    ) -> None:
        self._front, self._host = front, host
        self._version, self._suite, self._alpn, self._server_name = version, suite, alpn, server_name
        self._chain, self._resumed = chain, resumed
        self.group, self.verification_error = group, error

    @property
    def context(self) -> ssl.SSLContext:
        """The context with the settings of this connection; OpenSSL does not use it."""
        return self._front.hosts.get(self._host, self._front) if self._host else self._front

    @context.setter
    def context(self, context: ssl.SSLContext) -> None:
        self._refuse()

    @property
    def session(self) -> None:
        """None: sessions are the server's."""
        return None

    @session.setter
    def session(self, session: object) -> None:
        self._refuse()

    @property
    def session_reused(self) -> bool:
        """Whether the client came with a session ticket."""
        return self._resumed

    @property
    def server_side(self) -> bool:
        """True."""
        return True

    @property
    def server_hostname(self) -> str | None:
        """The host name that the client asked for, if any."""
        return self._server_name

    def version(self) -> str | None:
        """`TLSv1.2` or `TLSv1.3`."""
        return VERSIONS.get(self._version)

    def cipher(self) -> tuple[str, str, int] | None:
        """OpenSSL's name of the cipher suite, the version that defines it, and the bits of its key."""
        name, bits = SUITES[self._suite]
        return name, VERSIONS[self._version], bits

    def shared_ciphers(self) -> list[tuple[str, str, int]] | None:
        """The cipher suite in use alone: which others the client knows is not kept."""
        cipher = self.cipher()
        return None if cipher is None else [cipher]

    def compression(self) -> None:
        """None: there never is any."""
        return None

    def selected_alpn_protocol(self) -> str | None:
        """The protocol agreed on (RFC 7301)."""
        return self._alpn

    def selected_npn_protocol(self) -> None:
        """None: it is obsolete."""
        return None

    def getpeercert(self, binary_form: bool = False) -> Any:
        """The client's certificate: in DER, or as the dict that `ssl` makes of one, empty if it was not verified."""
        if not self._chain:
            return None
        if binary_form:
            return self._chain[0]
        return {} if self.verification_error is not None else _as_dict(self._chain[0])

    def get_verified_chain(self) -> list[bytes]:
        """The client's certificate and those that lead to its authority, in DER."""
        return list(self._chain)

    def get_unverified_chain(self) -> list[bytes]:
        """The same: others that the client has sent are not kept."""
        return list(self._chain)

    def get_channel_binding(self, cb_type: str = "tls-unique") -> bytes | None:
        """None: rustls does not give any, and TLS 1.3 defines none of these (RFC 9266 section 3).

        Raises:
            ValueError: the type is unknown.
        """
        if cb_type != "tls-unique":
            raise ValueError(f"{cb_type} channel binding type not implemented")
        return None

    def pending(self) -> int:
        """0: data is handed to the connection as it comes."""
        return 0

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Reject what would drive the connection.

        Raises:
            ssl.SSLError: always.
        """
        raise ssl.SSLError("rustls drives this connection: set tls to 'openssl' for an object of OpenSSL's")

    read = write = do_handshake = unwrap = verify_client_post_handshake = _refuse


def _as_dict(der: bytes) -> dict[str, Any]:
    """Decode a certificate as `ssl` does that of a peer; its function for that reads a file alone."""
    if sys.platform != "linux":
        raise NotImplementedError("rustls serves on Linux alone")
    decoder: Any = ssl  # it has the module that decodes, unknown to type checkers on other systems
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, ssl.DER_cert_to_PEM_cert(der).encode())
        decoded: dict[str, Any] = decoder._ssl._test_decode_cert(f"/proc/self/fd/{descriptor}")
        return decoded
    finally:
        os.close(descriptor)
