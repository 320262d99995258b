"""What `--mount` says, and what is wrong with it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

import uvicorn
from tests.protocols.harness import respond
from tests.utils import as_cwd
from uvicorn.config import Config
from uvicorn.config.errors import report_error
from uvicorn.config.mounts import Mount, parse_mount


def test_a_directory_is_found_from_where_the_server_was_started(tmp_path: Path) -> None:
    (tmp_path / "static").mkdir()
    with as_cwd(tmp_path):
        assert parse_mount("/static=static") == Mount("/static", str(tmp_path / "static"))
        assert parse_mount("/static/=./static/") == Mount("/static", str(tmp_path / "static"))
        assert parse_mount("/=static") == Mount("", str(tmp_path / "static"))
        assert parse_mount("/a/c=static") == Mount("/a/c", str(tmp_path / "static"))
    assert str(Mount("", "/a")) == "/ from /a"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "write a path and a directory"),
        ("/static", "write a path and a directory"),
        ("/static=", "write a path and a directory"),
        ("static=.", "write a path and a directory"),
        ("=.", "write a path and a directory"),
        ("/a//b=.", "not a request path"),
        ("/a%20b=.", "not a request path"),
        ("/a?b=.", "not a request path"),
        ("/a/../b=.", "not a request path"),
        ("/a\n=.", "not a request path"),
        ("/static=nowhere", "the directory 'nowhere' does not exist"),
        ("/static=file", "the directory 'file' does not exist"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, says: str) -> None:
    (tmp_path / "file").touch()
    with as_cwd(tmp_path), caplog.at_level(logging.ERROR, "uvicorn.error"), pytest.raises(ValueError) as caught:
        Config(respond(), mount=[text], log_config=None)
    assert report_error(caught.value)
    (line,) = caplog.messages
    assert line.startswith(f"Cannot use mount={text!r}: ")
    assert says in line


def test_a_path_has_one_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="/static is mounted twice"):
        Config(respond(), mount=[f"/static={tmp_path}", f"/static/={tmp_path}"], log_config=None)


def test_cache_control_is_a_field_value(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError) as caught:
        Config(respond(), mount_cache_control="no-cache\r\nset-cookie: a=b", log_config=None)
    assert report_error(caught.value)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["/static"], "write a path and a value"),
        (["/other=no-store"], "nothing is mounted at /other"),
        (["/=no-store"], "nothing is mounted at /"),
        (["/static=no-store", "/static/=public"], "/static has a value already"),
        (["no-store", "public"], "every mount has a value already"),
        (["/static=a\r\nset-cookie: a=b"], "cache-control"),
    ],
)
def test_cache_control_is_that_of_a_mount(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, texts: list[str], says: str
) -> None:
    with caplog.at_level(logging.ERROR, "uvicorn.error"), pytest.raises(ValueError) as caught:
        Config(respond(), mount=f"/static={tmp_path}", mount_cache_control=texts, log_config=None)
    assert report_error(caught.value)
    (line,) = caplog.messages
    assert line.startswith(f"Cannot use mount_cache_control={texts[-1]!r}: ")
    assert says in line


def test_check_names_the_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounted_application.py").write_text("async def app(scope, receive, send): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(uvicorn.main, ["mounted_application:app", "--check", "--mount", f"/static={tmp_path}"])
    assert result.exit_code == 0, result.output
    assert f"/static from {tmp_path}" in result.output
