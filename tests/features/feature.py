"""A feature: its name, and the function that tries it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from tests.features.table import Finding, Row
from tests.features.trial import Trial

Observe = Callable[[Trial], Finding]


@dataclass(frozen=True)
class Feature:
    """`observe` starts the server and looks; its docstring says at what."""

    group: str
    name: str
    observe: Observe

    @property
    def row(self) -> Row:
        """What the page says of it besides the cells."""
        return Row(self.group, self.name, " ".join((inspect.getdoc(self.observe) or "").split()))


class Group(list[Feature]):
    """The features under one heading, in the order of their definition."""

    def __init__(self, title: str) -> None:
        self.title = title

    def feature(self, name: str) -> Callable[[Observe], Observe]:
        """A decorator that adds the feature that a function tries."""

        def add(observe: Observe) -> Observe:
            self.append(Feature(self.title, name, observe))
            return observe

        return add
