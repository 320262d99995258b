"""Who may import whom: docs/architecture.md, "Layers". Imports for the type checker alone count like any other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# From top to bottom; names are relative to the package. A module imports from lines below its own only.
LAYERS = [
    "__main__",
    "__init__",
    "main workers",
    "supervisors",
    "supervisors.pools",
    "supervisors.multiprocess supervisors.statreload supervisors.watchfilesreload",
    "supervisors.basereload supervisors.pool supervisors.start",
    "supervisors.worker",
    "supervisors.fork supervisors.threaded",
    "_subprocess",
    "supervisors.health supervisors.grace supervisors.re* supervisors.signals",
    "supervisors.orphans",
    "server",
    "buffers checking measurement vigil",
    "drain lifespan lifespan.* loops loops.auto",
    "loops.asyncio loops.uvloop loops.zuvloop",
    "protocols.http.auto protocols.websockets.auto protocols.websockets.websockets_impl",
    "protocols.http.*_impl protocols.websockets.*_impl",
    "protocols.http.protocol protocols.websockets.session",
    "protocols.http.runner",
    "protocols.http.attributes protocols.http.h1_stream protocols.websockets.attributes",
    "protocols.http.patience protocols.http.refusal",
    "protocols.http.closing",
    "protocols.http.parts",
    "protocols.http.input",
    "protocols.http.carrier",
    "protocols.http.protocol_settings",
    "protocols.websockets.close_handshake",
    "protocols.websockets.answer protocols.websockets.incoming",
    "protocols.websockets.output protocols.websockets.peer_end",
    "protocols.websockets.session_log",
    "protocols.http.request_reader protocols.native_cores protocols.websockets.denial protocols.websockets.inbox",
    "protocols.http.body protocols.http.cycle protocols.http.scope protocols.http.response_writer "
    "protocols.websockets.de[cf]* protocols.websockets.h*",
    "protocols protocols.http protocols.websockets protocols.http.response protocols.websockets.frame_log",
    "protocols.http.head protocols.websockets.closing protocols.websockets.frames protocols.websockets.keepalive",
    "state access",
    "protocols.http.mounted",
    "gate",
    "protocols.http.deadline protocols.http.event_pool protocols.http.f* protocols.http.h[ao]* protocols.http.re[ac]*",
    "protocols.http.limits protocols.http.media_types protocols.http.refusals protocols.http.representation "
    "protocols.http.stat* protocols.http.texts",
    "protocols.websockets.failures protocols.websockets.limits protocols.websockets.outline",
    "debugging",
    "config exposition options settings_file",
    "profile",
    "middleware.forwarded request_id",
    "access_format application middleware middleware.[!f]* mounts settings sockets tls",
    "_values",
    "_declare acceptor default_headers importer loads logging protocols.tls protocols.utils reload_paths "
    "slow_callbacks worker_events",
    "process_one proxy_protocol",
    "access_arguments admission beneath certificates interruption memory metrics overload stacks systemd "
    "thread_pool tickets",
    "_types _compat _ansi _native complaints faults grace network openssl outlet shortcuts",
]

# Each with the one name it is for.
EXCEPTIONS = {
    ("main", "__init__"): "the version",
    ("settings", "config"): "the type of ssl_context_factory's argument",
}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def package_modules() -> set[str]:
    return {name_of(path) for path in modules("uvicorn")} | {"_native"}  # the compiled one, if it is built


def name_of(path: Path) -> str:
    """Return a module's name relative to the package; the package itself is ``__init__``."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of all that a file imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def module_within(name: str, known: set[str]) -> str | None:
    """Return the module that an imported name stands for or lies in; None if it is not of the package."""
    package, _, rest = name.partition(".")
    if package != "uvicorn":
        return None
    while rest and rest not in known:
        rest = rest.rpartition(".")[0]
    return rest or "__init__"


def layer_of(module: str) -> int:
    places = [n for n, line in enumerate(LAYERS) if any(fnmatchcase(module, pattern) for pattern in line.split())]
    assert places, f"uvicorn.{module} has no place in LAYERS"
    return places[0]


@pytest.mark.parametrize("path", [pytest.param(path, id=name_of(path)) for path in modules("uvicorn")])
def test_imports_point_down(path: Path) -> None:
    module = name_of(path)
    known = package_modules()
    for line, name in imports_of(path):
        target = module_within(name, known)
        if target is not None and (module, target) not in EXCEPTIONS:
            assert layer_of(target) > layer_of(module), f"{path}:{line}: uvicorn.{module} imports uvicorn.{target}"


@pytest.mark.parametrize("path", [pytest.param(p, id=name_of(p)) for p in modules("uvicorn/protocols")])
def test_protocols_do_not_import_the_configuration(path: Path) -> None:
    """They read attributes, and ``_types.ProtocolConfig`` says which."""
    for line, name in imports_of(path):
        assert not name.startswith(("uvicorn.config", "uvicorn.settings")), f"{path}:{line}: imports {name}"


@pytest.mark.parametrize("package, foreign", [("uvicorn", ("bench", "tests")), ("bench", ("uvicorn", "tests"))])
def test_packages_stay_apart(package: str, foreign: tuple[str, ...]) -> None:
    """The harness starts servers as processes; the package knows neither it nor the tests."""
    for path in modules(package):
        for line, name in imports_of(path):
            assert name.partition(".")[0] not in foreign, f"{path}:{line}: {package} imports {name}"


def test_exceptions_are_needed() -> None:
    known = package_modules()
    used = {(name_of(path), module_within(name, known)) for path in modules("uvicorn") for _, name in imports_of(path)}
    assert EXCEPTIONS.keys() <= used
