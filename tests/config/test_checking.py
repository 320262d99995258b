"""`uvicorn --check`: everything is loaded, and nothing is served."""

from __future__ import annotations

import datetime
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from uvicorn.config import Config
from uvicorn.config.checking import findings
from uvicorn.rules import shortcuts
from uvicorn.rules.shortcuts import Shortcut

pytestmark = pytest.mark.measures_children

APP = """
import os

def make():
    raise RuntimeError("built in vain")

async def app(scope, receive, send):
    open("called", "w").close()

open(os.environ.get("MARK", "imported"), "w").close()
"""


async def asgi_app(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def check(cwd: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command with `--check`; it ends by itself."""
    command = [sys.executable, "-m", "uvicorn", "--check", *arguments]
    environment = {**os.environ, **(env or {})}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)


def parts(text: str) -> dict[str, str]:
    """What is said of each part."""
    return {line[:12].strip(): line[12:] for line in text.splitlines()}


def test_all_that_would_be_served_is_said(cwd: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as running:  # what is to be replaced
        port = str(running.getsockname()[1])
        done = check(cwd, "app:app", "--port", port, "--workers", "3", "--http", "h11", "--loop", "asyncio")
    assert (done.returncode, done.stderr) == (0, "")
    said = parts(done.stdout)
    assert ("shortcuts" in said) == (shortcuts.proved() != set(Shortcut))
    said.pop("shortcuts", None)
    assert said == {
        "application": "app:app (asgi3)",
        "http": "uvicorn.protocols.http.h11_impl.H11Protocol, HTTP/1.1",
        "websocket": parts(done.stdout)["websocket"],
        "event loop": parts(done.stdout)["event loop"],
        "lifespan": "auto",
        "processes": "3, event loops in each: 1",
        "listens": f"127.0.0.1:{port}",
    }
    assert (cwd / "imported").exists()
    assert not (cwd / "called").exists()


def test_shortcuts_are_told_of(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = check(cwd, "app:app", env={"UVICORN_SHORTCUTS": "reuse"})
    is_proved = Shortcut.REUSE in shortcuts.proved()
    assert parts(done.stdout)["shortcuts"].startswith("reuse" if is_proved else "none; not proved on ")
    monkeypatch.delenv("UVICORN_SHORTCUTS", raising=False)
    unproved = shortcuts.TABLE[Shortcut.STEPS]._replace(versions=())
    monkeypatch.setitem(shortcuts.TABLE, Shortcut.STEPS, unproved)
    told = dict(findings(Config(asgi_app, log_config=None)))["shortcuts"]
    assert "steps" not in told.partition(";")[0] and re.search("; not proved on [^:]+: (.*, )?steps", told)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("app = None", "The ASGI app is not callable, so every request will fail: None."),
        ("def app(environ, start_response): ...", "Set interface to wsgi."),
        ("async def app(request): ...", "does not accept the arguments of interface asgi3 (scope, receive, send)"),
        ("import sys; sys.exit()", "The application ended the process while it was loaded, with status 0."),
    ],
)
def test_application_that_would_serve_nobody_does_not_pass(cwd: Path, source: str, said: str) -> None:
    (cwd / "app.py").write_text(source)
    done = check(cwd, "app:app")
    assert said in done.stderr
    assert (done.returncode, done.stdout) == (3, "")


def test_each_part_is_set_off_from_its_name(cwd: Path) -> None:
    done = check(cwd, "app:app", "--proxy-protocol", "--limit-active-requests", "2")
    assert done.returncode == 0
    assert {line[11] for line in done.stdout.splitlines()} == {" "}


def test_limit_of_active_requests_is_told_of(cwd: Path) -> None:
    done = check(cwd, "app:app", "--limit-active-requests", "auto", "--limit-queue", "7")
    assert parts(done.stdout)["requests"] == "auto active ones of a process, and 7 that wait"
    done = check(cwd, "app:app", "--limit-exempt", "health")
    assert done.returncode != 0 and "'--limit-exempt': must be a path that begins with a slash" in done.stderr


def test_who_has_to_say_who_its_client_is(cwd: Path) -> None:
    done = check(cwd, "app:app", "--proxy-protocol", "--forwarded-allow-ips", "10.0.0.5,10.1.0.0/16")
    assert parts(done.stdout)["proxies"] == "begin with PROXY headers: 10.0.0.5,10.1.0.0/16, and Unix sockets"
    done = check(cwd, "app:app", "--proxy-protocol", "--no-proxy-headers", "--forwarded-allow-ips", "10.0.0.300")
    assert done.returncode != 0
    assert "'10.0.0.300' is not an IPv4 or IPv6 address" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        (["--host", "::1"], "[::1]:8000"),
        (["--uds", "s"], "unix:s"),
        (["--bind", "[::1]:1", "--bind", "systemd"], "[::1]:1, systemd"),
    ],
)
def test_places_are_named_and_not_bound(cwd: Path, arguments: list[str], places: str) -> None:
    assert parts(check(cwd, "app:app", *arguments).stdout)["listens"] == places
    assert not (cwd / "s").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors are not inherited on Windows")
def test_inherited_descriptor_is_looked_at(cwd: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        number = sock.fileno()
        command = [sys.executable, "-m", "uvicorn", "--check", "app:app", "--fd", str(number)]
        done = subprocess.run(command, cwd=cwd, pass_fds=[number], capture_output=True, text=True, timeout=60)
    assert parts(done.stdout)["listens"] == f"fd:{number}"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--fd", "99"], "Cannot use fd=99: descriptor 99 is not open"),
        (["--bind", "fd:99"], "Cannot use bind=['fd:99']: descriptor 99 is not open"),
        (["--uds", "none/s"], "Cannot use uds='none/s': there is no directory 'none'; create it"),
        (["--bind", "unix:none/s"], "Cannot use bind=['unix:none/s']: there is no directory 'none'; create it"),
    ],
)
def test_address_that_cannot_be_had_ends_the_check(cwd: Path, arguments: list[str], text: str) -> None:
    done = check(cwd, "app:app", *arguments)
    assert done.returncode == 3
    assert text in done.stderr


@pytest.mark.parametrize("count", ["-1", "1025", "1.5"])
def test_number_of_workers_in_the_environment_is_checked(cwd: Path, count: str) -> None:
    done = check(cwd, "app:app", env={"WEB_CONCURRENCY": count})
    assert done.returncode == 1
    text = f"WEB_CONCURRENCY must be a whole number from 1 to 1024 or `auto`, not '{count}'."
    assert text in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["app:none"], 3, 'Attribute "none" not found in module "app".'),
        (["app:make", "--factory"], 1, "built in vain"),
        (["app:app", "--ws-shutdown-code", "5"], 2, "'--ws-shutdown-code': must be 1000, "),
        (["app:app", "--ssl-certfile", "none.pem"], 1, "Cannot use ssl_certfile='none.pem': "),
        (["app:app", "--loop", "none:none"], 3, "Error loading custom loop setup function."),
    ],
)
def test_what_would_end_the_server_ends_the_check(cwd: Path, arguments: list[str], status: int, text: str) -> None:
    done = check(cwd, *arguments)
    assert done.returncode == status, done.stderr
    assert text in done.stderr


def test_certificate_is_told_of(cwd: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    now = datetime.datetime.now(datetime.timezone.utc)
    for name, days in (("good", 100), ("over", -1)):
        issued = authority.issue_cert("a.example", "127.0.0.1", not_after=now + datetime.timedelta(days=days))
        issued.private_key_and_cert_chain_pem.write_to_path(str(cwd / f"{name}.pem"))
    # A client certificate that is asked for is nobody's to show here.
    done = check(cwd, "app:app", "--ssl-certfile", "good.pem", "--ssl-cert-reqs", "2", "--ssl-ca-certs", "good.pem")
    until = (now + datetime.timedelta(days=100)).strftime("%Y-%m-%d")
    assert parts(done.stdout)["tls"] == f"a.example, 127.0.0.1, until {until} (99 days)"
    done = check(cwd, "app:app", "--ssl-certfile", "over.pem")
    assert done.returncode == 1
    assert "Cannot use ssl_certfile='over.pem': " in done.stderr
    assert "certificate has expired" in done.stderr
    assert "Traceback" not in done.stderr


def test_revocation_lists_are_shown(cwd: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("a.example")
    issued.private_key_and_cert_chain_pem.write_to_path(str(cwd / "own.pem"))
    authority.cert_pem.write_to_path(str(cwd / "clients.pem"))
    now = datetime.datetime.now(datetime.timezone.utc)
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    key = load_pem_private_key(authority.private_key_pem.bytes(), None)
    for name, begin, end in (("good", -1, 5.5), ("over", -9, -1), ("ahead", 1, 9)):
        builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
        builder = builder.last_update(now + datetime.timedelta(days=begin))
        builder = builder.next_update(now + datetime.timedelta(days=end))
        text = builder.sign(cast(ec.EllipticCurvePrivateKey, key), hashes.SHA256()).public_bytes(Encoding.PEM)
        (cwd / f"{name}.crl").write_bytes(text)
    options = ("--ssl-certfile", "own.pem", "--ssl-cert-reqs", "2", "--ssl-ca-certs", "clients.pem", "--ssl-crl")
    done = check(cwd, "app:app", *options, "good.crl")
    until = (now + datetime.timedelta(days=5.5)).strftime("%Y-%m-%d %H:%M UTC")
    (line,) = [line for line in done.stdout.splitlines() if "revocation list" in line]
    assert line.startswith("tls ") and line.endswith(f", until {until} (5 days)")
    for name, said in (("over", "expired on"), ("ahead", "is not valid before")):
        done = check(cwd, "app:app", *options, f"{name}.crl")
        assert done.returncode == 1
        assert f"Cannot use ssl_crl='{name}.crl': The revocation list of " in done.stderr
        assert said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no TOML")
def test_each_pool_is_checked_with_its_variables(cwd: Path) -> None:
    (cwd / "pools.toml").write_text(
        '[pools.one]\napp = "app:app"\nuds = "one"\nenvironment = { MARK = "first" }\n'
        '[pools.two]\napp = "app:app"\nuds = "two"\nhttp = "h11"\n'
    )
    done = check(cwd, "--config", "pools.toml")
    assert done.returncode == 0, done.stderr
    one, two = done.stdout.split("[pools.two]\n")
    assert one.startswith("[pools.one]\n")
    assert (parts(one)["listens"], parts(two)["listens"]) == ("unix:one", "unix:two")
    assert "h11_impl" in parts(two)["http"]
    assert (cwd / "first").exists()


def test_variable_of_that_name_does_not_keep_a_server_from_serving(cwd: Path) -> None:
    command = [sys.executable, "-m", "uvicorn", "app:none"]
    environment = {**os.environ, "UVICORN_CHECK": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
    assert "Started" not in done.stderr
    assert done.returncode == 3


def test_certificates_of_names_are_said(cwd: Path, tmp_path: Path) -> None:
    trustme.CA().issue_cert("main.test").private_key_and_cert_chain_pem.write_to_path(tmp_path / "main.pem")
    trustme.CA().issue_cert("*.a.test").private_key_and_cert_chain_pem.write_to_path(tmp_path / "a.pem")
    done = check(cwd, "app:app", "--ssl-certfile", "main.pem", "--ssl-cert", "*.a.test=a.pem", "--ssl-reload", "1")
    lines = [line[12:].partition(", until")[0] for line in done.stdout.splitlines() if line.startswith("tls")]
    assert lines == ["main.test", "for *.a.test: *.a.test"]
    done = check(cwd, "app:app", "--ssl-certfile", "main.pem", "--ssl-cert", "*.a.test=main.key")
    assert done.returncode == 1 and "main.key" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="HTTP/3 needs Linux")
@pytest.mark.parametrize(("alt_svc", "shown"), [(None, "these ports"), ("none", "none")])
def test_http3_is_said_with_its_field(
    alt_svc: str | None,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    tls_certificate_server_cert_path: str,
    tls_certificate_private_key_path: str,
) -> None:
    native = pytest.importorskip("uvicorn._native")
    monkeypatch.setattr(native, "HTTP3Listener", object, raising=False)
    certificate = (tls_certificate_server_cert_path, tls_certificate_private_key_path)
    config = Config(
        asgi_app,
        log_config=None,
        http2=True,
        http3=True,
        http3_alt_svc=alt_svc,
        ssl_certfile=certificate[0],
        ssl_keyfile=certificate[1],
    )
    said = dict(findings(config))
    assert said["http"].endswith(", HTTP/1.1, HTTP/2 and HTTP/3")
    assert said["http3"] == f"on the UDP ports of the same numbers, Alt-Svc: {shown}"
