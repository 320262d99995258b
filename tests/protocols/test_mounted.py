"""Mounted directories on real connections: which files are served, in which way, and that nothing else ever is."""

from __future__ import annotations

import asyncio
import errno
import functools
import hashlib
import importlib
import itertools
import logging
import os
import random
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests import loops, machines
from tests.native import http2_client
from tests.protocols.harness import Response, Service, descriptors, request, respond, serve
from tests.utils import turns, wait_until
from uvicorn.files import directory as beneath
from uvicorn.files import mounted
from uvicorn.files.directory import Directory
from uvicorn.files.media_types import media_type

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and devices are made here"),
]

anyio_backend = loops.one
http_protocol_cls = machines.each

LARGE = 3_000_001

CONTENT = random.Random(1).randbytes(LARGE)

SECRET = b"secret"

APP = respond(b"application")


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A directory with all that a directory can have in it, beside a file that is nobody's business."""
    (tmp_path / "secret.txt").write_bytes(SECRET)
    public = tmp_path / "public"
    for name in ("sub/.git", "bare", "a:b", "index.html.d"):
        (public / name).mkdir(parents=True)
    files = {
        "index.html": b"index",
        "a.txt": b"a",
        "sub/index.html": b"sub",
        "sub/deep.txt": b"deep",
        "sub/.git/config": SECRET,
        ".env": SECRET,
        "a:b/index.html": b"colon",
        "with space.txt": b"space",
        "größe.txt": b"umlaut",
        "100%.txt": b"percent",
        "%2e%2e.txt": b"literal",
        "back\\slash": SECRET,
    }
    for name, content in files.items():
        (public / name).write_bytes(content)
    (public / "large").write_bytes(CONTENT)
    links = {
        "link.txt": "a.txt",
        "sub/up.txt": "../a.txt",
        "out.txt": "../secret.txt",
        "out": "..",
        "absolute": str(tmp_path / "secret.txt"),
        "absolute-inside": str(public / "a.txt"),
        "loop": "loop",
        "process": "/proc/self/cwd",
        "null": "/dev/null",
    }
    for name, target in links.items():
        (public / name).symlink_to(target)
    os.mkfifo(public / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.getcwd()
        os.chdir(public)  # a path of a socket is short
        sock.bind("socket")
        os.chdir(here)
    return public


@pytest.fixture(params=["kernel", "walk"])
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who resolves paths: the kernel as a whole, or the server name by name."""
    kind: str = request.param
    if kind == "walk":
        monkeypatch.setattr(beneath, "_openat2", lambda: None)
    elif beneath._openat2() is None:
        pytest.skip("the kernel has no openat2")
    return kind


serve_files = functools.partial(serve, app=APP)


async def ask(service: Service, target: str, *fields: str, method: str = "GET") -> Response:
    client = await service.connect()
    response = await client.ask(request(method, target, *fields), method)
    client.close()
    return response


# Which names lead to what


FOUND = {
    "/static/a.txt": b"a",
    "/static/a.txt?v=1": b"a",
    "/static/": b"index",
    "/static/sub/": b"sub",
    "/static/sub/deep.txt": b"deep",
    "/static/with%20space.txt": b"space",
    "/static/gr%C3%B6%C3%9Fe.txt": b"umlaut",
    "/static/100%25.txt": b"percent",
    "/static/%252e%252e.txt": b"literal",
    "/static/%61.txt": b"a",
    "/%73tatic/a.txt": b"a",
    "http://test/static/a.txt": b"a",
}


async def test_names_lead_to_files(http_protocol_cls: Any, opener: str, public: Path) -> None:
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        for target, body in FOUND.items():
            response = await ask(service, target)
            assert (response.status, response.body) == (200, body), target


NOT_FOUND = [
    "/static/nothing",
    "/static/a.txt/",
    "/static/a.txt/b",
    "/static/bare/",
    "/static/bare",
    "/static/index.html.d",
    "/static/../secret.txt",
    "/static/sub/../../secret.txt",
    "/static/sub/../a.txt",
    "/static/./a.txt",
    "/static/%2e%2e/secret.txt",
    "/static/%2E%2E%2Fsecret.txt",
    "/static/..%2fsecret.txt",
    "/static/sub%2fdeep.txt",
    "/static/%2e/a.txt",
    "/static/..%5csecret.txt",
    "/static/..\\secret.txt",
    "/static/back%5cslash",
    "/static/%c0%ae%c0%ae/secret.txt",
    "/static/%c0%ae%c0%ae%c0%afsecret.txt",
    "/static/%e0%80%ae%e0%80%ae/secret.txt",
    "/static/%252e%252e/secret.txt",
    "/static/a.txt%00",
    "/static/a.txt%00.html",
    "/static/%00",
    "/static//a.txt",
    "/static/sub//deep.txt",
    "/static//etc/passwd",
    "/static/%2fetc%2fpasswd",
    "/static/.env",
    "/static/%2eenv",
    "/static/sub/.git/config",
    "/static/sub/.git/",
    "/static/out.txt",
    "/static/out/secret.txt",
    "/static/out/public/a.txt",
    "/static/absolute",
    "/static/loop",
    "/static/process",
    "/static/process/README.md",
    "/static/null",
    "/static/pipe",
    "/static/socket",
    "/static/pipe/",
    f"/static/{'a' * 300}",
    f"/static/{'a/' * 3000}",
    f"/static/{'a/' * 20000}",
    f"/static/{'%61' * 20000}",
]


async def test_nothing_else_is_served(http_protocol_cls: Any, opener: str, public: Path) -> None:
    """S2: whatever leads outside, is hidden or no regular file is not there, and the application is not asked."""
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        for target in NOT_FOUND:
            response = await ask(service, target)
            assert (response.status, response.body) == (404, b"Not Found"), target
            assert SECRET not in response.head, target


async def test_links_inside_are_followed_by_the_kernel_alone(http_protocol_cls: Any, opener: str, public: Path) -> None:
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        expected = (200, b"a") if opener == "kernel" else (404, b"Not Found")
        for target in ("/static/link.txt", "/static/sub/up.txt"):
            response = await ask(service, target)
            assert (response.status, response.body) == expected
        assert (await ask(service, "/static/absolute-inside")).status == 404


async def test_the_rest_is_the_applications(http_protocol_cls: Any, public: Path) -> None:
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        for target in ("/", "/staticx", "/stat", "/x/static/a.txt", "//static/a.txt", "/%2fstatic/a.txt"):
            assert (await ask(service, target)).body == b"application", target
        assert (await ask(service, "*", method="OPTIONS")).body == b"application"


@pytest.mark.parametrize("length", [4_000, 5_000, 13_000, 60_000])
async def test_whose_a_long_path_is_decides_what_answers(http_protocol_cls: Any, public: Path, length: int) -> None:
    """Below a mount nothing reaches the application, and beside one everything does."""
    long = b"a" * length
    below = [
        b"/static/" + long,
        b"/static/" + b"a/" * (length // 2),
        b"/%73tatic/" + long,
        b"/static/sub/" + long + b"/",
    ]
    beside = [b"/static" + long, b"/stat" + long, b"/%73tatic" + long, b"/" + long + b"/static/a.txt"]
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        for target in below:
            assert (await ask(service, target.decode())).status == 404, target[:20]
        for target in beside:
            assert (await ask(service, target.decode())).body == b"application", target[:20]
    # Where everything is below it, the questions of `--lifecycle-path` are answered at their own paths only.
    async with serve(http_protocol_cls, APP, mount=f"/={public}", lifecycle_path="/-/") as service:
        for target in (*beside, b"/-/live/" + long, b"/-/live%2f" + long):
            assert (await ask(service, target.decode())).status == 404, target[:20]


async def test_the_longest_path_wins(http_protocol_cls: Any, public: Path) -> None:
    mounts = [f"/={public / 'sub'}", f"/deep/er={public}", f"/deep={public / 'a:b'}"]
    async with serve(http_protocol_cls, APP, mount=mounts) as service:
        for target, body in {
            "/": b"sub",
            "/deep.txt": b"deep",
            "/deep/": b"colon",
            "/deep/er/": b"index",
            "/deep/er/a.txt": b"a",
        }.items():
            assert (await ask(service, target)).body == body
        assert (await ask(service, "/deeper")).status == 404


async def test_paths_are_matched_as_they_arrive(http_protocol_cls: Any, public: Path) -> None:
    for root_path in ("/proxied", "/größe"):
        async with serve(http_protocol_cls, APP, mount=f"/static={public}", root_path=root_path) as service:
            assert (await ask(service, "/static/a.txt")).body == b"a"
            assert (await ask(service, "/proxied/static/a.txt")).body == b"application"


async def test_directories_end_in_a_slash(http_protocol_cls: Any, opener: str, public: Path) -> None:
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        for target, location in {
            "/static": b"./static/",
            "/static?a=b": b"./static/?a=b",
            "/static/sub": b"./sub/",
            "/static/a:b": b"./a:b/",
            "/static/s%75b?%0d%0aset-cookie:a=b": b"./sub/?%0d%0aset-cookie:a=b",
        }.items():
            response = await ask(service, target)
            assert (response.status, response.values(b"location"), response.body) == (308, [location], b""), target


def test_media_types() -> None:
    for name, expected in {
        "a.html": "text/html; charset=utf-8",
        "a.HTML": "text/html; charset=utf-8",
        "a.js": "text/javascript; charset=utf-8",
        "a.json": "application/json",
        "a.svg": "image/svg+xml",
        "a.tar.gz": "application/gzip",
        "a.webm": "video/webm",
        "a.woff2": "font/woff2",
        "a.py": "text/x-python; charset=utf-8",
        "a.nobody-knows": "application/octet-stream",
        "a": "application/octet-stream",
        "html": "application/octet-stream",
    }.items():
        assert media_type(name) == expected.encode()


# What changes


@pytest.mark.parametrize("kind", ["kernel", "walk"])
def test_races_lead_nowhere(public: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: while somebody exchanges names for links and back, what is opened is inside, or nothing."""
    if kind == "walk":
        monkeypatch.setattr(beneath, "_openat2", lambda: None)
    (public / "way").mkdir()
    (public / "way" / "secret.txt").write_bytes(b"inside")
    (public / "trap").symlink_to("..")
    directory = Directory(str(public))
    directory.look()
    stopped = threading.Event()

    def exchange() -> None:
        while not stopped.wait(0.0001):  # what is inside stays a moment, however the threads take turns
            os.rename(public / "way", public / "aside")
            os.rename(public / "trap", public / "way")
            os.rename(public / "way", public / "trap")
            os.rename(public / "aside", public / "way")

    thread = threading.Thread(target=exchange)
    thread.start()
    seen: set[Any] = set()
    try:
        deadline = time.monotonic() + 20
        tries = itertools.count()
        while next(tries) < 5000 or (b"inside" not in seen and time.monotonic() < deadline):
            try:
                descriptor = directory.open(b"way/secret.txt")
            except OSError as exc:
                seen.add(exc.errno)
                continue
            seen.add(os.read(descriptor, 100))
            os.close(descriptor)
    finally:
        stopped.set()
        thread.join()
    assert SECRET not in seen
    assert b"inside" in seen
    assert seen <= {b"inside", errno.ENOENT, errno.EXDEV, errno.ELOOP, errno.ENOTDIR, errno.EAGAIN}


async def test_a_directory_that_is_exchanged_is_noticed(http_protocol_cls: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(name)
    current = tmp_path / "current"
    current.symlink_to("one")
    async with serve(http_protocol_cls, APP, mount=f"/static={current}") as service:
        assert (await ask(service, "/static/a")).body == b"one"
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").replace(current)
        assert (await ask(service, "/static/a")).body == b"two"
        current.unlink()
        assert (await ask(service, "/static/a")).status == 404
        current.symlink_to("one")
        assert (await ask(service, "/static/a")).body == b"one"


async def test_a_file_that_changes_is_never_told_by_old_validators(http_protocol_cls: Any, tmp_path: Path) -> None:
    """S4: not even of the same size, and with its time put back."""
    path = tmp_path / "a"
    path.write_bytes(b"one")
    status = path.stat()
    async with serve(http_protocol_cls, APP, mount=f"/={tmp_path}") as service:
        first = await ask(service, "/a")
        (etag,) = first.values(b"etag")
        assert (await ask(service, "/a", f"if-none-match: {etag.decode()}")).status == 304
        for write in (
            path.write_bytes,
            lambda data: (tmp_path / "b").write_bytes(data) and (tmp_path / "b").replace(path),
        ):
            write(b"two")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            again = await ask(service, "/a", f"if-none-match: {etag.decode()}")
            assert (again.status, again.body) == (200, b"two")
            assert again.values(b"last-modified") == first.values(b"last-modified")
            (etag,) = again.values(b"etag")


async def test_a_time_to_come_is_not_told(http_protocol_cls: Any, tmp_path: Path) -> None:
    """RFC 9110 section 8.8.2.1"""
    (tmp_path / "a").write_bytes(b"a")
    os.utime(tmp_path / "a", (time.time() + 1e6, time.time() + 1e6))
    async with serve(http_protocol_cls, APP, mount=f"/={tmp_path}", date_header=True) as service:
        response = await ask(service, "/a")
        (modified,), (date,) = response.values(b"last-modified"), response.values(b"date")
        assert modified.rsplit(b":", 1)[0] == date.rsplit(b":", 1)[0] or modified < date


async def test_siblings_come_and_go(http_protocol_cls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounted, "_LOOK_AGAIN", 0.0)
    path, sibling = tmp_path / "a.js", tmp_path / "a.js.zst"
    path.write_bytes(b"plain")

    async def encoded() -> list[bytes]:
        response = await ask(service, "/a.js", "accept-encoding: zstd")
        assert response.status == 200
        assert bool(response.values(b"vary")) == sibling.is_file()
        return [*response.values(b"content-encoding"), response.body]

    async with serve(http_protocol_cls, APP, mount=f"/={tmp_path}") as service:
        assert await encoded() == [b"plain"]
        sibling.write_bytes(b"encoded")
        assert await encoded() == [b"zstd", b"encoded"]
        # One that is older than the file was made of another one.
        os.utime(sibling, (1e9, 1e9))
        assert await encoded() == [b"plain"]
        os.utime(path, (1e9, 1e9))
        assert await encoded() == [b"zstd", b"encoded"]
        sibling.unlink()
        assert await encoded() == [b"plain"]
        sibling.mkdir()
        assert await encoded() == [b"plain"]


async def test_siblings_that_vanish_meanwhile_are_not_missed(http_protocol_cls: Any, tmp_path: Path) -> None:
    for name in ("a.js", "a.js.br", "a.js.gz"):
        (tmp_path / name).write_bytes(name.encode())
    async with serve(http_protocol_cls, APP, mount=f"/={tmp_path}") as service:
        for name in ("a.js.br", "a.js.gz"):
            assert (await ask(service, "/a.js", "accept-encoding: br, gzip")).body == name.encode()
            (tmp_path / name).unlink()
        assert (await ask(service, "/a.js", "accept-encoding: br, gzip")).body == b"a.js"


# How it is sent


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tasks that the loop makes, from now on."""
    return []


def note_tasks(found: list[Any]) -> None:
    loop = asyncio.get_running_loop()

    def factory(loop: Any, coroutine: Any, **more: Any) -> Any:
        task = asyncio.Task(coroutine, loop=loop, **more)
        found.append(task)
        return task

    loop.set_task_factory(factory)


async def test_small_answers_take_no_task(http_protocol_cls: Any, public: Path, made: list[Any]) -> None:
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        note_tasks(made)
        client = await service.connect()
        try:
            for target, status in {"/static/a.txt": 200, "/static/x": 404, "/static/sub": 308}.items():
                client.sock.send(request("GET", target))
                assert (await client.response()).status == status
            client.sock.send(request("HEAD", "/static/large"))
            assert (await client.response("HEAD")).values(b"content-length") == [b"%d" % LARGE]
            names = [str(task.get_coro().__qualname__) for task in made]  # uvloop's own may have none
            assert not [name for name in names if "run_asgi" in name]
            client.sock.send(request("GET", "/static/large"))
            assert len((await client.response()).body) == LARGE
            assert [task for task in made if "run_asgi" in str(task.get_coro().__qualname__)]
        finally:
            asyncio.get_running_loop().set_task_factory(None)


@pytest.mark.parametrize("transport", ["tcp", "unix", "tls"])
async def test_large_files_arrive_as_they_are(
    http_protocol_cls: Any, public: Path, transport: str, tmp_path: Path, tls_certificate: Any, tls_ca_ssl_context: Any
) -> None:
    content = CONTENT
    more: dict[str, Any] = {"uds": f"{tmp_path}/s"} if transport == "unix" else {}
    tls = None
    if transport == "tls":
        more["tls"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls_certificate.configure_cert(more["tls"])
        tls = tls_ca_ssl_context
    async with serve(http_protocol_cls, APP, mount=f"/static={public}", **more) as service:
        opening: Any = asyncio.open_unix_connection if transport == "unix" else asyncio.open_connection
        address = [service.address] if transport == "unix" else [*service.address]
        reader, writer = await opening(*address, ssl=tls, server_hostname="localhost" if tls else None)
        for first, last in ((0, LARGE - 1), (1, LARGE - 2), (LARGE - 100_000, LARGE - 1), (5, 5)):
            writer.write(request("GET", "/static/large", f"range: bytes={first}-{last}"))
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"content-range: bytes %d-%d/%d\r\n" % (first, last, LARGE) in head
            assert hashlib.sha256(await reader.readexactly(last - first + 1)).digest() == (
                hashlib.sha256(content[first : last + 1]).digest()
            )
        writer.write(request("GET", "/static/large", "range: bytes=0-999999,2000000-"))
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        assert content[:1000000] in body
        assert content[2000000:] in body
        writer.transport.abort()


async def test_over_http_2(public: Path) -> None:
    pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    native = importlib.import_module("uvicorn.protocols.http.native_impl").NativeProtocol
    async with serve(native, APP, mount=f"/static={public}", http2=True) as service:
        client = await http2_client.connect(service, {http2_client.INITIAL_WINDOW_SIZE: 2**31 - 1})
        await client.send(http2_client.window_update(2**31 - 1 - 65535))
        for target, body in {"a.txt": b"a", "large": CONTENT}.items():
            answer = await client.ask(f"/static/{target}")
            assert (answer.status, answer.body) == (200, body)
        assert (await client.ask("/static/out.txt")).status == 404
        assert (await client.ask("/other")).body == b"application"
        head = await client.ask("/static/large", method="HEAD")
        assert (head.status, head.body, dict(head.headers)[b"content-length"]) == (200, b"", b"%d" % LARGE)


async def test_many_at_once_over_http_2(public: Path) -> None:
    pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    native = importlib.import_module("uvicorn.protocols.http.native_impl").NativeProtocol
    async with serve(native, APP, mount=f"/static={public}", http2=True) as service:
        client = await http2_client.connect(service, {http2_client.INITIAL_WINDOW_SIZE: 2**31 - 1})
        await client.send(http2_client.window_update(2**31 - 1 - 65535))
        first = client.next_stream
        targets = ["/static/a.txt", "/static/large", "/static/nothing", "/other"] * 10
        await client.send(b"".join(client.head(target) for target in targets))
        for number, target in enumerate(targets):
            answer = await client.answer(first + 2 * number)
            assert answer.status == (404 if target.endswith("nothing") else 200)
            if target == "/static/large":
                assert answer.body == CONTENT


@pytest.mark.parametrize("taken_back", [False, True])
async def test_files_are_looked_for_over_http_2_when_it_is_the_turn_of_the_request(
    public: Path, monkeypatch: pytest.MonkeyPatch, taken_back: bool
) -> None:
    """H1: many requests of one read, which may be reset in the same."""
    pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    native = importlib.import_module("uvicorn.protocols.http.native_impl").NativeProtocol
    opened = 0
    in_first_turn: list[int] = []
    open_beneath = Directory.open

    def counted(self: Any, path: bytes) -> int:
        nonlocal opened
        if not opened:
            asyncio.get_running_loop().call_soon(lambda: in_first_turn.append(opened))
        opened += path == b"a.txt"
        return open_beneath(self, path)

    async with serve(native, APP, mount=f"/static={public}", http2=True) as service:
        client = await http2_client.connect(service)
        await client.pong()
        monkeypatch.setattr(Directory, "open", counted)
        if taken_back:
            streams = range(1, 41, 2)
            await client.send(b"".join(client.head("/static/a.txt") + http2_client.reset(stream) for stream in streams))
            await client.pong()
            assert opened == 0
        else:
            await client.send(b"".join(client.head("/static/a.txt") for _ in range(100)))
            assert (await client.answer(199)).body == b"a"
            assert (opened, in_first_turn) == (100, [32])


async def test_pipelines_keep_their_order(http_protocol_cls: Any, public: Path) -> None:
    """K1"""
    targets = ["/static/a.txt", "/static/large", "/x", "/static/sub/", "/static/nothing", "/static/a.txt"] * 20
    large = CONTENT
    expected = {"/static/a.txt": b"a", "/static/large": large, "/x": b"application", "/static/sub/": b"sub"}
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        client = await service.connect()
        sending = asyncio.ensure_future(client.send(b"".join(request("GET", target) for target in targets)))
        for target in targets:
            assert (await client.response()).body == expected.get(target, b"Not Found")
        await sending


async def test_clients_that_do_not_read_are_waited_for(http_protocol_cls: Any, tmp_path: Path) -> None:
    """Answers do not pile up."""
    (tmp_path / "a").write_bytes(os.urandom(60000))
    content = (tmp_path / "a").read_bytes()
    async with serve(http_protocol_cls, APP, mount=f"/={tmp_path}") as service:
        client = await service.connect(receive_buffer=4096)
        asked = request("GET", "/a")
        await service.accepted()
        client.sock.send(asked * 2000)
        for _ in range(50):
            await asyncio.sleep(0.001)
        (connection,) = service.state.connections
        assert connection.transport.get_write_buffer_size() < 40 * len(content)  # type: ignore[attr-defined]
        for _ in range(200):
            assert (await client.response()).body == content


async def test_a_client_that_says_no_more_still_gets_its_answers(http_protocol_cls: Any, public: Path) -> None:
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        client = await service.connect()
        await client.send(request("GET", "/static/a.txt") * 2 + request("GET", "/static/large"))
        client.half_close()
        assert [(await client.response()).body for _ in range(2)] == [b"a", b"a"]
        assert len((await client.response()).body) == LARGE
        assert await client.rest() == b""


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request("POST", "/static/a.txt", body=b"x" * 10), 405),
        (request("GET", "/static/a.txt", body=b"x" * 10), 200),
        (request("POST", "/static/a.txt", "transfer-encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n", 405),
        (request("GET", "/static/large", body=b"x" * 10), 200),
    ],
)
async def test_bodies_of_requests_are_passed_over(
    http_protocol_cls: Any, public: Path, data: bytes, status: int
) -> None:
    """F15"""
    for cut in (len(data), len(data) - 4):
        async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
            client = await service.connect()
            await client.send(data[:cut])
            await turns()
            await client.send(data[cut:] + request("GET", "/static/sub/"))
            assert (await client.response()).status == status
            assert (await client.response()).body == b"sub"


async def test_who_waits_to_continue_is_answered_at_once(http_protocol_cls: Any, public: Path) -> None:
    """R12"""
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        client = await service.connect()
        await client.send(request("POST", "/static/a.txt", "expect: 100-continue", "content-length: 5"))
        response = await client.response()
        assert (response.status, response.values(b"connection")) == (405, [b"close"])
        assert await client.rest() == b""


async def test_old_clients_and_those_that_close(http_protocol_cls: Any, public: Path) -> None:
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        for data in (
            request("GET", "/static/a.txt", version="1.0"),
            request("GET", "/static/a.txt", "connection: close"),
        ):
            client = await service.connect()
            response = await client.ask(data)
            assert (response.body, response.values(b"connection")) == (b"a", [b"close"])
            assert await client.rest() == b""


async def test_what_is_on_disk_only_is_read_in_a_thread(
    http_protocol_cls: Any, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounted, "_read_now", lambda *_: None)
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        client = await service.connect()
        assert (await client.ask(request("GET", "/static/a.txt"))).body == b"a"
        assert b"a" in (await client.ask(request("GET", "/static/index.html", "range: bytes=0-0,2-2"))).body


@pytest.mark.skipif(sys.platform != "linux", reason="RWF_NOWAIT")
def test_reading_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    descriptor = os.open(tmp_path / "a", os.O_RDONLY)
    preadv, flags = os.preadv, []

    def refusing(number: int) -> Any:
        def call(fd: int, buffers: Any, offset: int, flag: int = 0) -> int:
            flags.append(flag)
            if flag:
                raise OSError(number, os.strerror(number))
            return preadv(fd, buffers, offset)

        return call

    try:
        assert mounted._read_now(descriptor, 1, 2) == b"bc"
        assert mounted._read_now(descriptor, 1, 3) is None, "it is shorter"
        monkeypatch.setattr(os, "preadv", refusing(errno.EOPNOTSUPP))
        assert mounted._read_now(descriptor, 1, 2) == b"bc", "the file system cannot tell"
        monkeypatch.setattr(os, "preadv", refusing(errno.EAGAIN))
        assert mounted._read_now(descriptor, 1, 2) is None
    finally:
        os.close(descriptor)
    assert flags == [os.RWF_NOWAIT, 0, os.RWF_NOWAIT]


# What goes wrong


@pytest.mark.parametrize("target", ["/large", "/small"])
async def test_a_file_that_becomes_shorter_breaks_the_response_off(
    http_protocol_cls: Any,
    tmp_path: Path,
    target: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S3: the client sees that it is not all, nothing else comes behind it, and the log has one line."""
    path = tmp_path / target[1:]
    path.write_bytes(bytes(20_000_000 if target == "/large" else 1000))
    if target == "/small":
        # Between the look at it and the reading.
        read_now = mounted._read_now

        def late(descriptor: int, offset: int, count: int) -> bytes | None:
            os.truncate(path, 10)
            return read_now(descriptor, offset, count)

        monkeypatch.setattr(mounted, "_read_now", late)
    async with serve(http_protocol_cls, APP, mount=f"/={tmp_path}") as service:
        client = await service.connect(receive_buffer=4096)
        with caplog.at_level(logging.INFO, "uvicorn.error"):
            await client.send(request("GET", target) * 2)
            if target == "/large":
                await client.until(b"\r\n\r\n")
                await wait_until(lambda: service.state.tasks)
                os.truncate(path, 10_000_000)
            data = await client.rest()
            assert len(data) < path.stat().st_size + 1000
            assert data.count(b"HTTP/1.1 200") <= 1
            await service.idle()
    (line,) = caplog.messages
    assert line == f"Sending {target[1:]!r} failed, closing its connection: The file shrank while it was sent."


@pytest.mark.parametrize(
    ("number", "status"),
    [(errno.EACCES, 403), (errno.EPERM, 403), (errno.EMFILE, 503), (errno.EIO, 503), (errno.EXDEV, 404)],
)
async def test_errors_have_a_status(
    http_protocol_cls: Any,
    public: Path,
    number: int,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing(self: Any, path: bytes) -> int:
        raise OSError(number, os.strerror(number), path)

    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        monkeypatch.setattr(Directory, "open", failing)
        with caplog.at_level(logging.WARNING, "uvicorn.error"):
            assert (await ask(service, "/static/a.txt")).status == status
    expected = [f"Cannot open 'a.txt', answering 503: {os.strerror(number)}"] if status == 503 else []
    assert caplog.messages == expected


async def test_what_cannot_be_told_of_an_index_is_no_answer_for_good(
    http_protocol_cls: Any, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache may keep 404."""
    open_beneath = Directory.open

    def failing(self: Any, path: bytes) -> int:
        if path.endswith(b"index.html"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return open_beneath(self, path)

    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(Directory, "open", failing)
            assert (await ask(service, "/static/sub")).status == 503
        assert (await ask(service, "/static/sub")).status == 308


async def test_paths_that_change_while_the_kernel_looks_are_resolved_again(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener = beneath._openat2()
    if opener is None:
        pytest.skip("the kernel has no openat2")
    directory = os.open(public, os.O_RDONLY)
    try:
        with pytest.raises(OSError) as caught:
            opener(directory, b"../secret.txt")
        assert caught.value.errno == errno.EXDEV
        os.close(opener(directory, b"a.txt"))
    finally:
        os.close(directory)


async def test_the_log_of_an_error_is_one_line(
    http_protocol_cls: Any, public: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """L1"""

    def failing(self: Any, path: bytes) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr(Directory, "open", failing)
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        with caplog.at_level(logging.WARNING, "uvicorn.error"):
            assert (await ask(service, "/static/a%0d%0a%1b%5b31m%ff")).status == 503
    assert caplog.messages == [f"Cannot open 'a\\r\\n\\x1b[31m\\udcff', answering 503: {os.strerror(errno.EMFILE)}"]


async def test_files_being_sent_leave_descriptors_to_others(
    http_protocol_cls: Any, public: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mounted, "_most_files", lambda: 2)
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        slow = [await service.connect(receive_buffer=4096) for _ in range(2)]
        for client in slow:
            await client.send(request("GET", "/static/large"))
            assert b" 200 " in await client.until(b"\r\n\r\n")
        assert (await ask(service, "/static/large")).status == 503
        assert (await ask(service, "/static/a.txt")).status == 200
        slow[0].reset()
        await wait_until(lambda: len(service.state.tasks) == 1)
        assert len((await ask(service, "/static/large")).body) == LARGE
        assert caplog.messages == ["Cannot open 'large', answering 503: too many files are being sent"]


async def test_event_loops_of_a_process_have_one_budget_of_descriptors(
    http_protocol_cls: Any, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S5"""
    monkeypatch.setattr(mounted, "_most_files", lambda: 1)
    async with (
        serve(http_protocol_cls, APP, mount=f"/static={public}") as one,
        serve(http_protocol_cls, APP, mount=f"/static={public}") as other,
    ):
        client = await one.connect(receive_buffer=4096)
        await client.send(request("GET", "/static/large"))
        await client.until(b"\r\n\r\n")
        assert (await ask(other, "/static/large")).status == 503
        client.reset()
        await wait_until(lambda: not one.state.tasks)
        assert len((await ask(other, "/static/large")).body) == LARGE


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
async def test_files_take_no_more_descriptors_than_they_are_counted_for(http_protocol_cls: Any, public: Path) -> None:
    """S5"""
    clients = 8
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        assert (await ask(service, "/static/a.txt")).status == 200, "the directory is open"
        slow = [await service.connect(receive_buffer=4096) for _ in range(clients)]
        await service.accepted(clients)
        before = descriptors()
        for client in slow:
            await client.send(request("GET", "/static/large"))
            await client.until(b"\r\n\r\n")
        assert len(service.state.tasks) == clients
        taken = descriptors() - before
        assert clients < taken <= clients * mounted.PER_FILE


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_half_of_the_descriptors_is_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for soft, most in ((1024, 256), (resource.RLIM_INFINITY, sys.maxsize)):
        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))  # noqa: B023
        assert mounted._most_files() == most


async def test_shortage_is_told_once_however_often_clients_ask(
    http_protocol_cls: Any, public: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S5"""
    numbers = itertools.cycle([errno.EMFILE, errno.EIO])

    def failing(self: Any, path: bytes) -> int:
        number = next(numbers)
        raise OSError(number, os.strerror(number), path)

    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        monkeypatch.setattr(Directory, "open", failing)
        client = await service.connect()
        for _ in range(20):
            assert (await client.ask(request("GET", "/static/a.txt"))).status == 503
    assert len(caplog.messages) == 2


async def test_what_comes_back_in_a_redirect_splits_nothing(http_protocol_cls: Any, public: Path) -> None:
    """R1"""
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        client = await service.connect()
        for query in ("?", "?%0d%0aa:b", "?a=\"<>'", "?//evil", "?a?b"):
            response = await client.ask(request("GET", f"/static/sub{query}"))
            assert response.status == 308
            (location,) = response.values(b"location")
            assert location == b"./sub/" + (query.encode() if query != "?" else b"")


async def test_questions_about_the_server_are_answered_below_a_mount(http_protocol_cls: Any, public: Path) -> None:
    """X7"""
    async with serve(http_protocol_cls, APP, mount=f"/={public}", lifecycle_path="/-/") as service:
        assert (await ask(service, "/-/live")).body == b"live"
        assert (await ask(service, "/-/%6cive")).body == b"live"
        assert (await ask(service, "/-/other")).status == 404


async def test_nothing_is_left_open(http_protocol_cls: Any, public: Path) -> None:
    """Whatever becomes of the client."""
    (public / "odd" / "index.html").mkdir(parents=True)
    (public / "odd" / "index.html" / "index.html").touch()
    before = descriptors()
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        for _ in range(3):
            for target in ("a.txt", "large", "out.txt", "pipe", "sub", "bare", "nothing", "odd/index.html/"):
                await ask(service, f"/static/{target}")
            assert (await ask(service, "/static/odd/")).status == 404
            # One that leaves in the middle, and one whose request is never complete.
            client = await service.connect(receive_buffer=4096)
            await client.send(request("GET", "/static/large"))
            await client.until(b"\r\n\r\n")
            client.reset()
            client = await service.connect()
            await client.send(request("GET", "/static/large", "content-length: 10"))
            await turns()
            client.reset()
        await service.idle()
    await wait_until(lambda: descriptors() <= before)


async def test_a_server_that_has_to_end_says_so(
    http_protocol_cls: Any, public: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(http_protocol_cls, APP, mount=f"/static={public}") as service:
        client = await service.connect(receive_buffer=4096)
        with caplog.at_level(logging.INFO, "uvicorn.error"):
            await client.send(request("GET", "/static/large"))
            await client.until(b"\r\n\r\n")
            (task,) = service.state.tasks
            task.cancel()
            assert len(await client.rest()) < LARGE
            await service.idle()
    assert caplog.messages == ["Sending 'large' was cut off by the shutdown (timeout_graceful_shutdown)."]


# Beside everything else


async def test_the_log_has_its_lines(http_protocol_cls: Any, public: Path, caplog: pytest.LogCaptureFixture) -> None:
    form = "%(m)s %(U)s %(s)s %(B)s"
    for more, lines in (
        ({}, ['"GET /static/a.txt HTTP/1.1" 200', '"HEAD /static/a.txt HTTP/1.1" 200', '"GET /static/x HTTP/1.1" 404']),
        (
            {"access_log_format": form},
            ["GET /static/a.txt 200 1", "HEAD /static/a.txt 200 0", "GET /static/x 404 9"],
        ),
    ):
        caplog.clear()
        async with serve(http_protocol_cls, APP, mount=f"/static={public}", access_log=True, **more) as service:
            with caplog.at_level(logging.INFO, "uvicorn.access"):
                await ask(service, "/static/a.txt")
                await ask(service, "/static/a.txt", method="HEAD")
                await ask(service, "/static/x")
                await service.idle()
            assert len(caplog.messages) == len(lines)
            for message, line in zip(caplog.messages, lines, strict=True):
                assert line in message


@pytest.mark.parametrize("fields", ["x-forwarded-for,x-forwarded-proto", "x-forwarded-for"])
async def test_the_log_names_the_client_behind_a_proxy(
    http_protocol_cls: Any, public: Path, caplog: pytest.LogCaptureFixture, fields: str
) -> None:
    settings: dict[str, Any] = {"access_log": True, "proxy_headers": True, "forwarded_headers": fields}
    async with serve(http_protocol_cls, APP, mount=f"/static={public}", **settings) as service:
        with caplog.at_level(logging.INFO, "uvicorn.access"):
            for target in ("/static/a.txt", "/other"):
                await ask(service, target, "x-forwarded-for: 192.0.2.1")
            await service.idle()
    assert [message.partition(" - ")[0] for message in caplog.messages] == ["192.0.2.1:0"] * 2


async def test_above_the_limit_files_are_refused_as_well(
    http_protocol_cls: Any, public: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(http_protocol_cls, APP, mount=f"/static={public}", limit_concurrency=2) as service:
        first = await service.connect()
        assert (await first.ask(request("GET", "/static/a.txt"))).body == b"a"
        assert (await ask(service, "/static/a.txt")).status == 503


async def test_cache_control_can_be_chosen(http_protocol_cls: Any, public: Path) -> None:
    for text, expected in (("public, max-age=60", [b"public, max-age=60"]), ("", [])):
        async with serve(http_protocol_cls, APP, mount=f"/static={public}", mount_cache_control=text) as service:
            assert (await ask(service, "/static/a.txt")).values(b"cache-control") == expected


async def test_cache_control_of_a_mount_is_its_own(http_protocol_cls: Any, public: Path) -> None:
    """Files with a hash in their names never change, and the page that names them does."""
    mounts = [f"/={public}", f"/sub={public / 'sub'}", f"/deep={public / 'a:b'}"]
    forever = "public, max-age=31536000, immutable"
    cases = {
        (f"/sub={forever}",): ("no-cache", forever, "no-cache"),
        (f"/sub/={forever}", "/deep=", "max-age=60"): ("max-age=60", forever, None),
        ("/=no-store", f"/sub={forever}", ""): ("no-store", forever, None),
    }
    for texts, expected in cases.items():
        async with serve(http_protocol_cls, APP, mount=mounts, mount_cache_control=texts) as service:
            for target, value in zip(("/", "/sub/", "/deep/"), expected, strict=True):
                response = await ask(service, target)
                values = [] if value is None else [value.encode()]
                assert (response.status, response.values(b"cache-control")) == (200, values), (texts, target)
                again = await ask(service, target, f"if-none-match: {response.values(b'etag')[0].decode()}")
                assert (again.status, again.values(b"cache-control")) == (304, values), (texts, target)


async def test_headers_of_the_server_are_there_too(http_protocol_cls: Any, public: Path) -> None:
    headers = [("x-own", "1")]
    async with serve(http_protocol_cls, APP, mount=f"/static={public}", headers=headers, server_header=True) as service:
        response = await ask(service, "/static/a.txt")
        assert (response.values(b"x-own"), response.values(b"server")) == ([b"1"], [b"uvicorn"])


async def test_websockets_are_the_applications(http_protocol_cls: Any, public: Path) -> None:
    async def accepting(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "websocket"
        await receive()
        await send({"type": "websocket.close"})

    handshake = request(
        "GET",
        "/static/a.txt",
        *("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13"),
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    for ws, status in (("auto", 403), ("none", 200)):
        async with serve(http_protocol_cls, accepting, mount=f"/static={public}", ws=ws) as service:
            client = await service.connect()
            assert (await client.ask(handshake)).status == status


async def test_what_is_known_of_paths_is_bounded(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounted, "_MAX_KNOWN", 4)
    mounts = mounted.Mounts([("/static", str(public), "")], "", APP)
    scope: Any = {"method": "GET", "headers": [], "query_string": b""}
    for number in range(20):
        for path in (b"/static/a.txt", b"/static/%61.txt", b"/static/x%d" % number, b"/static/sub/"):
            scope["raw_path"] = path
            mounts.answer(scope, False)
    assert len(mounts._known) <= 4
    (public / ("a" * 200)).write_bytes(b"long")
    scope["raw_path"] = b"/static/" + b"%61" * 200
    answer = mounts.answer(scope, False)
    assert answer is not None
    assert answer.body == b"long"
    assert scope["raw_path"] not in mounts._known
    mounts.close()
