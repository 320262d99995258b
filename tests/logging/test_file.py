"""Log lines that go to a file whose disk is full."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.logging.records import access_log_to, log
from tests.process import ROOT
from tests.utils import is_listening, open_connection, read_until, wait_for
from uvicorn.logging import PipeHandler
from uvicorn.logging import file as module
from uvicorn.logging.file import REMEDIES, FileWriter
from uvicorn.logging.pipe import PipeWriter

if sys.platform == "win32":
    pytest.skip("the stream writes on Windows", allow_module_level=True)

linux = pytest.mark.skipif(sys.platform != "linux", reason="has no /dev/full, or cannot open a descriptor again")

FULL = f"({os.strerror(errno.ENOSPC)})"
REMEDY = "Free space on its disk, or log less (access_log, log_level)."


class Disk:
    """The file behind a stream like `sys.stdout`, on a disk with room for `room` bytes more."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.room = 1_000_000
        self.error = errno.ENOSPC
        self.stream = path.open("a", encoding="utf-8")
        self._write = os.write
        monkeypatch.setattr(os, "write", self._write_what_fits)

    def _write_what_fits(self, descriptor: int, data: bytes) -> int:
        if descriptor != self.stream.fileno():
            return self._write(descriptor, data)
        if data and not self.room:
            raise OSError(self.error, os.strerror(self.error))
        count = self._write(descriptor, data[: self.room])
        self.room -= count
        return count

    def read(self) -> str:
        return self.path.read_text("utf-8")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(tmp_path / "log", monkeypatch)
    yield disk
    disk.stream.close()


@pytest.fixture
def writer(disk: Disk) -> FileWriter:
    return writer_of(disk.stream)


@pytest.fixture
def dev_full() -> Iterator[TextIO]:
    with open("/dev/full", "w") as stream, open(os.devnull, "w") as empty:
        yield stream
        os.dup2(empty.fileno(), stream.fileno())


def writer_of(stream: TextIO) -> FileWriter:
    writer = FileWriter.of(stream)
    assert writer is not None
    return writer


def test_lines_arrive(writer: FileWriter, disk: Disk) -> None:
    disk.stream.write("printed\n")
    assert writer.write("one\n")
    assert writer.write("two\nthree ä\n")
    assert disk.read() == "printed\none\ntwo\nthree ä\n"
    assert writer.lost == 0
    assert writer.report("here") is None


@pytest.mark.parametrize("error", REMEDIES)
def test_full_disk_loses_whole_lines_and_counts_them(writer: FileWriter, disk: Disk, error: int) -> None:
    disk.error = error
    disk.room = len("one\n")
    assert writer.write("one\n")
    assert not writer.write("two\n")
    assert not writer.write("three\nfour\n")
    assert writer.lost == 3
    disk.room = 1000
    assert writer.write("five\n")
    assert disk.read() == "one\nfive\n"


def test_other_errors_are_raised(writer: FileWriter, disk: Disk) -> None:
    disk.error = errno.EBADF
    disk.room = 0
    with pytest.raises(OSError):
        writer.write("one\n")
    assert writer.lost == 0


def test_fragment_of_a_line_ends_in_its_last_byte(writer: FileWriter, disk: Disk) -> None:
    if sys.platform != "linux":
        pytest.skip("the descriptor cannot be opened again")
    disk.room = len("one\ntwo\nthr")
    assert not writer.write("one\ntwo\nthree\nfour\n")
    assert writer.lost == 2
    assert disk.read() == "one\ntwo\nth\n"
    disk.room = 1000
    assert writer.write("five\n")
    assert disk.read() == "one\ntwo\nth\nfive\n"


@pytest.mark.parametrize("room", [1, 2, 1000])
def test_fragment_that_cannot_be_changed_gets_a_line_break_with_the_next_line(
    writer: FileWriter, disk: Disk, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_end_fragment", lambda tail: False)
    disk.room = len("one\ntwo\nthr")
    assert not writer.write("one\ntwo\nthree\nfour\n")
    assert not writer.write("lost\n")
    assert writer.lost == 3
    disk.room = room
    while not writer.write("five\n"):
        disk.room = 1000
    fragments = {1: "", 2: "f\n", 1000: ""}
    assert disk.read() == f"one\ntwo\nthr\n{fragments[room]}five\n"


@linux
def test_bytes_of_another_worker_are_not_changed(writer: FileWriter, disk: Disk) -> None:
    os.write(disk.stream.fileno(), b"its line")
    assert not writer._end_fragment(b"our line")
    assert not writer._end_fragment(b"longer than the file")
    assert disk.read() == "its line"
    assert writer._end_fragment(b"line")
    assert disk.read() == "its lin\n"


@linux
def test_fragment_in_a_file_that_cannot_be_opened_again_stays(
    writer: FileWriter, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> int:
        raise PermissionError

    os.write(disk.stream.fileno(), b"line")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert not writer._end_fragment(b"line")
    writer._is_regular = False
    assert not writer._end_fragment(b"line")
    assert disk.read() == "line"


@linux
def test_what_the_application_printed_stays_in_front(dev_full: TextIO, disk: Disk) -> None:
    writer = writer_of(dev_full)
    dev_full.write("printed\n")
    assert not writer.write("lost\n")
    assert writer.lost == 1
    os.dup2(disk.stream.fileno(), dev_full.fileno())
    assert writer.write("logged\n")
    assert disk.read() == "printed\nlogged\n"


def test_warnings_have_an_interval(writer: FileWriter, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPORT_INTERVAL", math.inf)
    disk.room = 0
    writer.write("one\n")
    dropping = writer.report("here")
    assert dropping is not None
    assert dropping[0] % dropping[1:] == f"Dropping log lines (1 so far): cannot write to here {FULL}. {REMEDY}"  # type: ignore[operator]
    writer.write("two\n")
    assert writer.report("here") is None
    disk.room = 6
    writer.write("three\n")
    dropped = writer.report("here")
    assert dropped is not None and dropped[1] == 2
    # Full and not full by turns: counted, and reported when the interval has passed.
    writer.write("four\n")
    assert writer.report("here") is None
    disk.room = 1000
    writer.write("five\n")
    assert writer.report("here") is None
    assert writer.lost == 1
    writer._report_at = -math.inf
    dropped = writer.report("here")
    assert dropped is not None and dropped[1] == 1
    assert writer.report("here") is None


def test_warning_is_repeated_with_the_number(writer: FileWriter, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPORT_INTERVAL", -math.inf)
    disk.room = 0
    numbers = []
    for _ in range(3):
        writer.write("one\n")
        report = writer.report("here")
        assert report is not None
        numbers.append(report[1])
    assert numbers == [1, 2, 3]


def test_only_files_and_devices_have_this_outlet(tmp_path: Path) -> None:
    assert FileWriter.of(None) is None
    assert FileWriter.of(io.StringIO()) is None
    with open(os.devnull, "w") as device:
        assert FileWriter.of(device) is not None
    with (tmp_path / "log").open("w") as file:
        assert FileWriter.of(file) is not None
        file.write = lambda text: 0  # type: ignore[method-assign]
        assert FileWriter.of(file) is None, "the program's own method"
    assert FileWriter.of(file) is None, "closed"
    reader, end = os.pipe()
    with open(reader), open(end, "w") as pipe:
        assert FileWriter.of(pipe) is None
        assert PipeWriter.of(pipe) is not None
    main, terminal = os.openpty()
    with open(main, "wb"), open(terminal, "w") as stream:
        assert FileWriter.of(stream) is None


# The handler


@pytest.fixture
def handler(disk: Disk) -> Iterator[PipeHandler]:
    with contextlib.closing(PipeHandler(disk.stream)) as handler:
        yield handler


def test_program_may_change_the_stream_after_its_first_line(tmp_path: Path) -> None:
    """Its encoding, or how it writes, though it leads to the same file."""
    teed: list[str] = []
    with (tmp_path / "log").open("w", encoding="ascii") as stream:
        handler = PipeHandler(stream)
        log(handler, "one")
        stream.reconfigure(encoding="utf-8")
        log(handler, "é")
        stream.reconfigure(errors="replace", encoding="latin-1")
        log(handler, "é€")
        write = stream.write
        stream.write = lambda text: teed.append(text) or write(text)  # type: ignore[method-assign, func-returns-value]
        log(handler, "two")
        del stream.write
        log(handler, "three")
        handler.close()
    assert (tmp_path / "log").read_bytes() == "one\né\n".encode() + "é?\ntwo\nthree\n".encode("latin-1")
    assert teed == ["two\n"]


class Noting(io.FileIO):
    """A program's own file below the stream."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w")
        self.noted = b""

    def write(self, data: Any, /) -> int:
        self.noted += data
        return super().write(data)


def test_program_may_have_its_own_file_below_the_stream(tmp_path: Path) -> None:
    with Noting(tmp_path / "log") as raw, io.TextIOWrapper(io.BufferedWriter(raw), "utf-8") as stream:
        log(PipeHandler(stream), "one")
        assert raw.noted == b"one\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "UTF-16"])
def test_only_the_first_line_has_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    with (tmp_path / "log").open("w", encoding=encoding) as stream:
        handler = PipeHandler(stream)
        log(handler, "one")
        log(handler, "two")
    assert (tmp_path / "log").read_bytes() == "one\ntwo\n".encode(encoding)


def test_one_line_says_that_lines_are_lost_and_one_how_many(
    handler: PipeHandler, disk: Disk, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.WARNING, logger="uvicorn.error")
    log(handler, "first")
    disk.room = 0
    for _ in range(40):
        log(handler, "lost")
    place = disk.stream.name
    assert caplog.messages == [f"Dropping log lines (1 so far): cannot write to {place} {FULL}. {REMEDY}"]
    disk.room = 1000
    log(handler, "again")
    log(handler, "and again")
    assert caplog.messages[1:] == [
        f"Dropped 40 log lines: could not write to {place} {FULL}. Writing works again. "
        "Log less (access_log, log_level)."
    ]
    assert disk.read() == "first\nagain\nand again\n"
    assert capsys.readouterr().err == "", "no traceback of logging"


def test_the_lines_may_go_the_same_way(handler: PipeHandler, disk: Disk) -> None:
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(handler)
    try:
        disk.room = 0
        log(handler, "lost, as is the warning")
        disk.room = 1000
        log(handler, "again")
    finally:
        logger.removeHandler(handler)
    again, dropped = disk.read().splitlines()
    assert again == "again"
    assert dropped.startswith("Dropped 2 log lines: ")


def test_other_errors_are_those_of_logging(
    handler: PipeHandler, disk: Disk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.error = errno.EPERM
    disk.room = 0
    log(handler, "lost")
    assert "--- Logging error ---" in capsys.readouterr().err
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log(handler, "lost")
    assert capsys.readouterr().err == ""


@linux
def test_handlers_of_the_program_stay_as_they_are(dev_full: TextIO, capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(dev_full)
    log(handler, "lost")
    assert "--- Logging error ---" in capsys.readouterr().err


def test_access_lines_take_the_same_way(
    handler: PipeHandler, disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with access_log_to(handler, monkeypatch) as access_log:
        disk.room = 0
        access_log.write("one\ntwo\n")
        disk.room = 1000
        access_log.write("three\n")
    assert disk.read() == "three\n"
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "Dropping log lines (2 so far)",
        "Dropped 2 log lines",
    ]


# For real

APP = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""


def serve(
    directory: Path, arguments: list[str], stdout: TextIO, use: Callable[[subprocess.Popen[str], str], None]
) -> str:
    """Run a server while it is used; returns its standard error."""
    (directory / "app.py").write_text(APP)
    with subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "app:app", "--uds", "s", "--lifespan", "off", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            address = str(directory / "s")
            wait_for(lambda: is_listening(address))
            use(server, address)
            server.terminate()
            _, errors = server.communicate(timeout=30)
        finally:
            server.kill()
    return errors


def get(address: str, count: int) -> None:
    with open_connection(address) as client:
        for _ in range(count):
            client.sendall(b"GET /path HTTP/1.1\r\nhost: test\r\n\r\n")
            assert b"200 OK" in read_until(client, b"\r\n\r\nok")


@linux
@pytest.mark.parametrize("http", ["auto", "h11"])
@pytest.mark.parametrize("form", [[], ["--access-log-format", "json"]], ids=["plain", "json"])
def test_server_on_a_full_disk_serves_on_and_says_so_once(
    tmp_path: Path, dev_full: TextIO, http: str, form: list[str]
) -> None:
    errors = serve(tmp_path, ["--http", http, *form], dev_full, lambda _, address: get(address, 40))
    assert "Traceback" not in errors
    assert [line for line in errors.splitlines() if not line.startswith("INFO:")] == [
        f"WARNING:  Dropping log lines (1 so far): cannot write to standard output {FULL}. {REMEDY}"
    ]


@linux
@pytest.mark.parametrize("http", ["auto", "h11"])
def test_lines_are_whole_again_when_there_is_room(tmp_path: Path, http: str) -> None:
    import resource

    path = tmp_path / "log"

    def use(server: subprocess.Popen[str], address: str) -> None:
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1000, hard))
        get(address, 100)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))
        get(address, 10)

    with path.open("a") as file:
        errors = serve(tmp_path, ["--http", http, "--no-use-colors"], file, use)
    assert "Traceback" not in errors
    lines = path.read_text().splitlines()
    whole = [line for line in lines if re.fullmatch(r'INFO:     .* - "GET /path HTTP/1\.1" 200 OK', line)]
    assert len(lines) - len(whole) <= 1
    (lost,) = re.findall(r"Dropped (\d+) log lines: could not write to standard output", errors)
    assert len(whole) + int(lost) == 110
