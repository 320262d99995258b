"""A bug in the native core that makes it panic: logged once, and the end of one connection only.

`Server.rehearse_panic` makes the next call of an entry point panic. The connection that then calls it is cut off; the
other one, opened before, is served as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.harness import GET, Client, Service, echo, request, respond, serve
from tests.utils import wait_until
from uvicorn.listening.acceptor import NativeAcceptor

Victim = Callable[[Service, Client], Awaitable[None]]


def sends(data: bytes) -> Victim:
    """A client that sends this."""

    async def act(service: Service, client: Client) -> None:
        await client.send(data)

    return act


def is_told(method: str) -> Victim:
    """A connection whose owner calls a method of it."""

    async def act(service: Service, client: Client) -> None:
        port = client.sock.getsockname()[1]
        await wait_until(lambda: any(protocol.client[1] == port for protocol in connections(service)))
        (protocol,) = [protocol for protocol in connections(service) if protocol.client[1] == port]
        getattr(protocol, method)()

    return act


async def half_closes(service: Service, client: Client) -> None:
    client.half_close()


async def waits(service: Service, client: Client) -> None:
    pass


def connections(service: Service) -> list[Any]:
    return list(service.state.connections)


def poller(service: Service) -> Any:
    """What reads the connections natively; elsewhere that is not done."""
    if not isinstance(service.listener, NativeAcceptor):
        pytest.skip("connections are read by the loop's transports here")
    return service.listener.poller


#: Tasks take their first step at once. Many requests of one connection would hold up the others, so they are resumed.
EAGER = sys.version_info >= (3, 12)

#: What makes a connection go through each entry point.
ENTRIES: dict[str, Victim] = {
    "connection_made": waits,
    "data_received": sends(GET),
    "run": sends(GET),
    "receive": sends(request("POST", body=b"abc")),
    "send": sends(request("POST", body=b"abc")),
    "write": sends(request("POST", body=b"abc")),
    "resume": sends(GET * 40),
    "eof_received": half_closes,
    "expire": sends(b"GET /"),
    "resume_writing": is_told("resume_writing"),
    "shutdown": is_told("shutdown"),
    "disconnect": is_told("disconnect"),
}


def cores_of(service: Service) -> Any:
    """What the connections share."""
    return service.state.protocol_settings


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.anyio
@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if EAGER or entry != "resume"])
async def test_panic_ends_its_connection_and_no_other(
    entry: str, native: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async with serve(native, echo, timeout_request_head=0.2 if entry == "expire" else 30) as service:
        other = await service.connect()
        assert (await other.ask()).status == 200
        cores_of(service).rehearse_panic(entry)
        victim = await service.connect()
        await ENTRIES[entry](service, victim)
        with_answers = await asyncio.wait_for(ending(victim), 20)

        assert with_answers == (32 if entry == "resume" else 0)
        (line,) = complaints(caplog)
        found = re.fullmatch(r"Native core panicked in (\w+), closing the connection: panicked at \S+: rehearsal", line)
        # Where applications start at once, the response leaves when the input is dealt with.
        assert found and found[1] in (("data_received", "send") if entry == "write" else (entry,))
        await wait_until(lambda: len(service.state.connections) == 1 and not service.state.tasks)
        assert (await other.ask()).status == 200
        assert (await (await service.connect()).ask()).status == 200
    assert complaints(caplog) == [line]
    assert capfd.readouterr() == ("", "")


async def ending(client: Client) -> int:
    """Read until the server ends the connection, in whatever way; how many responses came."""
    try:
        received = await client.rest()
    except ConnectionError:
        received = bytes(client.buffer)
    return received.count(b"HTTP/1.1 200 ")


@pytest.mark.anyio
async def test_panic_when_the_connection_is_lost_leaves_nothing_behind(
    native: Any, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = asyncio.Event()
    messages: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        waiting.set()
        messages.append(await receive())

    async with serve(native, app) as service:
        client = await service.connect()
        await client.send(GET)
        await waiting.wait()
        cores_of(service).rehearse_panic("connection_lost")
        client.reset()
        await service.idle()
        assert messages == [{"type": "http.disconnect"}]
        (line,) = complaints(caplog)
        assert line.startswith("Native core panicked in connection_lost, ")


@pytest.mark.anyio
async def test_application_goes_on_after_a_panic_as_when_its_client_is_gone(
    native: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """`send()` does nothing, `receive()` says that the client is gone, and the task ends without a complaint."""
    messages: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await respond()(scope, receive, send)
        messages.append(await receive())
        await send({"type": "http.response.body"})
        messages.append("end")

    async with serve(native, app) as service:
        client = await service.connect()
        await client.send(b"GET / HTTP/1.1\r\n")
        cores_of(service).rehearse_panic("send")
        await client.send(b"host: test\r\n\r\n")
        assert await ending(client) == 0
        await service.idle()
        assert messages == [{"type": "http.disconnect"}, "end"]
        assert len(complaints(caplog)) == 1


@pytest.mark.anyio
async def test_panic_in_the_sweep_is_logged_and_the_next_sweep_works(
    native: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(native, respond(), timeout_keep_alive=1) as service:
        first = await service.connect()
        await first.ask()
        cores_of(service).rehearse_panic("sweep")
        cores_of(service).sweep()
        (line,) = complaints(caplog)
        assert line.startswith("Native core panicked in sweep: panicked at ")
        await (await service.connect()).ask()
        assert await ending(first) == 0
        assert complaints(caplog) == [line]


@pytest.mark.anyio
async def test_panic_in_one_expired_connection_lets_the_others_expire(
    native: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(native, respond(), timeout_request_head=0.2) as service:
        clients = [await service.connect() for _ in range(3)]
        await wait_until(lambda: len(service.state.connections) == 3)
        cores_of(service).rehearse_panic("expire")
        assert [await ending(client) for client in clients] == [0, 0, 0]
        await service.idle()
        assert len(complaints(caplog)) == 1


@pytest.mark.anyio
async def test_panic_while_access_lines_are_written_is_logged(native: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(native, respond(), access_log=True) as service:
        client = await service.connect()
        await client.ask()
        cores_of(service).rehearse_panic("flush")
        cores_of(service).flush()
        assert (await client.ask()).status == 200
        (line,) = complaints(caplog)
        assert line.startswith("Native core panicked in flush: panicked at ")


@pytest.mark.anyio
@pytest.mark.parametrize("entry", ["data_received", "run", "write"])
async def test_panic_ends_its_busy_connection_and_no_other(
    entry: str, native: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """From its second request on a connection may be read past its transport, together with others."""
    async with serve(native, respond()) as service:
        victim, *others = [await service.connect() for _ in range(4)]
        for client in (victim, *others, victim, *others):
            assert (await client.ask()).status == 200
        cores_of(service).rehearse_panic(entry)
        for client in (victim, *others):
            client.sock.send(GET)
        assert await ending(victim) == 0
        assert [(await client.response()).status for client in others] == [200] * 3
        assert len(complaints(caplog)) == 1
        await wait_until(lambda: len(service.state.connections) == 3 and not service.state.tasks)
        for client in others:
            assert (await client.ask()).status == 200


@pytest.mark.anyio
async def test_panic_while_busy_connections_are_read_costs_none_of_them(
    native: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(native, respond()) as service:
        clients = [await service.connect() for _ in range(3)]
        for client in clients * 2:
            assert (await client.ask()).status == 200
        poller(service).rehearse_panic("turn")
        for client in clients:
            client.sock.send(GET)
        assert [(await client.response()).status for client in clients] == [200] * 3
        (line,) = complaints(caplog)
        assert line.startswith("Native core panicked in turn: panicked at ")
        for client in clients:
            assert (await client.ask()).status == 200


@pytest.mark.anyio
async def test_panic_while_a_connection_is_read_ends_it_and_no_other(
    native: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(native, respond()) as service:
        victim, *others = [await service.connect() for _ in range(3)]
        for client in (victim, *others):
            assert (await client.ask()).status == 200
        poller(service).rehearse_panic("serve")
        victim.sock.send(GET)
        assert await ending(victim) == 0
        (line,) = complaints(caplog)
        assert line.startswith("Native core panicked in serve, closing the connection: panicked at ")
        await wait_until(lambda: len(service.state.connections) == 2)
        assert [(await client.ask()).status for client in others] == [200] * 2


@pytest.mark.anyio
@pytest.mark.parametrize("entry", ["declare", "write_file", "complete"])
async def test_panic_while_a_file_is_sent_ends_its_connection_and_no_other(
    entry: str, native: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    monkeypatch.delattr("os.sendfile", raising=False)  # it is copied, piece by piece

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/file":
            await send({"type": "http.response.pathsend", "path": str(path)})
        else:
            await send({"type": "http.response.body"})

    async with serve(native, app, asgi_extensions="all") as service:
        other = await service.connect()
        assert (await other.ask()).status == 200
        cores_of(service).rehearse_panic(entry)
        victim = await service.connect()
        await victim.send(request("GET", "/file"))
        await ending(victim)
        found = [line for line in complaints(caplog) if line.startswith("Native core panicked in ")]
        assert len(found) == 1 and f"in {entry}, closing the connection: panicked at " in found[0]
        await wait_until(lambda: len(service.state.connections) == 1 and not service.state.tasks)
        assert (await other.ask()).status == 200
