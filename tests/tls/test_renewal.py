"""Certificates that change while they are in use: new ones are taken over, broken ones are not, and the end is told."""

from __future__ import annotations

import asyncio
import datetime
import gc
import os
import shutil
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests import loops, machines
from tests.listening.test_systemd import Manager
from tests.process import ServerProcess
from tests.protocols.harness import descriptors
from tests.tls import engines
from tests.tls.engines import handshake
from tests.utils import deep_after, is_listening, run_server, server_port, wait_for, wait_until
from uvicorn.config import Config
from uvicorn.listening.loads import LoadTable
from uvicorn.metrics.page import CERTIFICATES, MOST_CERTIFICATES, Page
from uvicorn.observing.exposition import MetricsAggregator, WorkerFigures, render
from uvicorn.tls.certificates import Certificate
from uvicorn.tls.context import RenewableContext, Renewal
from uvicorn.tls.renewal import CertificateWatch
from uvicorn.tls.server_context import ServerContext
from uvicorn.tls.validity import DAY

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("engine")]

anyio_backend = loops.each
http = machines.names

Issue = Callable[..., None]


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Files:
    """A certificate and its key, in files."""

    def __init__(self, authority: trustme.CA, directory: Path) -> None:
        self.authority = authority
        self.directory = directory
        self.certfile, self.keyfile = directory / "cert.pem", directory / "key.pem"
        self.settings: dict[str, Any] = {"ssl_certfile": str(self.certfile), "ssl_keyfile": str(self.keyfile)}

    def issue(self, name: str, directory: Path | None = None, **options: Any) -> trustme.LeafCert:
        leaf = self.authority.issue_cert(name, **options)
        directory = directory or self.directory
        leaf.cert_chain_pems[0].write_to_path(directory / "cert.pem")
        leaf.private_key_pem.write_to_path(directory / "key.pem")
        return leaf


@pytest.fixture
def files(tls_certificate_authority: trustme.CA, tmp_path: Path) -> Files:
    made = Files(tls_certificate_authority, tmp_path)
    made.issue("first.test")
    return made


@pytest.fixture
def client(tls_ca_ssl_context: ssl.SSLContext) -> ssl.SSLContext:
    tls_ca_ssl_context.check_hostname = False
    return tls_ca_ssl_context


def config_of(files: Files, **settings: Any) -> Config:
    return Config(app, port=0, lifespan="off", log_config=None, **{"ssl_reload": 0, **files.settings, **settings})


def renewable(config: Config) -> tuple[RenewableContext, Renewal]:
    config.load()
    assert isinstance(config.ssl, RenewableContext)
    return config.ssl, config.ssl.renewal


def shown_by(context: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> tuple[str, ...]:
    _, end = handshake(context, client, name)
    return Certificate.read(end.getpeercert(True) or b"").names


async def connect(port: int, client: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="localhost")
    der = writer.get_extra_info("ssl_object").getpeercert(True)
    return reader, writer, Certificate.read(der).names[0]


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    return await asyncio.wait_for(reader.readexactly(2), 10)


# What is in the files.


def test_replaced_function_builds_the_new_context(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []

    def make(**arguments: Any) -> ssl.SSLContext:
        made.append(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        return made[-1]

    monkeypatch.setattr("uvicorn.config.create_ssl_context", make)
    context, renewal = renewable(config_of(files))
    assert [context.current] == made
    files.issue("second.test")
    assert renewal.look()
    assert len(made) == 2
    assert context.current is made[-1]


def test_new_contents_are_taken_over_as_a_whole(
    files: Files, client: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="uvicorn.error")
    context, renewal = renewable(config_of(files))
    caplog.clear()
    assert shown_by(context, client) == ("first.test",)
    assert not renewal.look()
    files.issue("second.test")
    assert shown_by(context, client) == ("first.test",), "not before it is looked"
    assert renewal.look()
    assert shown_by(context, client) == ("second.test",)
    assert not renewal.look()
    assert caplog.messages == ["Loaded new TLS certificates: default: second.test"]


def test_touching_files_changes_nothing(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="uvicorn.error")
    context, renewal = renewable(config_of(files))
    caplog.clear()
    before = context.current
    os.utime(files.certfile, (1, 1))
    text = files.certfile.read_bytes()
    files.certfile.unlink()
    files.certfile.write_bytes(text)
    assert not renewal.look() and not renewal.insist()
    assert context.current is before and not caplog.messages


def test_contents_of_the_same_size_and_time(files: Files, client: ssl.SSLContext) -> None:
    """What file systems with coarse clocks, and those that copy times, leave."""
    context, renewal = renewable(config_of(files))
    times = [(path, path.stat()) for path in (files.certfile, files.keyfile)]
    files.issue("other.test")
    for path, stat in times:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert renewal.look()
    assert shown_by(context, client) == ("other.test",)


@pytest.mark.skipif(sys.platform == "win32", reason="links take a privilege there")
def test_a_swapped_link(files: Files, client: ssl.SSLContext, tmp_path: Path) -> None:
    """T3: how Kubernetes changes a mounted secret: `cert.pem -> ..data/cert.pem`, `..data -> ..time`."""
    (tmp_path / "..one").mkdir()
    (tmp_path / "..two").mkdir()
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).rename(tmp_path / "..one" / name)
        (tmp_path / name).symlink_to(Path("..data") / name)
    (tmp_path / "..data").symlink_to("..one")
    context, renewal = renewable(config_of(files))
    files.issue("second.test", tmp_path / "..two")
    assert not renewal.look()
    (tmp_path / "..new").symlink_to("..two")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert renewal.look()
    assert shown_by(context, client) == ("second.test",)


@pytest.mark.parametrize("order", [("cert.pem", "key.pem"), ("key.pem", "cert.pem")])
def test_half_of_a_pair_is_not_taken_over(
    files: Files, client: ssl.SSLContext, tmp_path: Path, caplog: pytest.LogCaptureFixture, order: tuple[str, str]
) -> None:
    """T3"""
    context, renewal = renewable(config_of(files))
    other = tmp_path / "other"
    other.mkdir()
    files.issue("second.test", other)
    shutil.copy(other / order[0], tmp_path / order[0])
    assert not renewal.look() and not renewal.look()
    assert shown_by(context, client) == ("first.test",)
    (message,) = caplog.messages
    assert message.startswith("Cannot load the new TLS certificates, keeping the previous ones: ")
    assert str(files.certfile) in message and "does not match" in message
    shutil.copy(other / order[1], tmp_path / order[1])
    assert renewal.look()
    assert shown_by(context, client) == ("second.test",)


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "cut", "directory", "encrypted"])
def test_a_broken_file_keeps_what_was_there(
    files: Files, client: ssl.SSLContext, caplog: pytest.LogCaptureFixture, damage: str, tmp_path: Path
) -> None:
    """T3"""
    context, renewal = renewable(config_of(files))
    text = files.keyfile.read_bytes()
    if damage in ("missing", "directory"):
        files.keyfile.unlink()
    if damage == "directory":
        files.keyfile.mkdir()
    elif damage == "encrypted":
        from cryptography.hazmat.primitives import serialization

        files.keyfile.write_bytes(
            serialization.load_pem_private_key(text, None).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"x"),
            )
        )
    elif damage != "missing":
        files.keyfile.write_bytes({"empty": b"", "garbage": b"\0" * 999, "cut": text[: len(text) // 2]}[damage])
    assert not renewal.look() and not renewal.look()
    assert shown_by(context, client) == ("first.test",)
    (message,) = caplog.messages
    assert "\n" not in message and str(tmp_path) in message
    if damage == "directory":
        files.keyfile.rmdir()
    files.keyfile.write_bytes(text)
    assert not renewal.look(), "it is as it was"
    assert len(caplog.messages) == 1


def test_authorities_are_replaced_not_added(files: Files, client: ssl.SSLContext, tmp_path: Path) -> None:
    """A client of the authority that is gone is served no more, and resumes nothing."""
    old, new = trustme.CA(), trustme.CA()
    old.cert_pem.write_to_path(tmp_path / "ca.pem")
    context, renewal = renewable(
        config_of(files, ssl_ca_certs=str(tmp_path / "ca.pem"), ssl_cert_reqs=ssl.CERT_REQUIRED)
    )
    old.issue_cert("me@example.org").configure_cert(client)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    _, end = handshake(context, client)
    new.cert_pem.write_to_path(tmp_path / "ca.pem")
    assert renewal.look()
    for session in (None, end.session):
        with pytest.raises(ssl.SSLError):
            handshake(context, client, session=session)
    new.issue_cert("me@example.org").configure_cert(client)
    handshake(context, client)


def test_certificates_of_names(files: Files, client: ssl.SSLContext, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    files.issue("a.test", other)
    context, renewal = renewable(config_of(files, ssl_cert=[f"a.test={other / 'cert.pem'},{other / 'key.pem'}"]))
    assert shown_by(context, client, "a.test") == ("a.test",)
    files.authority.issue_cert("a.test", "b.test")
    files.issue("b.test", other)
    assert renewal.look()
    assert shown_by(context, client, "a.test") == ("b.test",)
    assert shown_by(context, client, "c.test") == ("first.test",)


def test_a_function_makes_the_new_context_too(files: Files, client: ssl.SSLContext) -> None:
    made = []

    def factory(config: Any, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        context = default()
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        made.append(context)
        return context

    context, renewal = renewable(config_of(files, ssl_context_factory=factory))
    files.issue("second.test")
    assert renewal.look()
    assert renewal.insist(), "it may have reasons of its own"
    assert len(made) == 3 and context.current is made[-1]
    assert context.current.minimum_version is ssl.TLSVersion.TLSv1_3
    assert shown_by(context, client) == ("second.test",)


def test_servers_that_share_a_configuration_renew_it_once(files: Files, client: ssl.SSLContext) -> None:
    context, renewal = renewable(config_of(files))
    renewed: list[bool] = []
    for round in range(10):
        files.issue(f"n{round}.test")
        threads = [threading.Thread(target=lambda: renewed.append(renewal.look())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert shown_by(context, client) == (f"n{round}.test",)
    assert renewed.count(True) == 10 and len(renewed) == 40


def test_without_the_setting_nothing_stands_in_between(files: Files) -> None:
    config = config_of(files, ssl_reload=None)
    config.load()
    assert type(config.ssl) is ServerContext


@pytest.mark.parametrize("value", [-1, float("inf"), float("nan")])
def test_times_that_are_none(files: Files, value: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        config_of(files, ssl_reload=value)


@pytest.mark.parametrize("times", deep_after(1, [25, 200]))
def test_renewals_leave_nothing_behind(files: Files, client: ssl.SSLContext, tmp_path: Path, times: int) -> None:
    """T3"""
    import weakref

    other = tmp_path / "other"
    other.mkdir()
    context, renewal = renewable(config_of(files, ssl_cert=[f"a.test={files.certfile},{files.keyfile}"]))
    files.issue("one.test")
    files.issue("two.test", other)
    pairs = [[(path / name).read_bytes() for name in ("cert.pem", "key.pem")] for path in (tmp_path, other)]
    old: list[weakref.ref[Any]] = []
    gc.disable()  # nothing is left for the collector
    try:
        for round in range(times):
            old.append(weakref.ref(context.current))
            for path, text in zip((files.certfile, files.keyfile), pairs[round % 2], strict=True):
                path.write_bytes(text)
            assert renewal.look() is True
            shown_by(context, client, "a.test")
            engines.close()
            if round == 10 and sys.platform == "linux":
                before = descriptors()
        wait_for(lambda: [reference() for reference in old] == [None] * times)
    finally:
        gc.enable()
    if sys.platform == "linux":
        wait_for(lambda: descriptors() <= before)  # then one may have been on its way out


# In a server.


@pytest.mark.parametrize("transports", ["ours", "the loop's"])
async def test_connections_go_on_and_new_ones_get_the_new_certificate(
    http: str, files: Files, client: ssl.SSLContext, transports: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if transports != "ours":
        monkeypatch.setattr("uvicorn.listening.sockets._poller_for", lambda *arguments: None)
    async with run_server(config_of(files, http=http, ssl_reload=0.02)) as server:
        port = server_port(server)
        reader, writer, name = await connect(port, client)
        assert name == "first.test" and await ask(reader, writer) == b"ok"
        files.issue("second.test")
        while name != "second.test":
            _, other, name = await connect(port, client)
            other.transport.abort()
        assert await ask(reader, writer) == b"ok"
        writer.transport.abort()
    wait_for(lambda: not any(thread.name == "uvicorn-certificates" for thread in threading.enumerate()))


async def test_handshakes_while_certificates_change(http: str, files: Files, client: ssl.SSLContext) -> None:
    """T3: each ends well, and shows one certificate or the other."""
    seen = set()
    async with run_server(config_of(files, http=http, ssl_reload=0.001)) as server:
        for round in range(10):
            ends = [connect(server_port(server), client) for _ in range(4)]
            task = asyncio.gather(*ends)
            files.issue(f"n{round % 2}.test")
            for reader, writer, name in await task:
                assert await ask(reader, writer) == b"ok"
                seen.add(name)
                writer.transport.abort()
    assert seen <= {"first.test", "n0.test", "n1.test"}


APP = """
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""


def arguments(files: Files, *more: str) -> list[str]:
    (files.directory / "deployed.py").write_text(APP)
    fixed = ["deployed:app", "--port", "0", "--lifespan", "off"]
    return [*fixed, "--ssl-certfile", str(files.certfile), "--ssl-keyfile", str(files.keyfile), *more]


def shown_at(port: int, client: ssl.SSLContext) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock, client.wrap_socket(sock) as tls:
        return Certificate.read(tls.getpeercert(True) or b"").names[0]


@pytest.mark.measures_children
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_sighup_renews_them(files: Files, client: ssl.SSLContext, threads: str) -> None:
    with ServerProcess(*arguments(files, "--ssl-reload", "0", "--threads", threads), cwd=files.directory) as server:
        server.wait_for("Started server process", count=int(threads))
        wait_for(lambda: is_listening(server.address))
        assert shown_at(server.port, client) == "first.test"
        files.issue("second.test")

        def is_renewed() -> bool:
            server.send_signal(signal.SIGHUP)  # again, for a loop that has not begun
            return {shown_at(server.port, client) for _ in range(8)} == {"second.test"}

        wait_for(is_renewed)
        files.certfile.write_text("broken")
        server.send_signal(signal.SIGHUP)
        server.wait_for("Cannot load the new TLS certificates, keeping the previous ones: ")
        assert shown_at(server.port, client) == "second.test"
        assert server.stop() == -signal.SIGTERM


@pytest.mark.measures_children
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_service_manager_is_told_of_the_look(files: Files, tmp_path: Path, threads: str) -> None:
    """Without it a unit of `Type=notify-reload` fails to reload. The service is ready again afterwards, in any case."""
    manager = Manager(tmp_path / "notify")
    options = arguments(files, "--ssl-reload", "0", "--threads", threads, "--systemd")
    with manager.sock, ServerProcess(*options, cwd=files.directory, env=manager.environment()) as server:
        assert manager.next() == "READY=1"
        for contents in (None, "broken", "still broken"):
            if contents is not None:
                files.certfile.write_text(contents)
            server.send_signal(signal.SIGHUP)
            assert manager.next().startswith("RELOADING=1\nMONOTONIC_USEC=")
            assert manager.next() == "READY=1"
        server.wait_for("Cannot load the new TLS certificates, keeping the previous ones")
        server.stop()
        assert manager.next() == "STOPPING=1"


@pytest.mark.measures_children
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")
def test_without_the_setting_sighup_starts_a_process_with_the_new_ones(files: Files, client: ssl.SSLContext) -> None:
    command = [sys.executable, "-m", "uvicorn"]
    with ServerProcess(*arguments(files), cwd=files.directory, command=command) as server:
        server.wait_for("Uvicorn running on")
        files.issue("second.test")
        server.send_signal(signal.SIGHUP)
        server.wait_for("Took over from process")
        assert server.process.wait(30) == 0
        assert shown_at(server.port, client) == "second.test"


@pytest.mark.measures_children
def test_all_workers_renew_them(files: Files, client: ssl.SSLContext) -> None:
    with ServerProcess(*arguments(files, "--ssl-reload", "0.05", "--workers", "2"), cwd=files.directory) as server:
        server.wait_for("Started server process", count=2)
        wait_for(lambda: is_listening(server.address))
        assert shown_at(server.port, client) == "first.test"
        files.issue("second.test")
        wait_for(lambda: {shown_at(server.port, client) for _ in range(8)} == {"second.test"})


# The end.


NOW = 1_900_000_000.0


def certificate_watch(
    context: ssl.SSLContext, page: Page | None = None, place: Any = None, at: float = NOW
) -> CertificateWatch:
    return CertificateWatch(context, None, page, place, clock=lambda: at)


def expiring(files: Files, seconds: float) -> ssl.SSLContext:
    end = datetime.datetime.fromtimestamp(NOW + seconds, datetime.timezone.utc)
    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    files.issue("ends.test", not_before=begin, not_after=end)
    config = config_of(files)
    config.load()
    assert config.ssl is not None
    return config.ssl


@pytest.mark.parametrize(
    "days, level, text",
    [
        (15, None, ""),
        (14.01, None, ""),
        (13.99, "WARNING", "The TLS certificate (default: ends.test) expires on 2030-03-31, in 13 days."),
        (0.5, "WARNING", "in 0 days."),
        (-0.5, "ERROR", "expired on 2030-03-17."),
    ],
)
async def test_the_end_is_told_14_days_ahead(
    files: Files, caplog: pytest.LogCaptureFixture, days: float, level: str | None, text: str
) -> None:
    watching = certificate_watch(expiring(files, days * DAY))
    watching.start()
    watching.stop()
    assert [record.levelname for record in caplog.records] == ([] if level is None else [level])
    assert text in caplog.text


@pytest.mark.parametrize("name, setting", [("default", "ssl_certfile"), ("a.test", "ssl_cert")])
async def test_certificates_that_are_not_yet_valid_have_a_line(
    files: Files, caplog: pytest.LogCaptureFixture, name: str, setting: str
) -> None:
    begin = datetime.datetime.fromtimestamp(NOW + 3600, datetime.timezone.utc)
    files.issue("ahead.test", not_before=begin, not_after=begin + datetime.timedelta(days=90))
    pair = f"a.test={files.certfile},{files.keyfile}"
    config = config_of(files, ssl_cert=[pair] if name == "a.test" else [])
    config.load()
    assert config.ssl is not None
    watching = certificate_watch(config.ssl)
    watching.start()
    watching.stop()
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    assert caplog.messages[-1] == (
        f"The TLS certificate ({name}: ahead.test) is not valid before 2030-03-17 18:46 UTC: clients reject it. Check "
        f"this machine's clock, or replace the files of {setting}."
    )
    assert watching.pause(NOW + 1800) == 1801
    caplog.clear()
    watching = certificate_watch(config.ssl, at=NOW + 3600)
    watching.start()
    watching.stop()
    assert not caplog.messages


async def test_a_certificate_that_expires_during_service_has_its_line_on_that_day(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    now = NOW
    watching = CertificateWatch(expiring(files, 60), None, None, None, clock=lambda: now)
    for _ in range(3):
        watching.look()
        now += watching.pause(now)
    watching.stop()
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


@pytest.mark.skipif(sys.platform != "linux", reason="workers have no memory in common")
async def test_one_of_several_workers_tells_it_once_a_day(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    context = expiring(files, 3 * DAY)
    table = LoadTable.make()
    assert table is not None
    places = [table.take() for _ in range(3)]
    for day in (0, 0, 1, 1, 2):
        for place in places:
            watching = certificate_watch(context, None, place, NOW + day * DAY)
            watching.look()
            watching.stop()
    assert [message.partition("in ")[2] for message in caplog.messages] == ["3 days.", "2 days.", "1 days."]
    assert table.numbers() == [None] * 3, "which has nothing to do with loads"


async def test_the_end_of_a_renewed_certificate_is_told_at_once(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """An operator who loads one that has expired reads so then, and not tomorrow."""
    now = datetime.datetime.now(datetime.timezone.utc)
    files.issue("soon.test", not_after=now + datetime.timedelta(days=3.5))
    async with run_server(config_of(files, ssl_reload=0.02)):
        assert [record.levelname for record in caplog.records if "expire" in record.message] == ["WARNING"]
        begin, end = now - datetime.timedelta(days=9), now - datetime.timedelta(days=2)
        files.issue("late.test", not_before=begin, not_after=end)
        await wait_until(lambda: "The TLS certificate (default: late.test) expired on" in caplog.text)


@pytest.mark.skipif(sys.platform != "linux", reason="workers have no memory in common")
async def test_one_of_several_workers_tells_that_of_a_renewed_one(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    table = LoadTable.make()
    assert table is not None
    places = [table.take() for _ in range(3)]
    for days in (3, 2, 2):
        context = expiring(files, days * DAY)
        watches = [certificate_watch(context, None, place) for place in places]
        for _ in range(2):
            for watching in watches:
                watching.look()
                watching.stop()
    # The third has the end of the second, and is another certificate.
    assert [message.partition("in ")[2] for message in caplog.messages] == ["3 days.", "2 days.", "2 days."]


async def test_the_end_is_a_metric(files: Files) -> None:
    context = expiring(files, 3 * DAY)
    aggregator = MetricsAggregator()
    first, second = aggregator.page(shared=False), aggregator.page(shared=False)
    assert aggregator.certificates(["default"]) == {}
    for page in (first, second):
        watching = certificate_watch(context, page)
        watching.start()
        watching.stop()
    second.words[CERTIFICATES] -= DAY
    end = int(NOW + 2 * DAY)
    assert aggregator.certificates(["default", "a.test"]) == {"default": end}, "one loop has not renewed it yet"
    text = render(aggregator.totals(), WorkerFigures({}, {}, aggregator.certificates(["default"])))
    (line,) = [line for line in text.splitlines() if line.startswith("uvicorn_tls_certificate_expiry_seconds")]
    name, value = line.split()
    assert name == 'uvicorn_tls_certificate_expiry_seconds{name="default"}'
    assert abs(float(value) + time.time() - end) < 600
    aggregator.retire(second)
    assert aggregator.certificates(["default"]) == {"default": end + DAY}


async def test_metrics_follow_a_renewal(files: Files) -> None:
    config = config_of(
        files, metrics="127.0.0.1:0", ssl_reload=0.02, ssl_cert=[f"a.test={files.certfile},{files.keyfile}"]
    )
    async with run_server(config) as server:
        page = server.server_state.metrics
        assert page is not None
        words = page.words
        before = words[CERTIFICATES]
        assert before == words[CERTIFICATES + 1] > time.time()
        assert not any(words[CERTIFICATES + 2 : CERTIFICATES + MOST_CERTIFICATES])
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=99)
        files.issue("second.test", not_after=end)
        await wait_until(lambda: words[CERTIFICATES] == words[CERTIFICATES + 1] == int(end.timestamp()))


async def test_without_tls_there_is_no_such_metric() -> None:
    assert Config(app, log_config=None).certificate_names == []
    assert "certificate" not in render(MetricsAggregator().totals(), WorkerFigures({}, {}))
