"""Some random cases, the same each time; the cases that have shown a fault; and that faults are noticed at all.

``scripts/fuzz`` looks for new ones.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.loops import LOOPS
from tests.relations import free
from tests.relations.case import HTTP, LATE, WEBSOCKET, Case, Participant, Scene, make_case, reductions
from tests.relations.compare import Servers, compare, kinds, report, upstream_python
from tests.relations.runner import HTTP3
from tests.utils import NATIVE, deep_after
from uvicorn.protocols.websockets.session import WebSocketSession

# The same code as in the tests of the protocols, which are covered.
pytestmark = pytest.mark.no_cover


@pytest.fixture(name="servers", scope="module")
def all_servers() -> Iterator[Servers]:
    servers = Servers(native=NATIVE)
    yield servers
    servers.close()


def case(loop: str, kinds: list[str], *scenes: Scene, form: str = "scenes", **changes: Any) -> Case:
    """A case whose participants each have a connection, and are sent all their messages at once."""
    participants = [Participant(kind, number) for number, kind in enumerate(kinds)]
    order = list(range(len(kinds)))
    return Case(0, form, loop, ["http/1"] * len(kinds), participants, [*scenes], order, [8], [0], **changes)


def share(what: str, action: str, count: int = 2, **data: Any) -> Scene:
    """All but the last one wait for the same thing."""
    rest = {"making": "plain", "chains": [[] for _ in range(count)], "actor_waits": "future", "late": []}
    return Scene("share", list(range(count + 1)), {"what": what, "action": (action, 0), **rest, **data})


def wait(tree: Any, actor: str, *action: Any) -> Scene:
    """The first one waits for a tree."""
    members = [0, 1] if actor == "peer" else [0]
    return Scene("wait", members, {"tree": tree, "actor": actor, "actor_waits": "poll", "action": action})


FUTURE = ("leaf", "future")

FOUND = {
    "sessions-that-wait-for-one-future": ([WEBSOCKET] * 3, share("future", "value")),
    "session-and-request-that-wait-for-one-task": ([WEBSOCKET, HTTP, WEBSOCKET], share("task", "value")),
    "flight-that-fails": ([WEBSOCKET] * 3, share("flight", "fail", chains=[["shield"], ["shield"]])),
    "cancellation-of-who-waits-for-a-future": ([WEBSOCKET] * 2, share("future", "cancel-waiter", 1)),
    "cancellation-of-who-waits-for-children": (
        [WEBSOCKET] * 2,
        wait(("gather", "plain", FUTURE, FUTURE), "peer", "cancel", 1),
    ),
    "cancellation-by-oneself": ([WEBSOCKET], wait(FUTURE, "self", "cancel", 1)),
    "child-that-begins-at-once-and-is-cancelled": (
        [WEBSOCKET],
        wait(("task", "eager", FUTURE), "soon", "cancel-task", 0),
    ),
    "time-that-is-over-at-once": ([WEBSOCKET], wait(("timeout", 0, FUTURE), "nobody", "expire")),
    "child-that-receives": ([WEBSOCKET], wait(("task", "eager", ("leaf", "receive")), "soon", "release", "together")),
    "locks-of-the-cancelled": (
        [WEBSOCKET] * 4,
        Scene("crowd", [0, 1, 2, 3], {"what": "victims-lock", "rounds": 1, "pause": 0, "victims": 2}),
    ),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_before_is_the_same(servers: Servers, name: str, loop: str) -> None:
    members, scene = FOUND[name]
    assert servers.difference(case(loop, members, scene)) is None


@pytest.mark.parametrize("loop", LOOPS)
def test_client_that_has_reset_its_stream_does_not_answer_a_close_there(servers: Servers, loop: str) -> None:
    """That would end the connection, and the other session on it."""
    one = case(loop, [WEBSOCKET] * 2, wait(FUTURE, "peer", "fail", 1))
    one.connections, one.gaps, one.order = ["http/2"], [1], [0]
    one.scenes[0].data["actor_waits"] = "future"
    for participant in one.participants:
        participant.connection = 0
    one.participants[1].leaves = ("half-close", 2)
    assert servers.difference(one) is None


@pytest.mark.parametrize("loop", LOOPS)
def test_message_for_a_child_that_is_cancelled_does_not_reach_the_next_scene(servers: Servers, loop: str) -> None:
    """`gather` ends with the first child that is cancelled, while the other is still on its way out of its groups."""
    late = ("group", "plain", ("group", "plain", ("leaf", "receive")))
    tree = ("timeout", LATE, ("gather", "plain", ("leaf", "lock"), late))
    one = case(loop, [WEBSOCKET] * 2, wait(tree, "nobody", "expire"), share("future", "value", 1))
    assert servers.difference(one) is None


def test_response_over_the_tls_of_a_loop_does_not_wait_for_the_next_one(servers: Servers) -> None:
    """Transports with TLS pause a writer with nothing left to write, if their limit is 0, until its next write."""
    one = make_case(38_319_974_965_479, ["uvloop" if "uvloop" in LOOPS else "asyncio"])
    one.tls, one.reader = "openssl", "loop"
    assert servers.difference(one) is None


@pytest.mark.parametrize("part", deep_after(1, range(4)))
def test_servers_do_the_same(servers: Servers, part: int) -> None:
    for seed in range(part * 8, part * 8 + 8):
        found = servers.difference(make_case(seed, LOOPS))
        assert found is None, f"python -m tests.relations --seed {seed}: {found}"


@pytest.mark.skipif(not HTTP3, reason="HTTP/3 needs Linux, its client aioquic")
@pytest.mark.parametrize("seed", deep_after(1, (10, 29, 33, 37, 41, 54, 63, 65, 67, 72, 97)))
def test_servers_do_the_same_over_http3(servers: Servers, seed: int) -> None:
    """Beside HTTP/1.1 and HTTP/2, all over TLS."""
    one = make_case(seed, LOOPS)
    assert "http/3" in one.connections
    assert servers.difference(one) is None, f"python -m tests.relations --seed {seed}"


@pytest.mark.skipif(upstream_python() is None, reason="UPSTREAM_PYTHON names no Python with upstream uvicorn")
def test_upstream_does_the_same() -> None:
    servers = Servers(upstream=os.environ["UPSTREAM_PYTHON"], native=NATIVE)
    try:
        for seed in range(1000, 1020):
            assert servers.difference(make_case(seed, LOOPS)) is None, f"python -m tests.relations --seed {seed}"
    finally:
        servers.close()


# That faults are noticed.


def test_outcomes_are_what_asyncio_leads_to(servers: Servers) -> None:
    """The cases do what they are there for."""
    scenes = [share("future", "fail"), share("task", "cancel-waiter"), wait(("shield", FUTURE), "peer", "cancel", 2)]
    for outcome in servers.outcomes(case("asyncio", [WEBSOCKET, HTTP, WEBSOCKET], *scenes)).values():
        assert outcome.faults == []
        assert outcome.notes[0, 0] == outcome.notes[1, 0] == (("raised", ("Failure", "shared")), 0, [])
        assert outcome.notes[0, 1][0] == outcome.notes[1, 1][0] == ("raised", ("CancelledError",))
        came, cancelling, *_, tasks, _, _ = outcome.notes[0, 2]
        assert came == ("raised", ("CancelledError", "by scene 2"))
        assert cancelling in (0, 2)  # before Python 3.11 nobody counts
        assert tasks == {(0,): ("returned", "result")}
        assert outcome.answers == {0: ["0", "1", "2"], 1: ["0", "1", "2"], 2: ["0", "1"]}


def test_difference_is_noticed(servers: Servers) -> None:
    one = case("asyncio", [WEBSOCKET, HTTP, WEBSOCKET], share("future", "value"))
    outcome = servers.outcomes(one)["python"]
    other = copy.deepcopy(outcome)
    assert not list(compare(one, outcome, other))
    other.notes[0, 0] = (("raised", ("RuntimeError", "await wasn't used with future")), 0, [])
    other.answers[1] = []
    other.log.append(("uvicorn.error", "ERROR", "RuntimeError"))
    found = list(compare(one, outcome, other))
    assert [line.partition("\n")[0] for line in found] == [
        "participant 0 at scene 0 came to",
        "client of 1 was sent",
        "the log says",
    ]
    assert "scene 0: share of [0, 1, 2]" in report(one, found)
    assert kinds(["client of 3 was sent\n"]) == kinds(["client of 12 was sent\n"])


PYTHON = {"http": "httptools", "ws": "websockets-sansio"}


def program(*programs: list[Any]) -> Scene:
    """A step of free programs, one for each participant."""
    return Scene("free", list(range(len(programs))), {"programs": [*programs]})


class BrokenLock(asyncio.Lock):
    async def acquire(self) -> Any:
        self._locked = True
        return True


def test_broken_lock_is_noticed(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own objects are what is broken, so every server shows it."""
    genuine = free.Pool.__init__

    def broken(self: free.Pool) -> None:
        genuine(self)
        self.locks = [BrokenLock(), BrokenLock()]

    monkeypatch.setattr(free.Pool, "__init__", broken)
    held = ("lock", 0, ("future", 0))
    found = servers.difference(case("asyncio", [WEBSOCKET] * 2, program([held], [held]), form="free"))
    assert found is not None and "2 are inside, where 1 may be" in found[0]


def test_lost_message_is_noticed(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled `receive()` takes a message along; the case is reduced to that."""
    genuine = WebSocketSession.receive

    async def receive(self: WebSocketSession) -> Any:
        return await asyncio.shield(genuine(self))

    monkeypatch.setattr(WebSocketSession, "receive", receive)
    steps = [("sleep", 1), ("given-up-receive", 4), ("sleep", 2)]
    one = case("asyncio", [WEBSOCKET] * 2, program(steps, []), program([], []), form="free", **PYTHON)
    one.gaps = [20]
    one.together = [1]
    found = servers.difference(one)
    assert found is not None and any("received 1 of 2 messages" in line for line in found)
    smaller, found = servers.shrink(one, found)
    assert smaller.scenes[0].data["programs"][0] == [("given-up-receive", 4)]


def test_program_that_never_ends_is_noticed(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.relations import runner
    from tests.relations.scenes import Wait

    monkeypatch.setattr(runner, "QUIET_TIME", 0.0)
    monkeypatch.setattr(runner, "PATIENCE", 2.0)
    monkeypatch.setattr(runner, "QUIET_TURNS", 200)
    monkeypatch.setattr(Wait, "act", lambda self: None)
    found = servers.difference(case("asyncio", [WEBSOCKET], wait(FUTURE, "soon", "cancel", 1)))
    assert found is not None and any("participant 0 never ends: it is at [0], wait" in line for line in found)


def test_every_reduction_is_a_case_that_can_run(servers: Servers) -> None:
    for seed in range(3):
        for smaller in list(reductions(make_case(seed, ["asyncio"])))[::7]:
            assert servers.difference(smaller) is None
