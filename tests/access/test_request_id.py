"""What requests are called: whom to believe, what is valid, what is made."""

from __future__ import annotations

import os
import string
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uvicorn.access.request_id import BATCH, RequestIds, check_header, trace_id, with_line
from uvicorn.config import Config

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
PEER = ("127.0.0.1", 1)


def ids(header: str = "x-request-id", trusted: Any = "127.0.0.1") -> RequestIds:
    return RequestIds(header, trusted)


def is_made(text: str) -> bool:
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


# traceparent


@pytest.mark.parametrize(
    "value", [TRACEPARENT, f"00-{TRACE}-{PARENT}-ff", f"cc-{TRACE}-{PARENT}-01", f"01-{TRACE}-{PARENT}-03-what-comes"]
)
def test_trace_id_of_this_version_and_later_ones(value: str) -> None:
    assert trace_id(value) == TRACE


@pytest.mark.parametrize(
    "value",
    [
        "",
        TRACE,
        TRACEPARENT[:-1],
        f"{TRACEPARENT}-",
        f"{TRACEPARENT}-00",
        f" {TRACEPARENT}",
        f"{TRACEPARENT}\n",
        TRACEPARENT.upper(),
        f"ff-{TRACE}-{PARENT}-01",
        f"01-{TRACE}-{PARENT}-01more",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{PARENT}0-01",
        f"00-{TRACE[:-1]}g-{PARENT}-01",
        f"00_{TRACE}-{PARENT}-01",
        f"{TRACEPARENT}, {TRACEPARENT}",
    ],
)
def test_an_invalid_traceparent_is_ignored(value: str) -> None:
    """L2"""
    assert trace_id(value) is None
    assert is_made(ids().of([(b"traceparent", value.encode())], PEER))


@given(st.text(alphabet=string.hexdigits + "-\u0663\n", max_size=70))
def test_a_trace_id_is_32_digits_that_were_sent(value: str) -> None:
    found = trace_id(value)
    assert found is None or (is_made(found) and value[3:35] == found)


# Whom to believe


def test_a_trusted_peer_says_it() -> None:
    assert ids().of([(b"a", b"b"), (b"x-request-id", b"A-1._:/+=@z"), (b"traceparent", b"x")], PEER) == "A-1._:/+=@z"


def test_a_field_of_another_name_is_looked_at_instead() -> None:
    headers = [(b"x-request-id", b"other"), (b"x-amzn-trace-id", b"Root=1-67891233-abcdef012345678912345678")]
    found = ids("X-Amzn-Trace-Id").of(headers, PEER)
    assert found == "Root=1-67891233-abcdef012345678912345678"


def test_the_trace_is_taken_where_the_id_is_missing_or_invalid() -> None:
    parent = (b"traceparent", TRACEPARENT.encode())
    assert ids().of([parent], PEER) == TRACE
    assert ids().of([(b"x-request-id", b"a b"), parent], PEER) == TRACE
    assert ids().of([(b"x-request-id", b"a"), parent], PEER) == "a"


@pytest.mark.parametrize("client", [("192.0.2.1", 1), None])
def test_nobody_else_says_it(client: Any) -> None:
    """L2"""
    headers = [(b"x-request-id", b"mine"), (b"traceparent", TRACEPARENT.encode())]
    assert is_made(ids().of(headers, client))


def test_whoever_trusts_all_trusts_a_unix_socket() -> None:
    assert ids(trusted="*").of([(b"x-request-id", b"a")], None) == "a"


def test_without_proxy_headers_nobody_is_trusted() -> None:
    config = Config("app:app", request_id=True, proxy_headers=False, forwarded_allow_ips="*")
    found = RequestIds.from_config(config)
    assert found is not None and is_made(found.of([(b"x-request-id", b"a")], PEER))
    assert RequestIds.from_config(Config("app:app")) is None


@pytest.mark.parametrize("value", [b"", b"a b", b"a,b", b'"', b"\xe9", b"a\x00", b"a" * 129, b"a\n"])
def test_what_is_no_id_is_replaced(value: bytes) -> None:
    """L2"""
    assert is_made(ids().of([(b"x-request-id", value)], PEER))


def test_two_of_them_are_none() -> None:
    """L2"""
    twice = [(b"x-request-id", b"a"), (b"x-request-id", b"a")]
    assert is_made(ids().of(twice, PEER))
    assert is_made(ids().of([(b"traceparent", TRACEPARENT.encode())] * 2, PEER))


# Made ones


def test_no_id_comes_twice() -> None:
    source = ids()
    made = [source.make() for _ in range(3 * BATCH + 1)]
    assert len(set(made)) == len(made) and all(map(is_made, made))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_of_a_fork_makes_others() -> None:
    """L3"""
    source = ids()
    source.make()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            os.write(writing, source.make().encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    assert is_made(theirs) and theirs not in {source.make() for _ in range(BATCH)}


# What it is called


@pytest.mark.parametrize("name", ["", "a b", "a:", "é", "Content-Length", "traceparent", "Sec-WebSocket-Key"])
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="header"):
        check_header(name)
    with pytest.raises(ValueError, match="header"):
        Config("app:app", request_id_header=name)


def test_a_line_is_added_where_the_field_is_not() -> None:
    line = ids("X-Id").line("a")
    assert with_line(b"HTTP/1.1 200 OK\r\na: b\r\n\r\n", line) == b"HTTP/1.1 200 OK\r\na: b\r\nx-id: a\r\n\r\n"
    assert with_line(b"HTTP/1.1 200 OK\r\nx-id: b\r\n\r\n", line) == b"HTTP/1.1 200 OK\r\nx-id: b\r\n\r\n"
    assert with_line(b"HTTP/1.1 200 OK\r\n\r\n", b"") == b"HTTP/1.1 200 OK\r\n\r\n"
