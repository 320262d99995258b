"""The slots of HTTP/3: which datagram waits in which socket while workers start, drain, end and are replaced."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.utils import wait_for

if sys.platform != "linux":
    pytest.skip("HTTP/3 needs Linux", allow_module_level=True)

from tests.listening.test_udp_steering import long, own_id, short
from uvicorn.config import Config
from uvicorn.listening import handover, sockets, systemd, udp_slots
from uvicorn.listening.handover import GO, VARIABLE, Description, DescriptionError, Succession, TakenSlots
from uvicorn.listening.udp_slots import Occupancy, UDPSlot, UDPSlots

START, ACCEPT, DRAIN, FREE = Occupancy.STARTING, Occupancy.ACCEPTING, Occupancy.DRAINING, Occupancy.FREE
NEW = [long(number.to_bytes(8, "big")) for number in range(0, 64 << 8, 256)]
"""The first packets of many connections."""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "current", Succession())


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack
    assert not udp_slots.running


class Workers:
    """Slots at two addresses of one server, and clients."""

    def __init__(self, stack: contextlib.ExitStack, count: int = 4) -> None:
        self.stack = stack
        self.tcp = [stack.enter_context(socket.create_server(("127.0.0.1", 0)))]
        self.tcp.append(stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6)))
        self.slots = UDPSlots.open(self.tcp, count)
        stack.callback(self.slots.close)
        self.taken: list[UDPSlot] = []

    def take(self, occupancy: Occupancy = START) -> UDPSlot:
        (slot,) = self.slots.take()
        self.stack.callback(slot.close)
        self.taken.append(slot)
        self.enter(slot, occupancy)
        return slot

    def enter(self, slot: UDPSlot, occupancy: Occupancy) -> None:
        self.slots.enter(slot.number, occupancy)
        self.slots.steer()

    def send(self, *datagrams: bytes) -> None:
        """Send them to both addresses."""
        for listener in self.tcp:
            with socket.socket(listener.family, socket.SOCK_DGRAM) as client:
                for datagram in datagrams:
                    client.sendto(datagram, listener.getsockname())


def received(slot: UDPSlot) -> list[bytes]:
    """All that waits in a slot; each datagram was sent to both addresses, and so it is in both sockets."""
    found: list[list[bytes]] = []
    for sock in slot.sockets:
        found.append([])
        with contextlib.suppress(BlockingIOError):
            while True:
                found[-1].append(sock.recv(2048))
    assert found[0] == found[1]
    return found[0]


def test_packets_follow_the_states(stack: contextlib.ExitStack) -> None:
    """Each step: the states of three workers, and who has new connections, and the packets of each worker's own."""
    workers = Workers(stack)
    slots = [workers.take() for _ in range(4)]
    assert [slot.number for slot in slots] == [0, 1, 2, 3]
    slots[3] = replace(slots[3], sockets=[sock.dup() for sock in slots[3].sockets])
    stack.callback(slots[3].close)
    workers.slots.give_back(workers.taken[3])  # so it is the next one to be taken
    assert len({slot.generation for slot in slots}) == 4
    for states, new, own in [
        ((START, START, START), {0, 1, 2}, ({0, 1, 2},) * 3),
        ((ACCEPT, START, START), {0}, ({0}, {0}, {0})),
        ((ACCEPT, ACCEPT, START), {0, 1}, ({0}, {1}, {0, 1})),
        ((ACCEPT, ACCEPT, ACCEPT), {0, 1, 2}, ({0}, {1}, {2})),
        ((DRAIN, ACCEPT, ACCEPT), {1, 2}, ({0}, {1}, {2})),
        ((FREE, ACCEPT, DRAIN), {1}, ({1}, {1}, {2})),
        ((FREE, DRAIN, START), {2}, ({2}, {1}, {2})),
        ((FREE, DRAIN, DRAIN), {3}, ({3}, {1}, {2})),
        ((FREE, FREE, FREE), {3}, ({3}, {3}, {3})),
    ]:
        for slot, state in zip(slots[:3], states, strict=True):
            workers.enter(slot, state)
        workers.send(*NEW)
        found = {slot.number: received(slot) for slot in slots}
        assert {number for number in found if found[number]} == new, states
        assert sorted(itertools.chain(*found.values())) == sorted(NEW), "none is swallowed"
        for slot, receivers in zip(slots[:3], own, strict=True):
            workers.send(short(own_id(slot.number)))
            assert {one.number for one in slots if received(one)} <= receivers, (states, slot.number)


def test_packets_wait_for_the_next_worker_where_none_is_left(stack: contextlib.ExitStack) -> None:
    workers = Workers(stack)
    first = workers.take(ACCEPT)
    workers.send(*NEW[:3])  # unread when it dies
    workers.enter(first, FREE)
    workers.slots.give_back(first)
    workers.send(*NEW[3:])
    assert set(NEW[3:]) <= set(received(workers.take()))


def test_packets_that_wait_are_read_by_the_next_worker_whichever_slots_are_free(stack: contextlib.ExitStack) -> None:
    """The only worker drains; another starts once it has ended, so two slots are free."""
    workers = Workers(stack)
    only = workers.take(ACCEPT)
    workers.enter(only, DRAIN)
    workers.send(*NEW)
    assert received(only) == []
    workers.slots.give_back(only)
    again = workers.take()
    assert received(again) == NEW
    workers.slots.is_ending = True
    workers.enter(again, DRAIN)
    workers.send(*NEW)
    assert received(again) == NEW, "they are refused: nothing else comes"


def test_unread_packets_of_the_dead_do_not_reach_a_later_worker(stack: contextlib.ExitStack) -> None:
    workers = Workers(stack)
    dead, living = workers.take(ACCEPT), workers.take(ACCEPT)
    workers.send(short(own_id(dead.number)))
    workers.slots.give_back(dead)
    again = workers.take()
    assert again.number == dead.number
    assert received(again) == []
    workers.send(short(own_id(dead.number)))
    assert received(living) == [short(own_id(dead.number))]


def test_slots_are_added_until_there_can_be_no_more(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """TTIN beyond the slots that were opened at start."""
    monkeypatch.setattr(udp_slots, "MOST_SLOTS", 6)
    workers = Workers(stack, count=4)
    taken = [workers.take(ACCEPT) for _ in range(6)]
    workers.send(*(short(own_id(slot.number)) for slot in taken))
    for slot in taken:
        assert short(own_id(slot.number)) in received(slot)
    assert not caplog.messages or "receive buffers" in caplog.messages[0]
    assert workers.slots.take() == []
    assert caplog.messages[-1].startswith("A new worker serves without HTTP/3 on 1 of its 1 event loops: all 6 slots")
    workers.slots.give_back(taken[3])
    assert workers.take().number == 3


def test_addresses_in_use_are_not_shared(stack: contextlib.ExitStack) -> None:
    """Not even with a server of the same user that would let others join: both would lose packets."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(listener.getsockname())
        with pytest.raises(
            OSError, match=r"bind on UDP address \('127.0.0.1', \d+\): address already in use"
        ) as caught:
            UDPSlots.open([listener], 4)
    assert caught.value.errno == errno.EADDRINUSE
    assert "http3" in getattr(caught.value, "hint", "")


@pytest.mark.parametrize("settings", [{"port": 0}, {"host": None, "port": 0}, {"bind": ["[::1]:0", "127.0.0.1:0"]}])
def test_free_port_is_free_for_udp_too(
    settings: dict[str, Any], stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs have the UDP ports of the first two."""
    bind, others = sockets._bind_tcp, list[socket.socket]()

    def bind_beside_others(sock: socket.socket, address: Any) -> None:
        bind(sock, address)
        if len(others) < 2:
            others.append(stack.enter_context(socket.socket(sock.family, socket.SOCK_DGRAM)))
            others[-1].bind(sock.getsockname())

    monkeypatch.setattr(sockets, "_bind_tcp", bind_beside_others)
    config = Config("app:app", log_config=None, http3=True, ssl_certfile="unread", **settings)
    bound = config.bind_sockets()
    for sock in bound:
        stack.enter_context(sock)
    slots = config.open_udp_slots(bound, 1)
    stack.callback(slots.close)
    assert len(others) == 2
    assert [place.address for place in slots.places] == [sock.getsockname() for sock in bound]


def test_unix_sockets_alone_are_an_error(stack: contextlib.ExitStack) -> None:
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    with pytest.raises(OSError, match="needs an IP address"):
        UDPSlots.open([listener], 4)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_all_interfaces_are_as_those_of_tcp(host: str, stack: contextlib.ExitStack) -> None:
    """A socket for both families has one for both beside it, and one for IPv6 alone leaves IPv4 to another."""
    family = socket.AF_INET6 if host == "::" else socket.AF_INET
    both = host == "::"
    listener = stack.enter_context(socket.create_server((host, 0), family=family, dualstack_ipv6=both))
    slots = UDPSlots.open([listener], 4)
    stack.callback(slots.close)
    (slot,) = slots.take()
    stack.callback(slot.close)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(NEW[0], ("127.0.0.1", listener.getsockname()[1]))
    assert slot.sockets[0].recv(2048) == NEW[0]


# One slot


def test_one_process_at_a_time_has_the_slot_where_datagrams_cannot_be_steered(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(sock: socket.socket, code: bytes) -> None:
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    monkeypatch.setattr(udp_slots, "attach", refuse)
    caplog.set_level("INFO")
    workers = Workers(stack)
    assert not workers.slots.is_steered
    workers.slots.log(4)
    assert "Only one of 4 event loops serves HTTP/3" in caplog.text
    assert "because datagrams cannot be steered: Protocol not available." in caplog.text
    slot, other = workers.take(), workers.take()
    with holding(slot.locks, 0):
        assert not other.locks.lock(0)
    wait_for(lambda: other.locks.lock(0))
    workers.send(*NEW)
    assert sorted(received(other)) == sorted(NEW)


@contextlib.contextmanager
def holding(locks: udp_slots.SlotLocks, *numbers: int) -> Iterator[None]:
    """Have another process lock these slots."""
    program = (
        "import fcntl, sys; [fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX, 1, int(n)) for n in sys.argv[2:]]; "
        "print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-S", "-c", program, str(locks.descriptor), *map(str, numbers)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[locks.descriptor]
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


# Upgrades


class Upgrade:
    """The successor of a server, in the same process: it has duplicates of all descriptors, as a child would."""

    def __init__(self, old: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
        self.old = old
        self.before = handover.current
        self.handed = old.slots.hand_over()
        handed = handover.HandedSlots(
            [[os.dup(number) for number in group] for group in self.handed.descriptors],
            self.handed.free,
            os.dup(self.handed.locks),
            self.handed.secret,
        )
        self.control, theirs = map(old.stack.enter_context, socket.socketpair())
        self.control.sendall(Description(slots=[handed]).encode())
        monkeypatch.setenv(VARIABLE, f"{os.getppid()}:{theirs.detach()}")
        handover.begin()
        self.after = handover.current
        old.stack.callback(self.after.forget)
        self.slots = UDPSlots.open(old.tcp, 4)
        old.stack.callback(self.slots.close)
        self.after.drop_rest()

    def hand_over(self) -> None:
        """Put the successor in charge."""
        self.before.hand_over([])
        self.control.sendall(GO)
        assert self.after.hear()


def test_successor_has_other_slots_and_steers_once_it_is_in_charge(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Workers(stack, 6)
    first, second = old.take(ACCEPT), old.take(ACCEPT)
    upgrade = Upgrade(old, monkeypatch)
    (mine,) = upgrade.slots.take()
    stack.callback(mine.close)
    assert mine.number not in (first.number, second.number)
    assert mine.secret == first.secret
    with holding(first.locks, first.number):  # the second worker has ended meanwhile
        upgrade.slots.serve(mine)
        old.send(*NEW)
        assert sorted(received(first) + received(second)) == sorted(NEW)
        assert received(mine) == []
        upgrade.after.report()
        old.send(*NEW, short(own_id(first.number)))
        assert (received(first), received(mine)) == ([short(own_id(first.number))], NEW)
        monkeypatch.setattr(handover, "current", upgrade.before)
        old.enter(second, DRAIN)  # the predecessor does not know yet
        monkeypatch.setattr(handover, "current", upgrade.after)
        upgrade.hand_over()
        upgrade.slots.look()
        old.send(*NEW, short(own_id(first.number)), short(own_id(second.number)))
        assert received(first) == [short(own_id(first.number))]
        assert sorted(received(mine)) == sorted([*NEW, short(own_id(second.number))])
        handover.current = upgrade.before
        old.enter(first, DRAIN)  # the predecessor steers no longer
        handover.current = upgrade.after
        old.send(*NEW)
        assert len(received(mine)) == len(NEW)
    wait_for(lambda: not upgrade.slots._foreign)  # a thread looks
    old.send(short(own_id(first.number)))
    assert received(mine) == [short(own_id(first.number))]


def test_slots_are_back_when_the_successor_has_failed(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Workers(stack, 4)
    first = old.take(ACCEPT)
    before = handover.current
    upgrade = Upgrade(old, monkeypatch)
    (theirs,) = upgrade.slots.take()
    theirs.close()
    monkeypatch.setattr(handover, "current", before)
    numbers = [old.take(ACCEPT).number]  # a worker is replaced meanwhile
    assert theirs.number not in numbers
    monkeypatch.setattr(handover, "current", upgrade.after)
    upgrade.slots.serve(theirs)
    upgrade.after.report()
    upgrade.after.forget()
    upgrade.slots.close()
    monkeypatch.setattr(handover, "current", before)
    old.slots.take_back()
    numbers += [old.take(ACCEPT).number for _ in range(3)]
    assert sorted([first.number, *numbers]) == [0, 1, 2, 3, 4]
    old.send(*NEW)
    assert sorted(itertools.chain(*map(received, old.taken))) == sorted(NEW)


BROKEN: dict[str, Callable[[dict[str, object]], object]] = {
    "no secret": lambda members: members.pop("secret"),
    "short secret": lambda members: members.update(secret="00"),
    "no number": lambda members: members.update(locks="1"),
    "unequal groups": lambda members: members.update(descriptors=[[3, 4], [5]]),
    "no groups": lambda members: members.update(descriptors=[]),
    "a slot too many": lambda members: members.update(free=[2]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_invalid_description_is_one_error(name: str) -> None:
    members: dict[str, object] = {"descriptors": [[3, 4]], "free": [1], "locks": 5, "secret": "00" * 32}
    handover.HandedSlots.parse(dict(members))
    BROKEN[name](members)
    with pytest.raises((ValueError, TypeError, KeyError)):
        handover.HandedSlots.parse(members)


def test_descriptor_of_another_kind_is_one_error(stack: contextlib.ExitStack) -> None:
    tcp = socket.create_server(("127.0.0.1", 0))
    handed = handover.HandedSlots([[tcp.detach()]], [], os.dup(0), "00" * 32)
    with pytest.raises(DescriptionError, match="no UDP socket"):
        TakenSlots.of(handed)


# Sockets of a service manager


def test_passed_socket_is_the_first_of_its_group(stack: contextlib.ExitStack) -> None:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    passed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    passed.setblocking(False)
    passed.bind(listener.getsockname())
    slots = UDPSlots.open([listener], 4, [passed])
    stack.callback(slots.close)
    assert (slots.count, slots.places) == (4, [udp_slots.Place.of(passed)])


@pytest.mark.parametrize("places", [["systemd"], ["fd:{tcp}", "fd:{udp}"]], ids=["systemd", "descriptors"])
def test_sockets_of_a_service_manager_are_told_apart(
    places: list[str], stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    udp.bind(tcp.getsockname())
    monkeypatch.setattr(systemd, "passed_descriptors", lambda name: [tcp.fileno(), udp.fileno()])
    bind = [place.format(tcp=tcp.fileno(), udp=udp.fileno()) for place in places]
    config = Config("app:app", bind=bind, log_config=None, http3=True, ssl_certfile="unread")
    bound = config.bind_sockets()
    stack.enter_context(bound[0])
    assert [sock.getsockname() for sock in bound] == [tcp.getsockname()]
    slots = config.open_udp_slots(bound, 2)
    stack.callback(slots.close)
    (slot,) = slots.take()
    stack.callback(slot.close)
    assert slots.count == 6
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(NEW[0], tcp.getsockname())
    assert udp.recv(2048) == NEW[0]  # the same socket
    with pytest.raises(SystemExit):
        Config("app:app", bind=bind, log_config=None).bind_sockets()


@pytest.mark.skipif(os.geteuid() != 0, reason="other users' sockets need root")
def test_socket_of_another_user_is_the_only_one(stack: contextlib.ExitStack, caplog: pytest.LogCaptureFixture) -> None:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    os.seteuid(65534)
    try:
        passed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        passed.bind(listener.getsockname())
    finally:
        os.seteuid(0)
    slots = UDPSlots.open([listener], 6, [passed])
    stack.callback(slots.close)
    assert (slots.count, slots.is_steered) == (1, False)
    slots.log(2)
    assert "Only one of 2 event loops serves HTTP/3" in caplog.text


# Errors


def test_kernel_that_fails_later_keeps_the_program_before(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(sock: socket.socket, code: bytes) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    workers = Workers(stack)
    first, second = workers.take(ACCEPT), workers.take()
    with monkeypatch.context() as context:
        context.setattr(udp_slots, "attach", fail)
        workers.enter(second, ACCEPT)
        workers.enter(first, DRAIN)
    assert [record.levelname for record in caplog.records].count("WARNING") == 1, "said once"
    assert "Cannot steer UDP datagrams: [Errno 12]" in caplog.text
    workers.send(*NEW)
    assert len(received(first)) == len(NEW)
    workers.enter(first, DRAIN)
    workers.send(*NEW)
    assert len(received(second)) == len(NEW)


def test_successor_adds_an_address_and_drops_another(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slots have the same numbers at all addresses, and there are as many as the predecessor has."""
    old = Workers(stack, 5)
    kept, dropped = old.tcp
    added = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    monkeypatch.setattr(old, "tcp", [kept, added])
    upgrade = Upgrade(old, monkeypatch)
    assert upgrade.slots.count == 5
    assert [place.address for place in upgrade.slots.places] == [kept.getsockname(), added.getsockname()]
    taken = old.slots.places
    assert dropped.getsockname() in [place.address for place in taken], "the predecessor serves it until it ends"


def test_address_that_cannot_be_added_fails_the_upgrade(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Workers(stack, 4)
    added = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    monkeypatch.setattr(old, "tcp", [*old.tcp, added])
    bind = udp_slots.Place.bind

    def fail(place: udp_slots.Place, *, joins: bool) -> socket.socket:
        if joins:
            raise OSError(errno.EMFILE, "Too many open files")
        return bind(place, joins=joins)

    monkeypatch.setattr(udp_slots.Place, "bind", fail)
    with pytest.raises(OSError, match="cannot add UDP addresses to those of the predecessor: Too many open files"):
        Upgrade(old, monkeypatch)
