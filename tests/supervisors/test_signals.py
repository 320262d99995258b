from __future__ import annotations

import select
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from uvicorn.supervisors.signals import SIGNALS, Handlers, SignalQueue, Wakeup, WakingEvent


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    wakeup = Wakeup()
    wakeup.open()
    yield wakeup
    wakeup.close()


def is_awake(wakeup: Wakeup, patience: float = 0) -> bool:
    return bool(select.select(wakeup.sources, [], [], patience)[0])


def test_signals_and_their_names() -> None:
    """MP-13"""
    assert SIGNALS[signal.SIGINT] == "INT"
    assert SIGNALS[signal.SIGTERM] == "TERM"
    if sys.platform != "win32":
        assert set(SIGNALS.values()) == {"INT", "TERM", "HUP", "QUIT", "TTIN", "TTOU", "USR1", "USR2", "WINCH"}


def test_wakeup_can_be_set_often_and_cleared_once(wakeup: Wakeup) -> None:
    assert not is_awake(wakeup)
    for _ in range(100_000):  # more than the socket holds
        wakeup.set()
    assert is_awake(wakeup)
    wakeup.clear()
    assert not is_awake(wakeup)


def test_closed_wakeup_does_nothing() -> None:
    wakeup = Wakeup()
    for _ in range(2):
        assert wakeup.sources == []
        wakeup.set()
        wakeup.clear()
        wakeup.open()
        wakeup.close()


def test_queueing_a_signal_wakes(wakeup: Wakeup) -> None:
    """MP-03"""
    queue = SignalQueue(wakeup)
    assert queue == []
    queue.append(signal.SIGINT)
    assert queue == [signal.SIGINT]
    assert is_awake(wakeup)


def test_setting_the_event_wakes(wakeup: Wakeup) -> None:
    """MP-03"""
    event = WakingEvent(wakeup)
    assert not event.is_set()
    threading.Thread(target=event.set).start()
    assert event.wait(30)
    assert is_awake(wakeup, patience=30)


def test_handlers_are_put_back(wakeup: Wakeup) -> None:
    """MP-04"""
    before = {sig: signal.getsignal(sig) for sig in SIGNALS}
    queue = SignalQueue(wakeup)
    handlers = Handlers(queue.append, wakeup)
    signal.raise_signal(signal.SIGTERM)
    handlers.restore()
    assert queue == [signal.SIGTERM]
    assert {sig: signal.getsignal(sig) for sig in SIGNALS} == before
    handlers.restore()


def test_other_threads_leave_handlers_alone(wakeup: Wakeup) -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=lambda: Handlers(lambda sig: None, wakeup))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


def test_signal_wakes_through_the_interpreter(wakeup: Wakeup) -> None:
    """WIN-01, K9: one that comes just before the wait does not interrupt it, and on Windows none does."""
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    handlers = Handlers(lambda sig: None, wakeup)
    try:
        signal.raise_signal(signal.SIGTERM)
        assert is_awake(wakeup)
    finally:
        handlers.restore()
    assert signal.set_wakeup_fd(before) == before
