"""Stored results: exact round trips, strict reading, nothing half written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import environment, merge, model
from bench.errors import BenchError
from tests.bench import records


def test_a_result_read_back_is_the_same() -> None:
    before = records.result("run", [records.sample(), records.sample(void="died", burst=None, usage=None)], knob=1)
    assert model.from_json(model.to_json(before)) == before


def _change(change: Any) -> str:
    data = json.loads(model.to_json(records.result("run", [records.sample()])))
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param(lambda data: data.update(schema=99), "schema 1", id="other version"),
        pytest.param(lambda data: data.pop("schema"), "schema 1", id="no version"),
        pytest.param(lambda data: data.update(extra=1), "no field 'extra'", id="unknown field"),
        pytest.param(lambda data: data["samples"][0].pop("target"), "target", id="missing field"),
        pytest.param(lambda data: data["samples"][0].update(block="one"), "Sample.block", id="text for a number"),
        pytest.param(lambda data: data["samples"][0].update(block=True), "Sample.block", id="truth for a number"),
        pytest.param(lambda data: data.update(samples={}), "must be a list", id="no list"),
        pytest.param(lambda data: data["samples"][0]["burst"].update(errors={"x": "y"}), "errors", id="deep inside"),
    ],
)
def test_a_result_of_the_wrong_form_is_refused_by_name(change: Any, complaint: str) -> None:
    with pytest.raises(BenchError, match=complaint):
        model.from_json(_change(change))


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "null"])
def test_a_file_that_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(BenchError, match="not a stored result"):
        model.from_json(text)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BenchError, match="not a stored result"):
        model.load(path)


def test_without_git_a_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.commit(Path(__file__).parents[2]) == "unknown"


def test_a_result_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "result.json"
    model.save(records.result("run"), path)
    old = path.read_text()

    def full(self: Path, *args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(BenchError, match=r"result\.json: No space left on device"):
        model.save(records.result("run", [records.sample()]), path)
    assert path.read_text() == old


def test_figures_follow_from_raw_values() -> None:
    one = records.sample(cpu=12e-6)
    assert one.rps == 50_000
    assert one.cpu_per_request == pytest.approx(12e-6)
    assert one.system_share == pytest.approx(0.25)
    assert one.process_texts == ["python 2 thr 60%"]
    assert one.switches_per_request == pytest.approx(15 / 100_000)


def test_a_failed_burst_is_an_error_never_a_zero() -> None:
    failed = records.sample(burst=None, void="connection refused")
    with pytest.raises(BenchError, match="connection refused"):
        _ = failed.rps
    with pytest.raises(BenchError):
        _ = failed.cpu_per_request


@pytest.mark.parametrize("key", environment.IDENTITY)
def test_results_of_different_machines_do_not_merge(key: str) -> None:
    one, other = records.result("run"), records.result("run")
    changed = {**other.environment, key: "something else"}
    with pytest.raises(BenchError, match=f"different environments: {key}"):
        merge.merge([one, model.Result("run", other.created, changed)])


def test_results_of_different_builds_of_a_target_do_not_merge() -> None:
    one = records.result("run")
    changed = {"ours": {**one.environment["targets"]["ours"], "python": "3.12.0"}}
    with pytest.raises(BenchError, match="ours has python"):
        merge.merge([one, model.Result("run", one.created, {**one.environment, "targets": changed})])


def test_merged_blocks_do_not_mix() -> None:
    one = records.result("compare", records.block(0, [1e-5, 1e-5], [2e-5, 2e-5]))
    merged = merge.merge([one, one])
    assert sorted({sample.block for sample in merged.samples}) == [0, 1]
    assert len(merged.samples) == 8


def test_records_of_different_targets_stand_side_by_side_and_different_orders_do_not() -> None:
    one = records.result("memory", records={"ours": {"a": 1}}, idle=10)
    other = records.result("memory", records={"upstream": {"a": 2}}, idle=10)
    assert merge.merge([one, other]).data == {"records": {"ours": {"a": 1}, "upstream": {"a": 2}}, "idle": 10}
    with pytest.raises(BenchError, match="idle"):
        merge.merge([one, records.result("memory", records={}, idle=20)])


def test_what_the_gate_found_in_several_runs_follows_each_other() -> None:
    runs = [records.result("gate", lines=[], proof=[{"tree": tree}]) for tree in ("unchanged", "10% more")]
    assert merge.merge(runs).data["proof"] == [{"tree": "unchanged"}, {"tree": "10% more"}]


def test_kinds_are_kept_apart() -> None:
    kinds = merge.by_kind([records.result("run"), records.result("memory", records={}), records.result("run")])
    assert [one.kind for one in kinds] == ["run", "memory"]
    with pytest.raises(BenchError, match="different kinds"):
        merge.merge([records.result("run"), records.result("memory")])
