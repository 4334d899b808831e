"""The how-to pages about gold, judging and deciding are typed as they stand, and print what they promise."""

from __future__ import annotations

import re
import sys

import pytest

from tests.support.docs_pages import DOCS, type_doc
from tests.support.example_pages import blocks, run_script

HOW_TO = DOCS / "how-to"
PAGES = ["init", "pytest", "gold", "own-metrics", "ci", "releases", "tables", "labels", "judges", "probes"]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_typed_and_prints_what_it_promises(page, tmp_path, monkeypatch):
    # The plugin of pytest by its module: an installation that can be edited has the entry points of long ago.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "ragmon.pytest_plugin")
    typed = type_doc(f"how-to/{page}.md", tmp_path)
    assert typed.missing == [], typed.output
    assert "Traceback" not in typed.output
    assert typed.code == 0, typed.output
    assert typed.promised


@pytest.mark.slow
def test_the_notebook_of_tables_prints_the_value_it_names(tmp_path):
    (notebook,) = blocks((HOW_TO / "tables.md").read_text(encoding="utf-8"), "python")
    (tmp_path / "notebook.py").write_text(notebook, encoding="utf-8")
    code, output = run_script(f"{sys.executable} notebook.py", tmp_path)
    assert (code, output.splitlines()[-1]) == (0, "0.5")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_ends_with_how_to_verify_and_what_to_do_when_it_fails(page):
    headings = re.findall(r"^## (.*)$", (HOW_TO / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[-2:] == ["Verify", "Troubleshooting"]


def test_the_index_names_every_how_to():
    """A page that is added to the menu also stands in the list of goals."""
    index = (HOW_TO / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\]\((\w[\w-]*\.md)\)", index))
    assert listed == {path.name for path in HOW_TO.glob("*.md")} - {"index.md"}
