"""How `scripts/site` adapts documents: links, lists, pictures, code in tables."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from types import ModuleType

import pytest

from tests.process import ROOT


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("scripts_site", str(ROOT / "scripts" / "site"))
    loader_spec = importlib.util.spec_from_loader(loader.name, loader)
    assert loader_spec
    module = importlib.util.module_from_spec(loader_spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("docs/index.md", "[a](settings.md#b)", "[a](settings.md#b)"),
        ("docs/index.md", "[a](../CONTRIBUTING.md#b)", "[a](project/contributing.md#b)"),
        ("docs/concepts/http2.md", "[a](../../tests/catalogue/threats.md)", "[a](../project/threats.md)"),
        ("CONTRIBUTING.md", "[a](docs/architecture.md)", "[a](../architecture.md)"),
        ("docs/deployment/docker.md", "[a](Dockerfile)", "[a](Dockerfile)"),
        ("docs/index.md", "[a `b`](../setup.py) c", "a `b` c"),
        ("docs/index.md", "[a](https://example.org/x.md) [b](#c)", "[a](https://example.org/x.md) [b](#c)"),
        ("docs/index.md", "`[a](../setup.py)`", "`[a](../setup.py)`"),
        ("docs/index.md", "```\n[a](../setup.py)\n```", "```\n[a](../setup.py)\n```"),
        ("docs/index.md", "`--host ::` `--` `a --b`", "`--host ::`{ .option } `--` `a --b`"),
        ("docs/index.md", "| `a\\|<b>` |", "| <code>a&#124;&lt;b&gt;</code> |"),
    ],
)
def test_links(site: ModuleType, name: str, text: str, expected: str) -> None:
    assert site.with_links(text, name, site.documents()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n  b\n  - c\n    d\n- e", "- a\n    b\n    - c\n        d\n- e"),
        ("1. a\n\n   b\n\nc", "1. a\n\n    b\n\nc"),
        ("a\n- b\n- c", "a\n\n- b\n- c"),
        ("- a\n\n  ```\n  b\n    c\n  ```", "- a\n\n    ```\n    b\n      c\n    ```"),
        ("- a\n\n```\n- d\n  - e\n```", "- a\n\n```\n- d\n  - e\n```"),
        ("    code\n", "    code\n"),
    ],
)
def test_lists(site: ModuleType, text: str, expected: str) -> None:
    assert site.with_lists(text) == expected


def test_pictures_follow_the_scheme_of_the_page(site: ModuleType) -> None:
    light, dark = "benchmarks/cpu-light.svg", "benchmarks/cpu-dark.svg"
    text = f'<picture>\n  <source media="x" srcset="{dark}">\n  <img alt="A" src="{light}">\n</picture>'
    expected = f"![A]({light}#only-light)![A]({dark}#only-dark)"
    assert site.adapted(text, "docs/index.md", site.documents()) == expected


def test_the_navigation_has_every_document(site: ModuleType) -> None:
    navigation = (ROOT / "zensical.toml").read_text()
    assert [place for place in (*site.documents().values(), "python.md") if f'"{place}"' not in navigation] == []


def test_the_version_is_that_of_the_package(site: ModuleType) -> None:
    import uvicorn

    assert site.current_version() == uvicorn.__version__
    assert sorted(["0.54.100", "0.54.99", "0.100.0"], key=site.order) == ["0.54.99", "0.54.100", "0.100.0"]
