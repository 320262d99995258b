"""`app module:attribute`: your own application on every server, side by side."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bench import plan, scenario, targets
from bench.commands import common
from bench.errors import BenchError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The application, the request, the targets, the load."""
    parser.add_argument("application", help="module:attribute, as servers take it")
    parser.add_argument("targets", nargs="*", default=["ours", "upstream", "granian", "hypercorn"], help="or all")
    parser.add_argument("--app-dir", type=Path, default=Path("."), help="where servers run and import from")
    parser.add_argument("--python", help="interpreter with the application's packages and the servers")
    parser.add_argument("--method", default="GET", help="of the request")
    parser.add_argument("--path", default="/", help="of the request")
    parser.add_argument("--header", action="append", default=[], help="Name: value; may be given several times")
    parser.add_argument("--body", default="", help="text, or @FILE")
    common.rounds_argument(parser)
    common.load_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; exit status 1 when no target could serve it."""
    directory = _directory(arguments)
    if arguments.python:
        os.environ["BENCH_OURS_PYTHON"] = os.environ["BENCH_PEERS_PYTHON"] = arguments.python
    chosen = targets.find_all(arguments.targets)
    workload = scenario.for_application(
        arguments.application,
        method=arguments.method,
        path=arguments.path,
        headers=dict(_header(text) for text in arguments.header),
        body=_body(arguments.body),
    )
    runner = common.runner(arguments)
    runner.application_directory = directory
    scenarios = common.scenarios(arguments, [workload], scenario.parse_mode(arguments.mode))
    blocks = plan.survey(scenarios, chosen, rounds=arguments.rounds, seed=arguments.seed)
    trouble = common.measure(runner, blocks)
    result = common.finish(arguments, "app", runner, chosen, trouble)
    return int(all(sample.void for sample in result.samples))


def _directory(arguments: argparse.Namespace) -> Path:
    directory: Path = arguments.app_dir.resolve()
    if ":" not in arguments.application:
        raise BenchError("the application must be given as module:attribute")
    if not directory.is_dir():
        raise BenchError(f"no directory {arguments.app_dir}")
    if (directory / "uvicorn").is_dir():
        raise BenchError(
            f"{arguments.app_dir} holds a package uvicorn, which upstream would import instead of itself: "
            "name the application's directory with --app-dir"
        )
    return directory


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator or not name.strip():
        raise BenchError(f"not a header: {text!r}")
    return name.strip(), value.strip()


def _body(text: str) -> bytes:
    if not text.startswith("@"):
        return text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as exc:
        raise BenchError(f"cannot read {text[1:]}: {exc.strerror or exc}") from None
