"""Media types by the names of files."""

from __future__ import annotations

import functools
import mimetypes
import os

_TYPES = {
    ".avif": "image/avif",
    ".css": "text/css",
    ".csv": "text/csv",
    ".flac": "audio/flac",
    ".gz": "application/gzip",
    ".htm": "text/html",
    ".html": "text/html",
    ".ico": "image/vnd.microsoft.icon",
    ".jpg": "image/jpeg",
    ".js": "text/javascript",
    ".json": "application/json",
    ".jsonld": "application/ld+json",
    ".m4a": "audio/mp4",
    ".m4v": "video/mp4",
    ".map": "application/json",
    ".md": "text/markdown",
    ".mjs": "text/javascript",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
    ".oga": "audio/ogg",
    ".ogg": "audio/ogg",
    ".ogv": "video/ogg",
    ".opus": "audio/ogg",
    ".otf": "font/otf",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".txt": "text/plain",
    ".vtt": "text/vtt",
    ".wasm": "application/wasm",
    ".wav": "audio/wav",
    ".weba": "audio/webm",
    ".webm": "video/webm",
    ".webmanifest": "application/manifest+json",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".xhtml": "application/xhtml+xml",
    ".xml": "application/xml",
    ".zip": "application/zip",
    ".zst": "application/zstd",
}
"""Common types of the web, the same on each machine; others come from Python's table without the system's."""


def media_type(name: str) -> bytes:
    """Return the media type that the name of a file says, with the charset of text."""
    suffix = os.path.splitext(name)[1].lower()
    kind = _TYPES.get(suffix) or _types_of_python().get(suffix) or "application/octet-stream"
    return (f"{kind}; charset=utf-8" if kind.startswith("text/") else kind).encode()


@functools.cache
def _types_of_python() -> dict[str, str]:
    return mimetypes.MimeTypes().types_map[1]
