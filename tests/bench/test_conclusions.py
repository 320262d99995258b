"""What a result comes to beside the stored one of its kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import conclusions, model
from bench.__main__ import main
from bench.commands import baseline
from bench.errors import BenchError
from bench.model import Result
from tests.bench import records


def compared(times: float) -> Result:
    pairs = [
        records.sample(target, side, cpu=cpu, block=block)
        for block in range(4)
        for target, side, cpu in (("ours", "A", 1e-5), ("upstream", "B", times * 1e-5))
    ]
    return records.result("compare", pairs)


def driven(requests: int, target: str = "ours", **more: object) -> Result:
    one = records.sample(target)
    assert one.burst is not None
    result = records.result("run", [replace(one, burst=replace(one.burst, requests=requests))])
    return replace(result, environment={**result.environment, **more})


def weighed(held: float) -> Result:
    return records.result("micro", records={"native:get": {"held": held, "allocations": 8.5}})


@pytest.mark.parametrize(
    ("stored", "result", "text", "is_worse"),
    [
        pytest.param(
            compared(3.0), compared(2.9), "upstream 2.90 times on hello (stored: 3.00). That is as", False, id="as"
        ),
        pytest.param(compared(3.0), compared(2.0), "One case is 1.50 times worse than stored", True, id="worse"),
        pytest.param(compared(3.0), compared(4.5), "That is better than stored", False, id="better"),
        pytest.param(driven(1000), driven(990), "495 requests/s at best (50 connections). That is as", False, id="run"),
        pytest.param(driven(1000), driven(500), "2.00 times worse than stored", True, id="run worse"),
        pytest.param(driven(1000), driven(500, "upstream"), "this tree is not among the targets", False, id="others"),
        pytest.param(driven(1000), driven(500, cpu="Another"), "of another machine", False, id="another machine"),
        pytest.param(driven(1000), driven(500, load_average=[0.9, 0, 0]), "2.00 times worse", True, id="other load"),
        pytest.param(
            weighed(2048), weighed(2060), "a connection holds 2.0 KiB (native:get), a request", False, id="micro"
        ),
        pytest.param(weighed(2048), weighed(2400), "1.17 times worse than stored", True, id="micro worse"),
    ],
)
def test_a_result_beside_the_stored_one(stored: Result, result: Result, text: str, is_worse: bool) -> None:
    found = conclusions.of(stored, result)
    assert text in found.text
    assert found.is_worse is is_worse


def test_bursts_that_do_not_count_are_the_conclusion() -> None:
    result = driven(1000)
    failed = replace(result, samples=tuple(replace(one, void="it burned") for one in result.samples))
    found = conclusions.of(driven(1000), failed)
    assert (found.text, found.is_worse) == ("not every burst counts: it burned", True)


def test_a_workload_that_was_not_served_is_the_conclusion() -> None:
    lost = [replace(one, workload="echo", void="it burned") for one in compared(3.0).samples]
    found = conclusions.of(compared(3.0), replace(compared(3.0), samples=(*compared(3.0).samples, *lost)))
    assert (found.text, found.is_worse) == ("not every burst counts: it burned", True)


def test_rates_of_another_load_generator_are_not_compared() -> None:
    slow = driven(500)
    other = [replace(one, load=replace(one.load, tool="httpx")) for one in slow.samples]
    found = conclusions.of(driven(1000), replace(slow, samples=tuple(other)))
    assert found.text.endswith("none of these cases is stored")
    assert not found.is_worse


def test_kinds_without_a_conclusion_are_refused() -> None:
    with pytest.raises(BenchError, match="no conclusion from startup beside micro"):
        conclusions.of(weighed(1), records.result("startup", records={}))


def test_the_command_says_it_and_fails_for_what_is_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(baseline, "BASELINES", tmp_path)
    model.save(compared(3.0), tmp_path / "performance.json")
    for times, status in ((3.0, 0), (1.5, 1)):
        model.save(compared(times), tmp_path / "new")
        assert main(["baseline", "conclude", "performance", str(tmp_path / "new")]) == status
        assert capsys.readouterr().out.startswith("conclusion: CPU per request over this tree's: upstream ")
