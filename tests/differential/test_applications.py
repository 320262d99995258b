"""Some random cases, the same each time; those that have shown a fault; and that faults are noticed at all.

``scripts/fuzz`` looks for new ones.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)

from tests.differential import streams
from tests.differential.case import Case, Client, Operation, Request, leave_out, make_case
from tests.differential.compare import difference, smaller
from tests.differential.runner import run
from tests.loops import LOOPS
from tests.utils import deep_after
from uvicorn.protocols.http.cycle import RequestResponseCycle

# The same code as in the tests of the protocols, which are covered.
pytestmark = pytest.mark.no_cover


GET = b"GET /r%b HTTP/1.1\r\nHost: a\r\n\r\n"
START: Operation = ("start", 200, ("length:1",), "list", False)
END: Operation = ("body", "bytes", 1, False)


def request(ident: str, operations: list[Operation], data: bytes = GET, *, stubborn: bool = True) -> Request:
    return Request(ident, "secret" + ident, data.replace(b"%b", ident.encode()), operations, stubborn)


def case(*clients: Client, loop: str = "asyncio", **changes: Any) -> Case:
    return Case(0, loop, [*clients], [0], **changes)


@pytest.mark.parametrize("part", deep_after(2, range(8)))
def test_implementations_do_the_same(part: int) -> None:
    for seed in range(part * 8, part * 8 + 8):
        found = difference(make_case(seed, LOOPS), look_for_leaks=not part)
        assert found is None, f"python -m tests.differential --seed {seed}"


@pytest.mark.skipif(not streams.AVAILABLE, reason="HTTP/3 needs Linux, its client aioquic")
@pytest.mark.parametrize("seed", deep_after(4, (77, 243268109110812, 859130039903512, *range(30))))
def test_http3_does_the_same_as_http2(seed: int) -> None:
    found = streams.difference(make_case(seed, LOOPS))
    assert found is None, f"python -m tests.differential --seed {seed}"


CHUNKED = b"POST /r%b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

FOUND = {
    "bad-body-of-the-last-request-of-a-turn": case(
        Client([request("0-0", [START, END], CHUNKED + b"x\r\n"), request("0-1", [])]), eager=1
    ),
    "head-behind-a-bare-line-feed": case(Client([request("0-0", [], b"\nHEAD /r%b HTTP/1.1\r\n\r\n")])),
    "message-that-is-a-list": case(Client([request("0-0", [("message", "list"), START, END])])),
    "close-is-said-by-the-last-response-behind-a-body": case(
        Client(
            [
                request("0-0", [("receive",), ("receive-all",), START, END]),
                request("0-1", [START, END], CHUNKED + b"0\r\n\r\n"),
            ],
            end="half-close",
        )
    ),
    "head-is-sent-with-a-body-that-is-missing": case(
        Client(
            [request("0-0", [START, ("body", "missing", 0, True), ("message", "missing")], stubborn=False)],
        )
    ),
    "large-body-for-a-client-that-has-gone": case(
        Client(
            [
                request(
                    "0-0",
                    [
                        ("receive-all",),
                        ("receive",),
                        ("start", 200, ("chunked",), "list", False),
                        ("body", "bytes", 0, True),
                        ("body", "bytes", 5, True),
                        ("body", "bytes", 70000, False),
                    ],
                ),
                request("0-1", [], b"POST /r%b HTTP/1.0\r\nTransfer-Encoding: chunked\r\nHost: a\r\n\r\n\r\n"),
            ],
            end="drop",
        )
    ),
    "client-that-sends-its-body-waits-for-no-100": case(
        Client(
            [
                request(
                    "0-0",
                    [START, END],
                    b"PUT /r%b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n12345",
                ),
            ],
        )
    ),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_before_is_the_same(name: str, loop: str) -> None:
    found = FOUND[name]
    found.loop = loop
    assert difference(found) is None


def test_client_is_answered_and_its_application_seen() -> None:
    """The cases do what they are there for."""
    for implementation in ("native", "httptools", "h11"):
        outcome = run(case(Client([request("0-0", [("receive-all",), START, END])])), implementation)
        ((output, ended),) = outcome.wire
        assert output.startswith(b"HTTP/1.1 200 OK\r\n") and output.endswith(b"\r\n\r\ns")
        assert ended
        (notes,) = outcome.seen["0-0"]
        assert [notes[place,][0] for place in range(3)] == ["receive-all", "start", "body"]
        assert outcome.faults == []


def test_leak_is_noticed() -> None:
    """One request keeps its scope, the next one of another client looks at it."""
    keep = request("0-0", [("keep", "headers"), START, END])
    other = request("1-0", [START, END])
    one = case(Client([keep]), Client([other]))
    assert difference(one) is None
    leaked = request("1-0", [("change-scope", "new-key")])
    leaked.secret = keep.secret
    keep.operations.insert(0, ("change-scope", "append-header"))
    keep.operations.insert(1, ("look",))
    found = difference(case(Client([keep]), Client([leaked])))
    assert found is not None and "has seen the secret of" in found[0]


def test_difference_is_noticed_and_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the implementations gives a body another end."""
    genuine = RequestResponseCycle.receive

    async def receive(self: RequestResponseCycle) -> Any:
        message: Any = await genuine(self)
        if message.get("body") == b"hello":
            message["body"] = b"hullo"
        return message

    monkeypatch.setattr(RequestResponseCycle, "receive", receive)
    data = b"POST /r%b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
    good = Client([request("0-0", [START, END])])
    bad = Client([request("1-0", [("sleep", 1), ("receive",), START, END], data)], cuts=[7, 20])
    one = case(good, bad)
    found = difference(one)
    assert found is not None
    reduced, found = smaller(one, found)
    assert [(client.cuts, [request.operations for request in client.requests]) for client in reduced.clients] == [
        ([], [[("receive",)]])
    ]
    assert b"hullo" in repr(found).encode()


def test_operations_can_be_left_out() -> None:
    nested: Operation = ("gather", (("sleep", 1), ("look",)), (("task", (("look",), START)),))
    one = case(Client([request("0-0", [("look",), nested, END])]))
    leave_out(one, ["look"])
    assert one.clients[0].requests[0].operations == [("gather", (("sleep", 1),), (("task", (START,)),)), END]
