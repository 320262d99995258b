"""How connections end on real sockets, on each event loop: these differ in what they do at the end of a stream."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests import loops
from tests.protocols.websocket_tools import (
    CLOSE,
    TEXT,
    Application,
    ServerFrame,
    close_frame,
    frame,
    handshake,
    parse_frames,
)
from tests.utils import run_server, server_port, wait_until
from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected

pytestmark = pytest.mark.anyio

Serve = Callable[..., AbstractAsyncContextManager[int]]


anyio_backend = loops.each


@pytest.fixture(params=["h11", "native"])
def serve(request: pytest.FixtureRequest, ws_protocol_cls: Any) -> Serve:
    """Serves an application; gives the port."""
    if request.param == "native":
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)

    @asynccontextmanager
    async def serving(app: Any, **settings: Any) -> AsyncIterator[int]:
        config = Config(
            app,
            http=request.param,
            ws=ws_protocol_cls,
            port=0,
            lifespan="off",
            log_config=None,
            interface="asgi3",
            **settings,
        )
        async with run_server(config) as server:
            yield server_port(server)

    return serving


@asynccontextmanager
async def opened(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which a WebSocket is open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(handshake())
    await reader.readuntil(b"\r\n\r\n")
    try:
        yield reader, writer
    finally:
        writer.close()


async def test_message_in_front_of_the_end_is_answered(serve: Serve) -> None:
    ends = [
        (close_frame(1000), [ServerFrame(CLOSE, b"\x03\xe8")]),
        (frame(0x83), [ServerFrame(CLOSE, b"\x03\xeainvalid opcode")]),
        (b"", []),
    ]
    async with serve(Application()) as port:
        for end, answers in ends:
            for half_closed in (True, not end):
                async with opened(port) as (reader, writer):
                    writer.write(frame(TEXT, b"hello") + end)
                    if half_closed:
                        writer.write_eof()
                    assert parse_frames(await reader.read()) == [ServerFrame(TEXT, b"hello"), *answers]


async def test_reset_behind_the_end_changes_nothing(serve: Serve) -> None:
    """The application learns what the client said; the server goes on."""
    go_on = asyncio.Event()

    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        await go_on.wait()
        await receive()

    for end, code in ((close_frame(4000), 4000), (frame(0x83), 1002), (frame(TEXT, b"\xff"), 1007)):
        app = Application(script)
        go_on.clear()
        async with serve(app) as port:
            async with opened(port) as (_, writer):
                writer.write(frame(TEXT, b"hello") + end)
                await wait_until(partial(getattr, app, "messages"))
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            go_on.set()
            await wait_until(partial(getattr, app, "done"))
            assert app.events[-1]["code"] == code
            async with opened(port):
                pass


async def test_client_library_that_sends_too_much_sees_why_and_no_error_of_its_own(serve: Serve) -> None:
    """W8: also while it is still sending."""
    async with serve(Application(), ws_max_size=100_000) as port:
        for compression in (None, "deflate"):
            async with connect(f"ws://127.0.0.1:{port}", compression=compression) as client:
                await client.send(b"x" * 20_000_000)
                with pytest.raises(ConnectionClosed) as closed:
                    await client.recv()
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
                assert closed.value.sent is not None and closed.value.rcvd_then_sent
                assert closed.value.__cause__ is None


async def test_client_that_does_not_read_is_dropped(serve: Serve) -> None:
    async def script(receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while True:
            await send({"type": "websocket.send", "bytes": bytes(1_000_000)})

    app = Application(script)
    async with serve(app, timeout_write=0.5) as port, opened(port) as (reader, _):
        await wait_until(lambda: app.done)
        assert isinstance(app.error, ClientDisconnected)
        while await reader.read(65536):
            pass  # to the end: what the kernel had taken
