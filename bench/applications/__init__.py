"""Real applications: what they need before they start, and the load that was recorded for them.

Each has a directory: the application; `visit.py`, the doings of its clients while they were recorded (`python -m bench
record` repeats them); and `recording.json`, the requests. All run in one environment, `.venv-applications`, with every
server: `scripts/bench-setup applications` makes it. This tree is imported from its directory.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import process
from bench.applications import postgres
from bench.errors import BenchError, last_line
from bench.load.response import request_bytes

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What an answer to a recorded request may say; others are not replayed.
REPLAYED = range(200, 300)


@dataclass(frozen=True)
class Application:
    """One application.

    `folder` is its directory here, `application` what servers are given, as `module:attribute`. `prepare` gets a
    directory that is new for each start, and returns what to put into the environment. `generator` drives it.
    """

    name: str
    about: str
    folder: str
    application: str
    prepare: Callable[[Path], Mapping[str, str]] = lambda directory: {}
    needs: frozenset[str] = frozenset({"body"})
    generator: str = "closedloop"
    connections: int = 32

    @property
    def directory(self) -> Path:
        """Where its modules are imported from."""
        return HERE / self.folder

    @property
    def recording(self) -> Path:
        """What its clients asked."""
        return self.directory / "recording.json"

    def requests(self) -> list[dict[str, Any]]:
        """The recorded requests that were answered well: `method`, `target`, `headers`, `body`."""
        stored = json.loads(self.recording.read_text(encoding="utf-8"))
        return [
            {"method": method, "target": target, "headers": dict(stored["fields"][fields]), "body": body.encode()}
            for method, target, fields, body, status in stored["requests"]
            if status in REPLAYED
        ]


def session(name: str) -> list[bytes]:
    """The recorded requests of an application, as they go over the wire, in their order."""
    return [request_bytes(one["method"], one["target"], one["headers"], one["body"]) for one in find(name).requests()]


def interpreter() -> str:
    """The interpreter that runs them; raises BenchError when there is none."""
    path = os.environ.get("BENCH_APPLICATIONS_PYTHON") or str(ROOT / ".venv-applications" / "bin" / "python")
    if not Path(path).exists():
        raise BenchError("real applications have an environment of their own: run scripts/bench-setup applications")
    return os.path.abspath(path)


@functools.cache
def _made() -> tempfile.TemporaryDirectory[str]:
    """A directory for databases with their contents, each made once; it ends with the interpreter."""
    return tempfile.TemporaryDirectory(prefix="bench-applications-")


def run(folder: str, *arguments: str, **environment: str) -> None:
    """Run Python in an application's directory; raises BenchError with its last line when it fails."""
    argv = [interpreter(), *arguments]
    environ = {**process.clean_environment(), **environment}
    done = subprocess.run(argv, cwd=HERE / folder, env=environ, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"{folder}: {last_line(done.stderr)}")


_FILL_SHOP = ("-c", "import asyncio, shop; asyncio.run(shop.fill())")


@functools.cache
def _shop_file() -> Path:
    path = Path(_made().name) / "shop.sqlite"
    run("shop", *_FILL_SHOP, SHOP_DATABASE=f"sqlite+aiosqlite:///{path}")
    return path


@functools.cache
def _blog_file() -> Path:
    path = Path(_made().name) / "blog.sqlite"
    run("blog", "blog.py", BLOG_DATABASE=str(path))
    return path


@functools.cache
def _cluster() -> postgres.Cluster:
    cluster = postgres.Cluster()
    cluster.create("filled")
    run("shop", *_FILL_SHOP, SHOP_DATABASE=cluster.url("filled"))
    return cluster


def _with_sqlite(directory: Path) -> Mapping[str, str]:
    return {"SHOP_DATABASE": f"sqlite+aiosqlite:///{shutil.copy(_shop_file(), directory)}"}


def _with_postgres(directory: Path) -> Mapping[str, str]:
    cluster = _cluster()
    cluster.create("shop", like="filled")
    return {"SHOP_DATABASE": cluster.url("shop")}


def _with_blog(directory: Path) -> Mapping[str, str]:
    return {"BLOG_DATABASE": str(shutil.copy(_blog_file(), directory))}


def _with_data(directory: Path) -> Mapping[str, str]:
    return {"DATA_DATABASE": str(shutil.copy(_shop_file(), directory))}


def _with_model(directory: Path) -> Mapping[str, str]:
    return {
        "CONFIG_FILE_PATH": str(HERE / "model" / "config.yaml"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOG": "ERROR",
    }


_LIFESPAN = frozenset({"body", "lifespan"})

TABLE = (
    Application(
        "shop-sqlite",
        "an API by FastAPI, Pydantic and SQLAlchemy, on SQLite",
        "shop",
        "shop:application",
        _with_sqlite,
        _LIFESPAN,
    ),
    Application(
        "shop-postgres",
        "the same on PostgreSQL, whose own CPU is not counted",
        "shop",
        "shop:application",
        _with_postgres,
        _LIFESPAN,
    ),
    Application(
        "blog", "a weblog by Django: ORM on SQLite, templates, sessions", "blog", "blog:application", _with_blog
    ),
    Application(
        "site", "a website by Starlette: Jinja2, sessions, compression, static files", "site", "website:application"
    ),
    Application(
        "model",
        "litellm's proxy before a model that answers at once",
        "model",
        "litellm.proxy.proxy_server:app",
        _with_model,
        _LIFESPAN,
    ),
    Application("tools", "a server of the Model Context Protocol", "tools", "tools:application", needs=_LIFESPAN),
    Application("data", "datasette: a published SQLite database", "data", "data:application", _with_data),
    Application(
        "chat",
        "socket.io over WebSocket: rooms of eight, each message acknowledged and told to the others",
        "chat",
        "chat:application",
        needs=frozenset({"websocket"}),
        generator="chat",
        connections=64,
    ),
)
APPLICATIONS = {application.name: application for application in TABLE}


def find(name: str) -> Application:
    """The application of a name; raises BenchError for an unknown one."""
    if name not in APPLICATIONS:
        raise BenchError(f"unknown application {name!r}: choose from {', '.join(APPLICATIONS)}")
    return APPLICATIONS[name]
