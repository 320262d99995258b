"""The access log: what one record is, that the fast path prints what logging prints, and that changes are honoured."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import logging
import logging.config
import logging.handlers
import socket
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests import machines
from tests.doubles import MockLoop
from tests.protocols.harness import GET, request, respond, serve
from tests.utils import wait_until
from uvicorn.access import log
from uvicorn.access.log import AccessLog
from uvicorn.logging import LOGGING_CONFIG, AccessFormatter

pytestmark = pytest.mark.anyio

http_protocol_cls = machines.each

ACCESS = logging.getLogger("uvicorn.access")


class Stream(io.StringIO):
    """A stream that counts its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def configure(stream: Stream, use_colors: bool | None = None) -> logging.StreamHandler[Any]:
    """Apply the built-in configuration, with this stream for standard output; the handler of the access log.

    Not a fixture: pytest puts handlers of its own on the logger between a fixture and its test.
    """
    config = deepcopy(LOGGING_CONFIG)
    config["formatters"]["access"]["use_colors"] = use_colors
    logging.config.dictConfig(config)
    (handler,) = ACCESS.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    return handler


@pytest.fixture
def stream() -> Stream:
    return Stream()


def scope(path: str = "/", query: bytes = b"", client: Any = ("127.0.0.1", 5000), **more: Any) -> Any:
    return {
        "type": "http",
        "client": client,
        "method": "GET",
        "path": path,
        "query_string": query,
        "http_version": "1.1",
        **more,
    }


@pytest.fixture
def passed_to_logging(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The records that the logger gets: none while the fast path is in force."""
    calls: list[Any] = []
    original = log.arguments

    def arguments(*args: Any) -> Any:
        calls.append(args)
        return original(*args)

    monkeypatch.setattr(log, "arguments", arguments)
    return calls


async def written(access: AccessLog, stream: Stream, *records: Any) -> str:
    """What the stream got for these records by the next turn of the loop."""
    before = len(stream.getvalue())
    for record in records:
        access.record(*record)
    await asyncio.sleep(0)
    return stream.getvalue()[before:]


async def test_line_of_a_failing_request_stands_in_front_of_its_traceback(
    http_protocol_cls: Any, stream: Stream
) -> None:
    """ACC-02: the response has started."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    configure(stream)
    errors = logging.StreamHandler(stream)
    error_logger = logging.getLogger("uvicorn.error")
    error_logger.addHandler(errors)
    try:
        async with serve(http_protocol_cls, app, access_log=True) as service:
            await (await service.connect()).send(request("GET", "/failing"))
            await wait_until(lambda: "ZeroDivisionError" in stream.getvalue() and "/failing" in stream.getvalue())
    finally:
        error_logger.removeHandler(errors)
    text = stream.getvalue()
    assert text.index("/failing") < text.index("Exception in ASGI application")


# What a record is


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Callable[[], list[logging.LogRecord]]:
    """Access records, which go to logging's own handlers here."""
    caplog.set_level(logging.INFO, "uvicorn.access")
    return lambda: [record for record in caplog.records if record.name == "uvicorn.access"]


async def test_record_has_format_and_five_arguments(http_protocol_cls: Any, records: Any) -> None:
    """ACC-01, ACC-03, ACC-06"""
    async with serve(http_protocol_cls, respond(status=404), access_log=True) as service:
        client = await service.connect()
        await client.ask(request("GET", "/a%20b?c=%20d"))
        address = "{}:{}".format(*client.sock.getsockname())
    (record,) = records()
    assert record.levelno == logging.INFO
    assert record.msg == '%s - "%s %s HTTP/%s" %d'
    assert record.args == (address, "GET", "/a%20b?c=%20d", "1.1", 404)
    assert record.getMessage() == f'{address} - "GET /a%20b?c=%20d HTTP/1.1" 404'


async def test_record_is_made_when_the_response_starts(http_protocol_cls: Any, records: Any) -> None:
    """ACC-02: before its bytes are written."""
    proceed = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await proceed.wait()
        await send({"type": "http.response.body"})

    async with serve(http_protocol_cls, app, access_log=True) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(records)
        assert await client.silent()
        proceed.set()
        await client.response()
    assert len(records()) == 1


async def test_ipv6_client_is_shown_without_brackets(http_protocol_cls: Any, records: Any) -> None:
    """ACC-03, K11"""
    async with serve(http_protocol_cls, respond(), access_log=True, host="::1") as service:
        client = await service.connect()
        await client.ask()
        port = client.sock.getsockname()[1]
    assert records()[0].args[0] == f"::1:{port}"


async def test_client_is_the_one_behind_the_proxy(http_protocol_cls: Any, records: Any) -> None:
    """ACC-03: port 0 if the header has none."""
    async with serve(http_protocol_cls, respond(), access_log=True, proxy_headers=True) as service:
        await (await service.connect()).ask(request("GET", "/", "x-forwarded-for: 1.2.3.4"))
    assert records()[0].args[0] == "1.2.3.4:0"


async def test_missing_client_is_empty(http_protocol_cls: Any, records: Any, tmp_path: Path) -> None:
    """ACC-04, K11"""
    async with serve(http_protocol_cls, respond(), access_log=True, uds=str(tmp_path / "s")) as service:
        await (await service.connect()).ask()
    assert records()[0].getMessage() == ' - "GET / HTTP/1.1" 200'


@pytest.mark.parametrize(
    ("asked", "logged"),
    [
        pytest.param("GET /a;b=c", "GET /a%3Bb%3Dc", id="quoted-again"),
        pytest.param("OPTIONS *", "OPTIONS %2A", id="asterisk"),
        pytest.param("GET /%1b[31m", "GET /%1B%5B31m", id="L1-escape"),
        pytest.param("GET /%0d%0aX", "GET /%0D%0AX", id="L1-line-break"),
        pytest.param('GET /%22?a="b"', "GET /%22?a=%22b%22", id="L1-quotes"),
        pytest.param("GET /?a=%1b%0a", "GET /?a=%1b%0a", id="L1-query-as-sent"),
        pytest.param("GET /?", "GET /", id="ACC-06-empty-query"),
    ],
)
async def test_path_is_logged_so_that_it_cannot_write_lines(
    http_protocol_cls: Any, records: Any, asked: str, logged: str
) -> None:
    """ACC-05, ACC-06, L1"""
    async with serve(http_protocol_cls, respond(), access_log=True) as service:
        await (await service.connect()).ask(request(*asked.split(" ")))
    _, method, path, _, _ = records()[0].args
    assert f"{method} {path}" == logged


async def test_root_path_is_logged(http_protocol_cls: Any, records: Any) -> None:
    """ACC-07"""
    async with serve(http_protocol_cls, respond(), access_log=True, root_path="/root") as service:
        await (await service.connect()).ask(request("GET", "/a"))
    assert records()[0].args[2] == "/root/a"


async def test_servers_own_responses_are_logged_but_not_those_to_what_is_no_request(
    http_protocol_cls: Any, records: Any
) -> None:
    """ACC-08, ACC-09"""

    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError

    async with serve(http_protocol_cls, fail, access_log=True) as service:
        await (await service.connect()).ask()
        await (await service.connect()).ask(b"nonsense\r\n\r\n")
    async with serve(http_protocol_cls, fail, access_log=True, limit_concurrency=1) as service:
        await (await service.connect()).ask()
    assert [record.args[4] for record in records()] == [500, 503]


async def test_response_to_a_client_that_has_gone_is_not_logged(http_protocol_cls: Any, records: Any) -> None:
    """ACC-10"""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await receive()
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app, access_log=True) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: service.state.tasks)
        client.reset()
        await service.idle()
    assert records() == []


async def test_head_that_cannot_be_built_is_logged_as_what_was_sent(http_protocol_cls: Any, records: Any) -> None:
    """ACC-11: upstream logs the status of a response that never was."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"\n")]})

    async with serve(http_protocol_cls, app, access_log=True) as service:
        assert (await (await service.connect()).ask()).status == 500
    assert [record.args[4] for record in records()] == [500]


async def test_nothing_is_logged_if_it_is_switched_off(http_protocol_cls: Any, records: Any) -> None:
    """LOG-09"""
    async with serve(http_protocol_cls, respond(), access_log=False) as service:
        await (await service.connect()).ask()
    assert records() == []


def test_log_that_is_switched_off_is_none() -> None:
    class Settings:
        access_log = False
        access_log_format = None

    assert AccessLog.from_config(Settings(), MockLoop()) is None  # type: ignore[arg-type]
    Settings.access_log = True
    assert isinstance(AccessLog.from_config(Settings(), MockLoop()), AccessLog)  # type: ignore[arg-type]


# The fast path prints what logging prints


@pytest.mark.parametrize("use_colors", [False, True, None])
@pytest.mark.parametrize(
    "request_scope",
    [
        pytest.param(scope("/a b", b"c=%20"), id="path-and-query"),
        pytest.param(scope("/é\x1b[31m\n"), id="to-be-quoted"),
        pytest.param(scope(client=("::1", 65535)), id="ipv6"),
        pytest.param(scope(client=None), id="no-client"),
        pytest.param(scope(client=["10.0.0.1", 0]), id="client-list"),
        pytest.param(scope(client=("bücher.example", 0)), id="client-not-ascii"),
        pytest.param(scope(method="OPTIONS", http_version="1.0"), id="http-1.0"),
    ],
)
async def test_line_is_the_one_logging_writes(
    stream: Stream, use_colors: bool | None, request_scope: Any, subtests: pytest.Subtests
) -> None:
    """ACC-01, LOG-19, LOG-21, LOG-22: byte for byte."""
    configure(stream, use_colors)
    for status in (100, 200, 204, 299, 301, 404, 413, 418, 500, 599):
        with subtests.test(status=status):
            expected = await written(AccessLog(MockLoop()), stream, (request_scope, status))  # type: ignore[arg-type]
            assert await written(AccessLog(asyncio.get_running_loop()), stream, (request_scope, status)) == expected
            assert f"{status} " in expected


async def test_lines_of_one_turn_are_written_at_once_and_in_order(stream: Stream, passed_to_logging: list[Any]) -> None:
    configure(stream)
    access = AccessLog(asyncio.get_running_loop())
    for number in range(100):
        access.record(scope(f"/{number}"), 200)
    assert stream.writes == 0
    await asyncio.sleep(0)
    assert stream.writes == 1
    lines = stream.getvalue().splitlines()
    assert lines == [f'INFO:     127.0.0.1:5000 - "GET /{number} HTTP/1.1" 200 OK' for number in range(100)]
    access.record(scope("/later"), 200)
    await asyncio.sleep(0)
    assert stream.writes == 2
    assert passed_to_logging == []


async def test_clients_that_are_remembered_are_bounded(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """K4: a client for each request does not fill the memory."""
    configure(stream)
    monkeypatch.setattr("uvicorn.access.log.MAX_CLIENTS", 10)
    access = AccessLog(asyncio.get_running_loop())
    for port in range(100):
        access.record(scope(client=("1.2.3.4", port)), 200)
        assert len(access._begins) <= 10
    await asyncio.sleep(0)
    ports = [line.split(" ")[5].split(":")[1] for line in stream.getvalue().splitlines()]
    assert ports == [str(port) for port in range(100)]


async def test_served_requests_take_the_fast_path(
    http_protocol_cls: Any, stream: Stream, passed_to_logging: list[Any]
) -> None:
    configure(stream)
    async with serve(http_protocol_cls, respond(), access_log=True) as service:
        client = await service.connect()
        await client.send(GET * 10)
        for _ in range(10):
            await client.response()
        await wait_until(lambda: stream.getvalue().count("\n") == 10)
    if sys.version_info >= (3, 12):  # before, each of the tasks starts in a turn of its own
        assert stream.writes < 10
    assert passed_to_logging == []


class Witness(Stream):
    """A stream that asks, whenever it gets lines, which of the clients have an answer by then."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[Any] = []
        self.answered: list[int] = []

    def write(self, text: str) -> int:
        self.answered.append(sum(map(self.has_answer, self.clients)))
        return super().write(text)

    @staticmethod
    def has_answer(client: Any) -> bool:
        try:
            return bool(client.sock.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False


async def later(scope: Any, receive: Any, send: Any) -> None:
    """Begin the response in a turn of its own."""
    await asyncio.sleep(0)
    await respond()(scope, receive, send)


async def in_pieces(scope: Any, receive: Any, send: Any) -> None:
    """Send the head by itself."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "more_body": True})
    await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"ok"})


async def large(scope: Any, receive: Any, send: Any) -> None:
    """Send a body that is not copied."""
    await respond(b"x" * 300_000)(scope, receive, send)


with_uvloop = pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed")

BOTH_LOOPS = pytest.mark.parametrize(
    "anyio_backend",
    [
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop", marks=with_uvloop),
    ],
)


@BOTH_LOOPS
@pytest.mark.parametrize("log_format", [None, "%(h)s %(s)s"])
@pytest.mark.parametrize("app", [respond(), later, in_pieces, large], ids=["at-once", "later", "in-pieces", "large"])
async def test_who_has_an_answer_finds_its_line_written(
    http_protocol_cls: Any, app: Any, log_format: str | None
) -> None:
    """Also if it reads them in another thread, or another process."""
    stream = Witness()
    configure(stream)
    async with serve(http_protocol_cls, app, access_log=True, access_log_format=log_format) as service:
        client = await service.connect()
        stream.clients.append(client)
        for number in range(1, 4):
            assert (await client.ask()).status == 200
            assert stream.getvalue().count("\n") == number
    assert stream.answered == [0, 0, 0]


@BOTH_LOOPS
async def test_whoever_has_all_answers_of_a_turn_finds_all_its_lines_written() -> None:
    """Of the native core, which knows the last answer of a turn."""
    native = pytest.importorskip("uvicorn.protocols.http.native_impl", exc_type=ModuleNotFoundError)
    stream = Witness()
    configure(stream)
    async with serve(native.NativeProtocol, respond(), access_log=True) as service:
        if not sys.platform.startswith("linux"):
            pytest.skip("connections are not read in turns of ours")
        stream.clients = [await service.connect() for _ in range(5)]
        for client in stream.clients:
            await client.ask()
        stream.writes, stream.answered = 0, []
        for client in stream.clients:
            client.sock.send(GET * 2)
        for client in stream.clients:
            for _ in range(2):
                assert (await client.response()).status == 200
        # In one write, unless the turn was cut short.
        assert stream.writes <= 5
        if sys.version_info >= (3, 12):  # before, the applications start in turns of the loop
            assert stream.answered[-1] == 4
        assert stream.getvalue().count("\n") == 15


async def test_double_of_a_loop_switches_buffering_off(stream: Stream) -> None:
    configure(stream)
    access = AccessLog(MockLoop())  # type: ignore[arg-type]
    access.record(scope(), 200)
    assert stream.writes >= 1


# What the user changes is honoured from the next record on


class Upper(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).upper()


class NoRoot(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return isinstance(record.args, tuple) and record.args[2] != "/"


class Tagged(logging.LogRecord):
    def getMessage(self) -> str:
        return "tagged " + super().getMessage()


def own_handler(target: Stream) -> logging.Handler:
    made = logging.StreamHandler(target)
    made.setFormatter(logging.Formatter("own %(message)s"))
    return made


def add_handler(handler: Any, stream: Stream) -> None:
    ACCESS.addHandler(own_handler(stream))


def replace_handler(handler: Any, stream: Stream) -> None:
    ACCESS.removeHandler(handler)
    ACCESS.addHandler(own_handler(stream))


def change_formatter(handler: Any, stream: Stream) -> None:
    handler.setFormatter(Upper())


def filter_logger(handler: Any, stream: Stream) -> None:
    ACCESS.addFilter(NoRoot())


def filter_handler(handler: Any, stream: Stream) -> None:
    handler.addFilter(NoRoot())


def raise_level(handler: Any, stream: Stream) -> None:
    ACCESS.setLevel(logging.WARNING)


def raise_handler_level(handler: Any, stream: Stream) -> None:
    handler.setLevel(logging.WARNING)


def disable_logger(handler: Any, stream: Stream) -> None:
    ACCESS.disabled = True


def disable_logging(handler: Any, stream: Stream) -> None:
    logging.disable(logging.INFO)


def propagate(handler: Any, stream: Stream) -> None:
    ACCESS.propagate = True
    logging.getLogger("uvicorn").handlers[:] = [own_handler(stream)]


def change_record_factory(handler: Any, stream: Stream) -> None:
    logging.setLogRecordFactory(Tagged)
    handler.setFormatter(logging.Formatter())


def only_record_factory(handler: Any, stream: Stream) -> None:
    logging.setLogRecordFactory(Tagged)


def switch_colours(handler: Any, stream: Stream) -> None:
    handler.formatter.use_colors = not handler.formatter.use_colors


def change_terminator(handler: Any, stream: Stream) -> None:
    handler.terminator = "|\n"


def change_stream(handler: Any, stream: Stream) -> None:
    handler.setStream(UpperCase(stream))


class UpperCase(io.StringIO):
    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(text.upper())


def remove_handlers(handler: Any, stream: Stream) -> None:
    ACCESS.handlers.clear()


CHANGES = [
    add_handler,
    replace_handler,
    change_formatter,
    filter_logger,
    filter_handler,
    raise_level,
    raise_handler_level,
    disable_logger,
    disable_logging,
    propagate,
    change_record_factory,
    only_record_factory,
    switch_colours,
    change_terminator,
    change_stream,
    remove_handlers,
]


@pytest.fixture
def logging_switches_restored() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)
    logging.setLogRecordFactory(logging.LogRecord)


@pytest.mark.usefixtures("logging_switches_restored")
@pytest.mark.parametrize("change", CHANGES)
async def test_change_is_honoured_from_the_next_record_on(
    stream: Stream, change: Callable[[Any, Stream], None]
) -> None:
    """Adding or removing a handler, filter, formatter, level or factory: as if logging had been called throughout."""
    handler = configure(stream)
    access, reference = AccessLog(asyncio.get_running_loop()), AccessLog(MockLoop())  # type: ignore[arg-type]
    assert (await written(access, stream, (scope("/before"), 200))).startswith("INFO:     127.0.0.1:5000")
    change(handler, stream)
    asked = [(scope("/"), 200), (scope("/after"), 404)]
    assert await written(access, stream, *asked) == await written(reference, stream, *asked)


@pytest.mark.usefixtures("logging_switches_restored")
@pytest.mark.parametrize(
    ("do", "undo"),
    [
        pytest.param(
            lambda handler, other: ACCESS.addHandler(other),
            lambda handler, other: ACCESS.removeHandler(other),
            id="handler",
        ),
        pytest.param(
            lambda handler, other: logging.setLogRecordFactory(Tagged),
            lambda handler, other: logging.setLogRecordFactory(logging.LogRecord),
            id="factory",
        ),
        pytest.param(
            lambda handler, other: ACCESS.setLevel(logging.ERROR),
            lambda handler, other: ACCESS.setLevel(logging.INFO),
            id="level",
        ),
    ],
)
async def test_change_that_is_undone_gives_the_fast_path_back(
    stream: Stream, do: Any, undo: Any, passed_to_logging: list[Any]
) -> None:
    handler = configure(stream)
    access = AccessLog(asyncio.get_running_loop())
    other = own_handler(stream)
    do(handler, other)
    await written(access, stream, (scope(), 200))
    undo(handler, other)
    passed_to_logging.clear()
    assert await written(access, stream, (scope(), 200)) == 'INFO:     127.0.0.1:5000 - "GET / HTTP/1.1" 200 OK\n'
    assert passed_to_logging == []


async def test_lines_written_both_ways_stay_in_order(stream: Stream) -> None:
    """What is still buffered goes out before a record takes the other way."""
    configure(stream)
    access = AccessLog(asyncio.get_running_loop())
    expected = ""
    other = own_handler(Stream())
    for number in range(20):
        if number % 5 == 2:
            ACCESS.addHandler(other)
        elif number % 5 == 4:
            ACCESS.removeHandler(other)
        access.record(scope(f"/{number}"), 200)
        expected += f'INFO:     127.0.0.1:5000 - "GET /{number} HTTP/1.1" 200 OK\n'
    await asyncio.sleep(0)
    assert stream.getvalue() == expected


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda handler: ACCESS.handlers.clear(), id="no-handler"),
        pytest.param(lambda handler: ACCESS.addHandler(logging.NullHandler()), id="two-handlers"),
        pytest.param(lambda handler: handler.setFormatter(logging.Formatter("%(message)s")), id="other-formatter"),
        pytest.param(lambda handler: handler.setFormatter(AccessFormatter("%(message)s")), id="other-format"),
        pytest.param(
            lambda handler: handler.setFormatter(AccessFormatter(handler.formatter._fmt, "%H")), id="date-format"
        ),
        pytest.param(lambda handler: handler.setFormatter(None), id="no-formatter"),
        pytest.param(
            lambda handler: ACCESS.handlers.__setitem__(0, logging.handlers.MemoryHandler(1, target=handler)),
            id="other-handler",
        ),
    ],
)
async def test_logging_set_up_otherwise_is_called(stream: Stream, prepare: Any) -> None:
    """LOG-03, LOG-10, LOG-11: from the first record on."""
    handler = configure(stream)
    prepare(handler)
    access, reference = AccessLog(asyncio.get_running_loop()), AccessLog(MockLoop())  # type: ignore[arg-type]
    access.record(scope("/a"), 200)
    at_once = stream.getvalue()
    reference.record(scope("/a"), 200)
    assert stream.getvalue() == at_once * 2


# A log that fails


class Failing(Stream):
    def write(self, text: str) -> int:
        super().write(text)
        raise OSError("no space left on device")


async def test_stream_that_fails_does_not_break_a_response(
    http_protocol_cls: Any, stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    """As logging does, the failure is reported on standard error, once for what was written at once."""
    handler = configure(stream)
    handler.setStream(Failing())
    async with serve(http_protocol_cls, respond(), access_log=True) as service:
        client = await service.connect()
        assert (await client.ask()).body == b"ok"
        assert (await client.ask()).body == b"ok"
    error = capsys.readouterr().err
    assert error.count("--- Logging error ---") == 2
    assert "no space left on device" in error


async def test_client_name_the_stream_cannot_encode_costs_no_other_line(
    stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    """A forwarded address is any text: its line is lost, as with logging, and no other."""
    handler = configure(stream)
    raw = io.BytesIO()
    handler.setStream(io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    access = AccessLog(asyncio.get_running_loop())
    access.record(scope("/1"), 200)
    access.record(scope("/2", client=("bücher", 0)), 200)
    access.record(scope("/3"), 200)
    await asyncio.sleep(0)
    handler.flush()
    lines = raw.getvalue().decode("ascii").splitlines()
    assert [line.split('"')[1] for line in lines] == ["GET /1 HTTP/1.1", "GET /3 HTTP/1.1"]
    assert "--- Logging error ---" in capsys.readouterr().err


AT_ANY_TIME = ("info", "_log", "makeRecord", "handle", "callHandlers")
AT_START = ("isEnabledFor", "findCaller", "filter")


@pytest.mark.parametrize("owner", [logging.Logger, ACCESS], ids=["class", "logger"])
@pytest.mark.parametrize(
    ("name", "when"),
    [*((name, when) for name in AT_ANY_TIME for when in ("start", "later")), *((name, "start") for name in AT_START)],
)
async def test_method_that_an_agent_replaces_is_called(
    http_protocol_cls: Any, stream: Stream, owner: Any, name: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Monitoring agents replace methods in the class (`callHandlers`), or one of the logger `uvicorn.access`."""
    configure(stream)
    calls: list[str] = []
    original = getattr(owner, name)

    def replacement(*args: Any, **options: Any) -> Any:
        calls.append(name)
        return original(*args, **options)

    def replace() -> None:
        if owner is ACCESS:
            monkeypatch.setitem(vars(owner), name, replacement)
        else:
            monkeypatch.setattr(owner, name, replacement)

    if when == "start":
        replace()
    async with serve(http_protocol_cls, respond(), access_log=True) as service:
        client = await service.connect()
        await client.send(GET)
        await client.response()
        if when == "later":
            replace()
        calls.clear()
        await client.send(GET * 3)
        for _ in range(3):
            await client.response()
        await wait_until(lambda: stream.getvalue().count("\n") == 4)
    assert len(calls) >= 3


async def test_class_of_the_logger_that_changes_is_noticed(
    http_protocol_cls: Any, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Counting(logging.Logger):
        def info(self, *args: Any, **options: Any) -> None:
            calls.append("info")
            super().info(*args, **options)

    configure(stream)
    async with serve(http_protocol_cls, respond(), access_log=True) as service:
        client = await service.connect()
        monkeypatch.setattr(ACCESS, "__class__", Counting)
        await client.send(GET)
        await client.response()
    assert calls == ["info"]


async def test_logger_with_an_attribute_of_the_program_takes_the_fast_path(
    http_protocol_cls: Any, stream: Stream, passed_to_logging: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(stream)
    async with serve(http_protocol_cls, respond(), access_log=True) as service:
        client = await service.connect()
        monkeypatch.setitem(vars(ACCESS), "note", 1)
        await client.send(GET)
        await client.response()
        await wait_until(lambda: stream.getvalue().count("\n") == 1)
    assert passed_to_logging == []
