"""Every HTTP/1.1 vector, whole, on every implementation; and the data itself."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests import machines
from tests.protocols.test_differential import IMPLEMENTATIONS
from tests.vectors.applications import APPLICATIONS
from tests.vectors.judge import verdict
from tests.vectors.loader import Vector, groups, load
from tests.vectors.replay import loaded_config, new_server, replay
from tests.vectors.responses import BrokenResponse, parse
from uvicorn.config.settings import Settings
from uvicorn.importer import import_from_string
from uvicorn.serving.state import ServerState

http_protocol_cls = machines.each

VECTORS = load()
GROUPS = groups()

#: Rows of the threat list that bytes on one HTTP/1.1 connection can show; the others have tests of their own.
ROWS = (
    *(f"F{number}" for number in range(1, 20)),
    *(f"U{number}" for number in (1, 2, 3, 4, 5, 7)),
    *("R5", "R6", "R12", "K1", "K2", "K5", "D2", "D3", "D4", "D7", "D8"),
)


@pytest.mark.anyio
@pytest.mark.parametrize("group", GROUPS)
async def test_vectors_have_the_outcome_they_state(group: str, caplog: pytest.LogCaptureFixture) -> None:
    """On each implementation, and each gives the operator the same reasons."""
    failed: list[str] = []
    with caplog.at_level(logging.DEBUG, "uvicorn.error"):
        for vector in GROUPS[group]:
            reasons = {}
            for name, protocol_cls in protocols().items():
                caplog.clear()
                found = verdict(vector, await replay(protocol_cls, vector, [vector.data]))
                found += [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
                reasons[name] = refusals(caplog)
                found += unexpected_reasons(vector, reasons[name])
                failed += [f"{vector.id} on {name}: {fault}" for fault in found]
            if differ(reasons):
                failed.append(f"{vector.id}: {reasons}")
    assert failed == []


def protocols() -> dict[str, Any]:
    """The implementations, by the names of their classes."""
    return {protocol_cls.__name__: protocol_cls for protocol_cls in map(import_from_string, IMPLEMENTATIONS)}


def differ(reasons: dict[str, list[str]]) -> bool:
    return len(set(map(tuple, reasons.values()))) > 1


def unexpected_reasons(vector: Vector, lines: list[str]) -> list[str]:
    """What is wrong with the lines about refusals, where the vector says what they are."""
    if vector.reason is None or (len(lines) == 1 and lines[0].endswith(f": {vector.reason}.")):
        return []
    return [f"the operator was told {lines}, not {vector.reason!r}"]


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the operator was told of requests that were refused; there is no address in front, on a pair of sockets."""
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    return [line for line in lines if line.startswith("Request refused with ")]


@pytest.mark.deep
@pytest.mark.no_cover
@pytest.mark.anyio
async def test_implementations_give_the_same_reasons_for_vectors_in_pieces(caplog: pytest.LogCaptureFixture) -> None:
    """Cut where it is most likely to matter."""
    failed: list[str] = []
    for vector in VECTORS:
        for cut in {len(vector.data) // 2, max(0, len(vector.data) - 3)}:
            reasons = {}
            for name, protocol_cls in protocols().items():
                caplog.clear()
                with caplog.at_level(logging.DEBUG, "uvicorn.error"):
                    await replay(protocol_cls, vector, [vector.data[:cut], vector.data[cut:]], in_memory=True)
                reasons[name] = refusals(caplog)
            if differ(reasons):
                failed.append(f"{vector.id} cut at {cut}: {reasons}")
    assert failed == []


# The same code as for vectors on a new server, which are covered.
@pytest.mark.no_cover
@pytest.mark.anyio
@pytest.mark.parametrize("part", range(8))
async def test_vectors_have_the_same_outcome_on_a_server_that_has_met_them(part: int, http_protocol_cls: Any) -> None:
    """What a server concluded from request lines and field sections before changes nothing."""
    servers: dict[object, ServerState] = {}
    failed: list[str] = []
    for _ in range(3):
        for vector in VECTORS[part::8]:
            kind = (vector.app, tuple(sorted(vector.settings.items())))
            if kind not in servers:
                servers[kind] = new_server(loaded_config(http_protocol_cls, *kind))
            found = verdict(vector, await replay(http_protocol_cls, vector, [vector.data], servers[kind]))
            failed += [f"{vector.id}: {fault}" for fault in found]
    for state in servers.values():
        state.close()
    assert failed == []


def test_each_vector_is_in_one_group() -> None:
    assert sorted(vector.id for group in GROUPS.values() for vector in group) == sorted(vector.id for vector in VECTORS)


def test_there_are_at_least_400_vectors() -> None:
    assert len(VECTORS) >= 400


def test_rows_are_covered_by_vectors() -> None:
    assert set(ROWS) - {row for vector in VECTORS for row in vector.rows} == set()


def test_vectors_name_applications_and_settings_that_exist() -> None:
    for vector in VECTORS:
        assert vector.app in APPLICATIONS, vector.id
        assert set(vector.settings) <= set(Settings.__annotations__), vector.id


def test_vectors_differ() -> None:
    """Two names for the same bytes under the same conditions are one vector too many."""
    seen: dict[object, str] = {}
    for vector in VECTORS:
        key = (vector.data, vector.eof, vector.app, tuple(vector.settings.items()))
        assert key not in seen, f"{vector.id} is {seen[key]}"
        seen[key] = vector.id


OK = b"HTTP/1.1 200 OK\r\ndate: Mon, 02 Jan 2006 15:04:05 GMT\r\n"


@pytest.mark.parametrize(
    ("data", "methods"),
    [
        pytest.param(b"HTTP/1.1 200\r\n\r\n", ["GET"], id="no-space-behind-the-status"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\n", ["GET"], id="other-version"),
        pytest.param(OK + b"x : y\r\n\r\n", ["GET"], id="space-before-colon"),
        pytest.param(OK + b"x: y\n\r\n", ["GET"], id="bare-lf"),
        pytest.param(OK + b"content-length: 3\r\n\r\nab", ["GET"], id="content-too-short"),
        pytest.param(OK + b"content-length: 1\r\n\r\nab", ["GET"], id="content-too-long"),
        pytest.param(OK + b"content-length: 2\r\n\r\nab", ["HEAD"], id="content-after-head"),
        pytest.param(OK + b"transfer-encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", ["GET"], id="chunk-too-long"),
        pytest.param(OK + b"\r\nab", ["GET"], id="no-length-on-an-open-connection"),
    ],
)
def test_broken_response_is_noticed(data: bytes, methods: list[str]) -> None:
    with pytest.raises(BrokenResponse):
        parse(data, methods, ended=False)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", id="no-date"),
        pytest.param(OK + b"date: Mon, 02 Jan 2006 15:04:05 GMT\r\ncontent-length: 0\r\n\r\n", id="two-dates"),
        pytest.param(b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 0\r\n\r\n", id="date-in-words"),
        pytest.param(OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", id="both-framings"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n" + OK[17:] + b"content-length: 0\r\n\r\n", id="length-in-204"),
        pytest.param(b"HTTP/1.1 405 No\r\n" + OK[17:] + b"content-length: 0\r\n\r\n", id="405-without-allow"),
    ],
)
def test_forbidden_field_is_noticed(data: bytes) -> None:
    (response,) = parse(data, ["GET"], ended=False)
    assert response.faults
