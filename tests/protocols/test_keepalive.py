"""Pings and the deadlines of their pongs: alone, then in a session."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from tests import machines
from tests.protocols.websocket_tools import PING, PONG, TEXT, Application, ServerFrame, Timers, accept, connected, frame
from uvicorn.protocols.websockets.attributes import Attributes
from uvicorn.protocols.websockets.keepalive import KeepAlive

pytestmark = pytest.mark.anyio

ws_protocol_cls = machines.each_websocket


class Pinger(Attributes):
    """Notes what it would send."""

    def __init__(self, interval: float | None, timeout: float | None) -> None:
        self.timers = Timers()
        self.keepalive = KeepAlive(cast(Any, self.timers), self, interval, timeout)
        self.on_pong, self.restart_deadline = self.keepalive.pong, self.keepalive.restart_deadline
        self.pings: list[tuple[float, bytes]] = []
        self.deaf = False
        self.timed_out = False

    @property
    def read_paused(self) -> bool:
        return self.deaf

    @read_paused.setter
    def read_paused(self, value: bool) -> None:
        self.deaf = value

    def unsent(self) -> int:
        return 0

    def has_pending_io(self) -> bool:
        return False

    def send_ping(self, payload: bytes) -> None:
        self.pings.append((self.timers.now - 1000, payload))

    def keepalive_timeout(self) -> None:
        self.timed_out = True


@pytest.mark.parametrize("timeout", [20, None])
async def test_method_that_schedules_pings_is_called_for_each(timeout: float | None) -> None:
    """As upstream calls it: when the connection opens, and when the time of the next ping is known."""
    calls: list[float] = []

    class Scheduling(Pinger):
        def schedule_ping(self) -> None:
            calls.append(self.timers.now - 1000)
            super().schedule_ping()

    pinger = Scheduling(20, timeout)
    pinger.start_keepalive()
    for _ in range(2):
        pinger.timers.advance(20 if not timeout or not pinger.pings else 15)
        if timeout:
            pinger.timers.advance(5)
            pinger.on_pong(pinger.pings[-1][1])
    assert [at for at, _ in pinger.pings] == [20, 40]
    assert calls == ([0, 25, 45] if timeout else [0, 20, 40])


async def test_first_ping_comes_after_one_interval_with_four_random_bytes() -> None:
    """WSK-01"""
    pingers = [Pinger(20, 20) for _ in range(20)]
    for pinger in pingers:
        pinger.start_keepalive()
        pinger.timers.advance(19.9)
        assert pinger.pings == []
        pinger.timers.advance(0.1)
    payloads = [payload for pinger in pingers for _, payload in pinger.pings]
    assert [len(payload) for payload in payloads] == [4] * 20
    assert len(set(payloads)) > 10


async def test_next_ping_is_one_interval_after_the_previous_one_was_sent() -> None:
    """WSK-01 WSK-02"""
    pinger = Pinger(20, 20)
    pinger.start_keepalive()
    pinger.timers.advance(20)
    pinger.timers.advance(5)
    pinger.on_pong(pinger.pings[0][1])
    assert pinger.last_ping_rtt == 5
    pinger.timers.advance(14.9)
    assert len(pinger.pings) == 1
    pinger.timers.advance(0.1)
    assert [when for when, _ in pinger.pings] == [20, 40]
    assert pinger.ping_sent_at == 1040


async def test_pong_slower_than_the_interval_is_followed_by_a_ping_at_once() -> None:
    """WSK-02"""
    pinger = Pinger(10, 60)
    pinger.start_keepalive()
    pinger.timers.advance(10 + 30)
    pinger.on_pong(pinger.pings[0][1])
    pinger.timers.advance(0)
    assert [when for when, _ in pinger.pings] == [10, 40]


async def test_only_the_payload_of_the_ping_in_flight_counts() -> None:
    """WSK-03"""
    pinger = Pinger(20, 20)
    pinger.on_pong(b"")
    pinger.start_keepalive()
    pinger.timers.advance(20)
    pinger.on_pong(b"")
    pinger.on_pong(b"xxxxx")
    pinger.timers.advance(20)
    assert pinger.timed_out


async def test_missing_pong_times_out() -> None:
    """WSK-04"""
    pinger = Pinger(20, 7)
    pinger.start_keepalive()
    pinger.timers.advance(26.9)
    assert not pinger.timed_out
    pinger.timers.advance(0.1)
    assert pinger.timed_out


async def test_answered_ping_does_not_time_out() -> None:
    """WSK-04"""
    pinger = Pinger(20, 7)
    pinger.start_keepalive()
    for _ in range(5):
        pinger.timers.advance(20)
        pinger.on_pong(pinger.pings[-1][1])
    pinger.timers.advance(19)
    assert not pinger.timed_out and len(pinger.pings) == 5


@pytest.mark.parametrize("interval", [None, 0])
async def test_no_interval_means_no_pings(interval: float | None) -> None:
    """WSK-06"""
    pinger = Pinger(interval, 20)
    pinger.start_keepalive()
    assert pinger.timers.pending == []
    pinger.stop_keepalive()


@pytest.mark.parametrize("timeout", [None, 0])
async def test_no_timeout_means_pings_for_ever(timeout: float | None) -> None:
    """WSK-06"""
    pinger = Pinger(20, timeout)
    pinger.start_keepalive()
    pinger.timers.advance(100)
    assert [when for when, _ in pinger.pings] == [20, 40, 60, 80, 100]
    pinger.on_pong(pinger.pings[-1][1])
    assert pinger.pending_ping_payload is None and len(pinger.timers.pending) == 1
    pinger.timers.advance(1000)
    assert not pinger.timed_out


async def test_stop_leaves_no_timer() -> None:
    pinger = Pinger(20, 20)
    pinger.start_keepalive()
    pinger.stop_keepalive()
    assert pinger.timers.pending == []
    pinger.start_keepalive()
    pinger.timers.advance(20)
    pinger.stop_keepalive()
    assert pinger.timers.pending == [] and pinger.pending_ping_payload is None


async def test_pong_that_cannot_be_read_is_waited_for() -> None:
    """W14: the application does not read, so reading is paused and the pong may lie in the socket's buffer."""
    pinger = Pinger(20, 20)
    pinger.restart_deadline()
    assert pinger.timers.pending == []
    pinger.start_keepalive()
    pinger.deaf = True
    pinger.timers.advance(500)
    assert not pinger.timed_out and len(pinger.pings) == 1
    pinger.deaf = False
    pinger.restart_deadline()
    pinger.timers.advance(19.9)
    assert not pinger.timed_out
    pinger.timers.advance(0.1)
    assert pinger.timed_out


# In a session


async def test_session_pings_and_takes_the_answer(ws_protocol_cls: Any) -> None:
    """WSK-01 WSK-02"""
    async with connected(ws_protocol_cls, Application(), ws_ping_interval=20.0, ws_ping_timeout=20.0) as peer:
        await peer.open()
        if peer.timers.native is None:
            assert peer.session.ping_timer is not None
        peer.timers.advance(20)
        ping = peer.frames[-1]
        assert ping.first == PING and len(ping.payload) == 4
        assert peer.on_the_loop or peer.session.ping_sent_at == 1020
        assert peer.session.pending_ping_payload == ping.payload
        peer.send(frame(PONG, ping.payload))
        assert not peer.session.pending_ping_payload
        if peer.timers.native is None:
            assert peer.session.pong_timer is None
        peer.timers.advance(20)
        assert [sent.first for sent in peer.frames] == [PING, PING]


async def test_defaults_are_20_seconds_each(ws_protocol_cls: Any) -> None:
    """WSK-01 WSK-04"""
    from uvicorn.config import Config

    config = Config(accept)
    assert (config.ws_ping_interval, config.ws_ping_timeout) == (20.0, 20.0)


async def test_silent_client_gets_1011_and_the_connection_is_closed(
    ws_protocol_cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """W14 WSK-04 WSK-05 TRC-02"""
    caplog.set_level(5, "uvicorn.error")
    app = Application()
    async with connected(ws_protocol_cls, app, ws_ping_interval=20.0, ws_ping_timeout=20.0) as peer:
        await peer.open()
        peer.timers.advance(40)
        assert peer.frames[-1].close == (1011, "keepalive ping timeout")
        await peer.until(lambda: app.done and peer.wire.lost)
        assert app.events[1:] == [{"type": "websocket.disconnect", "code": 1005}]
        trace = [record.getMessage() for record in caplog.records if record.levelname == "TRACE"]
        assert "192.0.2.7:50000 - WebSocket keepalive ping timeout" in trace
        assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_what_the_server_sends_is_no_sign_of_life(ws_protocol_cls: Any) -> None:
    """W14"""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        for _ in range(45):
            await send({"type": "websocket.send", "text": "tick"})
            peer.timers.advance(1)
            await asyncio.sleep(0)

    app = Application(script)
    async with connected(ws_protocol_cls, app, ws_ping_interval=20.0, ws_ping_timeout=20.0) as peer:
        await peer.open()
        await peer.until(lambda: app.done)
        assert next(sent for sent in peer.frames if sent.first == 0x88).close == (1011, "keepalive ping timeout")
        assert sum(sent.first == TEXT for sent in peer.frames) == 40


async def test_client_that_died_without_reading_is_dropped(ws_protocol_cls: Any) -> None:
    """W14: the close frame would wait in the buffer for ever."""
    app = Application()
    async with connected(ws_protocol_cls, app, ws_ping_interval=20.0, ws_ping_timeout=20.0) as peer:
        await peer.open()
        peer.wire.stall()
        peer.timers.advance(40)
        assert not peer.wire.lost
        peer.timers.advance(10)
        await peer.until(lambda: peer.wire.lost)
        assert peer.wire.aborted


async def test_application_that_does_not_read_does_not_cost_the_client_its_connection(ws_protocol_cls: Any) -> None:
    """W14: upstream stops reading after one message, sees no pong, and closes with 1011."""

    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await proceed.wait()
        await receive()
        await receive()
        await receive()

    proceed = asyncio.Event()
    app = Application(script)
    settings: dict[str, Any] = {"ws_ping_interval": 20.0, "ws_ping_timeout": 20.0, "ws_max_queue": 1}
    async with connected(ws_protocol_cls, app, **settings) as peer:
        await peer.open()
        await peer.turn()
        peer.send(frame(TEXT, b"1"))
        peer.timers.advance(20)
        peer.send(frame(PONG, peer.frames[-1].payload))
        peer.timers.advance(300)
        assert [sent.first for sent in peer.frames] == [PING]
        proceed.set()
        await peer.turn()
        peer.timers.advance(0)
        assert [sent.first for sent in peer.frames] == [PING, PING]
        peer.send(frame(PONG, peer.frames[-1].payload), frame(TEXT, b"2"), frame(TEXT, b"3"))
        await peer.until(lambda: app.done)
        assert app.messages == ["1", "2", "3"]


async def test_no_pings_after_the_close(ws_protocol_cls: Any) -> None:
    async def script(receive: Any, send: Any) -> None:
        await accept(receive, send)
        await send({"type": "websocket.close"})

    async with connected(ws_protocol_cls, Application(script), ws_ping_interval=1.0, ws_ping_timeout=1.0) as peer:
        await peer.open()
        await peer.until(lambda: peer.frames)
        peer.timers.advance(5)
        assert peer.frames == [ServerFrame(0x88, b"\x03\xe8")]


@pytest.mark.parametrize("takes", ["some", "all", "nothing", "the ping"])
async def test_ping_behind_a_download_has_its_time_while_that_is_taken(ws_protocol_cls: Any, takes: str) -> None:
    """A client that reads, however long that takes, is not dropped because the ping has not reached it."""
    app = Application()
    async with connected(ws_protocol_cls, app, ws_ping_interval=20.0, ws_ping_timeout=15.0) as peer:
        await peer.open()
        peer.wire.stall()
        peer.timers.advance(20)
        assert [sent.first & 15 for sent in peer.frames] == [9]
        for _ in range(3):
            if takes == "some":
                peer.wire.unsent -= 10_000
            elif takes == "all":
                # More is sent, as much as was taken, and waits.
                peer.wire.flow()
                peer.wire.stall()
            elif takes == "the ping":
                peer.wire.flow()
            if takes in ("some", "all"):
                peer.timers.advance(15)
                assert not app.done and not peer.wire.closing and len(peer.frames) == 1
        peer.timers.advance(15)
        await peer.until(lambda: app.done)
        assert app.events[-1]["type"] == "websocket.disconnect"
        assert peer.frames[-1].close == (1011, "keepalive ping timeout")
        if peer.wire.stalled:
            peer.wire.flow()
