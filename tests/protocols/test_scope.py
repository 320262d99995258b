"""How one scope is built from what a connection and a request know."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uvicorn.protocols.http.scope import ScopeBase


def base(root_path: str = "", state: dict[str, Any] | None = None, asgi_version: Any = "3.0") -> ScopeBase:
    return ScopeBase(asgi_version, "http", ("c", 1), ("s", 2), root_path, {} if state is None else state)


def build(target: bytes = b"/", method: bytes = b"GET", minor: bytes = b"1", **options: Any) -> Any:
    shared = base(**options)
    return shared.build(shared.line(method, target, minor), [(b"host", b"a")])


def test_scope_holds_all_there_is() -> None:
    """SCO-01 to SCO-05, SCO-14"""
    assert build(b"/a%20b?c=%20") == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("s", 2),
        "client": ("c", 1),
        "scheme": "http",
        "method": "GET",
        "root_path": "",
        "path": "/a b",
        "raw_path": b"/a%20b",
        "query_string": b"c=%20",
        "headers": [(b"host", b"a")],
        "state": {},
    }


@pytest.mark.parametrize(("minor", "version"), [(b"0", "1.0"), (b"1", "1.1"), (b"2", "1.1"), (b"9", "1.1")])
def test_version_is_the_one_that_is_spoken(minor: bytes, version: str) -> None:
    """SCO-03: RFC 9110 section 2.5: a higher minor version is read as the highest known."""
    assert build(minor=minor)["http_version"] == version


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PURGE", "X-Y"])
def test_method_is_text(method: str) -> None:
    """SCO-06"""
    assert build(method=method.encode())["method"] == method


@given(st.binary(max_size=30))
def test_path_of_any_bytes_is_text(path: bytes) -> None:
    """U7: bad UTF-8 is no error; the raw path is untouched."""
    raw = b"/" + b"".join(b"%%%02x" % byte for byte in path)
    scope = build(raw)
    assert scope["path"] == "/" + path.decode("utf-8", "replace")
    assert scope["raw_path"] == raw


@pytest.mark.parametrize(
    ("root_path", "path", "raw_path"),
    [("", "/a b", b"/a%20b"), ("/r", "/r/a b", b"/r/a%20b"), ("/é", "/é/a b", b"/%C3%A9/a%20b")],
)
def test_root_path_is_put_in_front_of_both_paths(root_path: str, path: str, raw_path: bytes) -> None:
    """SCO-07 to SCO-11"""
    scope = build(b"/a%20b", root_path=root_path)
    assert (scope["root_path"], scope["path"], scope["raw_path"]) == (root_path, path, raw_path)


def test_state_is_a_shallow_copy() -> None:
    """SCO-20, LSP-19"""
    state = {"list": [1]}
    shared = base(state=state)
    first, second = (shared.build(shared.line(b"GET", b"/", b"1"), [])["state"] for _ in range(2))
    assert first == second == state
    assert first is not second
    assert first is not state
    assert first["list"] is state["list"]


def test_empty_state_is_not_shared() -> None:
    """SCO-20, LSP-20"""
    state: dict[str, Any] = {}
    shared = base(state=state)
    first, second = (shared.build(shared.line(b"GET", b"/", b"1"), [])["state"] for _ in range(2))
    first["a"] = 1
    assert (second, state) == ({}, {})


def test_state_that_is_filled_later_is_seen() -> None:
    state: dict[str, Any] = {}
    shared = base(state=state)
    state["late"] = 1
    assert shared.build(shared.line(b"GET", b"/", b"1"), [])["state"] == {"late": 1}


def test_nothing_mutable_is_shared_between_scopes() -> None:
    shared = base()
    first, second = (shared.build(shared.line(b"GET", b"/", b"1"), []) for _ in range(2))
    assert first["asgi"] is not second["asgi"]
    assert first["headers"] is not second["headers"]


def test_asgi_version_is_that_of_the_application() -> None:
    """SCO-02"""
    assert build(asgi_version="2.0")["asgi"] == {"version": "2.0", "spec_version": "2.3"}
