"""Cases: what clients send and applications do, as data; and how to make one from a seed.

Operations of an application are tuples: a name and plain arguments; `player.py` says what each does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

Operation = tuple[Any, ...]


@dataclass
class Request:
    """What a client sends, and what the application does with it if it is called."""

    ident: str
    secret: str
    data: bytes
    operations: list[Operation]
    #: Operations go on after one that raised.
    stubborn: bool = True
    #: It ends where it should: bytes of the next request are not taken for its own.
    clean: bool = True


@dataclass
class Client:
    """One connection: requests behind each other, cut into pieces."""

    requests: list[Request]
    #: Places in the bytes, in ascending order.
    cuts: list[int] = field(default_factory=list)
    #: What follows the last piece: "open", "half-close" or "drop".
    end: str = "open"
    #: Pieces after which the client stops reading, and after how many more it goes on.
    pause: tuple[int, int] | None = None

    @property
    def data(self) -> bytes:
        """All that is sent."""
        return b"".join(request.data for request in self.requests)

    def pieces(self) -> list[bytes]:
        """The data in its pieces."""
        data = self.data
        places = [0, *sorted({cut for cut in self.cuts if 0 < cut < len(data)}), len(data)]
        return [data[begin:end] for begin, end in pairwise(places) if begin < end]


@dataclass
class Case:
    """All that a run needs to be repeated."""

    seed: int
    loop: str
    clients: list[Client]
    #: Whose turn it is, over and over.
    order: list[int]
    #: Steps that are taken before the event loop gets to run.
    together: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    #: Pipelined requests served at once.
    eager: int = 32


def make_case(seed: int, loops: Sequence[str]) -> Case:
    """Return the case of a seed."""
    random = Random(seed)
    clients = [make_client(random, number) for number in range(random.choice([1, 1, 2, 2, 3, 4]))]
    return Case(
        seed=seed,
        loop=random.choice(loops),
        clients=clients,
        order=[random.randrange(len(clients)) for _ in range(8)],
        together=random.choice([1, 1, 1, 2, 4]),
        settings=make_settings(random),
        eager=random.choice([1, 2, 32, 32]),
    )


def make_settings(random: Random) -> dict[str, Any]:
    """Settings that are not the default, now and then."""
    settings: dict[str, Any] = {}
    if random.random() < 0.5:
        settings["asgi_extensions"] = random.sample(["http.response.trailers", "http.response.early_hint"], 2)
    if random.random() < 0.1:
        settings["limit_request_body"] = random.choice([0, 5, 20])
    if random.random() < 0.1:
        settings["limit_request_fields"] = random.choice([4, 6])
    if random.random() < 0.1:
        settings["limit_request_head"] = random.choice([120, 300])
    if random.random() < 0.2:
        settings["reset_contextvars"] = True
    if random.random() < 0.2:
        settings["root_path"] = "/root"
    if random.random() < 0.3:
        settings["server_header"] = True
    if random.random() < 0.3:
        settings |= {"proxy_headers": True, "forwarded_allow_ips": "*"}
    return settings


# What clients send.


def make_client(random: Random, number: int) -> Client:
    """Requests of one connection, with their applications."""
    requests = [make_request(random, f"{number}-{place}") for place in range(random.choice([1, 1, 2, 2, 3, 4, 6]))]
    client = Client(requests)
    size = len(client.data)
    if random.random() < 0.1 and size < 600:
        client.cuts = list(range(size))
    else:
        client.cuts = sorted(random.randrange(size) for _ in range(random.choice([0, 0, 1, 2, 4, 8])))
    client.end = random.choices(["open", "half-close", "drop"], [4, 3, 2])[0]
    if random.random() < 0.15:
        client.pause = (random.randrange(4), random.randrange(1, 6))
    return client


def make_request(random: Random, ident: str) -> Request:
    """One request, mostly a good one."""
    secret = f"{random.getrandbits(64):016x}"
    data, clean = make_message(random, ident, secret)
    if random.random() < 0.08:
        data, clean = spoil(random, data), False
    return Request(ident, secret, data, make_operations(random), random.random() < 0.8, clean)


def mostly(random: Random, good: Sequence[str], other: Sequence[str], share: float = 0.03) -> str:
    """One of the good ones, or now and then another."""
    return random.choice(other if random.random() < share else good)


def make_message(random: Random, ident: str, secret: str) -> tuple[bytes, bool]:
    """Head and body, and whether they fit together."""
    method = mostly(random, ["GET", "GET", "POST", "PUT", "HEAD", "OPTIONS"], ["get", "CONNECT", "M" * 65])
    target = mostly(
        random,
        [f"/r{ident}", f"/r{ident}?q={secret}", f"/r{ident}/%40{secret}", f"http://b/r{ident}"],
        [f"r{ident}", f"/r{ident}#a", f"/r{ident}/%zz", "*", f"https://b/r{ident}"],
    )
    version = mostly(random, ["1.1"] * 9 + ["1.0"], ["2.0", "1.2", "1.1 "])
    end = mostly(random, ["\r\n"], ["\n", "\r"], 0.01)
    lines = [mostly(random, ["Host: a"], ["Host: a b", "Host:", "X: y", "Host: a\r\nHost: a"])]
    lines += random.sample(
        [
            f"X-Secret: {secret}",
            f"Cookie: session={secret}",
            "Accept: */*",
            "User-Agent: a",
            "TE: trailers",
            "X-Forwarded-For: 10.0.0.1",
            "X-Forwarded-Proto: https",
        ],
        random.choice([0, 1, 1, 2, 4]),
    )
    if random.random() < 0.1:
        lines.append(
            random.choice(["Connection: close", "Connection: keep-alive", "Connection: Upgrade\r\nUpgrade: h2c"])
        )
    if random.random() < 0.02:
        lines.append(random.choice(["X y: z", " folded", "X-A : b", "no colon", "X: \0", "Expect: tea"]))
    framing, body, clean = make_body(random, method, secret.encode())
    lines += framing
    random.shuffle(lines)
    head = f"{method} {target} HTTP/{version}{end}" + "".join(f"{line}\r\n" for line in lines) + "\r\n"
    return head.encode("latin-1") + body, clean


def make_body(random: Random, method: str, secret: bytes) -> tuple[list[str], bytes, bool]:
    """Fields about the body, the body, and whether one fits the other."""
    if method not in ("POST", "PUT") and random.random() < 0.9:
        return [], b"", True
    content = random.choice([b"", b"hello", b"body " + secret, b"x" * 2000 + secret, b"y" * 9_000])
    expect = ["Expect: 100-continue"] if random.random() < 0.15 else []
    kind = random.random()
    if kind < 0.5:
        return [f"Content-Length: {len(content)}", *expect], content, True
    if kind < 0.9:
        return ["Transfer-Encoding: chunked", *expect], chunked(random, content), True
    bad = [
        f"Content-Length: {len(content) + 3}",
        "Content-Length: +5",
        "Content-Length: 5, 5",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
    ]
    return [random.choice(bad)], content, False


def chunked(random: Random, content: bytes) -> bytes:
    """The content in chunks, most of them well-formed."""
    data = b""
    while content:
        size = random.randint(1, len(content))
        extension = random.choice([b""] * 6 + [b";a=b", b' ; a="b"', b";chunk-signature=" + b"0" * 64])
        end = b"\r\n" if random.random() < 0.99 else random.choice([b"\n", b"XX", b""])
        data += b"%x%b\r\n%b%b" % (size, extension, content[:size], end)
        content = content[size:]
    trailers = random.choice([b""] * 5 + [b"X-Trailer: a\r\n", b"bad trailer\r\n"])
    return data + b"0\r\n" + trailers + b"\r\n"


def spoil(random: Random, data: bytes) -> bytes:
    """Put in, take out or replace some bytes."""
    spoilt = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(spoilt) + 1)
        spoilt[at : at + random.randint(0, 1)] = random.choice([b"", b"\r", b"\n", b" ", b":", b"\0", b"0", b";", b"A"])
    return bytes(spoilt) or b"\r\n"


# What applications do.


def make_operations(random: Random, depth: int = 0) -> list[Operation]:
    """A sane application with some odd things between, or odd things alone."""
    if random.random() < 0.25:
        operations = [odd(random, depth) for _ in range(random.randint(0, 8))]
    else:
        operations = sane(random)
        for _ in range(random.choice([0, 0, 1, 2, 4])):
            operations.insert(random.randint(0, len(operations)), odd(random, depth))
    if random.random() < 0.08:
        operations.append(random.choice([("raise", kind) for kind in RAISED] + [("return", "value")]))
    return operations


RAISED = ("RuntimeError", "ValueError", "CancelledError", "SystemExit", "KeyError")
BODIES = ("bytes", "bytearray", "memoryview", "bytes-subclass")
SIZES = (0, 1, 5, 5, 100, 70_000)


def sane(random: Random) -> list[Operation]:
    """Read the body, or not; respond."""
    operations: list[Operation] = []
    if random.random() < 0.7:
        operations.append(("receive-all",))
    pieces = [random.choice(SIZES) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    trailers = random.random() < 0.1
    fields = random.sample(["secret", "plain", "plain", "cookie"], random.randint(0, 3))
    if random.random() < 0.6:
        fields.append(f"length:{sum(pieces)}")
    elif random.random() < 0.3:
        fields.append("chunked")
    if random.random() < 0.05:
        fields.append(random.choice(["close", "keep-alive"]))
    shape = random.choice(["list"] * 5 + ["tuple", "generator", "pairs"])
    status = random.choices([200, 204, 304, 205, 404, 500], [20, 1, 1, 1, 2, 1])[0]
    operations.append(("start", status, tuple(fields), shape, trailers))
    for number, size in enumerate(pieces):
        if random.random() < 0.2:
            operations.append(("sleep", random.randint(1, 3)))
        more = number < len(pieces) - 1
        operations.append(("body", random.choice(BODIES[:1] * 4 + BODIES), size, more))
    if trailers:
        operations.append(("trailers", ("plain",), False))
    if random.random() < 0.3:
        operations.append(("receive",))
    return operations


def odd(random: Random, depth: int) -> Operation:
    """Something that a sane application need not do."""
    number = random.randrange(6)
    choices: list[Operation] = [
        ("receive",),
        ("receive-given-up", random.randint(0, 2)),
        ("receive-dropped",),
        ("start", random.choice([200, 200, 404, 100, 99, 600, 0]), ("plain",), "list", False),
        ("start", 200, (random.choice(BAD_FIELDS),), random.choice(["list", "generator"]), False),
        ("start", 200, ("plain",), random.choice(["reentrant", "raising", "none", "text"]), False),
        (
            "body",
            random.choice([*BODIES, "text", "none", "missing", "number"]),
            random.choice(SIZES),
            random.random() < 0.6,
        ),
        ("body-changed", random.choice(SIZES), random.random() < 0.6),
        ("trailers", (random.choice(["plain", "secret", "length", "bad-name"]),), random.random() < 0.3),
        ("early-hint", random.choice(["link", "two", "empty", "text", "bad"])),
        ("message", random.choice(["http.response.push", "http.disconnect", "", "none", "number", "missing", "list"])),
        ("send-dropped", random.choice(["start", "body"])),
        ("send-stepped", random.choice(["start", "body"])),
        ("message-used-again", random.choice(SIZES[:5]), random.randint(1, 3)),
        ("change-scope", random.choice(SCOPE_CHANGES)),
        ("change-message", random.choice(["body", "type", "clear"])),
        ("keep", random.choice(KEPT)),
        ("use-kept-send", number, random.choice(["start", "body", "last"])),
        ("use-kept-receive", number, random.randint(0, 2)),
        ("run-in-kept-context", number),
        ("look",),
        ("variable",),
        ("set-variable",),
        ("sleep", random.randint(1, 4)),
        ("cancel-self",),
        ("weak", random.choice(["task", "receive", "send"])),
        ("meet", random.randrange(6)),
        ("meet", random.randrange(6)),
        ("signal", random.randrange(6)),
        ("signal", random.randrange(6)),
        ("collect",),
    ]
    if depth < 2:
        inner = tuple(odd(random, depth + 1) for _ in range(random.randint(1, 3)))
        more = tuple(sane(random)[-3:]) if random.random() < 0.3 else tuple(odd(random, depth + 1) for _ in range(2))
        choices += [
            ("task", inner),
            ("spawn", inner),
            ("gather", inner, more),
            ("gather", inner, more),
            ("timeout", inner),
        ]
    return random.choice(choices)


BAD_FIELDS = (
    "bad-name",
    "bad-value",
    "text",
    "subclass",
    "triple",
    "empty-name",
    "length:x",
    "two-lengths",
    "bytearray",
)
SCOPE_CHANGES = (
    "append-header",
    "replace-header",
    "clear-headers",
    "path",
    "state",
    "extensions",
    "extension",
    "asgi",
    "delete-type",
    "clear",
    "client",
    "new-key",
)
KEPT = ("scope", "headers", "extensions", "state", "asgi", "message", "receive", "send", "context")


def leave_out(case: Case, names: Sequence[str]) -> None:
    """Take the operations with these names out of a case."""
    for client in case.clients:
        for request in client.requests:
            request.operations = [*without(request.operations, names)]


def without(operations: Iterable[Operation], names: Sequence[str]) -> Iterator[Operation]:
    """Give the operations that have other names, and within those that have some of their own."""
    for name, *arguments in operations:
        if name not in names:
            nested = name in NESTED
            yield (name, *(tuple(without(branch, names)) if nested else branch for branch in arguments))


NESTED = ("task", "spawn", "gather", "timeout")
