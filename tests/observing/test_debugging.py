"""What event loops are doing, for whoever asks: requests in flight, where they are, and what has blocked the loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process import APP_BEGINS, ServerProcess
from tests.protocols.harness import App, respond
from tests.protocols.websocket_tools import handshake
from tests.utils import is_listening, join_threads, open_connection, read_to_end, request, running_thread, wait_for
from uvicorn.config import Config
from uvicorn.metrics.page import Page
from uvicorn.middleware.in_flight import InFlight, InFlightMiddleware
from uvicorn.observing import debugging, exposition, stacks
from uvicorn.observing.debugging import LoopListing, OnSignal, RequestListing, listings_of, shown
from uvicorn.observing.exposition import Exposition, is_local
from uvicorn.server import Server
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.threaded import ThreadedServer
from uvicorn.supervisors.worker import make_server

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")
needs_contexts = pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks do not show their context")


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    """Each kind of event loop."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    return str(request.param)


Connect = Callable[..., socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens connections, which are closed in the end."""
    with contextlib.ExitStack() as stack:
        yield lambda address, payload: stack.enter_context(open_connection(address, payload))


@contextmanager
def serving(app: App, page: Page | None = None, **settings: Any) -> Iterator[tuple[Any, Any]]:
    """A server in a thread of its own that may count in a page, and its address."""
    quiet = {"log_config": None, "lifespan": "off", "debug_requests": True, "stall_threshold": 0}
    server = make_server(Config(app, **{**quiet, **settings}))
    if page is not None and isinstance(server, Server):
        server.metrics_page = page
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = sock.getsockname()
        with running_thread(server.run, [sock]):
            try:
                wait_for(lambda: server.started)
                yield server, address
            finally:
                if isinstance(server, Server):
                    server.should_exit = True
                else:
                    server.stop()


class Waiting:
    """An application that waits, far inside, until it is told to go on."""

    def __init__(self) -> None:
        self.loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await receive()
            return
        if scope["path"] != "/at-once":
            go_on = asyncio.Event()
            self.loops.append((asyncio.get_running_loop(), go_on))
            await self.outer(go_on)
        await respond()(scope, receive, send)

    async def outer(self, go_on: asyncio.Event) -> None:
        await self.inner(go_on)

    async def inner(self, go_on: asyncio.Event) -> None:
        await go_on.wait()

    def release(self) -> None:
        for loop, go_on in self.loops:
            loop.call_soon_threadsafe(go_on.set)


def ask(target: str = "/", *fields: str) -> bytes:
    return "\r\n".join([f"GET {target} HTTP/1.1", "host: test", "connection: close", *fields, "", ""]).encode("latin-1")


def wait_for_requests(server: Any, count: int) -> list[LoopListing]:
    """The listings, as soon as so many requests are in flight."""
    found: list[LoopListing] = []

    def there() -> bool:
        found[:] = listings_of(server.observers)
        return sum(listing["in_flight"] for listing in found) == count

    wait_for(there)
    return found


def only(listings: list[LoopListing]) -> RequestListing:
    (request,) = [request for listing in listings for request in listing["requests"]]
    return request


# Requests


def test_a_request_in_flight_is_listed_with_where_it_is(connect: Connect, http_protocol_cls: Any, loop: str) -> None:
    app = Waiting()
    with serving(app, http=http_protocol_cls, loop=loop, request_id=True) as (server, address):
        client = connect(address, ask("/some/where?token=secret", "cookie: secret"))
        listings = wait_for_requests(server, 1)
        found = only(listings)
        app.release()
        read_to_end(client)
        wait_for_requests(server, 0)
    assert (found["method"], found["path"], found["query"], found["type"]) == ("GET", "/some/where", None, "http")
    assert found["client"] == "{}:{}".format(*client.getsockname())
    assert found["age"] >= 0 and len(found["request_id"] or "") == 32
    names = [line.rpartition(" in ")[2] for line in found["stack"]]
    places = [name.rpartition(".")[2] for name in names]
    assert places.index("outer") < places.index("inner") < places.index("wait")
    assert "secret" not in shown(listings) + shown(listings, as_json=True)


def test_a_request_whose_scope_was_cleared_is_listed(connect: Connect, http_protocol_cls: Any) -> None:
    app = Waiting()

    async def clearing(scope: Any, receive: Any, send: Any) -> None:
        copy = dict(scope)
        scope.clear()
        await app(copy, receive, send)

    with serving(clearing, http=http_protocol_cls, stall_threshold=10, debug_requests_query=True) as (server, address):
        client = connect(address, ask("/some/where"))
        listings = wait_for_requests(server, 1)
        assert only(listings)["path"] == "" and "/some/where" not in shown(listings)
        app.release()
        read_to_end(client)


def test_its_query_is_shown_if_that_is_asked_for(connect: Connect) -> None:
    app = Waiting()
    with serving(app, debug_requests_query=True) as (server, address):
        connect(address, ask("/a?b=c%0a"))
        listings = wait_for_requests(server, 1)
        app.release()
    assert only(listings)["query"] == "b=c%0a" and "/a?b=c%0a" in shown(listings)


def test_a_websocket_is_listed(connect: Connect, ws_protocol_cls: Any) -> None:
    with serving(Waiting(), ws=ws_protocol_cls) as (server, address):
        client = connect(address, handshake(target="/ws"))
        listings = wait_for_requests(server, 1)
        client.close()
        wait_for_requests(server, 0)
    assert only(listings)["type"] == "websocket" and "WebSocket /ws" in shown(listings)


@needs_contexts
def test_tasks_that_a_request_has_started_are_listed_beside_it(connect: Connect) -> None:
    waiting = Waiting()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.create_task(waiting(scope, receive, send), name="of the request")

    with serving(app) as (server, address):
        connect(address, ask())
        wait_for(lambda: waiting.loops)
        found = only(wait_for_requests(server, 1))
        waiting.release()
        wait_for_requests(server, 0)
    (task,) = found["tasks"]
    assert task["task"].startswith("of the request (") and any(line.endswith("inner") for line in task["stack"])
    assert any("for of the request" in line for line in found["stack"])


def test_each_loop_of_a_process_is_listed(connect: Connect) -> None:
    app = Waiting()
    with serving(app, threads=2, loop="asyncio") as (server, address):
        assert isinstance(server, ThreadedServer)
        for _ in range(3):
            connect(address, ask())
        listings = wait_for_requests(server, 3)
        app.release()
    assert [listing["thread"] for listing in listings] == ["uvicorn-loop-1", "uvicorn-loop-2"]


def test_nothing_is_kept_of_a_request_that_is_over() -> None:
    held: list[Any] = []

    class Body:
        pass

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"]["held"] = body = Body()
        held.append(weakref.ref(body))
        # A task that goes on has the request's context.
        task = asyncio.create_task(asyncio.sleep(3600))
        background.append(task)
        await respond()(scope, receive, send)

    background: list[asyncio.Task[None]] = []
    with serving(app, loop="asyncio", http="h11") as (server, address):
        request(address)
        wait_for_requests(server, 0)
        wait_for(lambda: held[0]() is None)
        server.loop.call_soon_threadsafe(background[0].cancel)
        wait_for(lambda: background[0].done())


def test_a_client_cannot_forge_lines(connect: Connect) -> None:
    """L1"""
    app = Waiting()
    with serving(app, forwarded_allow_ips="*") as (server, address):
        connect(address, ask("/%0aProcess%201%1b[31m", "x-forwarded-for: a\xe9b"))
        listings = wait_for_requests(server, 1)
        app.release()
    text = shown(listings)
    assert text.isascii() and "\x1b" not in text and "/%0AProcess%201%1B%5B31m" in text
    assert len(text.splitlines()) == len(text.split("\n"))


def test_what_is_told_is_bounded(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5"""
    monkeypatch.setattr(debugging, "MOST_REQUESTS", 2)
    app = Waiting()

    async def deep(depth: int, scope: Any, receive: Any, send: Any) -> None:
        await (deep(depth - 1, scope, receive, send) if depth else app(scope, receive, send))

    async def outermost(scope: Any, receive: Any, send: Any) -> None:
        await deep(100, scope, receive, send)

    with serving(outermost) as (server, address):
        for _ in range(3):
            connect(address, ask("/" + "a" * 5000))
        (listing,) = wait_for_requests(server, 3)
        app.release()
    assert len(listing["requests"]) == 2 and "... 1 more" in shown([listing])
    for found in listing["requests"]:
        assert len(found["path"]) == debugging.MOST_TEXT
        assert len(found["stack"]) <= stacks.MOST_FRAMES + 2 and found["stack"][0].startswith("... ")
        assert any(line.endswith("inner") for line in found["stack"])


def function_in(line: str) -> str:
    """The name of a function, which stands there with its class from 3.11 on."""
    return line.split(" ")[-1].rpartition(".")[2]


def test_a_generator_and_a_future_can_be_awaited() -> None:
    def generator() -> Any:
        yield

    async def outer(awaited: Any) -> None:
        await awaited

    class Await:
        def __await__(self) -> Any:
            return generator()

    coroutine = outer(Await())
    coroutine.send(None)
    assert [function_in(line) for line in stacks.chain_of(coroutine)] == ["outer", "generator"]
    coroutine.close()
    assert stacks.chain_of(None) == []


def test_without_the_setting_nothing_is_noted() -> None:
    with serving(Waiting(), debug_requests=False) as (server, address):
        request(address, "/at-once")
        assert server.observers == [] and server.config.in_flight is None
        assert not isinstance(server.config.loaded_app, InFlightMiddleware)
        assert listings_of([]) == [] and shown([]) == ""


def test_an_application_that_fails_or_returns_something_is_as_without(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> Any:
        if scope["path"] == "/raise":
            raise OSError("told")
        return "something"

    with serving(app) as (server, address):
        for path in ("/raise", "/return"):
            assert b" 500 " in request(address, path)
        wait_for_requests(server, 0)
    assert "ASGI callable should return None, but returned 'something'" in caplog.text and "told" in caplog.text


@pytest.mark.anyio
async def test_the_lifespan_is_no_request() -> None:
    seen: list[int] = []
    in_flight = InFlight()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(len(in_flight))

    await InFlightMiddleware(app, in_flight)({"type": "lifespan"}, None, None)  # type: ignore[arg-type, typeddict-item]
    assert seen == [0]


# A loop that is blocked


class Blocking:
    """An application that blocks its event loop until it is told to go on."""

    def __init__(self) -> None:
        self.is_blocking = threading.Event()
        self.go_on = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/block":
            self.block()
        await respond()(scope, receive, send)

    def block(self) -> None:
        self.is_blocking.set()
        self.go_on.wait()


def test_a_loop_that_is_blocked_is_seen_from_outside(
    connect: Connect, http_protocol_cls: Any, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debugging, "PATIENCE", 0.01)
    app = Blocking()
    with serving(app, http=http_protocol_cls, loop=loop) as (server, address):
        client = connect(address, ask("/block"))
        app.is_blocking.wait()
        (listing,) = listings_of(server.observers)
        app.go_on.set()
        read_to_end(client)
    assert listing["overdue"] > 0 and only([listing])["path"] == "/block"
    names = [function_in(line) for line in listing["stack"]]
    assert "block" in names and "wait" in names
    assert "has not turned for" in shown([listing])


def test_a_closed_loop_is_told_of_without_waiting() -> None:
    with serving(Waiting()) as (server, _):
        observers = server.observers
    (listing,) = listings_of(observers)
    assert listing["requests"] == []


# Who may ask


@pytest.mark.parametrize(
    ("peer", "own", "is_here"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.8.9.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", False),
    ],
)
def test_only_this_machine_itself_is_told(peer: str, own: str, is_here: bool) -> None:
    """L4"""
    assert is_local(peer, own) is is_here


def told(address: tuple[str, int], target: str, *fields: str) -> tuple[int, str, str]:
    """Status, content type and body of an answer."""
    head = "\r\n".join([f"GET {target} HTTP/1.1", *fields, "", ""])
    with open_connection(address, head.encode()) as client:
        answer, _, body = read_to_end(client).partition(b"\r\n\r\n")
    kind = next(line for line in answer.decode().split("\r\n") if line.startswith("content-type: "))
    return int(answer.split(b" ")[1]), kind.partition(": ")[2], body.decode()


TOLD = re.compile(r"Requests in flight \(this machine only\) on http://(\S+):(\d+)/requests\?token=(\S+)")


@pytest.fixture
def token(exposed: Exposition, caplog: pytest.LogCaptureFixture) -> str:
    """What the log says, once `exposed` tells of requests."""
    with caplog.at_level("INFO", "uvicorn.error"):
        exposed.tell_requests(lambda as_json: json.dumps("told") if as_json else "told")
    found = TOLD.fullmatch(caplog.messages[-1])
    assert found is not None and (found[1], int(found[2])) == exposed.address
    return found[3]


def test_the_address_of_the_metrics_tells_nothing_of_requests_unless_that_is_set(exposed: Exposition) -> None:
    """L4"""
    assert [told(exposed.address, path)[0] for path in ("/requests", "/requests?token=", "/metrics")] == [404, 404, 200]


def test_requests_are_told_to_who_knows_the_token(exposed: Exposition, token: str) -> None:
    """L4"""
    assert told(exposed.address, f"/requests?token={token}") == (200, "text/plain; charset=utf-8", "told\n")
    assert told(exposed.address, f"/requests.json?token={token}") == (200, "application/json", '"told"\n')
    assert told(exposed.address, "/metrics")[2] == "some 1\n"


def test_list_that_takes_long_keeps_nobody_waiting(exposed: Exposition, caplog: pytest.LogCaptureFixture) -> None:
    """Event loops are asked for it, which may be blocked."""
    go = threading.Event()

    def listing(as_json: bool) -> str:
        assert go.wait(60)
        return "told"

    with caplog.at_level("INFO", "uvicorn.error"):
        exposed.tell_requests(listing)
    found = TOLD.fullmatch(caplog.messages[-1])
    assert found is not None
    target = f"/requests?token={found[3]}"
    with open_connection(exposed.address, ask(target)) as client:
        wait_for(lambda: exposed._telling)
        assert told(exposed.address, "/metrics")[2] == "some 1\n"
        assert told(exposed.address, target)[0] == 503
        go.set()
        assert read_to_end(client).endswith(b"told\n")
    assert told(exposed.address, target)[0] == 200


def test_requests_are_told_to_nobody_else(exposed: Exposition, token: str) -> None:
    """L4: a proxy on this machine that says nothing of itself looks as its operator does."""
    for query in (
        "",
        "?token",
        "?token=",
        "?token=%e9",
        "?token=\u00e9",
        "?%ff\u00e9",
        f"?token={token}x",
        f"?token={token[:-1]}",
        f"?{token}",
    ):
        assert told(exposed.address, f"/requests{query}", "host: 127.0.0.1:9100")[0] == 403
    assert told(exposed.address, f"/requests.json?token={token}&token=x")[0] == 403
    assert told(exposed.address, f"/requests?token={token}")[0] == 200, "nothing of that ends it"
    assert len(token) == 32


def test_a_fault_in_an_answer_leaves_the_others_theirs(
    exposed: Exposition, token: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(query: str) -> Any:
        raise ValueError("of the query")

    with monkeypatch.context() as failing:
        failing.setattr(exposition, "parse_qs", fail)
        with open_connection(exposed.address, ask(f"/requests?token={token}")) as client:
            assert read_to_end(client) == b""
    assert "of the query" in caplog.text
    assert told(exposed.address, f"/requests?token={token}")[0] == 200


@pytest.mark.parametrize("path", ["/requests", "/metrics"])
def test_a_head_that_is_not_whole_is_not_judged(exposed: Exposition, token: str, path: str) -> None:
    """L4"""
    filled = "a: " + "b" * exposition.LONGEST_HEAD
    assert told(exposed.address, f"{path}?token={token}", filled, "c: d" * 4096)[0] == 431
    with open_connection(exposed.address, f"GET {path}?token={token} HTTP/1.1\r\nhost: a\r\n".encode()) as client:
        client.shutdown(socket.SHUT_WR)
        assert read_to_end(client).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(("bound", "shown_as"), [("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "[::1]")])
def test_the_log_says_an_address_that_can_be_asked(bound: str, shown_as: str, caplog: pytest.LogCaptureFixture) -> None:
    try:
        page = Exposition(exposition.bind(bound), str)
    except OSError:
        pytest.skip("no IPv6 here")
    with caplog.at_level("INFO", "uvicorn.error"):
        page.tell_requests(lambda as_json: "")
    page.close()
    found = TOLD.fullmatch(caplog.messages[-1])
    assert found is not None and found[1] == shown_as


# Signals, and other processes

APP = (
    APP_BEGINS
    + """
    if scope["path"] != "/at-once":
        await waits(receive)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})

async def waits(receive):
    while (await receive())["type"] != "http.disconnect":
        pass
"""
)


@contextmanager
def process(directory: Path, *args: str) -> Iterator[ServerProcess]:
    (directory / "waiting.py").write_text(APP)
    with ServerProcess("waiting:app", "--port", "0", *args, cwd=directory) as server:
        yield server


@posix
@pytest.mark.measures_children
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_sigusr1_writes_the_list_to_the_log(connect: Connect, tmp_path: Path, loop: str) -> None:
    pytest.importorskip(loop)
    with process(tmp_path, "--debug-requests", "--loop", loop) as server:
        server.wait_for("Uvicorn running on")
        client = connect(server.address, ask("/here"))
        wait_for(lambda: _asked_until(server, "GET /here"))
        server.wait_for("in waits")
        client.close()
        assert server.stop() == -signal.SIGTERM


def requests_at(server: ServerProcess) -> Callable[[str], str]:
    """What asks for a page, with the token that the server has written to its log."""
    (found,) = server.wait_for_pattern(TOLD.pattern)
    return lambda path: told((found[1], int(found[2])), f"{path}?token={found[3]}")[2]


def _asked_until(server: ServerProcess, text: str) -> bool:
    """Ask once more, unless it was said."""
    if text not in server.error_output:
        server.send_signal(signal.SIGUSR1)
        time.sleep(0.05)
    return text in server.error_output


@posix
@pytest.mark.measures_children
def test_without_the_setting_sigusr1_ends_the_server_as_ever(tmp_path: Path) -> None:
    with process(tmp_path) as server:
        server.wait_for("Uvicorn running on")
        server.send_signal(signal.SIGUSR1)
        assert server.wait() == -signal.SIGUSR1


@posix
@pytest.mark.measures_children
def test_a_parent_asks_its_workers(connect: Connect, tmp_path: Path) -> None:
    with process(tmp_path, "--debug-requests", "--workers", "2", "--metrics", "127.0.0.1:0") as server:
        server.wait_for("Application startup complete", count=2)
        pids = server.pids()
        wait_for(lambda: is_listening(server.address))  # one of them does
        client = connect(server.address, ask("/here"))
        ask_for = requests_at(server)

        def listed() -> bool:
            loops = json.loads(ask_for("/requests.json"))["loops"]
            return sorted(one["pid"] for one in loops) == sorted(pids) and sum(one["in_flight"] for one in loops) == 1

        wait_for(listed)
        assert "GET /here" in ask_for("/requests")
        server.send_signal(signal.SIGUSR1)
        server.wait_for("GET /here")
        for pid in pids:
            server.wait_for(f"Process {pid}, MainThread")
        client.close()
        server.stop()


@posix
@pytest.mark.measures_children
def test_a_worker_that_does_not_answer_is_missing_in_the_list(tmp_path: Path) -> None:
    """L5: the line says why, what becomes of it, and which setting that is."""
    silent = ("--timeout-worker-healthcheck", "60")
    with process(tmp_path, "--debug-requests", "--workers", "2", *silent) as server:
        server.wait_for("Application startup complete", count=2)
        first, second = server.pids()
        for pid in (first, second):
            wait_for(lambda: _asked_until(server, f"Process {pid}, MainThread"))  # noqa: B023
        os.kill(first, signal.SIGSTOP)
        listed = server.error_output.count(f"Process {second}, MainThread")
        server.send_signal(signal.SIGUSR1)
        server.wait_for(
            f"WARNING:  Child process [{first}] did not list its requests within 2 seconds: it is stopped, or code in "
            "C keeps its interpreter locked. The list goes without them; the parent kills the process if it stays "
            "silent (timeout_worker_healthcheck).\n"
        )
        server.wait_for(f"Process {second}, MainThread", count=listed + 1)
        os.kill(first, signal.SIGCONT)
        server.stop()


@posix
@pytest.mark.measures_children
def test_a_process_of_several_loops_takes_the_signal(connect: Connect, tmp_path: Path) -> None:
    with process(tmp_path, "--debug-requests", "--threads", "2", "--metrics", "127.0.0.1:0") as server:
        server.wait_for("Started server process", count=2)
        ask_for = requests_at(server)
        client = connect(server.address, ask("/here"))
        expected = ("GET /here", "uvicorn-loop-1", "uvicorn-loop-2")
        wait_for(lambda: all(text in ask_for("/requests") for text in expected))
        server.send_signal(signal.SIGUSR1)
        server.wait_for("GET /here")
        for name in ("uvicorn-loop-1", "uvicorn-loop-2"):
            server.wait_for(f"{name}: ")
        client.close()
        server.stop()


@posix
def test_a_handler_of_somebody_elses_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(*_: Any) -> None: ...

    previous = signal.signal(signal.SIGUSR1, theirs)
    try:
        on_signal = OnSignal(list)
        on_signal.start()
        assert signal.getsignal(signal.SIGUSR1) is theirs
        on_signal.stop()
        assert signal.getsignal(signal.SIGUSR1) is theirs
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        on_signal.start()
        taken: Any = signal.getsignal(signal.SIGUSR1)
        done = threading.Event()
        monkeypatch.setattr(debugging, "write", lambda listings: done.set())
        taken(signal.SIGUSR1, None)
        assert done.wait(30)
        on_signal.stop()
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGUSR1, previous)


@posix
def test_a_parent_writes_one_list_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """L5"""
    supervisor = Multiprocess(Config("app:app", workers=2, debug_requests=True, log_config=None), [])
    begun: list[bool] = []
    go_on = threading.Event()

    def text(as_json: bool) -> str:
        begun.append(as_json)
        go_on.wait()
        return "told"

    monkeypatch.setattr(supervisor, "requests_text", text)
    for _ in range(5):
        supervisor.handle_usr1()
    writers = [thread for thread in threading.enumerate() if thread.name == "uvicorn-requests"]
    go_on.set()
    join_threads("uvicorn-requests")
    assert len(writers) == len(begun) == 1
    supervisor.handle_usr1()
    join_threads("uvicorn-requests")
    assert begun == [False, False]


def test_in_another_thread_no_signal_is_taken() -> None:
    before = signal.getsignal(signal.SIGTERM)
    on_signal = OnSignal(list)
    with running_thread(on_signal.start):
        pass
    on_signal.stop()
    assert signal.getsignal(signal.SIGTERM) is before and not on_signal._has_handler
