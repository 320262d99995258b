"""The page has every feature, tables are read back as they were written, and what is looked for can be missing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.features import files, proxies, tls
from tests.features.__main__ import main, tried
from tests.features.catalog import FEATURES
from tests.features.feature import Feature
from tests.features.table import BEGIN, END, Row, Seen, between_markers, markdown, parse, write
from tests.features.trial import OURS, SERVERS, Means, Trial
from uvicorn.main import main as uvicorn_command

ROWS = [Row("Files", "`A`|`B`", "How a is tried."), Row("Files", "c", "How c is."), Row("TLS", "d", "How d is.")]
CELLS = {row.name: {"one": f"yes (`{row.group}`)", "two": "no, with `a|b`"} for row in ROWS}


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (Seen({"": True}), "yes"),
        (Seen({"": True}, "`--a`"), "yes (`--a`)"),
        (Seen({"": True}, "`f`", own_code=True), "in part: with custom code (`f`)"),
        (Seen({"": False}), "no"),
        (Seen({"a": False, "b": False}, "`--a`", own_code=True), "no, with `--a`"),
        (Seen({"a": True, "b": False, "c": True}), "in part: not b"),
        (Seen({"a": True, "b": False, "c": False}, "`--a`"), "in part: a only (`--a`)"),
        (Seen({"a": True, "b": False}, "`f`", own_code=True), "in part: a only, with custom code (`f`)"),
    ],
)
def test_a_cell_says_what_was_seen_and_by_what_means(seen: Seen, text: str) -> None:
    assert str(seen) == text


def test_a_table_is_read_back_as_it_was_written() -> None:
    text = markdown(ROWS, {"one": "One 1.0", "two": "Two 2.0"}, CELLS, ["A note."])
    assert text.startswith("A note.\n\n## Files\n\n| Feature | One 1.0 | Two 2.0 |\n")
    assert text.endswith("| d | yes (`TLS`) | no, with `a\\|b` |")
    assert parse(text, ["one", "two"]) == CELLS


def test_what_is_around_the_table_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nbehind\n")
    write("new", page)
    assert page.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nbehind\n"
    page.write_text(f"before\n{BEGIN}\n")
    with pytest.raises(ValueError, match=r"page\.md has no place"):
        write("new", page)


def test_the_page_has_every_feature_and_no_other_tried_on_every_server() -> None:
    text = between_markers()
    cells = parse(text, SERVERS)
    assert list(cells) == [feature.name for feature in FEATURES]
    for row in (feature.row for feature in FEATURES):
        for server, cell in cells[row.name].items():
            assert re.match(r"(yes|no|in part: .+)\b", cell), f"{row.name}, {server}: {cell!r}"


def test_options_of_this_server_in_the_page_exist() -> None:
    known = {name for option in uvicorn_command.params for name in option.opts}
    named = {
        name
        for cells in parse(between_markers(), SERVERS).values()
        for name in re.findall(r"--[a-z0-9-]+", cells[OURS])
    }
    assert len(named) > 10
    assert named <= known


def test_every_feature_says_how_it_is_tried() -> None:
    for feature in FEATURES:
        assert feature.row.about.endswith("."), feature.name


def test_what_was_seen_without_options_is_not_for_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--write", "--bare"])
    assert "not for the page" in capsys.readouterr().err


# The observations. A server is started for each, so these are a few that wait for nothing.

served = pytest.mark.skipif(sys.platform != "linux", reason="the addresses of the loopback interface are Linux's")


@served
@pytest.mark.parametrize(
    "observe",
    [tls.several_names, tls.told_of_client, proxies.forwarded, proxies.proxy_protocol, files.ranges],
)
def test_a_feature_is_seen_with_its_option_and_missed_without(observe: Callable[..., object]) -> None:
    feature = next(feature for feature in FEATURES if feature.observe is observe)
    assert tried(feature, OURS).startswith("yes (`--")
    assert tried(feature, OURS, bare=True) == "no"


@served
def test_a_server_that_does_not_start_is_no_finding() -> None:
    def observe(trial: Trial) -> dict[str, bool]:
        with trial.serving({OURS: Means(arguments=["--no-such-option"])}):
            raise AssertionError("it serves")

    with pytest.raises(AssertionError, match=r"(?s)ours does not start.*--no-such-option"):
        tried(Feature("group", "name", observe), OURS)
