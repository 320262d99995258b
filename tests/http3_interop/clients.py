"""The clients: how each is installed and called.

A client is a program with the arguments `OPERATION BASE ...`. It prints an object with its `responses` (status, length,
SHA-256) or an `error` and its `seconds`; with status 3 it does not offer the operation.

| operation | arguments | does |
|---|---|---|
| get | COUNT PATH | requests on one connection, all at once |
| post | SIZE PATH | sends as many bytes |
| resume, early | PATH | a second connection by the ticket of the first, with or without early data |
| keyupdate, migrate, version, chacha20 | PATH | the same with new keys, another address or version, a suite |
| again, wait | PATH | one request, prints `ready`, and after a line of input a second one, or none |
| load | SECONDS PATH | requests one after another; prints their `count` and the `failures` |
| websocket | | exchanges messages |
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PLACE = ROOT / ".venv-conformance" / "http3"
PYTHON = PLACE / "python" / "bin" / "python"
GO_CLIENT = PLACE / "quic-go"
PACKAGES = ("aioquic", "niquests", "pycurl", "curl_cffi")


@dataclass(frozen=True)
class Client:
    """One of them.

    Attributes:
        name: in the table.
        command: what calls it, before its arguments; None where it cannot be installed.
    """

    name: str
    command: list[str] | None


def _install_python() -> None:
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", PYTHON.parent.parent], check=True)
        subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)


def _install_go() -> None:
    if shutil.which("go") is not None:
        subprocess.run(["go", "build", "-mod=mod", "-o", GO_CLIENT, "."], cwd=HERE / "go", check=True)


def _install_ngtcp2() -> None:
    if shutil.which("gtlsclient") is None and shutil.which("apt-get") is not None and os.getuid() == 0:
        subprocess.run(["apt-get", "install", "--yes", "--quiet", "ngtcp2-client"], check=False)


def _of_python(name: str) -> Callable[[], list[str] | None]:
    return lambda: [str(PYTHON), str(HERE / name)]


def _go() -> list[str] | None:
    return [str(GO_CLIENT)] if GO_CLIENT.exists() else None


def _ngtcp2() -> list[str] | None:
    return None if shutil.which("gtlsclient") is None else [sys.executable, str(HERE / "ngtcp2_client.py")]


def _chromium() -> list[str] | None:
    programs = ("chromium", "chromium-browser", "google-chrome")
    return [sys.executable, "-m", "tests.http3_interop.chromium_client"] if any(map(shutil.which, programs)) else None


_CLIENTS: dict[str, tuple[Callable[[], None], Callable[[], list[str] | None]]] = {
    "aioquic": (_install_python, _of_python("aioquic_client.py")),
    "quic-go": (_install_go, _go),
    "ngtcp2": (_install_ngtcp2, _ngtcp2),
    "curl": (_install_python, _of_python("curl_client.py")),
    "curl_cffi": (_install_python, _of_python("curl_cffi_client.py")),
    "niquests": (_install_python, _of_python("niquests_client.py")),
    "chromium": (lambda: None, _chromium),
}
NAMES = tuple(_CLIENTS)


def install(name: str) -> None:
    """Install a client, once. Chromium has to be there already."""
    PLACE.mkdir(parents=True, exist_ok=True)
    _CLIENTS[name][0]()


def find(name: str, *certificates: bytes) -> Client:
    """An installed client; it accepts these certificates, in PEM."""
    command = _CLIENTS[name][1]()
    if command is not None and name == "chromium":
        command.append(",".join(map(_fingerprint, certificates)))
    return Client(name, command)


def _fingerprint(certificate: bytes) -> str:
    """The hash of the public key by which Chromium is made to accept it."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_pem_x509_certificate(certificate).public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(spki).digest()).decode()
