"""The life of a connection: keep-alive, pipelining, half-close, resets, contexts, shutdown; on both event loops."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import logging
import os
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests import loops, machines
from tests.protocols.harness import GET, GET_CLOSE, Calls, Client, Service, echo, request, respond, serve
from tests.utils import wait_until
from uvicorn.logging import TRACE_LOG_LEVEL
from uvicorn.rules import limits
from uvicorn.serving.state import ServerState

pytestmark = pytest.mark.anyio


anyio_backend = loops.each
http_protocol_cls = machines.each


class Gate:
    """An application that notes who has come and answers, with the path, when it is told to."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.open = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.entered.append(scope["path"])
        await self.open.wait()
        await respond(scope["path"].encode())(scope, receive, send)


async def answer_when_the_client_has_ended(scope: Any, receive: Any, send: Any) -> None:
    """Answer a GET, with its path, once the client was heard to have closed its sending side; tell what else comes."""
    if scope["method"] == "GET":
        while (await receive())["type"] != "http.disconnect":
            pass
        await respond(scope["path"].encode())(scope, receive, send)
    else:
        await respond((await receive())["type"].encode())(scope, receive, send)


# Keep-alive


async def test_connection_serves_one_request_after_the_other(http_protocol_cls: Any) -> None:
    async with serve(http_protocol_cls, echo) as service:
        client = await service.connect()
        for number in range(20):
            assert (await client.ask(request("POST", body=b"%d" % number))).body == b"%d" % number
        assert service.state.total_requests == 20
        assert len(service.state.connections) == 1


async def test_idle_connection_is_closed_without_a_word(http_protocol_cls: Any) -> None:
    """CON-01"""
    async with serve(http_protocol_cls, respond(), timeout_keep_alive=300) as service:
        client = await service.connect()
        await client.ask()
        assert await client.silent()
        service.pass_time(400)
        assert await client.rest() == b""
        await service.idle()


async def test_keep_alive_timeout_counts_from_the_last_response(http_protocol_cls: Any) -> None:
    """CON-01: a timer of the first request does not end the connection after the second."""
    async with serve(http_protocol_cls, respond(), timeout_keep_alive=300) as service:
        client = await service.connect()
        for _ in range(4):
            await client.ask()
            assert await client.silent()
            service.pass_time(200)
        assert await client.silent()
        service.pass_time(200)
        assert await client.rest() == b""


async def test_keep_alive_of_zero_closes_at_the_next_turn(http_protocol_cls: Any) -> None:
    """CON-04"""
    async with serve(http_protocol_cls, respond(), timeout_keep_alive=0) as service:
        client = await service.connect()
        assert (await client.ask()).status == 200
        assert await client.rest() == b""


async def test_keep_alive_timer_is_not_armed_while_a_request_is_served(http_protocol_cls: Any) -> None:
    """K1, CON-02: neither for the first request nor for those behind it."""
    app = Gate()
    async with serve(http_protocol_cls, app, timeout_keep_alive=300) as service:
        client = await service.connect()
        await client.send(request("GET", "/1") + request("GET", "/2"))
        await wait_until(lambda: app.entered)
        service.pass_time(1000)
        assert await client.silent()
        app.open.set()
        assert (await client.response()).body == b"/1"
        assert (await client.response()).body == b"/2"
        assert await client.silent()
        service.pass_time(400)
        assert await client.rest() == b""


async def test_client_that_sends_one_byte_does_not_keep_the_connection_for_ever(http_protocol_cls: Any) -> None:
    """CON-02: upstream's would stay; here the head has its own deadline."""
    settings = {"timeout_keep_alive": 3000, "timeout_request_head": 300}
    async with serve(http_protocol_cls, respond(), **settings) as service:
        client = await service.connect()
        await client.ask()
        await client.send(b"G")
        assert await client.silent()
        service.pass_time(400)
        assert (await client.response()).status == 408
        assert await client.rest() == b""


async def test_connection_that_never_asks_is_closed_without_a_word(http_protocol_cls: Any, caplog: Any) -> None:
    """CON-03, K4: upstream waits for ever."""
    async with serve(http_protocol_cls, respond(), timeout_request_head=300) as service:
        client = await service.connect()
        await service.accepted()
        service.pass_time(400)
        assert await client.rest() == b""
        await service.idle()
    assert caplog.records == []


# Pipelining


@pytest.mark.parametrize("start", ["eager", "task-factory", "older-interpreter"])
async def test_pipelined_requests_are_answered_in_order(
    http_protocol_cls: Any, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K1, CON-05: those that wait in one read, those that come later, with bodies and without."""
    if start == "older-interpreter":
        monkeypatch.setattr("uvicorn.protocols.http.protocol_settings.EAGER_START", False)
    elif start == "task-factory":
        asyncio.get_running_loop().set_task_factory(
            lambda loop, coroutine, **options: asyncio.Task(coroutine, loop=loop, **options)
        )

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(int(scope["query_string"] or b"0")):
            await asyncio.sleep(0)
        await echo(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        bodies = [b"%d" % number * (number * 700 % 1000) for number in range(60)]
        requests = [request("POST", f"/?{number * 7 % 5}", body=body) for number, body in enumerate(bodies)]
        await client.send(b"".join(requests[:40]), *requests[40:])
        for body in bodies:
            assert (await client.response()).body == body
        assert (await client.ask()).status == 200
        assert service.state.total_requests == 61


async def test_request_behind_a_slow_one_waits_for_its_turn(http_protocol_cls: Any) -> None:
    """CON-05"""
    app = Gate()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("GET", "/1"), request("GET", "/2") + request("GET", "/3"))
        await wait_until(lambda: app.entered)
        assert await client.silent()
        assert app.entered == ["/1"]
        app.open.set()
        assert [(await client.response()).body for _ in range(3)] == [b"/1", b"/2", b"/3"]


@pytest.mark.no_cover
async def test_reading_stops_while_much_is_pipelined(http_protocol_cls: Any) -> None:
    """CON-05: what waits behind a slow request is bounded; none of it is dropped."""
    app = Gate()
    count = 5000
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: app.entered)
        transport = service.transport
        sending = asyncio.create_task(client.send(GET * count))
        await wait_until(lambda: not transport.is_reading())
        app.open.set()
        for _ in range(count + 1):
            assert (await client.response()).body == b"/"
        await sending
        assert len(app.entered) == count + 1


async def test_hundreds_of_requests_in_one_read_are_all_answered(http_protocol_cls: Any) -> None:
    """K1: also beyond what is served before other connections get their turn."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(GET * 500 + b"GET / HT")
        for _ in range(500):
            assert (await client.response()).body == b"ok"
        await client.send(GET[8:])
        assert (await client.response()).body == b"ok"


async def test_nothing_behind_close_is_served(http_protocol_cls: Any) -> None:
    """K2, REQ-29"""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET_CLOSE + GET + b"garbage")
        assert (await client.response()).status == 200
        assert await client.rest() == b""
    assert len(app.scopes) == 1


async def test_pipelined_requests_of_a_client_that_leaves_are_dropped(http_protocol_cls: Any) -> None:
    """K1: nobody is called for a connection that is gone."""
    app = Gate()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("GET", "/1") + request("GET", "/2") * 100)
        await wait_until(lambda: app.entered)
        client.reset()
        await wait_until(lambda: not service.state.connections)
        app.open.set()
        await service.idle()
    assert app.entered == ["/1"]


async def test_client_that_leaves_in_a_flood_of_requests_stops_it(http_protocol_cls: Any) -> None:
    """K1: between two turns of the loop."""
    app = Calls()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET * 5000)
        client.reset()
        await service.idle()
    assert len(app.scopes) < 5000


# The client leaves


@pytest.mark.parametrize("data", [GET, request("POST", "/", "content-length: 10") + b"hello"])
async def test_half_closed_client_gets_its_response(http_protocol_cls: Any, data: bytes) -> None:
    """K5, CON-06: the application is told that the client has gone, and may answer all the same."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not seen or seen[-1]["type"] == "http.request":
            seen.append(await receive())
        await respond(b"late")(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(data)
        client.half_close()
        response = await client.response()
        assert response.body == b"late"
        assert response.values(b"connection") == [b"close"]
        assert await client.rest() == b""
        await service.idle()
    assert seen[-1] == {"type": "http.disconnect"}


async def test_half_closed_client_gets_the_rest_of_a_stream(http_protocol_cls: Any) -> None:
    """K5: whatever it had asked for before; then the connection ends, whether or not its end was foreseen."""
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        await ended.wait()
        await send({"type": "http.response.body", "body": b"b"})

    async with serve(http_protocol_cls, app) as service:
        for data in (GET, request("POST", "/", "content-length: 5")):
            client = await service.connect()
            await client.send(data)
            await client.until(b"a\r\n")
            client.half_close()
            ended.set()
            assert await client.rest() == b"1\r\nb\r\n0\r\n\r\n"
            await service.idle()


async def test_half_closed_client_gets_all_it_has_pipelined(http_protocol_cls: Any) -> None:
    """K5, K1"""
    async with serve(http_protocol_cls, answer_when_the_client_has_ended) as service:
        client = await service.connect()
        await client.send(b"".join(request("GET", f"/{number}") for number in range(40)))
        client.half_close()
        responses = [await client.response() for _ in range(40)]
        assert await client.rest() == b""
    assert [response.body for response in responses] == [b"/%d" % number for number in range(40)]


@pytest.mark.parametrize("cut", [b"", b"GET / HTTP/1.1\r\nHo"])
async def test_half_closed_client_whose_requests_take_several_turns_gets_all(
    http_protocol_cls: Any, cut: bytes
) -> None:
    """K5, K1: applications that answer at once, more of them than are started in one turn."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(b"".join(request("GET", f"/{number}") for number in range(200)) + cut)
        client.half_close()
        responses = [await client.response() for _ in range(200)]
        assert await client.rest() == b""
        await service.idle()
    assert [response.body for response in responses] == [b"/%d" % number for number in range(200)]


async def test_half_closed_client_whose_next_request_is_cut_is_let_go(http_protocol_cls: Any) -> None:
    """K5: what is missing cannot come; its deadline is not waited for."""
    async with serve(http_protocol_cls, answer_when_the_client_has_ended) as service:
        client = await service.connect()
        await client.send(GET + b"GET / HTTP/1.1\r\nHo")
        client.half_close()
        assert (await client.response()).status == 200
        assert await client.rest() == b""
        await service.idle()


async def test_half_closed_client_whose_next_body_is_cut_gets_no_false_end(http_protocol_cls: Any) -> None:
    """K5, F16"""
    async with serve(http_protocol_cls, answer_when_the_client_has_ended) as service:
        client = await service.connect()
        await client.send(GET + request("POST", "/", "content-length: 5") + b"cut")
        client.half_close()
        assert (await client.response()).status == 200
        assert (await client.response()).body == b"http.disconnect"
        assert await client.rest() == b""


async def test_half_open_connection_costs_nothing_while_it_waits(http_protocol_cls: Any) -> None:
    """K5: no busy loop: the loop turns about as often as the test does."""
    app = Gate()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: app.entered)
        client.half_close()
        assert await client.silent()
        times = os.times()
        assert await client.silent(200)
        after = os.times()
        assert (after.user + after.system) - (times.user + times.system) < 0.15
        app.open.set()
        assert (await client.response()).status == 200


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\nHo", GET], ids=["nothing", "part-of-a-head", "idle"])
async def test_client_that_has_nothing_to_wait_for_is_let_go_at_once(http_protocol_cls: Any, data: bytes) -> None:
    """K4, F17"""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(data)
        if data == GET:
            await client.response()
        client.half_close()
        assert await client.rest() == b""
        await service.idle()


async def test_complete_body_is_delivered_though_the_client_has_gone(http_protocol_cls: Any) -> None:
    """BODY-07: a request that was sent whole is not lost, and what cannot be answered is not an error."""
    read, seen = asyncio.Event(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read.wait()
        seen.extend([await receive(), await receive()])
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("POST", body=b"hello"))
        await wait_until(lambda: service.state.tasks)
        client.reset()
        await wait_until(lambda: not service.state.connections)
        read.set()
        await service.idle()
    assert seen == [{"type": "http.request", "body": b"hello", "more_body": False}, {"type": "http.disconnect"}]


async def test_application_of_a_client_that_has_gone_is_told_and_not_cancelled(http_protocol_cls: Any) -> None:
    """CON-06, CON-09, LIFE-18: its task counts until it ends."""
    seen: list[Any] = []
    finish = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([await receive(), await receive(), await receive()])
        await finish.wait()

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await wait_until(lambda: service.state.tasks)
        client.reset()
        await wait_until(lambda: len(seen) == 3)
        assert seen[1:] == [{"type": "http.disconnect"}] * 2
        assert not service.state.connections
        assert len(service.state.tasks) == 1
        finish.set()
        await service.idle()


async def test_each_request_runs_in_a_task_of_its_own(http_protocol_cls: Any) -> None:
    """CON-10: a real one, remembered until it ends, also when it starts eagerly."""
    tasks: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        tasks.append(asyncio.current_task())
        with anyio.fail_after(20):
            await asyncio.sleep(0)
        await asyncio.create_task(respond()(scope, receive, send))  # type: ignore[arg-type]

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET + GET)
        await client.response()
        await client.response()
        await wait_until(lambda: not service.state.tasks)
    assert all(isinstance(task, asyncio.Task) for task in tasks)
    assert len(set(tasks)) == 2


# Context variables


request_variable: contextvars.ContextVar[str] = contextvars.ContextVar("request_variable", default="unset")
startup_variable: contextvars.ContextVar[str] = contextvars.ContextVar("startup_variable", default="unset")


async def remember(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the variables as they are, then change the one of the request."""
    seen = f"{startup_variable.get()} {request_variable.get()}"
    request_variable.set(scope["path"])
    total = 0
    await asyncio.sleep(0)
    while True:
        message = await receive()
        total += len(message["body"])
        if not message["more_body"]:
            break
    request_variable.set(f"{scope['path']} {total}")
    await respond(seen.encode())(scope, receive, send)


def state_of_startup() -> ServerState:
    startup_variable.set("set-at-startup")
    state = ServerState()
    startup_variable.set("set-later")
    return state


async def three_ways(client: Client) -> list[bytes]:
    """Ask on one connection: one request after the other, pipelined, and behind a body that stops the reading."""
    seen = [(await client.ask(request("GET", "/first"))).body]
    seen.append((await client.ask(request("GET", "/kept"))).body)
    await client.send(request("GET", "/a") + request("GET", "/b"))
    seen.extend([(await client.response()).body, (await client.response()).body])
    large = bytes(600_000)
    await client.send(request("POST", "/large", body=large))
    seen.append((await client.response()).body)
    seen.append((await client.ask(request("GET", "/behind"))).body)
    await client.send(request("POST", "/large", body=large) + request("GET", "/pipelined"))
    seen.extend([(await client.response()).body, (await client.response()).body])
    return seen


async def test_context_variables_of_a_request_end_with_it(http_protocol_cls: Any) -> None:
    """K6, CON-11: each request starts from what was set before the server started, however it follows another."""
    async with serve(http_protocol_cls, remember, state=state_of_startup()) as service:
        seen = await three_ways(await service.connect())
    assert set(seen) == {b"set-at-startup unset"}
    assert len(seen) == 8


async def test_context_captured_anew_is_what_requests_start_from(http_protocol_cls: Any) -> None:
    """K6, CON-11: the server captures it when it begins to serve."""
    state = state_of_startup()
    startup_variable.set("set-by-the-server")
    state.capture_context()
    startup_variable.set("set-later")
    async with serve(http_protocol_cls, remember, state=state) as service:
        assert set(await three_ways(await service.connect())) == {b"set-by-the-server unset"}


async def test_reset_contextvars_starts_each_request_from_nothing(http_protocol_cls: Any) -> None:
    """K6, CON-11"""
    async with serve(http_protocol_cls, remember, state=state_of_startup(), reset_contextvars=True) as service:
        assert set(await three_ways(await service.connect())) == {b"unset unset"}


async def test_context_of_a_request_is_not_kept_by_its_connection(http_protocol_cls: Any) -> None:
    """K6: neither a timer nor the reading of the socket holds on to what a request has put there."""

    class Kept:
        pass

    variable: contextvars.ContextVar[Kept] = contextvars.ContextVar("variable")
    kept: list[weakref.ref[Kept]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        value = Kept()
        kept.append(weakref.ref(value))
        variable.set(value)
        await asyncio.sleep(0)
        await echo(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        for data in (GET, request("POST", body=bytes(600_000)), GET + GET):
            await client.send(data)
            await client.response()
        await client.response()
        await wait_until(lambda: not service.state.tasks)
        gc.collect()
        assert [reference() for reference in kept] == [None] * 4


# Shutdown


async def test_idle_connections_are_closed_at_once_on_shutdown(http_protocol_cls: Any) -> None:
    """K7, LIFE-14: also those that have sent part of a head, without any bytes."""
    async with serve(http_protocol_cls, respond()) as service:
        fresh, idle, part = [await service.connect() for _ in range(3)]
        await idle.ask()
        await part.send(b"GET / HTTP/1.1\r\n")
        await service.accepted(3)
        for connection in list(service.state.connections):
            connection.shutdown()
        for client in (fresh, idle, part):
            assert await client.rest() == b""
        await service.idle()


async def test_announced_close_comes_with_the_next_response(http_protocol_cls: Any) -> None:
    """K7: for a connection that was accepted or used just before the server stops; idle ones stay as they are."""
    app = Gate()
    async with serve(http_protocol_cls, app) as service:
        busy, fresh, used, idle = [await service.connect() for _ in range(4)]
        await busy.send(GET)
        await wait_until(lambda: app.entered)
        app.open.set()
        assert not (await used.ask()).values(b"connection")
        app.open.clear()
        await busy.response()
        await busy.send(GET)
        await wait_until(lambda: len(app.entered) == 3 and len(service.state.connections) == 4)
        for connection in list(service.state.connections):
            connection.announce_close()  # type: ignore[attr-defined]
        app.open.set()
        assert (await busy.response()).values(b"connection") == [b"close"]
        for client in (fresh, used):
            assert (await client.ask()).values(b"connection") == [b"close"]
        for client in (busy, fresh, used):
            assert await client.rest() == b""
            client.close()
        assert await idle.silent()
        await wait_until(lambda: len(service.state.connections) == 1)
    assert len(app.entered) == 5


async def test_busy_connection_finishes_and_says_close_on_shutdown(http_protocol_cls: Any) -> None:
    """K7, LIFE-15, LIFE-24: the same everywhere; what is pipelined behind it is not answered."""
    app = Gate()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET + GET)
        await wait_until(lambda: app.entered)
        for connection in list(service.state.connections):
            connection.shutdown()
        assert await client.silent()
        app.open.set()
        response = await client.response()
        assert (response.body, response.values(b"connection")) == (b"/", [b"close"])
        assert await client.rest() == b""
    assert app.entered == ["/"]


class Stream:
    """An application that sends one piece, and another when it is told to finish."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await self.finish.wait()
        await send({"type": "http.response.body", "body": b"b"})


async def test_started_response_is_finished_on_shutdown(http_protocol_cls: Any) -> None:
    """K7, LIFE-15"""
    app = Stream()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        await client.until(b"a\r\n")
        for connection in list(service.state.connections):
            connection.shutdown()
        app.finish.set()
        assert await client.rest() == b"1\r\nb\r\n0\r\n\r\n"


async def test_connection_with_a_body_nobody_reads_is_closed_on_shutdown(http_protocol_cls: Any) -> None:
    """K7: its response is complete."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.ask(request("POST", "/", "content-length: 5"))
        for connection in list(service.state.connections):
            connection.shutdown()
        assert await client.rest() == b""


async def test_refused_connection_that_is_still_read_is_closed_on_shutdown(http_protocol_cls: Any) -> None:
    """K7: it has its answer; only a client that does not go is waited for, and not then."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(b"garbage\r\n\r\n")
        await client.rest()
        assert service.state.connections
        for connection in list(service.state.connections):
            connection.shutdown()
        await service.idle()


async def stop(service: Service) -> None:
    """As the drain of a server does it."""
    for connection in list(service.state.connections):
        connection.announce_close()  # type: ignore[attr-defined]
    for connection in list(service.state.connections):
        connection.shutdown()


async def test_streamed_response_that_did_not_say_close_is_followed_by_one_that_does(http_protocol_cls: Any) -> None:
    """K7: its head was out when the server was told to end, so the client asks once more."""
    app = Stream()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET)
        head = await client.until(b"a\r\n")
        assert b"close" not in head
        await stop(service)
        app.finish.set()
        assert await client.until(b"0\r\n\r\n") == b"1\r\nb\r\n0\r\n\r\n"
        response = await client.ask(GET + GET)
        assert (response.body, response.values(b"connection")) == (b"ab", [b"close"])
        assert await client.rest() == b""
        await service.idle()


@pytest.mark.parametrize("behind", [b"", GET, GET[:20]], ids=["nothing", "a request", "part of a request"])
async def test_what_is_pipelined_behind_a_streamed_response_is_answered(http_protocol_cls: Any, behind: bytes) -> None:
    """K7"""
    app = Stream()
    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(GET + behind)
        await client.until(b"a\r\n")
        await stop(service)
        app.finish.set()
        await client.until(b"0\r\n\r\n")
        await client.send(GET[len(behind) :])
        response = await client.response()
        assert (response.body, response.values(b"connection")) == (b"ab", [b"close"])
        assert await client.rest() == b""


@pytest.mark.parametrize("data", [b"", GET, GET[:20]], ids=["fresh", "used", "in a head"])
async def test_connection_that_was_told_nothing_is_heard_once_more(http_protocol_cls: Any, data: bytes) -> None:
    """K7: a request that was sent when the server was told to end is not lost, and says that it is the last."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.send(data)
        if data == GET:
            await client.response()
        await wait_until(lambda: service.state.connections)
        assert await client.silent()
        await stop(service)
        assert await client.silent()
        response = await client.ask(GET if data == GET else GET[len(data) :])
        assert response.values(b"connection") == [b"close"]
        assert await client.rest() == b""


async def test_upload_behind_the_last_call_has_its_usual_time(http_protocol_cls: Any) -> None:
    """K7, D1"""
    async with serve(http_protocol_cls, echo) as service:
        client = await service.connect()
        await client.ask()
        await stop(service)
        await client.send(request("POST", "/", "content-length: 5"))
        assert await client.silent()
        response = await client.ask(b"hello")
        assert (response.body, response.values(b"connection")) == (b"hello", [b"close"])
        assert await client.rest() == b""


@pytest.mark.parametrize("behind", [b"", b"GET / HT"], ids=["nothing", "part of a head"])
async def test_last_call_is_not_for_ever(
    http_protocol_cls: Any, monkeypatch: pytest.MonkeyPatch, behind: bytes
) -> None:
    """K7, LIFE-14: nor has a connection that has been idle for longer than that any of it."""
    monkeypatch.setattr(limits, "LAST_REQUEST_SECONDS", 0.1)
    streaming, finish = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/":
            await respond()(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        streaming.set()
        await finish.wait()
        await send({"type": "http.response.body"})

    async with serve(http_protocol_cls, app) as service:
        streamed, used, fresh = [await service.connect() for _ in range(3)]
        await streamed.send(request("GET", "/stream"))
        await used.ask()
        await streaming.wait()
        await wait_until(lambda: len(service.state.connections) == 3)
        await stop(service)
        finish.set()
        await streamed.until(b"0\r\n\r\n")
        for client in (streamed, used, fresh):
            await client.send(behind)
            assert await client.rest() == b""
        await service.idle()


async def test_connection_with_a_body_nobody_reads_is_heard_once_more(http_protocol_cls: Any) -> None:
    """K7: when the rest of that body has come."""
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.ask(request("POST", "/", "content-length: 5"))
        await stop(service)
        response = await client.ask(b"hello" + GET)
        assert response.values(b"connection") == [b"close"]
        assert await client.rest() == b""


async def test_disconnect_tells_the_application_while_it_can_still_answer(http_protocol_cls: Any) -> None:
    """K8: a draining server ends streams this way."""
    entered = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        entered.set()
        message = await receive()
        await respond(message["type"].encode())(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client, idle = await service.connect(), await service.connect()
        await idle.ask(b"x\r\n\r\n")
        await client.send(GET)
        await entered.wait()
        for connection in list(service.state.connections):
            connection.disconnect()  # type: ignore[attr-defined]
        assert (await client.response()).body == b"http.disconnect"


# Trace


async def test_connections_are_traced(http_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """TRC-01"""
    caplog.set_level(TRACE_LOG_LEVEL, "uvicorn.error")
    async with serve(http_protocol_cls, respond()) as service:
        client = await service.connect()
        await client.ask()
        host, port = client.sock.getsockname()
        client.close()
        await service.idle()
    lines = [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "uvicorn.error"]
    assert lines == [
        (TRACE_LOG_LEVEL, f"{host}:{port} - HTTP connection made"),
        (TRACE_LOG_LEVEL, f"{host}:{port} - HTTP connection lost"),
    ]


async def test_connections_without_a_client_are_traced_without_prefix(
    http_protocol_cls: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """TRC-01"""
    caplog.set_level(TRACE_LOG_LEVEL, "uvicorn.error")
    async with serve(http_protocol_cls, respond(), uds=str(tmp_path / "s")) as service:
        client = await service.connect()
        await client.ask()
        client.close()
        await service.idle()
    assert [record.getMessage() for record in caplog.records] == ["HTTP connection made", "HTTP connection lost"]


# Nothing is left behind


def population() -> Counter[str]:
    """Living objects of ours and of the loop, by class."""
    gc.collect()
    kept = Counter(
        type(thing).__name__ for thing in gc.get_objects() if str(type(thing).__module__).startswith("uvicorn")
    )
    kept.update(type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, asyncio.Task | asyncio.Future))
    return kept


async def bare(service: Service) -> None:
    (await service.connect()).close()


async def reset_when_idle(service: Service) -> None:
    client = await service.connect()
    await client.ask()
    client.reset()


async def abort_in_a_head(service: Service) -> None:
    client = await service.connect()
    await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
    client.reset()


async def abort_in_a_body(service: Service) -> None:
    client = await service.connect()
    await client.send(request("POST", "/", "content-length: 100") + b"part")
    client.reset()


async def abort_in_a_response(service: Service) -> None:
    client = await service.connect()
    await client.send(request("GET", "/stream"))
    await client.receive()
    client.reset()


async def refused(service: Service) -> None:
    client = await service.connect()
    await client.send(b"garbage\r\n\r\n")
    client.reset()


async def serve_or_stream(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] != "/stream":
        await echo(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"x", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(bare, id="bare"),
        pytest.param(reset_when_idle, id="reset-when-idle"),
        pytest.param(abort_in_a_head, id="in-a-head"),
        pytest.param(abort_in_a_body, id="in-a-body"),
        pytest.param(abort_in_a_response, id="in-a-response"),
        pytest.param(refused, id="refused"),
    ],
)
async def test_nothing_is_left_of_connections(
    http_protocol_cls: Any, ending: Callable[[Service], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """K3, K4, D6: though the keep-alive timeout and the deadlines are far away."""
    settings = {"timeout_keep_alive": 3600, "timeout_request_head": 3600, "timeout_request_body": 3600}
    async with serve(http_protocol_cls, serve_or_stream, **settings) as service:

        async def some(count: int) -> None:
            for _ in range(count):
                await ending(service)
            service.clients.clear()
            await service.idle()
            caplog.clear()

        await some(20)
        before = population()
        await some(60)
        grown = population() - before
        assert sum(grown.values()) < 10, grown
        assert service.state.event_pool.stats()["in_use"] == 0


async def test_bare_connections_say_nothing(http_protocol_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
    """K4"""
    caplog.set_level(logging.DEBUG)
    async with serve(http_protocol_cls, respond()) as service:
        for _ in range(100):
            await bare(service)
        for _ in range(100):
            (await service.connect()).reset()
        await service.idle()
    assert [record for record in caplog.records if record.name != "asyncio"] == []


async def test_connection_dies_with_its_transport(http_protocol_cls: Any) -> None:
    """K3: by reference counting alone: no cycle waits for the collector."""
    gc.disable()
    try:
        async with serve(http_protocol_cls, echo) as service:
            client = await service.connect()
            await client.ask(request("POST", body=bytes(100_000)))
            (connection,) = service.state.connections
            gone = weakref.ref(connection)
            del connection
            client.reset()
            service.clients.clear()
            del client
            await service.idle()
            for _ in range(5):
                await asyncio.sleep(0.001)
            assert gone() is None
    finally:
        gc.enable()


# Upstream, where it is at hand


def probe(python: str, case: str, implementation: str) -> Any:
    script = Path(__file__).parent / "upstream_probe.py"
    environment = {"PATH": os.environ.get("PATH", "")}
    if python == sys.executable:
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    run = subprocess.run(
        [python, "-W", "ignore", str(script), case, implementation],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd=Path(__file__).parent,
        check=True,
    )
    return json.loads(run.stdout)


upstream_python = os.environ.get("UPSTREAM_PYTHON", "")
with_upstream = pytest.mark.skipif(not upstream_python, reason="UPSTREAM_PYTHON names no Python with upstream uvicorn")


@pytest.mark.parametrize("implementation", ["httptools", "h11"])
class TestAgainstUpstream:
    """The same script under this package and under upstream: the difference is real."""

    def test_reset_connections_are_let_go_here(self, implementation: str) -> None:
        """K3"""
        assert probe(sys.executable, "reset", implementation) == 0

    @with_upstream
    def test_reset_connections_are_kept_upstream(self, implementation: str) -> None:
        """K3: the keep-alive timer of each holds its protocol object."""
        assert probe(upstream_python, "reset", implementation) >= 100

    def test_body_of_an_ignored_upgrade_is_delivered_here(self, implementation: str) -> None:
        """F18"""
        assert probe(sys.executable, "upgrade", implementation) == {
            "length": ["hello", "next"],
            "chunked": ["hello", "next"],
        }

    @with_upstream
    def test_body_of_an_ignored_upgrade_is_lost_upstream(self, implementation: str) -> None:
        """F18, UPG-05: by the httptools implementation."""
        if implementation == "httptools":
            assert probe(upstream_python, "upgrade", implementation)["length"][0] == ""


async def test_answer_to_a_pipelined_request_whose_body_was_cut_off_says_that_it_is_the_last(
    http_protocol_cls: Any,
) -> None:
    """What is missing will not come, so neither will another request."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while scope["path"] == "/waits" and (await receive())["type"] != "http.disconnect":
            pass
        await respond()(scope, receive, send)

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect()
        await client.send(request("GET", "/waits") + request("POST", "/", body=b"x" * 100)[:-1])
        await wait_until(lambda: service.state.tasks)
        client.half_close()
        answers = (await client.rest()).lower()
        assert answers.count(b"http/1.1 200 ok") == 2
        assert answers.count(b"connection: close") == 1


async def test_message_behind_the_end_is_refused_though_the_client_does_not_read(http_protocol_cls: Any) -> None:
    refused: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(b"x" * 8_000_000)(scope, receive, send)
        try:
            await send({"type": "http.response.body", "body": b"more"})
        except RuntimeError as exc:
            refused.append(str(exc))

    async with serve(http_protocol_cls, app) as service:
        client = await service.connect(receive_buffer=4096)
        await client.send(GET)
        await wait_until(lambda: refused)
        assert refused == ["Unexpected ASGI message 'http.response.body' sent, after response already completed."]
