"""What only the native WebSocket has: panics, and sockets that are read without a call of Python's."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import re
import sys
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from websockets.asyncio.client import connect
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

from tests import loops
from tests.protocols.websocket_tools import (
    BINARY,
    PING,
    TEXT,
    Application,
    ServerFrame,
    accept,
    close_frame,
    connected,
    frame,
    handshake,
    listen,
)
from tests.utils import run_server, server_port, wait_until
from uvicorn.config import Config

pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)

from tests.protocols.websocket_at_once import AtOnceWebSocketProtocol
from uvicorn.protocols.websockets.native_impl import NativeWebSocketProtocol

pytestmark = pytest.mark.anyio

anyio_backend = loops.each


@asynccontextmanager
async def serving(app: Any, protocol_cls: Any = "native", **settings: Any) -> AsyncIterator[Any]:
    config = Config(app, http="native", ws=protocol_cls, port=0, lifespan="off", log_config=None, **settings)
    async with run_server(config) as server:
        yield server


async def open_socket(server: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server_port(server))
    writer.write(handshake())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    return reader, writer


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("entry", ["data_received", "receive", "send", "write", "run", "shutdown", "eof_received"])
async def test_panic_ends_its_connection_and_no_other(entry: str, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Application()(scope, receive, send)

    async with serving(app) as server:
        state = server.server_state
        other = await open_socket(server)
        connections = set(state.connections)
        victim = await open_socket(server)
        await wait_until(lambda: len(state.connections) == 2)
        (protocol,) = set(state.connections) - connections
        # The one waits in its `receive()`, from which the rehearsal takes it.
        state.protocol_settings.rehearse_panic(entry)
        if entry == "shutdown":
            protocol.shutdown()
        elif entry == "eof_received":
            victim[1].write_eof()
        else:
            victim[1].write(frame(TEXT, b"a"))
        assert await victim[0].read() == b""
        (line,) = complaints(caplog)
        assert re.fullmatch(r"Native core panicked in (\w+), closing the connection: panicked at \S+: rehearsal", line)
        await wait_until(lambda: set(state.connections) == connections and len(state.tasks) == 1)
        other[1].write(frame(TEXT, b"b"))
        assert await other[0].readexactly(3) == b"\x81\x01b"
        for _, writer in (victim, other):
            writer.close()


async def test_expiry_that_panics_ends_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    app = Application()
    async with connected(NativeWebSocketProtocol, app, ws_ping_interval=20.0) as peer:
        await peer.open()
        peer.session.cores.rehearse_panic("expire")
        peer.timers.advance(20.0)
        await peer.until(lambda: app.done)
        assert peer.wire.aborted and app.events[-1] == {"type": "websocket.disconnect", "code": 1006}
    assert len(complaints(caplog)) == 1


async def test_reads_of_an_own_socket_do_not_call_python() -> None:
    async with serving(Application()) as server:
        reader, writer = await open_socket(server)
        (protocol,) = server.server_state.connections
        assert type(protocol.transport).__name__ == "Transport"
        writer.write(frame(PING, b"p"))
        assert await reader.readexactly(3) == b"\x8a\x01p"
        assert protocol.transport.get_protocol() is protocol
        writer.write(close_frame(1000))
        await reader.read()
        writer.close()


async def test_method_of_a_subclass_is_called() -> None:
    class Noting(NativeWebSocketProtocol):
        received: list[bytes] = []

        def data_received(self, data: bytes) -> None:
            self.received.append(data)
            super().data_received(data)

    async with serving(Application(), Noting) as server:
        reader, writer = await open_socket(server)
        writer.write(frame(TEXT, b"a"))
        assert await reader.readexactly(3) == b"\x81\x01a"
        assert Noting.received[1:] == [frame(TEXT, b"a")]
        writer.write(close_frame(1000))
        await reader.read()
        writer.close()


@pytest.mark.parametrize("protocol_cls", [NativeWebSocketProtocol, AtOnceWebSocketProtocol])
async def test_application_that_holds_its_own_connection_is_collected(protocol_cls: Any) -> None:
    """A cycle through the session: the application's frame, its receive, and the scope."""
    references: list[Any] = []
    sessions: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await accept(receive, send)
        session = sessions.pop()
        scope["state"].update(me=session, receive=receive)
        references.append(weakref.ref(session))

    async with connected(protocol_cls, app) as peer:
        sessions.append(peer.session)
        await peer.open()
        await peer.until(lambda: references)
    del peer
    await asyncio.sleep(0)
    gc.collect()
    assert references[0]() is None


# Steps inside of what is waited for

at_once = pytest.mark.skipif(sys.version_info < (3, 12), reason="applications take no steps inside of a read")


@at_once
async def test_answers_to_what_came_together_leave_together_and_at_once() -> None:
    async with connected(AtOnceWebSocketProtocol, Application()) as peer:
        await peer.open()
        await peer.until(lambda: peer.waits_to_receive)
        before = peer.wire.writes
        peer.send(b"".join(frame(TEXT, b"%d" % number) for number in range(20)) + frame(PING, b"p") + close_frame(1000))
        # A ping is answered when it is read.
        answers = [b"p", *(b"%d" % number for number in range(20)), b"\x03\xe8"]
        assert [sent.payload for sent in peer.frames] == answers
        assert peer.wire.writes == before + 1 and peer.wire.closing


@at_once
async def test_large_answers_do_not_gather() -> None:
    """A client that does not read has to be noticed in between."""
    writes: list[int] = []

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await receive()
        for _ in range(10):
            await send({"type": "websocket.send", "bytes": bytes(6000)})
            writes.append(peer.wire.writes)

    async with connected(AtOnceWebSocketProtocol, Application(script)) as peer:
        await peer.open()
        await peer.until(lambda: peer.waits_to_receive)
        peer.send(frame(TEXT, b"a"))
        assert writes[-1] - writes[0] == 3 and len(peer.frames) == 11


@at_once
@pytest.mark.parametrize("step", [1_000_000_000, 262_144, 65_536, 40_001])
async def test_large_messages_arrive_as_they_were_sent(step: int) -> None:
    """What is received straight to where it belongs, with what stands around it, however it is cut."""
    sizes = [1_000_000, 5, 70_000, 65_536 - 14, 65_536 - 13, 0, 262_144 + 65_536 - 14, 20_000, 5_000_000, 300_000]
    messages = [bytes((size + at) % 251 for at in range(1009)) * (size // 1009 + 1) for size in sizes]
    messages = [message[:size] for message, size in zip(messages, sizes, strict=True)]
    app = Application(listen)
    async with serving(app) as server:
        reader, writer = await open_socket(server)
        stream = b"".join(frame(BINARY, message) + frame(PING, b"p") for message in messages)
        stream += frame(0x02, messages[0]) + frame(0x80, messages[2]) + close_frame(1000)
        for start in range(0, len(stream), step):
            writer.write(stream[start : start + step])
            await writer.drain()
            await asyncio.sleep(0)
        assert await reader.readexactly(3 * len(messages)) == b"\x8a\x01p" * len(messages)
        await reader.read()
        writer.close()
    assert app.messages == [*messages, messages[0] + messages[2]]


@pytest.mark.parametrize("end", ["left", "reset", "shutdown", "unmasked"])
async def test_large_message_that_ends_early_is_not_told(end: str) -> None:
    app = Application(listen)
    async with serving(app) as server:
        reader, writer = await open_socket(server)
        (protocol,) = server.server_state.connections
        whole = frame(BINARY, bytes(1_000_000))
        writer.write(whole[:700_000])
        await writer.drain()
        if end == "left":
            writer.write_eof()
        elif end == "reset":
            writer.transport.abort()
        elif end == "shutdown":
            protocol.shutdown()
            writer.write(whole[700_000:] + close_frame(1012))
        else:
            writer.write(whole[700_000:] + b"\x82\x01a")
        await wait_until(lambda: app.done)
        await reader.read()
        writer.close()
    assert app.messages == ([bytes(1_000_000)] if end == "unmasked" else [])


@at_once
async def test_step_inside_of_a_read_is_one_of_its_task() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nobody's")
    seen: list[Any] = []

    async def script(receive: Any, send: Any) -> None:
        variable.set("the application's")
        task = asyncio.current_task()
        await accept(receive, send)
        await receive()
        seen.extend((variable.get(), asyncio.current_task() is task))

    async with connected(AtOnceWebSocketProtocol, Application(script)) as peer:
        await peer.open()
        await peer.until(lambda: peer.waits_to_receive)
        peer.send(frame(TEXT, b"a"))
        assert seen == ["the application's", True] and variable.get() == "nobody's"


@at_once
async def test_what_an_idle_task_waits_for_looks_like_a_future() -> None:
    """anyio asks `isinstance` and `done()` of it before it cancels; tools print it."""
    tasks: list[Any] = []

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        tasks.append(asyncio.current_task())
        await receive()

    async with connected(AtOnceWebSocketProtocol, Application(script)) as peer:
        await peer.open()
        await peer.until(lambda: peer.waits_to_receive)
        (task,) = tasks
        waiter = task._fut_waiter
        assert type(waiter) is not asyncio.Future and isinstance(waiter, asyncio.Future)
        assert repr(waiter) == "<Future pending cb=[Task.task_wakeup()]>" and repr(waiter) in repr(task)
        with pytest.raises(asyncio.InvalidStateError):
            waiter.exception()
        assert task.cancel("enough") and repr(waiter) == "<Future cancelled>"
        with pytest.raises(asyncio.CancelledError, match="enough"):
            waiter.exception()
        await peer.until(lambda: task.done())


async def stepped(script: Any, data: bytes, condition: Callable[[Any], object]) -> Any:
    """A client whose application, in the middle of `script`, takes a step inside of the read of `data`."""
    async with connected(AtOnceWebSocketProtocol, Application(script)) as peer:
        await peer.open()
        await peer.until(lambda: peer.waits_to_receive)
        peer.send(data)
        await peer.until(lambda: condition(peer))
        return peer


@at_once
async def test_step_may_end_in_waiting_for_something_else() -> None:
    """Of which the task has to hear."""
    seen: list[Any] = []

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        while (event := await receive())["type"] == "websocket.receive":
            seen.append(event["text"])
            await asyncio.sleep(0)
            future = asyncio.get_running_loop().create_future()
            future.get_loop().call_soon(future.set_result, "later")
            seen.append(await future)
            await send({"type": "websocket.send", "text": "done"})

    await stepped(script, frame(TEXT, b"1") + frame(TEXT, b"2"), lambda peer: len(peer.frames) == 2)
    assert seen == ["1", "later", "2", "later"]


@at_once
@pytest.mark.parametrize("how", ["returns", "raises"])
async def test_application_may_end_in_its_step(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await receive()
        if how == "raises":
            raise ValueError("mine")

    peer = await stepped(script, frame(TEXT, b"1"), lambda peer: not peer.state.tasks and peer.frames)
    assert peer.frames[0].close[0] == (1011 if how == "raises" else 1000)
    assert len(complaints(caplog)) == (how == "raises")


@at_once
async def test_timeouts_and_cancellation_reach_an_application_between_its_steps() -> None:
    seen: list[Any] = []

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        for _ in range(3):
            seen.append((await receive())["text"])
            try:
                await asyncio.wait_for(receive(), 0.001)
            except asyncio.TimeoutError:
                seen.append("late")
            task = cast(Any, asyncio.current_task())
            task.cancel("myself")
            try:
                while True:
                    seen.append((await receive())["text"])
            except asyncio.CancelledError:
                seen.append("cancelled")
                task.uncancel()
            await send({"type": "websocket.send", "text": "next"})

    async with connected(AtOnceWebSocketProtocol, Application(script)) as peer:
        await peer.open()
        sent: list[int] = []
        for number in range(3):
            await peer.until(lambda: peer.waits_to_receive)
            peer.send(frame(TEXT, b"%d" % number))
            await peer.until(lambda: len(peer.frames) > len(sent))
            sent.append(number)
        assert seen == [text for number in range(3) for text in (str(number), "late", "cancelled")]


@at_once
async def test_application_that_cancels_itself_in_its_step_is_cancelled_once() -> None:
    seen: list[Any] = []

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await receive()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await receive()
        except asyncio.CancelledError:
            seen.append("cancelled")
        await asyncio.sleep(0)
        seen.append((await receive())["text"])
        await send({"type": "websocket.send", "text": "done"})

    async with connected(AtOnceWebSocketProtocol, Application(script)) as peer:
        await peer.open()
        await peer.until(lambda: peer.waits_to_receive)
        peer.send(frame(TEXT, b"1"))
        await peer.until(lambda: seen)
        peer.send(frame(TEXT, b"2"))
        await peer.until(lambda: peer.frames)
        assert seen == ["cancelled", "2"]


@at_once
async def test_tasks_of_an_application_that_receive_go_on_as_well() -> None:
    seen: list[Any] = []

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        for _ in range(3):
            other = asyncio.ensure_future(receive())
            await asyncio.sleep(0)
            seen.append(((await other)["text"], (await receive())["text"]))
        await send({"type": "websocket.send", "text": "done"})

    peer = await stepped(script, b"".join(frame(TEXT, b"%d" % n) for n in range(6)), lambda peer: peer.frames)
    assert peer.frames and seen == [("0", "1"), ("2", "3"), ("4", "5")]


@at_once
async def test_input_that_a_task_hands_over_waits_for_the_loop() -> None:
    """Two tasks cannot be at work at the same time."""
    app = Application()
    async with connected(AtOnceWebSocketProtocol, app) as peer:
        await peer.open()
        await peer.until(lambda: peer.waits_to_receive)
        peer.session.data_received(frame(TEXT, b"a"))
        assert not app.messages
        await peer.until(lambda: app.messages == ["a"])
        await peer.until(lambda: peer.frames == [ServerFrame(TEXT, b"a")])


@at_once
async def test_waiter_is_what_tasks_take_for_a_future() -> None:
    async with connected(AtOnceWebSocketProtocol, Application()) as peer:
        await peer.open()
        await peer.until(lambda: peer.waits_to_receive)
        (task,) = peer.state.tasks
        waiter = cast(Any, task)._fut_waiter
        assert asyncio.isfuture(waiter) and waiter.get_loop() is asyncio.get_running_loop()
        assert not waiter.done() and not waiter.cancelled()
        with pytest.raises(asyncio.InvalidStateError):
            waiter.result()
        told: list[Any] = []
        waiter.add_done_callback(told.append)
        waiter.add_done_callback(print)
        assert waiter.remove_done_callback(print) == 1
        assert waiter.cancel("enough") and not waiter.cancel() and waiter.done() and waiter.cancelled()
        with pytest.raises(asyncio.CancelledError, match="enough"):
            waiter.result()
        await peer.until(lambda: task.done())
        late: list[Any] = []
        waiter.add_done_callback(late.append, context=contextvars.copy_context())
        await peer.until(lambda: told == late == [waiter])


# One message for many


async def test_message_for_many_is_understood_by_each() -> None:
    """Whatever they have agreed on, between messages of their own."""
    clients: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await accept(receive, send)
        clients.append(send)
        while (event := await receive())["type"] == "websocket.receive":
            for client in clients if event["text"].startswith("to all") else [send]:
                await client({"type": "websocket.send", "text": event["text"]})

    offers = [
        [ClientPerMessageDeflateFactory()],
        [ClientPerMessageDeflateFactory(server_no_context_takeover=True, client_no_context_takeover=True)],
        [ClientPerMessageDeflateFactory(server_max_window_bits=9, client_max_window_bits=9)],
        [ClientPerMessageDeflateFactory()],
        None,
    ]
    texts = [f"to all: {number} " + "some text " * 20 for number in range(3)]
    async with serving(app) as server, contextlib.AsyncExitStack() as stack:
        url = f"ws://127.0.0.1:{server_port(server)}"
        connections = [
            await stack.enter_async_context(connect(url, compression=None, extensions=offer)) for offer in offers
        ]
        await wait_until(lambda: len(clients) == len(offers))
        for text in texts:
            for connection in connections:
                await connection.send(text)
                for other in connections:
                    assert await other.recv() == text
                await connection.send("own " + text[::-1])
                assert await connection.recv() == "own " + text[::-1]


async def test_names_of_calls_are_those_of_the_session() -> None:
    names: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        task: Any = asyncio.current_task()
        names.extend([receive.__qualname__, send.__qualname__, task.get_coro().__qualname__])
        await send({"type": "websocket.close"})

    async with connected(NativeWebSocketProtocol, app) as peer:
        peer.send(handshake())
        await peer.until(lambda: names)
    assert names == [f"WebSocketSession.{name}" for name in ("receive", "send", "run_asgi")]
