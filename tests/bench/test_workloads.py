"""Workloads beyond one request again and again: varied, new connections, newcomers, TLS, large bodies."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import apps, environment, plan, process, runner, scenario, tables, targets
from bench.commands import common
from bench.errors import BenchError, LoadError, ServerError
from bench.load import generators, variety
from bench.load.accept import Newcomers
from bench.load.base import Aim
from bench.load.closedloop import Closed
from bench.load.sockets import Connection
from bench.load.tokens import Stream, Tokens
from bench.load.wrk import Wrk
from bench.model import Burst, Load, Sample
from bench.plan import Scenario
from bench.scenario import WORKLOADS, Mode
from tests.bench import fake, records
from tests.utils import deep_after

VARIED = {"variety": "50"}


def _parts(request: bytes) -> tuple[bytes, bytes, bytes]:
    """Path, query and id of a request."""
    head, _, _ = request.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    path, _, query = lines[0].split(b" ")[1].partition(b"?")
    [identity] = [line for line in lines if line.startswith(b"X-Request-ID: ")]
    return path, query, identity


def test_varied_requests_differ_in_path_query_and_id_and_are_the_same_in_every_run(tmp_path: Path) -> None:
    aim = Aim(1, tmp_path, path="/same", headers=scenario.BROWSER_HEADERS, options=VARIED)
    requests = variety.requests(aim)
    assert requests == variety.requests(aim)
    for values in zip(*map(_parts, requests), strict=True):
        assert len(set(values)) == 50
    assert all(b"User-Agent: Mozilla/5.0" in request for request in requests)


def test_wrk_sends_every_varied_request(tmp_path: Path) -> None:
    if Wrk().missing():
        pytest.skip(Wrk().missing() or "")
    seen = tmp_path / "seen"
    with fake.running(tmp_path, record=1) as server:
        aim = Aim(server.port, tmp_path, headers=scenario.BROWSER_HEADERS, response_bytes=13, options=VARIED)
        load = Load("wrk", 2, 1, 1.0)
        output = subprocess.run(Wrk().command(aim, load), capture_output=True, text=True, check=True).stdout
        assert Wrk().parse(output, load).requests > 50
        seen = Path(tmp_path / "seen")
        lines = set(seen.read_text().splitlines())
    expected = {request.split(b"\r\n")[0].decode() for request in variety.requests(aim)}
    assert lines - {"GET /count HTTP/1.1"} == expected


@pytest.mark.parametrize(
    ("tool", "workload", "words"),
    [
        pytest.param("httpx", "varying", "httpx does not do what varying asks for (variety): choose wrk", id="variety"),
        pytest.param("closedloop", "tls", "closedloop does not do what tls asks for (tls): choose wrk", id="tls"),
        pytest.param("httpx", "churn", "httpx does not do what churn asks for (close): choose wrk", id="close"),
    ],
)
def test_a_generator_that_would_do_something_else_is_refused(tool: str, workload: str, words: str) -> None:
    from bench.__main__ import parser

    arguments = parser("run").parse_args(["ours", "--tool", tool, "--workload", workload])
    with pytest.raises(BenchError) as caught:
        common.scenarios(arguments, [WORKLOADS[workload]], Mode())
    assert str(caught.value) == words


@pytest.mark.parametrize("name", ["post-percent", "variety", "pattern", "busy", "busy-path", "downloads", "interval"])
def test_every_option_of_a_workload_is_heeded_by_some_generator(name: str) -> None:
    assert any(name in generator.abilities for generator in generators.GENERATORS.values())


@pytest.mark.parametrize("name", ["ours", "gunicorn"])
def test_a_server_is_told_that_clients_speak_http2(name: str, tmp_path: Path) -> None:
    target = targets.find(name)
    launch = targets.Launch("bench_apps:hello", 1, Mode(), False, "python", http2=True)
    plain = targets.Launch("bench_apps:hello", 1, Mode(), False, "python")
    assert any("http" in word for word in set(target.command(launch)) - set(target.command(plain)))
    assert WORKLOADS["h2-tls"].http2 and WORKLOADS["h2-tls"].tls and not WORKLOADS["hello"].http2
    assert targets.find("daphne").refusal(WORKLOADS["h2"], Mode()) == "daphne has no HTTP/2"
    argv = generators.find("h2load-h2").command(Aim(1, tmp_path), Load("h2load-h2", 8, 1, 0.5, None, 16))[-1]
    assert "-p h2c -c 8 -t 1 -D 500ms -m 16" in argv


@pytest.mark.parametrize(("name", "option"), [("ours", "--http3"), ("hypercorn", "--quic-bind")])
def test_clients_come_over_http3_or_http2_to_the_same_server(name: str, option: str, tmp_path: Path) -> None:
    workload, load = WORKLOADS["h3-upload"], Load("h3load", 8, 1, 0.5)
    generator, commands = generators.find("h3load"), []
    for target in (targets.find(name), targets.find(f"{name}:over=http2")):
        launch = targets.Launch("m:app", 4711, Mode(), False, "python", target.options, tmp_path, http3=True)
        assert option in target.command(launch)
        seen = Scenario(workload, Mode(), load).seen_by(target).workload
        assert seen.asks <= generator.abilities
        aim = Aim(4711, tmp_path, "POST", body=workload.body, response_bytes=12, options=seen.options, tls=True)
        commands.append(" ".join(generator.command(aim, load)))
    assert "127.0.0.1:4711 8 1 0.5s / --json --method POST --expect 12 --body" in commands[0]
    assert "-p h2c -c 8 -t 1 -D 500ms -m 1" in commands[1]
    assert Scenario(WORKLOADS["hello"], Mode(), load).seen_by(target).workload == WORKLOADS["hello"]
    with pytest.raises(BenchError, match="http2 or left out"):
        targets.find(f"{name}:over=http1")


def test_h3load_says_what_it_has_seen() -> None:
    load, generator = Load("h3load", 8, 1, 0.5), generators.find("h3load")
    line = '{"requests": 3, "seconds": 0.5, "received": 99, "errors": {"status": 1}, "times": [[1000, 2], [3000, 1]]}'
    burst = generator.parse(f"lost: timed out\n{line}\n", load)
    assert (burst.requests, burst.received, burst.errors) == (3, 99, {"status": 1})
    assert burst.latency is not None and burst.latency.p50 == pytest.approx(0.001, rel=0.01)
    assert burst.latency.max == pytest.approx(0.003, rel=0.01)
    for output in ("", "thread 'main' panicked"):
        with pytest.raises(LoadError, match="h3load did not finish"):
            generator.parse(output, load)


def test_every_workload_can_be_driven_by_its_generator() -> None:
    for workload in scenario.TABLE:
        generator = generators.find(workload.generator or "wrk")
        assert workload.asks <= generator.abilities, workload.name


def test_a_connection_per_request_is_one_connection_for_each(tmp_path: Path) -> None:
    with fake.running(tmp_path, closing=1) as server:
        aim = Aim(server.port, tmp_path, headers={"Connection": "close"}, response_bytes=13)
        burst = Closed(aim, Load("closedloop", 3, 1, 0.3)).run()
        assert burst.errors == {}
        assert burst.requests > 3
        assert burst.seconds < 5
        assert process.Request(path="/", closes=True, response_bytes=13).ask(server.port) > 0


def test_a_server_that_keeps_the_connection_open_is_not_measured_with_churn(tmp_path: Path) -> None:
    with fake.running(tmp_path) as server, pytest.raises(ServerError, match="does not say that it closes"):
        runner.request_of(Scenario(WORKLOADS["churn"], Mode(), Load("wrk", 1, 1, 1.0))).ask(server.port)


def _newcomers(server: process.Server, directory: Path, count: int, busy: int, seconds: float = 0.4) -> Burst:
    options = {"busy": str(busy), "busy-path": "/busy"}
    aim = Aim(server.port, directory, response_bytes=13, options=options)
    return Newcomers(aim, Load("accept", count, 1, seconds)).run()


def test_newcomers_wait_from_connect_to_answer_and_the_busy_ones_go_on(tmp_path: Path) -> None:
    with fake.running(tmp_path, delay=0.05) as server:
        burst = _newcomers(server, tmp_path, 30, 5)
        known = subprocess.run(
            ["curl", "-s", f"http://127.0.0.1:{server.port}/count"], capture_output=True, text=True, check=True
        )
    assert burst.errors == {}
    assert burst.unanswered == 0
    assert burst.latency is not None
    # The busy ones asked more than once each, and theirs are not among the newcomers' latencies.
    assert burst.requests > 30 + 5
    assert int(known.stdout) >= burst.requests
    assert burst.latency.p50 >= 0.0499
    assert burst.histogram is not None
    from bench.load import histogram

    assert histogram.merge([burst.histogram]).get_total_count() == 30


def test_events_count_with_their_distance_from_the_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of a stream has none, and those that arrive together are an interval off."""
    clock = iter([10.0, 10.02, 10.05, 10.07])
    monkeypatch.setattr("bench.load.tokens.time.perf_counter", lambda: next(clock))
    tokens = Tokens(Aim(1, tmp_path, options={"stream-path": "/", "interval": "0.02"}), Load("tokens", 1, 1, 1.0))
    tokens.starts = 10.01
    with socket.socket() as sock:
        connection = Connection(sock)
        connection.reader = Stream()
        for data in (
            b"HTTP/1.1 200 OK\r\n",
            b"a: b\r\n\r\n9\r\ndata: a\n\n\r\n",
            b"b\r\ndata: b\r\n\r\n\r\n",
            b"9\r\ndata: c\n\n\r\n9\r\ndata: d\n\n\r\n",
            b": ping\r\n",
            b"data: e\n\n",
        ):
            tokens.take(connection, data)
        assert [round(jitter, 6) for jitter in tokens.jitter] == [0.0, 0.01, 0.02, 0.0]
        tokens.take(connection, None)
        connection.reader = Stream()
        tokens.take(connection, b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
    assert tokens.errors == {"read": 1, "status": 1}


@pytest.mark.parametrize(
    ("application", "path", "seconds"),
    [
        pytest.param("accept", "/busy", [200e-6], id="a neighbour of newcomers"),
        pytest.param("accept", "/", [], id="a newcomer"),
        pytest.param("busy", "/", [0.001], id="one of an overload"),
    ],
)
def test_an_application_computes_for_as_long_as_its_workload_says(
    monkeypatch: pytest.MonkeyPatch, application: str, path: str, seconds: list[float]
) -> None:
    spent: list[float] = []
    monkeypatch.setattr(apps, "spend", spent.append)
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("nobody reads")

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(getattr(apps, application)({"type": "http", "path": path}, receive, send))
    assert spent == seconds
    assert sent[-1]["body"] == apps.HELLO


def test_newcomers_without_an_answer_count_with_the_time_they_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.load.accept.PATIENCE", 0.5)
    with fake.running(tmp_path, stall_at=3, stall=30) as server:
        burst = _newcomers(server, tmp_path, 10, 1, seconds=0.2)
    assert burst.unanswered >= 8
    assert burst.latency is not None
    assert burst.latency.max >= 0.3
    assert burst.errors == {}


def test_nobody_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="connection 1 of 2"):
        Newcomers(Aim(process.free_port(), tmp_path, options={"busy": "2"}), Load("accept", 5, 1, 0.1))


def test_newcomers_who_are_refused_are_errors(tmp_path: Path) -> None:
    found = Newcomers(Aim(process.free_port(), tmp_path, options={}), Load("accept", 5, 1, 0.1)).run()
    assert sum(found.errors.values()) == 5
    assert found.requests == 0


def _sample(tool: str, **more: Any) -> Sample:
    return records.sample(load=Load(tool, 300, 1, 1.0), **more)


def test_newcomers_and_large_bodies_have_tables_of_their_own() -> None:
    waiting = Burst(1000, 2.0, {}, records.latency(0.1), unanswered=7)
    result = records.result(
        "run",
        [
            _sample("accept", workload="accept", burst=waiting),
            _sample("wrk", workload="download", payload=16 * 2**20, cpu=0.016),
            _sample("wrk", workload="hello"),
        ],
    )
    bulk, arrivals = tables.special(result)
    assert [row[-2:] for row in bulk.rows] == [("1.00 ms", "800,000")]
    assert [row[:3] for row in arrivals.rows] == [("300", "ours", "100.00 ms")]
    assert arrivals.rows[0][-2:] == ("7", "1")
    assert {table.title.partition(" (")[0] for table in tables.tables(result)} >= {"large bodies", arrivals.title}


def test_large_bodies_are_told_by_what_a_request_moves() -> None:
    payloads = {one.name: one.payload for one in scenario.TABLE if one.payload}
    small = {"tls-1m": 2**20, "tls-upload": 2**20 + 12, "h2-upload": 2**20 + 12, "echo-1m": 2**20 + 13}
    small |= {"h3-1m": 2**20, "h3-upload": 2**20 + 12}
    assert payloads == {**small, "upload": 16 * 2**20 + 12, "download": 16 * 2**20}


def test_a_large_body_makes_a_short_script(tmp_path: Path) -> None:
    workload = WORKLOADS["upload"]
    aim = Aim(1, tmp_path, method="POST", body=workload.body)
    script = Path(Wrk().command(aim, Load("wrk", 1, 1, 1.0))[-2])
    assert script.stat().st_size < 4000
    assert f'string.rep("u", {16 * 2**20})' in script.read_text()


@pytest.mark.parametrize("target", [pytest.param(one, id=one.name) for one in targets.TABLE if "tls" in one.features])
def test_tls_reaches_every_server_s_command_line(target: targets.Target, tmp_path: Path) -> None:
    for certificate in (None, tmp_path / "certificate.pem"):
        launch = targets.Launch("m:app", 4711, Mode(), False, "/venv/bin/python", {}, certificate)
        assert ("certificate.pem" in " ".join(target.command(launch))) == (certificate is not None)


OURS = [
    ("churn", "closedloop"),
    ("h2-beside-tls", "beside"),
    ("h3-upload", "h3load"),
    ("accept", "accept"),
    ("tls", "wrk"),
    ("tls-1m", "wrk"),
    ("varying", "closedloop"),
    ("identical", "closedloop"),
    ("upload", "closedloop"),
    ("download", "closedloop"),
    ("h2-beside", "beside"),
]


@pytest.mark.parametrize("case", deep_after(1, OURS), ids=lambda case: case[0])
def test_this_tree_answers_each_of_them(case: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    name, tool = case
    monkeypatch.setenv("BENCH_OURS_PYTHON", sys.executable)
    if generators.find(tool).missing() or ("tls" in name and not shutil.which("openssl")):
        pytest.skip(f"{tool} or openssl is not installed")
    workload = WORKLOADS[name]
    if name == "accept":
        workload = dataclasses.replace(workload, options={"busy": "5", "busy-path": "/busy"})
    if workload.http2 or workload.http3:
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    one = Scenario(workload, Mode(), Load(tool, 1 if workload.http2 else 4, 1, 0.3))
    measuring = runner.Runner(environment.Cores((), ()), warm_up=0.1, tolerated=9)
    [sample] = measuring.carry_out(plan.survey([one], [targets.find("ours")], rounds=1))
    assert sample.void is None
    assert sample.burst is not None
    assert sample.burst.requests > 0
    assert (sample.cpu_per_mib is not None) == (workload.payload > 0)


@pytest.mark.anyio
async def test_a_body_that_comes_as_a_memoryview_goes_back_as_bytes() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": memoryview(b"abc")}

    async def send(message: Any) -> None:
        sent.append(message)

    await apps.echo({"type": "http"}, receive, send)
    assert sent[1] == {"type": "http.response.body", "body": b"abc"}
    assert type(sent[1]["body"]) is bytes


def test_commands_are_printed_as_they_can_be_typed() -> None:
    ours, fastpysgi, picows = (targets.find(name).commands() for name in ("ours", "fastpysgi", "picows"))
    assert ours["HTTP/1.1, access log"] == "python -m uvicorn module:app --host 127.0.0.1 --port 8000"
    assert ours["HTTP/1.1, files"].endswith(" --mount /static=static")
    assert ours["HTTP/3, TLS"].endswith(" --ssl-certfile certificate.pem --ssl-keyfile certificate.pem --http2 --http3")
    assert fastpysgi["HTTP/1.1"] == "fastpysgi --host 127.0.0.1 --port 8000 module:app"
    assert picows["HTTP/1.1"] == "python bench/apps_picows.py 8000"
    assert "HTTP/2" not in fastpysgi
