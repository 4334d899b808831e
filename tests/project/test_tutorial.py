"""The tutorial, typed from its first page to its last in one empty folder, prints what it says one sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.example_pages import type_text

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
STEPS = ("install", "decorate", "break", "see", "gate", "alert")


def pages():
    """The text of each step, in order."""
    return [(TUTORIAL / f"{step}.md").read_text(encoding="utf-8") for step in STEPS]


@pytest.mark.slow
def test_the_tutorial_can_be_typed_from_an_empty_folder_and_says_what_one_sees(real, tmp_path):
    for program in ("prometheus", "promtool"):
        real(program)
    typed = type_text("\n".join(pages()), tmp_path)
    assert typed.code == 0, typed.output
    assert typed.missing == [], typed.output
    assert "Traceback" not in typed.output


def test_each_step_says_what_one_has_and_leads_to_the_next():
    for page, following in zip(pages(), STEPS[1:], strict=False):
        assert "\n## What you have now\n" in page
        assert page.rstrip().endswith(f"]({following}.md).")
