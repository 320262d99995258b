"""Tables, pages and documents from recorded samples."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from bench import documents, page, report, tables
from bench.commands import baseline
from bench.errors import BenchError
from bench.model import Load, Result, Sample
from bench.report import METRICS, Table
from tests.bench import records

CPU = METRICS[0]


def _compared(first: float, second: float, blocks: int = 6) -> list[Sample]:
    found: list[Sample] = []
    for number in range(blocks):
        wobble = 1 + number / 500
        found += records.block(number, [first * wobble, first], [second, second * wobble], order="ABBA")
    return found


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        pytest.param(1e-5, 2e-5, "A better", id="less CPU is better"),
        pytest.param(2e-5, 1e-5, "B better", id="more CPU is worse"),
        pytest.param(1e-5, 1e-5, "no difference shown", id="equal"),
    ],
)
def test_the_verdict_follows_the_interval(first: float, second: float, words: str) -> None:
    found = report.compare(_compared(first, second), CPU)
    assert found is not None
    assert found.words() == words
    assert found.ratio.value == pytest.approx(first / second, rel=0.01)
    assert found.pairs == 12


def test_more_requests_per_second_are_better() -> None:
    found = report.compare(_compared(1e-5, 1e-5), METRICS[5])
    assert found is not None
    assert found.words() == "no difference shown"


def test_a_difference_smaller_than_the_noise_floor_is_no_difference() -> None:
    found = report.compare(_compared(1.02e-5, 1e-5), CPU)
    assert found is not None
    assert found.words() == "B better"
    assert found.words(floor=0.05) == "within the noise of 5.0%"


def test_a_pair_with_a_void_burst_is_left_out() -> None:
    samples = records.block(0, [1e-5, 9e-5], [2e-5, 2e-5])
    samples[3] = records.sample("ours", "A", cpu=9e-5, block=0, slot=3, void="errors: 1 read")
    found = report.compare(samples, CPU)
    assert found is not None
    assert (found.pairs, found.ratio.value) == (1, 0.5)


def test_a_comparison_without_pairs_says_why() -> None:
    samples = records.block(0, [1e-5, 1e-5], [2e-5, 2e-5], void="server died")
    with pytest.raises(BenchError, match="server died"):
        report.compare(samples, CPU)
    [table] = tables.tables(records.result("compare", samples))
    assert table.columns[-1] == "failed"
    assert "server died" in table.rows[0][-1]


def test_figures_that_were_not_measured_are_left_out() -> None:
    samples = records.block(0, [1e-5, 1e-5], [2e-5, 2e-5], memory=None)
    table = report.comparison_table("hello", samples)
    assert not any("memory" in row[0] for row in table.rows)
    assert table.rows[0][0] == "CPU per request"


def test_the_noise_floor_of_a_server_against_itself_reaches_the_verdict() -> None:
    noisy = [
        records.sample("ours", side, cpu=cpu, block=number + 10, slot=slot)
        for number in range(6)
        for slot, (side, cpu) in enumerate(zip("ABBA", (1e-5, 1.1e-5, 1.1e-5, 1e-5), strict=True))
    ]
    first, second = tables.tables(records.result("compare", [*_compared(1.05e-5, 1e-5), *noisy]))
    assert first.rows[0][-1].startswith("within the noise")
    assert "noise floor" in second.title


def test_rows_hold_medians_and_tell_lost_bursts() -> None:
    samples = [records.sample(cpu=cpu) for cpu in (1e-5, 3e-5, 2e-5)] + [records.sample(void="died")]
    [row] = report.samples_table("run", samples).rows
    assert row[5] == "20.0 us"
    assert row[-1] == "1 of 4 void"


def test_a_target_that_failed_always_is_a_failure_not_a_zero() -> None:
    [row] = report.samples_table("run", [records.sample(void="no module")]).rows
    assert row[-1] == "failed: no module"
    assert not any("0" in cell for cell in row[5:-1])


def test_threads_of_the_client_and_of_the_server_are_told_apart() -> None:
    samples = [records.sample(load=Load("wrk", 50, 4, 2.0))]
    [row] = report.processes_table(samples).rows
    assert row[3] == "4 thr 40%"
    assert row[4] == "python 2 thr 50%"


def test_markdown_escapes_what_would_break_a_table() -> None:
    text = report.markdown(Table("T", ("a", "b"), (("x|y", "1"),), "note"))
    assert "x\\|y" in text
    assert text.endswith("note\n")


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.50 s"), (0.0123, "12.30 ms"), (0.00001234, "12.3 us"), (0, "0.0 us")]
)
def test_times_are_written_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert report.micros(seconds) == text


def _many() -> list[Result]:
    names = ["ours", "upstream", "granian"]
    samples = [
        records.sample(name, cpu=1e-5 * (number + 1), load=Load("wrk", count, 1, 2.0))
        for number, name in enumerate(names)
        for count in (1, 10)
    ]
    return [records.result("run", samples), records.result("compare", _compared(1e-5, 2e-5))]


def test_the_page_loads_nothing_and_draws_every_workload() -> None:
    text = page.page("Measured <here>", _many())
    assert not re.search(r"(src|href|url\(|<script|@import)", text)
    assert "http" not in text.replace("<!doctype html>", "")
    assert "Measured &lt;here&gt;" in text
    assert "width=device-width" in text
    assert text.count("<svg") >= 2 * 4 + 5
    assert text.count("<svg") == text.count("</svg>")


def test_the_page_writes_doubts_out() -> None:
    one = records.result("run", [records.sample()])
    doubted = Result(one.kind, one.created, one.environment, one.samples, notes=("a < b",))
    assert "a &lt; b" in page.page("T", [doubted])


def _stored(**results: Result) -> Callable[[str], Result]:
    def read(name: str) -> Result:
        if name not in results:
            raise BenchError(f"no baseline {name!r}")
        return results[name]

    return read


def test_documents_are_filled_between_markers_and_nowhere_else() -> None:
    text = "before\n<!-- bench:begin look -->\nold\n<!-- bench:end -->\nafter\n"
    filled = documents.fill(text, _stored(look=records.result("run", [records.sample()])))
    assert filled.startswith("before\n<!-- bench:begin look -->\n")
    assert filled.endswith("<!-- bench:end -->\nafter\n")
    assert "| hello | ours |" in filled
    assert "old" not in filled
    assert documents.fill(filled, _stored(look=records.result("run", [records.sample()]))) == filled


def test_a_figure_changed_by_hand_is_noticed() -> None:
    stored = _stored(look=records.result("run", [records.sample()]))
    filled = documents.fill("<!-- bench:begin look -->\n<!-- bench:end -->\n", stored)
    forged = filled.replace("10.0 us", "9.0 us")
    assert forged != filled
    assert documents.fill(forged, stored) == filled


def test_the_concurrency_view_puts_targets_side_by_side() -> None:
    [run, _] = _many()
    [table] = documents.concurrency(run)
    assert table.columns[:5] == ("connections", "ours req/s", "p50", "p99", "status")
    assert [row[0] for row in table.rows] == ["1", "10"]
    filled = documents.fill("<!-- bench:begin look concurrency -->\n<!-- bench:end -->", _stored(look=run))
    assert "upstream req/s" in filled


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("<!-- bench:begin look -->\n", "without its", id="no end"),
        pytest.param("<!-- bench:end -->\n", "without its", id="no begin"),
        pytest.param("<!-- bench:begin other -->\n<!-- bench:end -->", "no baseline 'other'", id="unknown result"),
        pytest.param("<!-- bench:begin look odd -->\n<!-- bench:end -->", "unknown view 'odd'", id="unknown view"),
    ],
)
def test_markers_that_cannot_be_filled_are_an_error(text: str, words: str) -> None:
    with pytest.raises(BenchError, match=words):
        documents.fill(text, _stored(look=records.result("run")))


def test_a_baseline_is_compared_case_by_case() -> None:
    old = records.result("run", [records.sample(cpu=1e-5)])
    new = records.result("run", [records.sample(cpu=2e-5), records.sample("granian")])
    [row] = baseline.table(old, new).rows
    assert row[:3] == ("hello, wrk, 50", "ours", "2.000")
    with pytest.raises(BenchError, match="no case in common"):
        baseline.table(old, records.result("run", [records.sample("granian")]))


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b"])
def test_a_baseline_has_a_plain_name(name: str) -> None:
    with pytest.raises(BenchError, match="not a name"):
        baseline.path_of(name)


def test_a_result_with_a_directory_of_this_machine_is_no_baseline() -> None:
    with pytest.raises(BenchError, match="directory of this machine"):
        baseline.check_portable(records.result("run", [records.sample(void="cannot write /tmp/x")]))
