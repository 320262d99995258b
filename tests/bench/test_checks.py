"""Doubts in words, from recorded samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench import checks
from bench.checks import Seen
from bench.model import Burst, Load, Machine, Sample
from bench.report import FEWEST_BLOCKS
from tests.bench import records


def _doubts(samples: list[Sample], environment: dict[str, Any] = records.ENVIRONMENT) -> list[str]:
    return checks.doubts([Seen(samples, environment)])


def _calm() -> list[Sample]:
    return [one for number in range(6) for one in records.block(number, [1e-5, 1.01e-5], [2e-5, 2.01e-5])]


def test_a_good_result_raises_no_doubt() -> None:
    assert _doubts(_calm()) == []


def test_bursts_through_different_clients_are_no_spread() -> None:
    def vary(tool: str) -> bool:
        load = Load(tool, 50, 1, 2.0)
        others = [records.sample(cpu=9e-5, load=load, block=20 + number) for number in range(6)]
        return any("varies" in doubt for doubt in _doubts([*_calm(), *others]))

    assert vary("wrk")
    assert not vary("httpx")


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
    [doubt] = _doubts(_calm(), {**records.ENVIRONMENT, **change})
    assert words in doubt


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param({"machine": Machine(0.4, 0.3, 0.0)}, "other programs used up to 30%", id="foreign load"),
        pytest.param({"machine": Machine(0.4, 0.0, 0.1)}, "hypervisor took up to 10%", id="steal"),
        pytest.param({"machine": Machine(0.99, 0.0, 0.0)}, "client was at its limit against ours", id="client full"),
        pytest.param({"void": "errors: 3 read"}, "do not count: 1 of ours on hello: errors: 3 read", id="void"),
        pytest.param(
            {"burst": Burst(500, 2.0, {}, records.latency(0.001))},
            "not counted, which favours fast servers: hello (up to 10% of the requests)",
            id="few requests",
        ),
    ],
)
def test_what_a_burst_suffered_is_said(more: dict[str, Any], words: str) -> None:
    odd = records.sample(**more)
    doubts = _doubts([*_calm(), odd])
    assert any(words in doubt for doubt in doubts), doubts


def test_a_server_that_polls_does_so_after_each_burst() -> None:
    def idle(sample: Sample) -> Sample:
        assert sample.usage is not None
        return replace(sample, usage=replace(sample.usage, idle=0.97))

    calm = [one for one in _calm() if one.target == "ours"]
    [doubt] = [one for one in _doubts([*map(idle, calm)]) if "polls" in one]
    assert "ours polls: without a request it uses 97% of a core" in doubt
    # Work left over from one burst is not polling.
    assert not any("polls" in one for one in _doubts([*calm, idle(calm[0])]))


def test_a_spinning_open_loop_is_not_a_client_at_its_limit() -> None:
    spinning = records.sample(load=Load("openloop", 50, 1, 2.0, 1000.0), machine=Machine(1.0, 0.0, 0.0))
    assert not any("limit" in doubt for doubt in _doubts([*_calm(), spinning]))


def test_figures_that_vary_say_how_many_bursts_they_would_need() -> None:
    wild = [records.sample(cpu=cpu) for cpu in (1e-5, 2e-5, 1e-5, 3e-5)]
    [doubt] = _doubts(wild)
    assert "in 1 of 1 cases, most of all ours on hello" in doubt
    assert "by 55%" in doubt
    assert "bursts would be needed" in doubt


def test_figures_that_vary_are_one_doubt_about_the_widest() -> None:
    wild = [records.sample(cpu=cpu) for cpu in (1e-5, 2e-5, 1e-5, 3e-5)]
    wilder = [records.sample(target="upstream", cpu=cpu) for cpu in (1e-5, 8e-5)]
    calm = [records.sample(target="granian", cpu=cpu) for cpu in (1e-5, 1e-5)]
    [doubt] = _doubts([*wild, *wilder, *calm])
    assert "in 2 of 3 cases, most of all upstream on hello" in doubt


def test_requests_that_wrk_leaves_uncounted_are_one_doubt() -> None:
    few = [
        records.sample(target=target, burst=Burst(requests, 2.0, {}, records.latency(5e-4)))
        for target, requests in (("ours", 500), ("upstream", 250), ("granian", 1000))
    ]
    [doubt] = _doubts(few)
    assert doubt.endswith("not counted, which favours fast servers: hello (up to 20% of the requests)")
    assert _doubts([replace(one, load=replace(one.load, tool="closedloop")) for one in few]) == []


def test_few_blocks_make_a_doubtful_interval() -> None:
    [doubt] = _doubts(records.block(0, [1e-5, 1e-5], [2e-5, 2e-5]))
    assert "only 1 blocks in a comparison: its interval is so wide" in doubt


def test_a_block_without_a_pair_does_not_count() -> None:
    numbers = range(FEWEST_BLOCKS)
    samples = [one for number in numbers for one in records.block(number, [1e-5, 1e-5], [2e-5, 2e-5])]
    assert _doubts(samples) == []
    void = [replace(one, void="lost") if one.block == 0 and one.side == "A" else one for one in samples]
    assert f"only {FEWEST_BLOCKS - 1} blocks in a comparison" in _doubts(void)[-1]


def test_a_cause_is_one_doubt_however_many_results_it_concerns() -> None:
    void = records.sample(void="errors: 3 read")
    other, third = (records.sample(name, "", void="errors: 3 read") for name in ("upstream", "granian"))
    busy = {**records.ENVIRONMENT, "load_average": [3.2, 1, 1], "virtual": True}
    full = records.sample(machine=Machine(0.99, 0.0, 0.1))
    found = checks.doubts(
        [
            Seen([*_calm(), void, full], busy, "One"),
            Seen([*_calm(), void, replace(void, void="errors: 4 read"), other, third], records.ENVIRONMENT, "Two"),
            Seen(_calm(), {**records.ENVIRONMENT, "virtual": True}, "Three"),
        ]
    )
    assert found == [
        "bursts that do not count: 3 of ours on hello: errors: 3 read, and the like (One; Two)",
        "bursts that do not count: 1 of upstream on hello, 1 of granian on hello: errors: 3 read (Two)",
        "the machine was busy before the start (load average 3.2) (One)",
        "a virtual machine: its neighbours are invisible (One; Three)",
        "the hypervisor took up to 10% of a core away, more than 2% in 1 of 25 bursts (One)",
        "the client was at its limit against ours (One): throughput there is the client's",
    ]
