"""Conditions, ranges and codings as functions: whatever comes is understood, or as if it had not come."""

from __future__ import annotations

import calendar
import time
from email.utils import formatdate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzzing import ETAG, asked_for
from uvicorn.files import representation
from uvicorn.files.representation import IDENTITY, MAX_RANGES, choose_coding, parse_date, precondition, ranges

pieces = st.sampled_from([b"0", b"1", b"9", b"15", b"-", b",", b" ", b"\t", b"bytes", b"=", b"x", b"\xff", b"4" * 30])
soup = st.lists(pieces, max_size=20).map(b"".join)
specs = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: b"%d-%d" % pair),
        st.integers(0, 40).map(lambda number: b"%d-" % number),
        st.integers(0, 40).map(lambda number: b"-%d" % number),
        st.sampled_from([b"", b" ", b"\t"]),
    ),
    min_size=1,
    max_size=8,
).map(lambda found: b"bytes=" + b",".join(found))


@given(specs, st.integers(1, 30))
def test_ranges_are_the_bytes_that_were_asked_for(value: bytes, length: int) -> None:
    found = ranges(value, length)
    expected = asked_for(value, length)
    if expected is None:
        assert found is None
        return
    assert found is not None
    positions = [at for first, count in found for at in range(first, first + count)]
    assert len(positions) == len(set(positions)), "no byte is sent twice"
    assert set(positions) == expected


@given(st.one_of(soup, soup.map(lambda text: b"bytes=" + text), st.binary(max_size=40)), st.integers(0, 2**63))
@example(b"bytes=" + b"9" * 5000 + b"-", 10)
@example(b"bytes=-" + b"9" * 5000, 10)
def test_no_field_leads_outside(value: bytes, length: int) -> None:
    """S1"""
    for first, count in ranges(value, length) or []:
        assert 0 <= first < first + count <= length


@pytest.mark.parametrize("value", [b"bytes=" + b"0-0," * 30000, b"bytes=" + b"," * 100000, b"bytes=" + b"0" * 100000])
def test_too_much_is_as_if_it_had_not_been_sent(value: bytes) -> None:
    """S1"""
    assert ranges(value, 10) is None


def test_as_many_ranges_as_may_be_are_served() -> None:
    value = b"bytes=" + b",".join(b"%d-%d" % (2 * at, 2 * at) for at in range(MAX_RANGES))
    assert ranges(value, 1000) == [(2 * at, 1) for at in range(MAX_RANGES)]
    assert ranges(value + b",900-900", 1000) is None


@given(
    st.dictionaries(
        st.sampled_from([b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range"]),
        st.one_of(
            st.binary(max_size=30), st.sampled_from([ETAG, b"*", b'W/"1-2"', b'"1-2', b",", b'"a",' * 50 + ETAG])
        ),
    )
)
def test_conditions_of_any_kind_have_an_outcome(found: dict[bytes, bytes]) -> None:
    outcome = precondition(found, ETAG, 1000)
    assert outcome in (200, 304, 412)
    assert isinstance(representation.range_applies(found, ETAG, 1000, 2000.0), bool)
    assert outcome != 412 or b"if-match" in found or b"if-unmodified-since" in found


@given(st.integers(0, 253402300799))
def test_dates_are_read_as_they_are_written(seconds: int) -> None:
    assert parse_date(formatdate(seconds, usegmt=True).encode()) == seconds


def test_years_of_two_digits_are_not_far_ahead() -> None:
    """RFC 9110 section 5.6.7"""
    year = time.gmtime().tm_year
    for ahead, expected in ((0, year), (50, year + 50), (51, year - 49)):
        date = b"Monday, 01-Jan-%02d 00:00:00 GMT" % ((year + ahead) % 100)
        assert parse_date(date) == calendar.timegm((expected, 1, 1, 0, 0, 0))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"0",
        b"Mon, 01 Jan 2024 12:00:00",
        b"Mon, 01 Jan 2024 12:00:00 UTC",
        b"Mon, 01 Foo 2024 12:00:00 GMT",
        b"Mon, 31 Feb 2024 12:00:00 GMT",
        b"Mon, 01 Jan 2024 24:00:00 GMT",
        b"Mon, 01 Jan 0000 12:00:00 GMT",
        b"Mon, 1 Jan 2024 12:00:00 GMT",
        b"Mon, 01 Jan 2024 12:00:61 GMT",
        b" Mon, 01 Jan 2024 12:00:00 GMT",
        b"Mon, 01 Jan 2024 12:00:00 GMT" * 1000,
    ],
)
def test_what_is_no_date_is_none(text: bytes) -> None:
    assert parse_date(text) is None


def test_a_leap_second_is_a_date() -> None:
    assert parse_date(b"Sat, 31 Dec 2016 23:59:60 GMT") == calendar.timegm((2016, 12, 31, 23, 59, 59))


def test_a_date_is_of_a_representation_only_when_its_second_is_over() -> None:
    """RFC 9110 section 8.8.2.2: it may change again in there."""
    found = {b"if-range": formatdate(1000, usegmt=True).encode()}
    assert not representation.range_applies(found, ETAG, 1000, 1000.9)
    assert representation.range_applies(found, ETAG, 1000, 1001.0)


@given(st.one_of(soup, st.binary(max_size=60)), st.sets(st.sampled_from(representation.CODINGS)))
def test_a_coding_is_one_that_is_there(accept: bytes, stored: set[bytes]) -> None:
    assert choose_coding({b"accept-encoding": accept}, stored) in (None, IDENTITY, *stored)


@pytest.mark.parametrize(("count", "coding"), [(400, b"br"), (5000, IDENTITY)])
def test_long_preferences_are_not_remembered_and_longer_ones_not_read(count: int, coding: bytes) -> None:
    """S1"""
    before = representation._preferences.cache_info().currsize
    accept = b", ".join(b"coding-%d;q=0.5" % number for number in range(count)) + b", br"
    assert choose_coding({b"accept-encoding": accept}, [b"br"]) == coding
    assert representation._preferences.cache_info().currsize == before


@pytest.mark.parametrize(("count", "found"), [(400, True), (5000, False)])
def test_longer_lists_of_tags_are_not_read(count: int, found: bool) -> None:
    """S1"""
    tags = b", ".join(b'"%d"' % number for number in range(count)) + b", " + ETAG
    assert precondition({b"if-none-match": tags}, ETAG, 1000) == (304 if found else 200)
    assert precondition({b"if-match": tags}, ETAG, 1000) == (200 if found else 412)
