"""The scripts people look for: each runs, as a file and as a module, and leaves a result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench import model
from bench.targets import ROOT

SHORT = ("--seconds", "0.3", "--warm-up", "0")


def _script(name: str, *arguments: str, as_file: bool = True) -> subprocess.CompletedProcess[str]:
    place = [f"tests/benchmarks/{name}.py"] if as_file else ["-m", f"tests.benchmarks.{name}"]
    return subprocess.run(
        [sys.executable, *place, *arguments],
        cwd=ROOT,
        env={**os.environ, "BENCH_OURS_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=110,
    )


def test_simple_bench_measures_every_concurrency(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = _script("simple_bench", *SHORT, "--output", str(path))
    assert done.returncode == 0, done.stderr
    samples = model.load(path).samples
    assert [sample.load.connections for sample in samples] == [1, 10, 50, 100]
    assert {sample.load.tool for sample in samples} == {"httpx"}


def test_scripts_run_as_modules_too(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    done = _script("simple_bench", *SHORT, "--connections", "2", "--output", str(path), as_file=False)
    assert done.returncode == 0, done.stderr
    assert [sample.load.connections for sample in model.load(path).samples] == [2]


def test_benchmark_uvicorn_measures_get_and_post(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    chosen = ("--tool", "closedloop", "--workload", "hello,echo")
    done = _script("benchmark_uvicorn", *SHORT, *chosen, "--output", str(path))
    assert done.returncode == 0, done.stderr
    assert [(sample.workload, sample.void) for sample in model.load(path).samples] == [("hello", None), ("echo", None)]


def test_benchmark_uvicorn_needs_a_server_when_it_starts_none(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    url = "http://127.0.0.1:1/"
    done = _script("benchmark_uvicorn", "--no-server", "--url", url, "--tool", "httpx", *SHORT, "--output", str(path))
    assert done.returncode == 1
    assert all(sample.void == "nobody listens at 127.0.0.1:1" for sample in model.load(path).samples)


def test_compare_performance_shows_the_paired_ratio_and_the_noise_floor() -> None:
    short = (*SHORT, "--tool", "closedloop", "--connections", "2", "--blocks", "1", "--markdown")
    done = _script("compare_performance", "--rival", "ours:http=h11", "--baseline", "no-such-baseline", *short)
    assert done.returncode == 0, done.stderr
    assert "| CPU per request |" in done.stdout
    assert "the noise floor, a server against itself" in done.stdout
    assert "no baseline 'no-such-baseline'" in done.stderr


def test_profile_memory_needs_no_server(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    arguments = ("--cases", "h11:get", "--operations", "20", "--rounds", "1", "--output", str(path))
    done = _script("profile_memory", *arguments)
    assert done.returncode == 0, done.stderr
    assert model.load(path).data["records"]["h11:get"]["held"] > 500
