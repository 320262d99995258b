"""The regression gate: judgement by replay, instruction counts, and a tree that was slowed on purpose."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import instructions, judge, stats, targets
from bench.__main__ import main
from bench.commands import common
from bench.errors import BenchError
from bench.stats import Interval
from tests.bench import records

needs_valgrind = pytest.mark.skipif(instructions.missing() is not None, reason=instructions.missing() or "")


@pytest.mark.parametrize(
    ("found", "failed"),
    [
        pytest.param(Interval(1.5, 1.4, 1.6), False, id="as stored"),
        pytest.param(Interval(1.36, 1.3, 1.42), False, id="less, within the margin"),
        pytest.param(Interval(1.3, 1.2, 1.4), False, id="below, but the interval reaches the margin"),
        pytest.param(Interval(1.3, 1.28, 1.34), True, id="wholly below"),
        pytest.param(Interval(2.0, 1.9, 2.1), False, id="faster"),
    ],
)
def test_a_ratio_fails_only_when_its_whole_interval_is_below(found: Interval, failed: bool) -> None:
    line = judge.judge_ratio("hello", 1.5, found)
    assert line.failed is failed
    assert "hello" in line.case


@pytest.mark.parametrize(("found", "failed"), [(1000, False), (1050, False), (1051, True), (500, False)])
def test_instructions_fail_beyond_five_per_cent(found: float, failed: bool) -> None:
    assert judge.judge_instructions("h11:get", 1000, found).failed is failed


def _measured(generator: random.Random, ratio: float) -> Interval:
    """A paired measurement of four blocks on a noisy machine: 6% from burst to burst, 4% from process to process."""
    groups = []
    for _ in range(4):
        ours, upstream = (1 + generator.gauss(0, 0.04) for _ in range(2))
        pairs = [
            (ratio * upstream * (1 + generator.gauss(0, 0.06)), ours * (1 + generator.gauss(0, 0.06))) for _ in "12"
        ]
        groups.append(pairs)
    return stats.paired_ratio(groups, resamples=300)


def test_an_unchanged_tree_passes_twenty_times_out_of_twenty_and_a_slowed_one_fails() -> None:
    generator = random.Random(11)
    for _ in range(20):
        assert not judge.judge_ratio("hello", 2.0, _measured(generator, 2.0)).failed
    caught = sum(judge.judge_ratio("hello", 2.0, _measured(generator, 1.4)).failed for _ in range(20))
    assert caught >= 19


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param([], id="list"),
        pytest.param({"schema": 99}, id="other schema"),
        pytest.param({"schema": 1, "ratios": {}}, id="no instructions"),
        pytest.param({"schema": 1, "ratios": {"hello": 0}, "instructions": {}}, id="zero"),
        pytest.param({"schema": 1, "ratios": {"hello": "2"}, "instructions": {}}, id="text"),
    ],
)
def test_stored_values_of_the_wrong_form_are_refused(stored: Any) -> None:
    with pytest.raises(BenchError, match="stored gate values"):
        judge.check_stored(stored)


def test_instruction_counts_belong_to_an_interpreter() -> None:
    target = records.ENVIRONMENT["targets"]["ours"]
    assert judge.identity(target) == judge.identity({**target, "commit": "other"})
    assert judge.identity(target) != judge.identity({**target, "python": "3.12.0"})


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`python -m bench gate` on a copy of this tree's package, without the paired part."""
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    monkeypatch.setenv("BENCH_OURS_PYTHON", sys.executable)
    tree = tmp_path / "tree"
    shutil.copytree(targets.ROOT / "uvicorn", tree / "uvicorn", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    stored = tmp_path / "gate.json"

    def run(*arguments: str, cases: str = "h11:get") -> int:
        fixed = ("--target", f"ours:root={tree}", "--stored", str(stored), "--workload", "", "--cases", cases)
        return main(["gate", *fixed, "--markdown", *arguments])

    run.tree, run.stored = tree, stored  # type: ignore[attr-defined]
    return run


SLOWED = """
_quick = H11Protocol.data_received


def _slowed(self, data):
    for _ in range(220):  # About 2 us.
        pass
    _quick(self, data)


H11Protocol.data_received = _slowed
"""


@needs_valgrind
@pytest.mark.timeout(300)  # Under valgrind everything takes fifty times as long, on a busy machine more.
def test_the_gate_passes_an_unchanged_tree_and_fails_one_slowed_by_two_microseconds(
    gate: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = targets.find(f"ours:root={gate.tree}")
    unchanged = instructions.count(tree, ["h11:get"], operations=50)
    module = gate.tree / "uvicorn" / "protocols" / "http" / "h11_impl.py"
    module.write_text(module.read_text() + SLOWED)
    slowed = instructions.count(tree, ["h11:get"], operations=50)

    # Counting is what takes long, so the gate is given what was counted.
    monkeypatch.setattr(instructions, "count", lambda target, cases: unchanged)
    assert gate("--update") == 0
    assert json.loads(gate.stored.read_text())["instructions"]["h11:get"] > 10_000
    assert gate() == 0
    capsys.readouterr()
    monkeypatch.setattr(instructions, "count", lambda target, cases: slowed)
    assert gate() == 1
    captured = capsys.readouterr()
    assert "bench: regression: instructions, h11:get" in captured.err
    assert "REGRESSION" in captured.out


@needs_valgrind
@pytest.mark.timeout(300)
def test_a_base_tree_takes_the_place_of_stored_counts(gate: Any, tmp_path: Path) -> None:
    gate.stored.write_text(json.dumps({"schema": 1, "ratios": {}, "instructions": {}}))
    base = tmp_path / "base"
    shutil.copytree(gate.tree, base)
    assert gate("--base", str(base), cases="event:pooled") == 0


@needs_valgrind
def test_counts_of_another_interpreter_are_not_judged(gate: Any, capsys: pytest.CaptureFixture[str]) -> None:
    gate.stored.write_text(json.dumps({"schema": 1, "ratios": {}, "instructions": {"spin:1": 1}}))
    assert gate(cases="spin:1") == 1
    captured = capsys.readouterr()
    assert captured.err.endswith("bench: nothing was judged\n")
    assert "another interpreter" in captured.out


def test_a_gate_without_stored_values_says_so(gate: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate() == 1
    assert capsys.readouterr().err == "bench: no stored values in gate.json: store them with --update\n"


@needs_valgrind
def test_instructions_of_known_work_are_counted_and_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_OURS_PYTHON", sys.executable)
    ours = targets.find("ours")
    found = instructions.count(ours, ["spin:10", "spin:110", "spin:210"], operations=100)
    again = instructions.count(ours, ["spin:10", "spin:110", "spin:210"], operations=100)
    step = found["spin:110"] - found["spin:10"]
    assert step > 1000
    assert found["spin:210"] - found["spin:110"] == pytest.approx(step, rel=0.05)
    assert again == pytest.approx(found, rel=0.001)


@needs_valgrind
def test_a_case_nobody_knows_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_OURS_PYTHON", sys.executable)
    with pytest.raises(BenchError, match="unknown micro-benchmark 'http9:get'") as caught:
        instructions.count(targets.find("ours"), ["http9:get"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [pytest.param(None, "did not see the marks", id="missing"), pytest.param("fn=x\n", "without a total", id="empty")],
)
def test_a_dump_that_cannot_be_read_is_an_error(text: str | None, words: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "out.2").write_text(text)
    with pytest.raises(BenchError, match=words):
        instructions.total(tmp_path / "out", 2)
