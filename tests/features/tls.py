"""TLS: certificates and their change, sessions, clients that show a certificate."""

from __future__ import annotations

import base64
import datetime
import re
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import unquote

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from tests.features.feature import Group
from tests.features.table import Finding, NotTried
from tests.features.trial import (
    GRANIAN,
    GUNICORN,
    HYPERCORN,
    NGINX,
    OURS,
    UPSTREAM,
    Means,
    Running,
    Trial,
    eventually,
    free_port,
)
from tests.features.wire import Way, ask, connect, head, receive

TLS = Group("TLS")

UPSTREAM_SCRIPT = """\
import sys, uvicorn
{code}
def factory(config, default):
    return changed(default())
if __name__ == "__main__":
    uvicorn.run("probe:app", port=int(sys.argv[1]), ssl_certfile={certificate!r}, ssl_context_factory=factory)
"""

GUNICORN_CONFIGURATION = """\
{code}
def ssl_context(config, default):
    return changed(default())
"""

HYPERCORN_SCRIPT = """\
import asyncio, sys
from hypercorn.asyncio import serve
from hypercorn.config import Config
from probe import app
{code}
class Changed(Config):
    bind = ["127.0.0.1:" + sys.argv[1]]
    certfile = keyfile = {certificate!r}
    def create_ssl_context(self):
        return changed(super().create_ssl_context())
asyncio.run(serve(app, Changed()))
"""


def changed_by(code: str, certificate: str) -> dict[str, Means]:
    """The servers that let a function change their context; `code` defines it, by the name of `changed`.

    They all do, so where this one is not meant, it has an option for it.
    """
    upstream = UPSTREAM_SCRIPT.format(code=code, certificate=certificate)
    gunicorn = GUNICORN_CONFIGURATION.format(code=code)
    hypercorn = HYPERCORN_SCRIPT.format(code=code, certificate=certificate)
    return {
        OURS: Means("`ssl_context_factory`", script=upstream, own_code=True),
        UPSTREAM: Means("`ssl_context_factory`", script=upstream, own_code=True),
        GUNICORN: Means("`ssl_context`", ["-c", "own.py"], {"own.py": gunicorn}, own_code=True),
        HYPERCORN: Means("`create_ssl_context`", script=hypercorn, own_code=True),
    }


def shown(way: Way) -> str:
    """The name in the certificate that a new connection is shown; empty if there is no connection."""
    with suppress(OSError), connect(way) as sock:
        names = dict(cast(ssl.SSLSocket, sock).getpeercert() or {}).get("subjectAltName", ())
        return str(dict(cast("tuple[tuple[str, str], ...]", names)).get("DNS", ""))
    return ""


@TLS.feature("Several certificates (SNI)")
def several_names(trial: Trial) -> Finding:
    """Connections for `one.test`, `two.test` and another name each get the right certificate."""
    certificate, one, two = (str(trial.certificate(name)) for name in ("main.test", "one.test", "two.test"))
    code = f"""\
import ssl
def context_of(path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
CONTEXTS = {{"one.test": context_of({one!r}), "two.test": context_of({two!r})}}
def choose(connection, name, context):
    connection.context = CONTEXTS.get(name, context)
def changed(context):
    context.sni_callback = choose
    return context
"""
    names = f"map $ssl_server_name $certificate {{ default {certificate}; one.test {one}; two.test {two}; }}"
    means = {
        **changed_by(code, certificate),
        OURS: Means("`--ssl-cert`", ["--ssl-cert", f"one.test={one}", "--ssl-cert", f"two.test={two}"]),
        NGINX: Means(
            "`ssl_certificate`", ["ssl_certificate $certificate;", "ssl_certificate_key $certificate;"], http=names
        ),
    }
    with trial.serving(means, certificate=trial.directory / "main.test.pem") as server:
        asked = {name: shown(replace(server.way, name=name)) for name in ("one.test", "two.test", "main.test")}
    return {"": all(name == answer for name, answer in asked.items())}


@TLS.feature("Certificate reload without a signal")
def new_certificate(trial: Trial) -> Finding:
    """The file is replaced; within 8 seconds new connections get the new certificate."""
    path = trial.certificate("server.test")
    code = f"""\
import ssl
def choose(connection, name, context):
    now = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    now.load_cert_chain({str(path)!r})
    connection.context = now
def changed(context):
    context.sni_callback = choose
    return context
"""
    means = {
        **changed_by(code, str(path)),
        OURS: Means("`--ssl-reload 1`", ["--ssl-reload", "1"]),
        NGINX: Means(
            "`ssl_certificate $variable`",
            ["ssl_certificate $certificate;", "ssl_certificate_key $certificate;"],
            http=f"map $ssl_server_name $certificate {{ default {path}; }}",
        ),
    }
    with trial.serving(means, certificate=path) as server:
        assert shown(server.way) == "server.test"
        trial.certificate("new.test").replace(path)
        return {"": eventually(lambda: shown(server.way) == "new.test")}


@TLS.feature("Certificate reload by SIGHUP")
def new_certificate_by_signal(trial: Trial) -> Finding:
    """The file is replaced and SIGHUP sent, to the parent if there is one. Within 12 seconds new connections get the
    new certificate, and a request in flight is answered."""
    path = trial.certificate("server.test")
    means = {
        OURS: Means("`--ssl-reload 0`", ["--ssl-reload", "0"]),
        UPSTREAM: Means("`--workers 2`", ["--workers", "2"]),
        GRANIAN: Means("`--workers 2`", ["--workers", "2"]),
    }
    with trial.serving(means, certificate=path) as server, connect(server.way) as held:
        held.sendall(head("/hold/one"))
        assert eventually(server.held)
        trial.certificate("new.test").replace(path)
        server.signal(signal.SIGHUP)
        renewed = eventually(lambda: server.ended or shown(server.way) == "new.test", 12) and not server.ended
        server.let_go()
        return {"new connections": renewed, "requests in hand": renewed and receive(held).status == 200}


@TLS.feature("Session resumption across workers")
def resumed_elsewhere(trial: Trial) -> Finding:
    """With two workers, sessions of one worker are resumed by the other, three times."""
    means = {
        OURS: Means("`--ssl-tickets shared`", ["--ssl-tickets", "shared"]),
        GRANIAN: Means("", ["--ssl-protocol-min", "tls1.2"]),
        NGINX: Means("by default", listen="reuseport"),
    }
    with trial.serving(means, certificate=trial.certificate("server.test"), workers=2) as server:
        versions = {"TLS 1.2": ssl.TLSVersion.TLSv1_2, "TLS 1.3": ssl.TLSVersion.TLSv1_3}
        return {name: resumes(trial, server, version) for name, version in versions.items()}


def resumes(trial: Trial, server: Running, version: ssl.TLSVersion) -> bool:
    """Whether sessions are taken up by a worker that has not begun them."""
    client = trial.client
    client.minimum_version = client.maximum_version = version
    ways = [replace(server.way, tls=client)] * 4
    elsewhere: list[bool] = []
    for _ in range(30):
        begun = visits(ways)
        resumed = visits([replace(way, session=visit.session) for way, visit in zip(ways, begun, strict=True)])
        pairs = zip(begun, resumed, strict=True)
        elsewhere += [second.reused for first, second in pairs if first.pid != second.pid]
        if len(elsewhere) >= 3:
            return all(elsewhere)
    raise NotTried("all connections came to one worker")


class Visit(NamedTuple):
    """The process that has answered, whether the session was resumed, and the one for the next time."""

    pid: bytes
    reused: bool
    session: ssl.SSLSession | None


def visits(ways: Sequence[Way]) -> list[Visit]:
    """A connection on each way, all at once."""
    with ExitStack() as stack:
        socks = [cast(ssl.SSLSocket, stack.enter_context(connect(way))) for way in ways]
        for sock in socks:
            sock.sendall(head("/pid"))
        return [Visit(receive(sock).body, bool(sock.session_reused), sock.session) for sock in socks]


@TLS.feature("Warning before a certificate expires")
def expiry(trial: Trial) -> Finding:
    """A certificate that expires in five days is reported in the log within 5 seconds, and in the metrics."""
    port = free_port()
    means = {
        OURS: Means("by default, `--metrics`", ["--metrics", f"127.0.0.1:{port}"]),
        GRANIAN: Means("", ["--metrics", "--metrics-port", str(port), "--metrics-scrape-interval", "1"]),
    }
    certificate = trial.certificate("server.test", expires_in=datetime.timedelta(days=5))
    with trial.serving(means, certificate=certificate) as server:
        return {
            "log": eventually(lambda: re.search(r"(?i)\bexpire", server.log), 5),
            "metrics": bool(re.search(rb"(?i)certificate.*expir", ask(Way(("127.0.0.1", port)), "/metrics").body)),
        }


def client_of(trial: Trial, issuer: trustme.CA) -> tuple[ssl.SSLContext, bytes]:
    """A client with a certificate of that authority, and the certificate (DER)."""
    client = trial.client
    leaf = issuer.issue_cert("client.test", common_name="alice")
    leaf.configure_cert(client)
    return client, ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())


def asking(trial: Trial, required: bool) -> dict[str, list[str]]:
    """The options by which servers ask for client certificates."""
    authority, wanted = str(trial.authority_file), "2" if required else "1"
    uvicorns = ["--ssl-ca-certs", authority, "--ssl-cert-reqs", wanted]
    mode = "CERT_REQUIRED" if required else "CERT_OPTIONAL"
    return {
        OURS: uvicorns,
        UPSTREAM: uvicorns,
        GRANIAN: ["--ssl-ca", authority, "--ssl-client-verify"],
        GUNICORN: ["--ca-certs", authority, "--cert-reqs", wanted],
        HYPERCORN: ["--ca-certs", authority, "--verify-mode", mode],
        NGINX: [f"ssl_client_certificate {authority};", f"ssl_verify_client {'on' if required else 'optional'};"],
    }


@TLS.feature("Required client certificates")
def client_certificates(trial: Trial) -> Finding:
    """A client with a certificate of a known authority gets 200; a client without one, or with one of another
    authority, does not."""
    names = {
        OURS: "`--ssl-cert-reqs 2`",
        UPSTREAM: "`--ssl-cert-reqs 2`",
        GRANIAN: "`--ssl-client-verify`",
        GUNICORN: "`--cert-reqs 2`",
        HYPERCORN: "`--verify-mode`",
        NGINX: "`ssl_verify_client`",
    }
    means = {name: Means(names[name], options) for name, options in asking(trial, required=True).items()}
    with trial.serving(means, certificate=trial.certificate("server.test")) as server:
        clients = [client_of(trial, trial.authority)[0], client_of(trial, trustme.CA())[0], trial.client]
        statuses = [ask(replace(server.way, tls=client), "/pid").status for client in clients]
    return {"": [status == 200 for status in statuses] == [True, False, False]}


@TLS.feature("Revoked client certificates")
def revoked(trial: Trial) -> Finding:
    """A client whose certificate is on the authority's revocation list (CRL) is rejected; others get 200."""
    options, path = asking(trial, required=True), trial.directory / "revoked.pem"
    certificate = str(trial.certificate("server.test"))
    client, der = client_of(trial, trial.authority)
    path.write_bytes(revocations(trial.authority, der))
    code = f"""\
import ssl
def changed(context):
    context.load_verify_locations({str(trial.authority_file)!r})
    context.load_verify_locations({str(path)!r})
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context
"""
    means = {
        **changed_by(code, certificate),
        OURS: Means("`--ssl-crl`", [*options[OURS], "--ssl-crl", str(path)]),
        GRANIAN: Means("`--ssl-crl`", [*options[GRANIAN], "--ssl-crl", str(path)]),
        NGINX: Means("`ssl_crl`", [*options[NGINX], f"ssl_crl {path};"]),
    }
    with trial.serving(means, certificate=Path(certificate)) as server:
        clients = [client, client_of(trial, trial.authority)[0]]
        statuses = [ask(replace(server.way, tls=client), "/pid").status for client in clients]
    return {"": statuses[0] != 200 and statuses[1] == 200}


def revocations(authority: trustme.CA, der: bytes) -> bytes:
    """The authority's list, with this certificate in it (PEM)."""
    now = datetime.datetime.now(datetime.timezone.utc)
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    key = cast(ec.EllipticCurvePrivateKey, load_pem_private_key(authority.private_key_pem.bytes(), None))
    number = x509.load_der_x509_certificate(der).serial_number
    entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject).add_revoked_certificate(entry)
    builder = builder.last_update(now).next_update(now + datetime.timedelta(days=1))
    builder = builder.add_extension(x509.CRLNumber(1), critical=False).add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def squeezed(body: bytes) -> str:
    """A scope as text, in which a certificate is one run of base64 however it was handed on."""
    return re.sub(r"\\[nt]|\s", "", unquote(body.decode()))


@TLS.feature("Client certificate in the scope")
def told_of_client(trial: Trial) -> Finding:
    """The scope contains the name `CN=alice` and the whole certificate of the client."""
    options = asking(trial, required=True)
    means = {name: Means("", options[name]) for name in options}
    means[OURS] = Means("`--asgi-extension tls`", [*options[OURS], "--asgi-extension", "tls"])
    means[NGINX] = Means(
        "`proxy_set_header`",
        options[NGINX],
        location="proxy_set_header X-Client $ssl_client_s_dn; proxy_set_header X-Certificate $ssl_client_escaped_cert;",
    )
    client, der = client_of(trial, trial.authority)
    with trial.serving(means, certificate=trial.certificate("server.test")) as server:
        scope = squeezed(ask(replace(server.way, tls=client), "/scope").body)
    return {"its name": "CN=alice" in scope, "the certificate": base64.b64encode(der).decode() in scope}


@TLS.feature("TLS version and cipher in the scope")
def told_of_tls(trial: Trial) -> Finding:
    """Over TLS 1.3 the scope contains the version and the cipher, by number or name."""
    means = {
        OURS: Means("`--asgi-extension tls`", ["--asgi-extension", "tls"]),
        NGINX: Means(
            "`proxy_set_header`",
            location="proxy_set_header X-Version $ssl_protocol; proxy_set_header X-Cipher $ssl_cipher;",
        ),
    }
    with trial.serving(means, certificate=trial.certificate("server.test")) as server:
        client = trial.client
        client.minimum_version = ssl.TLSVersion.TLSv1_3
        way = replace(server.way, tls=client)
        scope = ask(way, "/scope").body
        with connect(way) as sock:
            cipher = cast("tuple[str, str, int]", cast(ssl.SSLSocket, sock).cipher())[0]
    numbers = {
        "TLS_AES_128_GCM_SHA256": 0x1301,
        "TLS_AES_256_GCM_SHA384": 0x1302,
        "TLS_CHACHA20_POLY1305_SHA256": 0x1303,
    }
    return {
        "version": re.search(rb'"tls_version": 772\b|TLSv1\.3', scope) is not None,
        "cipher": re.search(rf'"cipher_suite": {numbers[cipher]}\b|{cipher}'.encode(), scope) is not None,
    }


@TLS.feature("Reports of unverified clients")
def unverified(trial: Trial) -> Finding:
    """A client with a certificate of an unknown authority is served, and the application receives the reason."""
    options = asking(trial, required=False)
    means = {name: Means("", options[name]) for name in options}
    means[OURS] = Means("`--ssl-client-errors`", [*options[OURS], "--ssl-client-errors", "--asgi-extension", "tls"])
    means[NGINX] = Means(
        "`optional_no_ca`",
        [options[NGINX][0], "ssl_verify_client optional_no_ca;"],
        location="proxy_set_header X-Verified $ssl_client_verify;",
    )
    client, _ = client_of(trial, trustme.CA())
    with trial.serving(means, certificate=trial.certificate("server.test")) as server:
        answer = ask(replace(server.way, tls=client), "/scope")
    return {"": answer.status == 200 and re.search(rb"unable to|FAILED", answer.body) is not None}


@TLS.feature("TLS by the kernel (kTLS)")
def kernel(trial: Trial) -> Finding:
    """While the server sends a file over TLS, strace sees whether it asks the kernel for TLS, and the kernel counts
    whether it did."""
    if shutil.which("strace") is None:
        raise NotTried("there is no strace")
    means = {
        NGINX: Means(
            "`ssl_conf_command`",
            ["ssl_conf_command Options KTLS;", f"location /static/ {{ alias {trial.directory}/files/; }}"],
        )
    }
    (trial.directory / "files" / "a.txt").write_bytes(b"0" * 100_000)
    with trial.serving(means, certificate=trial.certificate("server.test")) as server:
        before, trace = done_by_kernel(), trial.directory / "trace"
        with traced(server.process.pid, trace):
            for target in ("/static/a.txt", "/scope"):
                server.ask(target)
            asked = eventually(lambda: "TCP_ULP" in trace.read_text(), 2)
        return {"asks the kernel": asked, "the kernel does it": asked and done_by_kernel() > before}


def done_by_kernel() -> int:
    """How many connections the kernel has encrypted; 0 where it cannot."""
    path = Path("/proc/net/tls_stat")
    counts = re.findall(r"TlsTx(?:Sw|Device)\s+(\d+)", path.read_text()) if path.exists() else []
    return sum(map(int, counts))


@contextmanager
def traced(pid: int, output: Path) -> Iterator[None]:
    """Write down which options of sockets a process and its children set."""
    pids = [str(child) for child in family(pid)]
    command = ["strace", "-f", "-e", "trace=setsockopt", "-o", str(output), *(f"-p{child}" for child in pids)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        for _ in pids:
            strace.stderr.readline()
        try:
            yield
        finally:
            strace.terminate()
            strace.communicate()


def family(pid: int) -> list[int]:
    """A process and all that come from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(member for child in children for member in family(int(child)))]
