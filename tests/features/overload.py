"""Overload: how many requests and connections are taken, and what becomes of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from tests.features.feature import Group
from tests.features.table import Finding
from tests.features.trial import GRANIAN, GUNICORN, NGINX, OURS, UPSTREAM, Means, Running, Trial, eventually
from tests.features.wire import Answer, ask, connect, head, receive

OVERLOAD = Group("Overload")

ZONE = "limit_conn_zone $server_port zone=all:1m; limit_conn_status 503;"
AT_LIMIT = [
    "error_page 503 @busy;",
    "location @busy { add_header Retry-After 1 always; return 503; }",
]


@contextmanager
def requests(
    server: Running, count: int, target: str = "/hold/it", source: str = "127.0.0.1"
) -> Iterator[list[Request]]:
    """So many requests at once, each on a connection of its own."""
    with ExitStack() as stack:
        yield [stack.enter_context(Request(server, target, source)) for _ in range(count)]


class Request(threading.Thread):
    """A request, and what becomes of it, waited for on the side."""

    def __init__(self, server: Running, target: str, source: str) -> None:
        super().__init__(daemon=True)
        self.sock = connect(replace(server.way, source=source))
        self.answer: Answer | None = None
        self.sock.sendall(head(target))
        self.start()

    def run(self) -> None:
        """Wait for the answer."""
        self.answer = receive(self.sock)

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *exception: object) -> None:
        self.sock.close()
        self.join()


def settle(server: Running, asked: list[Request], quiet: float = 1.5) -> None:
    """Wait until nothing has changed for so long: neither what the application works on nor what was answered."""
    last, since = None, time.monotonic()
    while time.monotonic() - since < quiet:
        state = server.held(), [request.answer is not None for request in asked]
        if state != last:
            last, since = state, time.monotonic()
        time.sleep(0.02)


@OVERLOAD.feature("Limit of concurrent requests")
def limit(trial: Trial) -> Finding:
    """Of six concurrent requests with a limit of two, two run, some wait and are answered, and others get 503 with
    `Retry-After`. Idle connections do not count."""
    means = {
        OURS: Means(
            "`--limit-active-requests 2`",
            ["--limit-active-requests", "2", "--limit-queue", "2", "--timeout-queue", "30"],
        ),
        UPSTREAM: Means("`--limit-concurrency 3`", ["--limit-concurrency", "3"]),
        GRANIAN: Means("`--backpressure 2`", ["--backpressure", "2"]),
        GUNICORN: Means("`--worker-connections 2`", ["--worker-connections", "2"]),
        NGINX: Means("`limit_conn`", AT_LIMIT, http=ZONE, location="limit_conn all 2;"),
    }
    with trial.serving(means) as server:
        with requests(server, 6) as asked:
            settle(server, asked)
            most, refused = server.held(), [request.answer for request in asked if request.answer]
            server.let_go()
            done = eventually(lambda: all(request.answer for request in asked))
            served = sum(request.answer.status == 200 for request in asked if request.answer)
        with ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(connect(server.way))
            (last,) = stack.enter_context(requests(server, 1))
            beside_idle = eventually(lambda: last.answer, 3) and last.answer is not None and last.answer.status == 200
    limited = most == 2
    return {
        "limit": limited,
        "queue": limited and done and served > most,
        "503": bool(refused) and all(answer.status == 503 for answer in refused),
        "`Retry-After`": bool(refused) and all("retry-after" in answer.fields for answer in refused),
        "idle connections do not count": limited and beside_idle,
    }


@OVERLOAD.feature("Probes above the limit")
def exempt(trial: Trial) -> Finding:
    """At the limit a request for the path of a probe is answered."""
    arguments = ["--limit-active-requests", "2", "--limit-queue", "0", "--limit-exempt", "/pid"]
    means = {
        OURS: Means("`--limit-exempt`", arguments),
        UPSTREAM: Means("", ["--limit-concurrency", "3"]),
        GRANIAN: Means("", ["--backpressure", "2"]),
        GUNICORN: Means("", ["--worker-connections", "2"]),
        NGINX: Means("`limit_conn` of a `location`", http=ZONE, location="limit_conn all 2;"),
    }
    with trial.serving(means) as server, requests(server, 3) as asked:
        settle(server, asked)
        limited = server.held() <= 2
        with requests(server, 1, "/pid") as (probe,):
            answered = eventually(lambda: probe.answer, 3) and probe.answer is not None and probe.answer.status == 200
        server.let_go()
    return {"": limited and answered}


@OVERLOAD.feature("Adaptive limit")
def adaptive(trial: Trial) -> Finding:
    """No number is configured, and the application processes one request of 10 ms at a time. The server rejects none of
    4 sequential clients and some of 100 concurrent ones."""
    means = {OURS: Means("`--limit-active-requests auto`", ["--limit-active-requests", "auto"])}
    with trial.serving(means) as server:
        alone = [server.ask("/work").status for _ in range(4)]
        refused, ending = threading.Event(), threading.Event()

        def go_on() -> None:
            while not ending.is_set():
                if server.ask("/work").status == 503:
                    refused.set()

        clients = [threading.Thread(target=go_on, daemon=True) for _ in range(100)]
        for client in clients:
            client.start()
        found = refused.wait(8)
        ending.set()
        for client in clients:
            client.join()
    return {"": found and alone == [200] * 4}


@OVERLOAD.feature("Connections per address")
def per_address(trial: Trial) -> Finding:
    """Of six connections from one address with a limit of three, three are rejected; another address is served."""
    means = {
        OURS: Means("`--limit-connections-per-address 3`", ["--limit-connections-per-address", "3"]),
        NGINX: Means(
            "`limit_conn $binary_remote_addr`",
            http="limit_conn_zone $binary_remote_addr zone=each:1m; limit_conn_status 503;",
            location="limit_conn each 3;",
        ),
    }
    with trial.serving(means) as server, ExitStack() as stack:
        # It may have been asked from there a moment ago whether it serves.
        assert eventually(lambda: ask(replace(server.way, source="127.0.0.2"), "/pid").status == 200)
        asked = stack.enter_context(requests(server, 6))
        settle(server, asked)
        held, refused = server.held(), [request.answer for request in asked if request.answer]
        asked += stack.enter_context(requests(server, 1, source="127.0.0.2"))
        other = eventually(lambda: server.held() == held + 1)
        server.let_go()
    return {"": held == len(refused) == 3 and all(answer.status == 503 for answer in refused) and other}
