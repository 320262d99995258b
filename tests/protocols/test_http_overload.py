"""`limit_active_requests`: who is served, who waits and who is refused, on connections."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import random
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import loops, machines
from tests.protocols.harness import GET, HEAD, Calls, Client, Response, Service, echo, request, respond, serve
from tests.protocols.websocket_tools import frame, handshake
from tests.utils import open_connection, run_server, server_port, turns, wait_until
from uvicorn.config import Config
from uvicorn.metrics.page import (
    ADMITTED,
    LIMIT_LOWERED,
    LIMIT_RAISED,
    PARKED,
    QUEUED,
    RELEASED,
    SHED,
    UNPARKED,
    UNQUEUED,
    Page,
    ShedReason,
)
from uvicorn.overload.admission import SILENCE, START, AdaptiveLimit, FixedLimit
from uvicorn.overload.gate import QUIET, Gate, client_of
from uvicorn.serving.state import ServerState

pytestmark = pytest.mark.anyio

ws_protocol_cls = machines.each_websocket

anyio_backend = loops.one
http_protocol_cls = machines.each

QUEUE = 0.2
"""Seconds in the queue of a server whose loop is blocked for longer."""
LONG = 3600.0


class Doors:
    """An application that answers a request when it is let; by path."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.doors: dict[str, asyncio.Event] = {}

    def door(self, path: str) -> asyncio.Event:
        return self.doors.setdefault(path, asyncio.Event())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.called.append(path)
        await self.door(path).wait()
        await respond(path.encode())(scope, receive, send)


def gate_of(service: Service) -> Gate:
    assert service.state.gate is not None
    return service.state.gate


def counts(service: Service) -> tuple[int, int]:
    """Requests that are active, and that wait."""
    admission = gate_of(service).admission
    return admission.active, admission.waiting


@asynccontextmanager
async def limited(
    protocol: Any, app: Any, *, limit: Any = 1, queue: int = 5, **settings: Any
) -> AsyncIterator[Service]:
    """Serve with a limit; who waits does so until the test says otherwise. In the end nothing is counted."""
    chosen = {"timeout_queue": LONG} | settings
    async with serve(protocol, app, limit_active_requests=limit, limit_queue=queue, **chosen) as service:
        try:
            yield service
        finally:
            gate = service.state.gate
            for task in list(service.state.tasks):
                task.cancel()
            for client in service.clients:
                client.close()
    if gate is not None:
        await wait_until(lambda: (gate.admission.active, gate.admission.waiting) == (0, 0))


async def ask(service: Service, path: str, *, count: tuple[int, int] | None = None) -> Client:
    """A client that has asked for `path`; what is counted then."""
    client = await service.connect()
    await client.send(request("GET", path))
    if count is not None:
        await wait_until(lambda: counts(service) == count)
    return client


def is_refusal(response: Response) -> bool:
    values = [response.values(name) for name in (b"retry-after", b"content-length")]
    assert response.status != 503 or values == [[b"1"], [b"19"]]
    return response.status == 503


async def test_nothing_is_counted_by_default(http_protocol_cls: Any) -> None:
    async with serve(http_protocol_cls, respond()) as service:
        assert (await (await service.connect()).ask()).status == 200
        assert service.state.gate is None


async def test_request_waits_and_is_served_when_another_is_over(http_protocol_cls: Any) -> None:
    app = Doors()
    async with limited(http_protocol_cls, app) as service:
        first = await ask(service, "/1")
        await wait_until(lambda: app.called == ["/1"])
        second = await ask(service, "/2", count=(1, 1))
        assert len(service.state.tasks) == 1, "who waits has no task"
        assert await second.silent()
        app.door("/2").set()
        app.door("/1").set()
        assert (await first.response()).body == b"/1"
        assert (await second.response()).body == b"/2"
        await wait_until(lambda: counts(service) == (0, 0))


async def test_what_is_beyond_the_queue_is_refused_and_the_connection_serves_on(http_protocol_cls: Any) -> None:
    """D11"""
    app = Doors()
    async with limited(http_protocol_cls, app, queue=0) as service:
        first = await ask(service, "/1", count=(1, 0))
        second = await service.connect()
        for method in ("GET", "HEAD", "GET"):
            response = await second.ask(GET if method == "GET" else HEAD, method)
            assert is_refusal(response)
            assert response.body == (b"Service Unavailable" if method == "GET" else b"")
            assert response.values(b"connection") == []
        app.door("/1").set()
        app.door("/").set()
        await first.response()
        await wait_until(lambda: counts(service) == (0, 0))
        assert (await second.ask()).body == b"/"
        assert app.called == ["/1", "/"]


async def test_pipelined_requests_are_refused_one_by_one(http_protocol_cls: Any) -> None:
    app = Doors()
    async with limited(http_protocol_cls, app, queue=0) as service:
        await ask(service, "/1", count=(1, 0))
        client = await service.connect()
        await client.send(GET * 20)
        for _ in range(20):
            assert is_refusal(await client.response())


async def test_refusals_wait_for_a_client_that_does_not_read(http_protocol_cls: Any) -> None:
    """D11"""
    app = Doors()
    async with limited(http_protocol_cls, app, queue=0) as service:
        await ask(service, "/1", count=(1, 0))
        others = set(service.state.connections)
        client = await service.connect()
        assert is_refusal(await client.ask())
        protocol: Any = (set(service.state.connections) - others).pop()
        protocol.pause_writing()
        await client.send(GET * 3)
        await wait_until(lambda: len(service.state.tasks) == 2)
        assert await client.silent()
        assert len(service.state.tasks) == 2, "one at a time"
        protocol.resume_writing()
        for _ in range(3):
            assert is_refusal(await client.response())
        assert counts(service) == (1, 0)


async def test_one_that_waited_is_refused_when_its_client_reads(http_protocol_cls: Any) -> None:
    app = Doors()
    async with limited(http_protocol_cls, app) as service:
        await ask(service, "/1", count=(1, 0))
        others = set(service.state.connections)
        client = await ask(service, "/2", count=(1, 1))
        protocol: Any = (set(service.state.connections) - others).pop()
        protocol.pause_writing()
        client.half_close()
        await wait_until(lambda: counts(service) == (1, 0))
        assert await client.silent()
        protocol.resume_writing()
        assert is_refusal(await client.response())
        assert await client.rest() == b""


async def test_all_are_refused_that_a_client_sent_before_its_end(http_protocol_cls: Any) -> None:
    """D11"""
    app = Doors()
    async with limited(http_protocol_cls, app, queue=0) as service:
        first = await ask(service, "/1", count=(1, 0))
        client = await service.connect()
        await client.send(GET * 3)
        client.half_close()
        for _ in range(3):
            assert is_refusal(await client.response())
        assert await client.rest() == b""
        # In front of these is one that is served: they are looked at when the client's end is known.
        await first.send(request("GET", "/a") + request("GET", "/b"))
        first.half_close()
        await ask(service, "/x")
        gate_of(service).admission.limit = FixedLimit(0)
        app.door("/1").set()
        assert (await first.response()).body == b"/1"
        refused = [await first.response() for _ in range(2)]
        assert all(map(is_refusal, refused))
        assert [response.values(b"connection") for response in refused] == [[], [b"close"]]
        assert await first.rest() == b""


async def test_seconds_until_a_client_may_come_again_are_the_users(http_protocol_cls: Any) -> None:
    async with limited(http_protocol_cls, Doors(), queue=0, retry_after=30) as service:
        await ask(service, "/1", count=(1, 0))
        response = await (await service.connect()).ask()
        assert (response.status, response.values(b"retry-after")) == (503, [b"30"])


async def test_body_of_a_refused_request_is_skipped(http_protocol_cls: Any) -> None:
    async with limited(http_protocol_cls, Doors(), queue=0) as service:
        await ask(service, "/1", count=(1, 0))
        client = await service.connect()
        data = request("POST", "/2", body=b"x" * 1000)
        await client.send(data[:-500])
        assert is_refusal(await client.response())
        await client.send(data[-500:] + GET)
        assert is_refusal(await client.response())


async def test_connection_ends_where_too_much_of_a_refused_body_is_to_come(http_protocol_cls: Any) -> None:
    async with limited(http_protocol_cls, Doors(), queue=0) as service:
        await ask(service, "/1", count=(1, 0))
        client = await service.connect()
        response = await client.ask(request("POST", "/2", "content-length: 100000000"))
        assert is_refusal(response)
        assert response.values(b"connection") == [b"close"]
        assert await client.rest() == b""


async def test_client_that_asks_first_is_refused_before_it_sends(http_protocol_cls: Any) -> None:
    async with limited(http_protocol_cls, Doors(), queue=0) as service:
        await ask(service, "/1", count=(1, 0))
        client = await service.connect()
        response = await client.ask(request("POST", "/2", "content-length: 5", "expect: 100-continue"))
        assert is_refusal(response)


async def test_body_of_a_request_that_waits_is_kept_up_to_a_bound(http_protocol_cls: Any) -> None:
    app = Doors()

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await (app if scope["path"] == "/1" else echo)(scope, receive, send)

    async with limited(http_protocol_cls, served) as service:
        await ask(service, "/1", count=(1, 0))
        client = await service.connect()
        body = b"0123456789" * 200_000
        await client.send(request("POST", "/2", body=body)[:1000])
        await wait_until(lambda: counts(service) == (1, 1))
        sending = asyncio.ensure_future(client.send(request("POST", "/2", body=body)[1000:]))
        await turns(200)
        app.door("/1").set()
        await sending
        assert (await client.response()).body == body


async def test_one_who_has_waited_too_long_is_refused(http_protocol_cls: Any) -> None:
    app = Doors()
    async with limited(http_protocol_cls, app) as service:
        await ask(service, "/1", count=(1, 0))
        client = await ask(service, "/2", count=(1, 1))
        gate = gate_of(service)
        clock = gate._clock
        gate._clock = lambda: clock() + LONG
        gate._look_again()
        gate._look_soon()
        assert is_refusal(await client.response())
        assert counts(service) == (1, 0)
        assert app.called == ["/1"]


async def test_time_in_which_the_loop_was_blocked_is_no_time_in_the_queue(http_protocol_cls: Any) -> None:
    class Blocking(Doors):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == "/1":
                await self.door("/1").wait()
                time.sleep(5 * QUEUE)
                self.door("/2").set()
            await super().__call__(scope, receive, send)

    app = Blocking()
    async with limited(http_protocol_cls, app, timeout_queue=QUEUE) as service:
        first = await ask(service, "/1", count=(1, 0))
        others = [await ask(service, "/2", count=(1, number)) for number in (1, 2, 3)]
        app.door("/1").set()
        assert (await first.response()).status == 200
        assert [(await other.response()).status for other in others] == [200] * 3


async def test_one_for_whom_there_is_room_is_served_however_late(http_protocol_cls: Any) -> None:
    """The loop may have been blocked, and everybody is late then."""
    app = Doors()
    async with limited(http_protocol_cls, app) as service:
        first = await ask(service, "/1", count=(1, 0))
        second = await ask(service, "/2", count=(1, 1))
        gate = gate_of(service)
        clock = gate._clock
        gate._clock = lambda: clock() + LONG
        app.door("/2").set()
        app.door("/1").set()
        assert (await first.response()).body == b"/1"
        assert (await second.response()).body == b"/2"


async def test_those_who_wait_are_admitted_when_the_limit_is_raised(http_protocol_cls: Any) -> None:
    """None of the active requests ends, so that nothing can be learned of them."""
    app = Doors()
    async with limited(http_protocol_cls, app, limit="auto", queue=50) as service:
        clients = [await ask(service, "/1") for _ in range(START)]
        await wait_until(lambda: counts(service) == (START, 0))
        clients.append(await ask(service, "/1", count=(START, 1)))
        gate = gate_of(service)
        clock = gate._clock
        gate._clock = lambda: clock() + 2 * SILENCE
        clients.append(await ask(service, "/1"))
        await wait_until(lambda: counts(service) == (START + 2, 0))
        app.door("/1").set()
        for client in clients:
            assert (await client.response()).status == 200


async def test_timer_is_set_for_who_waits(http_protocol_cls: Any) -> None:
    async with limited(http_protocol_cls, Doors(), timeout_queue=0.05) as service:
        await ask(service, "/1", count=(1, 0))
        client = await ask(service, "/2")
        assert is_refusal(await client.response())


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
async def test_client_that_leaves_while_it_waits_is_forgotten(http_protocol_cls: Any, how: str) -> None:
    app = Doors()
    async with limited(http_protocol_cls, app) as service:
        first = await ask(service, "/1", count=(1, 0))
        second = await ask(service, "/2", count=(1, 1))
        {"close": second.close, "reset": second.reset, "half-close": second.half_close}[how]()
        await wait_until(lambda: counts(service) == (1, 0))
        if how == "half-close":
            assert is_refusal(await second.response())
            assert await second.rest() == b""
        app.door("/1").set()
        await first.response()
        await wait_until(lambda: len(service.state.connections) == 1)
        assert (app.called, counts(service)) == (["/1"], (0, 0))


async def test_client_that_sends_no_more_is_served_or_refused_at_once(http_protocol_cls: Any) -> None:
    app = Doors()
    async with limited(http_protocol_cls, app) as service:
        first = await ask(service, "/1", count=(1, 0))
        second = await service.connect()
        await second.send(GET + GET)
        await wait_until(lambda: counts(service) == (1, 1))
        second.half_close()
        assert is_refusal(await second.response())
        app.door("/1").set()
        await first.response()


async def test_slow_body_of_a_request_that_waits_has_its_deadline(http_protocol_cls: Any) -> None:
    app = Doors()
    async with limited(http_protocol_cls, app, timeout_request_body=5.0) as service:
        await ask(service, "/1", count=(1, 0))
        client = await service.connect()
        await client.send(request("POST", "/2", "content-length: 10"))
        await wait_until(lambda: counts(service) == (1, 1))
        service.pass_time(20)
        assert (await client.response()).status == 408
        await wait_until(lambda: counts(service) == (1, 0))
        app.door("/1").set()
        await turns()
        assert app.called == ["/1"]


@pytest.mark.parametrize("path", ["/health", "/probes/a", "/-/live", "/-/status"])
async def test_exempt_paths_are_served_beyond_the_limit(http_protocol_cls: Any, path: str) -> None:
    app = Doors()
    for exempt in ("/api/health", "/api/probes/a"):
        app.door(exempt).set()
    settings: Any = {"limit_exempt": ["/health", "/probes/*"], "lifecycle_path": "/-/", "root_path": "/api"}
    async with limited(http_protocol_cls, app, queue=0, **settings) as service:
        await ask(service, "/1", count=(1, 0))
        client = await service.connect()
        assert (await client.ask(request("GET", path))).status == 200
        for other in ("/healthy", "/probe", "/-/live/", "/x/health"):
            assert (await client.ask(request("GET", other))).status == 503
        assert counts(service) == (1, 0)


async def test_no_client_has_all_the_places_when_another_comes(http_protocol_cls: Any) -> None:
    """D11: clients are told apart by what a trusted proxy says."""
    app = Doors()
    settings: Any = {"proxy_headers": True, "forwarded_allow_ips": "127.0.0.1"}
    async with limited(http_protocol_cls, app, queue=2, **settings) as service:

        async def come(path: str, address: str) -> Client:
            client = await service.connect()
            await client.send(request("GET", path, f"x-forwarded-for: {address}"))
            return client

        await come("/1", "192.0.2.1")
        await wait_until(lambda: counts(service) == (1, 0))
        await come("/2", "192.0.2.1")
        await wait_until(lambda: counts(service) == (1, 1))
        third = await come("/3", "192.0.2.1")
        await wait_until(lambda: counts(service) == (1, 2))
        fourth = await come("/4", "192.0.2.1")
        assert is_refusal(await fourth.response())
        other = await come("/5", "198.51.100.7")
        assert is_refusal(await third.response())
        app.door("/5").set()
        app.door("/1").set()
        assert (await other.response()).body == b"/5"
        await wait_until(lambda: app.called == ["/1", "/5", "/2"])


async def test_client_below_its_share_is_served_while_another_has_all_the_places(http_protocol_cls: Any) -> None:
    """D11: for longer than anybody waits."""
    app = Doors()
    settings: Any = {"proxy_headers": True, "forwarded_allow_ips": "127.0.0.1"}
    async with limited(http_protocol_cls, app, limit=4, queue=10, **settings) as service:
        greedy = [await service.connect() for _ in range(20)]
        for client in greedy:
            await client.send(request("GET", "/1", "x-forwarded-for: 2001:db8::1"))
        await wait_until(lambda: counts(service) == (4, 10))
        other = await service.connect()
        app.door("/2").set()
        for _ in range(5):
            response = await other.ask(request("GET", "/2", "x-forwarded-for: 2001:db8:0:1::1"))
            assert response.body == b"/2"
        again = await service.connect()
        await again.send(request("GET", "/2", "x-forwarded-for: 2001:db8::ffff"))
        assert is_refusal(await again.response()), "the same network"
        app.door("/1").set()


async def test_forwarded_hosts_are_clients_by_the_other_middleware_too(http_protocol_cls: Any) -> None:
    app = Doors()
    settings: Any = {"proxy_headers": True, "forwarded_allow_ips": "127.0.0.1", "forwarded_headers": "forwarded"}
    async with limited(http_protocol_cls, app, limit=9, **settings) as service:
        for field in (
            'forwarded: for="[2001:db8::1]";host=a',
            "forwarded: for=192.0.2.1",
            "x-forwarded-for: 192.0.2.9",
        ):
            await (await service.connect()).send(request("GET", "/", field))
        await wait_until(lambda: counts(service) == (3, 0))
        expected = {client_of("2001:db8::2"), "192.0.2.1", "127.0.0.1"}
        assert gate_of(service).admission._clients.keys() == expected


@pytest.mark.parametrize(
    "one, other, is_same",
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("no:address", "no:address", True),
        ("no:address", "another:one", False),
        ("a\0:b", "a\0:c", False),
        ("2001:db8::1%" + "z" * 100, "2001:db8::2%" + "z" * 100, False),
    ],
)
def test_client_is_an_address_or_a_network(one: str, other: str, is_same: bool) -> None:
    assert (client_of(one) == client_of(other)) is is_same


async def test_failed_application_gives_its_place_back(http_protocol_cls: Any) -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("on purpose")

    async with limited(http_protocol_cls, fail) as service:
        for _ in range(5):
            client = await service.connect()
            assert (await client.ask()).status == 500
            await wait_until(lambda: counts(service) == (0, 0))


async def test_place_is_held_until_the_application_returns(http_protocol_cls: Any) -> None:
    """What runs behind the response, or for a client that is gone, is work too."""
    door = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond()(scope, receive, send)
        await door.wait()

    async with limited(http_protocol_cls, app) as service:
        client = await service.connect()
        assert (await client.ask()).status == 200
        assert counts(service) == (1, 0)
        client.close()
        await wait_until(lambda: not service.state.connections)
        assert counts(service) == (1, 0)
        door.set()
        await wait_until(lambda: counts(service) == (0, 0))


async def test_task_that_is_cancelled_before_its_first_step_gives_its_place_back(http_protocol_cls: Any) -> None:
    calls = Calls()
    async with limited(http_protocol_cls, calls) as service:
        client = await service.connect()
        loop = asyncio.get_running_loop()

        def cancel() -> None:
            for task in list(service.state.tasks):
                task.cancel()
            if not service.state.tasks:
                loop.call_soon(cancel)

        cancel()
        await client.send(GET)
        if await client.receive():
            assert (await client.response()).status == 500
        await wait_until(lambda: counts(service) == (0, 0))
    assert calls.scopes == []


async def test_server_that_ends_answers_those_who_wait(http_protocol_cls: Any) -> None:
    """As the stages of a drain do it: the connections are asked to end, then told that their clients are gone."""
    app = Doors()
    async with limited(http_protocol_cls, app) as service:
        first = await ask(service, "/1", count=(1, 0))
        second = await ask(service, "/2", count=(1, 1))
        third = await ask(service, "/3", count=(1, 2))
        connections: list[Any] = list(service.state.connections)
        for connection in connections:
            connection.shutdown()
        app.door("/2").set()
        app.door("/1").set()
        assert (await first.response()).body == b"/1"
        response = await second.response()
        assert (response.body, response.values(b"connection")) == (b"/2", [b"close"])
        await wait_until(lambda: app.called == ["/1", "/2", "/3"])
        fourth = await service.connect()
        await fourth.send(GET)
        await wait_until(lambda: counts(service) == (1, 1))
        connections = list(service.state.connections)
        for connection in connections:
            connection.shutdown()
            connection.disconnect()
        response = await fourth.response()
        assert is_refusal(response)
        assert response.values(b"connection") == [b"close"]
        assert await fourth.rest() == b""
        app.door("/3").set()
        assert (await third.response()).status == 200


async def test_refusals_have_access_lines(http_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.access")
    async with limited(http_protocol_cls, Doors(), queue=0, access_log=True) as service:
        await ask(service, "/1", count=(1, 0))
        await (await service.connect()).ask(request("GET", "/2"))
        service.state.protocol_settings.flush()
        records = [*caplog.records]
    lines = [record.getMessage() for record in records if record.name == "uvicorn.access"]
    assert len(lines) == 1 and lines[0].endswith('"GET /2 HTTP/1.1" 503')


async def test_log_says_when_requests_begin_to_be_refused_and_when_that_has_ended(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")
    async with limited(http_protocol_cls, Doors(), queue=0) as service:
        await ask(service, "/1", count=(1, 0))
        client = await service.connect()
        for _ in range(7):
            await client.ask()
        (begin,) = (record for record in caplog.records if record.name == "uvicorn.error")
        assert begin.levelno == logging.WARNING
        assert begin.getMessage().startswith("Overload: 1 requests are active and 0 wait")
        shedding = gate_of(service)._shedding
        clock = shedding._clock
        shedding._look()
        assert len(caplog.records) == 1
        shedding._clock = lambda: clock() + QUIET
        shedding._look()
        assert "rejected 7 requests (7 found the queue full, 0 were displaced" in caplog.records[-1].getMessage()
        assert len(caplog.records) == 2


async def test_numbers_of_the_log_are_those_of_the_metrics(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that leaves while it waits is refused as well."""
    state = ServerState()
    state.metrics = Page.make()
    words = state.metrics.words
    async with limited(http_protocol_cls, Doors(), limit=2, queue=1, state=state) as service:
        await ask(service, "/1", count=(1, 0))
        await ask(service, "/2", count=(2, 0))
        early = await ask(service, "/3", count=(2, 1))
        early.close()
        await wait_until(lambda: counts(service) == (2, 0))
        assert not caplog.records, "that is no overload"
        leaving = await ask(service, "/4", count=(2, 1))
        assert is_refusal(await (await ask(service, "/5")).response())
        begin = caplog.messages[-1]
        assert begin.startswith("Overload: 2 requests are active and 1 wait")
        assert words[ADMITTED] - words[RELEASED] == 2 and words[QUEUED] - words[UNQUEUED] == 1
        assert f"process [{os.getpid()}]" in begin and "limit_active_requests" in begin
        leaving.close()
        await wait_until(lambda: counts(service) == (2, 0))
        assert sum(words[SHED + reason] for reason in ShedReason) == 3
        gate_of(service)._shedding._end()
        line = caplog.messages[-1]
        assert "rejected 2 requests (1 found the queue full, 0 were displaced, 0 waited too long, " in line
        assert "0 stalled on their clients, 1 disconnected)" in line


async def test_numbers_are_told(http_protocol_cls: Any) -> None:
    state = ServerState()
    state.metrics = Page.make()
    app = Doors()
    words = state.metrics.words
    async with limited(http_protocol_cls, app, limit=2, queue=1, state=state) as service:
        await ask(service, "/1", count=(1, 0))
        await ask(service, "/2", count=(2, 0))
        leaving = await ask(service, "/3", count=(2, 1))
        assert is_refusal(await (await ask(service, "/4")).response())
        leaving.close()
        await wait_until(lambda: counts(service) == (2, 0))
        assert [words[place] for place in (ADMITTED, RELEASED, QUEUED, UNQUEUED)] == [2, 0, 1, 1]
        assert [words[SHED + reason] for reason in range(4)] == [1, 0, 0, 1]
        assert words[LIMIT_RAISED] - words[LIMIT_LOWERED] == 2
    assert words[ADMITTED] == words[RELEASED]


async def test_limit_that_is_found_out_serves(http_protocol_cls: Any) -> None:
    async with limited(http_protocol_cls, respond(), limit="auto") as service:
        client = await service.connect()
        for _ in range(50):
            assert (await client.ask()).status == 200
        assert isinstance(gate_of(service).admission.limit, AdaptiveLimit)


async def test_who_cannot_be_started_keeps_nobody_waiting(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = Doors()
    async with limited(http_protocol_cls, app) as service:
        first = await ask(service, "/1", count=(1, 0))
        await ask(service, "/2", count=(1, 1))
        third = await ask(service, "/3", count=(1, 2))
        gate = gate_of(service)
        ticket = gate.admission.oldest()
        assert ticket is not None

        class Broken:
            def admit(self, eagerly: bool = False) -> None:
                raise RuntimeError("on purpose")

            refuse = evict = admit

        ticket.holder = Broken()
        app.door("/1").set()
        app.door("/3").set()
        await first.response()
        assert (await third.response()).status == 200
        assert "Cannot resume a queued request" in caplog.text


# Applications that wait for their clients


def parked(service: Service) -> tuple[int, int, int]:
    """Requests that are active, that wait, and that are parked."""
    admission = gate_of(service).admission
    return admission.active, admission.waiting, admission.parked


def upload(path: str = "/body", length: int = 5) -> bytes:
    """The head of a request with a body."""
    return request("POST", path, f"content-length: {length}")


class Works(Doors):
    """An application that reads a body, works behind a door, and answers with the body."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] != "POST":
            await super().__call__(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            self.called.append(message["type"])
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        await self.door("/body").wait()
        await respond(body)(scope, receive, send)


async def test_request_whose_body_does_not_come_holds_no_place(http_protocol_cls: Any) -> None:
    """D11"""
    app = Works()
    async with limited(http_protocol_cls, app, queue=0) as service:
        clients = [await service.connect() for _ in range(5)]
        for number, client in enumerate(clients, 1):
            await client.send(upload())
            await wait_until(lambda number=number: parked(service) == (0, 0, number))  # type: ignore[misc]
        app.door("/1").set()
        assert (await (await ask(service, "/1")).response()).body == b"/1"
        for client in clients:
            await client.send(b"12")
        await wait_until(lambda: app.called.count("http.request") == 5)
        await wait_until(lambda: parked(service) == (0, 0, 5))
        app.door("/body").set()
        for client in clients:
            await client.send(b"345")
            assert (await client.response()).body == b"12345"
        await wait_until(lambda: parked(service) == (0, 0, 0))


async def test_one_whose_body_has_come_goes_on_when_there_is_a_place(http_protocol_cls: Any) -> None:
    app = Works()
    app.door("/body").set()
    async with limited(http_protocol_cls, app) as service:
        first = await service.connect()
        await first.send(upload())
        await wait_until(lambda: parked(service) == (0, 0, 1))
        second = await ask(service, "/2", count=(1, 0))
        third = await ask(service, "/3", count=(1, 1))
        gate_of(service).admission._patience = 1e9
        gate_of(service).admission._freed_at = 1e12
        await first.send(b"12345")
        await turns(50)
        assert app.called == ["/2"]
        for path in ("/3", "/2"):
            app.door(path).set()
        assert (await first.response()).body == b"12345"
        assert (await second.response()).body == b"/2"
        assert (await third.response()).body == b"/3"
        assert app.called == ["/2", "http.request", "/3"], "before those that have not begun"


async def test_one_that_may_hold_what_others_wait_for_goes_on_without_a_place(http_protocol_cls: Any) -> None:
    """It has a lock, and those that wait for it have all the places."""
    lock = asyncio.Lock()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async with lock:
            await receive()
            await respond(scope["path"].encode())(scope, receive, send)

    async with limited(http_protocol_cls, app, timeout_queue=0.05) as service:
        first = await service.connect()
        await first.send(upload("/1"))
        await wait_until(lambda: parked(service) == (0, 0, 1))
        second = await ask(service, "/2", count=(1, 0))
        await first.send(b"12345")
        assert (await first.response()).body == b"/1"
        assert (await second.response()).body == b"/2"


async def test_request_whose_client_does_not_read_holds_no_place(http_protocol_cls: Any) -> None:
    """D11"""
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/large":
            await respond()(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        for piece in (b"123", b"456", b"789"):
            await go.wait()
            await send({"type": "http.response.body", "body": piece, "more_body": piece != b"789"})

    async with limited(http_protocol_cls, app, queue=0) as service:
        client = await ask(service, "/large", count=(1, 0))
        (protocol,) = service.state.connections
        connection: Any = protocol
        connection.pause_writing()
        go.set()
        await wait_until(lambda: parked(service) == (0, 0, 1))
        for _ in range(3):
            assert (await (await service.connect()).ask()).status == 200
        connection.resume_writing()
        assert (await client.response()).body == b"123456789"
        await wait_until(lambda: parked(service) == (0, 0, 0))


@pytest.mark.parametrize("extension", ["http.response.pathsend", "http.response.zerocopysend"])
async def test_request_whose_client_does_not_read_a_file_holds_no_place(
    http_protocol_cls: Any, extension: str, tmp_path: Path
) -> None:
    size = 30_000_000
    path = tmp_path / "large"
    path.write_bytes(b"x" * size)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/large":
            await respond()(scope, receive, send)
            return
        headers = [(b"content-length", b"%d" % size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if extension == "http.response.pathsend":
            await send({"type": extension, "path": str(path)})
        else:
            with path.open("rb") as file:
                await send({"type": extension, "file": file})

    async with limited(http_protocol_cls, app, queue=0, asgi_extensions=[extension]) as service:
        client = await ask(service, "/large")
        await wait_until(lambda: parked(service) == (0, 0, 1))
        assert (await (await service.connect()).ask()).status == 200
        assert len((await client.response()).body) == size
        await wait_until(lambda: parked(service) == (0, 0, 0))


async def test_application_that_waits_for_its_client_to_leave_has_its_place(http_protocol_cls: Any) -> None:
    """A long poll waits for something else beside it."""
    ends: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] != "http.disconnect":
            pass
        ends.append(message["type"])

    async with limited(http_protocol_cls, app, queue=0) as service:
        client = await ask(service, "/1", count=(1, 0))
        await turns(20)
        assert parked(service) == (1, 0, 0)
        client.close()
        await wait_until(lambda: ends == ["http.disconnect"])


async def test_application_that_stops_waiting_for_a_body_has_a_place_again(http_protocol_cls: Any) -> None:
    """Beyond the limit, if need be: it runs."""
    doors = Doors()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(receive(), 0.02)
        await doors(scope, receive, send)

    async with limited(http_protocol_cls, app) as service:
        first = await service.connect()
        await first.send(upload("/1"))
        await wait_until(lambda: doors.called == ["/1"])
        assert parked(service) == (1, 0, 0)
        await ask(service, "/2", count=(1, 1))
        doors.door("/1").set()
        assert (await first.response()).status == 200
        await wait_until(lambda: doors.called == ["/1", "/2"])
        doors.door("/2").set()


async def test_application_that_works_while_it_waits_for_a_body_has_its_place(http_protocol_cls: Any) -> None:
    """Tasks of its own do; it is seen by what it sends."""
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def listen() -> None:
            while (await receive()).get("more_body"):
                pass

        listening = asyncio.ensure_future(listen())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"1", "more_body": True})
        await go.wait()
        await send({"type": "http.response.body", "body": b"2"})
        await listening

    async with limited(http_protocol_cls, app, limit=2) as service:
        client = await service.connect()
        await client.send(upload())
        await client.until(b"1\r\n1\r\n")
        assert parked(service) == (1, 0, 0)
        await client.send(b"1")
        await turns(20)
        assert parked(service) == (1, 0, 0)
        await client.send(b"2345")
        go.set()
        await client.until(b"0\r\n\r\n")
        await wait_until(lambda: parked(service) == (0, 0, 0))


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_one_that_is_parked_hears_of_the_end_of_its_client(http_protocol_cls: Any, how: str) -> None:
    app = Works()
    async with limited(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(upload())
        await wait_until(lambda: parked(service) == (0, 0, 1))
        await ask(service, "/2", count=(1, 0))
        {"close": client.close, "reset": client.reset}[how]()
        await wait_until(lambda: app.called[1:] == ["http.disconnect"])
        await wait_until(lambda: parked(service) == (1, 0, 0))


async def test_client_that_has_too_many_parked_loses_the_oldest(
    http_protocol_cls: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D11: 503 if nothing was sent, otherwise the response is broken off."""
    monkeypatch.setattr("uvicorn.overload.admission.LEAST_PARKED", 4)
    monkeypatch.setattr("uvicorn.overload.admission.PARKED_FOR_EACH", 1)
    ends: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        message = await receive()
        ends.append(scope["path"] + " " + message["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async with limited(http_protocol_cls, app) as service:
        clients = []
        for number, path in enumerate(["/idle", "/begun", "/3", "/4"]):
            clients.append(await service.connect())
            await clients[-1].send(upload(path))
            if path == "/begun":
                await clients[-1].until(b"begun")
            await wait_until(lambda number=number: gate_of(service).admission.parked == min(number + 1, 2))  # type: ignore[misc]
        response = await clients[0].response()
        assert (response.status, response.values(b"connection")) == (503, [b"close"])
        assert b"0\r\n\r\n" not in await clients[1].rest()
        await wait_until(lambda: ends == ["/idle http.disconnect", "/begun http.disconnect"])
        await wait_until(lambda: parked(service) == (0, 0, 2))
        assert not [record for record in caplog.records if record.exc_info]


async def test_numbers_of_parked_requests_are_told(http_protocol_cls: Any) -> None:
    state = ServerState()
    state.metrics = Page.make()
    words = state.metrics.words
    app = Works()
    async with limited(http_protocol_cls, app, state=state) as service:
        clients = [await service.connect() for _ in range(3)]
        for client in clients:
            await client.send(upload())
        await wait_until(lambda: parked(service) == (0, 0, 3))
        places = (ADMITTED, RELEASED, PARKED, UNPARKED)
        assert [words[place] for place in places] == [3, 0, 3, 0]
        clients[0].close()
        await wait_until(lambda: parked(service) == (0, 0, 2))
        assert [words[place] for place in places] == [3, 1, 3, 1]
        await clients[1].send(b"12345")
        await wait_until(lambda: parked(service) == (1, 0, 1))
        assert [words[place] for place in places] == [3, 1, 3, 2]
    assert words[ADMITTED] == words[RELEASED] and words[PARKED] == words[UNPARKED]


# The opening of a WebSocket


async def test_handshake_is_counted_until_it_is_accepted(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    door, accepted = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            await respond()(scope, receive, send)
            return
        await receive()
        await door.wait()
        await send({"type": "websocket.accept"})
        accepted.set()
        await receive()

    async with limited(http_protocol_cls, app, queue=0, ws=ws_protocol_cls) as service:
        first = await service.connect()
        await first.send(handshake())
        await wait_until(lambda: counts(service) == (1, 0))
        second = await service.connect()
        await second.send(handshake())
        response = await second.response()
        assert is_refusal(response)
        assert response.values(b"connection") == [b"close"]
        assert await second.rest() == b""
        door.set()
        assert (await first.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        await accepted.wait()
        assert counts(service) == (0, 0)
        assert (await (await service.connect()).ask()).status == 200


@pytest.mark.parametrize("end", ["returns", "fails", "turns away", "leaves"])
async def test_handshake_gives_its_place_back(http_protocol_cls: Any, ws_protocol_cls: Any, end: str) -> None:
    door = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if end == "leaves":
            await receive()
            return
        await door.wait()
        if end == "fails":
            raise RuntimeError("on purpose")
        if end == "turns away":
            await send({"type": "websocket.close"})

    async with limited(http_protocol_cls, app, ws=ws_protocol_cls) as service:
        client = await service.connect()
        await client.send(handshake())
        await wait_until(lambda: counts(service) == (1, 0))
        if end == "leaves":
            client.close()
        door.set()
        await wait_until(lambda: counts(service) == (0, 0))


async def accepting(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    message = await receive()
    if message["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"] + " back"})


async def test_handshake_waits_for_its_turn(http_protocol_cls: Any, ws_protocol_cls: Any) -> None:
    doors = Doors()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (accepting if scope["type"] == "websocket" else doors)(scope, receive, send)

    async with limited(http_protocol_cls, app, ws=ws_protocol_cls) as service:
        await ask(service, "/", count=(1, 0))
        client = await service.connect()
        await client.send(handshake(), frame(0x81, b"there"))
        await wait_until(lambda: counts(service) == (1, 1))
        assert await client.silent()
        doors.door("/").set()
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert b"there back" in await client.until(b"back")
        assert counts(service) == (0, 0)


@pytest.mark.parametrize("end", ["late", "given up", "leaves", "server stops"])
async def test_handshake_that_waits_is_ended(http_protocol_cls: Any, ws_protocol_cls: Any, end: str) -> None:
    state = ServerState()
    state.metrics = Page.make()
    doors = Doors()
    settings = {"timeout_queue": 0.05} if end == "late" else {}
    async with limited(http_protocol_cls, doors, queue=1, ws=ws_protocol_cls, state=state, **settings) as service:
        await ask(service, "/", count=(1, 0))
        client = await service.connect()
        await client.send(handshake())
        await wait_until(lambda: state.metrics is not None and state.metrics.words[QUEUED] == 1)
        if end == "given up":
            waiting = gate_of(service).admission.oldest()
            assert waiting is not None
            gate_of(service).leave(waiting)
        elif end == "leaves":
            client.close()
        elif end == "server stops":
            for protocol in list(service.state.connections):
                if getattr(protocol, "scope", {})["type"] == "websocket":
                    protocol.shutdown()
        if end != "leaves":
            response = await client.response()
            assert is_refusal(response)
            assert await client.rest() == b""
        await wait_until(lambda: counts(service) == (1, 0))
        assert state.metrics.words[QUEUED] == state.metrics.words[UNQUEUED]
        doors.door("/").set()
        await wait_until(lambda: counts(service) == (0, 0))
        assert doors.called == ["/"]


# Whatever happens


class Chaos:
    """Clients and applications that do everything, in an order that a seed decides."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.limit = self.random.randint(1, 4)
        self.queue = self.random.randint(0, 6)
        self.peak = 0
        self.active = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.active += 1
        self.peak = max(self.peak, self.active)
        try:
            await self.serve(scope, receive, send)
        finally:
            self.active -= 1

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        for _ in range(self.random.randrange(5)):
            await asyncio.sleep(0)
        match self.random.randrange(6):
            case 0:
                raise RuntimeError("on purpose")
            case 1:
                return
            case 2:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"part", "more_body": True})
                raise RuntimeError("on purpose")
            case 3:
                raise asyncio.CancelledError
            case 4:
                self.active -= 1  # who waits for a body has no place
                try:
                    await echo(scope, receive, send)
                finally:
                    self.active += 1
            case _:
                await respond()(scope, receive, send)
                await asyncio.sleep(0)

    async def client(self, service: Service) -> None:
        client = await service.connect()
        with contextlib.suppress(OSError):
            for _ in range(self.random.randrange(1, 5)):
                data = self.random.choice([GET, GET * 3, HEAD, request("POST", body=b"x" * 300)])
                cut = self.random.choice([len(data), self.random.randrange(len(data))])
                await client.send(data[:cut], data[cut:])
                if cut == len(data) and self.random.random() < 0.5:
                    await client.receive()
                if self.random.random() < 0.2 and service.state.tasks:
                    self.random.choice(list(service.state.tasks)).cancel()
            ends: list[Callable[[], None]] = [client.close, client.reset, client.half_close, lambda: None]
            self.random.choice(ends)()
            for _ in range(self.random.randrange(30)):
                await asyncio.sleep(0)

    async def end(self, service: Service) -> None:
        connections: list[Any] = list(service.state.connections)
        for connection in connections:
            connection.shutdown()
        for connection in connections:
            connection.disconnect()
        await turns()
        for connection in list(service.state.connections):
            transport: Any = connection
            transport.transport.abort()


@pytest.mark.parametrize("seed", range(12))
async def test_every_place_is_given_back_whatever_happens(
    http_protocol_cls: Any, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """D11"""
    chaos = Chaos(seed)
    async with limited(http_protocol_cls, chaos, limit=chaos.limit, queue=chaos.queue) as service:
        await asyncio.gather(*(chaos.client(service) for _ in range(30)))
        gate = gate_of(service)
        await chaos.end(service)
        await service.idle()
        await wait_until(lambda: (gate.admission.active, gate.admission.waiting) == (0, 0))
        assert not (gate.admission.parked or gate.admission._clients or gate._ending)
    assert chaos.peak <= chaos.limit
    assert "Cannot resume a queued request" not in caplog.text


# A server


class Stubborn:
    """An application that knows no end before its task is cancelled, for the first of its requests."""

    def __init__(self) -> None:
        self.called: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.called.append(scope["path"])
        if scope["path"] == "/stuck":
            await asyncio.Event().wait()
        await respond()(scope, receive, send)


async def test_those_who_wait_are_answered_before_a_server_ends(http_protocol_cls: Any) -> None:
    """D11: a drain's deadline holds for them, however long they may wait."""
    app = Stubborn()
    settings: Any = {"limit_active_requests": 1, "timeout_queue": LONG, "timeout_graceful_shutdown": 1}
    config = Config(app, http=http_protocol_cls, port=0, log_config=None, lifespan="off", **settings)
    async with run_server(config) as server:
        address = ("127.0.0.1", server_port(server))
        clients = [Client(open_connection(address, request("GET", "/stuck")))]
        await wait_until(lambda: app.called)
        clients.append(Client(open_connection(address, request("GET", "/waits"))))
        gate = server.server_state.gate
        assert gate is not None
        await wait_until(lambda: gate.admission.waiting)
        server.should_exit = True
        response = await clients[1].response()
        assert is_refusal(response)
        assert response.values(b"connection") == [b"close"]
        assert await clients[1].rest() == b""
    assert app.called == ["/stuck"]
    assert (gate.admission.active, gate.admission.waiting) == (0, 0)
    for client in clients:
        client.close()


async def test_files_of_the_server_are_not_counted(http_protocol_cls: Any, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"small")
    (tmp_path / "large").write_bytes(b"x" * 1_000_000)
    async with limited(http_protocol_cls, Doors(), queue=0, mount=[f"/files={tmp_path}"]) as service:
        await ask(service, "/1", count=(1, 0))
        client = await service.connect()
        for name, size in (("small", 5), ("large", 1_000_000)):
            response = await client.ask(request("GET", f"/files/{name}"))
            assert (response.status, len(response.body)) == (200, size)
        assert counts(service) == (1, 0)
        assert is_refusal(await client.ask())


# In whose place the next one begins.

EAGER = sys.version_info >= (3, 12)
"""Whether tasks can begin inside others."""


async def test_who_waits_begins_inside_the_last_step_of_who_ends(http_protocol_cls: Any) -> None:
    """Else calls that ended in one turn of the loop would be followed together, by calls that wait together."""
    order: list[Any] = []
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        order.append((path, variable.get(), asyncio.current_task() in seen))
        seen.append(asyncio.current_task())
        variable.set(path)
        if path == "/1":
            await go.wait()
            asyncio.get_running_loop().call_soon(order.append, "the next turn")
        await respond(path.encode())(scope, receive, send)
        assert asyncio.current_task() is seen[order.index((path, "", False)) if path == "/1" else -1]

    seen: list[Any] = []
    async with limited(http_protocol_cls, app) as service:
        first = await ask(service, "/1", count=(1, 0))
        second = await ask(service, "/2", count=(1, 1))
        go.set()
        assert (await first.response()).body == b"/1"
        assert (await second.response()).body == b"/2"
    one, two, turn = ("/1", "", False), ("/2", "", False), "the next turn"
    assert order == ([one, two, turn] if EAGER else [one, turn, two])


async def test_many_that_end_at_once_do_not_begin_inside_each_other(http_protocol_cls: Any) -> None:
    """Neither the stack nor the turns of the loop grow with the queue."""
    depths: list[int] = []
    between: list[int] = []
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        depths.append(len(traceback.extract_stack()))
        if scope["path"] == "/first":
            await go.wait()
            asyncio.get_running_loop().call_soon(lambda: between.append(len(depths)))
        await respond(b"ok")(scope, receive, send)

    async with limited(http_protocol_cls, app, queue=60) as service:
        clients = [await ask(service, "/first", count=(1, 0))]
        clients += [await ask(service, "/", count=(1, number)) for number in range(1, 51)]
        go.set()
        for client in clients:
            assert (await client.response()).status == 200
    assert max(depths[1:]) - min(depths[1:]) < 20
    assert between == [2 if EAGER else 1], "the others come with later turns of the loop"


async def test_who_begins_inside_another_fails_alone(http_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/2":
            raise RuntimeError("of the second")
        if scope["path"] == "/1":
            await go.wait()
        await respond(scope["path"].encode())(scope, receive, send)

    async with limited(http_protocol_cls, app) as service:
        clients = [await ask(service, "/1", count=(1, 0))]
        clients += [await ask(service, f"/{number}", count=(1, number - 1)) for number in (2, 3)]
        go.set()
        responses = [await client.response() for client in clients]
    assert [response.status for response in responses] == [200, 500, 200]
    assert (responses[0].body, responses[2].body) == (b"/1", b"/3")
    assert [record.exc_info is not None for record in caplog.records].count(True) == 1


async def test_a_place_of_a_cancelled_call_is_given_on_with_the_next_turn(http_protocol_cls: Any) -> None:
    app = Doors()
    async with limited(http_protocol_cls, app) as service:
        await ask(service, "/1", count=(1, 0))
        await wait_until(lambda: app.called == ["/1"])
        second = await ask(service, "/2", count=(1, 1))
        app.door("/2").set()
        (task,) = service.state.tasks
        task.cancel()
        assert (await second.response()).body == b"/2"
