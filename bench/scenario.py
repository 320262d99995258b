"""The workloads: which application, which request, what a right answer looks like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench import applications, apps
from bench.errors import BenchError
from bench.load.websocket import document


@dataclass(frozen=True)
class Workload:
    """One kind of work. `app` names an attribute of `bench.apps`; `wsgi` its WSGI form where there is one.

    `connections` is the default number of connections. `response_bytes` is the exact body length of a right answer.
    `bound_by` says what limits the throughput: "server", "application" (a better server gains little), "waiting",
    "rate" (the client sends no faster), or "other work" (each server does as much as it can beside the timed requests,
    so that its cost says nothing). `mount` is a path below which a server that can answers with files itself, in the
    place of the application. `real` is the name of a real application (see `bench.applications`), which has an
    environment of its own.
    """

    name: str
    about: str
    app: str
    method: str = "GET"
    path: str = "/"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    response_bytes: int | None = None
    connections: int = 64
    pipeline: int = 1
    access_log: bool = False
    wsgi: str | None = None
    needs: frozenset[str] = frozenset()
    bound_by: str = "server"
    generator: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    mount: str = ""
    real: str = ""

    @property
    def tls(self) -> bool:
        """Whether it goes through TLS."""
        return "tls" in self.needs

    @property
    def http2(self) -> bool:
        """Whether it is spoken over HTTP/2; `pipeline` is the number of streams of a connection then."""
        return "HTTP/2" in self.needs

    @property
    def http3(self) -> bool:
        """Whether it is spoken over HTTP/3; `pipeline` is the number of streams of a connection then."""
        return "HTTP/3" in self.needs

    @property
    def closes(self) -> bool:
        """Whether each request has a connection of its own."""
        return self.headers.get("Connection") == "close"

    @property
    def kind(self) -> str:
        """What a server is started for."""
        version = "HTTP/3" if self.http3 else "HTTP/2" if self.http2 else "HTTP/1.1"
        more = {"TLS": self.tls, "access log": self.access_log, "files": bool(self.mount)}
        return ", ".join([version, *(name for name, wanted in more.items() if wanted)])

    @property
    def payload(self) -> int:
        """Bytes of the bodies that one request moves, both ways, where they are what it costs; 0 where they are few."""
        moved = len(self.body) + (self.response_bytes or 0)
        return moved if moved >= MIB else 0

    @property
    def asks(self) -> frozenset[str]:
        """What a load generator must be able to do for it (see `bench.load.base.Generator`)."""
        special = {"tls": self.tls, "close": self.closes, "http2": self.http2, "http3": self.http3}
        return frozenset({*self.options, *(name for name, asked in special.items() if asked)})


@dataclass(frozen=True)
class Knobs:
    """Parameters of the sleeping, computing and blocking workloads; the same for every target."""

    sleep_ms: float = 10
    cpu_iterations: int = 2000
    io_ms: float = 5

    def environment(self) -> dict[str, str]:
        """As the environment variables `bench.apps` reads."""
        return {
            "BENCH_SLEEP_MS": str(self.sleep_ms),
            "BENCH_CPU_ITERATIONS": str(self.cpu_iterations),
            "BENCH_IO_MS": str(self.io_ms),
        }


BROWSER_HEADERS = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en-GB,en;q=0.7,de;q=0.3",
    "Accept-Encoding": "gzip, deflate, br, zstd",
    "Referer": "https://example.com/start/page?with=query",
    "Cookie": "session=0123456789abcdef0123456789abcdef; theme=dark; consent=yes",
    "Sec-Fetch-Mode": "navigate",
    "Cache-Control": "max-age=0",
}

# A request as browsers make it; `varying` has another path, query and id each time.
BROWSED = "/items/4711/garden-chair?page=12&sort=price&q=chair+483917"
REQUEST_ID = {"X-Request-ID": "0123456789abcdef0123456789abcdef"}
VARIETY = 10_000

MIB = 2**20
BULK = 16 * MIB

FASTAPI_ANSWER = b'{"message":"Hello, World!","items":[1,2,3]}'


def _websocket(
    name: str,
    about: str,
    size: int,
    *,
    app: str = "websocket",
    connections: int = 32,
    in_flight: int = 1,
    **options: str,
) -> Workload:
    """Messages of a size. `deflate` among the options: the client offers to compress, and does."""
    needs = {"websocket", *(["permessage-deflate"] if "deflate" in options else [])}
    return Workload(
        name,
        about,
        app,
        response_bytes=13,
        connections=connections,
        pipeline=in_flight,
        needs=frozenset(needs),
        generator="websocket",
        options=options,
        body=document(size),
    )


def _tokens(name: str, about: str, app: str) -> Workload:
    """500 streams of server-sent events."""
    return Workload(
        name,
        f"500 streams, an event of 20 bytes each {apps.TOKEN_INTERVAL * 1000:.0f} ms, {about}; a request is one event, "
        "its latency the jitter",
        app,
        response_bytes=len(apps.HELLO),
        connections=500,
        generator="tokens",
        bound_by="rate",
        options={"stream-path": apps.STREAM_PATH, "interval": str(apps.TOKEN_INTERVAL)},
    )


# What `websocket` measures.
WEBSOCKETS = (
    _websocket("echo-64", "64 B of text echoed, one message under way on each socket", 64),
    _websocket("echo-64-x16", "64 B of text echoed, 16 messages under way on each socket", 64, in_flight=16),
    _websocket("echo-16k", "16 KiB echoed, binary", 16384, kind="binary"),
    _websocket("echo-1m", "1 MiB echoed, binary", MIB, connections=8, kind="binary"),
    _websocket("deflate-64", "64 B of text echoed, both sides with permessage-deflate", 64, deflate="yes"),
    _websocket(
        "broadcast-1k",
        "1 KiB to 1,000 sockets; a request is one delivery",
        1024,
        app="broadcast",
        connections=1000,
        kind="binary",
        pattern="broadcast",
    ),
    _websocket("open-close", "a handshake, a close, and the end of the connection", 1, pattern="open"),
    _websocket("starlette-64", "64 B of text echoed by Starlette", 64, app="bench_apps_starlette:application"),
)


def _http2(name: str, about: str, app: str = "hello", **more: Any) -> Workload:
    """Requests over HTTP/2: in the clear unless `needs` says otherwise, 8 connections of 16 streams unless told."""
    needs = frozenset({"HTTP/2", *more.pop("needs", ())})
    usual = {"response_bytes": 13, "connections": 8, "pipeline": 16, "generator": "h2load-h2"}
    return Workload(name, about, app, needs=needs, **{**usual, **more})


HTTP2 = (
    _http2("h2", "hello over HTTP/2, 16 streams on each connection"),
    _http2("h2-headers", "the same with 8 browser headers", headers=BROWSER_HEADERS),
    _http2("h2-one", "hello over HTTP/2, 100 streams on one connection", connections=1, pipeline=100),
    _http2("h2-10k", "10 KiB answer over HTTP/2", "ten_kib", response_bytes=10240),
    _http2(
        "h2-upload",
        "1 MiB posted over HTTP/2, 16 streams on one connection",
        "upload",
        method="POST",
        body=b"u" * MIB,
        response_bytes=12,
        connections=1,
        needs=["body"],
    ),
    _http2("h2-tls", "hello over HTTP/2 and TLS", needs=["tls"]),
    *(
        _http2(
            name,
            f"hello{through} beside 8 downloads of 100 MiB on the same HTTP/2 connection; latency is that of hello",
            "beside",
            connections=1,
            pipeline=1,
            generator="beside",
            options={"downloads": "8", "download-path": "/download"},
            needs=needs,
            bound_by="other work",
        )
        for name, through, needs in (("h2-beside", "", []), ("h2-beside-tls", " through TLS", ["tls"]))
    ),
)


def _http3(name: str, about: str, app: str, size: int, connections: int, streams: int, **more: Any) -> Workload:
    """Requests over HTTP/3, or with the option `over=http2` of a server over HTTP/2 and TLS."""
    needs = frozenset({"HTTP/3", "tls", *more.pop("needs", ())})
    about = f"{about} over HTTP/3, {streams} at once on each connection"
    shape: dict[str, Any] = {"response_bytes": size, "connections": connections, "pipeline": streams}
    return Workload(name, about, app, needs=needs, generator="h3load", **shape, **more)


HTTP3 = (
    _http3("h3", "1 KiB", "one_kib", 1024, 10, 10),
    _http3("h3-streams", "1 KiB", "one_kib", 1024, 10, 100),
    _http3("h3-10k", "10 KiB", "ten_kib", 10240, 10, 10),
    _http3("h3-1m", "1 MiB", "one_mib", MIB, 8, 1),
    _http3("h3-upload", "1 MiB posted", "upload", 12, 8, 1, method="POST", body=b"u" * MIB, needs=["body"]),
)

IDENTICAL = Workload(
    "identical",
    "a browser's GET, always the same; the application reads path, query and headers",
    "reading",
    path=BROWSED,
    headers={**BROWSER_HEADERS, **REQUEST_ID},
    response_bytes=13,
)

VARYING = replace(
    IDENTICAL,
    name="varying",
    about=f"the same with another path, query and X-Request-ID each time ({VARIETY:,} different ones)",
    options={"variety": str(VARIETY)},
)


VARYING_LOG = replace(
    VARYING,
    name="log-varying",
    about="varying with the access log on, default settings",
    access_log=True,
    needs=frozenset({"access log"}),
)


def _api(name: str, about: str, app: str, spaces: bool = False, generator: str | None = None) -> Workload:
    """An API that validates a varying GET, waits 2 ms as if for a database, and answers with 2 KB of JSON."""
    answer = json.dumps(apps.api_document(1, 1), separators=(", ", ": ") if spaces else (",", ":"))
    return replace(
        VARYING,
        name=name,
        about=f"{about}: varying GETs validated, a wait of {apps.API_WAIT * 1000:.0f} ms, 2 KB of JSON",
        app=app,
        response_bytes=len(answer),
        bound_by="application",
        generator=generator,
    )


# wrk leaves out the requests under way when a burst ends: with few requests in a burst, they are many of them.
APIS = (
    _api("fastapi-api", "FastAPI with Pydantic", "bench_apps_fastapi:application", generator="closedloop"),
    _api("starlette", "Starlette", "bench_apps_starlette:api"),
    _api(
        "django",
        "Django with an asynchronous view and a form",
        "bench_apps_django:application",
        spaces=True,
        generator="closedloop",
    ),
)

TLS_NEW = Workload(
    "tls-new",
    "a TLS connection for each request",
    "hello",
    response_bytes=13,
    headers={"Connection": "close"},
    connections=1,
    needs=frozenset({"tls"}),
    generator="s_time",
)

TABLE = (
    Workload("hello", "13 bytes, nothing read", "hello", response_bytes=13, wsgi="wsgi_hello"),
    Workload("10k", "10 KiB answer", "ten_kib", response_bytes=10240, connections=128, wsgi="wsgi_ten_kib"),
    Workload(
        "echo",
        "10 KiB posted and sent back",
        "echo",
        method="POST",
        body=b"e" * 10240,
        response_bytes=10240,
        wsgi="wsgi_echo",
        needs=frozenset({"body"}),
    ),
    Workload("stream", "10 pieces of 1 KiB, chunked", "stream", response_bytes=10240),
    Workload("headers", "hello with 8 browser headers", "hello", headers=BROWSER_HEADERS, response_bytes=13),
    Workload(
        "sleep", "hello after a wait on the loop", "sleep", response_bytes=13, connections=512, bound_by="waiting"
    ),
    Workload("pipeline", "hello, 16 requests in flight per connection", "hello", response_bytes=13, pipeline=16),
    Workload(
        "log",
        "hello with the access log on, default settings",
        "hello",
        response_bytes=13,
        access_log=True,
        needs=frozenset({"access log"}),
    ),
    Workload("cpu", "the application computes", "cpu", response_bytes=12, bound_by="application"),
    Workload("io", "a blocking call in the thread pool", "io", response_bytes=13, bound_by="waiting"),
    Workload("json", "a document of 20 items", "document", response_bytes=apps.DOCUMENT_BYTES),
    Workload("files", "64 KiB from disk in 4 pieces", "files", response_bytes=apps.FILE_BYTES),
    Workload(
        "static",
        "a file of 10 KiB, from the server's own mount where it has one, else from Starlette's StaticFiles",
        "bench_apps_starlette:static",
        path=f"{apps.MOUNT}/{apps.MOUNTED_FILE}",
        response_bytes=len(apps.TEN_KIB),
        mount=apps.MOUNT,
    ),
    Workload(
        "fastapi",
        "a FastAPI JSON endpoint",
        "bench_apps_fastapi:application",
        response_bytes=len(FASTAPI_ANSWER),
        bound_by="application",
    ),
    _tokens("tokens", "plain ASGI", "tokens"),
    _tokens("tokens-fastapi", "FastAPI's StreamingResponse", "bench_apps_sse:fastapi"),
    _tokens("tokens-sse", "sse-starlette", "bench_apps_sse:sse"),
    Workload(
        "websocket",
        "one message echoed at a time per socket",
        "websocket",
        response_bytes=13,
        needs=frozenset({"websocket"}),
        generator="websocket",
        options={"kind": "binary"},
        body=b"w" * 128,
    ),
    IDENTICAL,
    VARYING,
    VARYING_LOG,
    *APIS,
    Workload(
        "accept",
        "newcomers beside 200 busy connections (200 us of CPU each request); latency is that of the newcomers, from "
        "connect to answer",
        "accept",
        response_bytes=13,
        connections=300,
        generator="accept",
        options={"busy": "200", "busy-path": "/busy"},
        bound_by="other work",
    ),
    Workload("churn", "hello, a connection per request", "hello", headers={"Connection": "close"}, response_bytes=13),
    Workload("tls", "hello through TLS", "hello", response_bytes=13, needs=frozenset({"tls"})),
    replace(
        VARYING,
        name="tls-varying",
        about="a browser's GET through TLS, with another path, query and X-Request-ID each time",
        needs=frozenset({"tls"}),
    ),
    Workload(
        "tls-10k", "10 KiB through TLS", "ten_kib", response_bytes=10240, connections=128, needs=frozenset({"tls"})
    ),
    Workload(
        "tls-1m",
        "1 MiB through TLS",
        "one_mib",
        response_bytes=MIB,
        connections=8,
        needs=frozenset({"tls"}),
    ),
    Workload(
        "tls-upload",
        "1 MiB posted through TLS",
        "upload",
        method="POST",
        body=b"u" * MIB,
        response_bytes=12,
        connections=8,
        needs=frozenset({"tls", "body"}),
    ),
    TLS_NEW,
    replace(
        TLS_NEW,
        name="tls-resumed",
        about="a TLS connection for each request, resumed with a session ticket",
        options={"resumes": "yes"},
    ),
    Workload(
        "upload",
        "16 MiB posted, read piece by piece",
        "upload",
        method="POST",
        body=b"u" * BULK,
        response_bytes=12,
        connections=8,
        needs=frozenset({"body"}),
    ),
    Workload("download", "16 MiB in pieces of 64 KiB", "download", response_bytes=BULK, connections=8),
    *WEBSOCKETS,
    *HTTP2,
    *HTTP3,
)


def _real(application: applications.Application) -> Workload:
    """The recorded load of a real application."""
    chat = application.generator == "chat"
    return Workload(
        f"app-{application.name}",
        application.about,
        application.application,
        connections=application.connections,
        needs=application.needs,
        bound_by="application",
        generator=application.generator,
        options={} if chat else {"session": application.name},
        real=application.name,
    )


REAL = tuple(map(_real, applications.TABLE))
WORKLOADS = {workload.name: workload for workload in (*TABLE, *REAL)}


def find(names: str) -> list[Workload]:
    """The workloads named in a comma-separated list; raises BenchError for an unknown name.

    `all` is every one but the real applications, which `real` is.
    """
    if names in ("all", "real"):
        return list(TABLE if names == "all" else REAL)
    found = []
    for name in names.split(","):
        if name not in WORKLOADS:
            raise BenchError(f"unknown workload {name!r}: choose from {', '.join(WORKLOADS)}, all, real")
        found.append(WORKLOADS[name])
    return found


def for_application(application: str, *, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Workload:
    """A workload for an application of the user's own, given as `module:attribute`."""
    workload = Workload("app", f"{method} {path} of {application}", application)
    return replace(workload, method=method, path=path, headers=dict(headers), body=body, bound_by="application")


@dataclass(frozen=True)
class Mode:
    """How many processes serve, or how many event loops in one, and through which interface."""

    kind: str = "single"
    processes: int = 1
    threads: int = 1

    @property
    def loops(self) -> int:
        """How many event loops serve, in all."""
        return max(self.processes, self.threads)

    def __str__(self) -> str:
        count = {"processes": self.processes, "threads": self.threads}.get(self.kind)
        return self.kind if count is None else f"{self.kind}={count}"


def parse_mode(text: str) -> Mode:
    """Read `single`, `wsgi`, `processes=N` or `threads=N`; raises BenchError for anything else."""
    kind, _, count = text.partition("=")
    if kind in ("single", "wsgi") and not count:
        return Mode(kind)
    if kind in ("processes", "threads") and count.isdecimal() and int(count) > 0:
        return Mode(kind, **{kind: int(count)})
    raise BenchError(f"unknown mode {text!r}: single, wsgi, processes=N, threads=N")
