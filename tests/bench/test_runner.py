"""Whole runs against servers whose behaviour is known, through the command line."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import compiler, environment, model, plan, process, runner, targets, trees
from bench.__main__ import main
from bench.commands import common
from bench.errors import BenchError
from bench.load import generators
from bench.model import Load, ProcessUse, Result, Usage
from bench.plan import Block, Scenario
from bench.scenario import WORKLOADS, Mode
from bench.targets import Target
from tests.bench import fake, records

Bench = Callable[..., int]

# Nothing here is a figure: how busy the machine is does not matter.
SHORT = ("--tool", "closedloop", "--connections", "4", "--seconds", "0.3", "--warm-up", "0", "--tolerate", "9")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """The command line, with fake servers among the targets and results in a directory of the test's own."""
    fakes = [
        fake.target("fake", delay=0.002),
        fake.target("slow", delay=0.02),
        fake.target("other", delay=0.002),
        fake.target("erring", error_every=2),
        fake.target("dying", die_at=2),
        fake.target("dead", die_at=1),
        Target(
            "noisy", "ends at once", lambda launch: [sys.executable, "-c", "raise SystemExit('no module x')"], "none"
        ),
    ]
    monkeypatch.setattr(targets, "TABLE", (*targets.TABLE, *fakes))
    monkeypatch.setattr(targets, "TARGETS", {**targets.TARGETS, **{one.name: one for one in fakes}})
    monkeypatch.setattr(common, "RESULTS", tmp_path)

    def run(*arguments: str) -> int:
        return main(arguments)

    return run


def _stored(directory: Path) -> Result:
    [path] = directory.glob("*.json")
    return model.load(path)


@pytest.mark.deep
def test_a_comparison_finds_the_slower_server(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("compare", "fake", "slow", "--blocks", "1", "--no-noise", "--markdown", *SHORT) == 0
    result = _stored(tmp_path)
    assert [sample.side for sample in result.samples] in ([*"AB"], [*"BA"])
    assert all(sample.void is None for sample in result.samples)
    by_target = {name: [s for s in result.samples if s.target == name] for name in ("fake", "slow")}
    assert min(s.latency.p50 for s in by_target["slow"] if s.latency) >= 0.0199
    assert min(s.latency.p50 for s in by_target["fake"] if s.latency) >= 0.0019
    assert all(sample.usage and sample.usage.cpu > 0 and sample.memory for sample in result.samples)
    output = capsys.readouterr().out
    assert "| p50 |" in output
    assert "doubt:" in output


def test_websockets_are_compared_in_blocks_of_everybody_who_can(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned: list[Block] = []
    monkeypatch.setattr(generators, "require", lambda name: generators.find(name))
    monkeypatch.setattr(targets, "find_all", lambda names: [targets.find(name) for name in names])
    monkeypatch.setattr(environment, "describe", lambda chosen, cores: records.ENVIRONMENT)
    monkeypatch.setattr(common, "measure", lambda runner, blocks: planned.extend(blocks))
    order = ("websocket", "ours", "upstream", "granian", "--cases", "echo-64,deflate-64", "--rounds", "4", "--paired")
    bench(*order)
    assert [block.number for block in planned] == list(range(8))
    sides = [{side: target.name for side, target in block.sides.items()} for block in planned]
    assert sides[:4] == [{"A": "ours", "B": "upstream", "C": "granian"}] * 4
    assert sides[4:] == [{"A": "ours", "B": "upstream"}] * 4
    assert [block.order for block in planned[:2]] == [planned[0].order, planned[0].order[::-1]]
    assert "left out: granian has no permessage-deflate" in capsys.readouterr().err
    planned.clear()
    bench(*order[:-1])
    names = [side.name for block in planned for side in block.sides.values()]
    assert (set(names[:12]), set(names[12:])) == ({"ours", "upstream", "granian"}, {"ours", "upstream"})
    assert [block.number for block in planned] == list(range(20))


@pytest.mark.deep
def test_a_comparison_with_several_shows_the_noise_and_leaves_out_who_cannot(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--workload", "hello,log", "--blocks", "1", "--markdown")
    assert bench("compare", "fake", "slow", "other", *arguments, *SHORT) == 1  # log: nobody here has an access log.
    captured = capsys.readouterr()
    assert "left out: slow has no access log" in captured.err
    samples = [sample for sample in _stored(tmp_path).samples if sample.workload == "hello"]
    order = [sample.side for sample in samples]
    assert sorted(order) == [*"ABCD"]
    assert "| noise floor |" in captured.out
    assert "**CPU per request relative to A" in captured.out


def test_every_sample_carries_its_figures_and_its_environment(bench: Bench, tmp_path: Path) -> None:
    assert bench("run", "fake", "--rounds", "1", *SHORT) == 0
    result = _stored(tmp_path)
    [sample] = result.samples
    assert sample.burst is not None
    assert sample.burst.requests > 0
    assert sample.machine is not None
    assert sample.machine.client_cpu > 0
    assert sample.knobs["sleep_ms"] == 10
    assert set(environment.IDENTITY) <= set(result.environment)
    assert result.environment["targets"]["fake"]["python"] == "none"


def test_polling_outside_a_burst_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests take their part of the cores, at times nearly all of it.
    monkeypatch.setattr(model, "POLLING", 0.05)
    with fake.running(tmp_path, polls=1) as server:
        assert any(runner.idle_share(server, 0.3) > 0.05 for _ in range(20))
    with fake.running(tmp_path, delay=0.001) as server:
        assert runner.idle_share(server, 0.3) < 0.05
    usage = Usage(0.9, 0.3, 7, 8, (ProcessUse("python", 1.2, 1),))
    assert usage.without_polling(0.04, 0.25) is usage
    left = usage.without_polling(0.8, 0.25)
    assert (left.cpu, left.user, left.processes[0].cpu, left.idle) == pytest.approx((1.0, 0.75, 1.0, 0.8))
    assert usage.without_polling(1.0, 2.0).cpu == 0.0


@pytest.mark.parametrize(
    ("before", "after", "left_out"),
    [
        pytest.param(0.9, 0.7, 0.7, id="polls"),
        pytest.param(0.1, 0.9, 0.0, id="has work left over"),
    ],
)
def test_what_a_server_that_polls_uses_between_bursts_is_no_cost(
    before: float, after: float, left_out: float, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter((before, after))
    monkeypatch.setattr(runner, "idle_share", lambda server, seconds: next(asked))
    assert bench("run", "fake", "--rounds", "1", *SHORT) == 0
    [sample] = _stored(tmp_path).samples
    assert sample.usage is not None
    assert sample.usage.idle == left_out


@pytest.mark.parametrize(
    ("target", "words"),
    [
        pytest.param("erring", "status", id="errors"),
        pytest.param("dying", "dying ended with status 3: dying as told", id="dies under load", marks=pytest.mark.deep),
        pytest.param("dead", "dead ended with status 3", id="dies at the first request", marks=pytest.mark.deep),
        pytest.param("noisy", "noisy ended with status 1: no module x", id="does not start"),
    ],
)
def test_a_failed_run_is_an_error_with_its_reason(
    target: str, words: str, bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("run", target, "fake", "--rounds", "1", "--markdown", *SHORT) == 0  # The other target counts.
    samples = {sample.target: sample for sample in _stored(tmp_path).samples}
    assert samples["fake"].void is None
    assert words in (samples[target].void or "")
    assert f"failed: {samples[target].void}" in capsys.readouterr().out


def test_a_run_without_any_good_sample_fails(bench: Bench) -> None:
    assert bench("run", "noisy", "--rounds", "1", *SHORT) == 1
    assert bench("compare", "noisy", "fake", "--blocks", "1", "--no-noise", *SHORT) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("run", "nginx"), "unknown target 'nginx': choose from ours, upstream", id="target"),
        pytest.param(("run", "fake", "--workload", "x"), "unknown workload 'x': choose from hello", id="workload"),
        pytest.param(("run", "fake", "--tool", "ab"), "unknown load generator 'ab'", id="generator"),
        pytest.param(("run", "fake", "--mode", "many", *SHORT), "unknown mode 'many'", id="mode"),
        pytest.param(("run", "fake", "--mode", "hybrid=2x2", *SHORT), "unknown mode 'hybrid=2x2'", id="hybrid"),
        pytest.param(("run", "fake", "--mode", "processes=0", *SHORT), "unknown mode 'processes=0'", id="no processes"),
        pytest.param((), "the following arguments are required: COMMAND", id="no command"),
        pytest.param(("mesure",), "invalid choice: 'mesure'", id="command"),
        pytest.param(("compare", "ours"), "the following arguments are required: rivals", id="one server"),
        pytest.param(("run", "fake", "--speed", "9"), "unrecognized arguments: --speed", id="no such option"),
        pytest.param(("run", "fake", "--connections", "0"), "not a list of positive numbers: '0'", id="connections"),
        pytest.param(("run", "fake", "--rounds", "0"), "not a positive whole number: '0'", id="rounds"),
        pytest.param(("run", "fake", "--seconds", "-1"), "not a positive number: '-1'", id="negative seconds"),
        pytest.param(("run", "fake", "--seconds", "nan"), "not a positive number: 'nan'", id="seconds that are none"),
        pytest.param(("startup", "--rounds", "0"), "not a positive whole number", id="no start"),
        pytest.param(("memory", "--idle", "0"), "not a list of positive numbers", id="nothing idle"),
        pytest.param(("memory", "fake", "--steps", "x"), "unknown step 'x'", id="step"),
        pytest.param(("publish", "--only", "x"), "unknown part 'x'", id="part"),
        pytest.param(("run", "fake", "--tool", "httpx", "--rate", "9"), "httpx has no fixed arrival rate", id="rate"),
        pytest.param(("run", "fake", "--tool", "openloop"), "openloop needs --rate", id="no rate"),
        pytest.param(
            ("run", "fake", "--workload", "django", "--tool", "openloop"),
            "openloop needs --rate",
            id="another tool",
        ),
        pytest.param(
            ("run", "fake", "--tool", "httpx", "--workload", "pipeline"), "httpx does not pipeline", id="pipeline"
        ),
        pytest.param(("run", "ours:http=h11,speed=9"), "target ours has no option 'speed'", id="option"),
        pytest.param(
            ("run", "ours:request-id=off"), "'request-id' of target ours is on or left out, not 'off'", id="switch"
        ),
        pytest.param(("run", "--url", "http://example.com/"), "load goes to http://127.0.0.1:PORT", id="elsewhere"),
        pytest.param(
            ("run", "--url", "http://127.0.0.1:1/", "--workload", "hello,varying"),
            "varying needs a server that is started here",
            id="elsewhere, varying",
        ),
        pytest.param(("show", "/no/such/file"), "cannot read /no/such/file: No such file", id="file"),
        pytest.param(("baseline", "compare", "nothing", "/no/such"), "cannot read", id="baseline file"),
        pytest.param(("report",), "which results?", id="no results"),
        pytest.param(("websocket", "fake", "--cases", "hello"), "hello is no workload for WebSocket", id="case"),
        pytest.param(
            ("websocket", "fake", "--cases", "x"), "choose from websocket, echo-64, echo-64-x16", id="websocket"
        ),
        pytest.param(("gate", "--memory", "idle"), "unknown case 'idle' of --memory: choose from hello", id="gate"),
        pytest.param(("workers", "fake", "--sections", "x"), "unknown section 'x'", id="section"),
        pytest.param(("app", "nomodule", "fake"), "module:attribute", id="application"),
        pytest.param(("profile", "epoll"), "epoll has no Python to profile", id="profile"),
        pytest.param(("pool", "--target", "upstream"), "use ours", id="pool"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: tuple[str, ...], words: str, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(*arguments) in (1, 2)
    error = capsys.readouterr().err
    assert words in error
    assert error.startswith("bench: ")
    assert error.count("\n") == 1


def test_no_wrk_is_one_clear_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert bench("run", "fake") == 1
    said = "bench: wrk is not installed (apt-get install wrk, or choose another --tool)\n"
    assert capsys.readouterr().err == said


def test_no_interpreter_is_one_clear_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCH_PEERS_PYTHON", "/no/such/python")
    assert bench("run", "upstream") == 1
    error = capsys.readouterr().err
    assert "no interpreter for upstream: run make bench-setup" in error
    assert "(/no/such/python, from there, bench.toml or --python, does not exist)" in error


@pytest.mark.skipif(sys.version_info < (3, 11), reason="bench.toml needs Python 3.11")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            '[pyhton]\nours = "x"\n', "unknown key 'pyhton': it has ours and peers, under [python]", id="table"
        ),
        pytest.param('[python]\nour = "x"\n', "unknown key 'our'", id="server"),
        pytest.param("python = 3\n", "unknown key 'python'", id="no table"),
        pytest.param("[python\n", "bench.toml: ", id="no TOML"),
        pytest.param('[python]\nours = "/no/such"\n', "(/no/such, from there, bench.toml", id="no interpreter"),
    ],
)
def test_mistakes_in_the_settings_file_are_one_line(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bench.toml").write_text(text)
    monkeypatch.setattr(targets, "ROOT", tmp_path)
    monkeypatch.delenv("BENCH_OURS_PYTHON", raising=False)
    with pytest.raises(BenchError) as caught:
        targets.interpreter(targets.find("ours"))
    assert words in str(caught.value)


def test_an_interpreter_may_be_named_from_where_one_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Servers, and what asks for versions, run in other directories."""
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCH_OURS_PYTHON", "python")
    assert targets.interpreter(targets.find("ours")) == str(tmp_path / "python")


def test_many_processes_have_more_time_until_the_first_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(process.Server, "wait_ready", lambda server, request, timeout: waited.append(timeout))
    measuring = runner.Runner(environment.Cores((), ()), warm_up=0)
    target = dataclasses.replace(fake.target("fake"), modes=frozenset({"single", "processes", "threads"}))
    for mode in (Mode(), Mode("processes", processes=3), Mode("threads", threads=3)):
        with measuring.alone(target, Scenario(WORKLOADS["hello"], mode, Load("closedloop", 2, 1, 0.2))):
            pass
    assert waited == [120, 124, 124]


def test_a_port_in_use_is_one_clear_line_and_what_is_there_is_not_measured(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake.running(tmp_path) as server:
        assert bench("run", "fake", "--port", str(server.port), "--rounds", "1", *SHORT) == 1
    assert f"bench: port {server.port} is in use" in capsys.readouterr().err


def test_a_port_that_is_taken_between_choosing_and_starting_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(WORKLOADS["hello"], Mode(), Load("closedloop", 2, 1, 0.2))
    measuring = runner.Runner(environment.Cores((), ()), warm_up=0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound but not listening: nobody answers, yet it cannot be had.
        ports = iter([taken.getsockname()[1], process.free_port()])
        monkeypatch.setattr(process, "free_port", lambda: next(ports))
        with measuring.alone(fake.target("fake"), scenario) as (server, _):
            assert server.port != taken.getsockname()[1]
    assert next(ports, None) is None


def test_a_full_disk_keeps_what_was_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refuge = tmp_path / "refuge"
    refuge.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(refuge))
    (tmp_path / "full").write_text("a file where a directory would be needed")
    target = str(tmp_path / "full" / "result.json")
    assert bench("run", "fake", "--rounds", "1", "--markdown", "--output", target, *SHORT) == 1
    captured = capsys.readouterr()
    assert "| fake | " in captured.out
    assert "cannot write" in captured.err
    assert "the result is in" in captured.err
    assert len(_stored(refuge).samples) == 1


def test_what_was_measured_before_an_interruption_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = runner.Runner._block
    cores = os.sched_getaffinity(0)

    def interrupted(self: runner.Runner, block: plan.Block) -> None:
        if self.samples:
            raise KeyboardInterrupt
        measured(self, block)

    monkeypatch.setattr(runner.Runner, "_block", interrupted)
    assert bench("run", "fake", "slow", "--rounds", "2", "--markdown", *SHORT) == 1
    result = _stored(tmp_path)
    assert len(result.samples) == 1
    assert "ended early: interrupted" in result.notes
    assert os.sched_getaffinity(0) == cores  # The harness had moved to the client's cores.


def test_a_server_of_somebody_else_is_loaded_but_not_looked_into(bench: Bench, tmp_path: Path) -> None:
    with fake.running(tmp_path, delay=0.002) as server:
        assert bench("run", "--url", f"http://127.0.0.1:{server.port}/", "--rounds", "1", *SHORT) == 0
    [sample] = _stored(tmp_path).samples
    assert sample.burst is not None
    assert sample.usage is None


def test_stored_results_are_shown_reported_and_compared(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.commands.baseline.BASELINES", tmp_path / "baselines")
    path = tmp_path / "result.json"
    model.save(records.result("run", [records.sample()]), path)
    assert bench("show", str(path), "--markdown") == 0
    assert "| ours | 10.0 us |" in capsys.readouterr().out
    assert bench("show", str(path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "run"
    page, text = tmp_path / "page.html", tmp_path / "report.md"
    assert bench("report", str(path), "--html", str(page), "--to", str(text)) == 0
    assert "<svg" in page.read_text()
    assert "| ours | 10.0 us |" in text.read_text()
    assert bench("baseline", "save", "first", str(path)) == 0
    capsys.readouterr()
    assert bench("baseline", "compare", "first", str(path), "--markdown") == 0
    assert "| hello, wrk, 50 | ours | 1.000 |" in capsys.readouterr().out
    assert bench("report", "first") == 0
    assert bench("baseline", "compare", "second", str(path)) == 1
    assert "no baseline 'second' (there are: first)" in capsys.readouterr().err


def test_documents_are_made_from_baselines_and_checked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.commands.report.BASELINES", tmp_path)
    monkeypatch.setattr("bench.commands.report.ROOT", tmp_path)
    model.save(records.result("run", [records.sample()]), tmp_path / "look.json")
    document = tmp_path / "BASELINE_PERFORMANCE.md"
    document.write_text("# T\n<!-- bench:begin look -->\n<!-- bench:end -->\n")
    assert bench("report", "--check") == 1
    assert "BASELINE_PERFORMANCE.md" in capsys.readouterr().err
    assert bench("report", "--write") == 0
    assert bench("report", "--check") == 0
    document.write_text(document.read_text().replace("10.0 us", "1.0 us"))
    assert bench("report", "--check") == 1


def test_what_is_there_is_listed_with_what_is_missing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCH_PEERS_PYTHON", "/no/such/python")
    monkeypatch.setenv("PATH", "/nowhere")
    assert bench("list", "--markdown") == 0
    output = capsys.readouterr().out
    assert "make bench-setup" in output
    assert "wrk is not installed" in output
    for name in (*WORKLOADS, *generators.GENERATORS, *targets.TARGETS):
        assert f"| {name} |" in output


@pytest.mark.deep
def test_an_application_of_the_users_own_is_served_from_its_directory(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BENCH_OURS_PYTHON", sys.executable)
    directory = tmp_path / "mine"
    directory.mkdir()
    (directory / "mine.py").write_text(
        "async def app(scope, receive, send):\n"
        "    assert scope['type'] == 'http'\n"
        "    assert scope['path'] == '/there' and (b'x', b'y') in scope['headers']\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': open('data').read().encode()})\n"
    )
    (directory / "data").write_text("beside the application")
    arguments = ("--app-dir", str(directory), "--path", "/there", "--header", "X: y", "--rounds", "1")
    assert bench("app", "mine:app", "ours", *arguments, *SHORT) == 0
    [sample] = _stored(tmp_path).samples
    assert (sample.void, sample.workload) == (None, "app")


def test_a_directory_that_would_hide_the_servers_is_refused(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("app", "mine:app", "fake", "--app-dir", str(targets.ROOT)) == 1
    assert "holds a package uvicorn" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "workload", "mode", "words"),
    [
        pytest.param("epoll", "echo", "single", "only answers hello", id="no body"),
        pytest.param("epoll", "log", "single", "has no access log", id="no log"),
        pytest.param("fastpysgi", "websocket", "single", "has no websocket", id="no websocket"),
        pytest.param("daphne", "hello", "processes=2", "has no processes mode", id="no processes"),
        pytest.param("upstream", "hello", "threads=2", "has no threads mode", id="no threads"),
        pytest.param("ours", "stream", "wsgi", "has no WSGI form", id="no WSGI form"),
    ],
)
def test_what_a_server_cannot_do_is_said_before_it_is_started(name: str, workload: str, mode: str, words: str) -> None:
    from bench.scenario import parse_mode

    refusal = targets.find(name).refusal(WORKLOADS[workload], parse_mode(mode))
    assert refusal is not None
    assert words in refusal


@pytest.mark.parametrize("target", [pytest.param(one, id=one.name) for one in targets.TABLE if "asgi" in one.features])
def test_each_command_line_names_application_port_and_loopback(target: Target) -> None:
    for mode in (Mode(), Mode("processes", 3), Mode("threads", threads=3), Mode("wsgi")):
        if mode.kind in target.modes:
            launch = targets.Launch("m:app", 4711, mode, mode.kind == "single", "/venv/bin/python")
            argv = target.command(launch)
            joined = " ".join(argv)
            assert argv[0] == "/venv/bin/python"
            assert "4711" in joined
            assert "127.0.0.1" in joined
            assert "m:app" in joined
            assert ("3" in argv) == (mode.kind in ("processes", "threads"))


@pytest.mark.parametrize(("backpressure", "backlog"), [("16", "1024"), ("20000", "20000")])
def test_granian_has_a_backlog_that_it_takes(backpressure: str, backlog: str) -> None:
    target = targets.find(f"granian:backpressure={backpressure}")
    launch = targets.Launch("m:app", 4711, Mode(), False, "python", target.options)
    found = " ".join(target.command(launch))
    assert f"--backlog {backlog} --backpressure {backpressure}" in found


def test_a_server_gets_nothing_of_the_harness_s_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", "/harness")
    monkeypatch.setenv("UVICORN_WORKERS", "9")
    monkeypatch.setenv("BENCH_OURS_PYTHON", "/x")
    found = runner.server_environment(targets.find("upstream"), tmp_path)
    assert found["PYTHONPATH"] == str(tmp_path)
    assert not any(name.startswith(("UVICORN_", "BENCH_")) for name in found)
    ours = runner.server_environment(targets.find("ours"), tmp_path)["PYTHONPATH"].split(os.pathsep)
    assert ours == [str(tmp_path), str(targets.ROOT)]


def test_a_tree_elsewhere_is_told_by_its_last_part_only(tmp_path: Path) -> None:
    (tmp_path / trees.MARK).touch()
    other = targets.find(f"ours:root={tmp_path}")
    assert other.label() == f"ours:root={tmp_path.name}"
    assert targets.import_root(other) == tmp_path.resolve()


def test_the_bare_c_server_answers_pipelined_requests_in_any_cut(tmp_path: Path) -> None:
    try:
        program = compiler.compiled("epoll_hello")
    except BenchError as exc:
        pytest.skip(str(exc))
    port = process.free_port()
    server = process.Server(
        "epoll", [str(program), str(port)], port=port, directory=tmp_path, log=tmp_path / "log", environment={}
    )
    try:
        server.wait_ready(process.Request(response_bytes=13), 20)
        request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(request * 16 + request[:-2])
            client.sendall(request[-2:])
            received = b""
            while received.count(b"Hello, World!") < 17:
                received += client.recv(65536)
        assert received.count(b"HTTP/1.1 200 OK") == 17
    finally:
        server.stop()


@pytest.mark.deep
def test_samples_of_a_plan_are_numbered_by_block_and_slot(bench: Bench) -> None:
    scenario = Scenario(WORKLOADS["hello"], Mode(), Load("closedloop", 2, 1, 0.2))
    measuring = runner.Runner(environment.Cores((), ()), warm_up=0)
    samples: list[Any] = measuring.carry_out(plan.survey([scenario], [fake.target("fake")], rounds=2))
    assert [(sample.block, sample.slot) for sample in samples] == [(0, 0), (1, 0)]
