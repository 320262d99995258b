"""The guides for gunicorn, granian and hypercorn: each flag has a row, and each option they name exists and parses."""

from __future__ import annotations

import json
import logging.handlers
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.core import ParameterSource

import uvicorn
from tests.process import APP_BEGINS, ROOT, ServerProcess
from tests.utils import PATIENCE, is_listening, request, wait_for
from uvicorn.config.settings import ROWS

PEERS = ("gunicorn", "granian", "hypercorn")

FLAGS = {
    "gunicorn": """
        --access-logfile --access-logformat --asgi-disconnect-grace-period --asgi-lifespan --asgi-loop --backlog --bind
        --ca-certs --capture-output --casefold-http-method --cert-reqs --certfile --chdir --check-config --ciphers
        --config --control-socket --control-socket-mode --daemon --dirty-app --dirty-graceful-timeout --dirty-threads
        --dirty-timeout --dirty-workers --disable-redirect-access-to-syslog --do-handshake-on-connect --dogstatsd-tags
        --enable-backlog-metric --enable-stdio-inheritance --env --error-logfile --forwarded-allow-ips
        --forwarder-headers --graceful-timeout --group --header-map --http-parser --http-protocols --http2-cleartext
        --http2-initial-window-size --http2-max-concurrent-streams --http2-max-frame-size --http2-max-header-list-size
        --initgroups --keep-alive --keyfile --limit-request-field_size --limit-request-fields --limit-request-line
        --log-config --log-config-json --log-file --log-level --log-syslog --log-syslog-facility --log-syslog-prefix
        --log-syslog-to --logger-class --max-requests --max-requests-jitter --name --no-control-socket --no-sendfile
        --paste --paste-global --paster --permit-obsolete-folding --permit-unconventional-http-method
        --permit-unconventional-http-version --pid --preload --print-config --protocol --proxy-allow-from
        --proxy-protocol --pythonpath --reload --reload-engine --reload-extra-file --reuse-port --root-path --spew
        --ssl-version --statsd-host --statsd-prefix --strip-header-spaces --suppress-ragged-eofs --threads --timeout
        --umask --user --uwsgi-allow-from --websocket-max-message-size --worker-class --worker-connections
        --worker-tmp-dir --workers
    """,
    "granian": """
        --access-log --access-log-fmt --backlog --backpressure --blocking-threads --blocking-threads-idle-timeout
        --env-files --factory --host --http --http1-buffer-size --http1-header-read-timeout --no-http1-keep-alive
        --http1-pipeline-flush --http2-adaptive-window --http2-initial-connection-window-size
        --http2-initial-stream-window-size --http2-keep-alive-interval --http2-keep-alive-timeout
        --http2-max-concurrent-streams --http2-max-frame-size --http2-max-headers-size --http2-max-send-buffer-size
        --interface --no-log --log-config --log-level --loop --metrics --metrics-address --metrics-port
        --metrics-scrape-interval --pid-file --port --process-name --reload --reload-ignore-dirs --reload-ignore-paths
        --reload-ignore-patterns --reload-ignore-worker-failure --reload-paths --reload-tick --respawn-failed-workers
        --respawn-interval --rss-sample-interval --rss-samples --runtime-blocking-threads --runtime-mode
        --runtime-threads --ssl-ca --ssl-certificate --ssl-client-verify --ssl-crl --ssl-keyfile --ssl-keyfile-password
        --ssl-protocol-min --static-path-dir-to-file --static-path-expires --static-path-mount --static-path-route
        --task-impl --uds --uds-permissions --url-path-prefix --working-dir --workers --workers-kill-timeout
        --workers-lifetime --workers-max-rss --no-ws
    """,
    "hypercorn": """
        --access-log --access-logfile --access-logformat --backlog --bind --ca-certs --cert-reqs --certfile --ciphers
        --config --daemon --debug --error-log --error-logfile --graceful-timeout --group --insecure-bind --keep-alive
        --keyfile --keyfile-password --log-config --log-file --log-level --max-requests --max-requests-jitter
        --pid --quic-bind --read-timeout --reload --root-path --server-name --statsd-host --statsd-prefix --umask --user
        --verify-mode --websocket-ping-interval --worker-class --workers
    """,
}
"""The flags of the releases that the guides name."""

FILE_SETTINGS = {
    "gunicorn": """
        wsgi_app logconfig_dict default_proc_name secure_scheme_headers tmp_upload_dir child_exit nworkers_changed
        on_exit on_reload on_starting post_fork post_request post_worker_init pre_exec pre_fork pre_request ssl_context
        when_ready worker_abort worker_exit worker_int dirty_post_fork dirty_worker_exit dirty_worker_init
        on_dirty_starting
    """,
    "granian": "on_startup on_shutdown on_reload",
    "hypercorn": """
        alpn_protocols alt_svc_headers create_ssl_context dogstatsd_tags h11_max_incomplete_size h11_pass_raw_headers
        h2_max_concurrent_streams h2_max_header_list_size h2_max_inbound_frame_size include_date_header
        include_server_header keep_alive_max_requests logconfig_dict logger_class max_app_queue_size shutdown_timeout
        ssl_handshake_timeout startup_timeout verify_flags websocket_max_message_size wsgi_max_body_size
    """,
}
"""Settings and hooks without a flag."""

ALIASES = {"--help", "--version"}
"""Flags that need no row: those of every command."""

ANSWERS = ("not needed", "no equivalent", "the same names")


def guide(peer: str) -> str:
    """A page."""
    return (ROOT / "docs" / "migrating" / f"{peer}.md").read_text(encoding="utf-8")


def rows(peer: str, *first: str) -> Iterator[list[str]]:
    """The rows of the tables whose first column has one of these titles."""
    for table in re.findall(r"(?:^\|.*\n)+", guide(peer), re.M):
        title, _, *cells = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()
        ]
        if title[0] in first:
            yield from cells


def spans(text: str) -> list[str]:
    """The code in a text."""
    return re.findall(r"`([^`]+)`", text)


def own_options() -> set[str]:
    """The options of the command line."""
    return {flag for parameter in uvicorn.main.params for flag in (*parameter.opts, *parameter.secondary_opts)}


def parse(words: list[str]) -> dict[str, object]:
    """The settings that these words of a command line give, checked by `Config`."""
    context = uvicorn.main.make_context("uvicorn", list(words))
    given = {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and name in ROWS
    }
    uvicorn.Config(**given)  # type: ignore[arg-type]
    return given


@pytest.mark.parametrize("peer", PEERS)
def test_each_flag_has_a_row(peer: str) -> None:
    named = [flag for row in rows(peer, peer) for flag in spans(row[0]) if flag.startswith("--")]
    assert sorted(named) == sorted(FLAGS[peer].split())


@pytest.mark.parametrize("peer", PEERS)
def test_each_setting_of_a_file_has_a_row(peer: str) -> None:
    named = [
        name
        for row in rows(peer, "File only", "Python only", peer)
        for name in spans(row[0])
        if re.fullmatch(r"[a-z]\w+", name)
    ]
    assert sorted(named) == sorted(FILE_SETTINGS[peer].split())


@pytest.mark.parametrize("peer", PEERS)
def test_rows_name_options_that_exist(peer: str) -> None:
    own = own_options()
    for row in rows(peer, peer):
        flags = [flag for flag in spans(row[0]) if flag.startswith("--")]
        options = [word for span in spans(row[1]) for word in span.split() if word.startswith("--")]
        assert set(options) <= own, row
        if flags:
            assert options or row[1].startswith(ANSWERS), row
        if row[1] == "the same names":
            assert set(flags) <= own, row
    others = own | set(FLAGS[peer].split())
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", guide(peer))) <= others


@pytest.mark.parametrize("peer", PEERS)
def test_values_and_commands_parse(peer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "static").mkdir()
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^uvicorn (.*?)(?: +#.*)?$", guide(peer), re.M)
    assert commands
    for command in commands:
        assert parse(shlex.split(command))
    values = re.findall(r"`(--[\w-]+ [^`]+)`", "\n".join(line for line in guide(peer).splitlines() if line[0:1] != "#"))
    assert values
    for value in values:
        words = shlex.split(value)
        assert parse(["m:app", *words])


def test_a_wrong_value_would_be_noticed() -> None:
    with pytest.raises(click.ClickException):
        parse(["m:app", "--limit-request-target", "short"])


@pytest.mark.parametrize("peer", PEERS)
def test_each_flag_of_the_installed_server_has_a_row(peer: str) -> None:
    """Of those in the directories of MIGRATION_PEERS, else of the environment of the tests."""
    places = os.environ.get("MIGRATION_PEERS", os.path.dirname(sys.executable))
    command = shutil.which(peer, path=places)
    if command is None:
        pytest.skip(f"{peer} is not installed: MIGRATION_PEERS names directories of commands")
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "GUNICORN_CMD_ARGS": ""}
    done = subprocess.run(
        [command, "--help"], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    defined = re.findall(r"^  (-\S.*?)(?:  |$)", done.stdout, re.M)
    flags = {flag for text in defined for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text)} - ALIASES
    assert len(flags) > 20
    named = {flag.replace("--no-", "--") for row in rows(peer, peer) for flag in spans(row[0])}
    assert {flag for flag in flags if flag.replace("--no-", "--") not in named} == set()


def test_gunicorn_files_have_no_other_settings() -> None:
    config = pytest.importorskip("gunicorn.config")
    assert {setting.name for setting in config.KNOWN_SETTINGS if setting.cli is None} <= set(
        FILE_SETTINGS["gunicorn"].split()
    )


def test_every_atom_of_gunicorn_is_known() -> None:
    glogging = pytest.importorskip("gunicorn.glogging")
    source = Path(glogging.__file__).read_text(encoding="utf-8")
    atoms = set(re.findall(r"^ +'(\w)': ", source.partition("def atoms(")[2].partition("def access(")[0], re.M))
    assert {"h", "t", "L", "p"} <= atoms
    for atom in [*atoms, "{x-request-id}i", "{content-type}o", "{HOME}e"]:
        uvicorn.Config("m:app", access_log_format=f"%({atom})s")


@pytest.mark.parametrize("peer", ["granian", "hypercorn"])
def test_atoms_of_the_tables_are_known(peer: str) -> None:
    atoms = [row for row in rows(peer, peer) if "`%(" in row[0]]
    assert len(atoms) > 4
    for row in atoms:
        for value in spans(row[1]):
            if "%(" in value or value == "json":
                uvicorn.Config("m:app", access_log_format=value)
    missing = [span for row in atoms if row[1].startswith(("no equivalent", "only in")) for span in spans(row[0])]
    assert missing
    for value in missing:
        with pytest.raises(ValueError, match="unknown atom"):
            uvicorn.Config("m:app", access_log_format=value)


def test_each_atom_of_granians_default_format_has_a_row() -> None:
    default = '[%(time)s] %(addr)s - "%(method)s %(path)s %(protocol)s" %(status)d %(dt_ms).3f'
    named = [span for row in rows("granian", "granian") for span in spans(row[0])]
    assert set(re.findall(r"%\(\w+\)(?:s|d|\.3f)", default)) <= set(named)


APP = (
    APP_BEGINS
    + """    body = f"{scope['client']} {scope['scheme']} {scope['root_path']} {scope['path']}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""
)


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_parent_survives_the_signals_that_gunicorn_takes(cwd: Path) -> None:
    """A logrotate script that sends SIGUSR1 must not end the server."""
    with ServerProcess("app:app", "--workers", "2", "--port", "0", cwd=cwd) as server:
        wait_for(lambda: server.error_output.count("Application startup complete.") == 2)
        for name in ("SIGUSR1", "SIGQUIT", "SIGWINCH"):
            os.kill(server.pid, getattr(signal, name))
        assert b"200 OK" in request(("127.0.0.1", server.port))
        assert server.process.poll() is None
        assert "Terminated child process" not in server.error_output


@pytest.mark.skipif(sys.platform == "win32", reason="files that are open cannot be renamed")
def test_watched_file_takes_the_place_of_reopening(cwd: Path) -> None:
    """Log files can be rotated without a signal."""
    handler = logging.handlers.WatchedFileHandler
    config = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {
            "file": {"class": f"{handler.__module__}.{handler.__name__}", "filename": str(cwd / "access.log")}
        },
        "loggers": {"uvicorn.access": {"handlers": ["file"], "level": "INFO", "propagate": False}},
    }
    (cwd / "log.json").write_text(json.dumps(config))
    with ServerProcess(
        "app:app", "--log-config", "log.json", "--access-log-format", "%(s)s", "--uds", "s", cwd=cwd
    ) as server:
        wait_for(lambda: is_listening(str(cwd / "s")))
        assert request(str(cwd / "s"))
        (cwd / "access.log").rename(cwd / "access.log.1")
        assert request(str(cwd / "s"))
        assert server.process.poll() is None
        wait_for((cwd / "access.log").exists)
    assert (cwd / "access.log").read_text() == (cwd / "access.log.1").read_text() == "200\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
@pytest.mark.parametrize(("options", "seen"), [([], b"None http"), (["--forwarded-allow-ips", "*"], b"1.2.3.4")])
def test_proxy_on_a_unix_socket_must_be_trusted(cwd: Path, options: list[str], seen: bytes) -> None:
    with ServerProcess("app:app", "--uds", "s", *options, cwd=cwd):
        wait_for(lambda: is_listening(str(cwd / "s")))
        fields = ("X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https")
        assert seen in request(str(cwd / "s"), headers=fields)


def test_root_path_is_prepended(cwd: Path) -> None:
    """Other servers leave the path as it arrived."""
    with ServerProcess("app:app", "--port", "0", "--root-path", "/api", cwd=cwd) as server:
        assert b" /api /api/" in request(("127.0.0.1", server.port))
