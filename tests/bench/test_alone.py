"""One server at a time, on cores that nobody else uses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bench import checks, environment, plan, process, runner
from bench.checks import Seen
from bench.environment import Cores, CoreTimes
from bench.errors import BenchError
from bench.model import Burst, Load, Machine
from bench.plan import Scenario
from bench.process import Server
from bench.runner import Runner
from bench.scenario import WORKLOADS, Mode
from tests.bench import fake, records

SCENARIO = Scenario(WORKLOADS["hello"], Mode(), Load("closedloop", 2, 1, 0.1))


def _fakes() -> set[int]:
    """The fake servers that are alive among this process's children."""
    found = set()
    for pid in process.tree(os.getpid()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            continue
        if fake.SCRIPT in words:
            found.add(pid)
    return found


@pytest.mark.deep
def test_while_one_server_is_measured_no_other_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[tuple[int, set[int]]] = []
    driven = Runner.drive

    def watched(self: Runner, server: Server, *rest: Any) -> tuple[Burst, float]:
        alive.append((server.pid, _fakes()))
        return driven(self, server, *rest)

    monkeypatch.setattr(Runner, "drive", watched)
    measuring = Runner(Cores((), ()), warm_up=0.05, tolerated=9)
    sides = [fake.target("one"), fake.target("two"), fake.target("three")]
    samples = measuring.carry_out(plan.comparison(SCENARIO, sides[0], sides[1:], blocks=2))
    assert [sample.void for sample in samples] == [None] * 6
    assert [pids for pid, pids in alive if pids != {pid}] == []
    # Each burst, and the load before it, met a process of its own.
    assert len(alive) == 12
    assert len({pid for pid, _ in alive}) == 6
    assert _fakes() == set()


class Crowd:
    """Readings of the cores as if others had taken these shares of one of them, one share for each burst."""

    def __init__(self, *shares: float) -> None:
        self.shares = list(shares)
        self.measured = 0

    def share(self, before: CoreTimes, after: CoreTimes, used: float, chosen: object = ()) -> float:
        self.measured += 1
        return self.shares.pop(0)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PAUSES", (0.0, 0.0))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("shares", "void", "repeats"),
    [
        pytest.param([0.04], None, 0, id="nobody worth mentioning"),
        pytest.param([0.3, 0.06, 0.01], None, 2, id="gone at the third attempt"),
        pytest.param([0.3, 0.3, 0.3], "others used the server's cores in 3 attempts", 2, id="always there"),
    ],
)
def test_a_disturbed_burst_is_repeated_so_often_and_then_void(
    shares: list[float], void: str | None, repeats: int, pauses: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = Crowd(*shares)
    monkeypatch.setattr(environment, "foreign_share", crowd.share)
    measuring = Runner(Cores((), ()), warm_up=0)
    [sample] = measuring.carry_out(plan.survey([SCENARIO], [fake.target()], rounds=1))
    assert (sample.void, sample.repeats) == (void, repeats)
    assert crowd.measured == repeats + 1
    assert sample.machine is not None


def test_what_is_tolerated_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "foreign_share", Crowd(0.4).share)
    measuring = Runner(Cores((), ()), warm_up=0, tolerated=0.5)
    [sample] = measuring.carry_out(plan.survey([SCENARIO], [fake.target()], rounds=1))
    assert (sample.void, sample.repeats) == (None, 0)


def _times(taken: float, busy: float, idle: float, steal: float = 0.0) -> CoreTimes:
    """Of core 1; core 0 is the client's."""
    return CoreTimes(taken, {0: taken, 1: busy}, {0: 0.0, 1: idle}, {0: 0.0, 1: steal})


@pytest.mark.parametrize(
    ("after", "used", "share"),
    [
        pytest.param(_times(2.0, 1.6, 0.4), 1.6, 0.0, id="the server alone"),
        pytest.param(_times(2.0, 2.0, 0.0), 1.0, 0.5, id="half a core is somebody else's"),
        pytest.param(_times(2.0, 1.0, 0.6, 0.4), 1.0, 0.2, id="the hypervisor counts"),
        pytest.param(_times(2.0, 1.5, 1.0), 1.0, 0.0, id="sampled too high: the core was idle"),
        pytest.param(_times(2.0, 1.0, 0.6), 1.0, 0.0, id="falling asleep and waking up is nobody's work"),
        pytest.param(_times(0.0, 0.0, 0.0), 0.0, 0.0, id="no time passed"),
    ],
)
def test_what_others_took_of_the_server_s_core(after: CoreTimes, used: float, share: float) -> None:
    found = environment.foreign_share(_times(0.0, 0.0, 0.0), after, used, (1,))
    assert found == pytest.approx(share)


def test_readings_of_this_machine_only_grow() -> None:
    before, after = environment.core_times(), environment.core_times()
    assert after.taken > before.taken
    assert set(before.busy) == set(before.idle) == set(before.steal)
    assert all(after.busy[core] >= before.busy[core] for core in before.busy)


def test_bursts_that_were_thrown_away_are_a_footnote() -> None:
    repeated = records.sample(repeats=2, machine=Machine(0.4, 0.01, 0.0))
    calm = [one for number in range(6) for one in records.block(number, [1e-5, 1e-5], [2e-5, 2e-5])]
    [doubt] = checks.doubts([Seen([*calm, repeated], records.ENVIRONMENT)])
    assert doubt.startswith("2 bursts were thrown away and repeated because other programs")
    assert "(1 of 25 places in the plan)" in doubt


def test_a_publication_waits_for_a_calm_machine_and_then_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter([2.0, 1.0, 0.2])
    monkeypatch.setattr("os.getloadavg", lambda: (next(loads), 0.0, 0.0))
    monkeypatch.setattr(environment, "CALM_INTERVAL", 0.0)
    monkeypatch.setattr(environment, "load_at_start", [2.0, 2.0, 2.0])
    said: list[str] = []
    environment.await_calm(0.3, 60, said.append)
    assert len(said) == 2
    assert "load average 1.00, wanted 0.3" in said[-1]
    # What is measured now began on a calm machine, whatever was going on when the harness started.
    assert environment.load_at_start == [0.2, 0.0, 0.0]
    monkeypatch.setattr("os.getloadavg", lambda: (0.31, 0.0, 0.0))
    with pytest.raises(BenchError, match=r"the machine is busy \(load average 0\.31, more than 0\.3\): nothing was"):
        environment.await_calm(0.3, 0, said.append)
