"""Tables, pages and documents from recorded samples."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bench import documents, losses, page, parts, poster, publication, report, tables, verdicts, views
from bench.commands import baseline
from bench.errors import BenchError
from bench.model import Burst, Load, Result, Sample
from bench.publication import Section
from bench.report import METRICS, Table
from bench.stats import Interval
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
    first, second, _ = tables.tables(records.result("compare", [*_compared(1.05e-5, 1e-5), *noisy]))
    assert first.rows[0][-1].startswith("within the noise")
    assert "noise floor" in second.title


def test_rows_hold_medians_and_tell_lost_bursts() -> None:
    samples = [records.sample(cpu=cpu) for cpu in (1e-5, 3e-5, 2e-5)] + [records.sample(void="died")]
    [row] = report.samples_table("run", samples).rows
    assert row[1] == "20.0 us"
    assert row[-1] == "1 of 4 void"


def test_a_target_that_failed_always_is_a_failure_not_a_zero() -> None:
    [row] = report.samples_table("run", [records.sample(void="no module")]).rows
    assert row[-1] == "failed: no module"
    assert set(row[1:-1]) == {""}


def test_threads_of_the_client_and_of_the_server_are_told_apart() -> None:
    samples = [records.sample(load=Load("wrk", 50, 4, 2.0))]
    [row] = report.processes_table(samples).rows
    assert row[:3] == ("ours", "4 thr 40%", "python 2 thr 50%")


def test_columns_that_say_the_same_everywhere_go_into_the_title() -> None:
    samples = [records.sample(name, load=Load("wrk", 50, 1, 2.0)) for name in ("ours", "upstream")]
    table = report.samples_table("run", samples)
    assert table.title == "run (hello, single, wrk, 50 connections)"
    assert table.columns[:2] == ("target", "CPU/req")
    other = records.sample("granian", load=Load("wrk", 10, 1, 2.0))
    table = report.samples_table("run", [*samples, other])
    assert table.title == "run (hello, single, wrk)"
    assert [row[1] for row in table.rows] == ["10", "50", "50"]


def test_details_are_every_percentile_and_every_kind_of_memory() -> None:
    result = records.result("run", [records.sample(cpu=1e-5)])
    *_, latency, memory = tables.tables(result, details=True)
    assert latency.columns[-7:] == ("p50", "p75", "p90", "p95", "p99", "p99.9", "max")
    assert latency.rows[0][-7:] == ("500.0 us", "750.0 us", "1.00 ms", "1.25 ms", "2.00 ms", "4.00 ms", "5.00 ms")
    assert memory.columns[-6:] == ("RSS peak", "PSS peak", "USS peak", "RSS settled", "PSS settled", "USS settled")
    assert memory.rows[0][-6:] == ("30.0",) * 6
    assert len(tables.tables(result)) == 2


def test_text_stands_to_the_left_and_figures_to_the_right() -> None:
    rows = (("a", "1 us", "ok", "3.1"), ("b", "-", "ok", "failed"), ("c", "2 us", "1 of 2 void", "2.9"))
    text = report.markdown(Table("T", ("name", "time", "status", "ratio"), rows))
    assert "| --- | ---: | --- | ---: |" in text


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


def _sections(*results: Result) -> list[Section]:
    return [publication.of_result(one) for one in results]


def test_the_page_loads_nothing_and_draws_every_workload() -> None:
    text = page.page("Measured <here>", _sections(*_many()))
    # Nothing but links to its own sections.
    assert set(re.findall(r'href="([^"]*)"', text)) == {"#run", "#compare"}
    assert not re.search(r"(src=|url\(|<script|<link|@import|http:|https:|//)", text)
    assert "Measured &lt;here&gt;" in text
    assert "width=device-width" in text
    assert text.count("<svg") >= 2 * 4 + 4
    assert text.count("<svg") == text.count("</svg>")
    assert text.count("<details") == text.count("</details>")


def test_the_page_draws_what_has_no_bursts_too() -> None:
    record = {"settled_pss": 2**20, "allocations": 3.0, "connections": [{"count": 10, "rss": 2048.0, "pss": 2048.0}]}
    text = page.page("T", _sections(records.result("memory", records={"ours": record}, workload="hello")))
    assert text.count("<svg") == 3
    assert "2.00 KiB" in text


def test_the_same_target_has_the_same_colour_in_every_chart() -> None:
    text = page.page("T", _sections(_many()[0]))
    bars = re.findall(r'>(\w+)</text><text[^>]*>[^<]*</text><rect class="track"[^>]*/><rect[^>]*fill="(#\w+)"', text)
    assert len(bars) == 18
    assert set(bars) == {("ours", "#2563eb"), ("granian", "#d97706"), ("upstream", "#059669")}


def test_the_page_writes_doubts_out() -> None:
    one = records.result("run", [records.sample()])
    doubted = Result(one.kind, one.created, one.environment, one.samples, notes=("a < b",))
    assert "a &lt; b" in page.page("T", _sections(doubted))
    assert "- a < b" in publication.markdown("T", _sections(doubted))


def _against(name: str, cpu: float, **more: Any) -> list[Sample]:
    """Six blocks of ours against another, and ours against itself."""
    found = []
    for number in range(6):
        for slot, side in enumerate("ABCCBA"):
            target, value = {"A": ("ours", 1e-5), "B": (name, cpu), "C": ("ours", 1.01e-5)}[side]
            value *= 1 + number / 500
            found.append(records.sample(target, side, cpu=value, block=number, slot=slot, **more))
    return found


def test_losses_are_every_figure_in_which_another_server_is_better() -> None:
    result = records.result("compare", _against("granian", 0.5e-5))
    [table] = losses.tables(result)
    assert {row[1] for row in table.rows} == {"CPU per request", "p50", "p99", "p99.9"}
    assert table.rows[0][:6] == ("hello", "CPU per request", "granian", "10.1 us", "5.0 us", "2.00")
    [none] = losses.tables(records.result("compare", _against("granian", 0.995e-5)))  # Within the noise.
    assert none.rows == ()
    one_block = [sample for sample in _against("granian", 0.5e-5) if sample.block == 0]
    [open_] = losses.tables(records.result("compare", one_block))  # Twice as good, but one block proves nothing.
    assert {row[-1] for row in table.rows} == {"yes"}
    assert {row[-1] for row in open_.rows} == {"no"}
    [floor] = losses.tables(records.result("compare", _against("epoll", 0.5e-5)))
    assert floor.rows == ()


def test_a_server_that_failed_where_another_did_not_has_lost() -> None:
    failed = [replace(one, void="it burned") if one.target == "ours" else one for one in _against("granian", 0.5e-5)]
    [table] = losses.tables(records.result("compare", failed))
    assert table.rows == (("hello", "every figure", "granian", "failed", "-", "-", "-", "-"),)
    load = Load("openloop", 64, 1, 2.0, rate=2000.0)
    alone = [replace(records.sample("ours", load=load), void="it burned"), records.sample("granian", load=load)]
    [table] = losses.tables(records.result("latency", alone))
    assert [row[1:4] for row in table.rows] == [("every figure", "granian", "failed")]


def test_a_percentile_of_few_requests_is_no_figure() -> None:
    for requests, known in ((199, ()), (200, ("p99",)), (2000, ("p99", "p99.9"))):
        pairs = [
            records.sample(name, side, block=block, burst=Burst(requests, 2.0, {}, records.latency(0.1)))
            for block in range(4)
            for name, side in (("ours", "A"), ("granian", "B"))
        ]
        rows = report.comparison_table("t", pairs).rows
        assert [row[0] for row in rows if row[0].startswith("p99")] == list(known)
        [table] = views.tails(records.result("run", pairs))
        assert ("/ too few (199)" in table.rows[0][2]) is (requests == 199)


def test_latencies_that_are_certainly_longer_are_beside_the_tails() -> None:
    pairs = _against("granian", 0.5e-5)
    [_, table] = views.tails(records.result("compare", pairs))
    assert [row[:3] for row in table.rows] == [("hello", "p50", "granian"), ("hello", "p99", "granian")]
    assert table.rows[0][3] == "2.00 (2.00 to 2.00)"
    [_] = views.tails(records.result("compare", _against("granian", 0.995e-5)))  # Within the noise.


def test_the_noise_floor_is_beside_the_ratios() -> None:
    [table] = views.speedups(records.result("compare", _against("upstream", 3e-5)))
    assert table.columns == ("upstream", "noise floor") == table.columns[-2:]
    assert table.rows[0][-1] == "1%"
    assert "Noise floor" in table.note
    [without] = views.speedups(records.result("compare", _compared(1e-5, 3e-5)))
    assert "noise floor" not in without.columns and "Noise floor" not in without.note


def test_growth_beyond_upstream_is_said_and_is_a_loss() -> None:
    def hours(growth: float) -> dict[str, Any]:
        one = {"workload": "app", "rest": 60 * 2**20, "warm": 70 * 2**20, "end": (70 + growth) * 2**20}
        return {"hours": [{**one, "requests": 18000, "seconds": 60.0}]}

    grown = records.result("memory", records={"ours": hours(5.8), "upstream": hours(0.9), "granian": hours(5.0)})
    result = replace(grown, data={**grown.data, "workload": "hello"})
    [table] = views.hours(result)
    assert table.note.endswith("Grew by at least 1 MiB more than with upstream: app, 5.8 MiB (upstream 0.9).")
    [lost] = losses.tables(result)
    rows = [row[:5] for row in lost.rows if row[1].startswith("growth")]
    assert rows == [("app", "growth in an hour's requests", "upstream", "5.8 MiB", "0.9 MiB")]
    level = records.result("memory", records={"ours": hours(0.9), "upstream": hours(0.9)}, workload="hello")
    assert "Grew" not in views.hours(level)[0].note


def test_streams_at_a_fixed_rate_are_not_compared_by_rate() -> None:
    result = records.result("compare", _against("granian", 0.5e-5, workload="tokens"))
    assert "requests per second" not in {row[0] for row in report.comparison_table("t", result.samples[:4]).rows}


def _start(ready: float, cpu: float) -> dict[str, float]:
    return {"ready": ready, "import": cpu, "stop": 0.01}


def test_losses_without_pairs_have_no_interval() -> None:
    starts = {"ours": [_start(0.13, 0.10)] * 3, "upstream": [_start(0.12, 0.10)] * 3, "hypercorn": []}
    [table] = losses.tables(records.result("startup", records=starts, workload="hello"))
    row = ("hello", "time to the first answer", "upstream", "130.00 ms", "120.00 ms", "1.08", "-", "-")
    assert table.rows == (row,)
    held = {
        "ours": {
            "rest_pss": 3e7,
            "settled_pss": 3e7,
            "hours": [{"workload": "app", "end": 9e7}],
            "connections": [{"count": 5000, "pss": 1024.0}],
        },
        "fastpysgi": {
            "rest_pss": 2e7,
            "settled_pss": 2.9e7,
            "hours": [{"workload": "app", "end": 8e7}],
            "connections": [{"count": 5000, "pss": 512.0}],
        },
    }
    [table] = losses.tables(records.result("memory", records=held, workload="hello"))
    assert [row[:2] for row in table.rows] == [
        ("hello", "PSS at rest"),
        ("app", "PSS after an hour's requests"),
        ("5,000 idle connections", "PSS per connection"),
    ]


def test_losses_at_a_rate_and_of_several_workers_are_tails_and_costs() -> None:
    load = Load("openloop", 64, 1, 2.0, rate=2000.0)
    arrivals = [records.sample("ours", load=load), records.sample("granian", cpu=0.5e-5, load=load)]
    [table] = losses.tables(records.result("latency", arrivals))
    assert [row[:3] for row in table.rows] == [
        ("hello, 2,000/s, 64 connections", figure, "granian") for figure in ("CPU per request", "p50", "p99", "p99.9")
    ]
    two = [replace(one, mode="processes=2", load=replace(load, rate=None)) for one in arrivals]
    [table] = losses.tables(records.result("scaling", two))
    assert {row[0] for row in table.rows} == {"hello, processes=2, 64 connections"}


def test_losses_under_overload_and_of_many_processes_are_listed() -> None:
    storm = {
        "ours": {"good": 64.0, "p50": 5.5, "p99": 10.6},
        "ours:active=16": {"good": 900.0, "p50": 0.02, "p99": 0.03},
        "upstream": {"good": 69.0, "p50": 5.4, "p99": 10.6},
        "granian": {"good": 60.0, "p50": None, "p99": 8.0},
    }
    stormy = {name: {"stormy": record} for name, record in storm.items()}
    [table] = losses.tables(records.result("overload", records=stormy, workload="busy", factor=3.0))
    assert [row[:6] for row in table.rows] == [
        ("busy, 3 times the capacity", "answers in time per second", "upstream", "64", "69", "0.93"),
        ("busy, 3 times the capacity", "p99", "granian", "10.60 s", "8.00 s", "1.32"),
    ]
    sections = {
        "scaling": [
            {"target": "ours", "workers": 2, "rps": 90e3, "p99": 0.004, "errors": 0},
            {"target": "upstream", "workers": 2, "rps": 40e3, "p99": 0.002, "errors": 0},
            {"target": "upstream", "workers": 4, "rps": 140e3, "p99": 0.001, "errors": 0},
        ],
        "recycling": [
            {"target": "ours", "workers": 2, "rps": 30e3, "replaced": 0},
            {"target": "ours:max-requests=5000", "workers": 2, "rps": 30e3, "replaced": 7},
            {"target": "upstream:max-requests=5000", "workers": 2, "rps": 40e3, "replaced": 8},
        ],
    }
    [table] = losses.tables(records.result("workers", sections=sections))
    assert [row[:6] for row in table.rows] == [
        ("workers: scaling, 2 workers", "p99", "upstream", "4.00 ms", "2.00 ms", "2.00"),
        (
            "workers: recycling, max-requests=5000, 2 workers",
            "requests per second",
            "upstream",
            "30,000",
            "40,000",
            "0.75",
        ),
    ]


def test_workloads_about_a_wait_have_no_ratios_of_cost() -> None:
    result = records.result("compare", _against("granian", 0.5e-5, workload="accept"))
    [table] = views.speedups(result)
    assert table.rows == ()
    assert list(report.speedups(result.samples)) == []
    pairs = [one for one in result.samples if one.side != "C"]
    assert [row[0] for row in report.comparison_table("t", pairs).rows] == ["p50", "p99", "p99.9"]
    [table] = losses.tables(result)
    assert {row[1] for row in table.rows} == {"p50", "p99", "p99.9"}


def test_a_tail_that_the_end_has_cut_is_a_lower_bound() -> None:
    load = Load("accept", 500, 1, 15.0)

    def tail(unanswered: int) -> str:
        cut = Burst(1000, 15.0, {}, records.latency(7.5), unanswered=unanswered)
        [table] = views.tails(records.result("run", [records.sample(workload="accept", load=load, burst=cut)]))
        return table.rows[0][2]

    assert tail(40) == "7.50 s / over 30.00 s; 40 of 500 unanswered"
    assert tail(4) == "7.50 s / 30.00 s; 4 of 500 unanswered"
    assert tail(0) == "7.50 s / 30.00 s"


def test_an_hours_memory_has_a_row_for_each_application() -> None:
    one = {"workload": "app-site", "warm": 2**20, "end": 3 * 2**20}
    [table] = views.hours(records.result("memory", records={"ours": {"hours": [one]}, "granian": {}}))
    assert table.columns == ("workload", "ours")
    assert table.rows == (("app-site", "3.0 (+2.0)"),)


def test_the_headline_is_upstream_before_and_ours_after() -> None:
    result = records.result("compare", _against("upstream", 3e-5))
    [table] = views.headline(result)
    assert table.rows == (("plain GET, again and again", "50", "30.2 us", "10.1 us", "3.00 (3.00 to 3.00)"),)
    assert "3.00&times;" in page.page("T", [publication.of_part("performance", result)])


def test_figures_of_before_are_without_this_tree() -> None:
    result = records.result("compare", _against("upstream", 3e-5))
    [table] = views.before(result)
    assert table.columns == ("workload", "conns", "upstream")
    [table] = views.servers(result)
    assert table.columns == ("workload", "conns", "ours", "upstream")
    assert table.rows[0][3] == "30.2 (30.0 to 30.3)"


def test_three_servers_stand_in_one_table_with_the_ratio_of_each() -> None:
    samples = [
        *_against("upstream", 3e-5),
        *[replace(one, block=one.block + 6) for one in _against("granian", 2e-5)],
    ]
    table, threads = tables.tables(records.result("compare", samples))
    assert threads.title == "threads and cores (hello, 50 connections)"
    assert [row[0] for row in table.rows] == ["ours", "upstream", "granian"]
    assert [row[2] for row in table.rows] == ["1.01", "3.00", "2.00"]
    assert [row[4] for row in table.rows] == ["noise floor", "worse", "worse"]


def test_times_less_are_told_for_every_workload_and_rival() -> None:
    samples = [*_against("upstream", 3e-5), *_against("granian", 0.5e-5, workload="echo")]
    numbered = [replace(one, block=one.block + 6 * (one.workload == "echo")) for one in samples]
    first, *_ = tables.tables(records.result("compare", numbered))
    assert first.title == "CPU per request relative to A (single, 50 connections, A is ours)"
    assert [row[:3] for row in first.rows] == [
        ("hello", "3.00 (3.00 to 3.00)", "-"),
        ("echo", "-", "0.50 (0.50 to 0.50)"),
    ]


def _stored(**results: Result) -> Callable[[str], Result | None]:
    def read(name: str) -> Result | None:
        if name == "unmeasured":
            return None
        if name not in results:
            raise BenchError(f"no baseline {name!r}")
        return results[name]

    return read


def test_what_is_not_measured_yet_is_said_between_the_markers() -> None:
    filled = documents.fill("<!-- bench:begin unmeasured -->\nold\n<!-- bench:end -->\n", _stored())
    assert filled == "<!-- bench:begin unmeasured -->\n\nNot measured yet.\n\n<!-- bench:end -->\n"


def test_documents_are_filled_between_markers_and_nowhere_else() -> None:
    text = "before\n<!-- bench:begin look -->\nold\n<!-- bench:end -->\nafter\n"
    filled = documents.fill(text, _stored(look=records.result("run", [records.sample()])))
    assert filled.startswith("before\n<!-- bench:begin look -->\n")
    assert filled.endswith("<!-- bench:end -->\nafter\n")
    assert "| ours | 10.0 us |" in filled
    assert "old" not in filled
    assert documents.fill(filled, _stored(look=records.result("run", [records.sample()]))) == filled


def test_a_view_of_all_parts_is_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("first", "second", "unmeasured", "won")
    monkeypatch.setattr(parts, "PARTS", tuple(parts.Part(name, name, "", ("run ours",), "", 1, 1) for name in names))
    monkeypatch.setattr(parts, "LONG", ())
    first = replace(records.result("compare", _against("granian", 0.5e-5)), created="2026-01-02T03:04:05Z")
    second = replace(records.result("compare", _against("hypercorn", 0.5e-5)), created="2026-01-04T03:04:05Z")
    won = replace(records.result("compare", _against("granian", 2e-5)), created="2026-01-09T03:04:05Z")
    stored = _stored(first=first, second=second, won=won)
    filled = documents.fill("<!-- bench:begin all losses -->\n<!-- bench:end -->\n", stored)
    assert filled.count("**where this fork does not win**") == 1
    assert "| hello | CPU per request | granian |" in filled
    assert "| hello | CPU per request | hypercorn |" in filled
    assert "Measured 2026-01-02 to 2026-01-04: " in filled
    # Nothing lost is a result, too.
    nothing = documents.fill("<!-- bench:begin won losses -->\n<!-- bench:end -->\n", stored)
    assert "Measured 2026-01-09: " in nothing
    assert "does not win" not in nothing


def test_a_figure_changed_by_hand_is_noticed() -> None:
    stored = _stored(look=records.result("run", [records.sample()]))
    filled = documents.fill("<!-- bench:begin look -->\n<!-- bench:end -->\n", stored)
    forged = filled.replace("10.0 us", "9.0 us")
    assert forged != filled
    assert documents.fill(forged, stored) == filled


def test_the_concurrency_view_is_upstream_before_and_ours_after() -> None:
    [run, _] = _many()
    samples = [one for one in run.samples if one.target != "granian"]
    failed = records.sample("ours", void="errors: 3 read", burst=None, load=Load("wrk", 100, 1, 2.0))
    [table] = views.concurrency(records.result("run", [*samples, failed]))
    assert table.columns == (
        *("connections", "upstream: req/s", "p50", "p99", "status", "ours: req/s", "p50", "p99", "status"),
        "times req/s",
    )
    assert [row[0] for row in table.rows] == ["1", "10", "100"]
    assert table.rows[0][4] == table.rows[0][8] == "ok"
    assert table.rows[2][1:] == ("-", "-", "-", "not measured", "-", "-", "-", "failed: errors: 3 read", "-")
    filled = documents.fill("<!-- bench:begin look concurrency -->\n<!-- bench:end -->", _stored(look=run))
    assert "upstream: req/s" in filled


def test_documents_open_with_upstream_before_and_ours_after() -> None:
    [run, _] = _many()
    other = records.sample("ours", load=Load("wrk", 1000, 1, 2.0))
    [table] = views.opening(records.result("run", [*run.samples, other]))
    assert [row[0] for row in table.rows] == ["1", "10", "1,000"]
    assert table.columns[:4] == ("connections", "requests/s before", "after", "times")


def test_tails_have_no_row_where_the_generator_knows_none() -> None:
    piped = records.sample(workload="pipeline", burst=Burst(100_000, 2.0, {}, None))
    failed = records.sample("upstream", void="errors: 3 read", burst=None)
    [table] = views.tails(records.result("run", [records.sample(), failed, piped]))
    assert table.rows == (("hello", "50", "500.0 us / 2.00 ms", "failed"),)


def test_the_chart_is_of_ratios_to_upstream_by_pairs() -> None:
    rivals = {"upstream": 3e-5, "granian": 2e-5, "daphne": 9e-5}
    samples = [
        replace(one, slot=one.slot + 6 * number)
        for number, (name, cpu) in enumerate(rivals.items())
        for one in _against(name, cpu)
    ]
    figures = poster.groups([records.result("compare", [replace(one, workload="fastapi-api") for one in samples])])
    [(name, bars)] = figures.items()
    assert name == "FastAPI: validation, a wait, 2 KB of JSON"
    assert list(bars) == ["this fork", "granian", "uvicorn 0.54", "daphne"]
    assert [one.value for one in bars.values()] == pytest.approx([3.0, 1.5, 1.0, 1 / 3])
    light, dark = (poster.draw(figures, poster.THEMES[theme]) for theme in ("light", "dark"))
    assert "3.00\N{MULTIPLICATION SIGN}" in light and light.count("<rect") == dark.count("<rect") == 4
    wide = {name: {server: Interval(one.value, 2.0, 4.0) for server, one in bars.items()}}
    assert poster.draw(wide, poster.THEMES["light"]).count("<path") == 4
    unknown = {name: {server: Interval(one.value, 0.0, math.inf) for server, one in bars.items()}}
    assert "<path" not in poster.draw(unknown, poster.THEMES["light"])
    behind = [replace(one, workload="django") for one in _against("upstream", 9e-6)]
    lost = poster.groups([records.result("compare", behind)])
    assert [list(bars) for bars in lost.values()] == [["uvicorn 0.54", "this fork"]]
    assert light != dark and "href" not in light
    assert poster.groups([records.result("compare", _against("granian", 2e-5))]) == {}


def test_verdicts_say_what_a_result_comes_to() -> None:
    [said] = verdicts.of(records.result("compare", _against("upstream", 3e-5)))
    assert said == "hello, 50 connections: upstream needs 3.00 times the CPU per request of ours (3.00 to 3.00)"
    [said] = verdicts.of(records.result("compare", _against("epoll", 5e-6)))
    assert said == "hello, 50 connections: ours needs 2.00 times the CPU per request of epoll (2.00 to 2.00)"
    [said] = verdicts.of(records.result("compare", _against("upstream", 1e-5)[:6]))
    assert said.startswith("hello, 50 connections: too few blocks (1) to tell a difference in CPU between ours and")
    failed = records.sample("upstream", void="errors: 3 read", burst=None)
    ours, upstream = verdicts.of(records.result("run", [records.sample(), failed]))
    assert ours == "ours does 50,000 requests/s at best (hello, 50 connections); all cases answered rightly"
    assert upstream == "upstream answered rightly in none of 1 cases"
    assert verdicts.of(records.result("startup")) == []


def test_a_baseline_shows_upstream_and_this_tree_then_and_now() -> None:
    stored = records.result("run", [records.sample("upstream"), records.sample("ours")])
    table = baseline.progress(stored, records.result("run", [records.sample("ours")] * 2))
    assert table.rows == (("hello, 50", "50,000", "50,000", "50,000", "1.00", "1.00", "0%"),)
    with pytest.raises(BenchError, match="no case in common"):
        baseline.progress(stored, records.result("run", [records.sample("ours", workload="echo")]))


def test_doubts_and_places_are_told_once_for_a_document() -> None:
    one, other = (replace(records.result("run", [records.sample()]), notes=("it was dark", note)) for note in "ab")
    text = publication.markdown("T", [Section("one", "One", one), Section("two", "Two", other)])
    assert text.count("- it was dark (everywhere)") == 1
    assert text.count("- a (One)") == text.count("- b (Two)") == 1
    assert text.count(report.machine(one.environment)) == 1
    assert text.count("Servers: ours, upstream 0.54.0.") == 1


def test_where_a_version_was_measured_is_told_when_there_are_several() -> None:
    one = records.result("run", [records.sample()])
    newer = {**records.ENVIRONMENT["targets"]["upstream"], "versions": {"uvicorn": "0.55.0"}}
    other = replace(one, environment={**one.environment, "targets": {"upstream:http=h11": newer}})
    text = publication.markdown("T", [Section("one", "One", one), Section("two", "Two", other)])
    assert "Servers: ours, upstream 0.54.0 (One), upstream 0.55.0 (Two)." in text


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


def test_the_document_leaves_details_to_the_report_and_has_each_note_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row and table is in the report for a browser."""
    columns = ("target", "open", "each")
    rows = (("ours", "5,000", "1 KiB"), ("ours", "10,000", "2 KiB"))
    idle = report.Table("idle keep-alive connections", columns, rows, "By RSS.")
    bodies = report.Table("large bodies (wrk)", ("target", "MiB/s"), (("ours", "7"),))
    monkeypatch.setitem(views.VIEWS, "everything", lambda result: [idle, bodies])
    result = records.result("latency", [])
    sections = [Section("one", "One", result), Section("two", "Two", result)]
    text = publication.markdown("T", sections)
    assert text.count("| ours | 5,000 | 1 KiB |") == 2
    assert "| 10,000 |" not in text
    assert "large bodies" not in text
    assert text.count("By RSS.") == 1
    shown = page.page("T", sections)
    assert shown.count("large bodies (wrk)") == 2
    assert shown.count("2 KiB") == 2


def test_the_document_has_the_commands_of_each_server_and_why_they_are_its_best() -> None:
    """Those of the workloads that it was measured with."""
    commands = {"HTTP/1.1": "granian app", "HTTP/1.1, TLS": "granian --tls app", "HTTP/2": "granian --http 2 app"}
    described = {"python": "3.13.1", "versions": {}, "commands": commands, "why": "its defaults"}
    memory = {"python": "3.13.1", "versions": {}, "commands": {"HTTP/1.1": "daphne app"}, "why": "has no choice"}
    samples = [records.sample("granian", workload=workload) for workload in ("hello", "varying", "tls")]
    result = records.result("run", samples)
    found = {"granian": described, "granian:loop=asyncio": described, "daphne": memory}
    configured = replace(result, environment={**result.environment, "targets": found})
    text = publication.markdown("Title", [publication.of_result(one) for one in (result, configured)])
    rows = text.partition("| --- | --- | --- | --- |\n")[2].partition("\n\n")[0]
    assert rows.splitlines() == [
        "| granian | HTTP/1.1 | `granian app` | its defaults |",
        "| granian | HTTP/1.1, TLS | `granian --tls app` |  |",
        "| granian:loop=asyncio | HTTP/1.1 | `granian app` | a variant, to compare one setting |",
        "| daphne | HTTP/1.1 | `daphne app` | has no choice |",
    ]
    assert "## Configurations" not in publication.markdown("Title", [publication.of_result(result)])
