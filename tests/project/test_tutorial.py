"""The tutorial, typed from its first page to its last in one empty folder, prints what it says one sees."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from tests.support.deployed import run
from tests.support.example_pages import blocks, type_text

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


def test_the_workflow_is_one_to_github_and_judges_as_the_page_does(tmp_path):
    page = (TUTORIAL / "gate.md").read_text(encoding="utf-8")
    (workflow,) = blocks(page, "yaml")
    (tmp_path / "rag-gate.yml").write_text(workflow, encoding="utf-8")
    checker = Path(sys.executable).with_name("check-jsonschema")
    run(checker, "--builtin-schema", "vendor.github-workflows", tmp_path / "rag-gate.yml")
    (job,) = yaml.safe_load(workflow)["jobs"].values()
    judged = job["steps"][-1]["run"].split(" --format")[0]
    assert f".venv/bin/{judged}" in "\n".join(blocks(page, "bash"))
