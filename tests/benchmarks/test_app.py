"""The applications the scripts put under load, on one address: each workload at a path of its name.

    python tests/benchmarks/test_app.py                 serves them on http://127.0.0.1:8000/ with this tree's server
    python -m tests.benchmarks.test_app --port 9000     arguments are those of the server

Another server finds them as `tests.benchmarks.test_app:app`. Load them with `--no-server` or `--url`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import apps
from bench.scenario import TABLE
from bench.targets import ROOT

ROUTES = {f"/{workload.name}": getattr(apps, workload.app) for workload in TABLE if ":" not in workload.app}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """The workload the path names; `/` is hello, anything else 404."""
    application = ROUTES.get(scope["path"]) if scope["type"] != "lifespan" else apps.hello
    if application is None and scope["path"] == "/":
        application = apps.hello
    if application is not None:
        await application(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def main(argv: Sequence[str]) -> None:
    """Serve; the arguments are those of the server's command line."""
    from uvicorn.main import main as serve

    serve(["tests.benchmarks.test_app:app", "--app-dir", str(ROOT), "--no-access-log", *argv])


if __name__ == "__main__":
    main(sys.argv[1:])
