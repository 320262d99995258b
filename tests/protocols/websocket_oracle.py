"""Random streams of frames, and what the sans-IO core of `websockets` makes of them: an oracle for sessions of ours.

    python -m tests.protocols.websocket_oracle --seconds 600 native

compares for so long, with the implementations that are named (default: all), and prints the seed of what differs.
"""

from __future__ import annotations

import argparse
import asyncio
import codecs
import importlib
import logging
import random
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

from tests.protocols.websocket_tools import (
    BINARY,
    CLOSE,
    DEFLATE,
    PING,
    PONG,
    RSV1,
    TEXT,
    Application,
    close_frame,
    connected,
    frame,
)
from tests.websockets import WS_PROTOCOLS

MAX_SIZE = 20_000


@dataclass
class Case:
    """What a client sends, in one piece for each read, and whether compression is agreed on."""

    reads: list[bytes]
    deflate: bool


@dataclass
class Outcome:
    """What came of it; the code is that of the close frame that is sent, if one is."""

    messages: list[str | bytes]
    pongs: list[bytes]
    code: int | None


class Client:
    """Makes frames, good ones and bad ones."""

    def __init__(self, rng: random.Random, deflate: bool) -> None:
        self.rng = rng
        self.deflate = deflate
        self.compressor = zlib.compressobj(rng.randrange(10), wbits=-rng.randrange(9, 13))

    def payload(self, text: bool) -> bytes:
        size = self.rng.choice((0, 1, 4, 31, 32, 125, 126, 127, 1000, 4096, 5000, 16384, 19_999, 20_000))
        if not text:
            return self.rng.randbytes(size)
        return "".join(self.rng.choice("ab é€😀") for _ in range(size // 4)).encode()

    def compressed(self, payload: bytes) -> bytes:
        return (self.compressor.compress(payload) + self.compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]

    def message(self) -> bytes:
        text = self.rng.random() < 0.5
        payload, first = self.payload(text), 1 if text else 2
        if self.deflate and self.rng.random() < 0.7:
            before = self.compressor.copy()
            deflated = self.compressed(payload)
            # To the library the limit is also one of what is on the wire, to us it is of the message.
            if len(deflated) <= MAX_SIZE:
                payload, first = deflated, first | RSV1
            else:
                self.compressor = before
        return b"".join(self.fragments(first, payload))

    def fragments(self, first: int, payload: bytes) -> Iterator[bytes]:
        """The frames of one message, and control frames between them."""
        cuts = sorted(self.rng.randrange(len(payload) + 1) for _ in range(self.rng.choice((0, 0, 0, 1, 2, 7))))
        starts, ends = [0, *cuts], [*cuts, len(payload)]
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            fin = 0x80 if index == len(cuts) else 0
            yield frame((0 if index else first) | fin, payload[start:end], self.rng.randbytes(4))
            if not fin and self.rng.random() < 0.3:
                yield self.control()

    def control(self) -> bytes:
        return frame(self.rng.choice((PING, PONG)), self.rng.randbytes(self.rng.randrange(126)), self.rng.randbytes(4))

    def close(self) -> bytes:
        codes = (1000, 1001, 1003, 1007, 1011, 1014, 3000, 4999)
        return self.rng.choice(
            (frame(CLOSE), close_frame(self.rng.choice(codes), self.rng.choice(("", "é", "x" * 121))))
        )

    def mistake(self) -> bytes:
        """Of those about which there is no difference of opinion."""
        mistakes = [
            *(frame(first, b"x") for first in (0x80, 0x00, 0x83, 0x87, 0x8B, 0x8F, 0x91, 0xA2, 0xC9, 0xC8, 0x09)),
            frame(0x01, b"a") + frame(TEXT, b"b"),
            frame(0x02, b"a") + self.control() + frame(BINARY | (RSV1 if self.deflate else 0), b"b"),
            *(frame(TEXT, bad) for bad in (b"\xff", b"a\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")),
            frame(0x01, b"\xe2\x82") + frame(0x80, b"("),
            frame(0x01, b"\xe2\x82") + self.control() + frame(0x80),
            frame(TEXT, b"x", mask=None),
            frame(PING, bytes(126)),
            frame(BINARY, bytes(MAX_SIZE + 1)),
            frame(0x02, bytes(MAX_SIZE)) + frame(0x00, b"x") + frame(0x80),
            frame(CLOSE, b"\x03"),
            *(close_frame(code) for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000)),
            frame(CLOSE, b"\x03\xe8\xff"),
        ]
        if self.deflate:
            mistakes += [
                frame(BINARY | RSV1, b"\x07\xff\xff"),
                frame(0x42, b"\x07") + frame(0x80, b"\xff"),
                frame(0x02, b"plain") + frame(0x80 | RSV1, b"x"),
                frame(BINARY | RSV1, self.compressed(bytes(MAX_SIZE + 1))),
                b"".join(self.fragments(0x42, self.compressed(bytes(100 * MAX_SIZE)))),
                frame(TEXT | RSV1, self.compressed(b"\xc3(")),
            ]
        else:
            mistakes += [frame(TEXT | RSV1, b"x"), frame(0x42, b"x")]
        return self.rng.choice(mistakes)


def make_case(seed: int) -> Case:
    """A stream that is valid up to a point, and behind it anything."""
    rng = random.Random(seed)
    deflate = rng.random() < 0.5
    client = Client(rng, deflate)
    pieces = [rng.choice((client.message, client.message, client.control))() for _ in range(rng.randrange(9))]
    pieces += [rng.choice((client.mistake, client.close, bytes))()]
    pieces += [rng.choice((client.message, client.control, client.close))() for _ in range(rng.randrange(3))]
    data = b"".join(pieces)
    cuts = sorted({rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 5, 40)))})
    if rng.random() < 0.1:
        cuts = list(range(1, min(len(data), 3000)))
    starts, ends = [0, *cuts], [*cuts, len(data)]
    return Case([data[start:end] for start, end in zip(starts, ends, strict=True) if start < end], deflate)


def protocol(side: Side, deflate: bool) -> Protocol:
    """The library's core, open, with the windows that sessions agree on."""
    core = Protocol(side, max_size=MAX_SIZE if side is Side.SERVER else None)
    if deflate:
        core.extensions = [PerMessageDeflate(False, False, 12, 12)]
    return core


def expected(case: Case) -> Outcome:
    """What the library makes of it. That texts are UTF-8 is left to its callers: looked at here, as they come."""
    core = protocol(Side.SERVER, case.deflate)
    found = Outcome([], [], None)
    decoder: codecs.IncrementalDecoder | None = None
    parts: list[Any] = []
    for event in received(core, b"".join(case.reads)):
        if event.opcode is Opcode.PING:
            found.pongs.append(bytes(event.data))
        if event.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            continue
        if event.opcode is not Opcode.CONT:
            decoder = codecs.getincrementaldecoder("utf-8")() if event.opcode is Opcode.TEXT else None
            parts = []
        try:
            parts.append(decoder.decode(event.data, event.fin) if decoder else bytes(event.data))
        except UnicodeDecodeError:
            found.code = 1007
            return found
        if event.fin:
            found.messages.append("".join(parts) if decoder else b"".join(parts))
    if core.close_sent is not None:
        found.code = core.close_sent.code
    return found


def received(core: Protocol, data: bytes) -> Iterator[Frame]:
    """The frames of a stream, up to what is wrong in it."""
    core.receive_data(data)
    for event in core.events_received():
        assert isinstance(event, Frame)
        yield event
    expected_ends = (ProtocolError, PayloadTooBig, UnicodeDecodeError, EOFError)
    assert core.parser_exc is None or isinstance(core.parser_exc, expected_ends), core.parser_exc


def messages_sent(written: bytes, deflate: bool) -> tuple[Outcome, list[str | bytes]]:
    """What a client with the library reads from the bytes that a session has sent: pongs, code, and messages."""
    core = protocol(Side.CLIENT, deflate)
    core.receive_data(written)
    assert core.parser_exc is None or isinstance(core.parser_exc, EOFError), core.parser_exc
    pongs, messages = [], list[str | bytes]()
    for event in core.events_received():
        assert isinstance(event, Frame) and event.fin
        if event.opcode is Opcode.PONG:
            pongs.append(bytes(event.data))
        elif event.opcode is not Opcode.CLOSE:
            data = bytes(event.data)
            messages.append(data.decode() if event.opcode is Opcode.TEXT else data)
    return Outcome([], pongs, core.close_rcvd.code if core.close_rcvd else None), messages


async def found(case: Case, protocol_cls: Any) -> tuple[Outcome, list[str | bytes]]:
    """What a session makes of it whose application echoes, and the echoes."""
    app = Application()
    async with connected(protocol_cls, app, ws_max_size=MAX_SIZE) as peer:
        await peer.open(*([DEFLATE] if case.deflate else []))
        for number, data in enumerate(case.reads):
            peer.send(data)
            if number % 3 == 0:
                await peer.turn()
        for _ in range(3):
            await peer.turn()
        outcome, echoes = messages_sent(peer.body, case.deflate)
        outcome.messages = app.messages
    return outcome, echoes


def compare(seed: int, names: list[str], classes: list[Any]) -> str | None:
    """How a session differs from the library; `None` if none does."""
    case = make_case(seed)
    wanted = expected(case)
    for name, protocol_cls in zip(names, classes, strict=True):
        outcome, echoes = asyncio.run(found(case, protocol_cls))
        if outcome != wanted:
            return f"seed {seed}, {name}: {shown(outcome)}, and not {shown(wanted)}"
        if echoes != wanted.messages:
            return f"seed {seed}, {name}: what it has sent is not what it got"
    return None


def shown(outcome: Outcome) -> str:
    lengths = [f"{message[:8]!r}({len(message)})" for message in outcome.messages]
    return f"messages {', '.join(lengths) or 'none'}; {len(outcome.pongs)} pongs; code {outcome.code}"


def load(name: str) -> Any:
    module, _, attribute = WS_PROTOCOLS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WS_PROTOCOLS)}")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, help="this case only")
    asked = parser.parse_args()
    logging.disable()
    names = asked.names or list(WS_PROTOCOLS)
    classes = [load(name) for name in names]
    if asked.seed is not None:
        print(difference := compare(asked.seed, names, classes))
        return difference is not None
    end, seed, differences = time.monotonic() + asked.seconds, random.randrange(2**32), 0
    first = seed
    while time.monotonic() < end:
        if difference := compare(seed, names, classes):
            differences += 1
            print(difference, flush=True)
        seed += 1
    print(f"{seed - first} streams, {differences} differences")
    return differences > 0


if __name__ == "__main__":
    sys.exit(main())
