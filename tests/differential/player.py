"""The application of a case: does the operations of each request, and notes what comes of them.

What is noted are values, never the objects themselves: an object that changes later must not change what was seen.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import re
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.differential.case import Case, Operation, Request

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("differential")

TURNS_OF_PATIENCE = 3
"""Turns of the event loop after which an operation that would wait for ever gives up."""

_IDENT = re.compile(rb"/r([0-9]+-[0-9]+)").search


Notes = dict[tuple[int, ...], Any]
"""What each operation came to, by its place; operations of operations have longer ones."""


class Subclass(bytes):
    """Bytes that say something else about themselves."""

    def __len__(self) -> int:
        return 1


class Raised(Exception):
    """Raised by code of the application that the server calls."""


def freeze(value: Any) -> Any:
    """Return the value of plain data, with its types, in a form that nobody can change."""
    kind = type(value).__name__
    if isinstance(value, dict):
        # In which order a dict was filled means nothing.
        return kind, tuple(sorted(((freeze(key), freeze(item)) for key, item in value.items()), key=repr))
    if isinstance(value, (list, tuple)):
        return kind, tuple(freeze(item) for item in value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return kind, bytes(value)
    if value is None or isinstance(value, (str, int, float)):
        return kind, value
    return (kind,)


def describe(error: BaseException) -> tuple[str, str]:
    """Return the type of an exception, and its text if that is the server's own."""
    return type(error).__name__, str(error) if type(error) is RuntimeError else ""


@dataclass
class Kept:
    """Something of a request that is held after it was handed out."""

    owner: str
    kind: str
    value: Any
    frozen: Any = None

    def has_changed(self) -> bool:
        """Whether it is not what it was."""
        return self.frozen is not None and freeze(self.value) != self.frozen


@dataclass
class Record:
    """What one call of the application saw."""

    ident: str
    #: The number of the connection, as the scope says.
    client: int
    notes: Notes = field(default_factory=dict)


class Application:
    """The application of one run of a case."""

    def __init__(self, case: Case) -> None:
        self.requests: dict[tuple[int, str], Request] = {
            (number, request.ident): request
            for number, client in enumerate(case.clients)
            for request in client.requests
        }
        answer: list[Operation] = [("receive-all",), ("start", 200, (), "list", False), ("body", "bytes", 5, False)]
        self.default = Request("?", "", b"", answer)
        self.records: list[Record] = []
        self.kept: list[Kept] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.weak: list[weakref.ref[Any]] = []
        #: Futures that requests share; each is done once, in a way that depends on its name alone.
        self.meetings: dict[str, asyncio.Future[str]] = {}
        self.activity = 0
        self.over = self.released = False
        # Where things are kept: for each client if the order of their requests is not certain.
        self.shares = case.together == 1

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """One request."""
        found = _IDENT(scope.get("raw_path", b""))
        client = scope["state"]["client"]
        # Of this client's alone: a changed byte may have made its path another's.
        request = self.requests.get((client, found[1].decode() if found else ""), self.default)
        record = Record(request.ident, client)
        self.records.append(record)
        record.notes[()] = {
            "scope": freeze(scope),
            "variable": VARIABLE.get("unset"),
            "context": len(contextvars.copy_context()),
            "changed": self.changed(),
        }
        player = Player(self, request, record, scope, receive, send)
        return await player.play(request.operations, ())

    def changed(self) -> tuple[str, ...]:
        """What of the things kept is not as it was."""
        return tuple(f"{kept.kind} of {kept.owner}" for kept in self.kept if kept.has_changed())

    def meeting(self, request: Request, number: int) -> asyncio.Future[str]:
        """Return a future that all requests share, or those of one client if the order of clients is not certain."""
        name = f"{number}" if self.shares else f"{number} of {request.ident.partition('-')[0]}"
        if name not in self.meetings:
            self.meetings[name] = asyncio.get_running_loop().create_future()
            if self.released:
                self.signal(self.meetings[name], number)
        return self.meetings[name]

    def signal(self, meeting: asyncio.Future[str], number: int) -> None:
        """Let those go on who wait for it, and who will."""
        if meeting.done():
            return
        if number % 3 == 0:
            meeting.cancel()
        elif number % 3 == 1:
            meeting.set_exception(ValueError("signalled"))
            meeting.exception()
        else:
            meeting.set_result("signalled")

    def release(self) -> None:
        """Let everybody go on: no client has anything left to do."""
        self.released = True
        for name, meeting in self.meetings.items():
            self.signal(meeting, int(name.partition(" ")[0]))

    def kept_by(self, request: Request) -> list[Kept]:
        """The things that an application may use."""
        if self.shares:
            return self.kept
        client = request.ident.partition("-")[0]
        return [kept for kept in self.kept if kept.owner.partition("-")[0] == client]


class Player:
    """Does the operations of one request."""

    def __init__(
        self, application: Application, request: Request, record: Record, scope: Any, receive: Any, send: Any
    ) -> None:
        self.application = application
        self.request = request
        self.record = record
        self.scope = scope
        self.receive = receive
        self.send = send
        self.message: Any = None
        self.secret = request.secret

    async def play(self, operations: Sequence[Operation], trail: tuple[int, ...]) -> Any:
        """Do one after the other; an exception ends that, unless the request is stubborn."""
        for number, (name, *arguments) in enumerate(operations):
            if name == "return":
                return arguments[0]
            if name == "raise":
                raise EXCEPTIONS[arguments[0]]("raised")
            place = (*trail, number)
            self.place = place
            try:
                note: Any = await OPERATIONS[name](self, *arguments)
            except BaseException as error:
                self.record.notes[place] = (name, "raised", *describe(error))
                self.application.activity += 1
                if self.application.over or isinstance(error, GeneratorExit) or not self.request.stubborn:
                    raise
            else:
                self.record.notes[place] = (name, note)
                self.application.activity += 1
        return None

    # Receiving.

    async def op_receive(self) -> Any:
        self.message = await self.receive()
        return freeze(self.message)

    async def op_receive_all(self) -> Any:
        """Up to the end of the body; how it was cut does not matter."""
        body = b""
        for _ in range(1000):
            self.message = await self.receive()
            if self.message["type"] != "http.request":
                return body, freeze(self.message)
            assert type(self.message["body"]) is bytes and type(self.message["more_body"]) is bool
            body += self.message["body"]
            if not self.message["more_body"]:
                return body, sorted(self.message)
        return body, "endless"

    async def op_receive_given_up(self, turns: int) -> Any:
        return await self.given_up(self.receive, turns)

    async def given_up(self, receive: Callable[[], Awaitable[Any]], turns: int) -> Any:
        async def wait() -> Any:
            return await receive()

        task = asyncio.ensure_future(wait())
        for _ in range(turns + TURNS_OF_PATIENCE):
            await asyncio.sleep(0)
        if task.done():
            return freeze(task.result())
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            if self.application.over:
                raise
        return "given up"

    async def op_receive_dropped(self) -> Any:
        """Called and thrown away."""
        throw_away(self.receive())

    # Sending.

    async def op_start(self, status: int, fields: tuple[str, ...], shape: str, trailers: bool) -> Any:
        await self.send(self.start(status, fields, shape, trailers))

    def start(self, status: int, fields: tuple[str, ...], shape: str, trailers: bool = False) -> dict[str, Any]:
        message: dict[str, Any] = {"type": "http.response.start", "status": status}
        pairs = [self.field(name) for name in fields]
        message["headers"] = self.shaped(pairs, shape)
        if trailers:
            message["trailers"] = True
        return message

    def shaped(self, pairs: list[Any], shape: str) -> Any:
        if shape == "tuple":
            return tuple(pairs)
        if shape == "generator":
            return (pair for pair in pairs)
        if shape == "pairs":
            return [list(pair) for pair in pairs]
        if shape == "reentrant":
            return self.reentrant(pairs)
        if shape == "raising":
            return raising(pairs)
        if shape == "none":
            return None
        if shape == "text":
            return "text"
        return pairs

    def reentrant(self, pairs: list[Any]) -> Iterator[Any]:
        """Header fields that send something themselves while they are looked at."""
        notes = []
        for pair in pairs:
            yield pair
            for message in (self.start(200, ("plain",), "list"), self.body("bytes", 5, True)):
                notes.append(stepped(self.send, message))
        place = (*self.place, -1)
        self.record.notes[place] = tuple(notes)

    def field(self, name: str) -> Any:
        secret = self.secret.encode()
        if name.startswith("length:"):
            return (b"content-length", name[7:].encode())
        return {
            "secret": (b"x-secret", secret),
            "cookie": (b"set-cookie", b"session=" + secret),
            "plain": (b"X-Plain", b" value "),
            "length": (b"content-length", b"5"),
            "two-lengths": (b"content-length", b"5, 6"),
            "chunked": (b"transfer-encoding", b"chunked"),
            "close": (b"connection", b"close"),
            "keep-alive": (b"connection", b"keep-alive"),
            "bad-name": (b"a b", b"c"),
            "empty-name": (b"", b"c"),
            "bad-value": (b"a", b"b\r\nc: d"),
            "text": ("a", "b"),
            "bytearray": (bytearray(b"a"), b"b"),
            "subclass": (b"a", Subclass(b"bc")),
            "triple": (b"a", b"b", b"c"),
        }[name]

    async def op_body(self, kind: str, size: int, more: bool) -> Any:
        await self.send(self.body(kind, size, more))

    def body(self, kind: str, size: int, more: bool) -> dict[str, Any]:
        message: dict[str, Any] = {"type": "http.response.body", "more_body": more}
        if kind != "missing":
            message["body"] = self.content(kind, size)
        return message

    def content(self, kind: str, size: int) -> Any:
        data = (self.secret.encode() * (size // 16 + 1))[:size]
        if kind == "bytearray":
            return bytearray(data)
        if kind == "memoryview":
            return memoryview(data * 2)[::2] if size else memoryview(data)
        if kind == "bytes-subclass":
            return Subclass(data)
        return {"text": "text", "none": None, "number": 5}.get(kind, data)

    async def op_body_changed(self, size: int, more: bool) -> Any:
        """A body that is another one as soon as it was sent, and a message too."""
        body = bytearray(self.content("bytes", size))
        message = {"type": "http.response.body", "body": body, "more_body": more}
        await self.send(message)
        body[:] = b"!" * size
        message["body"] = b"changed"
        message["more_body"] = not more
        return None

    async def op_trailers(self, fields: tuple[str, ...], more: bool) -> Any:
        pairs = [self.field(name) for name in fields]
        await self.send({"type": "http.response.trailers", "headers": pairs, "more_trailers": more})

    async def op_early_hint(self, kind: str) -> Any:
        links = {"link": [b"</a>"], "two": [b"</a>", b"</b>"], "empty": [], "text": ["</a>"], "bad": [b"a\r\nb"]}[kind]
        await self.send({"type": "http.response.early_hint", "links": links})

    async def op_message(self, kind: str) -> Any:
        """One that is none."""
        message: Any = {"none": None, "missing": {}, "list": [], "number": {"type": 5}}.get(kind, {"type": kind})
        await self.send(message)

    def simple(self, kind: str) -> dict[str, Any]:
        if kind == "start":
            return self.start(200, ("plain",), "list")
        return {"type": "http.response.body", "body": b"kept", "more_body": kind == "body"}

    async def op_send_dropped(self, kind: str) -> Any:
        """Called and not awaited: nothing happens."""
        throw_away(self.send(self.simple(kind)))

    async def op_send_stepped(self, kind: str) -> Any:
        """Driven by hand, and left where it waits."""
        return stepped(self.send, self.simple(kind))

    async def op_message_used_again(self, size: int, count: int) -> Any:
        message = {"type": "http.response.body", "body": b"", "more_body": True}
        for number in range(count):
            message["body"] = self.content("bytes", size + number)
            await self.send(message)

    # Changing, keeping, using again.

    async def op_change_scope(self, kind: str) -> Any:
        scope, secret = self.scope, self.secret
        if kind == "append-header":
            scope["headers"].append((b"x-added", secret.encode()))
        elif kind == "replace-header":
            scope["headers"][0] = (b"x-replaced", secret.encode())
        elif kind == "clear-headers":
            scope["headers"].clear()
        elif kind == "extension":
            next(iter(scope["extensions"].values()))["secret"] = secret
        elif kind in ("state", "extensions", "asgi"):
            scope[kind]["secret"] = secret
        elif kind == "delete-type":
            del scope["type"]
        elif kind == "clear":
            scope.clear()
        elif kind == "client":
            scope["client"] = (secret, 1)
        else:
            scope[kind] = secret
        self.own_changed()

    def own_changed(self) -> None:
        """What this request has kept may have changed: it has changed it itself."""
        for kept in self.application.kept:
            if kept.owner == self.request.ident and kept.frozen is not None:
                kept.frozen = freeze(kept.value)

    async def op_change_message(self, kind: str) -> Any:
        if self.message is None:
            return
        if kind == "clear":
            self.message.clear()
        else:
            self.message[kind] = self.secret
        self.own_changed()

    async def op_keep(self, kind: str) -> Any:
        if kind in ("headers", "extensions", "state", "asgi"):
            value = self.scope[kind]
        elif kind == "context":
            value = contextvars.copy_context()
        else:
            value = getattr(self, kind)
        frozen = freeze(value) if kind not in ("receive", "send", "context") else None
        self.application.kept.append(Kept(self.request.ident, kind, value, frozen))

    def find(self, kind: str, number: int) -> Any:
        found = [kept.value for kept in self.application.kept_by(self.request) if kept.kind == kind]
        return found[number % len(found)] if found else None

    async def op_use_kept_send(self, number: int, kind: str) -> Any:
        send = self.find("send", number)
        return "nothing kept" if send is None else await send(self.simple(kind))

    async def op_use_kept_receive(self, number: int, turns: int) -> Any:
        receive = self.find("receive", number)
        if receive is None:
            return "nothing kept"
        # Whatever it gives belongs to another: seeing it here is no leak.
        found = await self.given_up(receive, turns)
        return found if found == "given up" else found[1][0]

    async def op_run_in_kept_context(self, number: int) -> Any:
        context = self.find("context", number)
        if context is not None:
            context.run(lambda: None)

    async def op_look(self) -> Any:
        """What the scope looks like by now."""
        return freeze(self.scope)

    async def op_variable(self) -> Any:
        return VARIABLE.get("unset")

    async def op_set_variable(self) -> Any:
        VARIABLE.set(self.secret)

    # Tasks.

    async def op_sleep(self, turns: int) -> Any:
        for _ in range(turns):
            await asyncio.sleep(0)

    async def op_cancel_self(self) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def op_meet(self, number: int) -> Any:
        """Wait for another request, perhaps of another client."""
        meeting = self.application.meeting(self.request, number)
        # A branch may be cancelled, which is nobody else's business.
        return await (meeting if len(self.place) == 1 else asyncio.shield(meeting))

    async def op_signal(self, number: int) -> Any:
        """Let those go on who meet this one."""
        self.application.signal(self.application.meeting(self.request, number), number)

    def start_task(self, operations: tuple[Operation, ...], branch: int = 0) -> asyncio.Task[None]:
        player = Player(self.application, self.request, self.record, self.scope, self.receive, self.send)
        task = asyncio.get_running_loop().create_task(player.play(operations, (*self.place, branch)))
        self.application.tasks.add(task)
        task.add_done_callback(self.application.tasks.discard)
        # Whoever waited for it may be gone by then.
        task.add_done_callback(retrieve)
        return task

    async def op_task(self, operations: tuple[Operation, ...]) -> Any:
        """One that is waited for."""
        await self.start_task(operations)

    async def op_spawn(self, operations: tuple[Operation, ...]) -> Any:
        """One that nobody waits for, and that may live longer than the request."""
        self.start_task(operations)

    async def op_gather(self, *branches: tuple[Operation, ...]) -> Any:
        tasks = [self.start_task(operations, branch) for branch, operations in enumerate(branches)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return tuple(describe(result) if isinstance(result, BaseException) else "" for result in results)

    async def op_timeout(self, operations: tuple[Operation, ...]) -> Any:
        """One that is cancelled when it takes more than a few turns."""
        task = self.start_task(operations)
        for _ in range(TURNS_OF_PATIENCE):
            await asyncio.sleep(0)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        return describe(result) if isinstance(result, BaseException) else ""

    # Memory.

    async def op_weak(self, kind: str) -> Any:
        thing: Any = asyncio.current_task() if kind == "task" else getattr(self, kind)
        reference = weakref.ref(thing)
        if kind == "task":
            self.application.weak.append(reference)

    async def op_collect(self) -> Any:
        gc.collect(0)


def raising(pairs: list[Any]) -> Iterator[Any]:
    yield from pairs
    raise Raised


def throw_away(awaitable: Any) -> None:
    """Let go of what was to be awaited."""
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()


def stepped(send: Any, message: Any) -> tuple[str, str]:
    """Take the first step of sending, as a task would; give what comes of it."""
    awaitable = None
    try:
        awaitable = send(message).__await__()
        next(awaitable)
    except StopIteration:
        return "done", ""
    except BaseException as error:
        return describe(error)
    throw_away(awaitable)
    return "waits", ""


def retrieve(task: asyncio.Task[None]) -> None:
    """Somebody has looked at the exception."""
    if not task.cancelled():
        task.exception()


EXCEPTIONS: dict[str, type[BaseException]] = {
    kind.__name__: kind for kind in (RuntimeError, ValueError, asyncio.CancelledError, SystemExit, KeyError)
}

OPERATIONS: dict[str, Any] = {
    name[3:].replace("_", "-"): method for name, method in vars(Player).items() if name.startswith("op_")
}
