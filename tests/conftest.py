"""Fixtures for every test: protocol classes, ports, certificates, loggers put back as they were."""

from __future__ import annotations

import copy
import gc
import importlib
import importlib.util
import itertools
import logging
import os
import runpy
import signal
import socket
import ssl
import sys
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests import reaper
from tests.loops import LOOPS
from tests.process import ROOT
from tests.utils import NATIVE
from tests.websockets import WS_PROTOCOLS, ws_class
from uvicorn.config import LOGGING_CONFIG

if TYPE_CHECKING:
    import trustme

    from uvicorn.observing.exposition import Exposition

# Nothing of a request is used again in this process, so that whatever looks at it when it is over shows. Those who test
# what is used again ask for `recycling`; servers in processes of their own do as in production.
os.environ.setdefault("UVICORN_POISON", "1")

# A busy machine is no reason to fail.
hypothesis.settings.register_profile("tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")

#: Names of signals that were ignored when the run began, for the processes that run the tests of another.
IGNORED = "TESTS_IGNORED_SIGNALS"


def pytest_sessionstart() -> None:
    """See to it that nothing outlives the run, and that nothing depends on what its caller ignores.

    An ignored signal stays ignored in whatever is started, a handled one has its default action there. So those that
    are ignored from outside (`nohup`, `trap ''`) are handled here, by doing nothing.
    """
    reaper.watch()
    names = os.environ.get(IGNORED, "").split()
    for name in ("SIGHUP", "SIGQUIT"):
        number = getattr(signal, name, None)
        if number is not None and (name in names or signal.getsignal(number) is signal.SIG_IGN):
            signal.signal(number, lambda *_: None)
            names.append(name)
    os.environ[IGNORED] = " ".join(names)


def stale_core() -> str | None:
    """Return what to say of a native core of other sources than those beside it."""
    spec = importlib.util.find_spec("uvicorn._native")
    if spec is None or spec.origin is None or Path(spec.origin).parent != ROOT / "uvicorn":
        return None
    try:
        sources: str | None = importlib.import_module("uvicorn._native").SOURCES
    except (AttributeError, ImportError):  # so old that it does not even say it
        sources = None
    if sources == runpy.run_path(str(ROOT / "native" / "fingerprint.py"))["fingerprint"]():
        return None
    return f"{spec.origin} was not built from the sources in native: run scripts/install test."


def refuse_stale_core() -> None:
    """Refuse to test a native core of other sources where there has to be one: in continuous integration."""
    complaint = stale_core()
    if complaint is not None and os.environ.get("UVICORN_REQUIRE_NATIVE") == "1":
        pytest.exit(complaint, returncode=2)


def pytest_configure(config: pytest.Config) -> None:
    """Look at the native core, and say what Python 3.10 complains of."""
    refuse_stale_core()
    if sys.version_info < (3, 11):
        # There a TLS transport whose peer has closed the connection complains that we have not.
        config.addinivalue_line("filterwarnings", "ignore:unclosed transport <asyncio.sslproto:ResourceWarning")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Elsewhere say it, below the list of skipped tests; `make test` builds it anew before. So with no core at all."""
    yield
    complaint = stale_core()
    if not NATIVE:
        reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]
        count = sum("native" in reason for reason in reasons)
        complaint = f"{count} tests were skipped: there is no native core. Install Rust (cargo) and run this again."
    if complaint is not None:
        terminalreporter.write_line(complaint, yellow=True)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: a collector that visits it again and again is most of a run."""
    gc.collect()
    gc.freeze()


#: Tests after which what they have left to the test runner is put aside as well.
FREEZE_EVERY = 100
_finished = itertools.count(1)


def pytest_runtest_logfinish() -> None:
    if next(_finished) % FREEZE_EVERY == 0:
        gc.collect()
        gc.freeze()


# To measure the coverage of a test doubles what it takes. So a test that runs on several machines and event loops is
# measured on one: the native core is not Python, and the others run the same Python. `no_cover` marks tests that take
# many turns through code which others cover.

#: Parts of ids of tests that are not measured.
UNMEASURED = {"native", "native-at-once", "uvloop"}


def is_measured(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return item.get_closest_marker("no_cover") is None and not (callspec and UNMEASURED.intersection(callspec._idlist))


# The native core reads and writes its sockets itself, and takes turns and timers from the event loop. So by day a test
# of it runs on one of its loops, half of the tests on each. In the night all run on both.


def loop_of(item: pytest.Item) -> str | None:
    """The event loop that a test of the native core runs on; None if it is another test."""
    callspec = getattr(item, "callspec", None)
    ids = set(callspec._idlist) if callspec else set()
    is_native = bool({"native", "native-at-once"} & ids) or (ROOT / "tests" / "native") in item.path.parents
    return next(iter(ids & set(LOOPS)), None) if is_native else None


def leave_other_loops_to_the_night(items: list[pytest.Item]) -> None:
    """Mark a test `deep` if the same test runs on the other event loop, and its name has chosen that."""
    names = {item.nodeid for item in items}
    for item in items:
        loop = loop_of(item)
        if loop is None:
            continue
        test, _, parameters = item.nodeid.partition("[")
        twins = [f"{test}[{parameters.replace(loop, other)}" for other in LOOPS]
        if names.issuperset(twins) and twins[zlib.crc32(twins[0].encode()) % len(twins)] != item.nodeid:
            item.add_marker(pytest.mark.deep)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those that are measured come first: to begin and to stop takes time."""
    leave_other_loops_to_the_night(items)
    if config.pluginmanager.hasplugin("_cov"):
        items.sort(key=is_measured, reverse=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leave out of reports what nothing reads there: the processes that run the tests send three of each test."""
    report = yield
    report.keywords = {}
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Stop measuring in front of the first test that is not measured, and go on in front of the next that is."""
    plugin = item.config.pluginmanager.getplugin("_cov")
    controller = getattr(plugin, "cov_controller", None)
    if controller is not None and controller.started is not is_measured(item):
        controller.pause() if controller.started else controller.resume()
    return (yield)


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of `run`, once the command has been invoked."""
    taken: dict[str, Any] = {}
    module = importlib.import_module("uvicorn.main")
    monkeypatch.setattr(module, "run", lambda app, **kwargs: taken.update(kwargs, app=app))
    return taken


@pytest.fixture(autouse=True)
def coverage_of_children(request: pytest.FixtureRequest) -> Iterator[None]:
    """Processes that a test starts are measured only where the test is marked `measures_children`.

    To import what measures takes a process as long as to start a server. So those are marked whose processes run what
    the tests run nowhere in their own: the start of a process, its end by a signal, what is found out before it serves.
    """
    inherited = "COVERAGE_PROCESS_CONFIG"
    config = os.environ.get(inherited)
    if config is None or request.node.get_closest_marker("measures_children"):
        yield
        return
    del os.environ[inherited]
    yield
    os.environ[inherited] = config


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _load(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


@pytest.fixture(
    params=[
        pytest.param("uvicorn.protocols.http.httptools_impl:HttpToolsProtocol", id="httptools"),
        pytest.param("uvicorn.protocols.http.h11_impl:H11Protocol", id="h11"),
        pytest.param("uvicorn.protocols.http.native_impl:NativeProtocol", id="native"),
    ]
)
def http_protocol_cls(request: pytest.FixtureRequest) -> Any:
    """Each implementation of HTTP/1.1 in turn."""
    if "native" in request.param:
        pytest.importorskip("uvicorn._native", reason="the native core was not built", exc_type=ModuleNotFoundError)
    return _load(request.param)


@pytest.fixture(params=["websockets-sansio", "native", "native-at-once"])
def ws_protocol_cls(request: pytest.FixtureRequest) -> Any:
    """Each implementation of a WebSocket session. The libraries of Python share one and differ as readers of frames."""
    return ws_class(request.param)


@pytest.fixture(params=["websockets-sansio", "wsproto", "native"])
def ws_reader_cls(request: pytest.FixtureRequest) -> Any:
    """Each reader of frames in turn, for tests of what a client sends."""
    return ws_class(request.param)


@pytest.fixture
def ws_protocol_classes() -> dict[str, Any]:
    """All of them, by name, for those who compare them."""
    return {name: ws_class(name) for name in WS_PROTOCOLS if NATIVE or not name.startswith("native")}


@pytest.fixture
def recycling(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in production: what comes back is used again."""
    monkeypatch.delenv("UVICORN_POISON", raising=False)


@pytest.fixture(params=["short", "long"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Servers take every shortcut that is proved here, or none, as on an interpreter of which nothing is proved."""
    if request.param == "long":
        monkeypatch.setenv("UVICORN_SHORTCUTS", "none")
    else:
        monkeypatch.delenv("UVICORN_SHORTCUTS", raising=False)
    return str(request.param)


@pytest.fixture
def exposed() -> Iterator[Exposition]:
    """A page of metrics at an address of its own."""
    from uvicorn.observing.exposition import Exposition, bind

    exposition = Exposition(bind("127.0.0.1:0"), lambda is_open: "some 1\n")
    exposition.start()
    yield exposition
    exposition.close()


@pytest.fixture
def unused_tcp_port() -> int:
    """A loopback TCP port nobody listened on a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


# Certificates, made once per run.


@pytest.fixture(scope="session")
def tls_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="session")
def tls_certificate_authority() -> trustme.CA:
    # What it needs is not there for every interpreter that some of the tests run on.
    module = pytest.importorskip("trustme")
    authority: trustme.CA = module.CA()
    return authority


@pytest.fixture(scope="session")
def tls_certificate(tls_certificate_authority: trustme.CA) -> trustme.LeafCert:
    """The server's certificate, for localhost and both loopback addresses."""
    return tls_certificate_authority.issue_cert("localhost", "127.0.0.1", "::1")


@pytest.fixture(scope="session")
def tls_ca_certificate_pem_path(tls_certificate_authority: trustme.CA, tls_directory: Path) -> str:
    path = tls_directory / "ca.pem"
    tls_certificate_authority.cert_pem.write_to_path(path)
    return str(path)


@pytest.fixture(scope="session")
def tls_certificate_server_cert_path(tls_certificate: trustme.LeafCert, tls_directory: Path) -> str:
    path = tls_directory / "server.pem"
    tls_certificate.cert_chain_pems[0].write_to_path(path)
    return str(path)


@pytest.fixture(scope="session")
def tls_certificate_private_key_path(tls_certificate: trustme.LeafCert, tls_directory: Path) -> str:
    path = tls_directory / "server.key"
    tls_certificate.private_key_pem.write_to_path(path)
    return str(path)


@pytest.fixture(scope="session")
def tls_certificate_key_and_chain_path(tls_certificate: trustme.LeafCert, tls_directory: Path) -> str:
    path = tls_directory / "server-key-and-chain.pem"
    tls_certificate.private_key_and_cert_chain_pem.write_to_path(path)
    return str(path)


@pytest.fixture(scope="session")
def tls_certificate_private_key_encrypted_path(tls_certificate: trustme.LeafCert, tls_directory: Path) -> str:
    """The server's key, encrypted with the password `uvicorn password for the win`."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(tls_certificate.private_key_pem.bytes(), password=None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"uvicorn password for the win"),
    )
    path = tls_directory / "server-encrypted.key"
    path.write_bytes(encrypted)
    return str(path)


@pytest.fixture(scope="session")
def tls_client_certificate_path(tls_certificate_authority: trustme.CA, tls_directory: Path) -> str:
    """Key and chain of a client certificate signed by the same authority (for mutual TLS)."""
    path = tls_directory / "client.pem"
    leaf = tls_certificate_authority.issue_cert("client@example.com", common_name="client")
    leaf.private_key_and_cert_chain_pem.write_to_path(path)
    return str(path)


@pytest.fixture
def tls_ca_ssl_context(tls_certificate_authority: trustme.CA) -> ssl.SSLContext:
    """A client's context that trusts the authority and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)  # set by some distributions
    tls_certificate_authority.configure_trust(context)
    return context


@pytest.fixture
def tls_client_ssl_context(tls_ca_ssl_context: ssl.SSLContext, tls_client_certificate_path: str) -> ssl.SSLContext:
    """`tls_ca_ssl_context` that also shows the client certificate."""
    tls_ca_ssl_context.load_cert_chain(tls_client_certificate_path)
    return tls_ca_ssl_context


# Logging is process-wide: a Config configures it, so each test starts from, and goes back to, what the run began with.


@dataclass
class _LoggerState:
    level: int
    handlers: list[logging.Handler]
    filters: list[Any]
    propagate: bool
    disabled: bool

    @classmethod
    def of(cls, logger: logging.Logger) -> _LoggerState:
        return cls(logger.level, logger.handlers[:], logger.filters[:], logger.propagate, logger.disabled)

    def restore(self, logger: logging.Logger) -> None:
        logger.setLevel(self.level)
        logger.handlers = self.handlers
        logger.filters = self.filters
        logger.propagate = self.propagate
        logger.disabled = self.disabled


#: What the run began with.
BUILT_IN = copy.deepcopy(LOGGING_CONFIG)
LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio")


@pytest.fixture(autouse=True)
def logging_restored() -> Iterator[None]:
    """Loggers, and the built-in logging configuration (`use_colors` is written into it), are as before afterwards."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    states = [_LoggerState.of(logger) for logger in loggers]
    yield
    if LOGGING_CONFIG != BUILT_IN:
        LOGGING_CONFIG.clear()
        LOGGING_CONFIG.update(copy.deepcopy(BUILT_IN))
    for logger, state in zip(loggers, states, strict=True):
        state.restore(logger)
