"""The WebSocket load against a server whose behaviour is known: what it counts, and what it must not let pass."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import environment, runner
from bench.errors import LoadError
from bench.load import generators
from bench.load.base import Aim, verdict
from bench.load.websocket import BINARY, COMPRESSED, TEXT, check_compressed, document, frame
from bench.model import Burst, Load
from tests.bench import fake_websocket
from tests.bench.fake_websocket import Answer, compressing, fragments, plain, running

CORES = environment.Cores((), ())
MISSING = generators.find("websocket").missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
DEFLATE = "permessage-deflate"


def _load(*, sockets: int = 2, in_flight: int = 1, seconds: float = 0.05) -> Load:
    return Load("websocket", sockets, 1, seconds, None, in_flight)


def _drive(port: int, directory: Path, load: Load, body: bytes = b"hello", **options: str) -> Burst:
    generator = generators.find("websocket")
    argv = generator.command(Aim(port, directory, body=body, options=options), load)
    output, _ = runner.run_generator(generator, argv, CORES, 20)
    return generator.parse(output, load)


@pytest.mark.parametrize(
    ("size", "kind"),
    [(0, "text"), (125, "binary"), (126, "text"), (65535, "text"), (65536, "binary"), (300_000, "text")],
)
def test_messages_of_every_length_come_back(tmp_path: Path, size: int, kind: str) -> None:
    with running(lambda: plain) as port:
        burst = _drive(port, tmp_path, _load(), document(size), kind=kind)
    assert not burst.errors
    assert burst.requests >= 2
    assert burst.received >= burst.requests * size


@pytest.mark.parametrize("pattern", ["echo", "open"])
def test_a_known_delay_is_found(tmp_path: Path, pattern: str) -> None:
    """Of three messages in a row, answered 10 ms apart, each counts from the moment it was sent."""
    load = _load(sockets=1, in_flight=3)
    with running(lambda: plain, delay=0.01) as port:
        burst = _drive(port, tmp_path, load, pattern=pattern)
    assert verdict(burst, load) is None
    assert burst.latency is not None
    assert burst.latency.max < 10
    if pattern == "echo":
        assert burst.latency.p50 >= 0.0199
        assert burst.requests <= burst.seconds / 0.01 + 1


def test_sockets_are_opened_and_closed_again_and_again(tmp_path: Path) -> None:
    opened: list[Answer] = []

    def make() -> Answer:
        opened.append(plain)
        return plain

    with running(make) as port:
        burst = _drive(port, tmp_path, _load(), pattern="open")
    assert not burst.errors
    assert burst.requests == len(opened) > 2


def test_fragments_and_control_frames_between_them_are_understood(tmp_path: Path) -> None:
    with running(lambda: fragments) as port:
        burst = _drive(port, tmp_path, _load(in_flight=4), document(5000))
    assert not burst.errors
    assert burst.requests >= 8


def test_compressed_answers_are_read(tmp_path: Path) -> None:
    with running(compressing, extension=DEFLATE) as port:
        burst = _drive(port, tmp_path, _load(in_flight=2), document(64), deflate="yes")
    assert not burst.errors
    assert burst.requests >= 4


def _wrong_compressed() -> Answer:
    compressor = zlib.compressobj(wbits=-15)

    def answer(first: int, payload: bytes) -> bytes:
        return plain(first, (compressor.compress(b"another") + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4])

    return answer


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(_wrong_compressed, "differ from the message sent", id="another message"),
        pytest.param(lambda: lambda first, payload: plain(first, b"\xff" * 20), "cannot be read", id="no DEFLATE"),
    ],
)
def test_compressed_answers_that_are_wrong_are_noticed(tmp_path: Path, make: Callable[[], Answer], words: str) -> None:
    with running(make, extension=DEFLATE) as port, pytest.raises(LoadError, match=words):
        _drive(port, tmp_path, _load(), document(64), deflate="yes")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(lambda first, payload: plain(first, payload[:-1] + b"x"), "content", id="content"),
        pytest.param(lambda first, payload: plain(first, payload[:-1]), "length", id="short"),
        pytest.param(lambda first, payload: plain(first, payload + b"x"), "length", id="long"),
        pytest.param(lambda first, payload: plain(first ^ 3, payload), "protocol", id="another kind"),
        pytest.param(lambda first, payload: plain(first | 0x40, payload), "protocol", id="compressed unasked"),
        pytest.param(lambda first, payload: plain(0x80, payload), "protocol", id="nothing to continue"),
        pytest.param(lambda first, payload: plain(first, payload) * 2, "protocol", id="twice"),
        pytest.param(lambda first, payload: frame(TEXT, payload), "protocol", id="masked"),
        pytest.param(lambda first, payload: plain(0x09, b""), "protocol", id="fragmented ping"),
        pytest.param(lambda first, payload: plain(0x88, b"\x03\xe8"), "closed", id="closed"),
        pytest.param(lambda first, payload: _ended(), "read", id="the end"),
    ],
)
def test_wrong_answers_are_counted_and_void_the_burst(tmp_path: Path, answer: Answer, kind: str) -> None:
    with running(lambda: answer) as port:
        burst = _drive(port, tmp_path, _load())
    assert set(burst.errors) == {kind}
    assert verdict(burst, _load()) is not None


def _ended() -> bytes:
    raise EOFError


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        pytest.param({}, {"accept": b"x" * 28}, "wrong Sec-WebSocket-Accept", id="key"),
        pytest.param({"deflate": "yes"}, {}, "does not compress", id="no compression"),
        pytest.param({}, {"extension": DEFLATE}, "although nobody has asked", id="compression unasked"),
    ],
)
def test_a_handshake_that_is_not_answered_right_ends_it(
    tmp_path: Path, options: dict[str, str], given: dict[str, str], words: str
) -> None:
    with running(lambda: plain, **given) as port, pytest.raises(LoadError, match=words):  # type: ignore[arg-type]
        _drive(port, tmp_path, _load(), **options)


def test_opening_and_closing_are_outside_of_the_marks(tmp_path: Path) -> None:
    seen: list[str] = []
    generator, load = generators.find("websocket"), _load(sockets=3)

    def answer(first: int, payload: bytes) -> bytes:
        seen.append("message")
        return plain(first, payload)

    def make() -> Answer:
        seen.append("open")
        return answer

    with running(make) as port:
        argv = generator.command(Aim(port, tmp_path, body=b"m"), load)
        runner.run_generator(generator, argv, CORES, 20, lambda: seen.append("mark"))
    assert sorted(seen[: seen.index("mark")]) == ["open"] * 3
    assert set(seen[seen.index("mark") + 1 : -1]) == {"message"}
    assert seen[-1] == "mark"


def test_a_frame_is_masked_and_may_be_compressed() -> None:
    data = iter((frame(BINARY | COMPRESSED, b"payload", b"\x01\x02\x03\x04"),))
    left = bytearray(next(data))

    def take(size: int) -> bytes:
        part = bytes(left[:size])
        del left[:size]
        return part

    assert fake_websocket.read(take) == (0xC2, b"payload")
    assert not left


def test_a_sample_of_compressed_messages_is_whole_messages() -> None:
    compressor = zlib.compressobj(wbits=-15)
    sample = compressor.compress(b"one" * 2) + compressor.flush(zlib.Z_SYNC_FLUSH)
    check_compressed(sample, b"one")
    check_compressed(b"", b"one")
    with pytest.raises(LoadError, match="differ from the message sent"):
        check_compressed(sample, b"onetwo!")


@pytest.mark.parametrize("size", [0, 1, 64, 1024, 100_000])
def test_a_document_has_its_length_and_is_text(size: int) -> None:
    assert len(document(size)) == size
    assert document(size).isascii()
