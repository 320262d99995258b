"""A client of HTTP/3 by ngtcp2's `gtlsclient`, of Debian's package ngtcp2-client. See `clients` for the output."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

UNSUPPORTED = 3
OPTIONS = {
    "keyupdate": ["--key-update=20ms"],
    "migrate": ["--change-local-addr=20ms"],
    "version": ["--version=0x1a2a3a4a", "--preferred-versions=v1"],
    "chacha20": ["--ciphers=NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+CHACHA20-POLY1305"],
}


def run(base: str, path: str, directory: Path, *options: str) -> list[dict[str, Any]]:
    """The responses; of several that arrive at once only the statuses."""
    url = urlsplit(base)
    command = ["gtlsclient", "--no-quic-dump", "--no-http-dump", "--exit-on-all-streams-close", *options]
    command += [str(url.hostname), str(url.port), f"https://localhost:{url.port}{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    statuses = re.findall(r"\[:status: (\d+)\]", done.stdout + done.stderr)
    if done.returncode or not statuses:
        sys.exit(f"status {done.returncode}: {done.stderr[-2000:]}")
    kept = [one.read_bytes() for one in (directory / "down").iterdir()]
    content = kept[0] if len(kept) == len(statuses) == 1 else None
    digest = None if content is None else hashlib.sha256(content).hexdigest()
    length = None if content is None else len(content)
    return [{"status": int(status), "length": length, "digest": digest} for status in statuses]


def perform(operation: str, base: str, *arguments: str) -> dict[str, Any]:
    """Return the result."""
    path = arguments[-1] if arguments else "/"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "down").mkdir()
        down = [f"--download={directory}/down"]
        if operation == "get":
            options = down if arguments[0] == "1" else [f"--nstreams={arguments[0]}"]
        elif operation == "post":
            (directory / "up").write_bytes(bytes(int(arguments[0])))
            options = ["--http-method=POST", f"--data={directory}/up", *down]
        elif operation in ("resume", "early"):
            options = [f"--session-file={directory}/session", f"--tp-file={directory}/parameters"]
            if operation == "resume":
                options += ["--disable-early-data"]
            # It must live until the ticket has come.
            run(base, "/slow/100", directory, *options)
        elif operation in OPTIONS:
            options, path = OPTIONS[operation], "/slow/200"
        else:
            sys.exit(UNSUPPORTED)
        return {"responses": run(base, path, directory, *options)}


if __name__ == "__main__":
    print(json.dumps(perform(*sys.argv[1:])))
