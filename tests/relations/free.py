"""Programs that act on each other at any turn, and the invariants that hold in any order of turns.

All programs of a case share one pool of objects. When nothing moves any more, each waiter must have a reason to wait:
its message was not sent, its lock is held. Then the test releases and cancels everything, and every program must end.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from tests.relations.case import Case, Tree
from tests.relations.player import (
    VARIABLE,
    Application,
    Failure,
    Player,
    describe,
    settle,
    start,
    turns,
    uncancelled,
)

MAKING = ("plain", "eager", "ensure", "subclass")

EXPECTED = (Failure, asyncio.CancelledError, asyncio.TimeoutError, TimeoutError)
"""What programs do to each other comes as one of these, and what a group makes of several."""


class Pool:
    """What the programs of a case share."""

    def __init__(self) -> None:
        self.futures: dict[int, asyncio.Future[Any]] = {}
        self.values: dict[asyncio.Future[Any], Any] = {}
        self.flights: dict[int, asyncio.Task[Any]] = {}
        self.children: list[asyncio.Task[Any]] = []
        #: What a task waits for, from the step in which it begins to.
        self.awaited: dict[asyncio.Task[Any], asyncio.Future[Any]] = {}
        #: How often tasks were asked to be cancelled.
        self.cancelled: Counter[asyncio.Task[Any]] = Counter()
        self.locks = [asyncio.Lock(), asyncio.Lock()]
        self.semaphores = [asyncio.Semaphore(1), asyncio.Semaphore(2)]
        self.inside: Counter[Any] = Counter()
        self.waiting: Counter[Any] = Counter()
        self.queue: asyncio.Queue[int] = asyncio.Queue()
        self.condition = asyncio.Condition()
        self.event = asyncio.Event()
        self.put: list[int] = []
        self.got: list[int] = []
        self.count = self.entered = self.left = 0

    def next(self) -> int:
        """A number that comes once."""
        self.count += 1
        return self.count

    def future(self, number: int) -> asyncio.Future[Any]:
        """One that is pending, known by a number."""
        future = self.futures.get(number % 4)
        if future is None or future.done():
            future = self.futures[number % 4] = asyncio.get_running_loop().create_future()
        return future

    def set(self, number: int) -> None:
        """Give it a result."""
        future = self.future(number)
        value = self.values[future] = self.next()
        future.set_result(value)


class FreeApplication(Application):
    """The application of one run of a case of free programs."""

    def __init__(self, case: Case) -> None:
        super().__init__(case, {})
        self.pool = Pool()
        self.sweeping = False
        #: Steps that were taken: nothing happens where this does not grow.
        self.steps = 0

    def make_player(self, number: int, receive: Any, send: Any) -> FreePlayer:
        return FreePlayer(self, number, receive, send)

    # The end.

    def sweep(self, sent: dict[int, int]) -> None:
        """Check that each waiter has a reason to wait; then release and cancel everything.

        Args:
            sent: messages that the client of each participant has sent.
        """
        pool = self.pool
        if not self.sweeping:
            self._look_for_lost(sent)
        self.sweeping = True
        for number in range(4):
            pool.set(number)
        pool.event.set()
        for task in [*pool.children, *pool.flights.values()]:
            task.cancel()
        for player in self.players.values():
            if player.number not in self.done and isinstance(player, FreePlayer) and player.alive:
                player.task.cancel()

    def _look_for_lost(self, sent: dict[int, int]) -> None:
        pool = self.pool
        for player in self.players.values():
            waits = isinstance(player, FreePlayer) and player.alive and not player.gone and player.waits
            if waits and player.received < sent.get(player.number, 0):
                self.fault(f"participant {player.number} received {player.received} of {sent[player.number]} messages")
        for task, awaited in pool.awaited.items():
            if awaited.done() and not task.done():
                self.fault(f"{task!r} waits for {awaited!r}")
        for lock in pool.locks:
            if pool.waiting[lock] and not lock.locked():
                self.fault("somebody waits for a lock that nobody holds")
        for semaphore in pool.semaphores:
            if pool.waiting[semaphore] and not semaphore.locked():
                self.fault("somebody waits for a semaphore that has room")
        if pool.waiting[pool.queue] and pool.queue.qsize():
            self.fault("somebody waits for a queue that is not empty")
        if pool.waiting[pool.event] and pool.event.is_set():
            self.fault("somebody waits for an event that is set")

    def finish(self) -> None:
        """Look whether everything is as it must be when all have ended."""
        pool = self.pool
        if pool.entered != pool.left:
            self.fault(f"{pool.entered} steps were begun and {pool.left} ended")
        if any(lock.locked() for lock in pool.locks) or pool.condition.locked():
            self.fault("a lock is still held")
        if [semaphore._value for semaphore in pool.semaphores] != [1, 2]:
            self.fault("a semaphore is still held")
        left = [pool.queue.get_nowait() for _ in range(pool.queue.qsize())]
        if sorted(pool.put) != sorted([*pool.got, *left]):
            self.fault(f"{pool.put} went into the queue, {pool.got} came out, {left} are left")
        if any(not task.done() for task in [*pool.children, *pool.flights.values()]):
            self.fault("a child is still there")

    def check_answers(self, number: int, answers: list[str]) -> None:
        """Look whether a client was sent what its application, and others, have sent: no more, no less, and once."""
        player = self.players.get(number)
        if not isinstance(player, FreePlayer):
            return
        got = {*answers}
        if len(got) < len(answers):
            self.faults.append(f"client of {number} was sent something twice: {answers}")
        if not got <= player.attempted:
            self.faults.append(f"client of {number} was sent what nobody has sent: {sorted(got - player.attempted)}")
        if not player.gone and player.participant.leaves is None and not player.succeeded <= got:
            self.faults.append(f"client of {number} was not sent {sorted(player.succeeded - got)}")


class FreePlayer(Player):
    """One participant."""

    def __init__(self, application: FreeApplication, number: int, receive: Any, send: Any) -> None:
        super().__init__(application, number, receive, send)
        self.free = application
        self.pool = application.pool
        self.places = application.case.scenes_of(number)
        #: It can be cancelled; it waits for its client.
        self.alive = self.waits = False
        self.attempted: set[str] = set()
        self.succeeded: set[str] = set()

    async def run(self) -> None:
        """Do what each message asks for."""
        application = self.free
        await self.begin()
        self.alive = True
        for place in self.places:
            await self.next_message(place)
            scene = application.case.scenes[place]
            for step in scene.data["programs"][scene.members.index(self.number)]:
                await self.try_to(self.do(step, 0))
            label = f"{place}"
            await self.try_to(self.say(self, label))
            self.look(f"scene {place}")
        # What a child has not taken is left for this.
        while self.received < len(self.places) and not self.gone and not application.sweeping:
            await self.next_message(None)
        self.alive = False
        uncancelled()
        try:
            if not self.is_session and not self.gone:
                await self.deliver("", last=True)
        finally:
            application.done.add(self.number)

    async def next_message(self, place: int | None) -> None:
        """Wait for the client, however often that is cancelled; a child may have been quicker."""
        while self.received < len(self.places) and not self.gone and not self.free.sweeping:
            self.waits = True
            try:
                await self.take_message()
            except asyncio.CancelledError:
                uncancelled()
            else:
                return
            finally:
                self.waits = False

    async def take_message(self) -> None:
        """Receive one."""
        expected = TOKEN_OF(self.places, self.received)
        if self.is_session:
            message = await self.receive()
            if message["type"] != "websocket.receive":
                self.gone = True
                return
            said, expected = message["text"], TOKEN_OF(self.places, self.received)
        else:
            while len(self._body) < 4 and self._more and not self.gone:
                message = await self.receive()
                self.gone = message["type"] != "http.request"
                self._body += message.get("body", b"")
                self._more = message.get("more_body", False)
            said, self._body = self._body[:4].decode(), self._body[4:]
            if self.gone or not said:
                self.gone = True
                return
        self.received += 1
        self.free.steps += 1
        if said != expected:
            self.free.fault(f"participant {self.number} received {said!r}, not {expected!r}")

    async def try_to(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Do something that others may spoil."""
        try:
            await coroutine
        except BaseException as error:
            self.judge(error)
        uncancelled()
        self.free.steps += 1

    def judge(self, error: BaseException) -> None:
        """Check that an exception is one that programs can bring about."""
        inner = getattr(error, "exceptions", None)
        if inner:
            for one in inner:
                self.judge(one)
        elif not isinstance(error, EXPECTED):
            self.free.fault(f"participant {self.number} got {describe(error)} {error}")

    async def say(self, player: FreePlayer, label: str) -> None:
        """Send something to the client of a participant."""
        if player.gone or not player.started:
            return
        player.attempted.add(label)
        try:
            await player.deliver(f"<{player.number}.{label}>")
        except (OSError, RuntimeError):
            # Its client has gone, or somebody has closed it.
            if player.participant.leaves is None and not player.gone and player.alive:
                raise
        else:
            player.succeeded.add(label)

    # Steps.

    async def do(self, step: Tree, depth: int) -> Any:
        """Take a step."""
        name, number, *inner = step
        pool = self.pool
        if self.free.sweeping or self.free.over:
            return None
        pool.entered += 1
        try:
            if VARIABLE.get(None) != self.number:
                self.free.fault(f"participant {self.number} is in another context at {name}")
            return await STEPS[name](self, number, depth, *inner)
        finally:
            pool.left += 1
            self.free.steps += 1

    def fork(self, coroutine: Coroutine[Any, Any, Any], number: int) -> asyncio.Task[Any]:
        """Start a child."""
        task = start(coroutine, MAKING[number % len(MAKING)])
        self.pool.children.append(task)
        # Whoever waited for it may be gone by then.
        task.add_done_callback(self.retrieve)
        return task

    def retrieve(self, task: asyncio.Task[Any]) -> None:
        """Look what came of a child that perhaps nobody waits for."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.judge(error)

    async def wait_for(self, awaited: asyncio.Future[Any]) -> Any:
        """Wait for a future or task, so that others see it."""
        task = asyncio.current_task()
        assert task is not None
        before = self.pool.cancelled[task]
        self.pool.awaited[task] = awaited
        try:
            return await awaited
        except asyncio.CancelledError:
            # Who is in no group or timeout is cancelled by those who say so.
            ours = task is self.task and not self.nested and not self.free.sweeping
            if ours and not awaited.cancelled() and self.pool.cancelled[task] == before:
                self.free.fault(f"participant {self.number} was cancelled by nobody")
            raise
        finally:
            self.pool.awaited.pop(task, None)

    nested = 0

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task: that reaches what it awaits before this returns."""
        awaited = self.pool.awaited.get(task)
        was_done = task.done() or awaited is None or awaited.done()
        # Those of Python have no class in common with those of C.
        count = getattr(awaited, "cancelling", None)
        before = count() if count else 0
        self.pool.cancelled[task] += 1
        taken = task.cancel()
        if was_done or not taken or awaited is None:
            return
        # Before 3.11 a task does not say.
        if not (count() > before if count else awaited.cancelled() or hasattr(awaited, "get_coro")):
            self.free.fault(f"the cancellation of {task!r} did not reach {awaited!r}")

    # What is done in one step.

    async def on_set(self, number: int, depth: int) -> None:
        if number % 5 == 4:
            if number % 2:
                self.pool.event.set()
            else:
                self.pool.event.clear()
        else:
            self.pool.set(number)

    async def on_fail(self, number: int, depth: int) -> None:
        future = self.pool.future(number)
        future.set_exception(Failure("future"))
        future.exception()

    async def on_put(self, number: int, depth: int) -> None:
        item = self.pool.next()
        self.pool.put.append(item)
        self.pool.queue.put_nowait(item)

    async def on_notify(self, number: int, depth: int) -> None:
        async with self.pool.condition:
            self.pool.condition.notify(number % 3 + 1)

    async def on_cancel(self, number: int, depth: int) -> None:
        players = [player for player in self.free.players.values() if isinstance(player, FreePlayer) and player.alive]
        player = players[number % len(players)] if players else self
        if player.alive and player.task is not asyncio.current_task():
            self.cancel(player.task)

    async def on_cancel_task(self, number: int, depth: int) -> None:
        children = [task for task in self.pool.children if not task.done() and task is not asyncio.current_task()]
        if children:
            self.cancel(children[number % len(children)])

    async def on_cancel_self(self, number: int, depth: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.pool.cancelled[task] += 1
        task.cancel()
        future = asyncio.get_running_loop().create_future()
        try:
            await future
        finally:
            if not future.cancelled():
                self.free.fault(f"participant {self.number} cancelled itself, and what it awaited was not")

    async def on_other_send(self, number: int, depth: int) -> None:
        sessions = [player for player in self.free.players.values() if isinstance(player, FreePlayer)]
        sessions = [player for player in sessions if player.is_session and player.alive and not player.gone]
        if sessions:
            await self.say(sessions[number % len(sessions)], f"{1000 + self.pool.next()}b")

    async def on_kick(self, number: int, depth: int) -> None:
        sessions = [player for player in self.free.players.values() if isinstance(player, FreePlayer)]
        sessions = [player for player in sessions if player.is_session and player.alive and not player.gone]
        if sessions:
            player = sessions[number % len(sessions)]
            player.gone = True
            try:
                await player.send({"type": "websocket.close", "code": 1000})
            except OSError:
                if player.participant.leaves is None:
                    raise

    async def on_variable(self, number: int, depth: int) -> None:
        async def child() -> None:
            assert VARIABLE.get() == self.number
            VARIABLE.set(-1)

        await self.wait_for(self.fork(child(), number))

    # What waits.

    async def on_future(self, number: int, depth: int) -> None:
        future = self.pool.future(number)
        value = await self.wait_for(future)
        if value != self.pool.values.get(future):
            self.free.fault(
                f"participant {self.number} got {value!r} from a future with {self.pool.values.get(future)!r}"
            )

    async def on_soon(self, number: int, depth: int) -> None:
        loop = asyncio.get_running_loop()
        future, value = loop.create_future(), self.pool.next()
        loop.call_soon(settle, future, value)
        if await self.wait_for(future) != value:
            self.free.fault(f"participant {self.number} got another result")

    async def on_task(self, number: int, depth: int, step: Tree) -> Any:
        return await self.wait_for(self.fork(self.do(step, depth + 1), number))

    async def on_flight(self, number: int, depth: int) -> None:
        """Share a computation. A cancellation leaves it running if it is shielded."""
        pool = self.pool
        flight = pool.flights.get(number % 2)
        if flight is None or flight.done():
            flight = start(self.compute(number), MAKING[number % len(MAKING)])
            flight.add_done_callback(self.retrieve)
            pool.flights[number % 2] = flight
        value = await (asyncio.shield(flight) if number % 3 else self.wait_for(flight))
        if value != flight.result():
            self.free.fault(f"participant {self.number} got {value!r} from another flight")

    async def compute(self, number: int) -> int:
        future = self.pool.future(number)
        value: int = await self.wait_for(future)
        return value

    async def on_lock(self, number: int, depth: int, step: Tree) -> None:
        await self.hold(self.pool.locks[number % 2], 1, step, depth)

    async def on_semaphore(self, number: int, depth: int, step: Tree) -> None:
        await self.hold(self.pool.semaphores[number % 2], number % 2 + 1, step, depth)

    async def hold(self, lock: Any, most: int, step: Tree, depth: int) -> None:
        """Take a step inside, where there is room for so many."""
        pool = self.pool
        pool.waiting[lock] += 1
        try:
            await lock.acquire()
        finally:
            pool.waiting[lock] -= 1
        try:
            pool.inside[lock] += 1
            if pool.inside[lock] > most:
                self.free.fault(f"{pool.inside[lock]} are inside, where {most} may be")
            # Locks in locks are how programs get stuck.
            await self.do(step if step[0] not in ("lock", "semaphore") else ("sleep", 3), depth + 1)
        finally:
            pool.inside[lock] -= 1
            lock.release()

    async def on_queue(self, number: int, depth: int) -> None:
        self.pool.waiting[self.pool.queue] += 1
        try:
            item = await self.pool.queue.get()
        finally:
            self.pool.waiting[self.pool.queue] -= 1
        self.pool.got.append(item)

    async def on_condition(self, number: int, depth: int) -> None:
        async with self.pool.condition:
            await self.pool.condition.wait()

    async def on_event(self, number: int, depth: int) -> None:
        self.pool.waiting[self.pool.event] += 1
        try:
            await self.pool.event.wait()
        finally:
            self.pool.waiting[self.pool.event] -= 1

    async def on_sleep(self, number: int, depth: int) -> None:
        await turns(number % 4)

    async def on_gather(self, number: int, depth: int, *steps: Tree) -> None:
        await asyncio.gather(*(self.fork(self.do(step, depth + 1), number + place) for place, step in enumerate(steps)))

    async def on_group(self, number: int, depth: int, *steps: Tree) -> None:
        if sys.version_info < (3, 11):
            return await self.on_gather(number, depth, *steps)
        self.nested += 1
        try:
            async with asyncio.TaskGroup() as group:
                for step in steps:
                    self.pool.children.append(group.create_task(self.do(step, depth + 1)))
        finally:
            self.nested -= 1

    async def on_shield(self, number: int, depth: int, step: Tree) -> None:
        await asyncio.shield(self.fork(self.do(step, depth + 1), number))

    async def on_timeout(self, number: int, depth: int, step: Tree) -> None:
        if sys.version_info < (3, 11):
            return await self.on_wait_for(number, depth, step)
        self.nested += 1
        try:
            async with asyncio.timeout(3600 if number % 2 else 0):
                await self.do(step, depth + 1)
        finally:
            self.nested -= 1

    async def on_wait_for(self, number: int, depth: int, step: Tree) -> None:
        self.nested += 1
        try:
            await asyncio.wait_for(self.do(step, depth + 1), 3600 if number % 2 else 0)
        finally:
            self.nested -= 1

    async def on_nested_receive(self, number: int, depth: int) -> None:
        """A child takes the next message."""
        if self.is_session and self.received < len(self.places) and not self.gone:
            await self.wait_for(self.fork(self.take_message(), number))

    async def on_given_up_receive(self, number: int, depth: int) -> None:
        """A child waits for the next message, for a while."""
        if self.is_session and self.received < len(self.places) and not self.gone:
            task = self.fork(self.take_message(), number)
            await turns(number % 5)
            self.cancel(task)
            await self.wait_for(task)


def TOKEN_OF(places: list[int], received: int) -> str:
    """The message that comes behind so many."""
    return f"{places[received]:03d};" if received < len(places) else "nothing"


STEPS: dict[str, Any] = {
    name[3:].replace("_", "-"): method for name, method in vars(FreePlayer).items() if name.startswith("on_")
}
