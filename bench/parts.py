"""The measurements for the documents, part by part: each part is one or more command lines of this harness. Pure.

`python -m bench publish` runs them. To verify a figure, run its command by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.errors import BenchError

# Every server that runs applications. Without options upstream is the one with httptools, which is its default.
SERVERS = "ours upstream granian hypercorn daphne gunicorn fastpysgi"
WITH_WEBSOCKET = "ours upstream granian hypercorn daphne gunicorn"
# How busy the machine is does not matter to a trial.
SHORT = "--seconds 1 --warm-up 0 --tolerate 9"
# The views of parts that only the HTML report shows: figures for developers of the server.
LABORATORY: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """One stored result: the `name` of its baseline, what it says to a reader, how it is measured.

    `quick` is added to each command to try the whole out. `minutes` and `quick_minutes` say about how long they take.
    `views` (see `bench.views`) are what the Markdown report shows of it; the page shows everything.
    """

    name: str
    title: str
    about: str
    commands: tuple[str, ...]
    quick: str
    minutes: float
    quick_minutes: float
    views: tuple[str, ...] = ("everything",)


PARTS = (
    Part(
        "performance",
        "Every server, workload by workload",
        "One server at a time, each burst against a fresh process of it, the order mirrored from block to block. "
        "Figures are medians, ratios are of bursts of one block. fastapi-api, starlette and django validate a query, "
        "wait 2 ms as if for a database and answer with 2 KB of JSON; in varying the application reads path, query and "
        "header fields; log-varying is the same with the access log, which is off elsewhere, to a file with default "
        "settings. These five have 10,000 requests in turn that differ in path, query and X-Request-ID. echo repeats "
        "one POST.",
        (
            f"compare {SERVERS} upstream:http=zttp --workload fastapi-api,starlette,django,varying,log-varying,echo "
            "--blocks 8 --seconds 1 --warm-up 0.3 --no-noise",
        ),
        f"--blocks 1 {SHORT}",
        13.5,
        4.5,
        ("headline", "brief", "losses"),
    ),
    Part(
        "plain",
        "Plain and repeated requests",
        "Benchmarks of servers usually show these. A server that remembers what it has parsed gains by requests "
        "that are alike, so these figures flatter it: identical is varying with one request again and again, pipeline "
        "has 16 requests under way on each connection, which browsers do not do; granian:flush=on has granian's option "
        "for that; epoll is a bare loop in C that parses nothing.",
        (
            "compare ours upstream upstream:http=zttp granian hypercorn daphne gunicorn fastpysgi epoll "
            "--workload hello --blocks 4 --seconds 1 --warm-up 0.3",
            "compare ours upstream granian gunicorn fastpysgi --workload identical,stream,fastapi --blocks 4 "
            "--seconds 1 --warm-up 0.3 --no-noise",
            "compare ours upstream granian granian:flush=on gunicorn fastpysgi --workload pipeline --blocks 4 "
            "--seconds 1 --warm-up 0.3 --no-noise",
            "compare ours upstream granian --workload headers,10k,sleep --blocks 4 --seconds 1 "
            "--warm-up 0.3 --no-noise",
        ),
        f"--blocks 1 {SHORT}",
        5.5,
        3.0,
        ("headline", "brief", "losses"),
    ),
    Part(
        "tokens",
        "Streams of tokens",
        "500 streams of server-sent events, 20 bytes each 20 ms, as language models send them: CPU for each event, and "
        "as latency the jitter, by how much the time between two events differs from 20 ms. Most of an event is the "
        "timer of the event loop and the system call.",
        (
            "compare ours upstream granian hypercorn --workload tokens,tokens-fastapi,tokens-sse --blocks 4 "
            "--seconds 1 --warm-up 0 --no-noise",
        ),
        f"--blocks 1 {SHORT}",
        3.7,
        0.8,
        ("brief", "losses"),
    ),
    Part(
        "tls",
        "TLS",
        "Answers through TLS, small, varying and large, an upload, and connections for one request each, with a full "
        "handshake (P-256) and resumed. tls=openssl is this fork with Python's TLS in place of rustls.",
        (
            "compare ours ours:tls=openssl upstream granian --workload "
            "tls,tls-varying,tls-10k,tls-1m,tls-upload,tls-new,tls-resumed --blocks 4 --seconds 1 --warm-up 0.3 "
            "--no-noise",
        ),
        f"--blocks 1 {SHORT}",
        5.4,
        0.7,
        ("brief", "losses"),
    ),
    Part(
        "applications",
        "Applications that compute, wait, read files",
        "cpu computes, io waits in a thread pool, files reads 64 KiB from disk, json builds a document. static is a "
        "file of 10 KiB, which a server with a mount answers without the application; servers without one use "
        "Starlette's StaticFiles.",
        (
            "compare ours upstream granian --workload cpu,io,json,files,static --blocks 4 --seconds 1 --warm-up 0.3 "
            "--no-noise",
        ),
        f"--blocks 1 {SHORT}",
        1.8,
        1.4,
        ("brief", "losses"),
    ),
    Part(
        "python",
        "The Python implementations against upstream's",
        "The same libraries on both sides: httptools, h11 and websockets. Only the requests of varying differ; this "
        "fork does not parse a repeated one again.",
        (
            "compare ours:http=httptools upstream:http=httptools --workload varying,hello,log,echo "
            "--blocks 4 --seconds 1 --warm-up 0.3 --no-noise",
            "compare ours:http=h11 upstream:http=h11 --workload varying,hello --blocks 4 --seconds 1 "
            "--warm-up 0.3 --no-noise",
            "compare ours:http=httptools,ws=websockets-sansio upstream:http=httptools,ws=websockets-sansio "
            "--workload websocket --blocks 4 --seconds 1 --warm-up 0.3 --no-noise",
        ),
        f"--blocks 1 {SHORT}",
        1.7,
        0.8,
        ("brief", "losses"),
    ),
    Part(
        "concurrency",
        "More and more connections: upstream before, this fork after",
        "The same 13 bytes to 1, 10, 50, 100, 1,000 and 10,000 connections, through wrk. In the report for a browser "
        "also through httpx, which fills its core before a server is busy, so that all servers look alike.",
        (
            "run upstream ours --connections 1,10,50,100,1000 --seconds 2 --warm-up 0.5 --rounds 2",
            "run upstream ours --connections 10000 --seconds 6 --warm-up 0.5 --rounds 2",
            "run upstream ours --tool httpx --connections 1,10,50,100 --seconds 1.5 --warm-up 0.3 --rounds 1",
        ),
        f"--rounds 1 {SHORT}",
        2.0,
        1.2,
        ("concurrency",),
    ),
    Part(
        "rate",
        "Latency at the same arrival rate",
        "30, 60 and 90% of upstream's capacity arrive at even distances, whether or not a server keeps up, and each "
        "request counts from the moment it was due. All servers get the same load; the application is Starlette. Each "
        "capacity is that of a short run, and uncertain by a quarter.",
        (
            "latency ours upstream granian gunicorn fastpysgi --workload starlette --of upstream --rounds 2 "
            "--connections 64,512 --seconds 1.5 --warm-up 0.3",
        ),
        f"--rounds 1 {SHORT} --connections 64",
        3.1,
        1.0,
    ),
    Part(
        "websocket",
        "WebSocket",
        "Messages echoed, one or 16 in flight per socket; compressed; broadcast, where a request is one delivery; "
        "handshakes, each followed by a close; and echoed by Starlette. Only open-close includes opening "
        "and closing. gunicorn unmasks messages byte by byte in Python, hence its figures for large ones. "
        "picows serves no ASGI applications: it calls a method for each message, and needs less CPU than this fork "
        "for small ones.",
        (
            "websocket ours upstream granian --paired --rounds 4 --seconds 1 --warm-up 0.3",
            "websocket hypercorn daphne gunicorn --rounds 1 --seconds 1 --warm-up 0.3",
            "websocket picows --cases echo-64,echo-64-x16,echo-16k,echo-1m,open-close --rounds 2 --seconds 1 "
            "--warm-up 0.3",
        ),
        f"--rounds 1 {SHORT}",
        3.8,
        2.4,
        ("speedups", "cases", "losses"),
    ),
    Part(
        "http2",
        "HTTP/2",
        "In the clear by prior knowledge, and over TLS, through h2load: 8 connections of 16 streams, one connection of "
        "100, uploads on one connection, and a small answer beside downloads.",
        (
            "compare ours hypercorn gunicorn --workload h2,h2-tls --blocks 4 --seconds 0.7 --warm-up 0.3 --no-noise",
            "compare ours upstream:http=zttp granian "
            "--workload h2,h2-headers,h2-one,h2-10k,h2-upload,h2-tls,h2-beside,h2-beside-tls "
            "--blocks 4 --seconds 0.7 --warm-up 0.3 --no-noise",
        ),
        f"--blocks 1 {SHORT}",
        3.9,
        1.3,
        ("brief", "losses"),
    ),
    Part(
        "http3",
        "HTTP/3",
        "Through h3load. `over=http2` is the same server and the same requests over HTTP/2 and TLS, through h2load; "
        "a ratio below 1 says how much more HTTP/3 costs.",
        (
            "compare ours ours:over=http2 --workload h3-streams,h3-10k,h3-1m,h3-upload --blocks 4 --seconds 0.4 "
            "--warm-up 0.2 --no-noise",
            "compare ours ours:over=http2 hypercorn --workload h3 --blocks 4 --seconds 0.7 --warm-up 0.3 --no-noise",
        ),
        f"--blocks 1 {SHORT}",
        1.4,
        0.6,
        ("brief", "losses"),
    ),
    Part(
        "overload",
        "Overload",
        "Requests arrive at three times the server's capacity, whether or not it keeps up. With this fork's limit on "
        "active requests the excess gets 503 at once and admitted requests are answered in time; without one "
        "all of them wait. Upstream's --limit-concurrency and granian's --backpressure count open connections, of "
        "which there are 512 here: below that upstream refuses all requests and granian leaves connections without "
        "an answer, above it neither has an effect. Each server is measured once.",
        ("overload ours ours:active=auto ours:active=16 upstream granian",),
        "--seconds 1 --settle 1 --tolerate 9",
        2.8,
        1.0,
    ),
    Part(
        "memory",
        "Memory",
        "At rest, after load, for each idle connection; in the report for a browser also the work that allocator and "
        "garbage collector get. One server at a time.",
        (
            f"memory {SERVERS} --steps held,allocations,collector,traced,connections --idle 5000,10000 --seconds 1",
            f"memory {WITH_WEBSOCKET} --steps websockets,compressed --idle 5000 --seconds 1",
            "memory ours:http=httptools ours:http=h11 upstream:http=h11 --steps connections --idle 5000 --seconds 1",
        ),
        f"--idle 200 {SHORT}",
        2.1,
        1.5,
    ),
    Part(
        "startup",
        "Starting, stopping, importing",
        "Medians of five starts. The first one, which fills caches, is not counted.",
        (f"startup {SERVERS} --rounds 5",),
        "--rounds 1",
        0.6,
        0.4,
    ),
    Part(
        "workers",
        "Many processes",
        "Start-up and memory of up to 100 workers, then load: what more workers bring, which take cores from the "
        "client; two workers that are replaced after 5,000 to 10,000 requests each, several times a second; and an "
        "application that keeps a part of each request. On two cores, which they share with the client, the lead over "
        "upstream shrinks with more workers. In the report for a browser also many connections, 20 seconds "
        "without a break, mixed work.",
        ("workers ours upstream --counts 1,10,100 --seconds 2 --minutes 0.25",),
        "--counts 1,4 --seconds 1 --minutes 0.05 --slice 2 --leak-requests 2000",
        3.9,
        1.5,
    ),
    Part(
        "micro",
        "One protocol object, no sockets",
        "What a request costs between the bytes that arrive and the bytes that leave. Instructions are counted by "
        "callgrind, and are the same on a busy machine.",
        ("micro",),
        "--operations 100 --rounds 1 --cases native:get,httptools:get,h11:get",
        0.3,
        0.3,
        LABORATORY,
    ),
)
# Measured only when asked for by name or with --everything: together they take longer than all others.
LONG = (
    Part(
        "pool",
        "Pools",
        "Reused objects against new ones, slots against dicts, ways of building bytes.",
        ("pool --operations 500000",),
        "--operations 2000 --capacities 10",
        0.4,
        0.1,
        LABORATORY,
    ),
    Part(
        "real",
        "Real applications",
        "Framework and application take most of the CPU time, so most servers differ by less than a tenth in it; "
        "against upstream two of eight show a difference. Programs as people run them, each driven by "
        "the recorded requests of its clients, again and again; a burst ends with the recording, so that each server "
        "answers the same mixture.",
        (
            "compare ours upstream granian gunicorn hypercorn --workload real --blocks 4 --seconds 1 --warm-up 0.3 "
            "--no-noise",
        ),
        f"--blocks 1 {SHORT}",
        9.7,
        6.0,
        ("brief", "losses"),
    ),
    Part(
        "bulk",
        "Large bodies",
        "16 MiB up and down.",
        ("compare ours upstream granian --workload upload,download --blocks 4 --seconds 2 --warm-up 0.3 --no-noise",),
        f"--blocks 1 {SHORT}",
        1.3,
        0.7,
        ("brief", "losses"),
    ),
    Part(
        "newcomers",
        "New connections",
        "How long a new client waits for its first answer while 200 others, whose requests cost the application "
        "200 us of CPU each, keep the server busy; and one connection per request. granian:backpressure=20000 serves "
        "more connections at once than its default of 1,024.",
        (
            "compare ours upstream granian granian:backpressure=20000 --workload accept --connections 300,5000 "
            "--blocks 4 --seconds 1.5 --warm-up 0.3 --no-noise",
            f"compare {SERVERS} --workload churn --blocks 4 --seconds 1 --warm-up 0.3 --no-noise",
        ),
        f"--blocks 1 {SHORT}",
        5.7,
        2.0,
        ("brief", "losses"),
    ),
    Part(
        "scaling",
        "Workers and event loops",
        "One, two and four workers or event loops; requests vary.",
        # With all cores in use, the kernel's own threads take up to a tenth of a core in a burst.
        ("scaling ours upstream granian hypercorn gunicorn --rounds 5 --seconds 1 --warm-up 0.3 --tolerate 0.15",),
        f"--rounds 1 {SHORT}",
        3.5,
        1.5,
    ),
    Part(
        "real-rate",
        "Real applications at the same arrival rate",
        "30, 60 and 90% of upstream's capacity arrive at even distances, the same for each server; not at app-chat, "
        "whose messages answer each other. A capacity is that of one short run: the section Real applications has 13% "
        "less to 57% more. Each figure is the mean of two bursts of ten seconds, which are in brackets unless only one "
        "counts. A virtual machine is slower at times: here the same server at the same rate needed up to a half more "
        "CPU per request in one burst than in the other, which from 60% on decides p99 and makes it differ up to a "
        "hundredfold. Brackets that overlap show no difference. PostgreSQL runs on the core of the load generator.",
        (
            "latency ours upstream granian gunicorn hypercorn "
            "--workload app-shop-sqlite,app-shop-postgres,app-blog,app-site,app-model,app-tools,app-data "
            "--of upstream --connections 32 --rounds 2 --seconds 10 --warm-up 0.5",
        ),
        f"--rounds 1 {SHORT}",
        48.0,
        8.0,
        ("arrivals",),
    ),
    Part(
        "real-memory",
        "Real applications' memory",
        "After 18,000 requests and more, as many as an hour has at five a second.",
        ("memory ours upstream granian gunicorn hypercorn --workload real --steps hour --seconds 2",),
        SHORT,
        34.0,
        25.0,
        ("hours", "losses"),
    ),
    Part(
        "gate-runs",
        "The regression gate on an unchanged tree",
        "The same tree judged twenty times, by whole servers and by memory eight times: how far values are spread, and "
        "how often they failed.",
        (
            "gate --times 20 --served= --memory=",
            "gate --times 8 --workload= --cases= --time= --calls=",
        ),
        "--times 1 --blocks 1",
        25.0,
        2.5,
        LABORATORY,
    ),
    Part(
        "gate-proof",
        "The regression gate on worse trees",
        "The unchanged tree must pass; copies with a tenth more of one thing, because they turn an empty loop or keep "
        "bytes, must fail. Ten times by the instructions of micro-benchmarks; then twice by those of whole servers, "
        "which the wrapper of the slowed application alone adds 3% to, and by the memory of idle connections. System "
        "calls, CPU time and ratios to upstream are not proven here, nor memory of TLS, WebSocket and HTTP/2.",
        (
            "gate --prove --times 10 --cases native:get,native:log,httptools:get,httptools:log,websocket:echo "
            "--time= --calls= --served= --memory=",
            "gate --prove --times 2 --cases= --time= --calls= --memory=hello",
        ),
        "--times 1",
        25.0,
        8.0,
        LABORATORY,
    ),
)
# The values that the regression gate holds a tree against; they are no result, and come last.
GATE = ("gate --update --tool wrk", "gate --update --tool closedloop --cases= --time= --calls= --served= --memory=")
GATE_QUICK = "--workload hello --blocks 1"
GATE_MINUTES, GATE_QUICK_MINUTES = 3.8, 3.0

NAMES = (*(part.name for part in PARTS), "gate")


def find(name: str) -> Part:
    """The part of a name; raises BenchError for an unknown name."""
    for part in (*PARTS, *LONG):
        if part.name == name:
            return part
    raise BenchError(f"unknown part {name!r}: choose from {', '.join([*NAMES, *(part.name for part in LONG)])}")
