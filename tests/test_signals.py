"""Signals to a single process: who handles them, for how long, and what the process ends with."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process import APP_BEGINS, ServerProcess
from tests.utils import assert_signal, is_listening, open_connection, read_until, turns, wait_for, wait_until
from uvicorn.config import Config
from uvicorn.protocols.http.auto import CORE
from uvicorn.server import HANDLED_SIGNALS, Server
from uvicorn.serving import interruption
from uvicorn.serving.interruption import Guard, Interruption
from uvicorn.serving.wakeup import waking_on_signals

if sys.platform == "win32":
    pytest.skip("these signals cannot be sent on Windows", allow_module_level=True)


pytestmark = pytest.mark.anyio

CLI = (
    """
import asyncio, collections, ctypes, itertools, os, signal, time
"""
    + APP_BEGINS
    + """    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first", "more_body": True})
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": b"last"})

async def slow_to_start(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        print("starting", flush=True)
        while not os.path.exists("go"):
            await asyncio.sleep(0.01)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

async def never_starting(scope, receive, send):
    await receive()
    print("starting", flush=True)
    await asyncio.sleep(3600)

def block():
    for sig in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(sig)
        signal.signal(sig, lambda *args, handler=handler: (print("signalled", flush=True), handler(*args)))
    print("blocking", flush=True)
    time.sleep(3600)

async def blocking_start(scope, receive, send):
    assert scope["type"] == "lifespan"
    await receive()
    block()

async def locked_start(scope, receive, send):
    await receive()
    print("locked", flush=True)
    sum(itertools.repeat(1))  # C that neither gives up the interpreter nor looks for signals

async def many_that_block(scope, receive, send):
    if scope["type"] == "lifespan":
        await app(scope, receive, send)
    else:
        await asyncio.sleep(0)
        print("blocking", flush=True)
        time.sleep(3600)

async def hanging_end(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    print("hanging", flush=True)
    await asyncio.sleep(3600)

async def blocking_thread(scope, receive, send):
    print("blocking", flush=True)
    time.sleep(3600)

async def blocking_request(scope, receive, send):
    if scope["type"] == "lifespan":
        await app(scope, receive, send)
    else:
        print("blocking", flush=True)
        time.sleep(3600)

async def endless_sender(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        try:
            await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
        except asyncio.CancelledError:
            if not os.path.exists("stubborn"):
                raise

async def waiting_for_thread(scope, receive, send):
    if scope["type"] == "lifespan":
        await app(scope, receive, send)
    else:
        print("blocking", flush=True)
        await asyncio.to_thread(time.sleep, 3600)

async def starting_in_thread(scope, receive, send):
    await receive()
    print("starting", flush=True)
    await asyncio.to_thread(time.sleep, 3600)

async def stubborn(scope, receive, send):
    print("blocking", flush=True)
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            pass

async def signalled_in_between(scope, receive, send):
    missed = map(ctypes.CDLL(None)["raise"], [signal.SIGTERM])  # C that does not look for signals, nor what calls it
    collections.deque(itertools.chain(missed, map(time.sleep, [3600])))

async def blocking_end(scope, receive, send):
    assert scope["type"] == "lifespan"
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    block()
"""
)


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("not called")


@pytest.fixture
def server() -> Server:
    return Server(Config(app, lifespan="off", port=0, log_config=None))


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(CLI)
    return tmp_path


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


# In an embedding program


def test_handled_signals() -> None:
    """SIG-01"""
    assert HANDLED_SIGNALS[:2] == (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("sig", HANDLED_SIGNALS)
async def test_signal_ends_the_server_and_is_raised_again_for_the_program(sig: signal.Signals, server: Server) -> None:
    """SIG-01, SIG-03, SIG-05"""
    with assert_signal(sig):
        handler = signal.getsignal(sig)
        task = asyncio.create_task(server.serve())
        await wait_until(lambda: server.started)
        assert signal.getsignal(sig) == server.handle_exit
        signal.raise_signal(sig)
        await asyncio.wait_for(task, 30)
        assert signal.getsignal(sig) is handler
    assert server.should_exit
    assert not server.force_exit


async def test_signals_are_raised_again_the_latest_first(server: Server) -> None:
    """SIG-03, SIG-08"""
    received: list[int] = []
    previous = {sig: signal.signal(sig, lambda number, frame: received.append(number)) for sig in HANDLED_SIGNALS}
    try:
        with server.capture_signals():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            assert received == []
    finally:
        for sig, handler in previous.items():
            signal.signal(sig, handler)
    assert received == [signal.SIGINT, signal.SIGTERM]
    assert server.force_exit


async def test_every_signal_is_raised_again_even_if_one_raises_an_exception(server: Server) -> None:
    """SIG-08: SIGINT's exception does not swallow the SIGTERM before it."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    with assert_signal(signal.SIGTERM):
        previous = signal.signal(signal.SIGINT, interrupt)
        try:
            with pytest.raises(KeyboardInterrupt), server.capture_signals():
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGINT)
        finally:
            signal.signal(signal.SIGINT, previous)


async def test_handlers_are_restored_when_the_block_fails(server: Server) -> None:
    """SIG-03"""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), server.capture_signals():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


async def test_handler_from_outside_python_becomes_the_default(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIG-03: None is what `signal.signal` returns for it, and cannot be put back."""
    installed: list[tuple[int, Any]] = []
    monkeypatch.setattr(signal, "signal", lambda sig, handler: installed.append((sig, handler)))
    with server.capture_signals():
        pass
    assert [handler for _, handler in installed[-2:]] == [signal.SIG_DFL, signal.SIG_DFL]


def test_other_threads_handle_no_signals(server: Server) -> None:
    """SIG-02"""
    seen: list[Any] = []

    def run() -> None:
        with server.capture_signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize(
    ("signals", "is_forced"),
    [
        ([signal.SIGINT], False),
        ([signal.SIGTERM, signal.SIGTERM], False),
        ([signal.SIGINT, signal.SIGTERM], False),
        ([signal.SIGINT, signal.SIGINT], True),
        ([signal.SIGTERM, signal.SIGINT], True),
    ],
)
def test_only_a_later_sigint_forces_the_end(signals: list[signal.Signals], is_forced: bool, server: Server) -> None:
    """SIG-06, SIG-07, SIG-08"""
    for sig in signals:
        server.handle_exit(sig, None)
    assert server.should_exit
    assert server.force_exit is is_forced


async def test_a_signal_wakes_a_selector_that_sleeps_through_signals() -> None:
    """WIN-01"""
    loop = asyncio.get_running_loop()
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    with assert_signal(signal.SIGTERM), waking_on_signals(loop):
        descriptor = signal.set_wakeup_fd(-1)
        assert descriptor not in (-1, before)
        signal.set_wakeup_fd(descriptor)
        signal.raise_signal(signal.SIGTERM)
        await turns()  # the byte is taken by the loop
    assert signal.set_wakeup_fd(before) == before


@pytest.mark.parametrize("first_to_end", [0, 1])
async def test_the_server_that_goes_on_is_still_woken_when_another_ends(first_to_end: int) -> None:
    """SIG-05: several servers in one event loop, whichever ends first."""
    loop = asyncio.get_running_loop()
    servers = [contextlib.ExitStack(), contextlib.ExitStack()]
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    with assert_signal(signal.SIGTERM), servers[0], servers[1]:
        for stack in servers:
            stack.enter_context(waking_on_signals(loop))
        servers[first_to_end].close()
        descriptor = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(descriptor)
        assert os.fstat(descriptor)  # still open
        assert descriptor not in (-1, before)
        signal.raise_signal(signal.SIGTERM)
        await turns()
    assert signal.set_wakeup_fd(before) == before


async def test_event_loop_with_handlers_of_its_own_keeps_its_wakeup() -> None:
    """SIG-05: asyncio calls a handler for the byte it gets there; whichever of the two comes first."""
    loop = asyncio.get_running_loop()
    received = asyncio.Event()
    for is_first in (True, False):
        received.clear()
        with assert_signal(signal.SIGTERM):
            if is_first:
                loop.add_signal_handler(signal.SIGUSR1, received.set)
            with waking_on_signals(loop):
                if not is_first:
                    loop.add_signal_handler(signal.SIGUSR1, received.set)
                signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGUSR1)
            await asyncio.wait_for(received.wait(), 30)
        loop.remove_signal_handler(signal.SIGUSR1)


IN_ANOTHER_THREAD = """
import signal, threading, time, uvicorn

threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
# From now on the system gives it to the other thread: what this one waits in is not interrupted.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
uvicorn.run("app:app", port=0, loop=LOOP)
"""


def is_asleep(pid: int) -> bool:
    """Whether the main thread of a process waits for something; true as well where nobody tells."""
    if sys.platform != "linux":
        return True
    return Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_signal_that_another_thread_is_interrupted_by_ends_the_server(cwd: Path, loop: str) -> None:
    """K9, SIG-01: the same as one that comes at the moment before the event loop falls asleep."""
    (cwd / "main.py").write_text(IN_ANOTHER_THREAD.replace("LOOP", repr(loop)))
    with ServerProcess(command=[sys.executable, "main.py"], cwd=cwd) as server:
        assert server.port
        wait_for(lambda: is_asleep(server.pid))
        server.send_signal(signal.SIGTERM)
        server.wait_for("Finished server process")


# The process


def test_sigterm_finishes_the_work_and_then_kills_the_process(cwd: Path, loop: str) -> None:
    """SIG-04, LIFE-15, LIFE-17"""
    with ServerProcess("app:app", "--port", "0", "--loop", loop, "--http", "h11", cwd=cwd) as server:
        client = open_connection(server.address, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        read_until(client, b"first")
        server.send_signal(signal.SIGTERM)
        server.wait_for("Waiting for connections to close.")
        (cwd / "go").touch()
        assert server.wait() == -signal.SIGTERM
        assert read_until(client, b"last")
        client.close()
        shown = [line.split(maxsplit=1)[1] for line in server.error_output.splitlines()[5:]]
        assert shown == [
            "Shutting down",
            "Waiting for connections to close. (CTRL+C to force quit)",
            "Waiting for application shutdown.",
            "Application shutdown complete.",
            f"Finished server process [{server.pid}]",
        ]


def test_sigint_ends_with_status_0(cwd: Path, loop: str) -> None:
    """SIG-04"""
    with ServerProcess("app:app", "--port", "0", "--loop", loop, cwd=cwd) as server:
        assert server.port
        assert server.stop(signal.SIGINT) == 0
        assert "Traceback" not in server.error_output


def test_code_after_run_is_reached_after_sigint(cwd: Path) -> None:
    """LIFE-25"""
    (cwd / "main.py").write_text("import uvicorn\nuvicorn.run('app:app', port=0)\nprint('after run', flush=True)\n")
    with ServerProcess(command=[sys.executable, "main.py"], cwd=cwd) as server:
        assert server.port
        assert server.stop(signal.SIGINT) == 0
        assert "after run" in server.output


def test_second_sigterm_does_not_force(cwd: Path) -> None:
    """SIG-07"""
    with ServerProcess("app:app", "--port", "0", cwd=cwd) as server:
        client = open_connection(server.address, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        read_until(client, b"first")
        server.send_signal(signal.SIGTERM)
        server.wait_for("Waiting for connections to close.")
        server.send_signal(signal.SIGTERM)
        (cwd / "go").touch()
        assert server.wait() == -signal.SIGTERM
        assert read_until(client, b"last")
        client.close()
        assert "Application shutdown complete." in server.error_output


def test_signal_during_startup_is_honoured_when_that_is_complete(cwd: Path) -> None:
    """SIG-11"""
    with ServerProcess("app:slow_to_start", "--port", "0", "--http", "h11", cwd=cwd) as server:
        server.wait_for("starting")
        server.send_signal(signal.SIGTERM)
        (cwd / "go").touch()
        assert server.wait() == -signal.SIGTERM
        shown = [line.split(maxsplit=1)[1].split()[0] for line in server.error_output.splitlines()]
        assert shown == [
            *("Fork", "Started", "Waiting", "Application", "Uvicorn"),
            *("Shutting", "Waiting", "Application", "Finished"),
        ]


def test_second_interrupt_ends_a_startup_that_hangs(cwd: Path) -> None:
    """K8"""
    with ServerProcess("app:never_starting", "--port", "0", cwd=cwd) as server:
        server.wait_for("starting")

        def has_ended() -> bool:
            server.send_signal(signal.SIGINT)  # again and again: two that come too fast are one
            return server.process.poll() is not None

        wait_for(has_ended)
        server.wait()
        server.wait_for("WARNING:  Application startup cancelled: the shutdown was forced (second SIGINT, ")
        assert "Uvicorn running" not in server.error_output


@pytest.mark.measures_children
@pytest.mark.parametrize(
    ("loop", "mode"),
    [("asyncio", []), ("uvloop", []), ("uvloop", ["--workers", "2"]), ("asyncio", ["--reload"])],
    ids=["asyncio", "uvloop", "workers", "reload"],
)
@pytest.mark.parametrize("name", ["blocking_start", "blocking_end"])
def test_second_interrupt_ends_a_lifespan_that_blocks(cwd: Path, loop: str, name: str, mode: list[str]) -> None:
    """K8: nobody sees the flag that it sets. Who passes the signal on does not run the loop."""
    count = 2 if "--workers" in mode else 1
    with ServerProcess(f"app:{name}", "--port", "0", "--loop", loop, *mode, cwd=cwd) as server:
        if name == "blocking_end":
            server.wait_for("Application startup complete.", count=count)
            if not mode:
                assert server.port  # it says so when it serves
            server.send_signal(signal.SIGINT)
            server.wait_for("blocking", count=count)
        else:
            server.wait_for("blocking", count=count)
            server.send_signal(signal.SIGINT)
            server.wait_for("signalled", count=count)
        assert server.stop(signal.SIGINT) == (3 if name == "blocking_start" and not mode else 0)
        assert "Traceback" not in server.error_output
        assert "unsupported" not in server.error_output


@pytest.mark.measures_children
@pytest.mark.parametrize("name", ["never_starting", "blocking_start"])
@pytest.mark.parametrize(
    ("loop", "mode"),
    [
        ("asyncio", []),
        ("uvloop", []),
        ("asyncio", ["--threads", "2"]),
        ("uvloop", ["--workers", "2"]),
        ("asyncio", ["--reload"]),
    ],
    ids=["asyncio", "uvloop", "threads", "workers", "reload"],
)
def test_first_signal_ends_a_startup_that_hangs(cwd: Path, loop: str, name: str, mode: list[str]) -> None:
    """K8: within the time of a graceful shutdown, whether it waits or blocks the event loop."""
    pytest.importorskip(loop)
    arguments = ["--port", "0", "--timeout-graceful-shutdown", "1", "--loop", loop, *mode]
    if "--threads" in mode and name == "blocking_start":
        name = "blocking_thread"  # whose handlers are not its own
    with ServerProcess(f"app:{name}", *arguments, cwd=cwd) as server:
        server.wait_for("starting" if name == "never_starting" else "blocking")
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)
        assert "Application startup complete" not in server.error_output
        expected = "startup did not complete within 1 seconds" if name == "never_starting" else "blocked"
        assert expected in server.error_output
        assert "Traceback" not in server.error_output


needs_timer = pytest.mark.skipif(
    sys.platform != "linux" or CORE != "native", reason="the kernel's timer that ends the process is the native core's"
)


@needs_timer
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param([], id="single"),
        pytest.param(["--threads", "2"], id="threads", marks=pytest.mark.deep),
        pytest.param(["--reload"], id="reload", marks=pytest.mark.deep),
    ],
)
def test_first_signal_ends_a_startup_that_locks_the_interpreter(cwd: Path, mode: list[str]) -> None:
    """K8: neither a handler nor a thread of Python's runs."""
    with ServerProcess("app:locked_start", "--port", "0", "--timeout-graceful-shutdown", "1", *mode, cwd=cwd) as server:
        server.wait_for("locked")
        server.send_signal(signal.SIGTERM)
        status = server.wait(timeout=30)
        assert status == (0 if "--reload" in mode else -signal.SIGKILL)
        assert "The interpreter is locked" in server.error_output


@needs_timer
def test_signal_that_comes_just_before_a_blocking_call_is_noticed(cwd: Path) -> None:
    """K8: Python looks for signals before the call and, if one interrupts it, behind it."""
    arguments = ["--port", "0", "--timeout-graceful-shutdown", "0"]
    with ServerProcess("app:signalled_in_between", *arguments, cwd=cwd) as server:
        assert server.wait(timeout=30) != -signal.SIGKILL
        assert "interrupting the blocking call" in server.error_output
        assert "interpreter is locked" not in server.error_output


@needs_timer
@pytest.mark.parametrize("mode", [[], ["--threads", "2"]], ids=["single", "threads"])
def test_one_interrupt_stays_one_although_a_timer_follows(cwd: Path, mode: list[str]) -> None:
    """SIG-07: a second one would force the end."""
    arguments = ["--port", "0", "--timeout-graceful-shutdown", "30", *mode]
    with ServerProcess("app:app", *arguments, cwd=cwd) as server:
        wait_for(lambda: is_listening(server.address))
        with open_connection(server.address, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n") as client:
            read_until(client, b"first")
            server.send_signal(signal.SIGINT)
            server.wait_for("Waiting for connections to close.")
            time.sleep(1.5)
            (cwd / "go").touch()
            assert read_until(client, b"last")
        assert server.wait() == 0
        assert "Application shutdown complete." in server.error_output


@needs_timer
def test_timer_does_not_outlive_its_server(cwd: Path) -> None:
    """A program that goes on is not ended by it, and neither is one that has a handler of its own in front."""
    (cwd / "main.py").write_text(
        "import asyncio, os, signal, time, uvicorn\n"
        "import uvicorn.serving.interruption\n"
        "uvicorn.serving.interruption.LAST_WAIT = 0.2\n"
        "calls = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: calls.append(1))\n"
        "server = uvicorn.Server(uvicorn.Config('app:app', port=0, timeout_graceful_shutdown=0))\n"
        "asyncio.run(server.serve())\n"
        "time.sleep(1.5)\n"
        "print('calls:', len(calls), flush=True)\n"
    )
    with ServerProcess(command=[sys.executable, "main.py"], cwd=cwd) as server:
        assert server.port
        assert server.stop(signal.SIGTERM) == 0
        assert "calls: 1" in server.output


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_requests_that_block_one_behind_another_share_one_deadline(cwd: Path, loop: str) -> None:
    """K8: each would have had a time of its own."""
    pytest.importorskip(loop)
    arguments = ["--port", "0", "--timeout-graceful-shutdown", "0", "--loop", loop]
    with ServerProcess("app:many_that_block", *arguments, cwd=cwd) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(server.address)) for _ in range(12)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        server.wait_for("blocking")
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)
        assert server.error_output.count("interrupting the") == 1


@pytest.mark.parametrize("mode", [[], ["--workers", "2"], ["--threads", "2"]], ids=["single", "workers", "threads"])
def test_lifespan_shutdown_that_hangs_obeys_the_graceful_timeout(cwd: Path, mode: list[str]) -> None:
    """K8: it had 30 seconds, whatever the setting said."""
    with ServerProcess("app:hanging_end", "--port", "0", "--timeout-graceful-shutdown", "1", *mode, cwd=cwd) as server:
        count = 2 if mode else 1
        server.wait_for("Application startup complete.", count=count)
        server.wait_for("Press CTRL+C")
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=25)
        text = "Application shutdown not complete after 5 seconds (timeout_graceful_shutdown). Exiting."
        assert server.error_output.count(text) == count


@pytest.mark.measures_children
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_first_signal_ends_a_request_that_blocks(cwd: Path, loop: str) -> None:
    """K8: nobody sends a second signal to a service."""
    pytest.importorskip(loop)
    arguments = ["--port", "0", "--timeout-graceful-shutdown", "1", "--loop", loop]
    with ServerProcess("app:blocking_request", *arguments, cwd=cwd) as server:
        with socket.create_connection(server.address) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            server.wait_for("blocking")
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=30) == -signal.SIGTERM
        assert "interrupting the" in server.error_output
        assert "Application shutdown complete" not in server.error_output, "the end was forced"


@pytest.mark.measures_children
@pytest.mark.parametrize("mode", [[], ["--threads", "2"]], ids=["single", "threads"])
@pytest.mark.parametrize("name", ["waiting_for_thread", "starting_in_thread"])
def test_first_signal_does_not_wait_for_threads_of_an_executor(cwd: Path, name: str, mode: list[str]) -> None:
    """K8: `asyncio.run()` does, for minutes or for ever."""
    with ServerProcess(f"app:{name}", "--port", "0", "--timeout-graceful-shutdown", "1", *mode, cwd=cwd) as server:
        if name == "waiting_for_thread":
            server.wait_for("Application startup complete.", count=2 if mode else 1)
            client = open_connection(server.address, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            server.wait_for("blocking")
        else:
            client = None
            server.wait_for("starting")
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == -signal.SIGTERM
        if client is not None:
            client.close()
            assert "Application shutdown complete." in server.error_output


def test_guard_goes_by_the_deadline_of_how_far_the_server_has_come() -> None:
    """Not by the one that held when it fell asleep: a lifespan shutdown that blocks has a time of its own."""
    asked: list[float] = []
    interruptions: list[Interruption] = []

    def deadline() -> float:
        asked.append(time.monotonic())
        return asked[0] + (60 if len(asked) > 1 else 0)

    with contextlib.closing(asyncio.new_event_loop()) as loop:  # which never turns
        guard = Guard(loop, deadline, interruptions.append)
        guard.start()
        wait_for(lambda: len(asked) > 2 or interruptions)
        guard.stop()
        guard.join(30)
    assert not guard.is_alive()
    assert not interruptions


EMBEDDED = """
import asyncio, contextlib, signal, uvicorn, uvicorn.serving.interruption
from uvicorn.serving.interruption import end_after_signals

uvicorn.serving.interruption.LAST_WAIT = 0.2

class Mine(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):
        yield

async def app(scope, receive, send):
    raise NotImplementedError

async def main():
    config = uvicorn.Config(app, port=0, lifespan="off", log_level="warning", timeout_graceful_shutdown=1)
    server = Mine(config)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, server.handle_exit, signal.SIGTERM, None)
    loop.call_later(0.1, signal.raise_signal, signal.SIGTERM)
    await server.serve()
    return server

signal.signal(signal.SIGUSR2, lambda *arguments: None)
end_after_signals(600.0, signal.SIGUSR2)  # so there is a timer, as behind a server that captured signals
server = asyncio.run(main())
server._backstop._guard.join()
signal.sigtimedwait([signal.SIGCONT], 3.0)
print("the program goes on")
"""


def test_guard_does_not_wait_for_a_log_that_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler may be what blocks the event loop: it keeps its lock."""
    monkeypatch.setattr(interruption, "BLOCKED", 0.01)
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    handler.acquire()
    interruption.logger.addHandler(handler)
    try:
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            Guard(loop, lambda: 0.0, print)._tell("interrupting")
            assert not told
            handler.release()
            wait_for(lambda: told)
    finally:
        interruption.logger.removeHandler(handler)
    assert told == ["interrupting"]


ENDED = """
import asyncio, sys, threading, uvicorn

async def app(scope, receive, send):
    raise NotImplementedError

def end(server):
    for _ in range(int(sys.argv[1])):
        server.handle_exit(2, None)

async def main():
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_level="warning"))
    asyncio.get_running_loop().call_later(0.1, end, server)
    await server.serve()

try:
    sys.setswitchinterval(60.0)  # other threads run only while this one waits
    asyncio.run(main())
finally:
    print([thread.name for thread in threading.enumerate()])
"""


@pytest.mark.parametrize("signals", ["1", "2"])
def test_no_thread_is_left_behind_a_server(signals: str) -> None:
    """It would keep the application beyond the end of the interpreter, and with it files that are not written yet."""
    done = subprocess.run([sys.executable, "-c", ENDED, signals], capture_output=True, text=True, timeout=60)
    assert done.stdout == "['MainThread']\n", done.stderr


def test_program_that_captures_signals_itself_goes_on_behind_its_server() -> None:
    done = subprocess.run([sys.executable, "-c", EMBEDDED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "the program goes on\n"), done.stderr


def test_process_that_ignores_its_interruption_is_killed(cwd: Path) -> None:
    """K8"""
    arguments = ["--port", "0", "--timeout-graceful-shutdown", "0"]
    with ServerProcess("app:stubborn", *arguments, cwd=cwd) as server:
        server.wait_for("blocking")
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == -signal.SIGKILL
        assert f"still blocked, killing process [{server.pid}]" in server.error_output


@pytest.mark.parametrize("name", ["never_starting", "blocking_start"])
def test_worker_whose_parent_was_killed_does_not_outlive_its_startup(cwd: Path, name: str) -> None:
    """K8"""
    arguments = ["--port", "0", "--timeout-graceful-shutdown", "1", "--workers", "1", "--limit-worker-lifetime", "99"]
    with ServerProcess(f"app:{name}", *arguments, cwd=cwd) as server:
        server.wait_for("starting" if name == "never_starting" else "blocking")
        server.wait_for("Started server process")  # on the other stream, in any order
        (worker,) = server.pids()
        os.kill(server.pid, signal.SIGKILL)

        def has_ended() -> bool:
            try:
                os.kill(worker, 0)
            except ProcessLookupError:
                return True
            return Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

        wait_for(has_ended)
        assert server.error_output.count(f"Parent process [{server.pid}] died") == 1


BLOCKED_THREAD = """
import time

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        return
    print("blocking", flush=True)
    time.sleep(3600)

async def blocking_start(scope, receive, send):
    print("blocking", flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("name", "first", "status"),
    [
        ("app", signal.SIGINT, 0),
        ("app", signal.SIGTERM, -signal.SIGTERM),
        ("blocking_start", signal.SIGINT, 3),
    ],
)
def test_second_interrupt_ends_a_thread_that_blocks(
    tmp_path: Path, loop: str, name: str, first: signal.Signals, status: int
) -> None:
    """K8: no signal reaches a loop that is not in the main thread. What belongs to the server is cleaned up."""
    pytest.importorskip(loop)
    (tmp_path / "app.py").write_text(BLOCKED_THREAD)
    uds = tmp_path / "socket"
    with ServerProcess(f"app:{name}", "--uds", uds, "--threads", "2", "--loop", loop, cwd=tmp_path) as server:
        if name == "app":
            server.wait_for("Application startup complete.", count=2)
            server.wait_for("Press CTRL+C")
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(uds))
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        server.wait_for("blocking")
        server.send_signal(first)
        if name == "app":
            server.wait_for("Shutting down")

        def has_ended() -> bool:
            server.send_signal(signal.SIGINT)  # again and again: two that come too fast are one
            return server.process.poll() is not None

        wait_for(has_ended)
        assert server.wait() == status
        assert "these event loops are blocked: uvicorn-loop-" in server.error_output
        assert not uds.exists()
        if name == "app":
            client.close()


HTTP1_REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
HTTP2_REQUEST = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5) + b"\0\0\6\1\5\0\0\0\1\x82\x86\x84\x41\1a"
)


@pytest.mark.parametrize("is_stubborn", [False, True], ids=["cancelled", "stubborn"])
@pytest.mark.parametrize(
    ("mode", "request_"),
    [
        pytest.param(["--http", "auto"], HTTP1_REQUEST, id="auto"),
        pytest.param(["--http", "h11"], HTTP1_REQUEST, id="h11", marks=pytest.mark.deep),
        pytest.param(["--http", "h11", "--loop", "asyncio"], HTTP1_REQUEST, id="h11-asyncio"),
        pytest.param(
            ["--http2"],
            HTTP2_REQUEST,
            id="http2",
            marks=pytest.mark.skipif(CORE != "native", reason="HTTP/2 is the native core's"),
        ),
    ],
)
def test_second_interrupt_ends_an_endless_sender(
    cwd: Path, mode: list[str], request_: bytes, is_stubborn: bool
) -> None:
    """K8: to one whose connection was cut `send` never waits, so that it blocks the loop."""
    if is_stubborn:
        (cwd / "stubborn").touch()
    options = ["--port", "0", "--lifespan", "off", "--timeout-graceful-shutdown", "600"]
    server = ServerProcess("app:endless_sender", *options, *mode, cwd=cwd)
    with server, socket.create_connection(server.address) as client:
        client.sendall(request_)
        assert client.recv(100)
        server.send_signal(signal.SIGINT)
        server.wait_for("Waiting for connections to close.")
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0
        server.wait_for("Cutting 1 request(s) and 1 connection(s): the shutdown was forced")
        assert "timeout graceful shutdown exceeded" not in server.error_output


def test_second_interrupt_tells_of_a_lifespan_shutdown_that_is_skipped(cwd: Path) -> None:
    """K8"""
    with ServerProcess("app:hanging_end", "--port", "0", cwd=cwd) as server:
        server.wait_for("Press CTRL+C")
        server.send_signal(signal.SIGINT)
        server.wait_for("hanging")
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0
        assert "Application shutdown not completed: the shutdown was forced" in server.error_output


def test_interrupt_of_a_loop_that_turns_interrupts_nothing(cwd: Path, server: Server) -> None:
    """K8"""

    async def main() -> None:
        server.handle_exit(signal.SIGINT, None)
        assert server._backstop._interruption is not None
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        server._backstop.stop()
        await asyncio.to_thread(server._backstop._interruption.join)
        assert not server._backstop._interruption.is_wanted

    server.should_exit = True
    server.handle_exit(signal.SIGINT, None)
    assert server._backstop._interruption is None, "no loop that could be blocked"
    asyncio.run(main())


def test_interruption_is_never_taken_for_a_signal_of_the_user(server: Server) -> None:
    """K8: it is sent while the loop is blocked, and may come when that is over."""

    async def main() -> None:
        server.handle_exit(signal.SIGINT, None)
        server.handle_exit(signal.SIGINT, None)
        backstop, captured = server._backstop, len(server._captured_signals)
        interruption = backstop._interruption
        assert interruption is not None
        backstop.stop()
        interruption.send()
        assert not interruption.arrived(), "nothing is sent to a program that goes on"
        interruption._is_sent = True
        server.handle_exit(signal.SIGINT, None)
        assert len(server._captured_signals) == captured
        server.handle_exit(signal.SIGINT, None)
        assert len(server._captured_signals) == captured + 1

    asyncio.run(main())


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_program_gets_the_signals_that_were_sent_to_it_and_no_more(cwd: Path) -> None:
    """SIG-05: its own `shutdown` blocks the loop, and so does what it does next."""
    (cwd / "main.py").write_text(
        "import asyncio, os, signal, time, uvicorn\n"
        "calls = []\n"
        "signal.signal(signal.SIGINT, lambda *_: calls.append(1))\n"
        "class Mine(uvicorn.Server):\n"
        "    async def shutdown(self, sockets=None):\n"
        "        await super().shutdown(sockets)\n"
        "        for _ in range(2):\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.5)\n"
        "async def main():\n"
        "    server = Mine(uvicorn.Config('app:app', port=0, timeout_graceful_shutdown=1))\n"
        "    asyncio.get_running_loop().call_later(0.1, setattr, server, 'should_exit', True)\n"
        "    await server.serve()\n"
        "    time.sleep(2)\n"
        "asyncio.run(main())\n"
        "print('calls:', len(calls), flush=True)\n"
    )
    with ServerProcess(command=[sys.executable, "main.py"], cwd=cwd) as server:
        assert server.wait() == 0
        assert "calls: 2" in server.output


@pytest.mark.parametrize("sig", [signal.SIGQUIT, signal.SIGUSR1])
def test_other_signals_keep_their_default_action(cwd: Path, sig: signal.Signals) -> None:
    """SIG-12"""
    with ServerProcess("app:app", "--port", "0", cwd=cwd) as server:
        assert server.port
        assert server.stop(sig) == -sig
        assert "Shutting down" not in server.error_output


def test_embedding_program_keeps_its_own_handler(cwd: Path) -> None:
    """SIG-05"""
    (cwd / "main.py").write_text(
        "import asyncio, signal, uvicorn\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('my own handler', flush=True))\n"
        "async def main():\n"
        "    await uvicorn.Server(uvicorn.Config('app:app', port=0)).serve()\n"
        "    print('serve returned', flush=True)\n"
        "asyncio.run(main())\n"
    )
    with ServerProcess(command=[sys.executable, "main.py"], cwd=cwd) as server:
        assert server.port
        assert server.stop(signal.SIGTERM) == 0
        assert server.output.splitlines() == ["my own handler", "serve returned"]
