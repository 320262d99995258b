"""A collector of spans that decodes them with OpenTelemetry's own package."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def plain(value: Any) -> Any:
    """An attribute's value."""
    return getattr(value, value.WhichOneof("value"))


def attributes(message: Any) -> dict[str, Any]:
    return {pair.key: plain(pair.value) for pair in message.attributes}


class Collector:
    """Takes spans, once it has given each of `answers`: a status, and fields or none."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.body = b""
        self.requests: list[Any] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            collector = self

            def do_POST(self) -> None:
                collector = self.collector
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers["content-encoding"] == "gzip":
                    body = gzip.decompress(body)
                status, fields = collector.answers.pop(0) if collector.answers else (200, {})
                collector.paths.append(self.path)
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                if status == 200:
                    collector.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(status)
                for name, value in {**fields, "content-length": str(len(collector.body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(collector.body)

            def log_message(self, *arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resource(self) -> dict[str, Any]:
        return attributes(self.requests[0].resource_spans[0].resource)


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        thread.join()
        collector.server.server_close()
