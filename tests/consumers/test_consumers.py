"""Programs that depend on the server, started as their users do, with upstream and with this one: nothing differs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.consumers.consumer import Consumer
from tests.consumers.environments import NotInstallable, pair
from tests.consumers.observe import Observation, differences, observe
from tests.consumers.programs import CONSUMERS
from tests.consumers.table import Row, exits, name_of, verdict


@pytest.mark.parametrize("consumer", [pytest.param(each, id=each.name) for each in CONSUMERS])
def test_same_behaviour(consumer: Consumer, report: Callable[[Row], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # nicegui looks for it
    try:
        environments = pair(consumer.group)
    except NotInstallable as why:
        pytest.skip(str(why))

    differing: list[str] = []
    reasons: dict[str, None] = {}
    seen: dict[str, tuple[Observation, Observation]] = {}
    for stop_by in consumer.signals:
        both = observe(consumer, environments.upstream, stop_by), observe(consumer, environments.ours, stop_by)
        seen[name_of(stop_by)] = both
        unexplained, explained = differences(consumer, *both)
        differing += [f"{name_of(stop_by)}: {line}" for line in unexplained]
        reasons |= dict.fromkeys(explained)

    report(
        Row(
            consumer=consumer.name,
            version=environments.version(consumer.package),
            command=f"`{' '.join(consumer.command)}`",
            upstream=exits({name: upstream.exit_status for name, (upstream, _) in seen.items()}),
            ours=exits({name: ours.exit_status for name, (_, ours) in seen.items()}),
            equal=verdict(differing, reasons),
        )
    )
    assert not differing, "\n".join(differing)
    stale = [known.reason for known in consumer.differences if known.reason not in reasons]
    assert not stale, "explained, but not seen any more"
