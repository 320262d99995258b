"""Both engines: each test of a module that asks for `engine` runs with rustls and with OpenSSL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.tls import engines
from uvicorn.config import Config
from uvicorn.tls import rustls


@pytest.fixture(params=engines.NAMES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The name of the engine that a configuration has unless it names one.

    For rustls that is `auto` where no client is asked for a certificate, so that tests see it taken.
    """
    name: Any = request.param
    if name == "rustls" and (reason := rustls.why_not()):
        pytest.skip(reason)
    resolve = Config.__post_init__

    def choose(self: Config) -> None:
        if self.tls == "auto" and (name == "openssl" or (self.ssl_cert_reqs and self.ssl_context_factory is None)):
            self.tls = name
        resolve(self)

    monkeypatch.setattr(Config, "__post_init__", choose)
    return name


@pytest.fixture(autouse=True)
def closing_connections() -> Iterator[None]:
    """Leave no connection of `engines.handshake` open."""
    yield
    engines.close()
