"""From an import string to an object, and what is said when there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from uvicorn.importer import ImportFromStringError, import_from_string

MODULES = {
    "sample.py": "class ns:\n    class inner:\n        value = 3\n\n\napplication = object()\n",
    "needs_other.py": "import a_module_that_is_not_there\n",
    "broken.py": "def broken(:\n",
    "raising.py": "raise RuntimeError('at import')\n",
    "package/__init__.py": "",
    "package/child.py": "value = 7\n",
    "package/imports_missing.py": "import package.missing\n",
}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, source in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("sample", id="no colon"),
        pytest.param("", id="empty"),
        pytest.param(":", id="colon only"),
        pytest.param(":application", id="no module"),
        pytest.param("sample:", id="no attribute"),
        pytest.param(".sample:application", id="relative module"),
    ],
)
def test_a_text_of_another_form_says_which_form_it_needs(text: str) -> None:
    """APP-01"""
    with pytest.raises(ImportFromStringError) as caught:
        import_from_string(text)
    assert str(caught.value) == f'Import string "{text}" must be in format "<module>:<attribute>".'


def test_only_the_first_colon_separates() -> None:
    """APP-02"""
    with pytest.raises(ImportFromStringError) as caught:
        import_from_string("json:dumps:x")
    assert str(caught.value) == 'Attribute "dumps:x" not found in module "json".'


def test_a_dotted_attribute_is_followed() -> None:
    """APP-03"""
    assert import_from_string("sample:ns.inner.value") == 3


def test_a_module_may_be_inside_a_package() -> None:
    assert import_from_string("package.child:value") == 7


@pytest.mark.parametrize("attribute", ["nope", "nope.value", "ns.inner.nope", "ns..inner", "ns."])
def test_a_missing_attribute_is_named_with_its_whole_path(attribute: str) -> None:
    """APP-04"""
    with pytest.raises(ImportFromStringError) as caught:
        import_from_string(f"sample:{attribute}")
    assert str(caught.value) == f'Attribute "{attribute}" not found in module "sample".'


def test_a_missing_module_is_named() -> None:
    """APP-05"""
    with pytest.raises(ImportFromStringError) as caught:
        import_from_string("not_a_module:app")
    assert str(caught.value) == 'Could not import module "not_a_module".'


def test_a_child_of_a_module_that_is_no_package_is_a_missing_module() -> None:
    """APP-08"""
    with pytest.raises(ImportFromStringError) as caught:
        import_from_string("os.nope:x")
    assert str(caught.value) == 'Could not import module "os.nope".'


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        pytest.param("needs_other:app", "a_module_that_is_not_there", id="a dependency"),
        pytest.param("package.imports_missing:app", "package.missing", id="a sibling"),
        pytest.param("not_a_package.child:app", "not_a_package", id="the package around it"),
    ],
)
def test_another_missing_module_is_raised_as_python_does(text: str, missing: str) -> None:
    """APP-06, APP-07"""
    with pytest.raises(ModuleNotFoundError) as caught:
        import_from_string(text)
    assert caught.value.name == missing


@pytest.mark.parametrize(
    ("module", "error"), [pytest.param("broken", SyntaxError), pytest.param("raising", RuntimeError)]
)
def test_an_error_inside_the_module_is_not_caught(module: str, error: type[Exception]) -> None:
    """APP-11"""
    with pytest.raises(error):
        import_from_string(f"{module}:app")


@pytest.mark.parametrize("thing", [None, 5, object(), ["sample:ns"]])
def test_what_is_not_text_is_returned_as_it_is(thing: object) -> None:
    """APP-09"""
    assert import_from_string(thing) is thing


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        pytest.param("sample.py", 'Write a module instead of a path: "sample:app".', id="a file"),
        pytest.param("./src/main.py:api", 'Write a module instead of a path: "src.main:api".', id="a path and object"),
        pytest.param("src/main:api", 'Write a module instead of a path: "src.main:api".', id="a path without suffix"),
        pytest.param("sample.py:app", 'Write a module instead of a path: "sample:app".', id="a suffix"),
        pytest.param("sample:app", "Did you mean application?", id="a name like it"),
        pytest.param("sample:xyz", None, id="no name like it"),
        pytest.param("sample", 'Did you mean "sample:app"?', id="no attribute"),
        pytest.param("sample.api", 'Did you mean "sample:api" or "sample.api:app"?', id="a dot for the colon"),
        pytest.param("smaple:app", 'Did you mean "sample:app"?', id="a module like it"),
        pytest.param("package.chlid:app", 'Did you mean "package.child:app"?', id="a module of a package like it"),
        pytest.param(
            "not_a_module:app",
            "Start from the directory that contains it, or name that directory with --app-dir.",
            id="not found",
        ),
    ],
)
def test_the_error_says_what_to_do(text: str, hint: str | None) -> None:
    with pytest.raises(ImportFromStringError) as caught:
        import_from_string(text)
    assert caught.value.hint == hint
