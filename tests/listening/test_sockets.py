from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import signal
import socket
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from tests.process import ServerProcess
from tests.utils import is_listening, open_connection, read_to_end, request, wait_for, wait_until
from uvicorn.config import Config
from uvicorn.config.errors import SettingError
from uvicorn.listening import sockets
from uvicorn.listening.sockets import (
    Address,
    AddressError,
    Descriptor,
    Given,
    Several,
    UnixPath,
    bind_sockets,
    listen,
    place_of,
    source_of,
    unix_paths,
)

pytestmark = pytest.mark.anyio

logger = logging.getLogger("uvicorn.error")

posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no such sockets on Windows")


@dataclass
class Settings:
    host: str | Sequence[str] | None = "127.0.0.1"
    port: int = 0
    uds: str | None = None
    fd: int | None = None
    bind: Sequence[str] = ()
    is_ssl: bool = False


def bind_socket(settings: Settings) -> socket.socket:
    """The one socket that is bound for these settings."""
    (sock,) = bind_sockets(settings, logger)
    return sock


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="uvicorn.error")
    return caplog


# Which source


def test_sources_in_order_of_precedence(sock: socket.socket, tmp_path: Path) -> None:
    """SOCK-14, SOCK-15: the same order in one process and in the parent of several."""
    settings = Settings(uds=str(tmp_path / "s"), fd=sock.fileno())
    assert isinstance(source_of(settings, [sock]), Given)
    assert isinstance(source_of(settings), Descriptor)
    assert isinstance(source_of(Settings(bind=["127.0.0.1:0"])), Several)
    assert isinstance(source_of(Settings(uds=str(tmp_path / "s"))), UnixPath)
    assert isinstance(source_of(Settings()), Address)
    assert isinstance(source_of(Settings(fd=0)), Descriptor)


# bind: one socket for several processes


def test_bound_address_is_one_inheritable_ipv4_socket() -> None:
    """SOCK-02, SOCK-03"""
    with bind_socket(Settings(host="localhost")) as bound:
        assert bound.family == socket.AF_INET
        assert bound.get_inheritable()
        assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        if hasattr(socket, "SO_REUSEPORT"):
            assert not bound.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)


def test_host_with_a_colon_binds_ipv6() -> None:
    """SOCK-02, LIFE-06"""
    with bind_socket(Settings(host="::1")) as bound:
        assert bound.family == socket.AF_INET6


def test_bound_socket_does_not_listen() -> None:
    """SOCK-05"""
    with bind_socket(Settings()) as bound, pytest.raises(ConnectionRefusedError):
        socket.create_connection(bound.getsockname(), timeout=5)


def test_address_that_is_taken_is_an_error_that_names_it(sock: socket.socket, log: pytest.LogCaptureFixture) -> None:
    """SOCK-06"""
    sock.listen()
    port = sock.getsockname()[1]
    with pytest.raises(OSError, match=rf"error while attempting to bind on address \('127.0.0.1', {port}\)") as caught:
        bind_socket(Settings(port=port))
    assert caught.value.errno == errno.EADDRINUSE
    assert log.records == []


def test_address_of_another_machine_is_an_error_with_advice() -> None:
    with pytest.raises(AddressError) as caught:
        bind_socket(Settings(host="203.0.113.7"))
    assert caught.value.hint == (
        "This machine has no such address. Name one of its own (--host; 0.0.0.0 stands for all of IPv4)."
    )


@pytest.mark.parametrize("host", ["nowhere.invalid", ["127.0.0.1", "nowhere.invalid"]], ids=["one", "a list"])
async def test_host_that_does_not_resolve_is_an_error_that_names_it(host: str | list[str]) -> None:
    """SOCK-06"""
    source = source_of(Settings(host=host))
    line = rf"^Cannot use host={re.escape(repr(host))}: "
    with pytest.raises(OSError, match=line):
        source.bind()
    with pytest.raises(OSError, match=line):
        await source.open()
    with pytest.raises(OSError, match=r"^Cannot use bind='nowhere\.invalid:80': "):
        source_of(Settings(bind=["nowhere.invalid:80"])).bind()


@pytest.mark.parametrize("host", [None, ["127.0.0.1", "::1"]], ids=["not set", "a list"])
async def test_host_that_is_not_set_or_a_list_is_several_addresses(
    host: Sequence[str] | None, log: pytest.LogCaptureFixture
) -> None:
    source = source_of(Settings(host=host))
    for bound in (source.bind(), await source.open()):
        with contextlib.ExitStack() as stack:
            for sock in bound:
                stack.callback(sock.close)
            assert [sock.getsockname()[0] for sock in bound] == (["0.0.0.0", "::"] if host is None else host)
            ports = [sock.getsockname()[1] for sock in bound]
            shown = [f"0.0.0.0:{ports[0]}"] if host is None else [f"127.0.0.1:{ports[0]}", f"[::1]:{ports[1]}"]
            log.clear()
            for line in source.describe(bound):
                line.log(logger)
            assert log.messages == [f"Uvicorn running on http://{place} (Press CTRL+C to quit)" for place in shown]
    assert source.places() == (["0.0.0.0:0", "[::]:0"] if host is None else ["127.0.0.1:0", "[::1]:0"])


@pytest.mark.parametrize("ipv6", [True, False])
def test_all_interfaces_share_one_socket_where_it_has_to_be_one(ipv6: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Config.bind_socket()` returns one; upstream raises `TypeError`."""
    if not ipv6:
        make = socket.socket

        def without_ipv6(family: int = -1, kind: int = -1, proto: int = -1, fileno: int | None = None) -> socket.socket:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "no such family")
            return make(family, kind, proto, fileno)

        monkeypatch.setattr(socket, "socket", without_ipv6)
    (sock,) = bind_sockets(Settings(host=None), logger, one=True)
    monkeypatch.undo()
    with sock:
        sock.listen()
        port = sock.getsockname()[1]
        for host in ["127.0.0.1", *(["::1"] if ipv6 else [])]:
            socket.create_connection((host, port), timeout=5).close()
    with bind_sockets(Settings(host="127.0.0.1"), logger, one=True)[0] as sock:
        assert sock.getsockname()[0] == "127.0.0.1"


def test_port_that_is_taken_is_an_error_on_all_interfaces_too() -> None:
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::", 0))
        taken.listen()
        with pytest.raises(OSError, match="error while attempting to bind on address") as caught:
            bind_sockets(Settings(host=None, port=taken.getsockname()[1]), logger, one=True)
    assert caught.value.errno == errno.EADDRINUSE


@posix
def test_bound_unix_socket_is_open_to_everybody_whatever_the_umask(tmp_path: Path) -> None:
    """SOCK-07"""
    path = tmp_path / "s"
    umask = os.umask(0o077)
    try:
        with bind_socket(Settings(uds=str(path))):
            assert stat.S_IMODE(path.stat().st_mode) == 0o666
    finally:
        os.umask(umask)


@posix
@pytest.mark.parametrize("kind", ["file", "bound", "listening", "datagram"])
async def test_what_is_at_the_path_is_not_replaced(tmp_path: Path, kind: str) -> None:
    """SOCK-09: and named; deliberately the same for a single process, where upstream takes a live socket over."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM if kind == "datagram" else socket.SOCK_STREAM) as other:
        if kind == "file":
            path.write_text("mine")
        else:
            other.bind(str(path))
        if kind == "listening":
            other.listen()
        remedy = (
            "this file is no socket; choose another" if kind == "file" else "another program has bound it; end that"
        )
        with pytest.raises(OSError, match=f"^Cannot use uds='{path}': {remedy}") as caught:
            bind_socket(Settings(uds=str(path)))
        assert caught.value.errno == errno.EADDRINUSE
        for settings in (Settings(uds=str(path)), Settings(bind=[f"unix:{path}"])):
            with pytest.raises(OSError, match=remedy):
                await source_of(settings).open()
        assert path.exists()


@posix
def test_parent_replaces_what_one_that_was_killed_has_left(tmp_path: Path) -> None:
    """SOCK-09: deliberately different, upstream fails, removes it, and comes up only when it is started once more."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
        stale.listen()
    with bind_socket(Settings(uds=str(path))) as sock, socket.socket(socket.AF_UNIX) as client:
        sock.listen()
        client.connect(str(path))


def test_descriptor_is_duplicated(sock: socket.socket) -> None:
    """SOCK-12"""
    with bind_socket(Settings(fd=sock.fileno())) as duplicate:
        assert duplicate.getsockname() == sock.getsockname()
        assert duplicate.fileno() != sock.fileno()
    assert sock.getsockname()[1]


def test_descriptor_that_is_not_open_is_an_error() -> None:
    """SOCK-12"""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    with pytest.raises(OSError, match=f"descriptor {descriptor} is not open; a TCP or Unix stream") as caught:
        bind_socket(Settings(fd=descriptor))
    assert caught.value.errno == errno.EBADF


def test_descriptor_that_is_no_socket_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(OSError, match="is no socket; a TCP or") as caught:
        bind_socket(Settings(fd=file.fileno()))
    assert caught.value.errno == errno.ENOTSOCK


@posix
@pytest.mark.parametrize(("kind", "fault"), [("datagram", "a SOCK_DGRAM socket"), ("connected", "a connection")])
async def test_descriptor_that_cannot_listen_is_an_error(kind: str, fault: str) -> None:
    """SOCK-12: and says what is needed."""
    ours, theirs = socket.socketpair() if kind == "connected" else (socket.socket(type=socket.SOCK_DGRAM),) * 2
    before = set(os.listdir("/dev/fd"))
    with ours, theirs:
        line = f"descriptor {ours.fileno()} is {fault}; a TCP or Unix stream socket that can listen is needed"
        with pytest.raises(OSError, match=line) as caught:
            bind_socket(Settings(fd=ours.fileno()))
        assert caught.value.errno == errno.EOPNOTSUPP
        with pytest.raises(OSError, match=f"bind='fd:{ours.fileno()}': {line}"):
            await source_of(Settings(bind=[f"fd:{ours.fileno()}"])).open()
        assert set(os.listdir("/dev/fd")) <= before


def test_sockets_that_were_given_need_no_binding(sock: socket.socket) -> None:
    with pytest.raises(NotImplementedError):
        Given([sock]).bind()


# bind: several places


@posix
def test_several_places_are_bound_and_told_of(
    tmp_path: Path, sock: socket.socket, log: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    settings = Settings(bind=["127.0.0.1:0", f"unix:{path}", f"fd:{sock.fileno()}"], is_ssl=True)
    bound = bind_sockets(settings, logger)
    try:
        assert all(one.get_inheritable() for one in bound)
        ports = [one.getsockname()[1] for one in (bound[0], sock)]
        assert log.messages == [
            f"Uvicorn running on https://127.0.0.1:{ports[0]} (Press CTRL+C to quit)",
            f"Uvicorn running on unix socket {path} (Press CTRL+C to quit)",
            f"Uvicorn running on https://127.0.0.1:{ports[1]} (Press CTRL+C to quit)",
        ]
        assert unix_paths(settings) == [str(path)]
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(f"{path}2")
        for again in bind_sockets(Settings(bind=[f"unix:{path}2"]), logger):
            again.close()  # a socket left behind was replaced
    finally:
        for one in bound:
            one.close()


@posix
async def test_none_of_several_stays_bound_when_one_cannot_be(tmp_path: Path, sock: socket.socket) -> None:
    sock.listen()
    taken = f"127.0.0.1:{sock.getsockname()[1]}"
    (tmp_path / "file").write_text("mine")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = f"127.0.0.1:{probe.getsockname()[1]}"
    for place, error in [
        (taken, "in use"),
        (f"unix:{tmp_path}/file", f"bind='unix:{tmp_path}/file': "),
        ("fd:999", "bind='fd:999': "),
    ]:
        settings = Settings(bind=[free, f"unix:{tmp_path}/s", place])
        with pytest.raises(OSError, match=error):
            bind_sockets(settings, logger)
        with pytest.raises(OSError, match=error):
            await source_of(settings).open()
        assert not (tmp_path / "s").exists()
    with socket.create_server(("127.0.0.1", int(free.partition(":")[2]))):
        pass
    with pytest.raises(OSError, match=r"bind='nowhere\.invalid:80': "):
        bind_sockets(Settings(bind=["nowhere.invalid:80"]), logger)


@pytest.mark.parametrize("text", ["", "80", "unix:", "fd:x", "fd:", "fd:9999999999", "a:b", "::1:80", "http://a:80"])
def test_what_names_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="it must be HOST:PORT, unix:PATH, "):
        place_of(text)


@pytest.mark.parametrize(
    ("host", "remedy"),
    [
        ("localhost:8000", "use host localhost and port 8000."),
        ([":80", "::1"], "use host 127.0.0.1 and port 80."),
        ("[::1]:8000", "use host ::1 and port 8000."),
        (["::1", "[::1]"], "write it without brackets: ::1."),
        ("http://127.0.0.1", "use the name or address alone."),
        ("a..b", "use 1 to 63 characters between dots."),
        (["localhost", "a" * 64], "use 1 to 63 characters between dots."),
    ],
)
def test_host_with_a_port_or_in_brackets_is_an_error_that_says_what_to_write(host: Any, remedy: str) -> None:
    with pytest.raises(SettingError, match=rf"^Cannot use host={re.escape(repr(host))}: .*{re.escape(remedy)}$"):
        Config("module:app", host=host)


@pytest.mark.parametrize("host", ["::1", "fe80::1%1", "1.2.3.4", "localhost.", ["::", "0.0.0.0"], None, ""])
def test_hosts_that_are_taken_as_they_are(host: Any) -> None:
    assert Config("module:app", host=host).host == host


def test_a_port_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="65536 is no port"):
        place_of("1.2.3.4:65536")


# describe: the running line


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (Settings(), "Uvicorn running on http://127.0.0.1:{port} (Press CTRL+C to quit)"),
        (Settings(host="localhost"), "Uvicorn running on http://localhost:{port} (Press CTRL+C to quit)"),
        (Settings(host=""), "Uvicorn running on http://:{port} (Press CTRL+C to quit)"),
        (Settings(host="::1"), "Uvicorn running on http://[::1]:{port} (Press CTRL+C to quit)"),
        (Settings(is_ssl=True), "Uvicorn running on https://127.0.0.1:{port} (Press CTRL+C to quit)"),
    ],
    ids=["address", "name", "all", "ipv6", "tls"],
)
def test_running_line_of_an_address(settings: Settings, line: str, log: pytest.LogCaptureFixture) -> None:
    """LIFE-04, LIFE-05, LIFE-06, LIFE-07, LIFE-08, SOCK-04"""
    with bind_socket(settings) as bound:
        port = bound.getsockname()[1]
    (record,) = log.records
    assert record.levelname == "INFO"
    assert record.getMessage() == line.format(port=port)
    assert record.args == (line.split()[3].split(":")[0], settings.host, port)
    colored = record.__dict__["color_message"] % record.args
    assert colored == line.format(port=port).replace("http", "\033[1mhttp").replace(f"{port}", f"{port}\033[0m")


@posix
def test_running_line_of_a_unix_socket(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    """SOCK-10"""
    path = tmp_path / "s"
    bind_socket(Settings(uds=str(path))).close()
    assert log.messages == [f"Uvicorn running on unix socket {path} (Press CTRL+C to quit)"]


def test_running_line_of_a_descriptor(sock: socket.socket, log: pytest.LogCaptureFixture) -> None:
    """SOCK-12"""
    bind_socket(Settings(fd=sock.fileno())).close()
    name = ("127.0.0.1", sock.getsockname()[1])
    assert log.messages == [f"Uvicorn running on socket {name} (Press CTRL+C to quit)"]


def test_sockets_that_were_given_have_no_running_line(sock: socket.socket) -> None:
    """SOCK-15"""
    source: sockets.Source = Given([sock])
    assert source.describe([sock]) == []


# open: the sockets of a single process


async def test_every_address_of_the_host_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """SOCK-01"""
    opened = await Address("", 0, "http").open()
    try:
        assert {sock.family for sock in opened} >= {socket.AF_INET}
        assert len(opened) == len({sock.family for sock in opened})
    finally:
        for sock in opened:
            sock.close()


async def test_name_is_resolved_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """SOCK-01"""
    loop = asyncio.get_running_loop()
    asked: list[Any] = []

    async def getaddrinfo(host: Any, port: Any, **options: Any) -> list[Any]:
        asked.append(host)
        info = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        return [info, info]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    (sock,) = await Address("localhost", 0, "http").open()
    sock.close()
    assert asked == ["localhost"]


async def test_address_whose_family_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(self: Address) -> list[Any]:
        return [(socket.AF_INET, ("203.0.113.1", 0)), (socket.AF_INET, ("127.0.0.1", 0))]

    monkeypatch.setattr(Address, "_resolve", resolve)
    (sock,) = await Address("two", 0, "http").open()
    assert sock.getsockname()[0] == "127.0.0.1"
    sock.close()


async def test_address_of_another_machine_is_an_error() -> None:
    """LIFE-10"""
    with pytest.raises(OSError) as caught:
        await Address("203.0.113.1", 0, "http").open()
    assert caught.value.errno == errno.EADDRNOTAVAIL


async def test_first_socket_is_closed_when_the_second_cannot_be_bound(
    sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    sock.listen()
    opened: list[socket.socket] = []

    async def resolve(self: Address) -> list[Any]:
        return [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET, sock.getsockname())]

    def open_one(self: Address, family: int, address: Any) -> socket.socket:
        opened.append(original(self, family, address))
        return opened[-1]

    original = Address._open_one
    monkeypatch.setattr(Address, "_resolve", resolve)
    monkeypatch.setattr(Address, "_open_one", open_one)
    with pytest.raises(OSError, match="address already in use"):
        await Address("two", 0, "http").open()
    assert [one.fileno() for one in opened] == [-1]


@posix
async def test_stale_socket_is_replaced_and_its_permissions_are_kept(tmp_path: Path) -> None:
    """SOCK-08"""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    path.chmod(0o640)
    inode = path.stat().st_ino
    source = UnixPath(str(path))
    (sock,) = await source.open()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    sock.close()
    source.release()
    assert not path.exists()
    assert inode


@posix
async def test_new_unix_socket_is_open_to_everybody(tmp_path: Path) -> None:
    """SOCK-07"""
    path = tmp_path / "s"
    (sock,) = await UnixPath(str(path)).open()
    sock.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


@posix
async def test_file_that_is_no_socket_is_not_replaced(tmp_path: Path) -> None:
    """SOCK-08, but where upstream on uvloop deletes any file: a file of the user's stays."""
    path = tmp_path / "s"
    path.write_text("mine")
    with pytest.raises(OSError):
        await UnixPath(str(path)).open()
    assert path.read_text() == "mine"


@posix
async def test_socket_file_of_a_successor_is_not_removed(tmp_path: Path) -> None:
    """SOCK-11"""
    path = tmp_path / "s"
    source = UnixPath(str(path))
    (sock,) = await source.open()
    path.unlink()
    (successor,) = await UnixPath(str(path)).open()
    sock.close()
    source.release()
    assert path.exists()
    successor.close()
    path.unlink()
    source.release()  # already gone is no error


@posix
async def test_nothing_is_removed_for_other_sources(tmp_path: Path, sock: socket.socket) -> None:
    """SOCK-13"""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
        source = Descriptor(unix.fileno())
        (duplicate,) = await source.open()
        duplicate.close()
        source.release()
        assert path.exists()
    Address("127.0.0.1", 0, "http").release()
    Given([sock]).release()


# listen


class Hello(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(b"hello")
        transport.close()


LOOPS = [
    pytest.param(("asyncio", {"loop_factory": asyncio.new_event_loop}), id="asyncio"),
]
if sys.platform != "win32":
    import uvloop

    LOOPS.append(pytest.param(("asyncio", {"loop_factory": uvloop.new_event_loop}), id="uvloop"))


async def talk_to(address: tuple[str, int] | str) -> bytes:
    def talk() -> bytes:
        with open_connection(address) as client:
            return read_to_end(client)

    return await asyncio.to_thread(talk)


@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_listening_on_an_address(anyio_backend: Any) -> None:
    opened = await Address("127.0.0.1", 0, "http").open()
    address = opened[0].getsockname()
    (server,) = await listen(opened, Hello, backlog=10)
    assert await talk_to(address) == b"hello"
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await talk_to(address)


@posix
@pytest.mark.parametrize("anyio_backend", LOOPS)
@pytest.mark.parametrize("source", ["path", "descriptor", "given"])
async def test_listening_on_a_unix_socket(anyio_backend: Any, source: str, tmp_path: Path) -> None:
    """SOCK-12, SOCK-15"""
    path = str(tmp_path / "s")
    unix = None
    if source == "path":
        opened = await UnixPath(path).open()
    else:
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(path)
        opened = await (Descriptor(unix.fileno()) if source == "descriptor" else Given([unix])).open()
    (server,) = await listen(opened, Hello, backlog=10)
    assert await talk_to(path) == b"hello"
    server.close()
    await server.wait_closed()
    if unix is not None:
        unix.close()


@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_backlog_is_handed_to_the_system(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """LIM-11"""
    heard: list[int] = []

    class Listening(socket.socket):
        def listen(self, backlog: int = 0) -> None:
            heard.append(backlog)
            super().listen(backlog)

    with socket.socket() as plain:
        plain.bind(("127.0.0.1", 0))
        sock = Listening(fileno=plain.detach())
    (server,) = await listen([sock], Hello, backlog=321)
    server.close()
    await server.wait_closed()
    assert heard == [321]


@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_all_are_closed_when_one_cannot_listen(anyio_backend: Any) -> None:
    """LIFE-10"""
    with socket.socket() as taken:
        good, bad, unused = socket.socket(), socket.socket(), socket.socket()
        for sock in (taken, bad):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        bad.bind(taken.getsockname())
        taken.listen()
        good.bind(("127.0.0.1", 0))
        address = good.getsockname()
        with pytest.raises(OSError):
            await listen([good, bad, unused], Hello, backlog=5)
        assert unused.fileno() == -1
        await wait_until(lambda: not is_listening(address))


# Through the command line

APP = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@posix
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM], ids=["sigint", "sigterm"])
def test_socket_file_is_served_and_removed(cwd: Path, loop: str, sig: signal.Signals) -> None:
    """SOCK-10, SOCK-11: also after SIGTERM, on every loop and Python version."""
    path = cwd / "s"
    with ServerProcess("app:app", "--uds", path, "--loop", loop, cwd=cwd) as server:
        server.wait_for(f"Uvicorn running on unix socket {path} (Press CTRL+C to quit)\n")
        assert request(str(path)).endswith(b"ok")
        server.stop(sig)
        assert not path.exists()
        assert ' - "GET / HTTP/1.1" 200 OK' in server.output


@posix
@pytest.mark.parametrize("workers", ["1", "2"])
def test_descriptor_is_served_and_left_alone(cwd: Path, workers: str) -> None:
    """SOCK-12, SOCK-13, MP-22"""
    path = cwd / "s"
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
        fd = str(unix.fileno())
        with ServerProcess("app:app", "--fd", fd, "--workers", workers, cwd=cwd, pass_fds=[unix.fileno()]) as server:
            server.wait_for(f"Uvicorn running on socket {path} (Press CTRL+C to quit)\n")
            server.wait_for("Application startup complete.", count=int(workers))
            wait_for(lambda: is_listening(str(path)))
            assert request(str(path)).endswith(b"ok")
            server.stop(signal.SIGINT)
    assert path.exists()


def test_bind_failure_comes_after_the_lifespan_and_shuts_it_down(cwd: Path, sock: socket.socket) -> None:
    """LIFE-09, LIFE-10"""
    (cwd / "app.py").write_text(
        "async def app(scope, receive, send):\n"
        "    for kind in ('startup', 'shutdown'):\n"
        "        await receive()\n"
        "        await send({'type': f'lifespan.{kind}.complete'})\n"
    )
    sock.listen()
    port = sock.getsockname()[1]
    with ServerProcess("app:app", "--port", str(port), cwd=cwd) as server:
        assert server.wait() == 3
        text = server.error_output
    assert "running on" not in text
    expected = [
        "INFO:     Application startup complete.",
        f"ERROR:    [Errno {errno.EADDRINUSE}] error while attempting to bind on address ('127.0.0.1', {port}): ",
        "INFO:     Another program listens there.",
        "INFO:     Waiting for application shutdown.",
        "INFO:     Application shutdown complete.",
    ]
    shown = text.splitlines()[-5:]
    assert [line.startswith(start) for line, start in zip(shown, expected, strict=True)] == [True] * 5, text


@pytest.mark.measures_children
@posix
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--fd", "987"), "Cannot use fd=987: descriptor 987 is not open; "),
        (
            ("--uds", "/nonexistent/s"),
            "Cannot use uds='/nonexistent/s': there is no directory '/nonexistent'; create it",
        ),
        (("--uds", "app.py"), "Cannot use uds='app.py': this file is no socket; choose another path, or remove it"),
        (("--uds", "."), "Cannot use uds='.': this is a directory; choose a path in it"),
        (("--host", "nowhere.invalid"), "Cannot use host='nowhere.invalid': "),
        (
            ("--bind", "systemd"),
            "Cannot use bind='systemd': no sockets were handed over; start the server by a systemd ",
        ),
    ],
    ids=["fd", "uds", "file", "directory", "host", "systemd"],
)
def test_address_that_cannot_be_used_is_one_line(cwd: Path, arguments: tuple[str, str], line: str) -> None:
    """LIFE-10: no traceback."""
    with ServerProcess("app:app", *arguments, cwd=cwd) as server:
        assert server.wait() == 3
        assert "Traceback" not in server.error_output
        assert server.error_output.count("ERROR:") == 1
        assert f"ERROR:    {line}" in server.error_output


@posix
@pytest.mark.parametrize(
    "arguments",
    [("--fd", "987"), ("--uds", "/nonexistent/directory/s"), ("--host", "nowhere.invalid")],
    ids=["fd", "uds", "host"],
)
def test_parent_that_cannot_bind_starts_no_child(cwd: Path, arguments: tuple[str, str]) -> None:
    """SOCK-06, SOCK-09"""
    with ServerProcess("app:app", *arguments, "--workers", "2", cwd=cwd) as server:
        assert server.wait() == 3
        assert "Traceback" not in server.error_output
        assert server.error_output.count("ERROR:") == 1
        assert "Started" not in server.error_output


def test_module_says_how_to_call_it() -> None:
    assert sockets.__doc__ and "release" in sockets.__doc__


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("setting", ["--uds", "--metrics", "--port"])
def test_what_cannot_be_bound_ends_with_one_status(tmp_path: Path, setting: str, workers: str) -> None:
    """SOCK-06, X1: whatever it is bound for."""
    (tmp_path / "app.py").write_text("async def app(scope, receive, send):\n    pass\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        values = {"--uds": "missing/app.sock", "--metrics": f"127.0.0.1:{port}", "--port": str(port)}
        given = [*(() if setting == "--port" else ("--port", "0")), setting, values[setting]]
        with ServerProcess("app:app", *given, "--workers", workers, cwd=tmp_path) as server:
            assert server.wait() == 3
            assert "ERROR" in server.error_output and "Traceback" not in server.error_output
