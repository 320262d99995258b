"""Workers and event loops: costs, the model, and machines side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import environment, model, scaling
from bench.__main__ import main
from bench.commands.scaling import grown
from bench.model import Result, Sample
from bench.plan import Scenario
from bench.scenario import find, parse_mode
from tests.bench import records


def samples(target: str, kind: str, costs: dict[int, list[float]]) -> list[Sample]:
    """One sample for each cost in seconds, by the number of processes or loops."""
    return [
        records.sample(target, cpu=cost, mode=f"{kind}={count}") for count, every in costs.items() for cost in every
    ]


def _high(row: scaling.Row) -> float:
    share = row.share(2)
    assert share is not None
    return share.high


def test_the_share_is_of_those_with_a_core_each_and_at_its_high_end() -> None:
    [row] = scaling.rows(samples("ours", "processes", {1: [10e-6] * 3, 2: [11e-6] * 3, 4: [40e-6] * 3}))
    assert _high(row) == pytest.approx(0.1)
    assert row.rate(8, 0.1) == pytest.approx(8 / (10e-6 * 1.7))
    [spread] = scaling.rows(samples("ours", "processes", {1: [10e-6] * 3, 2: [10e-6, 11e-6, 12e-6]}))
    assert _high(spread) == pytest.approx(0.1 + 0.1 / 3**0.5 * 4.303, rel=1e-3)


def test_a_round_that_failed_is_left_out_for_all_numbers() -> None:
    """The machine gets slower by a tenth from round to round, which the pairs of a round do not see."""
    drift = [1.1**number for number in range(5)]
    one = samples("ours", "processes", {1: [1e-5 * by for by in drift]})
    two = samples("ours", "processes", {2: [1.2e-5 * by for by in drift]})
    two[2] = replace(two[2], void="it burned")
    [row] = scaling.rows([*one, *two])
    assert _high(row) == pytest.approx(0.2)


@pytest.mark.parametrize("costs", [{1: [1e-5] * 2, 2: [1e-5] * 2}, {1: [1e-5] * 3}, {2: [1e-5] * 3}])
def test_no_model_of_too_few_figures(costs: dict[int, list[float]]) -> None:
    [row] = scaling.rows(samples("ours", "processes", costs))
    assert row.share(2) is None


def result(gil: bool = True) -> Result:
    costs = {1: [10e-6] * 3, 2: [11e-6] * 3}
    every = [*samples("granian", "processes", {1: [10e-6] * 3, 2: [9e-6] * 3}), *samples("ours", "processes", costs)]
    made = records.result("scaling", [*every, *samples("ours", "threads", costs)])
    server = {"python": "3.13.1", "versions": {}}
    targets = {"ours": {**server, "gil": gil}, "granian": {**server, "gil": True}}
    described = {**made.environment, "cores": 2, "targets": targets}
    return replace(made, environment=described)


def test_threads_have_a_model_without_a_global_lock_only() -> None:
    for gil in (True, False):
        measured, modelled = scaling.tables(result(gil))
        assert [row[:3] for row in measured.rows][:4] == [
            ("ours", "processes", "1"),
            ("ours", "processes", "2"),
            ("ours", "threads", "1"),
            ("ours", "threads", "2"),
        ]
        assert [row[:2] for row in modelled.rows] == [
            ("ours", "processes"),
            *([] if gil else [("ours", "threads")]),
            ("granian", "processes"),
        ]
        assert modelled.rows[0][3] == "470,000"
        assert set(modelled.rows[-1][3:]) == {"-"}, "extrapolated from costs that fall"


@pytest.mark.parametrize(("loops", "cores"), [(1, (0,)), (2, (0, 1)), (4, (0, 1, 2))])
def test_loops_share_as_many_cores_with_a_client_of_as_many_threads(
    loops: int, cores: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    assert environment.together(loops) == environment.Cores(cores, cores)
    one = Scenario(find("varying")[0], parse_mode(f"processes={loops}"), model.Load("wrk", 64, 1, 1.0))
    assert grown(one).load == model.Load("wrk", 64 * len(cores), len(cores), 1.0)


def test_a_server_that_failed_says_why() -> None:
    failed = [replace(one, void="it burned") for one in samples("ours", "processes", {2: [1e-5]})]
    [row] = scaling.tables(records.result("scaling", failed))[0].rows
    assert row[-1] == "failed: it burned"


def test_machines_are_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, times in (("first", 2.0), ("second", 3.0)):
        (tmp_path / name).mkdir()
        pairs = [
            records.sample(target, cpu=cpu, side=side, block=block)
            for block in range(4)
            for target, cpu, side in (("ours", 0.1, "A"), ("upstream", 0.1 * times, "B"))
        ]
        model.save(records.result("compare", pairs), tmp_path / name / "performance.json")
    model.save(result(), tmp_path / "second" / "scaling.json")
    page = tmp_path / "page.html"
    directories = [str(tmp_path / "first"), str(tmp_path / "second")]
    assert main(["report", "--machines", *directories, "--html", str(page)]) == 0
    assert main(["report", "--machines", *directories]) == 0
    out = capsys.readouterr().out
    assert "| hello | upstream | 2.00 (" in out
    assert "| 3.00 (" in out
    assert "| hello | ours | 5.00 s / 20.00 s | 5.00 s / 20.00 s |" in out
    assert "| ours | processes | - | 10.0% (10.0% to 10.0%) |" in out
    where = "A CPU, 8 cores, 16000 MiB, Linux 6.1 x86_64 | 2026-01-02 | 0.10 | Python 3.13.1 | ours, upstream 0.54.0"
    assert f"| A CPU, 8 cores (1) | {where} |" in out
    assert f"| A CPU, 8 cores (2) | {where}, granian |" in out
    assert "a virtual machine" not in out
    assert "<table>" in page.read_text()


def test_one_machine_is_shown_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    virtual = result()
    model.save(replace(virtual, environment={**virtual.environment, "virtual": True}), tmp_path / "scaling.json")
    assert main(["report", "--machines", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "| A CPU, 2 cores | a virtual machine: its neighbours are invisible |" in out


def test_what_is_no_directory_of_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file.json").write_text("{}")
    for path in (tmp_path, tmp_path / "file.json"):
        assert main(["report", "--machines", str(path)]) == 1
        assert f"no baselines in {path}: --machines takes directories" in capsys.readouterr().err
