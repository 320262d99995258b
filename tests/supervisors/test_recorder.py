"""What a worker leaves behind although its interpreter is stuck."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import pytest

from tests.utils import wait_for
from uvicorn.supervisors.recorder import MOST_FRAMES, MOST_TEXT, MOST_THREADS, STACKS_SIGNAL, Recorder

if sys.platform == "win32":
    pytest.skip("no recorders", allow_module_level=True)

spawn = get_context("spawn")


def make() -> Recorder:
    made = Recorder.make()
    assert made is not None
    return made


def live(made: Recorder, pipe: Connection, is_native: bool, threads: int) -> None:
    """What a child does."""
    if not is_native:
        sys.modules["uvicorn._native"] = None  # type: ignore[assignment]
    made.record(0.01)
    for _ in range(threads):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    pipe.send("ready")
    pipe.recv()
    os.abort()


def test_empty_recorder_has_no_pulse() -> None:
    """X6"""
    made = make()
    assert made.pulse() == 0
    assert made.take_stacks() == ""


@pytest.mark.parametrize(("is_native", "threads"), [(True, 0), (False, 0), (True, 2 * MOST_THREADS)])
def test_pulse_and_stacks_of_a_child(is_native: bool, threads: int) -> None:
    """X6: also of a crash that is beside many threads, which were all that was shown."""
    if is_native:
        pytest.importorskip("uvicorn._native")
    made = make()
    parents, childs = spawn.Pipe()
    child = spawn.Process(target=live, args=(made, childs, is_native, threads))
    child.start()
    childs.close()
    parents.recv()
    wait_for(lambda: made.pulse() > 2)
    assert child.pid
    os.kill(child.pid, signal.SIGSTOP)
    wait_for(lambda: made.pulse() == made.pulse())
    if STACKS_SIGNAL is not None and not threads:
        os.kill(child.pid, STACKS_SIGNAL)
        os.kill(child.pid, signal.SIGCONT)
        texts = []
        wait_for(lambda: texts.append(made.take_stacks()) or "in live" in "".join(texts))  # type: ignore[func-returns-value]
        assert __file__ in "".join(texts)
    os.kill(child.pid, signal.SIGCONT)
    parents.send("abort")
    child.join(30)
    assert child.exitcode == -signal.SIGABRT
    crash = made.take_crash()
    assert crash.startswith("Fatal Python error: Aborted\n")
    assert "in live" in crash
    assert made.take_crash() == made.take_stacks() == ""
    parents.close()


def deep(depth: int, then: Callable[[], object]) -> None:
    """Wait there."""
    if depth:
        deep(depth - 1, then)
    else:
        then()


@contextlib.contextmanager
def waiting(count: int, depth: int) -> Iterator[None]:
    """Threads that do."""
    until, started = threading.Event(), threading.Barrier(count + 1)

    def wait() -> None:
        started.wait()
        until.wait()

    threads = [threading.Thread(target=deep, args=(depth, wait)) for _ in range(count)]
    for thread in threads:
        thread.start()
    started.wait()
    try:
        yield
    finally:
        until.set()
        for thread in threads:
            thread.join()


def write_elsewhere(made: Recorder) -> None:
    """Have another thread do it, as in a child, so that the main thread is among those that are seen."""
    thread = threading.Thread(target=made.write_stacks)
    thread.start()
    thread.join()


def test_stacks_are_those_of_the_last_time() -> None:
    """X6: a deep recursion, which once was longer than what was read of it, left its rest to the next blockade."""
    made = make()
    made._write_pulse(1)
    with waiting(1, 900):
        for _ in range(3):
            write_elsewhere(made)
            assert made.has_stacks()
            text = made.take_stacks()
            assert MOST_FRAMES - 10 < text.count(" in deep\n") < MOST_FRAMES
            assert "in write_elsewhere" in text.split("\n\n")[-1]
            assert not made.has_stacks()
    write_elsewhere(made)
    assert " in deep" not in made.take_stacks()
    assert made.pulse() == 1
    assert os.fstat(made._descriptor).st_size == 8, "it would grow for ever"


def test_main_thread_is_seen_beside_many_others() -> None:
    """X6: an application has a pool of threads in a library that waits."""
    made = make()
    with waiting(2 * MOST_THREADS, 40):
        write_elsewhere(made)
    text = made.take_stacks()
    assert len(text) < MOST_TEXT + 100
    assert text.count("Thread 0x") < MOST_THREADS
    assert re.match(r"\.\.\. \d+ more\n\nThread 0x", text)
    assert "in write_elsewhere" in text.split("\n\n")[-1]


def test_crash_and_stacks_are_told_apart() -> None:
    """X6: a handler that reads the frames of a thread that runs may end the process."""
    made = make()
    text = b"Thread 0x1 (most recent call first):\n  of a blockade\n\nFatal Python error: Segmentation fault\n\nStack"
    os.write(made._descriptor, text)
    assert made.take_crash() == "Fatal Python error: Segmentation fault\n\nStack"
    os.write(made._descriptor, text)
    assert made.take_stacks() == "Thread 0x1 (most recent call first):\n  of a blockade"
    assert not made.has_stacks()


def test_text_of_a_crash_is_limited() -> None:
    """X6"""
    made = make()
    made._write_pulse(1)
    os.lseek(made._descriptor, 8, os.SEEK_SET)
    os.write(made._descriptor, b"Fatal Python error: Aborted\n\nStack" + b"  File\n" * MOST_TEXT)
    text = made.take_crash()
    assert text.startswith("Fatal Python error: Aborted\n")
    assert len(text) == MOST_TEXT
    assert made.take_crash() == ""
    assert made.pulse() == 1


def test_names_of_files_cannot_write_lines_of_the_log() -> None:
    """X6"""
    made = make()
    scope: dict[str, Any] = {"made": made}
    source = "import threading\ndef f(): t = threading.Thread(target=made.write_stacks); t.start(); t.join()\nf()"
    exec(compile(source, "a\nINFO: b\x1b[31m", "exec"), scope)
    assert 'File "a?INFO: b?[31m", line 2 in f\n' in made.take_stacks()


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
