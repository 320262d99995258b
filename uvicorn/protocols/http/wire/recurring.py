"""Conclusions from bytes that were met before, word for word, so that they need not be drawn again.

A client on a kept connection, a load balancer, a service calling another: they send the same fields with every request,
and ask for few targets many times. What the server concludes from such a piece of a head depends on nothing but its
bytes and on settings that do not change.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")

_MET_ONCE = 1024


class Recurring(Generic[Value]):
    """A bounded store of values under the bytes they were concluded from; belongs to one event loop.

    A value is kept when its bytes come a second time, so those which differ every time push nothing out. The oldest
    makes room. `get` is that of the dictionary, for speed.

    Args:
        capacity: values kept at most.
        longest: bytes a key may have; longer ones mostly carry something that changes.
    """

    __slots__ = ("get", "_capacity", "_longest", "_known", "_met_once")

    def __init__(self, capacity: int, longest: int) -> None:
        self._capacity = capacity
        self._longest = longest
        self._known: dict[bytes, Value] = {}
        self._met_once: set[int] = set()
        self.get = self._known.get

    def __len__(self) -> int:
        return len(self._known)

    def recurs(self, key: bytes) -> bool:
        """Note a key; returns whether it came before and its value is worth keeping."""
        if len(key) > self._longest:
            return False
        # The hash of bytes is keyed with a secret of the process, so collisions cannot be forced; and one would do no
        # harm, for values are found by their bytes.
        met = hash(key)
        if met in self._met_once:
            self._met_once.discard(met)
            return key not in self._known
        if len(self._met_once) >= _MET_ONCE:
            self._met_once.clear()
        self._met_once.add(met)
        return False

    def keep(self, key: bytes, value: Value) -> None:
        """Keep the value of a key that recurs; the value must not be changed afterwards."""
        if len(self._known) >= self._capacity:
            del self._known[next(iter(self._known))]
        self._known[key] = value
