"""The page has every consumer, and is written without losing those that were not run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.consumers.programs import CONSUMERS
from tests.consumers.table import BEGIN, END, PAGE, Row, exits, markdown, parse, verdict, write

ONE = Row("one", "1.0", "`one --port {port}`", "SIGINT: 0", "SIGINT: 0", "yes")
TWO = Row("two", "2.0", "`two a|b`", "SIGINT: 0", "SIGINT: 1", "no")


def test_exit_statuses_stand_beside_their_signals() -> None:
    assert exits({"SIGINT": 0, "SIGTERM": -15}) == "SIGINT: 0, SIGTERM: -15"


def test_a_verdict_names_the_reasons_of_what_is_right() -> None:
    assert verdict([], []) == "yes"
    assert verdict([], ["one", "two"]) == "yes, but one; two"
    assert verdict(["-200", "+404"], ["one"]) == "no"


def test_a_table_is_read_back_as_it_was_written() -> None:
    assert parse(markdown([TWO, ONE])) == [ONE, TWO]


def test_consumers_that_were_not_run_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\n\n{END}\n\nbehind\n")
    write([ONE, TWO], page)
    write([replace(TWO, equal="yes")], page)
    assert page.read_text() == (
        f"before\n\n{BEGIN}\n\n{markdown([ONE, replace(TWO, equal='yes')])}\n\n{END}\n\nbehind\n"
    )


def test_every_consumer_is_in_the_page_and_equal() -> None:
    rows = parse(PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0])
    assert sorted(row.consumer for row in rows) == sorted(consumer.name for consumer in CONSUMERS)
    assert [row.consumer for row in rows if not row.equal.startswith("yes")] == []
