"""The servers: how each is started, what it can do, which interpreter it runs in."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import applications, scenario, trees
from bench.compiler import compiled
from bench.errors import BenchError
from bench.scenario import Mode, Workload

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Launch:
    """What one start of a server is asked for. `application` is `module:attribute`.

    `certificate` is a file with a certificate and its key when TLS is asked for. `http2`: clients speak HTTP/2;
    `http3`: they speak HTTP/3, or HTTP/2.
    `mount` is a path and the directory with its files, for a server that can answer with those itself.
    """

    application: str
    port: int
    mode: Mode
    access_log: bool
    python: str
    options: Mapping[str, str] = field(default_factory=dict)
    certificate: Path | None = None
    http2: bool = False
    mount: tuple[str, Path] | None = None
    http3: bool = False

    def tls(self, certificate: str, key: str) -> list[str]:
        """The arguments for TLS, where a server calls its two options so."""
        return [certificate, str(self.certificate), key, str(self.certificate)] if self.certificate else []

    def switches(self) -> list[str]:
        """The arguments for the options that are switched on."""
        return [argument for name, argument in _SWITCHES.items() if name in self.options]


@dataclass(frozen=True)
class Target:
    """A server under measurement.

    `python` says whose interpreter runs it: "ours", "peers", or "none" for a native program. `package` is what that
    imports. `distributions` are the packages whose versions belong to the result. `only` is the application that it is
    in itself, where it runs no others. One that `loads_files` loads the file of an application in the working directory
    past `sys.modules`; started elsewhere, it finds the application as others do. `why` says to a reader why this
    configuration is its best.
    """

    name: str
    about: str
    command: Callable[[Launch], list[str]]
    python: str = "peers"
    features: frozenset[str] = frozenset()
    modes: frozenset[str] = frozenset({"single"})
    options: Mapping[str, str] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()
    distributions: tuple[str, ...] = ()
    package: str = ""
    only: str = "hello"
    loads_files: bool = False
    why: str = ""

    def label(self) -> str:
        """The name with its options, as it is written on the command line."""
        # A root is shown by its last part, because results are read on other machines.
        shown = {key: Path(value).name if key == "root" else value for key, value in self.options.items()}
        chosen = ",".join(f"{key}={value}" for key, value in sorted(shown.items()))
        return f"{self.name}:{chosen}" if chosen else self.name

    def commands(self) -> dict[str, str]:
        """The command lines for one process, as a reader would type them, by the kind of workload."""
        return {one.kind: self._shown(one) for one in scenario.TABLE if self.refusal(one, Mode()) is None}

    def _shown(self, workload: Workload) -> str:
        mount = (workload.mount, Path("static")) if workload.mount and "mount" in self.features else None
        launch = Launch(
            "module:app",
            8000,
            Mode(),
            workload.access_log,
            "python",
            self.options,
            Path("certificate.pem") if workload.tls else None,
            workload.http2,
            mount,
            workload.http3,
        )
        words = self.command(launch)
        # A console script runs by its name.
        words = words[1:] if words[1] == self.name else words
        return shlex.join([word.removeprefix(f"{ROOT}/") for word in words])

    def refusal(self, workload: Workload, mode: Mode) -> str | None:
        """Why this server cannot serve a workload in a mode; None when it can."""
        if mode.kind not in self.modes:
            return f"{self.name} has no {mode.kind} mode"
        if mode.kind == "wsgi" and workload.wsgi is None:
            return f"workload {workload.name} has no WSGI form"
        if "asgi" not in self.features and workload.app != self.only:
            return f"{self.name} only answers {self.only}"
        missing = sorted(workload.needs - self.features)
        return f"{self.name} has no {missing[0]}" if missing else None


# Options of the two uvicorns, and what they are called on their command line.
_UVICORN = {
    "http": "http",
    "loop": "loop",
    "ws": "ws",
    "keep-alive": "timeout-keep-alive",
    "max-requests": "limit-max-requests",
    "jitter": "limit-max-requests-jitter",
    "concurrency": "limit-concurrency",
}

# Options of this tree alone.
_OURS = {"active": "limit-active-requests", "queue": "limit-queue", "tls": "tls"}

# Over which version of HTTP clients come in workloads of HTTP/3: an option of the load generator.
_OVER = "over"

# Options that are switched on by `=on`, and what they are called on the command line of the server that has them.
_SWITCHES = {"request-id": "--request-id", "flush": "--http1-pipeline-flush"}


def _uvicorn(launch: Launch) -> list[str]:
    argv = [launch.python, "-m", "uvicorn", launch.application, "--host", "127.0.0.1", "--port", str(launch.port)]
    if not launch.access_log:
        argv += ["--no-access-log", "--log-level", "warning"]
    if launch.mode.processes > 1:
        argv += ["--workers", str(launch.mode.processes)]
    if launch.mode.threads > 1:
        argv += ["--threads", str(launch.mode.threads)]
    if launch.mode.kind == "wsgi":
        argv += ["--interface", "wsgi"]
    argv += launch.tls("--ssl-certfile", "--ssl-keyfile")
    argv += ["--http2"] if launch.http2 or launch.http3 else []
    argv += ["--http3"] if launch.http3 else []
    argv += [] if launch.mount is None else ["--mount", "{}={}".format(*launch.mount)]
    for name, option in {**_UVICORN, **_OURS}.items():
        if name in launch.options:
            argv += [f"--{option}", launch.options[name]]
    return [*argv, *launch.switches()]


def _granian(launch: Launch) -> list[str]:
    interface = "wsgi" if launch.mode.kind == "wsgi" else "asgi"
    argv = [launch.python, "-m", "granian", "--interface", interface, "--host", "127.0.0.1"]
    argv += ["--port", str(launch.port), "--workers", str(launch.mode.processes)]
    if "loop" in launch.options:
        argv += ["--loop", launch.options["loop"]]
    if "runtime" in launch.options:
        argv += ["--runtime-mode", launch.options["runtime"]]
    if "backpressure" in launch.options:
        # Its default backlog is 1,024; a smaller one would refuse connections that the limit lets wait.
        backpressure = launch.options["backpressure"]
        argv += ["--backlog", str(max(1024, int(backpressure))), "--backpressure", backpressure]
    argv += launch.switches()
    argv += ["--access-log"] if launch.access_log else ["--log-level", "warning"]
    argv += launch.tls("--ssl-certificate", "--ssl-keyfile")
    if launch.mount is not None:
        path, directory = launch.mount
        argv += ["--static-path-route", path, "--static-path-mount", str(directory)]
    return [*argv, launch.application]


def _hypercorn(launch: Launch) -> list[str]:
    argv = [launch.python, "-m", "hypercorn", "--bind", f"127.0.0.1:{launch.port}"]
    argv += ["--workers", str(launch.mode.processes), "--worker-class", launch.options.get("loop", "uvloop")]
    argv += ["--access-logfile", "-"] if launch.access_log else ["--log-level", "warning"]
    if "keep-alive" in launch.options:
        argv += ["--keep-alive", launch.options["keep-alive"]]
    argv += launch.tls("--certfile", "--keyfile")
    argv += ["--quic-bind", f"127.0.0.1:{launch.port}"] if launch.http3 else []
    prefix = "wsgi:" if launch.mode.kind == "wsgi" else ""
    return [*argv, prefix + launch.application]


def _daphne(launch: Launch) -> list[str]:
    argv = [launch.python, "-m", "daphne"]
    if launch.certificate:
        files = f"privateKey={launch.certificate}:certKey={launch.certificate}"
        argv += ["-e", f"ssl:{launch.port}:{files}:interface=127.0.0.1"]
    else:
        argv += ["--bind", "127.0.0.1", "--port", str(launch.port)]
    argv += ["--access-log", "-"] if launch.access_log else ["--verbosity", "0"]
    return [*argv, launch.application]


def _gunicorn(launch: Launch) -> list[str]:
    worker = "gthread" if launch.mode.kind == "wsgi" else "asgi"
    argv = [launch.python, "-m", "gunicorn", "--bind", f"127.0.0.1:{launch.port}", "--worker-class", worker]
    argv += ["--workers", str(launch.mode.processes)]
    argv += ["--access-logfile", "-"] if launch.access_log else ["--log-level", "warning"]
    if "keep-alive" in launch.options:
        argv += ["--keep-alive", launch.options["keep-alive"]]
    argv += launch.tls("--certfile", "--keyfile")
    if launch.http2:
        argv += ["--http-protocols", "h2,h1"]
        argv += [] if launch.certificate else ["--http2-cleartext", "both"]
    return [*argv, launch.application]


def _fastpysgi(launch: Launch) -> list[str]:
    script = str(Path(launch.python).parent / "fastpysgi")
    argv = [launch.python, script, "--host", "127.0.0.1", "--port", str(launch.port)]
    return [*argv, *launch.tls("--certfile", "--keyfile"), launch.application]


def _picows(launch: Launch) -> list[str]:
    return [launch.python, str(HERE / "apps_picows.py"), str(launch.port)]


def _epoll(launch: Launch) -> list[str]:
    return [str(compiled("epoll_hello")), str(launch.port)]


_ASGI = frozenset({"asgi", "body", "websocket", "lifespan", "access log", "tls"})
_DEFLATE = frozenset({"permessage-deflate"})
_HTTP2 = frozenset({"HTTP/2"})
_HTTP3 = frozenset({"HTTP/3"})
_MOUNT = frozenset({"mount"})
_COMMON = ("uvloop", "httptools", "h11", "websockets", "wsproto")

TABLE = (
    Target(
        "ours",
        "this tree",
        _uvicorn,
        python="ours",
        features=_ASGI | _DEFLATE | _HTTP2 | _HTTP3 | _MOUNT,
        modes=frozenset({"single", "processes", "threads", "wsgi"}),
        allowed=frozenset({*_UVICORN, *_OURS, "request-id", _OVER, "root"}),
        distributions=("uvicorn", *_COMMON),
        package="uvicorn",
        why="its defaults: the native core, uvloop",
    ),
    Target(
        "upstream",
        "uvicorn as published",
        _uvicorn,
        features=_ASGI | _DEFLATE | _HTTP2,
        modes=frozenset({"single", "processes", "wsgi"}),
        allowed=frozenset(_UVICORN),
        distributions=("uvicorn", *_COMMON, "zttp"),
        package="uvicorn",
        why="installed with [standard], so its defaults are httptools and uvloop; zttp, which needs up to 10% less "
        "CPU for varying plain requests and more for bodies, has rows of its own",
    ),
    Target(
        "granian",
        "Rust server, tokio and hyper",
        _granian,
        features=_ASGI | _HTTP2 | _MOUNT,
        modes=frozenset({"single", "processes", "wsgi"}),
        allowed=frozenset({"loop", "backpressure", "runtime", "flush"}),
        distributions=("granian", "uvloop"),
        package="granian",
        why="its defaults with uvloop installed, which it then uses; neither --http 1 --no-ws, as in its own "
        "benchmarks, nor --runtime-mode mt made a difference on one core (not published)",
    ),
    Target(
        "hypercorn",
        "pure Python, sans-IO libraries",
        _hypercorn,
        features=_ASGI | _HTTP2 | _HTTP3,
        modes=frozenset({"single", "processes", "wsgi"}),
        allowed=frozenset({"loop", "keep-alive", _OVER}),
        package="hypercorn.run",
        distributions=("hypercorn", "uvloop", "h11", "wsproto", "aioquic"),
        why="uvloop in place of its default, asyncio",
    ),
    Target(
        "daphne",
        "Twisted",
        _daphne,
        features=_ASGI,
        distributions=("daphne", "twisted", "autobahn"),
        package="daphne.server",
        why="has no choice of event loop or parser",
    ),
    Target(
        "gunicorn",
        "gunicorn with its ASGI worker",
        _gunicorn,
        features=_ASGI | _HTTP2,
        modes=frozenset({"single", "processes", "wsgi"}),
        allowed=frozenset({"keep-alive"}),
        distributions=("gunicorn", "gunicorn_h1c", "uvloop"),
        package="gunicorn.app.wsgiapp",
        why="its own ASGI worker, with uvloop and its parser in C, both of which are optional",
    ),
    Target(
        "fastpysgi",
        "C server, libuv",
        _fastpysgi,
        features=frozenset({"asgi", "body", "tls"}),
        modes=frozenset({"single", "wsgi"}),
        distributions=("fastpysgi",),
        package="fastpysgi",
        loads_files=True,
        why="the defaults of its command line, which has no other loop or parser",
    ),
    Target(
        "picows",
        "WebSocket alone, in C, with an echo in place of applications",
        _picows,
        features=frozenset({"websocket"}),
        distributions=("picows", "uvloop"),
        package="picows",
        only="websocket",
    ),
    Target("epoll", "a bare C loop with a fixed answer: the floor", _epoll, python="none", features=frozenset()),
)

TARGETS = {target.name: target for target in TABLE}


def find(text: str) -> Target:
    """The target for `NAME` or `NAME:key=value,…`; raises BenchError for an unknown name or option."""
    name, _, settings = text.partition(":")
    if name not in TARGETS:
        raise BenchError(f"unknown target {name!r}: choose from {', '.join(TARGETS)}")
    target = TARGETS[name]
    options = dict(target.options)
    for setting in filter(None, settings.split(",")):
        key, separator, value = setting.partition("=")
        if not separator or key not in target.allowed:
            known = ", ".join(sorted(target.allowed)) or "none"
            raise BenchError(f"target {name} has no option {key!r} (known: {known})")
        if key == _OVER and value != "http2":
            raise BenchError(f"option {key!r} of target {name} is http2 or left out, not {value!r}")
        if key in _SWITCHES and value != "on":
            raise BenchError(f"option {key!r} of target {name} is on or left out, not {value!r}")
        options[key] = value
    return Target(**{**target.__dict__, "options": options})


def find_all(names: Sequence[str]) -> list[Target]:
    """The targets of several names, `all` for every one; raises BenchError also when one has no interpreter here."""
    chosen = list(TABLE) if list(names) == ["all"] else [find(name) for name in names]
    for target in chosen:
        interpreter(target)
        # Building takes minutes: not while something is measured.
        import_root(target)
    return chosen


def interpreter(target: Target, workload: Workload | None = None) -> str:
    """The interpreter that runs a target: BENCH_OURS_PYTHON / BENCH_PEERS_PYTHON, bench.toml, or the environments
    that `make bench-setup` makes; a real application's for every target. Empty for native programs. Raises BenchError
    when there is none.
    """
    if target.python == "none":
        return ""
    if workload is not None and workload.real:
        return applications.interpreter()
    variable = f"BENCH_{target.python.upper()}_PYTHON"
    default = ROOT / {"ours": ".venv", "peers": ".venv-peers"}[target.python] / "bin" / "python"
    chosen = os.environ.get(variable) or _configured(target.python) or (str(default) if default.exists() else "")
    if not chosen and target.python == "ours":
        chosen = sys.executable
    if not chosen or not Path(chosen).exists():
        named = f" ({chosen}, from there, bench.toml or --python, does not exist)" if chosen else ""
        raise BenchError(f"no interpreter for {target.name}: run make bench-setup, or set {variable}{named}")
    # Servers are started in other directories. A link to an interpreter stands for its environment: not to be resolved.
    return os.path.abspath(chosen)


def _configured(name: str) -> str:
    path = ROOT / "bench.toml"
    if not path.exists():
        return ""
    try:
        tomllib = importlib.import_module("tomllib")
    except ImportError:
        raise BenchError("bench.toml needs Python 3.11: set BENCH_OURS_PYTHON and BENCH_PEERS_PYTHON") from None
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as exc:
        raise BenchError(f"bench.toml: {exc}") from None
    python = found.pop("python", {})
    known = ("ours", "peers")
    unknown = [*found, *(key for key in python if key not in known)] if isinstance(python, dict) else ["python"]
    if unknown:
        raise BenchError(f"bench.toml: unknown key {unknown[0]!r}: it has {' and '.join(known)}, under [python]")
    return str(python.get(name, ""))


def import_root(target: Target) -> Path | None:
    """The directory a target's server package is imported from; None when it is installed in its environment.

    A tree that is named by `root` is staged first, with its own native core. Raises BenchError when that fails.
    """
    if target.python != "ours":
        return None
    if "root" in target.options:
        return trees.staged(Path(target.options["root"]).resolve(), interpreter(target))
    return ROOT


def source_root(target: Target) -> Path | None:
    """The directory that a target's sources are in; None when it is installed in its environment."""
    return Path(target.options.get("root", ROOT)).resolve() if target.python == "ours" else None
