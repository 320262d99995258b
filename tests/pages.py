"""Parts of documents that scripts write, between two markers."""

from __future__ import annotations

from pathlib import Path


def fill(page: Path, begin: str, end: str, text: str) -> None:
    """Put `text` between the markers of a page; raises SystemExit if the page has none."""
    before, has_begin, rest = page.read_text(encoding="utf-8").partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise SystemExit(f"{page.name} has no place between {begin.strip()} and {end.strip()}.")
    page.write_text(before + begin + text + end + after, encoding="utf-8")
