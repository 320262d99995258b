"""Where the kernel delivers QUIC datagrams, compared with a model of the program in Python."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import sys
from collections.abc import Iterator, Sequence

import pytest

from tests.utils import PATIENCE

if sys.platform != "linux":
    pytest.skip("datagrams are steered on Linux only", allow_module_level=True)

from uvicorn.listening.udp_steering import FACTOR, MARK, attach, program


def own_id(slot: int, rest: bytes = bytes(10)) -> bytes:
    """A connection id that the worker in a slot has issued."""
    return bytes([slot, MARK ^ slot]) + rest


def short(connection_id: bytes) -> bytes:
    """A packet of an established connection."""
    return b"\x41" + connection_id + bytes(20)


def long(connection_id: bytes, kind: int = 0xC0) -> bytes:
    """A packet of a handshake; an Initial by default."""
    return bytes([kind, 0, 0, 0, 1, len(connection_id)]) + connection_id + b"\x08" + bytes(1200)


def expected(datagram: bytes, holders: Sequence[int], targets: Sequence[int]) -> int:
    """The slot that is to have it."""
    if len(datagram) < 13:
        return targets[len(datagram) % len(targets)]
    is_long = datagram[0] & 0x80
    if is_long:
        found, hashed = datagram[6:18] if datagram[5] == 12 else b"", datagram[9:13]
    else:
        found, hashed = datagram[1:13], datagram[4:8]
    if len(found) == 12 and found[1] == found[0] ^ MARK and found[0] in holders:
        return found[0]
    return targets[(int.from_bytes(hashed, "big") * FACTOR % 2**32 >> 16) % len(targets)]


class Group:
    """A group of sockets, and a client."""

    def __init__(self, stack: contextlib.ExitStack, size: int, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.members: list[socket.socket] = []
        self._selector = stack.enter_context(contextlib.closing(selectors.DefaultSelector()))
        for number in range(size):
            sock = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.setblocking(False)
            sock.bind((host, self.members[0].getsockname()[1] if self.members else 0))
            self._selector.register(sock, selectors.EVENT_READ, number)
            self.members.append(sock)
        self._client = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        self._client.connect(self.members[0].getsockname())

    def receiver(self, datagram: bytes) -> int:
        """Send it, and return which member has received it."""
        self._client.send(datagram)
        ((key, _),) = self._selector.select(PATIENCE)
        assert self.members[key.data].recv(2048) == datagram
        return int(key.data)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def random_datagram(drawn: random.Random, slots: int) -> bytes:
    """A datagram that is nearly a packet of ours."""
    slot = drawn.randrange(min(slots + 2, 256))
    connection_id = own_id(slot, drawn.randbytes(10)) if drawn.random() < 0.7 else drawn.randbytes(drawn.randrange(21))
    datagram = bytearray(drawn.choice([short, long])(connection_id))
    for _ in range(drawn.randrange(3)):
        datagram[drawn.randrange(min(20, len(datagram)))] = drawn.choice([0, 12, 0x80, 0xFF, drawn.randrange(256)])
    return bytes(datagram[: drawn.choice([*range(22), len(datagram), len(datagram)])])


@pytest.mark.parametrize(("host", "size", "programs"), [("127.0.0.1", 8, 40), ("::1", 8, 5), ("127.0.0.1", 256, 5)])
def test_kernel_and_model_deliver_equally(host: str, size: int, programs: int, stack: contextlib.ExitStack) -> None:
    group, drawn = Group(stack, size, host), random.Random(size)
    for _ in range(programs):
        holders = drawn.sample(range(size), drawn.randrange(size + 1))
        targets = drawn.sample(range(size), drawn.randint(1, size))
        attach(group.members[0], program(holders, targets))
        for _ in range(40):
            datagram = random_datagram(drawn, size)
            assert group.receiver(datagram) == expected(datagram, holders, targets), (datagram, holders, targets)


def test_each_packet_reaches_its_worker_or_one_that_accepts(stack: contextlib.ExitStack) -> None:
    group = Group(stack, 4, "127.0.0.1")
    attach(group.members[0], program(holders=[1, 2], targets=[2, 3]))
    theirs = bytes(range(8))
    for name, datagram, receivers in [
        ("established, draining", short(own_id(1)), {1}),
        ("established, accepting", short(own_id(2)), {2}),
        ("handshake", long(own_id(1), 0xE0), {1}),
        ("answer to a Retry", long(own_id(2)), {2}),
        ("ended worker", short(own_id(0)), {2, 3}),
        ("slot beyond the group", short(own_id(200)), {2, 3}),
        ("new connection", long(theirs), {2, 3}),
        ("another server's id", short(theirs + bytes(4)), {2, 3}),
        ("wrong mark", short(bytes([1, MARK ^ 2]) + bytes(10)), {2, 3}),
        ("empty", b"", {2, 3}),
        ("a byte", b"\xff", {2, 3}),
        ("cut in the id", short(own_id(1))[:12], {2, 3}),
        ("cut in the id of a long header", long(own_id(1))[:17], {2, 3}),
    ]:
        assert group.receiver(datagram) in receivers, name


def test_new_connections_are_spread(stack: contextlib.ExitStack) -> None:
    """Also those of clients whose ids count up; all packets of one reach the same worker."""
    group = Group(stack, 4, "127.0.0.1")
    attach(group.members[0], program([], [0, 1, 2, 3]))
    for name, ids in {
        "random": [random.Random(number).randbytes(8) for number in range(400)],
        "counting": [number.to_bytes(8, "big") for number in range(0, 400 << 8, 256)],
    }.items():
        receivers = [group.receiver(long(connection_id)) for connection_id in ids]
        assert receivers == [group.receiver(long(connection_id, 0xD0)) for connection_id in ids], name
        assert all(60 <= receivers.count(member) <= 140 for member in range(4)), name
