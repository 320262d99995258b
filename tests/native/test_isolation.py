"""Some random clients of all versions at once, the same each time; and that a leak is noticed.

`scripts/fuzz` looks for new ones.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import trustme

if sys.platform != "linux":
    pytest.skip("HTTP/3 needs Linux", allow_module_level=True)
pytest.importorskip("aioquic")

from tests import loops
from tests.native.isolation import TRANSPORTS, Application, make_case, run, serving
from tests.utils import deep_after

# The same code as in the tests of the protocols, which are covered.
pytestmark = [pytest.mark.anyio, pytest.mark.no_cover]

anyio_backend = loops.one


@pytest.fixture(name="certificate")
def certificate_file(tls_certificate: trustme.LeafCert, tmp_path: Path) -> Path:
    path = tmp_path / "certificate.pem"
    tls_certificate.private_key_and_cert_chain_pem.write_to_path(path)
    return path


@pytest.mark.parametrize("part", deep_after(1, range(12)))
async def test_nothing_of_a_request_reaches_another(certificate: Path, part: int) -> None:
    """Over HTTP/1.1, HTTP/2, HTTP/3 and WebSockets, with and without TLS, in one event loop."""
    application = Application()
    async with serving(application, certificate) as addresses:
        for seed in range(part * 5, part * 5 + 5):
            found = await run(make_case(seed), addresses, application)
            assert not found, f"python -m tests.native.isolation --seed {seed}: {found}"


class Leaking(Application):
    """Answers with what another has asked."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    async def request(self, secret: str, scope: Any, receive: Any, send: Any) -> None:
        last, self.last = self.last, secret
        await super().request(last or secret, scope, receive, send)


async def test_a_leak_is_noticed_over_each_version(certificate: Path) -> None:
    application = Leaking()
    async with serving(application, certificate) as addresses:
        found = " ".join(await run(make_case(3), addresses, application))
    assert "has the context of" in found and "in its body" in found
    for transport in TRANSPORTS:
        assert (transport if transport[5] > "1" else "a client of HTTP/1.1") in found
