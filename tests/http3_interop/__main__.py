"""Run each client against the server in each case, and make a table."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from tests.http3_interop.clients import NAMES, PLACE, ROOT, Client, find
from tests.http3_interop.initials import flood
from tests.http3_interop.link import Conditions, Link
from tests.http3_interop.pages import measure
from tests.http3_interop.server import BASE, PATIENCE, Certificate, Server
from tests.pages import fill

UNSUPPORTED = 3
MEGABYTE = 1_000_000
PAGE = ROOT / "docs" / "concepts" / "http3.md"
BEGIN, END = "<!-- interop: begin -->\n", "<!-- interop: end -->\n"
RESET_PATIENCE = 3.0


class NotOffered(Exception):
    """The client cannot do it."""


class Failed(Exception):
    """It should have worked."""


@dataclass
class Bench:
    """What a case has.

    Attributes:
        client: the one that is examined.
        server: the one that it asks.
        link: between them.
    """

    client: Client
    server: Server
    link: Link

    def start(self, operation: str, *arguments: str, environment: dict[str, str] | None = None) -> Run:
        """Start the client."""
        if self.client.command is None:
            raise NotOffered
        return Run([*self.client.command, operation, BASE, *arguments], environment)

    def run(self, operation: str, *arguments: str) -> list[dict[str, Any]]:
        """The responses that the client has got."""
        return self.start(operation, *arguments).responses()

    def get(self, size: int, count: int = 1) -> None:
        """Get bodies of this size."""
        check(self.run("get", str(count), f"/bytes/{size}"), [bytes(size)] * count)

    def post(self, size: int) -> None:
        """Send a body of this size."""
        digest = hashlib.sha256(bytes(size)).hexdigest()
        check(self.run("post", str(size), "/"), [digest.encode()])

    def counting(self, name: str, act: Callable[[], object], least: int = 1, most: float = float("inf")) -> None:
        """Do something that changes a metric."""
        before = self.server.figures()[name]
        act()
        deadline = time.monotonic() + 2
        while (counted := self.server.figures()[name] - before) < least and time.monotonic() < deadline:
            time.sleep(0.05)
        if not least <= counted <= most:
            raise Failed(f"{name} has grown by {counted:g}")


class Run:
    """A client that runs."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - until its end
        pipe = subprocess.PIPE
        env = {**os.environ, **(environment or {})}
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors, cwd=ROOT, env=env)
        self._timer = threading.Timer(90, self._process.kill)
        self._timer.start()

    @property
    def output(self) -> IO[bytes]:
        """Its lines."""
        assert self._process.stdout is not None
        return self._process.stdout

    def wait_ready(self) -> None:
        """Wait until it asks to go on."""
        if self.output.readline() != b"ready\n":
            self.result()
            raise Failed("it did not say that it is ready")

    def result(self, go_on: bytes = b"") -> dict[str, Any]:
        """What it prints at its end."""
        told, _ = self._process.communicate(go_on)
        self._timer.cancel()
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace")
        self._errors.close()
        if self._process.returncode == UNSUPPORTED:
            raise NotOffered
        if self._process.returncode:
            raise Failed(f"status {self._process.returncode}: {(errors or told.decode()).strip()[-600:]}")
        found: dict[str, Any] = json.loads(told)
        return found

    def responses(self, go_on: bytes = b"") -> list[dict[str, Any]]:
        """The responses that it has got."""
        found = self.result(go_on)
        if "responses" not in found:
            raise Failed(str(found))
        responses: list[dict[str, Any]] = found["responses"]
        return responses


def check(responses: Iterable[dict[str, Any]], bodies: list[bytes]) -> None:
    """Compare responses with what they should be."""
    for have, body in zip(responses, bodies, strict=True):
        # A client that does not know the length only has statuses.
        is_known = have["length"] is not None
        wanted = {"length": len(body), "digest": hashlib.sha256(body).hexdigest()} if is_known else {}
        if not {"status": 200, **wanted}.items() <= have.items():
            raise Failed(f"{have} is not {wanted}")


BY_CHANCE = ("10 % loss", "handshakes, 30 % loss", "2 s without network")
"""Cases in which clients give up if they have no luck: they are tried twice."""

CASES: dict[str, tuple[Callable[[Bench], None], tuple[str, ...]]] = {}
"""What each does, and the options of the server."""


def case(name: str, *options: str) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Add a case."""

    def add(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
        CASES[name] = function, options
        return function

    return add


@case("handshake and GET")
def _(bench: Bench) -> None:
    bench.counting('quic_handshakes_total{outcome="complete"}', lambda: bench.get(1000), 1, 1)


@case("10 MB down")
def _(bench: Bench) -> None:
    bench.get(10 * MEGABYTE)


@case("10 MB up")
def _(bench: Bench) -> None:
    bench.post(10 * MEGABYTE)


@case("100 streams at once")
def _(bench: Bench) -> None:
    bench.counting('http_connections_opened_total{version="3"}', lambda: bench.get(1000, 100), 1, 1)


@case("ChaCha20")
def _(bench: Bench) -> None:
    check_any(bench.run("chacha20", "/bytes/1000"))


@case("Retry")
def _(bench: Bench) -> None:
    if bench.client.command is None:
        raise NotOffered
    flood(BASE, 300)
    bench.counting('quic_replies_total{kind="retry"}', lambda: bench.get(1000))


@case("resumption")
def _(bench: Bench) -> None:
    name = 'tls_handshakes_total{version="1.3",resumed="true"}'
    bench.counting(name, lambda: check_any(bench.run("resume", "/bytes/1000")))


@case("0-RTT", "--http3-early-data", "--ssl-tickets", "shared")
def _(bench: Bench) -> None:
    name = 'quic_early_data_total{outcome="accepted"}'
    bench.counting(name, lambda: check_any(bench.run("early", "/bytes/1000")))


@case("0-RTT that is refused")
def _(bench: Bench) -> None:
    name = 'quic_early_data_total{outcome="accepted"}'
    bench.counting(name, lambda: check_any(bench.run("early", "/bytes/1000")), 0, 0)


@case("key update")
def _(bench: Bench) -> None:
    if bench.client.name != "quic-go":
        return check_any(bench.run("keyupdate", "/bytes/1000"))
    # It updates its keys after 100 packets, and says so in its log.
    with tempfile.TemporaryDirectory() as directory:
        run = bench.start("get", "1", f"/bytes/{MEGABYTE}", environment={"QLOGDIR": directory})
        check(run.responses(), [bytes(MEGABYTE)])
        if not any(b"key_updated" in file.read_bytes() for file in Path(directory).iterdir()):
            raise Failed("it has not updated its keys")


def moved(bench: Bench, **changes: int) -> None:
    """The client's address changes while it downloads, and it does not know."""

    def act() -> None:
        run = bench.start("get", "1", f"/bytes/{3 * MEGABYTE}")
        name = 'udp_datagrams_total{direction="sent"}'
        before, deadline = bench.server.figures()[name], time.monotonic() + PATIENCE
        while bench.server.figures()[name] < before + 200 and time.monotonic() < deadline:
            time.sleep(0.01)
        vars(bench.link.conditions).update(changes)
        check(run.responses(), [bytes(3 * MEGABYTE)])

    bench.link.conditions = Conditions(rate=2 * MEGABYTE, delay=0.005)
    bench.counting("quic_migrations_total", act)


@case("another port (NAT)")
def _(bench: Bench) -> None:
    moved(bench, port=7)


@case("another address (NAT)")
def _(bench: Bench) -> None:
    moved(bench, address=1)


@case("migration")
def _(bench: Bench) -> None:
    bench.counting("quic_migrations_total", lambda: check_any(bench.run("migrate", "/bytes/1000")))


@case("version negotiation")
def _(bench: Bench) -> None:
    name = 'quic_replies_total{kind="version_negotiation"}'
    bench.counting(name, lambda: check_any(bench.run("version", "/bytes/1000")))


@case("stateless reset", "--workers", "2")
def _(bench: Bench) -> None:
    run = bench.start("again", "/pid")
    run.wait_ready()

    def act() -> None:
        bench.server.kill_last()
        time.sleep(0.5)
        begin = time.monotonic()
        found = run.result(b"go\n")
        # A client may ask again by itself, on another connection.
        if time.monotonic() - begin > RESET_PATIENCE:
            raise Failed(f"it has noticed after {time.monotonic() - begin:.1f} s: {found}")

    bench.counting('quic_replies_total{kind="stateless_reset"}', act)


def disturb(bench: Bench, *steps: Callable[[], object]) -> None:
    """Do something to the server while the client asks: it loses no request."""
    run = bench.start("load", "7", "/slow/20")
    for step in steps:
        time.sleep(1.3)
        step()
    found = run.result()
    if found.get("failures") or found["count"] < 20:
        raise Failed(str(found)[:300])


@case("SIGHUP, TTIN, TTOU", "--workers", "4")
def _(bench: Bench) -> None:
    numbers = (signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGTTOU)
    disturb(bench, *(partial(bench.server.signal, number) for number in numbers))


@case("recycled workers", "--workers", "4", "--limit-max-requests", "40")
def _(bench: Bench) -> None:
    disturb(bench)


def transfer(bench: Bench, conditions: Conditions, size: int = 2 * MEGABYTE) -> None:
    """Download and upload over a bad link."""
    bench.link.conditions = conditions
    bench.get(size)
    bench.post(size)


@case("1 % loss")
def _(bench: Bench) -> None:
    transfer(bench, Conditions(loss=0.01, delay=0.005))


@case("5 % loss")
def _(bench: Bench) -> None:
    transfer(bench, Conditions(loss=0.05, delay=0.005))


@case("10 % loss")
def _(bench: Bench) -> None:
    transfer(bench, Conditions(loss=0.1, delay=0.005), MEGABYTE)


@case("reordering, duplicates")
def _(bench: Bench) -> None:
    transfer(bench, Conditions(reordering=0.1, duplication=0.05, delay=0.005))


@case("damaged packets")
def _(bench: Bench) -> None:
    transfer(bench, Conditions(damage=0.02, delay=0.005), MEGABYTE)


@case("handshakes, 30 % loss")
def _(bench: Bench) -> None:
    bench.link.conditions = Conditions(loss=0.3, delay=0.005)
    for _ in range(3):
        bench.get(1000)


@case("1.5 s round trip")
def _(bench: Bench) -> None:
    bench.link.conditions = Conditions(delay=0.75)
    bench.get(100_000)


@case("2 s without network")
def _(bench: Bench) -> None:
    bench.link.conditions = Conditions(rate=MEGABYTE, delay=0.005)
    run = bench.start("get", "1", f"/bytes/{3 * MEGABYTE}")
    time.sleep(1)
    bench.link.conditions.is_down = True
    time.sleep(2)
    bench.link.conditions.is_down = False
    check(run.responses(), [bytes(3 * MEGABYTE)])


@case("large certificate", "large")
def _(bench: Bench) -> None:
    bench.link.conditions = Conditions(delay=0.01)
    bench.get(1000)


@case("WebSocket")
def _(bench: Bench) -> None:
    name = 'http_connections_opened_total{version="3"}'
    before = bench.server.figures()
    if bench.start("websocket").result().get("messages") != ["text"]:
        raise Failed("no message has come back")
    after = bench.server.figures()
    if after["connections_total"] - before["connections_total"] > after[name] - before[name]:
        raise NotOffered  # over another version


def check_any(responses: list[dict[str, Any]]) -> None:
    """All were successful."""
    if not responses or any(one["status"] != 200 for one in responses):
        raise Failed(str(responses)[:200])


def examine(name: str, client: Client, link: Link, place: Path, small: Certificate, large: Certificate) -> str:
    """The verdict."""
    run, options = CASES[name]
    certificate = large if "large" in options else small
    link.conditions = Conditions()
    log = place / "server.log"
    with Server(certificate, log, *(one for one in options if one != "large")) as server:
        try:
            run(Bench(client, server, link))
        except NotOffered:
            return "not offered"
        except Failed as exc:
            return f"failed: {exc}"
        finally:
            link.conditions = Conditions()
    return "passed"


SIGNS = {"passed": "yes", "not offered": ""}


def table(verdicts: dict[str, dict[str, str]]) -> str:
    """In Markdown."""
    names = list(verdicts)
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for name in next(iter(verdicts.values())):
        signs = [SIGNS.get(verdicts[client][name], "**no**") for client in names]
        lines.append(f"| {name} | {' | '.join(signs)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="scripts/http3-interop", description=__doc__)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--case", action="append", metavar="TEXT", help="only cases with this in their name")
    parser.add_argument("--write", action="store_true", help="put the table into docs/concepts/http3.md")
    parser.add_argument("--pages", action="store_true", help="time pages over HTTP/3 and HTTP/2 on the same bad link")
    parser.add_argument("--seed", type=int, default=1, help="of the link")
    asked = parser.parse_args()
    if asked.write and (asked.clients or asked.case):
        parser.error("--write needs all cases of all clients")
    if unknown := set(asked.clients) - set(NAMES):
        parser.error(f"no such client: {', '.join(unknown)}")
    directory = tempfile.TemporaryDirectory()
    small, large = Certificate(Path(directory.name)), Certificate(Path(directory.name), 100)
    link = Link(asked.seed)
    link.start()
    if asked.pages:
        measure(link, Path(directory.name))
        return 0
    clients = [find(name, small.pem, large.pem) for name in asked.clients or NAMES]
    cases = [name for name in CASES if not asked.case or any(text in name for text in asked.case)]
    verdicts: dict[str, dict[str, str]] = {}
    for client in clients:
        verdicts[client.name] = {}
        for name in cases:
            verdict = examine(name, client, link, PLACE, small, large)
            if verdict.startswith("failed") and name in BY_CHANCE:
                print(f"{client.name}: {name}: {verdict}; again")
                verdict = examine(name, client, link, PLACE, small, large)
            verdicts[client.name][name] = verdict
            print(f"{client.name}: {name}: {verdict}", flush=True)
    link.stop()
    print(table(verdicts))
    if asked.write:
        fill(PAGE, BEGIN, END, table(verdicts))
    return any(verdict.startswith("failed") for found in verdicts.values() for verdict in found.values())


if __name__ == "__main__":
    sys.exit(main())
