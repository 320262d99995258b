"""Files that the server sends itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.features.feature import Group
from tests.features.table import Finding
from tests.features.trial import GRANIAN, NGINX, OURS, Means, Running, Trial

FILES = Group("Files")

TEXT = b"0123456789" * 100


@contextmanager
def mounted(trial: Trial, *lines: str, shown: str = "") -> Iterator[Running]:
    """A server that serves the directory `files` below `/static/`; `lines` are for nginx."""
    directory = trial.directory / "files"
    (directory / "a.txt").write_bytes(TEXT)
    block = f"location /static/ {{ alias {directory}/; {' '.join(lines)} }}"
    means = {
        OURS: Means("`--mount`", ["--mount", f"/static={directory}"]),
        GRANIAN: Means(
            "`--static-path-mount`", ["--static-path-route", "/static", "--static-path-mount", str(directory)]
        ),
        NGINX: Means(shown or "`alias`", [block]),
    }
    with trial.serving(means) as server:
        yield server


@FILES.feature("Static files")
def plain(trial: Trial) -> Finding:
    """GET `/static/a.txt` returns the file, HEAD no body; a missing name is 404, and a path that leaves the directory
    returns no file."""
    with mounted(trial) as server:
        got, asked = server.ask("/static/a.txt"), server.ask("/static/a.txt", "HEAD")
        missing, above = server.ask("/static/none"), server.ask("/static/../probe.py")
    served = got.status == 200 and got.body == TEXT
    return {
        "GET": served,
        "HEAD": asked.status == 200 and asked.fields.get("content-length") in (None, str(len(TEXT))) and not asked.body,
        "404": served and missing.status == 404,
        "nothing above": served and above.status >= 400,
    }


@FILES.feature("Conditional requests")
def conditions(trial: Trial) -> Finding:
    """The `ETag` of a response in `If-None-Match` and its `Last-Modified` in `If-Modified-Since` each yield 304."""
    with mounted(trial) as server:
        fields = server.ask("/static/a.txt").fields
        sent = {
            "`If-None-Match`": ("if-none-match", fields.get("etag")),
            "`If-Modified-Since`": ("if-modified-since", fields.get("last-modified")),
        }
        return {
            part: value is not None and server.ask("/static/a.txt", "GET", f"{name}: {value}").status == 304
            for part, (name, value) in sent.items()
        }


@FILES.feature("Ranges")
def ranges(trial: Trial) -> Finding:
    """`Range: bytes=10-19` yields 206 with these bytes, two ranges `multipart/byteranges`, and one beyond the end
    416."""
    with mounted(trial) as server:
        one, several, none = (
            server.ask("/static/a.txt", "GET", f"range: bytes={spec}") for spec in ("10-19", "0-4,500-504", "5000-")
        )
    both = several.body.count(b"\r\n\r\n01234\r\n") == 2
    is_multipart = several.fields.get("content-type", "").startswith("multipart/byteranges")
    return {
        "one": one.status == 206 and one.body == TEXT[10:20],
        "several": several.status == 206 and is_multipart and both,
        "416": none.status == 416,
    }


@FILES.feature("Precompressed files")
def codings(trial: Trial) -> Finding:
    """With `app.js.br`, `app.js.zst` and `app.js.gz` beside `app.js`, a client gets the coding that it accepts, with
    `Content-Encoding`; without one it gets `app.js`."""
    directory = trial.directory / "files"
    for ending in ("", ".br", ".zst", ".gz"):
        (directory / f"app.js{ending}").write_bytes(f"stored{ending}".encode())
        os.utime(directory / f"app.js{ending}", (1_700_000_000, 1_700_000_000))
    with mounted(trial, "gzip_static on;", shown="`gzip_static`") as server:
        plain = server.ask("/static/app.js")
        answers = {
            name: (server.ask("/static/app.js", "GET", f"accept-encoding: {name}"), ending)
            for name, ending in (("br", ".br"), ("zstd", ".zst"), ("gzip", ".gz"))
        }
    return {
        name: plain.body == b"stored"
        and answer.body == f"stored{ending}".encode()
        and answer.fields.get("content-encoding") == name
        for name, (answer, ending) in answers.items()
    }


@FILES.feature("Compression on the fly")
def compressed(trial: Trial) -> Finding:
    """A text of 1000 bytes without a precompressed file is sent with gzip to a client that accepts it."""
    with mounted(trial, "gzip on; gzip_types text/plain;", shown="`gzip on`") as server:
        return {
            "": server.ask("/static/a.txt", "GET", "accept-encoding: gzip").fields.get("content-encoding") == "gzip"
        }


@FILES.feature("Symbolic links")
def links(trial: Trial) -> Finding:
    """A link to a file outside the directory is not served; a link inside it is."""
    (trial.directory / "secret").write_text("secret")
    os.symlink(trial.directory / "secret", trial.directory / "files" / "out")
    os.symlink("a.txt", trial.directory / "files" / "inside")
    with mounted(trial, "disable_symlinks on;", shown="`disable_symlinks`") as server:
        served = server.ask("/static/a.txt").body == TEXT
        return {
            "outside refused": served and server.ask("/static/out").status >= 400,
            "inside served": served and server.ask("/static/inside").body == TEXT,
        }


@FILES.feature("Files named by the application")
def handed_over(trial: Trial) -> Finding:
    """The application names a file in its response (`http.response.pathsend`, behind nginx `X-Accel-Redirect`) and the
    server sends it."""
    directory = trial.directory / "files"
    (directory / "a.txt").write_bytes(TEXT)
    means = {
        OURS: Means("`--asgi-extension`", ["--asgi-extension", "http.response.pathsend"]),
        GRANIAN: Means("by default"),
        NGINX: Means(
            "`X-Accel-Redirect`",
            [f"location /internal/ {{ internal; alias {directory}/; }}"],
            location="proxy_set_header X-Takes-Files yes;",
        ),
    }
    with trial.serving(means) as server:
        return {"": server.ask("/file").body == TEXT}
