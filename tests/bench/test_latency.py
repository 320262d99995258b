"""Latency at shares of what the slowest server can do."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bench import model, tables, targets, views
from bench.__main__ import main
from bench.commands import common
from bench.model import Load
from tests.bench import fake, records

latency = importlib.import_module("bench.commands.latency")

SHORT = ("--tool", "closedloop", "--seconds", "0.3", "--warm-up", "0", "--tolerate", "9", "--rounds", "1", "--markdown")


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = {
        "quick": fake.target("quick"),
        "slow": fake.target("slow", delay=0.02),
        "dead": fake.target("dead", die_at=1),
    }
    monkeypatch.setattr(targets, "TARGETS", {**targets.TARGETS, **known})
    monkeypatch.setattr(common, "RESULTS", tmp_path)


@pytest.mark.deep
def test_everybody_gets_shares_of_what_the_slowest_can_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # On a busy machine the generator may be late itself, which makes a burst void.
    assert main(["latency", "quick", "slow", "--shares", "30,60", "--connections", "2,4", *SHORT]) in (0, 1)
    [path] = tmp_path.glob("*.json")
    result = model.load(path)
    # Two connections, each answered after 20 ms.
    assert set(result.data["capacities"]) == {"quick", "slow"}
    assert result.data["slowest"] == result.data["capacities"]["slow"] <= 100
    seen = {(sample.target, sample.load.rate, sample.load.connections) for sample in result.samples}
    rates = {float(round(result.data["slowest"] * share)) for share in (0.3, 0.6)}
    assert seen == {(name, rate, count) for name in ("quick", "slow") for rate in rates for count in (2, 4)}
    assert {sample.load.tool for sample in result.samples} == {"openloop"}
    out = capsys.readouterr().out
    assert "**latency at fixed rates" in out
    assert "what the slowest can do" in out


def test_a_capacity_can_be_given(tmp_path: Path) -> None:
    assert main(["latency", "quick", "--capacity", "200", "--shares", "50", "--connections", "2", *SHORT]) in (0, 1)
    [path] = tmp_path.glob("*.json")
    assert [sample.load.rate for sample in model.load(path).samples] == [100.0]


def test_no_capacity_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latency", "dead", "--connections", "2", *SHORT]) == 1
    assert capsys.readouterr().err.startswith("bench: no capacity was measured: dead ended with status 3")


def test_workload_that_the_generator_cannot_drive_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latency", "quick", "--workload", "h2", *SHORT]) == 1
    assert "openloop does not do what h2 asks for (http2)" in capsys.readouterr().err


def test_rows_of_one_load_stand_together_and_a_failure_says_why() -> None:
    def one(name: str, rate: float, connections: int, void: str | None = None) -> model.Sample:
        return records.sample(name, load=Load("openloop", connections, 1, 2.0, rate), void=void)

    samples = [one("upstream", 900.0, 64), one("ours", 300.0, 512), one("ours", 900.0, 64, "errors: 3 read")]
    samples += [one("ours", 300.0, 64), one("upstream", 300.0, 64)]
    result = records.result("latency", samples, capacities={"upstream": 1000.0}, slowest=1000.0, shares=[30, 90])
    [table] = tables.tables(result)
    assert [row[:3] for row in table.rows] == [
        ("300/s (30%)", "64", "ours"),
        ("300/s (30%)", "64", "upstream"),
        ("300/s (30%)", "512", "ours"),
        ("900/s (90%)", "64", "ours"),
        ("900/s (90%)", "64", "upstream"),
    ]
    assert table.rows[3][3:] == ("-", "-", "-", "-", "-", "failed: errors: 3 read")
    assert table.rows[0][3:] == ("500.0 us", "1.00 ms", "2.00 ms", "4.00 ms", "5.00 ms", "ok")
    assert "1,000 requests per second" in table.note
    [brief] = views.arrivals(result)
    assert brief.columns == ("arrivals", "conns", "ours", "upstream")
    assert brief.rows == (
        ("300/s (30%)", "64", "2.00 ms", "2.00 ms"),
        ("300/s (30%)", "512", "2.00 ms", "-"),
        ("900/s (90%)", "64", "-", "2.00 ms"),
    )


def test_tails_by_arrival_rate_show_how_far_bursts_differ() -> None:
    load = Load("openloop", 64, 1, 2.0, 900.0)
    samples = [records.sample(cpu=cpu, load=load) for cpu in (10e-6, 20e-6, 90e-6)]
    samples.append(records.sample("upstream", load=load))
    result = records.result("latency", samples, capacities={"upstream": 1000.0}, slowest=1000.0, shares=[90])
    [brief] = views.arrivals(result)
    assert brief.rows == (("900/s (90%)", "64", "4.00 ms (2.00 ms to 18.00 ms)", "2.00 ms"),)
