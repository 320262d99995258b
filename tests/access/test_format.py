"""The access log in a format of the user's: what each atom is, when lines are written, that nothing can be forged."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import logging.handlers
import os
import pickle
import queue
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import machines
from tests.access.test_log import ACCESS, CHANGES, Stream, Witness, configure
from tests.doubles import MockLoop
from tests.protocols.harness import GET, GET_10, HEAD, App, request, respond, serve
from tests.protocols.websocket_tools import handshake
from tests.utils import wait_until
from uvicorn.access.format import (
    ATOMS,
    Facts,
    LineFormat,
    Part,
    escape,
    escape_word,
    is_request_id,
    needs_end,
    parse_format,
    quote_json,
    request_ids,
    stamps,
    user_of,
)
from uvicorn.access.log import Entry, FormattedLog
from uvicorn.config import Config
from uvicorn.config.errors import report_error
from uvicorn.logging import ACCESS_FORMAT, AccessFormatter

pytestmark = pytest.mark.anyio

ws_protocol_cls = machines.each_websocket

http_protocol_cls = machines.each

COMBINED = '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%({referer}i)s" "%({user-agent}i)s" %(D)s'

KEYS = [
    "time",
    "request_id",
    "client",
    "client_port",
    "scheme",
    "method",
    "path",
    "query",
    "http_version",
    "status",
    "bytes",
    "duration",
    "referer",
    "user_agent",
]


@pytest.fixture
def stream() -> Stream:
    return Stream()


def facts(**more: Any) -> Facts:
    scope = {
        "type": "http",
        "scheme": "http",
        "client": ("127.0.0.1", 5000),
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "http_version": "1.1",
        "headers": [],
    }
    given = {name: more.pop(name) for name in ("millis", "status", "head", "sent", "micros") if name in more}
    return Facts({**scope, **more}, **{"millis": 784111777123, "status": 200, **given})


def line(text: str, **more: Any) -> str:
    return LineFormat(text).render(facts(**more))


# The grammar


def test_literals_are_joined_and_constants_are_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD", 'a\n"é')
    assert parse_format("é%%%(l)s %(p)s %({POD}e)s %({NO_SUCH_VARIABLE}e)s|%(h)s") == (
        Part("literal", f"é%- <{os.getpid()}> a%0A%22%C3%A9 -|"),
        Part("text", "h"),
    )


def test_names_of_headers_are_in_lower_case_and_two_of_them_have_atoms() -> None:
    assert parse_format("%(f)s%(a)s%({X-Y}i)s%({ETag}o)s") == (
        Part("text", "i", "referer"),
        Part("text", "i", "user-agent"),
        Part("text", "i", "x-y"),
        Part("text", "o", "etag"),
    )


@pytest.mark.parametrize("atom", sorted(ATOMS))
def test_every_atom_has_a_value(atom: str) -> None:
    assert line(f"%({atom})s", query_string=b"a")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("%(z)s", r"unknown atom %\(z\)s; there are %\(B\)s", id="atom"),
        pytest.param("%(port)s", r"unknown atom %\(port\)s", id="atom-of-json"),
        pytest.param("%(i)s", r"unknown atom %\(i\)s", id="header-without-name"),
        pytest.param("%({a b}i)s", r"unknown atom %\({a b}i\)s", id="no-header-name"),
        pytest.param("%({}e)s", r"unknown atom %\({}e\)s", id="no-variable"),
        pytest.param("%({x}z)s", r"unknown atom %\({x}z\)s", id="kind"),
        pytest.param("%d", "'%d' is not an atom", id="conversion"),
        pytest.param("%(D)d", r"'%\(D\)d' is not an atom", id="conversion-of-an-atom"),
        pytest.param("%(h)10s", r"'%\(h\)10s' is not an atom", id="width"),
        pytest.param("100%", "'%' is not an atom", id="percent"),
        pytest.param("%(h", r"'%\(h' is not an atom", id="open"),
        pytest.param("%(h)s\n%(s)s", "a line break", id="line-break"),
        pytest.param("%(h)s\x1b[31m", "control character", id="escape"),
        pytest.param("", "it is empty", id="empty"),
    ],
)
def test_bad_format_is_refused_when_the_server_is_configured(
    text: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        Config(respond(), log_config=None, access_log_format=text)
    assert report_error(caught.value)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"Cannot use access_log_format={text!r}: ")


def test_format_is_checked_even_if_nothing_is_logged() -> None:
    with pytest.raises(ValueError, match="is not an atom"):
        Config(respond(), log_config=None, access_log=False, access_log_format="%d")


@pytest.mark.parametrize("text", ["%(B)s", "%(b)s", "%(T)s", "%(D)s", "%(M)s", "%(L)s", "%({x}o)s", "json", COMBINED])
def test_formats_that_wait_for_the_end(text: str) -> None:
    assert needs_end(parse_format(text))


def test_formats_that_do_not_wait_for_the_end() -> None:
    text = "%(h)s%(l)s%(u)s%(t)s%(r)s%(m)s%(U)s%(q)s%(H)s%(s)s%(f)s%(a)s%(p)s%({x}i)s%({x}e)s%(request_id)s B b %%"
    assert not needs_end(parse_format(text))


# Values


def test_time_is_that_of_apache_with_english_months_and_the_local_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform == "win32":
        pytest.skip("the zone of a process cannot be changed")

    def in_zone(name: str) -> str:
        monkeypatch.setenv("TZ", name)
        time.tzset()
        stamps.cache_clear()
        return line("%(t)s")

    try:
        assert in_zone("UTC") == "[06/Nov/1994:08:49:37 +0000]"
        assert in_zone("XXX+3:30") == "[06/Nov/1994:05:19:37 -0330]"
        assert in_zone("XXX-5:45") == "[06/Nov/1994:14:34:37 +0545]"
        assert json.loads(line("json"))["time"] == "1994-11-06T08:49:37.123Z"
    finally:
        monkeypatch.undo()
        time.tzset()
        stamps.cache_clear()


@pytest.mark.parametrize(
    ("micros", "shown"),
    [(0, "0 0 0 0.000000"), (999, "0 0 999 0.000999"), (1_234_567, "1 1234 1234567 1.234567")],
)
def test_duration_in_four_units(micros: int, shown: str) -> None:
    assert line("%(T)s %(M)s %(D)s %(L)s", micros=micros) == shown


@pytest.mark.parametrize(
    ("field", "user"),
    [
        ("Basic " + base64.b64encode(b"ann:secret").decode(), "ann"),
        ("basic  " + base64.b64encode(b"ann:").decode() + " ", "ann"),
        ("Basic " + base64.b64encode("bücher:x".encode()).decode(), "bücher"),
        ("Basic " + base64.b64encode(b":x").decode(), None),
        ("Basic " + base64.b64encode(b"ann").decode(), None),
        ("Basic !!!!", None),
        ("Basic é", None),
        ("Basic", None),
        ("Bearer abc", None),
        ("", None),
    ],
)
def test_user_is_that_of_basic_credentials(field: str, user: str | None) -> None:
    assert user_of(field) == user


@pytest.mark.parametrize("given", ["a", "A-z_0.9:/+=@", "x" * 128])
def test_request_id_of_the_client_is_taken_over_if_it_is_valid(given: str) -> None:
    assert line("%(request_id)s", headers=[(b"x-request-id", given.encode())]) == given


@pytest.mark.parametrize(
    "values", [[], [b""], [b"a b"], [b'a"b'], [b"a,b"], [b"\xc3\xa9"], [b"x" * 129], [b"a\tb"], [b"a", b"a"]]
)
def test_request_id_is_made_otherwise(values: list[bytes]) -> None:
    compiled = LineFormat("%(request_id)s %(request_id)s")
    headers = [(b"x-request-id", value) for value in values]
    first, second = (compiled.render(facts(headers=headers)).split() for _ in range(2))
    assert first[0] == first[1] != second[0] == second[1]
    assert re.fullmatch("[0-9a-f]{32}", first[0])
    assert is_request_id(first[0])


def test_request_ids_count_behind_a_random_prefix() -> None:
    one, other = request_ids(), request_ids()
    assert next(one)[:16] != next(other)[:16]
    assert [next(one)[16:], next(one)[16:]] == [f"{2:016x}", f"{3:016x}"]


# Nothing can be forged


def test_text_is_percent_encoded_as_bytes() -> None:
    """L1"""
    assert escape('a b"c\\d\r\n\x1b[31m\x7f\x00é\U0001f600') == "a b%22c%5Cd%0D%0A%1B[31m%7F%00%C3%A9%F0%9F%98%80"
    assert escape(b"\xff\xc3(".decode("utf-8", "surrogateescape")) == "%FF%C3("
    assert escape("\ud800") == "%ED%A0%80"
    assert escape_word("a b\t") == "a%20b%09"


def test_json_strings_are_ascii_without_control_characters() -> None:
    """L1"""
    assert quote_json('a"b\\\n\x7f\x9bé\U0001f600') == r'"a\"b\\\n\u007f\u009b\u00e9\ud83d\ude00"'
    assert quote_json(b"\xff\xc3(".decode("utf-8", "surrogateescape")) == '"%FF%C3("'


def random_values(count: int) -> Iterator[bytes]:
    """Field values as clients may send them: visible characters, tabs inside, any byte from 0x80 on, UTF-8 or not."""
    source = random.Random(1)
    pieces = ['"', "\\", " ", "\t", "%", "é", "\u20ac", "\U0001f600", "\x9b", "{", "ab"]
    strange = [b"\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xff\xfe", b"\xf0\x9f\x98"]
    choices = [piece.encode() for piece in pieces] + strange
    for _ in range(count):
        yield b"x" + b"".join(source.choices(choices, k=source.randrange(12))) + b"x"


HOSTILE = [b'"', b'" 200 0 "', b"\\", b'\\"', b"\x1b[31m".replace(b"\x1b", b"\xc2\x9b"), b"a\xe2\x80\xa8b", b"%(h)s%s%"]


def hostile_requests() -> list[bytes]:
    values = [value.decode("latin-1") for value in (*HOSTILE, *random_values(150))]
    fields = [
        request("GET", "/%1b[31m?" + '"\\%0a', f"referer: {value}", f"user-agent: {value}", f"x-request-id: {value}")
        for value in values
    ]
    credentials = base64.b64encode(b'a "\\\n\xff:b').decode()
    return [
        *fields,
        request("OPTIONS", "*"),
        request("GET", "/é?é".encode().decode("latin-1").replace("Ã", "%C3").replace("©", "%A9")),
        request("GET", "/", f"authorization: Basic {credentials}"),
        request("GET", "/", "user-agent: a", "user-agent: ", "user-agent: b", "referer:"),
    ]


async def served(
    protocol: Any, stream: Stream, text: str, *data: bytes, app: App | None = None, **settings: Any
) -> list[str]:
    """The lines for these requests, sent on one connection one after the other."""
    begin = len(stream.getvalue())
    asked = {"access_log": True, "access_log_format": text, **settings}
    async with serve(protocol, app or respond(), **asked) as service:
        client = await service.connect()
        for piece in data:
            await client.ask(piece, "HEAD" if piece.startswith(b"HEAD") else "GET")
        await wait_until(lambda: stream.getvalue().count("\n", begin) >= len(data))
    return stream.getvalue()[begin:].splitlines()


async def test_hostile_requests_have_one_line_each_whose_quotes_hold(http_protocol_cls: Any, stream: Stream) -> None:
    """L1"""
    configure(stream)
    requests = hostile_requests()
    lines = await served(http_protocol_cls, stream, COMBINED, *requests)
    assert len(lines) == len(requests)
    form = re.compile(r'127\.0\.0\.1 - \S+ \[[^\]"]+\] "[^"\\]+" 200 2 "[^"\\]*" "[^"\\]*" \d+')
    for text in lines:
        assert form.fullmatch(text), text
        assert re.fullmatch("[ -~]+", text)


async def test_hostile_requests_have_one_json_object_each(http_protocol_cls: Any, stream: Stream) -> None:
    """L1"""
    configure(stream)
    lines = await served(http_protocol_cls, stream, "json", *hostile_requests())
    values = [*HOSTILE, *random_values(150)]
    assert len(lines) == len(values) + 4
    for text, value in zip(lines, values, strict=False):
        assert re.fullmatch("[ -~]+", text)
        shown = value.decode("utf-8", "surrogateescape")
        shown = re.sub("[\udc80-\udcff]", lambda match: f"%{ord(match[0]) - 0xDC00:02X}", shown)
        entry = json.loads(text)
        assert entry["user_agent"] == entry["referer"] == shown
        assert entry["path"] == "/%1B%5B31m"
        assert entry["query"] == '"\\%0a'


EVERYTHING_BUT_TIMES = (
    '%(h)s %(l)s %(u)s %(p)s "%(r)s" %(m)s %(U)s %(q)s %(H)s %(s)s %(B)s %(b)s "%(f)s" "%(a)s" '
    '"%({x-request-id}i)s" "%({Content-Length}o)s" "%({nothing}o)s" "%({nothing}i)s" %({HOME}e)s 100%%'
)


@pytest.mark.parametrize("text", [EVERYTHING_BUT_TIMES, "json"], ids=["text", "json"])
async def test_every_way_writes_the_same_bytes(http_protocol_cls: Any, stream: Stream, text: str) -> None:
    """Formatted by the implementation, and by the logger, which any filter brings in: they cannot be told apart."""
    configure(stream)
    requests = hostile_requests()

    def comparable(lines: list[str]) -> list[str]:
        times = r'"(time|duration|client_port)": [^,]+|"request_id": "[0-9a-f]{32}"'
        return [re.sub(times, "", text) for text in lines]

    fast = comparable(await served(http_protocol_cls, stream, text, *requests))
    ACCESS.addFilter(lambda record: True)
    slow = comparable(await served(http_protocol_cls, stream, text, *requests))
    ACCESS.filters.clear()
    assert fast == slow
    assert len(fast) == len(requests)


@pytest.mark.parametrize("text", [COMBINED, "json"], ids=["combined", "json"])
async def test_native_core_formats_common_lines_by_itself(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    from uvicorn.protocols.http.native_impl import NativeProtocol

    configure(stream)
    monkeypatch.setattr(LineFormat, "render", lambda *_: pytest.fail("formatted in Python"))
    asked = request("GET", "/a?b", "user-agent: é", "referer: x")
    assert len(await served(NativeProtocol, stream, text, asked, asked)) == 2


# What is logged


async def test_combined_format(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    fields = (
        "referer: https://a/",
        "user-agent: Tester/1.0 (x)",
        "authorization: Basic " + base64.b64encode(b"u:p").decode(),
    )
    (text,) = await served(http_protocol_cls, stream, COMBINED, request("GET", "/a%20b?c=%20d", *fields))
    match = re.fullmatch(
        r'127\.0\.0\.1 - u (\[.*\]) "GET /a%20b\?c=%20d HTTP/1\.1" 200 2 "https://a/" "Tester/1\.0 \(x\)" (\d+)', text
    )
    assert match
    assert match[1] in {stamps(int(time.time()) - ago)[0] for ago in range(60)}
    assert int(match[2]) < 60_000_000


async def test_json_has_its_keys_in_order(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    before = time.time()
    asked = request("GET", "/a%20b?c=d", "user-agent: T", "x-request-id: r-1")
    (text,) = await served(http_protocol_cls, stream, "json", asked, app=respond(b"12345", 404))
    entry = json.loads(text)
    assert list(entry) == KEYS
    written = time.mktime(time.strptime(entry.pop("time")[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    assert before - 2 < written < time.time() + 2
    assert 0 <= entry.pop("duration") < 60
    assert isinstance(entry.pop("client_port"), int)
    assert entry == {
        "request_id": "r-1",
        "client": "127.0.0.1",
        "scheme": "http",
        "method": "GET",
        "path": "/a%20b",
        "query": "c=d",
        "http_version": "1.1",
        "status": 404,
        "bytes": 5,
        "referer": None,
        "user_agent": "T",
    }


@pytest.mark.parametrize(
    ("asked", "app", "shown"),
    [
        pytest.param(GET, respond(b"12345"), "GET HTTP/1.1 200 5 5 5", id="length"),
        pytest.param(GET, respond(b"12345", headers=[]), "GET HTTP/1.1 200 5 5 -", id="chunked"),
        pytest.param(GET_10, respond(b"12345", headers=[]), "GET HTTP/1.0 200 5 5 -", id="close"),
        pytest.param(HEAD, respond(b"12345"), "HEAD HTTP/1.1 200 0 - 5", id="head"),
        pytest.param(GET, respond(b"", 204, []), "GET HTTP/1.1 204 0 - -", id="no-content"),
        pytest.param(GET, respond(b"x" * 300_000), "GET HTTP/1.1 200 300000 300000 300000", id="large"),
        pytest.param(
            GET,
            respond(memoryview(b"abcd").cast("I"), headers=[]),
            "GET HTTP/1.1 200 4 4 -",
            id="memoryview",  # type: ignore[arg-type]
        ),
    ],
)
async def test_bytes_are_those_of_the_body(
    http_protocol_cls: Any, stream: Stream, asked: bytes, app: App, shown: str
) -> None:
    configure(stream)
    text = "%(m)s %(H)s %(s)s %(B)s %(b)s %({content-length}o)s"
    assert await served(http_protocol_cls, stream, text, asked, app=app) == [shown]


async def test_bytes_of_pieces_and_files_are_added_up(http_protocol_cls: Any, stream: Stream, tmp_path: Path) -> None:
    configure(stream)
    for name, size in (("small", 1000), ("large", 1_000_000)):
        (tmp_path / name).write_bytes(b"x" * size)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"x" * 10, "more_body": True})
        with (tmp_path / "small").open("rb") as file:
            await send({"type": "http.response.zerocopysend", "file": file, "more_body": True})
        await send({"type": "http.response.pathsend", "path": str(tmp_path / "large")})

    assert await served(http_protocol_cls, stream, "%(B)s", GET, app=app, asgi_extensions="all") == ["1001010"]


async def test_fields_of_the_response_are_those_that_are_sent(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    headers = [(b"Set-Cookie", b"a=1"), (b"set-cookie", b' b="\xff" '), (b"x-empty", b"")]
    text = "%({Set-Cookie}o)s|%({server}o)s|%({transfer-encoding}o)s|%({x-empty}o)s|%({etag}o)s"
    (shown,) = await served(http_protocol_cls, stream, text, GET, app=respond(headers=headers), server_header=True)
    assert shown == "a=1, b=%22%FF%22|uvicorn|chunked||-"


async def test_client_is_the_one_behind_the_proxy_and_cannot_add_columns(
    http_protocol_cls: Any, stream: Stream
) -> None:
    configure(stream)
    asked = [request("GET", "/", f"x-forwarded-for: {name}") for name in ("1.2.3.4", 'a" b', "bücher")]
    lines = await served(http_protocol_cls, stream, "%(h)s|", *asked, proxy_headers=True)
    assert lines == ["1.2.3.4|", "a%22%20b|", "b%FCcher|".replace("%FC", "%C3%BC")]


async def test_unknown_client_is_a_dash(http_protocol_cls: Any, stream: Stream, tmp_path: Path) -> None:
    configure(stream)
    lines = await served(http_protocol_cls, stream, "%(h)s", GET, uds=str(tmp_path / "s"))
    assert lines == ["-"]
    (text,) = await served(http_protocol_cls, stream, "json", GET, uds=str(tmp_path / "s2"))
    entry = json.loads(text)
    assert entry["client"] is entry["client_port"] is None


async def test_duration_is_that_of_the_response(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.05)
        await respond()(scope, receive, send)

    (text,) = await served(http_protocol_cls, stream, "%(T)s %(M)s %(D)s %(L)s", GET, app=app)
    seconds, millis, micros, decimal = text.split()
    assert 50_000 <= int(micros) < 60_000_000
    assert int(millis) == int(micros) // 1000
    assert int(seconds) == int(micros) // 1_000_000
    assert decimal == f"{int(micros) / 1e6:.6f}"


async def test_request_ids_made_here_differ(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    lines = await served(http_protocol_cls, stream, "%(request_id)s %(request_id)s", GET, GET)
    assert all(re.fullmatch("[0-9a-f]{32} [0-9a-f]{32}", text) for text in lines)
    # Within a line they are one, in the implementation and in the logger alike.
    assert all(text[:32] == text[33:] for text in lines)
    assert lines[0] != lines[1]


async def test_which_responses_have_a_line_is_the_same_for_every_format(http_protocol_cls: Any, stream: Stream) -> None:
    """ACC-08, ACC-09"""
    configure(stream)

    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError

    text = "%(s)s %(B)s %({content-type}o)s"
    settings: dict[str, Any] = {"access_log": True, "access_log_format": text}
    async with serve(http_protocol_cls, fail, **settings) as service:
        await (await service.connect()).ask()
        await (await service.connect()).ask(HEAD, "HEAD")
        await (await service.connect()).ask(b"nonsense\r\n\r\n")
    async with serve(http_protocol_cls, fail, limit_concurrency=1, **settings) as service:
        await (await service.connect()).ask()
    plain = "text/plain; charset=utf-8"
    assert stream.getvalue().splitlines() == [f"500 21 {plain}", f"500 0 {plain}", f"503 19 {plain}"]


async def test_nothing_is_logged_if_it_is_switched_off(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    async with serve(http_protocol_cls, respond(), access_log=False, access_log_format="json") as service:
        await (await service.connect()).ask()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("switch", ["level", "disable", "disabled"])
async def test_nothing_is_logged_below_the_level(http_protocol_cls: Any, stream: Stream, switch: str) -> None:
    configure(stream)
    try:
        if switch == "level":
            ACCESS.setLevel(logging.WARNING)
        elif switch == "disable":
            logging.disable(logging.INFO)
        else:
            ACCESS.disabled = True
        async with serve(http_protocol_cls, respond(), access_log=True, access_log_format="json") as service:
            await (await service.connect()).ask()
    finally:
        logging.disable(logging.NOTSET)
    assert stream.getvalue() == ""


# When


def in_two_steps(proceed: asyncio.Event) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 201})
        await send({"type": "http.response.body", "body": b"12345", "more_body": True})
        await proceed.wait()
        await send({"type": "http.response.body", "body": b"67"})

    return app


async def test_line_is_written_when_the_response_starts_if_that_will_do(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    proceed = asyncio.Event()
    settings: dict[str, Any] = {"access_log": True, "access_log_format": "%(r)s %(s)s"}
    async with serve(http_protocol_cls, in_two_steps(proceed), **settings) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(stream.getvalue)
        proceed.set()
        await client.response()
    assert stream.getvalue() == "GET / HTTP/1.1 201\n"


async def test_line_is_written_when_the_response_is_complete_if_it_must(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    proceed = asyncio.Event()
    settings: dict[str, Any] = {"access_log": True, "access_log_format": "%(r)s %(s)s %(B)s"}
    async with serve(http_protocol_cls, in_two_steps(proceed), **settings) as service:
        client = await service.connect()
        await client.send(GET)
        await client.until(b"12345")
        for _ in range(5):
            await asyncio.sleep(0)
        assert stream.getvalue() == ""
        proceed.set()
        await wait_until(stream.getvalue)
    assert stream.getvalue() == "GET / HTTP/1.1 201 7\n"


async def test_line_of_a_client_that_leaves_has_what_was_sent(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    proceed = asyncio.Event()
    settings: dict[str, Any] = {"access_log": True, "access_log_format": "%(s)s %(B)s"}
    async with serve(http_protocol_cls, in_two_steps(proceed), **settings) as service:
        client = await service.connect()
        await client.send(GET)
        await client.until(b"12345")
        client.reset()
        await wait_until(stream.getvalue)
        proceed.set()
        await service.idle()
    assert stream.getvalue() == "201 5\n"


async def test_line_of_an_application_that_fails_in_the_middle_has_what_was_sent(
    http_protocol_cls: Any, stream: Stream
) -> None:
    configure(stream)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"12345", "more_body": True})
        with contextlib.suppress(RuntimeError):
            await send({"type": "http.response.body", "body": b"more than was announced", "more_body": True})
        raise RuntimeError

    async with serve(http_protocol_cls, app, access_log=True, access_log_format="%(s)s %(B)s") as service:
        client = await service.connect()
        await client.send(GET)
        await client.rest()
    assert stream.getvalue() == "200 5\n"


async def test_response_that_never_started_has_no_line(http_protocol_cls: Any, stream: Stream) -> None:
    """ACC-10"""
    configure(stream)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await receive()
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app, access_log=True, access_log_format="%(s)s %(B)s") as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: service.state.tasks)
        client.reset()
        await service.idle()
    assert stream.getvalue() == ""


async def test_head_that_cannot_be_built_is_logged_as_what_was_sent(http_protocol_cls: Any, stream: Stream) -> None:
    """ACC-11"""
    configure(stream)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"\n")]})

    assert await served(http_protocol_cls, stream, "%(s)s %(B)s", GET, app=app) == ["500 21"]


async def test_lines_of_one_turn_are_written_at_once_and_in_order(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    async with serve(http_protocol_cls, respond(), access_log=True, access_log_format="%(U)s %(B)s") as service:
        client = await service.connect()
        await client.send(b"".join(request("GET", f"/{number}") for number in range(10)))
        for _ in range(10):
            await client.response()
        await wait_until(lambda: stream.getvalue().count("\n") == 10)
    assert stream.getvalue().splitlines() == [f"/{number} 2" for number in range(10)]
    if sys.version_info >= (3, 12):  # before, each of the tasks starts in a turn of its own
        assert stream.writes < 10


# Logging of the user's own


def keep_records() -> list[logging.LogRecord]:
    """The records that a filter of the user's gets to see from now on."""
    kept: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:
        kept.append(record)
        return True

    ACCESS.addFilter(keep)
    return kept


async def test_record_has_the_line_and_the_arguments_of_the_default(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    kept = keep_records()
    asked = request("GET", "/a%25?b=%s", "x-request-id: r")
    (text,) = await served(http_protocol_cls, stream, "%(U)s %(q)s %% %(B)s", asked)
    (record,) = kept
    assert record.levelno == logging.INFO
    assert record.getMessage() == text == "/a%25 b=%s % 2"
    assert isinstance(record.args, tuple)
    client, *rest = record.args
    assert str(client).startswith("127.0.0.1:")
    assert rest == ["GET", "/a%25?b=%s", "1.1", 200]
    assert vars(record)["access_line"] == text
    assert vars(record)["request_id"] == "r"
    assert vars(record)["bytes_sent"] == 2
    assert 0 < vars(record)["duration"] < 60
    assert pickle.loads(pickle.dumps(record)).getMessage() == text


async def test_record_at_the_start_does_not_know_the_end(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    kept = keep_records()
    await served(http_protocol_cls, stream, "%(s)s", GET)
    assert vars(kept[0])["bytes_sent"] is vars(kept[0])["duration"] is None


async def test_line_passes_through_a_queue(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    ACCESS.handlers[:] = [logging.handlers.QueueHandler(lines)]
    async with serve(http_protocol_cls, respond(), access_log=True, access_log_format="%(U)s 100%%") as service:
        await (await service.connect()).ask(request("GET", "/a%25"))
    assert lines.get_nowait().getMessage() == "/a%25 100%"


@pytest.mark.parametrize(
    ("own", "shown"),
    [
        pytest.param(ACCESS_FORMAT, "/ 2", id="default"),
        pytest.param("%(asctime)s " + ACCESS_FORMAT, "/ 2", id="parts-of-the-default"),
        pytest.param("%(levelname)s %(message)s", "INFO / 2", id="message"),
        pytest.param("%(status_code)s %(message)s", "200 OK / 2", id="message-and-parts"),
        pytest.param(None, "/ 2", id="none"),
    ],
)
async def test_uvicorns_formatter_shows_the_line(
    http_protocol_cls: Any, stream: Stream, own: str | None, shown: str
) -> None:
    configure(stream).setFormatter(AccessFormatter(own, use_colors=False))
    assert await served(http_protocol_cls, stream, "%(U)s %(B)s", GET) == [shown]


async def test_colours_are_none_of_its_business(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream, use_colors=True)
    assert await served(http_protocol_cls, stream, "%(U)s %(s)s", GET) == ["/ 200"]


async def test_literals_may_be_any_text(http_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    assert await served(http_protocol_cls, stream, "→\t%(U)s", GET) == ["→\t/"]


@pytest.mark.parametrize("text", ["%(U)s %(s)s", "%(U)s %(s)s %(B)s"], ids=["start", "end"])
@pytest.mark.parametrize("change", CHANGES)
async def test_change_is_honoured_from_the_next_record_on(
    http_protocol_cls: Any, stream: Stream, change: Callable[[Any, Stream], None], text: str
) -> None:
    """As if logging had been called throughout."""
    handler = configure(stream)
    reference = FormattedLog(MockLoop(), LineFormat(text))  # type: ignore[arg-type]
    try:
        async with serve(http_protocol_cls, respond(), access_log=True, access_log_format=text) as service:
            client = await service.connect()
            await client.ask(request("GET", "/before"))
            await wait_until(stream.getvalue)
            change(handler, stream)
            begin = len(stream.getvalue())
            for path in ("/", "/after"):
                await client.ask(request("GET", path))
            for _ in range(5):
                await asyncio.sleep(0)
            written = stream.getvalue()[begin:]
            begin = len(stream.getvalue())
            for path in ("/", "/after"):
                reference.report(facts(path=path, sent=2))
            assert written == stream.getvalue()[begin:]
    finally:
        logging.disable(logging.NOTSET)
        logging.setLogRecordFactory(logging.LogRecord)


async def test_change_between_two_requests_of_one_turn_is_honoured(http_protocol_cls: Any, stream: Stream) -> None:
    """The application changes logging itself, and the next request is there already."""
    configure(stream)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond()(scope, receive, send)
        if scope["path"] == "/off":
            ACCESS.addFilter(lambda record: isinstance(record.args, tuple) and record.args[2] != "/hidden")

    async with serve(http_protocol_cls, app, access_log=True, access_log_format="%(U)s %(B)s") as service:
        client = await service.connect()
        await client.send(b"".join(request("GET", path) for path in ("/hidden", "/off", "/hidden", "/shown")))
        for _ in range(4):
            await client.response()
        await wait_until(lambda: "/shown" in stream.getvalue())
    assert stream.getvalue().split() == ["/hidden", "2", "/off", "2", "/shown", "2"]


# What goes wrong costs the line


@pytest.mark.parametrize("text", ["%(s)s", "%(s)s %(B)s"], ids=["start", "end"])
async def test_filter_that_raises_costs_no_response(
    http_protocol_cls: Any, stream: Stream, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    configure(stream)

    def fail(record: logging.LogRecord) -> bool:
        raise LookupError("a mistake")

    ACCESS.addFilter(fail)
    async with serve(http_protocol_cls, respond(), access_log=True, access_log_format=text) as service:
        client = await service.connect()
        assert (await client.ask()).body == b"ok"
        assert (await client.ask()).body == b"ok"
    error = capsys.readouterr().err
    assert error.count("ERROR:    Lost an access line: its handler, filter or format raised an exception.\n") == 2
    assert "LookupError: a mistake" in error


async def test_scope_that_was_taken_apart_costs_no_response(
    http_protocol_cls: Any, stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(stream)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope.clear()
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app, access_log=True, access_log_format=COMBINED) as service:
        assert (await (await service.connect()).ask()).body == b"ok"
    assert stream.getvalue() == ""
    assert (
        capsys.readouterr().err.count(
            "ERROR:    Lost an access line: its handler, filter or format raised an exception.\n"
        )
        == 1
    )


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        pytest.param({"client": ["1.2.3.4", 5]}, '1.2.3.4 "GET / HTTP/1.1"', id="client-list"),
        pytest.param({"client": ("a b", None)}, 'a%20b "GET / HTTP/1.1"', id="client-without-port"),
        pytest.param({"headers": ((b"x", b"y"),)}, '127.0.0.1 "GET / HTTP/1.1"', id="headers-tuple"),
        pytest.param({"path": "/é\n"}, '127.0.0.1 "GET /%C3%A9%0A HTTP/1.1"', id="path"),
        pytest.param({"method": "G\u00c9T\ud800"}, '127.0.0.1 "G%C3%89T%ED%A0%80 / HTTP/1.1"', id="method"),
        pytest.param({"query_string": b"\xff\n"}, '127.0.0.1 "GET /?%FF%0A HTTP/1.1"', id="query"),
    ],
)
async def test_what_an_application_puts_into_the_scope_is_shown(
    http_protocol_cls: Any, stream: Stream, changed: dict[str, Any], shown: str
) -> None:
    configure(stream)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope.update(changed)
        await respond()(scope, receive, send)

    (text,) = await served(http_protocol_cls, stream, '%(h)s "%(r)s" %({user-agent}i)s', GET, app=app)
    assert text == f"{shown} -"


# WebSocket


@pytest.fixture(params=["httptools", "native"])
def fronts(request: pytest.FixtureRequest) -> Any:
    """What hands over to a WebSocket class."""
    if request.param == "native":
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
        from uvicorn.protocols.http.native_impl import NativeProtocol

        return NativeProtocol
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    return HttpToolsProtocol


def messages(*sent: dict[str, Any], raises: bool = False) -> App:
    """An application that sends this once it is connected."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        for message in sent:
            await send(message)
        if raises:
            raise RuntimeError

    return app


DENIAL = {"type": "websocket.http.response.start", "status": 401, "headers": [(b"x-why", b"no")]}


@pytest.mark.parametrize(
    ("app", "shown"),
    [
        pytest.param(
            messages({"type": "websocket.accept", "headers": [(b"x-why", b"yes")]}), "101 0 yes", id="accepted"
        ),
        pytest.param(messages({"type": "websocket.close"}), "403 0 -", id="closed"),
        pytest.param(
            messages(DENIAL, {"type": "websocket.http.response.body", "body": b"12345"}), "401 5 no", id="denied"
        ),
        pytest.param(
            messages(
                DENIAL,
                {"type": "websocket.http.response.body", "body": b"12", "more_body": True},
                {"type": "websocket.http.response.body", "body": b"345"},
            ),
            "401 5 no",
            id="denied-in-pieces",
        ),
        pytest.param(
            messages(DENIAL, {"type": "websocket.http.response.body", "body": b"12", "more_body": True}, raises=True),
            "401 2 no",
            id="denied-in-part",
        ),
    ],
)
async def test_handshake_is_logged_with_what_became_of_it(
    fronts: Any, ws_protocol_cls: Any, stream: Stream, capsys: pytest.CaptureFixture[str], app: App, shown: str
) -> None:
    """ACC-12: in place of the line in the error log."""
    configure(stream)
    text = '%(h)s "%(r)s" "%(a)s" %(s)s %(B)s %({x-why}o)s'
    settings: dict[str, Any] = {"ws": ws_protocol_cls, "access_log": True, "access_log_format": text}
    async with serve(fronts, app, **settings) as service:
        client = await service.connect()
        await client.send(handshake('User-Agent: a"b', target="/chat?x=1"))
        await client.until(b"\r\n\r\n")
        await wait_until(stream.getvalue)
    assert stream.getvalue() == f'127.0.0.1 "GET /chat?x=1 HTTP/1.1" "a%22b" {shown}\n'
    error = capsys.readouterr().err
    assert "connection " in error or shown.startswith("401 2")
    assert "[accepted]" not in error and not re.search(r'"WebSocket .*" \d', error)


@pytest.mark.parametrize("text", ["%(s)s", "%(s)s %(B)s"])
async def test_who_has_the_answer_to_a_handshake_finds_its_line_written(
    fronts: Any, ws_protocol_cls: Any, text: str
) -> None:
    stream = Witness()
    configure(stream)
    settings: dict[str, Any] = {"ws": ws_protocol_cls, "access_log": True, "access_log_format": text}
    async with serve(fronts, messages({"type": "websocket.accept"}), **settings) as service:
        client = await service.connect()
        stream.clients.append(client)
        await client.send(handshake())
        await client.until(b"\r\n\r\n")
        assert stream.getvalue().startswith("101")
    assert stream.answered == [0]


async def test_handshake_in_json_has_its_scheme(fronts: Any, ws_protocol_cls: Any, stream: Stream) -> None:
    configure(stream)
    settings: dict[str, Any] = {"ws": ws_protocol_cls, "access_log": True, "access_log_format": "json"}
    async with serve(fronts, messages({"type": "websocket.accept"}), **settings) as service:
        client = await service.connect()
        await client.send(handshake())
        await wait_until(stream.getvalue)
    entry = json.loads(stream.getvalue())
    assert list(entry) == KEYS
    assert (entry["scheme"], entry["method"], entry["status"], entry["bytes"]) == ("ws", "GET", 101, 0)


async def test_handshake_that_the_application_never_answers_is_logged_as_what_the_client_gets(
    fronts: Any, ws_protocol_cls: Any, stream: Stream
) -> None:
    configure(stream)
    settings: dict[str, Any] = {"ws": ws_protocol_cls, "access_log": True, "access_log_format": "%(s)s %(B)s"}
    async with serve(fronts, messages(), **settings) as service:
        client = await service.connect()
        await client.send(handshake())
        assert b" 500 " in await client.until(b"\r\n")
    assert stream.getvalue() == "500 21\n"


# The entry of one response


async def test_entry_is_written_once(stream: Stream) -> None:
    configure(stream)
    log = FormattedLog(asyncio.get_running_loop(), LineFormat("%(s)s %(B)s"))
    entry = log.begin(facts().scope)
    assert isinstance(entry, Entry)
    entry.start(200)
    entry.sent += 5
    entry.end()
    entry.end()
    await asyncio.sleep(0)
    assert stream.getvalue() == "200 5\n"


async def test_entry_that_is_over_cannot_start(stream: Stream) -> None:
    configure(stream)
    log = FormattedLog(asyncio.get_running_loop(), LineFormat("%(s)s"))
    entry = log.begin(facts().scope)
    entry.end()
    entry.start(200)
    await asyncio.sleep(0)
    assert stream.getvalue() == ""
