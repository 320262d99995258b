"""Bodies that are not `bytes`: what was there at `send()` is what arrives, whatever becomes of the buffer."""

from __future__ import annotations

import array
import asyncio
import ctypes
import mmap
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests import loops, machines
from tests.protocols.harness import GET, GET_10, PATIENCE, Client, Service, request, respond, serve
from tests.utils import wait_until

pytestmark = pytest.mark.anyio

SIZE = 240_000
"""More than a transport takes at once, and divisible by the items of every buffer below."""

DATA = bytes(range(1, 241)) * (SIZE // 240)


anyio_backend = loops.each
http_protocol_cls = machines.each


class Bytes(bytes):
    """A subclass that adds nothing."""


class Lying(bytes):
    """A subclass that says it was empty."""

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return False


class Exporting(bytes):
    """A subclass that shows a buffer of its own (PEP 688), which can be changed."""

    def __new__(cls, data: bytes) -> Exporting:
        made = super().__new__(cls, b"\0" * 7)
        made.shown = bytearray(data)
        return made

    shown: bytearray

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.shown)


Made = tuple[Any, Callable[[], None]]
"""An object with `DATA` in it, and what overwrites that."""


def overwriting(buffer: Any) -> Callable[[], None]:
    def overwrite() -> None:
        view = memoryview(buffer).cast("B")
        view[:] = bytes(view.nbytes)

    return overwrite


def make_bytearray() -> Made:
    buffer = bytearray(DATA)
    return buffer, overwriting(buffer)


def make_view() -> Made:
    buffer = bytearray(DATA)
    return memoryview(buffer), overwriting(buffer)


def make_strided() -> Made:
    buffer = bytearray(2 * SIZE)
    buffer[::2] = DATA
    return memoryview(buffer)[::2], overwriting(buffer)


def make_reversed() -> Made:
    buffer = bytearray(DATA[::-1])
    return memoryview(buffer)[::-1], overwriting(buffer)


def make_matrix() -> Made:
    buffer = bytearray(DATA)
    return memoryview(buffer).cast("I", (SIZE // 8, 2)), overwriting(buffer)


def make_array() -> Made:
    buffer = array.array("I", DATA)
    return buffer, overwriting(buffer)


def make_doubles() -> Made:
    buffer = array.array("d", DATA)
    return memoryview(buffer), overwriting(buffer)


def make_ctypes() -> Made:
    buffer = (ctypes.c_uint16 * (SIZE // 2)).from_buffer_copy(DATA)
    return buffer, overwriting(buffer)


def make_mmap() -> Made:
    buffer = mmap.mmap(-1, SIZE)
    buffer[:] = DATA
    return buffer, overwriting(buffer)


def make_subclass() -> Made:
    return Bytes(DATA), lambda: None


def make_liar() -> Made:
    return Lying(DATA), lambda: None


def make_exporter() -> Made:
    made = Exporting(DATA)
    return made, overwriting(made.shown)


BUFFERS = [
    make_bytearray,
    make_view,
    make_strided,
    make_reversed,
    make_matrix,
    make_array,
    make_doubles,
    make_ctypes,
    make_mmap,
    make_subclass,
    make_liar,
]
if sys.version_info >= (3, 12):
    BUFFERS.append(make_exporter)


async def narrow(service: Service) -> Client:
    """A client with little room between it and the server, so that what is sent to it must wait."""
    client = await service.connect(receive_buffer=4096)
    await wait_until(lambda: service.state.connections)
    service.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return client


FRAMINGS = [
    pytest.param(GET, True, id="length"),
    pytest.param(GET, False, id="chunked"),
    pytest.param(GET_10, False, id="close"),
]


@pytest.mark.parametrize(("ask", "counted"), FRAMINGS)
async def test_body_arrives_as_it_was_when_sent(http_protocol_cls: Any, ask: bytes, counted: bool) -> None:
    """One kind of buffer after the other."""
    kinds = iter(BUFFERS)
    overwritten = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"%d" % (SIZE + 3))] if counted else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        buffer, overwrite = next(kinds)()
        await send({"type": "http.response.body", "body": buffer, "more_body": True})
        overwrite()
        overwritten.set()
        await send({"type": "http.response.body", "body": b"end"})

    async with serve(http_protocol_cls, app) as service:
        for make in BUFFERS:
            client = await narrow(service)
            await client.send(ask)
            await asyncio.wait_for(overwritten.wait(), PATIENCE)
            overwritten.clear()
            assert (await client.response()).body == DATA + b"end", make.__name__
            client.close()
            await service.idle()


async def test_buffer_can_be_resized_as_soon_as_it_was_sent(http_protocol_cls: Any) -> None:
    """Nobody holds on to it."""
    cleared = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        buffer = bytearray(DATA)
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": buffer, "more_body": True})
        buffer.clear()
        cleared.set()
        await send({"type": "http.response.body"})

    async with serve(http_protocol_cls, app) as service:
        client = await narrow(service)
        await client.send(GET)
        await asyncio.wait_for(cleared.wait(), PATIENCE)
        assert (await client.response()).body == DATA


async def test_body_arrives_as_it_was_though_its_send_had_to_wait(http_protocol_cls: Any) -> None:
    """Another task uses the buffer again, and the message."""
    kinds = iter(BUFFERS)
    overwritten = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": DATA, "more_body": True})
        buffer, overwrite = next(kinds)()
        message = {"type": "http.response.body", "body": buffer, "more_body": True}
        sending = asyncio.ensure_future(send(message))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not sending.done()
        overwrite()
        message["body"] = b"other"
        overwritten.set()
        await sending
        await send({"type": "http.response.body"})

    async with serve(http_protocol_cls, app) as service:
        for make in BUFFERS:
            client = await narrow(service)
            await client.send(GET)
            await asyncio.wait_for(overwritten.wait(), PATIENCE)
            overwritten.clear()
            assert (await client.response()).body == DATA + DATA, make.__name__
            client.close()
            await service.idle()


async def test_fields_arrive_as_they_were_though_the_start_had_to_wait(http_protocol_cls: Any) -> None:
    """The head of a pipelined response, behind one that the client has not read."""
    changed = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/first":
            await respond(DATA)(scope, receive, send)
            return
        headers = [(b"x-number", b"1")]
        message = {"type": "http.response.start", "status": 200, "headers": headers}
        sending = asyncio.ensure_future(send(message))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not sending.done()
        headers[:] = [(b"x-number", b"2"), (b"x-more", b"2")]
        message["status"] = 500
        changed.set()
        await sending
        await send({"type": "http.response.body"})

    async with serve(http_protocol_cls, app) as service:
        client = await narrow(service)
        await client.send(request("GET", "/first") + request("GET", "/second"))
        await asyncio.wait_for(changed.wait(), PATIENCE)
        assert (await client.response()).body == DATA
        second = await client.response()
        assert (second.status, second.values(b"x-number"), second.values(b"x-more")) == (200, [b"1"], [])


async def test_what_is_no_buffer_raises_and_leaves_the_response_whole(http_protocol_cls: Any) -> None:
    raised: list[BaseException] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        released = memoryview(DATA)
        released.release()
        for body in ("text", 5, [b"a"], released):
            try:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            except (TypeError, ValueError) as exc:
                raised.append(exc)
        await send({"type": "http.response.body", "body": DATA})

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        assert (await client.ask()).body == DATA
    assert len(raised) == 4


class Sly(bytes):
    """Header text that passes for another, and remembers."""

    def lower(self) -> bytes:
        return b"x: 1\r\nevil"

    def strip(self, chars: Any = None) -> bytes:
        return b"1\r\nevil: 2"


async def test_header_text_of_another_class_is_what_its_bytes_are(http_protocol_cls: Any) -> None:
    headers = [(Sly(b"X-A"), Sly(b" 1 ")), (b"content-length", b"0")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for _ in range(2):
            assert (await client.ask()).head == b"HTTP/1.1 200 OK\r\nx-a: 1\r\ncontent-length: 0\r\n\r\n"
