"""Direct calls of OpenSSL for functions that Python's `ssl` lacks.

A context's `SSL_CTX *`, and a connection's `SSL *`, are found in front of what `_ssl` keeps of them, and the functions
in the very library that `_ssl` uses. Where any of it is not exactly as it is known to be, nothing is done (`why_not`).
Imported on demand.
"""

from __future__ import annotations

import ctypes
import ssl
import sys
import threading
from typing import Any

KNOWN_PYTHONS = ((3, 10), (3, 13))
"""Where the fields of `_ssl` are known, with a GIL and without: each was tried."""

TicketCallback = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,  # SSL *
    ctypes.c_void_p,  # unsigned char key_name[16]
    ctypes.c_void_p,  # unsigned char iv[EVP_MAX_IV_LENGTH]
    ctypes.c_void_p,  # EVP_CIPHER_CTX *
    ctypes.c_void_p,  # EVP_MAC_CTX *
    ctypes.c_int,
)

VerifyCallback = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_void_p,  # X509_STORE_CTX *
)


class OpenSSL:
    """The functions that are needed, of the library that `_ssl` is linked with.

    Raises:
        OSError, AttributeError: there is no such library, or function.
    """

    def __init__(self) -> None:
        import _ssl

        # `dlsym` on this handle finds functions of this module, or of a library that it needs.
        library = ctypes.CDLL(_ssl.__file__)
        pointer, number = ctypes.c_void_p, ctypes.c_int

        def function(name: str, result: Any, *arguments: Any) -> Any:
            found = getattr(library, name)
            found.restype, found.argtypes = result, arguments
            return found

        self.version = function("OpenSSL_version_num", ctypes.c_ulong)
        self.options = function("SSL_CTX_get_options", ctypes.c_uint64, pointer)
        self.context_of = function("SSL_get_SSL_CTX", pointer, pointer)
        self.control = function("SSL_CTX_ctrl", ctypes.c_long, pointer, number, ctypes.c_long, pointer)
        self.set_ticket_callback = function("SSL_CTX_set_tlsext_ticket_key_evp_cb", number, pointer, TicketCallback)
        self.set_verify = function("SSL_CTX_set_verify", None, pointer, number, VerifyCallback)
        self.verify_result = function("SSL_get_verify_result", ctypes.c_long, pointer)
        self.verify_text = function("X509_verify_cert_error_string", ctypes.c_char_p, ctypes.c_long)
        self.aes = function("EVP_aes_256_cbc", pointer)()
        initialize = (pointer, pointer, pointer, ctypes.c_char_p, pointer)
        self.encrypt = function("EVP_EncryptInit_ex", number, *initialize)
        self.decrypt = function("EVP_DecryptInit_ex", number, *initialize)
        self.set_params = function("EVP_MAC_CTX_set_params", number, pointer, pointer)

    @staticmethod
    def context(context: ssl.SSLContext) -> int | None:
        """`((PySSLContext *)context)->ctx`"""
        return ctypes.c_void_p.from_address(id(context) + object.__basicsize__).value

    @staticmethod
    def connection(connection: Any) -> int | None:
        """`((PySSLSocket *)connection)->ssl`; in front of that there is a weak reference."""
        behind = object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)
        return ctypes.c_void_p.from_address(id(connection) + behind).value

    def is_as_expected(self) -> bool:
        """Whether contexts and connections have the assumed layout, verified against their public values."""
        if self.version() != ssl.OPENSSL_VERSION_NUMBER:
            return False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for option in (ssl.OP_NO_TICKET, ssl.OP_CIPHER_SERVER_PREFERENCE):
            context.options ^= option
            pointer = self.context(context)
            if pointer is None or self.options(pointer) != int(context.options) % 2**64:
                return False
        connection: Any = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
        inner = self.connection(connection._sslobj)
        return inner is not None and self.context_of(inner) == self.context(context)


_lock = threading.Lock()
_found: list[OpenSSL] = []


def why_not() -> str | None:
    """Why OpenSSL cannot be reached here; None if it can."""
    if sys.implementation.name != "cpython" or not KNOWN_PYTHONS[0] <= sys.version_info[:2] <= KNOWN_PYTHONS[1]:
        return "this interpreter is not supported"
    if not ssl.OPENSSL_VERSION.startswith("OpenSSL 3."):
        return f"it needs OpenSSL 3, not {ssl.OPENSSL_VERSION}"
    with _lock:
        if _found:
            return None
        try:
            library = OpenSSL()
        except (ImportError, OSError, AttributeError):
            return "OpenSSL's functions cannot be found"
        if not library.is_as_expected():
            return "the layout of SSLContext objects is unknown"
        _found.append(library)
        return None


def openssl() -> OpenSSL:
    """The functions.

    Raises:
        RuntimeError: they cannot be had.
    """
    reason = why_not()
    if reason is not None:
        raise RuntimeError(f"Cannot call OpenSSL directly: {reason}.")
    return _found[0]


# Sessions that a server keeps.

_SET_SESSION_CACHE_MODE, _CACHE_OFF = 44, 0
"""`SSL_CTRL_SET_SESS_CACHE_MODE`, and `SSL_SESS_CACHE_OFF`."""


def keep_no_sessions(context: ssl.SSLContext) -> None:
    """Have no session be taken up by its id, which up to TLS 1.2 does without a ticket (RFC 5246 section 7.3).

    Raises:
        RuntimeError: it is not possible here.
    """
    library = openssl()
    library.control(library.context(context), _SET_SESSION_CACHE_MODE, _CACHE_OFF, None)


# Clients whose certificates cannot be verified.


_MODES = {ssl.CERT_OPTIONAL: 1, ssl.CERT_REQUIRED: 1 | 2}
"""`SSL_VERIFY_PEER`, and `SSL_VERIFY_FAIL_IF_NO_PEER_CERT`; Python counts otherwise."""

_go_on = VerifyCallback(lambda is_verified, store: 1)


def serve_unverified(context: ssl.SSLContext) -> None:
    """Continue handshakes when the certificate of a client cannot be verified; `verification_error` reports it.

    One that is required must still be there.

    Raises:
        RuntimeError: it is not possible here.
        KeyError: the context asks for no certificates.
    """
    library = openssl()
    library.set_verify(library.context(context), _MODES[context.verify_mode], _go_on)


def verification_error(connection: Any) -> str | None:
    """Why the certificate of the peer could not be verified, in OpenSSL's words; None if it was, or there is none.

    `connection` is the inner object of an `ssl.SSLObject`.

    Raises:
        RuntimeError: it is not possible here.
    """
    library = openssl()
    result = library.verify_result(library.connection(connection))
    if result == 0:
        return None
    text = library.verify_text(result)
    return text.decode("ascii", "replace") if text else f"error {result}"
