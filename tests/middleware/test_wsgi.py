"""WSGI applications: WSGI-* of tests/catalogue/behaviour.md, and PEP 3333."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import io
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import a2wsgi
import pytest

from tests.utils import turns, wait_until
from uvicorn.config import Config
from uvicorn.config.errors import SettingError
from uvicorn.middleware import wsgi
from uvicorn.middleware.wsgi import RequestLimit

pytestmark = pytest.mark.anyio

BUILT_IN_IS_DEPRECATED = "ignore:Uvicorn's native WSGI implementation:DeprecationWarning"

Application = Callable[[Any, Any], Iterable[bytes]]


def http_scope(**changes: Any) -> Any:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "client": ("192.0.2.1", 5),
        "server": ("192.0.2.80", 8000),
        **changes,
    }


def request(*chunks: bytes) -> list[Any]:
    """Return the messages of a request whose body arrives in these chunks."""
    last = len(chunks) - 1
    return [{"type": "http.request", "body": chunk, "more_body": n < last} for n, chunk in enumerate(chunks)]


async def call(app: Any, scope: Any, messages: list[Any]) -> list[Any]:
    """Call an ASGI application and return what it sent."""
    incoming = iter(messages)
    sent: list[Any] = []

    async def receive() -> Any:
        for message in incoming:
            return message
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await asyncio.wait_for(app(scope, receive, send), 20)
    return sent


def body_of(sent: list[Any]) -> bytes:
    return b"".join(message.get("body", b"") for message in sent)


def application(environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("content-type", "text/plain")])
    return [b"hello"]


def echo(environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [])
    return [environ["wsgi.input"].read()]


@pytest.fixture(
    params=[
        pytest.param("_WSGIMiddleware", id="built-in", marks=pytest.mark.filterwarnings(BUILT_IN_IS_DEPRECATED)),
        pytest.param("WSGIMiddleware", id="a2wsgi"),
    ]
)
def adapt(request: pytest.FixtureRequest) -> Iterator[Callable[[Application], Any]]:
    """Each adapter in turn, its threads joined at the end."""
    made: list[Any] = []

    def make(app: Application) -> Any:
        made.append(getattr(wsgi, request.param)(app))
        return made[-1]

    yield make
    for middleware in made:
        middleware.executor.shutdown(wait=True)


@pytest.fixture
async def built_in() -> AsyncIterator[Callable[[Application], Any]]:
    made: list[Any] = []

    def make(app: Application, **arguments: Any) -> Any:
        with pytest.deprecated_call(match="native WSGI implementation is deprecated"):
            made.append(wsgi._WSGIMiddleware(app, **arguments))
        return made[-1]

    yield make
    for middleware in made:
        middleware.executor.shutdown(wait=True)


# Both adapters


async def test_response_of_an_application(adapt: Any) -> None:
    sent = await call(adapt(application), http_scope(), request(b""))
    assert sent[0] == {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
    assert body_of(sent) == b"hello"
    assert not sent[-1].get("more_body", False)


async def test_request_body_in_pieces_is_one_stream(adapt: Any) -> None:
    """WSGI-05."""
    scope = http_scope(method="POST", headers=[(b"content-length", b"6")])
    assert body_of(await call(adapt(echo), scope, request(b"ab", b"", b"cdef"))) == b"abcdef"


async def test_exception_before_start_response_reaches_the_server(adapt: Any) -> None:
    """WSGI-11."""

    def failing(environ: Any, start_response: Any) -> Iterable[bytes]:
        raise ZeroDivisionError("of the application")

    with pytest.raises(ZeroDivisionError, match="of the application"):
        await call(adapt(failing), http_scope(), request(b""))


async def test_fields_with_underscores_do_not_reach_the_application(adapt: Any) -> None:
    """P4: otherwise anybody could send X_Forwarded_For behind the back of a proxy that sets X-Forwarded-For."""
    environs: list[Any] = []

    def looking(environ: Any, start_response: Any) -> Iterable[bytes]:
        environs.append(environ)
        return application(environ, start_response)

    headers = [(b"x-forwarded-for", b"192.0.2.1"), (b"x_forwarded_for", b"evil"), (b"content_length", b"9")]
    scope = http_scope(headers=headers)
    await call(adapt(looking), scope, request(b""))
    assert environs[0]["HTTP_X_FORWARDED_FOR"] == "192.0.2.1"
    assert "evil" not in str({key: value for key, value in environs[0].items() if key != "asgi.scope"})
    assert scope["headers"] == headers


async def test_iterable_is_closed_at_the_end(adapt: Any) -> None:
    """PEP 3333: ``close`` is where frameworks end their request."""
    assert await closed_after(adapt, [b"a", b"b"]) == ["closed"]


async def test_iterable_is_closed_after_an_exception(adapt: Any) -> None:
    closed: list[str] = []

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            yield b"a"
            raise ZeroDivisionError

        def close(self) -> None:
            closed.append("closed")

    def failing(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        return Body()

    with pytest.raises(ZeroDivisionError):
        await call(adapt(failing), http_scope(), request(b""))
    assert closed == ["closed"]


async def closed_after(adapt: Any, chunks: list[bytes]) -> list[str]:
    closed: list[str] = []

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            return iter(chunks)

        def close(self) -> None:
            closed.append("closed")

    def streaming(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        return Body()

    sent = await call(adapt(streaming), http_scope(), request(b""))
    assert body_of(sent) == b"".join(chunks)
    return closed


async def test_context_variables_reach_the_application(adapt: Any) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("of this request")

    def reading(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        return [variable.get().encode()]

    assert body_of(await call(adapt(reading), http_scope(), request(b""))) == b"of this request"


# Which adapter


async def test_a2wsgi_is_used_where_it_is_installed(recwarn: pytest.WarningsRecorder) -> None:
    """WSGI-01."""
    assert issubclass(wsgi.WSGIMiddleware, a2wsgi.WSGIMiddleware)
    wsgi.WSGIMiddleware(application).executor.shutdown()
    assert not recwarn.list


async def test_without_a2wsgi_the_built_in_adapter_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    """WSGI-01."""
    monkeypatch.setitem(sys.modules, "a2wsgi", None)
    monkeypatch.delitem(sys.modules, "uvicorn.middleware.wsgi")
    module = importlib.import_module("uvicorn.middleware.wsgi")
    monkeypatch.setattr("uvicorn.middleware.wsgi", wsgi)
    assert module.WSGIMiddleware is module._WSGIMiddleware
    with pytest.warns(DeprecationWarning, match=r"you should switch to a2wsgi \(`pip install a2wsgi`\)\.$"):
        module.WSGIMiddleware(application).executor.shutdown()


# The built-in adapter


@pytest.mark.parametrize("scope_type", ["lifespan", "websocket"])
async def test_scopes_other_than_http_are_refused(built_in: Any, scope_type: str) -> None:
    """WSGI-03: lifespan auto takes this for an application without lifespan."""
    with pytest.raises(AssertionError):
        await call(built_in(application), {"type": scope_type}, [])


async def test_application_runs_in_a_pool_of_ten_threads(built_in: Any) -> None:
    """WSGI-04: ten requests meet at a barrier, an eleventh finds no thread."""
    barrier = threading.Barrier(10)
    names: set[str] = set()

    def meeting(environ: Any, start_response: Any) -> Iterable[bytes]:
        names.add(threading.current_thread().name)
        barrier.wait(timeout=20)
        return application(environ, start_response)

    middleware = built_in(meeting)
    await asyncio.gather(*(call(middleware, http_scope(), request(b"")) for _ in range(20)))
    assert len(names) == 10
    assert all(name.startswith("WSGI") for name in names)


async def test_number_of_threads_can_be_given(built_in: Any) -> None:
    names: set[str] = set()

    def naming(environ: Any, start_response: Any) -> Iterable[bytes]:
        names.add(threading.current_thread().name)
        return application(environ, start_response)

    middleware = built_in(naming, workers=1)
    await asyncio.gather(*(call(middleware, http_scope(), request(b"")) for _ in range(5)))
    assert len(names) == 1


async def test_application_starts_when_the_body_is_complete(built_in: Any) -> None:
    """WSGI-05."""
    order: list[str] = []

    async def receive() -> Any:
        order.append("receive")
        return request(b"a", b"b")[len(order) - 1]

    async def send(message: Any) -> None:
        pass

    def noting(environ: Any, start_response: Any) -> Iterable[bytes]:
        assert isinstance(environ["wsgi.input"], io.BytesIO)
        order.append("application")
        return application(environ, start_response)

    await built_in(noting)(http_scope(), receive, send)
    assert order == ["receive", "receive", "application"]


async def test_request_that_breaks_off_does_not_reach_the_application(built_in: Any) -> None:
    """Upstream calls the application with the part of the body that came."""
    called: list[Any] = []

    def noting(environ: Any, start_response: Any) -> Iterable[bytes]:
        called.append(environ)
        return application(environ, start_response)

    messages = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"}]
    assert await call(built_in(noting), http_scope(), messages) == []
    assert called == []


def environ_of(**changes: Any) -> Any:
    return wsgi.build_environ(http_scope(**changes), request(b"")[0], io.BytesIO(b""))


def test_environ_of_a_request() -> None:
    """WSGI-06."""
    body = io.BytesIO(b"body")
    scope = http_scope(method="POST", path="/a b", query_string=b"q=%20", scheme="https")
    assert wsgi.build_environ(scope, request(b"")[0], body) == {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/a b",
        "QUERY_STRING": "q=%20",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_NAME": "192.0.2.80",
        "SERVER_PORT": 8000,
        "REMOTE_ADDR": "192.0.2.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https",
        "wsgi.input": body,
        "wsgi.errors": sys.stdout,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def test_environ_without_client_has_no_remote_address() -> None:
    """WSGI-06."""
    assert "REMOTE_ADDR" not in environ_of(client=None)


@pytest.mark.parametrize("changes", [{"server": None}, {"server": ()}], ids=["none", "empty"])
def test_environ_without_server_address(changes: Any) -> None:
    """WSGI-07."""
    environ = environ_of(**changes)
    assert (environ["SERVER_NAME"], environ["SERVER_PORT"]) == ("localhost", 80)


def test_environ_of_fields() -> None:
    """WSGI-08, WSGI-09."""
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", b"0"),
        (b"x-some-field", b"1"),
        (b"x-latin", b"caf\xe9"),
        (b"x-some-field", b"2"),
    ]
    environ = environ_of(headers=headers)
    assert environ["CONTENT_TYPE"] == "text/plain"
    assert environ["CONTENT_LENGTH"] == "0"
    assert environ["HTTP_X_SOME_FIELD"] == "1,2"
    assert environ["HTTP_X_LATIN"] == "caf\xe9"
    assert not {"HTTP_CONTENT_TYPE", "HTTP_CONTENT_LENGTH"} & environ.keys()


def test_many_lines_of_one_field_are_joined_in_one_pass() -> None:
    """D7."""
    assert environ_of(headers=[(b"x", b"y")] * 20_000)["HTTP_X"] == ",".join("y" * 20_000)


@pytest.mark.parametrize(
    "root_path, path, script_name, path_info",
    [
        pytest.param("", "/é", "", "/\xc3\xa9", id="utf-8-as-latin-1"),
        pytest.param("/文", "/文/all", "/\xe6\x96\x87", "/all", id="root-path-is-removed"),
        pytest.param("/api", "/other", "/api", "/other", id="root-path-is-not-there"),
        pytest.param("/api", "/api", "/api", "", id="root-path-alone"),
    ],
)
def test_environ_of_paths(root_path: str, path: str, script_name: str, path_info: str) -> None:
    """WSGI-10."""
    environ = environ_of(root_path=root_path, path=path)
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == (script_name, path_info)


def error_page(environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("x-kept", "no")])
    try:
        raise ZeroDivisionError("of the application")
    except ZeroDivisionError:
        start_response("500 Internal Server Error", [("content-type", "text/plain")], sys.exc_info())
    return [b"sorry"]


async def sent_until_error(middleware: Any, error: type[BaseException], **matching: Any) -> list[Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        return request(b"")[0]

    async def send(message: Any) -> None:
        sent.append(message)

    with pytest.raises(error, **matching):
        await asyncio.wait_for(middleware(http_scope(), receive, send), 20)
    return sent


async def test_error_page_is_sent_and_then_the_error_raised(built_in: Any) -> None:
    """WSGI-12; the head of the error page replaces the first one, which upstream sends."""
    sent = await sent_until_error(built_in(error_page), ZeroDivisionError, match="of the application")
    assert sent[0]["status"] == 500
    assert sent[0]["headers"] == [(b"content-type", b"text/plain")]
    assert body_of(sent) == b"sorry"
    assert sent[-1]["more_body"] is False


async def test_error_page_after_the_head_went_out_raises_at_once(built_in: Any) -> None:
    """WSGI-12, PEP 3333."""

    def late(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"begun"
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            start_response("500 Internal Server Error", [], sys.exc_info())
        raise AssertionError("not reached")

    sent = await sent_until_error(built_in(late), ZeroDivisionError)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


async def test_second_start_response_is_an_error(built_in: Any) -> None:
    def twice(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        start_response("201 Created", [])
        return []

    assert await sent_until_error(built_in(twice), AssertionError, match="called twice") == []


async def test_body_without_start_response_is_an_error(built_in: Any) -> None:
    """Upstream sends a body without a head."""

    def headless(environ: Any, start_response: Any) -> Iterable[bytes]:
        return [b"body"]

    assert await sent_until_error(built_in(headless), AssertionError, match="before it called start_response") == []


async def test_response_fields_are_latin_1(built_in: Any) -> None:
    """WSGI-13: upstream takes ASCII only, PEP 3333 latin-1."""

    def latin(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("x", "caf\xe9")])
        return []

    assert (await call(built_in(latin), http_scope(), request(b"")))[0]["headers"] == [(b"x", b"caf\xe9")]


async def test_write_callable(built_in: Any) -> None:
    """WSGI-13: upstream returns None, PEP 3333 asks for a callable."""

    def writing(environ: Any, start_response: Any) -> Iterable[bytes]:
        write = start_response("200 OK", [])
        write(b"a")
        write(b"b")
        return [b"c"]

    assert body_of(await call(built_in(writing), http_scope(), request(b""))) == b"abc"


async def test_body_is_sent_chunk_by_chunk(built_in: Any) -> None:
    """WSGI-14."""

    def streaming(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("204 No Content", [])
        yield b"a"
        yield b"b"

    assert await call(built_in(streaming), http_scope(), request(b"")) == [
        {"type": "http.response.start", "status": 204, "headers": []},
        {"type": "http.response.body", "body": b"a", "more_body": True},
        {"type": "http.response.body", "body": b"b", "more_body": True},
        {"type": "http.response.body", "body": b"", "more_body": False},
    ]


async def test_buffer_may_be_used_again_for_the_next_chunk(built_in: Any) -> None:
    """It waits on the queue while the application's thread goes on."""

    def reusing(environ: Any, start_response: Any) -> Iterator[Any]:
        start_response("200 OK", [])
        buffer = bytearray(1)
        for number in range(5):
            buffer[0] = number
            yield buffer

    assert body_of(await call(built_in(reusing), http_scope(), request(b""))) == bytes(range(5))


async def test_empty_body_still_sends_the_head(built_in: Any) -> None:
    """WSGI-14."""

    def empty(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("404 Not Found", [])
        return []

    sent = await call(built_in(empty), http_scope(), request(b""))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 404


async def test_stop_iteration_does_not_wait_for_ever(built_in: Any) -> None:
    def stopping(environ: Any, start_response: Any) -> Iterable[bytes]:
        raise StopIteration

    assert await sent_until_error(built_in(stopping), RuntimeError, match="StopIteration") == []


async def test_application_does_not_run_ahead_of_a_slow_client(built_in: Any) -> None:
    """The thread waits when it is some messages ahead, so a large response does not fill the memory."""
    produced = 0
    slow = asyncio.Event()

    def endless(environ: Any, start_response: Any) -> Iterator[bytes]:
        nonlocal produced
        start_response("200 OK", [])
        while True:
            produced += 1
            yield b"x"

    async def receive() -> Any:
        return request(b"")[0]

    async def send(message: Any) -> None:
        await slow.wait()

    async def queue_is_full() -> None:
        while produced < wsgi._QUEUE_SIZE:
            await asyncio.sleep(0.001)

    middleware = built_in(endless)
    task = asyncio.ensure_future(middleware(http_scope(), receive, send))
    await asyncio.wait_for(queue_is_full(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The generator's thread has been told: the pool is free again for another request.
    await asyncio.get_running_loop().run_in_executor(None, middleware.executor.shutdown)
    assert produced <= 2 * wsgi._QUEUE_SIZE


async def test_failing_connection_ends_the_application(built_in: Any) -> None:
    """An error of ``send`` is raised, and the thread stops at its next message and closes the iterable."""
    closed = threading.Event()

    def endless(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        try:
            while True:
                yield b"x"
        finally:
            closed.set()

    async def receive() -> Any:
        return request(b"")[0]

    async def send(message: Any) -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await built_in(endless)(http_scope(), receive, send)
    assert await asyncio.get_running_loop().run_in_executor(None, closed.wait, 20)


async def test_responder_can_be_used_by_itself() -> None:
    """The names of the module are public: WSGIResponder with an executor of one's own."""
    with ThreadPoolExecutor(1) as executor:
        responder = wsgi.WSGIResponder(application, executor, http_scope())
        sent: list[Any] = []

        async def receive() -> Any:
            return request(b"")[0]

        async def send(message: Any) -> None:
            sent.append(message)

        await responder(receive, send)
    assert body_of(sent) == b"hello"


class Held:
    """An application whose calls end when they are let go, one after the other."""

    def __init__(self) -> None:
        self.running: list[asyncio.Event] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        over = asyncio.Event()
        self.running.append(over)
        await over.wait()


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    raise ConnectionRefusedError


async def test_more_requests_than_places_wait_in_their_order() -> None:
    held = Held()
    places = RequestLimit(held, 1, None)
    calls = [asyncio.create_task(call(places, http_scope(), [])) for _ in range(3)]
    await turns()
    assert len(held.running) == 1
    calls[1].cancel()
    await turns()
    held.running[0].set()
    await wait_until(lambda: len(held.running) == 2)
    assert calls[0].done()
    assert not calls[2].done()
    held.running[1].set()
    await calls[2]
    assert calls[1].cancelled()


async def test_a_place_that_is_given_to_one_who_leaves_goes_to_the_next() -> None:
    held = Held()
    places = RequestLimit(held, 1, None)
    # Not by `call`, whose deadline is a task between theirs and the caller's before 3.12.
    calls = [asyncio.create_task(places(http_scope(), refuse, refuse)) for _ in range(3)]
    await turns()
    places._leave()  # the first has ended: its place is the second's, who does not know yet
    calls[1].cancel()
    await turns()
    assert len(held.running) == 2
    held.running[1].set()
    await calls[2]
    held.running[0].set()
    await calls[0]


async def test_a_request_without_a_place_can_be_refused_at_once() -> None:
    held = Held()
    places = RequestLimit(held, 1, refuse)
    first = asyncio.create_task(call(places, http_scope(), []))
    await turns()
    with pytest.raises(ConnectionRefusedError):
        await call(places, http_scope(), [])
    held.running[0].set()
    await first
    second = asyncio.create_task(call(places, http_scope(), []))
    await turns()
    held.running[1].set()
    await second


async def test_other_scopes_need_no_place() -> None:
    held = Held()
    lifespan = asyncio.create_task(call(RequestLimit(held, 0, refuse), {"type": "lifespan"}, []))
    await turns()
    held.running[0].set()
    await lifespan


@pytest.mark.parametrize("full, kind", [("refuse", 503), ("wait", 200)])
async def test_settings_say_how_many_threads_and_who_waits(full: Any, kind: int) -> None:
    """One thread, and nobody may wait for it."""
    go_on = threading.Event()

    def blocking(environ: Any, start_response: Any) -> Iterable[bytes]:
        assert go_on.wait(30)
        return application(environ, start_response)

    settings: Any = {"wsgi_threads": 1, "wsgi_queue": 0, "wsgi_queue_full": full}
    config = Config(blocking, interface="wsgi", log_config=None, proxy_headers=False, **settings)
    config.load()
    first, second = (asyncio.create_task(call(config.loaded_app, http_scope(), request(b""))) for _ in range(2))
    await turns()
    assert second.done() == (full == "refuse")
    go_on.set()
    messages = [*await first, *await second]
    assert [message["status"] for message in messages if "status" in message] == [200, kind]


@pytest.mark.parametrize(
    "settings",
    [
        {"wsgi_threads": 0},
        {"wsgi_threads": 1, "wsgi_threads_min": 2},
        {"wsgi_queue": -1},
        {"wsgi_queue_full": "maybe"},
    ],
)
def test_what_cannot_be_is_refused_by_name(settings: Any) -> None:
    name = next(iter(settings))
    with pytest.raises(SettingError, match=f"^({name} must be|Cannot use {name}=)"):
        Config(application, interface="wsgi", log_config=None, **settings)
