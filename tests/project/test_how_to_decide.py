"""The how-to pages about gold, own metrics and decisions are typed as they stand, and print what they promise."""

from __future__ import annotations

import pytest

from tests.support.docs_pages import type_doc

PAGES = ["gold", "own-metrics", "ci", "releases", "tables", "labels", "judges", "probes"]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_typed_and_prints_what_it_promises(page, tmp_path):
    typed = type_doc(f"how-to/{page}.md", tmp_path)
    assert typed.missing == [], typed.output
    assert "Traceback" not in typed.output
    assert typed.code == 0, typed.output
    assert typed.promised
