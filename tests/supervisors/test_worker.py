"""One worker process: its two ends in one process where that is enough, a real child where it is not."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.utils import join_threads, open_connection, request, running_thread, wait_for
from uvicorn.config import Config
from uvicorn.server import Server
from uvicorn.serving.drain import Stage
from uvicorn.supervisors.recorder import STACKS_SIGNAL
from uvicorn.supervisors.worker import REQUESTS, ProcessWorker

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"served"})


def make_config(**settings: Any) -> Config:
    return Config(app, **{"log_config": None, "workers": 2, **settings})


@pytest.fixture
def worker() -> Iterator[ProcessWorker]:
    """A worker that is not started."""
    worker = ProcessWorker(make_config(), [])
    yield worker
    worker.parent_conn.close()
    join_threads("uvicorn-pong")  # one left in `recv` would take the next owner of the descriptor's messages
    worker.child_conn.close()


@pytest.fixture
def answering(worker: ProcessWorker) -> ProcessWorker:
    """A worker whose child's end is answered in this process."""
    threading.Thread(target=worker.always_pong, name="uvicorn-pong", daemon=True).start()
    return worker


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


@pytest.fixture
def started(sock: socket.socket) -> Iterator[ProcessWorker]:
    """A worker whose child serves."""
    worker = ProcessWorker(make_config(), [sock])
    worker.start()
    assert worker.wait_until_ready(30)
    wait_for(lambda: stage_of(worker) is Stage.SERVING)  # an answer may overtake the report
    yield worker
    worker.kill()
    worker.process.join(30)


def stage_of(worker: ProcessWorker) -> Stage:
    """What it has reported so far."""
    worker.listen(time.monotonic())
    return worker.stage


# Questions


def test_worker_that_answers_is_there(answering: ProcessWorker) -> None:
    """MP-15, MP-16"""
    assert answering.ping()
    assert answering.ping(1)


def test_worker_that_does_not_answer_is_not(worker: ProcessWorker) -> None:
    """MP-15"""
    assert not worker.ping(0.01)
    assert not worker.ping(0.01)
    assert worker.child_conn.poll()
    worker.child_conn.recv()
    assert not worker.child_conn.poll(), "a question that was not answered is not repeated"


def test_no_time_is_no_question(worker: ProcessWorker) -> None:
    assert not worker.ping(0)
    assert not worker.is_ready(0)
    assert not worker.child_conn.poll()


def test_answer_says_whether_the_server_serves(answering: ProcessWorker) -> None:
    """MP-08"""
    assert not answering.is_ready(5)
    answering.server.started = True
    assert answering.is_ready(5)


def test_process_that_was_not_started_is_not_alive(answering: ProcessWorker) -> None:
    """MP-14"""
    assert not answering.is_alive(1)
    assert answering.pid is None
    assert answering.exitcode is None


def test_server_is_made_once(worker: ProcessWorker) -> None:
    assert worker.server is worker.server
    assert isinstance(worker.server, Server)
    assert worker.server.has_successor
    assert worker.server.config is worker.config


def test_reports_are_told_from_answers(worker: ProcessWorker) -> None:
    """MP-08"""
    worker._child_end.report(Stage.SERVING)
    worker._child_end.report(Stage.RETIRING)
    worker._child_end.report(Stage.REFUSING)
    worker._child_end.send(False)
    before = time.monotonic()
    worker.listen(before)
    assert worker.stage is Stage.REFUSING
    assert worker.has_served
    assert before <= worker.stage_since <= time.monotonic()


def test_question_is_asked_when_it_is_due(worker: ProcessWorker) -> None:
    """MP-15"""
    now = time.monotonic()
    assert worker.deadline is None
    assert not worker.is_silent(now + 1e6)
    worker._child_end.report(Stage.SERVING)
    worker.listen(now)
    assert worker.deadline == pytest.approx(now + 0.5)
    assert not worker.is_silent(now + 0.5)
    assert worker.child_conn.recv() == b"ping"
    assert not worker.is_silent(now + 4.9)
    assert worker.is_silent(now + 5)
    worker.excuse(10)
    assert not worker.is_silent(now + 5)
    worker._child_end.send(True)
    worker.listen(now + 6)
    assert not worker.is_silent(now + 6.4)


def test_supervisor_leaves_the_pipe_to_a_thread_that_asks(worker: ProcessWorker) -> None:
    """MP-17: and does not wait for it."""
    worker._child_end.report(Stage.SERVING)
    with worker._talking:
        assert stage_of(worker) is Stage.STARTING
    assert stage_of(worker) is Stage.SERVING
    with worker._talking:
        assert worker.deadline
        worker.is_silent(worker.deadline)
        assert not worker.child_conn.poll()
        assert worker.deadline > 0.5, "the next look is not due at once"


@pytest.mark.parametrize("end", ["parent_conn", "child_conn"])
def test_broken_pipe_is_no_answer(worker: ProcessWorker, end: str) -> None:
    """As upstream has it: whoever asks need not expect an error."""
    getattr(worker, end).close()
    for _ in range(2):
        assert worker.ping(30) is False
        assert worker.is_ready(30) is False
    worker.listen(time.monotonic())


def test_child_that_has_hung_up_is_not_listened_to(worker: ProcessWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """MP-17: its end is noticed at once, not after the whole timeout."""
    monkeypatch.setattr(type(worker.process), "sentinel", "sentinel")
    assert worker.sources == ["sentinel", worker.parent_conn]
    worker._child_end.report(Stage.SERVING)
    worker.child_conn.close()
    assert not worker.ping(3600)
    assert not worker.ping(3600)
    assert worker.sources == ["sentinel"]
    assert worker.stage is Stage.SERVING
    assert worker.deadline
    assert not worker.is_silent(worker.deadline)
    assert not worker.is_silent(worker.deadline), "its last words"
    assert worker.is_silent(worker.deadline), "what cannot answer is silent"


def test_answering_ends_when_the_parent_has_hung_up(worker: ProcessWorker) -> None:
    """MP-20"""
    thread = threading.Thread(target=worker.always_pong)
    thread.start()
    worker.parent_conn.close()
    thread.join(30)
    assert not thread.is_alive()
    worker._child_end.report(Stage.ENDED)  # nobody to tell is no error


def test_waiting_ends_when_the_process_has_ended_or_the_supervisor_ends(worker: ProcessWorker) -> None:
    """MP-09"""
    assert not worker.wait_until_ready(5)
    event = threading.Event()
    event.set()
    assert not worker.wait_until_ready(5, event)


def test_waiting_ends_after_its_time(worker: ProcessWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """MP-09"""
    reader, writer = socket.socketpair()
    running = types.SimpleNamespace(is_alive=lambda: True, sentinel=reader)
    monkeypatch.setattr(worker, "process", running)
    assert not worker.wait_until_ready(0.05, threading.Event())
    reader.close()
    writer.close()


def test_reports_before_the_answer_are_not_the_answer(worker: ProcessWorker) -> None:
    """MP-15"""

    def answer() -> None:
        worker.child_conn.recv()
        worker._child_end.report(Stage.SERVING)
        worker._child_end.send(False)

    with running_thread(answer):
        assert worker.ping(30)
    assert worker.stage is Stage.SERVING


def test_parents_end_of_the_pipe_does_not_reach_the_child(worker: ProcessWorker) -> None:
    """MP-20: or the child would never see the parent's death."""
    passed = {"config", "child_conn", "load_places", "metrics_pages", "loop_states", "udp_slots", "_recorder"}
    assert set(worker.__getstate__()) == passed


def test_worker_in_the_child_has_what_it_needs() -> None:
    """MP-02"""
    worker = ProcessWorker.__new__(ProcessWorker)
    lists: dict[str, Any] = {"load_places": [], "metrics_pages": [], "loop_states": [], "udp_slots": []}
    nothing: dict[str, Any] = {"child_conn": None, "_recorder": None, **lists}
    worker.__setstate__({"config": make_config(), **nothing})
    assert isinstance(worker.server, Server)
    assert pickle.dumps(make_config())


def test_blockade_is_told_once_and_when_the_stacks_are_there(
    worker: ProcessWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MP-25, X6"""
    asked: list[bool] = []
    monkeypatch.setattr(worker, "ask_for_stacks", lambda: asked.append(True))
    told = []
    for seconds in (0.5, 4.9, 5.1, 5.6, 6.1, 0.0, 7.0, 7.5, 0.0, 5.2, 0.0, 0.0):
        worker._child_end.send((seconds,))
        worker.listen(0)
        told.append(worker.blockade())
    assert told[:8] == [None, None, None, (5.6, ""), None, None, None, (7.5, "")]
    assert told[8:] == [None, None, (5.0, ""), None], "over before it was repeated: told nevertheless"
    assert len(asked) == 3


def test_blockades_of_several_loops_are_each_told(worker: ProcessWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """MP-25, X6: one that begins while another lasts is no part of that."""
    texts: list[str] = []
    told: list[list[tuple[float, str]]] = []
    monkeypatch.setattr(worker, "_tell", lambda message: texts.append(f"at {len(told)}"))
    monkeypatch.setattr(worker, "take_stacks", lambda: ",".join([texts.pop() for _ in list(texts)]))
    for times in ((6.0, 0.0), (7.0, 6.0), (8.0, 7.0), (0.0, 0.0), (6.0, 6.0), (7.0, 7.0), (8.0, 0.0)):
        worker._child_end.send(times)
        worker.listen(0)
        told.append([blockade for _ in range(3) if (blockade := worker.blockade()) is not None])
    assert told == [[], [(7.0, "at 0")], [(7.0, "at 1")], [], [], [(7.0, "at 4"), (7.0, "")], []]


@pytest.mark.parametrize(("exitcode", "is_told"), [(-signal.SIGABRT, True), (-signal.SIGTERM, False), (3, False)])
def test_crash_is_the_childs_own(
    worker: ProcessWorker, monkeypatch: pytest.MonkeyPatch, exitcode: int, is_told: bool
) -> None:
    """X6: a process that the application forks writes to the same file when it crashes."""
    recorder = worker._recorder
    if recorder is None:
        pytest.skip("no recorders")
    os.write(recorder._descriptor, b"Fatal Python error: Aborted")
    worker.process = types.SimpleNamespace(exitcode=exitcode)  # type: ignore[assignment]
    assert bool(worker.take_crash()) is is_told


def test_child_that_cannot_write_its_stacks_down_answers(
    answering: ProcessWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """X6: an audit hook forbids it, or there is no room. The child was killed for silence."""

    def refuse() -> None:
        raise OSError("no room")

    if answering._recorder is None:
        pytest.skip("no recorders")
    monkeypatch.setattr(answering._recorder, "write_stacks", refuse)
    answering.ask_for_stacks()
    assert answering.ping()
    assert caplog.messages == ["Cannot write down the stacks of this process"]


def test_child_that_answers_writes_its_stacks_down_itself(
    answering: ProcessWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X6: the handler of a signal may read the frames of a thread that runs, which has ended processes."""
    signals: list[int] = []
    monkeypatch.setattr(answering, "_signal", signals.append)
    recorder = answering._recorder
    if recorder is None:
        pytest.skip("no recorders")
    recorder._write_pulse(1)
    for _ in range(2):
        answering.ask_for_stacks()
        wait_for(recorder.has_stacks)
    assert not answering.insist_on_stacks()
    assert not signals
    assert "in test_child_that_answers_writes_its_stacks_down_itself\n" in answering.take_stacks()
    # Of a process that the application has forked.
    os.write(recorder._descriptor, b"Fatal Python error: Aborted\n\nStack (most recent call first):\n  File")
    assert answering.insist_on_stacks()
    assert signals == [STACKS_SIGNAL]
    assert answering.is_writing()
    os.write(recorder._descriptor, b"\nCurrent thread 0x1 (most recent call first):\n  File")
    assert answering.is_writing()
    assert not answering.is_writing()
    assert answering.take_stacks() == "Current thread 0x1 (most recent call first):\n  File"
    answering._pulse = recorder.pulse()
    assert not answering.insist_on_stacks(), "its process does not run"


def test_child_says_for_how_long_its_loop_is_blocked(worker: ProcessWorker) -> None:
    """X6: and once that it no longer is."""
    delays = iter((0.0, 2.0, 3.0, 0.0, 0.0))
    blocked: Any = types.SimpleNamespace(look=lambda: next(delays))
    other: Any = types.SimpleNamespace(look=lambda: 0.0)
    worker._child_end._probes = [other, blocked]
    for _ in range(5):
        worker.parent_conn.send(b"ping")
        worker.pong()
    received = []
    while worker.parent_conn.poll():
        received.append(worker.parent_conn.recv())
    assert received == [False, (0.0, 2.0), False, (0.0, 3.0), False, (0.0, 0.0), False, False]


def test_stacks_are_asked_for_before_the_next_question(answering: ProcessWorker) -> None:
    """X6: asked for behind it, they were not there at the next answer, and the blockade was told without them."""
    if answering._recorder is None:
        pytest.skip("no recorders")
    delays = iter((6.0, 7.0, 0.0))
    blocked: Any = types.SimpleNamespace(look=lambda: next(delays))
    answering._child_end._probes = [blocked]
    for _ in range(2):
        answering.ping()
    told = answering.blockade()
    assert told is not None
    assert told[0] == 7.0
    assert "in test_stacks_are_asked_for_before_the_next_question\n" in told[1]


def waiting(end: Any) -> list[Any]:
    """The messages that wait to be read there."""
    found = []
    while end.poll():
        found.append(end.recv())
    return found


def test_child_that_does_not_read_is_not_asked_again(worker: ProcessWorker) -> None:
    """L5: who asks would fill the pipe, and wait there for a child that is stopped."""
    for _ in range(3):
        worker.ask_for_requests()
        assert worker.requests(0.0) is None
    assert waiting(worker.child_conn) == [REQUESTS]
    worker._child_end.tell_requests(worker.server)
    worker.listen(0.0)
    assert worker.requests(0.0) == []
    worker.ask_for_requests()
    assert waiting(worker.child_conn) == [REQUESTS]
    assert worker.requests(0.0) is None, "what was told before is old"


def test_long_answer_comes_in_pieces(worker: ProcessWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5: of a child that is stopped while it writes there is nothing to wait for; what comes between is heard."""
    listings = [{"pid": 1, "stack": [f"a.py:{line} in \u00e9" for line in range(5000)]}]
    sent: list[Any] = []
    monkeypatch.setattr("uvicorn.observing.debugging.listings_of", lambda observers: listings)
    worker.ask_for_requests()
    with monkeypatch.context() as recording:
        recording.setattr(worker._child_end, "send", sent.append)
        worker._child_end.tell_requests(worker.server)
    assert max(len(pickle.dumps(message)) for message in sent) < 16384, "else it is written in several parts"
    for message in sent[:-1]:
        worker._child_end.send(message)
        worker._child_end.send(True)
        worker.listen(0.0)
        assert worker.requests(0.0) is None
    worker._child_end.report(Stage.SERVING)
    worker._child_end.send(sent[-1])
    worker.listen(0.0)
    assert worker.requests(0.0) == listings
    assert worker.stage is Stage.SERVING


def test_child_answers_whatever_goes_wrong(worker: ProcessWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nobody would ask again."""

    def fail(observers: Any) -> Any:
        raise RuntimeError("of the observers")

    monkeypatch.setattr("uvicorn.observing.debugging.listings_of", fail)
    worker.ask_for_requests()
    worker._child_end.tell_requests(worker.server)
    worker.listen(0.0)
    assert worker.requests(0.0) == []


def test_child_that_has_ended_is_not_waited_for(worker: ProcessWorker) -> None:
    """Nor said of it that it does not answer."""
    worker.ask_for_requests()
    worker.child_conn.close()
    worker.listen(0.0)
    assert worker.requests(time.monotonic() + 60) == []


def test_child_without_room_for_a_thread_is_not_silent(worker: ProcessWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5: it would be ended for it."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    worker.ask_for_requests()
    worker.pong()
    worker.listen(0.0)
    assert worker.requests(0.0) == []


def test_child_is_told_that_others_serve() -> None:
    """X7"""
    worker = ProcessWorker(make_config(drain_delay=1), [])
    worker.parent_conn.send(b"ping")
    worker.process = types.SimpleNamespace(pid=1)  # type: ignore[assignment]
    worker.relieve()
    worker.pong()
    server: Any = worker.server
    assert not server._relieved
    worker.pong()
    assert server._relieved
    worker.child_conn.close()
    worker.relieve()  # a child that is gone
    worker.parent_conn.close()


# The child's side, run here


def test_target_reports_its_end_and_that_it_could_not_start(
    worker: ProcessWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MP-18"""
    monkeypatch.setattr(Server, "run", lambda self, sockets: None)
    with pytest.raises(SystemExit) as caught:
        worker.target([])
    assert caught.value.code == 3
    worker.listen(0)
    assert worker.stage is Stage.ENDED
    assert not worker.has_served


def test_target_returns_when_the_server_has_served(worker: ProcessWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """MP-21"""

    def run(self: Server, sockets: Any) -> None:
        self.started = True
        self.on_stage(Stage.SERVING)

    monkeypatch.setattr(Server, "run", run)
    worker.target([])
    worker.listen(0)
    assert worker.stage is Stage.ENDED
    assert worker.has_served


# Methods that programs override


@pytest.mark.parametrize("name", ["is_alive", "ping"])
def test_answer_of_a_program_decides_whether_a_worker_is_silent(name: str) -> None:
    """It is asked twice a second, as by upstream, of a worker that has served."""
    answers: list[bool] = []
    asked: list[float] = []

    def ask(self: ProcessWorker, timeout: float = 5) -> bool:
        asked.append(timeout)
        return answers[-1]

    worker = type("Asking", (ProcessWorker,), {name: ask})(make_config(timeout_worker_healthcheck=3), [])
    process = type("Living", (), {"is_alive": lambda self: True, "exitcode": None, "sentinel": 0, "pid": 1})()
    worker.process = process
    try:
        answers.append(False)
        assert not worker.is_silent(100.0)
        assert worker.deadline is None
        worker._has_served = True
        answers.append(True)
        assert not worker.is_silent(100.0)
        assert worker.deadline == 100.5
        answers.append(False)
        assert not worker.is_silent(100.4)
        assert worker.is_silent(100.5)
        assert asked == [3, 3]
        process.exitcode = 1
        assert not worker.is_silent(200.0)  # it has died, which is another matter
    finally:
        worker.parent_conn.close()
        worker.child_conn.close()


# A real child


def test_child_serves_and_ends_gracefully(started: ProcessWorker, caplog: pytest.LogCaptureFixture) -> None:
    """MP-05, MP-06"""
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    assert stage_of(started) is Stage.SERVING
    assert started.is_ready()
    assert started.is_alive()
    assert started.ping()
    started.terminate()
    started.join()
    started.join()
    started.terminate()
    assert started.exitcode == (-signal.SIGTERM if sys.platform != "win32" else started.exitcode)
    assert stage_of(started) is Stage.DONE
    assert not started.is_ready()
    assert not started.is_alive()
    pid = started.pid
    assert caplog.messages == [f"Terminated child process [{pid}]", f"Waiting for child process [{pid}]"]


def test_killed_child_is_not_alive_at_once(started: ProcessWorker) -> None:
    """MP-14, X1"""
    started.kill()
    assert not started.is_alive()
    started.process.join(30)
    assert started.exitcode is not None
    started.hurry()  # nothing is left to hurry


@posix
def test_stopped_child_does_not_answer(started: ProcessWorker) -> None:
    """MP-16"""
    assert started.pid
    os.kill(started.pid, signal.SIGSTOP)
    wait_for(lambda: not started.ping(0.2))  # it may still answer until the signal has reached it
    os.kill(started.pid, signal.SIGCONT)
    assert started.ping(30)


@posix
def test_child_in_a_hurry_waits_for_nobody(
    tmp_path: Path, sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MP-07, K8"""
    (tmp_path / "stuck.py").write_text(
        "import asyncio\n"
        "async def app(scope, receive, send):\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': b'stuck', 'more_body': True})\n"
        "    await asyncio.sleep(3600)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    worker = ProcessWorker(Config("stuck:app", lifespan="off", workers=2, log_level="critical"), [sock])
    worker.start()
    assert worker.wait_until_ready(30)
    with open_connection(sock.getsockname(), b"GET / HTTP/1.1\r\nhost: test\r\n\r\n") as client:
        assert client.recv(65536)
        worker.terminate()
        wait_for(lambda: stage_of(worker) is Stage.CLOSING)
        worker.hurry()
        worker.process.join(20)
    assert worker.exitcode == -signal.SIGTERM


def test_sockets_are_served_by_the_child(started: ProcessWorker, sock: socket.socket) -> None:
    """MP-02"""
    assert b"served" in request(sock.getsockname())
