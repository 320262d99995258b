"""The examples of `docs/deployment`, checked by the programs that they are for, and run in front of a server."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import uvicorn
from tests.process import ROOT, ServerProcess
from tests.supervisors.load import Load
from tests.utils import is_listening, wait_for

EXAMPLES = ROOT / "docs" / "deployment"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="neither program runs there")

CLIENT = "203.0.113.7"


@dataclass
class Program:
    """A program in front of a server: its name, its example, and how it is told to check that, or to go by it."""

    name: str
    example: str
    check: list[str]
    run: list[str]

    def command(self, arguments: list[str], file: Path) -> list[str]:
        """Call it by its path: it may not be where users look for programs."""
        found = shutil.which(self.name, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
        if found is None:
            pytest.skip(f"{self.name} is not installed")
        return [found, *(argument.format(file=file, directory=file.parent) for argument in arguments)]


# Otherwise nginx changes to a user who may not look into the directories of tests.
IS_ROOT = sys.platform != "win32" and os.geteuid() == 0
PLACES = "pid {directory}/pid; error_log stderr;"
PROGRAMS = [
    Program(
        "nginx",
        "nginx.conf",
        ["-t", "-p", "{directory}", "-c", "{file}", "-g", PLACES],
        ["-p", "{directory}", "-c", "{file}", "-g", f"{PLACES} daemon off;{' user root;' if IS_ROOT else ''}"],
    ),
    Program("haproxy", "haproxy.cfg", ["-c", "-f", "{file}"], ["-db", "-f", "{file}"]),
    Program(
        "apache2",
        "apache.conf",
        ["-t", "-f", "{file}"],
        ["-X", "-f", "{file}", "-c", "PidFile {directory}/pid"],
    ),
]


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Any:
    return request.param


def adapted(program: Program, directory: Path, replacements: dict[str, str]) -> Path:
    """The example, with each of these parts of it, which are there, replaced."""
    text = (EXAMPLES / program.example).read_text()
    for old, new in replacements.items():
        assert old in text
        text = text.replace(old, new)
    file = directory / program.example
    file.write_text(text)
    return file


def test_example_is_accepted_as_it_stands(program: Program, tmp_path: Path) -> None:
    file = adapted(program, tmp_path, {})
    done = subprocess.run(program.command(program.check, file), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warn" not in (done.stdout + done.stderr).lower()


@dataclass
class Front:
    """A program that passes requests on to a server."""

    server: ServerProcess
    port: int

    def connect(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
        """One request on a connection of its own."""
        connection = self.connect()
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        assert response.status == 200
        answer = response.read()
        connection.close()
        return answer

    def show(self, **headers: str) -> Any:
        """What the application sees of a request."""
        return json.loads(self.ask("GET", "/", headers={name.replace("_", "-"): headers[name] for name in headers}))


@contextmanager
def in_front(program: Program, directory: Path, port: int, server: ServerProcess, **changes: str) -> Iterator[Front]:
    """Run the program by its example, with `changes` for it, at `port` of the loopback interface."""
    # One worker of nginx: each keeps connections for itself.
    places = {"listen 8080": f"listen 127.0.0.1:{port}", "worker_processes auto": "worker_processes 1"}
    if program.name == "haproxy":
        places = {"bind :8080": f"bind 127.0.0.1:{port}"}
    if program.name == "apache2":
        places = {"Listen 8080": f"Listen 127.0.0.1:{port}", "*:8080": f"*:{port}"}
    command = program.command(program.run, adapted(program, directory, {**places, **changes}))
    with ServerProcess(command=command) as running:
        wait_for(lambda: is_listening(("127.0.0.1", port)) or running.process.poll() is not None)
        assert running.process.poll() is None, running.describe()
        yield Front(server, port)


@pytest.fixture
def options(request: pytest.FixtureRequest) -> list[str]:
    return list(getattr(request, "param", []))


@pytest.fixture
def front(program: Program, tmp_path: Path, unused_tcp_port: int, options: list[str]) -> Iterator[Front]:
    with ServerProcess("tests.deployment_app:app", "--port", "0", "--no-access-log", *options) as server:
        place = {"127.0.0.1:8000": f"127.0.0.1:{server.port}"}
        with in_front(program, tmp_path, unused_tcp_port, server, **place) as front:
            yield front


def test_client_host_and_scheme_are_passed_on(front: Front) -> None:
    """The client's own list comes first, and the first address from the right that is not trusted counts."""
    seen = front.show(Host="app.example:8443", X_Forwarded_For=CLIENT, X_Forwarded_Proto="https")
    assert seen["client"][0] == CLIENT
    assert seen["scheme"] == "http"
    headers = dict(seen["headers"])
    assert headers["host"] == "app.example:8443"
    assert "close" not in headers.get("connection", "")


def test_response_is_passed_on_as_it_comes(front: Front) -> None:
    connection = front.connect()
    connection.request("GET", "/stream")
    response = connection.getresponse()
    assert response.readline() == b"data: one\n"
    assert front.ask("POST", "/go") == b"gone"
    assert response.read() == b"\ndata: two\n\n"
    connection.close()


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
def test_upload_is_passed_on_as_it_comes(front: Front, chunked: bool) -> None:
    half = bytes(range(256)) * 6000
    connection = front.connect()
    connection.putrequest("PUT", "/upload")
    if chunked:
        connection.putheader("Transfer-Encoding", "chunked")
    else:
        connection.putheader("Content-Length", str(2 * len(half)))
    connection.endheaders()
    framed = b"%x\r\n%b\r\n" % (len(half), half) if chunked else half
    connection.send(framed)
    wait_for(lambda: int(front.ask("GET", "/received")) == len(half))
    connection.send(framed + b"0\r\n\r\n" if chunked else framed)
    answer = connection.getresponse().read().decode()
    assert answer == f"{2 * len(half)} {hashlib.sha256(half + half).hexdigest()}"
    connection.close()


def test_websocket_is_passed_on(front: Front) -> None:
    client = pytest.importorskip("websockets.sync.client")
    headers = {"X-Forwarded-For": CLIENT}
    with client.connect(f"ws://127.0.0.1:{front.port}/", additional_headers=headers) as websocket:
        assert websocket.recv(timeout=30) == f"ws {CLIENT}"
        for text in ("hello", "x" * 100_000):
            websocket.send(text)
            assert websocket.recv(timeout=30) == text


@pytest.mark.parametrize("options", [["--forwarded-allow-ips", "192.0.2.1"]], indirect=True, ids=["nobody trusted"])
def test_connection_to_the_server_is_kept_alive(front: Front) -> None:
    """Without trust the client that the application sees is the other end of that connection."""
    connection = front.connect()
    ports = set()
    for _ in range(5):
        connection.request("GET", "/")
        ports.add(json.loads(connection.getresponse().read())["client"][1])
    connection.close()
    assert len(ports) == 1


def test_client_of_a_server_on_a_unix_socket_is_whom_the_proxy_names(
    program: Program, tmp_path: Path, unused_tcp_port: int
) -> None:
    """There everybody is trusted, so the proxy replaces what the client says of itself; as documented."""
    path = tmp_path / "app.sock"
    changes = {"127.0.0.1:8000": f"unix:{path}", "$proxy_add_x_forwarded_for": "$remote_addr"}
    if program.name == "haproxy":
        frontend = "    http-request del-header X-Forwarded-For\n    default_backend app"
        changes = {"127.0.0.1:8000": str(path), "    default_backend app": frontend}
    if program.name == "apache2":
        replace = "    RequestHeader set X-Forwarded-For expr=%{REMOTE_ADDR}\n    ProxyAddHeaders Off\n"
        place = f"unix:{path}|http://127.0.0.1/"
        changes = {
            "http://127.0.0.1:8000/": place,
            "    ProxyPreserveHost On\n": f"    ProxyPreserveHost On\n{replace}",
        }
    options = ["--uds", str(path), "--forwarded-allow-ips", "*", "--no-access-log"]
    with ServerProcess("tests.deployment_app:app", *options) as server:
        wait_for(lambda: is_listening(str(path)))
        with in_front(program, tmp_path, unused_tcp_port, server, **changes) as front:
            assert front.show(X_Forwarded_For=CLIENT)["client"][0] == "127.0.0.1"


def test_no_request_is_lost_while_the_workers_behind_it_are_replaced(
    program: Program, tmp_path: Path, unused_tcp_port: int
) -> None:
    """MP-21, K7: it hears that a connection is to be closed, like any client."""
    options = ["--port", "0", "--workers", "2", "--no-access-log"]
    with ServerProcess("tests.supervisors.load:app", *options, cwd=ROOT) as server:
        server.wait_for("Application startup complete.", count=2)
        place = {"127.0.0.1:8000": f"127.0.0.1:{server.port}"}
        with in_front(program, tmp_path, unused_tcp_port, server, **place) as front:
            with Load(("127.0.0.1", front.port), "/stream", clients=4) as load:
                for count in (2, 4):
                    server.send_signal(signal.SIGHUP)
                    server.wait_for("Finished server process", count=count)
            assert not load.lost
            assert load.answered > 4


def test_server_that_is_gone_is_the_proxys_to_report(front: Front) -> None:
    assert front.server.stop() < 0
    connection = front.connect()
    connection.request("GET", "/")
    assert connection.getresponse().status in (502, 503)
    connection.close()


def manifests() -> list[dict[str, Any]]:
    """The objects of the example for Kubernetes."""
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))


Shape = dict[str, Any]

METADATA: Shape = {"name": str, "labels": {"app.kubernetes.io/name": str}}
PROBE: Shape = {"httpGet": {"path": str, "port": str}, "periodSeconds": int, "failureThreshold": int}
CONTAINER: Shape = {
    "name": str,
    "image": str,
    "command": [str],
    "args": [str],
    "ports": [{"name": str, "containerPort": int}],
    "startupProbe": PROBE,
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
    "resources": {"requests": {"cpu": str, "memory": str}, "limits": {"memory": str}},
    "securityContext": {
        "runAsNonRoot": bool,
        "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool,
        "capabilities": {"drop": [str]},
    },
}
SELECTOR: Shape = {"matchLabels": METADATA["labels"]}
POD: Shape = {
    "metadata": {"labels": METADATA["labels"]},
    "spec": {"terminationGracePeriodSeconds": int, "containers": [CONTAINER]},
}
STRATEGY: Shape = {"type": str, "rollingUpdate": {"maxSurge": int, "maxUnavailable": int}}
SHAPES: dict[tuple[str, str], Shape] = {
    ("apps/v1", "Deployment"): {"replicas": int, "selector": SELECTOR, "strategy": STRATEGY, "template": POD},
    ("v1", "Service"): {"selector": METADATA["labels"], "ports": [{"name": str, "port": int, "targetPort": str}]},
    ("policy/v1", "PodDisruptionBudget"): {"minAvailable": int, "selector": SELECTOR},
}
"""What these objects have in the schemas of Kubernetes, as far as the example has it."""


def faults(found: Any, shape: Any, place: str) -> list[str]:
    """Where something is not of this shape."""
    if isinstance(shape, type):
        return [] if type(found) is shape else [f"{place}: {found!r} is no {shape.__name__}"]
    if type(found) is not type(shape):
        return [f"{place}: {found!r}"]
    if isinstance(shape, list):
        return [fault for item in found for fault in faults(item, shape[0], place)]
    unknown = [f"{place}: {name} is unknown" for name in found if name not in shape]
    known = [fault for name in found if name in shape for fault in faults(found[name], shape[name], f"{place}.{name}")]
    return unknown + known


def test_manifests_have_the_shapes_of_kubernetes() -> None:
    """Names and types; values are a matter of the schemas, below."""
    for manifest in manifests():
        kind = manifest["apiVersion"], manifest["kind"]
        whole: Shape = {"apiVersion": str, "kind": str, "metadata": METADATA, "spec": SHAPES[kind]}
        assert faults(manifest, whole, kind[1]) == []
    assert faults({"ports": [{"port": "80"}], "sel": {}}, SHAPES["v1", "Service"], "spec") == [
        "spec: sel is unknown",
        "spec.ports.port: '80' is no int",
    ]


def test_manifests_are_what_the_schemas_of_kubernetes_say() -> None:
    """Of two versions; the package that brings the schemas is large (108 MB), and none of the extras."""
    if "UVICORN_REQUIRE_SCHEMAS" not in os.environ:
        pytest.importorskip("kubernetes_validate")
    validate = import_module("kubernetes_validate").validate
    for manifest in manifests():
        for version in ("1.28", "1.34"):
            validate(manifest, version, strict=True)


def test_the_times_of_a_pod_fit_each_other() -> None:
    """Its options are the server's; it has ended by itself before it is killed; its probes are answered."""
    deployment = manifests()[0]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    arguments = [*container["command"][1:], *container["args"]]
    options = uvicorn.main.make_context("uvicorn", arguments).params
    needed = options["drain_delay"] + options["timeout_graceful_shutdown"]
    assert needed < pod["terminationGracePeriodSeconds"]
    readiness, liveness = container["readinessProbe"], container["livenessProbe"]
    assert readiness["periodSeconds"] * readiness["failureThreshold"] <= options["drain_delay"]
    assert [one["httpGet"]["path"] for one in (readiness, liveness)] == ["/ready", "/-/live"]
    assert [one["httpGet"]["port"] for one in (readiness, liveness)] == ["probe", "http"]
    assert options["lifecycle_path"] == "/-/"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    own = {name: int(options[name].rpartition(":")[2]) for name in ("metrics", "probe")}
    assert ports == {"http": options["port"], **own}
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
