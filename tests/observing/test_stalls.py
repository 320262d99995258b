"""Stalls of event loops: found, attributed, counted, listed and logged."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.observing.test_debugging import needs_contexts, serving
from tests.protocols.harness import respond
from tests.utils import request, wait_for
from uvicorn._compat import has_gil
from uvicorn.config import Config
from uvicorn.metrics.loop_state import DUE, LoopState
from uvicorn.metrics.page import Page
from uvicorn.metrics.routes import OTHER
from uvicorn.metrics.stalls import ROUTES, StallTable, StallTotal, add_up
from uvicorn.middleware.in_flight import InFlight
from uvicorn.observing import stacks, stalls
from uvicorn.observing.debugging import listings_of, shown, shown_stalls
from uvicorn.observing.exposition import MetricsAggregator, WorkerFigures, render
from uvicorn.observing.stalls import MANY, MOST_STACKS, UNSEEN, Look, PythonLooks, StallWatch, place_of

SECOND = 1_000_000_000


# A real loop


def sleep() -> None:
    time.sleep(0.3)


def compute() -> None:
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        pass


def hold_gil() -> None:
    ctypes.PyDLL(None).usleep(300_000)


def collect() -> None:
    # A collection of this length needs a million objects.
    for phase in ("start", "stop"):
        for callback in list(gc.callbacks):
            if isinstance(callback, stalls._Collections):
                callback(phase, {})
        if phase == "start":
            time.sleep(0.3)


KINDS: dict[str, tuple[Callable[[], None], str]] = {
    "sleep": (sleep, "blocked"),
    "compute": (compute, "computing"),
    "hold_gil": (hold_gil, "gil"),
    "collect": (collect, "gc"),
}


async def app(scope: Any, receive: Any, send: Any) -> None:
    name = scope["path"][1:]
    scope["route"] = f"/{name}/{{id}}"
    if name == "task":
        await asyncio.create_task(in_task())
    elif name in KINDS:
        KINDS[name][0]()
    await respond()(scope, receive, send)


async def in_task() -> None:
    sleep()


@pytest.mark.parametrize("http", ["native", "h11"])
@pytest.mark.skipif(sys.platform == "win32", reason="usleep")
def test_a_stall_is_blamed_on_its_route_and_kind(
    http: str, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the native core and without."""
    if http == "native":
        pytest.importorskip("uvicorn._native")
    else:
        monkeypatch.setattr(stalls, "_looks", PythonLooks)
    page = Page.make()
    # Half of them without a record of requests.
    tracked = http == "h11"
    with serving(app, http=http, debug_requests=tracked, stall_threshold=0.1, page=page) as (server, address):
        assert (server.config.in_flight is not None) is tracked
        (observer,) = server.observers
        for name, (_, kind) in KINDS.items():
            if name == "hold_gil" and not has_gil():
                continue
            with subtests.test(name):
                key: Any = (f"/{name}/{{id}}", kind)

                records = observer._stalls.records

                def is_found() -> bool:  # on a busy machine not at once, or not until the loop was elsewhere
                    request(address, f"/{name}")  # noqa: B023
                    record = records.get(key)  # noqa: B023
                    if record is None:
                        return False
                    place = place_of(record.worst.stack).split(" ")[2]
                    if not place.startswith(name):  # noqa: B023
                        del records[key]  # noqa: B023
                        return False
                    return True

                wait_for(is_found)
                record = records[key]
                assert record.nanoseconds / SECOND >= 0.1
                assert record.worst.request == f"GET /{name}"
        listings = listings_of(server.observers)
    assert "route /sleep/{id}" in shown(listings) and "route /sleep/{id}" in shown_stalls(listings)
    counted = dict(page.stalls.totals())
    assert counted["/sleep/{id}", "blocked"].number >= 1
    assert not any(isinstance(one, stalls._Collections) for one in gc.callbacks)
    wait_for(lambda: not any(thread.name == "uvicorn-stalls" for thread in threading.enumerate()))


@pytest.mark.parametrize("debug_requests", [True, False])
def test_a_stall_below_a_mount_has_the_route_of_the_metrics(debug_requests: bool) -> None:
    """Two mounted applications may have the same template."""
    pytest.importorskip("starlette")
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def read(request: Any) -> PlainTextResponse:
        request.scope.setdefault("route", route)  # as FastAPI and Starlette 1.0 do
        sleep()
        return PlainTextResponse("item")

    route = Route("/items/{item}", read)
    mounting = Starlette(routes=[Mount("/api", Starlette(routes=[route]))])
    with serving(mounting, debug_requests=debug_requests, stall_threshold=0.1) as (server, address):
        (observer,) = server.observers
        request(address, "/api/items/7")
        wait_for(lambda: observer._stalls.records)
    assert {route for route, _ in observer._stalls.records} == {"/api/items/{item}"}


@needs_contexts
def test_tasks_of_requests_and_of_the_lifespan_are_blamed_on_them() -> None:
    begun: list[asyncio.Task[None]] = []

    async def with_lifespan(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        await receive()
        go = asyncio.Event()
        waiting.append((asyncio.get_running_loop(), go))
        begun.append(asyncio.create_task(later(go)))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def later(go: asyncio.Event) -> None:
        await go.wait()
        sleep()

    waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    with serving(with_lifespan, lifespan="on", stall_threshold=0.1) as (server, address):
        records = server.observers[0]._stalls.records
        request(address, "/task")
        ((loop, go),) = waiting
        loop.call_soon_threadsafe(go.set)
        wait_for(lambda: {route for route, _ in records} >= {"/task/{id}", "lifespan"})


def test_it_is_off_unless_asked_for() -> None:
    for settings, expected in (
        ({}, 0),
        ({"debug_requests": True}, 0.1),
        ({"debug_requests": True, "stall_threshold": 0}, 0),
        ({"stall_threshold": 0.5}, 0.5),
    ):
        assert Config(app, log_config=None, **settings).longest_turn == expected  # type: ignore[arg-type]
    with serving(app, debug_requests=False) as (server, _):
        assert server.observers == [] and server.config.in_flight is None
    for value in (-1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="must be"):
            Config(app, stall_threshold=value)


# A loop that does nothing by itself, at a time that passes when the test says so


class Watched:
    """The watch, with a threshold of a second, so beats come every quarter of one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000 * SECOND
        self.task: Any = None
        self.frames: list[Any] = [sys._getframe()]
        loop: Any = SimpleNamespace(call_later=lambda *_: SimpleNamespace(cancel=lambda: None))
        for module in ("observing.stalls", "metrics.loop_state"):
            monkeypatch.setattr(f"uvicorn.{module}.monotonic_ns", lambda: self.now)
        monkeypatch.setattr(asyncio, "current_task", lambda _: self.task)
        monkeypatch.setattr(stacks, "frames_of", lambda _: self.frames)
        self.page = Page.make()
        self.state = LoopState.make()
        self.watch = StallWatch(loop, 1.0, InFlight(), self.state, page=self.page)
        self.watch._beat._arm()
        self.now = self.state.words[DUE]

    def look(self, seconds: float, *, wait: float = 0.0, used: float = 0.0, **others: Any) -> None:
        """Let so much time pass, and look."""
        passed = int(seconds * SECOND)
        self.now += passed
        thread = int(used * SECOND)
        found: dict[str, Any] = {"thread": thread, "process": thread, "thread_meanwhile": thread, "is_running": False}
        self.watch.look(Look(**{"time": passed, "wait": int(wait * SECOND), **found, **others}))

    def turn(self) -> list[tuple[str, str, float]]:
        """Let the loop turn; the kind, culprit and seconds of all stalls so far."""
        self.watch._beat._beat()
        records = self.watch.records.values()
        return [(one.worst.kind, one.worst.what, round(one.worst.nanoseconds / SECOND, 3)) for one in records]


def named(name: str) -> Any:
    return SimpleNamespace(get_coro=lambda: None, get_name=lambda: name)


@pytest.mark.parametrize(
    ("kind", "look"),
    [
        ("blocked", {}),
        ("computing", {"used": 0.4}),
        ("computing", {"is_running": True}),
        ("computing", {"wait": 0.4, "is_running": True}),  # for a processor
        ("gil", {"wait": 0.4, "used": 0.4}),
        ("gil", {"wait": 0.4}),
        ("blocked", {"wait": 0.1}),
    ],
)
def test_clocks_tell_the_kind(kind: str, look: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "has_gil", lambda: True)
    watched = Watched(monkeypatch)
    watched.task = named("step")
    for _ in range(4):
        watched.look(0.5, **look)
    ((found, what, seconds),) = watched.turn()
    assert (found, what[:4], seconds) == (kind, "step", 2.125)
    assert dict(watched.page.stalls.totals()) == {("none", kind): StallTotal(1, int(2.125 * SECOND))}


def test_a_thread_that_holds_the_gil_is_not_taken_for_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "has_gil", lambda: True)
    watched = Watched(monkeypatch)
    watched.task = named("step")
    watched.look(2, wait=1.9, process=2 * SECOND)
    ((kind, what, _),) = watched.turn()
    assert (kind, what) == ("gil", "another thread, which held the GIL")


def test_a_turn_is_divided_among_those_who_took_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    for name, seconds, look in (("one", 1.5, {"used": 1.5}), ("two", 1.25, {}), ("three", 0.25, {"wait": 0.2})):
        watched.task = named(name)
        watched.look(seconds, **look)
    assert sorted(watched.turn()) == [("blocked", "two (NoneType)", 1.25), ("computing", "one (NoneType)", 1.625)]


def test_many_short_callbacks_are_blamed_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    for number in range(20):
        watched.task = named(str(number))
        watched.look(0.25, used=0.2)
    assert watched.turn() == [("computing", MANY, 5.125)]


def test_a_turn_without_a_sample_or_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    for late in (0.0, 0.1, 0.5, 0.8):
        watched.now = watched.state.words[DUE] + int(late * SECOND)
        assert watched.turn() == []
    watched.look(0.1)
    assert watched.watch._groups == {} and watched.watch.overdue() == 0, "not overdue"
    watched.now += 5 * SECOND
    assert watched.watch.overdue() > 4
    ((kind, what, seconds),) = watched.turn()
    assert (kind, what) == ("blocked", UNSEEN) and 4.5 < seconds < 5.5


def test_the_stack_of_most_of_the_time_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step of a task goes on after its stall: the last sample need not show that. L5: their number is bounded."""
    watched = Watched(monkeypatch)
    watched.task = named("step")
    blocks = [(lambda: sys._getframe())()]
    for frames in ([sys._getframe()], blocks, blocks, blocks, [sys._getframe()]):
        watched.frames = frames
        watched.look(0.5)
    expected = stacks.lines_of(blocks)
    for number in range(2 * MOST_STACKS):
        code = compile("pass", str(number), "exec")
        watched.frames = [SimpleNamespace(f_code=code, f_lineno=number)]
        watched.look(0.001)
    (group,) = watched.watch._groups.values()
    assert len(group.stacks) == MOST_STACKS
    watched.turn()
    (record,) = watched.watch.records.values()
    assert stacks.lines_at(record.worst.stack) == expected


def test_the_log_has_one_line_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """L5: the longest of the rest is in the next one."""
    watched = Watched(monkeypatch)
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    for seconds in (2, 3, 5, 4):
        watched.look(seconds)
        watched.turn()
        watched.now = watched.state.words[DUE]
    assert len(caplog.messages) == 1 and "stalled for 2.125 s by route none (blocked) at " in caplog.messages[0]
    assert "asyncio.to_thread" in caplog.messages[0] and "stall_threshold" in caplog.messages[0]
    clock[0] += stalls.LOG_INTERVAL
    watched.turn()
    assert len(caplog.messages) == 2 and "stalled for 5.125 s" in caplog.messages[1]
    assert "longest of 3 stalls" in caplog.messages[1]


def test_the_place_is_the_innermost_of_the_application() -> None:
    library = compile("pass", json.__file__, "exec")
    own = compile("pass", "/srv/app.py", "exec")
    assert place_of(((own, 3), (library, 7))).startswith("/srv/app.py:3 in <module>, which called " + json.__file__)
    assert place_of(((library, 7),)) == f"{json.__file__}:7 in <module>" and place_of(()) == ""


# Counts


def test_the_table_is_bounded_and_keeps_the_sums() -> None:
    """L5"""
    page = Page.make()
    for number in range(2 * ROUTES):
        page.stalls.add(f"/{number}", "gil", 5)
    page.stalls.add("/" + "\u00e9" * 200, "gc", 7)
    page.stalls.add("a\0b", "gc", 7)
    totals = dict(page.stalls.totals())
    assert len(totals) == ROUTES + 1 and totals[OTHER, "gil"] == StallTotal(ROUTES + 1, 5 * (ROUTES + 1))
    assert totals["/0", "gil"] == StallTotal(1, 5) and sum(one.number for one in totals.values()) == 2 * ROUTES + 2
    assert page.words[0] == 0, "the places are others"
    sums: Any = {}
    for number in range(20):
        table = StallTable(memoryview(bytearray(page.stalls._words.nbytes)).cast("Q"))
        for route in range(20):
            table.add(f"/{number}/{route}", "blocked", 1)
        add_up(sums, table.totals())
    assert len(sums) <= 4 * ROUTES + 1 and sum(one.number for one in sums.values()) == 400
    page.discard()


def test_stalls_of_ended_workers_stay_in_the_metrics() -> None:
    aggregator = MetricsAggregator()
    assert "stall" not in render(aggregator.totals(), WorkerFigures({}, {}, stalls=aggregator.stalls()))
    first, second = aggregator.page(shared=True), aggregator.page(shared=False)
    first.stalls.add('/a"\\\n', "gil", SECOND)
    aggregator.retire(first)
    second.stalls.add('/a"\\\n', "gil", SECOND // 2)
    text = render(aggregator.totals(), WorkerFigures({}, {}, stalls=aggregator.stalls()))
    assert 'uvicorn_stalls_total{route="/a\\"\\\\\\n",kind="gil"} 2\n' in text
    assert 'uvicorn_stall_seconds_total{route="/a\\"\\\\\\n",kind="gil"} 1.5\n' in text


def test_the_worst_of_all_loops_are_listed_together() -> None:
    def listing(pid: int, overdue: float, *found: tuple[str, str, int, float, float]) -> Any:
        names = ("route", "kind", "count", "seconds", "longest")
        rest = {"when": "now", "what": "task", "request": "GET /", "stack": [f"in {pid}"]}
        one = {"pid": pid, "thread": "MainThread", "overdue": overdue, "stack": ["here"]}
        return {**one, "stalls": [{**dict(zip(names, each, strict=True)), **rest} for each in found]}

    many = [(f"/{number}", "gil", 1, 0.2, 0.2) for number in range(20)]
    found = [listing(1, 0.0, ("/a", "gil", 2, 3.0, 2.0)), listing(2, 4.5, ("/a", "gil", 1, 2.5, 2.5), *many)]
    listed = json.loads(shown_stalls(found, as_json=True))
    assert len(listed["stalls"]) == 10 and listed["blocked"] == [
        {"pid": 2, "thread": "MainThread", "overdue": 4.5, "stack": ["here"]}
    ]
    worst = listed["stalls"][0]
    assert (worst["count"], worst["seconds"], worst["longest"], worst["stack"]) == (3, 5.5, 2.5, ["in 2"])
    page = shown_stalls(found)
    assert re.search(r"5\.500 s  gil  route /a  in 3\n", page) and "has not turned for 4.500 s" in page
    assert shown_stalls([]) == "Stalls by route: none"


def test_a_failing_sample_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(monkeypatch)
    looks = iter([(SECOND, 0, 0, 0, 0, False), None])

    def fail(_: int) -> Any:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(stacks, "frames_of", fail)
    watched.now += 2 * SECOND
    with caplog.at_level(logging.ERROR):
        watched.watch._watch(SimpleNamespace(wait=lambda: next(looks), close=lambda: None))
    assert "on purpose" in caplog.text and "stall_threshold" in caplog.text


def test_a_look_of_python_says_what_passed_since_the_last() -> None:
    looks = PythonLooks(LoopState.make().words, 0.1, None)
    until = time.monotonic() + 0.02
    while time.monotonic() < until:
        pass
    look = Look(*looks.look())
    assert look.time >= 0.02 * SECOND and look.thread == look.process > 0
