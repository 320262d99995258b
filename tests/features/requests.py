"""What can be known of requests: ids, those in flight, metrics."""

from __future__ import annotations

import re
import signal
import socket
from contextlib import ExitStack, suppress

from tests.features.feature import Group
from tests.features.table import Finding
from tests.features.trial import GRANIAN, GUNICORN, HYPERCORN, NGINX, OURS, Means, Trial, eventually, free_port
from tests.features.wire import Way, ask, connect, head

REQUESTS = Group("Requests")

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"

NGINX_ID = """\
map $http_traceparent $trace {{ default $request_id; "~^00-(?<of_trace>[0-9a-f]{{32}})-[0-9a-f]{{16}}-" $of_trace; }}
map $http_x_request_id $id {{ default $trace; ~^[-._0-9A-Za-z]+$ $http_x_request_id; }}
log_format ids '"$request" $id';
""".format()


def identified(trial: Trial) -> dict[str, Means]:
    """Servers that give requests an id, or can log one."""
    log = trial.directory / "access.log"
    return {
        OURS: Means("`--request-id`", ["--request-id", "--access-log-format", "%(r)s %(request_id)s"]),
        GUNICORN: Means("`--access-logformat`", ["--access-logformat", "%(r)s %({x-request-id}i)s %({traceparent}i)s"]),
        HYPERCORN: Means(
            "`--access-logformat`", ["--access-logformat", "%(r)s %({x-request-id}i)s %({traceparent}i)s"]
        ),
        NGINX: Means(
            "`map`, `$request_id`",
            ["add_header X-Request-ID $id;", f"access_log {log} ids;"],
            http=NGINX_ID,
            location="proxy_set_header X-Request-ID $id;",
        ),
    }


@REQUESTS.feature("Request ids")
def ids(trial: Trial) -> Finding:
    """Requests without an id get one, in the response and in the scope. An id from a trusted peer is kept and
    logged."""
    with trial.serving(identified(trial)) as server:
        made = [server.ask("/scope") for _ in range(2)]
        taken = server.ask("/scope", "GET", "x-request-id: taken-from-proxy")
        shown = [answer.fields.get("x-request-id", "") for answer in made]
        return {
            "made": len(set(shown)) == 2 and all(shown),
            "taken": taken.fields.get("x-request-id") == "taken-from-proxy",
            "application": all(shown) and all(shown[turn] in made[turn].body.decode() for turn in range(2)),
            "log": eventually(lambda: "taken-from-proxy" in server.log, 2),
        }


@REQUESTS.feature("Trace ids (`traceparent`)")
def trace(trial: Trial) -> Finding:
    """A trusted peer sends only `traceparent`: its trace id is in the response and in the access log."""
    with trial.serving(identified(trial)) as server:
        answer = server.ask("/scope", "GET", f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01")
        return {
            "response": answer.fields.get("x-request-id") == TRACE,
            "log": eventually(lambda: TRACE in server.log, 2),
        }


@REQUESTS.feature("Requests in flight")
def in_flight(trial: Trial) -> Finding:
    """With three requests in progress and an idle connection, the server reports their number and paths."""
    port = free_port()
    means = {
        OURS: Means("`--debug-requests`", ["--debug-requests"]),
        GRANIAN: Means("`--metrics`", ["--metrics", "--metrics-port", str(port), "--metrics-scrape-interval", "1"]),
        NGINX: Means("`stub_status`", ["location = /status { stub_status; }"]),
    }
    numbers = {
        OURS: r"3 requests in flight",
        # The one that asks is counted.
        NGINX: r"Writing: 4",
        GRANIAN: r"(?m)^granian_\w*active\w*(?:\{.*\})? 3$",
    }

    def said() -> str:
        """What there is to read, or a page."""
        if trial.server == GRANIAN:
            return ask(Way(("127.0.0.1", port)), "/metrics").body.decode()
        if trial.server == NGINX:
            return server.ask("/status").body.decode()
        if trial.server == GUNICORN:
            return trial.run("gunicornc", "--socket", str(trial.directory / ".gunicorn/gunicorn.ctl"), "-c", "show all")
        return server.log

    with trial.serving(means) as server, ExitStack() as stack:
        stack.enter_context(connect(server.way))
        for _ in range(3):
            stack.enter_context(connect(server.way)).sendall(head("/hold/needle"))
        assert eventually(lambda: server.held() == 3)
        if trial.server == OURS and not trial.bare:
            server.signal(signal.SIGUSR1)
        number = numbers.get(trial.server)
        found = {
            "how many": number is not None and eventually(lambda: re.search(number, said()), 5),
            "which": "/hold/needle" in said(),
        }
        server.let_go()
    return found


@REQUESTS.feature("Profile of a running server")
def profile(trial: Trial) -> Finding:
    """An address of the server answers with the stacks of its threads."""
    port = free_port()
    options = ["--debug-requests", "--metrics", f"127.0.0.1:{port}"]
    means = {OURS: Means("`--debug-requests`, `--metrics`", options)}
    if trial.server != OURS:
        return {"": False}  # none has such an address
    with trial.serving(means) as server:
        if not eventually(lambda: "token=" in server.log, 0 if trial.bare else 5):
            return {"": False}
        token = server.log.partition("token=")[2].split()[0]
        target = f"/profile?seconds=1&idle=1&format=folded&token={token}"
        return {"": b"Runner.run" in ask(Way(("127.0.0.1", port)), target).body}


@REQUESTS.feature("Stalls by route")
def stalls(trial: Trial) -> Finding:
    """After a request that has blocked its process for a second, the log names its duration and its code."""
    with trial.serving({OURS: Means("`--stall-threshold`", ["--stall-threshold", "0.5"])}) as server:
        server.ask("/block")
        return {"code": eventually(lambda: re.search(r"stalled for [01]\.\d+ s .* at .*probe\.py", server.log), 2)}


@REQUESTS.feature("Request spans (OpenTelemetry)")
def spans(trial: Trial) -> Finding:
    """After a request with `traceparent` a collector gets a span of that trace."""
    with socket.create_server(("127.0.0.1", 0)) as collector:
        collector.settimeout(5)
        port = collector.getsockname()[1]
        means = {OURS: Means("`--otel-endpoint`", ["--otel-endpoint", f"http://127.0.0.1:{port}"])}
        with trial.serving(means) as server, ExitStack() as stack:
            assert server.ask("/pid", "GET", f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01").status == 200
            sent = b""
            with suppress(TimeoutError):
                if trial.server == OURS and not trial.bare:
                    client, _ = collector.accept()
                    stack.enter_context(client).settimeout(2)
                    while bytes.fromhex(TRACE) not in sent and (data := client.recv(65536)):
                        sent += data
                    client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            return {"span": sent.startswith(b"POST /v1/traces ") and bytes.fromhex(TRACE) in sent}


@REQUESTS.feature("Request metrics")
def metrics(trial: Trial) -> Finding:
    """After three requests the server exports their number and duration, on a page or to a collector (statsd)."""
    port = free_port()
    statsd = ["--statsd-host", f"127.0.0.1:{port}"]
    means = {
        OURS: Means("`--metrics`, Prometheus", ["--metrics", f"127.0.0.1:{port}"]),
        GRANIAN: Means(
            "`--metrics`, Prometheus", ["--metrics", "--metrics-port", str(port), "--metrics-scrape-interval", "1"]
        ),
        GUNICORN: Means("`--statsd-host`", statsd),
        HYPERCORN: Means("`--statsd-host`", statsd),
        NGINX: Means("`stub_status`", ["location = /metrics { stub_status; }"]),
    }
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector, trial.serving(means) as server:
        collector.bind(("127.0.0.1", port))
        collector.settimeout(0.1)
        way, sent = server.way if trial.server == NGINX else Way(("127.0.0.1", port)), ""

        def said() -> str:
            """All that was sent, and the page."""
            nonlocal sent
            with suppress(TimeoutError):
                while True:
                    sent += collector.recv(65536).decode() + "\n"
            return sent + ask(way, "/metrics").body.decode()

        before = counted(said())
        assert [server.ask("/pid").status for _ in range(3)] == [200] * 3
        return {
            "number": eventually(lambda: counted(said()) >= before + 3, 5),
            "duration": eventually(lambda: re.search(r"duration\w*_bucket\{|\bduration:[\d.]+\|ms", said()), 5),
        }


@REQUESTS.feature("Request metrics by route")
def route_metrics(trial: Trial) -> Finding:
    """The number and the duration of a request are exported with a label for its route."""
    port = free_port()
    means = {
        OURS: Means("`--metrics-routes`", ["--metrics", f"127.0.0.1:{port}", "--metrics-routes", "10"]),
        GRANIAN: Means("", ["--metrics", "--metrics-port", str(port), "--metrics-scrape-interval", "1"]),
    }
    with trial.serving(means) as server:
        assert server.ask("/pid").status == 200

        def said() -> str:
            return ask(Way(("127.0.0.1", port)), "/metrics").body.decode()

        return {
            "number": eventually(lambda: re.search(r'requests_total\{.*route="', said()), 5),
            "duration": eventually(lambda: re.search(r'duration\w*_bucket\{.*route="', said()), 5),
        }


def counted(text: str) -> int:
    """How many requests a text tells of, of Prometheus, statsd, or nginx."""
    pages = re.findall(r"(?m)^\w*requests\w*(?:\{.*\})? (\d+)(?:\.0)?$|^ \d+ \d+ (\d+) $", text)
    return sum(int(one or other) for one, other in pages) + len(re.findall(r"\brequests:1\|c", text))
