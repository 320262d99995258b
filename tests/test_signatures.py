"""`Config`, `run` and the recorded signature of upstream 0.54.0 agree."""

from __future__ import annotations

import importlib
import inspect
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import uvicorn
from uvicorn.config import LOGGING_CONFIG
from uvicorn.config.settings import ROWS

ROOT = Path(__file__).resolve().parent.parent

REQUIRED = inspect.Parameter.empty

# Positional order and defaults of upstream's Config, as recorded.
RECORDED: dict[str, Any] = {
    "app": REQUIRED,
    "host": "127.0.0.1",
    "port": 8000,
    "uds": None,
    "fd": None,
    "loop": "auto",
    "http": "auto",
    "http2": False,
    "ws": "auto",
    "ws_max_size": 16777216,
    "ws_max_queue": 32,
    "ws_ping_interval": 20.0,
    "ws_ping_timeout": 20.0,
    "ws_per_message_deflate": True,
    "lifespan": "auto",
    "env_file": None,
    "log_config": LOGGING_CONFIG,
    "log_level": None,
    "access_log": True,
    "use_colors": None,
    "interface": "auto",
    "reload": False,
    "reload_dirs": None,
    "reload_delay": 0.25,
    "reload_includes": None,
    "reload_excludes": None,
    "workers": None,
    "proxy_headers": True,
    "server_header": True,
    "date_header": True,
    "forwarded_allow_ips": None,
    "root_path": "",
    "limit_concurrency": None,
    "limit_max_requests": None,
    "limit_max_requests_jitter": 0,
    "backlog": 2048,
    "timeout_keep_alive": 5,
    "timeout_notify": 30,
    "timeout_graceful_shutdown": None,
    "timeout_worker_healthcheck": 5,
    "callback_notify": None,
    "ssl_keyfile": None,
    "ssl_certfile": None,
    "ssl_keyfile_password": None,
    "ssl_version": 17,
    "ssl_cert_reqs": 0,
    "ssl_ca_certs": None,
    "ssl_ciphers": None,
    "ssl_context_factory": None,
    "headers": None,
    "factory": False,
    "h11_max_incomplete_event_size": None,
    "reset_contextvars": False,
}

CONFIG = inspect.signature(uvicorn.Config.__init__).parameters
RUN = inspect.signature(uvicorn.run).parameters


def test_the_positional_arguments_are_upstreams_in_upstreams_order() -> None:
    positional = {
        name: parameter.default
        for name, parameter in CONFIG.items()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and name != "self"
    }
    assert list(positional.items()) == list(RECORDED.items())


def test_what_is_new_is_keyword_only_and_optional() -> None:
    for name in CONFIG.keys() - RECORDED.keys() - {"self"}:
        assert CONFIG[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert CONFIG[name].default is not REQUIRED


def test_run_takes_what_config_takes_but_for_three() -> None:
    assert CONFIG.keys() - RUN.keys() == {"self", "timeout_notify", "callback_notify"}
    assert RUN.keys() - CONFIG.keys() == {"app_dir"}
    assert RUN["app_dir"].default is None


def test_run_and_config_agree_as_text() -> None:
    both = RUN.keys() & CONFIG.keys()
    assert {name: repr(RUN[name]) for name in both} == {name: repr(CONFIG[name]) for name in both}


def test_everything_but_the_application_is_keyword_only_in_run() -> None:
    kinds = {name: parameter.kind for name, parameter in RUN.items()}
    assert kinds.pop("app") is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert set(kinds.values()) == {inspect.Parameter.KEYWORD_ONLY}


def test_the_parameters_are_the_rows() -> None:
    assert [*CONFIG][1:] == [*ROWS]


def test_what_is_generated_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "sync-settings", "--check"], capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.fixture
def copy_of_the_tree(tmp_path: Path) -> Path:
    """The parts of the repository that the script reads and writes, but for the page."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copytree(ROOT / "uvicorn", tmp_path / "uvicorn", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for crate in ("wire", "bindings"):
        shutil.copytree(ROOT / "native" / crate / "src", tmp_path / "native" / crate / "src")
    (tmp_path / "docs" / "concepts").mkdir(parents=True)
    for name in ("migrating.md", "concepts/metrics.md", "concepts/asgi.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs" / name)
    return tmp_path


def sync(tree: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, tree / "scripts" / "sync-settings", *args], capture_output=True, text=True, cwd=tree
    )


@pytest.mark.deep
def test_a_new_row_reaches_signature_and_page_through_the_script(copy_of_the_tree: Path) -> None:
    table = copy_of_the_tree / "uvicorn" / "config" / "settings.py"
    source = table.read_text()
    assert source.count("    def __post_init__") == 1
    row = '    new_row: int | None = setting(default=4, section="New", kw_only=True, help="Something new.")\n\n'
    table.write_text(source.replace("    def __post_init__", row + "    def __post_init__"))

    checked = sync(copy_of_the_tree, "--check")
    assert checked.returncode == 1
    assert checked.stderr.splitlines() == [
        "uvicorn/main.py is out of date: run scripts/sync-settings",
        "docs/settings.md is out of date: run scripts/sync-settings",
        "docs/migrating.md is out of date: run scripts/sync-settings",
    ]
    assert not (copy_of_the_tree / "docs" / "settings.md").exists()

    written = sync(copy_of_the_tree)
    assert written.returncode == 0, written.stderr
    assert "    new_row: int | None = 4,\n" in (copy_of_the_tree / "uvicorn" / "main.py").read_text()
    page = (copy_of_the_tree / "docs" / "settings.md").read_text()
    assert "## New\n\n### `new_row`\n\nSomething new.\n\n*A whole number; default `4`.*\n" in page

    assert sync(copy_of_the_tree, "--check").returncode == 0


@pytest.mark.deep
def test_new_metrics_and_messages_reach_the_documents_through_the_script(copy_of_the_tree: Path) -> None:
    page = copy_of_the_tree / "uvicorn" / "metrics" / "page.py"
    row = """    Family("new_total", "counter", "New.", (('kind="a"', BEGUN, None), ('kind="b"', ENDED, None))),\n"""
    page.write_text(page.read_text().replace("FAMILIES = (\n", "FAMILIES = (\n" + row))
    types = copy_of_the_tree / "uvicorn" / "_types.py"
    event = 'class NewEvent(TypedDict):\n    """Extension ``new``: sends\n    ``one``."""\n'
    event += '    type: Literal["new"]\n    one: int\n'
    source = types.read_text().replace("class HasFileno(", f"{event}\n\nclass HasFileno(")
    source = source.replace("\nExtensionType = Literal[\n", '\nExtensionType = Literal[\n    "new",\n')
    types.write_text(source.replace("    HTTPResponseStartEvent\n", "    NewEvent | HTTPResponseStartEvent\n"))

    assert sync(copy_of_the_tree).returncode == 0
    concepts = copy_of_the_tree / "docs" / "concepts"
    metric = "| `uvicorn_new_total` | counter | `kind`: `a`, `b` | New. |\n"
    assert metric in (concepts / "metrics.md").read_text()
    assert "| `new` | `one` | sends `one` |\n" in (concepts / "asgi.md").read_text()
    assert sync(copy_of_the_tree, "--check").returncode == 0


def main_module() -> ModuleType:
    return importlib.import_module("uvicorn.main")


def test_main_is_the_command_and_the_module_is_reached_by_import() -> None:
    """API-01, API-02"""
    assert uvicorn.__all__ == ["Config", "Server", "main", "run"]
    assert uvicorn.main is main_module().main
    assert uvicorn.run is main_module().run
    assert uvicorn.__version__.startswith("0.54.")


def test_the_parameters_of_the_command_are_made_when_asked_for() -> None:
    """A program that only calls `run` does not pay for them."""
    code = "import uvicorn; assert 'params' not in vars(uvicorn.main); assert uvicorn.main.params"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert not hasattr(uvicorn.main, "something_else")


@pytest.mark.parametrize("module", ["watchfiles", "multiprocessing", "yaml", "dotenv", "websockets", "h11"])
def test_a_plain_import_leaves_out_what_most_programs_do_not_need(module: str) -> None:
    code = f"import sys; before = set(sys.modules); import uvicorn; assert {module!r} not in set(sys.modules) - before"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_server_state_in_main_is_deprecated() -> None:
    """API-03"""
    from uvicorn.server import ServerState

    with pytest.warns(DeprecationWarning, match=r"uvicorn\.server\.ServerState"):
        assert main_module().ServerState is ServerState
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = main_module().nothing_like_this


@pytest.mark.measures_children
def test_a_plain_import_reaches_the_submodules() -> None:
    """API-04"""
    names = ["config", "server", "supervisors", "importer", "logging", "middleware"]
    code = f"import uvicorn\nfor name in {names}: assert hasattr(uvicorn, name), name"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert not hasattr(uvicorn, "something_else")


def test_the_version_sorts_behind_the_release_it_replaces() -> None:
    """Requirements that upstream's 0.54 satisfies are satisfied; programs that take it for three integers can."""
    specifiers, version = pytest.importorskip("packaging.specifiers"), pytest.importorskip("packaging.version")
    ours = version.Version(uvicorn.__version__)
    assert ours > version.Version("0.54.99")
    for wanted in (">=0.12", ">=0.54,<0.55", "~=0.54.0", "==0.54.*", ">0.54.0", "!=0.54.0"):
        assert ours in specifiers.SpecifierSet(wanted)
    assert tuple(int(part) for part in uvicorn.__version__.split(".")) == ours.release == (0, 54, 100)
