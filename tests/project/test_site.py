"""The documentation site: it builds without a warning, fetches nothing from elsewhere, and has every page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support.waiting import TIMEOUT

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it; mkdocs.yml makes each warning an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site(site):
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    built = {page.with_name("index.html") if page.stem == "README" else page for page in pages}
    assert [str(page) for page in sorted(built) if not (site / page).is_file()] == []


def test_the_site_fetches_nothing_from_elsewhere(site):
    pages = [page.read_text(encoding="utf-8") for page in site.rglob("*.html")]
    fetched = {
        url
        for page in pages
        for tag in re.findall(r"<(?:link|script|img|iframe|source)\b[^>]*>", page)
        for url in re.findall(r'(?:src|href)="((?:https?:)?//[^"]*)"', tag)
    }
    assert len(pages) > 40
    assert fetched == set()


def test_examples_are_pages_of_the_site(site):
    """Pages outside of docs/ that are linked to are there, and their links lead to pages, not to Markdown."""
    page = (site / "examples" / "haystack" / "index.html").read_text(encoding="utf-8")
    assert 'href="app.py"' in page
    assert re.findall(r'href="[^":]*\.md[#"]', page) == []


@pytest.fixture(scope="module")
def served(site):
    """The address of the site, served from its folder."""
    handler = partial(SimpleHTTPRequestHandler, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


SEARCHED = {
    "insufficient": "verdict",
    "SSE": "server-sent",
    "session_id": "session",
    "disable": "disabled",
    "pytest": "gate",
    "token": "token_file",
}
"""Words that people type, and what they look for."""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
def test_in_a_browser_the_site_asks_nobody_else_and_its_search_finds_terms(served):
    driver = pytest.importorskip("playwright.sync_api")
    asked = []
    with driver.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{served}/index.html")
        for term, expected in SEARCHED.items():
            page.goto(f"{served}/index.html")
            page.locator("input.md-search__input").fill(term)
            page.locator("li.md-search-result__item").first.wait_for()
            assert expected in page.locator(".md-search-result__list").inner_text().lower(), term
        browser.close()
    assert [url for url in asked if not url.startswith(served)] == []
