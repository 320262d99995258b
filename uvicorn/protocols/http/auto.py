"""`--http auto`: the fastest implementation that can be imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uvicorn.protocols.http.protocol import HTTPProtocol

AutoHTTPProtocol: type[HTTPProtocol]
try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # pragma: no cover - the standard extras are always there in the tests
    from uvicorn.protocols.http.h11_impl import H11Protocol

    AutoHTTPProtocol = H11Protocol
else:
    AutoHTTPProtocol = HttpToolsProtocol
