"""What of the contract differs, and may: the comparison of outcomes, and the table of differences with their reasons.

A difference that is listed and not seen any more is an error, so that the table cannot grow old.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded"
GROUPS = tuple(sorted(path.stem.removeprefix("cases_") for path in HERE.glob("cases_*.py")))

Outcomes = dict[str, dict[str, Any]]


# The table


ADDED_LINES = {
    r'.*"WebSocket /\w+" \[closed \d+\]': "the end of each WebSocket is logged",
    r"INFO:     connection open": "is logged by each WebSocket implementation",
    r"INFO:     HTTP is served by .* instead of the native core, .*": "says why a patch is in effect",
    r"INFO:     WebSocket is not served by the native core, .*": "the same",
    r"WARNING:  install_signal_handlers is overridden but never called.*": "upstream ignores it without a word",
    r"INFO:     TLS by OpenSSL, not rustls: .*": "says why the slower one encrypts",
    r"INFO:     Another program listens there.*": "advice on the error before it",
    r"INFO:     (Start from the directory that contains it|Did you mean) .*": "a hint behind an error",
}
"""Lines of ours that upstream has not, in any case."""

LOST_LINES = {
    r"ERROR:    Cancel 0 running task\(s\), .*": "there is nothing to cancel",
}
"""Lines of upstream's that are not here."""

NOT_SET = "what is not set, or empty, is the default; upstream keeps it, and fails with some or all requests"
SHUT_DOWN = "the application is shut down; upstream skips that when anything but binding fails"
NO_SERVER = "refused at the start, with a line; upstream starts, and no request is answered"
TOO_SMALL = "refused: it is too small to serve anything, or for any worker to live"
REFUSED = "refused when the configuration is made, with a ValueError that says what is accepted; upstream's KeyError"
LATER = "refused when the configuration is made, upstream when it is loaded"
PORT = "upstream cannot format the line that says where it listens"
FORMAT = "a record that is no access record is formatted; upstream raises"
HINTS = "a hint follows the error"
LIBRARY = "belongs to how upstream uses its library"


def _values(parameters: str, values: str, reason: str) -> dict[str, str]:
    return {f"{parameter}={value}": reason for parameter in parameters.split() for value in values.split()}


DIFFERENCES: dict[str, dict[str, str]] = {
    "classes": {"AccessFormatter {*": FORMAT},
    "config": {
        **_values("env_file", "None 0 '' False []", "is kept, to be shown; upstream's has no such attribute"),
        **_values("limit_max_requests_jitter timeout_keep_alive ws_max_queue", "None '' []", NOT_SET),
        **_values("limit_concurrency ws_max_size ws_ping_interval ws_ping_timeout backlog fd", "'' []", NOT_SET),
        "backlog=None": NOT_SET,
        **_values("h11_max_incomplete_event_size limit_max_requests port reload_delay", "'' []", NOT_SET),
        **_values("ssl_cert_reqs ssl_version timeout_notify timeout_worker_healthcheck", "'' []", NOT_SET),
        **_values("timeout_graceful_shutdown", "'' []", NOT_SET),
        **_values("h11_max_incomplete_event_size limit_max_requests ws_max_size", "0 False", TOO_SMALL),
        **_values("timeout_worker_healthcheck", "0 False", TOO_SMALL),
        **_values("access_log http", "None", NOT_SET),
        **_values("root_path", "None [] 0 False", NOT_SET),
        **_values("lifespan log_level", "''", REFUSED),
        **_values("limit_concurrency", "0 False", "refused: every request would be answered 503"),
        **_values("http", "0 False []", NO_SERVER),
        **_values("interface", "None 0 '' False []", NO_SERVER),
        **_values("interface", "'asgi2' 'wsgi'", "a warning says that every request will fail"),
        **_values("loop", "0 False", "refused: it is no loop factory"),
        **_values("forwarded_allow_ips", "0 False", LATER),
        "ws='websockets'": "the warning says what the name stands for",
    },
    "idioms": {
        "application that cannot be imported": HINTS,
        "callback that fails": SHUT_DOWN,
    },
    "serving": {
        **_values("access_log", "0 '' []", "what is false switches it off; upstream looks for False alone"),
        **_values("backlog", "0 False", "the system takes it for the least; upstream never accepts"),
        **_values("backlog fd timeout_graceful_shutdown", "'' []", NOT_SET),
        **_values("h11_max_incomplete_event_size limit_max_requests ws_max_size", "0 False", TOO_SMALL),
        **_values("timeout_worker_healthcheck", "0 False", TOO_SMALL),
        "port=[]": NOT_SET,
        **_values("callback_notify", "0 '' False []", SHUT_DOWN),
        **_values("limit_max_requests", "'' []", NOT_SET),
        **_values("host fd", "0 False", SHUT_DOWN),
        "backlog=None": NOT_SET,
        "host=[]": "the line names the setting",
        **_values("http", "0 False []", NO_SERVER),
        "http=None": NOT_SET,
        **_values("interface", "None 0 '' False []", NO_SERVER),
        **_values("limit_concurrency", "0 False", "refused: every request would be answered 503"),
        **_values("limit_concurrency", "'' []", NOT_SET),
        **_values("port", "None ''", PORT),
        **_values("root_path", "None [] 0 False", NOT_SET),
        **_values("lifespan log_level", "''", REFUSED),
        **_values("timeout_keep_alive", "None '' []", NOT_SET),
        **_values("uds", "0 '' False []", "an empty path is none; upstream ends after the start-up"),
    },
    "surface": {
        "uvicorn.protocols.http.h11_impl": f"DEFAULT_MAX_INCOMPLETE_EVENT_SIZE {LIBRARY}",
        "uvicorn.protocols.websockets.wsproto_impl": f"the classes beside it {LIBRARY}",
    },
}
"""Cases of a group whose outcome is another, and why; a star stands for the rest of a name."""


# The comparison

RECORDED_WITH = (3, 13)
"""The Python of the recorded answers: what the interpreter itself says may be another with others."""


def run_group(python: str, group: str, *names: str) -> Outcomes:
    """The outcomes of a group of cases under an interpreter."""
    others = ("COV_", "PYTEST", "UVICORN")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    done = subprocess.run(
        [python, "-W", "ignore::DeprecationWarning", HERE / "probe.py", group, *names],
        capture_output=True,
        text=True,
        cwd="/",
        env=environment,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    outcomes: Outcomes = json.loads(done.stdout)
    return outcomes


def recorded(group: str) -> Outcomes:
    """What upstream's outcomes were when they were recorded."""
    outcomes: Outcomes = json.loads((RECORDED / f"{group}.json").read_text("utf-8"))
    return outcomes


def record(python: str, group: str) -> None:
    """Record them."""
    RECORDED.mkdir(exist_ok=True)
    text = json.dumps(run_group(python, group), indent=1, sort_keys=True, ensure_ascii=False)
    (RECORDED / f"{group}.json").write_text(f"{text}\n", "utf-8")


class Comparison:
    """What differs in a group, and which lines of the table explained something."""

    def __init__(self, group: str, upstream: Outcomes, ours: Outcomes) -> None:
        self.group = group
        self.used: set[str] = set()
        self.differing = list(self._differing(upstream, ours))

    def stale(self) -> list[str]:
        """Cases of the table in which nothing differs."""
        return sorted(DIFFERENCES.get(self.group, {}).keys() - self.used)

    def _differing(self, upstream: Outcomes, ours: Outcomes) -> Iterator[str]:
        for case in sorted(upstream.keys() | ours.keys()):
            found = [*self._of_case(upstream.get(case), ours.get(case))]
            if found and not self._is_listed(case):
                yield f"{case}: {'; '.join(found)}"

    def _is_listed(self, case: str) -> bool:
        listed = DIFFERENCES.get(self.group, {})
        patterns = [each for each in listed if case == each or (each[-1] == "*" and case.startswith(each[:-1]))]
        self.used.update(patterns)
        return bool(patterns)

    def _of_case(self, upstream: dict[str, Any] | None, ours: dict[str, Any] | None) -> Iterator[str]:
        if upstream is None or ours is None:
            yield "is a case of one only: record it"
            return
        if self.group == "surface":
            yield from lacking({name: upstream["names"][name] for name in upstream["defined"]}, ours["names"])
            return
        for field in sorted(upstream.keys() | ours.keys()):
            one, other = upstream.get(field), ours.get(field)
            if field == "log":
                one, other = without(one or [], LOST_LINES), without(other or [], ADDED_LINES)
                one = [line for line in one if line in other or not matches(line, ADDED_LINES)]
            if one != other:
                yield f"{field} is {other!r}, upstream's {one!r}"


def matches(line: str, patterns: Iterable[str]) -> bool:
    """Whether a line is one of those."""
    return any(re.fullmatch(pattern, line) for pattern in patterns)


def without(lines: list[str], patterns: Iterable[str]) -> list[str]:
    """Lines but those."""
    patterns = list(patterns)
    return [line for line in lines if not matches(line, patterns)]


def lacking(upstream: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """What of upstream's names cannot be used as they can there; to have more is no difference."""
    for name, described in upstream.items():
        if name not in ours:
            yield f"{name} is missing"
            continue
        kind, *wanted = described
        own_kind, *own = ours[name]
        if kind != own_kind:
            yield f"{name} is {own_kind}, upstream's {kind}"
        positional = [each for each in own if each.startswith("POSITIONAL_OR_KEYWORD")]
        for index, each in enumerate(wanted):
            if each not in own:
                yield f"{name} has no parameter {each}"
            elif each.startswith("POSITIONAL_OR_KEYWORD") and positional.index(each) != index:
                yield f"{name} has parameter {each} at another place"
        yield from (f"{name} demands {each}" for each in own if each not in wanted and is_demanded(each))


def is_demanded(parameter: str) -> bool:
    """Whether a parameter has to be given."""
    return not parameter.endswith("?") and not parameter.startswith("VAR_")


def main(python: str) -> None:
    """Record what upstream under this interpreter does, in all groups."""
    for group in GROUPS:
        record(python, group)
        print(group, len(recorded(group)))


if __name__ == "__main__":
    main(sys.argv[1])
