"""Which package may import which: docs/architecture.md, "Layers". Imports for the type checker alone count as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# From top to bottom. "Package" stands for a package or a module directly below `uvicorn`, which itself is `__init__`.
# Each imports from lines below its own only.
LAYERS = [
    "__main__",
    "__init__",
    "main workers",
    "supervisors",
    "_subprocess",
    "server",
    "lifespan loops observing protocols",
    "config files serving",
    "access overload tls tracing",
    "listening middleware",
    "metrics",
    "hooks importer logging rules worker_events",
    "_native",
    "_compat _types",
]

MOST_ROOT_MODULES = 12

# Each with the one name it is for.
EXCEPTIONS = {
    ("main", "__init__"): "the version",
    ("config.settings", "config"): "the type of ssl_context_factory's argument",
}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


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


@cache
def imports() -> list[tuple[str, str, str]]:
    """Return who imports whom within the package, and the line where; the native core is its stub."""
    paths = {name_of(path): path for path in modules("uvicorn")} | {"_native": ROOT / "uvicorn" / "_native.pyi"}
    found = []
    for module, path in paths.items():
        for line, name in imports_of(path):
            package, _, target = name.partition(".")
            while target and target not in paths:
                target = target.rpartition(".")[0]
            if package == "uvicorn" and target != module:
                found.append((module, target or "__init__", f"{path.relative_to(ROOT)}:{line}"))
    return found


def package_of(module: str) -> str:
    return module.partition(".")[0]


def test_every_package_has_a_layer() -> None:
    packages = {package_of(name_of(path)) for path in modules("uvicorn")} | {"_native"}
    assert sorted(" ".join(LAYERS).split()) == sorted(packages)


def test_root_keeps_few_modules() -> None:
    """It has upstream's names, and hardly any other."""
    assert len([*(ROOT / "uvicorn").glob("*.py")]) <= MOST_ROOT_MODULES


def test_imports_point_down() -> None:
    layer = {package: n for n, line in enumerate(LAYERS) for package in line.split()}
    wrong = [
        f"{where}: {module} (layer {above}) imports {target} (layer {below}); a package imports from lower layers "
        "only, see docs/architecture.md, Layers"
        for module, target, where in imports()
        for above, below in [(layer[package_of(module)], layer[package_of(target)])]
        if package_of(module) != package_of(target) and (module, target) not in EXCEPTIONS and below <= above
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_no_module_imports_itself_by_way_of_others() -> None:
    below: dict[str, set[str]] = {}
    for module, target, _ in imports():
        if (module, target) not in EXCEPTIONS:
            below.setdefault(module, set()).add(target)
    left = below.keys() | set().union(*below.values())
    # What imports nothing that is left is in no circle.
    while free := {module for module in left if not below.get(module, set()) & left}:
        left -= free
    assert sorted(left) == []


def test_protocols_do_not_import_the_configuration() -> None:
    """They read attributes, and ``_types.ProtocolConfig`` says which."""
    packages = ("access", "files", "overload", "protocols", "serving")
    assert [
        where
        for module, target, where in imports()
        if package_of(module) in packages and package_of(target) == "config"
    ] == []


def test_exceptions_are_needed() -> None:
    assert EXCEPTIONS.keys() <= {(module, target) for module, target, _ in imports()}


@pytest.mark.parametrize("package, foreign", [("uvicorn", ("bench", "tests")), ("bench", ("uvicorn", "tests"))])
def test_packages_stay_apart(package: str, foreign: tuple[str, ...]) -> None:
    """The harness starts servers as processes; the package knows neither it nor the tests."""
    wrong = [
        f"{path}:{line}: imports {name}"
        for path in modules(package)
        for line, name in imports_of(path)
        if name.partition(".")[0] in foreign
    ]
    assert wrong == []
