"""The rules for request heads, as functions; what they mean to a connection is in test_http_requests."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uvicorn.protocols.http.wire import head as rules
from uvicorn.protocols.http.wire.head import (
    CHUNKED,
    Framing,
    HeadLimits,
    HeadScan,
    RequestRefused,
    examine,
    is_authority,
    match_head,
    refuse,
    split_fields,
    split_target,
)
from uvicorn.rules import refusals
from uvicorn.rules.refusals import Refusal

GOOD = b"GET /a?b HTTP/1.1\r\nHost: a\r\nX-Y:\t1 \r\n\r\n"
HOST = (b"host", b"a")
LIMITS = HeadLimits(head=200, fields=4, target=30)


def refused(head: bytes, limits: HeadLimits = LIMITS) -> RequestRefused:
    """Why a complete head is refused."""
    with pytest.raises(RequestRefused) as caught:
        refuse(head, limits)
    return caught.value


def test_head_gives_method_target_and_minor_version() -> None:
    match = match_head(GOOD)
    assert match is not None
    assert match.groups() == (b"GET", b"/a?b", None, b"1")


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(GOOD.replace(b"\r\n", b"\n"), id="bare-lf"),
        pytest.param(GOOD.replace(b"\r\n", b"\r", 1), id="bare-cr"),
        pytest.param(GOOD.replace(b"GET ", b"GET  "), id="two-spaces"),
        pytest.param(GOOD.replace(b"X-Y", b" X-Y"), id="folded"),
        pytest.param(GOOD.replace(b"X-Y", b"X-Y "), id="space-before-colon"),
        pytest.param(GOOD.replace(b"\t1", b"\x00"), id="nul"),
        pytest.param(GOOD.replace(b"\t1", b"\x7f"), id="delete"),
        pytest.param(GOOD.replace(b"GET", b"get"), id="lower-case"),
        pytest.param(GOOD.replace(b"GET", b"G#T"), id="hash"),
        pytest.param(GOOD.replace(b"1.1", b"1.10"), id="two-digits"),
        pytest.param(GOOD.replace(b"HTTP", b"http"), id="lower-case-protocol"),
        pytest.param(GOOD.replace(b"/a", b"/\xc3\xa9"), id="non-ascii"),
    ],
)
def test_malformed_head_does_not_match(head: bytes) -> None:
    """F6, F7, F19, U2, U5"""
    assert match_head(head) is None
    assert refused(head).status == 400


@pytest.mark.parametrize("version", [b"2.0", b"3.0", b"9.9"])
def test_other_major_version_is_not_ours(version: bytes) -> None:
    """REQ-08, U5; RFC 9110 section 15.6.6"""
    assert refused(GOOD.replace(b"1.1", version)).status == 505


def test_major_version_zero_is_malformed() -> None:
    assert refused(GOOD.replace(b"1.1", b"0.9")).status == 400


def test_fields_are_split_and_stripped() -> None:
    assert split_fields(GOOD, GOOD.index(b"\r\n") + 2) == [(b"host", b"a"), (b"x-y", b"1")]
    bare = b"GET / HTTP/1.0\r\n\r\n"
    assert split_fields(bare, bare.index(b"\r\n") + 2) == []


@given(st.lists(st.tuples(st.text(string.ascii_letters, min_size=1), st.binary(max_size=30)), max_size=6))
def test_fields_survive_being_written_and_read(fields: list[tuple[str, bytes]]) -> None:
    clean = [
        (name.encode(), bytes(byte for byte in value if byte >= 32 and byte != 127).strip(b" "))
        for name, value in fields
    ]
    head = b"GET / HTTP/1.1\r\n" + b"".join(b"%b: %b\r\n" % field for field in clean) + b"\r\n"
    assert match_head(head)
    assert split_fields(head, 16) == [(name.lower(), value) for name, value in clean]


# Partial heads


PLACES = st.lists(st.integers(0, 400), max_size=6)


def scan(data: bytes, places: list[int] = [], limits: HeadLimits = LIMITS) -> Refusal | None:  # noqa: B006
    """What is wrong with a head, or the beginning of one, that arrives cut at these places."""
    scanner = HeadScan(limits)
    try:
        for end in [*sorted(place for place in places if place < len(data)), len(data)]:
            scanner.advance(bytearray(data[:end]))
    except RequestRefused as caught:
        return caught.refusal
    return None


@given(st.integers(0, len(GOOD)), PLACES)
def test_beginning_of_a_good_head_is_waited_for(size: int, places: list[int]) -> None:
    assert scan(GOOD[:size], places) is None


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        pytest.param(b"GET / HTTP/1.1\n", refusals.VERSION, id="bare-lf"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\n", refusals.FIELD_VALUE, id="bare-lf-later"),
        pytest.param(b"GET / HTTP/1.1\rX", refusals.VERSION, id="bare-cr"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\rX", refusals.FIELD_END, id="bare-cr-later"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n\rX", refusals.HEAD_END, id="bare-cr-at-the-end"),
        pytest.param(b"\x16", refusals.METHOD, id="tls"),
        pytest.param(b"g", refusals.METHOD, id="lower-case"),
        pytest.param(b" ", refusals.METHOD, id="space"),
        pytest.param(b"\n", refusals.LINE_BEGIN, id="lf"),
        pytest.param(b"\rG", refusals.LINE_BEGIN, id="cr"),
        pytest.param(b"G" * 65, refusals.METHOD_TOO_LONG, id="long-method"),
        pytest.param(b"GET /" + b"a" * 30, refusals.TARGET_TOO_LONG, id="long-target"),
        pytest.param(b"GET /a\x7f", refusals.TARGET, id="delete"),
        pytest.param(b"GET /a#", refusals.TARGET_FRAGMENT, id="fragment"),
        pytest.param(b"GET /%4%", refusals.TARGET_PERCENT, id="percent"),
        pytest.param(b"GET a HTTP/1.1\r\n", refusals.TARGET, id="no-form"),
        pytest.param(b"GET http://? HTTP/1.1\r\n", refusals.TARGET_AUTHORITY, id="no-host"),
        pytest.param(b"CONNECT a HTTP/1.1\r\n", refusals.CONNECT_TARGET, id="connect"),
        pytest.param(b"GET / HTTP/1.1\r\nA: \x01", refusals.FIELD_VALUE, id="control"),
        pytest.param(b"GET / HTTP/1.1\r\nA ", refusals.FIELD_NAME, id="space-in-name"),
        pytest.param(b"GET / HTTP/1.1\r\n:", refusals.FIELD_NAME, id="no-name"),
        pytest.param(b"GET / HTTP/1.1\r\nA(:", refusals.FIELD_NAME, id="no-token"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 4 + b"A", refusals.TOO_MANY_FIELDS, id="fields"),
        pytest.param(b"GET / HTTP/1.1\r\nA: " + b"b" * 182, refusals.HEAD_TOO_LARGE, id="large"),
        pytest.param(b"GET /\r", refusals.TARGET, id="http-0.9"),
        pytest.param(b"GET / HTTP/1.1 ", refusals.VERSION, id="space-behind-the-line"),
        pytest.param(b"GET  ", refusals.TARGET, id="two-spaces"),
        pytest.param(b"GET / HTTP/0.9\r\n", refusals.VERSION_TOO_OLD, id="0.9"),
        pytest.param(b"GET / HTTP/2.0\r\n", refusals.VERSION_UNSUPPORTED, id="2.0"),
    ],
)
def test_mistake_is_found_at_its_byte_wherever_the_bytes_are_cut(data: bytes, refusal: Refusal) -> None:
    """F6, U5: without waiting for the end of the head."""
    assert scan(data[:-1]) is None
    for place in range(len(data)):
        assert scan(data, [place]) is refusal
    assert scan(data, list(range(len(data)))) is refusal


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        pytest.param(LIMITS._replace(head=5), refusals.LINE_TOO_LONG, id="in-the-target"),
        pytest.param(LIMITS._replace(head=10), refusals.LINE_TOO_LONG, id="in-the-version"),
        pytest.param(LIMITS._replace(head=16), refusals.HEAD_TOO_LARGE, id="in-the-fields"),
    ],
)
def test_bytes_beyond_the_limit_are_not_looked_at(limits: HeadLimits, refusal: Refusal) -> None:
    line = b"GET / HTTP/1.1\r\n"
    good = (line + b"A: b")[: limits.head]
    assert scan(good, limits=limits) is None
    assert scan(good + b"\0", limits=limits) is refusal


@st.composite
def changed_heads(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from([GOOD, b"OPTIONS * HTTP/1.0\r\n\r\n", b"GET http://a?b HTTP/1.1\r\n\r\n"])))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 4))
        data[at : at + draw(st.integers(0, 1))] = bytes(
            draw(st.lists(st.sampled_from(b"\r\n :%#?/*09aAZ(\0\t\xff"), max_size=1))
        )
    data += b"\r\n\r\n"
    return bytes(data[: data.index(b"\r\n\r\n") + 4])


@given(changed_heads(), PLACES)
def test_scan_finds_a_mistake_where_the_rules_do_and_nowhere_else(head: bytes, places: list[int]) -> None:
    match = match_head(head)
    try:
        good = match is not None and bool(split_target(match[1], match[2] or match[3]))
    except RequestRefused:
        good = False
    found = scan(head, places)
    assert (found is None) == good
    assert found is scan(head)


# Host and target


@pytest.mark.parametrize(
    "value",
    [b"a", b"a.b:80", b"a:", b"[::1]", b"[::1]:8000", b"[v1.a:b]", b"%41", b"_x", b"1.2.3.4:65535", b"a" * 300],
)
def test_authority(value: bytes) -> None:
    """U3"""
    assert is_authority(value)
    assert is_authority(value)


@pytest.mark.parametrize(
    "value",
    [
        *(
            b"a b",
            b"a/b",
            b"a?b",
            b"a#b",
            b"u@a",
            b"a:b",
            b"a:1:2",
            b"a:65536",
            b"a:123456789",
            b"[::1",
            b"[::g]",
            b"[]",
        ),
        *(b"[1::2::3]", b"::1", b"a,b\\", b"\xe9", b"%4", b'"', b"<", b"a:+1", b"a: 1", b"", b":80"),
    ],
)
def test_no_authority(value: bytes) -> None:
    """U3, D8"""
    assert not is_authority(value)


def test_known_hosts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that names a new host with each request does not fill the memory, and long names are not kept."""
    monkeypatch.setattr(rules, "_known_hosts", set())
    for number in range(3 * rules._KNOWN_HOSTS):
        assert is_authority(b"host-%d" % number)
        assert is_authority(b"a" * 300 + b"%d" % number)
        assert len(rules._known_hosts) <= rules._KNOWN_HOSTS
    assert max(map(len, rules._known_hosts)) <= 256


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        pytest.param(b"GET", b"/a%20", (b"/a%20", None), id="origin"),
        pytest.param(b"GET", b"/a?b%", (b"/a?b%", None), id="percent-in-query"),
        pytest.param(b"OPTIONS", b"*", (b"*", None), id="asterisk"),
        pytest.param(b"GET", b"http://a/b?c", (b"/b?c", b"a"), id="absolute"),
        pytest.param(b"GET", b"HTTP://a:1", (b"/", b"a:1"), id="absolute-without-path"),
        pytest.param(b"GET", b"https://[::1]?c", (b"/?c", b"[::1]"), id="absolute-with-query-only"),
        pytest.param(b"OPTIONS", b"http://a", (b"*", b"a"), id="options-of-the-server"),
        pytest.param(b"OPTIONS", b"http://a?b", (b"/?b", b"a"), id="options-with-query"),
        pytest.param(b"CONNECT", b"a:1", (b"a:1", b"a:1"), id="connect"),
    ],
)
def test_target_gives_path_and_host(method: bytes, target: bytes, expected: tuple[bytes, bytes | None]) -> None:
    """SCO-17, SCO-19, U4"""
    assert split_target(method, target) == expected


@pytest.mark.parametrize(
    ("method", "target"),
    [
        *((b"GET", target) for target in (b"a", b"*", b"/a#b", b"http://", b"http:///a", b"http://u@a/", b"ftp://a/")),
        *((b"GET", target) for target in (b"http://:80/", b"a:80", b"/%", b"/%4", b"/%zz", b"?a")),
        *((b"CONNECT", target) for target in (b"a", b"a:", b":1", b"/", b"a:b", b"a/b:1")),
    ],
)
def test_malformed_target_is_refused(method: bytes, target: bytes) -> None:
    """U2, SCO-18, REQ-10, REQ-11"""
    with pytest.raises(RequestRefused) as caught:
        split_target(method, target)
    assert caught.value.status == 400


# Framing


@pytest.mark.parametrize(
    ("minor", "fields", "expected"),
    [
        pytest.param(b"1", [HOST], Framing(0, True, False, b""), id="plain"),
        pytest.param(b"0", [], Framing(0, False, False, b""), id="1.0"),
        pytest.param(b"1", [HOST, (b"content-length", b"5")], Framing(5, True, False, b""), id="length"),
        pytest.param(b"1", [HOST, (b"content-length", b"0")], Framing(0, True, False, b""), id="length-zero"),
        pytest.param(b"1", [HOST, (b"content-length", b"0" * 30 + b"7")], Framing(7, True, False, b""), id="zeros"),
        pytest.param(
            b"1", [HOST, (b"transfer-encoding", b"Chunked")], Framing(CHUNKED, True, False, b""), id="chunked"
        ),
        pytest.param(b"1", [HOST, (b"connection", b"x, CLOSE ,")], Framing(0, False, False, b""), id="close"),
        pytest.param(b"1", [HOST, (b"connection", b"closed")], Framing(0, True, False, b""), id="no-close"),
        pytest.param(b"0", [(b"connection", b"keep-alive")], Framing(0, False, False, b""), id="REQ-26"),
        pytest.param(b"1", [HOST, (b"expect", b"100-CONTINUE")], Framing(0, True, True, b""), id="expect"),
        pytest.param(b"1", [HOST, (b"expect", b" , ")], Framing(0, True, False, b""), id="expect-empty"),
        pytest.param(b"0", [(b"expect", b"tea")], Framing(0, False, False, b""), id="expect-1.0"),
        pytest.param(b"1", [HOST, (b"upgrade", b"H2C")], Framing(0, True, False, b""), id="upgrade-not-named"),
        pytest.param(
            b"1",
            [HOST, (b"upgrade", b"H2C"), (b"connection", b"a"), (b"upgrade", b"b"), (b"connection", b"Upgrade")],
            Framing(0, True, False, b"h2c,b"),
            id="upgrade",
        ),
        pytest.param(
            b"0", [(b"upgrade", b"a"), (b"connection", b"upgrade")], Framing(0, False, False, b""), id="UPG-09"
        ),
    ],
)
def test_framing(minor: bytes, fields: list[tuple[bytes, bytes]], expected: Framing) -> None:
    assert examine(minor, fields) == expected


@pytest.mark.parametrize(
    ("minor", "fields", "status"),
    [
        pytest.param(b"1", [], 400, id="REQ-05-no-host"),
        pytest.param(b"1", [HOST, HOST], 400, id="REQ-05-two-hosts"),
        pytest.param(b"1", [(b"host", b"")], 400, id="empty-host"),
        pytest.param(b"1", [(b"host", b":1")], 400, id="host-without-name"),
        pytest.param(b"0", [(b"host", b"a b")], 400, id="U3"),
        pytest.param(b"1", [HOST, (b"content-length", b"1"), (b"transfer-encoding", b"chunked")], 400, id="F1"),
        pytest.param(b"0", [(b"transfer-encoding", b"chunked")], 400, id="F3"),
        *(
            pytest.param(b"1", [HOST, (b"transfer-encoding", value)], status, id=f"F2-{number}")
            for number, (value, status) in enumerate(
                [
                    (b"chunked, identity", 400),
                    (b"identity", 400),
                    (b"chunked, chunked", 400),
                    (b"chunked, gzip", 400),
                    (b"gzip, deflate", 400),
                    (b"", 400),
                    (b"chunked,", 400),
                    (b"\x0bchunked", 400),
                    (b"gz ip", 400),
                    (b"xchunked", 501),
                    (b"gzip;q=1, chunked", 501),
                    (b'x;a="b"', 501),
                ]
            )
        ),
        pytest.param(b"1", [HOST, *[(b"transfer-encoding", b"chunked")] * 2], 400, id="F2-twice"),
        *(
            pytest.param(b"1", [HOST, (b"content-length", value)], 400, id=f"F11-{number}")
            for number, value in enumerate([b"+5", b"-5", b"0x5", b"5,5", b"5 5", b"", b"1" * 30, b"\xb2"])
        ),
        pytest.param(b"1", [HOST, *[(b"content-length", b"1")] * 2], 400, id="F12"),
        pytest.param(b"1", [HOST, (b"expect", b"100-continue, tea")], 417, id="R12"),
    ],
)
def test_framing_that_is_refused(minor: bytes, fields: list[tuple[bytes, bytes]], status: int) -> None:
    with pytest.raises(RequestRefused) as caught:
        examine(minor, fields)
    assert caught.value.status == status
    assert caught.value.reason == str(caught.value)
