"""Random programs that interact: asyncio's contract must hold between the sessions and requests of one server.

A case is data made from a seed. Its participants are WebSocket sessions and HTTP requests, on several connections and
protocols at once. They share futures, tasks, locks, queues and conditions, and cancel and close each other. There are
two forms of cases:

- *Scenes* have outcomes that asyncio determines, whatever the order of turns: a waiter announces itself in the step in
  which it begins to wait, and the actor acts after all announcements. Every participant plays its scenes in the same
  order, so no scene waits for a later one. The test compares each outcome with servers that take no shortcuts, and with
  upstream if `UPSTREAM_PYTHON` names a Python that has it.
- *Free* programs act at any turn. The test checks invariants: no unexpected exception or result, no lost message or
  wake-up, every cancellation reaches the awaited object, locks and queues balance, every program ends.

``python -m tests.relations`` runs cases for some seconds; ``--seed`` repeats one.
"""
