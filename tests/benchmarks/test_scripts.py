"""The scripts people look for: each runs, as a file and as a module, and leaves a result."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from bench import apps, model
from bench.targets import ROOT
from tests.process import ServerProcess

# Other tests run on the same cores meanwhile.
SHORT = ("--seconds", "0.3", "--warm-up", "0", "--tolerate", "9")


def _script(name: str, *arguments: str, as_file: bool = True) -> subprocess.CompletedProcess[str]:
    place = [f"tests/benchmarks/{name}.py"] if as_file else ["-m", f"tests.benchmarks.{name}"]
    return subprocess.run(
        [sys.executable, *place, *arguments],
        cwd=ROOT,
        env={**os.environ, "BENCH_OURS_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=540,
    )


def _assert_measured(done: subprocess.CompletedProcess[str]) -> None:
    """On the machine of the stored rates, busy with other tests, they may be worse."""
    assert done.returncode == int("worse than stored" in done.stdout), done.stderr


@pytest.mark.deep
def test_simple_bench_measures_every_concurrency(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = _script("simple_bench", *SHORT, "--output", str(path))
    _assert_measured(done)
    samples = model.load(path).samples
    assert {sample.load.connections for sample in samples if sample.target == "ours"} == {1, 10, 50, 100}
    assert {sample.load.tool for sample in samples} == {"httpx"}


def test_scripts_run_as_modules_too(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = _script("simple_bench", "ours", *SHORT, "--connections", "2", "--output", str(path), as_file=False)
    assert done.returncode == 0, done.stderr
    assert [(one.target, one.load.connections) for one in model.load(path).samples] == [("ours", 2)]
    assert done.stdout.splitlines()[-1].startswith("conclusion: all cases answered rightly, ")


@pytest.mark.deep
def test_benchmark_uvicorn_measures_get_and_post(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    chosen = ("--tool", "closedloop", "--workload", "hello,echo")
    done = _script("benchmark_uvicorn", *SHORT, *chosen, "--output", str(path))
    _assert_measured(done)
    ours = [sample for sample in model.load(path).samples if sample.target == "ours"]
    assert {(sample.workload, sample.void) for sample in ours} == {("hello", None), ("echo", None)}


@pytest.mark.parametrize("name", ["simple_bench", "benchmark_uvicorn"])
def test_without_a_server_the_last_line_says_so(name: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    url = "http://127.0.0.1:1/"
    done = _script(name, "--no-server", "--url", url, "--tool", "httpx", *SHORT, "--output", str(path))
    assert done.returncode == 1
    assert all(sample.void == "no server listens at 127.0.0.1:1" for sample in model.load(path).samples)
    assert done.stdout.splitlines()[-1] == "conclusion: not every burst counts: no server listens at 127.0.0.1:1."


@pytest.mark.deep
def test_compare_performance_shows_the_paired_ratio_and_the_noise_floor() -> None:
    short = (*SHORT, "--tool", "closedloop", "--connections", "2", "--blocks", "1", "--markdown")
    done = _script("compare_performance", "--rival", "ours:http=h11", "--baseline", "no-such-baseline", *short)
    assert done.returncode == 1
    assert "| CPU per request |" in done.stdout
    assert "the noise floor, a server against itself" in done.stdout
    assert "no baseline 'no-such-baseline'" in done.stderr


def test_compare_performance_does_not_measure_beside_a_misspelt_rival() -> None:
    done = _script("compare_performance", "--rival", "hypercron")
    assert done.returncode == 2
    assert "unknown target 'hypercron': choose from ours, upstream" in done.stderr


@pytest.mark.deep
def test_compare_performance_without_upstream_goes_by_the_stored_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_PEERS_PYTHON", "/nowhere/python")
    done = _script("compare_performance", *SHORT, "--tool", "wrk", "--connections", "10", "--rounds", "1", "--markdown")
    if "wrk is not installed" in done.stderr:
        pytest.skip("needs wrk")
    _assert_measured(done)
    assert " hello, 10 " in done.stdout and "now / upstream" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("conclusion: all cases answered rightly, ")
    assert "no interpreter for upstream: run make bench-setup" in done.stderr


@pytest.mark.deep
def test_profile_memory_needs_no_server(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    arguments = ("--cases", "h11:get", "--operations", "20", "--rounds", "1", "--output", str(path))
    done = _script("profile_memory", *arguments)
    assert done.returncode == 0, done.stderr
    data = model.load(path).data
    assert data["records"]["h11:get"]["held"] > 500
    assert any(place.startswith("protocols/http/scope.py") for place, _, _ in data["places"]["h11:get"])
    assert "verdict: h11:get: a connection holds" in done.stdout
    assert "verdict: __slots__ save" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("conclusion: a connection holds ")


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(str(ROOT / "tests" / "benchmarks" / "test_app.py"), id="file"),
        pytest.param("-m tests.benchmarks.test_app", id="module"),
    ],
)
def test_test_app_serves_the_workloads(place: str) -> None:
    with ServerProcess("--port", "0", cwd=ROOT, command=[sys.executable, *place.split()]) as server:
        server.wait_for("Application startup complete.")
        for path, expected in (("", apps.HELLO), ("10k", apps.TEN_KIB)):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/{path}", timeout=10) as answer:
                assert len(answer.read()) == len(expected)
