"""What a run leaves behind is ended; the run itself is right where signals are ignored from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.utils import wait_for

ROOT = Path(__file__).resolve().parent.parent

RUN = """
import os, signal, subprocess, sys
from tests import reaper

reaper.watch()
sleeper = "import time; time.sleep(3600)"
inner = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {sleeper!r}]).pid, flush=True)"
child = subprocess.Popen([sys.executable, "-c", inner + "; " + sleeper], start_new_session=True, stdout=subprocess.PIPE)
print(child.pid, int(child.stdout.readline()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="nobody tells the environment of a process")
def test_processes_of_a_run_that_was_killed_are_ended() -> None:
    """Also in sessions of their own, and those that they have started."""
    run = subprocess.run([sys.executable, "-c", RUN], cwd=ROOT, stdout=subprocess.PIPE, timeout=30, check=False)
    assert run.returncode == -signal.SIGKILL
    pids = [int(word) for word in run.stdout.split()]
    assert len(pids) == 2
    wait_for(lambda: not any(map(is_running, pids)))


TEST = """
import signal, subprocess, sys

def test_child_starts_with_the_default_action():
    for name in {names}:
        code = f"import signal; print(int(signal.getsignal(signal.{{name}}) is signal.SIG_IGN))"
        assert subprocess.check_output([sys.executable, "-c", code]).strip() == b"0"
        signal.raise_signal(getattr(signal, name))  # still ignored here
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_signals_ignored_from_outside_are_not_ignored_by_what_tests_start(tmp_path: Path) -> None:
    """As under `nohup`, or in a script that traps them."""
    names = ["SIGHUP", "SIGQUIT"]
    (tmp_path / "test_it.py").write_text(TEST.format(names=names))
    code = f"import signal, sys, pytest; [signal.signal(getattr(signal, n), signal.SIG_IGN) for n in {names}]; "
    code += "sys.exit(pytest.main(['-q', '-p', 'tests.conftest', '-p', 'no:cacheprovider', 'test_it.py']))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stdout
