"""Real applications: their recorded requests, the recorder, the chat, and figures of several at once."""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.server import Server, ServerConnection, serve

from bench import applications, model, scenario, tables, targets
from bench.__main__ import main
from bench.commands import common
from bench.errors import BenchError
from bench.load.base import Aim
from bench.load.chat import Chat
from bench.load.closedloop import mixture
from bench.model import Load
from tests.bench import fake

RECORDED = [one for one in applications.TABLE if one.generator != "chat"]
# The first directories of every path of this machine.
DIRECTORIES = [f"{path}/" for path in Path("/").iterdir()]
SHORT = ("--tool", "closedloop", "--seconds", "0.3", "--warm-up", "0", "--tolerate", "9")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = {"quick": fake.target("quick"), "slow": fake.target("slow", delay=0.02)}
    monkeypatch.setattr(targets, "TARGETS", {**targets.TARGETS, **known})
    monkeypatch.setattr(common, "RESULTS", tmp_path)


@pytest.mark.parametrize("application", RECORDED, ids=lambda one: one.name)
def test_recorded_requests_differ_and_belong_to_no_machine(application: applications.Application) -> None:
    found = application.requests()
    assert len(found) >= 50
    assert len({(one["target"], one["body"]) for one in found}) >= len(found) / 3
    for one in found:
        names = [name.lower() for name in one["headers"]]
        assert not {"host", "connection", "content-length"} & set(names)
        assert not any(place in str(one) for place in ("127.0.0.1", "localhost", *DIRECTORIES))


def test_recorded_requests_are_replayed_in_their_order(tmp_path: Path) -> None:
    site = applications.find("site")
    sent = mixture(Aim(1, tmp_path, options={"session": "site"}))
    lines = [one.split(b"\r\n")[0].decode() for one in sent]
    assert lines == [f"{one['method']} {one['target']} HTTP/1.1" for one in site.requests()]
    posted = next(one for one in sent if one.startswith(b"POST"))
    head, _, body = posted.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head and body


def test_each_is_a_workload() -> None:
    assert [one.real for one in scenario.find("real")] == [one.name for one in applications.TABLE]
    assert not any(one.real for one in scenario.find("all"))


def test_without_their_environment_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BENCH_APPLICATIONS_PYTHON", str(tmp_path / "none"))
    [workload] = scenario.find("app-site")
    with pytest.raises(BenchError, match="scripts/bench-setup applications"):
        targets.interpreter(targets.find("ours"), workload)


def test_the_recorder_keeps_requests_with_their_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def echo(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        status = 200 if message["body"] else 404
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": message["body"]})

    monkeypatch.setenv("BENCH_RECORDED", f"{__name__}:RECORDED")
    monkeypatch.setenv("BENCH_RECORDING", str(tmp_path / "recording.json"))
    recorder = importlib.reload(importlib.import_module("bench.applications.recorder"))
    monkeypatch.setattr(recorder, "recorded", echo)

    async def ask(body: bytes, query: bytes) -> None:
        fields = [(b"host", b"127.0.0.1:1"), (b"referer", b"http://127.0.0.1:1/")]
        scope = {"type": "http", "method": "POST", "raw_path": b"/a%20b", "query_string": query, "headers": fields}

        async def receive() -> Any:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            assert message["type"].startswith("http.response.")

        await recorder.application(scope, receive, send)

    asyncio.run(ask(b"one", b"x=1"))
    asyncio.run(ask(b"", b""))
    stored = json.loads((tmp_path / "recording.json").read_text())
    assert stored == {
        "fields": [[["referer", "http://example.com/"]]],
        "requests": [["POST", "/a%20b?x=1", 0, "one", 200], ["POST", "/a%20b", 0, "", 404]],
    }


@pytest.fixture
def room() -> Iterator[Server]:
    """A server that speaks as much of socket.io as the chat needs, and speaks first."""

    def talk(connection: ServerConnection) -> None:
        connection.send('0{"sid":"x","pingInterval":25000}')
        for packet in connection:
            assert isinstance(packet, str)
            if packet == "40":
                connection.send('40{"sid":"y"}')
            elif packet.startswith("42"):
                number = packet[2 : packet.index("[")]
                connection.send("2")
                connection.send('42["said",{"text":"others"}]')
                connection.send(f"43{number}[1]")
            else:
                assert packet == "3", packet

    server = serve(talk, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()


def test_chat_counts_acknowledged_messages(room: Server, tmp_path: Path) -> None:
    port = room.socket.getsockname()[1]
    burst = Chat(Aim(port, tmp_path), Load("chat", 9, 1, 0.3)).run()
    assert burst.requests >= 9
    assert burst.errors == {}
    assert burst.latency is not None


@pytest.mark.deep
@pytest.mark.usefixtures("fakes")
def test_latency_of_several_workloads_is_at_shares_of_one_servers_capacity(tmp_path: Path) -> None:
    command = ["latency", "quick", "slow", "--workload", "hello,headers", "--of", "slow", "--shares", "50"]
    assert main([*command, "--connections", "2", "--rounds", "1", *SHORT]) in (0, 1)
    [path] = tmp_path.glob("*.json")
    result = model.load(path)
    assert set(result.data["bases"]) == {"hello", "headers"}
    for name, base in result.data["bases"].items():
        assert base == result.data["capacities"][f"{name}: slow"] <= 100
    [table] = tables.tables(result)
    assert [row[0] for row in table.rows] == ["hello"] * 2 + ["headers"] * 2
    assert all("(50%)" in row[1] for row in table.rows)


@pytest.mark.usefixtures("fakes")
def test_latency_of_an_unknown_measure_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latency", "quick", "--of", "slow", *SHORT]) == 1
    assert "--of names none of the targets: slow" in capsys.readouterr().err


@pytest.mark.usefixtures("fakes")
@pytest.mark.deep
def test_memory_after_an_hours_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("bench.commands.memory"), "HOUR", 40)
    assert main(["memory", "quick", "--workload", "hello,headers", "--steps", "hour", *SHORT]) == 0
    [path] = tmp_path.glob("*.json")
    result = model.load(path)
    hours = result.data["records"]["quick"]["hours"]
    assert [one["workload"] for one in hours] == ["hello", "headers"]
    assert all(one["requests"] >= 40 and one["end"] > 0 for one in hours)
    [table] = [one for one in tables.tables(result) if one.rows]
    assert len(table.rows) == 2
