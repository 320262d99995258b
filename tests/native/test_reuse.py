"""What serves one request after the other, a scope, a context, a cycle, never shows one what another did with it."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import gc
import os
import sys
import weakref
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.protocols.harness import GET, GET_10, Client, Service, request, respond, serve
from tests.utils import turns, wait_until
from uvicorn.serving.state import ServerState

pytestmark = pytest.mark.anyio

ROUNDS = 4


@pytest.fixture(autouse=True, params=["recycled", "poisoned", "without shortcuts"])
def reuse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether what comes back is used again, or filled with poison and thrown away, or just thrown away."""
    monkeypatch.setenv("UVICORN_POISON", str(int(request.param == "poisoned")))
    if request.param == "without shortcuts":
        monkeypatch.setenv("UVICORN_SHORTCUTS", "none")


variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default="unset")


class Kept:
    """Something that can be watched, for an application to leave behind."""


def bare_state() -> ServerState:
    """A state whose requests start from an empty context, as those of a server do that nobody gave any variable."""
    return contextvars.Context().run(ServerState)


async def three_ways(service: Service, data: bytes = GET) -> None:
    """Several requests one by one, then in one write, then in one write on another connection."""
    client = await service.connect()
    for _ in range(ROUNDS):
        assert (await client.ask(data)).status == 200
    for each in (client, await service.connect()):
        await each.send(data * ROUNDS)
        for _ in range(ROUNDS):
            assert (await each.response()).status == 200
    await wait_until(lambda: not service.state.tasks)


def pop_and_put_back(scope: Any) -> None:
    scope["asgi"] = scope.pop("asgi")


def clear(scope: Any) -> None:
    scope.clear()


CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda scope: None,
    "new key": lambda scope: scope.update(session=1),
    "another path": lambda scope: scope.update(path="/other"),
    "the type": lambda scope: scope.update(type="other"),
    "an equal root path": lambda scope: scope.update(root_path="".join(["/", "root"])),
    "no client": lambda scope: scope.update(client=None),
    "key missing": lambda scope: scope.pop("scheme"),
    "other order": pop_and_put_back,
    "nothing left": clear,
    "headers replaced": lambda scope: scope.update(headers=[]),
    "header added": lambda scope: scope["headers"].append((b"a", b"b")),
    "header changed": lambda scope: scope["headers"].__setitem__(0, (b"host", b"other")),
    "headers gone": lambda scope: scope["headers"].clear(),
    "asgi changed": lambda scope: scope["asgi"].update(version="0"),
    "state used": lambda scope: scope["state"].update(user=1),
    "state used and emptied": lambda scope: (scope["state"].update(user=1), scope["state"].clear()),
    "state replaced": lambda scope: scope.update(state={}),
}


@pytest.mark.parametrize("app_state", [{}, {"database": 1}], ids=["no state", "state"])
async def test_what_an_application_does_to_its_scope_stays_with_it(
    native: Any, app_state: dict[str, Any], subtests: pytest.Subtests
) -> None:
    for name, change in CHANGES.items():
        with subtests.test(name):
            await require_no_change_of_another_s(native, change, app_state)


async def require_no_change_of_another_s(native: Any, change: Callable[[Any], Any], app_state: dict[str, Any]) -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(copy.deepcopy([(key, value) for key, value in scope.items() if key != "client"]))
        assert scope["client"] is not None
        # Every other one leaves it as it was.
        if len(seen) % 2:
            change(scope)
        await respond()(scope, receive, send)

    async with serve(native, app, app_state=app_state, root_path="/root") as service:
        await three_ways(service)
    assert len(seen) == 3 * ROUNDS
    assert all(items == seen[0] for items in seen)
    assert seen[0][-2:] == [("headers", [(b"host", b"test")]), ("state", app_state)]


@pytest.mark.parametrize("part", ["scope", "headers", "state", "asgi"])
async def test_what_somebody_holds_is_given_to_nobody_else(native: Any, part: str) -> None:
    held: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        held.append(scope if part == "scope" else scope[part])
        await respond()(scope, receive, send)

    async with serve(native, app) as service:
        await three_ways(service)
    assert len({id(one) for one in held}) == len(held) == 3 * ROUNDS
    assert all(one == held[0] or part == "scope" for one in held)
    if part == "scope":
        assert len({scope["client"] for scope in held}) == 2


async def test_scopes_of_requests_at_the_same_time_are_apart(native: Any) -> None:
    proceed = asyncio.Event()
    scopes: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes[scope["path"]] = scope
        if scope["path"] != "/quick":
            await proceed.wait()
        assert scopes[scope["path"]] is scope
        path = scope["path"].encode()
        del scopes[scope["path"]]
        await respond(path)(scope, receive, send)

    async with serve(native, app) as service:
        clients = [await service.connect() for _ in range(6)]
        for number, client in enumerate(clients):
            await client.send(request("GET", f"/{number}"))
            await wait_until(lambda number=number: f"/{number}" in scopes)  # type: ignore[misc]
            assert (await (await service.connect()).ask(request("GET", "/quick"))).body == b"/quick"
        proceed.set()
        for number, client in enumerate(clients):
            assert (await client.response()).body == b"/%d" % number


async def test_every_request_gets_its_own_facts(native: Any) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        keys = ("http_version", "method", "path", "raw_path", "query_string", "headers", "client")
        seen.append(tuple(copy.deepcopy(scope[key]) for key in keys))
        await respond()(scope, receive, send)

    def facts(client: Client, method: str, path: str, query: str, fields: list[tuple[bytes, bytes]]) -> Any:
        headers = [(b"host", b"test"), *fields]
        return "1.1", method, path, path.encode(), query.encode(), headers, client.sock.getsockname()

    async with serve(native, app) as service:
        clients = [await service.connect() for _ in range(3)]
        expected = []
        for turn in range(60):
            client = clients[turn * 7 % 3]
            method, path = ["GET", "DELETE"][turn // 3 % 2], ["/", "/a", "/b/c"][turn // 5 % 3]
            query = ["", "q=1", f"q={turn}"][turn // 4 % 3]
            fields = [[], [(b"accept", b"a")], [(b"accept", b"b")], [(b"x-turn", b"%d" % turn)]][turn // 2 % 4]
            lines = [f"{name.decode()}: {value.decode()}" for name, value in fields]
            if turn % 11 == 10:
                other = await service.connect()
                await other.send(GET_10)
                await other.rest()
                assert seen.pop()[0] == "1.0"
            target = f"{path}?{query}" if query else path
            await client.ask(request(method, target, *lines))
            expected.append(facts(client, method, path, query, fields))
        assert seen == expected


async def test_fields_that_come_again_are_those_that_were_sent(native: Any) -> None:
    """Lines that are alike in all but one byte, a letter's case or white space, on several connections."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(list(scope["headers"]))
        await respond()(scope, receive, send)

    names = ["accept", "Accept", "x-name", "X-Name", "x-nam", "cookie"]
    values = ["", "a", "b", "e: a", "session=1", "session=2", "s" * 400 + "1", "s" * 400 + "2", "s" * 600 + "1"]
    random = Random(7)
    async with serve(native, app) as service:
        clients = [await service.connect() for _ in range(3)]
        for turn in range(600):
            fields = [(random.choice(names), random.choice(values)) for _ in range(random.randrange(5))]
            space = random.choice(["", " ", "  "])
            lines = [f"{name}:{space}{value}{space}" for name, value in fields]
            await random.choice(clients).ask(request("GET", f"/{turn}", *lines))
            expected = [(name.lower().encode(), value.encode()) for name, value in fields]
            assert seen.pop() == [(b"host", b"test"), *expected]


async def test_a_field_that_comes_again_is_made_once(native: Any) -> None:
    """What else the request says does not matter."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["headers"])
        await respond()(scope, receive, send)

    async with serve(native, app) as service:
        for turn in range(4):
            client = await service.connect()
            await client.ask(request("GET", "/", "accept: text/plain", f"x-turn: {turn}", "accept: " + "long" * 200))
    assert [headers[1] is seen[-1][1] for headers in seen] == [False, True, True, True]
    assert not any(headers[place] is seen[-1][place] for headers in seen[:-1] for place in (2, 3))
    assert len({id(headers) for headers in seen}) == 4


@pytest.mark.parametrize("place", ["scope", "headers", "state", "context", "task"])
async def test_nothing_an_application_leaves_behind_is_kept_until_the_next_request(native: Any, place: str) -> None:
    left: list[weakref.ref[Kept]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        value = Kept()
        left.append(weakref.ref(value))
        if place == "scope":
            scope["kept"] = value
        elif place == "headers":
            scope["headers"].append(value)
        elif place == "state":
            scope["state"]["kept"] = value
        elif place == "context":
            variable.set(value)
        else:
            asyncio.current_task().kept = value  # type: ignore[union-attr]
        await respond()(scope, receive, send)

    async with serve(native, app, state=bare_state()) as service:
        client = await service.connect()
        for _ in range(ROUNDS):
            await client.ask()
            await wait_until(lambda: not service.state.tasks)
            if sys.version_info < (3, 12):
                gc.collect()
            assert [reference() for reference in left] == [None] * len(left)


@pytest.mark.parametrize("reset", [False, True], ids=["copied", "reset"])
async def test_variables_of_one_request_are_unknown_to_the_next(native: Any, reset: bool) -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(variable.get())
        if len(seen) % 3:
            token = variable.set(len(seen))
            if len(seen) % 2:
                variable.reset(token)
        await respond()(scope, receive, send)

    async with serve(native, app, state=bare_state(), reset_contextvars=reset) as service:
        await three_ways(service)
    assert seen == ["unset"] * 3 * ROUNDS


async def test_variables_of_the_server_are_known_to_each(native: Any) -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(variable.get())
        variable.set("of a request")
        await respond()(scope, receive, send)

    state = bare_state()
    async with serve(native, app, state=state) as service:
        client = await service.connect()
        await client.ask()
        # Even those that are set late.
        state.context.run(variable.set, "of the server")
        await client.ask()
        await three_ways(service)
    assert seen == ["unset", *["of the server"] * (1 + 3 * ROUNDS)]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a task does not tell its context")
async def test_context_that_somebody_holds_is_given_to_nobody_else(native: Any) -> None:
    held: list[contextvars.Context] = []
    watched: list[weakref.ref[contextvars.Context]] = []
    tokens: list[contextvars.Token[Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        number = len(held) + len(watched) + len(tokens)
        context = asyncio.current_task().get_context()  # type: ignore[union-attr]
        if number % 3 == 0:
            held.append(context)
        elif number % 3 == 1:
            watched.append(weakref.ref(context))
        else:
            token = variable.set(1)
            variable.reset(token)
            tokens.append(token)
        await respond()(scope, receive, send)

    async with serve(native, app, state=bare_state()) as service:
        await three_ways(service)
        del service
    assert len({id(context) for context in held}) == len(held) == ROUNDS
    assert all(len(context) == 0 for context in held)
    assert [reference() for reference in watched] == [None] * ROUNDS


async def test_each_request_runs_in_a_task_of_its_own(native: Any) -> None:
    held: list[asyncio.Task[Any]] = []
    watched: list[weakref.ref[asyncio.Task[Any]]] = []
    done: list[str] = []
    names: list[str] = []

    def note(name: str, ended: asyncio.Task[Any]) -> None:
        done.append(f"{name} {ended.get_name()}")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert not task.done()
        assert not hasattr(task, "mark")
        names.append(task.get_name())
        way = len(names) % 4
        if way == 0:
            held.append(task)
        elif way == 1:
            watched.append(weakref.ref(task))
        elif way == 2:
            task.add_done_callback(functools.partial(note, task.get_name()))
        else:
            task.mark = True  # type: ignore[attr-defined]
        await respond()(scope, receive, send)

    async with serve(native, app, state=bare_state()) as service:
        await three_ways(service)
        await wait_until(lambda: len(done) == ROUNDS - 1)
    gc.collect()
    assert len(set(names)) == 3 * ROUNDS
    assert len({id(task) for task in held}) == len(held)
    assert all(task.done() and task.result() is None for task in held)
    assert [reference() for reference in watched] == [None] * len(watched)
    assert all(line.split()[0] == line.split()[1] for line in done)


async def test_request_that_arrives_while_an_application_runs_has_scope_and_context_of_its_own(native: Any) -> None:
    """An application can feed another connection, so that a task starts inside another."""
    seen: list[Any] = []
    others: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        task = asyncio.current_task()
        before = dict(scope)
        seen.append((scope["path"], variable.get()))
        if scope["path"] == "/outer":
            variable.set("outer")
            others[0].data_received(request("GET", "/inner"))
        else:
            variable.set("inner")
        assert asyncio.current_task() is task
        assert scope == before
        if scope["path"] == "/outer":
            assert variable.get() == "outer"
        await respond(scope["path"].encode())(scope, receive, send)

    async with serve(native, app, state=bare_state()) as service:
        inner = await service.connect()
        await wait_until(lambda: len(service.state.connections) == 1)
        others.extend(service.state.connections)
        outer = await service.connect()
        for _ in range(ROUNDS):
            assert (await outer.ask(request("GET", "/outer"))).body == b"/outer"
            assert (await inner.response()).body == b"/inner"
        assert seen == [("/outer", "unset"), ("/inner", "unset")] * ROUNDS


@pytest.mark.parametrize("callable_", ["receive", "send"])
async def test_nothing_can_be_left_at_a_callable(native: Any, callable_: str) -> None:
    kept: list[weakref.ref[Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        changed = {"receive": receive, "send": send}[callable_]
        for name in ("__module__", "__name__", "mine"):
            with pytest.raises(AttributeError):
                setattr(changed, name, Kept())
        kept.append(weakref.ref(changed))
        await respond()(scope, receive, send)

    async with serve(native, app) as service:
        await three_ways(service)
        del service
    assert len(kept) == 3 * ROUNDS
    assert len({id(reference) for reference in kept}) == len(kept)


async def test_the_type_of_a_message_is_not_kept_if_something_may_hang_on_it(native: Any) -> None:
    class Type(str):
        __slots__ = ("__dict__", "__weakref__")

    left: list[weakref.ref[Type]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        start, body = Type("http.response.start"), Type("http.response.body")
        left.extend(map(weakref.ref, (start, body)))
        await send({"type": start, "status": 200})
        await send({"type": body, "body": b""})

    async with serve(native, app) as service:
        await three_ways(service)
    assert [reference() for reference in left] == [None] * 2 * 3 * ROUNDS


@pytest.mark.parametrize("base", [object, asyncio.Task], ids=["no task class", "task class"])
async def test_a_task_class_may_make_something_else(native: Any, base: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it makes is not initialised as a task then, as in any call of a class."""

    class Wrapper:
        """Not a task, but it has one."""

        def __init__(self, task: asyncio.Task[Any]) -> None:
            self.task = task

    class Substitute(base):  # type: ignore[misc]
        def __new__(cls, coroutine: Any, *, loop: Any, context: Any, eager_start: bool) -> Any:
            return Wrapper(loop.create_task(coroutine, context=context))

    monkeypatch.setattr(asyncio, "Task", Substitute)
    async with serve(native, respond()) as service:
        await three_ways(service)


async def test_what_is_poisoned_is_never_used_again(native: Any) -> None:
    poisoned = os.environ["UVICORN_POISON"] == "1"
    async with serve(native, respond()) as service:
        await three_ways(service)
        for pool, figures in service.state.protocol_settings.stats().items():
            assert figures["in_use"] == 0
            if poisoned:
                assert figures["reused"] == figures["idle"] == 0, pool
            elif pool == "buffers" and os.environ.get("UVICORN_SHORTCUTS") != "none":
                assert figures["reused"] > 0


async def test_a_cycle_of_references_through_what_was_lent_is_collected(native: Any) -> None:
    left: list[weakref.ref[Kept]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        value = Kept()
        left.append(weakref.ref(value))
        for place in ("state", "asgi"):
            scope[place]["kept"] = [value, scope, send, asyncio.current_task()]
        scope["headers"].append((value, send))
        await asyncio.sleep(0)
        await respond()(scope, receive, send)

    async with serve(native, app) as service:
        await three_ways(service)
        await turns(3)  # the callbacks of the last task, which no shortcut has run
        gc.collect()
        assert [reference() for reference in left] == [None] * 3 * ROUNDS
