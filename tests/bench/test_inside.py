"""What can be asked of a running server, and the commands that ask it, on this tree's own server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import apps, compiler, environment, model, probe, process, runner, targets
from bench.__main__ import main
from bench.allocations import allocation_counter
from bench.commands import common
from bench.errors import BenchError
from bench.model import Load, Result
from bench.plan import Scenario
from bench.scenario import WORKLOADS, Mode
from tests.bench import records
from tests.utils import NATIVE

ONE = Scenario(WORKLOADS["hello"], Mode(), Load("closedloop", 4, 1, 0.3))
SHORT = ("--tool", "closedloop", "--connections", "4", "--seconds", "0.3", "--warm-up", "0", "--tolerate", "9")


def _no_compiler() -> str:
    """Why allocations cannot be counted here, empty when they can."""
    try:
        compiler.compiled("alloc_count", shared=True)
    except BenchError as exc:
        return str(exc)
    return ""


needs_compiler = pytest.mark.skipif(bool(_no_compiler()), reason=_no_compiler())


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """This tree, run by the interpreter of the tests; results go to a directory of the test's own."""
    monkeypatch.setenv("BENCH_OURS_PYTHON", sys.executable)
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    return targets.find("ours")


def _run(directory: Path, *arguments: str) -> Result:
    assert main(arguments) == 0
    [path] = directory.glob("*.json")
    return model.load(path)


def test_a_server_answers_about_its_collector_its_memory_and_its_objects(ours: Any) -> None:
    measuring = runner.Runner(environment.Cores((), ()), warm_up=0)
    with measuring.alone(ours, ONE, inside=True) as (server, directory):
        probe.ask_all(server, directory, "gc_start")
        [objects] = probe.ask_all(server, directory, "objects").values()
        [pauses] = probe.ask_all(server, directory, "gc_read").values()
        probe.ask_all(server, directory, "trace_start")
        measuring.drive(server, ONE, ONE.load, directory)
        [traced] = probe.ask_all(server, directory, "trace_read").values()
        with pytest.raises(BenchError, match="inside the server: KeyError"):
            probe.ask_all(server, directory, "no such thing")
    assert objects["objects"] > 1000
    assert len(pauses["pauses"]) >= 1  # The collection that counting objects asked for.
    assert traced["peak"] >= traced["current"] > 0


def test_servers_that_were_not_prepared_cannot_be_asked(ours: Any) -> None:
    measuring = runner.Runner(environment.Cores((), ()), warm_up=0)
    with (
        measuring.alone(ours, ONE) as (server, directory),
        pytest.raises(BenchError, match="can be asked"),
    ):
        probe.ask_all(server, directory, "objects")


@needs_compiler
def test_allocations_are_counted_exactly(tmp_path: Path) -> None:
    code = "import ctypes\nfor _ in range(1000): ctypes.create_string_buffer(100_000)\n"
    totals = []
    for program in ("pass", "import ctypes", code):
        with allocation_counter() as counter:
            environ = {**process.clean_environment(), **counter.environment}
            subprocess.run([sys.executable, "-S", "-c", program], env=environ, check=True)
            totals.append(counter.read())
    grown = totals[2][1] - totals[1][1]
    assert totals[0][0] > 1000
    assert 100_000_000 <= grown < 110_000_000


@pytest.mark.deep
def test_memory_is_measured_at_rest_under_load_and_per_connection(ours: Any, tmp_path: Path) -> None:
    steps = ("--steps", "held,collector,traced,connections,websockets,compressed,http2")
    result = _run(tmp_path, "memory", "ours", "--idle", "10,60", "--markdown", *steps, *SHORT)
    record = result.data["records"]["ours"]
    assert record["peak_pss"] > 0.9 * record["rest_pss"] > 4 * 2**20
    assert 0 <= record["gc_pause_total"] < 1
    assert "traced_left_per_request" in record
    assert [one["count"] for one in record["connections"]] == [10, 60]
    assert [one["count"] for one in record["websockets"]] == [10, 60]
    assert [one["count"] for one in record["compressed"]] == [10, 60]
    assert [one["count"] for one in record["http2"]] == ([10, 60] if NATIVE else [])
    assert all(one["rss"] < 200_000 and one["objects"] < 500 for one in record["connections"])
    assert result.notes == () or not NATIVE


@pytest.mark.deep
@needs_compiler
def test_allocations_of_a_server_are_counted_per_request(ours: Any, tmp_path: Path) -> None:
    result = _run(tmp_path, "memory", "ours", "--markdown", "--steps", "allocations", *SHORT)
    assert 1 < result.data["records"]["ours"]["allocations"] < 1000


def test_connections_that_the_server_closes_are_not_counted(
    ours: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.commands import memory

    monkeypatch.setattr(memory, "PATIENT", {"keep-alive": "1"})
    monkeypatch.setattr(memory, "SETTLE", 2.5)
    assert main(["memory", "ours", "--markdown", "--idle", "5", "--steps", "connections", *SHORT]) == 0
    [path] = tmp_path.glob("*.json")
    result = model.load(path)
    assert result.data["records"]["ours"]["connections"] == []
    told = "ours: 5 idle of step connections, which --steps can leave out: the server closed 5 of 5 idle connections"
    assert result.notes[0].startswith(told)


@pytest.mark.deep
def test_starting_and_stopping_are_timed(ours: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = _run(tmp_path, "startup", "ours", "--rounds", "1", "--markdown")
    [start] = result.data["records"]["ours"]
    assert 0 < start["cpu"] < 30
    assert start["ready"] > 0
    assert 0 < start["import"] < 30
    assert "| ours | 1 |" in capsys.readouterr().out


@pytest.mark.deep
def test_what_was_measured_before_an_interruption_is_kept_by_the_others_too(
    ours: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.commands import startup, workers

    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    figures = {"ready": 0.1, "cpu": 0.1, "pss": 1.0, "rss": 1.0, "stop": 0.1, "status": -15.0}
    starts = iter([lambda *given: figures, lambda *given: figures, interrupted])
    monkeypatch.setattr(startup, "_once", lambda *given: next(starts)(*given))
    assert main(["startup", "ours", "--rounds", "5", "--markdown", "--output", str(tmp_path / "a.json")]) == 1
    assert model.load(tmp_path / "a.json").data["records"] == {"ours": [figures]}
    monkeypatch.setitem(workers.SECTIONS, "startup", lambda work: iter([_workers(9, 1)]))
    monkeypatch.setitem(workers.SECTIONS, "mixed", interrupted)
    order = ("--sections", "startup,mixed", "--tool", "closedloop", "--markdown", "--output", str(tmp_path / "b.json"))
    assert main(["workers", "ours", *order]) == 1
    assert model.load(tmp_path / "b.json").data["sections"] == {"startup": [_workers(9, 1)], "mixed": []}
    assert capsys.readouterr().err.count("bench: interrupted") == 2


@pytest.mark.deep
def test_websockets_of_every_kind_on_this_trees_server(ours: Any, tmp_path: Path) -> None:
    cases = ("echo-1m", "deflate-64", "broadcast-1k", "open-close", "starlette-64")
    arguments = ("--connections", "3", "--rounds", "1", "--seconds", "0.1", "--warm-up", "0")
    order = ("--cases", ",".join(cases), "--markdown", "--tolerate", "9")
    result = _run(tmp_path, "websocket", "ours", *order, *arguments)
    assert {sample.workload: sample.void for sample in result.samples} == dict.fromkeys(cases)


def test_a_profile_is_written_for_the_server_process(
    ours: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pstats

    pytest.importorskip("yappi")
    order = ("--no-flame", "--markdown", "--top", "5", "--dir", str(tmp_path / "p"))
    assert main(["profile", "ours", *order, *SHORT]) == 0
    [path] = (tmp_path / "p").glob("*.pstat")
    assert any(name == "hello" for _, _, name in pstats.Stats(str(path)).stats)  # type: ignore[attr-defined]
    assert "| function |" in capsys.readouterr().out


@pytest.mark.deep
def test_pools_are_measured_against_no_pool(ours: Any, tmp_path: Path) -> None:
    result = _run(tmp_path, "pool", "--operations", "2000", "--capacities", "10", "--markdown")
    records_ = result.data["records"]
    assert {"events, no pool", "events, pool of 10", "objects, slots", "head, by join"} <= set(records_)
    assert all(figures["ns"] > 0 and figures["p999"] >= figures["p50"] for figures in records_.values())
    if not _no_compiler():
        assert records_["events, pool of 10"]["bytes"] < records_["events, no pool"]["bytes"]


@pytest.mark.deep
def test_micro_benchmarks_run_on_doubles(ours: Any, tmp_path: Path) -> None:
    arguments = (
        "--cases",
        "h11:get,h11:post,h11:pipeline,h11:stream,event:fresh",
        "--operations",
        "20",
        "--rounds",
        "2",
    )
    result = _run(tmp_path, "micro", "--no-instructions", "--markdown", *arguments)
    figures = result.data["records"]
    assert figures["h11:get"]["held"] > 500
    if not _no_compiler():
        assert figures["h11:pipeline"]["allocations"] > 8 * figures["h11:get"]["allocations"]
    assert figures["h11:get"]["ns"] >= figures["h11:get"]["best"] > 100


@pytest.mark.deep
def test_many_workers_are_measured_section_by_section(ours: Any, tmp_path: Path) -> None:
    sections = ("--sections", "startup,mixed", "--counts", "1,2", "--workers", "2", "--seconds", "0.3")
    result = _run(tmp_path, "workers", "ours", "--markdown", "--tool", "closedloop", *sections)
    startup, mixed = (result.data["sections"][name] for name in ("startup", "mixed"))
    assert [one["workers"] for one in startup] == [1, 2]
    assert all(one["complete"] >= one["first_answer"] > 0 for one in startup)
    assert [one["errors"] for one in mixed] == [0, 0]


@pytest.mark.deep
def test_processes_are_measured_beside_threads(ours: Any, tmp_path: Path) -> None:
    sections = ("--sections", "profiles,parallel", "--counts", "2", "--seconds", "0.3", "--connections", "4")
    result = _run(tmp_path, "workers", "ours", "--markdown", "--tool", "closedloop", *sections)
    profiles, parallel = (result.data["sections"][name] for name in ("profiles", "parallel"))
    assert [one["mode"] for one in profiles] == ["processes=2", "threads=2"]
    assert all(one["pss"] > 0 for one in profiles)
    modes = ["single", "processes=2", "threads=2"]
    assert [(one["workload"], one["mode"]) for one in parallel] == [
        (w, mode) for w in ("echo", "cpu") for mode in modes
    ]
    assert [one["errors"] for one in parallel] == [0] * 6


def _workers(rps: float, workers: int, p99: float = 0.01) -> dict[str, Any]:
    return {"target": "ours", "workers": workers, "rps": rps, "p99": p99, "pss": workers * 2**20, "errors": 0}


def test_the_recommendation_takes_no_more_workers_than_it_needs() -> None:
    from bench import tables

    table = tables.recommendation([_workers(1000, 1, 0.001), _workers(1960, 2), _workers(2000, 4)])
    assert table.rows == (("ours", "4", "2", "1", "2.0"),)


@pytest.mark.parametrize(
    "section", ["startup", "profiles", "parallel", "peak", "sustained", "recycling", "leak", "mixed"]
)
def test_every_section_of_workers_has_a_table(section: str) -> None:
    from bench import tables

    [table] = tables.tables(records.result("workers", sections={section: [{"target": "ours"}]}))
    assert table.rows[0][0] == "ours"
    assert set(table.rows[0][1:]) == {"-"}


@pytest.mark.anyio
async def test_the_applications_echo_stream_and_answer_lifespan() -> None:
    sent: list[Any] = []
    messages = iter(
        [
            {"type": "lifespan.startup"},
            {"type": "lifespan.shutdown"},
        ]
    )

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    for application in (apps.hello, apps.ten_kib, apps.cpu):
        messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
        await application({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"] * 3


def test_the_wsgi_applications_answer_what_the_workloads_promise() -> None:
    from io import BytesIO

    for workload in WORKLOADS.values():
        if workload.wsgi is None:
            continue
        started: list[Any] = []
        environ = {"CONTENT_LENGTH": str(len(workload.body)), "wsgi.input": BytesIO(workload.body)}
        body = b"".join(getattr(apps, workload.wsgi)(environ, lambda *given, to=started: to.append(given)))
        assert len(body) == workload.response_bytes
        assert started[0][0] == "200 OK"
