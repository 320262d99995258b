"""Doubts in words, from recorded samples."""

from __future__ import annotations

from typing import Any

import pytest

from bench import checks
from bench.model import Burst, Load, Machine, Sample
from tests.bench import records


def _calm() -> list[Sample]:
    return [one for number in range(6) for one in records.block(number, [1e-5, 1.01e-5], [2e-5, 2.01e-5])]


def test_a_good_result_raises_no_doubt() -> None:
    assert checks.doubts(_calm(), records.ENVIRONMENT) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"pinning": "not pinned"}, "shared the same cores", id="not pinned"),
        pytest.param({"load_average": [3.2, 1, 1]}, "busy before the start", id="load"),
        pytest.param({"governor": "powersave"}, "governor is powersave", id="governor"),
        pytest.param({"virtual": True}, "neighbours are invisible", id="virtual"),
        pytest.param({"targets": {"ours": {"python": "3.13", "debug": True}}}, "debug build", id="debug build"),
        pytest.param({"targets": {"ours": {"python": "3.13", "optimised": False}}}, "profile-guided", id="plain build"),
        pytest.param(
            {"targets": {"ours": {"python": "3.13"}, "upstream": {"python": "3.12"}}}, "different Python", id="pythons"
        ),
    ],
)
def test_what_the_machine_does_wrong_is_said(change: dict[str, Any], words: str) -> None:
    [doubt] = checks.doubts(_calm(), {**records.ENVIRONMENT, **change})
    assert words in doubt


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param({"machine": Machine(0.4, 0.3, 0.0)}, "other programs used up to 30%", id="foreign load"),
        pytest.param({"machine": Machine(0.4, 0.0, 0.1)}, "hypervisor took up to 10%", id="steal"),
        pytest.param({"machine": Machine(0.99, 0.0, 0.0)}, "client was at its limit against ours", id="client full"),
        pytest.param({"void": "errors: 3 read"}, "1 bursts of ours on hello do not count: errors: 3 read", id="void"),
        pytest.param(
            {"burst": Burst(500, 2.0, {}, records.latency(0.001))}, "(50 connections, 500 requests)", id="few requests"
        ),
    ],
)
def test_what_a_burst_suffered_is_said(more: dict[str, Any], words: str) -> None:
    odd = records.sample(**more)
    doubts = checks.doubts([*_calm(), odd], records.ENVIRONMENT)
    assert any(words in doubt for doubt in doubts), doubts


def test_a_spinning_open_loop_is_not_a_client_at_its_limit() -> None:
    spinning = records.sample(load=Load("openloop", 50, 1, 2.0, 1000.0), machine=Machine(1.0, 0.0, 0.0))
    assert not any("limit" in doubt for doubt in checks.doubts([*_calm(), spinning], records.ENVIRONMENT))


def test_figures_that_vary_say_how_many_bursts_they_would_need() -> None:
    wild = [records.sample(cpu=cpu) for cpu in (1e-5, 2e-5, 1e-5, 3e-5)]
    [doubt] = checks.doubts(wild, records.ENVIRONMENT)
    assert "in 1 of 1 cases, most of all ours on hello" in doubt
    assert "by 55%" in doubt
    assert "bursts would be needed" in doubt


def test_figures_that_vary_are_one_doubt_about_the_widest() -> None:
    wild = [records.sample(cpu=cpu) for cpu in (1e-5, 2e-5, 1e-5, 3e-5)]
    wilder = [records.sample(target="upstream", cpu=cpu) for cpu in (1e-5, 8e-5)]
    calm = [records.sample(target="granian", cpu=cpu) for cpu in (1e-5, 1e-5)]
    [doubt] = checks.doubts([*wild, *wilder, *calm], records.ENVIRONMENT)
    assert "in 2 of 3 cases, most of all upstream on hello" in doubt


def test_tails_that_rest_on_few_requests_are_one_doubt() -> None:
    burst = Burst(900, 2.0, {}, records.latency(5e-4))
    few = [records.sample(target=target, burst=burst) for target in ("ours", "upstream")]
    [doubt] = checks.doubts(few, records.ENVIRONMENT)
    assert "fewer than 1000 requests: ours on hello (50 connections, 900 requests), upstream on hello" in doubt


def test_few_blocks_make_a_doubtful_interval() -> None:
    [doubt] = checks.doubts(records.block(0, [1e-5, 1e-5], [2e-5, 2e-5]), records.ENVIRONMENT)
    assert "only 1 blocks in a comparison: its interval is so wide" in doubt
