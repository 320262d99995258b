"""What shortcuts assume of the interpreter, tried on the one that runs the tests: the table of
`uvicorn.rules.shortcuts`.

Each assumption is a function of what it is about, so that it can also be tried on something for which it is false.
"""

from __future__ import annotations

import ast
import asyncio
import contextvars
import ctypes
import gc
import itertools
import logging
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h11
import httptools
import pytest

from uvicorn.rules import shortcuts
from uvicorn.rules.shortcuts import EVERY, TABLE, Shortcut

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.skipif(
    sys.implementation.name != "cpython" or shortcuts.is_free_threaded() or sys.version_info[:2] not in EVERY,
    reason="nothing is proved of this interpreter, and no shortcut is taken on it",
)


def field(kind: Any, offset: int) -> Callable[[Any], Any]:
    """What reads a field of an object."""
    return lambda thing: kind.from_address(id(thing) + offset).value


# PyDictObject, PyASCIIObject and PyBytesObject behind PyObject; PyTypeObject as it has been since 3.8.
HEAD = object.__basicsize__
dict_version = field(ctypes.c_uint64, HEAD + 8)
text_hash = field(ctypes.c_ssize_t, HEAD + 8)
bytes_hash = field(ctypes.c_ssize_t, HEAD + 8)
class_tag = field(ctypes.c_uint, HEAD + 8 + 45 * 8)
weak_list_offset = field(ctypes.c_ssize_t, HEAD + 8 + 23 * 8)


# Dicts and classes.

CHANGES: list[Callable[[dict[Any, Any]], Any]] = [
    lambda d: d.update(a=object()),
    lambda d: d.__setitem__("new", 1),
    lambda d: d.setdefault("other", 1),
    lambda d: d.pop("a"),
    lambda d: d.popitem(),
    lambda d: d.__ior__({"b": object()}),
    lambda d: d.__delitem__("b"),
    lambda d: d.__init__(c=1),  # type: ignore[misc]
    lambda d: d.clear(),
    lambda d: d.__setitem__(1, 2),
    lambda d: exec("x = 1", {}, d),
]


def holds_of_dict_versions(version: Callable[[Any], int]) -> None:
    seen: set[int] = set()
    for change in CHANGES:
        one: dict[Any, Any] = {"type": "http", "a": 1, "b": 2}
        before = version(one)
        assert version(one) == before
        one.get("a")
        assert len(one) == 3 and list(one) and version(one) == before
        change(one)
        assert version(one) != before
        copied = one.copy()
        numbers = {before, version(one), version(copied)} if one else {before, version(one)}
        assert not seen & (numbers - {version({})})
        seen |= numbers
        # One in the memory of another that is gone has a number of its own.
        del one, copied
        again: dict[Any, Any] = {"type": "http", "a": 1, "b": 2}
        assert version(again) not in seen


def holds_of_class_versions(version: Callable[[Any], int]) -> None:
    class Base:
        attribute = 1

    class Derived(Base):
        pass

    seen: set[int] = set()
    changes: list[Callable[[], Any]] = [
        lambda: setattr(Derived, "own", 1),
        lambda: setattr(Base, "attribute", 2),
        lambda: delattr(Derived, "own"),
        lambda: setattr(Base, "_run_once", lambda self: None),
        lambda: setattr(Derived, "__bases__", (Base, *Derived.__bases__[1:])),
    ]
    for change in changes:
        getattr(Derived(), "attribute")  # noqa: B009
        assert Derived.attribute
        before = version(Derived)
        assert before not in seen or not before
        seen.add(before)
        assert Derived.attribute and version(Derived) == before
        change()
        assert version(Derived) != before or not before
    assert any(seen), "it never had a number"


def walked(one: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """The items by `PyDict_Next`."""
    advance = ctypes.pythonapi.PyDict_Next
    advance.argtypes = [ctypes.py_object, *[ctypes.c_void_p] * 3]
    position, key, value = ctypes.c_ssize_t(), ctypes.c_void_p(), ctypes.c_void_p()
    items = []
    while advance(one, ctypes.byref(position), ctypes.byref(key), ctypes.byref(value)):
        items.append(tuple(ctypes.cast(place, ctypes.py_object).value for place in (key, value)))
    return items  # type: ignore[return-value]


class Plain:
    def __init__(self) -> None:
        self.type, self.body = "http.response.body", b""


def holds_of_walks(walk: Callable[[dict[Any, Any]], list[tuple[Any, Any]]]) -> None:
    holes = dict.fromkeys(range(100))
    for number in range(0, 100, 3):
        del holes[number]
    moved = {"type": 1, "body": 2, "more_body": 3}
    moved["type"] = moved.pop("type")
    split = Plain().__dict__
    for one in ({}, {"type": 1}, holes, moved, split, {1: 2, None: 3, "a": 4}, dict.fromkeys(map(str, range(1000)))):
        assert walk(one) == list(one.items())


# References.


def holds_of_reference_counts(count: Callable[[Any], int]) -> None:
    def generator(held: Any) -> Iterator[None]:
        yield
        assert held is not None

    def closure(held: Any) -> Callable[[], Any]:
        return lambda: held

    def started(held: Any) -> Iterator[None]:
        running = generator(held)
        next(running)
        return running

    holders: list[Callable[[Any], Any]] = [
        lambda held: [held],
        lambda held: (held,),
        lambda held: {"key": held},
        lambda held: {held: None} if isinstance(held, str | tuple) else [held],
        closure,
        started,
        iter,
        lambda held: contextvars.copy_context().run(lambda: closure(held)),
    ]
    for make in (lambda: ["list"], lambda: {"a": "dict"}, lambda: Plain()):
        for hold in holders:
            one: Any = make()
            if hold is iter and isinstance(one, Plain):
                continue
            alone = count(one)
            holder = hold(one)
            assert count(one) == alone + 1
            del holder
            gc.collect()
            assert count(one) == alone


def holds_of_weak_lists(offset: Callable[[Any], int]) -> None:
    """It leads to the list; a negative one is not followed before 3.12."""
    found = offset(asyncio.Future)
    assert found % ctypes.sizeof(ctypes.c_void_p) == 0
    for kind, make in ((set, set), (type(walked), lambda: eval("lambda: None")), (Plain, Plain)):
        place = offset(kind)
        assert place > 0 or (sys.version_info >= (3, 12) and place < 0)
        one: Any = make()
        assert not ctypes.c_void_p.from_address(id(one) + place).value
        reference = weakref.ref(one)
        assert ctypes.c_void_p.from_address(id(one) + place).value
        del reference
        assert not ctypes.c_void_p.from_address(id(one) + place).value


# Texts and bytes.


def made(number: int) -> str:
    return "".join([f"{number:08x}", "rest"])


def holds_of_texts(hash_of: Callable[[Any], int]) -> None:
    uses: list[Callable[[str], Any]] = [
        hash,
        lambda text: {text: 1},
        lambda text: text in {"a"},
        lambda text: {"a": 1}.get(text),
        sys.intern,
        lambda text: setattr(Plain(), text, 1),
        lambda text: getattr(Plain(), text, None),
    ]
    for number, use in enumerate(uses):
        text = made(number)
        assert hash_of(text) == -1
        use(text)
        assert hash_of(text) != -1
    text = made(99)
    for look in (len, str.upper, text.startswith, lambda one: one == "other", lambda one: one.encode(), repr):
        look(text)
    assert hash_of(text) == -1
    address = id(text) + (48 if sys.version_info < (3, 12) else 40)
    assert ctypes.string_at(address, len(text)) == text.encode()


def unfilled(size: int) -> bytes:
    make = ctypes.pythonapi.PyBytes_FromStringAndSize
    make.argtypes, make.restype = [ctypes.c_char_p, ctypes.c_ssize_t], ctypes.py_object
    found: bytes = make(None, size)
    return found


def holds_of_bytes(make: Callable[[int], bytes], hash_of: Callable[[Any], int]) -> None:
    for size in (1, 2, 100, 1 << 20):
        one, other = make(size), make(size)
        assert one is not other and len(one) == size
        assert hash_of(one) == -1 and not gc.is_tracked(one)
        ctypes.memmove(id(one) + bytes.__basicsize__ - 1, b"x" * size, size)
        assert one == b"x" * size


# Contexts.


class Mapping(dict[str, Any]):
    """As the context of OpenTelemetry's API."""


class Bare:
    pass


def holds_of_contents(referents: Callable[[Any], list[Any]], copy: Callable[[Any], Any]) -> None:
    """A context leads to its items by two objects, which only a copy shares; an object leads to its attributes."""
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")
    other: contextvars.ContextVar[Any] = contextvars.ContextVar("other")

    def chain(context: contextvars.Context) -> list[Any]:
        (variables,) = referents(context)
        (node,) = referents(variables)
        return [variables, node]

    def counts(context: contextvars.Context, value: Any) -> list[int]:
        return [*map(sys.getrefcount, chain(context)), sys.getrefcount(value)]

    value = Mapping(key=Plain)
    context = contextvars.Context()
    context.run(variable.set, value)
    alone = counts(context, value)
    assert {id(item) for item in referents(chain(context)[1])} == {id(variable), id(value)}
    copied = copy(context)
    shared = counts(context, value)
    assert shared[0] == alone[0] + 1 and shared[2] == alone[2]
    # A copy that goes its own way has a reference to the value itself.
    copied.run(other.set, 1)
    assert counts(context, value) == [*alone[:2], alone[2] + 1]
    del copied
    assert counts(context, value) == alone
    context.run(other.set, 1)
    assert len(referents(chain(context)[1])) == 4
    for one in (value, Bare()):
        before = [id(item) for item in referents(one) if item is not type(one)]
        one.attribute = object()  # type: ignore[union-attr]
        assert [id(item) for item in referents(one) if item is not type(one)] != before


# Tasks.


class Recorded:
    """What passes everything on, and notes what it was asked for."""

    def __init__(self, inner: Any) -> None:
        self.__dict__.update(inner=inner, asked=set())

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.asked.add(name)
        setattr(self.inner, name, value)

    # What is looked up in the class.

    def __await__(self) -> Any:
        return self

    def send(self, value: Any) -> Any:
        self.asked.add("send")
        return self.inner.send(value)

    def throw(self, *arguments: Any) -> Any:
        self.asked.add("throw")
        return self.inner.throw(*arguments)

    def close(self) -> None:
        self.inner.close()


async def once(future: Any) -> str:
    try:
        await Awaits(future)
    except asyncio.CancelledError:
        return "cancelled"
    return "done"


class Awaits:
    """Waits for a future as one of our calls does."""

    def __init__(self, future: Any) -> None:
        self.future = future

    def __await__(self) -> Any:
        self.future._asyncio_future_blocking = True
        yield self.future


WAITER = {"get_loop", "_asyncio_future_blocking", "add_done_callback", "remove_done_callback", "cancel", "cancelled"}
WAITER |= {"done", "result", "exception"}


def holds_of_tasks(task_class: Any, uses: set[str]) -> None:
    """What they use of a coroutine and of what it waits for: `uses` is all of it."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for end in ("set", "cancel"):
            future = Recorded(loop.create_future())
            coroutine = Recorded(once(future))
            task = task_class(coroutine, loop=loop)
            await asyncio.sleep(0)
            assert future._asyncio_future_blocking is False
            if end == "set":
                future.inner.set_result(None)
            else:
                task.cancel("message")
            assert await task == ("done" if end == "set" else "cancelled")
            assert coroutine.asked <= uses and "send" in coroutine.asked, coroutine.asked
            assert future.asked <= uses, future.asked

    asyncio.run(main())


def holds_of_eager_tasks(task_class: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        outer = asyncio.current_task()
        over = loop.create_future()
        seen: list[Any] = []

        async def step() -> None:
            seen.append((asyncio.current_task(), asyncio.get_running_loop()))
            await asyncio.sleep(0)

        def inside() -> None:
            task = task_class(step(), loop=loop, context=contextvars.copy_context(), eager_start=True)
            over.set_result((task, list(seen), asyncio.current_task(), task.done()))

        loop.call_soon(inside)
        task, at_once, current, done = await over
        assert at_once == [(task, loop)] and current is None and not done
        await task
        assert asyncio.current_task() is outer

    asyncio.run(main())


def holds_of_wake_ups(wake: Callable[[Any, Any, Any], None]) -> None:
    """The callback, called with what the task waits for, in a callback of the loop."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        callbacks: list[Any] = []

        class Waiter:
            _asyncio_future_blocking = False

            def get_loop(self) -> Any:
                return loop

            def add_done_callback(self, callback: Any, *, context: Any) -> None:
                callbacks.append((callback, context))

            def result(self) -> None:
                return None

            def cancel(self, msg: Any = None) -> bool:
                return False

        waiter = Waiter()
        task = loop.create_task(once(waiter))
        await asyncio.sleep(0)
        ((callback, context),) = callbacks
        over = loop.create_future()

        def inside() -> None:
            wake(callback, context, waiter)
            over.set_result(task.done())

        loop.call_soon(inside)
        assert await over, "the step was not taken in the call"

    asyncio.run(main())


def holds_of_current_tasks(enter: Callable[..., None], leave: Callable[..., None]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(asyncio.sleep(0)) for _ in range(2)]
        over = loop.create_future()

        def inside() -> None:
            try:
                assert asyncio.current_task(loop) is None
                enter(loop, tasks[0])
                assert asyncio.current_task(loop) is tasks[0]
                with pytest.raises(RuntimeError):
                    enter(loop, tasks[1])
                assert asyncio.current_task(loop) is tasks[0]
                leave(loop, tasks[0])
                assert asyncio.current_task(loop) is None
                over.set_result(None)
            except BaseException as exc:
                over.set_exception(exc)

        loop.call_soon(inside)
        await over
        await asyncio.gather(*tasks)

    asyncio.run(main())


def holds_of_calls(new: Callable[..., Any], init: Callable[..., Any]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        keywords = {"loop": loop, "name": "made in two steps"}
        coroutine = asyncio.sleep(0, "slept")
        arguments = (coroutine,)
        before = (sys.getrefcount(keywords), sys.getrefcount(arguments))
        try:
            task = new(asyncio.Task, *arguments, **keywords)
            init(task, *arguments, **keywords)
            assert (sys.getrefcount(keywords), sys.getrefcount(arguments)) == before
            assert keywords == {"loop": loop, "name": "made in two steps"}
            assert type(asyncio.Task) is type and task.get_name() == "made in two steps"
            assert task in asyncio.all_tasks()
            assert await task == "slept"
        finally:
            coroutine.close()

    asyncio.run(main())


def holds_of_handles(add_reader: Callable[..., Any]) -> None:
    import socket

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        ran: list[Any] = []
        read = loop.create_future()

        class Context:
            def run(self, callback: Any, *arguments: Any) -> Any:
                ran.append(arguments)
                return callback(*arguments)

        def ready(*arguments: Any) -> None:
            ours.recv(10)
            read.set_result(arguments)

        with ours, theirs:
            handle = add_reader(loop, ours.fileno(), ready, "argument")
            handle._context = Context()
            theirs.send(b"data")
            assert await asyncio.wait_for(read, 30) == ("argument",)
            loop.remove_reader(ours.fileno())
        assert ran == [("argument",)]

    asyncio.run(main())


def holds_of_logging(answers: Callable[[logging.Logger], Any]) -> None:
    logger = logging.getLogger("tests.assumptions")
    child = logging.getLogger("tests.assumptions.child")
    changes: list[tuple[Callable[[], Any], bool]] = [
        (lambda: logger.setLevel(logging.INFO), True),
        (lambda: logger.setLevel(logging.ERROR), False),
        (lambda: child.setLevel(logging.DEBUG), True),
        (lambda: child.setLevel(logging.NOTSET), False),
        (lambda: logger.setLevel(logging.NOTSET), logging.getLogger().getEffectiveLevel() <= logging.INFO),
        (lambda: logging.disable(logging.CRITICAL), False),
        (lambda: logging.disable(logging.NOTSET), logging.getLogger().getEffectiveLevel() <= logging.INFO),
    ]
    kept = answers(child)
    for change, expected in changes:
        change()
        assert answers(child) is kept and logging.INFO not in kept, "an old answer"
        assert child.isEnabledFor(logging.INFO) is expected and kept[logging.INFO] is expected
    fields = logger.__dict__
    for name, value in (("disabled", True), ("propagate", False), ("filters", [1]), ("handlers", [2])):
        before = getattr(logger, name)
        setattr(logger, name, value)
        assert logger.__dict__ is fields and fields[name] is value
        setattr(logger, name, before)
    try:
        logging.setLogRecordFactory(print)  # type: ignore[arg-type]
        assert vars(logging)["_logRecordFactory"] is print
    finally:
        logging.setLogRecordFactory(logging.LogRecord)


FIELDS = [(b"Host", b"a"), (b"X-B", b"1 ")]
HEAD_OF_FIELDS = b"GET /a?b HTTP/1.1\r\nHost: a\r\nX-B:  1 \r\n\r\n"


def holds_of_callbacks(feed: Callable[[Any, bytes], Any]) -> None:
    """Each `feed` is one parser of its listener's."""
    fields: list[tuple[bytes, bytes]] = []

    class Listener:
        def on_header(self, *field: Any) -> None:
            fields.append(field)

    feed(Listener(), HEAD_OF_FIELDS)
    assert [(name, value.rstrip()) for name, value in fields] == [(name, value.rstrip()) for name, value in FIELDS]
    assert all(type(text) is bytes for field in fields for text in field)


def holds_of_events(read: Callable[[Any], Any]) -> None:
    """`read` is the function for heads of a connection."""
    whole, alone = h11.Connection(h11.SERVER), h11.Connection(h11.SERVER)
    for _ in range(2):
        whole.receive_data(HEAD_OF_FIELDS)
        expected: Any = whole.next_event()
        alone._receive_buffer += HEAD_OF_FIELDS
        found = read(alone)
        assert type(found) is h11.Request and found.method == b"GET" and found.target == expected.target
        assert [(name, value) for _, name, value in found.headers._full_items] == list(expected.headers)
        assert not alone._receive_buffer and alone.their_state is h11.IDLE
        assert type(whole.next_event()) is h11.EndOfMessage
        whole.send(h11.Response(status_code=204, headers=[]))
        whole.send(h11.EndOfMessage())
        whole.start_next_cycle()
    alone._receive_buffer += b"GET / HTTP/1.1\r\nhost : a\r\n\r\n"
    with pytest.raises(h11.LocalProtocolError):
        read(alone)


# On this interpreter.


def test_coroutines() -> None:
    holds_of_tasks(asyncio.Task, WAITER | {"send", "throw"})


def test_waiters() -> None:
    native = pytest.importorskip("uvicorn._native", exc_type=ModuleNotFoundError)
    holds_of_tasks(asyncio.Task, {name for name in dir(native.Waiter) if name in WAITER} | {"send", "throw"})


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no eager tasks")
def test_eager() -> None:
    holds_of_eager_tasks(asyncio.Task)


def test_wakeups() -> None:
    holds_of_wake_ups(lambda callback, context, waiter: context.run(callback, waiter))


def test_steps() -> None:
    holds_of_current_tasks(asyncio.tasks._enter_task, asyncio.tasks._leave_task)


def test_reuse() -> None:
    holds_of_reference_counts(sys.getrefcount)
    holds_of_weak_lists(weak_list_offset)


def test_texts() -> None:
    holds_of_texts(text_hash)


def test_bytes() -> None:
    holds_of_bytes(unfilled, bytes_hash)


def test_versions() -> None:
    holds_of_dict_versions(dict_version)


def test_classes() -> None:
    holds_of_class_versions(class_tag)


def test_walks() -> None:
    holds_of_walks(walked)


def test_slots() -> None:
    native = pytest.importorskip("uvicorn._native", exc_type=ModuleNotFoundError)
    for kind in (native.Call, native.RequestResponseCycle, native.Callable):
        heap_type = 1 << 9
        assert kind.__flags__ & heap_type
    vectorcall = 1 << 11
    assert bool(native.Callable.__flags__ & vectorcall) is (Shortcut.SLOTS in shortcuts.chosen())


def test_calls() -> None:
    holds_of_calls(
        lambda kind, *arguments, **keywords: kind.__new__(kind, *arguments, **keywords), asyncio.Task.__init__
    )


def test_handles() -> None:
    holds_of_handles(lambda loop, *arguments: loop._add_reader(*arguments))


def test_heads() -> None:
    holds_of_callbacks(lambda listener, data: httptools.HttpRequestParser(listener).feed_data(data))


def test_events() -> None:
    holds_of_events(lambda connection: connection._reader(connection._receive_buffer))


def test_spans() -> None:
    holds_of_contents(gc.get_referents, contextvars.Context.copy)


def test_logging() -> None:
    holds_of_logging(lambda logger: logger._cache)  # type: ignore[attr-defined]


# Where they are false.


class _Lazy(asyncio.Task[Any]):
    def __init__(self, coroutine: Any, *, eager_start: bool = False, **keywords: Any) -> None:
        super().__init__(coroutine, **keywords)


class _Curious(asyncio.Task[Any]):
    def __init__(self, coroutine: Any, **keywords: Any) -> None:
        coroutine.cr_frame  # noqa: B018
        super().__init__(coroutine, **keywords)


def _forget(*arguments: Any, **keywords: Any) -> None:
    pass


class _NoHandle:
    _context = None


def _add_nothing_of_ones_own(loop: Any, *arguments: Any) -> Any:
    loop._add_reader(*arguments)
    return _NoHandle()


_numbers = itertools.count()

FALSE: dict[str, Callable[[], Any]] = {
    "coroutines": lambda: holds_of_tasks(_Curious, WAITER | {"send", "throw"}),
    "waiters": lambda: holds_of_tasks(asyncio.Task, WAITER - {"add_done_callback"} | {"send", "throw"}),
    "eager": lambda: holds_of_eager_tasks(_Lazy),
    "wakeups": lambda: holds_of_wake_ups(
        lambda callback, context, waiter: asyncio.get_running_loop().call_soon(callback, waiter, context=context)
    ),
    "steps": lambda: holds_of_current_tasks(_forget, _forget),
    "reuse": lambda: holds_of_reference_counts(lambda one: 1),
    "texts": lambda: holds_of_texts(lambda one: -1),
    "bytes": lambda: holds_of_bytes(lambda size: b"x" * min(size, 1), bytes_hash),
    "versions": lambda: holds_of_dict_versions(id),
    "classes": lambda: holds_of_class_versions(id),
    "walks": lambda: holds_of_walks(lambda one: sorted(one.items(), key=repr)),
    "calls": lambda: holds_of_calls(lambda kind, *rest, **keywords: asyncio.Future(), _forget),
    "handles": lambda: holds_of_handles(_add_nothing_of_ones_own),
    "logging": lambda: holds_of_logging(lambda logger: {}),
    "spans": lambda: holds_of_contents(gc.get_referents, lambda context: contextvars.Context()),
    "heads": lambda: holds_of_callbacks(lambda listener, data: listener.on_header("Host", "a")),
    "events": lambda: holds_of_events(lambda connection: connection.next_event()),
}


@pytest.mark.parametrize("name", FALSE)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_false_assumption_is_seen(name: str) -> None:
    if name == "eager" and sys.version_info < (3, 12):
        pytest.skip("there are no eager tasks")
    with pytest.raises((AssertionError, AttributeError)):
        FALSE[name]()


# The table.


def test_each_shortcut_has_a_row_and_each_row_a_test() -> None:
    tests = {
        node.name for node in ast.parse(Path(__file__).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)
    }
    assert list(TABLE) == list(Shortcut)
    for shortcut, row in TABLE.items():
        assert f"test_{row.test}" in tests, row
        assert shortcut.value in FALSE or shortcut is Shortcut.SLOTS
        assert set(row.versions) <= set(EVERY) and row.assumption.endswith(".")


def test_files_that_rely_on_a_row_name_it() -> None:
    """By `Shortcut::Name`, or in their first lines; and each file of `ffi` that has no row is about something else."""
    native = ROOT / "native/bindings/src"
    if not native.exists():
        pytest.skip("not in a checkout")
    for shortcut, row in TABLE.items():
        name = shortcut.value
        texts = [(ROOT / path).read_text("utf-8") for path in row.where]
        spellings = (f"Shortcut::{name.capitalize()}", f"`{name}`", f"Shortcut.{name.upper()}")
        assert any(spelling in text for text in texts for spelling in spellings), row
    covered = {Path(path).name for row in TABLE.values() for path in row.where if "/ffi/" in path}
    of_something_else = {
        f"{name}.rs" for name in ("mod", "descriptor", "end_timer", "thread_bound", "words", "allocators", "origin")
    }
    of_something_else |= {"clocks.rs", "pending.rs"}  # of the watchdog
    assert {path.name for path in (native / "base/ffi").iterdir()} == covered | of_something_else
    sources = [path for path in native.rglob("*.rs") if path.name != "shortcuts.rs"]
    sources += [path for path in (ROOT / "uvicorn").rglob("*.py") if path.name != "shortcuts.py"]
    taken = "".join(path.read_text("utf-8") for path in sources)
    for shortcut in Shortcut:
        switches = (f"Shortcut::{shortcut.value.capitalize()}", f"Shortcut.{shortcut.name} in")
        assert any(switch in taken for switch in switches), f"nothing turns {shortcut.value} off"
