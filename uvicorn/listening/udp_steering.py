"""Steer QUIC datagrams to workers: a classic BPF program for the sockets of a SO_REUSEPORT group.

The kernel runs the program for each datagram and delivers it to the socket whose number in the group it returns. These
numbers are the workers' slots. Connection ids that a worker issues have 12 bytes: its slot, that number XOR 0x9d, the
generation of the worker in that slot, and nine random bytes.

    datagram ─┬─ with a connection id of a slot in `holders` ───────▶ that slot
              └─ otherwise, by a hash of its connection id ─────────▶ one of `targets`

So a connection keeps its worker, whatever address its packets come from. Packets for a worker that has ended reach
another one, which answers with a stateless reset (RFC 9000 section 10.3). The program needs no privilege.
"""

from __future__ import annotations

import array
import socket
import struct
from collections.abc import Collection, Sequence
from typing import NamedTuple

ID_LENGTH = 12
"""Bytes of a connection id that a worker issues."""

MARK = 0x9D
"""The second byte of such an id is its first byte, the slot, XOR this."""

MOST_SLOTS = 256
"""Slots that a byte can name."""

SHORTEST = 1 + ID_LENGTH
"""Bytes of a datagram below which its connection id is not read; no valid one is that short."""

LONGEST_LONG = 6 + ID_LENGTH
"""Bytes of a long header up to the end of such an id: flags, version, length of the id, the id."""

FACTOR = 0x9E3779B1
"""Multiplier of the hash (Fibonacci hashing): some clients choose ids that differ in few bits."""

SO_ATTACH_REUSEPORT_CBPF, SO_REUSEPORT = 51, 15
"""From `asm-generic/socket.h`; Python has no name for the first, and none for the second on Windows."""

_INSTRUCTION = struct.Struct("=HBBI")

# Of classic BPF, from `linux/bpf_common.h`: class, size, mode, operation and operand in one number.
_LD_LENGTH, _LD_WORD, _LD_BYTE, _LD_NUMBER, _LD_SCRATCH = 0x80, 0x20, 0x30, 0x00, 0x60
_ST, _TAX, _RETURN, _RETURN_A = 0x02, 0x07, 0x06, 0x16
_MULTIPLY, _MODULO, _AND, _XOR, _SHIFT, _SHIFT_X = 0x24, 0x94, 0x54, 0xA4, 0x74, 0x7C
_JUMP, _IF_EQUAL, _IF_EQUAL_X, _IF_AT_LEAST, _IF_BIT = 0x05, 0x15, 0x1D, 0x35, 0x45

_SLOT, _HASHED = 0, 1  # cells of the scratch memory

SKIP = "skip"
"""The label of the next instruction but one."""


class _Line(NamedTuple):
    """An instruction; conditional ones go on at a label, or with the next one without a label."""

    code: int
    operand: int = 0
    then: str = ""
    otherwise: str = ""
    label: str = ""


def program(holders: Collection[int], targets: Sequence[int]) -> bytes:
    """Return the program: an array of `struct sock_filter`.

    Args:
        holders: slots whose workers serve connections; their packets reach them.
        targets: slots that share all other packets; at least one.
    """
    lines = [
        _Line(_LD_LENGTH),
        _Line(_IF_AT_LEAST, SHORTEST, "", "spread"),
        _Line(_LD_BYTE, 0),
        _Line(_IF_BIT, 0x80, "long", "short"),
        # The hash is of bytes that are random in our ids and, in those of clients, within the least length of 8.
        _Line(_LD_WORD, 9, label="long"),
        _Line(_ST, _HASHED),
        _Line(_LD_BYTE, 5),
        _Line(_IF_EQUAL, ID_LENGTH, "", "hash"),
        _Line(_LD_LENGTH),
        _Line(_IF_AT_LEAST, LONGEST_LONG, "", "hash"),
        _Line(_LD_BYTE, 6),
        _Line(_ST, _SLOT),
        _Line(_LD_BYTE, 7),
        _Line(_JUMP, then="mark"),
        _Line(_LD_WORD, 4, label="short"),
        _Line(_ST, _HASHED),
        _Line(_LD_BYTE, 1),
        _Line(_ST, _SLOT),
        _Line(_LD_BYTE, 2),
        _Line(_TAX, label="mark"),
        _Line(_LD_SCRATCH, _SLOT),
        _Line(_XOR, MARK),
        _Line(_IF_EQUAL_X, 0, "", "hash"),
        *_choose_holder(holders),
        _Line(_LD_SCRATCH, _HASHED, label="hash"),
        _Line(_MULTIPLY, FACTOR),
        _Line(_SHIFT, 16),
        _Line(_MODULO, len(targets), label="spread"),
    ]
    for number, slot in enumerate(targets[:-1]):
        lines += [_Line(_IF_EQUAL, number, "", SKIP), _Line(_RETURN, slot)]
    lines.append(_Line(_RETURN, targets[-1]))
    return _assembled(lines)


def _choose_holder(holders: Collection[int]) -> list[_Line]:
    """Return the slot in the scratch memory if it is one of them, else go on after this."""
    masks: dict[int, int] = {}
    for slot in holders:
        masks[slot >> 5] = masks.get(slot >> 5, 0) | 1 << (slot & 31)
    lines = [
        _Line(_LD_SCRATCH, _SLOT),
        _Line(_AND, 31),
        _Line(_TAX),
        _Line(_LD_SCRATCH, _SLOT),
        _Line(_SHIFT, 5),
    ]
    lines += [_Line(_IF_EQUAL, word, f"word {word}") for word in masks]
    lines.append(_Line(_JUMP, then="hash"))
    for word, mask in masks.items():
        lines += [_Line(_LD_NUMBER, mask, label=f"word {word}"), _Line(_JUMP, then="bit")]
    lines += [
        _Line(_SHIFT_X, label="bit"),
        _Line(_IF_BIT, 1, "", "hash"),
        _Line(_LD_SCRATCH, _SLOT),
        _Line(_RETURN_A),
    ]
    return lines if masks else []


def _assembled(lines: Sequence[_Line]) -> bytes:
    places = {line.label: number for number, line in enumerate(lines)}
    assembled = b""
    for number, line in enumerate(lines):
        places.update({"": number + 1, SKIP: number + 2})
        then, otherwise = (places[label] - number - 1 for label in (line.then, line.otherwise))
        if line.code == _JUMP:
            assembled += _INSTRUCTION.pack(line.code, 0, 0, then)
        else:
            assembled += _INSTRUCTION.pack(line.code, then, otherwise, line.operand)
    return assembled


def attach(sock: socket.socket, code: bytes) -> None:
    """Attach the program to the group of `sock`, in place of the one before it.

    Raises:
        OSError: the system cannot do that.
    """
    # The kernel copies the instructions during the call.
    instructions = array.array("B", code)
    address, length = instructions.buffer_info()
    sock.setsockopt(
        socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, struct.pack("@HP", length // _INSTRUCTION.size, address)
    )
