"""The built site, page by page, in a headless Chromium: `make site-test`. Served by this server below a path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

import uvicorn
from tests import browser
from tests.process import ROOT, ServerProcess
from tests.site.devtools import Page, opened

SITE = ROOT / "site"
LATEST = SITE / "latest"

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(not LATEST.is_dir(), reason="the site was not built: make site"),
]

DESKTOP, PHONE = (1280, 900), (390, 844)

WIDE = """
[...document.querySelectorAll("body *")].filter(element => {
    if (element.getBoundingClientRect().right <= innerWidth + 1 || !element.checkVisibility()) return false;
    for (let box = element; box !== document.body; box = box.parentElement) {
        const style = getComputedStyle(box);
        if (style.overflowX !== "visible" || style.position === "fixed") return false;
    }
    return true;
}).map(element => element.outerHTML.slice(0, 80))
"""
"""The elements that reach beyond the window and cannot be scrolled to inside another one."""

RESULTS = """
(function links(root) {
    return [...root.querySelectorAll("*")].flatMap(element => [
        ...(element.matches("a[href]") ? [element.href] : []),
        ...(element.shadowRoot ? links(element.shadowRoot) : []),
    ]);
})(document).filter(link => link.includes("/settings/") && link.includes("limit_active_requests"))
"""


class Links(HTMLParser):
    """The links and resources of a page, and the names that links can lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            elif name == "id" and value:
                self.names.add(value)


def pages() -> list[str]:
    """The address of each page, relative to the site of a version."""
    return sorted(path.relative_to(LATEST).as_posix().removesuffix("index.html") for path in LATEST.rglob("*.html"))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of the site, below a path of a server."""
    options = ("--port", "0", "--no-access-log", "--mount", f"/some/where={SITE}")
    with ServerProcess("examples.hello:app", *options, cwd=ROOT) as server:
        yield f"http://127.0.0.1:{server.port}/some/where/"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("browser") / "profile") as page:
        yield page


def test_versions_are_listed() -> None:
    listed = json.loads((SITE / "versions.json").read_text())
    assert uvicorn.__version__ in [entry["version"] for entry in listed]
    assert [entry["aliases"] for entry in listed if entry["aliases"]] == [["latest"]]
    assert all((SITE / entry["version"] / "index.html").is_file() for entry in listed)


def test_links_lead_to_pages_and_names() -> None:
    found = {name: Links(LATEST / name if name.endswith(".html") else LATEST / name / "index.html") for name in pages()}
    wrong = list[str]()
    for name, links in found.items():
        for target in links.targets:
            parts = urlsplit(urljoin(f"http://site.invalid/{name}", target))
            if parts.netloc != "site.invalid":
                continue
            path, fragment = unquote(parts.path).removeprefix("/"), unquote(parts.fragment)
            linked = found.get(path)
            if fragment not in linked.names if linked else not (LATEST / path).is_file():
                wrong.append(f"{name}: {target}")
    assert len(found) > 30
    assert wrong == []


@browser.is_needed
def test_pages_ask_for_nothing_else_and_fit_a_phone(page: Page, address: str, subtests: pytest.Subtests) -> None:
    ours = (address, "data:", "blob:", urljoin(address, "/favicon.ico"))
    for (width, height), scheme in ((DESKTOP, "light"), (PHONE, "dark")):
        page.emulate(width, height, scheme)
        for name in pages():
            with subtests.test(name, width=width):
                page.open(f"{address}latest/{name}")
                assert page.complaints == []
                assert [url for url in page.requested if not url.startswith(ours)] == []
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
                assert page.evaluate(WIDE) == []
                if name.endswith(".html"):
                    continue  # not of the generator
                background = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (max(map(int, re.findall(r"\d+", background)[:3])) < 128) is (scheme == "dark")


@browser.is_needed
def test_the_scheme_can_be_switched(page: Page, address: str) -> None:
    label = "[...document.querySelectorAll('.md-header__option label')].find(label => label.checkVisibility())"
    page.emulate(*DESKTOP, "light")
    page.open(f"{address}latest/")
    scheme = "document.body.getAttribute('data-md-color-scheme')"
    seen = [page.evaluate(scheme)]
    for _ in range(3):
        page.evaluate(f"{label}.click()")
        seen.append(page.evaluate(scheme))
    assert seen == ["default", "default", "slate", "default"]


@browser.is_needed
def test_the_version_can_be_chosen(page: Page, address: str) -> None:
    page.emulate(*DESKTOP, "light")
    page.open(address)
    page.wait_for(f"location.href === '{address}latest/'")
    page.wait_for("!!document.querySelector('.md-version__link')")
    links = page.evaluate("[...document.querySelectorAll('.md-version__link')].map(e => e.href)")
    assert f"{address}{uvicorn.__version__}/" in links


@browser.is_needed
def test_search_finds_a_setting(page: Page, address: str) -> None:
    page.emulate(*DESKTOP, "light")
    page.open(f"{address}latest/")
    page.evaluate("document.querySelector('[data-md-component=search] button, .md-search__button').click()")
    page.wait_for("(document.activeElement.shadowRoot?.activeElement ?? document.activeElement).matches('input')")
    page.type("limit-active-requests")
    found = page.wait_for(f"({RESULTS.strip()})[0]")
    assert found.startswith(f"{address}latest/settings/")
    assert page.complaints == []
