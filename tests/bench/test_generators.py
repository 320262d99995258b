"""Every load generator against a server whose latency and errors are known.

Delays are lower bounds, so that a busy machine cannot break these tests: a wait of 20 ms never ends sooner.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from bench import applications, environment, runner
from bench.errors import LoadError
from bench.load import closedloop, generators, histogram
from bench.load.base import Aim, Generator, verdict
from bench.model import Burst, Load
from tests.bench import fake

CORES = environment.Cores((), ())


def _usable(name: str, **marks: object) -> object:
    missing = generators.GENERATORS[name].missing()
    return pytest.param(name, id=name, marks=[pytest.mark.skip(reason=missing)] if missing else [])


CLOSED = [_usable(name) for name in ("wrk", "h2load", "httpx", "closedloop", "oha")]
OPEN = [_usable(name) for name in ("openloop", "oha")]
ALL = [_usable(name) for name in ("wrk", "h2load", "httpx", "closedloop", "openloop", "oha")]


# The least each is given: wrk and h2load count in whole seconds, httpx takes long for its first requests.
LEAST_SECONDS = {"wrk": 1.0, "h2load": 1.0, "httpx": 3.0}


def _load(name: str, *, connections: int = 4, seconds: float = 0.6, rate: float = 100.0) -> Load:
    chosen = max(LEAST_SECONDS.get(name, 0), seconds)
    return Load(name, connections, 1, chosen, rate if name in ("openloop", "oha") else None)


def _drive(generator: Generator, port: int, load: Load, directory: Path) -> Burst:
    argv = generator.command(Aim(port, directory, response_bytes=13), load)
    output, _ = runner.run_generator(generator, argv, CORES, 60)
    return generator.parse(output, load)


@pytest.mark.deep
@pytest.mark.parametrize("name", ALL)
def test_a_known_delay_is_found(name: str, tmp_path: Path) -> None:
    with fake.running(tmp_path, delay=0.02) as server:
        burst = _drive(generators.find(name), server.port, _load(name), tmp_path)
    # On a busy machine an open loop may say that it could not keep its own times; nothing else is wrong.
    assert set(burst.errors) <= {"sent late by the generator"} or not sum(burst.errors.values())
    assert burst.latency is not None
    assert 0.0199 <= burst.latency.p50 <= burst.latency.p99 <= burst.latency.max
    assert burst.latency.p50 < 10  # seconds, then, and no other unit


@pytest.mark.deep
@pytest.mark.parametrize("name", ALL)
def test_wrong_statuses_are_counted_and_void_the_burst(name: str, tmp_path: Path) -> None:
    load = _load(name)
    with fake.running(tmp_path, delay=0.005, error_every=5) as server:
        burst = _drive(generators.find(name), server.port, load, tmp_path)
    answered = burst.requests + (0 if name == "wrk" else burst.errors["status"])
    assert burst.errors["status"] == pytest.approx(answered / 5, abs=load.connections + 1)
    reason = verdict(burst, load)
    assert reason is not None
    assert "status" in reason


@pytest.mark.deep
@pytest.mark.parametrize("name", ALL)
def test_connections_that_end_without_an_answer_void_the_burst(name: str, tmp_path: Path) -> None:
    with fake.running(tmp_path, delay=0.005, close_every=5) as server:
        burst = _drive(generators.find(name), server.port, _load(name), tmp_path)
    assert verdict(burst, _load(name)) is not None


@pytest.mark.deep
@pytest.mark.parametrize("name", [_usable("httpx"), _usable("closedloop"), _usable("openloop")])
def test_short_answers_are_noticed_by_those_who_look(name: str, tmp_path: Path) -> None:
    with fake.running(tmp_path, delay=0.005, short_every=1) as server:
        burst = _drive(generators.find(name), server.port, _load(name), tmp_path)
    assert burst.errors["length"] > 1


@pytest.mark.deep
@pytest.mark.parametrize("name", OPEN)
def test_an_open_loop_charges_a_stall_to_everything_that_had_to_wait(name: str, tmp_path: Path) -> None:
    """200 requests per second and a stall of 0.5 s in 2 s: about a quarter was due during the stall."""
    with fake.running(tmp_path, stall_at=100, stall=0.5) as server:
        burst = _drive(generators.find(name), server.port, _load(name, seconds=2.0, rate=200), tmp_path)
    assert burst.latency is not None
    assert burst.latency.p99 > 0.35
    assert burst.latency.p90 > 0.15
    assert burst.latency.max >= 0.49


def test_the_open_loop_and_oha_agree_on_a_server_that_stalls(tmp_path: Path) -> None:
    if not shutil.which("oha"):
        pytest.skip("oha is not installed (cargo install oha --locked)")
    found = {}
    for name in ("openloop", "oha"):
        with fake.running(tmp_path, stall_at=100, stall=0.5) as server:
            burst = _drive(generators.find(name), server.port, _load(name, seconds=2.0, rate=200), tmp_path)
        assert burst.latency is not None
        found[name] = burst.latency
    for field in ("p95", "p99", "max"):
        assert getattr(found["openloop"], field) == pytest.approx(getattr(found["oha"], field), rel=0.35)


@pytest.mark.deep
@pytest.mark.parametrize("closing", [0, 1], ids=["kept open", "closed after each"])
def test_a_recording_is_sent_to_its_end(closing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(100)]
    monkeypatch.setattr(applications, "session", lambda name: sent)
    with fake.running(tmp_path, delay=0.005, record=1, closing=closing) as server:
        aim = Aim(server.port, tmp_path, options={"session": "any"})
        burst = closedloop.Closed(aim, Load("closedloop", 4, 1, 0.3)).run()
        seen = (tmp_path / "seen").read_bytes().splitlines()
    assert not sum(burst.errors.values())
    assert burst.requests >= 100
    assert len(set(Counter(seen).values())) == 1


@pytest.mark.deep
@pytest.mark.parametrize("name", [_usable("closedloop")])
def test_a_closed_loop_hides_the_same_stall_in_its_maximum(name: str, tmp_path: Path) -> None:
    """Why the open loop is there: only as many requests as connections see the stall."""
    with fake.running(tmp_path, stall_at=100, stall=0.5) as server:
        burst = _drive(generators.find(name), server.port, _load(name, connections=2, seconds=2.0), tmp_path)
    assert burst.latency is not None
    assert burst.latency.max >= 0.49
    assert burst.latency.p90 < burst.latency.max / 2


def test_the_open_loop_sends_what_the_rate_asks_for_and_counts_each_once(tmp_path: Path) -> None:
    with fake.running(tmp_path) as server:
        burst = _drive(generators.find("openloop"), server.port, _load("openloop", rate=150), tmp_path)
    lost = sum(count for kind, count in burst.errors.items() if kind != "sent late by the generator")
    assert burst.requests + lost == 90
    assert burst.histogram is not None
    assert histogram.merge([burst.histogram, burst.histogram]).get_total_count() == 2 * burst.requests


@pytest.mark.deep
@pytest.mark.parametrize("name", ALL)
def test_a_server_that_dies_under_load_gives_no_good_burst(name: str, tmp_path: Path) -> None:
    with fake.running(tmp_path, die_at=5) as server:
        try:
            burst = _drive(generators.find(name), server.port, _load(name), tmp_path)
        except LoadError as exc:
            assert "\n" not in str(exc)
        else:
            assert verdict(burst, _load(name)) is not None


@pytest.mark.parametrize("name", ALL)
def test_nobody_listening_gives_no_good_burst(name: str, tmp_path: Path) -> None:
    with fake.running(tmp_path) as server:
        port = server.port
    try:
        burst = _drive(generators.find(name), port, _load(name), tmp_path)
    except LoadError as exc:
        assert "\n" not in str(exc)
    else:
        assert verdict(burst, _load(name)) is not None


def test_pipelined_answers_are_counted_one_by_one_and_timed_from_their_batch(tmp_path: Path) -> None:
    load = Load("closedloop", 2, 1, 0.5, None, pipeline=4)
    with fake.running(tmp_path, delay=0.01) as server:
        burst = _drive(generators.find("closedloop"), server.port, load, tmp_path)
    assert not sum(burst.errors.values())
    assert burst.requests % 4 == 0
    assert burst.latency is not None
    assert burst.latency.p50 >= 0.0199  # Of four answers 10 ms apart, the second.
    with fake.running(tmp_path, error_every=10) as server:
        burst = _drive(generators.find("closedloop"), server.port, load, tmp_path)
    assert burst.errors["status"] == pytest.approx((burst.requests + burst.errors["status"]) / 10, abs=1)


def test_a_mixture_of_posts_and_gets_has_the_share_that_was_asked_for() -> None:
    aim = Aim(8000, Path("."), method="POST", body=b"m", options={"post-percent": "70"})
    requests = closedloop.mixture(aim)
    assert sum(one.startswith(b"POST ") for one in requests) == 70
    assert sum(one.startswith(b"GET ") and b"Content-Length" not in one for one in requests) == 30
    assert [one[:4] for one in requests[:4]].count(b"POST") == 3  # Spread evenly.


@pytest.mark.parametrize(
    ("name", "load", "words"),
    [
        pytest.param("wrk", Load("wrk", 1, 1, 1.0, 100.0), "no fixed arrival rate", id="rate for a closed loop"),
        pytest.param("closedloop", Load("closedloop", 1, 1, 1.0, 9.0), "no fixed arrival rate", id="and for ours"),
        pytest.param("openloop", Load("openloop", 1, 1, 1.0), "needs --rate", id="no rate"),
        pytest.param("openloop", Load("openloop", 1, 1, 1.0, 9.0, 16), "does not pipeline", id="openloop pipelined"),
        pytest.param("oha", Load("oha", 1, 1, 1.0, None, 16), "does not pipeline", id="oha pipelined"),
        pytest.param("httpx", Load("httpx", 1, 1, 1.0, None, 16), "does not pipeline", id="httpx pipelined"),
        pytest.param("wrk", Load("wrk", 1, 1, 1.0, None, 16), None, id="wrk pipelines"),
        pytest.param("oha", Load("oha", 1, 1, 1.0, 9.0), None, id="oha with a rate"),
    ],
)
def test_a_load_that_a_generator_cannot_drive_is_refused(name: str, load: Load, words: str | None) -> None:
    refusal = generators.find(name).refusal(load)
    assert refusal is None if words is None else refusal is not None and words in refusal


def test_an_open_loop_needs_a_rate(tmp_path: Path) -> None:
    with fake.running(tmp_path) as server, pytest.raises(LoadError, match="needs --rate"):
        _drive(generators.find("openloop"), server.port, Load("openloop", 1, 1, 1.0), tmp_path)


def test_a_server_that_speaks_no_websocket_refuses_the_handshake(tmp_path: Path) -> None:
    with fake.running(tmp_path) as server, pytest.raises(LoadError, match="handshake was refused"):
        _drive(generators.find("websocket"), server.port, Load("websocket", 2, 1, 1.0), tmp_path)


def test_an_unknown_generator_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="unknown load generator 'ab'"):
        generators.require("ab")


def test_a_generator_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("wrk", "h2load", "oha"):
        with pytest.raises(LoadError, match="install"):
            generators.require(name)


def test_a_generator_that_never_ends_is_ended(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="did not end within"):
        runner.run_generator(generators.find("httpx"), ["sleep", "60"], CORES, 0.1)


@pytest.mark.parametrize(
    ("marks", "resumes", "errors"),
    [("*" * 7, False, {}), ("r" * 7, True, {"not resumed": 0}), ("*rr*rrr", True, {"not resumed": 2})],
)
def test_connections_that_were_not_resumed_are_errors(
    marks: str, resumes: bool, errors: dict[str, int], tmp_path: Path
) -> None:
    generator = generators.find("s_time")
    load = Load("s_time", 1, 1, 2.0, None)
    command = generator.command(Aim(1, tmp_path, options={"resumes": "yes"} if resumes else {}), load)
    assert ("-reuse" in command) is resumes
    output = (
        f"Collecting connection statistics for 2 seconds\n{marks}\n\n"
        "7 connections in 0.03s; 233.33 connections/user sec, bytes read 875\n"
        "7 connections in 3 real seconds, 125 bytes read per connection\n"
    )
    burst = generator.parse(output, load)
    assert (burst.requests, burst.seconds, burst.received, burst.errors) == (7, 2, 875, errors)
    with pytest.raises(LoadError, match="did not finish; it printed: 7 connections in 0"):
        generator.parse(output.splitlines()[-2], load)
    assert generator.refusal(Load("s_time", 2, 1, 2.0, None)) == "s_time has one connection at a time: --connections 1"
