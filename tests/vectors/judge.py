"""Compare what was observed with what a vector expects; every difference is a sentence, none means it passed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.vectors.applications import SeenRequest
from tests.vectors.loader import ExpectedRequest, ExpectedResponse, Vector
from tests.vectors.responses import BrokenResponse, Response, parse

__all__ = ["PROBE", "PROBE_PATH", "Observation", "needs_probe", "verdict"]

PROBE_PATH = "/probe"

#: Sent behind the input when the connection may be open: that it is answered, and alone, shows that the server is not
#: out of step. Being the last request, it makes the server close, so that nobody has to guess when all has been said.
PROBE = f"GET {PROBE_PATH} HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n".encode()


@dataclass
class Observation:
    """What a server did with a vector's bytes."""

    #: All it sent.
    output: bytes = b""
    #: It had closed its side when everything was sent and read.
    closed: bool = False
    #: What reached the application; None: it cannot be known (another server).
    requests: list[SeenRequest] | None = field(default_factory=list)


def needs_probe(vector: Vector) -> bool:
    """The connection may be open for a further request."""
    return "open" in vector.connection


def verdict(vector: Vector, seen: Observation, *, date_expected: bool = True) -> list[str]:
    """What is wrong with the observation; an empty list if nothing is."""
    requests = seen.requests
    if requests is None:
        methods = vector.methods()
    else:
        methods = [request.scope["method"] for request in requests]
        methods += [vector.refused] if vector.refused else []
    try:
        responses = parse(seen.output, methods, ended=seen.closed, date_expected=date_expected)
    except BrokenResponse as error:
        return [f"broken response: {error}"]
    probed = needs_probe(vector) and was_probed(responses, requests, vector)
    answers = responses[:-1] if probed else responses
    faults = [*compare_responses(vector.expect, answers)]
    if requests is not None:
        faults += compare_requests(vector.requests, requests[:-1] if probed else requests)
    faults += compare_connection(vector, responses, seen, probed)
    faults += [f"{response.status}: {fault}" for response in responses for fault in response.faults]
    return faults


def was_probed(responses: Sequence[Response], requests: Sequence[SeenRequest] | None, vector: Vector) -> bool:
    """The last response answers the probe."""
    if requests is not None:
        return bool(requests) and requests[-1].scope["path"] == PROBE_PATH
    return len(responses) > sum(not response.optional for response in vector.expect)


def compare_responses(expected: Sequence[ExpectedResponse], answers: Sequence[Response]) -> Iterator[str]:
    """Walk both lists; an optional one is passed over when the answer at hand is not it."""
    rest = list(answers)
    for response in expected:
        if rest and rest[0].status in response.status:
            yield from compare_response(response, rest.pop(0))
        elif not response.optional:
            found = rest.pop(0).status if rest else "nothing"
            yield f"expected a response {sorted(response.status)}, found {found}"
    yield from (f"unexpected response {response.status}" for response in rest)


def compare_response(expected: ExpectedResponse, response: Response) -> Iterator[str]:
    """The details a vector asks for."""
    if expected.framing is not None and response.framing not in expected.framing:
        yield f"{response.status}: framing is {response.framing}, not {sorted(expected.framing)}"
    if expected.body is not None and response.body != expected.body:
        yield f"{response.status}: content is {response.body[:60]!r}, not {expected.body[:60]!r}"
    for name, value in expected.headers.items():
        if response.values(name) != [value]:
            yield f"{response.status}: {name.decode()} is {response.values(name)!r}, not {value!r}"


def compare_requests(expected: Sequence[ExpectedRequest], requests: Sequence[SeenRequest]) -> Iterator[str]:
    """Walk both lists, in order: what must, may and must not have reached the application."""
    rest = list(requests)
    for request in expected:
        if rest and not [*differences(request, rest[0])]:
            rest.pop(0)
        elif not (request.optional or request.truncated):
            yield from differences(request, rest.pop(0)) if rest else ["a request did not reach the application"]
    for seen in rest:
        yield f"reached the application: {seen.scope['method']} {seen.scope['raw_path'][:60]!r} body {seen.body[:60]!r}"


def differences(expected: ExpectedRequest, seen: SeenRequest) -> Iterator[str]:
    """The details of one request."""
    for key in ("method", "raw_path", "path", "query_string", "http_version"):
        value = getattr(expected, key)
        if value is not None and seen.scope[key] != value:
            yield f"{key} is {short(seen.scope[key])}, not {short(value)}"
    if expected.headers is not None and tuple(map(tuple, seen.scope["headers"])) != expected.headers:
        yield f"headers are {short(seen.scope['headers'])}, not {short(expected.headers)}"
    if expected.truncated and seen.complete:
        yield f"an incomplete body was delivered as complete: {seen.body[:60]!r}"
    if expected.body is not None and (seen.body != expected.body or not seen.complete):
        yield f"body is {seen.body[:60]!r} (complete: {seen.complete}), not {expected.body[:60]!r}"


def compare_connection(vector: Vector, responses: Sequence[Response], seen: Observation, probed: bool) -> Iterator[str]:
    """Open, closed or waiting, and that the responses said so."""
    state = "open" if probed else "closed" if seen.closed else "waiting"
    if state not in vector.connection:
        yield f"the connection is {state}, not {sorted(vector.connection)}"
    finals = [response for response in responses if not response.interim]
    if any(response.says_close for response in finals[:-1]):
        yield "a response said close, and another followed (RFC 9112 section 9.6)"
    # The reason to close may come when the head has gone: a client that closes its side, a body that breaks behind an
    # early answer, a choice that is the server's.
    early = vector.app in ("ignore", "read-once")
    decided = len(vector.connection) == 1 and not (vector.eof or early) and state == "closed"
    if finals and decided and not finals[-1].says_close:
        yield "the last response did not say close (RFC 9112 section 9.6)"
    if finals and state == "waiting" and finals[-1].says_close:
        yield "a response said close, and the connection is open"


def short(value: object) -> str:
    """A value as text, cut."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}... ({len(text)})"
