"""The description of sockets that a process takes over from its predecessor."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import uvicorn
from uvicorn.config import Config
from uvicorn.config.errors import report_error
from uvicorn.listening import handover
from uvicorn.listening.handover import GO, READY, VARIABLE, Description, DescriptionError, Handed, Succession, Use
from uvicorn.listening.sockets import SocketFile
from uvicorn.tls.tickets import TicketSecret

if sys.platform == "win32":
    pytest.skip("Windows hands over no sockets", allow_module_level=True)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The succession of this process is as before."""
    monkeypatch.setattr(handover, "current", Succession())
    environment = dict(handover.origin.environment)
    yield
    handover.origin.environment.clear()
    handover.origin.environment.update(environment)


@pytest.fixture
def predecessor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Predecessor]:
    with contextlib.ExitStack() as stack:
        yield Predecessor(monkeypatch, stack)


class Predecessor:
    """A predecessor in the same process; its sockets are duplicates, as they are for a child."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stack: contextlib.ExitStack) -> None:
        self._monkeypatch, self._stack = monkeypatch, stack
        self.control, self._theirs = map(stack.enter_context, socket.socketpair())
        stack.callback(lambda: handover.current.forget())
        self.control.settimeout(10)

    def hand(self, *sockets: tuple[socket.socket, dict[str, Any]], tickets: Any = None) -> Succession:
        """Hand these over, each with the arguments of `Handed.of`."""
        handed = []
        for sock, arguments in sockets:
            duplicate = socket.socket(fileno=os.dup(sock.fileno()))
            handed.append(Handed.of(duplicate, **{"use": Use.SERVING, **arguments}))
            duplicate.detach()
        return self.send(Description(handed, tickets).encode())

    def send(self, text: bytes) -> Succession:
        """Send a description, and begin."""
        self.control.sendall(text)
        self._monkeypatch.setenv(VARIABLE, f"{os.getppid()}:{self._theirs.detach()}")
        handover.begin()
        return handover.current


def listening(host: str = "127.0.0.1", family: int = socket.AF_INET) -> socket.socket:
    return socket.create_server((host, 0), family=socket.AddressFamily(family))


@pytest.mark.parametrize("text", ["", "1", "1:", "x:3", "1:-2", "1:2:3", " 1:2"])
def test_invalid_variable_is_one_error(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(DescriptionError) as caught:
        uvicorn.run("tests.not_there:app", log_config=None)
    assert report_error(caught.value)
    assert caplog.messages == [
        f"Cannot use {VARIABLE}: {text!r} is not PID:DESCRIPTOR. Unset it; a server sets it for its successor."
    ]
    assert VARIABLE not in os.environ


def test_variable_of_another_process_is_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, f"{os.getpid()}:3")
    handover.begin()
    assert handover.current.is_in_charge
    assert "meant for a child of process" in caplog.text


def test_variable_of_a_process_that_has_ended_is_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless that has made the socket."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    ours, theirs = socket.socketpair()
    with ours, theirs, open(os.devnull) as file:
        descriptors = [999_999, file.fileno(), *([ours.fileno()] if sys.platform == "linux" else [])]
        for descriptor in descriptors:
            monkeypatch.setenv(VARIABLE, f"{ended.pid}:{descriptor}")
            handover.begin()
            assert handover.current.is_in_charge
    assert caplog.text.count("meant for a child of process") == len(descriptors)


def test_variable_that_names_no_socket_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{os.getppid()}:999999")
    with pytest.raises(DescriptionError, match="names no open socket"):
        handover.begin()


VALID: dict[str, Any] = {"format": 1, "sockets": [], "tickets": None}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{}\n",
        b"\xff\n",
        json.dumps({**VALID, "format": 0}).encode() + b"\n",
        json.dumps({**VALID, "workers": {"": [2]}}).encode() + b"\n",
        json.dumps({**VALID, "sockets": [{}]}).encode() + b"\n",
        json.dumps({**VALID, "sockets": [{"descriptor": "3"}]}).encode() + b"\n",
        json.dumps({**VALID, "sockets": [{"descriptor": 3, "port": "x"}]}).encode() + b"\n",
        json.dumps({**VALID, "sockets": [{"descriptor": 3, "use": "x"}]}).encode() + b"\n",
        json.dumps({**VALID, "sockets": [{"descriptor": 3, "file": [1]}]}).encode() + b"\n",
    ],
)
def test_invalid_description_is_one_error(text: bytes) -> None:
    with pytest.raises(DescriptionError, match="the description of the predecessor is invalid"):
        Description.parse(text)


def test_description_of_a_later_version_is_read() -> None:
    text = json.dumps({**VALID, "format": 2, "more": 1, "sockets": [{"descriptor": 3, "port": 80, "more": 1}]})
    assert Description.parse(text.encode()) == Description([Handed(3, port=80)])


def test_descriptor_that_is_no_socket_is_an_error(predecessor: Predecessor) -> None:
    with open(os.devnull) as file, pytest.raises(DescriptionError, match="of the predecessor is no socket"):
        predecessor.send(Description([Handed(file.fileno(), port=80)]).encode())


def test_predecessor_that_is_silent_is_an_error(predecessor: Predecessor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "PATIENCE", 0.01)
    with pytest.raises(DescriptionError, match="has sent no description"):
        predecessor.send(b"{")


def test_sockets_are_taken_by_the_address_as_configured(predecessor: Predecessor) -> None:
    """Each once; a free port stands for any, but only for a place that was configured so."""
    with listening() as fixed, listening() as free, listening() as metrics:
        port = fixed.getsockname()[1]
        succession = predecessor.hand(
            (free, {"ports": [port, 0]}), (fixed, {"ports": [port, 0]}), (metrics, {"use": Use.METRICS, "ports": [0]})
        )
        assert succession.take(socket.AF_INET, ("127.0.0.2", port)) is None
        assert succession.take(socket.AF_INET, ("127.0.0.1", port + 1)) is None
        assert succession.take(socket.AF_INET6, ("::1", port)) is None
        for wanted, sock, use in [
            (("localhost", port), fixed, Use.SERVING),
            (("127.0.0.1", 0), free, Use.SERVING),
            (("127.0.0.1", 0), metrics, Use.METRICS),
        ]:
            taken = succession.take(socket.AF_INET, wanted, use)
            assert taken is not None
            with taken:
                assert taken.getsockname() == sock.getsockname()
                assert not taken.get_inheritable()
            assert succession.take(socket.AF_INET, wanted, use) is None


@pytest.mark.parametrize("bind", [lambda config: config.bind_sockets(), lambda config: [config.bind_socket()]])
def test_configuration_binds_those_of_the_predecessor(
    bind: Callable[[Config], list[socket.socket]], predecessor: Predecessor
) -> None:
    with listening() as sock:
        predecessor.hand((sock, {}))
        port = sock.getsockname()[1]
        (taken,) = bind(Config("app:app", port=port, log_config=None))
        with taken:
            assert taken.getsockname()[1] == port


def test_unix_socket_is_taken_with_its_file(predecessor: Predecessor, tmp_path: Path) -> None:
    """A successor that fails leaves the file; one in charge removes it at its end."""
    path = tmp_path / "app.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        succession = predecessor.hand((sock, {"owned_paths": [str(path)]}))
        (taken,) = Config("app:app", uds=str(path), log_config=None).bind_sockets()
        with taken:
            file = SocketFile(str(path))
            file.remove()
            assert path.exists()
            succession.report()
            assert predecessor.control.recv(10) == READY
            assert not succession.hear()
            assert not succession.is_in_charge
            predecessor.control.send(GO)
            succession.wait()
            assert succession.is_in_charge
            file.remove()
            assert not path.exists()


def test_file_of_a_socket_that_is_no_longer_named_is_removed(predecessor: Predecessor, tmp_path: Path) -> None:
    paths = [tmp_path / "ours.sock", tmp_path / "given.sock"]
    with socket.socket(socket.AF_UNIX) as ours, socket.socket(socket.AF_UNIX) as given:
        for sock, path in zip((ours, given), paths, strict=True):
            sock.bind(str(path))
        succession = predecessor.hand((ours, {"owned_paths": [str(paths[0])]}), (given, {}))
        assert succession.take_file(str(tmp_path / "other.sock")) is None
        succession.report()
        assert paths[0].exists()
        predecessor.control.send(GO)
        assert succession.hear()
        assert [path.exists() for path in paths] == [False, True]


def test_end_of_the_predecessor_puts_the_successor_in_charge(
    predecessor: Predecessor, caplog: pytest.LogCaptureFixture
) -> None:
    succession = predecessor.hand()
    predecessor.control.close()
    assert succession.sources
    succession.wait()
    assert succession.is_in_charge
    assert not succession.sources
    assert "ended before it handed over" in caplog.text


def test_predecessor_that_has_handed_over_keeps_the_files(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    path.touch()
    file = SocketFile(str(path))
    handover.current.hand_over([str(path)])
    file.remove()
    assert path.exists()
    assert not handover.current.is_in_charge


def test_variables_for_the_process_name_the_successor(
    predecessor: Predecessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getppid()))
    monkeypatch.setenv("WATCHDOG_PID", "1")
    predecessor.hand()
    assert os.environ["LISTEN_PID"] == handover.origin.environment["LISTEN_PID"] == str(os.getpid())
    assert os.environ["WATCHDOG_PID"] == "1"


def test_secret_of_the_tickets_is_the_predecessors(predecessor: Predecessor) -> None:
    clock = [1_800_000_000.0]
    secret = TicketSecret(clock=lambda: clock[0])
    clock[0] += 7 * 3600
    before = secret.keys(b"")
    assert None not in before
    succession = predecessor.hand(tickets=secret.encode())
    assert succession.tickets is not None
    after = TicketSecret.parse(succession.tickets)
    after._clock = lambda: clock[0]
    assert after.keys(b"") == before


def test_signals_outlast_an_upgrade_and_a_changed_setting_does_not(predecessor: Predecessor) -> None:
    succession = predecessor.send(Description(workers={"": (2, 5), "api": (2, 1)}).encode())
    numbers = [succession.workers_of(*asked) for asked in [(2,), (3,), (2, "api"), (4, "api"), (2, "new")]]
    assert numbers == [5, 3, 1, 4, 2]
    assert Succession().workers_of(2) == 2
