"""Which file of the native bindings may use which: docs/architecture.md, "The native core"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "native" / "bindings" / "src"

# From top to bottom; a directory stands for its files. A file uses lines below its own only, or its own directory.
LAYERS = [
    "lib",
    "http3",
    "protocol",
    "version",
    "websocket",
    "cores heads",
    "h3",
    "udp",
    "h1 h2 ws tcp",
    "streams",
    "asgi conn",
    "base",
]

UNSAFE_DIRECTORY = "base/ffi"

# A `use`, or a path that begins at a place in this crate. Comments and texts are taken out before.
USE = re.compile(r"\buse\s+((?:crate|super|self)\b[^;]*);")
PATH = re.compile(r"(?<![\w:])((?:crate|super)(?:::\w+)+)")
INLINE = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?mod \w+ \{$")
SILENT = re.compile(r"""//[^\n]*|b?'(?:\\.|[^'\\])'|"(?:\\.|[^"\\])*\"""", re.DOTALL)


FILES = sorted(SOURCE.rglob("*.rs"))


def name_of(path: Path) -> str:
    """``tcp/sys.rs`` is ``tcp/sys``, ``tcp/mod.rs`` is ``tcp``."""
    name = path.relative_to(SOURCE).with_suffix("").as_posix()
    return name.removesuffix("/mod")


NAMES = {name_of(path) for path in FILES}


def directory_of(name: str) -> str:
    return name.partition("/")[0]


def silenced(text: str) -> str:
    """Return the source without comments and texts, each line in its place."""
    return SILENT.sub(lambda found: "\n" * found[0].count("\n"), text)


def split(tree: str) -> Iterator[str]:
    """Yield the paths of a use tree: ``a::{b, c::d}`` is ``a::b`` and ``a::c::d``."""
    tree = " ".join(tree.split())
    begin = tree.find("{")
    if begin < 0:
        yield tree.partition(" as ")[0].strip()
        return
    prefix, depth, item = tree[:begin], 0, ""
    for character in tree[begin + 1 : tree.rindex("}")] + ",":
        depth += (character == "{") - (character == "}")
        if character != "," or depth:
            item += character
        elif item.strip():
            yield from split(prefix + item.strip())
            item = ""
        else:
            item = ""


def depths(text: str) -> list[int]:
    """Return for each line within how many inline modules it stands; the source is formatted."""
    found, open_modules = [], list[str]()
    for line in text.split("\n"):
        if begun := INLINE.match(line):
            open_modules.append(begun[1] + "}")
        elif open_modules and line == open_modules[-1]:
            open_modules.pop()
        found.append(len(open_modules))
    return found


@cache
def uses_of(path: Path) -> list[tuple[int, str]]:
    """Return line and file of all that a file uses of this crate."""
    name, text = name_of(path), silenced(path.read_text("utf-8"))
    within = depths(text)
    found = [(use.start(), one) for use in USE.finditer(text) for one in split(use[1])]
    rest = USE.sub(lambda use: re.sub(r"[^\n]", " ", use[0]), text)
    found += [(use.start(1), use[1]) for use in PATH.finditer(rest)]
    places = [(text.count("\n", 0, start), used) for start, used in found]
    targets = [(line + 1, resolve(name, within[line], used)) for line, used in places]
    return [(line, target) for line, target in targets if target is not None and target != name]


def resolve(name: str, depth: int, used: str) -> str | None:
    """Return the file in which ``used`` lies, as written in file ``name`` within so many inline modules."""
    parts = used.split("::")
    place = [] if parts[0] == "crate" or name == "lib" else name.split("/")
    if parts[0] != "crate":
        ups = sum(part == "super" for part in parts)
        if ups <= depth:  # within this file
            return None
        place = place[: len(place) - (ups - depth)]
    full = [*place, *(part for part in parts if part not in ("crate", "self", "super"))]
    ends = (end for end in range(len(full), 0, -1) if "/".join(full[:end]) in NAMES)
    return "/".join(full[: next(ends, 0)]) or "lib"


def layer_of(name: str) -> int:
    places = [
        n for n, line in enumerate(LAYERS) if any(fnmatchcase(directory_of(name), pattern) for pattern in line.split())
    ]
    assert places, f"{name} has no place in LAYERS"
    return places[0]


def test_uses_point_down(subtests: pytest.Subtests) -> None:
    for path in FILES:
        with subtests.test(name_of(path)):
            name = name_of(path)
            wrong = [
                f"{path.relative_to(ROOT)}:{line}: {name} (layer {above}) uses {target} (layer {below}); a module uses "
                "lower layers only, see docs/architecture.md, The native core"
                for line, target in uses_of(path)
                for above, below in [(layer_of(name), layer_of(target))]
                if directory_of(target) != directory_of(name) and below <= above
            ]
            assert not wrong, "\n" + "\n".join(wrong)


def test_directories_have_nothing_of_their_own(subtests: pytest.Subtests) -> None:
    """What is in a directory is used where it is, so that a look at the head of a file tells what it needs."""
    for path in FILES:
        with subtests.test(name_of(path)):
            for line, target in uses_of(path):
                assert SOURCE / target / "mod.rs" not in FILES, f"{path}:{line}: uses something of {target}/mod.rs"


def test_no_file_uses_itself_in_a_circle() -> None:
    below = {name_of(path): {target for _, target in uses_of(path)} for path in FILES}
    done: set[str] = set()

    def descend(name: str, above: tuple[str, ...]) -> None:
        for target in sorted(below[name]):
            if target in done:
                continue
            assert target not in above, " -> ".join([*above[above.index(target) :], target])
            descend(target, (*above, target))
        done.add(name)

    for name in sorted(below):
        descend(name, (name,))


def test_no_version_of_http_is_known_below_its_directory(subtests: pytest.Subtests) -> None:
    for path in FILES:
        with subtests.test(name_of(path)):
            if directory_of(name_of(path)) in ("asgi", "conn", "base", "tcp", "udp"):
                assert not re.search(r"\bwire::(h1|h2|ws)\b", silenced(path.read_text("utf-8"))), (
                    f"{path} names a version"
                )


def test_things_are_used_again_by_one_rule(subtests: pytest.Subtests) -> None:
    """Whoever keeps something for its next use does it in the file whose head states when that is safe."""
    for path in FILES:
        with subtests.test(name_of(path)):
            text = silenced(path.read_text("utf-8"))
            if name_of(path) != "base/reuse":
                assert not re.search(r"\b(spare|idle)\w*: (RefCell|Cell)<(Option|Vec)<", text), (
                    f"{path} keeps something itself"
                )


def test_unsafe_is_said_in_one_directory(subtests: pytest.Subtests) -> None:
    for path in FILES:
        with subtests.test(name_of(path)):
            if not name_of(path).startswith(UNSAFE_DIRECTORY):
                assert not re.search(r"\bunsafe\b", silenced(path.read_text("utf-8"))), f"{path} says unsafe"


@pytest.mark.parametrize(
    "tree, paths",
    [
        ("crate::a::b", ["crate::a::b"]),
        ("super::{self as up, c::{d, e as f}, g}", ["super::self", "super::c::d", "super::c::e", "super::g"]),
        ("crate::{\n    a,\n    b::C,\n}", ["crate::a", "crate::b::C"]),
    ],
)
def test_use_trees_are_read(tree: str, paths: list[str]) -> None:
    assert list(split(tree)) == paths


@pytest.mark.parametrize(
    "name, depth, used, target",
    [
        ("tcp/socket", 0, "super::output::Outgoing", "tcp/output"),
        ("tcp/socket", 0, "super::Missing", "tcp"),
        ("tcp/sys", 1, "super::Address", None),
        ("base/ffi/slots", 0, "super::call::Turn", "base/ffi/call"),
        ("base/ffi/slots", 0, "super::super::panic::describe", "base/panic"),
        ("cores", 0, "crate::conn::hub::Hub", "conn/hub"),
    ],
)
def test_paths_are_resolved(name: str, depth: int, used: str, target: str | None) -> None:
    assert resolve(name, depth, used) == target
