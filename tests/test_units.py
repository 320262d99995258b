"""The units for systemd in `docs/deployment/index.md`: verified by its own program, and started as by it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.listening.test_systemd import APP, Manager, get, handed_over
from tests.process import ROOT, ServerProcess

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="systemd is a program for Linux")

DOCUMENT = (ROOT / "docs" / "deployment" / "index.md").read_text()
UNITS = dict(re.findall(r"^```ini\n# (\S+)\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL))
COMMAND = "/srv/app/.venv/bin/uvicorn"
OLDER = "app.service.d/type.conf"
RELOADING_SINCE = 253


def settings(name: str) -> ConfigParser:
    """What a unit says; of a name that stands there several times the last."""
    found = ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read_string(UNITS[name])
    return found


def test_document_has_a_service_its_sockets_and_a_form_for_older_managers() -> None:
    assert list(UNITS) == ["app.service", "app.socket", OLDER]
    assert settings("app.service")["Service"]["User"] not in ("", "root", "0")


@pytest.mark.parametrize("names", [["app.service", "app.socket"], list(UNITS)], ids=["as it stands", "for older ones"])
def test_units_are_what_systemd_understands(names: list[str], tmp_path: Path) -> None:
    """`systemd-analyze verify` warns of names and values that it does not know, and of programs that are not there."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed (Debian: the package systemd)")
    version = int(subprocess.run([program, "--version"], capture_output=True, text=True).stdout.split()[1])
    (tmp_path / "uvicorn").symlink_to(sys.executable)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        assert name != "app.service" or COMMAND in UNITS[name]
        (tmp_path / name).write_text(UNITS[name].replace(COMMAND, str(tmp_path / "uvicorn")))
    done = subprocess.run(
        [program, "verify", "--man=no", *(tmp_path / name for name in names if "/" not in name)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "No such file or directory" in done.stderr and "/run/systemd" in done.stderr:
        pytest.skip(f"systemd-analyze does not run here: {done.stderr}")
    said = done.stderr.splitlines()
    if version < RELOADING_SINCE:
        (line,) = [line for line in said if "Failed to parse service type, ignoring: notify-reload" in line]
        said.remove(line)
    # Other units of the system that these depend on have their own faults.
    assert not [line for line in said if str(tmp_path) in line or line.startswith("app.")], done.stderr
    assert done.returncode == 0 or not said


def test_older_form_differs_in_what_older_managers_lack_only() -> None:
    (section,) = settings(OLDER).sections()
    assert dict(settings(OLDER)[section]) == {"Type": "notify", "ExecReload": "/bin/kill -HUP $MAINPID"}
    assert f"systemd {RELOADING_SINCE}" in DOCUMENT


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[list[socket.socket]]:
    """Those of the socket unit, at places of this test."""
    opened = []
    for text in re.findall(r"^ListenStream=(.*)$", UNITS["app.socket"], re.MULTILINE):
        sock = socket.socket(socket.AF_UNIX if text.startswith("/") else socket.AF_INET)
        sock.bind(str(tmp_path / Path(text).name) if text.startswith("/") else (text.rpartition(":")[0], 0))
        sock.listen()
        opened.append(sock)
    yield opened
    for sock in opened:
        sock.close()


def test_service_does_what_its_unit_asks_for(tmp_path: Path, sockets: list[socket.socket]) -> None:
    """It is ready, gives signs of life, reloads at SIGHUP and ends in time, with what systemd would hand over."""
    service = settings("app.service")["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert program == COMMAND
    (tmp_path / "module.py").write_text(APP)
    manager = Manager(tmp_path / "notify")
    environment = manager.environment(watchdog=True)
    command, numbers = handed_over(tmp_path, sockets), [sock.fileno() for sock in sockets]
    with (
        manager.sock,
        ServerProcess(*arguments, cwd=tmp_path, env=environment, command=command, pass_fds=numbers) as server,
    ):
        assert manager.next() == "READY=1"
        for sock in sockets:
            assert b" 200 OK" in get(sock.getsockname())
        manager.has_beaten()
        server.send_signal(signal.SIGHUP)
        assert manager.next().startswith("RELOADING=1\n")
        assert manager.next() == "READY=1"
        server.send_signal(signal.SIGTERM)
        assert manager.next() == "STOPPING=1"
        server.wait(timeout=int(service["TimeoutStopSec"]))
    for sock in sockets:
        with socket.socket(sock.family) as client:
            client.connect(sock.getsockname())  # it waits for the next one
