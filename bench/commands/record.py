"""`record`: what the clients of a real application ask, for the load that is replayed against every server."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from bench import applications, process, targets
from bench.errors import BenchError
from bench.process import Server
from bench.scenario import Mode
from bench.targets import Launch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The applications."""
    recorded = [one.name for one in applications.TABLE if (one.directory / "visit.py").exists()]
    parser.add_argument("applications", nargs="+", metavar="APPLICATION", help=", ".join(recorded))


def execute(arguments: argparse.Namespace) -> int:
    """Serve each with this tree's server, let its clients visit it, and store what they asked."""
    for name in arguments.applications:
        application = applications.find(name)
        if not (application.directory / "visit.py").exists():
            raise BenchError(f"nothing visits {name}: its load is made by the generator {application.generator}")
        record(application)
        print(f"{application.recording.relative_to(applications.ROOT)}: {len(application.requests())} requests")
    return 0


def record(application: applications.Application) -> None:
    """Raises BenchError when a visit fails, ServerError when the application does not start."""
    target, python, port = targets.find("ours"), applications.interpreter(), process.free_port()
    paths = os.pathsep.join(str(path) for path in (applications.HERE, application.directory, targets.ROOT))
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        environ = {
            **process.clean_environment(),
            **application.prepare(Path(name)),
            "PYTHONPATH": paths,
            "BENCH_RECORDED": application.application,
            "BENCH_RECORDING": str(application.recording),
        }
        command = target.command(Launch("recorder:application", port, Mode(), False, python))
        server = Server(
            application.name, command, port=port, directory=Path(name), log=Path(name, "log"), environment=environ
        )
        try:
            _wait(server)
            applications.run(application.folder, "visit.py", f"http://127.0.0.1:{port}", PYTHONPATH=paths)
        finally:
            server.stop()


def _wait(server: Server) -> None:
    """Until the port is open: a request would be recorded."""
    deadline = time.monotonic() + process.READY_TIMEOUT
    while not process.in_use(server.port):
        server.check_alive()
        if time.monotonic() > deadline:
            raise BenchError(f"{server.label} does not start: {server.last_words()}")
        time.sleep(0.05)
