"""A link between two addresses of one network namespace that delays, loses, repeats, reorders and damages packets.

    client 10.9.0.1 ──▶ 10.9.0.2 ┐           ┌ 10.8.0.3 ──▶ 10.9.0.1 server
                                 └──▶ Link ──┘
    client 10.9.0.1 ◀── 10.9.0.2 ┐           ┌ 10.8.0.3 ◀── 10.9.0.1 server
                                 └◀── Link ◀─┘

All packets pass a TUN device, so TCP and UDP have the same link, without netem. The addresses are chosen so that a
packet has the same checksum on both sides. The namespace is one of `unshare --net --map-root-user`,
which needs no privilege.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

SERVER = "10.9.0.1"
"""The address of the server, and of clients before their packets pass the link."""
ADDRESS = "10.9.0.2"
"""Where clients find the server."""

_SET_NAME = 0x400454CA  # TUNSETIFF
_TUN, _NO_HEADER = 0x0001, 0x1000
_OWN, _TO_SERVER = bytes([10, 9, 0, 1]), bytes([10, 9, 0, 2])
_UDP = 17


@dataclass
class Conditions:
    """How the link treats packets; it can change at any time.

    Attributes:
        loss: probability that a packet is lost.
        delay: seconds in each direction.
        reordering: probability that a packet is late, by 5 ms.
        duplication: probability that a packet arrives twice.
        damage: probability that a bit of it is another one.
        rate: bytes per second in each direction; 0 for no limit. Up to 64 KiB wait.
        is_down: nothing arrives.
        address: number of the client's address, as the server sees it.
        port: added to its port; of UDP alone.
    """

    loss: float = 0
    delay: float = 0
    reordering: float = 0
    duplication: float = 0
    damage: float = 0
    rate: float = 0
    is_down: bool = False
    address: int = 0
    port: int = 0


class Link:
    """Carries packets from `start` to `stop`, in a thread."""

    def __init__(self, seed: int) -> None:
        self.conditions = Conditions()
        self._random = random.Random(seed)
        self._device = -1
        self._waiting: list[tuple[float, int, bytes]] = []
        self._count = 0
        self._free = [0.0, 0.0]
        self._ports: dict[int, int] = {}
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Make the device, and carry packets."""
        self._device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self._device, _SET_NAME, struct.pack("16sH22x", b"slow0", _TUN | _NO_HEADER))
        for command in (
            "link set lo up",
            "addr add 10.9.0.1/24 dev slow0",
            "link set dev slow0 up txqueuelen 10000",
            "route add 10.0.0.0/8 dev slow0",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        for name in ("all", "slow0"):
            Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text("0")
        self._thread.start()

    def stop(self) -> None:
        """Carry no more."""
        os.close(self._stopped)
        self._thread.join()
        os.close(self._stop)
        os.close(self._device)

    def _run(self) -> None:
        while True:
            timeout = max(0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            ready, _, _ = select.select([self._device, self._stop], [], [], timeout)
            if self._stop in ready:
                return
            if ready:
                self._read()
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                try:
                    os.write(self._device, heapq.heappop(self._waiting)[2])
                except OSError:
                    pass  # the kernel has no room: one more that is lost

    def _read(self) -> None:
        for _ in range(64):
            try:
                packet = os.read(self._device, 65536)
            except BlockingIOError:
                return
            if packet[0] >> 4 == 4:
                self._take(packet)

    def _take(self, packet: bytes) -> None:
        conditions, chance, now = self.conditions, self._random.random, time.monotonic()
        is_up = packet[16:20] == _TO_SERVER
        if conditions.is_down or chance() < conditions.loss:
            return
        if is_up:
            number = conditions.address
            packet = packet[:12] + bytes([10, 8 - number, 0, 3 + number]) + _OWN + packet[20:]
        else:
            packet = packet[:12] + _TO_SERVER + _OWN + packet[20:]
        if packet[9] == _UDP:
            packet = self._move(packet, is_up)
        if packet[9] == _UDP and chance() < conditions.damage:
            place = self._random.randrange(28, len(packet))
            packet = packet[:place] + bytes([packet[place] ^ 1 << self._random.randrange(8)]) + packet[place + 1 :]
            packet = packet[:26] + bytes(2) + packet[28:]  # without a checksum, so that it arrives
        due = now + conditions.delay
        if conditions.rate:
            begin = max(now, self._free[is_up])
            if (begin - now) * conditions.rate > 65536:
                return
            self._free[is_up] = begin + len(packet) / conditions.rate
            due += self._free[is_up] - now
        if chance() < conditions.reordering:
            due += 0.005
        for _ in range(2 if chance() < conditions.duplication else 1):
            self._count += 1
            heapq.heappush(self._waiting, (due, self._count, packet))

    def _move(self, packet: bytes, is_up: bool) -> bytes:
        """Change the client's port. Packets to its earlier ports still arrive."""
        place = 20 if is_up else 22
        port = int.from_bytes(packet[place : place + 2], "big")
        if is_up:
            new = port + self.conditions.port
            self._ports[new] = port
        else:
            new = self._ports.get(port, port)
        return packet if new == port else _with_port(packet, place, new)


def _with_port(packet: bytes, place: int, port: int) -> bytes:
    """The packet with another port, and its checksum (RFC 1624)."""
    old = int.from_bytes(packet[place : place + 2], "big")
    checksum = (~int.from_bytes(packet[26:28], "big") & 0xFFFF) + (~old & 0xFFFF) + port
    checksum = (checksum & 0xFFFF) + (checksum >> 16)
    checksum = ~((checksum & 0xFFFF) + (checksum >> 16)) & 0xFFFF
    packet = packet[:place] + port.to_bytes(2, "big") + packet[place + 2 :]
    return packet[:26] + (checksum or 0xFFFF).to_bytes(2, "big") + packet[28:]
