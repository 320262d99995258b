"""The server that is examined: a command with workers, and what its metrics say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from urllib.request import urlopen

import trustme

from tests.http3_interop.link import ADDRESS, SERVER

PORT = 4433
METRICS = "127.0.0.1:9464"
BASE = f"https://{ADDRESS}:{PORT}"
PATIENCE = 20.0


class Certificate:
    """A certificate in a directory, perhaps a large one."""

    def __init__(self, directory: Path, names: int = 0) -> None:
        ca = trustme.CA()
        more = [f"name-{number}.with-a-long-label-that-fills-the-certificate.example" for number in range(names)]
        made = ca.issue_cert("localhost", ADDRESS, SERVER, *more)
        self.file, self.key = directory / f"{names}.pem", directory / f"{names}.key"
        self.pem = made.cert_chain_pems[0].bytes()
        self.file.write_bytes(self.pem)
        made.private_key_pem.write_to_path(str(self.key))


class Server:
    """A running `uvicorn --http3`, as a context manager."""

    def __init__(self, certificate: Certificate, log: Path, *options: str, app: str = "tests.http3_interop.app:app"):
        self._log = log
        self._pid_file = log.parent / "pid"
        self._command = [sys.executable, "-m", "uvicorn", app, "--http3", "--http2", "--host", SERVER]
        self._command += ["--port", str(PORT), "--metrics", METRICS, "--lifespan", "off", "--no-access-log"]
        self._command += ["--ssl-certfile", str(certificate.file), "--ssl-keyfile", str(certificate.key), *options]

    def __enter__(self) -> Server:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env={**os.environ, "PID_FILE": str(self._pid_file)}
            )
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                self.figures()
                time.sleep(0.5)
                return self
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"http3-interop: the server does not start; see {self._log}")

    def __exit__(self, *args: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Of the parent."""
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send a signal to the parent."""
        os.kill(self.pid, number)

    def kill_last(self) -> int:
        """Kill the worker that has last been asked for its id."""
        pid = int(self._pid_file.read_text())
        os.kill(pid, signal.SIGKILL)
        return pid

    def figures(self) -> dict[str, float]:
        """The metrics; missing ones are 0."""
        with urlopen(f"http://{METRICS}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        found: dict[str, float] = defaultdict(float)
        for line in lines:
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name.removeprefix("uvicorn_")] = float(value)
        return found
