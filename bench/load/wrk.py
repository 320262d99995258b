"""wrk: closed loop. Its numbers are taken from a Lua `done` hook, and checked against the summary it prints.

wrk itself corrects its latencies for coordinated omission by the expected interval between requests of a connection.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

from bench.errors import LoadError, last_line
from bench.load import variety
from bench.load.base import Aim, ClosedLoop
from bench.model import Burst, Latency, Load

MARK = "bench: "
# Between requests in a file; in none of them.
SEPARATOR = b"\x01"
PERCENTILES = {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9}
ERRORS = ("connect", "read", "write", "status", "timeout")

_DONE = """
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\\nbench: {"requests": %d, "microseconds": %d, "bytes": %d, "mean": %.1f, "max": %.1f, '
    .. '"p50": %.1f, "p75": %.1f, "p90": %.1f, "p95": %.1f, "p99": %.1f, "p999": %.1f, '
    .. '"connect": %d, "read": %d, "write": %d, "status": %d, "timeout": %d}\\n',
    summary.requests, summary.duration, summary.bytes, latency.mean, latency.max,
    latency:percentile(50), latency:percentile(75), latency:percentile(90), latency:percentile(95),
    latency:percentile(99), latency:percentile(99.9),
    e.connect, e.read, e.write, e.status, e.timeout))
end
"""


class Wrk(ClosedLoop):
    """The generator `wrk`."""

    name = "wrk"
    pipelines = True
    abilities = frozenset({"post-percent", "variety", "tls", "close"})

    def missing(self) -> str | None:
        """wrk has to be installed."""
        return None if shutil.which("wrk") else "wrk is not installed (apt-get install wrk, or choose another --tool)"

    def command(self, aim: Aim, load: Load) -> list[str]:
        """One burst; the Lua script is written into the aim's directory."""
        script = aim.directory / f"wrk-{aim.port}.lua"
        lines = _script(aim, load.pipeline)
        if "variety" in aim.options:
            lines = _various(aim)
        script.write_text("\n".join(lines) + "\n" + _DONE, encoding="ascii")
        threads = min(load.threads, load.connections)
        argv = ["wrk", "-t", str(threads), "-c", str(load.connections), "-d", f"{max(1, round(load.seconds))}s"]
        return [*argv, "--timeout", "10s", "--latency", "-s", str(script), aim.url]

    def parse(self, output: str, load: Load) -> Burst:
        """The figures of the hook; raises LoadError when they are missing, not numbers, or differ from the summary.

        With pipelining there is no latency: wrk times whole batches but corrects them as if they were single requests.
        """
        figures = _figures(output)
        summary = re.search(r"^\s*(\d+) requests in ", output, re.MULTILINE)
        if summary is None or int(summary[1]) != figures["requests"]:
            raise LoadError("wrk: its summary and its figures disagree")
        seconds = figures["microseconds"] / 1e6
        latency = Latency(**{name: figures[name] / 1e6 for name in ("mean", "max", *PERCENTILES)})
        errors = {kind: int(figures[kind]) for kind in ERRORS}
        known = latency if load.pipeline == 1 else None
        return Burst(int(figures["requests"]), seconds, errors, known, int(figures["bytes"]))


def version(output: str) -> str:
    """The version in the first line of `wrk -v`."""
    found = re.match(r"wrk (\S+)", output)
    return found[1] if found else "unknown"


def _figures(output: str) -> dict[str, Any]:
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if len(lines) != 1:
        last = last_line(output, "nothing")
        raise LoadError(f"wrk did not finish; it printed: {last}")
    # A run without answers prints nan, which JSON does not know; such a burst is void anyway.
    text = re.sub(r": -?nan\b", ": 0", lines[0][len(MARK) :])
    try:
        figures = json.loads(text)
    except ValueError as exc:
        raise LoadError(f"wrk: its figures cannot be read: {exc}") from None
    wanted = {"requests", "microseconds", "bytes", "mean", "max", *PERCENTILES, *ERRORS}
    if not isinstance(figures, dict) or set(figures) != wanted:
        raise LoadError("wrk: its figures are not complete")
    if any(not isinstance(value, (int, float)) or value < 0 for value in figures.values()):
        raise LoadError("wrk: its figures are not numbers")
    return figures


def _script(aim: Aim, pipeline: int) -> list[str]:
    lines = [f"wrk.method = {_lua(aim.method.encode())}"]
    lines += [f"wrk.headers[{_lua(name.encode())}] = {_lua(value.encode())}" for name, value in aim.headers.items()]
    if aim.body:
        lines.append(f"wrk.body = {_body(aim.body)}")
    if "post-percent" in aim.options:
        lines += _mix(aim)
    if pipeline > 1:
        lines += [
            "local batch",
            "function init(args)",
            f"  batch = string.rep(wrk.format(nil, {_lua(aim.path.encode())}), {pipeline})",
            "end",
            "function request() return batch end",
        ]
    return lines


def _various(aim: Aim) -> list[str]:
    """Requests of `bench.load.variety` in turn, from a file: built beforehand, so that wrk only sends."""
    path = aim.directory / f"wrk-{aim.port}.requests"
    path.write_bytes(SEPARATOR.join(variety.requests(aim)))
    return [
        "local requests, number = {}, 0",
        "function init(args)",
        f"  local file = io.open({_lua(str(path).encode())}, 'rb')",
        f"  for one in file:read('*a'):gmatch('[^{_lua(SEPARATOR)[1:-1]}]+') do requests[#requests + 1] = one end",
        "  file:close()",
        "end",
        "function request()",
        "  number = number % #requests + 1",
        "  return requests[number]",
        "end",
    ]


def _mix(aim: Aim) -> list[str]:
    """Options to send a percentage of the requests as the aim's POST, spread evenly, the others as GET."""
    return [
        "local post, get, number = nil, nil, 0",
        "function init(args)",
        f"  post = wrk.format('POST', {_lua(aim.path.encode())})",
        f"  get = wrk.format('GET', {_lua(aim.path.encode())}, nil, '')",
        "end",
        "function request()",
        f"  number = number + {int(aim.options['post-percent'])}",
        "  if number >= 100 then number = number - 100; return post end",
        "  return get",
        "end",
    ]


def _body(data: bytes) -> str:
    """A body in Lua; one long run of the same byte would make a script of many megabytes."""
    if len(data) > 1 and data == data[:1] * len(data):
        return f"string.rep({_lua(data[:1])}, {len(data)})"
    return _lua(data)


def _lua(data: bytes) -> str:
    plain = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03d}" for byte in data)
    return f'"{plain}"'
