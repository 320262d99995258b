"""Profiles and growth of memory that are measured on demand, at the address of the metrics."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from tests.observing.test_debugging import TOLD, serving, told
from tests.process import APP_BEGINS, ServerProcess
from tests.protocols.harness import respond
from tests.utils import is_listening, open_connection, read_to_end, request, running_thread, wait_for
from uvicorn._compat import has_gil
from uvicorn.metrics.routes import Routes
from uvicorn.middleware import in_flight
from uvicorn.observing import allocations, exposition, on_demand, orders, profiling
from uvicorn.observing.allocations import NO_ENDPOINT, Endpoints, Grown, Growth
from uvicorn.observing.exposition import LONGEST_HEAD, MOST_CLIENTS, Exposition
from uvicorn.observing.on_demand import Arrivals, collect
from uvicorn.observing.orders import ANY, MEMORY, PROFILE, Answer, Order, order_of
from uvicorn.observing.profiling import MainTimer, Profile, ProfilePart, Sampler, SwitchInterval
from uvicorn.supervisors import multiprocess

needs_gil = pytest.mark.skipif(not has_gil(), reason="a profile needs the GIL")

# Parameters


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        (PROFILE, {}, Order(PROFILE, 10, format="html")),
        (PROFILE, {"seconds": "1.5", "rate": "250", "idle": "1"}, Order(PROFILE, 1.5, 250, format="html", idle=True)),
        (PROFILE, {"by": "route", "worker": "7"}, Order(PROFILE, 10, format="html", by_route=True, worker=7)),
        (PROFILE, {"route": "1", "format": "folded"}, Order(PROFILE, 10, format="folded", by_route=True)),
        (MEMORY, {}, Order(MEMORY, 60, frames=32, format="text", every=128)),
        (MEMORY, {"every": "1", "frames": "64", "token": "x"}, Order(MEMORY, 60, frames=64, format="text", every=1)),
        (MEMORY, {"every": "0"}, Order(MEMORY, 60, frames=8, format="text", worker=ANY)),
        (MEMORY, {"every": "0", "worker": "all"}, Order(MEMORY, 60, format="text")),
    ],
)
def test_an_order_is_read(path: str, query: dict[str, str], expected: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "can_sample", lambda: True)
    assert order_of(path, {name: [value] for name, value in query.items()}) == expected


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        (PROFILE, {"seconds": ["0"]}, "seconds must be a number from 1 to 300, not '0'"),
        (PROFILE, {"seconds": ["301"]}, "from 1 to 300"),
        (MEMORY, {"seconds": ["nan"]}, "from 1 to 300"),
        (MEMORY, {"every": ["16385"]}, "every must be a number from 0 to 16384"),
        (MEMORY, {"every": ["1"]}, "every must be 0: sampling needs the native core"),
        (PROFILE, {"rate": ["1e9"]}, "rate must be a number from 1 to 1000"),
        (PROFILE, {"rate": ["100", "200"]}, "rate was given 2 times"),
        (PROFILE, {"format": ["text"]}, "format must be one of html, folded, speedscope"),
        (PROFILE, {"by": ["line"]}, "by must be route"),
        (PROFILE, {"idle": [""]}, "idle must be 0 or 1"),
        (PROFILE, {"frames": ["5"]}, "Unknown parameter 'frames'"),
        (MEMORY, {"a" * 5000 + "\n": ["5"]}, "Unknown parameter 'aaa"),
        (MEMORY, {"worker": ["\x1b[31m" * 5000]}, "worker must be a process id or all"),
    ],
)
def test_an_order_that_cannot_be_carried_out_says_how(
    path: str, query: dict[str, list[str]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "can_sample", lambda: False)
    assert order_of(MEMORY, {"every": "0"}).every == 0
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        order_of(path, query)
    assert len(text := str(caught.value)) < 300 and text.isprintable()


# The page


@pytest.fixture
def measuring(exposed: Exposition, caplog: pytest.LogCaptureFixture) -> Iterator[SimpleNamespace]:
    """A page that measures until its client leaves or `go` is set."""
    state = SimpleNamespace(page=exposed, begun=threading.Event(), go=threading.Event(), orders=[], stopped=[])

    def measure(order: Order, is_over: threading.Event) -> Answer:
        state.orders.append(order)
        state.begun.set()
        wait_for(lambda: state.go.is_set() or is_over.is_set())
        state.stopped.append(is_over.is_set())
        if order.rate == 13:
            raise ValueError("of the measurement")
        return Answer("200 OK", "text/html", b"result" * 100_000)

    with caplog.at_level("INFO", "uvicorn.error"):
        exposed.tell_requests(lambda as_json: "")
    exposed.measure_on_demand(measure)
    found = TOLD.fullmatch(caplog.messages[-1])
    assert found is not None
    state.target = lambda query: f"/profile?{query}&token={found[3]}"
    yield state
    state.go.set()


def test_a_measurement_is_for_those_who_have_the_token(measuring: Any) -> None:
    """L4"""
    address = measuring.page.address
    measuring.go.set()
    assert [told(address, target)[0] for target in ("/profile", "/memory?token=x", "/profile?seconds=0")] == [403] * 3
    assert not measuring.orders
    assert told(address, measuring.target("seconds=0"))[:2] == (400, "text/plain; charset=utf-8")
    status, kind, body = told(address, measuring.target("seconds=3"))
    assert (status, kind, len(body)) == (200, "text/html", 600_000) and measuring.orders[0].seconds == 3
    assert told(address, measuring.target("rate=13"))[0] == 500
    assert told(address, measuring.target("rate=14"))[0] == 200, "it goes on after a fault"


def test_one_measurement_runs_at_a_time_and_ends_with_its_client(measuring: Any) -> None:
    address = measuring.page.address
    payload = f"GET {measuring.target('seconds=300')} HTTP/1.1\r\nhost: a\r\n\r\n".encode()
    with open_connection(address, payload):
        assert measuring.begun.wait(60)
        assert told(address, measuring.target(""))[0] == 503
        assert told(address, "/metrics")[0] == 200
    wait_for(lambda: measuring.stopped == [True] and measuring.page._measuring is None)
    measuring.go.set()
    assert told(address, measuring.target(""))[0] == 200


def test_a_measurement_outlasts_clients_without_the_token(measuring: Any) -> None:
    """They take its place among the connections only when all others are taken."""
    address = measuring.page.address
    payload = f"GET {measuring.target('seconds=300')} HTTP/1.1\r\nhost: a\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(open_connection(address, payload))
        assert measuring.begun.wait(60)
        # Each has its answer, and is not gone.
        for _ in range(MOST_CLIENTS + 5):
            stack.enter_context(open_connection(address, b"a" * LONGEST_HEAD)).recv(1)
        assert not measuring.stopped
        measuring.go.set()
        assert read_to_end(client).endswith(b"result")


def test_a_client_that_sends_without_end_leaves_others_their_turn(measuring: Any) -> None:
    """Reading what it sends is bounded in each turn."""
    reads: list[int] = []

    class Flooding:
        def recv(self, size: int) -> bytes:
            reads.append(size)
            if len(reads) > 10_000:
                raise AssertionError("it has every turn")
            return b"x" * size

    client = SimpleNamespace(sock=Flooding(), stage=exposition._Stage.MEASURING)
    measuring.page._drain(client)
    assert reads


@pytest.mark.parametrize("path", ["requests", "profile"])
def test_a_thread_that_cannot_start_is_no_end(measuring: Any, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    address, target = measuring.page.address, measuring.target("").replace("profile", path)
    measuring.go.set()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert told(address, target)[0] == 503
    assert told(address, target)[0] == 200


def test_the_end_of_the_server_leaves_a_client_its_result(measuring: Any) -> None:
    payload = f"GET {measuring.target('seconds=300')} HTTP/1.1\r\nhost: a\r\n\r\n".encode()
    with open_connection(measuring.page.address, payload) as client:
        assert measuring.begun.wait(60)
        with running_thread(measuring.page.close):
            assert read_to_end(client).endswith(b"result")
    assert measuring.stopped == [True]


# Merging


def part(pid: int, *stacks: tuple[str, int], last: bool = True, seconds: float = 10.0) -> str:
    frames = sorted({name for stack, _ in stacks for name in stack.split(" > ")})
    made: ProfilePart = {
        "pid": pid,
        "seconds": seconds,
        "samples": len(stacks),
        "frames": [(name, "/a.py", 1) for name in frames],
        "stacks": [([frames.index(name) for name in stack.split(" > ")], weight) for stack, weight in stacks],
        "last": last,
    }
    return json.dumps(made)


def test_parts_of_all_processes_are_merged_and_those_that_are_missing_are_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_demand, "_POLL", 0.01)
    monkeypatch.setattr(on_demand, "HURRY", 0.05)
    arrivals: Arrivals = SimpleQueue()
    for pid, text in (
        (1, part(1, ("a > b", 5), last=False)),
        (2, part(2, ("a > c", 7), ("a > b", 1))),
        (1, part(1, ("a", 2), ("a > b", 1), seconds=3.0)),
        (9, part(9, ("of an earlier one", 1))),
        (3, None),
        (5, json.dumps({"pid": 5, "seconds": 0, "failure": "it is odd", "last": True})),
    ):
        arrivals.put((pid, text))
    is_over, stops = threading.Event(), []
    is_over.set()
    answer = collect(Order(PROFILE, 10, format="folded"), arrivals, [1, 2, 3, 4, 5], is_over, lambda: stops.append(1))
    lines = answer.body.decode().splitlines()
    assert lines[:3] == ["a (/a.py:1) 2", "a (/a.py:1);b (/a.py:1) 7", "a (/a.py:1);c (/a.py:1) 7"]
    said = ("1 was measured for 3.0 of 10 s", "3 ended after", "4 did not answer", "5 was not measured: it is odd")
    assert len(lines) == 7 and all(any(f"Process {text}" in line for line in lines[3:]) for text in said)
    assert stops and len(caplog.records) == 4


def test_memory_is_that_of_the_largest_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    class Worker:
        has_served, exitcode = True, None

        def __init__(self, pid: int) -> None:
            self.pid = pid

        def measure(self, order: Order, parts: Any) -> None:
            parts.put((self.pid, None))

    monkeypatch.setattr(multiprocess, "resident_memory", {1: 5, 2: 9, 3: None}.get)
    pool: Any = SimpleNamespace(
        config=SimpleNamespace(debug_requests=True),
        _lock=contextlib.nullcontext(),
        _pool=SimpleNamespace(everyone=[*map(Worker, (1, 2, 3))]),
    )
    answer = multiprocess.measurement_of([pool], order_of(MEMORY, {"every": "0"}), threading.Event())
    assert b" process 2\n" in answer.body


def test_names_cannot_leave_their_place() -> None:
    """L1: the name of a function, a file or a route may be anything."""
    profile = Profile()
    hostile = "a;b\n</script><!--\u2028\x1b[31m&"
    profile.add(json.loads(part(1, (hostile, 1))))
    (line,) = profiling.folded(profile, []).splitlines()
    assert line.count(";") == 0 and "\x1b" not in line
    page = profiling.flame_graph(profile, hostile, [hostile])
    assert page.count("</script>") == 1 and "<!--" not in page and "\x1b" not in page
    assert json.loads(profiling.speedscope(profile, hostile))["shared"]["frames"][0]["name"] == hostile


def test_a_profile_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """L5"""
    monkeypatch.setattr(profiling, "MOST_MERGED", 2)
    profile = Profile()
    for number in range(5):
        profile.add(json.loads(part(1, (f"a{number}", 1))))
    assert len(profile.stacks) == 3 and profile.total == 5 and profiling.OTHER_STACKS in profile.frames


# Samples


def sampled(seconds: float = 0.4, **order: Any) -> str:
    profile = Profile()
    Sampler(Order(PROFILE, seconds, **order), []).run(lambda part: profile.add(json.loads(json.dumps(part))), bool)
    return profiling.folded(profile, [])


class Work:
    """Threads that compute in Python, compute in C without the GIL, wait, and go down a deep recursion."""

    def __init__(self) -> None:
        self.is_over = threading.Event()

    @contextmanager
    def run(self) -> Iterator[None]:
        with running_thread(self.loops), running_thread(self.hashes), running_thread(self.waits):
            try:
                yield
            finally:
                self.is_over.set()

    def loops(self) -> None:
        while not self.is_over.is_set():
            self.go_down(500)

    def go_down(self, depth: int) -> None:
        if depth:
            self.go_down(depth - 1)

    def hashes(self) -> None:
        data = b"x" * 1_000_000
        while not self.is_over.is_set():
            hashlib.sha256(data)

    def waits(self) -> None:
        self.is_over.wait()


@needs_gil
def test_threads_that_compute_are_seen_and_those_that_wait_if_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    with Work().run():
        for _ in range(10):  # a crowded machine may have let one of them wait
            text = sampled()
            if "go_down" in text and "hashes" in text and "(deeper)" in text:
                break
        assert "go_down" in text and "hashes" in text
        if sys.platform == "linux":
            assert "waits" not in text
        assert all(line.count(";") <= profiling.MOST_DEPTH for line in text.splitlines()) and "(deeper)" in text
        assert "waits" in sampled(idle=True)
        monkeypatch.setattr(profiling, "MOST_STACKS", 1)
        assert "(other stacks)" in sampled()


def test_the_switch_interval_of_a_program_is_respected() -> None:
    before = sys.getswitchinterval()
    try:
        with SwitchInterval() as interval:
            interval.set(profiling.SWITCH_INTERVAL)
            assert sys.getswitchinterval() == pytest.approx(profiling.SWITCH_INTERVAL)
            interval.set(None)
            assert sys.getswitchinterval() == before
            interval.set(profiling.SPREAD)
            sys.setswitchinterval(0.123)
            interval.set(None)
        assert sys.getswitchinterval() == pytest.approx(0.123)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.skipif(sys.platform != "linux", reason="the clocks of threads")
def test_the_timer_leaves_a_program_its_signal_and_no_signal_without_a_handler() -> None:
    assert sys.platform != "win32"
    seen: list[str] = []
    mine = lambda number, frame: None  # noqa: E731
    signal.signal(signal.SIGPROF, mine)
    try:
        assert not MainTimer.is_possible()
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        timer = MainTimer(0.001, lambda frame: seen.append(frame.f_code.co_name))
        assert timer.is_possible()
        timer.start()
        until = time.monotonic() + 60
        while len(seen) < 4 and time.monotonic() < until:  # CPU time has to pass
            pass
        assert len(seen) >= 4
        timer.stop()
        signal.raise_signal(signal.SIGPROF)  # one that was on its way
        count = len(seen)
        timer.release()
        signal.raise_signal(signal.SIGPROF)
        assert len(seen) == count and MainTimer.is_possible() and not any(signal.getitimer(signal.ITIMER_PROF))
        broken = MainTimer(0.001, lambda frame: [][0])
        broken.start()
        signal.raise_signal(signal.SIGPROF)  # must not reach the application
        assert not broken.is_running
        late = MainTimer(0.001, lambda frame: None)
        late.stop()
        late.start()  # the loop was blocked until now
        assert not late.is_running
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)


def test_the_request_of_a_thread_of_a_pool_is_found() -> None:
    scope: Any = {"type": "http"}
    ended: Any = {"type": "http"}

    async def requests() -> list[contextvars.Context]:
        made = []
        for one in (scope, ended):
            in_flight.REQUEST.set(in_flight.InFlightRequest(one, asyncio.get_running_loop(), Routes()))
            made.append(contextvars.copy_context())
        made[1][in_flight.REQUEST].end()  # type: ignore[union-attr]
        return made

    context, other = asyncio.run(requests())

    def called(call: Any) -> Any:
        found: list[Any] = []
        with running_thread(lambda call: found.append(profiling._scope_in_thread(sys._getframe())), call):
            pass
        return found[0]

    bare: Any = functools.partial(context.run, print)  # type: ignore[call-arg]
    wrapped: Any = lambda: bare()  # noqa: E731
    assert called(context) is called(bare) is scope
    assert profiling._context_in(wrapped) is context
    for call in (other, 1, called, functools.partial(print), contextvars.Context()):
        assert called(call) is None


@needs_gil
def test_a_single_process_is_profiled_by_route(caplog: pytest.LogCaptureFixture, http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["route"] = "/busy/{number}"
        await in_here()
        await respond()(scope, receive, send)

    async def in_here() -> None:
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            sum(range(100_000))
            await asyncio.sleep(0)

    def load() -> None:
        while not is_over.is_set():
            request(address, "/busy/1")

    is_over = threading.Event()
    caplog.set_level("INFO", "uvicorn.error")
    with serving(app, metrics="127.0.0.1:0", http=http_protocol_cls) as (_, address):
        found = next(found for message in caplog.messages if (found := TOLD.fullmatch(message)))
        with running_thread(load):
            query = f"seconds=1&by=route&format=folded&token={found[3]}"
            _, _, text = told((found[1], int(found[2])), f"/profile?{query}")
            is_over.set()
        assert re.search(r"^/busy/\{number\};.*in_here", text, re.M)
        assert told((found[1], int(found[2])), f"/profile?worker=1&token={found[3]}")[0] == 400


def test_without_the_gil_a_profile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_demand, "has_gil", lambda: False)
    answer = on_demand.measure_here(list)(Order(PROFILE, 1, format="html"), threading.Event())
    assert answer.status.startswith("501 ") and b"GIL" in answer.body


# Workers

APP = (
    "import asyncio\nKEPT = []\nCACHE = {}\n"
    + APP_BEGINS
    + """
    path = scope["path"]
    if path in ENDPOINTS:
        scope["endpoint"], scope["route"] = ENDPOINTS[path], path + "/{id}"
        await ENDPOINTS[path]()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})

async def leaks():
    KEPT.append(bytearray(50_000))

async def caches():
    CACHE[len(CACHE)] = "x" * 50_000 + str(len(CACHE))

async def starts():
    data = [object() for _ in range(1_000)]

    async def later():
        await asyncio.sleep(3600)
        return data

    KEPT.append(asyncio.create_task(later()))

async def computes():
    for _ in range(300_000):
        pass

ENDPOINTS = {"/leaks": leaks, "/caches": caches, "/starts": starts, "/computes": computes}
"""
)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@needs_gil
@pytest.mark.measures_children
def test_workers_are_measured_together(tmp_path: Path) -> None:
    """What eats the time, which endpoints leak, and what a worker that dies, or a shutdown, leaves."""
    (tmp_path / "measured.py").write_text(APP)
    args = ("measured:app", "--port", "0", "--workers", "2", "--debug-requests", "--metrics", "127.0.0.1:0")
    is_over = threading.Event()
    paths = ["/computes", "/leaks", "/caches", "/starts"]
    memory = "every=4" if orders.can_sample() else "worker=all"  # of one worker the others' growth would be missed
    with ServerProcess(*args, cwd=tmp_path) as server:
        server.wait_for("Application startup complete", count=2)
        (found,) = server.wait_for_pattern(TOLD.pattern)
        ask: Callable[[str], str] = lambda target: told(  # noqa: E731
            (found[1], int(found[2])), f"{target}&token={found[3]}"
        )[2]

        def load() -> None:
            while not is_over.is_set():
                for path in list(paths):
                    request(server.address, path)

        wait_for(lambda: is_listening(server.address))
        with running_thread(load):
            wait_for(lambda: "No worker serves" not in ask("/profile?seconds=1&format=folded&worker=1"))
            folded = ask("/profile?seconds=1&format=folded&by=route&rate=500")
            paths.remove("/computes")  # tracing slows it down
            grown: dict[str, Any] = {}
            for one in json.loads(ask(f"/memory?seconds=2&{memory}&format=json"))["grown"]:
                grown.setdefault(one["route"], one)  # the line that has grown most
            is_over.set()
        assert re.search(r"^/computes/\{id\};.*computes", folded, re.M)
        leaks = {route: one["place"] for route, one in grown.items() if one["size"] > 4_000 and route != NO_ENDPOINT}
        assert leaks.keys() == {"/leaks/{id}", "/caches/{id}", "/starts/{id}"}
        assert all(str(tmp_path / "measured.py") in place for place in leaks.values())

        first, second = server.pids()
        assert f"{min(first, second)}, {max(first, second)}" in ask("/profile?worker=1")
        results: list[str] = []
        with running_thread(lambda: results.append(ask("/profile?seconds=60&format=folded"))):
            wait_for(lambda: _is_sampled(first) and _is_sampled(second))
            os.kill(first, signal.SIGKILL)
            server.wait_for("died (killed by SIGKILL)")
            server.send_signal(signal.SIGTERM)
            server.wait()
        assert f"Process {first} ended after" in results[0] and f"Process {second} was measured for" in results[0]


def _is_sampled(pid: int) -> bool:
    """Tell whether it reads the states of its threads."""
    with contextlib.suppress(OSError):  # a file is closed meanwhile
        return any(os.readlink(file).endswith("/syscall") for file in Path(f"/proc/{pid}/fd").iterdir())
    return False


# Memory


class Endpoint:
    async def get(self) -> None:
        pass

    def __call__(self) -> None:
        pass


def wrapper(function: Any) -> Any:
    @functools.wraps(function)
    def wrapped() -> Any:
        return function()

    return wrapped


@wrapper
def endpoint() -> None:
    pass


def dependency() -> None:
    pass


def lines_of(code: Any) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno + 1


def test_an_allocation_is_that_of_the_route_whose_code_is_in_its_traceback() -> None:
    endpoints = Endpoints(Routes())
    nested = SimpleNamespace(call=dependency, dependencies=[])
    for path, function, dependencies in (
        ("/function", endpoint, []),
        ("/class", Endpoint, []),
        ("/object", functools.partial(Endpoint()), []),
        ("/a", print, [SimpleNamespace(call=None, dependencies=[nested])]),
        ("/b", len, [nested]),
        ("", dependency, []),
    ):
        route = SimpleNamespace(path=path or None, dependant=SimpleNamespace(dependencies=dependencies))
        endpoints.note({"endpoint": function, "route": route})
    endpoints.note({})
    assert endpoints.route_of([("/x.py", 1), lines_of(endpoint.__wrapped__.__code__), ("/y.py", 1)]) == "/function"
    assert endpoints.route_of([lines_of(Endpoint.get.__code__)]) == "/class"
    assert endpoints.route_of([lines_of(Endpoint.__call__.__code__)]) == "/class, /object"
    assert endpoints.route_of([lines_of(dependency.__code__)]) == "/a, /b"
    assert endpoints.route_of([("/x.py", 1)]) == NO_ENDPOINT


def test_what_knows_no_routes_of_endpoints_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """L5"""
    monkeypatch.setattr(allocations, "MOST_ENDPOINTS", 3)
    endpoints = Endpoints(Routes())
    for number in range(10):
        endpoints.note({"endpoint": lambda: None, "route": str(number)})
    assert len(endpoints._known) == 3


def grown(route: str, place: str, size: int, variance: float = 0.0, blocks: int = 1, trace: Any = ()) -> Grown:
    return {"route": route, "place": place, "size": size, "blocks": blocks, "variance": variance, "trace": list(trace)}


def test_sampled_growth_is_shown_if_it_exceeds_its_error() -> None:
    """A steady route has lines that seem to grow and others that seem to shrink."""
    growth = Growth()
    for pid in (1, 2):
        lines = [
            grown("/leaks", "/a.py:1", 400_000, 1e10),
            grown("/steady", "/a.py:2", 150_000, 1e10),
            grown("/steady", "/a.py:3", -150_000, 1e10),
            grown("/spread", "/a.py:4", 120_000, 1e10),
            grown("/spread", "/a.py:5", 120_000, 1e9),
        ]
        growth.add({"pid": pid, "seconds": 3, "grown": lines, "last": True})
    by_route = allocations.as_text(growth, Order(MEMORY, 3, by_route=True), "2 processes", [])
    assert [line.split() for line in by_route.splitlines() if "/a.py" not in line and "KiB" in line] == [
        ["+781.2", "±", "138.1", "KiB", "/leaks"],
        ["+468.8", "±", "144.8", "KiB", "/spread"],
    ]
    lines = json.loads(allocations.as_json(growth, []))["grown"]
    assert [(line["place"], line["size"], line["error"]) for line in lines] == [
        ("/a.py:1", 800_000, 141_421),
        ("/a.py:2", 300_000, 141_421),
        ("/a.py:5", 240_000, 44_721),
    ]


def test_growth_is_shown_by_line_and_by_route() -> None:
    growth = Growth()
    for size in (3000, 4000):
        one = grown("/a\x1b", "/app/a.py:7", size, blocks=2, trace=["/app/b.py:1"])
        growth.add({"pid": 1, "seconds": 3, "grown": [one], "last": True})
    growth.add({"pid": 1, "seconds": 3, "grown": [grown(NO_ENDPOINT, "/lib/b.py:1", 9_000)], "last": True})
    by_line = allocations.as_text(growth, Order(MEMORY, 3), "1 process", ["A note."])
    by_route = allocations.as_text(growth, Order(MEMORY, 3, by_route=True), "1 process", [])
    assert by_line.splitlines()[:2] == ["Growth of memory in the last 2 of 3 s, 1 process", "A note."]
    assert by_line.index("b.py:1") < by_line.index("+6.8 KiB  +4 blocks  /app/a.py:7  /a?")
    assert by_route.index("/a?") < by_route.index(NO_ENDPOINT) and "\x1b" not in by_line + by_route
    assert "Nothing has grown." in allocations.as_text(Growth(), Order(MEMORY, 3), "1 process", [])


def test_the_routes_of_profiles_and_growth_have_the_prefixes_of_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    route = SimpleNamespace(path="/items", endpoint=endpoint)
    app = SimpleNamespace(routes=[SimpleNamespace(path="/api", app=SimpleNamespace(routes=[route]), routes=[route])])
    requests = in_flight.InFlight(app)
    observers: Any = [SimpleNamespace(in_flight=requests, thread=threading.current_thread())]
    scope: Any = {"type": "http", "endpoint": endpoint, "route": route}
    assert Sampler(Order(PROFILE, 1, by_route=True), observers)._route_of(scope) == "/api/items"

    found: list[str] = []

    def traced(order: Any, endpoints: Endpoints, *rest: Any) -> list[Any]:
        endpoints.note(scope)
        found.append(endpoints.route_of([lines_of(endpoint.__wrapped__.__code__)]))
        return []

    monkeypatch.setattr(allocations, "_traced", traced)
    over = threading.Event()
    over.set()
    allocations.measure_growth(Order(MEMORY, 1), observers, lambda part: None, over)
    assert found == ["/api/items"]


def test_a_program_that_traces_its_allocations_goes_on_tracing() -> None:
    import tracemalloc

    parts: list[Any] = []
    in_flight_requests = in_flight.InFlight()
    observers: Any = [SimpleNamespace(in_flight=in_flight_requests)] * 2
    over = threading.Event()
    over.set()
    for traces in (True, False):
        if traces:
            tracemalloc.start(2)
        allocations.measure_growth(Order(MEMORY, 1), observers, parts.append, over)
        assert tracemalloc.is_tracing() is traces and in_flight_requests.on_end is None
        tracemalloc.stop()
    assert [part["last"] for part in parts] == [True, True]


KIB = 1024


@pytest.fixture
def sampler() -> Iterator[Any]:
    native = pytest.importorskip("uvicorn._native")
    made = native.AllocationSampler(16 * KIB, 32, in_flight.REQUEST, 1)
    yield made
    made.close()


def measured(groups: list[Any]) -> dict[tuple[Any, str], list[float]]:
    """Bytes, blocks and their variance by owner and innermost function."""
    sums: dict[tuple[Any, str], list[float]] = {}
    for owner, stack, _, *numbers in groups:
        key = (owner, stack[-1][0].co_name if stack else "")
        sums[key] = [sum(pair) for pair in zip(sums.get(key, [0.0] * 3), numbers, strict=True)]
    return sums


def test_a_sample_has_the_memory_in_use_by_request_and_stack(sampler: Any) -> None:
    kept: list[Any] = []

    def keeps() -> None:
        kept.extend(bytes(5_000) for _ in range(400))

    def grows() -> None:
        kept.append(bytearray())
        for _ in range(2_000):
            kept[-1].extend(b"x" * KIB)  # which moves it

    def churns() -> None:
        for _ in range(20_000):
            bytes(500)

    owner: Any = Endpoint()

    def serves() -> None:
        in_flight.REQUEST.set(owner)
        keeps()
        churns()

    contextvars.copy_context().run(serves)
    grows()
    assert not sampler.snapshot(), "nothing was allocated before a mark"
    sampler.mark()
    kept.append(bytes(10_000_000))
    found = measured(sampler.snapshot())
    for key, size in (((owner, "<genexpr>"), 400 * 5_033), ((None, "grows"), sys.getsizeof(kept[-2]))):
        got, _, variance = found[key]
        assert abs(got - size) <= 5 * variance**0.5 + KIB, (key, found)
    for key, (got, _, variance) in found.items():
        assert "churns" not in key or got <= 5 * variance**0.5 + KIB, "a tracer of tests keeps a little there"
    kept.clear()
    found = measured(sampler.snapshot())
    for key, (got, _, variance) in found.items():
        assert owner not in key or got <= 5 * variance**0.5 + KIB, "its blocks are free"
    is_left = any(key[0] is owner for key in found)  # because of a tracer
    held = sys.getrefcount(owner)  # it is not released in the midst of a call of the allocator
    sampler.release()
    assert sys.getrefcount(owner) == held - (not is_left)


def test_samples_survive_other_tools_and_whatever_allocates(sampler: Any) -> None:
    """One sampler at a time, tracemalloc in front of and behind it, recursion, generators, threads and forks."""
    native = pytest.importorskip("uvicorn._native")
    with pytest.raises(RuntimeError):
        native.AllocationSampler(1, 1, in_flight.REQUEST, 1)
    sampler.close()
    for wrong in ((0, 1, in_flight.REQUEST, 1), (1, 0, in_flight.REQUEST, 1), (1, 1, None, 1)):
        with pytest.raises(ValueError):
            native.AllocationSampler(*wrong)

    def goes_down(depth: int) -> Any:
        return goes_down(depth - 1) if depth else next(iter([sys._getframe()]))

    async def raises() -> None:
        try:
            raise KeyError
        except KeyError:
            await asyncio.sleep(0)

    async def many() -> None:
        await asyncio.gather(*(raises() for _ in range(50)))

    import tracemalloc

    for order in ("before", "after", "never"):
        if order == "before":
            tracemalloc.start()
        every = native.AllocationSampler(1, 64, in_flight.REQUEST, 1)
        if order == "after":
            tracemalloc.start()
        with running_thread(goes_down, 200), contextlib.suppress(RecursionError):
            goes_down(100_000)
        asyncio.run(many())
        every.mark()
        assert every.snapshot()
        if order == "before":
            tracemalloc.stop()
        every.close()
        every.close()
        assert not every.snapshot()
        tracemalloc.stop()
        bytes(10_000)


# The flame graph


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium")
@pytest.mark.deep
def test_the_flame_graph_is_drawn_from_names_as_they_are(tmp_path: Path) -> None:
    profile = Profile()
    profile.add(json.loads(part(1, ("main > <b>&amp;", 900), ("main > other", 100))))
    (tmp_path / "page.html").write_text(profiling.flame_graph(profile, "A title", ["Process 7 ended."]))
    command = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile")
    url = (tmp_path / "page.html").as_uri()
    done = subprocess.run([*command, "--dump-dom", url], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count('role="treeitem"') == 4 and "&lt;b&gt;&amp;amp;, 90.0 %" in done.stdout
    assert "Process 7 ended." in done.stdout and "<title>A title</title>" in done.stdout


@pytest.mark.parametrize("form", ["folded", "speedscope", "html", "text", "json"])
def test_a_result_has_the_form_of_its_order(form: str) -> None:
    path, key = (MEMORY, "by") if form in ("text", "json") else (PROFILE, "idle")
    order = order_of(path, {"format": [form], **({key: ["route"]} if key == "by" else {key: ["1"]})})
    result: Any = Growth() if path == MEMORY else Profile()
    text = on_demand._render(order, result, [1, 2], ["Process 7 was measured for 0.5 of 10 s."])
    assert "Process 7 was measured" in text
    if form in ("speedscope", "json"):
        json.loads(text)


def test_a_measurement_that_fails_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []

    def fail(self: Any) -> None:
        raise LookupError

    monkeypatch.setattr(on_demand.Job, "_measure", fail)
    job = on_demand.Job(Order(PROFILE, 1), [], told.append)
    job.start()
    job.stop(5)
    assert not job.is_running and told[0]["failure"] == "it failed; see the log"
    assert "Cannot measure this process" in caplog.text
