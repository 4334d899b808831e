"""The documentation site: it builds without a warning, fetches nothing from elsewhere, and has every page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import TIMEOUT

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
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
