"""What a worker leaves behind although its interpreter is stuck."""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing import get_context
from multiprocessing.connection import Connection

import pytest

from tests.utils import wait_for
from uvicorn.supervisors.recorder import STACKS_SIGNAL, Recorder

if sys.platform == "win32":
    pytest.skip("no recorders", allow_module_level=True)

spawn = get_context("spawn")


def make() -> Recorder:
    made = Recorder.make()
    assert made is not None
    return made


def live(made: Recorder, pipe: Connection, is_native: bool) -> None:
    """What a child does."""
    if not is_native:
        sys.modules["uvicorn._native"] = None  # type: ignore[assignment]
    made.record(0.01)
    pipe.send("ready")
    pipe.recv()
    os.abort()


def test_empty_recorder_has_no_pulse() -> None:
    """X6"""
    made = make()
    assert made.pulse() == 0
    assert made.take_stacks() == ""


@pytest.mark.parametrize("is_native", [True, False])
def test_pulse_and_stacks_of_a_child(is_native: bool) -> None:
    """X6"""
    if is_native:
        pytest.importorskip("uvicorn._native")
    made = make()
    parents, childs = spawn.Pipe()
    child = spawn.Process(target=live, args=(made, childs, is_native))
    child.start()
    childs.close()
    parents.recv()
    wait_for(lambda: made.pulse() > 2)
    assert child.pid
    os.kill(child.pid, signal.SIGSTOP)
    wait_for(lambda: made.pulse() == made.pulse())
    if STACKS_SIGNAL is not None:
        os.kill(child.pid, STACKS_SIGNAL)
        os.kill(child.pid, signal.SIGCONT)
        texts = []
        wait_for(lambda: texts.append(made.take_stacks()) or "in live" in "".join(texts))  # type: ignore[func-returns-value]
        assert __file__ in "".join(texts)
    os.kill(child.pid, signal.SIGCONT)
    parents.send("abort")
    child.join(30)
    assert child.exitcode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in made.take_stacks()
    assert made.take_stacks() == ""
    parents.close()


def test_no_recorder_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """X6: nobody fails for it."""

    def fail(*args: object) -> int:
        raise OSError

    monkeypatch.setattr(os, "memfd_create", fail, raising=False)
    monkeypatch.setattr("tempfile.TemporaryFile", fail)
    assert Recorder.make() is None


def test_native_pulse_wants_a_file_and_a_duration() -> None:
    native = pytest.importorskip("uvicorn._native")
    with pytest.raises(OSError):
        native.beat(-1, 1.0)
    with pytest.raises(ValueError):
        native.beat(0, -1.0)


@pytest.mark.skipif(sys.platform != "linux", reason="signal stacks of other systems are left alone")
@pytest.mark.parametrize("is_native", [True, False])
def test_burst_of_signals_does_not_end_a_child(is_native: bool) -> None:
    """X6: each is handled within the one before, and the stack of `faulthandler` has room for five."""
    if is_native:
        pytest.importorskip("uvicorn._native")
    child = spawn.Process(target=take_signals_at_once, args=(make(), is_native))
    child.start()
    child.join()
    assert child.exitcode == 0


def take_signals_at_once(made: Recorder, is_native: bool) -> None:
    """What a child does."""
    if not is_native:
        sys.modules["uvicorn._native"] = None  # type: ignore[assignment]
    made.record(1.0)
    numbers = range(signal.SIGRTMIN, signal.SIGRTMAX)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in numbers:
        signal.pthread_kill(threading.get_ident(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
