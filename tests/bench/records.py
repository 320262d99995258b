"""Recorded values for replay: samples with known figures, without any server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.model import Burst, Latency, Load, Machine, Memory, ProcessUse, Result, Sample, Usage

ENVIRONMENT: dict[str, Any] = {
    "cpu": "A CPU",
    "cores": 8,
    "kernel": "6.1",
    "system": "Linux",
    "architecture": "x86_64",
    "memory_mib": 16000,
    "governor": "performance",
    "virtual": False,
    "pinning": "server on 1 core, client on 7 cores",
    "load_average": [0.1, 0.1, 0.1],
    "commit": "0123456789ab",
    "targets": {
        "ours": {"python": "3.13.1", "versions": {"uvloop": "0.22"}, "optimised": True},
        "upstream": {"python": "3.13.1", "versions": {"uvicorn": "0.54.0"}, "optimised": True},
    },
}


def latency(p50: float) -> Latency:
    return Latency(p50, p50, p50 * 1.5, p50 * 2, p50 * 2.5, p50 * 4, p50 * 8, p50 * 10)


def sample(
    target: str = "ours", side: str = "A", *, cpu: float = 10e-6, block: int = 0, slot: int = 0, **more: Any
) -> Sample:
    """A burst of 100,000 requests in 2 s at `cpu` seconds of CPU each, with p50 fifty times that."""
    requests = 100_000
    values: dict[str, Any] = {
        "workload": "hello",
        "mode": "single",
        "load": Load("wrk", 50, 1, 2.0),
        "started": 1.0,
        "burst": Burst(requests, 2.0, {}, latency(cpu * 50)),
        "usage": Usage(cpu * requests * 0.75, cpu * requests * 0.25, 10, 5, (ProcessUse("python", cpu * requests, 2),)),
        "memory": Memory(*([30 * 2**20] * 6)),
        "machine": Machine(0.4, 0.0, 0.0),
    }
    return Sample(target=target, side=side, block=block, slot=slot, **{**values, **more})


def block(
    number: int, first: Sequence[float], second: Sequence[float], order: str = "ABBA", **more: Any
) -> list[Sample]:
    """One block: CPU seconds per request of the bursts of A and of B, in the order they came."""
    values = {"A": iter(first), "B": iter(second)}
    names = {"A": "ours", "B": "upstream"}
    return [
        sample(names[side], side, cpu=next(values[side]), block=number, slot=slot, **more)
        for slot, side in enumerate(order)
    ]


def result(kind: str, samples: Sequence[Sample] = (), **data: Any) -> Result:
    return Result(kind, "2026-01-02T03:04:05Z", ENVIRONMENT, tuple(samples), data)
