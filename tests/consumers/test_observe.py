"""How two observations are compared: what is left out, what is explained, and that nothing else is lost."""

from __future__ import annotations

import pytest

from tests.consumers.consumer import Consumer, Difference
from tests.consumers.observe import MOMENTARY, Observation, differences, without_moment, without_server_frames


def consumer(*known: Difference) -> Consumer:
    return Consumer("name", "group", "package", ("true",), lambda client: None, differences=known)


def seen(answer: str = "200", output: str = "started", exit_status: int = 0) -> Observation:
    return Observation([answer], [output], [], exit_status)


def test_equal_observations_have_no_differences() -> None:
    assert differences(consumer(), seen(), seen()) == ([], [])


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (seen(answer="404"), ["-200", "+404"]),
        (seen(output="failed"), ["-started", "+failed"]),
        (seen(exit_status=3), ["---- exit status 0", "+--- exit status 3"]),
    ],
    ids=["answer", "output", "exit-status"],
)
def test_each_part_is_compared(other: Observation, expected: list[str]) -> None:
    assert differences(consumer(), seen(), other) == (expected, [])


def test_an_explained_difference_is_left_out_and_its_reason_given() -> None:
    known = Difference("^.(200|404)$", "because")
    assert differences(consumer(known), seen(), seen("404", "failed")) == (["-started", "+failed"], ["because"])


def test_a_difference_that_is_gone_gives_no_reason() -> None:
    assert differences(consumer(Difference("404", "because")), seen(), seen()) == ([], [])


def test_the_steps_of_a_traceback_through_the_server_are_left_out() -> None:
    traceback = [
        "Traceback (most recent call last):",
        '  File "ENVIRONMENT/lib/python3.13/site-packages/uvicorn/protocols/http/cycle.py", line 1, in run',
        "    await app(scope)",
        "          ^^^",
        '  File "DIRECTORY/app.py", line 2, in app',
        "    fail()",
        "ValueError: wanted",
    ]
    assert [*without_server_frames(traceback)] == [traceback[0], *traceback[4:]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("\x1b[32mINFO\x1b[0m:     Started server process [1234]", "INFO:     Started server process [PID]"),
        ('INFO:     127.0.0.1:40404 - "GET / HTTP/1.1" 200 OK', 'INFO:     127.0.0.1:PORT - "GET / HTTP/1.1" 200 OK'),
        ("at 2026-01-02T03:04:05.678901+00:00", "at TIME"),
        ("id 0123456789abcdef0123456789abcdef", "id HEX"),
        ("id 01234567-89ab-cdef-0123-456789abcdef", "id UUID"),
        ("took 0.12345 or 1.2e-05", "took FRACTION or FRACTION"),
        ("200 of 1024 in 1.25", "200 of 1024 in 1.25"),
    ],
)
def test_what_is_of_the_moment_is_replaced(line: str, expected: str) -> None:
    assert [*without_moment([line], MOMENTARY)] == [expected]
