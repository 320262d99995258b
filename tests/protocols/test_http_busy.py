"""Connections that went on after their first request: a busy one is read past its transport, which nobody notices."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any

import pytest
import trustme

from tests import loops, machines
from tests.protocols.harness import GET, GET_CLOSE, Service, echo, request, respond, serve
from tests.utils import wait_until

pytestmark = pytest.mark.anyio


anyio_backend = loops.each
http_protocol_cls = machines.each


async def warm(service: Service) -> Any:
    """A client with two requests behind it."""
    client = await service.connect()
    for _ in range(2):
        assert (await client.ask()).status == 200
    return client


async def test_connection_that_outlives_its_server_is_served_on(http_protocol_cls: Any) -> None:
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.ask()
        service.listener.close()
        service.state.close()
        assert service.transport.is_reading()
        assert (await client.ask()).status == 200


async def test_encrypted_connection_is_read_by_its_transport(
    http_protocol_cls: Any, tls_certificate: trustme.LeafCert, tls_ca_ssl_context: ssl.SSLContext
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_certificate.configure_cert(context)
    async with serve(http_protocol_cls, respond(), tls=context) as service:
        host, port = service.address[:2]
        reader, writer = await asyncio.open_connection(host, port, ssl=tls_ca_ssl_context, server_hostname="localhost")
        for _ in range(3):
            writer.write(GET)
            await reader.readuntil(b"ok")
        assert service.transport.is_reading()
        writer.close()


async def test_requests_cut_anywhere_are_answered(http_protocol_cls: Any) -> None:
    data = request("POST", body=b"hello")
    async with serve(http_protocol_cls, echo) as service:
        client = await service.connect()
        for cut in range(1, len(data)):
            await client.send(data[:cut], data[cut:])
            assert (await client.response()).body == b"hello"


@pytest.mark.parametrize("count", [1, 200])
async def test_many_ready_at_once_are_all_answered(http_protocol_cls: Any, count: int) -> None:
    """More than are told of in one turn of the loop."""
    async with serve(http_protocol_cls, respond()) as service:
        clients = [await warm(service) for _ in range(count)]
        for _ in range(3):
            for client in clients:
                client.sock.send(GET)
            for client in clients:
                assert (await client.response()).status == 200


async def test_end_of_input_ends_an_idle_connection(http_protocol_cls: Any) -> None:
    async with serve(http_protocol_cls, respond()) as service:
        client = await warm(service)
        client.half_close()
        assert await client.rest() == b""
        await service.idle()


async def test_last_request_before_the_end_of_input_is_answered(http_protocol_cls: Any) -> None:
    """K7: a client may have nothing more to send and still read."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await warm(service)
        client.sock.send(GET)
        client.half_close()
        assert (await client.response()).status == 200
        assert await client.rest() == b""


async def test_reset_is_told_to_the_application(http_protocol_cls: Any) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/":
            await respond()(scope, receive, send)
            return
        await receive()
        heard.append((await receive())["type"])

    async with serve(http_protocol_cls, app) as service:
        client = await warm(service)
        await client.send(request("GET", "/wait"))
        await wait_until(lambda: service.state.tasks)
        client.reset()
        await wait_until(lambda: heard)
    assert heard == ["http.disconnect"]


async def test_large_body_waits_for_a_slow_application(http_protocol_cls: Any) -> None:
    """Reading stops and goes on many times, and nothing is lost."""
    body = bytes(range(256)) * 8192

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            await respond()(scope, receive, send)
            return
        pieces = []
        more = True
        while more:
            await asyncio.sleep(0)
            message = await receive()
            pieces.append(message["body"])
            more = message["more_body"]
        await respond(b"same" if b"".join(pieces) == body else b"other")(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await warm(service)
        sending = asyncio.create_task(client.send(request("POST", body=body)))
        assert (await client.response()).body == b"same"
        await sending
        assert (await client.ask()).status == 200


async def test_half_close_while_reading_is_paused_is_seen_afterwards(http_protocol_cls: Any) -> None:
    """The end of input arrives while nobody looks."""
    body = b"x" * 300_000
    go = asyncio.Event()
    lengths: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            await go.wait()
            length, more = 0, True
            while more:
                message = await receive()
                length, more = length + len(message["body"]), message["more_body"]
            lengths.append(length)
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await warm(service)
        await client.send(request("POST", body=body))
        client.half_close()
        go.set()
        assert (await client.response()).status == 200
        assert await client.rest() == b""
    assert lengths == [len(body)]


async def test_pipelined_requests_are_answered_in_order(http_protocol_cls: Any) -> None:
    async with serve(http_protocol_cls, echo) as service:
        client = await warm(service)
        await client.send(b"".join(request("POST", body=b"%d" % number) for number in range(100)) + GET_CLOSE)
        for number in range(100):
            assert (await client.response()).body == b"%d" % number
        assert (await client.response()).status == 200
        assert await client.rest() == b""


async def test_idle_connection_ends_at_its_deadline(http_protocol_cls: Any) -> None:
    async with serve(http_protocol_cls, respond(), timeout_keep_alive=60) as service:
        client = await warm(service)
        service.pass_time(61)
        assert await client.rest() == b""
        await service.idle()


async def test_connection_aborted_from_outside_is_left_alone(http_protocol_cls: Any) -> None:
    """As the last step of a drain does, while the client's next request is there already."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await warm(service)
        client.sock.send(GET)
        service.transport.abort()
        await service.idle()
        assert (await (await service.connect()).ask()).status == 200


async def test_exception_out_of_the_connection_ends_it_alone(http_protocol_cls: Any) -> None:
    """The loop's exception handler hears of it, as it does of a transport."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ZeroDivisionError

    heard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(context.get("exception")))
    logger = logging.getLogger("uvicorn.error")
    handler = Broken()
    async with serve(http_protocol_cls, respond()) as service:
        client, other = await warm(service), await warm(service)
        logger.addHandler(handler)
        try:
            await client.send(b"garbage\r\n\r\n")
            await client.rest()
        finally:
            logger.removeHandler(handler)
        assert (await other.ask()).status == 200
    assert [type(error) for error in heard] == [ZeroDivisionError]
