"""When the messages of an application take effect, and in which order."""

from __future__ import annotations

import asyncio
import collections.abc
import functools
import gc
import inspect
import sys
import warnings
import weakref
from collections import UserDict
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from tests import loops, machines
from tests.protocols.harness import GET, PATIENCE, Response, request, respond, serve
from tests.utils import Mapping, turns, wait_until

pytestmark = pytest.mark.anyio

START: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
BODY: dict[str, Any] = {"type": "http.response.body", "body": b"ok"}
LARGE = bytes(20_000_000)
"""More than a client that does not read has room for."""


anyio_backend = loops.one
http_protocol_cls = machines.each


@pytest.fixture(autouse=True)
def applications_are_content(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What an application in here finds wrong must not be lost in the log."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call")] == []


def run_now(coroutine: Any) -> None:
    """Take the only step of a coroutine that does not have to wait."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


# A send() inside of a send(): whatever the application's objects do while they are looked at.


class Reentrant:
    """An iterable that sends messages of its own before it gives its items."""

    def __init__(self, send: Any, messages: Any, items: Any) -> None:
        self.send = send
        self.messages = messages
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        for message in self.messages:
            run_now(self.send(message))
        yield from self.items


def refused(type_: str) -> str:
    return f"Unexpected ASGI message '{type_}' sent, after response already completed."


@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "later"])
@pytest.mark.parametrize("where", ["list", "pair"])
async def test_response_sent_while_the_headers_of_another_are_read_comes_first_and_alone(
    http_protocol_cls: Any, where: str, waits: bool
) -> None:
    """Three requests in one piece: what their responses are made of must not change their order."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/2":
            await respond(scope["path"].encode())(scope, receive, send)
            return
        if waits:  # so that the next request could be begun in the middle of this one's head
            await asyncio.sleep(0)
        inner = [{**START, "status": 201}, {**BODY, "body": b"in"}]
        if where == "list":
            headers: Any = Reentrant(send, inner, START["headers"])
        else:
            headers = [Reentrant(send, inner, (b"content-length", b"2"))]
        with pytest.raises(RuntimeError, match=refused("http.response.start")):
            await send({**START, "headers": headers})
        with pytest.raises(RuntimeError, match=refused("http.response.body")):
            await send(BODY)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(b"".join(request("GET", f"/{number}") for number in (1, 2, 3)))
        responses = [await client.response() for _ in range(3)]
        assert [(response.status, response.body) for response in responses] == [
            (200, b"/1"),
            (201, b"in"),
            (200, b"/3"),
        ]
        assert (await client.ask(request("GET", "/4"))).body == b"/4"


async def test_start_inside_of_a_start_is_the_one_that_counts(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = Reentrant(send, [{**START, "status": 201}], [(b"content-length", b"9")])
        with pytest.raises(RuntimeError, match=r"Expected ASGI message 'http.response.body'"):
            await send({**START, "headers": headers})
        await send(BODY)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for _ in range(2):
            response = await client.ask()
            assert (response.status, response.headers, response.body) == (201, [(b"content-length", b"2")], b"ok")


@pytest.mark.parametrize("kind", ["early_hint", "trailers"])
async def test_response_completed_while_a_message_is_read_is_not_added_to(http_protocol_cls: Any, kind: str) -> None:
    """Not to it, nor to the next."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/next":
            await respond(b"next")(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": kind == "trailers"})
        if kind == "trailers":
            await send(BODY)
            last = {"type": "http.response.trailers"}
            wrong = {"type": "http.response.trailers", "headers": Reentrant(send, [last], [(b"a", b"b")])}
        else:
            wrong = {"type": "http.response.early_hint", "links": Reentrant(send, [BODY], [b"</a>"])}
        with pytest.raises(RuntimeError, match=refused(wrong["type"])):
            await send(wrong)

    async with serve(http_protocol_cls, app, asgi_extensions="all") as service:
        client = await service.connect()
        await client.send(request("GET", "/", "te: trailers") + request("GET", "/next"))
        assert await client.until(b"next") == (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
            b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnext"
        )
        assert (await client.ask(GET)).status == 200


class Sends:
    """A value that sends messages of its own while it is looked at: as a buffer, as a truth."""

    def __init__(self, send: Any, messages: Any, value: Any) -> None:
        self.send = send
        self.messages = messages
        self.value = value

    def look(self) -> Any:
        messages, self.messages = self.messages, []
        for message in messages:
            run_now(self.send(message))
        return self.value

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.look())

    def __bool__(self) -> bool:
        return bool(self.look())


buffers_in_python = pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no __buffer__ before 3.12")


@pytest.mark.parametrize("field", [pytest.param("body", marks=buffers_in_python), "more_body"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "later"])
async def test_body_completed_while_a_piece_of_it_is_read_is_not_added_to(
    http_protocol_cls: Any, field: str, framing: str, waits: bool
) -> None:
    """Nor is the next, which may have begun."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/next":
            await send({**START, "headers": [(b"content-length", b"4")]})
            await asyncio.sleep(0)
            await send({**BODY, "body": b"next"})
            return
        if waits:
            await asyncio.sleep(0)
        await send(START if framing == "length" else {**START, "headers": []})
        value = Sends(send, [BODY], b"no" if field == "body" else True)
        with pytest.raises(RuntimeError, match=refused("http.response.body")):
            await send({**BODY, field: value})

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET + request("GET", "/next"))
        assert (await client.response()).body == b"ok"
        assert (await client.response()).body == b"next"
        assert (await client.ask(request("GET", "/next"))).body == b"next"


@buffers_in_python
async def test_piece_sent_while_another_is_read_comes_first(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({**START, "headers": [(b"content-length", b"4")]})
        inner = {**BODY, "body": b"in", "more_body": True}
        await send({**BODY, "body": Sends(send, [inner], b"ok")})

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for _ in range(2):
            assert (await client.ask()).body == b"inok"


# A call of receive() or send() is a coroutine: nothing happens before it is awaited.


def serving(app: Any) -> Any:
    """`app`, and an answer with its path to each further request."""

    async def both(scope: Any, receive: Any, send: Any) -> None:
        await (app if scope["path"] == "/" else respond(scope["path"].encode()))(scope, receive, send)

    return both


async def ask(http_protocol_cls: Any, app: Any) -> Response:
    """The response of `app`, on a connection that goes on to serve."""
    async with serve(http_protocol_cls, serving(app)) as service:
        client = await service.connect()
        response = await client.ask()
        assert (await client.ask(request("GET", "/next"))).body == b"/next"
        await wait_until(lambda: not service.state.tasks)
        return response


async def test_messages_may_be_awaited_in_another_order_than_they_were_made(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        last, first = send(BODY), send(START)
        await first
        await last

    assert (await ask(http_protocol_cls, app)).body == b"ok"


async def test_messages_can_be_gathered(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        results = await asyncio.gather(
            receive(), send(START), send({**BODY, "more_body": True}), send({**BODY, "body": b""})
        )
        assert list(results) == [{"type": "http.request", "body": b"", "more_body": False}, None, None, None]

    assert (await ask(http_protocol_cls, app)).body == b"ok"


async def test_message_in_a_task_is_sent_by_the_task(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        last = asyncio.create_task(send(BODY))
        await send(START)
        await last
        assert last.result() is None

    assert (await ask(http_protocol_cls, app)).body == b"ok"


async def test_message_whose_task_is_cancelled_before_it_starts_is_not_sent(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        task = asyncio.create_task(send({**START, "status": 500}))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await send(START)
        await send(BODY)

    assert (await ask(http_protocol_cls, app)).status == 200


@pytest.mark.parametrize(
    "wrap", [asyncio.shield, lambda call: asyncio.wait_for(call, PATIENCE)], ids=["shield", "wait_for"]
)
async def test_call_can_be_wrapped(http_protocol_cls: Any, wrap: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await wrap(receive()))["type"] == "http.request"
        await wrap(send(START))
        await wrap(send(BODY))

    assert (await ask(http_protocol_cls, app)).body == b"ok"


async def test_message_says_what_it_says_when_it_is_awaited(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = dict(START)
        call = send(message)
        message["status"] = 201
        await call
        await send(BODY)

    assert (await ask(http_protocol_cls, app)).status == 201


@pytest.mark.parametrize(
    ("message", "error"),
    [
        pytest.param({}, KeyError("type"), id="empty"),
        pytest.param({"type": "http.response.start"}, KeyError("status"), id="incomplete"),
        pytest.param(None, TypeError("'NoneType' object is not subscriptable"), id="none"),
        pytest.param(5, TypeError("'int' object is not subscriptable"), id="number"),
        pytest.param(
            {"type": "x"},
            RuntimeError("Expected ASGI message 'http.response.start', but got 'x'."),
            id="out of order",
        ),
    ],
)
async def test_wrong_message_is_refused_when_it_is_awaited(
    http_protocol_cls: Any, message: Any, error: Exception
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        call = send(message)
        with pytest.raises(type(error)) as raised:
            await call
        assert repr(raised.value) == repr(error)
        await send(START)
        await send(BODY)

    assert (await ask(http_protocol_cls, app)).body == b"ok"


class Shifted(dict[str, Any]):
    """A dict whose own keys are others than those it answers to."""

    def __init__(self, **items: Any) -> None:
        super().__init__({key[::-1]: value for key, value in items.items()})

    def __getitem__(self, key: str) -> Any:
        if key[::-1] not in self:
            raise KeyError(key)
        return super().__getitem__(key[::-1])

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key[::-1], default)


class Completed(dict[str, Any]):
    """A dict that makes up a status, and nothing else, where it has none."""

    def __missing__(self, key: str) -> Any:
        if key != "status":
            raise KeyError(key)
        return 200


class Strict(Mapping):
    """A message that may be asked for its own keys and no others."""

    KEYS: ClassVar = {"http.response.start": {"headers", "trailers"}, "http.response.body": {"body", "more_body"}}

    def get(self, key: str, default: Any = None) -> Any:
        assert key in self.KEYS[self["type"]]
        return super().get(key, default)


MAPPINGS: list[Any] = [dict, Mapping, Shifted, Strict, UserDict, lambda **items: MappingProxyType(items)]


@pytest.mark.parametrize("mapping", MAPPINGS)
async def test_message_may_be_any_mapping(http_protocol_cls: Any, mapping: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(KeyError, match="status"):
            await send(mapping(type="http.response.start"))
        with pytest.raises(TypeError):
            await send(mapping(type="http.response.start", status=200, headers=None))
        await send(mapping(**START))
        await send(mapping(**BODY, more_body=True))
        await send(mapping(type="http.response.body", body=None, more_body=None))

    assert (await ask(http_protocol_cls, app)).body == b"ok"


async def test_required_key_may_be_made_up(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(Completed(type="http.response.start", headers=START["headers"]))
        await send(Completed(BODY))

    assert (await ask(http_protocol_cls, app)).body == b"ok"


@pytest.mark.parametrize("mapping", MAPPINGS)
async def test_message_that_waits_may_be_any_mapping(http_protocol_cls: Any, mapping: Any) -> None:
    stalled = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(mapping(type="http.response.start", status=200))
        await send(mapping(type="http.response.body", body=LARGE, more_body=True))
        messages = [mapping(type="http.response.body", body=bytearray(b"ok"), more_body=True), mapping(**BODY)]
        sending = [asyncio.ensure_future(send(message)) for message in messages]
        await turns()
        assert not any(one.done() for one in sending)
        stalled.set()
        await asyncio.gather(*sending)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=4096)
        await client.send(GET)
        await asyncio.wait_for(stalled.wait(), PATIENCE)
        assert (await client.response()).body == LARGE + b"okok"
        await wait_until(lambda: not service.state.tasks)


@pytest.mark.parametrize("waiting", [False, True])
async def test_what_a_message_does_not_need_is_not_looked_at(http_protocol_cls: Any, waiting: bool) -> None:
    """Also where it is copied, because it has to wait behind a response that the client has not read."""
    asked = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/large":
            await respond(LARGE)(scope, receive, send)
            return
        unknown = asyncio.ensure_future(send({"type": "x", "body": "x", "bytes": 5}))
        await turns()
        assert unknown.done() is not waiting
        asked.set()
        with pytest.raises(RuntimeError, match="but got 'x'"):
            await unknown
        await send({**START, "body": "x", "bytes": 5})
        await send({**BODY, "headers": [5], "text": b"x"})

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=4096)
        await client.send((request("GET", "/large") if waiting else b"") + GET)
        await asyncio.wait_for(asked.wait(), PATIENCE)
        if waiting:
            assert (await client.response()).body == LARGE
        assert (await client.response()).body == b"ok"


async def test_stop_iteration_thrown_into_a_call_ends_its_wait_and_no_more(http_protocol_cls: Any) -> None:
    """As where a coroutine awaits a future: what it gives then is looked for again."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        call = receive()
        assert asyncio.isfuture(call.send(None))
        assert asyncio.isfuture(call.throw(StopIteration()))
        call.close()
        await send(START)
        await send(BODY)

    assert (await ask(http_protocol_cls, app)).body == b"ok"


class Stops(Mapping):
    """A message whose own code raises what ends a coroutine."""

    def get(self, key: str, default: Any = None) -> Any:
        raise StopIteration


async def test_stop_iteration_of_a_message_is_an_error(http_protocol_cls: Any) -> None:
    """PEP 479: it does not end the call as if it had succeeded."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(RuntimeError, match="coroutine raised StopIteration") as raised:
            await send(Stops(**START))
        assert isinstance(raised.value.__cause__, StopIteration)
        await send(START)
        await send(BODY)

    assert (await ask(http_protocol_cls, app)).body == b"ok"


@pytest.mark.parametrize("function", ["receive", "send"])
async def test_call_that_is_over_cannot_be_awaited_again(http_protocol_cls: Any, function: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls = [receive(), receive(), receive()] if function == "receive" else [send(START), send(START), send(START)]
        done, closed, thrown = calls
        await done
        closed.close()
        closed.close()
        with pytest.raises(ValueError, match="mine"):
            thrown.throw(ValueError("mine"))
        for call in calls:
            with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
                await call
            with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
                call.throw(ValueError)
            call.close()
        if function == "receive":
            await send(START)
        await send(BODY)

    assert (await ask(http_protocol_cls, app)).body == b"ok"


@pytest.mark.parametrize("function", ["receive", "send"])
async def test_call_starts_with_none(http_protocol_cls: Any, function: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        call = receive() if function == "receive" else send(START)
        with pytest.raises(TypeError, match="can't send non-None value to a just-started coroutine"):
            call.send(1)
        await call
        if function == "receive":
            await send(START)
        await send(BODY)

    assert (await ask(http_protocol_cls, app)).body == b"ok"


async def test_call_is_awaited_by_one_alone(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        call = receive()
        waiting = asyncio.ensure_future(call)
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="coroutine is being awaited already"):
            await call
        await send(START)
        await send(BODY)
        assert await waiting == {"type": "http.disconnect"}

    assert (await ask(http_protocol_cls, app)).body == b"ok"


@pytest.mark.parametrize("function", ["receive", "send"])
async def test_call_that_nobody_awaits_does_nothing_and_is_warned_of(http_protocol_cls: Any, function: str) -> None:
    """Whoever forgets an `await` must be told, and not be served by one implementation alone."""
    text = f"coroutine 'RequestResponseCycle.{function}' was never awaited"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with pytest.warns(RuntimeWarning, match=text):
            receive() if function == "receive" else send({**START, "status": 500})
        # What is on its way is not lost over it.
        with pytest.raises(ValueError, match="mine"), pytest.warns(RuntimeWarning, match=text):
            raise_with(receive() if function == "receive" else send(START))
        assert (await receive())["type"] == "http.request"
        await send(START)
        await send(BODY)

    assert (await ask(http_protocol_cls, app)).body == b"ok"


def raise_with(forgotten: Any) -> None:
    """Raise with a local variable that dies of it."""
    try:
        raise ValueError("mine")
    finally:
        del forgotten


async def test_calls_look_like_coroutines(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for name, call in [("receive", receive()), ("send", send(START))]:
            assert (call.__name__, call.__qualname__) == (name, f"RequestResponseCycle.{name}")
            assert repr(call).startswith(f"<coroutine object RequestResponseCycle.{name} at 0x")
            assert asyncio.iscoroutine(call)
            assert isinstance(call, collections.abc.Coroutine)
            assert inspect.isawaitable(call)
            call.close()
        await send(START)
        await send(BODY)

    assert (await ask(http_protocol_cls, app)).body == b"ok"


async def test_calls_are_made_anywhere_and_run_where_they_are_awaited(http_protocol_cls: Any) -> None:
    """`run_coroutine_threadsafe(send(...), loop)` makes the call in a thread that is not the loop's."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        loop = asyncio.get_running_loop()

        def work() -> None:
            for call in (receive(), send(START), send(BODY)):
                asyncio.run_coroutine_threadsafe(call, loop).result(PATIENCE)

        await loop.run_in_executor(None, work)

    assert (await ask(http_protocol_cls, app)).body == b"ok"


# After the end.

DISCONNECT = {"type": "http.disconnect"}


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("when", ["at once", "later"])
async def test_receive_after_the_response_tells_of_the_end(http_protocol_cls: Any, reads: bool, when: str) -> None:
    """BODY-04: at once, also when the application has not read the body; in the application's turn and behind it."""
    seen: list[Any] = []
    told = asyncio.Event()
    background: list[asyncio.Task[None]] = []

    async def afterwards(receive: Any, send: Any) -> None:
        if when == "later":
            await told.wait()
        seen.extend([await receive(), await receive(), *await asyncio.gather(receive(), receive())])
        with pytest.raises(RuntimeError, match=refused("http.response.body")):
            await send(BODY)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if reads:
            await receive()
        await respond()(scope, receive, send)
        if when == "at once":
            await afterwards(receive, send)
        else:
            background.append(asyncio.create_task(afterwards(receive, send)))

    async with serve(http_protocol_cls, serving(app)) as service:
        client = await service.connect()
        assert (await client.ask()).body == b"ok"
        # What served this one must not be seen by the first.
        assert (await client.ask(request("GET", "/next"))).body == b"/next"
        await wait_until(lambda: not service.state.tasks)
        told.set()
        await asyncio.gather(*background)
        assert (await client.ask(request("GET", "/last"))).body == b"/last"
    assert seen == [DISCONNECT] * 4


@pytest.mark.parametrize("how", ["returned", "raised", "refused"])
async def test_after_a_failure_receive_tells_of_the_end(
    http_protocol_cls: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What the application did not read of the request is not delivered any more; what it sends is too late."""
    background: list[asyncio.Task[None]] = []
    told = asyncio.Event()

    async def afterwards(receive: Any, send: Any) -> None:
        await told.wait()
        assert [await receive(), await receive()] == [DISCONNECT] * 2
        if how == "returned":
            await send(START)
            await send({"type": "nonsense"})
        else:
            for message in (START, BODY):
                with pytest.raises(RuntimeError, match=refused(message["type"])):  # type: ignore[arg-type]
                    await send(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        background.append(asyncio.create_task(afterwards(receive, send)))
        if how == "returned":
            await send(START)
        if how == "raised":
            raise RuntimeError

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        assert (await client.rest())[:12] == (b"" if how == "returned" else b"HTTP/1.1 500")
        await wait_until(lambda: not service.state.tasks)
        told.set()
        await asyncio.gather(*background)
    assert len(caplog.records) == 1
    caplog.clear()


# The two callables.


async def test_callables_are_known_for_coroutine_functions(http_protocol_cls: Any) -> None:
    """By tools that treat functions in one way and coroutine functions in another, such as `asgiref.sync`."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for function in (receive, send):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # in 3.14
                assert asyncio.iscoroutinefunction(function)
            if sys.version_info >= (3, 12):  # before, it knows those alone that are written in Python
                assert inspect.iscoroutinefunction(function)
        assert (receive.__name__, receive.__qualname__) == ("receive", "RequestResponseCycle.receive")
        assert (send.__name__, send.__qualname__) == ("send", "RequestResponseCycle.send")
        assert send.__self__ is receive.__self__
        assert send.__self__.scope is scope
        assert repr(send).startswith("<bound method RequestResponseCycle.send of <")
        assert weakref.ref(send)() == send
        assert len({receive, send, receive, send}) == 2
        await send(message=START)
        await send.__call__(BODY)

    assert (await ask(http_protocol_cls, app)).body == b"ok"


async def test_callables_take_just_their_arguments(http_protocol_cls: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls: list[Callable[[], Any]] = [
            lambda: receive(1),
            lambda: receive(message=1),
            lambda: send(),
            lambda: send(1, 2),
            lambda: send(1, message=2),
            lambda: send(other=2),
            lambda: send(message=1, other=2),
        ]
        for call in calls:
            with pytest.raises(TypeError):
                call()
        await send(*[START])
        await functools.partial(send, BODY)()

    assert (await ask(http_protocol_cls, app)).body == b"ok"


async def test_a_kept_callable_keeps_no_task(http_protocol_cls: Any) -> None:
    """Once the call is over, what is left of it in an application's hands does not hold the task that it ran in."""
    tasks: list[weakref.ref[Any]] = []
    kept: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        tasks.append(weakref.ref(asyncio.current_task()))
        kept.extend([receive, send])
        await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: bool(tasks))
        await wait_until(lambda: not service.state.tasks)
        gc.collect()
        assert len(kept) == 2 and tasks[0]() is None
