"""The how-to pages of capture and servers: what they say to type runs in an empty folder, and prints what they say."""

from __future__ import annotations

import re

import pytest

from tests.support.docs_pages import DOCS, type_doc

PAGES = ("capture", "processes", "spans", "serve", "incidents", "privacy")
PRINTED = {
    "serve": ["ingest        50      50        0        0          0        0         0"],
    "incidents": ["none of the 2 retrieved documents is in gold"],
    "privacy": ["capture.content"],
}
"""What else a page's commands print."""


@pytest.mark.slow
def test_the_rules_can_be_generated_and_tested_as_the_page_says(real, tmp_path):
    real("promtool")
    typed = type_doc("how-to/alerting.md", tmp_path)
    assert (typed.code, typed.missing) == (0, []), typed.output


@pytest.mark.parametrize("name", [*PAGES, "alerting", "dashboards"])
def test_a_page_ends_with_how_to_verify_and_what_to_do_when_it_fails(name):
    headings = re.findall(r"^## (.*)$", (DOCS / "how-to" / f"{name}.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[-2:] == ["Verify", "Troubleshooting"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_typed(name, tmp_path):
    typed = type_doc(f"how-to/{name}.md", tmp_path)
    assert (typed.code, typed.missing) == (0, []), typed.output
    assert [words for words in PRINTED.get(name, ()) if words not in typed.output] == [], typed.output
