"""What wrk, h2load and oha print, recorded from real runs, and what they might print when something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import LoadError
from bench.load import wrk
from bench.load.base import Aim, verdict
from bench.load.h2load import H2load
from bench.load.oha import Oha
from bench.load.wrk import Wrk
from bench.model import Burst, Latency, Load

RECORDED = Path(__file__).with_name("recorded")
LOAD = Load("wrk", 4, 1, 1.0)
H2LOAD = H2load("h2load", ("--h1",))


def _text(name: str) -> str:
    return (RECORDED / name).read_text()


def test_wrk_figures_are_read_to_the_digit() -> None:
    burst = Wrk().parse(_text("wrk-closed.txt"), LOAD)
    assert (burst.requests, burst.seconds, burst.received) == (260, 1.07128, 13520)
    assert burst.errors == {"connect": 0, "read": 64, "write": 0, "status": 0, "timeout": 0}
    assert burst.latency == Latency(
        mean=0.0141747, p50=0.010626, p75=0.013744, p90=0.022809, p95=0.028129, p99=0.055825, p999=0.05587, max=0.05587
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("wrk-plain.txt", None, id="plain"),
        pytest.param("wrk-status.txt", " status", id="status"),
        pytest.param("wrk-closed.txt", "64 read", id="closed"),
        pytest.param("wrk-dead.txt", "write", id="dead"),
    ],
)
def test_errors_in_a_wrk_run_void_it_with_their_kinds(name: str, reason: str | None) -> None:
    found = verdict(Wrk().parse(_text(name), LOAD), LOAD)
    assert found is None if reason is None else found is not None and reason in found


def test_pipelined_latencies_of_wrk_are_not_believed() -> None:
    text = _text("wrk-pipeline.txt")
    assert Wrk().parse(text, Load("wrk", 4, 1, 1.0, pipeline=16)).latency is None


def _figures(change: dict[str, str]) -> str:
    text = _text("wrk-plain.txt")
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "it printed: nothing", id="nothing"),
        pytest.param("unable to connect to 127.0.0.1:8000 Connection refused\n", "Connection refused", id="refused"),
        pytest.param("bench: {}\n 0 requests in 1s", "not complete", id="empty figures"),
        pytest.param("bench: {\n", "cannot be read", id="cut off"),
        pytest.param(_figures({'"p50": ': '"p51": '}), "not complete", id="other name"),
        pytest.param(_figures({'"timeout": 0': '"timeout": "0"'}), "not numbers", id="text"),
        pytest.param(_figures({'"timeout": 0': '"timeout": -1'}), "not numbers", id="negative"),
        pytest.param(_figures({" requests in ": " demands in "}), "disagree", id="no summary"),
        pytest.param(_figures({'{"requests": ': '{"requests": 1'}), "disagree", id="other count"),
        pytest.param(_text("wrk-plain.txt") * 2, "did not finish", id="twice"),
    ],
)
def test_strange_output_of_wrk_is_an_error_in_one_line(text: str, words: str) -> None:
    with pytest.raises(LoadError, match=words) as caught:
        Wrk().parse(text, LOAD)
    assert "\n" not in str(caught.value)


def test_wrk_without_answers_prints_nan_and_counts_nothing() -> None:
    text = _text("wrk-dead.txt").replace('"mean": 0.0', '"mean": -nan').replace('"p99": 0.0', '"p99": nan')
    burst = Wrk().parse(text, LOAD)
    assert burst.requests == 0
    assert burst.latency is not None
    assert burst.latency.mean == 0


def test_the_script_of_wrk_carries_any_body_and_header(tmp_path: Path) -> None:
    aim = Aim(8000, tmp_path, method="POST", headers={"X": 'a"b\\c'}, body=bytes(range(256)))
    argv = Wrk().command(aim, Load("wrk", 2, 8, 1.0))
    script = Path(argv[argv.index("-s") + 1]).read_text()
    assert argv[argv.index("-t") + 1] == "2"  # More threads than connections would be refused by wrk.
    assert 'wrk.headers["X"] = "a\\034b\\092c"' in script
    assert "\\000\\001" in script
    assert "\\255" in script


def test_the_version_of_wrk_is_found() -> None:
    assert wrk.version("wrk debian/4.1.0-3+b2 [epoll] Copyright") == "debian/4.1.0-3+b2"
    assert wrk.version("") == "unknown"


def test_h2load_takes_percentiles_from_its_log_and_counts_from_its_summary() -> None:
    burst = H2LOAD.parse(_text("h2load-plain.txt"), LOAD)
    assert burst.errors == {}
    assert burst.requests == 76
    assert burst.latency is not None
    assert 0.05 <= burst.latency.p50 <= burst.latency.p99 <= burst.latency.max < 0.2


def test_h2load_tells_wrong_statuses_from_other_failures() -> None:
    burst = H2LOAD.parse(_text("h2load-status.txt"), LOAD)
    assert burst.requests == 64
    assert burst.errors == {"status": 12}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "printed: nothing", id="nothing"),
        pytest.param("Could not resolve\n", "Could not resolve", id="trouble"),
        pytest.param("\n".join(_text("h2load-plain.txt").splitlines()[:20]), "its log has", id="log cut off"),
    ],
)
def test_strange_output_of_h2load_is_an_error(text: str, words: str) -> None:
    with pytest.raises(LoadError, match=words):
        H2LOAD.parse(text, LOAD)


def test_h2load_that_got_nothing_is_void() -> None:
    assert verdict(H2LOAD.parse(_text("h2load-dead.txt"), LOAD), LOAD) == "no request was answered"


def test_oha_figures_are_read_and_the_deadline_is_no_error() -> None:
    burst = Oha().parse(_text("oha-plain.json"), LOAD)
    assert burst.errors == {}
    assert burst.requests > 90
    assert burst.latency is not None
    assert 0.01 <= burst.latency.p50 < 0.1


def test_oha_counts_wrong_statuses_and_refused_connections() -> None:
    assert Oha().parse(_text("oha-status.json"), LOAD).errors["status"] > 5
    dead = Oha().parse(_text("oha-dead.json"), LOAD)
    assert dead.errors["Connection refused (os error 111)"] == 19
    assert dead.latency is None


@pytest.mark.parametrize("text", ["", "{", "{}", '{"summary": 1}', "error: no\n"])
def test_strange_output_of_oha_is_an_error(text: str) -> None:
    with pytest.raises(LoadError, match="cannot be read"):
        Oha().parse(text, LOAD)


@pytest.mark.parametrize(
    ("burst", "words"),
    [
        pytest.param(Burst(10, 1.0, {}, None), None, id="good"),
        pytest.param(Burst(10, 0.5, {}, None), "short: 0.50 s", id="short"),
        pytest.param(Burst(0, 1.0, {}, None), "no request was answered", id="empty"),
        pytest.param(Burst(10, 1.0, {"read": 2, "status": 0}, None), "errors: 2 read (beside 10", id="errors"),
    ],
)
def test_what_must_not_count_is_void(burst: Burst, words: str | None) -> None:
    found = verdict(burst, LOAD)
    assert found is None if words is None else found is not None and words in found


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        pytest.param("open connections: 4\n", 0, id="none"),
        pytest.param("open connections: 3\n", 1, id="one"),
        pytest.param("open connections: 0\n", 4, id="all"),
        pytest.param("open connections: \n", 0, id="not known"),
    ],
)
def test_connections_that_h2load_lost_without_a_word_are_missed(said: str, lost: int) -> None:
    burst = H2LOAD.parse(said + _text("h2load-plain.txt"), Load("h2load", 4, 1, 1.0))
    assert burst.errors.get("lost connections", 0) == lost
