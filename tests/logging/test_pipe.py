"""Log lines that go into a pipe which is not read."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.logging.records import access_log_to, log
from tests.process import ROOT
from tests.utils import is_listening, open_connection, read_to_end, read_until, wait_for
from uvicorn.config import Config
from uvicorn.logging import LOGGING_CONFIG, AccessFormatter, DefaultFormatter, PipeHandler
from uvicorn.logging import pipe as module
from uvicorn.logging.pipe import PipeWriter

if sys.platform == "win32":
    pytest.skip("pipes are not looked at on Windows", allow_module_level=True)

LINE = "x" * 99 + "\n"
REMEDY = "Log less (access_log, log_level)."


class Pipe:
    """A pipe or a pair of sockets, and a text stream that writes to it as `sys.stdout` does."""

    def __init__(self, kind: str) -> None:
        if kind == "socket":
            ends = socket.socketpair()
            self.reader, writer = ends[0].detach(), ends[1].detach()
        else:
            self.reader, writer = os.pipe()
        self.stream = io.TextIOWrapper(io.BufferedWriter(io.FileIO(writer, "w")), encoding="utf-8")
        self.received = b""

    def drain(self) -> bytes:
        """All that is there now."""
        while select.select([self.reader], [], [], 0)[0]:
            data = os.read(self.reader, 65536)
            if not data:
                break
            self.received += data
        return self.received

    def close(self) -> None:
        os.close(self.reader)
        self.stream.close()


@pytest.fixture(params=["pipe", "pipe of others", "socket"])
def pipe(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    if request.param == "pipe of others":
        monkeypatch.setattr(module, "_open_again", lambda descriptor: None)
    elif request.param == "pipe" and sys.platform != "linux":
        pytest.skip("it cannot be opened again")
    pipe = Pipe(request.param)
    yield pipe
    pipe.close()


@pytest.fixture
def writer(pipe: Pipe) -> Iterator[PipeWriter]:
    writer = PipeWriter.of(pipe.stream)
    assert writer is not None
    yield writer
    writer.close()


def fill(write: Callable[[str], bool]) -> int:
    """Write until a line is lost; how many were not."""
    for count in range(100_000):
        if not write(LINE):
            return count
    raise AssertionError("never full")


def test_lines_arrive(writer: PipeWriter, pipe: Pipe) -> None:
    assert writer.write("one\n")
    assert writer.write("two\nthree ä\n")
    assert pipe.drain().decode() == "one\ntwo\nthree ä\n"
    assert writer.lost == 0


def test_full_pipe_loses_whole_lines_and_counts_them(writer: PipeWriter, pipe: Pipe) -> None:
    count = fill(writer.write)
    assert writer.lost == 1
    assert not writer.write(LINE * 3)
    assert writer.lost == 4
    pipe.drain()
    assert writer.write("again\n")
    assert pipe.drain().decode() == LINE * count + "again\n"


def test_line_that_was_taken_in_part_is_completed(writer: PipeWriter, pipe: Pipe) -> None:
    """Whoever reads it must not find two lines in one."""
    long = "y" * 3_000_000 + "\n"
    assert writer.write(long)
    assert not writer.write("lost\n")
    while not writer.write("again\n"):
        pipe.drain()
    lost, writer.lost = writer.lost, 0
    assert lost >= 1
    assert pipe.drain().decode() == long + "again\n"


def test_waiting_ends_when_the_reader_comes(writer: PipeWriter, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is slow, but reads, gets everything."""
    monkeypatch.setattr(module, "PATIENCE", 60.0)
    long = "y" * 1_000_000 + "\n"
    received = bytearray()

    def read() -> None:
        while len(received) < len(long):
            received.extend(os.read(pipe.reader, 65536))

    reader = threading.Thread(target=read)
    reader.start()
    assert writer.write(long)
    reader.join(30)
    assert received.decode() == long
    assert writer.lost == 0


def test_pipe_without_a_reader_raises(writer: PipeWriter, pipe: Pipe) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), pipe.reader)
    with pytest.raises(OSError):
        for _ in range(2):
            writer.write(LINE)


def test_stream_that_leads_elsewhere_is_noticed(
    writer: PipeWriter, pipe: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_INTERVAL", 0.0)
    writer._look_at = 0.0
    assert writer.is_current
    with (tmp_path / "log").open("w") as file:
        os.dup2(file.fileno(), pipe.stream.fileno())
    assert not writer.is_current


def test_only_what_can_wait_has_an_outlet(tmp_path: Path) -> None:
    assert PipeWriter.of(io.StringIO()) is None
    assert PipeWriter.of(None) is None
    with (tmp_path / "log").open("w") as file:
        assert PipeWriter.of(file) is None
    assert PipeWriter.of(file) is None, "closed"
    detached = io.TextIOWrapper(io.BytesIO())
    assert PipeWriter.of(detached) is None
    detached.detach()
    assert PipeWriter.of(detached) is None


def test_stream_with_a_mind_of_its_own_does_its_own_writing() -> None:
    class Tee(io.TextIOWrapper):
        pass

    pipe = Pipe("pipe")
    with Tee(io.BufferedWriter(io.FileIO(os.dup(pipe.stream.fileno()), "w"))) as tee:
        assert PipeWriter.of(tee) is None
    pipe.close()


# The handler


@pytest.fixture
def handler(pipe: Pipe) -> Iterator[PipeHandler]:
    with contextlib.closing(PipeHandler(pipe.stream)) as handler:
        yield handler


def test_records_follow_what_was_printed(handler: PipeHandler, pipe: Pipe) -> None:
    pipe.stream.write("printed\n")
    log(handler, "logged")
    assert pipe.drain() == b"printed\nlogged\n"


def test_one_line_says_how_many_were_lost(handler: PipeHandler, pipe: Pipe, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="uvicorn.error")
    while handler._writer is None or not handler._writer.lost:
        log(handler, LINE[:-1])
    log(handler, LINE[:-1])
    assert caplog.messages == []
    pipe.drain()
    log(handler, "again")
    assert pipe.drain().endswith(b"\nagain\n")
    (message,) = caplog.messages
    assert message == f"Dropped 2 log lines: the reader of {pipe.stream.name} did not keep up. {REMEDY}"
    log(handler, "and again")
    assert len(caplog.messages) == 1


def test_the_line_may_go_the_same_way(handler: PipeHandler, pipe: Pipe) -> None:
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(handler)
    try:
        while handler._writer is None or not handler._writer.lost:
            log(handler, LINE[:-1])
        pipe.drain()
        pipe.received = b""
        log(handler, "again")
    finally:
        logger.removeHandler(handler)
    assert (
        pipe.drain().decode()
        == f"again\nDropped 1 log lines: the reader of {pipe.stream.name} did not keep up. {REMEDY}\n"
    )


def test_handler_follows_its_stream(handler: PipeHandler, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    log(handler, "first")
    buffer = io.StringIO()
    handler.setStream(buffer)  # type: ignore[arg-type]
    log(handler, "second")
    handler.setStream(pipe.stream)
    log(handler, "third")
    handler.close()
    log(handler, "fourth")
    assert buffer.getvalue() == "second\n"
    assert pipe.drain() == b"first\nthird\nfourth\n"
    other = Pipe("pipe")
    monkeypatch.setattr(module, "LOOK_INTERVAL", 0.0)
    assert handler._writer is not None
    handler._writer._look_at = 0.0
    os.dup2(other.stream.fileno(), pipe.stream.fileno())
    log(handler, "fifth")
    assert other.drain() == b"fifth\n"
    other.close()


def test_line_that_cannot_be_encoded_is_an_error_of_logging(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    pipe.stream.reconfigure(encoding="ascii")
    handler = PipeHandler(pipe.stream)
    log(handler, "ä")
    handler.close()
    assert "UnicodeEncodeError" in capsys.readouterr().err


def test_access_lines_take_the_same_way(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = PipeHandler(pipe.stream)
    with access_log_to(handler, monkeypatch) as access_log:
        assert handler._writer is None
        access_log.write("one\n")
        assert handler._writer is not None
        assert pipe.drain() == b"one\n"
        handler.close()


def default_handlers() -> list[logging.Handler]:
    return [logging.getLogger(name).handlers[0] for name in ("uvicorn", "uvicorn.access")]


def test_both_default_handlers_are_of_this_kind() -> None:
    """Although the default names another, as upstream's: programs compare it."""
    Config(app="app")
    assert [type(handler) for handler in default_handlers()] == [PipeHandler, PipeHandler]
    assert [type(handler.formatter) for handler in default_handlers()] == [DefaultFormatter, AccessFormatter]
    assert [handler.name for handler in default_handlers()] == ["default", "access"]
    assert {handler["class"] for handler in LOGGING_CONFIG["handlers"].values()} == {"logging.StreamHandler"}


def test_handlers_that_somebody_has_configured_stay_as_they_are() -> None:
    config = copy.deepcopy(LOGGING_CONFIG)
    config["handlers"]["default"]["level"] = "ERROR"
    config["handlers"]["access"]["stream"] = "ext://sys.stderr"
    Config(app="app", log_config=config)
    assert [type(handler) for handler in default_handlers()] == [logging.StreamHandler] * 2


# For real

APP = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""


@pytest.mark.parametrize("http", ["auto", "h11"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_server_whose_log_nobody_reads_serves_on(tmp_path: Path, http: str, loop: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    arguments = ["app:app", "--uds", "s", "--http", http, "--loop", loop]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    get = b"GET /" + b"x" * 4000 + b" HTTP/1.1\r\nhost: test\r\n\r\n"
    with subprocess.Popen(
        [sys.executable, "-m", "uvicorn", *arguments],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        try:
            address = str(tmp_path / "s")
            wait_for(lambda: is_listening(address))
            with open_connection(address) as client:
                for _ in range(50):
                    client.sendall(get)
                    assert b"200 OK" in read_until(client, b"\r\n\r\nok")
                assert server.stdout is not None and server.stderr is not None
                received = _available(server.stdout)
                client.sendall(get[:5] + b" HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
                read_to_end(client)
            server.terminate()
            output, errors = server.communicate(timeout=30)
        finally:
            server.kill()
    assert b"GET / HTTP/1.1" in output
    lost = int(errors.split(b" log lines: the reader of standard output did")[0].rpartition(b" ")[2])
    assert lost
    assert (received + output).count(b"\n") + lost == 51


def _available(pipe: Any) -> bytes:
    """Read until nothing is left for the moment."""
    received = b""
    while select.select([pipe], [], [], 0)[0]:
        received += os.read(pipe.fileno(), 65536)
    return received
