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


def scattered(*ratios: float) -> Result:
    """One block for each ratio of upstream's CPU to ours."""
    pairs = [
        records.sample(target, side, cpu=cpu, block=block)
        for block, times in enumerate(ratios)
        for target, side, cpu in (("ours", "A", 1e-5), ("upstream", "B", times * 1e-5))
    ]
    return records.result("compare", pairs)


def elsewhere(result: Result) -> Result:
    return replace(result, environment={**result.environment, "cpu": "Another"})


def driven(requests: int, target: str = "ours", **more: object) -> Result:
    """Two cases, so that their mean has an interval."""
    one = records.sample(target)
    assert one.burst is not None
    burst = replace(one.burst, requests=requests)
    cases = [replace(one, burst=burst, workload=workload) for workload in ("hello", "echo")]
    result = records.result("run", cases)
    return replace(result, environment={**result.environment, **more})


def beside(*ratios: float) -> Result:
    """A run of two servers, one burst each, with a ratio of their CPU for each workload."""
    cases = [
        records.sample(target, "", cpu=cpu, workload=workload)
        for workload, times in zip(("hello", "echo", "json"), ratios, strict=False)
        for target, cpu in (("ours", 1e-5), ("upstream", times * 1e-5))
    ]
    return records.result("run", cases)


def weighed(held: float) -> Result:
    return records.result("micro", records={"native:get": {"held": held, "allocations": 8.5}})


@pytest.mark.parametrize(
    ("stored", "result", "text", "is_worse"),
    [
        pytest.param(
            compared(3.0), compared(2.9), "upstream 2.90 times on hello (stored: 3.00). That is as", False, id="as"
        ),
        pytest.param(
            compared(3.0), compared(2.0), "The ratio to upstream on hello is 1.50 times worse than", True, id="worse"
        ),
        pytest.param(compared(3.0), compared(2.28), "1.32 times worse than stored", True, id="24% is worse"),
        pytest.param(compared(3.0), elsewhere(compared(2.28)), "as stored, within 25%", False, id="as far as that"),
        pytest.param(compared(3.0), compared(4.5), "That is better than stored", False, id="better"),
        pytest.param(
            compared(3.0),
            scattered(2.0),
            "change of 10%: the ratio to upstream on hello is 0.67 (not known) times the stored one",
            False,
            id="one block",
        ),
        pytest.param(scattered(3.0), compared(2.0), "Too uncertain", False, id="one stored block"),
        pytest.param(
            compared(3.0), scattered(2.5, 2.9, 3.1, 3.5), "is 0.99 (0.79 to 1.24) times the", False, id="too wide"
        ),
        pytest.param(driven(1000), driven(990), "495 requests/s at best (50 connections). That is as", False, id="run"),
        pytest.param(driven(1000), driven(500), "2.00 times worse than stored", True, id="run worse"),
        pytest.param(driven(1000), driven(500, "upstream"), "this tree is not among the targets", False, id="others"),
        pytest.param(driven(1000), driven(500, cpu="Another"), "not judged on another machine", False, id="elsewhere"),
        pytest.param(
            beside(3.0, 2.0, 1.5),
            elsewhere(beside(3.1, 1.9, 1.5)),
            "upstream needs 2.07 times the CPU per request (stored: 2.08; cases: 3). That is as stored",
            False,
            id="beside upstream",
        ),
        pytest.param(
            beside(3.0, 2.0, 1.5), elsewhere(beside(1.5, 1.0, 0.75)), "mean ratio is 2.00 times worse", True, id="half"
        ),
        pytest.param(beside(3.0), beside(2.0), "Too uncertain to see a change of 10%", False, id="one case"),
        pytest.param(compared(3.0), beside(3.0), "(stored: 3.00; cases: 1)", False, id="beside pairs"),
        pytest.param(driven(1000), driven(500, load_average=[0.9, 0, 0]), "2.00 times worse", True, id="other load"),
        pytest.param(
            weighed(2048), weighed(2060), "a connection holds 2.0 KiB (native:get), a request", False, id="micro"
        ),
        pytest.param(weighed(2048), weighed(2400), "1.17 times worse than stored", True, id="micro worse"),
    ],
)
def test_a_result_beside_the_stored_one(stored: Result, result: Result, text: str, is_worse: bool) -> None:
    found = conclusions.of([stored], result)
    assert text in found.text
    assert found.is_worse is is_worse


def test_bursts_that_do_not_count_are_the_conclusion() -> None:
    result = driven(1000)
    failed = replace(result, samples=tuple(replace(one, void="it burned") for one in result.samples))
    found = conclusions.of([driven(1000)], failed)
    assert (found.text, found.is_worse) == ("not every burst counts: it burned", True)


def test_a_workload_that_was_not_served_is_the_conclusion() -> None:
    lost = [replace(one, workload="echo", void="it burned") for one in compared(3.0).samples]
    found = conclusions.of([compared(3.0)], replace(compared(3.0), samples=(*compared(3.0).samples, *lost)))
    assert (found.text, found.is_worse) == ("not every burst counts: it burned", True)


def test_rates_of_another_load_generator_are_not_compared() -> None:
    slow = driven(500)
    other = [replace(one, load=replace(one.load, tool="httpx")) for one in slow.samples]
    found = conclusions.of([driven(1000)], replace(slow, samples=tuple(other)))
    assert found.text.endswith("none of these cases is stored")
    assert not found.is_worse


def test_several_stored_results_are_one() -> None:
    echo = replace(compared(2.0), samples=tuple(replace(one, workload="echo") for one in compared(2.0).samples))
    found = conclusions.of([compared(3.0), echo], beside(3.0, 2.0))
    assert "(stored: 2.45; cases: 2). That is as stored" in found.text


def test_kinds_without_a_conclusion_are_refused() -> None:
    with pytest.raises(BenchError, match="no conclusion from startup beside micro"):
        conclusions.of([weighed(1)], records.result("startup", records={}))


def test_the_command_says_it_and_fails_for_what_is_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(baseline, "BASELINES", tmp_path)
    model.save(compared(3.0), tmp_path / "performance.json")
    for times, status in ((3.0, 0), (1.5, 1)):
        model.save(compared(times), tmp_path / "new")
        assert main(["baseline", "conclude", "performance", str(tmp_path / "new")]) == status
        assert capsys.readouterr().out.startswith("conclusion: CPU per request over this tree's: upstream ")
