"""How many processes serve, with how many event loops each."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest

from uvicorn.config import Config, profile
from uvicorn.config.errors import SettingError
from uvicorn.config.profile import WorkerProfile


@pytest.mark.parametrize(
    "kind, processes, threads, has_gil, expected",
    [
        (None, None, None, True, "1x1"),
        (None, 4, None, True, "4x1"),
        (None, None, 3, False, "1x3"),
        ("process", None, None, True, "8x1"),
        ("process", 2, None, True, "2x1"),
        ("thread", None, None, False, "1x8"),
        ("thread", 2, 3, False, "2x3"),
        ("hybrid", None, None, True, "2x4"),
        ("hybrid", None, 2, True, "4x2"),
        ("hybrid", 3, None, True, "3x4"),
        ("hybrid", None, 16, True, "1x16"),
        ("auto", None, None, True, "8x1"),
        (None, "auto", None, False, "8x1"),
        (None, "auto", 2, False, "4x2"),
        (None, "auto", 16, False, "1x16"),
        (None, None, "auto", True, "1x8"),
        (None, 3, "auto", True, "3x2"),
        (None, 0, "auto", True, "1x8"),
        (None, "auto", "auto", True, "8x1"),
        (None, "auto", "auto", False, "1x8"),
        ("hybrid", "auto", "auto", True, "2x4"),
        ("thread", "auto", 3, True, "1x3"),
        ("auto", None, None, False, "1x8"),
    ],
)
def test_what_is_not_given_follows_from_the_machine(
    kind: Any, processes: Any, threads: Any, has_gil: bool, expected: str
) -> None:
    assert str(WorkerProfile.resolve(kind, processes, threads, 8, has_gil)) == expected


def test_settings_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    monkeypatch.setattr("uvicorn.config.processors", lambda: 8)
    config = Config("a:b", worker_profile="hybrid", log_config=None)
    assert (config.workers, config.threads) == (2, 4)
    monkeypatch.setenv("WEB_CONCURRENCY", "3")
    assert Config("a:b", worker_profile="hybrid", log_config=None).workers == 3


def test_numbers_may_be_left_to_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uvicorn.config.processors", lambda: 8)
    monkeypatch.setenv("WEB_CONCURRENCY", "auto")
    config = Config("a:b", threads=2, log_config=None)
    assert (config.workers, config.threads) == (4, 2)
    config = Config("a:b", workers=2, threads="auto", log_config=None)
    assert (config.workers, config.threads) == (2, 4)


@pytest.mark.parametrize("name", ["workers", "threads"])
def test_a_number_that_is_none_is_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    settings: dict[str, Any] = {name: "many"}
    with pytest.raises(SettingError, match=f"^{name} must be a whole number.* or `auto`, not 'many'"):
        Config("a:b", log_config=None, **settings)


ALONE = "preload=True is ignored: a single process has no parent that could load the application."


@pytest.mark.parametrize(
    "settings, warns",
    [({}, True), ({"threads": 2}, True), ({"workers": 2}, False), ({"limit_worker_memory": 9}, False)],
)
def test_preloading_for_one_process_is_said_to_change_nothing(
    settings: dict[str, Any], warns: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    caplog.set_level(logging.INFO, "uvicorn.error")
    Config("a:b", preload=True, log_config=None, **settings)
    told = [record.getMessage() for record in caplog.records]
    assert told == [ALONE] * warns


def test_processors_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uvicorn.config.profile.sys.platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    assert profile.processors() == 3
    monkeypatch.setattr("uvicorn.config.profile.sys.platform", "darwin")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert profile.processors() == 1


@pytest.mark.parametrize("threads, has_gil, warns", [(2, True, True), (2, False, False), (1, True, False)])
def test_with_a_gil_one_warning_says_what_threads_are_good_for(
    threads: int, has_gil: bool, warns: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")
    monkeypatch.setattr("uvicorn.config.has_gil", lambda: has_gil)
    Config("a:b", threads=threads, log_config=None).log_threads()
    assert ("so the 2 event loops of a process take turns (threads)" in caplog.text) == warns


def test_a_profile_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(SettingError, match=r"^worker_profile must be one of process, "):
        Config("a:b", worker_profile="fibre", log_config=None)  # type: ignore[arg-type]
