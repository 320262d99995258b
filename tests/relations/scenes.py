"""Scenes: interactions of some participants whose outcome asyncio determines, whatever the order of turns.

A waiter *announces* itself in the step in which it begins to wait. The actor waits for all announcements, then does
one thing. asyncio's contract says the rest: which futures and tasks are cancelled, and what each waiter gets. After
some turns of the loop the scene releases whoever still waits, so every scene ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.relations.case import LATE, Scene, Tree, leaves_of
from tests.relations.player import (
    VARIABLE,
    Application,
    Failure,
    Player,
    describe,
    outcome,
    settle,
    start,
    turns,
    uncancelled,
)

SETTLED = 40
"""Turns of the loop after which an action has come to whatever it comes to: more than a tree is high, by far."""

LARGE = b"x" * 65_536

MOST_SENDS = 400
"""More than fits between a server and a client that does not read."""

Note = Any


class Announcements:
    """Those who have said that they wait, in the step in which they begin to."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.count = 0
        self._told: list[Callable[[], Any]] = []

    @property
    def complete(self) -> bool:
        """Whether all have."""
        return self.count >= self.needed

    def add(self) -> None:
        """One more."""
        self.count += 1
        if self.count == self.needed:
            for tell in self._told:
                tell()

    def then(self, function: Callable[[], Any]) -> None:
        """Call it when they are complete, out of the step of the last one."""
        if self.complete:
            function()
        else:
            self._told.append(function)

    async def wait(self, how: str) -> None:
        """Wait for that, looking again and again or by a future."""
        if how == "poll":
            while not self.complete:
                await asyncio.sleep(0)
        elif not self.complete:
            complete = asyncio.get_running_loop().create_future()
            self.then(partial(settle, complete))
            await complete


class State:
    """What the participants of a scene share."""

    def __init__(self, application: Application, place: int, scene: Scene) -> None:
        self.application = application
        self.place = place
        self.scene = scene
        self.data = scene.data
        self.announcements = Announcements(0)
        self.players: dict[int, Player] = {}

    async def join(self, player: Player) -> Note:
        """Take part; what it came to."""
        index = self.scene.members.index(player.number)
        self.players[index] = player
        return await self.play(player, index)

    async def play(self, player: Player, index: int) -> Note:
        """What this one does."""
        raise NotImplementedError

    async def wait_and_act(self, how: str, act: Callable[[], None]) -> None:
        """Act when all have announced that they wait."""
        if how == "callback":
            # Out of a callback of the loop, which is nobody's task.
            loop = asyncio.get_running_loop()
            acted = loop.create_future()

            def callback() -> None:
                act()
                acted.set_result(None)

            self.announcements.then(partial(loop.call_soon, callback))
            await acted
        else:
            await self.announcements.wait("poll" if how == "poll" else "future")
            act()


async def settled(holds: Callable[[], bool]) -> bool:
    """Let the loop turn until something holds, or everything has come to whatever it comes to; whether it held."""
    for _ in range(SETTLED):
        if holds():
            return True
        await asyncio.sleep(0)
    return False


def seen_of(task: asyncio.Task[Any]) -> tuple[str, bool]:
    """What can be seen of what a task waits for: its kind, and whether it still asks to be waited for."""
    waits_for = getattr(task, "_fut_waiter", None)
    return type(waits_for).__name__, bool(getattr(waits_for, "_asyncio_future_blocking", False))


class Leaf:
    """Something pending that one coroutine waits for."""

    def __init__(self, wait: Wait, kind: str) -> None:
        self.wait = wait
        self.kind = kind
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.event = asyncio.Event()
        self.queue: asyncio.Queue[str] = asyncio.Queue()
        self.lock = asyncio.Lock()
        self.semaphore = asyncio.Semaphore(0)
        self.condition = asyncio.Condition()
        self.inside = self.released = False

    async def get(self) -> Any:
        """Wait for it."""
        kind = self.kind
        if kind == "future":
            return await self.future
        if kind == "event":
            return await self.event.wait()
        if kind == "queue":
            return await self.queue.get()
        if kind == "lock":
            async with self.lock:
                return "locked"
        if kind == "semaphore":
            async with self.semaphore:
                return "passed"
        if kind == "condition":
            async with self.condition:
                return await self.condition.wait_for(lambda: self.released)
        if self.released:
            return "nothing"
        player = self.wait.players[0]
        if kind == "send":
            return await self.send_until_released(player)
        message = await player.receive()
        if message["type"] == "websocket.disconnect":
            player.gone = True
        return message["type"]

    async def send_until_released(self, player: Player) -> str:
        """Send to a client that does not read, until that is waited for."""
        self.wait.application.wishes.append((player.number, "pause"))
        for _ in range(MOST_SENDS):
            await player.send({"type": "websocket.send", "bytes": LARGE})
            if self.released:
                return "sent"
        return str(await self.future)

    def release(self) -> None:
        """Let whoever waits go on."""
        if self.released:
            return
        self.released = True
        kind = self.kind
        if kind == "future" and not self.future.done():
            self.future.set_result("result")
        elif kind == "event":
            self.event.set()
        elif kind == "queue":
            self.queue.put_nowait("item")
        elif kind == "lock":
            self.lock.release()
        elif kind == "semaphore":
            self.semaphore.release()
        elif kind == "condition":
            self.wait.help(self._notify())
        elif kind == "receive" and self.inside:
            self.wait.ask_client()
        elif kind == "send":
            settle(self.future, "never waited")
            self.wait.application.wishes.append((self.wait.players[0].number, "resume"))

    async def _notify(self) -> None:
        async with self.condition:
            self.condition.notify_all()

    def fail(self) -> None:
        """Give whoever waits an exception, if that is possible."""
        if self.kind == "future" and not self.future.done():
            self.future.set_exception(Failure("leaf"))
        else:
            self.release()

    def cancel(self) -> None:
        """Cancel what is waited for, if that is possible."""
        if self.kind == "future":
            self.future.cancel()
        else:
            self.release()

    def left(self) -> Any:
        """What is left of it."""
        return {
            "future": self.future.cancelled(),
            "queue": self.queue.qsize(),
            "lock": self.lock.locked(),
            "semaphore": self.semaphore.locked(),
            "condition": self.condition.locked(),
        }.get(self.kind)


class Wait(State):
    """The first member waits for a tree; somebody acts on that."""

    def __init__(self, application: Application, place: int, scene: Scene) -> None:
        super().__init__(application, place, scene)
        self.kinds = [leaf[1] for leaf in leaves_of(self.data["tree"])]
        self.announcements = Announcements(len(self.kinds))
        self.leaves: dict[tuple[int, ...], Leaf] = {}
        self.tasks: dict[tuple[int, ...], asyncio.Task[Any]] = {}
        self.helpers: list[asyncio.Future[Any]] = []
        self.came: dict[tuple[int, ...], Any] = {}
        self.seen: list[Any] = []
        self.woken = False
        self.entered = self.left = 0

    @property
    def receives(self) -> bool:
        """Whether a leaf is the client's next message."""
        return "receive" in self.kinds

    @property
    def is_observable(self) -> bool:
        """Whether what the task waits for is the program's own, and not the server's."""
        return not {"receive", "send"} & {*self.kinds} and self.data["actor"] != "self"

    async def play(self, player: Player, index: int) -> Note:
        if index:
            await self.wait_and_act(self.data["actor_waits"], self.act)
            # The action may need the step of the one who waits.
            return "acted"
        await self.prepare()
        actor = self.data["actor"]
        loop = asyncio.get_running_loop()
        if actor in ("child", "eager-child"):
            how = self.data["actor_waits"]
            self.help(self.wait_and_act(how, self.act), "eager" if actor == "eager-child" else "plain")
        elif actor == "soon":
            loop.call_soon(self.act_soon)
        elif actor == "later":
            loop.call_later(0, self.act_soon)
        elif actor == "thread":
            self.helpers.append(loop.run_in_executor(None, loop.call_soon_threadsafe, self.act_soon))
        elif actor == "self":
            self.act()
        elif actor == "nobody":
            self.help(self.let_go(0.01))
        try:
            came = ("returned", await self.run(self.data["tree"], ()))
        except BaseException as error:
            came = ("raised", describe(error))
        self.woken = True
        cancelling = uncancelled()
        await self.clean_up()
        if self.entered != self.left:
            self.application.fault(f"scene {self.place}: {self.entered} coroutines were entered and {self.left} left")
        tasks = {path: outcome(task) for path, task in self.tasks.items()}
        leaves = {path: leaf.left() for path, leaf in self.leaves.items()}
        return came, cancelling, self.came, tasks, leaves, self.seen

    async def prepare(self) -> None:
        """Make what is waited for."""
        for path in paths_of_leaves(self.data["tree"], ()):
            kind = self.kinds[len(self.leaves)]
            # Whose client has gone would not wait.
            gone = kind in ("receive", "send") and self.players[0].gone
            leaf = self.leaves[path] = Leaf(self, "future" if gone else kind)
            if leaf.kind == "lock":
                await leaf.lock.acquire()

    async def clean_up(self) -> None:
        """Let everything end."""
        # `gather` ends with its first child that is cancelled, while others are still on their way out: a message that
        # the client is asked for then would be received by the next scene.
        await settled(lambda: not any(leaf.inside and leaf.kind == "receive" for leaf in self.leaves.values()))
        for leaf in self.leaves.values():
            leaf.release()
        while pending := [task for task in (*self.tasks.values(), *self.helpers) if not task.done()]:
            await asyncio.wait(pending)
        for helper in self.helpers:
            if not helper.cancelled() and (error := helper.exception()) is not None:
                self.application.fault(f"scene {self.place}: a helper raised {describe(error)}")

    def help(self, coroutine: Any, how: str = "plain") -> None:
        """Run something beside what is observed."""
        self.helpers.append(start(coroutine, how))

    # Acting.

    def act_soon(self) -> None:
        """Act as soon as all leaves are waited for; a callback of the loop."""
        if self.application.over:
            return
        if self.announcements.complete:
            self.act()
        else:
            asyncio.get_running_loop().call_soon(self.act_soon)

    def act(self) -> None:
        """Do the one thing, and see to it that the scene ends."""
        task = self.players[0].task
        if self.is_observable:
            self.seen.append(seen_of(task))
        kind, *arguments = self.data["action"]
        leaves = list(self.leaves.values())
        tasks = list(self.tasks.values())
        if kind == "cancel":
            for _ in range(arguments[0]):
                task.cancel(f"by scene {self.place}")
        elif kind == "cancel-task" and tasks:
            tasks[arguments[0] % len(tasks)].cancel()
        elif kind == "cancel-leaf":
            leaves[arguments[0] % len(leaves)].cancel()
        elif kind == "fail":
            leaves[arguments[0] % len(leaves)].fail()
        elif self.data["action"] == ("release", "apart"):
            self.help(self.release_apart())
        else:
            for leaf in leaves:
                leaf.release()
        # A cancellation reaches what is awaited before `cancel()` returns.
        if self.data["actor"] != "self":
            self.seen.append([leaf.future.cancelled() for leaf in leaves if leaf.kind == "future"])
        self.help(self.let_go(0))

    async def release_apart(self) -> None:
        """Release one leaf after the other."""
        for leaf in self.leaves.values():
            leaf.release()
            await asyncio.sleep(0)

    async def let_go(self, delay: float) -> None:
        """Release what is still waited for when the action has come to whatever it comes to."""
        await asyncio.sleep(delay)
        if not await settled(lambda: self.woken):
            for leaf in self.leaves.values():
                leaf.release()

    def ask_client(self) -> None:
        """Have the application receive something."""
        player = self.players[0]
        how = self.data.get("receives", "release")
        if how == "kick":
            self.help(player.send({"type": "websocket.close", "code": 1000}))
        else:
            self.application.wishes.append((player.number, "message" if how == "release" else how))

    # Trees.

    async def run(self, tree: Tree, path: tuple[int, ...]) -> Any:
        """Wait for a tree."""
        self.entered += 1
        try:
            if VARIABLE.get(None) != self.players[0].number:
                self.application.fault(f"scene {self.place}: a coroutine is in another context")
            name, *arguments = tree
            return await TREES[name](self, path, *arguments)
        finally:
            self.left += 1

    def fork(self, tree: Tree, path: tuple[int, ...], how: str) -> asyncio.Task[Any]:
        """Wait for a tree in a task."""
        # An eager one would look for itself before it is there.
        task = start(self.run(tree, path), how)
        self.tasks[path] = task
        return task

    async def on_leaf(self, path: tuple[int, ...], kind: str) -> Any:
        leaf = self.leaves[path]
        leaf.inside = True
        self.announcements.add()
        try:
            came = await leaf.get()
        except BaseException as error:
            self.came[path] = ("raised", describe(error))
            raise
        else:
            self.came[path] = ("returned", came)
            return came
        finally:
            leaf.inside = False

    async def on_coroutine(self, path: tuple[int, ...], tree: Tree) -> Any:
        return await self.run(tree, (*path, 0))

    async def on_task(self, path: tuple[int, ...], how: str, tree: Tree) -> Any:
        return await self.fork(tree, (*path, 0), how)

    async def on_same(self, path: tuple[int, ...], tree: Tree) -> Any:
        """Two tasks wait for one."""
        task = self.fork(tree, (*path, 0), "plain")

        async def wait() -> Any:
            return await task

        second = (*path, 1)
        other = self.tasks[second] = start(wait(), "plain")
        return await other

    async def on_shield(self, path: tuple[int, ...], tree: Tree) -> Any:
        return await asyncio.shield(self.fork(tree, (*path, 0), "plain"))

    async def on_timeout(self, path: tuple[int, ...], delay: float, tree: Tree) -> Any:
        if sys.version_info < (3, 11):
            return await self.on_wait_for(path, max(delay, 0), tree)
        async with asyncio.timeout(None if delay == LATE else delay) as scope:
            if delay == LATE:
                self.announcements.then(lambda: scope.reschedule(0))
            return await self.run(tree, (*path, 0))

    async def on_wait_for(self, path: tuple[int, ...], delay: float, tree: Tree) -> Any:
        return await asyncio.wait_for(self.run(tree, (*path, 0)), delay)

    async def on_gather(self, path: tuple[int, ...], how: str, *trees: Tree) -> Any:
        return await asyncio.gather(*(self.fork(tree, (*path, place), how) for place, tree in enumerate(trees)))

    async def on_group(self, path: tuple[int, ...], how: str, *trees: Tree) -> Any:
        if sys.version_info < (3, 11):
            return await self.on_gather(path, how, *trees)
        async with asyncio.TaskGroup() as group:
            for place, tree in enumerate(trees):
                inner = (*path, place)
                self.tasks[inner] = group.create_task(self.run(tree, inner))
        return "group"

    async def on_wait(self, path: tuple[int, ...], how: str, *trees: Tree) -> Any:
        tasks = [self.fork(tree, (*path, place), how) for place, tree in enumerate(trees)]
        await asyncio.wait(tasks)
        return [outcome(task) for task in tasks]

    async def on_stubborn(self, path: tuple[int, ...], how: str, tree: Tree) -> Any:
        try:
            return await self.run(tree, (*path, 0))
        except asyncio.CancelledError:
            if how == "swallow":
                return "swallowed"
            if how == "convert":
                raise Failure("converted") from None
            await asyncio.sleep(0)
            raise

    async def on_finally(self, path: tuple[int, ...], tree: Tree) -> Any:
        try:
            return await self.run(tree, (*path, 0))
        finally:
            await turns(2)

    async def on_anyio_scope(self, path: tuple[int, ...], delay: float | None, tree: Tree) -> Any:
        import anyio

        if self.application.case.factory == "eager":
            return await self.on_timeout(path, 3600 if delay is None else delay, tree)
        with anyio.fail_after(None if delay == LATE else delay) as scope:
            if delay == LATE:
                self.announcements.then(lambda: setattr(scope, "deadline", 0))
            return await self.run(tree, (*path, 0))

    async def on_anyio_group(self, path: tuple[int, ...], how: str, *trees: Tree) -> Any:
        import anyio

        # It is not made for tasks that begin at once.
        if self.application.case.factory == "eager":
            return await self.on_group(path, how, *trees)
        async with anyio.create_task_group() as group:
            for place, tree in enumerate(trees):
                group.start_soon(self.run, tree, (*path, place))
        return "group"


TREES: dict[str, Any] = {
    name[3:].replace("_", "-"): method for name, method in vars(Wait).items() if name.startswith("on_")
}


def paths_of_leaves(tree: Tree, path: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The places of the leaves, in their order."""
    if tree[0] == "leaf":
        return [path]
    parts = [part for part in tree[1:] if isinstance(part, tuple)]
    return [leaf for place, part in enumerate(parts) for leaf in paths_of_leaves(part, (*path, place))]


class Share(State):
    """Several wait for one future, task or computation, each in its own way; the last member acts on it."""

    def __init__(self, application: Application, place: int, scene: Scene) -> None:
        super().__init__(application, place, scene)
        loop = asyncio.get_running_loop()
        self.gate: asyncio.Future[Any] = loop.create_future()
        self.shared: asyncio.Future[Any] | None = None
        self.announcements = Announcements(len(scene.members) - 1 - len(self.data["late"]))
        self.seen: dict[int, Any] = {}

    def get(self) -> asyncio.Future[Any]:
        """What is shared: whoever comes first makes it."""
        if self.shared is None:
            is_future = self.data["what"] == "future"
            self.shared = self.gate if is_future else start(self.compute(), self.data["making"])
        return self.shared

    async def compute(self) -> Any:
        return await self.gate

    async def use(self, index: int) -> Any:
        """Wait for it."""
        shared = self.get()
        if index not in self.data["late"]:
            self.announcements.add()
        return await (asyncio.shield(shared) if self.data["what"] == "flight" else shared)

    async def chained(self, chain: list[str], index: int, tasks: list[asyncio.Task[Any]]) -> Any:
        """Wait for it by way of other things."""
        if not chain:
            return await self.use(index)
        name, *rest = chain
        inner = self.chained(rest, index, tasks)
        if name == "timeout" and sys.version_info >= (3, 11):
            async with asyncio.timeout(3600):
                return await inner
        if name in ("wait-for", "timeout"):
            return await asyncio.wait_for(inner, 3600)
        if name == "coroutine" or (name == "anyio-scope" and self.application.case.factory == "eager"):
            return await inner
        if name == "anyio-scope":
            import anyio

            with anyio.fail_after(None):
                return await inner
        task = start(inner, "eager" if name == "eager" else "plain")
        tasks.append(task)
        if name == "shield":
            return await asyncio.shield(task)
        if name == "gather":
            return (await asyncio.gather(task))[0]
        return await task

    async def play(self, player: Player, index: int) -> Note:
        if index == len(self.scene.members) - 1:
            await self.wait_and_act(self.data["actor_waits"], self.act)
            await turns(SETTLED)
            if not self.gate.done():
                self.gate.set_result("late")
            shared = self.get()
            await asyncio.wait([shared])
            return outcome(shared), self.seen
        tasks: list[asyncio.Task[Any]] = []
        try:
            came = ("returned", await self.chained(self.data["chains"][index], index, tasks))
        except BaseException as error:
            came = ("raised", describe(error))
        cancelling = uncancelled()
        if tasks:
            await asyncio.wait(tasks)
        return came, cancelling, [outcome(task) for task in tasks]

    def act(self) -> None:
        """Do something to what all wait for."""
        kind, index = self.data["action"]
        shared = self.get()
        for number, chain in enumerate(self.data["chains"]):
            # What tasks of programs wait for is theirs to see: libraries look there.
            if not [name for name in chain if name not in ("coroutine", "timeout")] and number not in self.data["late"]:
                task = self.players[number].task
                waits_for = getattr(task, "_fut_waiter", None)
                self.seen[number] = (waits_for is shared, *seen_of(task))
        if kind == "value":
            self.gate.set_result("value")
        elif kind == "fail":
            self.gate.set_exception(Failure("shared"))
        elif kind == "cancel":
            shared.cancel()
        else:
            # Of several who wait for a task the first gets the text of a cancellation, and who that is is open.
            self.players[index].task.cancel()
            # A task may not have begun yet: then it has nothing to cancel.
            self.seen[-1] = shared.cancelled() or getattr(shared, "cancelling", int)() > 0


class Crowd(State):
    """Several use a lock, a queue or the like; who comes first is open, that nobody is lost is not."""

    def __init__(self, application: Application, place: int, scene: Scene) -> None:
        super().__init__(application, place, scene)
        count = len(scene.members)
        self.lock = asyncio.Lock()
        self.semaphore = asyncio.Semaphore(2)
        self.queue: asyncio.Queue[tuple[int, int]] = asyncio.Queue(2)
        self.wide: asyncio.Queue[int] = asyncio.Queue()
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.condition = asyncio.Condition()
        self.event = asyncio.Event()
        self.barrier: Any = getattr(asyncio, "Barrier", lambda count: None)(count)
        self.announcements = Announcements(count - 1)
        self.inside = self.arrived = self.done = 0
        self.put: list[Any] = []
        self.got: list[Any] = []

    async def play(self, player: Player, index: int) -> Note:
        what = self.data["what"]
        if what.startswith("victims"):
            return await self.be_victim_or_hold(what.removeprefix("victims-"), index)
        for number in range(self.data["rounds"]):
            await ROUNDS[what](self, index, number)
        self.done += 1
        if self.done == len(self.scene.members):
            self.check()
        return "went through"

    def check(self) -> None:
        """Everything must be as it was."""
        # One of the waiters may still hold its future, which is done.
        if self.lock.locked() or self.condition.locked() or self.semaphore._value != 2 or self.inside:
            self.application.fault(f"scene {self.place}: something is still held")
        if sorted(self.put) != sorted(self.got) or self.queue.qsize():
            self.application.fault(f"scene {self.place}: {self.put} went into a queue, {self.got} came out")

    async def stay(self, most: int) -> None:
        """Be inside, where there is room for so many."""
        self.inside += 1
        if self.inside > most:
            self.application.fault(f"scene {self.place}: {self.inside} are inside, {most} may be")
        await turns(self.data["pause"])
        self.inside -= 1

    async def in_lock(self, index: int, number: int) -> None:
        async with self.lock:
            await self.stay(1)

    async def in_semaphore(self, index: int, number: int) -> None:
        async with self.semaphore:
            await self.stay(2)

    async def in_queue(self, index: int, number: int) -> None:
        count = len(self.scene.members)
        if index % 2:
            self.put.append((index, number))
            await self.queue.put((index, number))
            return
        # As many as come in a round, shared out among those who take.
        takers = range(0, count, 2)
        for place in range(len(range(1, count, 2))):
            if takers[place % len(takers)] == index:
                self.got.append(await self.queue.get())

    async def in_condition(self, index: int, number: int) -> None:
        async with self.condition:
            self.arrived += 1
            self.condition.notify_all()
            await self.condition.wait_for(lambda: self.arrived >= len(self.scene.members) * (number + 1))

    async def in_barrier(self, index: int, number: int) -> None:
        if self.barrier is None:
            await self.in_condition(index, number)
        else:
            await self.barrier.wait()

    async def in_event(self, index: int, number: int) -> None:
        self.arrived += 1
        if self.arrived >= len(self.scene.members):
            self.event.set()
        await self.event.wait()

    async def be_victim_or_hold(self, what: str, index: int) -> Note:
        """All wait, the last one cancels some and lets the others pass, all in one step."""
        count = len(self.scene.members)
        if index == count - 1:
            if what == "lock":
                await self.lock.acquire()
            elif what == "semaphore":
                await self.semaphore.acquire()
                await self.semaphore.acquire()
            self.ready.set_result(None)
            await self.announcements.wait("poll" if self.data["pause"] else "future")
            if what == "condition":
                await self.condition.acquire()
            steps: list[Callable[[], None]] = [self.cancel_victims, partial(self.let_pass, what)]
            for step in steps if self.data["rounds"] % 2 else reversed(steps):
                step()
            return "held"
        await asyncio.shield(self.ready)
        self.announcements.add()
        try:
            await PASSING[what](self)
        except asyncio.CancelledError as error:
            came: Any = describe(error)
        else:
            came = "passed"
        return came, uncancelled()

    def cancel_victims(self) -> None:
        for index in range(self.data["victims"]):
            self.players[index].task.cancel("by the holder")

    def let_pass(self, what: str) -> None:
        if what == "lock":
            self.lock.release()
        elif what == "semaphore":
            self.semaphore.release()
            self.semaphore.release()
        elif what == "queue":
            for number in range(len(self.scene.members) - 1 - self.data["victims"]):
                self.wide.put_nowait(number)
        else:
            self.condition.notify_all()
            self.condition.release()

    async def pass_lock(self) -> None:
        async with self.lock:
            await self.stay(1)

    async def pass_semaphore(self) -> None:
        async with self.semaphore:
            await self.stay(2)

    async def pass_queue(self) -> None:
        await self.wide.get()

    async def pass_condition(self) -> None:
        async with self.condition:
            await self.condition.wait()


ROUNDS: dict[str, Any] = {name[3:]: method for name, method in vars(Crowd).items() if name.startswith("in_")}
PASSING: dict[str, Any] = {name[5:]: method for name, method in vars(Crowd).items() if name.startswith("pass_")}


class Broadcast(State):
    """The last member sends on the others' `send`, and may close one of them."""

    def __init__(self, application: Application, place: int, scene: Scene) -> None:
        super().__init__(application, place, scene)
        self.announcements = Announcements(len(scene.members) - 1)
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def play(self, player: Player, index: int) -> Note:
        if index < len(self.scene.members) - 1:
            self.announcements.add()
            await asyncio.shield(self.over)
            return "was sent something"
        await self.announcements.wait("future")
        others = [self.players[number] for number in range(index)]
        if self.data["close"] and not others[0].gone:
            others[0].gone = True
            await others[0].send({"type": "websocket.close", "code": 1000})
        for other in others:
            await other.answer(f"<{other.number}.{self.place}b>")
        self.over.set_result(None)
        return "sent"


SCENES: dict[str, Any] = {"wait": Wait, "share": Share, "crowd": Crowd, "broadcast": Broadcast}
