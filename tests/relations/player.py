"""The application of a case: one call for each participant, which goes through its scenes.

This and what it imports knows nothing of the server: upstream serves it as well.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from tests.relations.case import WEBSOCKET, Case

VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("relations")

TOKEN = 4
"""Bytes of a request's body that are one message to its application."""


class Failure(Exception):
    """Raised by programs on purpose."""


class Task(asyncio.Task):  # type: ignore[type-arg]
    """A task of a class of the program's own."""


def describe(error: BaseException) -> Any:
    """Return the type of an exception, with what it says or holds."""
    inner: Sequence[BaseException] = getattr(error, "exceptions", ())
    if inner:
        return type(error).__name__, *sorted((describe(one) for one in inner), key=repr)
    own = isinstance(error, (Failure, RuntimeError))
    # Libraries say who has cancelled whom, with addresses.
    texts = [str(argument) for argument in error.args if own or str(argument).startswith("by ")]
    return type(error).__name__, *texts


def outcome(task: asyncio.Future[Any]) -> Any:
    """Return what came of a task or future."""
    if not task.done():
        return "pending"
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    return ("raised", describe(error)) if error is not None else ("returned", task.result())


def start(coroutine: Coroutine[Any, Any, Any], how: str) -> asyncio.Task[Any]:
    """Run a coroutine in a task that is made in this way."""
    loop = asyncio.get_running_loop()
    if how == "eager" and sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    if how == "subclass":
        return Task(coroutine, loop=loop)
    if how == "ensure":
        return asyncio.ensure_future(coroutine)
    return loop.create_task(coroutine)


def settle(future: asyncio.Future[Any], value: Any = None) -> None:
    """Give a future a result, unless it has one."""
    if not future.done():
        future.set_result(value)


async def turns(count: int) -> None:
    """Let the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


def uncancelled() -> int:
    """Take all requests to cancel the current task back; how many there were."""
    # Before 3.11 nobody counts.
    task: Any = asyncio.current_task()
    count = getattr(task, "cancelling", int)()
    for _ in range(count):
        task.uncancel()
    return int(count)


class Application:
    """The application of one run of a case."""

    def __init__(self, case: Case, scenes: dict[str, Any]) -> None:
        self.case = case
        self.scene_classes = scenes
        self.players: dict[int, Player] = {}
        self.states: dict[int, Any] = {}
        #: What participants came to, by their number and the place of the scene.
        self.notes: dict[tuple[int, int], Any] = {}
        self.faults: list[str] = []
        self.done: set[int] = set()
        #: What clients are asked to do: the number of a participant, and what.
        self.wishes: list[tuple[int, str]] = []
        #: Tasks that nobody waits for.
        self.tasks: set[asyncio.Task[Any]] = set()
        self.over = False

    def fault(self, text: str) -> None:
        """Note what must never be; not what comes of ending a run that is stuck."""
        if not self.over:
            self.faults.append(text)

    def leave(self, coroutine: Coroutine[Any, Any, Any], how: str = "plain") -> asyncio.Task[Any]:
        """Start a task that nobody waits for."""
        task = start(coroutine, how)
        self.tasks.add(task)
        task.add_done_callback(self._has_ended)
        return task

    def _has_ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fault(f"a task that nobody waits for raised {describe(error)}")

    def state(self, place: int) -> Any:
        """What the participants of a scene share."""
        if place not in self.states:
            scene = self.case.scenes[place]
            self.states[place] = self.scene_classes[scene.kind](self, place, scene)
        return self.states[place]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """One session or request."""
        number = int(scope["path"].removeprefix("/p"))
        if number in self.players:
            self.fault(f"participant {number} was called twice")
        player = self.players[number] = self.make_player(number, receive, send)
        return await player.run()

    def make_player(self, number: int, receive: Any, send: Any) -> Player:
        """What takes part."""
        return Player(self, number, receive, send)


class Player:
    """One participant."""

    def __init__(self, application: Application, number: int, receive: Any, send: Any) -> None:
        self.application = application
        self.number = number
        self.participant = application.case.participants[number]
        self.is_session = self.participant.kind == WEBSOCKET
        self.receive = receive
        self.send = send
        #: The client can be sent messages; it has gone.
        self.started = self.gone = False
        self.received = 0
        self._answers = False
        self._body, self._more = b"", True

    async def begin(self) -> None:
        """Note the task, and accept a session."""
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        VARIABLE.set(self.number)
        if self.is_session:
            await self.receive()
            await self.send({"type": "websocket.accept"})
        self.started = True

    async def run(self) -> None:
        """Go through the scenes."""
        application = self.application
        await self.begin()
        for place in application.case.scenes_of(self.number):
            await self.message(place)
            self.look(f"scene {place}")
            note = await application.state(place).join(self)
            self.look(f"scene {place}, after it")
            application.notes[self.number, place] = note
            await self.answer(f"<{self.number}.{place}>")
        try:
            await self.end()
        finally:
            application.done.add(self.number)

    def look(self, where: str) -> None:
        """Check that this is the task and the context of this participant."""
        if asyncio.current_task() is not self.task or VARIABLE.get(None) != self.number:
            self.application.fault(f"participant {self.number} is in another task or context: {where}")

    async def message(self, place: int) -> None:
        """Wait for the client's next message, if it is there."""
        if self.gone:
            return
        if self.is_session:
            message = await self.receive()
            self.gone = message["type"] != "websocket.receive"
            said = message.get("text")
        else:
            while len(self._body) < TOKEN and self._more and not self.gone:
                message = await self.receive()
                self.gone = message["type"] != "http.request"
                self._body += message.get("body", b"")
                self._more = message.get("more_body", False)
            said, self._body = self._body[:TOKEN].decode(), self._body[TOKEN:]
            # A client may give up in the middle of a body without a word.
            self.gone = self.gone or (not said and self.participant.leaves is not None)
        if not self.gone:
            self.received += 1
            if said != f"{place:03d};":
                self.application.fault(f"participant {self.number} received {said!r} at scene {place}")

    # Answering.

    async def answer(self, text: str) -> None:
        """Send something to the client, if it is there, in this participant's way."""
        if self.gone:
            return
        try:
            await SENDING[self.participant.reply](self, text)
        except (OSError, RuntimeError):
            if self.participant.leaves is None:
                raise
            self.gone = True

    async def deliver(self, text: str, last: bool = False) -> None:
        """Send it."""
        if self.is_session:
            await self.send({"type": "websocket.send", "text": text})
            return
        if not self._answers:
            self._answers = True
            await self.send({"type": "http.response.start", "status": 200, "headers": []})
        await self.send({"type": "http.response.body", "body": text.encode(), "more_body": not last})

    async def _answer_by_task(self, text: str) -> None:
        await start(self.deliver(text), "plain")

    async def _answer_eagerly(self, text: str) -> None:
        await start(self.deliver(text), "eager")

    async def _answer_shielded(self, text: str) -> None:
        await asyncio.shield(self.deliver(text))

    async def _answer_in_gather(self, text: str) -> None:
        await asyncio.gather(self.deliver(text), asyncio.sleep(0))

    async def _answer_soon(self, text: str) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.call_soon(lambda: start(self.deliver(text), "plain").add_done_callback(done.set_result))
        (await done).result()

    async def end(self) -> None:
        """Complete the answer, and end as this one does."""
        if not self.is_session and not self.gone:
            await self.deliver("", last=True)
        kind = self.participant.end
        if kind == "raise":
            raise Failure("end")
        if kind == "cancelled":
            raise asyncio.CancelledError
        if kind == "leave-child":
            self.application.leave(turns(3))


SENDING: dict[str, Any] = {
    "direct": Player.deliver,
    "task": Player._answer_by_task,
    "eager": Player._answer_eagerly,
    "shield": Player._answer_shielded,
    "gather": Player._answer_in_gather,
    "soon": Player._answer_soon,
}
