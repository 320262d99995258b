"""Compare what implementations made of a case, and reduce one that shows a difference."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields
from itertools import zip_longest

from tests.differential.case import Case
from tests.differential.player import Notes
from tests.differential.runner import IMPLEMENTATIONS, Outcome, run
from tests.random_cases import shrink


def difference(case: Case, *, look_for_leaks: bool = False) -> list[str] | None:
    """Return what is wrong with the outcome of a case, on any implementation or between them; `None` if nothing is."""
    outcomes = {name: run(case, name, look_for_leaks=look_for_leaks) for name in IMPLEMENTATIONS}
    found = [f"{name}: {fault}" for name, outcome in outcomes.items() for fault in outcome.faults]
    first, *others = outcomes
    for other in others:
        found += [f"{first}, {other}: {text}" for text in compare(case, outcomes[first], outcomes[other])]
    return found or None


def compare(case: Case, one: Outcome, other: Outcome) -> Iterator[str]:
    """Say where two outcomes differ.

    Whether the requests behind the one in hand are served when their client is gone is for the event loop to say.
    """
    dropped = {number for number, client in enumerate(case.clients) if client.end == "drop"}
    uncertain = (
        {request.ident for number in dropped for request in case.clients[number].requests[1:]} | {"?"}
        if dropped
        else set()
    )
    for number, (left, right) in enumerate(zip_longest(one.wire, other.wire)):
        if left != right:
            yield f"client {number} was sent\n    {short(left)}\n    {short(right)}"
    for ident in sorted({*one.seen, *other.seen}):
        left, right = one.seen.get(ident, []), other.seen.get(ident, [])
        if ident not in uncertain or len(left) == len(right):
            yield from compare_calls(ident, left, right)
    if one.log != other.log and not dropped:
        yield f"the log says\n    {short(one.log)}\n    {short(other.log)}"


def compare_calls(ident: str, one: list[Notes], other: list[Notes]) -> Iterator[str]:
    """Say what an application saw on one implementation and not on the other."""
    if len(one) != len(other):
        yield f"{ident} was called {len(one)} times and {len(other)} times"
    for left, right in zip(one, other, strict=False):
        for place in sorted({*left, *right}):
            if left.get(place) != right.get(place):
                yield f"{ident} saw at {place}\n    {short(left.get(place))}\n    {short(right.get(place))}"


def short(value: object) -> str:
    """Return a text that can be read."""
    text = repr(value)
    return text if len(text) <= 1200 else f"{text[:700]} ... {text[-400:]}"


def kinds(found: list[str]) -> set[str]:
    """What sort of faults these are, so that reducing a case does not go astray."""
    return {line.split("\n")[0].partition(" at ")[0].rstrip("0123456789") for line in found}


def smaller(case: Case, found: list[str]) -> tuple[Case, list[str]]:
    """Return a smaller case that shows a fault as well, and what it shows."""
    return shrink(case, found, reductions, difference, kinds)


def reductions(case: Case) -> Iterator[Case]:
    """Give cases that are smaller by one thing."""
    if len(case.clients) > 1:
        for number in range(len(case.clients)):
            smaller = copy.deepcopy(case)
            del smaller.clients[number]
            yield smaller
    if case.together > 1:
        yield replaced(case, together=1)
    for name in case.settings:
        yield replaced(case, settings={key: value for key, value in case.settings.items() if key != name})
    if case.eager != 32:
        yield replaced(case, eager=32)
    for number, client in enumerate(case.clients):
        for place in range(len(client.requests)):
            if len(client.requests) > 1:
                smaller = copy.deepcopy(case)
                del smaller.clients[number].requests[place]
                yield smaller
        for attribute, value in (("cuts", []), ("end", "open"), ("end", "half-close"), ("pause", None)):
            if getattr(client, attribute) not in (value, "open"):
                smaller = copy.deepcopy(case)
                setattr(smaller.clients[number], attribute, value)
                yield smaller
        for cut in range(len(client.cuts)):
            smaller = copy.deepcopy(case)
            del smaller.clients[number].cuts[cut]
            yield smaller
        for place, request in enumerate(client.requests):
            for operation in range(len(request.operations)):
                smaller = copy.deepcopy(case)
                del smaller.clients[number].requests[place].operations[operation]
                yield smaller
            lines = request.data.split(b"\r\n")
            for line in range(1, len(lines)):
                if lines[line] and not lines[line].lower().startswith(b"host"):
                    smaller = copy.deepcopy(case)
                    smaller.clients[number].requests[place].data = b"\r\n".join(lines[:line] + lines[line + 1 :])
                    yield smaller


def replaced(case: Case, **changes: object) -> Case:
    """Return a copy with other attributes."""
    smaller = copy.deepcopy(case)
    for name, value in changes.items():
        setattr(smaller, name, value)
    return smaller


def report(case: Case, found: list[str]) -> str:
    """Return what there is to know about a case that has shown a fault."""
    lines = [f"seed {case.seed}, again with: python -m tests.differential --seed {case.seed}"]
    for part in fields(case):
        if part.name not in ("seed", "clients"):
            lines.append(f"  {part.name}: {getattr(case, part.name)!r}")
    for number, client in enumerate(case.clients):
        lines.append(f"  client {number}: cuts {short(client.cuts)}, end {client.end}, pause {client.pause}")
        for request in client.requests:
            lines.append(f"    {request.ident} {request.secret} stubborn={request.stubborn} {short(request.data)}")
            lines += [f"      {operation!r}" for operation in request.operations]
    return "\n".join([*lines, *found])
