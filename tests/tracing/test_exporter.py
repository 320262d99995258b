"""How spans reach a collector, and what becomes of them if they do not."""

from __future__ import annotations

import contextlib
import functools
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest

from tests.tracing.collector import Collector, collecting
from tests.utils import wait_until
from uvicorn.metrics.page import SPANS, SPANS_DROPPED, Page
from uvicorn.tracing import exporter
from uvicorn.tracing.exporter import MOST_PATIENCE, Exporter, seconds_of
from uvicorn.tracing.options import options_of
from uvicorn.tracing.otlp import encode

if TYPE_CHECKING:
    import trustme

pytestmark = pytest.mark.anyio

SERVER = ("GET", b"", b"", 0, b"", b"", None)
SPAN = encode("1" * 32, "2" * 16, "", "", 1, (1, 0, 0, 1), SERVER, b"", b"", (b"", 0), b"", b"")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "BACKOFF", 0.001)
    monkeypatch.setattr(exporter, "INTERVAL", 0.01)


def sending(url: str, spans: list[bytes], **environment: str) -> tuple[Exporter, Page]:
    page = Page.make()
    sender = Exporter(options_of(url, None, False, environment), spans, page)
    sender.start()
    return sender, page


async def test_batches_go_to_a_collector_that_needs_its_time(caplog: pytest.LogCaptureFixture) -> None:
    with collecting() as collector:
        collector.answers = [
            (503, {}),
            (429, {"retry-after": "0"}),
            (504, {}),
            (200, {}),
            (200, {"connection": "close"}),
        ]
        spans = [SPAN] * 1300
        sender, page = sending(
            collector.url,
            spans,
            OTEL_EXPORTER_OTLP_HEADERS="authorization=secret",
            OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
            OTEL_SERVICE_NAME="shop",
        )
        await wait_until(lambda: len(collector.spans) == 1300)
        spans.append(SPAN)
        sender.close()
        assert len(collector.spans) == 1301 and [page.words[SPANS], page.words[SPANS_DROPPED]] == [1301, 0]
        assert max(len(request.resource_spans[0].scope_spans[0].spans) for request in collector.requests) == 512
        assert {headers["authorization"] for headers in collector.headers} == {"secret"}
        assert collector.resource["service.name"] == "shop" and not caplog.messages


async def test_what_is_not_taken_is_dropped_and_said_once(subtests: Any, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(collector: Collector) -> str:
        collector.answers = [(400, {}) for _ in range(2)]
        return "answers 400 Bad Request"

    def fail(collector: Collector) -> str:
        collector.answers = [(503, {}) for _ in range(2 * exporter.ATTEMPTS)]
        return "answers 503 Service Unavailable"

    def redirect(collector: Collector) -> str:
        collector.answers = [(307, {"location": "/elsewhere"}) for _ in range(2)]
        return "answers 307"

    def reject(collector: Collector) -> str:
        collector.body = b"\x0a\x03\x08\x80\x04"  # all 512 of a batch
        return "rejected them"

    for circumstance in (refuse, fail, redirect, reject):
        with subtests.test(circumstance.__name__), collecting() as collector:
            caplog.clear()
            text = circumstance(collector)
            sender, page = sending(collector.url, [SPAN] * 600)
            await wait_until(functools.partial(lambda words: words[SPANS_DROPPED] >= 600, page.words))
            assert [line for line in caplog.messages if text in line and "otel_endpoint" in line]
            assert len(caplog.messages) == 1 and caplog.messages[0].startswith("Dropped 512 OpenTelemetry spans")
            sender.close()
            assert len(caplog.messages) == 2  # the others, as the server ends
            if circumstance is fail:
                assert len(collector.paths) == 2 * exporter.ATTEMPTS


async def test_a_collector_that_is_not_there_or_hangs_does_not_delay_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, subtests: Any
) -> None:
    """Neither one that comes slowly nor one that comes fast."""
    monkeypatch.setattr(exporter, "FLUSH", 0.2)
    with subtests.test("not there"):
        sender, page = sending("http://127.0.0.1:1", [SPAN])
        sender.close()
        assert page.words[SPANS_DROPPED] == 1 and "Connection refused" in caplog.text
    with subtests.test("hangs"), socket.create_server(("127.0.0.1", 0)) as silent:
        spans = [SPAN] * 600
        sender, page = sending(f"http://127.0.0.1:{silent.getsockname()[1]}", spans)
        await wait_until(lambda: len(spans) < 600)
        sender.close()
        assert not spans and "Dropped 600 OpenTelemetry spans at shutdown" in caplog.text
        assert [page.words[SPANS], page.words[SPANS_DROPPED]] == [600, 600]
        # The connection ends now, and its batch is not counted again.
        silent.close()
        sender._thread.join(5)
        assert not sender._thread.is_alive() and [page.words[SPANS], page.words[SPANS_DROPPED]] == [600, 600]


async def test_a_collector_that_reads_slowly_has_no_more_time(
    tls_certificate: trustme.LeafCert, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With TLS each piece is written by a call of its own, and succeeds."""
    monkeypatch.setattr(exporter, "ATTEMPTS", 1)
    monkeypatch.setattr(exporter, "TIMEOUT", 0.3)
    monkeypatch.setattr(ssl, "_create_default_https_context", ssl._create_unverified_context)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_certificate.configure_cert(context)
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def read() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with context.wrap_socket(connection, server_side=True) as secure:
                    while not is_over.wait(0.01):
                        secure.recv(16 * 1024)

        thread = threading.Thread(target=read)
        thread.start()
        sender, page = sending(f"https://127.0.0.1:{listener.getsockname()[1]}", [bytes(40_000)] * 512)
        await wait_until(lambda: page.words[SPANS_DROPPED])
        is_over.set()
        thread.join(5)
    assert "timed out" in caplog.text and page.words[SPANS_DROPPED] == 512
    sender.close()


@contextlib.contextmanager
def answering(*parts: bytes, pause: float = 0.0) -> Iterator[str]:
    """A collector that writes the parts, and the last of them again and again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(65536)
                        for part in itertools.chain(parts, itertools.repeat(parts[-1])):
                            connection.sendall(part)
                            time.sleep(pause)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


async def test_an_answer_without_an_end_does_not_hold_the_exporter(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, subtests: Any
) -> None:
    """What it says in its status line, or instead of one, is shown without control characters."""
    monkeypatch.setattr(exporter, "ATTEMPTS", 1)
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * 100
    for name, pause, timeout, text in (
        ("a byte at a time", 0.02, 0.2, "timed out"),
        ("without a pause", 0.0, 10.0, "longer than 131072 bytes"),
    ):
        with subtests.test(name), answering(b"HTTP/1.1 100 Continue\r\n", interim, pause=pause) as url:
            caplog.clear()
            monkeypatch.setattr(exporter, "TIMEOUT", timeout)
            sender, page = sending(url, [SPAN])
            await wait_until(functools.partial(lambda words: words[SPANS_DROPPED] == 1, page.words))
            assert text in caplog.text
            sender.close()


async def test_an_answer_cannot_forge_lines_of_the_log(caplog: pytest.LogCaptureFixture, subtests: Any) -> None:
    """What it says in its status line, or instead of one, is shown without control characters."""
    for head in (b"HTTP/1.1 400 ", b""):
        with subtests.test(head=head), answering(head + b"\x1b[2Jno\rERROR: " + b"A" * 9000 + b"\r\n\r\n") as url:
            caplog.clear()
            sender, page = sending(url, [SPAN])
            await wait_until(functools.partial(lambda words: words[SPANS_DROPPED] == 1, page.words))
            (line,) = caplog.messages
            assert "?[2Jno?ERROR: AAA" in line and line.isprintable() and len(line) < 300
            sender.close()


def test_a_collector_can_ask_to_wait(subtests: Any) -> None:
    cases = {"": 0, "7": 7, "-1": 0, "1e9": 0, "9" * 20: 0, "\u0661": 0, "soon": 0, formatdate(0, usegmt=True): 0}
    for text, seconds in cases.items():
        with subtests.test(text=text):
            assert seconds_of(text) == seconds
    assert 50 < seconds_of(formatdate(time.time() + 60, usegmt=True)) <= 60
    assert MOST_PATIENCE < 60
