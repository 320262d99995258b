"""Status codes and their reason phrases (RFC 9110 section 15), for the log and for status lines of any version."""

from __future__ import annotations

import http


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""


STATUS_PHRASES = {status: _phrase(status) for status in range(100, 600)}
# The registry's phrases (RFC 9110 section 15.5), which interpreters before 3.13 do not have.
STATUS_PHRASES |= {
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}
