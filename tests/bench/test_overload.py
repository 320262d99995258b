"""What a server still answers in time at several times what it can do."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from bench import model, tables, targets
from bench.__main__ import main
from bench.commands import common
from bench.load.base import Aim
from bench.load.overload import IN_TIME, Overload
from bench.load.response import Answer
from bench.model import Burst, Load
from tests.bench import fake, records

overload = importlib.import_module("bench.commands.overload")


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = [fake.target("slow", delay=0.005), fake.target("dead", die_at=1)]
    named = {target.name: replace(target, only="busy") for target in known}
    monkeypatch.setattr(targets, "TARGETS", {**targets.TARGETS, **named})
    monkeypatch.setattr(common, "RESULTS", tmp_path)


SHORT = ("--seconds", "0.3", "--settle", "0.2", "--connections", "4", "--tolerate", "9", "--markdown")


@pytest.mark.deep
def test_each_target_is_driven_beyond_what_it_can_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overload", "slow", *SHORT]) == 0
    [path] = tmp_path.glob("*.json")
    record = model.load(path).data["records"]["slow"]
    assert record["stormy"]["offered"] == pytest.approx(3 * record["capacity"], abs=1)
    assert record["calm"]["offered"] == pytest.approx(0.2 * record["capacity"], abs=1)
    assert record["stormy"]["good"] > 0 and record["stormy"]["refused"] == 0
    assert "of being due" in capsys.readouterr().out


def test_what_cannot_be_measured_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overload", "dead", *SHORT]) == 1
    assert "doubt: dead: " in capsys.readouterr().out


def test_refusals_are_no_errors_and_late_answers_are_worth_nothing(tmp_path: Path) -> None:
    with fake.running(tmp_path) as server:
        burst = Overload(Aim(server.port, tmp_path), Load("overload", 1, 1, 0.1, 10.0))
        for status, seconds in ((200, 0.1), (200, IN_TIME + 0.1), (503, 0.0), (404, 0.0)):
            burst._note(Answer(status, 13, False), seconds)
        burst._client.close()
    assert burst.errors == {"too late": 1, "refused": 1, "status": 1}
    assert len(burst.latencies) == 2


def test_figures_are_per_second_of_what_was_offered() -> None:
    load = Load("overload", 1, 1, 2.0, 300.0)
    figures = overload._figures(Burst(200, 12.0, {"too late": 40, "refused": 360}, None), load)
    assert (figures["good"], figures["refused"], figures["offered"]) == (80.0, 180.0, 300.0)


def test_table_holds_goodput_against_capacity() -> None:
    calm = {"offered": 20.0, "good": 20.0, "refused": 0.0, "p50": 0.010, "p99": 0.012, "errors": {}}
    stormy = {"offered": 300.0, "good": 95.0, "refused": 205.0, "p50": 0.020, "p99": 0.030, "errors": {}}
    record = {"capacity": 100.0, "calm": calm, "stormy": stormy}
    nothing = {"capacity": 100.0, "calm": calm, "stormy": {**stormy, "good": 0.0, "p50": None, "p99": None}}
    result = records.result(
        "overload", records={"ours": record, "other": nothing}, factor=3.0, in_time=IN_TIME, sleep_ms=10.0
    )
    [table] = tables.tables(result)
    assert table.rows[0] == ("ours", "100/s", "300/s", "95/s", "0.95", "205/s", "12.00 ms", "30.00 ms", "2.5")
    assert table.rows[1][-2:] == ("-", "-")
    assert "3 times the capacity" in (table.note or "")
