"""Attacks on HTTP/3 end as they should, and `scripts/http3-attacks` says of each what it cost."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trustme

pytest.importorskip("aioquic")

from tests.native.http3_attacks import (
    ATTACKS,
    ENDLESS,
    IDLE,
    MOMENT,
    PING,
    TOO_LATE,
    Attacker,
    Client,
    bound,
    head,
    integers,
)
from tests.process import ServerProcess
from tests.utils import PATIENCE, deep_after

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "http3-attacks"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="HTTP/3 needs Linux")

QUICK = [
    attack
    for attack in ATTACKS
    if attack.stranger is None and attack.end not in (ENDLESS, IDLE, TOO_LATE) and not attack.waits and attack.reads
]
SOME = ("PING", "PATH_CHALLENGE", "empty STREAM frames", "streams of one direction that end empty", "rapid reset")


@pytest.mark.parametrize("part", deep_after(1, ("some", "all")))
def test_each_flood_ends_and_another_client_is_served(
    tls_certificate: trustme.LeafCert, tmp_path: Path, part: str, subtests: pytest.Subtests
) -> None:
    """H1 H15 H18 H19"""
    path = tmp_path / "certificate.pem"
    tls_certificate.private_key_and_cert_chain_pem.write_to_path(path)
    options = ["--port", "0", "--http3", "--ssl-certfile", path, "--no-access-log", "--lifespan", "off"]
    with ServerProcess("tests.native.http2_attacks:app", *options, cwd=ROOT) as server:
        for attack in QUICK:
            if part == "all" or attack.name in SOME:
                with subtests.test(attack.name):
                    attacker = Attacker(server.address, attack, 0)
                    deadline = time.monotonic() + PATIENCE
                    ends = attacker.client.ends
                    while not (ends[attack.end] or attacker.is_over):
                        if not attacker.step():
                            time.sleep(MOMENT)
                        assert time.monotonic() < deadline
                    attacker.client.close()
                    assert ends[attack.end] or ends[attack.otherwise]
        client = Client(server.address)
        assert client.begin() and client.ask()
        client.close()


FORGED = "127.0.0.2"


class Forger(Client):
    """A client that can send packets from an address that it does not answer at."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.forged = bound(address, FORGED)
        self.spent = 0
        """Bytes that came from the forged address."""

    def forge(self, frames: bytes) -> None:
        own, self.sock = self.sock, self.forged
        self.send(frames)
        self.sock = own

    def put(self, data: bytes) -> None:
        super().put(data)
        self.spent += len(data) * (self.sock is self.forged)

    def got(self) -> int:
        """Bytes that came to the forged address."""
        return sum(map(len, self._arrived(self.forged)))

    def close(self) -> None:
        super().close()
        self.forged.close()


def test_an_address_that_is_not_validated_gets_little_and_is_not_trusted(
    tls_certificate: trustme.LeafCert, tmp_path: Path
) -> None:
    path = tmp_path / "certificate.pem"
    tls_certificate.private_key_and_cert_chain_pem.write_to_path(path)
    options = ["--port", "0", "--http3", "--ssl-certfile", path, "--lifespan", "off", "--forwarded-allow-ips", FORGED]
    request = head(b"/forged", (b"x-forwarded-for", b"198.51.100.7"))
    challenge = integers(0x1A, data=bytes(8))
    with ServerProcess("tests.native.http2_attacks:app", *options, cwd=ROOT) as server:
        client = Forger(server.address)
        assert client.begin() and client.ask()
        for frames in (PING, challenge, client.on(400, request, end=True), challenge + PING):
            client.forge(frames)
            assert client.ask()
        assert client.got() <= 3 * client.spent
        line = f'127.0.0.1:{client.sock.getsockname()[1]} - "GET /forged HTTP/3" 200'
        server.wait_for(line)
        client.close()


ENDS = {
    "none": "",
    "unknown versions": "version negotiation (",
    "PING": "H3_EXCESSIVE_LOAD (",
    "TLS, records that cannot be opened": "alert (",
}


@pytest.mark.deep
def test_each_attack_has_a_row_of_figures() -> None:
    """H16 H17 T8 T9"""
    command = [sys.executable, str(SCRIPT), "--seconds", "1", *list(ENDS)[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "|" in line]
    assert not done.stderr
    assert [row[1] for row in rows] == list(ENDS)
    for row, end in zip(rows, ENDS.values(), strict=True):
        assert row[2].startswith(end)
        assert re.fullmatch(r"[\d,]+", row[3]) and re.fullmatch(r"\d+%", row[4])
        for cell in row[5:]:
            assert re.fullmatch(r"[\d.]+ / [\d.]+ / [\d.]+", cell)
    assert "not ended by" not in done.stdout
