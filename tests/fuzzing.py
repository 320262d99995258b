"""What must hold for anything that a peer may write, where the code is Python: the counterpart of `native/wire/fuzz`.

    python -m tests.fuzzing [--seconds 20] [--first N] [TARGET...]

A target raises if it does not hold. Inputs are mutations of seeds; a number decides all of them.
"""

from __future__ import annotations

import argparse
import ipaddress
import itertools
import re
import sys
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from uvicorn.files import representation
from uvicorn.listening.proxy_protocol import MAX_LENGTH, MalformedHeader, read
from uvicorn.middleware.forwarded import ForwardedMiddleware

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LONGEST = 4096

WORDS = {
    "forwarded": [
        *(
            "for=",
            "proto=https",
            "host=",
            "by=_x",
            ";",
            ",",
            '"',
            "\\",
            " ",
            "\t",
            "=",
            "[",
            "]",
            ":",
            "unknown",
            "\xff",
        ),
        *("192.0.2.1", "10.0.0.1", "[2001:db8::1]:1", "example.org:8443", "for=10.0.0.9", 'for="[::1]"', "for=a;for=b"),
    ],
    "proxy": [
        *(
            "PROXY ",
            "TCP4 ",
            "TCP6 ",
            "UNKNOWN",
            "\r\n",
            "\r",
            "\n",
            " ",
            "192.0.2.1",
            "::1",
            "65535",
            "0",
            "\0",
            "%eth0",
        ),
        *(
            "\r\n\r\n\0\r\nQUIT\n",
            "!\x11\0\x0c",
            "!\x21\0\x24",
            " \0\0\0",
            "\x20\0\x05\x01\0\0\0\0",
            "\x03\0\x04",
            "\x02\0\x01",
        ),
    ],
    "range": [
        *(
            "bytes=",
            "BYTES=",
            "-",
            ",",
            " ",
            "\t",
            "=",
            "\n",
            "0",
            "1",
            "9",
            "39",
            "40",
            "4" * 30,
            "9" * 101,
            "0-0,",
            "-1,",
        ),
        *(
            '"1-2"',
            'W/"',
            '"',
            "*",
            "\xff",
            "Mon, 01 Jan 2024 12:00:00 GMT",
            "Monday, 01-Jan-24 12:00:00 GMT",
            "Feb",
            "60",
        ),
        *("Mon Jan  1 12:00:00 2024", "gzip", "br", "zstd", "identity", ";q=0", ";q=0.5", ";q=1.000", ";q=2", "x-gzip"),
    ],
}


def seeds(name: str) -> list[bytes]:
    """Where mutations begin."""
    if name == "forwarded":
        return [
            b"",
            b'for="[2001:db8::7]:4711";proto=https;host=example.org, for=10.0.0.1;by=_b',
            b"for=a, for=10.0.0.2",
        ]
    if name == "range":
        date = b"Mon, 01 Jan 2024 12:00:00 GMT"
        return [
            b"",
            b"\n".join([b"bytes=0-0,5-9, -3", ETAG, b"gzip, br;q=0.5, *;q=0"]),
            b"\n".join([b"bytes=10-", date, b"identity;q=0"]),
            b"\n".join([b"bytes=3-1", b'W/"1-2", "x,y", *', b"*"]),
        ]
    path = Path(__file__).parent / "vectors" / "proxy_protocol.toml"
    rows = tomllib.loads(path.read_text("utf-8"))["vector"]
    return [b"", *(str(row["line"]).encode("latin-1") for row in rows if "line" in row)] + [
        bytes.fromhex("".join(row["hex"])) for row in rows if "hex" in row and row["id"] != "v2-longest"
    ]


def forwarded(data: bytes) -> None:
    """Whatever stands in front, the proxy's own member counts; what comes of it is a client, a host and a scheme."""
    for value in (data, data + b", for=192.0.2.7;proto=https", b"for=192.0.2.7;proto=https"):
        lines = [data, value] if value.startswith(b"for=192") else [value]
        scope = _scope_with(lines)
        assert scope["scheme"] in ("http", "https")
        host, port = scope["client"]
        assert host and host.isprintable() and 0 <= port <= 65535
        assert len([name for name, _ in scope["headers"] if name == b"host"]) == 1
        if value.endswith(b"for=192.0.2.7;proto=https") and value != data:
            assert (scope["client"], scope["scheme"]) == (("192.0.2.7", 0), "https"), lines


def _scope_with(lines: Sequence[bytes]) -> Any:
    headers = [(b"host", b"inner:8000"), *((b"forwarded", line) for line in lines)]
    scope: dict[str, Any] = {"type": "http", "client": ("127.0.0.1", 1), "scheme": "http", "headers": headers}
    scope |= {"server": ("127.0.0.1", 8000), "root_path": "", "path": "/", "raw_path": b"/"}
    app: Any = lambda scope, receive, send: None  # noqa: E731
    middleware: Any = ForwardedMiddleware(app, ["127.0.0.1", "10.0.0.0/8"], ("forwarded",))
    middleware.correct(scope)
    return scope


def proxy(data: bytes) -> None:
    """What is known of a header is known of every longer beginning, and it holds nothing that it must not hold."""
    whole = _outcome(data)
    known: Any = None
    for end in (*range(min(len(data), 64)), *range(max(64, len(data) - 1), len(data) + 1)):
        found = _outcome(data[:end])
        assert known is None or found == known
        known = found
    assert len(data) <= 64 or known in (None, whole)
    if not isinstance(whole, tuple):
        assert whole is not None or len(data) < MAX_LENGTH
        return
    introduction, length = whole
    assert 0 < length <= min(len(data), MAX_LENGTH)
    for address in (introduction.source, introduction.destination):
        if isinstance(address, tuple):
            assert str(ipaddress.ip_address(address[0])) and 0 <= address[1] <= 65535
        elif address is not None:
            assert "\0" not in address
    assert len(introduction.unique_id) <= 128


def _outcome(data: bytes) -> Any:
    try:
        return read(data)
    except MalformedHeader as exc:
        return str(exc)


ETAG = b'"1-2"'

_SPEC = rb"(?:[0-9]+-[0-9]*|-[0-9]+)"
_RANGE = re.compile(rb"(?i:bytes)=(?:[ \t]*(?:%b)?[ \t]*,)*[ \t]*(?:%b)?[ \t]*" % (_SPEC, _SPEC))


def asked_for(value: bytes, length: int) -> set[int] | None:
    """Positions of the bytes that a well-formed Range field asks for, one by one; `None` if it has no meaning."""
    found: set[int] = set()
    members = [member.strip(b" \t") for member in value[len(b"bytes=") :].split(b",")]
    for member in filter(None, members):
        first, _, last = member.partition(b"-")
        if not first:
            found |= set(range(max(0, length - int(last)), length))
        elif last and int(last) < int(first):
            return None
        else:
            found |= set(range(int(first), min(int(last) + 1 if last else length, length)))
    return found if any(members) else None


def range_of_bytes(data: bytes) -> None:
    """A Range field, a condition, and an Accept-Encoding field, in lines: what is sent is there, and was asked for."""
    value, condition, accept, *_ = *data.split(b"\n"), b"", b""
    digits = max(map(len, re.findall(rb"[0-9]+", value)), default=0)
    is_served = value.count(b",") < representation.MAX_RANGES and digits <= 100
    for length in (0, 1, 40, 2**50):
        found = representation.ranges(value, length)
        parts = sorted(found or [])
        assert all(0 <= first < first + count <= length for first, count in parts)
        assert all(first + count <= after for (first, count), (after, _) in itertools.pairwise(parts))
        if 0 < length <= 40:
            expected = asked_for(value, length) if is_served and _RANGE.fullmatch(value) else None
            assert (None if found is None else {at for first, n in parts for at in range(first, first + n)}) == expected
    date = representation.parse_date(condition)
    assert date is None or representation.parse_date(formatdate(date, usegmt=True).encode()) == date
    applies = representation.range_applies({b"if-range": condition}, ETAG, 1704110400, 2e9)
    assert applies == (condition == ETAG or date == 1704110400)
    matches = ETAG + b", " + condition
    assert representation.precondition({b"if-match": matches}, ETAG, 0) == representation.OK
    assert representation.precondition({b"if-none-match": matches}, ETAG, 0) == representation.NOT_MODIFIED
    found_codings = {b"accept-encoding": accept}
    chosen = representation.choose_coding(found_codings, representation.CODINGS)
    assert chosen in (None, representation.IDENTITY, *representation.CODINGS)
    # What was chosen of all is chosen where there is nothing else.
    assert chosen is None or representation.choose_coding(found_codings, [chosen]) == chosen


TARGETS: dict[str, Callable[[bytes], None]] = {
    "forwarded": forwarded,
    "proxy": proxy,
    "range": range_of_bytes,
}


def mutated(random: Random, pool: Sequence[bytes], words: Sequence[str]) -> bytes:
    """One of the pool, changed in a few places."""
    data = bytearray(random.choice(pool))
    for _ in range(random.randint(1, 5)):
        at = random.randint(0, len(data))
        end = min(len(data), at + random.randint(0, 8))
        kind = random.randint(0, 4)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << random.randint(0, 7)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:] = random.choice(pool)[at:]
        else:
            data[at : end if random.randint(0, 1) else at] = random.choice(words).encode("latin-1")
    return bytes(data[:LONGEST])


def fuzz(name: str, seed: int, go_on: Callable[[int], bool]) -> int:
    """Feed a target while `go_on` says so of how many inputs it had; how many those were.

    Raises:
        Exception: whatever the target has raised; a note says for what.
    """
    random, pool, count = Random(seed), seeds(name), 0
    first = list(pool)
    while go_on(count):
        data = first.pop() if first else mutated(random, pool, WORDS[name])
        try:
            TARGETS[name](data)
        except Exception as exc:
            raise AssertionError(f"{name} is broken by {data!r}") from exc
        if len(pool) < 500 and random.randint(0, 20) == 0:
            pool.append(data)
        count += 1
    return count


def _until(end: float) -> Callable[[int], bool]:
    return lambda count: time.monotonic() < end


def main() -> int:
    """Run targets for some seconds each."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description="Random input for code in Python.")
    parser.add_argument("--seconds", type=float, default=20, help="how long each target has (default: 20)")
    parser.add_argument("--first", type=int, help="begin with this seed (default: any)")
    parser.add_argument("target", nargs="*", default=list(TARGETS), choices=[*TARGETS, []])
    options = parser.parse_args()
    for name in options.target:
        seed = SystemRandom().getrandbits(48) if options.first is None else options.first
        count = fuzz(name, seed, _until(time.monotonic() + options.seconds))
        print(f"{name}: {count} executions from seed {seed}, nothing broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
