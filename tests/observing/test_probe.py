"""Probes at an address of their own, answered while event loops are blocked."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest

from tests.observing.test_debugging import ask, serving
from tests.process import APP_BEGINS, ServerProcess
from tests.protocols.harness import respond
from tests.utils import open_connection, read_to_end, running_thread, wait_for
from uvicorn.config import Config
from uvicorn.metrics.loop_state import DUE, LOOP, PROCESS, STAGE, LoopState
from uvicorn.observing.probe import Probe, _Responder, readiness, readiness_of_pools, running
from uvicorn.server import Server
from uvicorn.serving.drain import Stage

HERE = "127.0.0.1:0"


def state(stage: Stage | None = Stage.SERVING, late: float = 0.0, process: int = 0, number: int = 0) -> LoopState:
    made = LoopState.make()
    if stage is not None:
        made.enter(stage)
    made.words[DUE] = monotonic_ns() - int(late * 1e9) if late else 0
    made.words[PROCESS], made.words[LOOP] = process, number
    return made


def told(address: Any, target: str, method: str = "GET") -> tuple[int, str]:
    """Status and body."""
    with open_connection(address, f"{method} {target} HTTP/1.1\r\nhost: a\r\n\r\n".encode()) as client:
        head, _, body = read_to_end(client).partition(b"\r\n\r\n")
    assert b"cache-control: no-store" in head and b"connection: close" in head
    return int(head.split(b" ")[1]), body.decode()


@pytest.fixture(params=["native", "python"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What answers for a single process."""
    if request.param == "python":
        monkeypatch.setattr(Probe, "_native_responder", lambda self: None)
    elif sys.platform != "linux":
        pytest.skip("the native core answers on Linux")
    else:
        pytest.importorskip("uvicorn._native")
    return str(request.param)


@contextmanager
def probing(*loops: LoopState, lateness: float = 1.0) -> Iterator[Probe]:
    probe = Probe(HERE, lateness, loops)
    probe.start()
    try:
        yield probe
    finally:
        probe.close()
        assert probe not in running


LATE = 3600.04

READINESS: list[tuple[int, str, list[dict[str, Any]]]] = [
    (200, "ready", [{}]),
    (200, "ready", [{"stage": Stage.RETIRING}]),
    (200, "ready", [{"late": -1}]),
    (200, "ready", [{"late": 0.5}]),
    (503, "not ready: starting", [{"stage": None}]),
    (503, "not ready: starting", [{"stage": Stage.STARTING, "late": LATE}]),
    (503, "not ready: draining", [{"stage": Stage.LEAVING}]),
    (503, "not ready: draining", [{"stage": Stage.DONE, "late": LATE}]),
    (503, "not ready: late by 3600.0 s", [{"late": LATE}]),
    (200, "ready: late by 3600.0 s in loop 2", [{"number": 1}, {"late": LATE, "number": 2}]),
    (
        503,
        "not ready: " + ", ".join(f"starting in loop {number}" for number in range(1, 9)) + ", and 2 more",
        [{"stage": None, "number": number} for number in range(1, 11)],
    ),
]


def test_readiness_follows_from_the_states(core: str, subtests: pytest.Subtests) -> None:
    for status, text, loops in READINESS:
        with subtests.test(text), probing(*(state(**each) for each in loops)) as probe:
            assert isinstance(probe._responder, _Responder) is (core == "python")
            found, said = told(probe.address, "/ready")
            assert (found, re.sub(r"3600\.\d", "3600.0", said)) == (status, text + "\n")
            assert told(probe.address, "/live?a=b") == (200, "live\n")


def test_readiness_of_workers_names_them() -> None:
    late, starting = state(late=3.24, process=7), state(None)
    assert readiness([late, starting], 1.0) == (False, "not ready: late by 3.2 s in worker 7, starting")
    assert readiness([state(process=8), late], 1.0) == (True, "ready: late by 3.2 s in worker 7")
    assert readiness([], 1.0) == (False, "not ready: there is no worker")
    both = readiness_of_pools([("a", [state()]), ("b", [late])], 1.0)
    assert both == (False, "a: ready\nb: not ready: late by 3.2 s in worker 7")
    assert readiness_of_pools([("a", [state()])], 1.0) == (True, "a: ready")


def test_answers_to_anything_else(core: str) -> None:
    """L4, L5: neither a head without an end nor clients that send nothing keep others from an answer."""
    with probing(state()) as probe, contextlib.ExitStack() as stack:
        address = probe.address
        assert told(address, "/", "GET") == (404, "See /live and /ready.\n")
        assert told(address, "/ready", "POST")[0] == 405
        assert told(address, "/ready", "HEAD") == (200, "")
        for payload, status in ((b"GET /ready HTTP/1.1\r\nhost: a\r\n", b"400"), (b"a: b\r\n" * 2000, b"431")):
            with open_connection(address, payload) as client:
                client.shutdown(socket.SHUT_WR)
                assert read_to_end(client).startswith(b"HTTP/1.1 " + status)
        for payload in (b"", b"G", b"\xff" * 100, b"GET /ready HTTP/1.1\r\n\r\n" + b"x" * 10_000):
            for _ in range(30):
                stack.enter_context(open_connection(address, payload))
        assert told(address, "/ready") == (200, "ready\n")
        with open_connection(address) as client:
            for byte in b"GET /live HTTP/1.1\r\n\r\n":
                client.sendall(bytes([byte]))
            assert read_to_end(client).endswith(b"live\n")
        for _ in range(3):
            probe.close()
    with pytest.raises(OSError), socket.create_connection(address, 5):
        pass


def test_a_loop_that_holds_the_gil_is_late_but_answers(core: str) -> None:
    if core == "python":
        pytest.skip("needs the interpreter")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        ctypes.PyDLL(None).usleep(1_000_000)
        await respond()(scope, receive, send)

    # The asking process has another interpreter.
    code = (
        "import sys, time, urllib.request, urllib.error\n"
        "for _ in range(500):\n"
        "    try: urllib.request.urlopen(sys.argv[1], timeout=5)\n"
        "    except urllib.error.HTTPError as error: print(error.read().decode()); break\n"
        "    time.sleep(0.01)\n"
    )
    with serving(app, debug_requests=False, probe=HERE, probe_lateness=0.2) as (server, address):
        host, port = server._probe.address
        wait_for(lambda: told((host, port), "/ready") == (200, "ready\n"))
        asking = subprocess.Popen([sys.executable, "-c", code, f"http://{host}:{port}/ready"], stdout=subprocess.PIPE)
        with open_connection(address, ask("/")) as client:
            output, _ = asking.communicate(timeout=30)
            read_to_end(client)
    assert b"not ready: late by 0." in output or b"not ready: late by 1." in output


def test_a_server_that_starts_and_ends_says_so(core: str) -> None:
    go, gone = threading.Event(), threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await asyncio.get_running_loop().run_in_executor(None, go.wait)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.get_running_loop().run_in_executor(None, gone.wait)
        await send({"type": "lifespan.shutdown.complete"})

    server = Server(Config(app, port=0, log_config=None, lifespan="on", probe=HERE, stall_threshold=0.5))
    with running_thread(server.run):
        try:
            wait_for(lambda: server._probe is not None and server._probe._responder is not None)
            assert server._probe is not None
            address = server._probe.address
            assert told(address, "/ready") == (503, "not ready: starting\n")
            go.set()
            wait_for(lambda: told(address, "/ready") == (200, "ready\n"))
            server.should_exit = True
            wait_for(lambda: told(address, "/ready") == (503, "not ready: draining\n"))
        finally:
            go.set()
            gone.set()
            server.should_exit = True
    assert not running


def test_a_failed_start_leaves_no_probe() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "on purpose"})

    with pytest.raises(SystemExit):
        Server(Config(app, port=0, log_config=None, lifespan="on", probe=HERE)).run()
    assert not running
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="in use"):
            Server(Config(app, port=0, log_config=None, lifespan="off", probe=address)).run()
    assert not running


def test_several_loops_answer_as_one() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond()(scope, receive, send)

    with serving(app, debug_requests=False, threads=2, loop="asyncio", probe=HERE) as (server, _):
        address = server._probe.address
        wait_for(lambda: told(address, "/ready") == (200, "ready\n"))
        assert [one.words[LOOP] for one in server.loop_states] == [1, 2]
        assert all(one.words[STAGE] == Stage.SERVING + 1 for one in server.loop_states)
    assert not running


APP = (
    APP_BEGINS
    + """
    if scope["path"] == "/block":
        import os, time
        while not os.path.exists("go"):
            time.sleep(0.01)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""
)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.measures_children
def test_a_parent_answers_for_its_workers(tmp_path: Path) -> None:
    (tmp_path / "blocking.py").write_text(APP)
    arguments = ("--workers", "2", "--probe", HERE, "--probe-lateness", "0.3", "--drain-delay", "5")
    with ServerProcess("blocking:app", "--port", "0", *arguments, cwd=tmp_path) as server:
        (found,) = server.wait_for_pattern(r"Probes on http://127\.0\.0\.1:(\d+)/ready and /live")
        address = ("127.0.0.1", int(found[1]))
        server.wait_for("Application startup complete", count=2)
        wait_for(lambda: told(address, "/ready") == (200, "ready\n"))
        first, second = server.pids()
        with contextlib.ExitStack() as stack:

            def block_until(status: int, *texts: str) -> None:
                stack.enter_context(open_connection(server.address, b"GET /block HTTP/1.1\r\nhost: a\r\n\r\n"))
                wait_for(lambda: _matches(told(address, "/ready"), status, *texts))

            block_until(200, "ready: late by ", f" s in worker {first}", f" s in worker {second}")
            block_until(503, "not ready: late by ", f" s in worker {first}", f" s in worker {second}")
            assert told(address, "/live") == (200, "live\n")
            (tmp_path / "go").touch()
            wait_for(lambda: told(address, "/ready") == (200, "ready\n"))
        server.send_signal(signal.SIGTERM)
        texts = (f"draining in worker {first}", f"draining in worker {second}")
        wait_for(lambda: _matches(told(address, "/ready"), 503, "not ready: draining", *texts))
        server.send_signal(signal.SIGINT)
        server.wait()


def _matches(answer: tuple[int, str], status: int, first: str, *others: str) -> bool:
    found = [text for text in others if text in answer[1]]
    return answer[0] == status and answer[1].startswith(first) and len(found) == (1 if status == 200 else len(others))
