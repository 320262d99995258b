"""Everything the documents show, measured part by part: what is done, what is left, what is written."""

from __future__ import annotations

import importlib
import json
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command_line
from bench import environment, model, parts, scenario, targets, views
from bench.__main__ import main
from bench.commands import common
from bench.errors import BenchError
from bench.model import Result
from bench.report import FEWEST_BLOCKS
from tests.bench import records

publish = importlib.import_module("bench.commands.publish")


@pytest.mark.parametrize("part", [pytest.param(part, id=part.name) for part in (*parts.PARTS, *parts.LONG)])
@pytest.mark.parametrize("quick", [False, True])
def test_every_command_of_a_part_is_one_that_can_be_typed(part: parts.Part, quick: bool) -> None:
    for line in part.commands:
        name, *rest = shlex.split(f"{line} {part.quick}" if quick else line)
        arguments = command_line.parser(name).parse_intermixed_args(rest)
        for word in rest:
            if word.partition(":")[0] in targets.TARGETS:
                targets.find(word)
        if "workload" in arguments and "--workload" in rest:
            scenario.find(arguments.workload)
    assert set(part.views) <= set(views.VIEWS)


def test_every_published_comparison_has_enough_blocks_for_a_verdict() -> None:
    lines = [shlex.split(line) for part in parts.PARTS for line in part.commands]
    read = [(line[0], command_line.parser(line[0]).parse_intermixed_args(line[1:])) for line in lines]
    blocks = [one.blocks for name, one in read if name == "compare"]
    paired = [one.rounds for name, one in read if name == "websocket" and one.paired]
    assert blocks and paired
    assert min(blocks + paired) >= FEWEST_BLOCKS


def test_everything_takes_less_than_an_hour() -> None:
    assert sum(part.minutes for part in parts.PARTS) + parts.GATE_MINUTES < 60


def test_every_workload_and_every_server_is_published() -> None:
    text = " ".join(line for part in (*parts.PARTS, *parts.LONG) for line in part.commands)
    words = {word for one in text.split() for word in one.split(",")}
    if "--workload real" in text:
        words |= {workload.name for workload in scenario.REAL}
    if any(line.startswith("websocket ") and "--cases" not in line for part in parts.PARTS for line in part.commands):
        words |= {workload.name for workload in scenario.WEBSOCKETS}
    assert set(scenario.WORKLOADS) | set(targets.TARGETS) <= words


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """`publish` of two small parts, with commands that leave recorded results; the lines that were carried out."""
    two = (
        parts.Part("performance", "First", "About it.", ("compare ours upstream", "run ours"), "--blocks 1", 1.0, 0.5),
        parts.Part("startup", "Second", "", ("startup ours",), "--rounds 1", 1.0, 0.5),
    )
    monkeypatch.setattr(parts, "PARTS", two)
    monkeypatch.setattr(parts, "NAMES", ("performance", "startup", "gate"))
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(publish, "BASELINES", tmp_path / "baselines")
    monkeypatch.setattr(publish, "ROOT", tmp_path / "root")
    monkeypatch.setattr("bench.commands.report.ROOT", tmp_path / "root")
    monkeypatch.setattr(targets, "find_all", lambda names: [targets.find(name) for name in names])
    described = {**records.ENVIRONMENT, "targets": {"ours": records.ENVIRONMENT["targets"]["ours"]}}
    monkeypatch.setattr(environment, "describe", lambda chosen, cores: described)
    # The machine of a test run is not calm.
    monkeypatch.setattr(environment, "await_calm", lambda limit, patience, told: None)
    done: list[str] = []

    def carried_out(arguments: list[str]) -> int:
        done.append(" ".join(arguments))
        if "--output" in arguments:
            name = arguments[0]
            data = {"workload": "hello", "mode": "single"} if name == "startup" else {}
            found = records.result("compare" if name != "startup" else name, [records.sample()], records={}, **data)
            model.save(found, Path(arguments[arguments.index("--output") + 1]))
        return 0

    monkeypatch.setattr(command_line, "main", carried_out)
    yield done


def _publish(*arguments: str) -> int:
    """Not through the command line, which is what the fixture replaces."""
    return int(publish.execute(command_line.parser("publish").parse_args(list(arguments))))


def test_parts_are_measured_kept_and_written(measured: list[str], tmp_path: Path) -> None:
    assert _publish() == 0
    assert [line.partition(" --output")[0].partition(" --stored")[0] for line in measured] == [
        *("compare ours upstream", "run ours", "startup ours"),
        *("gate --update --tool wrk", "gate --update --tool closedloop --cases= --time= --calls= --served= --memory="),
    ]
    assert len(model.load(tmp_path / "baselines" / "performance.json").samples) == 2
    report = (tmp_path / "root" / "docs" / "benchmarks" / "index.md").read_text()
    assert "## First" in report
    page = (tmp_path / "root" / "docs" / "benchmarks" / "report.html").read_text()
    assert "python -m bench compare ours upstream" in page
    assert "<svg" in page


def test_nothing_is_published_on_a_busy_machine_but_a_trial_may_run(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(limit: float, patience: float, told: object) -> None:
        assert limit == 0.3
        raise BenchError("the machine is busy")

    monkeypatch.setattr(environment, "await_calm", busy)
    with pytest.raises(BenchError, match="busy"):
        _publish()
    assert measured == []
    assert _publish("--quick") == 0


def test_what_is_finished_is_not_measured_again_unless_it_is_asked_for(
    measured: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _publish() == 0
    measured.clear()
    assert _publish() == 0
    assert measured == []
    assert "startup: finished before" in capsys.readouterr().err
    assert _publish("--again", "--only", "startup") == 0
    assert len(measured) == 1


def test_bursts_of_several_times_are_put_together(
    measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "baselines" / "performance.json"
    assert _publish("--more", "--only", "performance") == 0  # There is nothing yet: the first time.
    assert len(model.load(stored).samples) == 2
    capsys.readouterr()
    assert _publish("--more", "--only", "performance") == 0
    minutes = f"{parts.find('performance').minutes:g}"
    assert f"about {minutes} of {minutes} minutes left" in capsys.readouterr().err
    assert _publish("--only", "performance") == 0
    found = model.load(stored)
    assert len(found.samples) == 4
    assert len({sample.block for sample in found.samples}) == 4
    assert found.data[model.MEASURED]["commands"] == ["compare ours upstream", "run ours"] * 2
    assert len(measured) == 4
    document = (tmp_path / "root" / "docs" / "benchmarks" / "report.html").read_text("utf-8")
    assert document.count("python -m bench compare ours upstream  # 2 times\n") == 1
    # A time that was interrupted adds what it has.
    (tmp_path / "results" / "publish" / "performance-1-1.json").unlink()
    assert _publish("--only", "performance") == 0
    found = model.load(stored)
    assert len(found.samples) == 3
    assert found.data[model.MEASURED]["commands"] == ["compare ours upstream", "run ours", "compare ours upstream"]
    assert _publish("--again", "--only", "performance") == 0
    assert len(model.load(stored).samples) == 2


def test_what_cannot_be_done_is_said_before_the_machine_is_calm(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def waited(limit: float, patience: float, told: Any) -> None:
        raise AssertionError("waited")

    monkeypatch.setattr(environment, "await_calm", waited)
    with pytest.raises(BenchError, match="no bursts that others could be added to"):
        _publish("--more")


def test_a_report_does_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--check", "--write"]) == 2
    assert main(["report", "performance", "--check"]) == 1
    assert "take no other results" in capsys.readouterr().err


def test_a_missing_module_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'httpx'", name="httpx")

    monkeypatch.setattr(importlib, "import_module", missing)
    assert main(["list"]) == 1
    assert capsys.readouterr().err.startswith("bench: no module httpx for ")


def test_bursts_of_several_times_say_when_each_was(measured: list[str], tmp_path: Path) -> None:
    stored = tmp_path / "baselines" / "performance.json"
    for times in (1, 2):
        assert _publish("--more", "--only", "performance") == 0
        told = [note for note in model.load(stored).notes if "together" in note]
        created = records.result("compare").created
        assert told == ([] if times == 1 else [f"bursts of 2 times together: {created}, {created}"])


def test_a_part_whose_commands_have_changed_is_measured_again(
    measured: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert _publish("--only", "performance") == 0
    changed = replace(parts.PARTS[0], commands=(parts.PARTS[0].commands[0], "run upstream"))
    monkeypatch.setattr(parts, "PARTS", (changed, *parts.PARTS[1:]))
    stored = tmp_path / "baselines" / "performance.json"
    before = stored.read_bytes()
    assert _publish("--only", "startup") == 0
    assert stored.read_bytes() == before  # It says what measured it, and that is no longer this part.
    measured.clear()
    assert _publish("--only", "performance") == 0
    assert [line.partition(" --output")[0] for line in measured] == ["run upstream"]
    assert model.load(stored).data[model.MEASURED]["commands"] == ["compare ours upstream", "run upstream"]


def test_nothing_is_added_to_a_part_without_bursts(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert _publish("--only", "startup") == 0
    monkeypatch.setattr(model, "load", lambda path: records.result("startup"))
    for name in ("startup", "gate"):
        with pytest.raises(BenchError, match=f"{name} has no bursts that others could be added to"):
            _publish("--more", "--only", name)
    assert len(measured) == 1


def test_a_part_that_was_measured_of_other_code_is_measured_again(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _publish("--only", "startup") == 0
    described: Any = environment.describe([], environment.cores(0))
    changed = {"ours": {**described["targets"]["ours"], "tree": "another"}}
    monkeypatch.setattr(environment, "describe", lambda chosen, cores: {**described, "targets": changed})
    measured.clear()
    with pytest.raises(BenchError, match="not measured: startup"):  # What is recorded is of the old code, again.
        _publish("--only", "startup")
    assert len(measured) == 1


@pytest.mark.parametrize("label", ["ours", "ours:http=h11"])
def test_code_is_told_apart_whatever_a_part_calls_it(label: str, measured: list[str], tmp_path: Path) -> None:
    found = records.result("startup", [records.sample()], workload="hello", mode="single", records={})
    described = found.environment["targets"]["ours"]
    path = tmp_path / "found.json"
    campaign = publish.Campaign(quick=False)
    campaign.tree = {**campaign.tree, "targets": {"ours": {**described, "tree": "this"}}}
    for tree, whole in (("this", True), ("another", False)):
        changed = {**found.environment, "targets": {label: {**described, "tree": tree}}}
        model.save(Result(found.kind, found.created, changed, found.samples, found.data), path)
        assert campaign._whole(path, "run ours") is whole


def test_an_interruption_leaves_what_is_finished(
    measured: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole: Callable[[list[str]], int] = command_line.main  # type: ignore[assignment]

    def interrupted(arguments: list[str]) -> int:
        status = whole(arguments)
        if arguments[0] == "run":
            path = Path(arguments[arguments.index("--output") + 1])
            found = model.load(path)
            model.save(Result(found.kind, found.created, found.environment, notes=("ended early: interrupted",)), path)
        return status

    monkeypatch.setattr(command_line, "main", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _publish("--only", "startup,performance")
    monkeypatch.setattr(command_line, "main", whole)
    measured.clear()
    assert _publish("--only", "performance") == 0
    assert [line.split()[0] for line in measured] == ["run"]  # The comparison before it was whole.


def test_a_part_that_fails_is_named_and_the_others_are_published(
    measured: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole: Callable[[list[str]], int] = command_line.main  # type: ignore[assignment]
    monkeypatch.setattr(command_line, "main", lambda given: 1 if given[0] == "compare" else whole(given))
    with pytest.raises(BenchError, match="not measured: performance "):
        _publish("--only", "performance,startup")
    assert (tmp_path / "baselines" / "startup.json").exists()
    assert not (tmp_path / "baselines" / "performance.json").exists()


def test_a_trial_leaves_the_repository_alone(measured: list[str], tmp_path: Path) -> None:
    assert _publish("--quick") == 0
    assert not (tmp_path / "baselines").exists()
    assert not (tmp_path / "root").exists()
    assert all("--blocks 1" in line or "--rounds 1" in line or line.startswith("gate") for line in measured)
    written = tmp_path / "results" / "publish-quick" / "documents"
    assert (written / "docs" / "benchmarks" / "report.html").exists()


def test_a_plan_measures_nothing(measured: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _publish("--plan", "--only", "startup, performance") == 0
    assert measured == []
    assert "left to do" in capsys.readouterr().out


def test_a_result_is_stored_with_one_line_for_each_sample() -> None:
    result = records.result("run", [records.sample(), records.sample("upstream")], **{'"samples": []': 1})
    text = model.to_json(result)
    assert model.from_json(text) == result
    assert sum('"target": ' in line for line in text.splitlines()) == 2
    assert list(json.loads(text)["environment"]["targets"]) == ["ours", "upstream"]


def test_the_command_line_gives_back_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    assert main(["show", "/no/such/file"]) == 1
    assert os.sched_getaffinity(0) == before
