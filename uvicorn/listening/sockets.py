"""The places where a server listens: six sources of sockets, and the operations on each.

| | `bind`, for a parent of processes | `open`, for a single process | `describe` | `release` |
|---|---|---|---|---|
| `Address` (host, port) | one socket, IPv6 for a colon | one for each address of the name | URL | nothing |
| `UnixPath` (uds) | a new file, replacing a stale socket | the same | path | removes the file |
| `Descriptor` (fd) | a duplicate | a duplicate | socket name | nothing |
| `Passed` (in bind) | duplicates of what systemd has handed over | the same | socket names | nothing |
| `Several` (bind) | all that `open` opens | what each place of the list opens | a line for each | removes the files |
| `Given` (sockets) | not needed | the sockets themselves | nothing | nothing |

`bind` and `open` do not listen; `listen` does, for all of them. Failures are `OSError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import inspect
import logging
import os
import re
import socket
import ssl
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from uvicorn.listening import handover
from uvicorn.listening.acceptor import OPEN, Acceptor, Checkpoint, NativeAcceptor, WatchedServer
from uvicorn.listening.loads import WorkerLoad
from uvicorn.logging.ansi import style
from uvicorn.metrics.page import Page

if TYPE_CHECKING:
    from uvicorn._native import Poller

LONGEST_UNIX_PATH = 107 if sys.platform == "linux" else 103
"""Bytes in `sun_path` before its NUL."""

PORTS_TRIED = 100
"""Free TCP ports that are tried for one that is free for UDP, too."""

_RUNNING = "Uvicorn running on "
_QUIT = " (Press CTRL+C to quit)"


class SocketConfig(Protocol):
    """The settings that decide which sockets to open."""

    port: int
    uds: str | None
    fd: int | None

    @property
    def host(self) -> str | Sequence[str] | None:
        """A name or an address, a list of them, or None for all interfaces."""

    @property
    def bind(self) -> Sequence[str]:
        """Places as `place_of` reads them; none where host, port, uds and fd hold."""

    @property
    def is_ssl(self) -> bool:
        """Whether the server speaks TLS: decides the scheme of the URL that is logged."""


@dataclass(frozen=True)
class RunningLine:
    """The line that says where the server can be reached; `place` is a format for `args`."""

    place: str
    args: tuple[object, ...]

    def log(self, logger: logging.Logger) -> None:
        """Write it to the error log, by the name under which the module of the caller has it."""
        color_message = _RUNNING + style(self.place, bold=True) + _QUIT
        logger.info(_RUNNING + self.place + _QUIT, *self.args, extra={"color_message": color_message})


class Listener(Protocol):
    """Serves a listening socket: asyncio's own server, another loop's, or an `Acceptor`."""

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The sockets it listens on; none once closed."""

    def close(self) -> None:
        """Refuse new connections and close the sockets."""

    async def wait_closed(self) -> None:
        """Return once that is done."""


class Source(Protocol):
    """Where sockets come from; see the table at the top."""

    def bind(self) -> list[socket.socket]:
        """Bound sockets for several processes to listen on; blocks while a name is resolved."""

    async def open(self) -> list[socket.socket]:
        """The sockets of a single process, bound but not listening."""

    def check(self) -> None:
        """Find out, without binding anything, whether `bind` would fail for lack of a descriptor or a directory.

        Raises:
            OSError: it would.
        """

    def places(self) -> list[str]:
        """Where that is, as the setting `bind` has it."""

    def describe(self, bound: Sequence[socket.socket]) -> list[RunningLine]:
        """Describe the bound sockets for the log line that announces them."""

    def release(self) -> None:
        """Undo the effects of `open` outside the process; called after the sockets are closed."""


def source_of(config: SocketConfig, given: Sequence[socket.socket] | None = None) -> Source:
    """The source in force: sockets that were given, then `bind`, then `fd`, then `uds`, then host and port."""
    if given is not None:
        return Given(given)
    with_udp = getattr(config, "http3", False)
    if config.bind:
        return Several(config.bind, _scheme(config), with_udp=with_udp)
    if config.fd is not None:
        return Descriptor(config.fd)
    if config.uds:
        return UnixPath(config.uds)
    return Address(config.host, config.port, _scheme(config), with_udp=with_udp)


def setting_of(config: SocketConfig) -> str | None:
    """Return the setting that names that source, as `name=value`; None for host and port."""
    name = "bind" if config.bind else "fd" if config.fd is not None else "uds" if config.uds else None
    return None if name is None else f"{name}={getattr(config, name)!r}"


def _scheme(config: SocketConfig) -> str:
    return "https" if config.is_ssl else "http"


def place_of(text: str) -> Address | UnixPath | Descriptor | Passed:
    """Return the place that a member of `bind` names: `HOST:PORT`, `unix:PATH`, `fd:NUMBER`, `systemd[:NAME]`.

    Raises:
        ValueError: it is none of these.
    """
    kind, _, rest = text.partition(":")
    if kind == "unix" and rest:
        check_unix_path(rest)
        return UnixPath(rest)
    if kind == "fd" and re.fullmatch("[0-9]{1,9}", rest):
        return Descriptor(int(rest))
    if text == "systemd" or (kind == "systemd" and rest):
        return Passed(rest or None)
    try:
        host, port = parse_address(text)
    except BadPort:
        raise
    except ValueError:
        raise ValueError("it must be HOST:PORT, unix:PATH, fd:NUMBER, systemd or systemd:NAME.") from None
    check_host(host)
    return Address(host, port, name=f"bind={text!r}")


def check_unix_path(path: str) -> None:
    """Refuse a path that no Unix socket can have.

    Raises:
        ValueError: it is too long.
    """
    if (length := len(os.fsencode(path))) > LONGEST_UNIX_PATH:
        raise ValueError(f"the path of a Unix socket has at most {LONGEST_UNIX_PATH} bytes, not {length}.")


def datagram_sockets(config: SocketConfig) -> list[socket.socket]:
    """Return duplicates of the UDP sockets among the descriptors that `bind` names.

    Raises:
        OSError: a descriptor is not open, or the service manager has handed over none.
    """
    found: list[socket.socket] = []
    with _closing_on_error(found):
        for place in map(place_of, config.bind):
            if isinstance(place, Descriptor | Passed):
                found += [socket.socket(fileno=os.dup(number)) for number in place.datagrams()]
    return found


def unix_paths(config: SocketConfig) -> list[str]:
    """The files of Unix sockets that are bound for this configuration."""
    if config.bind:
        return [place.path for place in map(place_of, config.bind) if isinstance(place, UnixPath)]
    return [config.uds] if config.uds and config.fd is None else []


def close_later(stack: contextlib.ExitStack, config: SocketConfig, bound: Sequence[socket.socket]) -> None:
    """Have `stack` close the sockets bound for this configuration, then remove the files of Unix sockets."""
    for path in unix_paths(config):
        stack.callback(SocketFile(path).remove)
    for sock in bound:
        stack.callback(sock.close)


def check_host(host: object) -> None:
    """Refuse a host with a port or in brackets, a URL, a name that cannot be one, or a list with one of these.

    Raises:
        ValueError: it is one.
    """
    if not isinstance(host, str):
        for one in host if isinstance(host, Iterable) else ():
            check_host(one)
    elif found := re.fullmatch(r"([^:\[\]]*):([0-9]+)|\[(.*)\](?::([0-9]+))?", host):
        name, port = found[1] or found[3] or "127.0.0.1", found[2] or found[4]
        text = f"the port is a setting of its own; use host {name} and port {port}"
        raise ValueError(f"{text}." if port else f"write it without brackets: {name}.")
    elif "/" in host:
        raise ValueError("it is a URL or a path; use the name or address alone.")
    elif ":" not in host and host and not all(0 < len(label) < 64 for label in host.removesuffix(".").split(".")):
        raise ValueError("no host has this name; use 1 to 63 characters between dots.")


class BadPort(ValueError):
    """The port of an address is too large."""


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; an IPv6 address is in brackets.

    Raises:
        ValueError: it is not of this form.
    """
    found = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]*)):([0-9]{1,9})", text)
    if found is None:
        raise ValueError("it must be HOST:PORT.")
    if int(found[3]) > 65535:
        raise BadPort(f"{found[3]} is no port: they end at 65535.")
    return found[1] or found[2], int(found[3])


def bind_sockets(config: SocketConfig, logger: logging.Logger, *, one: bool = False) -> list[socket.socket]:
    """Bind the sockets that several processes are going to share, and log where.

    There is one, unless `bind` names more, or the host is a list, or not set: then one will do if it must be (`one`).

    Raises:
        OSError: an address is taken or cannot be resolved, a descriptor is not open.
    """
    source = source_of(config)
    bound = source.bind_one() if one and isinstance(source, Address) else source.bind()
    for sock in bound:
        sock.set_inheritable(True)
    for line in source.describe(bound):
        line.log(logger)
    return bound


async def listen(
    bound: Sequence[socket.socket],
    factory: Callable[[], asyncio.BaseProtocol],
    *,
    backlog: int,
    context: ssl.SSLContext | None = None,
    handshake_timeout: float | None = None,
    place: WorkerLoad | None = None,
    metrics: Page | None = None,
    checkpoint: Checkpoint = OPEN,
) -> list[Listener]:
    """Listen on each socket and serve its connections with protocols made by `factory`.

    With `context`, connections are TLS and have `handshake_timeout` seconds to become so. With `place`, this is one
    of several processes that share the sockets: where they are served natively, each takes about as many connections
    as the others. With `metrics`, how long connections wait for their turns is counted there. `checkpoint` is what
    connections have to pass before they are served. The sockets belong to the servers returned: closing a server closes
    its socket. When one of them cannot listen, all are closed.

    Raises:
        OSError: a socket cannot listen, or the loop cannot do what `checkpoint` takes.
    """
    loop = asyncio.get_running_loop()
    servers: list[Listener] = []
    poller = _poller_for(loop, place, metrics)
    try:
        for sock in bound:
            if poller is not None:
                native = NativeAcceptor(
                    sock,
                    factory,
                    backlog=backlog,
                    poller=poller,
                    context=context,
                    handshake_timeout=handshake_timeout,
                    checkpoint=checkpoint,
                    is_shared=place is not None,
                )
                await native.start_serving()
                servers.append(native)
            else:
                is_shared = place is not None
                servers.append(
                    await _listen_on(loop, sock, factory, backlog, context, handshake_timeout, checkpoint, is_shared)
                )
    except BaseException:
        for server in servers:
            server.close()
        for sock in bound[len(servers) :]:
            sock.close()
        raise
    return servers


def _poller_for(loop: asyncio.AbstractEventLoop, place: WorkerLoad | None, metrics: Page | None) -> Poller | None:
    """Return the native poller of `loop`; None if there is none."""
    if not sys.platform.startswith("linux"):
        return None
    if not (isinstance(loop, asyncio.SelectorEventLoop) or type(loop).__module__.partition(".")[0] == "uvloop"):
        return None
    try:
        from uvicorn._native import Poller
    except ImportError:
        return None
    poller = Poller(loop)
    if place is not None:
        poller.share(os.dup(place.file.descriptor), place.index)
    if metrics is not None:
        poller.measure(metrics.words)
    return poller


async def wait_opened(listeners: Sequence[Listener]) -> None:
    """Return when connections that were accepted before `listeners` were closed have their protocols, or never will.

    That is soon. Listeners that are not ours cannot tell; what they accepted has its protocol in a turn or two of the
    loop, TLS excepted.
    """
    for listener in listeners:
        if isinstance(listener, Acceptor):
            await listener.wait_closed()


async def _listen_on(
    loop: asyncio.AbstractEventLoop,
    sock: socket.socket,
    factory: Callable[[], asyncio.BaseProtocol],
    backlog: int,
    context: ssl.SSLContext | None,
    handshake_timeout: float | None,
    checkpoint: Checkpoint,
    is_shared: bool = False,
) -> Listener:
    # uvloop times handshakes by its own clock, even if it could not read the peer's data meanwhile.
    is_ours = isinstance(loop, asyncio.SelectorEventLoop) or (context is not None and _is_uvloop(loop))
    if is_ours or not checkpoint.is_open:
        acceptor = Acceptor(
            sock,
            factory,
            backlog=backlog,
            context=context,
            handshake_timeout=handshake_timeout,
            checkpoint=checkpoint,
            is_shared=is_shared,
        )
        try:
            await acceptor.start_serving()
        except NotImplementedError:
            name = type(loop).__name__
            raise OSError(f"{name} cannot wait for PROXY headers, nor count connections: use another loop") from None
        return acceptor
    sock.listen(backlog)  # uvloop keeps it to itself when this fails
    create, options = _native_server(loop, sock)
    if context is not None:
        options.update(ssl=context, ssl_handshake_timeout=handshake_timeout)
    server: asyncio.AbstractServer = await create(factory, sock=sock, backlog=backlog, **options)
    listener: Any = WatchedServer(server, sock) if _is_uvloop(loop) else server
    return cast(Listener, listener)


def _is_uvloop(loop: asyncio.AbstractEventLoop) -> bool:
    return type(loop).__module__.partition(".")[0] == "uvloop"


def _native_server(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The loop's own function that serves `sock`, and options for it."""
    if sys.platform == "win32" or sock.family != socket.AF_UNIX:
        return loop.create_server, {}
    # Whether the file is to be removed is a matter of the source; older loops know no such option and remove nothing.
    cleans_up = "cleanup_socket" in inspect.signature(loop.create_unix_server).parameters
    return loop.create_unix_server, {"cleanup_socket": False} if cleans_up else {}


class Address:
    """A host and a port. A host that is not set means all interfaces; a list of hosts means each of them.

    Attributes:
        with_udp: whether a free port has to be free for UDP, too.
    """

    def __init__(
        self,
        host: str | Sequence[str] | None,
        port: int,
        scheme: str = "http",
        *,
        name: str | None = None,
        with_udp: bool = False,
    ) -> None:
        self.with_udp = with_udp
        self._name = name or f"host={host!r}"
        self._host = host
        self._hosts = [host] if host is None or isinstance(host, str) else list(host)
        self._port = port
        self._scheme = scheme

    def bind(self) -> list[socket.socket]:
        """Bind one socket: IPv6 if the host has a colon, else IPv4 (SOCK-02). Without one host bind as `bind_each`."""
        if not isinstance(self._host, str):
            return self.bind_each()
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        if (taken := handover.current.take(family, (self._host, self._port))) is not None:
            return [taken]
        with _naming(self._name, socket.gaierror):
            return [self._bind(family, (self._host, self._port))]

    def bind_one(self) -> list[socket.socket]:
        """The same, but all interfaces share one socket, for both families where the system has IPv6."""
        if self._host is not None:
            return self.bind()
        try:
            return [self._bind(socket.AF_INET6, ("::", self._port), v6_only=False)]
        except OSError as exc:
            if exc.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            return Address("0.0.0.0", self._port, with_udp=self.with_udp).bind()

    def _bind(self, family: int, address: Any, v6_only: bool | None = None) -> socket.socket:
        """Bind a socket; for a free port, one that UDP can have, too, if it needs that."""
        for _ in range(PORTS_TRIED):
            sock = socket.socket(family, socket.SOCK_STREAM)
            with _closing_on_error([sock]):
                if v6_only is not None:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6_only)
                _bind_tcp(sock, address)
            if not self.with_udp or address[1] != 0 or _is_free_for_udp(sock.getsockname(), family):
                return sock
            sock.close()
        raise AddressError(
            errno.EADDRINUSE, "error while attempting to bind: no free port is free for UDP, too (http3)"
        )

    async def open(self) -> list[socket.socket]:
        """A socket for every address the host resolves to; no host means all interfaces.

        An address whose family this machine does not have is left out as long as another one remains.
        """
        return self._open_each(await self._resolve())

    def bind_each(self) -> list[socket.socket]:
        """Open the same sockets as `open`; blocks while a name is resolved."""
        with _naming(self._name, socket.gaierror):
            addresses = self._resolve_now(0)
        return self._open_each(addresses)

    def _open_each(self, addresses: Iterable[tuple[int, Any]]) -> list[socket.socket]:
        opened: list[socket.socket] = []
        unavailable: OSError | None = None
        with _closing_on_error(opened):
            for family, address in addresses:
                try:
                    opened.append(self._open_one(family, address))
                except OSError as exc:
                    if exc.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
                    unavailable = exc
            if not opened:
                raise unavailable or OSError(f"host={self._host!r} names no address")
        return opened

    async def _resolve(self) -> list[tuple[int, Any]]:
        """Family and address for each address of the host, in the order of preference, without repetitions."""
        try:
            return self._resolve_now(socket.AI_NUMERICHOST)  # numbers need no resolver, hence no thread
        except socket.gaierror:
            resolve = asyncio.get_running_loop().getaddrinfo
            options: dict[str, Any] = {"type": socket.SOCK_STREAM, "flags": socket.AI_PASSIVE}
            with _naming(self._name, socket.gaierror):
                return _distinct([await resolve(host or None, self._port, **options) for host in self._hosts])

    def _resolve_now(self, flags: int) -> list[tuple[int, Any]]:
        options: dict[str, Any] = {"type": socket.SOCK_STREAM, "flags": flags | socket.AI_PASSIVE}
        return _distinct([socket.getaddrinfo(host or None, self._port, **options) for host in self._hosts])

    def _open_one(self, family: int, address: Any) -> socket.socket:
        if (taken := handover.current.take(family, address)) is not None:
            return taken
        # All interfaces are two sockets, one of each family; they would collide otherwise.
        v6_only = True if family == socket.AF_INET6 and hasattr(socket, "IPV6_V6ONLY") else None
        return self._bind(family, address, v6_only)

    def check(self) -> None:
        """A running server may have it."""

    def places(self) -> list[str]:
        """Host and port as configured; all interfaces are two hosts."""
        hosts = ["0.0.0.0", "::"] if self._host is None else self._hosts
        return [f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}" for host in map(str, hosts)]

    def describe(self, bound: Sequence[socket.socket]) -> list[RunningLine]:
        """The URL, with the host as configured and the port as bound; without a host, that of the first socket."""
        host, port = bound[0].getsockname()[:2]
        if isinstance(self._host, str):
            return [_url(self._scheme, self._host, port)]
        if self._host is None:
            return [_url(self._scheme, host, port)]
        return [_url(self._scheme, *sock.getsockname()[:2]) for sock in bound]

    def release(self) -> None:
        """Nothing is left behind."""


class SocketFile:
    """The file of a Unix socket that has just been bound, if there is one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode: int | None = None
        with contextlib.suppress(OSError):
            self._inode = os.stat(path).st_ino

    def remove(self) -> None:
        """Remove it, unless it belongs to another process of an upgrade, or another server has put its own there."""
        if handover.current.keeps(self._path):
            return
        with contextlib.suppress(OSError):  # gone, or its directory is
            if os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)


class UnixPath:
    """A Unix socket file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: SocketFile | None = None

    def bind(self) -> list[socket.socket]:
        """The same as `open`; errors name the path."""
        with _naming(f"uds={self.path!r}"):
            return self.bind_each()

    async def open(self) -> list[socket.socket]:
        """Create a socket file that any user may connect to, whatever the umask (SOCK-07).

        The socket file of a killed server is replaced and keeps its permissions. Any other file is an error, above all
        the socket of a running server, which no client could reach any more.
        """
        return self.bind_each()

    def bind_each(self) -> list[socket.socket]:
        """The same, without an event loop."""
        if (taken := handover.current.take_file(self.path)) is not None:
            self._file = SocketFile(self.path)
            return [taken]
        mode = 0o666
        if _is_left_behind(self.path):
            with contextlib.suppress(FileNotFoundError):
                mode = stat.S_IMODE(os.stat(self.path).st_mode)
                os.unlink(self.path)
        sock = self._bind(mode)
        self._file = SocketFile(self.path)
        return [sock]

    def _bind(self, mode: int) -> socket.socket:
        sock = _unix_socket()
        with _closing_on_error([sock]):
            try:
                sock.bind(self.path)
            except OSError as exc:
                self.check()
                reason = "another program has bound it; end that, or choose another path"
                raise PlaceError(exc.errno, reason if exc.errno == errno.EADDRINUSE else exc.strerror) from None
            os.chmod(self.path, mode)
        return sock

    def check(self) -> None:
        """Its directory exists, and nothing but a socket is at the path."""
        directory = os.path.dirname(self.path) or "."
        if self.path.startswith("\0"):
            return
        if not os.path.isdir(directory):
            raise PlaceError(errno.ENOENT, f"there is no directory {directory!r}; create it, or choose another path")
        if os.path.isdir(self.path):
            raise PlaceError(errno.EADDRINUSE, "this is a directory; choose a path in it")
        if os.path.exists(self.path) and not stat.S_ISSOCK(os.stat(self.path).st_mode):
            raise PlaceError(errno.EADDRINUSE, "this file is no socket; choose another path, or remove it")

    def places(self) -> list[str]:
        """The path as configured."""
        return [f"unix:{self.path}"]

    def describe(self, bound: Sequence[socket.socket]) -> list[RunningLine]:
        """The path as configured."""
        return [RunningLine("unix socket %s", (self.path,))]

    def release(self) -> None:
        """Remove the socket file, unless another server has put its own there meanwhile."""
        if self._file is not None:
            self._file.remove()


class Descriptor:
    """A socket opened by the parent process and inherited as a file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def bind(self) -> list[socket.socket]:
        """Duplicate the descriptor; the original stays open, since it is not ours to close."""
        try:
            duplicate = os.dup(self._fd)
        except OSError as exc:
            raise self._error(exc.errno, "not open") from None
        try:
            sock = socket.socket(fileno=duplicate)
        except OSError as exc:
            os.close(duplicate)
            raise self._error(exc.errno, "no socket") from None
        if (fault := _why_not_listening(sock)) is not None:
            sock.close()
            raise self._error(errno.EOPNOTSUPP, fault)
        return [sock]

    def _error(self, number: int | None, fault: str) -> OSError:
        needed = "a TCP or Unix stream socket that can listen is needed (ListenStream= of systemd)"
        return PlaceError(number, f"descriptor {self._fd} is {fault}; {needed}")

    def datagrams(self) -> list[int]:
        """The descriptor, if it is that of a UDP socket."""
        return [self._fd] if _is_udp(self._fd) else []

    async def open(self) -> list[socket.socket]:
        """The same duplicate."""
        return self.bind()

    bind_each = bind

    def check(self) -> None:
        """It is open, and can listen."""
        for sock in self.bind():
            sock.close()

    def places(self) -> list[str]:
        """The number as configured."""
        return [f"fd:{self._fd}"]

    def describe(self, bound: Sequence[socket.socket]) -> list[RunningLine]:
        """The name of the socket: a path, or a tuple of address and port."""
        return [RunningLine("socket %s", (bound[0].getsockname(),))]

    def release(self) -> None:
        """Keep the file: a socket file behind the descriptor belongs to the process that created it (SOCK-13)."""


class Passed:
    """The sockets that systemd has opened for this process, all or those with a given name.

    They stay open, so that clients are not refused while the service restarts.

    Attributes:
        skips_datagrams: whether UDP sockets are for `datagrams` only.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self.skips_datagrams = False

    def bind_each(self) -> list[socket.socket]:
        """A duplicate of each."""
        bound: list[socket.socket] = []
        with _closing_on_error(bound):
            for descriptor in self._descriptors():
                if not (self.skips_datagrams and _is_udp(descriptor)):
                    bound += Descriptor(descriptor).bind()
        return bound

    def datagrams(self) -> list[int]:
        """The descriptors of UDP sockets."""
        return [descriptor for descriptor in self._descriptors() if _is_udp(descriptor)]

    def _descriptors(self) -> list[int]:
        from uvicorn.listening.systemd import passed_descriptors  # needed by few

        return passed_descriptors(self._name)

    def check(self) -> None:
        """Only the service itself has them."""

    def release(self) -> None:
        """Keep them: systemd owns them."""


class Several:
    """All the places of a list, each opened as by a single process, even in the parent of worker processes.

    Raises:
        ValueError: a member of the list names no place.
    """

    def __init__(self, texts: Sequence[str], scheme: str, *, with_udp: bool = False) -> None:
        self._scheme = scheme
        self._places = [(text, place_of(text)) for text in texts]
        if with_udp:
            for _, place in self._places:
                if isinstance(place, Passed):
                    place.skips_datagrams = True
                elif isinstance(place, Address):
                    place.with_udp = True
            self._places = [(text, place) for text, place in self._places if not _is_datagram(place)]

    def bind(self) -> list[socket.socket]:
        """The sockets of all; when one cannot be bound, none is."""
        opened: list[socket.socket] = []
        try:
            with _closing_on_error(opened):
                for text, place in self._places:
                    # The error of an address already names it.
                    with contextlib.nullcontext() if isinstance(place, Address) else _naming(f"bind={text!r}"):
                        opened += place.bind_each()
        except OSError:
            self.release()
            raise
        return opened

    async def open(self) -> list[socket.socket]:
        """The same; names are resolved beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(None, self.bind)

    def check(self) -> None:
        """Each of them."""
        for _, place in self._places:
            place.check()

    def places(self) -> list[str]:
        """The list."""
        return [text for text, _ in self._places]

    def describe(self, bound: Sequence[socket.socket]) -> list[RunningLine]:
        """Where each of them is."""
        return [self._line_of(sock) for sock in bound]

    def _line_of(self, bound: socket.socket) -> RunningLine:
        name = bound.getsockname()
        if isinstance(name, tuple):
            return _url(self._scheme, *name[:2])
        return RunningLine("unix socket %s", (name,))

    def release(self) -> None:
        """Remove the socket files."""
        for _, place in self._places:
            place.release()


class Given:
    """Sockets passed to `Server.serve()`, by a parent process or by the program the server is embedded in."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = sockets

    def bind(self) -> list[socket.socket]:
        """Sockets that were given are bound already."""
        raise NotImplementedError("sockets that were given are bound already")

    async def open(self) -> list[socket.socket]:
        """The sockets; on Windows duplicates that belong to this process, as a loop there needs them."""
        return [_share(sock) for sock in self._sockets]

    def check(self) -> None:
        """They are bound."""

    def places(self) -> list[str]:
        """Return nothing: the process that bound the sockets lists them."""
        return []

    def describe(self, bound: Sequence[socket.socket]) -> list[RunningLine]:
        """Return nothing: the process that bound the sockets has logged them."""
        return []

    def release(self) -> None:
        """Nothing is left behind."""


def _distinct(found: Sequence[Sequence[tuple[Any, ...]]]) -> list[tuple[int, Any]]:
    """Family and address of each that was found for any of the hosts, once."""
    return list(dict.fromkeys((int(family), address) for each in found for family, _, _, _, address in each))


def _url(scheme: str, host: str, port: int) -> RunningLine:
    return RunningLine("%s://[%s]:%d" if ":" in host else "%s://%s:%d", (scheme, host, port))


@contextlib.contextmanager
def _naming(place: str, kind: type[OSError] = OSError) -> Iterator[None]:
    """Have errors of this kind name the setting whose place cannot be bound."""
    try:
        yield
    except kind as exc:
        # The numbers of a resolver's errors mean something else.
        number = None if isinstance(exc, socket.gaierror) else exc.errno
        raise PlaceError(number, f"Cannot use {place}: {exc.strerror or exc}") from None


def _bind_tcp(sock: socket.socket, address: Any) -> None:
    """Bind, also while connections of a predecessor linger; the error names the address."""
    if sys.platform != "win32":  # there the option would allow to take over an address in use
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except socket.gaierror:
        raise
    except OSError as exc:
        reason = (exc.strerror or str(exc)).lower()
        raise AddressError(exc.errno, f"error while attempting to bind on address {address!r}: {reason}") from None


def _is_free_for_udp(address: Any, family: int) -> bool:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(address)
        except OSError as exc:
            return exc.errno != errno.EADDRINUSE
        return True


class PlaceError(OSError):
    """A place that cannot be bound; its text goes without the number."""

    def __str__(self) -> str:
        return str(self.strerror)


class AddressError(OSError):
    """A TCP address that cannot be bound."""

    @property
    def hint(self) -> str | None:
        """What to do about it, if that is known."""
        if self.errno == errno.EADDRINUSE:
            return "Another program listens there. End it, or choose another port (--port; 0 stands for any free one)."
        if self.errno == errno.EACCES:
            return "Ports below 1024 need a privilege (CAP_NET_BIND_SERVICE). Choose another one (--port)."
        if self.errno == errno.EADDRNOTAVAIL:
            return "This machine has no such address. Name one of its own (--host; 0.0.0.0 stands for all of IPv4)."
        return None


def _is_left_behind(path: str) -> bool:
    """Whether this socket file has lost its socket.

    Then a datagram socket is refused. If a server is bound, even one that does not listen yet, the type is wrong.
    """
    if sys.platform == "win32":
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            if stat.S_ISSOCK(os.stat(path).st_mode):
                probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def _is_datagram(place: object) -> bool:
    return isinstance(place, Descriptor) and bool(place.datagrams())


def _is_udp(descriptor: int) -> bool:
    """Whether it is an open UDP socket."""
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:
        return False
    try:
        return sock.type == socket.SOCK_DGRAM and sock.family in (socket.AF_INET, socket.AF_INET6)
    finally:
        sock.detach()


def _why_not_listening(sock: socket.socket) -> str | None:
    """Describe a socket that cannot listen; None for one that can."""
    if sock.type != socket.SOCK_STREAM:
        return f"a {getattr(sock.type, 'name', sock.type)} socket"
    try:
        sock.getpeername()
    except OSError:
        return None
    return "a connection"


def _unix_socket() -> socket.socket:
    if sys.platform == "win32":
        raise OSError(errno.EAFNOSUPPORT, "Unix sockets are not available on this platform")
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def _share(sock: socket.socket) -> socket.socket:
    if sys.platform == "win32":
        return socket.fromshare(sock.share(os.getpid()))
    return sock


@contextlib.contextmanager
def _closing_on_error(sockets: list[socket.socket]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
