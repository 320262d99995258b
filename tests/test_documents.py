"""What documents name is there: files, links, options, variables, settings, implementations, identifiers."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
from functools import cache

import pytest

import uvicorn
from tests.process import ROOT
from uvicorn._types import ON_DISCONNECT
from uvicorn.config import HTTP_PROTOCOLS, LIFESPAN, LOOP_FACTORIES, WS_PROTOCOLS
from uvicorn.config.settings import ROWS
from uvicorn.tracing.otlp import CALLED, FIRST_BYTE

OWN_TREES = ("uvicorn", "native", "bench", "tests", "scripts", "examples", "setup.py", "Makefile", "pyproject.toml")
SUFFIXES = "py|rs|toml|ya?ml|md|conf|cfg|service|socket|html|svg|jsonl?"

FILES_OF_USERS = {
    *("uvicorn.toml", "bench.toml", ".local.py", "page.html", "index.html", "requests.json"),
    *("app.service", "app.socket", "app.service.d/type.conf"),
    *("manage.py", "mysite/asgi.py", "django.conf"),  # the last one is a module
    "versions.json",  # of the built site
}
"""Named as examples of what a reader may have."""

OPTIONS_OF_OTHERS = {
    "bench, or a script": "--only --more",
    "cargo": "--lib --package --test",
    "docker": "--file --init --publish --tag --time",
    "pip": "--find-links --force-reinstall --no-index --requirement --wheel-dir",
    "useradd": "--system",
    "zstd": "--keep",
    "gunicorn": "--check-config --statsd-host --worker-class --worker-connections",
    "granian": "--access-logformat --backpressure --ssl-client-verify --static-path-mount",
    "hypercorn": "--cert-reqs --verify-mode",
    "consumers": "--create --force-quit --headless --module --no-banner --no-token --telemetry --transport",
    "everybody": "--help",
}
VARIABLES = {"UVICORN_APP_DIR", "UVICORN_CONFIG", "UVICORN_SHORTCUTS", "UVICORN_REQUIRE_NATIVE"}
"""Read by the server, without being settings; others only where a script or a test does."""

SPAN_EVENTS = {CALLED.decode(), FIRST_BYTE.decode()}
LOGGERS = {"uvicorn.error", "uvicorn.access", "uvicorn.asgi"}
CLASSES_OF_OTHERS = {
    *("ConfigMap", "CreateContainerConfigError", "ExecStartPre", "ProxyTimeout", "ReloadSignal", "RuntimeDirectory")
}
"""Of Kubernetes, systemd and Apache."""
MEANT_BY_NONE = {"timeout-graceful-shutdown", "limit-queue"}
"""Their default None stands for a number, or they share a row with the setting that matters."""

NAMES_OF_OTHERS = {
    *(
        "TCP_QUICKACK",
        "CONFIG_TLS",
        "OPENBLAS_NUM_THREADS",
        "proxy_ignore_client_abort",
        "proxy_read_timeout",
        "proxy_request_buffering",
        "STATIC_ROOT",
        "__step",
    ),
}
"""Of kernels, libraries, frameworks and other servers."""


BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def tracked() -> list[str]:
    """The files of the repository."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=60)
    if done.returncode != 0:
        pytest.skip("no clone: what belongs to it is not known")
    return [name for name in done.stdout.decode().split("\0") if (ROOT / name).is_file()]


def documents() -> list[str]:
    """All Markdown files except third-party ones and test data."""
    kept = [name for name in tracked() if name.endswith(".md") and not name.startswith("native/")]
    return [name for name in kept if not name.startswith("tests/") or name.startswith("tests/catalogue/")]


@cache
def text(name: str) -> str:
    """A file's content."""
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


@cache
def source() -> str:
    """What was written for interpreters and compilers."""
    names = [name for name in tracked() if name.startswith(OWN_TREES) and name != "tests/test_documents.py"]
    return "\n".join(text(name) for name in names if not name.endswith((".md", ".json", ".svg", ".html")))


def code(document: str) -> list[str]:
    """What stands between backticks in sentences."""
    return re.findall(r"`([^`\n]+)`", BLOCK.sub("", text(document)))


def lines(document: str) -> list[str]:
    """The same, and each line of a block of code."""
    blocks = [line for block in BLOCK.findall(text(document)) for line in block.splitlines()[1:-1]]
    return [*code(document), *blocks]


def anchors(document: str) -> set[str]:
    """The names that links may give its headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", BLOCK.sub("", text(document)), re.M)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title)).lower().replace(" ", "-") for title in titles
    }


def missing(found: dict[str, set[str]]) -> str:
    return "\n".join(f"{document}: {', '.join(sorted(names))}" for document, names in found.items() if names)


def test_files_that_are_named_are_there() -> None:
    """By their path, or the end of it: a document that speaks of `protocols/http` says `head.py`."""
    ends = {name[at:] for name in tracked() for at in (0, *(m.end() for m in re.finditer("/", name)))}
    found = {
        document: {
            name
            for words in lines(document)
            for name in re.findall(rf"(?<![\w./*<{{-])[\w./-]+\.(?:{SUFFIXES})\b(?![\w(.-])", words)
            if not name.startswith("/") and name.removeprefix("./") not in ends | FILES_OF_USERS
        }
        for document in documents()
    }
    assert not missing(found), missing(found)


def test_directories_that_are_named_are_there() -> None:
    """In what is said of the code."""
    parts = {"/".join(name.split("/")[:end]) for name in tracked() for end in range(1, name.count("/") + 1)}
    ends = {name[at:] for name in parts for at in (0, *(m.end() for m in re.finditer("/", name)))}
    found = {
        document: {
            name for words in code(document) for name in re.findall(r"^[a-z][\w./-]*(?=/$)", words) if name not in ends
        }
        for document in ("README.md", "CONTRIBUTING.md", "docs/architecture.md", "scripts/README.md")
    }
    assert not missing(found), missing(found)


def test_links_lead_to_files_and_headings() -> None:
    found = dict[str, set[str]]()
    for document in documents():
        wrong = found[document] = set()
        for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text(document)):
            path, _, anchor = target.partition("#")
            place = (ROOT / document).parent.joinpath(path) if path else ROOT / document
            if not place.exists() or (anchor and anchor not in anchors(str(place.resolve().relative_to(ROOT)))):
                wrong.add(target)
    assert not missing(found), missing(found)


def test_options_that_are_named_are_known() -> None:
    """Those of the server; of our own scripts where their source has them; of others by the list above."""
    own = {flag for row in uvicorn.main.params for flag in (*row.opts, *row.secondary_opts)}
    scripts = "\n".join(text(name) for name in tracked() if name.startswith(("bench/", "scripts/", "tests/")))
    ours = set(re.findall(r"[\"'\s](--[a-z0-9-]+)(?=[\"')\s|])", scripts))
    others = {option for options in OPTIONS_OF_OTHERS.values() for option in options.split()}
    named = dict[str, set[str]]()
    for document in documents():
        named[document] = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-])", text(document)))
    found = {document: options - own - others - ours for document, options in named.items()}
    assert not missing(found), missing(found)
    assert others <= set().union(*named.values())


def test_variables_that_are_named_are_read() -> None:
    found = {
        document: {
            name
            for name in re.findall(r"\bUVICORN_[A-Z0-9_]*[A-Z0-9]\b", text(document))
            if name.removeprefix("UVICORN_").lower() not in ROWS
            and not (name in VARIABLES or re.search(rf"\b{name}\b", source()))
        }
        for document in documents()
    }
    assert not missing(found), missing(found)


def test_settings_that_are_named_are_rows() -> None:
    """In calls of `uvicorn.run` and `Config`, in blocks of code and sentences, and in settings files."""
    found = dict[str, set[str]]()
    for document in documents():
        names = set[str]()
        for block in re.findall(r"^```toml\n(.*?)^```", text(document), re.MULTILINE | re.DOTALL):
            if "app = " in block:
                names |= set(re.findall(r"^(\w+) = ", block, re.MULTILINE))
        blocks = re.findall(r"^```python\n(.*?)^```", text(document), re.MULTILINE | re.DOTALL)
        calls = [words for words in code(document) if re.fullmatch(r"(?:uvicorn\.)?(?:run|Config)\(.*\)", words)]
        for block in (*blocks, *calls):
            for node in ast.walk(ast.parse(block.replace("...", "**others") if block in calls else block)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                    "uvicorn.run",
                    "run",
                    "uvicorn.Config",
                    "Config",
                ):
                    names |= {keyword.arg for keyword in node.keywords if keyword.arg}
        found[document] = names - ROWS.keys() - {"app_dir", "environment"}
    assert not missing(found), missing(found)


def test_implementations_that_are_named_are_known() -> None:
    known = {
        "http": HTTP_PROTOCOLS.keys(),
        "ws": WS_PROTOCOLS.keys(),
        "loop": LOOP_FACTORIES.keys(),
        "lifespan": LIFESPAN.keys(),
    }
    found = {
        document: {
            words
            for words, option, name in re.findall(
                r"((?:--|\bours:|,|\bupstream:)(http|ws|loop|lifespan)[ =]\"?([a-z][a-z0-9-]*)\b)", text(document)
            )
            if name not in known[option] and not (option == "loop" and words[0] == ",")
        }
        for document in documents()
    }
    assert not missing(found), missing(found)


def test_identifiers_that_are_named_are_in_the_source() -> None:
    """Names with a `_` in them; metrics and variables without their prefix."""
    known = set(re.findall(r"\w+", "\n".join((source(), *tracked())))) | NAMES_OF_OTHERS
    known |= {f"uvicorn_{word}" for word in known} | {f"UVICORN_{name.upper()}" for name in ROWS}
    found = {
        document: {
            word
            for words in code(document)
            for word in re.findall(r"(?<![\w-])[A-Za-z_][A-Za-z0-9]*_[A-Za-z0-9_]*[A-Za-z0-9]\b", words)
            if word not in known
        }
        for document in documents()
        if document.startswith(("docs/", "README", "OPTIMIZATIONS", "CONTRIBUTING"))
    }
    assert not missing(found), missing(found)


def test_python_names_that_are_given_in_full_exist() -> None:
    """`uvicorn.module.name`, down to the attribute; methods and environment variables have their own tests."""
    found = dict[str, set[str]]()
    for document in documents():
        found[document] = set()
        for words in code(document):
            for name in re.findall(r"^uvicorn(?:\.\w+)+(?=$|\()", words):
                if not resolves(name) and name not in LOGGERS | FILES_OF_USERS | SPAN_EVENTS | {ON_DISCONNECT}:
                    found[document].add(name)
    assert not missing(found), missing(found)


def resolves(name: str) -> bool:
    """Whether some module along a dotted name has the rest of it as attributes.

    The native core may not be built here, so its stub counts.
    """
    if name.startswith("uvicorn._native"):
        attribute = name.removeprefix("uvicorn._native").removeprefix(".")
        return attribute == "" or bool(re.search(rf"^(?:class|def) {attribute}\b", text("uvicorn/_native.pyi"), re.M))
    parts = name.split(".")
    # From the longest module on; then from the package, whose `main` is a command and a module.
    for length in range(len(parts), 0, -1):
        try:
            target: object = importlib.import_module(".".join(parts[:length]))
            for part in parts[length:]:
                target = getattr(target, part)
        except (ModuleNotFoundError, AttributeError):
            continue
        return True
    return False


def test_classes_that_are_named_are_in_the_source() -> None:
    known = set(re.findall(r"\w+", source())) | CLASSES_OF_OTHERS
    found = {
        document: {
            word
            for words in code(document)
            for word in re.findall(r"(?<![\w.-])[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+(?![\w-])", words)
            if word not in known
        }
        for document in documents()
    }
    assert not missing(found), missing(found)


def test_log_lines_that_are_quoted_are_in_the_source() -> None:
    """Whole sentences between backticks, without the parts that vary."""
    known = re.sub(r"[\"']\s+[\"']", "", source())
    found = {
        document: {
            words for words in code(document) if re.fullmatch(r"[A-Z]\w+ [\w ]+\w\.", words) and words not in known
        }
        for document in documents()
    }
    assert "Invalid HTTP request received." in code("docs/server-behavior.md")
    assert not missing(found), missing(found)


@pytest.mark.parametrize("heading", ["Deadlines", "Limits"])
def test_defaults_in_the_tables_are_those_of_the_settings(heading: str) -> None:
    section = text("docs/server-behavior.md").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| (`--[^|]+) \| ([^|]+) \|", section, re.MULTILINE)
    assert len(rows) > 6
    for options, stated in rows:
        for option in re.findall(r"`--([\w-]+)`", options):
            default = ROWS[option.replace("-", "_")].default
            shown = re.fullmatch(r"(\d+)(?: (s|KiB|MiB))?", stated)
            assert shown or stated == "none", f"{option}: {stated}"
            scale = {"KiB": 2**10, "MiB": 2**20}.get(shown[2], 1) if shown else 1
            expected = int(shown[1]) * scale if shown else None
            if option not in MEANT_BY_NONE:
                assert default == expected, f"{option}: {default} in the settings, {stated} in the document"
